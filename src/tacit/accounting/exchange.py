"""Curves in and out: mechanisms given by what is known of them, and what other libraries read.

Each way in makes a ``LossDistribution``, an event like any other. It bounds the mechanism:

- **δ(ε) at some ε ≥ 0.** δ is convex in e^ε, so that between two points it lies below their chord,
  and past the last one it falls. A polygon in e^ε is the profile of a pair with one loss at each
  corner: Q's mass there is the change of slope, P's is e^ε times as much. What holds of both
  directions for ε ≥ 0 says what holds below: δ(-ε) ≤ 1 - e^{-ε}(1 - δ(ε)), the mirror image.
- **A trade-off curve** (f-DP): the least false-negative rate at some false-positive rates. It
  falls, so that between two rates it is at least its value at the second; the polygon below those
  corners is the trade-off curve of a pair with one loss on each of its sides.
- **Two laws**, of the outputs on one data set and on its neighbour: the loss of each output, or of
  each cell of outputs between whose ends the loss lies.
"""

from __future__ import annotations

import csv
import io
import json
import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._validation import non_negative, positive, probability
from tacit.accounting.accountants import exact
from tacit.accounting.curve import least_error, profile
from tacit.accounting.events import LOST_MASS, LossDistribution
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event, Neighbours

    Array = NDArray[np.float64]

_MOST_LOSS = 600.0
_MOST_POINTS = 200_000


def from_profile(
    epsilons: Sequence[float], deltas: Sequence[float], adjacency: Adjacency | None = None
) -> LossDistribution:
    """A release of which δ(``epsilons[i]``) ≤ ``deltas[i]`` is known, in both directions.

    Guarantee:
        Every mechanism that is (ε_i, δ_i)-private for all i is bounded by it, under composition
        too.

    >>> from tacit.accounting import delta
    >>> box = from_profile([0.0, 1.0, 2.0], [0.4, 0.1, 1e-6])
    >>> round(delta(box, 1.0), 9), round(delta(box, 5.0), 9)
    (0.1, 1e-06)
    """
    points = sorted(
        (non_negative("epsilons", one), probability("deltas", other))
        for one, other in _pairs("epsilons", epsilons, "deltas", deltas)
    )
    if points[-1][0] > _MOST_LOSS:
        raise InvalidArgument(f"epsilons must be at most {_MOST_LOSS:g}, got {points[-1][0]!r}")
    # The advantage δ(0) that each point allows: the chord between it and its mirror image.
    top = min(d + (1.0 - d) * math.tanh(0.5 * e) for e, d in points)
    corners = _lower_hull([(1.0, top), *((math.exp(e), d) for e, d in points if e > 0.0)])
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(corners)]
    kept = [(corner, slope) for corner, slope in zip(corners, slopes, strict=False) if slope < 0.0]
    infinite = corners[len(kept)][1]
    losses, p, q = [], [], []
    for i in range(1, len(kept) + 1):
        after = slopes[i] if i < len(kept) else 0.0
        losses.append(math.log(corners[i][0]))
        q.append(after - slopes[i - 1])
        p.append(corners[i][0] * q[-1])
    rest = max(0.0, 1.0 - infinite - math.fsum(p) - math.fsum(q))
    law = [*p, *q, rest]
    return _law([*losses, *(-loss for loss in losses), 0.0], law, infinite, adjacency)


def from_tradeoff(
    fpr: Sequence[float], fnr: Sequence[float], adjacency: Adjacency | None = None
) -> LossDistribution:
    """A release of which every attack with ``fpr[i]`` has at least ``fnr[i]``, in both directions.

    Guarantee:
        As for ``from_profile``: nothing is assumed of what lies between the points but that error
        rates fall. Give them densely, and down to small rates.

    >>> from tacit.accounting import delta
    >>> rates = [i / 1000 for i in range(1001)]
    >>> answer = from_tradeoff(rates, [max(0.0, 1 - 2 * rate, (1 - rate) / 2) for rate in rates])
    >>> round(delta(answer, 0.0), 3)
    0.334
    """
    points = sorted(
        (probability("fpr", one), probability("fnr", other))
        for one, other in _pairs("fpr", fpr, "fnr", fnr)
    )
    if points[-1][0] < 1.0:
        points.append((1.0, 0.0))
    starts = [0.0, *(rate for rate, _ in points if rate > 0.0)]
    heights = [error for rate, error in points if rate > 0.0]
    corners = _lower_hull([*zip(starts, heights, strict=False), (1.0, 0.0)])
    losses, p = [], []
    for (a, b), (c, d) in pairwise(corners):
        if b > d and c > a:
            losses.append(math.log((b - d) / (c - a)))
            p.append(b - d)
    return _law(losses, p, 1.0 - corners[0][1], adjacency)


def from_laws(
    p: Sequence[float],
    q: Sequence[float],
    lowest: Sequence[float] | None = None,
    highest: Sequence[float] | None = None,
    adjacency: Adjacency | None = None,
) -> LossDistribution:
    """A release whose outputs have the probabilities ``p`` on one data set and ``q`` on the other.

    For two densities, cut the outputs into cells: ``p`` and ``q`` are the cells' probabilities, and
    ln p/q lies between ``lowest`` and ``highest`` in each. A cell's mass is then put on its two
    ends so that both probabilities stay, which tells no less than the cell does.

    Guarantee:
        A bound on every pair of laws with these probabilities, in both directions.

    >>> from tacit.accounting import epsilon
    >>> round(epsilon(from_laws([0.75, 0.25], [0.25, 0.75]), 0), 12)
    1.098612288668
    """
    chances = [
        (probability("p", one), probability("q", other)) for one, other in _pairs("p", p, "q", q)
    ]
    for name, total in (("p", sum(one for one, _ in chances)), ("q", sum(q for _, q in chances))):
        if abs(total - 1.0) > 1e-9:
            raise InvalidArgument(f"{name} must add up to 1, got {total!r}")
    if (lowest is None) != (highest is None):
        raise InvalidArgument("lowest and highest go together: both bound the loss in each cell")
    ends: list[tuple[float, float] | None] = [None] * len(chances)
    if lowest is not None and highest is not None:
        ends = [*_pairs("lowest", lowest, "highest", highest)]
    forward, backward = _Atoms(), _Atoms()
    for (one, other), cell in zip(chances, ends, strict=True):
        low, high = cell if cell is not None else (_loss(one, other),) * 2
        forward.add(one, other, low, high)
        backward.add(other, one, -high, -low)
    reverse = _law(backward.losses, backward.masses, backward.infinite, adjacency)
    return _law(forward.losses, forward.masses, forward.infinite, adjacency, reverse)


def loss_distribution(
    event: Event,
    spacing: float = 1e-3,
    adjacency: Neighbours = "add-remove",
    smallest_delta: float = 1e-12,
) -> LossDistribution:
    """The law of a loss on multiples of ``spacing`` whose δ(ε) bounds that of ``event``.

    Guarantee:
        The law's δ(ε) is nowhere below the event's; what the event has below ``smallest_delta``
        counts as an infinite loss. It serves for both directions.

    >>> from tacit.accounting import Gaussian, delta
    >>> law = loss_distribution(Gaussian(2.0), spacing=0.01)
    >>> 1.0 < delta(law, 1.0) / delta(Gaussian(2.0), 1.0) < 1.001
    True
    """
    step = positive("spacing", spacing)
    last = profile(event, adjacency).epsilon(positive("smallest_delta", smallest_delta))
    if not last <= min(_MOST_LOSS, step * _MOST_POINTS):
        raise InvalidArgument(
            f"spacing must be larger, or smallest_delta: ε is {last:.6g} there, which takes more "
            f"than {_MOST_POINTS:,} losses of {step!r} or is above {_MOST_LOSS:g}"
        )
    places = [step * index for index in range(math.ceil(last / step) + 1)]
    delta = _curve_of(event, adjacency, smallest_delta)
    return from_profile(places, [delta(place) for place in places])


def to_dp_accounting(law: LossDistribution, spacing: float) -> dict[str, Any]:
    """Arguments of dp-accounting's ``PrivacyLossDistribution.create_from_rounded_probability``.

    Losses are rounded up to multiples of ``spacing``, as that library's pessimistic estimates are.
    The dictionary can be written as JSON; its mass function then has text for keys.

    >>> from tacit.accounting import Gaussian
    >>> law = loss_distribution(Gaussian(2.0), spacing=0.01)
    >>> sorted(to_dp_accounting(law, 0.01))[:2]
    ['infinity_mass', 'pessimistic_estimate']
    """
    found = {
        "rounded_probability_mass_function": _rounded(law, spacing),
        "infinity_mass": law.infinite,
        "value_discretization_interval": positive("spacing", spacing),
        "pessimistic_estimate": True,
    }
    if law.reverse is not None:
        found |= {
            "rounded_probability_mass_function_add": _rounded(law.reverse, spacing),
            "infinity_mass_add": law.reverse.infinite,
            "symmetric": False,
        }
    return found


def from_dp_accounting(
    given: Mapping[str, Any] | str, adjacency: Adjacency | None = None
) -> LossDistribution:
    """Reads what ``to_dp_accounting`` wrote, as a dictionary or as JSON.

    Guarantee:
        As good as what was written: a pessimistic estimate bounds its mechanism, and others are
        refused.
    """
    plain = json.loads(given) if isinstance(given, str) else given
    try:
        interval = positive("value_discretization_interval", plain["value_discretization_interval"])
        first = plain["rounded_probability_mass_function"], float(plain["infinity_mass"])
    except (KeyError, TypeError) as error:
        raise InvalidArgument(f"given must be as written by to_dp_accounting: {error}") from None
    if plain.get("pessimistic_estimate") is not True:
        raise InvalidArgument("pessimistic_estimate must be True: an optimistic one is no bound")
    reverse = None
    if "rounded_probability_mass_function_add" in plain:
        other = plain["rounded_probability_mass_function_add"]
        reverse = _read(other, float(plain["infinity_mass_add"]), interval, adjacency, None)
    return _read(*first, interval, adjacency, reverse)


def write_tradeoff(event: Event, fpr: Sequence[float], adjacency: Neighbours = "add-remove") -> str:
    """The least false-negative rate at each of ``fpr``, as CSV with a line ``fpr,fnr``.

    Guarantee:
        No attack on the event has less at these rates. Between them the curve is not a straight
        line: ``read_tradeoff`` allows for that.

    >>> from tacit.accounting import RandomizedResponse
    >>> write_tradeoff(RandomizedResponse(1.0), [0.0, 0.5]).splitlines()[0]
    'fpr,fnr'
    """
    curve = profile(event, adjacency)
    delta = _curve_of(event, adjacency, 1e-12)
    last = curve.epsilon(1e-12)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("fpr", "fnr"))
    for rate in fpr:
        level = probability("fpr", rate)
        writer.writerow((repr(level), repr(least_error(delta, level, min(last, 700.0)))))
    return text.getvalue()


def read_tradeoff(text: str, adjacency: Adjacency | None = None) -> LossDistribution:
    """The release of which ``text``, as written by ``write_tradeoff``, is known."""
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    if not rows or [name.strip() for name in rows[0]] != ["fpr", "fnr"]:
        raise InvalidArgument("text must be CSV whose first line is 'fpr,fnr'")
    try:
        points = [(float(one), float(other)) for one, other in rows[1:]]
    except ValueError as error:
        raise InvalidArgument(f"text must hold two numbers on every line: {error}") from None
    return from_tradeoff([one for one, _ in points], [other for _, other in points], adjacency)


# ---- what they share


def _pairs(
    name: str, ones: Sequence[float], other: str, others: Sequence[float]
) -> list[tuple[float, float]]:
    if len(ones) != len(others) or not len(ones):
        raise InvalidArgument(
            f"{name} and {other} must be equally many, got {len(ones)} and {len(others)}"
        )
    return [(float(one), float(two)) for one, two in zip(ones, others, strict=True)]


def _lower_hull(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The corners of the largest convex function below all points, by rising first coordinate."""
    lowest: dict[float, float] = {}
    for x, y in points:
        lowest[x] = min(y, lowest.get(x, math.inf))
    hull: list[tuple[float, float]] = []
    for x, y in sorted(lowest.items()):
        while len(hull) >= 2 and _is_above(hull[-2], hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    return hull


def _is_above(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Whether b lies on or above the chord from a to c."""
    return (b[1] - a[1]) / (b[0] - a[0]) >= (c[1] - b[1]) / (c[0] - b[0])


def _loss(p: float, q: float) -> float:
    if p == 0.0 or q == 0.0:
        return math.inf if p > 0.0 else -math.inf
    return math.log(p) - math.log(q)


class _Atoms:
    """P's masses by their loss, from cells of (P, Q) over which the loss varies."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.masses: list[float] = []
        self.infinite = 0.0

    def add(self, p: float, q: float, low: float, high: float) -> None:
        if p == 0.0:
            return
        if math.isinf(high) or not low <= high:
            self.infinite += p
            return
        share = 1.0
        if high > low:
            # So much at the upper end that P's and Q's masses both stay; rounded up.
            share = (p - q * math.exp(max(low, -700.0))) / (p * -math.expm1(low - high))
            share = min(1.0, max(0.0, share + 1e-12))
        self.losses += [high, low] if share < 1.0 else [high]
        self.masses += [share * p, (1.0 - share) * p] if share < 1.0 else [p]


def _law(
    losses: Sequence[float],
    masses: Sequence[float],
    infinite: float,
    adjacency: Adjacency | None,
    reverse: LossDistribution | None = None,
) -> LossDistribution:
    """The law with its rounding taken out; without any, that of infinite ones."""
    total = math.fsum(masses)
    if total == 0.0:
        return LossDistribution((0.0,), (0.0,), infinite, reverse, adjacency)
    # More than rounding is no mass to make up for: the event counts it as infinite, or refuses it.
    scale = (1.0 - infinite) / total if abs(1.0 - infinite - total) <= LOST_MASS else 1.0
    chances = tuple(min(1.0, mass * scale) for mass in masses)
    return LossDistribution(tuple(losses), chances, infinite, reverse, adjacency)


def _curve_of(
    event: Event, adjacency: Neighbours, smallest_delta: float
) -> Callable[[float], float]:
    """δ(ε) at many ε for little more than the price of one, or else one by one."""
    deltas = np.geomspace(smallest_delta, 0.5, 10).tolist()
    laid = exact.sketch(event, adjacency, deltas)
    return profile(event, adjacency).delta if laid is None else laid.delta


def _rounded(law: LossDistribution, spacing: float) -> dict[int, float]:
    found: dict[int, float] = {}
    for loss, mass in zip(law.losses, law.probabilities, strict=True):
        # A loss that is a multiple up to rounding stays where it is.
        index = math.ceil(loss / spacing - 1e-9)
        found[index] = found.get(index, 0.0) + mass
    return dict(sorted(found.items()))


def _read(
    masses: Mapping[str | int, float],
    infinite: float,
    interval: float,
    adjacency: Adjacency | None,
    reverse: LossDistribution | None,
) -> LossDistribution:
    losses = [int(index) * interval for index in masses]
    return _law(losses, [float(one) for one in masses.values()], infinite, adjacency, reverse)
