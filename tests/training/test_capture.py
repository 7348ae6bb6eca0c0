"""Recorded steps: the same numbers as those that are computed each time, or no recording.

Without a GPU a replay runs the work again into the same memory, so that whatever reads stale inputs
shows; what is said of GPUs at the end needs one.
"""

from __future__ import annotations

import copy
import gc
import importlib.util
import random
import warnings
import weakref
from collections import UserDict
from contextlib import contextmanager
from itertools import count, cycle
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import tacit
from tacit.training import batches, capture, loaders, sampling, updates
from tacit.training import lot as lot_module
from tacit.training.clipping.engine import Engine
from tacit.training.clipping.recorder import HostCopy
from tacit.training.styles import AdaptiveQuantile

from . import sessions
from .sessions import CLIP, cross_entropy, data, drawn, network, plan, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Counted:
    """Counts what is recorded and replayed."""

    def __init__(self) -> None:
        self.recorded, self.replays, self.reads = 0, 0, False

    def counting(self, replay: Callable[[], None]) -> Callable[[], None]:
        self.recorded += 1

        def counted() -> None:
            self.replays += 1
            replay()

        return counted


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted()
    batch, update = capture.Reruns.record_batch, capture.Reruns.record_update

    def record_batch(self: capture.Reruns, work: Any) -> Any:
        replay, made = batch(self, work)
        return counted.counting(replay), made

    def record_update(self: capture.Reruns, work: Any, generators: Any) -> Any:
        return counted.counting(update(self, work, generators))

    @contextmanager
    def reads(_: capture.Reruns) -> Iterator[None]:
        if counted.reads:
            raise capture.HostRead("model.py, line 7")
        yield

    monkeypatch.setattr(capture.Reruns, "record_batch", record_batch)
    monkeypatch.setattr(capture.Reruns, "record_update", record_update)
    monkeypatch.setattr(capture.Reruns, "without_host_reads", reads)
    monkeypatch.setattr(sampling, "_MOST_LOTS", 1)  # a seed gives the same lots without recordings
    return counted


RECORDED = tacit.Performance(capture=True)


def run(model: nn.Module, losses: Callable[[Any], Tensor], **changed: Any) -> list[Any]:
    """The lots of a run, and how each changed the weights."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    found = []
    given = {
        "plan": plan(steps=12), "unsafe_seed": 3, "optimizer": optimizer, "performance": RECORDED,
    } | changed  # fmt: skip
    with session(model, **given) as dp:
        for lot in dp.lots():
            units = drawn(lot)
            before = {n: p.detach().clone() for n, p in model.named_parameters()}
            dp.accumulate(lot, losses)
            dp.step()
            moved = {n: p.detach() - before[n] for n, p in model.named_parameters()}
            found.append((units, moved))
        found.append(dp.explain())
    return found


def agrees(found: list[Any], lot_size: int = 12, lr: float = 1e-9) -> None:
    for units, moved in found[:-1]:
        truth = sessions.example_sum(network(), data(), units.tolist(), CLIP)
        expected = {name: -lr * value / lot_size for name, value in truth.items()}
        for name, value in expected.items():
            assert torch.allclose(moved[name], value, rtol=1e-3, atol=lr * 1e-5), name


def double() -> nn.Sequential:
    return network().double()  # steps of 1e-9 are seen


def as_double(losses: Callable[[Any], Tensor]) -> Callable[[Any], Tensor]:
    return lambda batch: losses((batch[0].double(), batch[1]))


def test_replayed_steps_are_those_of_the_definition(graphs: Counted) -> None:
    model = double()
    found = run(model, as_double(cross_entropy(model)))
    assert len({len(units) for units, _ in found[:-1]}) > 3  # Poisson lots, padded
    agrees(found)
    assert graphs.recorded == 2
    assert graphs.replays > 12
    assert "Batches are replayed" in found[-1]
    assert "Noise and update are replayed" in found[-1]


@pytest.mark.parametrize("kind", [dict, UserDict, MappingProxyType])
def test_mappings_of_other_libraries_are_recorded(graphs: Counted, kind: Any) -> None:
    def collate(rows: list[Any]) -> Any:
        x, y = torch.utils.data.default_collate(rows)
        return kind({"x": x.double(), "y": y})

    def losses(batch: Any) -> Tensor:
        labels = batch["y"] if kind is MappingProxyType else batch.pop("y")  # as trainers do
        return functional.cross_entropy(model(batch["x"]), labels, reduction="none")

    model = double()
    found = run(model, losses, dataset=list(data()), collate=collate)
    agrees(found)
    assert "Batches are replayed" in found[-1]
    assert graphs.replays > 8


ON_GPU = torch.cuda.is_available()
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


@needs_triton
@pytest.mark.skipif(ON_GPU, reason="Triton's interpreter is not used where there is a GPU")
def test_rows_that_one_kernel_gathers_are_those_of_the_definition(
    graphs: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = []
    gathered = capture.Inputs._gathered
    monkeypatch.setattr(capture, "_for_kernel", lambda _: True)
    monkeypatch.setattr(
        capture.Inputs, "_gathered", lambda *given: launches.append(1) or gathered(*given)
    )
    model = double()
    found = run(model, as_double(cross_entropy(model)), plan=plan(steps=8))
    agrees(found)
    assert graphs.replays > 4
    assert len(launches) > 4


@needs_triton
@pytest.mark.parametrize("views", [1, 3])
def test_gathered_rows_and_what_they_count(views: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "_for_kernel", lambda _: True)
    device = torch.device("cuda" if ON_GPU else "cpu")
    tensors = (
        torch.randn(20, 3, 11, device=device),
        torch.arange(20, device=device),
        torch.randint(255, (20, 8), dtype=torch.uint8, device=device),
        torch.randn(20, 2100, device=device).bfloat16(),
    )
    rows = np.array([4, 7, 7, 19, 0, 3], dtype=np.int64)
    units = rows[: 4 // views]
    weights = np.zeros(6, dtype=np.float32)
    batch = batches.Batch(units, rows, weights, views, 6 // views)
    inputs = capture.Inputs(batch, tensors, device, loaders.OnDevice(tensors), same_weights=True)
    inputs.feed(batch, None)
    for found, whole in zip(inputs.data(), tensors, strict=True):
        assert found.dtype == whole.dtype
        assert torch.equal(found, whole[torch.from_numpy(rows).to(device)])
    together = inputs.weights(torch.zeros(6, device=device))
    inputs._counted = None
    for found, wanted in zip(together, inputs.weights(torch.zeros(6, device=device)), strict=True):
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted)


def test_rows_that_are_no_words_are_gathered_one_tensor_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capture, "_for_kernel", lambda _: True)
    fitting = torch.zeros(4, 2)
    for odd in (torch.zeros(4, 3, dtype=torch.uint8), torch.zeros(2, 4).mT, torch.zeros(4, 0)):
        assert capture._in_words([fitting, odd]) is None
    assert capture._in_words([fitting] * 5) is None
    assert capture._in_words([fitting] * 4) is not None


class Late:
    """A device that reads what was sent to it when it is waited for, and not before."""

    def __init__(self) -> None:
        self.sent: list[Tensor] = []
        self.read: list[list[int]] = []

    def copy_(self, piece: Tensor, *, non_blocking: bool) -> None:
        assert non_blocking
        self.sent.append(piece)

    def reads(self, count: int) -> None:
        while len(self.read) < count:
            self.read.append(self.sent[len(self.read)].tolist())


class Arrival:
    """An event of that device: all that was sent before it was recorded has arrived then."""

    def __init__(self, device: Late) -> None:
        self._device, self._sent = device, 0

    def record(self) -> None:
        self._sent = len(self._device.sent)

    def synchronize(self) -> None:
        self._device.reads(self._sent)


def test_memory_that_a_device_may_still_read_is_not_written() -> None:
    """A piece is written again only once what it held has arrived, however late that is."""
    staged, device = capture.Staged(torch.zeros(3, dtype=torch.int64)), Late()
    halves = torch.zeros(4, 3, dtype=torch.int64).chunk(2)
    pieces = [capture._pieces(half, Arrival(device)) for half in halves]  # type: ignore[arg-type]
    staged._target = device  # type: ignore[assignment]
    staged._turns = cycle([*pieces[0], *pieces[1]])
    for lot in range(21):
        staged.room()[:] = lot
        staged.send()
    device.reads(21)
    assert device.read == [[lot] * 3 for lot in range(21)]


class Rows(torch.utils.data.Dataset[Any]):
    """A data set of one's own: its batches are copied to where recordings read."""

    def __init__(self) -> None:
        self._data = data()

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, at: int) -> Any:
        return self._data[at]


def test_rows_of_a_data_set_of_ones_own(graphs: Counted) -> None:
    model = double()
    found = run(model, as_double(cross_entropy(model)), dataset=Rows())
    agrees(found)
    assert "Batches are replayed" in found[-1], found[-1]
    assert graphs.recorded == 2


@pytest.mark.parametrize("batch", [5, 8])
def test_lots_of_several_batches(graphs: Counted, batch: int) -> None:
    model = double()
    performance = tacit.Performance(batch=batch, capture=True)
    found = run(model, as_double(cross_entropy(model)), performance=performance)
    agrees(found)
    assert graphs.replays > 12


def test_an_adapter_that_begins_with_zeros_is_recorded_once_gradients_come(
    graphs: Counted,
) -> None:
    """Of the first lot nothing reaches the layers before it, in several batches."""
    model = double()
    with torch.no_grad():
        model[-1].weight.zero_()
    performance = tacit.Performance(batch=2, capture=True)
    losses = as_double(cross_entropy(model))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    found = run(model, losses, performance=performance, optimizer=optimizer)
    assert "Batches are replayed" in found[-1]
    assert graphs.replays > 12


def test_a_weight_that_no_loss_ever_reaches_is_not_waited_for(graphs: Counted) -> None:
    model = double()
    plain = as_double(cross_entropy(model))

    def losses(batch: Any) -> Tensor:
        return plain(batch) + 0.0 * model[0](batch[0].double()).sum(1)

    found = run(model, losses)
    assert "not replayed: no loss reaches some weight" in found[-1]
    assert graphs.recorded == 0


def test_a_full_batch(graphs: Counted) -> None:
    model = double()
    full = plan(steps=8, lot_size=40)
    agrees(run(model, as_double(cross_entropy(model)), plan=full), lot_size=40)
    assert graphs.replays > 4


def test_without_capture_nothing_is_recorded(graphs: Counted) -> None:
    model = double()
    found = run(
        model, as_double(cross_entropy(model)), performance=tacit.Performance(capture=False)
    )
    agrees(found)
    assert graphs.recorded == 0
    assert "replayed" not in found[-1]


def test_a_function_made_anew_for_every_lot_is_the_same_function(graphs: Counted) -> None:
    model = double()
    with session(model, performance=RECORDED, plan=plan(steps=10)) as dp:
        for lot in dp.lots():
            dp.accumulate(
                lot,
                lambda b: functional.cross_entropy(model(b[0].double()), b[1], reduction="none"),
            )
            dp.step()
    assert graphs.recorded == 2


def test_a_number_that_changes_is_not_replayed_as_it_was(graphs: Counted) -> None:
    model = double()
    seen = []

    def loss_with(weight: float) -> Callable[[Any], Tensor]:
        plain = as_double(cross_entropy(model))
        return lambda batch: weight * plain(batch)

    with session(model, performance=RECORDED, plan=plan(steps=14, lot_size=40)) as dp:
        for lot in dp.lots():
            weight = 1.0 if lot.step < 8 else 3.0
            dp.accumulate(
                lot, loss_with(weight), seen=lambda v, w=weight: seen.append((w, float(v.sum())))
            )
            dp.step()
    assert graphs.recorded >= 3  # a batch, an update, and the batch again
    light = [value / w for w, value in seen]
    assert max(light) < 1.5 * min(light)


@pytest.mark.usefixtures("graphs")
def test_modes_of_the_model_are_seen() -> None:
    model = nn.Sequential(network(), nn.Dropout(0.9))
    zeros = []

    def noted(values: Tensor) -> None:
        zeros.append(float((values - np.log(3)).abs().lt(1e-5).float().mean()))

    with session(model, performance=RECORDED, plan=plan(steps=14)) as dp:
        for lot in dp.lots():
            model.train(lot.step < 8)
            dp.accumulate(lot, cross_entropy(model), seen=noted)
            dp.step()
    assert max(zeros) > 0.3
    assert zeros[-1] == 0.0


def test_a_hook_forbids_a_recording_that_would_not_call_it(
    graphs: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture.Reruns, "runs_python", False)
    model = double()
    model[0].register_forward_hook(lambda *_: None)
    found = run(model, as_double(cross_entropy(model)))
    agrees(found)
    assert "a hook would not be called" in found[-1]
    assert graphs.recorded == 0


def test_batches_of_one_row_are_replayed_too(graphs: Counted) -> None:
    model = double()
    one = tacit.Performance(batch=1, capture=True)
    found = run(model, as_double(cross_entropy(model)), performance=one)
    agrees(found)
    assert graphs.replays > 60
    assert "Batches are replayed" in found[-1]


@pytest.mark.parametrize("why", ["read", "random", "numpy", "fallback", "fallback that reads"])
def test_what_cannot_be_replayed_is_computed_each_time(graphs: Counted, why: str) -> None:
    model = double()
    plain = as_double(cross_entropy(model))
    graphs.reads = "read" in why

    def losses(batch: Any) -> Tensor:
        if why == "random":
            random.random()
        if why == "numpy":
            np.random.rand()  # noqa: NPY002 - what a user's code may do
        values = plain(batch)
        if "fallback" in why:  # no rule: a weight enters an operation of its own
            values = values + 1e-12 * torch.cdist(batch[0].double(), model[0].weight).sum(1)
        return values

    found = run(model, losses)
    agrees(found)
    reason = {
        "read": "reads numbers back from the device (model.py, line 7)",
        "random": "on the host", "numpy": "on the host", "fallback": "a weight is served by the",
        "fallback that reads": "a weight is served by the fallback",  # which is why it is read
    }[why]  # fmt: skip
    assert reason in found[-1]
    assert graphs.recorded == 0


def test_a_host_read_is_said_to_be_where_the_models_own_code_is() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.nn.Linear(2, 2)(torch.zeros(3))  # deep inside of torch
    line = caught.traceback[0].lineno + 1  # pytest counts from 0
    assert capture._line_of(caught.value) == f"test_capture.py, line {line}"
    assert caught.value.__traceback__ is not None
    inner = caught.value.with_traceback(caught.value.__traceback__.tb_next)  # as if torch called it
    assert "in the backward pass" in capture._line_of(inner)


def test_an_optimizer_that_counts_on_the_host_is_not_replayed(
    graphs: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture.Reruns, "runs_python", False)
    model = double()
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    with session(model, performance=RECORDED, plan=plan(steps=9), optimizer=adam) as dp:
        for lot in dp.lots():
            dp.accumulate(lot, as_double(cross_entropy(model)))
            dp.step()
    assert all(int(state["step"]) == 9 for state in adam.state.values())
    assert "counts its steps on the host" in dp.explain()
    assert graphs.recorded == 1


def test_what_is_put_around_a_step_is_called_each_time() -> None:
    """A scheduler's own wrapper counts calls alone, and may be left out."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    assert not updates._foreign([optimizer], hooks=False)
    plain = optimizer.step

    def counting() -> Any:
        return plain()

    optimizer.step = counting  # type: ignore[method-assign, assignment]
    assert "the step of SGD would not be called" in updates._foreign([optimizer], hooks=False)
    assert not updates._foreign([optimizer], hooks=True)


def test_a_sessions_own_hooks_do_not_keep_updates_from_being_replayed(
    graphs: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture.Reruns, "runs_python", False)
    model = double()
    found = run(model, as_double(cross_entropy(model)))
    agrees(found)
    assert "Noise and update are replayed" in found[-1]
    assert graphs.recorded == 2


def test_a_learning_rate_that_changes_is_followed(graphs: Counted) -> None:
    model, rates = double(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 6, 10.0)
    with session(
        model, performance=RECORDED, plan=plan(steps=20, lot_size=40), optimizer=optimizer
    ) as dp:
        for lot in dp.lots():
            before = model[0].weight.detach().clone()
            dp.accumulate(lot, as_double(cross_entropy(model)))
            dp.step()
            rates.append(float((model[0].weight.detach() - before).norm()))
            scheduler.step()
    sizes = [max(rates[at : at + 6]) / min(rates[at : at + 6]) for at in (0, 6, 12)]
    assert max(sizes) < 1.01
    assert rates[6] / rates[5] == pytest.approx(10.0, rel=1e-2)
    assert graphs.replays > 20


def test_a_learning_rate_that_is_changed_in_its_place_is_followed(graphs: Counted) -> None:
    """A recording on a device holds the number that a tensor of the host had."""
    model = double()
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(1e-9))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 8, 10.0)
    with session(model, performance=RECORDED, plan=plan(steps=12), optimizer=optimizer) as dp:
        for lot in dp.lots():
            dp.accumulate(lot, as_double(cross_entropy(model)))
            dp.step()
            scheduler.step()
    assert graphs.recorded == 3  # batches, and updates at two rates


@pytest.mark.usefixtures("graphs")
def test_a_foreign_change_is_noticed_between_replays() -> None:
    model = double()
    with (
        pytest.raises(tacit.errors.ProtocolError, match="was changed"),
        session(model, performance=RECORDED) as dp,
    ):
        for lot in dp.lots():
            dp.accumulate(lot, as_double(cross_entropy(model)))
            dp.step()
            if lot.step == 2:
                model[0].weight.data.view(-1).numpy()[0] += 1.0


def test_public_steps_and_a_second_entry_leave_no_recording_behind(graphs: Counted) -> None:
    """Weights and fingerprints lie elsewhere afterwards: recordings would read where they lay."""
    model = double()
    dp = session(model, performance=RECORDED, plan=plan(steps=24))
    with dp:
        for lot in dp.lots():
            dp.accumulate(lot, as_double(cross_entropy(model)))
            dp.step()
            if lot.step == 7:
                assert graphs.recorded == 2
                with dp.public(), torch.no_grad():
                    model[0].weight.data = model[0].weight.data.clone().mul_(1.01)
            if lot.step == 15:
                break
    assert graphs.recorded == 4
    with dp:
        for lot in dp.lots():
            dp.accumulate(lot, as_double(cross_entropy(model)))
            dp.step()
    assert graphs.recorded == 6
    assert dp.statement(1e-3).epsilon > 0


def test_batches_of_other_structure_are_other_shapes(graphs: Counted) -> None:
    model, seen = double(), []

    def turned(rows: list[Any]) -> dict[str, Tensor]:
        x, y = torch.utils.data.default_collate(rows)
        first = {"x": x, "y": x + 1.0, "label": y}
        order = list(first) if len(seen) % 2 else [*reversed(first)]
        return {name: first[name] for name in order}

    def losses(batch: dict[str, Tensor]) -> Tensor:
        values = functional.cross_entropy(
            model(batch["x"].double()), batch["label"], reduction="none"
        )
        return values + 0.0 * batch["y"].sum(1).double()

    def noted(values: Tensor) -> None:
        seen.append(float(values.sum()))

    full = plan(steps=16, lot_size=40)
    with session(
        model, performance=RECORDED, plan=full, dataset=Rows(), collate=turned,
        optimizer=torch.optim.SGD(model.parameters(), lr=1e-12),
    ) as dp:  # fmt: skip
        for lot in dp.lots():
            dp.accumulate(lot, losses, seen=noted)
            dp.step()
    assert max(seen) - min(seen) < 1e-6
    assert graphs.recorded >= 2


def test_a_recording_that_gives_other_sums_is_let_go(
    graphs: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = capture.Reruns.record_batch

    def stale(self: capture.Reruns, work: Any) -> Any:
        replay, (losses, sums) = record(self, work)

        def wrong() -> None:
            replay()
            for one in sums.sums.values():
                one.mul_(0.9)

        return wrong, (losses, sums)

    monkeypatch.setattr(capture.Reruns, "record_batch", stale)
    model = double()
    found = run(model, as_double(cross_entropy(model)))
    agrees(found)
    assert "a replay gave other sums than the loop" in found[-1]
    assert graphs.recorded >= 1


def test_a_failed_recording_tells_no_message(
    graphs: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Any:
        raise RuntimeError("size of tensor a (37) of a secret row")

    monkeypatch.setattr(capture.Reruns, "record_batch", failing)
    model = double()
    found = run(model, as_double(cross_entropy(model)))
    agrees(found)
    assert "recording failed with RuntimeError" in found[-1]
    assert "37" not in found[-1]
    assert graphs.replays == 0


def test_a_checked_batch_is_not_replayed(graphs: Counted) -> None:
    model = double()
    with session(model, performance=RECORDED, plan=plan(steps=10)) as dp:
        for lot in dp.lots():
            if lot.step == 7:
                before = graphs.replays
                dp.verify()
            dp.accumulate(lot, as_double(cross_entropy(model)))
            dp.step()
            if lot.step == 7:
                assert dp._verifier.report is not None
                assert graphs.replays <= before + 3


def test_users_as_units(graphs: Counted) -> None:
    groups = np.arange(40) // 3
    model = network()
    chosen = plan(
        examples=14, lot_size=5, steps=10, unit="user", examples_per_user=3, noise_multiplier=1e-7
    )
    moves = []
    for captured in (True, False):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with session(
            model, plan=chosen, groups=groups, unsafe_seed=1, optimizer=optimizer,
            performance=tacit.Performance(capture=captured),
        ) as dp:  # fmt: skip
            for lot in dp.lots():
                dp.accumulate(lot, cross_entropy(model))
                dp.step()
        moves.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.allclose(moves[0], moves[1], atol=1e-5)
    assert graphs.replays > 8


def test_an_adaptive_clip_moves_as_it_does_without_recordings(graphs: Counted) -> None:
    ends = []
    for captured in (True, False):
        model = network()
        style = AdaptiveQuantile(count_noise=1e-3)
        with session(
            model, plan=plan(steps=10, clipping=style, noise_multiplier=1e-3), unsafe_seed=1,
            performance=tacit.Performance(capture=captured),
        ) as dp:  # fmt: skip
            for lot in dp.lots():
                dp.accumulate(lot, cross_entropy(model))
                dp.step()
            ends.append(dp._clip.sensitivity)
    assert ends[0] == pytest.approx(ends[1], rel=1e-6)
    assert graphs.recorded == 1


# ---- memory: recordings of batches share it


class Ragged(torch.utils.data.Dataset[Any]):
    """Rows of the usual data, of two lengths: short ones first."""

    def __getitem__(self, at: int) -> Any:
        x, y = data()[at]
        return x, y, torch.zeros(3 if at < 25 else 8)

    def __len__(self) -> int:
        return len(data())


def as_long_as_the_longest(rows: list[Any]) -> tuple[Tensor, Tensor, Tensor]:
    x, y, more = zip(*rows, strict=True)
    return torch.stack(x), torch.stack(y), nn.utils.rnn.pad_sequence(more, batch_first=True)


class Passing(torch.autograd.Function):
    """Passes its input on. As long as the graph of a pass is alive, so is its context."""

    alive: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        Passing.alive.add(ctx)
        ctx.save_for_backward(value)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:  # noqa: ARG004
        return gradients[0]


def test_nothing_of_a_pass_is_alive_after_it_but_its_results(graphs: Counted) -> None:
    """What is kept could not serve the next recording of the pool."""
    model = double()
    activations: weakref.WeakSet[Any] = weakref.WeakSet()
    model[1].forward = lambda x: Passing.apply(x.tanh())  # type: ignore[no-untyped-call]

    def losses(batch: Any) -> Tensor:
        hidden = model[1](model[0](batch[0].double()))
        activations.add(hidden)
        return functional.cross_entropy(model[2](hidden), batch[1], reduction="none")

    found = run(
        model, losses, dataset=Ragged(), collate=as_long_as_the_longest,
        performance=tacit.Performance(batch=8, capture=True),
    )  # fmt: skip
    assert graphs.recorded >= 3
    assert "Batches are replayed" in found[-1], found[-1]
    gc.collect()
    assert not len(activations)
    assert not len(Passing.alive)


def test_a_replay_may_write_over_the_results_of_all_others(
    graphs: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where what one computes on its way lies where another left its results."""
    record, results = capture.Reruns.record_batch, []

    def sharing(self: capture.Reruns, work: Any) -> Any:
        replay, made = record(self, work)
        results.append(capture._results(made))
        own = len(results) - 1

        def replayed() -> None:
            for other in (one for at, each in enumerate(results) if at != own for one in each):
                other.fill_(float("nan"))
            replay()

        return replayed, made

    monkeypatch.setattr(capture.Reruns, "record_batch", sharing)
    model = double()
    found = run(
        model, as_double(cross_entropy_of_two(model)), dataset=Ragged(),
        collate=as_long_as_the_longest, performance=tacit.Performance(batch=8, capture=True),
    )  # fmt: skip
    agrees(found)
    assert len(results) == 2
    assert graphs.replays > 12


def cross_entropy_of_two(model: nn.Module) -> Callable[[Any], Tensor]:
    return lambda batch: cross_entropy(model)(batch[:2])


def test_memory_that_runs_out_is_given_back_by_recordings() -> None:
    """Those of batches that were too large are of no more use, and hold what is missing."""
    model = double()
    with session(model, plan=plan(steps=8), performance=RECORDED) as dp:
        for lot in dp.lots():
            dp.accumulate(lot, as_double(cross_entropy(model)))
            dp.step()
        computation = dp._computation
        recordings = computation._recordings
        assert recordings is not None
        assert recordings._count == 1
        none = np.empty(0, dtype=np.int64)
        computation._tried = batches.Batch(none, none, np.empty(0, dtype=np.float32), 1, 8)
        computation._after_leaving_early()
        assert recordings._count == 0


def test_larger_batches_are_recorded_first_unless_they_are_rare() -> None:
    known, losses = capture.BatchRecordings(capture.Reruns(), network()), cross_entropy(network())
    known.begin(losses)
    small, large = known.shape("short rows", 10), known.shape("long rows", 20)
    assert known.shape("short rows", 10) is small
    small.runs = capture.WARM_UP
    assert not known.is_time(small)
    large.runs = capture.WARM_UP - 1
    assert not known.is_time(large)
    large.runs += 1
    assert known.is_time(large)
    assert not known.is_time(small)
    large.inputs = object()  # it is recorded, or cannot be
    assert known.is_time(small)
    assert not known.is_time(large)
    known.shape("the longest, which comes once in a while", 30)
    assert not known.is_time(small)
    for _ in range(8):
        assert not known.is_time(small)
        known.begin(losses)
    assert known.is_time(small)


def test_shapes_of_which_no_more_are_recorded_hold_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of many widths, and a collation that pads to the longest: each batch is another."""
    made: list[int] = []
    inputs = lot_module.Inputs

    def counted(*given: Any, **named: Any) -> capture.Inputs:
        made.append(1)
        return inputs(*given, **named)

    monkeypatch.setattr(lot_module, "Inputs", counted)
    monkeypatch.setattr(capture, "MOST_RECORDINGS", 2)
    model, widths = double(), cycle(range(5))

    def losses(batch: Any) -> Tensor:
        return functional.cross_entropy(model(batch[0].double()), batch[1], reduction="none")

    def of_some_width(rows: list[Any]) -> Any:
        x, y = torch.utils.data.default_collate(rows)
        return x, y, torch.zeros(len(x), 1 + next(widths))

    with session(
        model, plan=plan(lot_size=40, steps=30), collate=of_some_width, performance=RECORDED
    ) as dp:
        for lot in dp.lots():
            dp.accumulate(lot, losses)
            dp.step()
        assert dp._computation._recordings is not None
        assert len(dp._computation._recordings._shapes) == 5
        assert dp._computation._recordings._count == len(made) == 2


class FakeCuda:
    """A device that records nothing, and notes on which stream and in which pool it should."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.recorded: list[tuple[Any, Any]] = []
        self.stream: Any = None
        self._pools = count()
        fake = self

        class Graph:
            def capture_begin(self, *, pool: Any, capture_error_mode: str) -> None:
                del capture_error_mode
                fake.recorded.append((fake.stream, pool))

            def capture_end(self) -> None: ...
            def reset(self) -> None: ...
            def replay(self) -> None: ...

        @contextmanager
        def on(stream: Any) -> Iterator[None]:
            fake.stream = stream
            yield

        for name, value in {
            "CUDAGraph": Graph, "Stream": lambda _: object(), "stream": on,
            "synchronize": lambda _: None, "graph_pool_handle": lambda: next(self._pools),
        }.items():  # fmt: skip
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(gc, "collect", lambda: 0)  # which takes a while after many tests


def test_batches_are_recorded_on_one_stream_in_one_pool_and_updates_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On another stream torch would hand a recording no memory that the others gave back."""
    cuda = FakeCuda(monkeypatch)
    recorder = capture.CudaGraphs(torch.device("cuda"))
    work: Any = lambda: None  # noqa: E731
    kept = [recorder.record_batch(work)[0]]
    updates = [recorder.record_update(work, ()) for _ in range(2)]
    kept += [recorder.record_batch(work)[0]]
    batch, one, other, again = cuda.recorded
    assert batch == again
    assert len({pool for _, pool in (batch, one, other)}) == 3  # fingerprints are read lots later

    kept.clear()
    recorder.record_batch(work)
    assert cuda.recorded[-1][1] not in {pool for _, pool in cuda.recorded[:-1]}  # it is gone
    assert len(updates) == 2


def test_a_recording_that_failed_leaves_its_stream_and_pool_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = FakeCuda(monkeypatch)
    recorder = capture.CudaGraphs(torch.device("cuda"))
    kept = recorder.record_batch(lambda: None)  # type: ignore[arg-type, return-value]

    def failing() -> Any:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        recorder.record_batch(failing)
    recorder.record_batch(lambda: None)  # type: ignore[arg-type, return-value]
    before, failed, after = cuda.recorded
    assert before == failed
    assert after[0] is not failed[0]
    assert after[1] != failed[1]
    del kept


# ---- on a GPU

on_gpu = pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")
ROWS = 24


class Tokens(nn.Module):
    """Embeddings, attention, norms and linear maps."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.position = nn.Embedding(50, 16), nn.Parameter(torch.randn(12, 16))
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids) + self.position[: ids.shape[1]]
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(x).mean(1)
        return out


def mlp() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 5)), torch.randn(ROWS, 6)


def images() -> tuple[nn.Module, Tensor]:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.Tanh(),  # no kink to fall beside
        nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.Tanh(), nn.Flatten(),
        nn.Linear(16 * 16, 5),
    )  # fmt: skip
    return net, torch.randn(ROWS, 3, 8, 8)


def tokens() -> tuple[nn.Module, Tensor]:
    return Tokens(), torch.randint(50, (ROWS, 12))


def tied() -> tuple[nn.Module, Tensor]:
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second, nn.Linear(6, 5)), torch.randn(ROWS, 6)


class OnGpu:
    """A run on the GPU beside the truth in double precision on the CPU."""

    def __init__(self, made: tuple[nn.Module, Tensor], **performance: Any) -> None:
        warnings.simplefilter("ignore")  # of torch's compiler: that TF32 would be faster
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        model, x = made
        self.model, self.x = model.cuda(), x.cuda()
        self.y = torch.randint(5, (ROWS,)).cuda()
        self.performance = tacit.Performance(capture=True, **performance)
        self.run_by: Any = self.model

    def losses(self, batch: Any) -> Tensor:
        return functional.cross_entropy(self.run_by(batch[0]), batch[1], reduction="none")

    def steps(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        noise: float = 1e-7,
        lot: int = 10,
        steps: int = 12,
    ) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
        """The units of each lot, and how the parameters moved."""
        chosen = tacit.Plan(
            examples=ROWS, lot_size=lot, steps=steps, noise_multiplier=noise, clip=0.5
        )
        dataset = torch.utils.data.TensorDataset(self.x, self.y)
        with tacit.private(
            self.model, optimizer, chosen, dataset, performance=self.performance
        ) as dp:
            for one in dp.lots():
                units = drawn(one).tolist()
                before = {n: p.detach().clone() for n, p in self.model.named_parameters()}
                dp.accumulate(one, self.losses)
                dp.step()
                yield units, {n: p.detach() - before[n] for n, p in self.model.named_parameters()}
            self.explained = dp.explain()

    def truth(self, units: list[int], lot: int) -> dict[str, Tensor]:
        """-(Σ clipped gradients)/lot at the present weights."""
        exact = copy.deepcopy(self.model).cpu().double()
        x, y = self.x.cpu()[units], self.y.cpu()[units]
        x = x.double() if x.is_floating_point() else x
        names = [name for name, _ in exact.named_parameters()]
        total = {name: torch.zeros_like(p) for name, p in exact.named_parameters()}
        for at in range(len(units)):
            loss = functional.cross_entropy(exact(x[at : at + 1]), y[at : at + 1])
            grads = torch.autograd.grad(loss, list(exact.parameters()))
            size = float(torch.cat([g.flatten() for g in grads]).norm())
            if np.isfinite(size):
                for name, grad in zip(names, grads, strict=True):
                    total[name] += grad * min(1.0, 0.5 / max(size, 1e-30))
        return {name: -value / lot for name, value in total.items()}

    def check(self, optimizer: torch.optim.Optimizer, lr: float, **changed: Any) -> None:
        """Every step of a run with tiny updates is that of the definition."""
        lot = changed.get("lot", 10)
        for units, moved in self.steps(optimizer, **changed):
            for name, value in self.truth(units, lot).items():
                difference = moved[name].cpu().double() / lr - value
                assert float(difference.abs().max()) < 2e-4, (len(units), name)


@on_gpu
@pytest.mark.parametrize("build", [mlp, images, tokens, tied])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("batch", ["auto", 8])
def test_every_replayed_step_is_the_oracles(build: Any, compiled: bool, batch: Any) -> None:
    case = OnGpu(build(), batch=batch, compile=compiled)
    if compiled:
        case.run_by = torch.compile(case.model)
    case.check(torch.optim.SGD(case.model.parameters(), lr=1e-3), 1e-3)
    assert "Batches are replayed" in case.explained, case.explained
    assert "Noise and update are replayed" in case.explained, case.explained


@on_gpu
def test_rows_that_are_no_numbers_and_empty_lots() -> None:
    made = mlp()
    made[1][3] = float("nan")
    case = OnGpu(made)
    case.check(torch.optim.SGD(case.model.parameters(), lr=1e-3), 1e-3, lot=2, steps=40)
    assert "Batches are replayed" in case.explained


@on_gpu
def test_noise_is_fresh_in_every_replay() -> None:
    case = OnGpu((nn.Sequential(nn.Linear(6, 4000), nn.ReLU(), nn.Linear(4000, 5)), mlp()[1]))
    optimizer = torch.optim.SGD(case.model.parameters(), lr=1.0)
    moves = [
        torch.cat([v.flatten() for v in moved.values()]).double()
        for _, moved in case.steps(optimizer, noise=50.0, steps=16)
    ]
    assert "Noise and update are replayed" in case.explained
    noise = torch.stack(moves)
    entries = noise.shape[1]
    assert torch.allclose(noise.std(1).cpu(), torch.tensor(50.0 * 0.5 / 10).double(), rtol=0.03)
    correlations = torch.corrcoef(noise) - torch.eye(len(moves), device="cuda").double()
    assert float(correlations.abs().max()) < 6 / entries**0.5


@on_gpu
def test_a_host_read_and_a_foreign_generator_fall_back() -> None:
    case = OnGpu(mlp())
    plain = case.losses
    case.losses = lambda batch: plain(batch) * (1.0 + 0.0 * float(batch[0].sum()))  # type: ignore[method-assign]
    case.check(torch.optim.SGD(case.model.parameters(), lr=1e-3), 1e-3)
    assert "reads numbers back from the device (test_capture.py, line " in case.explained

    case = OnGpu(mlp())
    again, generator = case.losses, torch.Generator(device="cuda").manual_seed(0)
    case.losses = lambda batch: (
        again(batch) + 0.0 * torch.rand((), device="cuda", generator=generator)
    )  # type: ignore[method-assign]
    case.check(torch.optim.SGD(case.model.parameters(), lr=1e-3), 1e-3)
    assert "leaves alone (Generator)" in case.explained, case.explained
    assert torch.rand(3, device="cuda").std() > 0  # the device's own generator still works


@on_gpu
def test_dropout_is_fresh_in_every_replay() -> None:
    case = OnGpu((nn.Sequential(nn.Linear(6, 512), nn.Dropout(0.5), nn.Linear(512, 5)), mlp()[1]))
    seen: list[Tensor] = []
    chosen = tacit.Plan(examples=ROWS, lot_size=ROWS, steps=10, noise_multiplier=1e-7, clip=0.5)
    dataset = torch.utils.data.TensorDataset(case.x, case.y)
    optimizer = torch.optim.SGD(case.model.parameters(), lr=1e-9)
    with tacit.private(case.model, optimizer, chosen, dataset, performance=RECORDED) as dp:
        for one in dp.lots():
            dp.accumulate(one, case.losses, seen=lambda values: seen.append(values.clone()))
            dp.step()
        assert "Batches are replayed" in dp.explain()
    assert len({tuple(one.tolist()) for one in seen}) == len(seen)


@on_gpu
def test_adam_on_the_device_and_thousands_of_lots_in_the_same_memory() -> None:
    case = OnGpu(mlp())
    optimizer = torch.optim.Adam(case.model.parameters(), lr=1e-4, capturable=True)
    taken = []
    for at, _ in enumerate(case.steps(optimizer, noise=1.0, steps=2000)):
        if at in (200, 1999):
            taken.append(torch.cuda.memory_reserved())
    assert taken[0] == taken[1]
    assert all(float(state["step"]) == 2000 for state in optimizer.state.values())
    assert "Noise and update are replayed" in case.explained


@on_gpu
def test_a_foreign_change_is_refused_while_steps_are_replayed() -> None:
    case = OnGpu(mlp())
    optimizer = torch.optim.SGD(case.model.parameters(), lr=1e-3)
    with pytest.raises(tacit.errors.ProtocolError, match="was changed"):
        for at, _ in enumerate(case.steps(optimizer)):
            if at == 9:
                next(case.model.parameters()).data.add_(1e-3)


@on_gpu
def test_narrower_batches_are_recorded_in_the_memory_of_wider_ones() -> None:
    """Wide ones come first; what they took serves all others. Sums and inputs are small."""
    body = [layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.Tanh())]
    model = nn.Sequential(*body, nn.Linear(256, 5)).cuda()
    x, y = torch.randn(512, 64, 256), torch.randint(5, (512,))
    lengths = torch.arange(512).flip(0) % 64 // 16 * 16 + 16  # 64, 48, 32 and 16, mixed
    order = lengths.argsort(descending=True).tolist()
    rows = [(x[at, : lengths[at]], y[at]) for at in order]

    def padded(batch: list[Any]) -> tuple[Tensor, Tensor]:
        parts, labels = zip(*batch, strict=True)
        return nn.utils.rnn.pad_sequence(parts, batch_first=True), torch.stack(labels)

    def losses(batch: Any) -> Tensor:
        return functional.cross_entropy(model(batch[0])[:, 0], batch[1], reduction="none")

    chosen = tacit.Plan(examples=512, lot_size=512, steps=8, noise_multiplier=1.0, clip=1.0)
    taken: list[int] = []
    record = capture.CudaGraphs.record_batch

    def noted(self: Any, work: Any) -> Any:
        made = record(self, work)
        gc.collect()
        torch.cuda.empty_cache()
        taken.append(torch.cuda.memory_reserved())
        return made

    with (
        pytest.MonkeyPatch.context() as patch,
        tacit.private(
            model, torch.optim.SGD(model.parameters(), lr=1e-3), chosen, rows, collate=padded,  # type: ignore[arg-type]
            performance=tacit.Performance(batch=128, capture=True),
        ) as dp,
    ):  # fmt: skip
        patch.setattr(capture.CudaGraphs, "record_batch", noted)
        for lot in dp.lots():
            dp.accumulate(lot, losses)
            dp.step()
    assert len(taken) == 4
    assert taken[-1] - taken[0] < 0.25 * taken[0]


# ---- numbers of the host


COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "to": lambda host: host.to("meta", non_blocking=True),
    "to a number": lambda host: host.sum().to("meta", non_blocking=True),
    "to another": lambda host: host.to(torch.empty(2, device="meta")),
    "channels last": lambda host: host[None, None].to("meta", memory_format=torch.channels_last),
    "copied": lambda host: torch.empty(2, 2, device="meta").copy_(host, non_blocking=True),
    "copied without waiting": lambda host: torch.empty(2, 2, device="meta").copy_(host, True),
    "without gradients": torch.no_grad()(lambda host: host.to("meta", non_blocking=True)),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_from_the_host_is_not_recorded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay would read memory that was given back, or hold other numbers by then."""
    recorder = Engine({}, {}).recorder
    recorder.begin(rows=2)
    host = torch.ones(2, 2)
    with recorder:
        COPIES[name](host)  # as it is, where nothing is recorded
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        assert host.to(torch.float64).copy_(host).device == host.device
        with pytest.raises(HostCopy):
            COPIES[name](host)
