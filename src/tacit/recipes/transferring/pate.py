"""``tacit transfer pate --dataset mnist``: teachers vote on public images, a student learns.

Each private record belongs to one of many teachers, which is trained on its own records only. They
vote on public images, noise hides any one of them, and the noisy labels train the student (Papernot
et al. 2017 and 2018). Votes that were made elsewhere come from a file: ``--votes counts.npy``.

Which images are asked about is settled beforehand, or chosen in rounds where the student has most
to learn (``asked="active"``). How an answer is made is ``aggregator``'s: by the votes with noise,
by comparing them with the student first (``"interactive"``), or exactly, while the votes are stable
(``"sparse-vector"``).

What is charged holds whatever the votes are. What the votes really cost is smaller and itself
private: with ``data_dependent`` it is released with noise, for a price, as a separate claim.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, assert_never, final

import numpy as np

from tacit._validation import non_negative, open_probability, positive, whole
from tacit.errors import InvalidArgument
from tacit.recipes.transferring import features
from tacit.recipes.transferring.method import Method
from tacit.recipes.transferring.student import (
    TEACHERS,
    VOTES,
    TransferSettings,
    check_queries,
    concluded,
    fits_public,
    lost_note,
    query_progress,
    taught,
)
from tacit.recipes.transferring.teacher_votes import (
    COST,
    UNRELEASED,
    check_votes,
    data_dependent_cost,
    kept,
    votes_of,
)
from tacit.runs.recipe import Anchor
from tacit.transfer import (
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    StableMax,
    label,
    label_interactively,
    label_stable,
    spread,
    uncertain,
)
from tacit.transfer.active import Rounds, rows_at
from tacit.transfer.data_dependent_claim import cost_release_event
from tacit.transfer.stable_max import covering_event, round_epsilon

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget
    from tacit.recipes.transferring.splits import Parts
    from tacit.recipes.transferring.student import Transferred
    from tacit.runs import Job
    from tacit.transfer import Answers, Votes

    Places: TypeAlias = NDArray[np.int64]

ANSWERS: Final = "answers"
LABELS: Final = "noisy labels of public images"
SAMPLING: Final = "none: every teacher votes on every query, and each record belongs to one teacher"
OWN: Final = (
    "each record is in one teacher only, drawn for each record by itself from the operating "
    "system's entropy, and nothing of a teacher depends on the records of another"
)
ELSEWHERE: Final = (
    "the votes were made elsewhere: that one record of the private data changes the votes of one "
    "teacher only is taken on trust"
)

# What teachers of one's own are made by; votes made elsewhere need none of it.
TEACHING: Final = (
    "teachers", "teacher", "features", "keep", "views", "epochs", "batch", "lr", "decay",
)  # fmt: skip

# Which settings each aggregator needs of those that not all of them do. The first are its noise.
_NOISES: Final = {
    "confident": ("screening_sigma", "sigma"),
    "gaussian": ("sigma",),
    "laplace": ("scale",),
    "interactive": ("screening_sigma", "sigma"),
    "sparse-vector": ("stability_scale",),
}
_NEEDS: Final = {
    "confident": ("answers", "threshold"),
    "gaussian": ("answers",),
    "laplace": ("answers",),
    "interactive": ("answers", "threshold", "confidence", "every"),
    "sparse-vector": ("cutoff", "failure"),
}
_OWN: Final = sorted(
    {name for some in (_NOISES, _NEEDS) for names in some.values() for name in names}
)


@final
@dataclass(frozen=True, kw_only=True)
class Settings(TransferSettings):
    """What may be set.

    Of the teachers: how many; ``teacher`` is a linear model on ``features``, of which there are
    ``keep``, or a small CNN on the pixels; it learns from ``views`` of each record, the record
    itself and distorted copies; ``epochs``, ``batch``, ``lr`` and ``decay`` say how. ``votes``
    names a file with votes made elsewhere instead, which ``holds`` counts or labels; its rows or
    columns are of the first public images.

    Of the answers: ``queries`` public images are asked about, the ``first`` ones, those in the
    ``middles`` of as many clusters, or ``active`` ones, chosen in ``rounds``: first images that lie
    far from each other, then those that a student of the answers so far is least sure of. The run
    ends after ``answers`` answers. ``sigma`` is the noise of an answer; ``threshold`` and
    ``screening_sigma`` are those of a screening, by ``confident`` on the largest count, by
    ``interactive`` on how far the votes are from the student's scores. The interactive student is
    trained again after ``every`` queries, and its own label counts if it is sure by ``confidence``.
    ``scale`` is that of Laplace noise on each count, for ``laplace``. ``stability_scale`` is that
    of Laplace noise on how many votes may move, for ``sparse-vector``, which ends after ``cutoff``
    unstable queries; ``failure`` is the part of δ that its labels cost.

    Of the data-dependent cost: whether a ``data_dependent`` figure is released, at which Rényi
    ``order``, with which ``smoothness``, and with how much ``cost_noise``. All are fixed
    beforehand.
    """

    teachers: int = 250
    teacher: Literal["linear", "cnn"] = "linear"
    features: features.Kind = "scattering"
    keep: int = 1000
    views: int = 1
    epochs: int = 40
    batch: int = 64
    lr: float = 3.0
    decay: float = 3e-4
    votes: str | None = None
    holds: Literal["counts", "labels"] = "counts"
    aggregator: Literal["confident", "gaussian", "laplace", "interactive", "sparse-vector"] = (
        "confident"
    )
    asked: Literal["first", "middles", "active"] = "first"
    queries: int
    answers: int
    rounds: int = 4
    threshold: float = 200.0
    screening_sigma: float = 150.0
    sigma: float = 40.0
    scale: float = 20.0
    confidence: float = 0.9
    every: int = 50
    stability_scale: float = 3.0
    cutoff: int = 2
    failure: float = 1e-6
    data_dependent: bool = True
    order: float = 17.0
    smoothness: float = 0.041
    cost_noise: float = 6.35

    def check(self) -> None:
        """Refuses settings that cannot be."""
        for name in ("teachers", "keep", "views", "epochs", "batch", "every", "cutoff"):
            whole(name, getattr(self, name))
        positive("lr", self.lr)
        non_negative("decay", self.decay)
        positive("scale", self.scale)
        positive("stability_scale", self.stability_scale)
        open_probability("failure", self.failure)
        whole("queries", self.queries)
        if self.aggregator != "sparse-vector":
            check_queries(self.queries, self.answers)
        self.check_student()
        self._check_cost()
        self._check_asked()
        if self.aggregator == "interactive":
            interactive_of(self)
        elif self.aggregator != "sparse-vector":
            aggregator_of(self)

    def _check_cost(self) -> None:
        if self.data_dependent and self.aggregator not in ("confident", "gaussian"):
            raise InvalidArgument(
                f"data_dependent must be false with aggregator={self.aggregator}, whose "
                "data-dependent cost cannot be released; give data_dependent=false"
            )
        if self.order <= 1.0:
            raise InvalidArgument(f"order must be above 1, got {self.order!r}")
        positive("smoothness", self.smoothness)
        positive("cost_noise", self.cost_noise)

    def _check_asked(self) -> None:
        if self.votes is not None and self.asked == "middles":
            raise InvalidArgument(
                "asked must be first or active with votes made elsewhere, which are of the first "
                "public images, got 'middles'"
            )
        if self.asked != "active":
            return
        if self.aggregator in ("interactive", "sparse-vector"):
            raise InvalidArgument(
                f"asked must be first or middles with aggregator={self.aggregator}, which asks "
                "one query after the other, got 'active'"
            )
        if whole("rounds", self.rounds) > self.answers:
            raise InvalidArgument(
                f"rounds must be at most the {self.answers:,} answers, got {self.rounds:,}"
            )

    def fits(self, parts: Parts) -> None:
        """Refuses more queries than there are public images, and votes on other ones."""
        fits_public("queries", self.queries, parts)
        if self.votes is not None:
            check_votes(self, len(parts.data.classes), len(parts.public))
        elif self.teachers > len(parts.data.train):
            raise InvalidArgument(
                f"teachers must be at most the {len(parts.data.train):,} private images, got "
                f"{self.teachers:,}: one without images has nothing to vote by"
            )

    def events(self, adjacency: Adjacency) -> tuple[Event, ...]:
        """Screenings with answers, round by round, and the noisy cost of them if it is released."""
        labelling: tuple[Event, ...]
        match self.aggregator:
            case "interactive":
                setting = interactive_of(self)
                labelling = (setting.declared(queries=self.queries, answers=self.answers),)
            case "sparse-vector":
                labelling = (stable_of(self).declared(queries=self.queries),)
            case _:
                labelling = tuple(
                    aggregator_of(self).declared(queries=queries, answers=answers)
                    for queries, answers in rounds_of(self)
                )
        if not self.data_dependent:
            return labelling
        return *labelling, cost_release_event(self.cost_noise, adjacency)

    def event(self, adjacency: Adjacency) -> Event:
        """All of it; of sparse-vector PATE a simpler event that covers it, without a threshold."""
        if self.aggregator == "sparse-vector":
            each = round_epsilon(self.stability_scale)
            return covering_event(each, self.cutoff, self.failure)
        return super().event(adjacency)

    @property
    def least_delta(self) -> float:
        """What the labels of sparse-vector PATE may cost; others have no such part."""
        return self.failure if self.aggregator == "sparse-vector" else 0.0

    @property
    def noises(self) -> tuple[str, ...]:
        """Which settings are noise, for this aggregator."""
        return _NOISES[self.aggregator]

    @property
    def idle(self) -> dict[str, str]:
        """What other aggregators need, or teachers of one's own, or the release of the cost."""
        needed = (*_NOISES[self.aggregator], *_NEEDS[self.aggregator])
        found = {name: f"aggregator={self.aggregator}" for name in _OWN if name not in needed}
        if self.votes is None:
            found["holds"] = "no votes"
        else:
            chosen_by = ("features", "keep") if self.asked == "active" else ()
            unused = (name for name in TEACHING if name not in chosen_by)
            found |= dict.fromkeys(unused, "votes made elsewhere")
        if self.asked != "active":
            found["rounds"] = f"asked={self.asked}"
        if not self.data_dependent:
            names = ("order", "smoothness", "cost_noise")
            found |= dict.fromkeys(names, "data_dependent=false")
        return found


DEFAULTS: Final = {
    # As Papernot et al. 2018, table 1 and section 5, have it for MNIST and SVHN; but for SVHN's
    # threshold, which is 300 there: more than there are teachers, so that noise alone passes it.
    "mnist": Settings(queries=640, answers=286, student="committee", upright=True),
    "fashion": Settings(queries=640, answers=286, mirrored=True),
    "svhn": Settings(
        features="centred-hog", keep=400, queries=8_500, answers=3_098, screening_sigma=200.0,
        data_dependent=False, student="consistency",
    ),
    "cifar10": Settings(
        features="coloured-hog", keep=400, queries=2_000, answers=1_000, data_dependent=False,
        student="consistency", mirrored=True,
    ),
    "digits": Settings(
        teachers=50, features="pixels", epochs=20, lr=10.0, aggregator="gaussian", queries=40,
        answers=40, threshold=35.0, screening_sigma=20.0, sigma=8.0, every=10, stability_scale=0.4,
        cutoff=1, data_dependent=False,
    ),
}  # fmt: skip


# ---- aggregators


def aggregator_of(chosen: Settings) -> ConfidentGNMax | GNMax | LNMax:
    """The aggregator, with its public numbers."""
    match chosen.aggregator:
        case "confident":
            return ConfidentGNMax(
                threshold=chosen.threshold,
                screening_sigma=chosen.screening_sigma,
                sigma=chosen.sigma,
            )
        case "gaussian":
            return GNMax(sigma=chosen.sigma)
        case "laplace":
            return LNMax(gamma=1.0 / chosen.scale)
        case other:
            raise InvalidArgument(f"aggregator={other} answers one query after the other")


def interactive_of(chosen: Settings) -> InteractiveGNMax:
    """Interactive-GNMax, with its public numbers."""
    return InteractiveGNMax(
        threshold=chosen.threshold,
        screening_sigma=chosen.screening_sigma,
        sigma=chosen.sigma,
        confidence=chosen.confidence,
    )


def stable_of(chosen: Settings) -> StableMax:
    """Sparse-vector PATE with the lowest threshold that its failure allows."""
    return StableMax.for_failure(
        chosen.failure,
        epsilon=round_epsilon(chosen.stability_scale),
        queries=chosen.queries,
        cutoff=chosen.cutoff,
    )


def rounds_of(chosen: Settings) -> list[tuple[int, int]]:
    """How many queries each round has, and how many of them are answered at most."""
    rounds = chosen.rounds if chosen.asked == "active" else 1
    sizes = [
        [len(part) for part in np.array_split(np.empty(number), rounds)]
        for number in (chosen.queries, chosen.answers)
    ]
    return list(zip(*sizes, strict=True))


# ---- the run


def transfer(job: Job, parts: Parts) -> Transferred:
    """The votes, the noisy answers to them, and the student."""
    chosen: Settings = job.settings
    job.declare(*chosen.events(job.adjacency))
    places = places_of(job, parts)
    begun = job.begun(ANSWERS) or job.begun(f"{ANSWERS}-1")
    votes, whole = kept(job, lambda: votes_of(job, parts.public[places]), begun=begun)
    if votes.queries != len(places):
        raise InvalidArgument(
            f"votes must be on the {votes.queries:,} images that they were on when the run began, "
            f"got a file on {len(places):,}; bring that file back"
        )
    answers = answers_of(job, parts, places, votes)
    # Of answers to votes that are gone, other votes cannot say what they cost; a cost that was
    # released before they went is read again, and counted.
    releasable = whole or job.begun(COST)
    dependent = data_dependent_cost(job, votes, answers) if releasable else None
    labels = np.full(len(parts.public), -1, dtype=np.int64)
    labels[places] = answers.labels
    own = chosen.votes is None
    return concluded(
        job, parts, labels, sampling=SAMPLING, data_dependent=dependent,
        assumptions=(OWN if own else ELSEWHERE,), unreleased=TEACHERS if own else VOTES,
        notes=(
            *lost_note(int(answers.lost.sum())),
            *((UNRELEASED,) if chosen.data_dependent and dependent is None else ()),
        ),
    )  # fmt: skip


def places_of(job: Job, parts: Parts) -> Places:
    """Which public images the teachers vote on: a matter of public images alone."""
    chosen: Settings = job.settings
    match chosen.asked:
        case "first":
            return np.arange(chosen.queries)
        case "middles":
            rows = _public_rows(job, parts)
            return features.questions(rows, chosen.queries, 0, job.device)
        case "active":
            if chosen.votes is None:
                return np.arange(len(parts.public))
            return np.arange(check_votes(chosen, len(job.data.classes), len(parts.public)))
        case _:
            assert_never(chosen.asked)


def answers_of(job: Job, parts: Parts, places: Places, votes: Votes) -> Answers:
    """The noisy answers about the public images at ``places``, in whichever way they are made."""
    chosen: Settings = job.settings
    if chosen.asked == "active":
        return _in_rounds(job, parts, places, votes)

    def scores(labels: Places) -> NDArray[np.float32]:
        return _scores(job, parts, places, labels)

    def ask(budget: Budget | None, journal: Path | None, stop: Any) -> Answers:
        shown = query_progress(job.progress, chosen.queries)
        match chosen.aggregator:
            case "interactive":
                answers, _ = label_interactively(
                    votes, interactive_of(chosen), scores, every=chosen.every,
                    answers=chosen.answers, budget=budget, journal=journal, label=job.label,
                    progress=shown, stop=stop,
                )  # fmt: skip
                return answers
            case "sparse-vector":
                stable = label_stable(
                    votes, stable_of(chosen), budget=budget, journal=journal, label=job.label,
                    progress=shown, stop=stop,
                )  # fmt: skip
                return replace(stable, event=chosen.event(job.adjacency))
            case _:
                return label(
                    votes, aggregator_of(chosen), answers=chosen.answers, budget=budget,
                    journal=journal, label=job.label, progress=shown, stop=stop,
                )  # fmt: skip

    return job.gradually(ANSWERS, ask, what=LABELS)


def _in_rounds(job: Job, parts: Parts, places: Places, votes: Votes) -> Answers:
    """Round after round, each about the images that the student can learn most from."""
    chosen: Settings = job.settings
    aggregator, done = aggregator_of(chosen), Rounds(len(places))

    def choose(count: int, labels: Places, asked: NDArray[np.bool_]) -> Places:
        free = np.flatnonzero(~asked)
        if not (labels >= 0).any():
            rows = _public_rows(job, parts)[places]
            return spread(rows, count, among=free, chosen=np.flatnonzero(asked))
        return uncertain(_scores(job, parts, places, labels), count, among=free)

    for number, (queries, answers) in enumerate(rounds_of(chosen), start=1):

        def ask(
            budget: Budget | None, journal: Path | None, stop: Any, *,
            number: int = number, queries: int = queries, answers: int = answers,
        ) -> Answers:  # fmt: skip
            # Beside the journal, and gone with it: which images a round that is resumed is about.
            points = None if journal is None else journal.with_stem(f"{journal.stem}-points")
            some = done.choice(lambda *known: choose(queries, *known), queries, path=points)
            found = label(
                rows_at(votes, some), aggregator, queries=queries, answers=answers, budget=budget,
                journal=journal, label=f"{job.label}, round {number}",
                progress=query_progress(job.progress, queries), stop=stop,
            )  # fmt: skip
            done.add(some, found)
            return found

        job.gradually(f"{ANSWERS}-{number}", ask, what=f"{LABELS}, round {number}")
    event = aggregator.declared(queries=chosen.queries, answers=chosen.answers)
    return done.answers(event, aggregator)


def _scores(job: Job, parts: Parts, places: Places, labels: Places) -> NDArray[np.float32]:
    """What a student of the labels so far (-1: none) says of the images at ``places``."""
    classes = len(job.data.classes)
    if not (labels >= 0).any():
        return np.full((len(places), classes), 1.0 / classes, dtype=np.float32)
    known = np.full(len(parts.public), -1, dtype=np.int64)
    known[places] = labels
    return taught(job, parts, known, quick=True).probabilities(parts.public[places])


def _public_rows(job: Job, parts: Parts) -> features.Rows:
    chosen: Settings = job.settings
    make = features.maker(chosen.features, parts.public, job.device, keep=chosen.keep)
    return make(parts.public)


# ---- what was published, and what it did that is not done here

_RAW: Final = (
    "the ε is computed from the votes as they are, and published although it is as private as they "
    "are"
)
_EXPECTED: Final = (
    "the ε depends on the votes, counts queries by the probability that they pass, and was "
    "released with noise of its smooth sensitivity whose own formula is too small for a large β"
)
_EXTRA: Final = "the private data are 604,388 images, with SVHN's extra set, which is not here"


ANCHORS: Final = {
    "mnist": (
        Anchor(epsilon=2.04, accuracy=98.0, source="Papernot et al. 2017, LNMax, 100 queries",
               shortcuts=_RAW),
        Anchor(epsilon=8.03, accuracy=98.1, source="Papernot et al. 2017, LNMax, 1,000 queries",
               shortcuts=_RAW),
        Anchor(epsilon=1.97, accuracy=98.5,
               source="Papernot et al. 2018, Confident-GNMax, 286 answers", shortcuts=_EXPECTED),
    ),
    "svhn": (
        Anchor(epsilon=5.04, accuracy=82.7,
               source="Papernot et al. 2017, LNMax, 500 queries, δ = 1e-6",
               shortcuts=f"{_RAW}; {_EXTRA}"),
        Anchor(epsilon=8.19, accuracy=90.7,
               source="Papernot et al. 2017, LNMax, 1,000 queries, δ = 1e-6",
               shortcuts=f"{_RAW}; {_EXTRA}"),
        Anchor(epsilon=4.96, accuracy=91.6,
               source="Papernot et al. 2018, Confident-GNMax, 3,098 answers, δ = 1e-6",
               shortcuts=f"{_EXPECTED}; {_EXTRA}"),
    ),
}  # fmt: skip


METHOD = Method(
    name="pate",
    summary="teachers on disjoint parts of the private data vote on public images",
    transfer=transfer,
    defaults=DEFAULTS,
    anchors=ANCHORS,
    compared="teachers and student",
)
