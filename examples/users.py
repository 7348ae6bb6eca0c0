"""Users as units: people with several records each, protected with all of them.

    python examples/users.py

``groups`` names the person of every record, by any label. The plan counts people: ``examples`` is
their number, ``lot_size`` how many are drawn on average. Of a person with more than
``examples_per_user`` records, a fresh random choice is used each time.
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import tacit

PEOPLE, RECORDS = 800, 4_000
owner = torch.randint(PEOPLE, (RECORDS,))
owner[:PEOPLE] = torch.arange(PEOPLE)  # everybody has a record
habits = torch.randn(PEOPLE, 10)
inputs = habits[owner] + 0.5 * torch.randn(RECORDS, 10)
data = TensorDataset(inputs, (inputs[:, 0] + inputs[:, 1] > 0).long())

model = nn.Linear(10, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
plan = tacit.Plan.for_budget(
    epsilon=4,
    delta=1e-4,
    examples=PEOPLE,
    lot_size=80,
    epochs=3,
    clip=1.0,
    unit="user",
    examples_per_user=5,
)
with tacit.private(model, optimizer, plan, data, groups=[f"person {at}" for at in owner]) as dp:
    for lot in dp.lots():
        for x, y in lot:
            dp.backward(F.cross_entropy(model(x), y, reduction="none"))
        dp.step()
claim = dp.statement()
print(f"ε = {claim.epsilon:.2f} at δ = {claim.delta:g} for every {claim.unit}")
