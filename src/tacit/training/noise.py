"""The release: bounds of the step, noise onto the clipped sums, and the mean over the lot size.

Secure and exact noise are added on a grid of powers of two, where a bit of noise covers every bit
of data.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, final

import torch

from tacit._validation import positive
from tacit.errors import InvalidArgument
from tacit.randomness import GaussianSource, RoundedGaussian, Share
from tacit.randomness.correlated import (
    Averages,
    CorrelatedIntegers,
    CorrelatedSource,
    Echo,
    Feedback,
    NoiseMemory,
)
from tacit.training.correlation import Banded, Buffered, Rounding, course, rounding_of, weights
from tacit.training.styles import AdaptiveQuantile, groups_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from tacit.randomness import Stream
    from tacit.randomness.correlated import Mixing
    from tacit.training.checkpoint import Stateful
    from tacit.training.clipping.sums import BatchSums
    from tacit.training.plan import Plan

_FINE = 2.0**-11  # of the clip: what rounding every entry to the grid moves a sum by, at most
_SMALLEST_STEP = 2.0**-1000
_MOST_STEPS = 2.0**62  # of a sum: noise on top of it still fits 64 bits
_LARGEST_NOISE = 2.0**45  # in steps: what RoundedGaussian takes
_MOST_HALVINGS = 34  # of a grid's step, for correlated noise
# In steps: float64's error of what is mixed, which is itself 2⁵² times that at most, and whole.
_MOST_INEXACT = 2.0**10
_UP = 1.0 + 2.0**-49  # makes up for the roundings of a few float64 operations
# Relative, of a norm added up in double precision. It is 0 as long as the sum of whole squares
# stays below 2^53, and half of 2^-53 for each of up to 2^33 entries beyond, in whatever order.
_NORM_ERROR = 2.0**-20

# What a statement says of each kind of noise, and what it then assumes.
IN_WORDS = {
    "fast": "fast: floating-point Gaussian noise from a statistical generator, keyed once by the "
    "operating system",
    "secure": "secure: the sum rounded to a grid, plus a Gaussian rounded to the grid, exactly, "
    "from cryptographic bits; widened by at most 0.05 % for the rounding (correlated noise by 0.1 "
    "%), and at no distance from the ideal that would have to be charged to δ",
    "exact": "exact: each gradient rounded towards zero onto a grid and added up in integers, plus "
    "a Gaussian rounded to the grid, exactly, from cryptographic bits (correlated noise is widened "
    "by at most 0.05 % for its own rounding); at no distance from the ideal that would have to be "
    "charged to δ",
}
_DRAWN = (
    "the bits of the cryptographic generator cannot be distinguished from random ones, and float64 "
    "logarithm, square root, sine and cosine are good to 40 units in the last place, beyond which "
    "interval arithmetic decides (on a GPU, fixed point of 192 binary places: what that leaves "
    "open, of all entries one in 2¹²⁰, is no number and ends the training)"
)
_CANCELLING = (
    "a record made so that the terms of its gradient cancel to less than a thousandth may be left "
    "above the clip by rounding in a convolution on a GPU, and one whose terms cancel wherever "
    "a weight is computed from parameters (a weight norm, say)"
)
ASSUMED = {
    "fast": "floating-point sums and Gaussian noise are taken for real ones, and the numbers of a "
    f"statistical generator for random ones; {_CANCELLING}",
    "secure": "floating-point sums of clipped gradients are taken for real ones: adding up n of "
    "them in float32 may be off by about n²·2⁻²⁴ clips (in TF32 by n²·2⁻¹¹, in bfloat16 by "
    f"n²·2⁻⁸), and {_CANCELLING}, which is not covered (noise='exact' covers it); {_DRAWN}",
    "exact": f"a unit's gradient is computed from its own rows and the parameters alone; {_DRAWN}",
}


Stretches: TypeAlias = "Mapping[str, tuple[int, int]]"
"""Of every parameter, the entries that a process releases: from a place to another, row by row."""


class Noise(Protocol):
    """Releases sums and counts, each with fresh noise.

    Processes that share a stream release together: each what ``stretches`` name, and the noise at
    an entry is the same whoever draws it.
    """

    def means(
        self,
        parameters: Mapping[str, Tensor],
        sums: Mapping[str, Tensor],
        *,
        clip: float,
        scale: float,
        lot_size: float,
        stretches: Stretches | None = None,
    ) -> dict[str, Tensor]:
        """(sum + N(0, scale²)) / lot_size for every parameter, in its own precision.

        With ``stretches``, sums and results are those of the entries that they name, as vectors.
        """

    def count(self, exact: float, scale: float) -> float:
        """A whole number of halves plus N(0, scale²)."""

    @property
    def generators(self) -> tuple[torch.Generator, ...] | None:
        """The device's own generators that it draws of; None if the device waits for the host."""

    def renew(self) -> None:
        """Goes before every replay of ``means`` that were recorded."""


def noise_for(
    kind: str,
    stream: Stream,
    device: torch.device,
    memory: NoiseMemory | None = None,
    cost: Rounding | None = None,
) -> Noise:
    """The noise that a plan names; with a ``memory`` it is correlated over the steps.

    ``cost`` is what rounding it costs then, where the noise is on a grid.
    """
    rounds = kind == "secure"
    if memory is None:
        if kind == "fast":
            return FastNoise(GaussianSource(device, stream), device)
        return GridNoise(RoundedGaussian(stream, device), device, rounds=rounds)
    if kind == "fast":
        return CorrelatedNoise(CorrelatedSource(memory, device, stream), device)
    assert cost is not None
    source = CorrelatedIntegers(memory, device, stream)
    return CorrelatedGridNoise(source, cost, device, rounds=rounds)


@final
class FastNoise:
    """Floating-point noise on floating-point sums.

    Guarantee:
        Every entry of every parameter gets independent noise of standard deviation ``scale`` before
        anything is rounded to half precision; a parameter without a sum gets it too.
    """

    def __init__(self, source: GaussianSource, device: torch.device) -> None:
        self._source = source
        self._device = device

    def means(
        self,
        parameters: Mapping[str, Tensor],
        sums: Mapping[str, Tensor],
        *,
        clip: float,
        scale: float,
        lot_size: float,
        stretches: Stretches | None = None,
    ) -> dict[str, Tensor]:
        """See ``Noise``."""
        del clip
        if not self._source.serves([*parameters.values(), *sums.values()]):
            return _noisy_means(
                self._source, self._device, parameters, sums, scale, lot_size, stretches
            )
        shapes = _shapes(parameters, stretches)
        means = {
            name: torch.empty(shapes[name], dtype=p.dtype, device=self._device)
            for name, p in parameters.items()
        }
        added = [sums[name].contiguous() if name in sums else None for name in parameters]
        starts = None if stretches is None else _starts(parameters, stretches)
        self._source.means_(added, list(means.values()), scale, lot_size, starts)
        return means

    def count(self, exact: float, scale: float) -> float:
        """See ``Noise``."""
        noise = torch.empty(1, device=self._device)
        self._source.normal_(noise)
        return exact + scale * float(noise)

    @property
    def generators(self) -> tuple[torch.Generator, ...] | None:
        """See ``Noise``."""
        native = self._source.generator
        return () if native is None else (native,)

    def renew(self) -> None:
        """See ``Noise``: a generator that a recording knows goes on by itself."""


@final
class CorrelatedNoise:
    """Floating-point noise that is correlated over the steps, by a plan's ``correlation``.

    Guarantee:
        What all steps release is post-processing of CG/clip + Z, G their sums and Z independent
        noise of standard deviation ``scale``/clip on every entry, with C as ``mixing_of`` the plan.
    """

    def __init__(self, source: CorrelatedSource, device: torch.device) -> None:
        self._source = source
        self._device = device

    def means(
        self,
        parameters: Mapping[str, Tensor],
        sums: Mapping[str, Tensor],
        *,
        clip: float,
        scale: float,
        lot_size: float,
        stretches: Stretches | None = None,
    ) -> dict[str, Tensor]:
        """See ``Noise``. Every call is the next step."""
        del clip
        released = _noisy_means(
            self._source, self._device, parameters, sums, scale, lot_size, stretches
        )
        self._source.advance()
        return released

    def count(self, exact: float, scale: float) -> float:
        """See ``Noise``: the plan refuses a clip that moves."""
        raise AssertionError(f"no count is released with correlated noise, got {exact}, {scale}")

    @property
    def generators(self) -> tuple[torch.Generator, ...] | None:
        """See ``Noise``: earlier steps' noise lies elsewhere in every step, and is not recorded."""
        return None

    def renew(self) -> None:
        """See ``Noise``: nothing is recorded."""


def mixing_of(plan: Plan) -> Mixing | None:
    """How a plan's noise is made of independent noise; None where it is independent itself."""
    correlation = plan.correlation
    if correlation is None:
        return None
    comes_to = course(correlation, plan.steps, plan.groups)
    match correlation:
        case Banded(coefficients=tuple(own)):
            return Feedback(own, tuple(comes_to.norms()), plan.steps)
        case Buffered(scales=tuple(scales), decays=tuple(decays)):
            return Averages(scales, decays, comes_to.gain)
        case _:
            return Echo(tuple(weights(correlation)), comes_to.gain)


def memory_of(plan: Plan) -> NoiseMemory | None:
    """What a run must remember of its noise; None where it is independent."""
    mixing = mixing_of(plan)
    return None if mixing is None else NoiseMemory(mixing, plan.steps)


def _noisy_means(
    source: GaussianSource | CorrelatedSource,
    device: torch.device,
    parameters: Mapping[str, Tensor],
    sums: Mapping[str, Tensor],
    scale: float,
    lot_size: float,
    stretches: Stretches | None = None,
) -> dict[str, Tensor]:
    """(sum + noise) / lot_size, with one draw for all parameters of a precision."""
    released: dict[str, Tensor] = {}
    for dtype in (torch.float32, torch.float64):
        names = [n for n, p in parameters.items() if _kind(p) == dtype]
        if not names:
            continue
        alike = {name: parameters[name] for name in names}
        if stretches is None:
            noises = _drawn(source, device, alike, dtype, scale / lot_size)
        else:
            noises = _drawn_share(source, device, alike, dtype, scale / lot_size, stretches)
        present = [at for at, name in enumerate(names) if name in sums]
        if present:
            torch._foreach_add_(
                [noises[at] for at in present],
                [sums[names[at]].to(dtype) for at in present],
                alpha=1.0 / lot_size,
            )
        for name, noise in zip(names, noises, strict=True):
            released[name] = noise.to(parameters[name].dtype)
    return released


def _drawn(
    source: GaussianSource | CorrelatedSource,
    device: torch.device,
    parameters: Mapping[str, Tensor],
    dtype: torch.dtype,
    scale: float,
) -> list[Tensor]:
    """Noise for the parameters after one another."""
    sizes = [p.numel() for p in parameters.values()]
    flat = torch.empty(sum(sizes), dtype=dtype, device=device)
    source.normal_(flat, scale)
    parts = zip(flat.split_with_sizes(sizes), parameters.values(), strict=True)
    return [part.view(p.shape) for part, p in parts]


def _drawn_share(
    source: GaussianSource | CorrelatedSource,
    device: torch.device,
    parameters: Mapping[str, Tensor],
    dtype: torch.dtype,
    scale: float,
    stretches: Stretches,
) -> list[Tensor]:
    """Noise for the entries that ``stretches`` name, the same whoever draws it."""
    share = share_of(parameters, stretches)
    flat = torch.empty(share.count, dtype=dtype, device=device)
    source.normal_(flat, scale, share=share)
    places = (stretches[name] for name in parameters)
    return list(flat.split([stop - start for start, stop in places]))


@final
class GridNoise:
    """Integer noise on sums in whole steps of a grid; it ``rounds`` sums that are not yet.

    Guarantee:
        If one unit moves the real sums by at most ``clip``, what is released is post-processing of
        the real Gaussian mechanism with noise ``scale``. A rounded real Gaussian added to a whole
        number is that mechanism's output, rounded; and where sums are rounded first, the noise is
        widened by what that may add to the sensitivity (``noise_in_steps``), whatever the sums
        are: also where a lot was empty. Of sum and noise nothing but their total, a whole number,
        decides any bit of the result. Every entry of every parameter gets noise of its own.
    """

    def __init__(self, source: RoundedGaussian, device: torch.device, *, rounds: bool) -> None:
        self._source = source
        self._device = device
        self._rounds = rounds

    def means(
        self,
        parameters: Mapping[str, Tensor],
        sums: Mapping[str, Tensor],
        *,
        clip: float,
        scale: float,
        lot_size: float,
        stretches: Stretches | None = None,
    ) -> dict[str, Tensor]:
        """See ``Noise``. Sums that are not rounded here are whole numbers of steps, in int64."""
        assert self._rounds or all(value.dtype == torch.int64 for value in sums.values())
        entries = entries_of(parameters)
        step = grid_step(clip, entries)
        wide = noise_in_steps(scale, clip, entries, rounded=self._rounds)
        types = {one.dtype for one in (*parameters.values(), *sums.values())}
        if self._source.in_one_pass(wide, types):
            released = _empty(parameters, _shapes(parameters, stretches), self._device)
            there = [sums[name].contiguous() if name in sums else None for name in parameters]
            starts = None if stretches is None else _starts(parameters, stretches)
            self._source.means_(
                list(released.values()), there, scale=wide, step=step, lot_size=lot_size,
                starts=starts,
            )  # fmt: skip
            return released
        noise = _whole_noise(self._source, self._device, parameters, wide, stretches)
        for name, own in sums.items():
            noise[name].add_(to_steps(own, step) if self._rounds else own)
        return _in_units(noise, step / lot_size, parameters)

    def count(self, exact: float, scale: float) -> float:
        """See ``Noise``. Halves are whole numbers of a grid of their own, and exactly on it."""
        noise = torch.empty(1, dtype=torch.int64, device=self._device)
        self._source.integers_(noise, 2.0 * scale)
        return (round(2.0 * exact) + int(noise)) / 2.0

    @property
    def generators(self) -> tuple[torch.Generator, ...] | None:
        """See ``Noise``: a kernel draws the bits under keys of the host, if there is one."""
        return None if self._device.type == "cuda" and not self._source.draws_on_device else ()

    def renew(self) -> None:
        """See ``Noise``: a key for the next draw, without which there are no numbers."""
        self._source.renew()


@final
class CorrelatedGridNoise:
    """Integer noise that is correlated over the steps, on sums in whole steps of a grid.

    Guarantee:
        As `GridNoise`, of a Gaussian mechanism that releases CG/clip + Z over all steps: sums,
        noise and what earlier steps add to it are whole numbers of a step, and the noise is widened
        by what rounding the latter may add to the sensitivity (`Rounding`), 0.05 % at most.
    """

    def __init__(
        self, source: CorrelatedIntegers, cost: Rounding, device: torch.device, *, rounds: bool
    ) -> None:
        self._source = source
        self._cost = cost
        self._device = device
        self._rounds = rounds

    def means(
        self,
        parameters: Mapping[str, Tensor],
        sums: Mapping[str, Tensor],
        *,
        clip: float,
        scale: float,
        lot_size: float,
        stretches: Stretches | None = None,
    ) -> dict[str, Tensor]:
        """See ``Noise``. Every call is the next step. Its grid is finer than that of whole sums."""
        entries = entries_of(parameters)
        finer, wide = finer_grid(scale, clip, entries, self._cost, rounded=self._rounds)
        step = math.ldexp(grid_step(clip, entries), -finer)
        noise = _whole_noise(self._source, self._device, parameters, wide, stretches)
        for name, own in sums.items():
            noise[name].add_(to_steps(own, step) if self._rounds else own << finer)
        self._source.advance()
        return _in_units(noise, step / lot_size, parameters)

    def count(self, exact: float, scale: float) -> float:
        """See ``Noise``: the plan refuses a clip that moves."""
        raise AssertionError(f"no count is released with correlated noise, got {exact}, {scale}")

    @property
    def generators(self) -> tuple[torch.Generator, ...] | None:
        """See ``Noise``: earlier steps' noise lies elsewhere in every step, and is not recorded."""
        return None

    def renew(self) -> None:
        """See ``Noise``: nothing is recorded."""


def _whole_noise(
    source: RoundedGaussian | CorrelatedIntegers,
    device: torch.device,
    parameters: Mapping[str, Tensor],
    wide: float,
    stretches: Stretches | None,
) -> dict[str, Tensor]:
    """One draw of whole numbers for all parameters, or for the entries that are named."""
    shapes = _shapes(parameters, stretches)
    sizes = [shape.numel() for shape in shapes.values()]
    flat = torch.empty(sum(sizes), dtype=torch.int64, device=device)
    if stretches is None:
        source.integers_(flat, wide)
    else:
        source.integers_(flat, wide, share=share_of(parameters, stretches))
    parts = zip(flat.split(sizes), shapes.items(), strict=True)
    return {name: part.view(shape) for part, (name, shape) in parts}


def _in_units(
    whole: Mapping[str, Tensor], unit: float, parameters: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Whole numbers of a unit as numbers of their parameters' types."""
    return {
        name: value.double().mul_(unit).to(parameters[name].dtype) for name, value in whole.items()
    }


def _shapes(parameters: Mapping[str, Tensor], stretches: Stretches | None) -> dict[str, torch.Size]:
    if stretches is None:
        return {name: parameter.shape for name, parameter in parameters.items()}
    return {name: torch.Size([stretches[name][1] - stretches[name][0]]) for name in parameters}


def check_noise(plan: Plan, entries: int) -> None:
    """Refuses, before anything is charged, noise that is too wide for its grid."""
    if plan.noise == "fast":
        return
    rounded, cost = plan.noise == "secure", rounding_cost(plan)
    if cost is None:
        noise_in_steps(plan.noise_scale, plan.clip, entries, rounded=rounded)
    else:
        finer_grid(plan.noise_scale, plan.clip, entries, cost, rounded=rounded)


def rounding_cost(plan: Plan) -> Rounding | None:
    """What rounding a plan's correlated noise costs; None where it is independent."""
    if plan.correlation is None:
        return None
    return rounding_of(course(plan.correlation, plan.steps, plan.groups))


def entries_of(parameters: Mapping[str, Tensor]) -> int:
    """How many numbers a step releases."""
    return sum(parameter.numel() for parameter in parameters.values())


def share_of(parameters: Mapping[str, Tensor], stretches: Stretches) -> Share:
    """Which numbers of a draw for the parameters after one another are those of ``stretches``.

    >>> weights = {"a": torch.zeros(2, 3), "b": torch.zeros(4), "c": torch.zeros(3)}
    >>> share_of(weights, {"a": (2, 6), "b": (0, 4), "c": (1, 2)})
    Share(of=13, stretches=((2, 10), (11, 12)))
    """
    found: list[tuple[int, int]] = []
    for start, name in zip(_starts(parameters, stretches), parameters, strict=True):
        end = start + stretches[name][1] - stretches[name][0]
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end)
        elif end > start:
            found.append((start, end))
    return Share(entries_of(parameters), tuple(found))


def _starts(parameters: Mapping[str, Tensor], stretches: Stretches) -> list[int]:
    """Where each parameter's stretch begins among the entries of all of them."""
    before = accumulate((one.numel() for one in parameters.values()), initial=0)
    return [start + stretches[name][0] for start, name in zip(before, parameters, strict=False)]


def _empty(
    parameters: Mapping[str, Tensor], shapes: Mapping[str, torch.Size], device: torch.device
) -> dict[str, Tensor]:
    """Room for a number for every entry, in one piece of memory a precision."""
    kinds = {parameter.dtype for parameter in parameters.values()}
    sizes = {d: [shapes[n].numel() for n, p in parameters.items() if p.dtype == d] for d in kinds}
    parts = {
        d: iter(torch.empty(sum(each), dtype=d, device=device).split(each))
        for d, each in sizes.items()
    }
    return {name: next(parts[p.dtype]).view(shapes[name]) for name, p in parameters.items()}


def _kind(parameter: Tensor) -> torch.dtype:
    return torch.float64 if parameter.dtype == torch.float64 else torch.float32


# ---- the grid


def grid_step(clip: float, entries: int) -> float:
    """The largest power of two at which cutting ``entries`` numbers moves them by ≤ 2⁻¹¹·clip.

    >>> grid_step(1.0, 4) == 2.0**-12
    True
    """
    fine = clip * _FINE / math.sqrt(max(entries, 1))
    if not _SMALLEST_STEP <= fine < math.inf:
        raise InvalidArgument(
            f"clip must be between 1e-290 and 1e307 for noise on a grid, got {clip!r}; "
            "change the unit of the losses"
        )
    return math.ldexp(1.0, math.frexp(fine)[1] - 1)


def noise_in_steps(scale: float, clip: float, entries: int, *, rounded: bool) -> float:
    """The standard deviation, in steps, of noise ``scale`` on sums of sensitivity ``clip``.

    Guarantee:
        Its ratio to the sensitivity in steps is at least scale/clip, as real numbers. Sums of whole
        steps have the sensitivity clip/step. Of ``rounded`` ones each entry was moved by half a
        step at most, so that neighbours come to lie up to clip/step + √entries apart: the noise
        grows by the same factor, 1.0005 at most.

    >>> 1.0 < noise_in_steps(3.0, 1.0, 4, rounded=True) / (3.0 * 2**12) <= 1.0005
    True
    """
    wide = scale / grid_step(clip, entries)
    if rounded:
        wide += math.sqrt(entries) * (scale / clip)
    if not wide < _LARGEST_NOISE / _UP:
        raise InvalidArgument(
            f"noise_multiplier must be below {_LARGEST_NOISE * scale / clip / wide:.3g} for noise "
            f"on a grid of {entries} entries, got {scale / clip:.6g}; or use noise='fast'"
        )
    return wide * _UP


def finer_grid(
    scale: float, clip: float, entries: int, cost: Rounding, *, rounded: bool
) -> tuple[int, float]:
    """For correlated noise: how many halvings of the grid's step it needs, and its width in those.

    Guarantee:
        As `noise_in_steps`, and neighbours come to lie ``cost.excess``·√entries farther apart,
        which is 2⁻¹¹ of the clip at most. What is mixed fits 64 bits within 64 standard deviations.

    >>> finer, wide = finer_grid(3.0, 1.0, 4, Rounding(2.0, 1e-12, 1.5), rounded=False)
    >>> finer, 1.0 < wide / (3.0 * 2 ** (12 + finer)) <= 1.0005
    (2, True)
    """
    root, most = math.sqrt(entries), _LARGEST_NOISE / _UP / cost.peak
    for finer in range(_MOST_HALVINGS):
        step = math.ldexp(grid_step(clip, entries), -finer)
        about = scale / step
        excess = cost.excess(2.0 * about)
        if not 2.0 * about < most or not 2.0 * about * cost.inexact < _MOST_INEXACT:
            break
        if excess * root * step <= _FINE * clip:
            return finer, (about + root * (scale / clip) * (rounded + excess)) * _UP
    raise InvalidArgument(
        f"correlation must leave less to rounding for noise on a grid of {entries} entries and "
        f"noise_multiplier={scale / clip:.6g}; take fewer bands or buffers, or noise='fast'"
    )


def to_steps(values: Tensor, step: float) -> Tensor:
    """``values`` in whole steps, to the nearest; what is no number counts as 0."""
    steps = (values.double() / step).round_().nan_to_num_(0.0)
    return steps.clamp_(-_MOST_STEPS, _MOST_STEPS).to(torch.int64)


def rounded_towards_zero(batch: BatchSums, clip: float, entries: int) -> BatchSums:
    """The batch of one unit, its clipped gradient in whole steps: the sums are integers from here.

    Guarantee:
        The gradient's norm, in steps, is at most clip/step: not up to rounding, but exactly, for up
        to 2³³ entries. Rounding towards zero makes no entry larger, and what floating point left
        above the clip is brought down before. A gradient that is not finite counts as 0. For up to
        2²⁹ entries the result depends on the gradient's values alone, not on the order in which
        threads add up its norm.
    """
    step = grid_step(clip, entries)
    values = {name: value.double() / step for name, value in batch.sums.items()}
    whole = {name: value.trunc() for name, value in values.items()}
    most, norm = clip / step, _norm(whole) * (1.0 + _NORM_ERROR)
    if not math.isfinite(norm):
        whole = {name: torch.zeros_like(value) for name, value in values.items()}
    elif norm > most:
        # Each entry has lost less than a step, so that before it was below norm + √entries. That
        # is used, as a sum of squares that are not whole would depend on the order.
        factor = most / (norm + math.sqrt(entries)) * (1.0 - _NORM_ERROR)
        whole = {name: (value * factor).trunc_() for name, value in values.items()}
    steps = {name: value.to(torch.int64) for name, value in whole.items()}
    return replace(batch, sums=steps, borrowed=False)


def _norm(values: Mapping[str, Tensor]) -> float:
    squares = [value.square().sum() for value in values.values()]
    return math.sqrt(float(torch.stack(squares).sum())) if squares else 0.0


# ---- bounds


def parameter_groups(
    plan: Plan, parameters: Mapping[str, Tensor]
) -> tuple[dict[str, int], list[float]]:
    """The group of each parameter, and the groups' bounds in units of the plan's clip."""
    groups = groups_of(plan.clipping, plan.clip, parameters)
    places = {name: at for at, group in enumerate(groups) for name in group.parameters}
    return places, [group.bound / plan.clip for group in groups]


@final
class ClipState:
    """The bounds of the current step. They are public: each moves by released numbers alone."""

    def __init__(self, plan: Plan, shares: Sequence[float], device: torch.device) -> None:
        self._plan = plan
        # In double precision: rounded up to single, a bound would lie above the plan's clip.
        self._shares = torch.tensor(shares, dtype=torch.float64, device=device)
        self._style = plan.clipping if isinstance(plan.clipping, AdaptiveQuantile) else None
        self._clip = plan.clip
        self._centred: Tensor | None = None
        self.bounds = self._shares * self._clip  # stays where it is: recordings read it there

    @property
    def moves(self) -> bool:
        """Whether the clip is another one after each step."""
        return self._style is not None

    @property
    def sensitivity(self) -> float:
        """The most that one unit adds to the sum in this step."""
        return self._clip

    @property
    def noise_scale(self) -> float:
        """The standard deviation of this step's noise on the sum."""
        return self._plan.noise_multiplier * self._clip

    def begin(self) -> None:
        """A new lot."""
        self._centred = None

    def counted(self, batch: BatchSums, units: int) -> Tensor | None:
        """The lot's count with Σ(b_i - ½) over a batch's first ``units``, the real ones.

        b_i says whether unit i's norm is within the clip. Nothing is changed: see ``keep``.
        """
        if self._style is None:
            return None
        within = batch.squared_norms[0, :units] <= self._clip**2
        centred = (within.float() - 0.5).sum()
        return centred if self._centred is None else self._centred + centred

    def keep(self, centred: Tensor | None) -> None:
        """Takes what ``counted`` returned for the lot's count."""
        self._centred = centred

    @property
    def centred(self) -> float:
        """The lot's count so far: a whole number of halves."""
        return 0.0 if self._centred is None else float(self._centred)

    def count_all(self, counts: Sequence[float]) -> None:
        """Takes the counts of all processes for the lot's."""
        self._centred = torch.tensor(math.fsum(counts), dtype=torch.float64)

    def end(self, noise: Noise) -> None:
        """Releases the noisy count, if the style needs it, and moves the clip."""
        if self._style is None:
            return
        exact = self.centred
        noisy = noise.count(exact, self._style.count_noise)
        self._clip = self._style.next_clip(self._clip, noisy, self._plan.lot_size)
        torch.mul(self._shares, self._clip, out=self.bounds)

    def state(self) -> dict[str, Stateful]:
        """What a checkpoint must hold of the clip: nothing, if it does not move."""
        return {} if self._style is None else {"tacit clip": self}

    def state_dict(self) -> dict[str, Any]:
        """The clip as it is."""
        return {"clip": self._clip}

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Takes up the clip of a checkpoint."""
        self._clip = positive("clip", state_dict["clip"])
        torch.mul(self._shares, self._clip, out=self.bounds)
