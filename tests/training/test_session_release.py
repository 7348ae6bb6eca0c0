"""``dp.release()``: the noisy gradient is left for somebody else to step, as it is and once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import tacit
from tacit.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.training.session import Session

PLAN = tacit.Plan(examples=12, lot_size=6, steps=3, noise_multiplier=1.0, clip=1.0)


def begun(optimizers: int = 1) -> tuple[nn.Sequential, list[torch.optim.Optimizer], Session]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    data = TensorDataset(torch.randn(12, 3), torch.randint(2, (12,)))
    parts = [model] if optimizers == 1 else [model[0], model[2]]
    made = [torch.optim.AdamW(part.parameters(), lr=0.1) for part in parts]
    return model, made, tacit.private(model, made, PLAN, data, unsafe_seed=3)


def losses(model: nn.Module, batch: Any) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def trained(end: Callable[[Session, list[torch.optim.Optimizer]], None], count: int) -> nn.Module:
    model, optimizers, session = begun(count)
    with session as dp:
        for lot in dp.lots():
            for batch in lot:
                dp.backward(losses(model, batch))
            end(dp, optimizers)
    assert dp.steps_taken == 3
    return model


def released(dp: Session, optimizers: list[torch.optim.Optimizer]) -> None:
    dp.release()
    for one in optimizers:
        one.step()


@pytest.mark.parametrize("count", [1, 2])
def test_it_is_the_step_of_dp(count: int):
    ours = trained(lambda dp, _: dp.step(), count)
    theirs = trained(released, count)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other)


def twice(optimizers: list[torch.optim.Optimizer], _: nn.Module) -> None:
    optimizers[0].step()
    optimizers[0].step()


def edited(optimizers: list[torch.optim.Optimizer], model: nn.Module) -> None:
    next(model.parameters()).grad.mul_(2.0)  # type: ignore[union-attr]
    optimizers[0].step()


def replaced(optimizers: list[torch.optim.Optimizer], model: nn.Module) -> None:
    first = next(model.parameters())
    first.grad = torch.ones_like(first)
    optimizers[0].step()


def dropped(optimizers: list[torch.optim.Optimizer], model: nn.Module) -> None:
    next(model.parameters()).grad = None
    optimizers[0].step()


def moved(optimizers: list[torch.optim.Optimizer], model: nn.Module) -> None:
    next(model.parameters()).data.add_(1.0)
    optimizers[0].step()


def another(optimizers: list[torch.optim.Optimizer], model: nn.Module) -> None:
    del optimizers
    torch.optim.SGD(model.parameters(), lr=0.1).step()


@pytest.mark.parametrize("act", [twice, edited, replaced, dropped, moved, another])
def test_any_other_step_is_refused(act: Callable[..., None]):
    model, optimizers, session = begun()
    with pytest.raises(ProtocolError), session as dp:
        lot = next(dp.lots())
        dp.accumulate(lot, lambda batch: losses(model, batch))
        dp.release()
        act(optimizers, model)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_closure_cannot_put_a_gradient_without_noise_in_place_of_what_was_released(
    by_name: bool,
):
    """An optimizer calls it after it was looked at, and steps what it leaves in ``.grad``."""
    model, optimizers, session = begun()
    row = (torch.ones(1, 3), torch.zeros(1, dtype=torch.int64))

    def closure() -> torch.Tensor:
        optimizers[0].zero_grad()
        loss = losses(model, row).sum()
        loss.backward()
        return loss

    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(ProtocolError, match="closure"), session as dp:
        dp.accumulate(next(dp.lots()), lambda batch: losses(model, batch))
        dp.release()
        optimizers[0].step(closure=closure) if by_name else optimizers[0].step(closure)
    assert all(map(torch.equal, model.parameters(), before))


def test_none_is_no_closure():
    def end(dp: Session, optimizers: list[torch.optim.Optimizer]) -> None:
        dp.release()
        optimizers[0].step(None)

    trained(end, 1)


@pytest.mark.parametrize("then", ["lot", "save", "statement", "public", "leave"])
def test_nothing_goes_on_before_the_step(then: str, tmp_path: Any):
    model, _, session = begun()
    refused = pytest.raises(ProtocolError, match=r"optimizer\.step\(\) once after dp\.release")
    with refused, session as dp:
        lots = dp.lots()
        dp.accumulate(next(lots), lambda batch: losses(model, batch))
        dp.release()
        if then == "lot":
            next(lots)
        elif then == "save":
            dp.save(tmp_path / "saved")
        elif then == "statement":
            dp.statement(1e-2)
        elif then == "public":
            with dp.public():
                pass


def test_the_gradient_that_is_left_is_noisy_and_ends_with_the_step():
    model, optimizers, session = begun()
    with session as dp:
        lots = dp.lots()
        dp.accumulate(next(lots), lambda batch: losses(model, batch))
        dp.release()
        gradients = [p.grad for p in model.parameters()]
        assert all(one is not None and bool((one != 0).all()) for one in gradients)
        optimizers[0].step()
        assert all(p.grad is None for p in model.parameters())
        with pytest.raises(ProtocolError, match="without a lot"):
            dp.release()
