"""Correlated noise: how a step's noise takes back some of what earlier steps' noise did.

A step's noise stays in the model, so that independent noise adds up like a random walk. Noise that
is correlated over the steps cancels in part, and protects every single step as before: what is
released is C⁻¹ of what a Gaussian mechanism with the strategy matrix C would release.

| value | what it is | memory |
|---|---|---|
| ``Banded`` | BandMF: C has b bands (2306.08153, 2405.15913) | b - 1 tensors of noise |
| ``InverseBanded`` | BISR, BandInvMF: C⁻¹ has b bands (2505.12128) | none: replayed |
| ``Buffered`` | BLT: C⁻¹ is a few decaying averages (2404.16706) | a tensor each |
| ``Anticorrelated`` | λCGD: z_t - λ·z_{t-1} (2601.22334) | none: replayed |

``Banded`` goes with Poisson lots, from b groups of records that take turns; all of them go with
``Cyclic()`` lots, whole groups, where nothing is gained by sampling.

Coefficients are those of least error in the model for SGD with a ``momentum`` and a ``schedule`` of
learning rates, unless they are given. Adam divides by the noise of a single step, of which there is
far more than stays: with the same coefficients it needs a rate that is larger in proportion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias, final, get_args

from tacit._validation import probability, whole
from tacit.accounting.events import Composed, Event, Gaussian, PoissonSampled, Repeated
from tacit.accounting.factorization import (
    FixedEpochs,
    buffered_coefficients,
    column_norms,
    inverse_coefficients,
    inverse_sensitivity,
    normalised_sensitivity,
)
from tacit.accounting.strategies import Schedule, Workload
from tacit.errors import InvalidArgument
from tacit.training.sampling import Allocation, Poisson, TruncatedPoisson
from tacit.training.styles import AdaptiveQuantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tacit.training.plan import Plan

_MOST_BANDS, _MOST_BUFFERS = 1024, 10
_FOUND = {"coefficients", "scales", "decays", "share"}  # by an optimiser, where they are not given
_MOST_ECHO = 64.0  # of what is fed back, in units of a step's own noise: 6 of float32's 24 bits
DIGITS = 1e-6  # what it finds differs by far less from one machine to another


@final
@dataclass(frozen=True, slots=True)
class Banded:
    """A strategy of ``bands`` bands whose columns have norm 1; it feeds back the last steps' noise.

    With Poisson lots, records are dealt into as many groups as there are bands, once and for all,
    and the groups take turns. With ``bands="auto"`` there are as many as ``coefficients``; where
    these are left out, ``Plan.for_budget`` chooses.

    >>> Banded(4).momentum
    0.0
    """

    bands: int | Literal["auto"] = "auto"
    momentum: float = 0.0
    schedule: Schedule = "constant"
    coefficients: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        Workload(self.momentum, self.schedule)
        if self.bands != "auto":
            object.__setattr__(self, "bands", _bands(self.bands))
        given = _numbers("coefficients", self.coefficients, self.bands)
        if given is not None:
            object.__setattr__(self, "bands", _bands(len(given)))
        if given is not None and given[0] != 1.0:
            raise InvalidArgument(f"coefficients must begin with 1, got {given[0]!r}")
        object.__setattr__(self, "coefficients", given)


@final
@dataclass(frozen=True, slots=True)
class InverseBanded:
    """A strategy whose inverse has ``bands`` bands; it replays the noise of the last steps."""

    bands: int
    momentum: float = 0.0
    schedule: Schedule = "constant"
    coefficients: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        Workload(self.momentum, self.schedule)
        object.__setattr__(self, "bands", _bands(self.bands))
        given = _numbers("coefficients", self.coefficients, self.bands)
        if given is not None and (given[0] != 1.0 or max(given[1:]) > 0.0):
            raise InvalidArgument(
                f"coefficients must be 1 and then none above 0, got {self.coefficients!r}"
            )
        object.__setattr__(self, "coefficients", given)


@final
@dataclass(frozen=True, slots=True)
class Buffered:
    """A strategy whose inverse is at most ``buffers`` decaying averages of the noise so far."""

    buffers: int = 4
    momentum: float = 0.0
    schedule: Schedule = "constant"
    scales: tuple[float, ...] | None = None
    decays: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        Workload(self.momentum, self.schedule)
        if whole("buffers", self.buffers) > _MOST_BUFFERS:
            raise InvalidArgument(f"buffers must be at most {_MOST_BUFFERS}, got {self.buffers!r}")
        scales = _numbers("scales", self.scales, None)
        decays = _numbers("decays", self.decays, None if scales is None else len(scales))
        if (scales is None) != (decays is None) or len(scales or ()) > self.buffers:
            raise InvalidArgument(
                f"scales and decays must be given together, at most {self.buffers} of each, got "
                f"{self.scales!r} and {self.decays!r}"
            )
        within = decays is None or 0.0 < min(decays) <= max(decays) < 1.0
        if not within or max(scales or (0.0,)) > 0.0:
            raise InvalidArgument(
                f"scales must be at most 0 and decays between 0 and 1, got {scales}, {decays}"
            )
        object.__setattr__(self, "scales", scales)
        object.__setattr__(self, "decays", decays)


@final
@dataclass(frozen=True, slots=True)
class Anticorrelated:
    """Noise z_t - ``share``·z_{t-1}: a share of the last step's noise is taken back."""

    share: float | None = None
    momentum: float = 0.0
    schedule: Schedule = "constant"

    def __post_init__(self) -> None:
        Workload(self.momentum, self.schedule)
        if self.share is not None and probability("share", self.share) >= 1.0:
            raise InvalidArgument(f"share must be below 1, got {self.share!r}")


Correlation: TypeAlias = Banded | InverseBanded | Buffered | Anticorrelated


def _bands(bands: object) -> int:
    count = whole("bands", bands, at_least=2)  # type: ignore[arg-type]
    if count > _MOST_BANDS:
        raise InvalidArgument(f"bands must be at most {_MOST_BANDS}, got {bands!r}")
    return count


def _numbers(name: str, given: object, count: object) -> tuple[float, ...] | None:
    """Finite numbers, as many as ``count`` if that is a number."""
    if given is None:
        return None
    try:
        found = tuple(float(one) for one in given)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        found = ()
    right = len(found) == count if isinstance(count, int) else bool(found)
    if not right or not all(map(math.isfinite, found)):
        many = count if isinstance(count, int) else "some"
        raise InvalidArgument(f"{name} must be {many} finite numbers, got {given!r}")
    return found


# ---- for a run: coefficients, sensitivity and error


def completed(correlation: Correlation, steps: int, groups: int) -> Correlation:
    """The same with coefficients of least error for ``steps`` steps, where none are given.

    A record takes part in every ``groups``-th step.
    """
    from tacit.accounting import strategies  # noqa: PLC0415 - SciPy only when it is asked

    workload = workload_of(correlation)
    match correlation:
        case Banded(bands=int(bands), coefficients=None):
            return replace(correlation, coefficients=strategies.banded(steps, bands, workload))
        case InverseBanded(bands=bands, coefficients=None):
            found = strategies.inverse_banded(steps, bands, groups, workload)
            return replace(correlation, coefficients=found)
        case Buffered(buffers=buffers, scales=None):
            scales, decays = strategies.buffered(steps, buffers, groups, workload)
            return replace(correlation, scales=scales, decays=decays)
        case Anticorrelated(share=None):
            return replace(correlation, share=strategies.anticorrelated(steps, groups, workload))
        case _:
            return correlation


def as_before(found: Correlation | None, before: Correlation | None) -> Correlation | None:
    """``before`` if only the last digits of what an optimiser found are others, else ``found``.

    >>> as_before(Anticorrelated(0.5), Anticorrelated(0.5 + 1e-12)).share
    0.500000000001
    """
    if found is None or type(found) is not type(before):
        return found
    for one in fields(found):
        mine, theirs = getattr(found, one.name), getattr(before, one.name)
        if mine != theirs and not (one.name in _FOUND and _close(mine, theirs)):
            return found
    return before


def _close(mine: object, theirs: object) -> bool:
    """Whether two numbers, or two tuples of them, differ in digits alone."""
    if isinstance(mine, tuple) and isinstance(theirs, tuple):
        return len(mine) == len(theirs) and all(
            _close(one, other) for one, other in zip(mine, theirs, strict=True)
        )
    both = isinstance(mine, float) and isinstance(theirs, float)
    return both and abs(mine - theirs) <= DIGITS  # type: ignore[operator]


def workload_of(correlation: Correlation) -> Workload:
    """What the coefficients are optimised for."""
    return Workload(correlation.momentum, correlation.schedule)


@final
@dataclass(frozen=True, slots=True)
class Course:
    """A completed correlation over a run: what is added to every step, and what it comes to.

    A step's noise is ``gain`` times the strategy's inverse applied to the noise so far, or, for
    ``Banded``, that times the norm of its column. ``sensitivity`` is that of all participations of
    a record together, in units of one participation, and an upper bound. ``reach`` is the sum of
    the strategy's coefficients before they are divided by ``gain``, or, for ``Banded``, the norm of
    those of its inverse.
    """

    correlation: Correlation
    steps: int
    gain: float
    sensitivity: float
    reach: float

    def norms(self) -> list[float]:
        """For ``Banded``, the norms of columns of 1, 2, … bands."""
        assert isinstance(self.correlation, Banded)
        assert self.correlation.coefficients is not None
        return column_norms(self.correlation.coefficients)

    def error(self) -> float:
        """The mean squared error of the models of a run, for noise of variance 1."""
        from tacit.accounting import strategies  # noqa: PLC0415

        workload = workload_of(self.correlation)
        if isinstance(self.correlation, Banded):
            assert self.correlation.coefficients is not None
            of_column = self._column_norms()
            return strategies.normalised_error(self.correlation.coefficients, of_column, workload)
        inverse = mixed(self.correlation, self.steps)
        return self.gain**2 * strategies.mean_squared_error(inverse, workload)

    def step_noise(self) -> float:
        """The size of a single step's noise, its root mean square, for noise of variance 1."""
        import numpy as np  # noqa: PLC0415

        if isinstance(self.correlation, Banded):
            assert self.correlation.coefficients is not None
            sizes = self._column_norms()
            inverse = inverse_coefficients(self.correlation.coefficients, self.steps)
        else:
            sizes = np.full(self.steps, self.gain)
            inverse = mixed(self.correlation, self.steps)
        return float(np.sqrt((np.square(sizes) * np.cumsum(np.square(inverse))).mean()))

    def _column_norms(self) -> NDArray[np.float64]:
        """For ``Banded``, the norm of every step's column."""
        import numpy as np  # noqa: PLC0415

        norms = np.array(self.norms())
        found: NDArray[np.float64] = norms[
            np.minimum(len(norms), self.steps - np.arange(self.steps)) - 1
        ]
        return found


@lru_cache(maxsize=64)
def course(correlation: Correlation, steps: int, groups: int) -> Course:
    """What a completed correlation comes to over ``steps`` steps.

    >>> banded = completed(Banded(4), 100, 4)
    >>> round(course(banded, 100, 4).sensitivity ** 2, 9)
    25.0
    """
    apart = FixedEpochs(groups)
    match correlation:
        case Banded(coefficients=tuple(own)):
            found = normalised_sensitivity(own, steps, apart)
            inverse = _checked_inverse(own, steps)
            return Course(correlation, steps, 1.0, found.value, math.hypot(*inverse.tolist()))
        case Buffered(scales=tuple(scales), decays=tuple(decays)):
            strategy, terms = buffered_coefficients(scales, decays, steps), 2 * len(scales)
        case InverseBanded(coefficients=tuple(own)):
            strategy, terms = inverse_coefficients(own, steps), len(own)
        case Anticorrelated(share=float(share)):
            strategy, terms = inverse_coefficients([1.0, -share], steps), 2
        case _:
            raise InvalidArgument(f"correlation must have its coefficients, got {correlation!r}")
    comes_to = inverse_sensitivity(strategy, apart, terms=terms)
    reach = math.fsum(strategy.tolist())
    return Course(correlation, steps, comes_to.norm, comes_to.sensitivity, reach)


def _checked_inverse(coefficients: Sequence[float], steps: int) -> NDArray[np.float64]:
    """The coefficients of C⁻¹, which say how much of earlier noise a step's has; not too much.

    Noise that grows soon rounds a step's own numbers away in floating point: all of it is then what
    earlier steps have shown.
    """
    inverse = inverse_coefficients(coefficients, steps)
    if not abs(inverse).max() <= _MOST_ECHO:
        raise InvalidArgument(
            f"correlation must have coefficients whose noise does not grow over the {steps} steps, "
            f"got some whose inverse has {abs(inverse).max():.3g}; leave them out"
        )
    return inverse


@final
@dataclass(frozen=True, slots=True)
class Rounding:
    """What it costs that every step's noise is rounded to whole numbers (`CorrelatedIntegers`).

    There, sums that differ by D stand for independent noise that differs by E. Of a ``Banded``
    strategy, a participation is followed by at most bands - 1 steps with an r_t: together they add
    √(bands - 1) times the size of one r_t to a norm of 1. Of others E = T(D + r), and the norm of T
    is at most the sum of its coefficients: times √steps that is what r adds to the sensitivity of
    the whole run. So E is no larger than if every participation moved the sum by
    ``excess``·√entries steps of the grid more. E_t depends on what was released before; a shift
    that does is worth no more than a fixed one as long. Filled up to that length, its logarithm of
    the likelihood ratio is a martingale with normal steps whose variances add up to a constant, so
    that it is normal, with or without the record's coin.

    Attributes:
        spill: How far roundings of one entry add up, relative to a participation's sensitivity.
        inexact: The error of float64 in units of the noise's scale.
        peak: The largest scale that is drawn, in the same units.
    """

    spill: float
    inexact: float
    peak: float

    def excess(self, scale: float) -> float:
        """How many steps of the grid, times √entries, a participation's sensitivity grows by."""
        return self.spill * (1.0 + 2.0 * self.inexact * scale)


def rounding_of(comes_to: Course) -> Rounding:
    """What rounding costs over a course."""
    unit = 2.0**-53 * 128.0  # float64's, times 64 standard deviations and what roundings add
    correlation, gain = comes_to.correlation, comes_to.gain
    if isinstance(correlation, Banded):
        assert correlation.coefficients is not None
        bands, norm = len(correlation.coefficients), max(comes_to.norms())
        weight = math.fsum(map(abs, correlation.coefficients[1:]))
        inexact = unit * (bands + 2) * weight * norm * comes_to.reach
        return Rounding(math.sqrt(bands - 1), inexact, norm)
    if isinstance(correlation, Buffered):
        assert correlation.scales is not None
        assert correlation.decays is not None
        pairs = zip(correlation.scales, correlation.decays, strict=True)
        # An average of decay λ is at most 1/√(1-λ²) as wide; its own error lasts 1/(1-λ) steps.
        lasting = math.fsum(
            -w / math.sqrt(1.0 - d * d) * (2.0 / (1.0 - d) + len(correlation.scales) + 2)
            for w, d in pairs
        )
        inexact = unit * gain * lasting
    else:
        own = weights(correlation)
        inexact = unit * gain * (len(own) + 2) * math.fsum(map(abs, own[1:]))
    spill = comes_to.reach * math.sqrt(comes_to.steps) / (gain * comes_to.sensitivity)
    return Rounding(spill * (1.0 + 1e-9), inexact, gain)


def mixed(correlation: Correlation, steps: int) -> NDArray[np.float64]:
    """The coefficients of C⁻¹ for what is not ``Banded``: how much of which step is mixed in."""
    import numpy as np  # noqa: PLC0415

    from tacit.accounting import strategies  # noqa: PLC0415

    if isinstance(correlation, Buffered):
        assert correlation.scales is not None
        assert correlation.decays is not None
        scales, decays = np.array(correlation.scales), np.array(correlation.decays)
        return strategies.series(scales, decays, steps)
    own = weights(correlation)[:steps]
    return np.concatenate([own, np.zeros(steps - len(own))])


def weights(correlation: Correlation) -> Sequence[float]:
    """The bands of C⁻¹, for a correlation that has few."""
    if isinstance(correlation, Anticorrelated):
        assert correlation.share is not None
        return (1.0, -correlation.share)
    assert isinstance(correlation, InverseBanded)
    assert correlation.coefficients is not None
    return correlation.coefficients


# ---- in a plan: what it goes with, and what is released


def is_open(correlation: Correlation | None) -> bool:
    """Whether the number of bands is still to be chosen."""
    return isinstance(correlation, Banded) and correlation.bands == "auto"


def check_correlated(plan: Plan) -> None:
    """Refuses what no theorem covers, or what is not built."""
    correlation = plan.correlation
    if not isinstance(correlation, get_args(Correlation)):
        raise InvalidArgument(
            f"correlation must be a value such as tacit.Banded(8), got {correlation!r}"
        )
    if is_open(correlation):
        raise InvalidArgument(
            "correlation.bands must be a number, got 'auto'; Plan.for_budget chooses one"
        )
    if isinstance(plan.clipping, AdaptiveQuantile):
        raise InvalidArgument(
            "clipping must have a fixed clip with correlated noise, got AdaptiveQuantile, whose "
            "noise would change from step to step and no longer take back what was added before; "
            "take another style, or leave correlation out"
        )
    if isinstance(plan.sampling, TruncatedPoisson | Allocation):
        raise InvalidArgument(
            "sampling must be Poisson(), Cyclic() or FullBatch() with correlated noise, got "
            f"{plan.sampling!r}"
        )
    if not isinstance(plan.sampling, Poisson):
        return
    if not isinstance(correlation, Banded):
        raise InvalidArgument(
            f"sampling=Poisson() needs tacit.Banded, got {type(correlation).__name__}, whose steps "
            "all depend on each other; use sampling=Cyclic(), or leave sampling out"
        )
    if plan.groups * plan.lot_size > plan.examples or plan.groups > plan.steps:
        most = min(int(plan.examples / plan.lot_size), plan.steps)
        raise InvalidArgument(
            f"correlation.bands must be at most {most} for lots of {plan.lot_size:g} of "
            f"{plan.examples} and {plan.steps} steps, got {plan.groups}: every lot comes from one "
            "of as many groups"
        )


def correlated_event(plan: Plan, taken: int) -> Event:
    """What the first steps release: as often as a record takes part, or all at once.

    With Poisson lots a record takes part in its group's turns only, and what it changes in one is
    apart from what it changes in the next (2306.08153, Theorem 4). Else it takes part in all turns
    of its group, for certain, and the whole run is one release: that is charged from the start.
    """
    assert plan.correlation is not None
    if isinstance(plan.sampling, Poisson):
        turn = PoissonSampled(plan.group_rate, Gaussian(plan.noise_multiplier))
        # Composed: a step of the plan is less than one of these turns.
        return Composed(Repeated(turn, -(-taken // plan.groups)))
    comes_to = course(plan.correlation, plan.steps, plan.groups)
    return Gaussian(plan.noise_multiplier / comes_to.sensitivity * (1.0 - 2.0**-52))


def correlation_in_words(plan: Plan) -> str:
    """A line of a plan's description."""
    assert plan.correlation is not None
    own = plan.correlation
    workload = f"momentum {own.momentum:g} and a {own.schedule} learning rate"
    match plan.correlation:
        case Banded(bands=bands):
            assert isinstance(bands, int)
            how = f"by a strategy of {bands} bands ({bands - 1} times the parameters are kept)"
        case _:
            how = f"by {type(own).__name__}"
    size = course(own, plan.steps, plan.groups).step_noise()
    return (
        f"this noise is mixed with that of earlier steps {how}, whose coefficients are for "
        f"{workload};\na single step then has {size:.3g} times as much of it, and later steps take "
        "most of that back"
    )
