"""What a model's logits say of an example whose label is known.

All of it is computed in logarithms and in double precision: at a low false-positive rate an attack
decides by probabilities that are 1 to sixteen digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.attacks.outputs import Outputs, Shadows

    Numbers = NDArray[np.float64]


def phi(outputs: Outputs | Shadows) -> Numbers:
    """The log-odds of the label, z_y - log Σ_{j≠y} e^{z_j}: one for each example and view.

    Carlini et al. (2022): unlike a loss or a probability it is near Gaussian over
    models. For shadow models there is a first axis of models.

    >>> from tacit.auditing.attacks.outputs import Outputs
    >>> phi(Outputs([[3.0, 1.0], [0.0, 0.5]], [0, 0])).tolist()
    [[2.0], [-0.5]]
    """
    if outputs.logits.ndim == 3:
        return log_odds_of(outputs.logits, outputs.labels)
    # A model at a time: the logits of all of them in double precision may not fit.
    return np.stack([log_odds_of(one, outputs.labels) for one in outputs.logits])


def log_probability(outputs: Outputs | Shadows) -> Numbers:
    """The logarithm of p_y, minus the cross-entropy loss: of each example and view.

    >>> from tacit.auditing.attacks.outputs import Outputs
    >>> log_probability(Outputs([[0.0, 0.0]], [1])).round(4).tolist()
    [[-0.6931]]
    """
    return -np.logaddexp(0.0, -phi(outputs))


def probability(outputs: Outputs | Shadows) -> Numbers:
    """p_y of each example and view."""
    return np.asarray(expit(phi(outputs)))


def log_odds_of(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> Numbers:
    """The log-odds of these labels: logits (examples, views, classes) to (examples, views)."""
    given, rest = _parted(logits, labels)
    return given - _log_sum_exp(rest)


def every_log_odds(logits: NDArray[np.float32]) -> Numbers:
    """The log-odds of every class: of the shape of the logits.

    For the likeliest class the others are summed by themselves. Elsewhere the probability is ½ at
    most, and nothing cancels in 1 - p.
    """
    z = logits.astype(np.float64)
    likeliest = z.argmax(axis=-1)[..., None]
    log_p = z - _log_sum_exp(z)[..., None]
    odds = log_p - np.log1p(-np.minimum(np.exp(log_p), 0.5))
    rest = _without(z, likeliest)
    own = np.take_along_axis(z, likeliest, axis=-1) - _log_sum_exp(rest)[..., None]
    np.put_along_axis(odds, likeliest, own, axis=-1)
    return odds


def margins(outputs: Outputs) -> Numbers:
    """z_y - max_{j≠y} z_j of each example and view: below 0 where the model is wrong."""
    given, rest = _parted(outputs.logits, outputs.labels)
    return np.asarray(given - rest.max(axis=-1))


def _parted(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> tuple[Numbers, Numbers]:
    """The label's logit, and those of all other classes."""
    z = logits.astype(np.float64)
    classes = np.broadcast_to(labels[:, None, None], (*z.shape[:2], 1))
    return np.take_along_axis(z, classes, axis=-1)[..., 0], _without(z, classes)


def _without(values: Numbers, classes: NDArray[np.int64]) -> Numbers:
    """All but one class of each example and view."""
    kept = np.arange(values.shape[-1]) != classes
    return np.asarray(values[kept].reshape(*values.shape[:-1], values.shape[-1] - 1))


def _log_sum_exp(values: Numbers) -> Numbers:
    top = values.max(axis=-1)
    return np.asarray(top + np.log(np.exp(values - top[..., None]).sum(axis=-1)))
