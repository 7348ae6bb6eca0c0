"""Auditing your own model: shadow models attack it, and the claim must survive.

    python examples/audit.py
    tacit audit runs/audited --attack lira --shadows 16 --model examples/audit.py:prepare
    tacit audit engine --quick --model examples/audit.py:setting

The first line trains. The second trains shadow models in the same way, asks which records were
members, and compares what it finds with what the guarantee allows. The third tests the engine
itself on this model and loss. What an audit prints is secret: it is computed without noise.
"""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import tacit
from tacit.auditing.replay import Setting

torch.manual_seed(6)  # of the made-up rows; the noise takes no seed
rows = torch.randn(1_200, 12)
labels = (rows[:, 0] + 0.5 * torch.randn(1_200) > 0).long()
private = TensorDataset(rows[:600], labels[:600])
held_out = TensorDataset(rows[600:], labels[600:])
plan = tacit.Plan.for_budget(epsilon=2, delta=1e-5, examples=600, lot_size=60, epochs=2, clip=1.0)


def network() -> nn.Module:
    """What is trained, and audited."""
    return nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 2))


def prepare() -> tacit.Prepared:
    """All that ``tacit.fit`` was given: an audit of the run trains shadow models with it."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    return tacit.Prepared(
        model=model, optimizer=optimizer, plan=plan, dataset=private, held_out=held_out
    )


def setting() -> Setting:
    """The same for the engine's self-test."""
    return Setting(
        model=network,
        loss=lambda model, batch: tacit.losses.cross_entropy(model(batch[0]), batch[1]),
        dataset=private,
        plan=plan,
    )


if __name__ == "__main__":
    one = prepare()
    done = tacit.fit(one.model, one.optimizer, plan, private, held_out=held_out, out="runs/audited")
    print(done.history[-1])
