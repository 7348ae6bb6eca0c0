"""Private search as a whole: what it finds, what it charges, and that it goes on after a crash."""

from __future__ import annotations

import json
import math
import runpy
import shutil
import subprocess
import sys
import types
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tacit.accounting import (
    DiscreteLaplace,
    Gaussian,
    PoissonRuns,
    PoissonSampled,
    PrivateSelection,
    Repeated,
    TruncatedNegativeBinomial,
    epsilon,
    from_json,
)
from tacit.errors import (
    BudgetExceeded,
    CheckpointError,
    Diverged,
    InvalidArgument,
    LedgerError,
    TamperedLedger,
)
from tacit.ledger import Ledger, Reservation
from tacit.selection import (
    Allowance,
    PrivateScore,
    PublicScore,
    RayCluster,
    ReturnedScore,
    Scored,
    noisy_accuracy,
    private_search,
    public_set,
)
from tacit.selection.journal import SearchJournal
from tacit.statement import Statement

from ..forked import Forked

if TYPE_CHECKING:
    from pathlib import Path

ITSELF = PublicScore(float)
MANY = TruncatedNegativeBinomial(200.0, 0.8)  # 50 runs, give or take 8: none of two is missed


def echo(candidate: Any, _: Allowance) -> Any:
    return candidate


def search(train: Any = echo, candidates: Any = (1, 2, 3), **more: Any) -> Any:
    settings: dict[str, Any] = {"event": Gaussian, "score": ITSELF} | more
    return private_search(train, candidates, 2.0, 1e-6, **settings)


@pytest.mark.parametrize("searches", [150, pytest.param(600, marks=pytest.mark.slow)])
def test_the_best_of_a_random_number_of_runs_wins(searches: int) -> None:
    """P(best is the last of 3) = Σ P(K = k)·(1 - (2/3)^k), here 1 - f(2/3).

    Within four standard deviations: 0.15 of the share in ``make test``, 0.08 in ``make test-slow``.
    """
    runs = TruncatedNegativeBinomial(1.0, 0.25)
    seen: Counter[Any] = Counter()
    counts = []
    for _ in range(searches):
        calls: list[Any] = []
        found = private_search(
            lambda candidate, _, calls=calls: calls.append(candidate) or candidate,
            (1, 2, 3),
            2.0,
            1e-6,
            event=Gaussian(40.0),
            score=ITSELF,
            runs=runs,
        )
        assert found.candidate == found.model == max(calls)
        seen[found.candidate] += 1
        counts.append(len(calls))
    none = (0.25 * (2 / 3)) / (1 - 0.75 * (2 / 3))
    share = seen[3] / searches
    assert abs(share - (1 - none)) < 4 * math.sqrt(none * (1 - none) / searches)
    assert abs(np.mean(counts) - 4.0) < 4 * math.sqrt(12.0 / searches)


def test_every_run_is_told_what_it_may_release() -> None:
    told: list[Allowance] = []
    found = search(lambda candidate, allowance: told.append(allowance) or candidate, runs=5)
    assert set(told) == {found.terms.allowance}
    noise = told[0].noise
    assert noise is not None
    assert found.event == PrivateSelection(Gaussian(noise), TruncatedNegativeBinomial.with_mean(5))
    assert 1.999 < found.epsilon <= 2.0


def test_training_runs_are_calibrated() -> None:
    def family(sigma: float) -> Repeated:
        return Repeated(PoissonSampled(0.01, Gaussian(sigma)), 500)

    found = search(event=family, runs=TruncatedNegativeBinomial.with_mean(10, 1.0))
    assert found.event.base == family(found.terms.allowance.noise)
    assert 1.99 < epsilon(found.event, 1e-6) <= 2.0


def test_scores_that_are_no_numbers_lose() -> None:
    found = search(candidates=(math.nan, 1.0), runs=MANY)
    assert found.candidate == 1.0
    found = search(candidates=(math.nan,), runs=2)
    assert found.score == -math.inf


def test_a_returned_or_private_score_decides() -> None:
    found = search(lambda one, _: Scored(f"model {one}", -one), score=ReturnedScore(), runs=MANY)
    assert (found.candidate, found.model, found.score) == (1, "model 1", -1.0)
    charged = search(score=PrivateScore(lambda one: -one, DiscreteLaplace(20_000.0)), runs=MANY)
    assert charged.candidate == 1
    assert charged.terms.allowance.noise > found.terms.allowance.noise
    with pytest.raises(InvalidArgument, match="score must be a PublicScore"):
        search(score=float)


def test_a_target_ends_the_search() -> None:
    calls: list[Any] = []
    found = search(lambda one, _: calls.append(one) or one, (5, 6), runs=MANY, target=5.0)
    assert len(calls) == 1
    assert found.candidate == calls[0]
    assert search(candidates=(1, 2), runs=MANY, target=9.0).candidate == 2


def test_poisson_runs_may_be_none() -> None:
    found = [search(runs=PoissonRuns(0.2), event=Gaussian(40.0)) for _ in range(100)]
    assert any(one.candidate is None and one.model is None for one in found)
    assert any(one.candidate is not None for one in found)


def test_the_statement_says_what_tuning_cost() -> None:
    found = search(runs=TruncatedNegativeBinomial.with_mean(10, 0.0))
    claim = found.statement()
    assert Statement.from_json(claim.to_json()) == claim
    assert from_json(json.dumps(claim.event)) == found.event
    single = epsilon(found.event.base, 1e-6)
    assert found.tuning_cost == pytest.approx(found.epsilon - single)
    assert 0.3 < found.tuning_cost < 1.2
    text = claim.describe()
    assert "choosing the best costs" in text
    assert "logarithmic, 10 on average" in text
    assert "reads no private data" in text


def test_a_budget_is_charged_once_and_before_the_first_run(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("patients", epsilon=3.0, delta=1e-5)
        spent = []
        found = search(lambda one, _: spent.append(budget.spent().epsilon) or one, budget=budget)
        assert set(spent) == {found.epsilon}
        assert budget.spent().delta == 1e-6
        assert found.entry is not None
        assert "patients" in str(found.statement().ledger)
        began = len(spent)
        with pytest.raises(BudgetExceeded):
            search(lambda one, _: spent.append(0.0) or one, budget=budget)
        assert len(spent) == began
        other = ledger.open("others", epsilon=3.0, delta=1e-5, adjacency="replace-one")
        assert search(budget=other).adjacency == "replace-one"
        with pytest.raises(InvalidArgument, match="adjacency must be that of the budget"):
            search(budget=other, adjacency="add-remove")


CRASHING = """
import os, sys
from pathlib import Path
from tacit.accounting import Gaussian, TruncatedNegativeBinomial
from tacit.ledger import Ledger
from tacit.selection import PublicScore, private_search

folder, at = Path(sys.argv[1]), int(sys.argv[2])

def train(candidate, allowance):
    begun = len(list(folder.glob("begun-*")))
    (folder / f"begun-{begun}").write_text(str(candidate))
    if begun == at:
        os._exit(9)
    return candidate

with Ledger(f"sqlite:///{folder}/budget.db") as ledger:
    budget = ledger.open("patients", epsilon=3.0, delta=1e-5)
    found = private_search(
        train, list(range(50)), 2.0, 1e-6, event=Gaussian, score=PublicScore(float),
        runs=TruncatedNegativeBinomial(800.0, 0.97), budget=budget, folder=folder / "journal",
    )
    print(found.candidate, budget.spent().epsilon, len(ledger.history("patients")))
"""


def test_a_search_that_crashed_goes_on(tmp_path: Path) -> None:
    """η = 800 keeps the number of runs near 25; a second one is never drawn, nor charged."""
    script = tmp_path / "search.py"
    script.write_text(CRASHING)
    state = tmp_path / "journal" / "search.json"
    drawn: list[Any] = []

    def run(at: int) -> tuple[int, str]:
        """How a process ends that runs the script, and what it prints."""

        def work() -> int:
            sys.argv = [str(script), str(tmp_path), str(at)]
            runpy.run_path(str(script))
            return 0

        process = Forked(work, env={})
        printed, said = process.communicate(timeout=600)
        assert said == ""
        return process.returncode, printed

    assert run(0) == (9, "")
    drawn.append(json.loads(state.read_text()))
    assert run(2) == (9, "")
    planned = len(drawn[0]["choices"])
    drawn.append(json.loads(state.read_text()))
    assert drawn[0]["choices"] == drawn[1]["choices"]
    assert drawn[0]["entry"] == drawn[1]["entry"]
    assert drawn[1]["done"] == [0]
    status, third = run(-1)
    assert status == 0
    # Every run was carried out; those that were cut off, once more.
    begun = [int((tmp_path / f"begun-{i}").read_text()) for i in range(planned + 2)]
    assert not (tmp_path / f"begun-{planned + 2}").exists()
    assert begun[1:2] + begun[3:] == drawn[0]["choices"]
    winner, spent, entries = third.split()
    assert int(winner) == max(drawn[0]["choices"])
    assert float(spent) <= 2.0
    assert int(entries) == 4  # the opening, one charge, and its two grants: of runs and winner
    assert run(-1) == (0, third)
    assert not (tmp_path / f"begun-{planned + 2}").exists()


@pytest.mark.parametrize("composition", ["basic", "declared"])
def test_a_search_that_crashed_before_it_noted_its_charge_is_charged_once(
    composition: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = SearchJournal.write, iter(range(1, 99))

    def full(self: SearchJournal, *given: Any, **named: Any) -> None:
        if next(written) == 2:  # the first has the draws, the second the charge
            raise OSError("no space is left")
        write(self, *given, **named)

    monkeypatch.setattr(SearchJournal, "write", full)
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("patients", epsilon=2.5, delta=1e-5, composition=composition)
        with pytest.raises(OSError, match="no space"):
            search(budget=budget, folder=tmp_path / "journal")
        entries = len(ledger.history("patients"))
        found = search(budget=budget, folder=tmp_path / "journal")
        assert len(ledger.history("patients")) == entries + 1  # the winner's grant
        assert budget.spent().epsilon <= found.epsilon * (1.0 + 1e-9)


def test_a_search_does_not_go_on_where_it_was_not_charged(tmp_path: Path) -> None:
    def breaks(*_: Any) -> Any:
        raise OSError("broken")

    with (
        Ledger(f"sqlite:///{tmp_path}/charged.db") as one,
        Ledger(f"sqlite:///{tmp_path}/other.db") as two,
    ):
        charged, other = (ledger.open("patients", epsilon=9.0, delta=1e-5) for ledger in (one, two))
        with pytest.raises(OSError, match="broken"):
            search(breaks, budget=charged, folder=tmp_path / "journal")
        other.at(1e-6).charge(Gaussian(9.0), "of the same number, and of something else")
        with pytest.raises(TamperedLedger, match="does not hold the charge of this search"):
            search(budget=other, folder=tmp_path / "journal")
        search(budget=charged, folder=tmp_path / "journal")


def test_of_two_copies_of_a_journal_one_has_a_winner(tmp_path: Path) -> None:
    first, copy = tmp_path / "journal", tmp_path / "copy"

    def breaks(*_: Any) -> Any:
        raise OSError("broken")

    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("patients", epsilon=2.5, delta=1e-5)
        with pytest.raises(OSError, match="broken"):
            search(breaks, budget=budget, folder=first)
        shutil.copytree(first, copy)
        found = search(budget=budget, folder=first)
        for _ in range(2):  # the second time it has a winner, which was never granted
            with pytest.raises(
                LedgerError, match="grants no winner any more: a copy of the journal"
            ):
                search(budget=budget, folder=copy)
        with pytest.raises(InvalidArgument, match="budget must be the one"):
            search(folder=copy)
        assert search(budget=budget, folder=first).candidate == found.candidate
        shutil.copytree(first, tmp_path / "later")
        assert search(budget=budget, folder=tmp_path / "later").candidate == found.candidate


def test_a_winner_that_was_kept_before_a_crash_is_granted_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, asked = Reservation.lease, iter(range(1, 99))

    def unreachable(self: Reservation, *given: Any, **named: Any) -> int:
        if next(asked) == 2:  # the first is of the runs, the second of the winner
            raise LedgerError("cannot be reached")
        return lease(self, *given, **named)

    monkeypatch.setattr(Reservation, "lease", unreachable)
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        budget = ledger.open("patients", epsilon=2.5, delta=1e-5)
        with pytest.raises(LedgerError, match="cannot be reached"):
            search(budget=budget, folder=tmp_path / "journal")
        trained: list[Any] = []
        search(lambda one, _: trained.append(one), budget=budget, folder=tmp_path / "journal")
        assert not trained


def test_a_journal_is_for_one_search(tmp_path: Path) -> None:
    found = search(folder=tmp_path / "j", candidates=[{"rate": 1}], score=PublicScore(len))
    again = search(folder=tmp_path / "j", candidates=[{"rate": 1}], score=PublicScore(len))
    assert again.model == found.model
    with pytest.raises(CheckpointError, match="other candidates"):
        search(folder=tmp_path / "j", candidates=[{"rate": 2}], score=PublicScore(len))


PARALLEL = """
import json, os, sys
from tacit.accounting import Gaussian, TruncatedNegativeBinomial
from tacit.selection import PublicScore, private_search

def train(candidate, allowance):
    return {"candidate": candidate, "noise": allowance.noise, "process": os.getpid()}

def score(model):
    return model["candidate"] if model["candidate"] < 3 else 3

if __name__ == "__main__":
    found = private_search(
        train, [1, 2, 3, 4], 2.0, 1e-6, event=Gaussian, score=PublicScore(score), workers=2,
        runs=TruncatedNegativeBinomial(200.0, 0.8), folder=sys.argv[1],
    )
    print(json.dumps([found.model, os.getpid(), found.terms.allowance.noise]))
"""


@pytest.mark.slow
def test_runs_in_other_processes(tmp_path: Path) -> None:
    script = tmp_path / "search.py"
    script.write_text(PARALLEL)
    command = [sys.executable, str(script), str(tmp_path / "journal")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, ran.stderr
    model, parent, noise = json.loads(ran.stdout)
    assert model["process"] != parent
    assert model["noise"] == noise
    assert model["candidate"] >= 3  # some 50 runs: all miss it in one search of 10 billion


def test_functions_for_processes_must_be_picklable() -> None:
    with pytest.raises(InvalidArgument, match="must be picklable with workers=2"):
        search(lambda one, _: one, workers=2)


def test_errors_of_a_run_are_not_hidden() -> None:
    def fails(_candidate: Any, _allowance: Allowance) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        search(fails)


def test_a_run_that_diverged_has_lost_and_is_not_tried_again(tmp_path: Path) -> None:
    """Were it tried again, each time would be one more release that nobody charged."""
    calls: list[Any] = []

    def train(candidate: Any, _: Allowance) -> Any:
        calls.append(candidate)
        if candidate > 1:
            raise Diverged("too large a step")
        return candidate

    found = search(train, (1, 2), runs=MANY)
    assert (found.candidate, found.score) == (1, 1.0)
    assert set(calls) == {1, 2}
    calls.clear()
    found = search(train, (2, 3), runs=MANY, folder=tmp_path / "journal")
    tried = len(calls)
    again = search(train, (2, 3), runs=MANY, folder=tmp_path / "journal")
    assert len(calls) == tried > 1
    for one in (found, again):
        assert (one.candidate, one.model, one.score) == (None, None, -math.inf)
    assert found.epsilon <= 2.0


def test_ray_is_needed_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    search()
    with pytest.raises(InvalidArgument, match=r"tacit\[cluster\]"):
        search(workers=RayCluster())


@pytest.mark.slow
def test_a_search_on_ray() -> None:
    ray = pytest.importorskip("ray", reason="Ray (the extra [cluster]) is not installed")
    found = search(workers=RayCluster(), runs=20)
    assert found.candidate in (1, 2, 3)
    ray.shutdown()


def test_rays_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in with Ray's names: what is sent once, what is asked for, in which order."""
    sent: list[str] = []
    fake = types.ModuleType("ray")
    fake.is_initialized = lambda: False  # type: ignore[attr-defined]
    fake.init = lambda **given: sent.append(f"init {given['address']}")  # type: ignore[attr-defined]
    fake.shutdown = lambda: sent.append("shutdown")  # type: ignore[attr-defined]
    fake.put = lambda work: sent.append("put") or work  # type: ignore[attr-defined]
    fake.cluster_resources = lambda: {"CPU": 3.0}  # type: ignore[attr-defined]
    running: list[int] = []

    def remote(**needs: float) -> Any:
        sent.append(f"remote {needs}")

        def wrap(function: Any) -> Any:
            def start(work: Any, choice: int) -> Any:
                running.append(1)
                assert len(running) <= 3
                return object(), function(work, choice)

            return types.SimpleNamespace(remote=lambda *given: _Reference(start(*given)[1]))

        return wrap

    def wait(references: list[Any], num_returns: int) -> Any:
        assert num_returns == 1
        running.pop()
        return references[-1:], references[:-1]

    fake.remote, fake.wait = remote, wait  # type: ignore[attr-defined]
    fake.get = lambda reference: reference.value  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", fake)
    found = search(workers=RayCluster("auto", gpus=0.5), runs=TruncatedNegativeBinomial(60, 0.8))
    assert found.candidate == found.model
    needs = "remote {'num_cpus': 1.0, 'num_gpus': 0.5}"
    assert sent == ["init auto", "put", needs, "shutdown"]


class _Reference:
    def __init__(self, value: Any) -> None:
        self.value = value


def test_estimators_are_searched(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from tacit.convex import LogisticRegression  # noqa: PLC0415

    generator = np.random.default_rng(1)
    rows = generator.normal(size=(3000, 3)) / 3
    labels = (rows[:, 0] > 0).astype(int)
    found = private_search(
        LogisticRegression(data_norm=1.0, classes=[0, 1], delta=1e-6),
        {"radius": [0.01, 10.0]},
        4.0,
        1e-6,
        data=(rows[:2000], labels[:2000]),
        score=public_set(rows[2000:], labels[2000:]),
        runs=6,
    )
    assert found.candidate in ({"radius": 0.01}, {"radius": 10.0})
    assert found.model.epsilon == found.terms.allowance.epsilon < 2.01
    assert found.score == found.model.score(rows[2000:], labels[2000:])
    with pytest.raises(InvalidArgument, match="event must be left out with an estimator"):
        search(LogisticRegression(data_norm=1.0), [{}], data=(rows, labels))
    budget = Ledger(f"sqlite:///{tmp_path / 'a.db'}").open("people", 9.0, 1e-4, unit="user")
    with pytest.raises(InvalidArgument, match="unit must be that of the budget 'people', 'user'"):
        search(LogisticRegression(), [{}], data=(rows, labels), event=None, budget=budget)
    private = noisy_accuracy(rows[2000:], labels[2000:], 0.2)
    with pytest.raises(InvalidArgument, match="unit must be that of the budget 'people', 'user'"):
        search(score=private, budget=budget)  # which counts rows, of which a user may have many
    assert budget.spent().epsilon == 0
    charged = private_search(
        LogisticRegression(data_norm=1.0, classes=[0, 1], delta=1e-6),
        [{}],
        4.0,
        1e-6,
        data=(rows[:2000], labels[:2000]),
        score=private,
        runs=2,
    )
    assert "each score releases no more than its event" in charged.statement().describe()
    assert "settings and its score" in charged.statement().releases[0]  # ``Winner.score``


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"candidates": []}, "candidates must not be empty"),
        ({"runs": 0.5}, "mean must be above 1"),
        ({"runs": "ten"}, "runs must be"),
        ({"workers": 0}, "workers must be a whole number"),
        ({"target": math.nan}, "target must be a finite number"),
        ({"adjacency": "near"}, "adjacency must be one of"),
        ({"event": "Gaussian"}, "event must be a tacit.accounting event"),
    ],
)
def test_refusals(more: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        search(**more)
