"""Steps that are recorded and replayed are watched like others, by what the recordings release."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from tacit.auditing.replay import TACIT, replay, standard_settings
from tacit.auditing.replay.experiments import Experiments
from tacit.auditing.replay.laboratory import Laboratory
from tacit.auditing.replay.trace import Variation
from tacit.auditing.replay.watch import Watch
from tacit.errors import InvalidArgument
from tacit.randomness import GaussianSource
from tacit.training import capture

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.auditing.replay import Setting
    from tacit.auditing.replay.trace import Trace

STEPS = 9


def recorded(name: str) -> Setting:
    setting = standard_settings()[name]
    return replace(setting, performance=replace(setting.performance, capture=True))


def run(name: str, folder: Path, **changed: Any) -> tuple[Experiments, Trace]:
    """Sampled lots at moving parameters, without noise to speak of, and who was in them."""
    experiments = Experiments(Laboratory(recorded(name), TACIT, folder), 1)
    few = experiments.few
    plan = replace(
        experiments.plan, examples=few.count, lot_size=4, steps=STEPS, noise_multiplier=1e-7
    )
    variation = Variation(plan=plan, records=few, still=False, rate=0.1, **changed)
    return experiments, experiments.lab.run(variation)


def largest_error(experiments: Experiments, trace: Trace) -> float:
    """Of the sums that were released, beside the oracle's of the units that were seen, in clips."""
    apart = [
        float((trace.released(step) - experiments.expected(trace, step)[0]).norm())
        for step in trace.settled
    ]
    return max(apart) / experiments.plan.clip


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("name", ["linear", "users"])
def test_replayed_steps_are_seen_with_their_rows_and_sums(
    name: str, wrapped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replays: list[Any] = []
    batch, update = Watch.computed, Watch.end_step
    monkeypatch.setattr(Watch, "computed", lambda *given: (replays.append(given), batch(*given)))
    monkeypatch.setattr(Watch, "end_step", lambda *given: (replays.append(given), update(*given)))
    factors = {0: -1.0, 2: 3.0}
    experiments, trace = run(name, tmp_path, wrapped=wrapped, factors=factors)
    assert trace.error is None
    assert len(trace.steps) == STEPS
    assert len(replays) > STEPS  # of batches, and of updates
    assert largest_error(experiments, trace) < 2e-3
    assert trace.steps[-1].after is not None
    assert torch.equal(trace.steps[-1].after, trace.end)


def test_what_a_recording_does_wrong_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right at first, as when it is checked: later replays add up nine tenths."""
    record = capture.Reruns.record_batch

    def weak(self: capture.Reruns, work: Any) -> Any:
        replay_batch, made = record(self, work)
        count = 0

        def less() -> None:
            nonlocal count
            count += 1
            replay_batch()
            for one in made[1].sums.values():
                one.mul_(0.9 if count > 2 else 1.0)

        return less, made

    monkeypatch.setattr(capture.Reruns, "record_batch", weak)
    experiments, trace = run("linear", tmp_path)
    assert largest_error(experiments, trace) > 0.02


@pytest.mark.slow
def test_a_recorded_update_that_repeats_its_noise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every replay has the noise of the first: what a graph without a generator would do."""
    record, normal = capture.Reruns.record_update, GaussianSource.normal_

    def stale(self: capture.Reruns, work: Any, generators: Any) -> Any:
        replay_update, drawn = record(self, work, generators), list[Tensor]()

        def again() -> None:
            old = iter(drawn[:])

            def repeated(self: GaussianSource, tensor: Tensor, scale: float = 1.0) -> None:
                known = next(old, None)
                if known is not None:
                    tensor.copy_(known)
                    return
                normal(self, tensor, scale)
                drawn.append(tensor.clone())

            with patch.object(GaussianSource, "normal_", repeated):
                replay_update()

        return again

    monkeypatch.setattr(capture.Reruns, "record_update", stale)
    report = replay(recorded("linear"), scope="noise", stop_at_first=True)
    assert report.at_fault == ("noise",), report.describe()


def test_a_device_that_is_not_there_is_refused() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(InvalidArgument, match="device cuda is not there"):
        replay(standard_settings()["linear"], device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["linear", "tied", "users"])
def test_an_honest_engine_passes_on_a_gpu(name: str) -> None:
    report = replay(standard_settings()[name], device="cuda", scope="lots", seconds=600.0)
    assert report.passed, report.describe()
