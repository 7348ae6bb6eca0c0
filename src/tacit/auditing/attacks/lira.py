"""LiRA, the likelihood-ratio attack (Carlini et al. 2022).

Over models, φ of an example is taken for Gaussian: with one mean and variance if the model was
trained on it, with another if not. Both are estimated from shadow models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit.auditing.attacks.in_out_shadows import InOutShadows, left_out
from tacit.auditing.attacks.outputs import check_same_examples, phi
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.attacks.in_out_shadows import ShadowSide
    from tacit.auditing.attacks.outputs import Outputs, Shadows

    Numbers = NDArray[np.float64]

_FLOOR = 1e-12  # of a variance: models that agree to the last digit must not divide by 0
_RIDGE = 1e-9  # of the mean variance: views that say the same have a singular covariance


def lira(
    target: Outputs,
    shadows: Shadows,
    *,
    online: bool = True,
    fixed_variance: bool = False,
    joint: bool = False,
) -> Numbers:
    """The log-likelihood ratio of each example's φ: trained on it, over not trained on it.

    Args:
        target: The attacked model's outputs.
        shadows: The shadow models' outputs on the same examples.
        online: Whether shadow models that were trained on the example are used. Without them
            (offline) the score is how many standard deviations φ lies above the models that were
            not: the paper's 1 - P(Z > φ), before the normal distribution function rounds it.
        fixed_variance: One variance for all examples instead of one for each. Better with fewer
            than some 64 models (as the paper finds): a variance of few values is far off.
        joint: How several views are put together: as independent, by the sum of their log ratios
            (the paper's code), or with their covariance (``True``).

    Returns:
        One score for each example, higher where it was rather a member.

    >>> from tacit.auditing.attacks import Outputs, Shadows
    >>> logits = [[[3.0, 0.0]], [[5.0, 0.0]], [[-1.0, 0.0]], [[1.0, 0.0]]]
    >>> shadows = Shadows(logits, [0], [[True], [True], [False], [False]])
    >>> lira(Outputs([[4.0, 0.0]], [0]), shadows).round(6).tolist()  # N(4, 2) over N(0, 2)
    [4.0]
    """
    check_same_examples(target, shadows)
    how = _How(online, fixed_variance, joint)
    return how.scores(phi(target), InOutShadows.of(phi(shadows), shadows.members))


def lira_each(
    shadows: Shadows, *, online: bool = True, fixed_variance: bool = False, joint: bool = False
) -> Numbers:
    """``lira`` with each of the models as target and the others as its shadows: a row for each.

    What the models have in common is computed once. A model that was trained on exactly the other
    examples is left out together with the target (``left_out`` says why).
    """
    how = _How(online, fixed_variance, joint)
    values, members = phi(shadows), shadows.members
    sides = InOutShadows.of(values, members)
    return np.stack(
        [
            how.scores(values[index], sides.without(values[out], members[out]))
            for index, out in enumerate(left_out(members))
        ]
    )


@dataclass(frozen=True)
class _How:
    online: bool
    fixed_variance: bool
    joint: bool

    def scores(self, values: Numbers, sides: InOutShadows) -> Numbers:
        least = 1 if self.fixed_variance else values.shape[1] + 1 if self.joint else 2
        remedy = "train more" if self.fixed_variance else "train more, or give fixed_variance=True"
        sides.outside.needs(least, "not trained on", remedy)
        if not self.online:
            return self._above(values, sides.outside)
        sides.inside.needs(least, "trained on", f"{remedy}; or give online=False")
        return self._log_density(values, sides.inside) - self._log_density(values, sides.outside)

    def _log_density(self, values: Numbers, side: ShadowSide) -> Numbers:
        """Of the side's Gaussian, but for the constant that all Gaussians have."""
        white = self._whitening(side)
        away = _applied(white, values - side.mean)
        scale = np.log(np.diagonal(white, axis1=1, axis2=2)).sum(axis=1)
        return np.asarray(scale - 0.5 * (away**2).sum(axis=1))

    def _above(self, values: Numbers, side: ShadowSide) -> Numbers:
        """How far above the mean: the best test of one and the same rise in all views."""
        white = self._whitening(side)
        rise = _applied(white, np.ones_like(values))
        along = (_applied(white, values - side.mean) * rise).sum(axis=1)
        return np.asarray(along / np.linalg.norm(rise, axis=1))

    def _whitening(self, side: ShadowSide) -> Numbers:
        """The inverse of a covariance's triangular root: (examples or 1, views, views)."""
        covariance = self._covariance(side)
        variances = np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 0.0) + _FLOOR
        views = np.eye(variances.shape[1])
        if not self.joint:
            return views / np.sqrt(variances)[:, :, None]
        ridge = _RIDGE * variances.mean(axis=1)[:, None, None] * views
        return np.asarray(np.linalg.inv(np.linalg.cholesky(covariance + ridge)))

    def _covariance(self, side: ShadowSide) -> Numbers:
        if not self.fixed_variance:
            return side.scatter / (side.count - 1.0)[:, None, None]
        freedom = float((side.count - 1.0).sum())
        if freedom <= 0.0:
            raise InvalidArgument(
                "shadows must be more models, for one a side has no variance: train more"
            )
        return np.asarray(side.scatter.sum(axis=0, keepdims=True) / freedom)


def _applied(matrices: Numbers, vectors: Numbers) -> Numbers:
    return np.asarray((matrices @ vectors[..., None])[..., 0])
