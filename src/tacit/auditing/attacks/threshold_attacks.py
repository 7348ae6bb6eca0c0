"""Attacks that set one threshold for all examples.

Each gives one score for each example, higher where it believes in membership: the mean over the
example's views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from tacit.auditing.attacks.in_out_shadows import InOutShadows, left_out
from tacit.auditing.attacks.outputs import (
    check_same_examples,
    every_log_odds,
    log_probability,
    margins,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.attacks.in_out_shadows import ShadowSide
    from tacit.auditing.attacks.outputs import Outputs, Shadows


# ---- by the attacked model alone
#
# Each gives one score for each example, higher where it believes in membership: the mean over the
# example's views.


def loss_threshold(target: Outputs) -> NDArray[np.float64]:
    """Minus the cross-entropy loss: members have a small one (Yeom et al. 2018).

    >>> from tacit.auditing.attacks.outputs import Outputs
    >>> loss_threshold(Outputs([[0.0, 0.0], [4.0, 0.0]], [0, 0])).round(4).tolist()
    [-0.6931, -0.0181]
    """
    return np.asarray(log_probability(target).mean(axis=1))


def confidence(target: Outputs) -> NDArray[np.float64]:
    """How sure the model is of its own answer (Salem et al. 2019); no label is needed.

    The log-odds of the likeliest class, which do not round to the same number as a probability
    does.

    >>> from tacit.auditing.attacks.outputs import Outputs
    >>> confidence(Outputs([[0.0, 1.0], [4.0, 0.0]], [0, 0])).tolist()
    [1.0, 4.0]
    """
    return np.asarray(every_log_odds(target.logits).max(axis=-1).mean(axis=1))


def entropy(target: Outputs) -> NDArray[np.float64]:
    """Minus the modified entropy, which knows the label (Song & Mittal 2021).

    Mentr = -(1-p_y)·log p_y - Σ_{j≠y} p_j·log(1-p_j): 0 if the model is sure and right, and without
    bound if it is sure and wrong.

    >>> from tacit.auditing.attacks.outputs import Outputs
    >>> entropy(Outputs([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]], [0, 0, 0])).round(4).tolist()
    [-0.6931, -0.0, -40.0]
    """
    odds = every_log_odds(target.logits)
    likely, unlikely = -np.logaddexp(0.0, -odds), -np.logaddexp(0.0, odds)  # log p, log(1-p)
    terms = expit(odds) * unlikely
    given = target.labels[:, None, None]
    of_label = expit(-odds) * likely
    np.put_along_axis(terms, given, np.take_along_axis(of_label, given, axis=-1), axis=-1)
    return np.asarray(terms.sum(axis=-1).mean(axis=1))


def margin(target: Outputs) -> NDArray[np.float64]:
    """How far the label's logit lies above the largest of the others.

    >>> from tacit.auditing.attacks.outputs import Outputs
    >>> margin(Outputs([[2.0, 0.5, 1.0]], [0])).tolist()
    [1.0]
    """
    return np.asarray(margins(target).mean(axis=1))


# ---- the loss, less what is expected of so hard an example (Watson et al. 2022)


def calibrated(target: Outputs, shadows: Shadows) -> NDArray[np.float64]:
    """The target's log p_y, less its mean over shadow models not trained on the example.

    >>> import numpy as np
    >>> from tacit.auditing.attacks.outputs import Outputs, Shadows
    >>> shadows = Shadows([[[0.0, 0.0]], [[9.0, 0.0]]], [0], [[False], [True]])
    >>> calibrated(Outputs([[9.0, 0.0]], [0]), shadows).round(4).tolist()
    [0.693]
    """
    check_same_examples(target, shadows)
    sides = InOutShadows.of(log_probability(shadows), shadows.members)
    return _harder(log_probability(target), sides.outside)


def calibrated_each(shadows: Shadows) -> NDArray[np.float64]:
    """``calibrated`` with each of the models as target and the others as its shadows."""
    values, members = log_probability(shadows), shadows.members
    sides = InOutShadows.of(values, members)
    return np.stack(
        [
            _harder(values[index], sides.without(values[out], members[out]).outside)
            for index, out in enumerate(left_out(members))
        ]
    )


def _harder(values: NDArray[np.float64], outside: ShadowSide) -> NDArray[np.float64]:
    outside.needs(1, "not trained on", "train more shadow models")
    return np.asarray((values - outside.mean).mean(axis=1))
