"""Membership inference: was this example in the training set? Attacks on any model's outputs.

``Outputs`` are the logits of the attacked model, ``Shadows`` those of models that were trained the
same way on known parts of the same examples (``train_shadows``). An attack gives one score for each
example; ``split`` parts them into those of members and of others, and ``Roc`` says how good it is.

>>> import numpy as np
>>> draw = np.random.default_rng(1)
>>> members = draw.random((17, 200)) < 0.5  # a toy: models are 1.5 surer of what they have seen
>>> sure = draw.normal(size=(17, 200)) + 1.5 * members + 3.0 * draw.normal(size=200)
>>> shadows = Shadows(np.stack((sure, 0 * sure), axis=-1), np.zeros(200, dtype=int), members)
>>> scores = lira_each(shadows, fixed_variance=True)  # each model attacked with the others
>>> round(Roc(split(scores, members)).auc().value, 2)
0.84
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._lazy import lazy
from tacit.auditing.attacks.lira import lira, lira_each
from tacit.auditing.attacks.named_attacks import ATTACKS, Attack, find
from tacit.auditing.attacks.outputs import Outputs, Shadows, phi, split
from tacit.auditing.attacks.rmia import offline_correction, rmia, rmia_each
from tacit.auditing.attacks.roc import Bands, Measured, Pooled, Roc, allowed, pooled
from tacit.auditing.attacks.shadows import kept_shadows, train_shadows
from tacit.auditing.attacks.threshold_attacks import (
    calibrated,
    calibrated_each,
    confidence,
    entropy,
    loss_threshold,
    margin,
)

if TYPE_CHECKING:
    from tacit.auditing.attacks.classifier import shadow_classifier, shadow_classifier_each

__all__ = [
    "ATTACKS",
    "Attack",
    "Bands",
    "Measured",
    "Outputs",
    "Pooled",
    "Roc",
    "Shadows",
    "allowed",
    "calibrated",
    "calibrated_each",
    "confidence",
    "entropy",
    "find",
    "kept_shadows",
    "lira",
    "lira_each",
    "loss_threshold",
    "margin",
    "offline_correction",
    "phi",
    "pooled",
    "rmia",
    "rmia_each",
    "shadow_classifier",
    "shadow_classifier_each",
    "split",
    "train_shadows",
]

# Imported when first used: it alone needs PyTorch.
__getattr__, __dir__ = lazy(__name__)
