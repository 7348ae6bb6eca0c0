"""Interactive-GNMax (Papernot et al. 2018, Algorithm 2): teachers answer where the student errs.

The student's scores p(x) are compared with the votes first. Only where

    max_j (n_j - n·p_j) + N(0, σ1²) ≥ T

do the teachers disagree with it, and answer as GNMax does. Elsewhere they agree, and a student that
is sure of itself (max_j p_j > γ) is told so: its own label is reinforced, for the price of the
check alone.

Why the check has sensitivity 1. n, the number of teachers, is public. p is computed from public
points and from what was told before, so that it is a fixed vector here. A record moves one vote:
one count rises by 1, one falls by 1, and so each n_j - n·p_j and their maximum move by at most 1,
whether it is replaced, added or removed. The check is a Gaussian of sensitivity 1, an answer one
of √2. n·p is rounded to the noise's grid, which it may be, as it is public.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias, final

import numpy as np

from tacit._validation import non_negative, probability, whole
from tacit.accounting.events import Gaussian
from tacit.errors import InvalidArgument
from tacit.transfer import gaussian_votes, noise
from tacit.transfer import journal as stages
from tacit.transfer.charges import Charges, checked_numbers
from tacit.transfer.turns import Turns

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget
    from tacit.randomness import Stream
    from tacit.transfer.answers import Answers
    from tacit.transfer.journal import Record
    from tacit.transfer.votes import Votes

Student: TypeAlias = "Callable[[NDArray[np.int64]], NDArray[np.floating]]"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class InteractiveGNMax:
    """The public numbers of Interactive-GNMax.

    Args:
        threshold: T, in votes: how far the votes must be from the student's scores.
        screening_sigma: σ1, of the noise of the check.
        sigma: σ2, of the noise of an answer.
        confidence: γ: how sure a student must be to be reinforced.

    >>> setting = InteractiveGNMax(threshold=100, screening_sigma=150, sigma=40, confidence=0.9)
    >>> setting.charges.screening
    Gaussian(sigma=150.0, replace_distance=1.0)
    """

    threshold: float
    screening_sigma: float
    sigma: float
    confidence: float

    def __post_init__(self) -> None:
        non_negative("threshold", self.threshold)
        noise.noise_scale("screening_sigma", self.screening_sigma)
        noise.noise_scale("sigma", self.sigma)
        probability("confidence", self.confidence)

    @property
    def charges(self) -> Charges:
        """What one check and one answer are charged, whatever the votes."""
        return Charges(
            screening=Gaussian(self.screening_sigma, replace_distance=1.0),
            answer=gaussian_votes.charge(self.sigma).event,
        )

    def declared(self, *, queries: int, answers: int | None = None) -> Event:
        """What is declared before a run: every query checked, at most ``answers`` answered."""
        return self.charges.declared(queries=queries, answers=answers)

    def disagrees(self, counts: NDArray[np.int64], scores: NDArray[np.float64], drawn: int) -> bool:
        """Whether the votes, with the check's noise, are far from the student's scores."""
        expected = np.rint(counts.sum() * scores * 2.0**noise.BITS).astype(np.int64)
        largest = int(((counts << noise.BITS) - expected).max())
        return Fraction(largest + drawn, 1 << noise.BITS) >= Fraction(self.threshold)


def label_interactively(
    votes: Votes,
    setting: InteractiveGNMax,
    student: Student,
    *,
    every: int,
    answers: int | None = None,
    budget: Budget | None = None,
    journal: str | os.PathLike[str] | None = None,
    stream: Stream | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    label: str = "",
    progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> tuple[Answers, NDArray[np.bool_]]:
    """Asks the teachers where they disagree with the student; tells labels and who gave them.

    Guarantee:
        All that is told is covered by ``setting.declared`` (each check is charged, and each of at
        most ``answers`` answers), which is reserved whole before anything is drawn; each check and
        each answer is granted before its noise is. It holds if ``student`` uses nothing but public
        points and the labels that it is given. Reinforced labels cost their check alone.

    Args:
        votes: The votes; their rows are the queries, in this order.
        setting: How far votes and scores must be apart, and the noise.
        student: Given all labels so far (-1: none), the student's scores for all queries, a row
            each that adds up to 1.
        every: After how many queries the student is asked anew.
        answers: A public cap: after so many answers of the teachers the run ends.
        budget: A ``tacit.ledger.Budget``, charged before anything is drawn.
        journal: A file, made if it is not there, by which the run can be resumed.
        stream: The random bytes; a fresh secure stream unless a test gives another.
        adjacency: Which data sets are neighbours; the budget's, or ``"add-remove"``.
        unit: Whom it protects; the budget's, or ``"example"``.
        label: A name for the ledger.
        progress: Called with the number of queries checked and of labels told, both public.
        stop: Asked before each query; if it is true, the run stops and can be resumed.

    Returns:
        The labels, and which of them the teachers gave; the others were reinforced.
    """
    each = whole("every", every)
    asked, most = checked_numbers(votes.queries, answers)
    run = Turns(
        votes,
        (setting, most),
        setting.declared(queries=asked, answers=most),
        two_steps=True,
        labels=2 * votes.classes,  # those that were reinforced are told apart
        budget=budget,
        journal=journal,
        stream=stream,
        adjacency=adjacency,
        unit=unit,
        label=label or "tacit.transfer, label_interactively",
    )
    kept = _Labels(votes.classes)
    with run:
        scores: NDArray[np.float64] | None = None
        while not run.over and kept.answers(run.record) < most:
            if stop is not None and stop():
                break
            if scores is None or run.record.next % each == 0:
                scores = _checked_scores(student(kept.labels(run.record)), votes)
            _one(run, votes, setting, scores, kept)
            if progress is not None:
                progress(run.record.next, int((run.record.labels >= 0).sum()))
        else:
            run.end()
    return run.answers(kept.labels(run.record)), kept.by_teachers(run.record)


@final
class _Labels:
    """How the journal tells labels apart: j by the teachers, m + j for a reinforced j."""

    def __init__(self, classes: int) -> None:
        self._classes = classes

    def reinforced(self, label: int) -> int:
        return self._classes + label

    def labels(self, record: Record) -> NDArray[np.int64]:
        found = record.labels
        result: NDArray[np.int64] = np.where(found >= 0, found % self._classes, -1)
        return result

    def by_teachers(self, record: Record) -> NDArray[np.bool_]:
        result: NDArray[np.bool_] = (record.labels >= 0) & (record.labels < self._classes)
        return result

    def answers(self, record: Record) -> int:
        """How many answers of the teachers were given, or may have been."""
        lost = int((record.stages == stages.LOST_ANSWER).sum())
        return int(self.by_teachers(record).sum()) + lost


def _one(
    run: Turns,
    votes: Votes,
    setting: InteractiveGNMax,
    scores: NDArray[np.float64],
    kept: _Labels,
) -> None:
    query = run.ask()
    counts, own = votes.counts[query], scores[query]
    drawn = noise.gaussian(setting.screening_sigma, 1, run.stream)
    if setting.disagrees(counts, own, int(drawn[0])):
        run.answer(query)
        drawn = noise.gaussian(setting.sigma, votes.classes, run.stream)
        run.tell(query, noise.winner(counts, drawn))
    elif own.max() > setting.confidence:
        run.answer(query)
        run.tell(query, kept.reinforced(int(np.argmax(own))))
    else:
        run.pass_over()


def _checked_scores(scores: NDArray[np.floating], votes: Votes) -> NDArray[np.float64]:
    found = np.asarray(scores, dtype=np.float64)
    if found.shape != (votes.queries, votes.classes):
        raise InvalidArgument(
            f"student must give scores of shape ({votes.queries}, {votes.classes}), a row for each "
            f"query, got {found.shape}"
        )
    if not ((found >= 0.0).all() and np.allclose(found.sum(axis=1), 1.0, atol=1e-3)):
        raise InvalidArgument("student must give scores, zero or above, that add up to 1 in a row")
    return found
