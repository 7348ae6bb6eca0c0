"""``tacit transfer pate --dataset mnist``: teachers vote on public images, a student learns.

Each private record belongs to one of many teachers, which is trained on its own records only. They
vote on public images, noise hides any one of them, and the noisy labels train the student (Papernot
et al. 2017 and 2018). Votes that were made elsewhere come from a file: ``--votes counts.npy``.

What is charged holds whatever the votes are. What the votes really cost is smaller and itself
private: with ``told`` it is told with noise, for a price, as a separate claim that depends on data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._validation import non_negative, positive, whole
from tacit.errors import InvalidArgument
from tacit.recipes.transferring import display, features, words
from tacit.recipes.transferring.anchors import pate_anchors
from tacit.recipes.transferring.learning import check_queries, check_student, concluded, fits
from tacit.recipes.transferring.method import Method
from tacit.recipes.transferring.pate_settings import (
    DEFAULTS,
    Settings,
    aggregator_of,
    event,
    events,
    idle,
    noises,
)
from tacit.recipes.transferring.teaching import check_votes, kept, votes_of
from tacit.recipes.transferring.telling import COST, UNTOLD, told_cost
from tacit.recipes.transferring.telling import check as check_telling
from tacit.transfer import label

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tacit.ledger import Budget
    from tacit.recipes.transferring.splits import Parts
    from tacit.recipes.transferring.transferred import Transferred
    from tacit.runs import Job
    from tacit.transfer import Answers

ANSWERS = "answers"
SAMPLING = "none: every teacher votes on every query, and each record belongs to one teacher"
OWN = (
    "each record is in one teacher only, drawn for each record by itself from the operating "
    "system's entropy, and nothing of a teacher depends on the records of another"
)
ELSEWHERE = (
    "the votes were made elsewhere: that one record of the private data changes the votes of one "
    "teacher only is taken on trust"
)


def check(chosen: Settings) -> None:
    """Refuses settings that cannot be."""
    for name in ("teachers", "keep", "views", "epochs", "batch"):
        whole(name, getattr(chosen, name))
    positive("lr", chosen.lr)
    non_negative("decay", chosen.decay)
    check_queries(chosen.queries, chosen.answers)
    check_student(chosen)
    check_telling(chosen)
    if chosen.votes is not None and chosen.asked != "first":
        raise InvalidArgument(
            "asked must be first with votes made elsewhere, which are of the first public images, "
            f"got {chosen.asked!r}"
        )
    aggregator_of(chosen)


def fits_data(chosen: Settings, parts: Parts) -> None:
    """Refuses more queries than there are public images, and votes on other ones."""
    fits("queries", chosen.queries, parts)
    if chosen.votes is not None:
        check_votes(chosen, len(parts.data.classes), len(parts.public))


def transfer(job: Job, parts: Parts) -> Transferred:
    """The votes, the noisy answers to them, and the student."""
    chosen: Settings = job.settings
    aggregator = aggregator_of(chosen)
    job.declare(*events(chosen, job.adjacency))
    asked = questions_of(job, parts)
    begun = job.begun(ANSWERS)
    votes, whole = kept(job, lambda: votes_of(job, parts.public[asked]), begun=begun)

    def ask(budget: Budget | None, journal: Path | None, stop: Any) -> Answers:
        return label(
            votes, aggregator, answers=chosen.answers, budget=budget, journal=journal,
            label=job.label, progress=display.questions(job.progress, chosen.queries), stop=stop,
        )  # fmt: skip

    answers = job.gradually(ANSWERS, ask, what="noisy labels of public images")
    # Of answers to votes that are gone, the votes at hand cannot say what they cost; what was told
    # before they went is told again, and counted.
    tellable = whole or job.begun(COST)
    dependent = told_cost(job, votes, aggregator, answers) if tellable else None
    labels = np.full(len(parts.public), -1, dtype=np.int64)
    labels[asked] = answers.labels
    own = chosen.votes is None
    return concluded(
        job, parts, labels, sampling=SAMPLING, data_dependent=dependent,
        assumptions=(OWN if own else ELSEWHERE,),
        unreleased=words.TEACHERS if own else words.VOTES,
        notes=(
            *words.lost(int(answers.lost.sum())),
            *((UNTOLD,) if chosen.told and dependent is None else ()),
        ),
    )  # fmt: skip


def questions_of(job: Job, parts: Parts) -> NDArray[np.int64]:
    """Which public images are asked about: a matter of public images alone."""
    chosen: Settings = job.settings
    if chosen.asked == "first":
        return np.arange(chosen.queries)
    make = features.maker(chosen.features, parts.public, job.device, keep=chosen.keep)
    return features.questions(make(parts.public), chosen.queries, 0, job.device)


METHOD = Method(
    name="pate",
    summary="teachers on disjoint parts of the private data vote on public images",
    settings=DEFAULTS.__getitem__,
    check=check,
    fits=fits_data,
    event=event,
    noises=noises,
    idle=idle,
    epsilon=lambda _: None,
    transfer=transfer,
    anchors=pate_anchors,
    tuning=lambda dataset: words.tuning("teachers and student", dataset),
)
