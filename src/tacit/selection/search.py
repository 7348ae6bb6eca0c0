"""Private search: the best of several private runs, at a price that is known before the first."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from tacit._pickles import PlainModels
from tacit._validation import positive
from tacit._workers import check_workers
from tacit.accounting.events import PoissonRuns, TruncatedNegativeBinomial, check_runs
from tacit.accounting.serialization import as_dict
from tacit.errors import InvalidArgument, LedgerError, TamperedLedger
from tacit.randomness import fresh_stream
from tacit.selection.journal import Progress, SearchJournal
from tacit.selection.scores import PrivateScore, PublicScore, check_score
from tacit.selection.terms import draw_choices, draw_runs, settle
from tacit.selection.trainers import Estimator, EstimatorTrainer, listed, trainer_of
from tacit.selection.workers import SearchWork, carried_out
from tacit.statement import Statement, rounded_up

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from tacit._pickles import ModelFormat
    from tacit._workers import Workers
    from tacit.accounting.events import Adjacency, Event, PrivateSelection, Runs
    from tacit.ledger import Budget
    from tacit.selection.scores import Score
    from tacit.selection.terms import Allowance, SearchTerms
    from tacit.selection.trainers import Trainer


def private_search(
    train: Callable[[Any, Allowance], Any] | Estimator,
    candidates: Sequence[Any] | Mapping[str, Sequence[Any]],
    epsilon: float,
    delta: float,
    *,
    score: Score,
    event: Event | Callable[[float], Event] | None = None,
    data: tuple[Any, Any] | None = None,
    runs: Runs | float | None = None,
    target: float | None = None,
    adjacency: Adjacency | None = None,
    budget: Budget | None = None,
    label: str = "private search",
    workers: Workers = 1,
    folder: str | os.PathLike[str] | None = None,
    models: ModelFormat | None = None,
) -> Winner:
    """Runs ``train`` on candidates drawn at random, a random number of times, and keeps the best.

    Args:
        train: ``train(candidate, allowance)`` returns a model and keeps to the allowance, whatever
            the candidate, and has lost if it raises ``tacit.errors.Diverged``; or a scikit-learn
            estimator with a parameter ``epsilon``, of which each run fits a copy to ``data``.
        candidates: A list of them, or a dictionary of lists whose combinations they are. They must
            not depend on the private data.
        epsilon: The ε of the whole search.
        delta: Its δ.
        score: How runs are compared, the largest being the best: a ``PublicScore``, a
            ``PrivateScore`` or ``ReturnedScore()``. Anything else is refused.
        event: What one run of ``train`` releases, which must fit; or a function from a noise
            parameter to that event, the parameter then being found and passed in the allowance.
            Left out, each run is allowed an (ε₀, δ₀), of which less can be proved.
        data: The pair (X, y) for an estimator.
        runs: The law of the number of runs, or its mean (the logarithmic law then); left out, the
            mean is the number of candidates.
        target: A score that is good enough: the search ends with the first run that reaches it.
            This costs nothing, as later runs could not win.
        adjacency: Which data sets are neighbours: the budget's, or add-remove.
        budget: Charged once, for the whole search, before the first run.
        label: A name for the ledger's entry.
        workers: How many processes; or a ``RayCluster``.
        folder: A folder for the search's journal, from which it goes on if it was interrupted. It
            is secret, and nothing in it is run.
        models: How the journal keeps models. Left out, a model must be tensors, arrays, numbers,
            texts, or lists, tuples and dicts of them, such as a ``state_dict()``. Else an object
            with ``state(model)`` and ``model(state)``; or ``PickledModels()``, which keeps any
            object and runs whatever the folder's files say when it goes on.

    Guarantee:
        The result is (ε, δ)-differentially private if every run keeps to its allowance, by the
        smaller of the privacy profile of private selection (Koskela, Redberg & Wang 2024) and its
        Rényi curve (Papernot & Steinke 2022). The number of runs and the candidates have their laws
        exactly, are drawn from a cryptographic stream, and are never drawn again for one journal.
        With a budget one winner is let out for each charge, however often a journal is copied.

    Raises:
        BudgetExceeded: if the budget does not hold the search; nothing was run then.

    >>> from tacit.accounting import Gaussian
    >>> from tacit.selection import PublicScore, private_search
    >>> found = private_search(
    ...     lambda candidate, allowance: candidate,  # a model that has learned nothing
    ...     [1, 2, 3],
    ...     epsilon=2,
    ...     delta=1e-6,
    ...     event=Gaussian,
    ...     score=PublicScore(float),
    ...     target=1.0,
    ... )
    >>> found.candidate in (1, 2, 3), round(found.epsilon, 6), found.tuning_cost < 1
    (True, 2.0, True)
    """
    offered = listed(candidates)
    scoring = check_score(score)
    neighbours = adjacency or _default_adjacency(train, budget)
    trainer = trainer_of(train, data, offered, neighbours)
    if isinstance(trainer, EstimatorTrainer):
        _check_estimators(event, budget)
    if budget is not None and isinstance(scoring, PrivateScore) and scoring.unit is not None:
        budget.check_protects(scoring.unit)
    terms = settle(
        _law(runs, len(offered)),
        scoring,
        epsilon,
        delta,
        neighbours,
        event,
        pure=isinstance(trainer, EstimatorTrainer) and _is_pure(trainer),
    )
    enough = math.inf if target is None else _finite("target", target)
    check_workers(workers)
    kept = SearchJournal(
        folder, _fingerprint(terms, offered, scoring, enough), candidates=len(offered),
        models=_models(models, trainer, folder),
    )  # fmt: skip
    with kept.opened() as before:
        progress = before or _begun(kept, terms, len(offered))
        if not progress.finished:
            _charge(kept, progress, terms, budget, label)
            work = SearchWork(trainer, scoring, terms.allowance, offered)
            _run(kept, progress, work, workers, enough)
        _grant(progress, budget)
    return _found(progress, offered, terms, scoring, budget)


def _check_estimators(event: object, budget: Budget | None) -> None:
    if event is not None:
        raise InvalidArgument("event must be left out with an estimator, which calibrates itself")
    if budget is not None:
        budget.check_protects("example")  # each row by itself


def _law(runs: Runs | float | None, candidates: int) -> Runs:
    if runs is None:
        return TruncatedNegativeBinomial.with_mean(max(2.0, float(candidates)))
    if isinstance(runs, int | float):
        return TruncatedNegativeBinomial.with_mean(positive("runs", runs))
    return check_runs(runs)


def _models(models: ModelFormat | None, trainer: Trainer, folder: object) -> ModelFormat:
    if models is None and folder is not None and isinstance(trainer, EstimatorTrainer):
        raise InvalidArgument(
            "models must say how the journal keeps estimators, got None: give an object with "
            "state(model) and model(state), or PickledModels(), if nobody else can write the folder"
        )
    return PlainModels() if models is None else models


def _finite(name: str, value: float) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise InvalidArgument(f"{name} must be a finite number, got {value!r}")
    return number


def _default_adjacency(train: object, budget: Budget | None) -> Adjacency:
    if budget is not None:
        return budget.adjacency
    if isinstance(train, Estimator):
        found: Adjacency = train.get_params(deep=False).get("adjacency", "add-remove")
        return found
    return "add-remove"


def _is_pure(trainer: EstimatorTrainer) -> bool:
    """Whether the estimator has no δ, or was given 0: its runs are then purely private."""
    return float(trainer.estimator.get_params(deep=False).get("delta", 0.0)) == 0.0


def _fingerprint(
    terms: SearchTerms, candidates: tuple[Any, ...], score: Score, target: float
) -> dict[str, Any]:
    """What must be the same for a journal to go on: the guarantee, and what is searched."""
    return {
        "event": as_dict(terms.event),
        "adjacency": terms.adjacency,
        "delta": terms.delta,
        "candidates": [one if _is_plain(one) else type(one).__name__ for one in candidates],
        "score": type(score).__name__,
        "target": target.hex(),
    }


def _is_plain(value: object) -> bool:
    """Whether a text of it is the same in another process."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, str | int | float | bool | None)


def _begun(journal: SearchJournal, terms: SearchTerms, candidates: int) -> Progress:
    """Draws the number of runs and their candidates, and writes them down."""
    stream = fresh_stream("private search")
    count = draw_runs(terms.event.runs, stream)
    progress = Progress(draw_choices(count, candidates, stream), name=secrets.token_hex(16))
    journal.write(progress)
    return progress


def _charge(
    journal: SearchJournal,
    progress: Progress,
    terms: SearchTerms,
    budget: Budget | None,
    label: str,
) -> None:
    """Charges the whole search, once: a journal that was charged is not charged again.

    A search that crashed before it noted its charge finds it in the ledger, by its name.
    """
    if budget is None:
        _check_uncharged(progress)
        return
    from tacit.ledger import Release  # noqa: PLC0415 - only those who keep a ledger

    detail = None if progress.name is None else {"search": progress.name}
    if progress.entry is not None:
        budget.reservation(progress.entry)  # refuses one that is not of this budget
        if detail is not None and _entry(budget, detail) != progress.entry:
            raise TamperedLedger(
                f"the budget {budget.name!r} does not hold the charge of this search: it is of "
                "another ledger or an older copy; bring the newest one back"
            )
        return
    budget.check_protects(budget.unit, terms.adjacency)
    progress.entry = _entry(budget, detail)
    if progress.entry is None:
        chosen = budget.at(terms.delta) if budget.composition == "basic" else budget
        what = Release(terms.event, budget.adjacency, budget.unit)
        progress.entry = chosen.reserve(what, steps=2, label=label, detail=detail).number
    # Charged for good, whatever comes of it; the other step is the winner's.
    budget.reservation(progress.entry).lease(1, after=0)
    journal.write(progress)


def _grant(progress: Progress, budget: Budget | None) -> None:
    """Lets the winner out, once: copies of a journal do not each have one of their own.

    The journal has the winner before the ledger does, so that a crash in between loses nothing.
    """
    if budget is None:
        _check_uncharged(progress)
        return
    if progress.entry is None or progress.proof is None:
        return  # an older tacit let it out
    from tacit.ledger import Reservation  # noqa: PLC0415 - only those who keep a ledger

    held = Reservation(budget.ledger, budget.reservation(progress.entry).number, progress.proof)
    if not held.leased and not held.lease(1, after=1):
        raise LedgerError(
            f"entry {progress.entry} of {budget.name!r} grants no winner any more: a copy of the "
            "journal has had it, the reservation was ended, or an older tacit began the search; "
            "nothing was released. Start a new search, and remove this journal"
        )


def _check_uncharged(progress: Progress) -> None:
    if progress.entry is not None:
        raise InvalidArgument(
            f"budget must be the one that this search is charged to, as entry {progress.entry}, "
            "got None"
        )


def _entry(budget: Budget, detail: dict[str, str] | None) -> int | None:
    """The number of the search's charge, if the ledger holds one."""
    if detail is None:
        return None
    known = budget.ledger.refresh().of(budget.name)
    return next((one.number for one in known if one.detail == detail), None)


def _run(
    journal: SearchJournal, progress: Progress, work: SearchWork, workers: Workers, target: float
) -> None:
    tasks = [(run, choice) for run, choice in enumerate(progress.choices)]
    needed = [task for task in tasks if progress.is_needed(task[0], target)]
    for run, model, score in carried_out(
        work, needed, workers, lambda one: progress.is_needed(one, target)
    ):
        better = progress.record(run, score, model, target)
        journal.write(progress, new_model=better)
    progress.finish()
    journal.write(progress, new_model=True)


def _found(
    progress: Progress,
    candidates: tuple[Any, ...],
    terms: SearchTerms,
    score: Score,
    budget: Budget | None,
) -> Winner:
    winner, best = progress.winner, progress.best
    return Winner(
        candidate=None if winner is None else candidates[winner],
        model=progress.model,
        score=-math.inf if best is None else best.score,
        terms=terms,
        scoring=score,
        unit="example" if budget is None else budget.unit,
        entry=progress.entry,
        ledger=None if budget is None else f"entry {progress.entry} of {budget.name!r}",
    )


# ---- what it gives back, and the claim that goes with it


@final
@dataclass(frozen=True, slots=True, eq=False)
class Winner:
    """The winner of a private search.

    Attributes:
        candidate: The candidate that won; None if there was no run, as Poisson runs allow, or none
            that had a model: training diverged in all.
        model: What its run returned.
        score: Its score; minus infinity if no run had one.
        terms: The event of the search, and what each run was allowed.
        unit: Whom the guarantee protects.
        entry: The number of the ledger's entry that charged the search; None without a budget.
        own: The claim of the winner's own run, if there is one. What it assumes, all runs assume.

    Guarantee:
        ``candidate``, ``model`` and ``score`` together are no more than ``event`` says. How many
        runs there were, how long the search took and what the losers scored is not covered, and
        not kept.
    """

    candidate: Any
    model: Any
    score: float
    terms: SearchTerms
    scoring: Score
    unit: str = "example"
    entry: int | None = None
    ledger: str | None = None
    own: Statement | None = None

    @property
    def event(self) -> PrivateSelection:
        """What the whole search released."""
        return self.terms.event

    @property
    def epsilon(self) -> float:
        """The ε of the whole search at ``delta``."""
        return self.terms.epsilon

    @property
    def delta(self) -> float:
        """The δ of the whole search."""
        return self.terms.delta

    @property
    def adjacency(self) -> Adjacency:
        """Which data sets are neighbours."""
        return self.terms.adjacency

    @property
    def tuning_cost(self) -> float:
        """By how much ε is larger than that of one run, at the same δ."""
        return max(0.0, self.epsilon - self.terms.single)

    def statement(self) -> Statement:
        """The claim, with what tuning cost in it, for somebody else to check."""
        from tacit import __version__  # noqa: PLC0415 - the package's own number

        claim = Statement(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            unit=self.unit,
            event=as_dict(self.event),
            sampling=_sampling(self),
            noise="that of each run, drawn by the training function",
            assumptions=_assumptions(self.scoring),
            not_promised=(
                "that the number of runs, the time taken or the scores of other runs are hidden "
                "from whoever watches the search",
            ),
            tacit_version=__version__,
            ledger=self.ledger,
            threat_model="the claim holds against whoever sees the winner, its settings and its "
            "score; the other runs, their number and their scores are not released",
            releases=("the model that won, with its settings and its score",),
            tuning="covered: the event is that of the whole search",
        )
        return claim if self.own is None else _with_own(claim, self.own)


def _with_own(claim: Statement, own: Statement) -> Statement:
    """The claim with what that of the winner's run says beside its ε, which holds for all runs."""
    before = [one.what for one in own.preprocessing if one.charged]  # a part of each run's event
    return replace(
        claim,
        sampling=f"{claim.sampling}; in the winner's run: {own.sampling}",
        noise=own.noise,
        randomness=own.randomness,
        releases=(*claim.releases, *(f"of the winner's run: {what}" for what in before)),
        preprocessing=tuple(one for one in own.preprocessing if not one.charged),
        assumptions=(*claim.assumptions, *own.assumptions),
        not_promised=(*claim.not_promised, *own.not_promised),
        torch_version=own.torch_version,
    )


def _sampling(found: Winner) -> str:
    terms = found.terms
    return (
        f"the best of a random number of runs ({_in_words(terms.event.runs)}), each of a candidate "
        f"drawn at random; one run has ε = {rounded_up(terms.single)} at this δ, and choosing the "
        f"best costs {rounded_up(found.tuning_cost)} more"
    )


def _in_words(runs: Runs) -> str:
    if isinstance(runs, PoissonRuns):
        return f"Poisson, {runs.mean:.6g} on average"
    names = {0.0: "logarithmic", 1.0: "geometric"}
    name = names.get(runs.eta, f"negative binomial, η = {runs.eta:g}")
    return f"{name}, {runs.mean:.6g} on average"


def _assumptions(score: Score) -> tuple[str, ...]:
    kept = "every run releases no more than its event, whatever the candidate"
    drawn = "candidates and their number were fixed without looking at the private data"
    if isinstance(score, PublicScore):
        return kept, drawn, "the score reads no private data beside the model it judges"
    if isinstance(score, PrivateScore):
        return kept, drawn, "each score releases no more than its event"
    return kept, drawn, "each run's event covers the score that it returns"
