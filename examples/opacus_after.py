"""The script of opacus_before.py, for tacit: ten lines are new."""

import torch
from torch import nn
from torch.nn import functional as F

import tacit

inputs = torch.randn(2_000, 20)
data = torch.utils.data.TensorDataset(inputs, (inputs[:, 0] > 0).long())
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

plan = tacit.Plan.for_budget(
    epsilon=3.0, delta=1e-5, examples=2_000, lot_size=100, epochs=3, clip=1.0
)
with tacit.private(model, optimizer, plan, data) as dp:
    for lot in dp.lots():
        for x, y in lot:
            dp.backward(F.cross_entropy(model(x), y, reduction="none"))
        dp.step()
print(f"ε = {dp.spent(1e-5):.2f}")

right = (model(inputs).argmax(1) == data.tensors[1]).float().mean()
assert right > 0.8  # the rows are made up: of private ones this would be a release
