"""Several GPUs, or none: the same script for one process and for many.

    python examples/several_gpus.py
    torchrun --nproc-per-node 8 examples/several_gpus.py

Every process holds the same data set. Lot size, steps, noise and ε are those of all processes
together. Without GPUs the processes use the CPU.
"""

import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import tacit

rank = int(os.environ.get("LOCAL_RANK", "0"))
device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
rows = torch.randn(2_000, 16, generator=torch.Generator().manual_seed(4))  # the same on all ranks
data = TensorDataset(rows, (rows[:, 0] > 0).long())
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
plan = tacit.Plan.for_budget(
    epsilon=3, delta=1e-5, examples=2_000, lot_size=200, epochs=2, clip=1.0
)
with tacit.private(model, optimizer, plan, data) as dp:
    for lot in dp.lots():
        for x, y in lot:
            dp.backward(F.cross_entropy(model(x), y, reduction="none"))
        dp.step()
claim = dp.statement()
if rank == 0:
    print(f"{claim.steps_taken} steps, ε = {claim.epsilon:.2f} at δ = {claim.delta:g}")
