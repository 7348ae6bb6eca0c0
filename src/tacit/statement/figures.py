"""The numbers that follow from an event: computed again for every reader, never taken on trust."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, final

from tacit._numbers import compact, rounded_up
from tacit._validation import non_negative, open_probability, shown, text
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tacit.accounting import Interval
    from tacit.accounting.events import Adjacency, Event
    from tacit.accounting.exact.certificate import LaidCurve


DELTAS: Final = (1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
FALSE_POSITIVE_RATES: Final = (0.01, 0.001)
SMALLEST_DELTA: Final = 1e-10  # what μ covers, unless the claim's own δ is smaller
MOST_PARTS: Final = 256  # different releases of one statement: some seconds of work
_FEW_PARTS: Final = 20  # of which the whole curve is laid in good time
_SLOW: Final = 20  # how many others the slowest kind of release counts for
_SAMPLERS: Final = frozenset(
    {
        "PoissonSampled", "SampledWithoutReplacement", "SampledWithReplacement",
        "RandomAllocation", "PrivateSelection",
    }
)  # fmt: skip
LARGEST_EXPONENT: Final = 700.0  # e to more than this is no float
_SLACK: Final = 1e-6  # relative: what another build of SciPy may find for the same event
_WIDE: Final = (0.5, 0.1, 0.01)  # further δ about which the curve is to be sharp
# Events whose curve is laid in a tenth of a second. For the others it can take minutes, so that
# their figures are made from the one pair (ε, δ) that is claimed.
_SAMPLED: Final = frozenset({"Gaussian", "PureDp", "ApproxDp", "RandomizedResponse"})
_QUICK: Final = _SAMPLED | {
    "Laplace", "DiscreteGaussian", "DiscreteLaplace", "GaussianMixture", "PoissonSampled",
    "RandomAllocation", "Repeated", "Composed",
}  # fmt: skip


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What an event amounts to.

    Attributes:
        lower: The certified lower end of ε at the claim's δ; 0 if only the upper one is proved.
        upper: The certified upper end.
        two_sided: Whether both ends are proved.
        method: The argument that certifies them.
        curve: Pairs (δ, ε): the event has each of these guarantees.
        mu: The event is μ-GDP down to ``mu_smallest_delta``; None if no μ was found.
        mu_smallest_delta: Below this δ, μ says nothing.
        attack: Pairs of a false-positive rate and the largest true-positive rate that any attack
            on the presence of one unit can have with it.
        advantage: The largest difference of the two rates.
        attack_from: ``"curve"`` if these come from the whole curve, ``"pair"`` if from the pair
            (``upper``, δ) alone, which makes them larger than they need be.
        most: e^ε for ``upper``, the factor of the bound on anyone's expected utility.
        least: e^-ε.

    Guarantee:
        ``upper``, ``curve``, ``mu``, ``attack``, ``advantage`` and ``most`` are upper bounds for
        the event as stated, ``lower`` and ``least`` lower ones.
    """

    lower: float
    upper: float
    two_sided: bool
    method: str
    curve: tuple[tuple[float, float], ...]
    mu: float | None
    mu_smallest_delta: float
    attack: tuple[tuple[float, float], ...]
    advantage: float
    attack_from: str
    most: float
    least: float

    def as_dict(self) -> dict[str, Any]:
        """The figures in JSON's types; an infinite one is null."""
        plain = asdict(self)
        plain["curve"] = [{"delta": delta, "epsilon": epsilon} for delta, epsilon in self.curve]
        plain["attack"] = [
            {"false_positive_rate": false, "true_positive_rate": true}
            for false, true in self.attack
        ]
        found: dict[str, Any] = _finite(plain)
        return found


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if value == math.inf else value


def figures(event: Mapping[str, Any], delta: float, adjacency: Adjacency) -> Figures:
    """The figures of an event in JSON's types, at the claim's δ."""
    return _figures(json.dumps(event, allow_nan=False), delta, adjacency)


def bracket(event: Mapping[str, Any], delta: float, adjacency: Adjacency) -> Interval:
    """Certified ends of ε, as ``tacit.accounting.bounds`` has them."""
    return _bracket(json.dumps(event, allow_nan=False), delta, adjacency)


# Made, written and read again, a statement is proved several times over; the last few are kept.
@lru_cache(maxsize=32)
def _bracket(event: str, delta: float, adjacency: Adjacency) -> Interval:
    from tacit.accounting import bounds, from_json  # noqa: PLC0415 - SciPy only when it is asked

    given = from_json(event)
    check_work(given)
    return bounds(given, delta, adjacency)


def check_work(event: Event) -> None:
    """Refuses an event that takes too long to prove: a reader need not trust who wrote it."""
    from tacit.accounting.normal_form import parts  # noqa: PLC0415 - SciPy only when it is asked

    work = sum(_work(part) for part, _ in parts(event))
    if work > MOST_PARTS:
        raise InvalidArgument(
            f"event must have at most {MOST_PARTS} different parts (a sample of other than "
            f"Gaussian noise counts as {_SLOW}), got {work}; write releases that are alike as one "
            "Repeated event, or make several statements"
        )


def _work(part: Event) -> int:
    from tacit.accounting.events import Gaussian, GaussianMixture, PoissonSampled  # noqa: PLC0415

    kind = type(part).__name__
    if isinstance(part, Gaussian):
        return 0
    if isinstance(part, GaussianMixture):
        return len(part.shifts)
    slow = kind in _SAMPLERS and not isinstance(part, PoissonSampled)
    slow |= isinstance(part, PoissonSampled) and not isinstance(part.event, Gaussian)
    return _SLOW if slow else 1


@lru_cache(maxsize=32)
def _figures(event: str, delta: float, adjacency: Adjacency) -> Figures:
    found = _bracket(event, delta, adjacency)
    floor = min(SMALLEST_DELTA, delta)
    curve = _sketch(event, adjacency, floor)
    return Figures(
        lower=found.lower,
        upper=found.upper,
        two_sided=found.two_sided,
        method=found.method,
        curve=_points(curve, delta, found.upper),
        mu=None if curve is None else _mu(curve, floor),
        mu_smallest_delta=floor,
        attack=tuple(
            (rate, _true_positives(curve, rate, found.upper, delta))
            for rate in FALSE_POSITIVE_RATES
        ),
        advantage=_advantage(curve, found.upper, delta),
        attack_from="pair" if curve is None else "curve",
        most=math.exp(found.upper) if found.upper <= LARGEST_EXPONENT else math.inf,
        least=math.exp(-found.upper),
    )


def _sketch(event: str, adjacency: Adjacency, floor: float) -> LaidCurve | None:
    from tacit.accounting import from_json  # noqa: PLC0415 - SciPy only when it is asked
    from tacit.accounting.accountants.exact import sketch  # noqa: PLC0415
    from tacit.accounting.normal_form import parts  # noqa: PLC0415

    given = from_json(event)
    if not _is_quick(json.loads(event)) or sum(_work(one) for one, _ in parts(given)) > _FEW_PARTS:
        return None
    return sketch(given, adjacency, sorted({*_WIDE, *DELTAS, floor}))


def _is_quick(event: Any) -> bool:
    match event:
        case {"kind": "PoissonSampled", "event": {"kind": kind}}:
            return kind in _SAMPLED
        case {"kind": kind}:
            return kind in _QUICK and all(map(_is_quick, event.values()))
        case list():
            return all(map(_is_quick, event))
        case _:
            return True


def _points(curve: LaidCurve | None, own: float, upper: float) -> tuple[tuple[float, float], ...]:
    """Pairs (δ, ε), the largest δ first: the ε of a smaller δ serves for a larger one too."""
    if curve is None:
        return ((own, upper),)
    found: list[tuple[float, float]] = []
    for delta in sorted({*DELTAS, own}):
        epsilon = upper if delta == own else curve.epsilon(delta)
        found.append((delta, min(epsilon, found[-1][1]) if found else epsilon))
    return tuple(reversed(found))


def _mu(curve: LaidCurve, floor: float) -> float | None:
    """μ, unless the curve has no ε at ``floor`` or one that is out of a float's reach."""
    from tacit.accounting.curve import covering_mu  # noqa: PLC0415 - SciPy only when it is asked

    last = curve.epsilon(floor)
    return covering_mu(curve.delta, last) if last <= LARGEST_EXPONENT else None


def _true_positives(curve: LaidCurve | None, rate: float, epsilon: float, delta: float) -> float:
    """The largest true-positive rate at this false-positive rate.

    From one pair it is min{e^ε·α + δ, 1 - e^-ε(1 - δ - α)} (Kairouz, Oh & Viswanath 2015, Thm 2.1).
    """
    from tacit.accounting.curve import least_error  # noqa: PLC0415 - SciPy only when it is asked

    by_pair = 1.0
    if epsilon <= LARGEST_EXPONENT:
        by_pair = min(
            1.0,
            math.exp(epsilon) * rate + delta,
            1.0 - math.exp(-epsilon) * (1.0 - delta - rate),
        )
    if curve is None:
        return by_pair
    ends = (curve.epsilon(one) for one in (SMALLEST_DELTA, *reversed(DELTAS), *reversed(_WIDE)))
    last = next((end for end in ends if end < LARGEST_EXPONENT), LARGEST_EXPONENT)
    return min(by_pair, 1.0 - least_error(curve.delta, rate, last))


def _advantage(curve: LaidCurve | None, epsilon: float, delta: float) -> float:
    """δ(0), which for an (ε, δ) pair is at most (e^ε - 1 + 2δ)/(e^ε + 1)."""
    by_pair = math.tanh(0.5 * epsilon) + 2.0 * delta / (1.0 + math.exp(min(epsilon, 700.0)))
    return min(by_pair, 1.0 if curve is None else curve.delta(0.0))


def check_figures(written: object, computed: Mapping[str, Any]) -> None:
    """Refuses figures that are not those of the event."""
    if not isinstance(written, dict) or set(written) != set(computed):
        raise InvalidArgument(
            f"figures must have the fields {sorted(computed)}, got {shown(written)}"
        )
    for name, value in computed.items():
        if not _same(written[name], value):
            raise InvalidArgument(
                f"figures must be those of the event, whose {name} is {shown(value)}, "
                f"got {shown(written[name])}; make the statement again"
            )


def _same(written: Any, computed: Any) -> bool:
    if isinstance(computed, list):
        if not isinstance(written, list) or len(written) != len(computed):
            return False
        return all(_same(one, other) for one, other in zip(written, computed, strict=True))
    if isinstance(computed, dict):
        if not isinstance(written, dict) or set(written) != set(computed):
            return False
        return all(_same(written[name], value) for name, value in computed.items())
    if isinstance(computed, float) and type(written) in (int, float):
        return math.isclose(written, computed, rel_tol=_SLACK, abs_tol=1e-12)
    return type(written) is type(computed) and bool(written == computed)


# ---- an ε that depends on the data
#
# It says another thing than the claim, and is kept apart for that reason. The claim holds whatever
# the data are. This figure is read off what was released (ex-post privacy; Ligett et al. 2017):
# with other data, or other noise, it would be another one, as large as the claim perhaps. It
# depends on the data and so is itself a release: it may be published only with noise, the cost of
# which is in the claim's event, and noise makes it a bound with some probability only.


_EPSILON_SLACK: Final = 1e-9  # relative: what two builds of one accountant may differ by


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DataDependent:
    """An ε that was read off what was released; never the statement's claim.

    Args:
        epsilon: The ε.
        delta: The δ that goes with it, fixed beforehand.
        order: The Rényi order α at which the cost was released, chosen beforehand.
        divergence: The bound that is released on the Rényi divergence at that order of all
            releases, this one included.
        failure: The probability, over the noise of this release, that it is none; a part of δ.
        what: How it was found and released, in words.

    Guarantee:
        ``epsilon`` is no smaller than what ``divergence`` at ``order`` amounts to at what
        ``failure`` leaves of ``delta``. That the divergence was released as it should be is for
        whoever released it, as ``tacit.transfer.sanitised_cost`` does.

    >>> DataDependent(
    ...     epsilon=2.0, delta=1e-5, order=16.0, divergence=0.9, failure=1e-6, what="noisily",
    ... ).epsilon
    2.0
    """

    epsilon: float
    delta: float
    order: float
    divergence: float
    failure: float
    what: str

    def __post_init__(self) -> None:
        for name in ("epsilon", "order", "divergence"):
            object.__setattr__(self, name, non_negative(name, getattr(self, name)))
        for name in ("delta", "failure"):
            object.__setattr__(self, name, open_probability(name, getattr(self, name)))
        if self.order <= 1.0:
            raise InvalidArgument(f"order must be above 1, got {self.order!r}")
        if self.failure >= self.delta:
            raise InvalidArgument(
                f"failure must be below delta = {self.delta!r}, of which it is a part, "
                f"got {self.failure!r}"
            )
        if not isinstance(self.what, str) or not self.what.strip():
            raise InvalidArgument(f"what must say how the figure was found, got {shown(self.what)}")
        text("what", self.what)
        least = epsilon_of(self.divergence, self.order, self.delta - self.failure)
        if self.epsilon < least * (1.0 - _EPSILON_SLACK):
            raise InvalidArgument(
                f"epsilon must be at least the {rounded_up(least)} that a divergence of "
                f"{self.divergence!r} at order {self.order!r} amounts to, got {self.epsilon!r}"
            )

    def describe(self) -> str:
        """In words, with what it is not."""
        return (
            "Beside the claim, and dependent on the data: all that was released has "
            f"ε = {rounded_up(self.epsilon)} at δ = {compact(self.delta, 10)} (a δ of its own), an "
            "ε that is read off what was released. On other data, or with other noise, the same "
            f"run may have cost as much as the claim says. {self.what}."
        )


def epsilon_of(divergence: float, order: float, delta: float) -> float:
    """The ε at ``delta`` of a Rényi divergence at one order."""
    from tacit.accounting import RenyiCurve, epsilon  # noqa: PLC0415 - SciPy only when it is asked

    return epsilon(RenyiCurve((order,), (divergence,)), delta, accountant="rdp")


def data_dependent_of(value: object) -> DataDependent | None:
    """The figure from itself, or from the dictionary that JSON holds; None if there is none."""
    if value is None or isinstance(value, DataDependent):
        return value
    names = {"epsilon", "delta", "order", "divergence", "failure", "what"}
    if isinstance(value, dict) and set(value) == names:
        given: dict[str, Any] = value
        return DataDependent(**given)
    raise InvalidArgument(f"data_dependent must be a DataDependent or None, got {shown(value)}")
