"""``tacit transfer rknn --dataset mnist``: private records vote for public clusters, all at once.

The public images are clustered in a feature space. Each private record votes with its label for the
clusters nearest to it, and the table of votes is released once, with noise (reverse-kNN, arXiv
2207.13253). An image gets the label that leads in the clusters around it, with the confidence that
the lead deserves, and a student learns from them. With several rounds each has a table of its own,
and all but the first have the features of the student so far, which is public.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, final

import numpy as np

from tacit._validation import whole
from tacit.accounting.events import distance
from tacit.errors import InvalidArgument
from tacit.recipes.transferring import features
from tacit.recipes.transferring.method import Method
from tacit.recipes.transferring.student import (
    VOTES,
    TransferSettings,
    announce,
    concluded,
    fits_public,
    taught,
)
from tacit.transfer.neighbours import Neighbours, cluster_centres, medoids
from tacit.transfer.reverse_knn import ReverseKnn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget
    from tacit.mechanisms import Released
    from tacit.recipes.transferring.splits import Parts
    from tacit.recipes.transferring.student import Transferred
    from tacit.runs import Job


@final
@dataclass(frozen=True, kw_only=True)
class Settings(TransferSettings):
    """What may be set.

    Each record votes for ``k`` of ``centres`` clusters; with 0 of them, for the public images
    themselves. ``scale`` is that of Laplace noise on every count, ``sigma`` that of Gaussian noise
    in units of √k; ``noise`` says which is used. An image gets the label that leads in the sum over
    the ``pooled`` clusters, or images, that are nearest to it. ``labelled`` says which images get
    one: all, or those in the middle of a cluster. ``keep`` is how many features there are, in the
    first of ``rounds``; ``clusters_seed`` is for the clusters, which are public.
    """

    features: features.Kind = "scattering"
    keep: int = 300
    centres: int
    pooled: int = 1
    labelled: Literal["all", "middles"] = "all"
    k: int = 1
    noise: Literal["laplace", "gaussian"] = "laplace"
    scale: float = 2.0
    sigma: float = 7.0
    clusters_seed: int = 0
    rounds: int = 1

    def check(self) -> None:
        """Refuses settings that cannot be."""
        whole("keep", self.keep)
        whole("centres", self.centres, at_least=0)
        for name in ("k", "pooled"):
            if whole(name, getattr(self, name)) > self.centres > 0:
                raise InvalidArgument(
                    f"{name} must be at most the {self.centres:,} centres, "
                    f"got {getattr(self, name)}"
                )
        if self.labelled == "middles" and not self.centres:
            raise InvalidArgument(
                "labelled must be all with 0 centres: every image is its own middle"
            )
        whole("clusters_seed", self.clusters_seed, at_least=0)
        whole("rounds", self.rounds)
        self.check_student()

    def fits(self, parts: Parts) -> None:
        """Refuses more clusters, or votes of a record, than there are public images."""
        for name in ("centres", "k", "pooled"):
            fits_public(name, getattr(self, name), parts)

    def events(self, adjacency: Adjacency) -> tuple[Event, ...]:
        """The table that each round releases: one record adds 1 to k counts."""
        return (voting(self, 2, adjacency).declared(adjacency=adjacency),) * self.rounds

    @property
    def noises(self) -> tuple[str, ...]:
        """The scale of the noise that is drawn."""
        return ("scale",) if self.noise == "laplace" else ("sigma",)

    @property
    def idle(self) -> dict[str, str]:
        """The scale of the noise that is not drawn."""
        return {"sigma" if self.noise == "laplace" else "scale": f"noise={self.noise}"}


DEFAULTS: Final = {
    "mnist": Settings(centres=300, student="committee", upright=True),
    "fashion": Settings(centres=300, mirrored=True),
    "svhn": Settings(
        features="centred-hog", keep=400, centres=0, pooled=50, rounds=2, student="consistency"
    ),
    "cifar10": Settings(
        features="coloured-hog", keep=200, centres=0, pooled=50, rounds=2, student="consistency",
        mirrored=True,
    ),
    "digits": Settings(features="hog", centres=60),
}  # fmt: skip
EPSILONS: Final = {"mnist": 0.5, "fashion": 0.5, "svhn": 0.5, "cifar10": 0.5, "digits": 1.0}
SAMPLING: Final = "none: every private record votes, for public points only"
ONE: Final = "a record's features, and so its votes, are computed from this record alone"


def voting(chosen: Settings, classes: int, adjacency: Adjacency) -> ReverseKnn:
    """The mechanism, with its public numbers."""
    if chosen.noise == "laplace":
        moved = chosen.k * distance(2.0, adjacency)  # counts that a neighbour moves, each by 1
        return ReverseKnn(chosen.k, classes=classes, epsilon=moved / chosen.scale)
    return ReverseKnn(chosen.k, classes=classes, noise_multiplier=chosen.sigma)


def transfer(job: Job, parts: Parts) -> Transferred:
    """Round after round: features, the noisy table of votes for public clusters, the student."""
    chosen: Settings = job.settings
    job.declare(*chosen.events(job.adjacency))
    make = features.maker(chosen.features, parts.public, job.device, keep=chosen.keep)
    labels, weights = _labels(job, make, parts, "votes")
    for number in range(2, chosen.rounds + 1):
        make = features.of_student(taught(job, parts, labels, weights), job.device)
        labels, weights = _labels(job, make, parts, f"votes-{number}")
    return concluded(
        job, parts, labels, weights=weights, sampling=SAMPLING, assumptions=(ONE,),
        unreleased=VOTES,
    )  # fmt: skip


def _labels(
    job: Job, make: features.Maker, parts: Parts, name: str
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The labels that one round's table gives the public images, and how far each is trusted."""
    chosen: Settings = job.settings
    device = str(job.device)
    announce(job.progress, "features of public and private images")
    public = points = make(parts.public)
    if chosen.centres:
        points = cluster_centres(public, chosen.centres, chosen.clusters_seed, device=device)
    near = Neighbours(points, device=device).nearest(public, chosen.pooled)
    private = make(np.asarray(job.data.train.inputs))

    def vote(budget: Budget | None) -> Released[Any]:
        tally = voting(chosen, len(job.data.classes), job.adjacency).label(
            private, job.data.train.labels, points, budget=budget, label=job.label, device=device
        )
        table: Released[Any] = tally.released
        pooled = tally.pooled(near)
        return replace(table, value={"labels": pooled.labels, "confidence": pooled.confidence})

    found = job.release(name, vote, what="a noisy table of votes for public clusters")
    labels = found["labels"].copy()
    if chosen.labelled == "middles":
        others = np.setdiff1d(np.arange(len(public)), medoids(public, points, device=device))
        labels[others] = -1
    return labels, 2.0 * found["confidence"] - 1.0


METHOD = Method(
    name="rknn",
    summary="each private record votes for public clusters, in one noisy table (reverse-kNN)",
    transfer=transfer,
    defaults=DEFAULTS,
    epsilons=EPSILONS,
    compared="features, clusters and student",
)
