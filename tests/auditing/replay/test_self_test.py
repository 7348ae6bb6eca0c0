"""The self-test against an engine of its own: honest, and broken in many ways, one at a time."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tacit import Plan
from tacit.auditing.replay import COMPONENTS, Setting, replay
from tacit.auditing.replay.checklist import Check
from tacit.auditing.replay.checks import sampling
from tacit.auditing.replay.experiments import Experiments
from tacit.auditing.replay.laboratory import Laboratory
from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.self_test import _made
from tacit.auditing.replay.tacit_subject import TACIT
from tacit.auditing.replay.trace import Trace, Variation
from tacit.errors import InvalidArgument, UnsupportedModel
from tacit.training import verification
from tacit.training.verification import random_state, set_random_state

from .naive_engine import Naive
from .sum_engine import Summing
from .varied_engine import Varied

GENERATOR = torch.Generator().manual_seed(3)
DATA = TensorDataset(
    torch.randn(64, 6, generator=GENERATOR), torch.randint(3, (64,), generator=GENERATOR)
)


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def setting(adjacency: str = "add-remove") -> Setting:
    plan = Plan(
        examples=64, lot_size=16, steps=50, noise_multiplier=1.2, clip=0.8,
        adjacency=adjacency,  # type: ignore[arg-type]
    )  # fmt: skip
    return Setting(model=model, loss=loss, dataset=DATA, plan=plan)


@pytest.mark.slow
def test_an_honest_engine_that_is_not_tacit_passes() -> None:
    report = replay(setting(), subject=Naive(ranks=(1, 2)), seconds=600)
    assert report.passed, report.describe()
    assert report.whole
    assert {finding.component for finding in report.findings} == set(COMPONENTS)


QUICK = {
    "95 % noise": "noise",
    "fixed seed": "noise",
    "not clipped": "clipping",
    "NaN passes": "clipping",
    "realised lot": "update",
    "noise after the step": "update",
    "mixes units": "gradients",
    "charged late": "charging",
    "claims too little": "charging",
    "momentum forgotten": "resuming",
}
SLOW = {
    "no noise on biases": "noise",
    "noise fades": "noise",
    "noise comes again": "noise",
    "noise shuffled": "noise",
    "Laplace noise": "noise",
    "bounded noise": "noise",
    "global seed": "noise",
    "half norms": "clipping",
    "only the weights' norm": "clipping",
    "clips the sum": "clipping",
    "clip 5 % wide": "clipping",
    "sums not cleared": "update",
    "shuffled": "sampling",
    "fixed size": "sampling",
    "wrong rate": "sampling",
    "empty lots skipped": "control flow",
    "loss published": "control flow",
    "stops at NaN": "control flow",
    "not charged": "charging",
    "gives back after a crash": "charging",
    "ignores the limit": "charging",
    "noise again after resuming": "resuming",
    "starts again": "resuming",
    "resumed uncharged": "resuming",
}


def caught(fault: str, component: str) -> None:
    report = replay(setting(), subject=Naive(fault), stop_at_first=True)
    assert report.at_fault == (component,), report.describe()


@pytest.mark.parametrize(("fault", "component"), QUICK.items())
def test_a_fault_is_found_and_its_component_is_named(fault: str, component: str) -> None:
    caught(fault, component)


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "component"), SLOW.items())
def test_more_faults_are_found_and_their_components_are_named(fault: str, component: str) -> None:
    caught(fault, component)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["doubled on ranks", "same noise on ranks"])
def test_a_fault_that_two_ranks_have_and_one_has_not_is_one_of_ranks(fault: str) -> None:
    report = replay(setting(), subject=Naive(fault, ranks=(1, 2)))
    assert report.at_fault == ("ranks",), report.describe()


def test_the_report_ends_at_the_first_fault_if_asked() -> None:
    report = replay(setting(), subject=Naive("not clipped"), stop_at_first=True)
    assert not report.whole
    assert [finding.passed for finding in report.findings if finding.component != "ranks"] == [
        True,
        False,
    ]
    assert report.at_fault == ("clipping",)


def test_the_time_limit_ends_the_test_and_the_report_says_so() -> None:
    report = replay(setting(), seconds=1e-6)
    assert report.passed
    assert not report.whole
    assert "not every check was run" in report.describe()


def test_progress_is_reported_before_every_check() -> None:
    seen: list[tuple[int, int, str]] = []
    replay(
        setting(),
        subject=Naive("not clipped"),
        stop_at_first=True,
        progress=lambda *now: seen.append(now),
    )
    assert [name for _, _, name in seen] == ["gradients.alone", "clipping.by_definition"]
    assert [at for at, _, _ in seen] == [0, 1]


def test_a_refusal_is_no_finding_but_an_error() -> None:
    mixing = Setting(
        model=lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)),
        loss=loss,
        dataset=DATA,
        plan=setting().plan,
    )
    with pytest.raises(UnsupportedModel, match="BatchNorm1d"):
        replay(mixing)


def test_three_records_are_too_few() -> None:
    few = TensorDataset(*(tensor[:3] for tensor in DATA.tensors))
    plan = Plan(examples=3, lot_size=1, steps=5, noise_multiplier=1.0, clip=1.0)
    with pytest.raises(InvalidArgument, match="at least 4 units"):
        replay(Setting(model=model, loss=loss, dataset=few, plan=plan))


def global_numbers() -> tuple[object, ...]:
    return torch.rand(1).item(), random.random(), np.random.rand()  # noqa: NPY002


def test_the_callers_random_numbers_are_left_alone() -> None:
    before = random_state()
    expected = global_numbers()
    set_random_state(before)
    replay(setting(), seconds=0.5)
    assert global_numbers() == expected


# ---- faults between a lot and its noisy sum, found by the checks of sums and by their words

QUICK_SUMS = {
    "the easier half left out": ("gradients", "count 0 times, the 6 others once"),
    "norms kept": ("clipping", "the gradients are right, but units count"),
    "left over by empty lots": ("update", "is the sum of step"),
}
SLOW_SUMS = {
    "the third unit twice": ("gradients", "unit 2 counts 2 times, the 11 others once"),
    "losses as weights": ("clipping", "the gradients are right, but units count"),
    "gradients kept": ("gradients", "it is that of the parameters before step 1"),
    "unclipped after resuming": ("resuming", "before and after resuming"),
    "noise by the sum": ("noise", "what comes again on sums of"),
    "no noise along long sums": ("noise", "the direction of the sum on sums of"),
    "the best is handed over": ("update", "other parameters than its last step"),
}


@pytest.mark.slow
def test_an_honest_engine_of_sums_passes() -> None:
    report = replay(setting(), subject=Summing(), seconds=600)
    assert report.passed, report.describe()


def caught_in_sums(fault: str, component: str, words: str) -> None:
    report = replay(setting(), subject=Summing(fault), stop_at_first=True)
    assert report.at_fault == (component,), report.describe()
    assert words in report.describe()


@pytest.mark.parametrize(("fault", "expected"), QUICK_SUMS.items())
def test_a_wrong_sum_is_found_and_explained(fault: str, expected: tuple[str, str]) -> None:
    caught_in_sums(fault, *expected)


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "expected"), SLOW_SUMS.items())
def test_more_wrong_sums_are_found_and_explained(fault: str, expected: tuple[str, str]) -> None:
    caught_in_sums(fault, *expected)


# ---- faults in the law of all noise, over several runs, and in what is published

QUICK_LAWS = {
    "free the second time": ("charging", "steps of several runs"),
    "ε since resumed": ("resuming", "resuming: claim"),
}
SLOW_LAWS = {
    "tells the lot": ("control flow", "last lot"),
    "one length": ("noise", "noise: length"),
    "logs the loss": ("control flow", "printed.loss"),
    "a shared scale": ("noise", "noise"),
    "centred": ("noise", "the mean of all"),
    "linked steps": ("noise", "the step before"),
    "away from the last": ("noise", "along the step before"),
    "never against the sum": ("noise", "apart from the sum"),
    "lots grow": ("sampling", "sampling"),
    "two by two": ("sampling", "sampling: independence"),
    "never two in a row": ("sampling", "sampling"),
    "the hard ones": ("sampling", "without the data"),
    "prints the loss": ("control flow", "printed.loss"),
    "tells sizes": ("control flow", "sizes"),
    "counts NaN": ("control flow", "skipped"),
}


@pytest.mark.slow
def test_an_honest_varied_engine_passes() -> None:
    report = replay(setting(), subject=Varied(), seconds=600)
    assert report.passed, report.describe()


def caught_in_words(fault: str, component: str, words: str) -> None:
    report = replay(setting(), subject=Varied(fault), seconds=600, stop_at_first=True)
    assert report.at_fault == (component,), report.describe()
    assert words in next(line for line in report.describe().splitlines() if "FAULT" in line)


@pytest.mark.parametrize(("fault", "expected"), QUICK_LAWS.items())
def test_a_wrong_law_is_found_and_named(fault: str, expected: tuple[str, str]) -> None:
    caught_in_words(fault, *expected)


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "expected"), SLOW_LAWS.items())
def test_more_wrong_laws_are_found_and_named(fault: str, expected: tuple[str, str]) -> None:
    caught_in_words(fault, *expected)


def test_a_slow_machine_makes_no_alarm(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks cost nothing beside the run's time, so that lots are checked again and read twice."""
    ended = verification.CheckSchedule.end

    def cheaply(schedule: verification.CheckSchedule) -> None:
        ended(schedule)
        schedule._cost, schedule._spent = 1e-9, 0.0

    monkeypatch.setattr(verification.CheckSchedule, "end", cheaply)
    folder = tmp_path_factory.mktemp("runs")
    finding = sampling.once(Experiments(Laboratory(setting(), TACIT, folder), 1))
    assert finding.passed, finding


@pytest.mark.parametrize(("resumed", "expected"), [(False, "control flow"), (True, "resuming")])
def test_a_run_that_ends_when_it_is_resumed_is_blamed_on_resuming(
    tmp_path_factory: pytest.TempPathFactory, resumed: bool, expected: str
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    experiments = Experiments(Laboratory(setting(), TACIT, folder), 1)
    resume = folder / "run.ckpt" if resumed else None
    variation = Variation(plan=experiments.plan, records=experiments.few, resume=resume)
    nothing = torch.zeros(0)
    trace = Trace(variation, (), (), nothing, nothing, (), 1, None, ValueError("any"), None)

    def make(_: Experiments) -> Finding:
        return Finding("update", "any", bool(trace.taken().steps), "it ran")

    finding = _made(Check("any", make), experiments)
    assert (finding.component, finding.passed) == (expected, False)
