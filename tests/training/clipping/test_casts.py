"""Inputs under autocast: one copy in half precision serves all uses of an input, to the bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tacit.training.clipping.engine import Engine
from tacit.training.clipping.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.training.clipping.sums import BatchSums

ROWS, TIME, SIZE = 6, 5, 8


class Three(nn.Module):
    """Three maps of one input, as queries, keys and values are; what else may happen to it."""

    def __init__(self, between: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(SIZE, SIZE, dtype=torch.float32)
        self.q, self.k, self.v = (nn.Linear(SIZE, SIZE, bias=False) for _ in range(3))
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        seen = 3.0 * self.first(x).float()
        if self.between == "checkpointed":
            made = checkpoint(self._mixed, seen, use_reentrant=False)
        else:
            made = self._mixed(seen)
        return made.float().square().mean((1, 2))

    def _mixed(self, seen: Tensor) -> Tensor:
        q, k = self.q(seen), self.k(seen)
        if self.between == "written into":
            with torch.no_grad():
                seen.mul_(2.0)
        if self.between == "another precision":
            with torch.autocast("cpu", torch.float16):
                return q * k * self.v(seen)
        return q * k * self.v(seen)


class Batch:
    """One private batch, and what it saved."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        named = dict(model.named_parameters())
        self.engine = Engine(named, dict.fromkeys(named, 0))
        self.saved: list[Tensor] = []

    def sums(self) -> BatchSums:
        x = torch.randn(ROWS, TIME, SIZE, generator=torch.Generator().manual_seed(1))
        weights, mask = torch.ones(ROWS), torch.ones(ROWS, dtype=torch.bool)
        self.engine.begin(ROWS, 1, "a shape")
        self.engine.enter()
        with torch.autocast("cpu", torch.bfloat16):
            losses = self.model(x)
        self.engine.stop()
        self.saved = list(self.engine.recorder.saved)
        return self.engine.finish(losses, weights, torch.tensor([0.05]), mask)


def copying(_: Recorder, value: Tensor) -> Tensor:
    """As if every use had a copy of its own."""
    return value.to(torch.get_autocast_dtype("cpu")) if value.dtype == torch.float32 else value


@pytest.mark.parametrize(
    ("between", "copies"),
    [("nothing", 2), ("checkpointed", 2), ("written into", 3), ("another precision", 3)],
)
def test_one_copy_serves_all_uses(
    between: str, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = Batch(Three(between))
    found = [batch.sums() for _ in range(3)]
    assert len({one.untyped_storage().data_ptr() for one in batch.saved}) == copies
    assert len(batch.saved) == 4
    monkeypatch.setattr(Recorder, "as_computed", copying)
    plain = Batch(Three(between))
    for one in found:
        alike(one, plain.sums())
    assert len({one.untyped_storage().data_ptr() for one in plain.saved}) == 4


def alike(one: BatchSums, other: BatchSums) -> None:
    assert torch.equal(one.squared_norms, other.squared_norms)
    assert all(torch.equal(value, other.sums[name]) for name, value in one.sums.items())
    assert float(one.squared_norms.min()) > 0


def test_an_input_is_let_go_as_early_as_without_it() -> None:
    """Only its copy is needed, and that until another is made, or the batch is done."""
    batch = Batch(Three("nothing"))
    batch.sums()
    assert batch.engine.recorder._cast is None
    recorder = batch.engine.recorder
    recorder.begin(ROWS)
    made: Callable[[], Any] = lambda: torch.ones(3, 4)  # noqa: E731
    with torch.autocast("cpu", torch.bfloat16):
        recorder.as_computed(made())
        kept = recorder._cast
        assert kept is not None
        assert kept.of() is None
        other = torch.zeros(3, 4)
        assert not recorder.as_computed(other).any()
    recorder.clear()
