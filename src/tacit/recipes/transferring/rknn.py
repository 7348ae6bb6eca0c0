"""``tacit transfer rknn --dataset mnist``: private records vote for public clusters, all at once.

The public images are clustered in a feature space. Each private record votes with its label for the
clusters nearest to it, and the table of votes is released once, with noise (reverse-kNN, arXiv
2207.13253). The images of a cluster get the label that leads there, with the confidence that the
lead deserves, and a student learns from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, final

import numpy as np

from tacit._validation import whole
from tacit.accounting import DiscreteLaplace, Gaussian
from tacit.errors import InvalidArgument
from tacit.recipes.transferring import features, words
from tacit.recipes.transferring.learning import StudentSettings, check_student, concluded, fits
from tacit.recipes.transferring.method import Method
from tacit.transfer.clusters import cluster_centres, medoids
from tacit.transfer.neighbours import Neighbours
from tacit.transfer.reverse_knn import ReverseKnn

if TYPE_CHECKING:
    from tacit.accounting.events import Event
    from tacit.ledger import Budget
    from tacit.mechanisms import Released
    from tacit.recipes import Job
    from tacit.recipes.transferring.splits import Parts
    from tacit.recipes.transferring.transferred import Transferred


@final
@dataclass(frozen=True, kw_only=True)
class Settings(StudentSettings):
    """What may be set.

    Each record votes for ``k`` of ``centres`` clusters. ``scale`` is that of Laplace noise on every
    count, ``sigma`` that of Gaussian noise in units of √k; ``noise`` says which is used.
    ``labelled`` says which images get a cluster's label: all of its own, or the one in its
    middle. ``keep`` is how many features there are; ``clusters_seed`` is for the clusters, which
    are public.
    """

    features: features.Kind = "scattering"
    keep: int = 300
    centres: int
    labelled: Literal["all", "middles"] = "all"
    k: int = 1
    noise: Literal["laplace", "gaussian"] = "laplace"
    scale: float = 2.0
    sigma: float = 7.0
    clusters_seed: int = 0


DEFAULTS: Final = {
    "mnist": Settings(centres=300),
    "fashion": Settings(centres=300, mirrored=True),
    "svhn": Settings(features="hog", centres=300, student="consistency"),
    "cifar10": Settings(features="hog", centres=300, student="consistency", mirrored=True),
    "digits": Settings(features="hog", centres=60),
}
EPSILONS: Final = {"mnist": 0.5, "fashion": 0.5, "svhn": 0.5, "cifar10": 0.5, "digits": 1.0}
SAMPLING: Final = "none: every private record votes, for public points only"
ONE: Final = "a record's features, and so its votes, are computed from this record alone"


def check(chosen: Settings) -> None:
    """Refuses settings that cannot be."""
    for name in ("keep", "centres"):
        whole(name, getattr(chosen, name))
    if whole("k", chosen.k) > chosen.centres:
        raise InvalidArgument(f"k must be at most the {chosen.centres:,} centres, got {chosen.k}")
    whole("clusters_seed", chosen.clusters_seed, at_least=0)
    check_student(chosen)


def voting(chosen: Settings, classes: int) -> ReverseKnn:
    """The mechanism, with its public numbers."""
    if chosen.noise == "laplace":
        return ReverseKnn(chosen.k, classes=classes, epsilon=chosen.k / chosen.scale)
    return ReverseKnn(chosen.k, classes=classes, noise_multiplier=chosen.sigma)


def event(chosen: Settings) -> Event:
    """The one table that is released: one record adds 1 to k counts."""
    if chosen.noise == "laplace":
        return DiscreteLaplace(chosen.scale, sensitivity=chosen.k)
    return Gaussian(chosen.sigma, replace_distance=math.sqrt(2.0))


def transfer(job: Job, parts: Parts) -> Transferred:
    """Clusters of public images, the noisy table of votes for them, and the student."""
    chosen: Settings = job.settings
    device = str(job.device)
    make = features.maker(chosen.features, parts.public, job.device, keep=chosen.keep)
    public = make(parts.public)
    points = cluster_centres(public, chosen.centres, chosen.clusters_seed, device=device)
    private = make(np.asarray(job.data.train.inputs))

    def vote(budget: Budget | None) -> Released[Any]:
        tally = voting(chosen, len(job.data.classes)).label(
            private, job.data.train.labels, points, budget=budget, label=job.label, device=device
        )
        whole: Released[Any] = tally.released
        return replace(whole, value={"labels": tally.labels, "confidence": tally.confidence})

    told = job.release("votes", vote, what="a noisy table of votes for public clusters")
    nearest = Neighbours(points, device=device).nearest(public, 1)[:, 0]
    labels = told["labels"][nearest]
    if chosen.labelled == "middles":
        others = np.setdiff1d(np.arange(len(public)), medoids(public, points, device=device))
        labels[others] = -1
    return concluded(
        job, parts, labels, weights=2.0 * told["confidence"][nearest] - 1.0, sampling=SAMPLING,
        assumptions=(ONE,), unreleased=words.VOTES,
    )  # fmt: skip


METHOD = Method(
    name="rknn",
    summary="each private record votes for public clusters, in one noisy table (reverse-kNN)",
    settings=DEFAULTS.__getitem__,
    check=check,
    fits=lambda chosen, parts: fits("centres", chosen.centres, parts),
    event=event,
    noises=lambda chosen: ("scale",) if chosen.noise == "laplace" else ("sigma",),
    epsilon=EPSILONS.__getitem__,
    transfer=transfer,
    anchors=lambda _: (),
    tuning=lambda dataset: words.tuning("features, clusters and student", dataset),
)
