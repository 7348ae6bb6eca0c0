"""A job's order: a plan, its releases, one fit; nothing that the plan did not count."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tacit.accounting import Composed, Gaussian, PureDp, epsilon
from tacit.accounting.serialization import from_dict
from tacit.errors import BudgetExceeded, InvalidArgument, ProtocolError
from tacit.ledger import Ledger
from tacit.mechanisms import gaussian, laplace
from tacit.recipes import Interrupted, run
from tacit.runs.job import Job, RunTerms, nowhere
from tacit.runs.recipe import Task

from . import small

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tacit.runs import Outline, Releasing, Trained
    from tacit.training import Plan, Prepared


def carry_out(train: Callable[[Job], Any], **given: Any) -> Trained:
    """Without a plan."""
    return run(small.unplanned(train), epsilon=2.0, data=small.split(), **given)


def planned(also: tuple[Any, ...], releases: Callable[[Releasing], Any], **given: Any) -> Trained:
    """With a plan that counts ``also`` besides, and a recipe that ``releases`` before training."""

    def outline(task: Task) -> Outline:
        return task.plan(lot=60, steps=5, clip=1.0, also=also)

    def prepare(task: Task, plan: Plan, release: Releasing) -> Prepared:
        releases(release)
        return small.prepared(task, plan)

    recipe = replace(small.recipe(), outline=outline, prepare=prepare)
    return run(recipe, epsilon=2.0, data=small.split(), **given)


def test_a_release_that_the_plan_did_not_count_is_refused() -> None:
    with pytest.raises(ProtocolError, match="which the plan did not count"):
        planned((Gaussian(30.0),), lambda release: release("mean", small.mean_of([]), what=""))


def test_an_event_is_used_once() -> None:
    def releases(release: Releasing) -> None:
        release("mean", small.mean_of([]), what="")
        release("again", small.mean_of([]), what="")

    with pytest.raises(ProtocolError, match="'again' has the event"):
        planned((Gaussian(20.0),), releases)


def test_a_name_is_used_once() -> None:
    def releases(release: Releasing) -> None:
        release("mean", small.mean_of([]), what="")
        release("mean", small.mean_of([]), what="")

    with pytest.raises(ProtocolError, match="is released already"):
        planned((Gaussian(20.0), Gaussian(20.0)), releases)


@pytest.mark.parametrize("name", ["", "..", "a/b", "../../etc", "A", "a b", "a.b", "-a", "a" * 65])
def test_names_that_are_no_file_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="lower-case letters"):
        planned(
            (Gaussian(20.0),),
            lambda release: release(name, small.mean_of([]), what=""),
            folder=tmp_path / "run",
        )
    assert not list(tmp_path.iterdir())


def test_plans_come_first_and_once() -> None:
    task = Task(
        settings=small.Settings(), data=small.split(), epsilon=2.0, delta=1e-5,
        device=torch.device("cpu"),
    )  # fmt: skip
    outline = task.plan(lot=60, steps=5, clip=1.0)
    terms = RunTerms(name="x", epsilon=2.0, delta=1e-5, tuning="none")
    late = Job(terms, nowhere(), task)
    late.release("mean", small.mean_of([]), what="")
    twice = Job(terms, nowhere(), task)
    twice.reserve(outline)
    for job in (late, twice):
        with pytest.raises(ProtocolError, match="comes once, before anything"):
            job.reserve(outline)


def test_only_the_plan_that_was_reserved_is_fitted() -> None:
    def prepare(task: Task, plan: Plan, release: Releasing) -> Prepared:
        del release
        return small.prepared(task, replace(plan, noise_multiplier=0.1))

    recipe = replace(small.recipe(also=False), prepare=prepare)
    with pytest.raises(ProtocolError, match="by the plan that it is given"):
        run(recipe, epsilon=2.0, data=small.split())


def test_a_lot_larger_than_the_data_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="lot must be at most the 300 training examples"):
        run(small.recipe(), epsilon=2.0, data=small.split(), settings={"lot": 99999999})


def test_a_mechanism_must_charge_the_budget(tmp_path: Path) -> None:
    free = small.mean_of([])

    with Ledger(f"sqlite:///{tmp_path}/b.db") as ledger:
        budget = ledger.open("x", 2.0, 1e-5, composition="declared")
        with pytest.raises(ProtocolError, match="must be given the budget"):
            planned(
                (Gaussian(20.0),),
                lambda release: release("mean", lambda _: free(None), what=""),
                budget=budget,
            )


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
    assert done.statement.epsilon == pytest.approx(epsilon(from_dict(done.statement.event), 1e-5))
    assert 1.0 < done.statement.epsilon < 2.0


def test_a_conclusion_above_epsilon_is_refused() -> None:
    def train(job: Job) -> Trained:
        return job.conclude({}, accuracy=0.5, sampling="none", noise="x", event=PureDp(2.5))

    with pytest.raises(ProtocolError, match=r"spent epsilon=2\.\d+ of 2"):
        carry_out(train)


def test_a_conclusion_needs_an_event_and_no_plan() -> None:
    def nothing(job: Job) -> Trained:
        return job.conclude({}, accuracy=0.5, sampling="none", noise="x")

    def with_a_plan(job: Job) -> Trained:
        job.reserve(job.task.plan(lot=60, steps=5, clip=1.0))
        return job.conclude({}, accuracy=0.5, sampling="none", noise="x", event=PureDp(1.0))

    with pytest.raises(InvalidArgument, match="event must say"):
        carry_out(nothing)
    with pytest.raises(ProtocolError, match="recipes without a plan"):
        carry_out(with_a_plan)


def test_a_mechanism_is_given_no_budget_where_there_is_none() -> None:
    def mechanism(budget: Any) -> Any:
        assert budget is None
        return gaussian(0.0, sensitivity=1.0, noise_multiplier=20.0)

    done = planned((Gaussian(20.0),), lambda release: release("mean", mechanism, what="a number"))
    assert done.statement.epsilon <= 2.0


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
    assert from_dict(done.statement.event) == Composed(Gaussian(3.0))
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

    assert from_dict(carry_out(train).statement.event) == Composed(Gaussian(3.0))


def test_a_run_without_a_plan_refuses_a_budget_of_another_unit(tmp_path: Path) -> None:
    def train(job: Job) -> Any:
        job.release("mean", small.mean_of([]), what="x")

    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("users", 9.0, 1e-4, unit="user")
        with pytest.raises(InvalidArgument, match="unit must be that of the budget"):
            carry_out(train, budget=budget)
        assert budget.spent().epsilon == 0


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

        with pytest.raises(BudgetExceeded, match="has no room for 2 releases together"):
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
