"""The order of a private run is enforced, and nothing is left behind when it is broken."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tacit.errors import InvalidArgument, ProtocolError
from tacit.training.lot import Accumulator
from tacit.training.performance import Performance

from . import sessions
from .sessions import (
    Grads,
    close,
    cross_entropy,
    data,
    drawn,
    example_sum,
    network,
    plan,
    session,
    sgd,
    whole_lot,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tacit.training.session import Session


def traces(dp: Session) -> dict[str, Any]:
    """What an ended context must not leave behind."""
    return {
        "modes": len(torch.overrides._get_current_function_mode_stack()),
        "autocast": torch.is_autocast_enabled("cpu"),
        "grad": torch.is_grad_enabled(),
        "step hooks": [len(o._optimizer_step_pre_hooks) for o in dp.optimizers],
        "forward hooks": [len(m._forward_hooks) for m in dp.model.modules()],
    }


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    assert not torch.overrides._get_current_function_mode_stack()
    yield
    assert not torch.overrides._get_current_function_mode_stack()
    assert not torch.is_autocast_enabled("cpu")


def full() -> Any:
    return plan(lot_size=sessions.EXAMPLES)


# ---- lots and steps


def test_a_lot_left_without_a_step() -> None:
    with pytest.raises(ProtocolError, match=r"lot 0 was left without dp\.step"), session() as dp:
        for _lot in dp.lots():
            pass


def test_a_context_left_in_the_middle_of_a_lot() -> None:
    with pytest.raises(ProtocolError, match=r"lot 0 was left without dp\.step"), session() as dp:
        next(dp.lots())


def test_a_second_step_for_one_lot() -> None:
    with session() as dp:
        lot = next(dp.lots())
        whole_lot(dp, lot, cross_entropy(dp.model))
        with pytest.raises(ProtocolError, match=r"stepped once"):
            dp.step()
        assert dp.steps_taken == 1


def test_no_step_before_a_lot_and_none_after_the_plan() -> None:
    with session() as dp:
        with pytest.raises(ProtocolError, match="without a lot"):
            dp.step()
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(dp.model))
        assert dp.steps_taken == 4
        with pytest.raises(ProtocolError, match="plan is spent"):
            dp.step()
        assert list(dp.lots()) == []
        assert dp.steps_taken == 4


@pytest.mark.parametrize("done", [0, 1])
def test_a_step_before_all_batches(done: int) -> None:
    with (
        pytest.raises(ProtocolError, match=r"not passed to dp\.backward"),
        session(plan=full(), performance=Performance(batch=20)) as dp,
    ):
        for batch in next(dp.lots()):
            if done:
                dp.backward(cross_entropy(dp.model)(batch))
            dp.step()
    assert dp.steps_taken == 0


def test_the_first_batch_is_not_released_before_it_is_checked() -> None:
    """Leaving the loop before the repetition leaves the lot undone."""
    chosen = plan(examples=4, lot_size=4)
    with (
        pytest.raises(ProtocolError, match=r"not passed to dp\.backward"),
        session(plan=chosen, dataset=data(4)) as dp,
    ):
        for batch in next(dp.lots()):
            dp.backward(cross_entropy(dp.model)(batch))
            break
        dp.step()


def test_a_batch_that_is_skipped() -> None:
    with (
        pytest.raises(ProtocolError, match="a batch of the lot was not passed"),
        session(plan=full()) as dp,
    ):
        list(next(dp.lots()))


def test_two_lots_at_once() -> None:
    with pytest.raises(ProtocolError, match=r"waits for dp\.step"), session() as dp:
        next(dp.lots())
        next(dp.lots())


def test_an_old_lot_is_over() -> None:
    with session(plan=full()) as dp:
        lots = dp.lots()
        old = next(lots)
        batches = iter(old)
        next(batches)
        with suppress(ProtocolError):
            dp.__exit__(None, None, None)
        dp.__enter__()
        new = next(dp.lots())
        for _ in range(2):
            with pytest.raises((ProtocolError, StopIteration)):
                next(batches)
            with pytest.raises(ProtocolError, match="lot 0 is over"):
                next(iter(old))
        whole_lot(dp, new, cross_entropy(dp.model))
        assert dp.steps_taken == 1


def test_lots_of_an_ended_context_are_over() -> None:
    with session() as dp:
        lots = dp.lots()
        whole_lot(dp, next(lots), cross_entropy(dp.model))
    with pytest.raises(ProtocolError, match="inside `with"):
        next(lots)
    with pytest.raises(ProtocolError, match="inside `with"):
        dp.step()


def test_a_stepped_lot_cannot_be_iterated_again() -> None:
    with session(plan=full()) as dp:
        lots = dp.lots()
        lot = next(lots)
        whole_lot(dp, lot, cross_entropy(dp.model))
        assert list(lot) == []
        following = next(lots)
        assert list(lot) == []
        whole_lot(dp, following, cross_entropy(dp.model))


def test_entering_twice_is_refused_and_entering_again_goes_on() -> None:
    with session() as dp:
        with pytest.raises(ProtocolError, match="already entered"):
            dp.__enter__()
        whole_lot(dp, next(dp.lots()), cross_entropy(dp.model))
    with dp:
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(dp.model))
    assert dp.steps_taken == 4


# ---- backward


def test_backward_outside_a_lot() -> None:
    with session() as dp:
        with pytest.raises(ProtocolError, match="for batch in lot"):
            dp.backward(cross_entropy(dp.model)(data()[:4]))
        lot = next(dp.lots())
        with pytest.raises(ProtocolError, match="for batch in lot"):
            dp.backward(cross_entropy(dp.model)(data()[:4]))
        whole_lot(dp, lot, cross_entropy(dp.model))


def test_backward_twice() -> None:
    with session(plan=full()) as dp:
        lot = next(dp.lots())
        for batch in lot:
            losses = cross_entropy(dp.model)(batch)
            dp.backward(losses)
            with pytest.raises(ProtocolError, match="once for each batch"):
                dp.backward(losses)
        dp.step()


SHAPES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "(B, 1)": (lambda x: x[:, None], r"squeeze\(1\)"),  # PEERS 1: Opacus clips nothing then
    "scalar": (lambda x: x.mean(), "reduction='none'"),
    "(B, T)": (lambda x: x[:, None].expand(-1, 4), "token_mean"),
    "(B-1,)": (lambda x: x[1:], "one loss for each row"),
    "number": (lambda x: x.detach().sum().item(), "must be a tensor"),
    "integers": (lambda x: x.long(), "real numbers"),
    "detached": (lambda x: x.detach(), "do not depend on any private parameter"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_losses_that_are_not_one_per_row(name: str) -> None:
    """They are refused with the remedy, and the batch can be done rightly afterwards."""
    spoil, message = SHAPES[name]
    model = network()
    optimizer = sgd(model)
    grads = Grads(model, optimizer)
    with session(model, optimizer=optimizer, plan=full()) as dp:
        for batch in (lot := next(dp.lots())):
            with pytest.raises(InvalidArgument, match=message) as refusal:
                dp.backward(spoil(cross_entropy(model)(batch)))
            assert "\n" not in str(refusal.value)
            dp.backward(cross_entropy(model)(batch))
        assert lot.is_done
        dp.step()
    truth = sessions.example_sum(network(), data(), range(40), sessions.CLIP)
    assert sessions.close(grads.steps[0], {n: v / 40 for n, v in truth.items()})


def test_losses_that_depend_on_no_parameter() -> None:
    with pytest.raises(ValueError, match="got no gradient"), session(plan=full()) as dp:
        for x, _ in next(dp.lots()):
            dp.backward(x.requires_grad_().sum(1))


# ---- what would bypass the noise


def test_loss_backward_inside_a_lot() -> None:
    with pytest.raises(ProtocolError, match="bypass clipping"), session(plan=full()) as dp:
        for batch in next(dp.lots()):
            cross_entropy(dp.model)(batch).mean().backward()


def test_loss_backward_between_lots() -> None:
    with (
        pytest.raises(ProtocolError, match=r"gradient of 0\.weight was set"),
        session(plan=full()) as dp,
    ):
        lot = next(dp.lots())
        x, y = data()[:4]
        functional.cross_entropy(dp.model(x), y).backward()
        whole_lot(dp, lot, cross_entropy(dp.model))


def test_loss_backward_after_the_private_one() -> None:
    with (
        pytest.raises(ProtocolError, match=r"gradient of 0\.weight was set"),
        session(plan=full()) as dp,
    ):
        for batch in next(dp.lots()):
            dp.backward(cross_entropy(dp.model)(batch))
            cross_entropy(dp.model)(batch).mean().backward()


def test_an_edited_gradient() -> None:
    model = network()
    with (
        pytest.raises(ProtocolError, match=r"gradient of 2\.bias was set"),
        session(model, plan=full()) as dp,
    ):
        lot = next(dp.lots())
        for batch in lot:
            dp.backward(cross_entropy(model)(batch))
        model.get_parameter("2.bias").grad = torch.ones(3)
        dp.step()
    assert dp.steps_taken == 0


def test_a_direct_optimizer_step() -> None:
    model = network()
    with session(model, plan=full()) as dp:
        for at in ("between", "inside"):
            lot = next(dp.lots())
            for batch in lot:
                if at == "inside":
                    with pytest.raises(ProtocolError, match=r"SGD\.step\(\) was called"):
                        dp.optimizers[0].step()
                dp.backward(cross_entropy(model)(batch))
            with pytest.raises(ProtocolError, match=r"SGD\.step\(\) was called"):
                dp.optimizers[0].step()
            dp.step()
    dp.optimizers[0].step()  # nobody minds outside


@pytest.mark.parametrize("when", ["in the lot", "before the step", "between lots", "at the end"])
def test_a_parameter_changed_in_place(when: str) -> None:
    model = network()

    def change() -> None:
        with torch.no_grad():
            model.get_parameter("0.bias").add_(1.0)

    with (
        pytest.raises(ProtocolError, match=r"parameter 0\.bias was changed in place"),
        session(model, plan=plan(lot_size=40, steps=2)) as dp,
    ):
        for lot in dp.lots():
            for batch in lot:
                if when == "in the lot":
                    change()
                dp.backward(cross_entropy(model)(batch))
            if when == "before the step":
                change()
            dp.step()
            if when == "between lots" or (when == "at the end" and lot.step == 1):
                change()


def test_a_parameter_that_is_replaced() -> None:
    model = network()
    with (
        pytest.raises(ValueError, match="no optimizer holds it"),
        session(model, plan=full()) as dp,
    ):
        lot = next(dp.lots())
        model[0].weight = nn.Parameter(torch.zeros(6, 5))
        whole_lot(dp, lot, cross_entropy(model))


def test_zero_grad_anywhere_is_harmless() -> None:
    def run(zero: Callable[[], None]) -> dict[str, Any]:
        model = network()
        optimizer = sgd(model)
        grads = Grads(model, optimizer)
        clear = (lambda: optimizer.zero_grad(set_to_none=False)) if zero else (lambda: None)
        with session(model, optimizer=optimizer, unsafe_seed=3) as dp:
            for lot in dp.lots():
                clear()
                for batch in lot:
                    clear()
                    losses = cross_entropy(model)(batch)
                    clear()
                    dp.backward(losses)
                    clear()
                dp.step()
        return grads.steps[-1]

    one, other = run(lambda: None), run(None)  # type: ignore[arg-type]
    assert all(torch.equal(one[name], other[name]) for name in one)


# ---- exceptions


class Broken(Exception):
    pass


@pytest.mark.parametrize("where", ["forward", "loop", "between", "losses"])
@pytest.mark.parametrize("precision", ["single", "bfloat16"])
def test_exceptions_leave_nothing_behind_and_training_goes_on(where: str, precision: Any) -> None:
    model = network()
    dp = session(model, plan=plan(lot_size=40), performance=Performance(precision=precision))
    before = traces(dp)

    def broken(*_: Any) -> None:
        raise Broken

    handle = model[1].register_forward_hook(broken) if where == "forward" else None
    with pytest.raises((Broken, InvalidArgument)), dp:
        for lot in dp.lots():
            if where == "between":
                raise Broken
            for batch in lot:
                if where == "loop":
                    raise Broken
                losses = cross_entropy(model)(batch)
                dp.backward(losses.sum() if where == "losses" else losses)
            dp.step()
    if handle is not None:
        handle.remove()
    assert traces(dp) == before
    assert dp.steps_taken == 0
    assert not dp._computation._total.sums
    with dp:
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(model))
    assert dp.steps_taken == 4
    assert traces(dp) == before


def test_a_batch_held_by_hand_is_let_go_of_at_the_end() -> None:
    dp = session(plan=full())
    before = traces(dp)
    with pytest.raises(Broken), dp:
        batches = iter(next(dp.lots()))
        next(batches)
        raise Broken
    assert traces(dp) == before
    del batches


def test_the_loop_may_be_left_and_started_again() -> None:
    model = network()
    optimizer = sgd(model)
    grads = Grads(model, optimizer)
    chosen = Performance(batch=10)
    with session(model, optimizer=optimizer, plan=full(), performance=chosen) as dp:
        lot = next(dp.lots())
        rounds = 0
        while not lot.is_done:
            rounds += 1
            for at, batch in enumerate(lot):
                losses = cross_entropy(model)(batch)
                if at == 3:
                    break
                dp.backward(losses)
        dp.step()
    truth = sessions.example_sum(network(), data(), range(40), sessions.CLIP)
    assert rounds > 1
    assert sessions.close(grads.steps[0], {n: v / 40 for n, v in truth.items()})


def test_a_loop_that_never_gets_anywhere_ends() -> None:
    with (
        pytest.raises(ProtocolError, match="again and again"),
        session(plan=full()) as dp,
    ):
        lot = next(dp.lots())
        while not lot.is_done:
            for _batch in lot:
                break


# ---- ordinary code beside the private one


def test_evaluation_in_the_middle_and_between_lots() -> None:
    x, y = data(seed=5)[:20]

    def run(*, evaluating: bool) -> dict[str, Any]:
        model = network()
        optimizer = sgd(model)
        grads = Grads(model, optimizer)

        def evaluate() -> None:
            if evaluating:
                model.eval()
                with torch.no_grad():
                    assert functional.cross_entropy(model(x), y) > 0
                model.train()

        chosen = Performance(batch=5)
        with session(model, optimizer=optimizer, performance=chosen, unsafe_seed=3) as dp:
            for lot in dp.lots():
                evaluate()
                for batch in lot:
                    evaluate()
                    losses = cross_entropy(model)(batch)
                    evaluate()
                    dp.backward(losses)
                    evaluate()
                evaluate()
                dp.step()
        return grads.steps[-1]

    one, other = run(evaluating=True), run(evaluating=False)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_gradients_with_respect_to_inputs_between_lots() -> None:
    with session() as dp:
        lots = dp.lots()
        whole_lot(dp, next(lots), cross_entropy(dp.model))
        x = torch.randn(3, 5, requires_grad=True)
        assert torch.autograd.grad(dp.model(x).sum(), x)[0].abs().sum() > 0
        whole_lot(dp, next(lots), cross_entropy(dp.model))


def test_public_training_in_between() -> None:
    model = network()
    x, y = data(seed=9)[:20]
    with session(model, plan=full()) as dp:
        lots = dp.lots()
        whole_lot(dp, next(lots), cross_entropy(model))
        with dp.public():
            before = model[0].weight.detach().clone()
            functional.cross_entropy(model(x), y).backward()
            dp.optimizers[0].step()
            assert not torch.equal(before, model[0].weight)
            with torch.no_grad():
                model[2].bias.zero_()
        assert model[0].weight.grad is None
        whole_lot(dp, next(lots), cross_entropy(model))
        with pytest.raises(ProtocolError, match=r"SGD\.step\(\) was called"):
            dp.optimizers[0].step()
        lot = next(lots)
        with pytest.raises(ProtocolError, match="comes between lots"), dp.public():
            pass
        whole_lot(dp, lot, cross_entropy(model))
        assert dp.steps_taken == 3


def test_a_statement_says_that_public_data_were_trained_on(tmp_path: Path) -> None:
    """Nobody else can know, and the claim holds only if they are public; a checkpoint keeps it."""
    told = "dp.public()"
    model = network()
    with session(model, plan=full()) as dp:
        whole_lot(dp, next(dp.lots()), cross_entropy(model))
        assert not any(told in one for one in dp.statement(1e-3).assumptions)
        with dp.public():
            pass
        assert any(told in one for one in dp.statement(1e-3).assumptions)
        dp.save(tmp_path / "a")
    again = session(plan=full(), resume=tmp_path / "a")
    assert any(told in one for one in again.statement(1e-3).assumptions)


def test_exceptions_in_public_close_it_again() -> None:
    with session() as dp:
        with pytest.raises(Broken), dp.public():
            raise Broken
        with pytest.raises(ProtocolError):
            dp.optimizers[0].step()


def test_lots_drawn_by_two_runs_differ() -> None:
    def lots() -> list[list[int]]:
        with session(plan=plan(lot_size=20, steps=3)) as dp:
            found = []
            for lot in dp.lots():
                found.append(drawn(lot).tolist())
                whole_lot(dp, lot, cross_entropy(dp.model))
        return found

    assert lots() != lots()


@pytest.mark.parametrize("replayed", [False, True])
def test_a_batch_whose_end_is_interrupted_is_not_added_twice(
    monkeypatch: pytest.MonkeyPatch, replayed: bool
) -> None:
    """A signal comes as soon as a long operation is over: just after a batch was added."""
    model, dataset = network(), data()
    optimizer = sgd(model)
    grads, add, adds = Grads(model, optimizer), Accumulator.add, []

    def interrupted(self: Accumulator, result: Any, *, last: bool) -> None:
        add(self, result, last=last)
        adds.append(last)
        if len(adds) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(Accumulator, "add", interrupted)
    with session(
        model, plan=plan(steps=6), optimizer=optimizer, dataset=dataset,
        performance=Performance(capture=replayed),
    ) as dp:  # fmt: skip
        for lot in dp.lots():
            units = drawn(lot)
            truth = example_sum(model, dataset, units, sessions.CLIP)
            while not lot.is_done:
                with suppress(KeyboardInterrupt):
                    dp.accumulate(lot, cross_entropy(model))
            dp.step()
            found = {name: 12 * value for name, value in grads.steps[-1].items()}
            assert close(found, truth, 1e-4)
    assert len(adds) >= 6
