"""Quantiles of bounded records."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._validation import flag, positive, probability
from tacit.accounting.events import Exponential
from tacit.errors import InvalidArgument
from tacit.mechanisms._races import numbers_below, winner
from tacit.mechanisms._records import interval, numbers
from tacit.mechanisms.release import agreed, pure_amount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency
    from tacit.ledger import Budget
    from tacit.mechanisms.release import Released
    from tacit.randomness import Stream

    Integers = NDArray[np.int64]

_POINTS = 1 << 20
_MOST_POINTS = 1 << 40
_PARTS = 1 << 24  # a rank is counted in these parts of a record, so that it is a whole number


def quantile(
    values: Any,
    q: float,
    *,
    bounds: Sequence[float],
    step: float | None = None,
    skip_missing: bool = False,
    epsilon: float | None = None,
    rho: float | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "",
    stream: Stream | None = None,
) -> Released[float]:
    """A number below which about a share ``q`` of the records lies.

    The exponential mechanism over evenly spaced points between the bounds, scored by
    -abs((1-q)·(records below) - q·(records above)) (Smith 2011, there over the reals).

    Guarantee:
        Each record is one number. The release is that of ``event``: its range is bounded by the ε
        asked for. A record moves a score by max(q, 1-q) at most, and by 1 if it is replaced. Scores
        are whole numbers and the choice is exact. A record is read by itself and clipped to the
        bounds; one that is missing or no number counts as their middle, or, with ``skip_missing``,
        not at all. So under ``"zero-out"`` one that is blanked out is replaced by the middle, and
        only with ``skip_missing`` does it cost no more than to remove it. Nothing in the data is
        refused.

    Args:
        values: A 1-D array, list or pandas Series.
        q: From 0 to 1; 0.5 is the median. It is rounded to 24 binary digits.
        bounds: The public least and largest answer.
        step: The distance between possible answers, counted from the lower bound: 1 for whole
            numbers, say. Left out, it is 2⁻²⁰ of the bounds. Where many records are equal, a step
            that they lie on finds them.
        skip_missing: Whether a record that is missing or no number is left out.
        epsilon: The ε asked for.
        rho: The ρ of zCDP asked for, instead of ε.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``; a user is one record.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> quantile(np.arange(2_000) % 80, 0.5, bounds=(0, 120), step=1, epsilon=1,
    ...     stream=UnsafeSeededStream(0, "test")).value
    39.0
    """
    terms = agreed("quantile", adjacency, unit, budget, label, stream)
    share = round(probability("q", q) * _PARTS)
    lower, upper = interval("bounds", bounds)
    points = _points(upper - lower, step)
    width = upper - lower if step is None else step * points
    skip = flag("skip_missing", skip_missing)
    places = _placed(values, lower, width, points, skip)
    asked = pure_amount(epsilon, rho).pure_epsilon(per_rho=8.0)
    dropped = terms.adjacency == "add-remove" or (terms.adjacency == "zero-out" and skip)
    moved = max(share, _PARTS - share) if dropped else _PARTS
    grant = terms.charge(Exponential(asked, terms.adjacency))
    starts, sizes, scores = _regions(places, points, share)
    rate = Fraction(asked) / (2 * moved)
    chosen = winner(scores, rate, "gumbel", grant.stream, sizes)
    place = starts[chosen] + numbers_below(int(sizes[chosen]), 1, grant.stream)[0]
    return grant.release(float(min(upper, lower + width * (int(place) / points))))


def _points(width: float, step: float | None) -> int:
    """How many steps there are between the bounds."""
    if step is None:
        return _POINTS
    points = math.floor(width / positive("step", step) + 1e-9)
    if not 1 <= points <= _MOST_POINTS:
        raise InvalidArgument(
            f"step must divide the bounds into 1 to 2**40 parts, got {step!r} for {width!r}"
        )
    return points


def _placed(values: Any, lower: float, width: float, points: int, skip: bool = False) -> Integers:
    """The sorted places of the records among the points 0 … points, each by itself."""
    found = numbers("values", values)
    if found.ndim != 1:
        raise InvalidArgument(f"values must be one number per record, got {found.ndim} dimensions")
    if skip:
        found = found[~np.isnan(found)]
    with np.errstate(over="ignore"):
        along = (found - lower) / width
    along = np.where(np.isnan(along), 0.5, along)
    return np.sort(np.rint(np.clip(along, 0.0, 1.0) * points).astype(np.int64))


def _regions(places: Integers, points: int, share: int) -> tuple[Integers, Integers, Integers]:
    """Runs of points with equal scores: where each begins, its size and its score."""
    held, first = np.unique(places, return_index=True)
    # How many records lie at or below each held point.
    beyond = np.append(first[1:], len(places))[: len(held)]
    gaps = np.append(0, held + 1), np.append(held, points + 1)
    starts = np.concatenate([held, gaps[0]])
    sizes = np.concatenate([np.ones_like(held), gaps[1] - gaps[0]])
    below = np.concatenate([first, np.append(0, beyond)])
    above = np.concatenate([len(places) - beyond, len(places) - np.append(0, beyond)])
    scores = -np.abs((_PARTS - share) * below - share * above)
    kept = sizes > 0
    return starts[kept], sizes[kept], scores[kept]
