"""On a GPU: the compiled path, padded lots and all, against double precision on the CPU."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import tacit
from tacit.models.networks import StandardisedConv2d
from tacit.training.clipping import clipped_gradients
from tacit.training.clipping.forms.matrix import cover
from tacit.training.clipping.program import Replayed

from .clipping.networks import Gpt, Through

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # of torch's compiler: that TF32 would be faster
]

ROWS = 24


@pytest.fixture(autouse=True)
def compiled_afresh():
    """Torch's compiler gives a function up that it has compiled for eight models."""
    torch.compiler.reset()


class Block(nn.Module):
    """A token model with embeddings, attention, norms and linear maps."""

    def __init__(self):
        super().__init__()
        self.table, self.position = nn.Embedding(50, 16), nn.Parameter(torch.randn(12, 16))
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 50)

    def forward(self, ids):
        x = self.table(ids) + self.position[: ids.shape[1]]
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(x).mean(1)


def mlp():
    return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 5)), torch.randn(ROWS, 6)


def conv():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1),
        nn.Flatten(), nn.Linear(16 * 16, 5),
    )  # fmt: skip
    return net, torch.randn(ROWS, 3, 8, 8)


def standardised():
    """Shallow layers, whose gradients are written out, and deep ones with norms as differences."""
    net = nn.Sequential(
        StandardisedConv2d(3, 16, 3), nn.GroupNorm(2, 16), nn.ReLU(),
        StandardisedConv2d(16, 32, 3, stride=2), nn.ReLU(),
        StandardisedConv2d(32, 64, 3, stride=2), nn.ReLU(), StandardisedConv2d(64, 64, 3),
        nn.Flatten(), nn.Linear(64 * 4, 5),
    )  # fmt: skip
    return net, torch.randn(ROWS, 3, 8, 8)


def tokens():
    return Block(), torch.randint(50, (ROWS, 12))


def places():
    """Places that are looked up in a part of a model: where a graph ends, a block is another."""
    parts = {"inner": Gpt(50, 16, 12), "out": nn.Linear(50, 5)}
    for table in (parts["inner"].tokens, parts["inner"].positions):
        nn.init.normal_(table.weight, std=0.1)  # of large ones a change is rounded
    return Through(lambda m, ids: m.out(m.inner(ids).mean(1)), **parts), tokens()[1]


def expected_change(model, x, y, lot_size):
    """-(Σ clipped gradients) / lot_size, in double precision on the CPU."""
    exact = copy.deepcopy(model).cpu().double()
    inputs = x.cpu() if not x.is_floating_point() else x.cpu().double()
    result = clipped_gradients(
        dict(exact.named_parameters()),
        lambda: F.cross_entropy(exact(inputs), y.cpu(), reduction="none"),
        rows=len(x),
        clip=0.5,
    )
    return {name: -value / lot_size for name, value in result.sums.items()}


@pytest.mark.parametrize("build", [mlp, conv, standardised, tokens, places])
@pytest.mark.parametrize("compiled_model", [False, True])
@pytest.mark.parametrize("batch", ["auto", 8])
def test_every_step_is_the_oracles(build, compiled_model, batch, monkeypatch):
    captured = []
    plain = Replayed._captured
    monkeypatch.setattr(Replayed, "_captured", lambda *a: captured.append(1) or plain(*a))
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model, x = build()
    model, x = model.cuda(), x.cuda()
    y = torch.randint(5, (ROWS,)).cuda()
    run = torch.compile(model) if compiled_model else model
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    plan = tacit.Plan(examples=ROWS, lot_size=ROWS, steps=10, noise_multiplier=1e-7, clip=0.5)
    data, performance = TensorDataset(x, y), tacit.Performance(batch=batch, compile=True)
    with tacit.private(model, optimizer, plan, data, performance=performance) as dp:
        for lot in dp.lots():
            before = {name: p.detach().clone() for name, p in model.named_parameters()}
            wanted = expected_change(model, x, y, ROWS)
            for inputs, labels in lot:
                dp.backward(F.cross_entropy(run(inputs), labels, reduction="none"))
            dp.step()
            for name, parameter in model.named_parameters():
                change = (parameter.detach() - before[name]).cpu().double()
                error = (change - wanted[name]).norm() / (wanted[name].norm() + 1e-3)
                assert error < 1e-4, (name, lot.step, float(error))
    assert captured or batch == 8  # where addresses repeat, steps are replayed


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("tf32", [False, True])
def test_recorded_steps_of_standardised_filters_are_the_oracles(tf32, last):
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    model, x = standardised()
    layout = torch.channels_last if last else torch.contiguous_format
    model, x = model.cuda().to(memory_format=layout), x.cuda().to(memory_format=layout)
    # What a norm in TF32 may hide is covered: sums are smaller by what it is raised by, at most,
    # if the terms of a gradient, one for each pixel, do not cancel. Beside that they are rounded:
    # by 2⁻¹¹ for each of two factors, in four layers on the way and as many on the way back.
    grow, share = cover(x[0, 0].numel(), x, convolved=True)
    near = math.sqrt(grow + share) - 1 + 2**-8 if tf32 else 1e-4
    y = torch.randint(5, (ROWS,)).cuda()
    run = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    plan = tacit.Plan(examples=ROWS, lot_size=ROWS, steps=8, noise_multiplier=1e-7, clip=0.5)
    data, performance = TensorDataset(x, y), tacit.Performance(capture=True)
    with tacit.private(model, optimizer, plan, data, performance=performance) as dp:
        for lot in dp.lots():
            before = {name: p.detach().clone() for name, p in model.named_parameters()}
            wanted = expected_change(model, x, y, ROWS)
            dp.accumulate(
                lot, lambda batch: F.cross_entropy(run(batch[0]), batch[1], reduction="none")
            )
            dp.step()
            for name, parameter in model.named_parameters():
                change = (parameter.detach() - before[name]).cpu().double()
                error = (change - wanted[name]).norm() / (wanted[name].norm() + 1e-3)
                assert error < near, (name, lot.step, float(error))
        explained = dp.explain()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    assert "standardised conv" in explained
    assert "overlap" not in explained


def test_what_the_device_draws_does_not_follow_a_seed_that_only_it_was_given():
    model, inputs = mlp()
    model.cuda()
    data = TensorDataset(inputs.cuda(), torch.zeros(ROWS, dtype=torch.long, device="cuda"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    plan = tacit.Plan(examples=ROWS, lot_size=ROWS, steps=4, noise_multiplier=1.0, clip=1.0)
    torch.cuda.manual_seed(0)
    known, drawn = float(torch.rand((), device="cuda")), set()
    with tacit.private(model, optimizer, plan, data) as dp:
        for lot in dp.lots():
            torch.cuda.manual_seed(0)
            for x, y in lot:
                drawn.add(float(torch.rand((), device="cuda")))
                dp.backward(F.cross_entropy(model(x), y, reduction="none"))
            dp.step()
    assert known not in drawn
    assert len(drawn) > 1
