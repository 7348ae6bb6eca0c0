"""A typical script for Opacus 1.6; opacus_after.py is the same for tacit."""

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.nn import functional as F

inputs = torch.randn(2_000, 20)
data = torch.utils.data.TensorDataset(inputs, (inputs[:, 0] > 0).long())
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

loader = torch.utils.data.DataLoader(data, batch_size=100)
engine = PrivacyEngine()
model, optimizer, loader = engine.make_private_with_epsilon(
    module=model,
    optimizer=optimizer,
    data_loader=loader,
    target_epsilon=3.0,
    target_delta=1e-5,
    epochs=3,
    max_grad_norm=1.0,
)
for _ in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
print(f"ε = {engine.get_epsilon(1e-5):.2f}")

right = (model(inputs).argmax(1) == data.tensors[1]).float().mean()
assert right > 0.8  # the rows are made up: of private ones this would be a release
