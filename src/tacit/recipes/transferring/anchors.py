"""What was published for each method and data set, and what it did that is not done here."""

from __future__ import annotations

from typing import Final

from tacit.runs.recipe import Anchor

_RAW: Final = (
    "the ε is computed from the votes as they are, and told although it is as private as they are"
)
_EXPECTED: Final = (
    "the ε depends on the votes, counts queries by the probability that they pass, and was told "
    "with noise of its smooth sensitivity whose own formula is too small for a large β"
)
_REPLACED: Final = (
    "neighbours are drawn with replacement, so that one record may vote twice, and accounted as "
    "Poisson samples; the cost of screening is understated"
)
_EXTRA: Final = "the private data are 604,388 images, with SVHN's extra set, which is not here"

PATE: Final = {
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

KNN: Final = {
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


def pate_anchors(dataset: str) -> tuple[Anchor, ...]:
    """What was published of PATE for a data set."""
    return PATE.get(dataset, ())


def knn_anchors(dataset: str) -> tuple[Anchor, ...]:
    """What was published of Private-kNN."""
    return KNN.get(dataset, ())
