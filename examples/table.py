"""A table with pandas: a network learns one column from the others.

    python examples/table.py [FILE.csv] [RUN_FOLDER]

The columns, their ranges and their categories are declared below, from what they mean. Whatever is
read off the private rows (a largest value, a mean, a list of categories) would be a release of its
own, and nobody would have paid for it. Without a file, rows are made up.
"""

import sys

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import TensorDataset, random_split

import tacit

NUMBERS = {"age": (17, 90), "hours": (1, 99), "years_of_school": (0, 20)}
CHOICES = {
    "job": ["office", "trade", "care", "none"],
    "region": ["north", "south", "east", "west"],
}
TARGET, CLASSES = "owns_home", ["no", "yes"]


def made_up(count: int) -> pd.DataFrame:
    """Rows that look like a survey's."""
    rng = np.random.default_rng(3)
    table = pd.DataFrame(
        {name: rng.integers(low, high + 1, count) for name, (low, high) in NUMBERS.items()}
    )
    for name, choices in CHOICES.items():
        table[name] = rng.choice(choices, count)
    wealth = table.age / 20 + table.hours / 40 + (table.job == "office") + rng.normal(0, 0.6, count)
    table[TARGET] = np.where(wealth > 4.2, "yes", "no")
    return table


def encoded(table: pd.DataFrame) -> TensorDataset:
    """Each row by itself: numbers from -1 to 1, a place for each category, 0 if one is missing."""
    absent = {TARGET, *NUMBERS, *CHOICES} - {*table.columns}
    assert not absent, f"no column {absent} among {[*table.columns]}: declare your own at the top"
    table = table[table[TARGET] != ""]
    assert table[TARGET].isin(CLASSES).all(), "a label is none of CLASSES: name all possible ones"
    columns = []
    for name, (low, high) in NUMBERS.items():
        values = pd.to_numeric(table[name], errors="coerce").clip(low, high)
        columns.append((2 * (values - low) / (high - low) - 1).fillna(0).to_numpy())
    for name, choices in CHOICES.items():
        columns += [(table[name] == choice).to_numpy(dtype=float) for choice in choices]
    inputs = torch.tensor(np.stack(columns, axis=1), dtype=torch.float32)
    return TensorDataset(inputs, torch.tensor((table[TARGET] == CLASSES[1]).to_numpy()).long())


file = sys.argv[1] if len(sys.argv) > 1 else None
out = sys.argv[2] if len(sys.argv) > 2 else "runs/table"
rows = encoded(pd.read_csv(file, dtype=str, keep_default_na=False) if file else made_up(6_000))
private, held_out = random_split(rows, [0.85, 0.15])  # accuracy on held_out is published
model = nn.Sequential(nn.Linear(rows.tensors[0].shape[1], 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
plan = tacit.Plan.for_budget(
    epsilon=1, delta=1e-5, examples=len(private), lot_size=len(private) / 10, epochs=6, clip=1.0
)
done = tacit.fit(model, optimizer, plan, private, held_out=held_out, out=out)
print(done.history[-1])
print(f"tacit report {out}")
