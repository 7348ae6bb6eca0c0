"""A budget that a team shares: charged before every release, refused once it is spent.

    python examples/team_budget.py [LEDGER.db]

A budget belongs to the data. Whoever trains on them or counts in them charges the same one, from
any process; for several machines the ledger is a PostgreSQL address. An officer can also be asked
first: see the console's page.
"""

import sys

import torch
from torch import nn
from torch.utils.data import TensorDataset

import tacit
from tacit.errors import BudgetExceeded
from tacit.mechanisms import mean

ledger = tacit.Ledger(sys.argv[1] if len(sys.argv) > 1 else "budget.db")
budget = ledger.open("patients-2026", epsilon=4, delta=1e-5)
inputs = torch.randn(2_000, 8)
data = TensorDataset(inputs, (inputs[:, 0] > 0).long())


def train(epsilon: float, delta: float) -> None:
    """One member's model, charged as a whole before its first step."""
    plan = tacit.Plan.for_budget(
        epsilon=epsilon, delta=delta, examples=2_000, lot_size=200, epochs=1, clip=1.0
    )
    model = nn.Linear(8, 2)
    tacit.fit(model, torch.optim.SGD(model.parameters(), lr=0.5), plan, data, budget.at(delta))


train(2.0, 4e-6)
print(f"after Ada's model {budget.spent().epsilon:.2f} of 4 is spent")
age = mean([34, 51, 29, 77] * 500, bounds=(0, 110), epsilon=0.5, budget=budget, label="mean age")
print(f"after Ben's mean age of {age.value:.1f} it is {budget.spent().epsilon:.2f}")
try:
    train(2.0, 4e-6)
except BudgetExceeded as refusal:
    print(f"Cem is refused: {refusal}")
assert ledger.verify().ok
ledger.close()
