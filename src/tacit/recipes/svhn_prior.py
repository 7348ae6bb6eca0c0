"""``tacit train svhn-prior --epsilon 1 --device cuda``: house numbers, from the same prior.

The same prior, network and phases as ``tacit.recipes.cifar10_prior``, and its steps. Views are not
mirrored, for digits have sides. Nothing comparable was found to be published: from-scratch results
for SVHN have no prior.
"""

from __future__ import annotations

from dataclasses import replace

from tacit.recipes import cifar10_prior
from tacit.recipes.cifar10_prior import TUNING, Settings, outline, prepare
from tacit.runs import Recipe


def settings(epsilon: float) -> Settings:
    """Those of CIFAR-10, without mirror images."""
    return replace(cifar10_prior.settings(epsilon), flip=False)


RECIPE = Recipe(
    name="svhn-prior",
    summary="WRN-16-4 that begins with a prior of synthetic images, for SVHN, on a GPU",
    data="svhn",
    settings=settings,
    outline=outline,
    prepare=prepare,
    tuning=TUNING,
)
