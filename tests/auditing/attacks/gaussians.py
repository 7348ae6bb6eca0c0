"""Toy models: over models, the log-odds of each example are Gaussian, and shift with membership."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tacit.auditing.attacks import Shadows

if TYPE_CHECKING:
    from numpy.typing import NDArray


def shadows_of(sure: NDArray[np.float64], members: NDArray[np.bool_]) -> Shadows:
    """Shadow models with these log-odds (models, examples[, views]) of the label, class 1 of 2."""
    values = sure if sure.ndim == 3 else sure[..., None]
    logits = np.stack((np.zeros_like(values), values), axis=-1)
    return Shadows(logits, np.ones(sure.shape[1], dtype=int), members)


def toy(
    seed: int,
    *,
    models: int,
    examples: int,
    shift: float,
    paired: bool = True,
    spread: float = 3.0,
) -> Shadows:
    """Log-odds N(m, 1) if not trained on the example and N(m + shift, 1) if; m ~ N(0, spread)."""
    draw = np.random.default_rng(seed)
    members = draw.random((models, examples)) < 0.5
    if paired:
        members[1::2] = ~members[0::2]
    hard = spread * draw.normal(size=examples)
    return shadows_of(hard + shift * members + draw.normal(size=members.shape), members)
