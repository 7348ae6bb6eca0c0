"""``tacit transfer knn --dataset mnist``: the neighbours of public images vote, a student learns.

For each public image a fresh Poisson sample of the private records is drawn. Of it, the k records
nearest in a feature space vote with their labels, and a noisy answer follows (Private-kNN, Zhu et
al. 2020), after a noisy screening if one is wanted. Features are of one image at a time, and so
free. With several rounds, all but the first have the features of the student so far, which is
public: the queries are shared out among the rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, final

import numpy as np

from tacit._validation import probability, whole
from tacit.errors import InvalidArgument
from tacit.recipes.transferring import features
from tacit.recipes.transferring.method import Method
from tacit.recipes.transferring.student import (
    VOTES,
    TransferSettings,
    announce,
    check_queries,
    concluded,
    fits_public,
    lost_note,
    query_progress,
    taught,
)
from tacit.runs.recipe import Anchor
from tacit.transfer import ConfidentGNMax, GNMax
from tacit.transfer.private_knn import PrivateKnn

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget
    from tacit.recipes.transferring.splits import Parts
    from tacit.recipes.transferring.student import Transferred
    from tacit.runs import Job
    from tacit.transfer import Answers


@final
@dataclass(frozen=True, kw_only=True)
class Settings(TransferSettings):
    """What may be set.

    ``k`` records of a sample of ``rate`` vote on each of ``queries`` public images, the ``first``
    ones or those in the ``middles`` of as many clusters, until ``answers`` are answered. ``sigma``
    is the noise of an answer. If ``screened``, a query is answered only if the largest count is
    above ``threshold`` with noise of ``screening_sigma``; ``samples`` says whether screening and
    answer share a sample. ``keep`` is how many features there are, in the first of ``rounds``.
    """

    features: features.Kind = "scattering"
    keep: int = 300
    k: int
    rate: float
    asked: Literal["first", "middles"] = "middles"
    queries: int
    answers: int
    screened: bool = False
    threshold: float = 0.0
    screening_sigma: float = 30.0
    sigma: float = 10.0
    samples: Literal["shared", "two"] = "two"
    rounds: int = 1

    def check(self) -> None:
        """Refuses settings that cannot be."""
        check_queries(self.queries, self.answers)
        self.check_student()
        for name in ("keep", "k"):
            whole(name, getattr(self, name))
        if probability("rate", self.rate) == 0.0:
            raise InvalidArgument(f"rate must be above 0, or nobody votes, got {self.rate!r}")
        if whole("rounds", self.rounds) > self.answers:
            raise InvalidArgument(f"rounds must be at most answers, got {self.rounds}")

    def fits(self, parts: Parts) -> None:
        """Refuses more queries than there are public images."""
        fits_public("queries", self.queries, parts)

    def events(self, adjacency: Adjacency) -> tuple[Event, ...]:
        """What each round releases; what each adjacency makes of it is for the accountant."""
        del adjacency
        nobody = voters_of(self, np.zeros((1, 1), np.float32), np.zeros(1, np.int64), classes=2)
        return tuple(
            nobody.declared(queries=len(asked), answers=answers)
            for asked, answers in rounds_of(self, np.arange(self.queries))
        )

    @property
    def noises(self) -> tuple[str, ...]:
        """Which settings are noise."""
        return ("screening_sigma", "sigma") if self.screened else ("sigma",)

    @property
    def idle(self) -> dict[str, str]:
        """What screening needs, where there is none."""
        if self.screened:
            return {}
        return dict.fromkeys(("threshold", "screening_sigma", "samples"), "screened=false")


# k records of a sample are k/rate of all, and the noise is to them as sigma/rate: what counts is
# that k is six times sigma or more, and that the k/rate nearest are near enough.
DEFAULTS: Final = {
    "mnist": Settings(k=96, rate=0.2, queries=100, answers=100, student="committee", upright=True),
    "fashion": Settings(k=96, rate=0.2, queries=200, answers=200, mirrored=True),
    "svhn": Settings(
        features="centred-hog", keep=400, k=800, rate=0.2, queries=3_000, answers=3_000, rounds=2,
        student="consistency",
    ),
    "cifar10": Settings(
        features="coloured-hog", keep=200, k=160, rate=0.2, queries=3_000, answers=3_000, rounds=2,
        student="consistency", mirrored=True,
    ),
    "digits": Settings(
        features="pixels", k=30, rate=0.3, asked="first", queries=150, answers=80, screened=True,
        threshold=20.0, screening_sigma=15.0, sigma=8.0, samples="shared",
    ),
}  # fmt: skip
EPSILONS: Final = {"mnist": 1.0, "fashion": 1.0, "svhn": 1.0, "cifar10": 3.0, "digits": 8.0}
SAMPLING: Final = (
    "for each query each private record is in the sample with the stated probability, on its own "
    "and independently of other queries; a record votes once on a query at most"
)
ONE: Final = "a record's features are computed from this record alone, and from what is public"


def rounds_of(chosen: Settings, asked: NDArray[np.int64]) -> list[tuple[NDArray[np.int64], int]]:
    """The queries of each round, and how many of them are answered at most."""
    parts = np.array_split(asked, chosen.rounds)
    caps = [len(part) for part in np.array_split(np.empty(chosen.answers), chosen.rounds)]
    return list(zip(parts, caps, strict=True))


def voters_of(
    chosen: Settings, rows: Any, labels: Any, *, classes: int, device: str = "cpu"
) -> PrivateKnn:
    """Private records, ready to vote."""
    answering = GNMax(sigma=chosen.sigma)
    screening = ConfidentGNMax(
        threshold=chosen.threshold, screening_sigma=chosen.screening_sigma, sigma=chosen.sigma
    )
    return PrivateKnn(
        rows, labels, classes=classes, k=chosen.k, rate=chosen.rate, samples=chosen.samples,
        aggregator=screening if chosen.screened else answering, device=device,
    )  # fmt: skip


def transfer(job: Job, parts: Parts) -> Transferred:
    """Round after round: features, the noisy answers of neighbours, and the student."""
    chosen: Settings = job.settings
    job.declare(*chosen.events(job.adjacency))
    labels, lost = np.full(len(parts.public), -1, dtype=np.int64), 0
    make = features.maker(chosen.features, parts.public, job.device, keep=chosen.keep)
    asked = np.arange(chosen.queries)
    if chosen.asked == "middles":
        asked = features.questions(make(parts.public), chosen.queries, 0, job.device)
    for number, (some, answers) in enumerate(rounds_of(chosen, asked)):
        if number:
            make = features.of_student(taught(job, parts, labels), job.device)
        found = _answers(job, make, parts.public[some], answers, f"answers-{number + 1}")
        labels[some] = found.labels
        lost += int(found.lost.sum())
    return concluded(
        job, parts, labels, sampling=SAMPLING, assumptions=(ONE,), unreleased=VOTES,
        notes=lost_note(lost),
    )  # fmt: skip


def _answers(
    job: Job, make: features.Maker, images: NDArray[np.uint8], answers: int, name: str
) -> Answers:
    """The noisy answers to one round's queries."""
    announce(job.progress, "features of public and private images")
    rows, labels = make(np.asarray(job.data.train.inputs)), job.data.train.labels
    voters = voters_of(
        job.settings, rows, labels, classes=len(job.data.classes), device=str(job.device)
    )
    asked = make(images)

    def ask(budget: Budget | None, journal: Path | None, stop: Any) -> Answers:
        return voters.label(
            asked, answers=answers, budget=budget, journal=journal, label=f"{job.label}, {name}",
            progress=query_progress(job.progress, len(asked)), stop=stop,
        )  # fmt: skip

    return job.gradually(name, ask, what="noisy labels of public images")


_REPLACED: Final = (
    "neighbours are drawn with replacement, so that one record may vote twice, and accounted as "
    "Poisson samples; the cost of screening is understated"
)
_EXTRA: Final = "the private data are 604,388 images, with SVHN's extra set, which is not here"


ANCHORS: Final = {
    "mnist": (
        Anchor(epsilon=0.47, accuracy=98.8, source="Zhu et al. 2020, Private-kNN, 735 answers",
               shortcuts=f"{_REPLACED}; its own configuration costs ε = 0.88"),
    ),
    "svhn": (
        Anchor(epsilon=0.49, accuracy=91.6,
               source="Zhu et al. 2020, Private-kNN, 2,939 answers, δ = 1e-6",
               shortcuts=f"{_REPLACED}; {_EXTRA}"),
    ),
    "cifar10": (
        Anchor(epsilon=2.92, accuracy=70.8, source="Zhu et al. 2020, Private-kNN, 3,877 answers",
               shortcuts=_REPLACED),
    ),
}  # fmt: skip

METHOD = Method(
    name="knn",
    summary="the private neighbours of each public image vote on it (Private-kNN)",
    transfer=transfer,
    defaults=DEFAULTS,
    epsilons=EPSILONS,
    anchors=ANCHORS,
    compared="features, k, rate, queries and student",
)
