"""RMIA, the robust membership inference attack (Zarifzadeh, Liu & Shokri 2024).

The target is asked how much likelier it makes an example than models in general do, and how often
that is more than it does for a point of the population.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit._validation import positive
from tacit._validation import probability as in_unit_interval
from tacit.auditing.attacks.in_out_shadows import InOutShadows, left_out
from tacit.auditing.attacks.outputs import check_same_examples, probability, split
from tacit.auditing.attacks.roc import area
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tacit.auditing.attacks.outputs import Outputs, Shadows

    Numbers = NDArray[np.float64]

_LEAST = 1e-300  # of a probability: below it, ratios are 0 over 0
_ATTACKED = 8  # shadow models that a correction is tried on
_CANDIDATES = tuple(round(0.1 * step, 1) for step in range(11))


def rmia(
    target: Outputs,
    shadows: Shadows,
    population: ArrayLike | None = None,
    *,
    gamma: float = 1.0,
    online: bool = True,
    offline_a: float | None = None,
) -> Numbers:
    """The share of points z with [p(x|θ)/p(x)] / [p(z|θ)/p(z)] ≥ γ, for each example x.

    p(x|θ) is the probability of the label under the target, and p(x) that under models in general:
    half the mean over shadow models trained on x and half that over the others. Offline there are
    no models trained on x; their mean is taken for a·p_out + (1-a), so that p(x) = ½[(1+a)·p_out +
    (1-a)], the paper's linear correction. An example passes against z if more than half of its
    views do, and z is taken as it is (view 0).

    Args:
        target: The attacked model's outputs.
        shadows: The shadow models' outputs on the same examples.
        population: Which of the examples are the z: their places. Without it, all of them. Points
            that no shadow model was trained on may be among them.
        gamma: How much likelier x must be than z.
        online: Whether shadow models trained on the example are used.
        offline_a: The a of the offline form, 0 to 1. Without it, ``offline_correction`` finds one.

    Returns:
        One score for each example, from 0 to 1, higher where it was rather a member.

    >>> import numpy as np
    >>> from tacit.auditing.attacks import Outputs, Shadows
    >>> logits = np.zeros((2, 3, 2))  # the shadow models say ½ of everything
    >>> shadows = Shadows(logits, [0, 0, 0], [[True] * 3, [False] * 3])
    >>> rmia(Outputs([[3.0, 0.0], [1.0, 0.0], [0.0, 0.0]], [0, 0, 0]), shadows).round(3).tolist()
    [1.0, 0.667, 0.333]
    """
    check_same_examples(target, shadows)
    how = _How(
        _places(population, len(target)),
        positive("gamma", gamma),
        None if online else _correction(shadows, offline_a),
    )
    return how.scores(probability(target), InOutShadows.of(probability(shadows), shadows.members))


def rmia_each(
    shadows: Shadows,
    population: ArrayLike | None = None,
    *,
    gamma: float = 1.0,
    online: bool = True,
    offline_a: float | None = None,
) -> Numbers:
    """``rmia`` with each of the models as target and the others as its shadows: a row for each.

    Offline, an ``offline_a`` that is left out is found once with the members of all models, the
    targets' own among them: give one where scores are evidence about a target's coins
    (``one_run_audit``).
    """
    how = _How(
        _places(population, shadows.logits.shape[1]),
        positive("gamma", gamma),
        None if online else _correction(shadows, offline_a),
    )
    return how.each(shadows, range(len(shadows)))


def offline_correction(shadows: Shadows) -> float:
    """The a with which the offline attack is best at finding the shadow models' own members.

    As the paper does: models whose members are known are attacked with the others, and the a of the
    largest area under the curve is taken, out of 0, 0.1, …, 1.
    """
    attacked = range(min(_ATTACKED, len(shadows)))

    def found(a: float) -> float:
        scores = _How(None, 1.0, a).each(shadows, attacked)
        return area(split(scores, shadows.members[: len(attacked)])).value

    return max(_CANDIDATES, key=found)


@dataclass(frozen=True, eq=False)
class _How:
    population: NDArray[np.int64] | None
    gamma: float
    offline_a: float | None

    def each(self, shadows: Shadows, attacked: range) -> Numbers:
        values, members = probability(shadows), shadows.members
        sides, out = InOutShadows.of(values, members), left_out(members)
        return np.stack(
            [
                self.scores(values[one], sides.without(values[out[one]], members[out[one]]))
                for one in attacked
            ]
        )

    def scores(self, values: Numbers, sides: InOutShadows) -> Numbers:
        ratios = np.maximum(values, _LEAST) / np.maximum(self._general(sides), _LEAST)
        views = ratios.shape[1]
        # More than half of the views pass against z if the one just past the middle does.
        middle = np.sort(ratios, axis=1)[:, (views - 1) // 2]
        points = slice(None) if self.population is None else self.population
        against = np.sort(self.gamma * ratios[points, 0])
        return np.searchsorted(against, middle, side="right") / len(against)

    def _general(self, sides: InOutShadows) -> Numbers:
        """p(x): the probability under models in general, of each example and view."""
        sides.outside.needs(1, "not trained on", "train more shadow models")
        outside = sides.outside.mean
        if self.offline_a is not None:
            return 0.5 * ((1.0 + self.offline_a) * outside + (1.0 - self.offline_a))
        asked, inside = np.ones(len(outside), dtype=bool), sides.inside
        if self.population is not None:
            asked[self.population] = False
        if missing := int(np.count_nonzero(asked & (inside.count == 0.0))):
            raise InvalidArgument(
                f"shadows must have a model trained on each example, and {missing} of "
                f"{len(asked)} have none: train more, or give online=False"
            )
        # A point of the population may have been in no model's training set: p(z) is p_out(z).
        both = 0.5 * (inside.mean + outside)
        return np.where((inside.count == 0.0)[:, None], outside, both)


def _places(population: ArrayLike | None, examples: int) -> NDArray[np.int64] | None:
    if population is None:
        return None
    places = np.asarray(population)
    if places.dtype == np.bool_ and places.shape == (examples,):
        places = np.flatnonzero(places)
    if places.dtype.kind not in "iu" or places.ndim != 1 or not len(places):
        raise InvalidArgument(
            f"population must be the places of some examples, got {places.dtype} of shape "
            f"{places.shape}"
        )
    if places.min() < 0 or places.max() >= examples:
        raise InvalidArgument(
            f"population must lie from 0 to {examples - 1}, got {places.min()} to {places.max()}"
        )
    return places.astype(np.int64)


def _correction(shadows: Shadows, offline_a: float | None) -> float:
    if offline_a is None:
        return offline_correction(shadows)
    return in_unit_interval("offline_a", offline_a)
