"""The loss, less what is to be expected of so hard an example (Watson et al. 2022)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tacit.auditing.attacks.outputs import check_same_examples
from tacit.auditing.attacks.sides import Sides, left_out
from tacit.auditing.attacks.signals import log_probability

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.attacks.outputs import Outputs, Shadows
    from tacit.auditing.attacks.sides import Side


def calibrated(target: Outputs, shadows: Shadows) -> NDArray[np.float64]:
    """The target's log p_y, less its mean over shadow models not trained on the example.

    >>> import numpy as np
    >>> from tacit.auditing.attacks.outputs import Outputs, Shadows
    >>> shadows = Shadows([[[0.0, 0.0]], [[9.0, 0.0]]], [0], [[False], [True]])
    >>> calibrated(Outputs([[9.0, 0.0]], [0]), shadows).round(4).tolist()
    [0.693]
    """
    check_same_examples(target, shadows)
    sides = Sides.of(log_probability(shadows), shadows.members)
    return _harder(log_probability(target), sides.outside)


def calibrated_each(shadows: Shadows) -> NDArray[np.float64]:
    """``calibrated`` with each of the models as target and the others as its shadows."""
    values, members = log_probability(shadows), shadows.members
    sides = Sides.of(values, members)
    return np.stack(
        [
            _harder(values[index], sides.without(values[out], members[out]).outside)
            for index, out in enumerate(left_out(members))
        ]
    )


def _harder(values: NDArray[np.float64], outside: Side) -> NDArray[np.float64]:
    outside.needs(1, "not trained on", "train more shadow models")
    return np.asarray((values - outside.mean).mean(axis=1))
