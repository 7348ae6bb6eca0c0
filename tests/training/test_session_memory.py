"""Running out of memory in the middle of a lot: nothing is counted twice, and nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

import tacit
from tacit.training import AdaptiveQuantile
from tacit.training.performance import Performance

from . import sessions
from .sessions import (
    CLIP,
    EXAMPLES,
    Grads,
    cross_entropy,
    data,
    drawn,
    network,
    plan,
    session,
    sgd,
)


def out_of_memory(*_: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory, so to say")


class Small:
    """A machine with room for ``rows`` rows, and a note of every attempt."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.tried: list[int] = []

    def losses(self, model: Any) -> Any:
        def of(batch: Any) -> Tensor:
            self.tried.append(len(batch[0]))
            out = model(batch[0])  # the forward pass is recorded before memory is gone
            if len(batch[0]) > self.rows:
                out_of_memory()
            return torch.nn.functional.cross_entropy(out, batch[1], reduction="none")

        return of


def truth_of(units: Any, lot_size: float) -> dict[str, Tensor]:
    found = sessions.example_sum(network(), data(), units, CLIP)
    return {name: value / lot_size for name, value in found.items()}


@pytest.mark.parametrize(
    "room",
    [
        1,
        pytest.param(2, marks=pytest.mark.slow),
        3,
        pytest.param(5, marks=pytest.mark.slow),
        pytest.param(7, marks=pytest.mark.slow),
        11,
        33,
    ],
)
@pytest.mark.parametrize("loop", ["accumulate", "by hand"])
@pytest.mark.parametrize("lot_size", [EXAMPLES, 25])
def test_the_sum_is_that_of_the_lot(room: int, loop: str, lot_size: int) -> None:
    model = network()
    optimizer = sgd(model)
    grads = Grads(model, optimizer)
    machine = Small(room)
    chosen = plan(lot_size=lot_size, steps=2)
    units = []
    with session(model, optimizer=optimizer, plan=chosen, unsafe_seed=3) as dp:
        lots = dp.lots()
        lot = next(lots)
        units = drawn(lot).tolist()
        if loop == "accumulate":
            dp.accumulate(lot, machine.losses(model))
        else:
            while not lot.is_done:
                try:
                    for batch in lot:
                        dp.backward(machine.losses(model)(batch))
                except torch.OutOfMemoryError:
                    continue
        dp.step()
        assert max(machine.tried) > room or room == 33
        machine.tried.clear()
        dp.accumulate(next(lots), machine.losses(model))
        dp.step()
        if room < 33:
            assert max(machine.tried) <= room  # what did not fit is not tried again
    assert dp.steps_taken == 2
    assert sessions.close(grads.steps[0], truth_of(units, lot_size))


def test_noise_is_drawn_once() -> None:
    """With a fixed seed, and much noise, a run that ran out of memory releases the same."""
    released = []
    for room in (3, 1000):
        model = network()
        optimizer = sgd(model)
        grads = Grads(model, optimizer)
        chosen = plan(noise_multiplier=2.0)
        machine = Small(room)
        with session(model, optimizer=optimizer, plan=chosen, unsafe_seed=3) as dp:
            for lot in dp.lots():
                dp.accumulate(lot, machine.losses(model))
                dp.step()
        released.append(grads.steps)
    for one, other in zip(*released, strict=True):
        assert sessions.close(one, {name: value.double() for name, value in other.items()})


def test_what_does_not_fit_at_all_is_told() -> None:
    model = network()
    machine = Small(0)
    with pytest.raises(torch.OutOfMemoryError), session(model) as dp:
        dp.accumulate(next(dp.lots()), machine.losses(model))
    assert machine.tried[-1] == 1
    assert len(machine.tried) < 10
    assert not torch.overrides._get_current_function_mode_stack()


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_memory_runs_out_inside_backward(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the engine, once, at the n-th batch: the probes of the first batch are among them."""
    model = network()
    optimizer = sgd(model)
    grads = Grads(model, optimizer)
    chosen = plan(lot_size=EXAMPLES, clipping=AdaptiveQuantile(count_noise=1e-9), steps=1)
    with session(model, optimizer=optimizer, plan=chosen, performance=Performance(batch=16)) as dp:
        real, calls = dp._computation._engine.finish, []

        def finish(*args: Any) -> Any:
            calls.append(None)
            result = real(*args)
            if len(calls) == after + 1:
                out_of_memory()
            return result

        monkeypatch.setattr(dp._computation._engine, "finish", finish)
        dp.accumulate(next(dp.lots()), cross_entropy(model))
        each = EXAMPLES / 2 - float(dp._clip._centred)  # type: ignore[arg-type]
        dp.step()
    assert sessions.close(grads.steps[0], truth_of(range(EXAMPLES), EXAMPLES))
    assert each == round(each)  # as many halves as examples: none was counted twice
    assert 0 <= each <= EXAMPLES


class Heavy(Dataset[Any]):
    """Data that take memory when they are loaded: too much, for more than ``room`` at once."""

    def __init__(self, room: int) -> None:
        self.room = room

    def __len__(self) -> int:
        return EXAMPLES

    def __getitems__(self, indices: list[int]) -> list[Any]:
        if len(indices) > self.room:
            out_of_memory()
        return [data()[index] for index in indices]

    def __getitem__(self, index: int) -> Any:
        return data()[index]


@pytest.mark.parametrize("room", [3, 12])
def test_memory_runs_out_while_a_batch_is_loaded(room: int) -> None:
    """The limit is halved, not set to one row, until it fits."""
    model = network()
    optimizer = sgd(model)
    grads = Grads(model, optimizer)
    chosen = plan(lot_size=EXAMPLES, steps=1)
    sizes = []

    def losses(batch: Any) -> Tensor:
        sizes.append(len(batch[0]))
        return cross_entropy(model)(batch)

    with tacit.private(model, optimizer, chosen, Heavy(room)) as dp:
        dp.accumulate(next(dp.lots()), losses)
        dp.step()
    assert max(sizes[3:]) > room / 2
    assert sessions.close(grads.steps[0], truth_of(range(EXAMPLES), EXAMPLES))


def test_memory_runs_out_with_worker_processes() -> None:
    model = network()
    optimizer = sgd(model)
    grads = Grads(model, optimizer)
    machine = Small(5)
    chosen = plan(lot_size=EXAMPLES, steps=2)
    dataset = sessions.Plain()
    with session(
        model, optimizer=optimizer, plan=chosen, dataset=dataset,
        performance=Performance(batch=10, workers=1),
    ) as dp:  # fmt: skip
        for lot in dp.lots():
            dp.accumulate(lot, machine.losses(model))
            dp.step()
    assert sessions.close(grads.steps[0], truth_of(range(EXAMPLES), EXAMPLES))


def test_other_errors_are_not_swallowed() -> None:
    model = network()

    def losses(_: Any) -> Tensor:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"), session(model) as dp:
        dp.accumulate(next(dp.lots()), losses)
