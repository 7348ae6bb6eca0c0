"""Events: frozen values that say what was released about the data, and how it was randomised.

An event carries no behaviour. Accountants interpret events; one that does not know an event
refuses it. Noise is measured in units of the largest contribution of one record, so that adding
or removing a record moves the noiseless answer by at most 1, and replacing one moves it by at most
the event's ``replace_distance``: 2 for clipped gradients (from +v to -v), √2 for one-hot votes,
1 for binary votes.
"""

from __future__ import annotations

import math
from dataclasses import Field, dataclass, fields
from itertools import pairwise
from typing import Any, Literal, TypeAlias, get_args

from tacit._validation import non_negative, open_probability, positive, probability, shown, whole
from tacit.errors import InvalidArgument

Adjacency = Literal["add-remove", "replace-one", "zero-out"]
OneWay = Literal["add-only", "remove-only"]
"""One direction of add-remove. Remove-only: what the data's own release shows of a record in them,
against the release without it; add-only: the other way round."""
Neighbours: TypeAlias = Adjacency | OneWay


def check_adjacency(adjacency: str) -> Adjacency:
    """Returns ``adjacency`` if it is one that tacit knows."""
    for known in get_args(Adjacency):
        if adjacency == known:
            return known  # type: ignore[no-any-return]
    raise InvalidArgument(
        f"adjacency must be one of {', '.join(get_args(Adjacency))}, got {adjacency!r}"
    )


def check_neighbours(neighbours: str) -> Neighbours:
    """Returns ``neighbours`` if they are some that tacit knows."""
    for known in get_args(OneWay):
        if neighbours == known:
            return known  # type: ignore[no-any-return]
    return check_adjacency(neighbours)


LOST_MASS = 1e-14
"""What rounding loses of a law at most: more that it lacks of 1 is δ."""

LEAST_DELTA = 1e-300
"""The least δ but 0 that is asked for: below, numbers lose the digits that bounds rest on."""


def check_delta(delta: float) -> float:
    """Returns ``delta`` if it is 0, which asks for the pure ε, or up to 1 and not below all use."""
    number = probability("delta", delta)
    if 0.0 < number < LEAST_DELTA:
        raise InvalidArgument(
            f"delta must be 0, which asks for the pure ε, or at least {LEAST_DELTA}, got {delta!r}"
        )
    return number


def both_ways(neighbours: Neighbours) -> Adjacency:
    """The adjacency that covers ``neighbours``: add-remove for one of its directions.

    >>> both_ways("add-only"), both_ways("zero-out")
    ('add-remove', 'zero-out')
    """
    if neighbours == "add-only" or neighbours == "remove-only":  # noqa: PLR1714 (for mypy)
        return "add-remove"
    return neighbours


def distance(replace_distance: float, adjacency: Adjacency) -> float:
    """How far neighbours move an answer: ``replace_distance`` if a record is replaced, else 1.

    >>> distance(2.0, "replace-one"), distance(2.0, "zero-out")
    (2.0, 1.0)
    """
    return replace_distance if adjacency == "replace-one" else 1.0


def _normalise(event: object, /, **fields: object) -> None:
    for name, value in fields.items():
        object.__setattr__(event, name, value)


@dataclass(frozen=True)
class Gaussian:
    """Adds N(0, sigma²) to every coordinate of an answer whose L2 sensitivity is 1.

    >>> Gaussian(4)
    Gaussian(sigma=4.0, replace_distance=2.0)
    """

    sigma: float
    replace_distance: float = 2.0

    def __post_init__(self) -> None:
        _normalise(
            self,
            sigma=positive("sigma", self.sigma),
            replace_distance=positive("replace_distance", self.replace_distance),
        )


@dataclass(frozen=True)
class Laplace:
    """Adds Laplace noise of this scale to every coordinate of an answer of L1 sensitivity 1."""

    scale: float
    replace_distance: float = 2.0

    def __post_init__(self) -> None:
        _normalise(
            self,
            scale=positive("scale", self.scale),
            replace_distance=positive("replace_distance", self.replace_distance),
        )


@dataclass(frozen=True)
class DiscreteGaussian:
    """Adds an integer X with P(X = x) ∝ exp(-x²/2σ²) to one integer (Canonne et al. 2020, Def. 1).

    The lattice matters, so ``sigma`` is in the integers' own unit here and ``sensitivity`` says by
    how many of them a record can move the answer.
    """

    sigma: float
    sensitivity: int = 1
    replace_distance: float = 2.0

    def __post_init__(self) -> None:
        _normalise(self, sigma=positive("sigma", self.sigma))
        _normalise_lattice(self)


@dataclass(frozen=True)
class DiscreteLaplace:
    """Adds an integer X with P(X = x) ∝ exp(-|x|/scale) (the geometric mechanism) to one integer.

    As for ``DiscreteGaussian``, ``scale`` is in integers and ``sensitivity`` is how many of them a
    record can move the answer.
    """

    scale: float
    sensitivity: int = 1
    replace_distance: float = 2.0

    def __post_init__(self) -> None:
        _normalise(self, scale=positive("scale", self.scale))
        _normalise_lattice(self)


def _normalise_lattice(event: DiscreteGaussian | DiscreteLaplace) -> None:
    _normalise(
        event,
        sensitivity=whole("sensitivity", event.sensitivity),
        replace_distance=positive("replace_distance", event.replace_distance),
    )
    if not float(event.sensitivity * event.replace_distance).is_integer():
        raise InvalidArgument(
            "replace_distance times sensitivity must be a whole number on a lattice, "
            f"got {event.replace_distance!r} times {event.sensitivity!r}"
        )


def is_left_out(field: Field[Any], value: object) -> bool:
    """Whether a field of an event is not written: an adjacency not named, or a ξ of 0."""
    return field.name in ("adjacency", "xi") and bool(value == field.default)


def _repr_of_black_box(box: BlackBox | GaussianMixture) -> str:
    """The fields, without those that came later and hold their default."""
    shown = [
        f"{field.name}={getattr(box, field.name)!r}"
        for field in fields(box)
        if not is_left_out(field, getattr(box, field.name))
    ]
    return f"{type(box).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class GaussianMixture:
    """Adds N(0, sigma²) to an answer that a record (or a group) moves by a random public amount.

    It moves by ``shifts[j]`` with probability ``weights[j]``, so that the release is
    Σ_j weights[j]·N(shifts[j], sigma²) against N(0, sigma²). Poisson sampling of a Gaussian is the
    case of the shifts 0 and 1; a group of k sampled records has the shifts 0 to k. It describes
    adding or removing them (or zeroing them out, unless ``adjacency`` names the one); replacing
    them is another pair, and refused.
    """

    sigma: float
    weights: tuple[float, ...]
    shifts: tuple[float, ...]
    adjacency: Adjacency | None = None

    def __post_init__(self) -> None:
        weights = tuple(probability("weights", weight) for weight in self.weights)
        shifts = tuple(non_negative("shifts", shift) for shift in self.shifts)
        if not weights or len(weights) != len(shifts):
            raise InvalidArgument(
                f"weights and shifts must be equally many, got {len(weights)} and {len(shifts)}"
            )
        if abs(math.fsum(weights) - 1.0) > 1e-12:
            raise InvalidArgument(f"weights must add up to 1, got {math.fsum(weights)!r}")
        _normalise(self, sigma=positive("sigma", self.sigma), weights=weights, shifts=shifts)
        if self.adjacency is not None:
            _normalise(self, adjacency=check_adjacency(self.adjacency))

    def describes(self, adjacency: Adjacency) -> bool:
        """Whether neighbours under ``adjacency`` are what it is about."""
        return adjacency != "replace-one" and self.adjacency in (None, adjacency)

    __repr__ = _repr_of_black_box


@dataclass(frozen=True)
class RandomizedResponse:
    """Reports the true one of ``categories`` with ``probability``, else another one at random.

    Give either ``epsilon`` (the pure guarantee of one answer) or ``probability`` (of the truth);
    the other follows from e^ε = probability·(categories - 1)/(1 - probability).

    >>> RandomizedResponse(epsilon=0.1).probability
    0.52497918747894
    """

    epsilon: float | None = None
    probability: float | None = None
    categories: int = 2

    def __post_init__(self) -> None:
        categories = whole("categories", self.categories, at_least=2)
        others = categories - 1
        if (self.epsilon is None) == (self.probability is None):
            raise InvalidArgument(
                "RandomizedResponse needs either epsilon or probability, got "
                f"epsilon={self.epsilon!r} and probability={self.probability!r}"
            )
        if self.epsilon is not None:
            epsilon = non_negative("epsilon", self.epsilon)
        else:
            assert self.probability is not None
            truth = open_probability("probability", self.probability)
            epsilon = math.log(truth) + math.log(others) - math.log1p(-truth)
            if epsilon < 0.0:
                raise InvalidArgument(
                    f"probability must be at least 1/categories = {1 / categories:.6g}, "
                    f"got {truth!r}"
                )
        # Both fields are functions of epsilon alone, so that equal answers are equal values.
        truth = 1.0 / (1.0 + others * math.exp(-epsilon))
        _normalise(self, epsilon=epsilon, probability=truth, categories=categories)

    @property
    def loss(self) -> float:
        """The pure guarantee ε of one answer."""
        assert self.epsilon is not None
        return self.epsilon


@dataclass(frozen=True, repr=False)
class Exponential:
    """An ε-bounded-range choice: the exponential mechanism, that is, noisy max with Gumbel noise.

    Bounded range (Durfee & Rogers 2019): over all outcomes the privacy loss spans at most ε.
    Permute-and-flip does not have it, and for Laplace noise it is not claimed: ``NoisyMax`` knows.
    ``adjacency`` is as for ``PureDp``.
    """

    epsilon: float
    adjacency: Adjacency | None = None

    def __post_init__(self) -> None:
        _normalise(self, epsilon=non_negative("epsilon", self.epsilon))
        _normalise_black_box(self)

    __repr__ = _repr_of_black_box


@dataclass(frozen=True)
class NoisyMax:
    """Adds noise of this scale to each of several scores and releases which one is the largest.

    Only the winner is shown, not its noisy score. ``scale`` is in units of the most that a record
    moves one score when it is added or removed, and replacing it moves one by at most
    ``replace_distance``. Scores are ``monotone`` if a record moves none of them up while it moves
    another down, as counts do. Gumbel noise is the exponential mechanism, exponential noise is
    permute-and-flip (Ding et al. 2021).

    >>> NoisyMax(scale=2, noise="exponential", monotone=True)
    NoisyMax(scale=2.0, noise='exponential', monotone=True, replace_distance=2.0)
    """

    scale: float
    noise: Literal["laplace", "gumbel", "exponential"] = "gumbel"
    monotone: bool = False
    replace_distance: float = 2.0

    def __post_init__(self) -> None:
        _normalise(
            self,
            scale=positive("scale", self.scale),
            noise=_one_of("noise", self.noise, ("laplace", "gumbel", "exponential")),
            monotone=_flag("monotone", self.monotone),
            replace_distance=positive("replace_distance", self.replace_distance),
        )


@dataclass(frozen=True)
class AboveThreshold:
    """Says of each query whether it is above a noisy threshold, until ``cutoff`` of them are.

    The threshold's noise is drawn once, each query's afresh; both scales (σ for Gaussian noise) are
    in units of the most that a record moves one query. Queries may be chosen as the answers come.
    They are ``monotone`` if a record moves none of them up while it moves another down. ``length``
    is a public bound on the number of queries. Without one, Laplace noise still has its guarantee,
    and Gaussian noise has none. To draw a new threshold after each answer "above", repeat an
    event of cutoff 1.

    >>> AboveThreshold(threshold_scale=10, query_scale=20, cutoff=2).noise
    'laplace'
    """

    threshold_scale: float
    query_scale: float
    cutoff: int = 1
    noise: Literal["laplace", "gaussian"] = "laplace"
    monotone: bool = False
    length: int | None = None
    replace_distance: float = 2.0

    def __post_init__(self) -> None:
        _normalise(
            self,
            threshold_scale=positive("threshold_scale", self.threshold_scale),
            query_scale=positive("query_scale", self.query_scale),
            cutoff=whole("cutoff", self.cutoff),
            noise=_one_of("noise", self.noise, ("laplace", "gaussian")),
            monotone=_flag("monotone", self.monotone),
            length=None if self.length is None else whole("length", self.length),
            replace_distance=positive("replace_distance", self.replace_distance),
        )
        if self.noise == "gaussian" and self.length is None:
            raise InvalidArgument(
                "length must be given with Gaussian noise: its guarantee grows with the number of "
                "queries; give a bound, or take noise='laplace'"
            )


def _one_of(name: str, value: object, known: tuple[str, ...]) -> str:
    if value not in known:
        raise InvalidArgument(f"{name} must be one of {', '.join(known)}, got {value!r}")
    return str(value)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name} must be True or False, got {value!r}")
    return value


@dataclass(frozen=True, repr=False)
class PureDp:
    """Any ε-differentially private release; nothing else is known of it.

    Such a black box holds under an ``adjacency``, which matters where another one is asked about,
    and inside of a sampler. None stands for the one that is asked about. Under another one it is
    read as a pair of its own steps where that covers the neighbours, and refused where it does not
    (``tacit.accounting.black_boxes``).

    >>> PureDp(1.0), PureDp(1.0, adjacency="replace-one")
    (PureDp(epsilon=1.0), PureDp(epsilon=1.0, adjacency='replace-one'))
    """

    epsilon: float
    adjacency: Adjacency | None = None

    def __post_init__(self) -> None:
        _normalise(self, epsilon=non_negative("epsilon", self.epsilon))
        _normalise_black_box(self)

    __repr__ = _repr_of_black_box


@dataclass(frozen=True, repr=False)
class ApproxDp:
    """Any (ε, δ)-differentially private release; nothing else is known of it.

    ``adjacency`` is as for ``PureDp``.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency | None = None

    def __post_init__(self) -> None:
        _normalise(
            self,
            epsilon=non_negative("epsilon", self.epsilon),
            delta=probability("delta", self.delta),
        )
        _normalise_black_box(self)

    __repr__ = _repr_of_black_box


@dataclass(frozen=True, repr=False)
class ZeroConcentrated:
    """A (ξ, ρ)-zCDP release: Rényi divergence at most ξ + ρα for every order α > 1.

    ξ is 0 unless it is given (Bun & Steinke 2016). ``adjacency`` is as for ``PureDp``.

    >>> ZeroConcentrated(0.1), ZeroConcentrated(0.1, xi=0.5)
    (ZeroConcentrated(rho=0.1), ZeroConcentrated(rho=0.1, xi=0.5))
    """

    rho: float
    adjacency: Adjacency | None = None
    xi: float = 0.0

    def __post_init__(self) -> None:
        _normalise(self, rho=non_negative("rho", self.rho), xi=non_negative("xi", self.xi))
        _normalise_black_box(self)

    __repr__ = _repr_of_black_box


@dataclass(frozen=True, repr=False)
class TruncatedConcentrated:
    """A (ρ, ω)-tCDP release: Rényi divergence at most ρα for 1 < α < ω (Bun et al. 2018).

    ``adjacency`` is as for ``PureDp``.
    """

    rho: float
    omega: float
    adjacency: Adjacency | None = None

    def __post_init__(self) -> None:
        omega = positive("omega", self.omega)
        if omega <= 1.0:
            raise InvalidArgument(f"omega must be above 1, got {self.omega!r}")
        _normalise(self, rho=non_negative("rho", self.rho), omega=omega)
        _normalise_black_box(self)

    __repr__ = _repr_of_black_box


@dataclass(frozen=True, repr=False)
class RenyiCurve:
    """A release whose Rényi divergence at each of ``orders`` (all > 1) is at most its value.

    ``adjacency`` is as for ``PureDp``.
    """

    orders: tuple[float, ...]
    values: tuple[float, ...]
    adjacency: Adjacency | None = None

    def __post_init__(self) -> None:
        orders = tuple(positive("orders", order) for order in self.orders)
        values = tuple(non_negative("values", value) for value in self.values)
        if not orders or len(orders) != len(values):
            raise InvalidArgument(
                f"orders and values must be equally many, got {len(orders)} and {len(values)}"
            )
        if orders[0] <= 1.0 or any(a >= b for a, b in pairwise(orders)):
            raise InvalidArgument(f"orders must be above 1 and increasing, got {self.orders!r}")
        _normalise(self, orders=orders, values=values)
        _normalise_black_box(self)

    __repr__ = _repr_of_black_box


@dataclass(frozen=True, repr=False)
class LossDistribution:
    """A release given by a law of its privacy loss that bounds it (a PLD).

    On neighbours, its profile δ(ε) is nowhere above that of a pair (P, Q) whose loss ln P/Q is
    ``losses[j]`` with probability ``probabilities[j]`` under P, and infinite with ``infinite``.
    What they lack of 1 (up to 1e-9 may be missing) is infinite too, unless it is rounding.
    ``reverse`` is the same for the other direction, None if this law serves for both. ``adjacency``
    is as for ``PureDp``. ``tacit.accounting.exchange`` makes one of a δ(ε), a trade-off curve, two
    laws or another library's file.

    >>> LossDistribution((1.0, -1.0), (0.74, 0.26))
    LossDistribution(2 losses from -1 to 1, infinite=0.0)
    """

    losses: tuple[float, ...]
    probabilities: tuple[float, ...]
    infinite: float = 0.0
    reverse: LossDistribution | None = None
    adjacency: Adjacency | None = None

    def __post_init__(self) -> None:
        losses = tuple(map(float, self.losses))
        chances = tuple(probability("probabilities", one) for one in self.probabilities)
        infinite = probability("infinite", self.infinite)
        if not losses or len(losses) != len(chances):
            raise InvalidArgument(
                f"losses and probabilities must be equally many, got {len(losses)} and "
                f"{len(chances)}"
            )
        if not all(map(math.isfinite, losses)):
            raise InvalidArgument(
                "losses must be finite; infinite= is the chance of an infinite one"
            )
        missing = 1.0 - math.fsum((*chances, infinite))
        if abs(missing) > 1e-9:
            raise InvalidArgument(
                f"probabilities and infinite must add up to 1, got {1.0 - missing!r}"
            )
        if missing > LOST_MASS:
            infinite += missing
        under_q = math.fsum(
            one * math.exp(min(-loss, 700.0)) for one, loss in zip(chances, losses, strict=True)
        )
        if under_q > 1.0 + 1e-9:
            raise InvalidArgument(
                "probabilities must be those under P: Σ probability·exp(-loss), the mass of Q, "
                f"is at most 1, got {under_q!r}"
            )
        _normalise(self, losses=losses, probabilities=chances, infinite=infinite)
        _normalise_black_box(self)

    def __repr__(self) -> str:
        low, high = min(self.losses), max(self.losses)
        return (
            f"LossDistribution({len(self.losses)} losses from {low:.6g} to {high:.6g}, "
            f"infinite={self.infinite!r})"
        )


BlackBox: TypeAlias = (
    PureDp
    | ApproxDp
    | Exponential
    | ZeroConcentrated
    | TruncatedConcentrated
    | RenyiCurve
    | LossDistribution
)
"""Events that are a promise and no mechanism: what they hold under is part of the promise."""


def _normalise_black_box(box: BlackBox) -> None:
    if box.adjacency is not None:
        _normalise(box, adjacency=check_adjacency(box.adjacency))


@dataclass(frozen=True)
class PoissonSampled:
    """Runs ``event`` on a sample that holds each record independently with probability ``rate``.

    With ``cap`` a sample of more than ``cap`` records is cut down to ``cap`` of them at random
    (truncated Poisson); ``population``, a public bound on the number of records of both neighbours,
    is then needed too.
    """

    rate: float
    event: Event
    cap: int | None = None
    population: int | None = None

    def __post_init__(self) -> None:
        _normalise(self, rate=probability("rate", self.rate), event=check_event(self.event))
        if (self.cap is None) != (self.population is None):
            raise InvalidArgument(
                "cap and population go together, got "
                f"cap={self.cap!r} and population={self.population!r}"
            )
        if self.cap is not None and self.population is not None:
            _normalise(
                self,
                cap=whole("cap", self.cap),
                population=whole("population", self.population),
            )


@dataclass(frozen=True)
class SampledWithoutReplacement:
    """Runs ``event`` on ``size`` different records drawn uniformly from ``population``."""

    population: int
    size: int
    event: Event

    def __post_init__(self) -> None:
        _normalise_draw(self)
        if self.size > self.population:
            raise InvalidArgument(
                f"size must be at most population = {self.population}, got {self.size!r}"
            )


@dataclass(frozen=True)
class SampledWithReplacement:
    """Runs ``event`` on ``size`` independent uniform draws from ``population`` records."""

    population: int
    size: int
    event: Event

    def __post_init__(self) -> None:
        _normalise_draw(self)


def _normalise_draw(event: SampledWithoutReplacement | SampledWithReplacement) -> None:
    _normalise(
        event,
        population=whole("population", event.population),
        size=whole("size", event.size),
        event=check_event(event.event),
    )


@dataclass(frozen=True)
class RandomAllocation:
    """Runs ``event`` ``steps`` times an epoch; each record takes part in exactly one of them.

    Which one is drawn uniformly, for each record and each epoch by itself: an epoch is a pass over
    all records, in lots of random size ("balls in bins"). With ``visits`` = k a record takes part
    in k different steps of each epoch, whichever k.

    >>> RandomAllocation(steps=100, event=Gaussian(1), epochs=10).event
    Gaussian(sigma=1.0, replace_distance=2.0)
    """

    steps: int
    event: Event
    epochs: int = 1
    visits: int = 1

    def __post_init__(self) -> None:
        _normalise(
            self,
            steps=whole("steps", self.steps),
            event=check_event(self.event),
            epochs=whole("epochs", self.epochs),
            visits=whole("visits", self.visits),
        )
        if self.visits > self.steps:
            raise InvalidArgument(
                f"visits must be at most steps = {self.steps}, got {self.visits!r}"
            )


# How often a private selection runs its base is a random number, whose law is public. Were it
# fixed, the best of k runs would cost nearly k times one run, and were it chosen after looking at
# the runs, nothing would hold (Liu & Talwar 2019). The laws are those of Papernot & Steinke (2022).


@dataclass(frozen=True)
class TruncatedNegativeBinomial:
    """P(K = k) ∝ (1-γ)^k · Π_{l<k} (l + η)/(l + 1) for k = 1, 2, … (Papernot & Steinke, Def. 1).

    η = 1 is the geometric law and η = 0 the logarithmic one, P(K = k) ∝ (1-γ)^k/k. A smaller η
    costs less privacy for the same mean, and spreads the number of runs wider. At γ = 1 there is
    one run, and a selection from it costs what the run does.

    >>> TruncatedNegativeBinomial(eta=1, gamma=0.1).mean
    10.0
    """

    eta: float
    gamma: float

    def __post_init__(self) -> None:
        try:
            eta = float(self.eta)
        except (TypeError, ValueError):
            eta = math.nan
        if isinstance(self.eta, bool | str) or not -1.0 < eta < math.inf:
            raise InvalidArgument(f"eta must be a finite number above -1, got {self.eta!r}")
        object.__setattr__(self, "eta", eta)
        if self.gamma != 1.0:  # at 1 there is exactly one run
            open_probability("gamma", self.gamma)
        object.__setattr__(self, "gamma", float(self.gamma))

    @property
    def mean(self) -> float:
        """E[K], by the published formulas, kept from cancelling where η or 1-γ is small."""
        if self.gamma == 1.0:
            return 1.0
        log_gamma = math.log(self.gamma)
        scaled = self.eta * log_gamma
        share = 1.0 if scaled == 0.0 else abs(scaled) / -math.expm1(-abs(scaled))
        if scaled > 0.0:  # e^-scaled is taken out, which may underflow but never overflows
            share *= math.exp(-scaled)
        return max(1.0, share * (1.0 - self.gamma) / (self.gamma * -log_gamma))

    @staticmethod
    def with_mean(mean: float, eta: float = 0.0) -> TruncatedNegativeBinomial:
        """The law of this mean: γ is found by bisection and rounded so that E[K] ≤ ``mean``.

        >>> round(TruncatedNegativeBinomial.with_mean(10.0, eta=0.0).gamma, 6)
        0.026918
        """
        if positive("mean", mean) <= 1.0:
            raise InvalidArgument(f"mean must be above 1, got {mean!r}; at 1 there is no choice")
        low, high = math.log(1e-300), -1e-12
        if TruncatedNegativeBinomial(eta, math.exp(low)).mean < mean:
            raise InvalidArgument(f"mean must be within reach of eta={eta!r}, got {mean!r}")
        for _ in range(200):
            middle = 0.5 * (low + high)
            above = TruncatedNegativeBinomial(eta, math.exp(middle)).mean > mean
            low, high = (middle, high) if above else (low, middle)
        return TruncatedNegativeBinomial(eta, math.exp(high))


@dataclass(frozen=True)
class PoissonRuns:
    """K is Poisson with this mean; there may be no run at all, and then nothing is released.

    It spreads little, but costs more than the other law once mean times the base's advantage is
    large.
    """

    mean: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", positive("mean", self.mean))


Runs: TypeAlias = TruncatedNegativeBinomial | PoissonRuns


def check_runs(runs: Runs) -> Runs:
    """Returns ``runs`` if it is one of the two laws."""
    if not isinstance(runs, TruncatedNegativeBinomial | PoissonRuns):
        raise InvalidArgument(
            f"runs must be a TruncatedNegativeBinomial or PoissonRuns, got {runs!r}"
        )
    return runs


@dataclass(frozen=True)
class PrivateSelection:
    """Runs ``base`` a random number of times and releases only the best (Liu & Talwar 2019).

    "Best" is by a score that is part of each run's private output, or computed from it and public
    data. Each run may be of another candidate, drawn from a fixed public law; what all runs
    together may tell is then no more than ``base`` promises for any one of them.

    >>> PrivateSelection(Gaussian(4), PoissonRuns(10)).runs
    PoissonRuns(mean=10.0)
    """

    base: Event
    runs: Runs

    def __post_init__(self) -> None:
        _normalise(self, base=check_event(self.base), runs=check_runs(self.runs))


@dataclass(frozen=True)
class Repeated:
    """``times`` adaptively chosen releases, each no worse than ``event``."""

    event: Event
    times: int

    def __post_init__(self) -> None:
        _normalise(self, event=check_event(self.event), times=whole("times", self.times))


@dataclass(frozen=True, init=False)
class Composed:
    """All of ``events``, released one after the other; ``Composed()`` releases nothing.

    >>> Composed(Gaussian(1), PureDp(0.5)).events
    (Gaussian(sigma=1.0, replace_distance=2.0), PureDp(epsilon=0.5))
    """

    events: tuple[Event, ...]

    def __init__(self, *events: Event) -> None:
        object.__setattr__(self, "events", tuple(check_event(event) for event in events))

    def __repr__(self) -> str:
        return f"Composed({', '.join(map(repr, self.events))})"


Event: TypeAlias = (
    Gaussian
    | Laplace
    | DiscreteGaussian
    | DiscreteLaplace
    | GaussianMixture
    | RandomizedResponse
    | Exponential
    | NoisyMax
    | AboveThreshold
    | PureDp
    | ApproxDp
    | ZeroConcentrated
    | TruncatedConcentrated
    | RenyiCurve
    | LossDistribution
    | PoissonSampled
    | SampledWithoutReplacement
    | SampledWithReplacement
    | RandomAllocation
    | PrivateSelection
    | Repeated
    | Composed
)


_EVENT_TYPES = frozenset(get_args(Event))


def check_event(event: Event) -> Event:
    """Returns ``event`` if it is one of tacit's events."""
    if type(event) not in _EVENT_TYPES:
        raise InvalidArgument(
            f"event must be a tacit.accounting event, got {shown(event)}; a plan's is plan.event"
        )
    return event
