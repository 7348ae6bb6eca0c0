"""Private statistics of a table: counts, a mean, a median and a histogram, charged to one budget.

    python examples/private_statistics.py [LEDGER.db]

Bounds and categories are declared, never looked up. Each number is charged before its noise is
drawn.
"""

import sys

import numpy as np
import pandas as pd

import tacit
from tacit.mechanisms import histogram, laplace, mean, quantile

rng = np.random.default_rng(2)
table = pd.DataFrame(
    {
        "age": rng.integers(18, 95, 5_000),
        "income": rng.gamma(4, 9_000, 5_000),
        "town": rng.choice(["Aarau", "Bern", "Chur"], 5_000, p=[0.5, 0.3, 0.2]),
    }
)
ledger = tacit.Ledger(sys.argv[1] if len(sys.argv) > 1 else "budget.db")
budget = ledger.open("survey", epsilon=2, delta=1e-6)

over_80 = laplace(int((table.age > 80).sum()), sensitivity=1, epsilon=0.25, budget=budget)
age = mean(table.age, bounds=(0, 110), epsilon=0.25, budget=budget, label="mean age")
income = quantile(table.income, 0.5, bounds=(0, 500_000), epsilon=0.5, budget=budget)
towns = histogram(table.town, cells=["Aarau", "Bern", "Chur", "Davos"], epsilon=0.5, budget=budget)

print(f"older than 80: {over_80.value:.0f}; mean age: {age.value:.1f}")
print(f"median income: {income.value:,.0f}; people by town: {towns.value}")
print(f"spent: ε = {budget.spent().epsilon:g} of 2")
ledger.close()
