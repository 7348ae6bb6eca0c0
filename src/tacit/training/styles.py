"""Clipping styles: how one record's gradient is brought down to a public bound.

A style is a frozen value. Whatever it does to a gradient, the L2 norm of what one record adds to
the sum is at most the plan's clip C; that is all the accountant needs to know, save for
``AdaptiveQuantile``, which releases one more number a step and says how noisy that number is.

| style | what one record adds | largest norm |
|---|---|---|
| ``Flat`` | g·min(1, C/‖g‖) | C |
| ``PerLayer`` | each of the L layers' gradients, flat at C/√L | C |
| ``PerGroup`` | each group's gradient, flat at its own C_g | √ΣC_g² = C |
| ``Automatic`` | g·C/(‖g‖ + γ) | below C |
| ``AdaptiveQuantile`` | g·min(1, C_t/‖g‖), with C_t found along the way | C_t |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, final

from tacit._validation import open_probability, positive
from tacit.errors import InvalidArgument

_SMALLEST_CLIP, _LARGEST_CLIP = 1e-12, 1e12
_LEAST_STABILITY = 1e-12  # squares of single precision vanish below 1e-22


@final
@dataclass(frozen=True, slots=True)
class Flat:
    """Scales the whole gradient down to the clip (Abadi et al. 2016, Algorithm 1)."""


@final
@dataclass(frozen=True, slots=True)
class PerLayer:
    """Clips each module that holds parameters by itself, at an equal share C/√L of the clip."""


@final
@dataclass(frozen=True, slots=True)
class PerGroup:
    """Clips each group of parameters separately, at a bound C_g of its own.

    ``bounds`` maps the beginning of parameters' names to a bound: ``"features"`` is every parameter
    of the module ``model.features``, and ``""`` is whatever no other name covers. The longest name
    that fits decides. A mapping is stored as a tuple of pairs, so that the style is a plain value.

    Guarantee:
        One record adds at most ``clip`` = √ΣC_g² to the sum, whatever the groups are.

    >>> PerGroup({"features": 3.0, "head": 4.0}).clip
    5.0
    """

    bounds: Mapping[str, float] | tuple[tuple[str, float], ...]

    def __post_init__(self) -> None:
        pairs = tuple(_pairs(self.bounds))
        if not pairs:
            raise InvalidArgument("bounds must name at least one group, got none; or use Flat()")
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise InvalidArgument(f"bounds must name a group once, got {name!r} twice")
        object.__setattr__(self, "bounds", pairs)

    @property
    def pairs(self) -> tuple[tuple[str, float], ...]:
        """The groups' names with their bounds, in the order given."""
        assert isinstance(self.bounds, tuple)
        return self.bounds

    @property
    def clip(self) -> float:
        """√ΣC_g², the largest norm of one record's contribution."""
        return math.hypot(*(bound for _, bound in self.pairs))


def _pairs(bounds: object) -> Iterable[tuple[str, float]]:
    items = bounds.items() if isinstance(bounds, Mapping) else bounds
    if not isinstance(items, Iterable) or isinstance(items, str):
        raise InvalidArgument(f"bounds must map parameters' names to numbers, got {bounds!r}")
    for item in items:
        pair = tuple(item) if isinstance(item, tuple | list) else (item,)
        if len(pair) != 2 or not isinstance(pair[0], str):
            raise InvalidArgument(f"bounds must be pairs of a name and a number, got {item!r}")
        yield pair[0], positive(f"bounds[{pair[0]!r}]", pair[1])


@final
@dataclass(frozen=True, slots=True)
class Automatic:
    """Normalises every gradient to just below the clip: g·C/(‖g‖ + γ) (AUTO-S, Bu et al. 2023).

    ``stability`` is γ ≥ 1e-12. The clip is then no more than a unit of the learning rate.
    """

    stability: float = 0.01

    def __post_init__(self) -> None:
        stability = positive("stability", self.stability)
        if stability < _LEAST_STABILITY:
            raise InvalidArgument(
                f"stability must be at least {_LEAST_STABILITY:g}, got {self.stability!r}: norms "
                "that single precision takes for 0 would be raised above the clip; 0.01 is usual"
            )
        object.__setattr__(self, "stability", stability)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveQuantile:
    """Moves the clip towards a quantile of the gradients' norms (Andrew et al. 2021).

    Each step also releases how many of the lot's norms were at or below the clip, as the centred
    count Σ(b_i - ½) + N(0, ``count_noise``²). One record adds ±½ to it, so that its noise
    multiplier is 2·``count_noise``; the plan's event charges it next to the gradients' σ. The
    plan's clip is where the clip starts. Andrew et al. take ``count_noise`` = lot_size/20.

    Args:
        quantile: The share of norms that should end at or below the clip.
        learning_rate: How fast the clip's logarithm moves.
        count_noise: The standard deviation σ_b of the noise on the count.
    """

    quantile: float = 0.5
    learning_rate: float = 0.2
    count_noise: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantile", open_probability("quantile", self.quantile))
        object.__setattr__(self, "learning_rate", positive("learning_rate", self.learning_rate))
        object.__setattr__(self, "count_noise", positive("count_noise", self.count_noise))

    @property
    def count_multiplier(self) -> float:
        """The count's noise in units of one record's contribution, which is ½."""
        return 2.0 * self.count_noise

    def next_clip(self, clip: float, noisy_count: float, lot_size: float) -> float:
        """The clip of the next step, from the released centred count: C·exp(-η(b̃ - γ)).

        ``lot_size`` is the plan's: a realised size would leak. The result is kept between 1e-12
        and 1e12, so that a run of unlucky noise ends in no zero or infinity.

        >>> style = AdaptiveQuantile(count_noise=30.0)
        >>> style.next_clip(1.0, 0.0, 600) == 1.0, style.next_clip(1.0, 300.0, 600) < 1.0
        (True, True)
        """
        share = noisy_count / lot_size + 0.5
        log_clip = math.log(clip) - self.learning_rate * (share - self.quantile)
        return math.exp(min(max(log_clip, math.log(_SMALLEST_CLIP)), math.log(_LARGEST_CLIP)))


Style: TypeAlias = Flat | PerLayer | PerGroup | Automatic | AdaptiveQuantile


class Group(NamedTuple):
    """Parameters that are clipped together, and the bound on their joint norm."""

    name: str
    bound: float
    parameters: tuple[str, ...]


def groups_of(style: Style, clip: float, parameters: Iterable[str]) -> tuple[Group, ...]:
    """How ``style`` divides the private ``parameters`` of a model, in the order they come.

    Guarantee:
        Every parameter is in exactly one group, and √Σ bound² over the groups is at most ``clip``
        (to rounding).

    >>> groups_of(PerGroup({"": 3.0, "head": 4.0}), 5.0, ["w", "head.weight", "head.bias"])[1]
    Group(name='head', bound=4.0, parameters=('head.weight', 'head.bias'))
    """
    names = tuple(parameters)
    if isinstance(style, PerGroup):
        return _by_prefix(style, names)
    if isinstance(style, PerLayer):
        return _by_module(clip, names)
    return (Group("", clip, names),)


def _by_module(clip: float, names: tuple[str, ...]) -> tuple[Group, ...]:
    layers: dict[str, list[str]] = {}
    for name in names:
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    share = clip / math.sqrt(len(layers)) if layers else clip
    return tuple(Group(layer, share, tuple(members)) for layer, members in layers.items())


def _by_prefix(style: PerGroup, names: tuple[str, ...]) -> tuple[Group, ...]:
    members: dict[str, list[str]] = {prefix: [] for prefix, _ in style.pairs}
    for name in names:
        fitting = [prefix for prefix in members if _covers(prefix, name)]
        if not fitting:
            raise InvalidArgument(
                f"bounds must cover every private parameter, got {list(members)!r}, none of which "
                f"covers {name!r}; add a bound for it, or one named '' for all the rest"
            )
        members[max(fitting, key=len)].append(name)
    for prefix, found in members.items():
        if not found:
            raise InvalidArgument(
                f"bounds must name private parameters, got {prefix!r}, which decides for none; "
                "leave it out: it would only add noise"
            )
    return tuple(Group(prefix, bound, tuple(members[prefix])) for prefix, bound in style.pairs)


def _covers(prefix: str, name: str) -> bool:
    return prefix in {"", name} or name.startswith(f"{prefix}.")
