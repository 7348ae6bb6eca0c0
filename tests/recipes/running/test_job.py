"""A job's order: a plan, its releases, one fit; nothing that the plan did not count."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tacit.accounting import Composed, Gaussian, PureDp, epsilon
from tacit.accounting.serialization import from_plain
from tacit.errors import BudgetExceeded, InvalidArgument, ProtocolError
from tacit.ledger import Ledger
from tacit.mechanisms import gaussian, laplace
from tacit.recipes import Interrupted, run

from . import small

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tacit.recipes import Job, Trained

PLAN = {"examples": small.TRAIN, "lot_size": 60, "steps": 5, "clip": 1.0}


def carry_out(train: Callable[[Job], Any], **given: Any) -> Trained:
    recipe = replace(small.recipe(), train=train)
    return run(recipe, epsilon=2.0, data=small.split(), **given)


def fit(job: Job, plan: Any) -> Trained:
    model = torch.nn.Linear(3, 2)
    return job.fit(
        model, small.dataset(job.data.train), plan,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        held_out=small.dataset(job.data.test),
    )  # fmt: skip


def test_a_release_that_the_plan_did_not_count_is_refused() -> None:
    def train(job: Job) -> None:
        job.plan(**PLAN, also=(Gaussian(30.0),))
        job.release("mean", small.mean_of([]), what="")

    with pytest.raises(ProtocolError, match="which the plan did not count"):
        carry_out(train)


def test_an_event_is_used_once() -> None:
    def train(job: Job) -> None:
        job.plan(**PLAN, also=(Gaussian(20.0),))
        job.release("mean", small.mean_of([]), what="")
        job.release("again", small.mean_of([]), what="")

    with pytest.raises(ProtocolError, match="'again' has the event"):
        carry_out(train)


def test_a_name_is_used_once() -> None:
    def train(job: Job) -> None:
        job.plan(**PLAN, also=(Gaussian(20.0), Gaussian(20.0)))
        job.release("mean", small.mean_of([]), what="")
        job.release("mean", small.mean_of([]), what="")

    with pytest.raises(ProtocolError, match="is released already"):
        carry_out(train)


@pytest.mark.parametrize("name", ["", "..", "a/b", "../../etc", "A", "a b", "a.b", "-a", "a" * 65])
def test_names_that_are_no_file_names_are_refused(name: str, tmp_path: Path) -> None:
    def train(job: Job) -> None:
        job.plan(**PLAN, also=(Gaussian(20.0),))
        job.release(name, small.mean_of([]), what="")

    with pytest.raises(InvalidArgument, match="lower-case letters"):
        carry_out(train, folder=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_plans_come_first_and_once() -> None:
    def late(job: Job) -> None:
        job.release("mean", small.mean_of([]), what="")
        job.plan(**PLAN)

    def twice(job: Job) -> None:
        job.plan(**PLAN)
        job.plan(**PLAN)

    for train in (late, twice):
        with pytest.raises(ProtocolError, match="comes once, before anything"):
            carry_out(train)


def test_only_the_jobs_own_plan_is_fitted() -> None:
    def train(job: Job) -> Trained:
        return fit(job, replace(job.plan(**PLAN), noise_multiplier=0.1))

    with pytest.raises(ProtocolError, match=r"the plan that job\.plan"):
        carry_out(train)


def test_a_mechanism_must_charge_the_budget(tmp_path: Path) -> None:
    def train(job: Job) -> None:
        job.plan(**PLAN, also=(Gaussian(20.0),))
        free = small.mean_of([])
        job.release("mean", lambda _: free(None), what="")

    with Ledger(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.open("x", 2.0, 1e-5, composition="declared")
        with pytest.raises(ProtocolError, match="must be given the budget"):
            carry_out(train, budget=budget)


def test_a_recipe_without_a_plan_concludes() -> None:
    def train(job: Job) -> Trained:
        weights = job.release(
            "weights", lambda budget: laplace(np.ones(1), sensitivity=1, epsilon=1.0,
                                              budget=budget), what="the weights"
        )  # fmt: skip
        return job.conclude(
            {"weights": np.asarray(weights)}, accuracy=0.5, sampling="none", noise="Laplace",
            event=Gaussian(20.0), what="the rest", notes=["a note"],
        )  # fmt: skip

    done = carry_out(train)
    assert done.accuracy == 0.5
    assert done.notes == ("a note",)
    assert done.statement.epsilon == pytest.approx(epsilon(from_plain(done.statement.event), 1e-5))
    assert 1.0 < done.statement.epsilon < 2.0


def test_a_conclusion_above_epsilon_is_refused() -> None:
    def train(job: Job) -> Trained:
        return job.conclude({}, accuracy=0.5, sampling="none", noise="x", event=PureDp(2.5))

    with pytest.raises(ProtocolError, match=r"spent epsilon=2\.\d+ of 2"):
        carry_out(train)


def test_a_conclusion_needs_an_event_and_no_plan() -> None:
    def nothing(job: Job) -> Trained:
        return job.conclude({}, accuracy=0.5, sampling="none", noise="x")

    def planned(job: Job) -> Trained:
        job.plan(**PLAN)
        return job.conclude({}, accuracy=0.5, sampling="none", noise="x", event=PureDp(1.0))

    with pytest.raises(InvalidArgument, match="event must say"):
        carry_out(nothing)
    with pytest.raises(ProtocolError, match="recipes without a plan"):
        carry_out(planned)


def test_a_mechanism_is_given_no_budget_where_there_is_none() -> None:
    def train(job: Job) -> Trained:
        plan = job.plan(**PLAN, also=(Gaussian(20.0),))

        def mechanism(budget: Any) -> Any:
            assert budget is None
            return gaussian(0.0, sensitivity=1.0, noise_multiplier=20.0)

        job.release("mean", mechanism, what="a number")
        return fit(job, plan)

    assert carry_out(train).statement.epsilon <= 2.0


# ---- runs without a plan


class Gradual:
    """What was released bit by bit."""

    def __init__(self, event: Any, *, complete: bool = True) -> None:
        self.event, self.complete = event, complete


def conclude(job: Job, **given: Any) -> Trained:
    return job.conclude(
        {"weight": np.zeros(2)}, accuracy=0.5, sampling="none", noise="exact", **given
    )


def test_what_is_released_gradually_is_in_the_claim(tmp_path: Path) -> None:
    seen: list[Any] = []

    def train(job: Job) -> Trained:
        def releases(budget: Any, journal: Any, stop: Any) -> Gradual:
            seen.append((budget, journal, stop()))
            journal.write_text("half of it")
            return Gradual(Gaussian(3.0))

        job.declare(Gaussian(3.0))
        job.gradually("answers", releases, what="labels")
        with pytest.raises(ProtocolError, match="released already"):
            job.gradually("answers", releases, what="labels")
        with pytest.raises(ProtocolError, match="before anything is released"):
            job.declare(Gaussian(3.0))
        return conclude(job, releases=("labels",), not_promised=("more",), files={"a.csv": b"1"})

    done = carry_out(train, folder=tmp_path / "run")
    ((budget, journal, stopped),) = seen
    assert (budget, stopped) == (None, False)
    assert journal == tmp_path / "run" / "answers.journal"
    assert from_plain(done.statement.event) == Composed(Gaussian(3.0))
    assert done.statement.releases == ("labels",)
    assert done.statement.not_promised[0] == "more"
    assert (tmp_path / "run" / "a.csv").read_bytes() == b"1"
    assert not (tmp_path / "run" / "private").exists()


def test_what_was_stopped_midway_can_go_on(tmp_path: Path) -> None:
    def train(job: Job) -> Trained:
        job.declare(Gaussian(3.0))
        place = job.private("things")
        assert place is not None
        place.write_text("private")
        done = job.gradually(
            "answers", lambda *_: Gradual(Gaussian(3.0), complete=not stops), what="labels"
        )
        assert done.complete
        return conclude(job)

    stops = True
    with pytest.raises(Interrupted, match="stopped at the answers") as caught:
        carry_out(train, folder=tmp_path / "run")
    assert caught.value.resumable
    assert (tmp_path / "run" / "private").stat().st_mode & 0o777 == 0o700
    stops = False
    carry_out(train, folder=tmp_path / "run", resume=True)
    assert not (tmp_path / "run" / "private").exists()


def test_a_run_without_a_folder_keeps_nothing() -> None:
    def train(job: Job) -> Trained:
        assert job.private("things") is None
        job.gradually(
            "answers", lambda _, journal, __: Gradual(Gaussian(3.0 + (journal is not None))),
            what="",
        )  # fmt: skip
        return conclude(job)

    assert from_plain(carry_out(train).statement.event) == Composed(Gaussian(3.0))


def test_a_declared_budget_is_told_everything_before_the_first_release(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("small", 2.0, 1e-5, composition="declared")

        def train(job: Job) -> Trained:
            job.declare(Gaussian(8.0), Gaussian(9.0))
            assert budget.spent().epsilon == pytest.approx(
                epsilon(Composed(Gaussian(8.0), Gaussian(9.0)), 1e-5)
            )
            assert budget.state.granted == 0
            for sigma in (8.0, 9.0):
                job.release(
                    f"mean-{sigma:.0f}",
                    lambda given, sigma=sigma: gaussian(
                        [0.0], sensitivity=1.0, noise_multiplier=sigma, budget=given
                    ),
                    what="a mean",
                )
            return conclude(job)

        done = carry_out(train, budget=budget)
        assert done.statement.epsilon == pytest.approx(budget.spent().epsilon)


@pytest.mark.parametrize("composition", ["basic", "renyi", "declared"])
def test_a_run_that_the_budget_does_not_hold_as_a_whole_releases_nothing(
    composition: str, tmp_path: Path
) -> None:
    """The first half was released and paid for before the second one was refused."""
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("small", 0.75, 1e-5, composition=composition)
        begun: list[str] = []

        def train(job: Job) -> Trained:
            job.declare(PureDp(0.5), PureDp(0.5))
            begun.append("the run")
            return conclude(job)

        with pytest.raises(BudgetExceeded, match="does not hold 2 releases together"):
            carry_out(train, budget=budget, folder=tmp_path / "run")
        assert (budget.spent().epsilon, begun) == (0.0, [])
    assert not (tmp_path / "run").exists()


def test_a_declaration_that_was_never_used_is_given_up(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("small", 2.0, 1e-5, composition="declared")

        def train(job: Job) -> Trained:
            job.declare(Gaussian(8.0))
            raise InvalidArgument("it does not go on")

        with pytest.raises(InvalidArgument, match="does not go on"):
            carry_out(train, budget=budget, folder=tmp_path / "run")
        assert budget.spent().epsilon == 0.0
    assert not (tmp_path / "run").exists()
