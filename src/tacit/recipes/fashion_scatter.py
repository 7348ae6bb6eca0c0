"""``tacit train fashion-scatter --epsilon 3``: a linear model on scattering features of garments.

Scattering at three scales, square roots of the coefficients, half whitened by synthetic strokes and
blobs (``tacit.recipes.scattering``); ``--head cnn`` trains a small CNN on their maps instead.
"""

from __future__ import annotations

from functools import partial

from tacit.recipes import scattering
from tacit.recipes.scattering import HeadTraining, Settings
from tacit.runs import Recipe


def settings(epsilon: float) -> Settings:  # noqa: ARG001 - the same at every ε
    """The features are the same at every ε."""
    return Settings(
        scales="1+2+3", exponent=0.5, groups=1, whitening=0.5, ridge=1e-5, keep=4000,
    )  # fmt: skip


def steps(epsilon: float, head: str) -> HeadTraining:
    """Longer steps where there is less noise."""
    if head == "cnn":
        return HeadTraining(epochs=100.0, lot=16_384, clip=0.1, lr=64.0)
    return HeadTraining(epochs=50.0, lot=15_000, clip=0.1, lr=1200.0 * min(epsilon, 2.5))


RECIPE = Recipe(
    name="fashion-scatter",
    summary="a linear model on scattering features of Fashion-MNIST",
    data="fashion",
    settings=settings,
    outline=partial(scattering.outline, steps=steps),
    prepare=partial(scattering.prepare, steps=steps),
    anchors=(
        *scattering.published("linear", (2.7, 89.5), (3.0, 89.7)),
        *scattering.published("CNN", (2.7, 88.7), (3.0, 89.0)),
    ),
    tuning=(
        "features, lot, clip and rate were compared on the last 10,000 training images, held out; "
        "three constants of the synthetic images were settled by the training images' mean "
        "brightness and contrast; none of this is charged"
    ),
)
