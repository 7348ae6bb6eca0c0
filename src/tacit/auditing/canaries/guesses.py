"""From scores of canaries to guesses about them, and to the bounds of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tacit._validation import whole
from tacit.auditing.statistics.bound import failure_rate
from tacit.auditing.statistics.one_run import Guesses, one_run
from tacit.auditing.statistics.scores import ascending, nan_where_masked
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from tacit.auditing.statistics.bound import LowerBound


# Of all canaries. Which is best depends on the attack: few where it is sure of few.
_SHARES = (0.02, 0.05, 0.1, 0.2, 0.5)
_FEWEST = 8  # even if all are right, fewer guesses show next to nothing


def guess(scores: ArrayLike, included: ArrayLike, made: int) -> Guesses:
    """Guesses "in" for the highest scores and "out" for the lowest, half of ``made`` each.

    An odd one goes to "in". Equal scores are put in a random order, for the places of canaries may
    have been chosen by their coins. Scores that are all equal say nothing: of such guesses half
    count as right.

    >>> guess([0.1, 5.0, -3.0, 0.2], [False, True, False, True], made=2)
    Guesses(canaries=4, made=2, right=2)
    """
    values, coins = checked(scores, included)
    number = whole("made", made)
    if number > len(values):
        raise InvalidArgument(f"made must be at most the {len(values)} canaries, got {made!r}")
    if values.min() == values.max():  # every audit of that size would have the same order
        return Guesses(canaries=len(values), made=number, right=number // 2)
    order = ascending(values)
    low, high = number // 2, number - number // 2
    right = np.count_nonzero(coins[order[len(order) - high :]])
    right += np.count_nonzero(~coins[order[:low]])
    return Guesses(canaries=len(values), made=number, right=int(right))


def one_run_audit(
    scores: ArrayLike,
    included: ArrayLike,
    delta: float,
    confidence: float = 0.95,
    *,
    made: int | Sequence[int] | None = None,
    bound: Callable[[Guesses, float, float], LowerBound] = one_run,
) -> LowerBound:
    """The lower bound of one run, from an attack's score of each canary and the canaries' coins.

    Args:
        scores: One number for each canary, higher where the attack believes that it was in. They
            may depend on everything that the run released, and on nothing else.
        included: The coins: which canaries were in. Each was in with probability ½, independently.
        delta: The δ of the bound.
        confidence: How often the bound holds.
        made: How many canaries are guessed; it must not be chosen by looking at the coins. Given
            several numbers, or none (then 2, 5, 10, 20 and 50 % of the canaries), all are tried,
            each at its share of the failure rate, and the best is taken.
        bound: ``one_run``, or ``one_run_gaussian`` to test a Gaussian claim.

    Guarantee:
        As for ``bound``, whatever the scores are: canaries that disturb each other, or an attack
        that was made for this model, do no harm.

    >>> from tacit.auditing import one_run_gaussian
    >>> draw = np.random.default_rng(1)
    >>> included = draw.random(1000) < 0.5
    >>> scores = 3.0 * included + draw.normal(size=1000)
    >>> round(one_run_audit(scores, included, 1e-5, bound=one_run_gaussian).epsilon, 1)
    6.6
    """
    values, coins = checked(scores, included)
    tried = _numbers(made, len(values))
    each = 1.0 - failure_rate(confidence) / len(tried)
    bounds = [bound(guess(values, coins, number), delta, each) for number in tried]
    best = max(bounds, key=lambda one: one.epsilon)
    numbers = (*best.numbers, ("numbers_tried", float(len(tried))))
    return replace(best, confidence=confidence, numbers=numbers)


def checked(
    scores: ArrayLike, included: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Scores and coins, one of each for every canary."""
    values, coins = nan_where_masked(scores), np.asarray(included)
    if values.ndim != 1 or not len(values) or np.isnan(values).any():
        raise InvalidArgument(
            f"scores must be one number for each canary, no NaN and nothing masked, got shape "
            f"{values.shape} with {int(np.isnan(values).sum())} such"
        )
    if coins.dtype != np.bool_ or coins.shape != values.shape or np.ma.is_masked(included):
        raise InvalidArgument(
            f"included must be {len(values)} truth values, one for each score and none masked, got "
            f"{coins.dtype} of shape {coins.shape}"
        )
    return values, coins


def _numbers(made: int | Sequence[int] | None, canaries: int) -> list[int]:
    if made is None:
        return sorted({min(canaries, max(_FEWEST, round(share * canaries))) for share in _SHARES})
    several = list(made) if isinstance(made, Sequence) else [made]
    if not several:
        raise InvalidArgument("made must hold at least one number of guesses, got none")
    return several
