"""What the self-test sees since it was built from coverage: bugs in code it did not run before.

Each bug is put in by hand, and one check is asked: it must find it, and say nothing without it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tacit.auditing.replay import TACIT, replay, standard_settings
from tacit.auditing.replay.checks import (
    charging,
    clipping,
    control_flow,
    gradients,
    options,
    sampling,
    update,
)
from tacit.auditing.replay.checks.gradients import distance
from tacit.auditing.replay.experiments import Experiments
from tacit.auditing.replay.laboratory import Laboratory
from tacit.auditing.replay.standard import special_settings
from tacit.auditing.replay.watch import Recognition, Stranger
from tacit.errors import UnsupportedModel
from tacit.ledger import composition
from tacit.randomness import inclusion as drawing
from tacit.training import batches, claim, loaders, noise, session, verification
from tacit.training import sampling as drawn
from tacit.training.lot import Computation
from tacit.training.noise import ClipState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tacit.auditing.replay import Finding

SETTINGS = {**standard_settings(), **special_settings()}


def asked(check: Callable[[Experiments], Finding], name: str, folder: Path) -> Finding:
    return check(Experiments(Laboratory(SETTINGS[name], TACIT, folder)))


def two_folders(parent: Path) -> tuple[Path, Path]:
    """For runs with ledgers: each has its own."""
    for name in ("right", "wrong"):
        (parent / name).mkdir()
    return parent / "right", parent / "wrong"


def shifted(self: Any, rows: Any) -> tuple[torch.Tensor, ...]:
    """The last row of a batch is left to the one before it."""
    where = torch.from_numpy(np.concatenate([rows[:-1], rows[-2:-1]]) if len(rows) > 1 else rows)
    return tuple(tensor[where] for tensor in self.tensors)


def test_a_loader_of_plain_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(update.normalisation, "linear", tmp_path).passed
    monkeypatch.setattr(loaders.OnDevice, "_batch", shifted)
    monkeypatch.setattr(
        verification.Verifier, "watches", False
    )  # which would refuse it before the self-test
    assert not asked(update.normalisation, "linear", tmp_path).passed


def test_workers_of_an_own_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = asked(update.own_data, "own data set", tmp_path)
    assert right.passed
    assert "OwnRecords itself" in right.evidence
    batches = loaders.InWorkers.batches

    def twice(self: Any, indices: Any) -> Any:
        return batches(self, [np.repeat(rows[:1], len(rows)) for rows in indices])

    monkeypatch.setattr(loaders.InWorkers, "batches", twice)
    assert not asked(update.own_data, "own data set", tmp_path).passed


def test_batches_that_are_cut_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(update.out_of_memory, "linear", tmp_path).passed

    def forgetful(self: Any, lot: Any, losses: Any) -> None:
        try:
            for batch in lot:
                self.backward(losses(batch))
        except torch.OutOfMemoryError:
            lot._draw.left = lot._draw.left[:0]
            self._computation._tried = None

    monkeypatch.setattr(session.Session, "accumulate", forgetful)
    assert not asked(update.out_of_memory, "linear", tmp_path).passed


def test_the_plans_own_small_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = asked(sampling.own_rate, "linear", tmp_path)
    assert right.passed
    assert dict(right.numbers)["claimed"] < 0.01
    included = drawn.included  # type: ignore[attr-defined]  # where the sampler looks it up

    def generous(count: int, rate: float, stream: Any) -> Any:
        return included(count, 1.5 * rate if rate < 0.01 else rate, stream)

    monkeypatch.setattr(drawn, "included", generous)
    assert not asked(sampling.own_rate, "linear", tmp_path).passed


@pytest.mark.slow
def test_lots_that_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(sampling.own_rate, "truncated", tmp_path).passed
    monkeypatch.setattr(drawn, "subset", lambda indices, size, _: indices[: size + 3])
    assert not asked(sampling.own_rate, "truncated", tmp_path).passed


def test_epochs_of_allocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = asked(sampling.epochs, "allocated", tmp_path)
    assert right.passed

    def dealt(count: int, lots: int, stream: Any) -> Any:
        order = np.argsort(np.frombuffer(stream.bytes(8 * count), dtype=np.uint64))
        found = np.empty(count, dtype=np.int64)
        found[order] = np.arange(count) % lots
        return found

    monkeypatch.setattr(drawn, "assigned", dealt)  # a shuffle: all lots have the same size
    assert not asked(sampling.epochs, "allocated", tmp_path).passed

    assigned = drawing.assigned
    kept: list[Any] = []

    def reused(count: int, lots: int, stream: Any) -> Any:
        if not kept:
            kept.append(assigned(count, lots, stream))
        return kept[0]

    monkeypatch.setattr(drawn, "assigned", reused)
    assert not asked(sampling.epochs, "allocated", tmp_path).passed


def test_the_delta_of_a_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = two_folders(tmp_path)
    assert asked(charging.pairs, "linear", right).passed
    spent = composition.spent

    def careless(state: Any) -> Any:
        found = spent(state)
        return composition.Spending(found.epsilon, 0.5 * found.delta, found.share, found.meaning)

    monkeypatch.setattr(composition, "spent", careless)
    assert not asked(charging.pairs, "linear", wrong).passed


def test_what_is_claimed_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = two_folders(tmp_path)
    assert asked(charging.statements_of_what_ended, "linear", right).passed
    honest = claim.statement

    def short(plan: Any, delta: float, taken: int, run: Any, **rest: Any) -> Any:
        return honest(plan, delta, taken, claim.Run(max(1, taken), run.unsafe), **rest)

    monkeypatch.setattr(claim, "statement", short)
    assert not asked(charging.statements_of_what_ended, "linear", wrong).passed


def test_what_a_scheduler_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = two_folders(tmp_path)
    assert asked(options.fitting, "linear", right).passed
    step = session.Session.step

    def telling(self: Any) -> None:
        step(self)
        if "scheduler" in self._state:
            self._state["scheduler"].step(0.5)

    monkeypatch.setattr(session.Session, "step", telling)
    assert not asked(options.fitting, "linear", wrong).passed


@pytest.mark.slow
def test_the_noise_of_an_adaptive_clips_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = noise.FastNoise.count

    def quiet(self: Any, exact: float, scale: float) -> float:
        return count(self, exact, 0.75 * scale)

    monkeypatch.setattr(noise.FastNoise, "count", quiet)
    assert not asked(clipping.count_noise, "adaptive", tmp_path).passed


def test_noise_for_another_clip_than_the_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong = two_folders(tmp_path)
    assert asked(clipping.noise_at_the_clip, "adaptive", right).passed
    scale = ClipState.noise_scale

    def smaller(self: Any) -> float:
        """The noise of the step after, while the clip falls by a third a step."""
        return scale.fget(self) * (0.75 if self._style is not None else 1.0)

    monkeypatch.setattr(ClipState, "noise_scale", property(smaller))
    found = asked(clipping.noise_at_the_clip, "adaptive", wrong)
    assert (found.passed, found.component) == (False, "noise")


def test_another_clip_after_resuming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def noise_alone(self: Any, state: Any, /) -> None:
        self._clip = state["clip"]

    monkeypatch.setattr(ClipState, "load_state_dict", noise_alone)
    found = asked(clipping.noise_at_the_clip, "adaptive", tmp_path)
    assert (found.passed, found.component) == (False, "resuming")


@pytest.mark.parametrize("name", ["linear", "adaptive"])
def test_a_batch_that_is_checked_and_counts_twice(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong = two_folders(tmp_path)
    assert asked(options.loops, name, right).passed
    passed = verification.Verifier.passed

    def twice(self: Any) -> Any:
        batch, result = passed(self)
        if self._schedule is not None and self._schedule._spent:  # not in the first check
            result = replace(result, sums={n: 2.0 * one for n, one in result.sums.items()})
        return batch, result

    monkeypatch.setattr(verification.Verifier, "passed", twice)
    found = asked(options.loops, name, wrong)
    assert not found.passed
    assert "units count 2" in found.evidence or "8 units" in found.evidence


def test_units_that_a_check_at_random_drops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, counts = verification.Verifier.passed, Computation._count_in

    def dropping(self: Any, batch: Any, result: Any) -> None:
        counts(self, batch, result)
        if getattr(self._verifier, "again", False):
            self.draw.drop(1)
            self._verifier.again = False

    def noted(self: Any) -> Any:
        self.again = self._schedule._since == -math.inf  # lots that chance has chosen
        return passed(self)

    monkeypatch.setattr(verification.Verifier, "passed", noted)
    monkeypatch.setattr(Computation, "_count_in", dropping)
    found = asked(options.loops, "linear", tmp_path)
    assert not found.passed
    assert "unit 8 counts 0 times" in found.evidence


@pytest.mark.parametrize("name", ["users", "image users"])
def test_users_whose_rows_lie_apart(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked(clipping.by_definition, name, tmp_path).passed

    def in_order(groups: Any, plan: Any) -> list[Any]:
        del plan
        counts = np.unique(np.asarray(groups), return_counts=True)[1]
        return np.split(np.arange(len(groups)), np.cumsum(counts)[:-1])

    monkeypatch.setattr(batches, "_members", in_order)
    assert not asked(clipping.by_definition, name, tmp_path).passed


@pytest.mark.slow
def test_sums_of_the_step_before_in_float16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished, kept = Computation.finished, {}

    def stale(self: Any) -> Any:
        now = finished(self)
        then, kept[id(self)] = kept.get(id(self), now), now
        return then

    monkeypatch.setattr(Computation, "finished", stale)
    found = asked(gradients.after_moving, "float16", tmp_path)
    assert not found.passed
    assert "parameters before step 1" in found.evidence


def test_a_gradient_that_overflows_in_float16_adds_nothing(tmp_path: Path) -> None:
    experiments = Experiments(Laboratory(SETTINGS["float16"], TACIT, tmp_path))
    trace = experiments.sum_of("long", scale=experiments.mixed, factors={0: 1e3})
    off, limit, _ = distance(experiments, trace)
    assert 0.9 < off <= limit
    single = experiments.oracle.of_step(trace, single=True)
    assert [unit for unit, one in single.items() if not one.isfinite().all()] == [0]


def test_what_must_be_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(control_flow.refusals, "linear", tmp_path).passed
    monkeypatch.setattr(verification, "_close", lambda *_: True)
    monkeypatch.setattr(verification.Verifier, "_compare_alone", lambda *_: None)
    found = asked(control_flow.refusals, "linear", tmp_path)
    assert not found.passed
    assert "rows that are weighed by others" in found.evidence


# ---- blame


def test_a_verifier_that_trips_is_not_the_users_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_close", lambda *_: False)
    report = replay(SETTINGS["linear"], scope="quick")
    assert report.at_fault == ("gradients",)
    assert "by plain autograd the model's rows are independent" in report.describe()


def test_a_model_that_mixes_rows_is_the_users() -> None:
    def mixing(model: torch.nn.Module, batch: Any) -> torch.Tensor:
        scores = model(batch[0])
        return torch.nn.functional.cross_entropy(
            scores - scores.mean(0), batch[1], reduction="none"
        )

    with pytest.raises(UnsupportedModel):
        replay(replace(SETTINGS["linear"], loss=mixing), scope="quick")


# ---- rows that are known by what is in them


def test_rows_are_recognised_and_strangers_are_not() -> None:
    examples = [(torch.tensor([float(at), math.pi]), at % 2) for at in range(5)]
    known = Recognition(examples, None)
    batch = torch.tensor([[3.0, math.pi], [0.0, math.pi]]), torch.tensor([1, 0])
    assert [read.place for read in known.reads(batch, ())] == [3, 0]
    with pytest.raises(Stranger):
        known.reads((batch[0] + 1.0, batch[1]), ())


def test_records_that_are_alike_come_once_each() -> None:
    known = Recognition([(torch.zeros(2), 0)] * 4, None)
    batch = torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64)
    places = [read.place for read in known.reads(batch, {2})]
    assert sorted(places) == [0, 1, 3]
    assert known.distinct == 1
