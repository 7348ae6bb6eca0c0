"""Many different Poisson-sampled Gaussian steps at once: schedules of noise, clip or rate.

Each step is a pair of ``mixture``, with the error bounds derived there; here they are computed for
all steps together, in units of each step's own noise, so that all share one set of nodes y. With
W(y) = ln(1 - q + q·exp(sy - s²/2)) and s = 1/σ, the loss is W where the record is removed and -W
where it is added.

The transform of every step at the frequencies k·h follows from exp(ihL) by multiplication, which
keeps the digits of what is nearly 0; masses are multiplied in beforehand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.accounting.exact.enclosure import TooSlow
from tacit.accounting.exact.transforms import NodeErrors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tacit.accounting.exact.enclosure import Resolution
    from tacit.accounting.exact.mixture import MixturePair
    from tacit.accounting.exact.transforms import Complexes, Floats

FEWEST, FEWEST_IN_ALL = 16, 80
"""Different steps, and steps, from which they are composed together."""
MOST_RATE = 0.9
"""A rate from which they are not."""
_UNIT = 2.0**-53
_SAFETY = 8.0
_NEGLIGIBLE = 1e-22  # tilted mass that no step has where nodes are left out
_CHUNK = 128  # steps at a time
_FEW = 48  # steps that stand for all where only a guide is needed
_DECAY_DIGITS = 20.0  # of each step's decay, which is added to 1
_MOST_EXPONENT = 300.0


@dataclass(frozen=True, eq=False)
class Schedule:
    """The sum of the losses of many steps.

    Attributes:
        rates: q of each step.
        shifts: s = 1/σ of each.
        counts: How often each occurs.
        reverse: Whether the record is added: N(0, σ²) against the mixture.
    """

    rates: Floats
    shifts: Floats
    counts: Floats
    reverse: bool

    @property
    def largest(self) -> float:
        """The supremum of the loss."""
        return float((self.counts * -np.log1p(-self.rates)).sum()) if self.reverse else math.inf

    @cached_property
    def rough_variance(self) -> float:
        """About the variance of the loss."""
        square = self.shifts**2
        single = self.rates**2 * np.expm1(np.minimum(square, 50.0))
        return float((self.counts * np.minimum(single, square * (1.0 + square))).sum())

    @cached_property
    def _few(self) -> Schedule:
        """Some steps that stand for all of them."""
        order = np.lexsort((self.shifts, self.rates))
        parts = np.array_split(order, min(_FEW, len(order)))
        middle = np.array([part[len(part) // 2] for part in parts])
        counts = np.array([float(self.counts[part].sum()) for part in parts])
        return Schedule(self.rates[middle], self.shifts[middle], counts, self.reverse)

    def real_line(self, reach: float, digits: float) -> ScheduleLine:
        """Ln M for real tilts up to ``reach``, to about exp(-digits)."""
        guide = _Nodes(self._few, reach, 0.0, digits)
        return ScheduleLine(guide, _Nodes(self, reach, 0.0, digits))

    def tilted(
        self,
        tilt: float,
        frequency: float,
        digits: float,
        resolution: Resolution,  # noqa: ARG002
    ) -> TiltedSchedule:
        """The transform on Re z = tilt, good for frequencies up to ``frequency``."""
        nodes = _Nodes(self, tilt, frequency, digits)
        return tilt_schedule(nodes, tilt)


def schedule_of(pairs: Sequence[tuple[MixturePair, int]], *, reverse: bool) -> Schedule:
    """All ``pairs``, each of one record that is drawn or not."""
    sides = [pair.denominator if reverse else pair.numerator for pair, _ in pairs]
    return Schedule(
        np.array([side.weights[1] for side in sides]),
        np.array([1.0 / pair.sigma for pair, _ in pairs]),
        np.array([float(count) for _, count in pairs]),
        reverse,
    )


def is_step(pair: MixturePair, *, reverse: bool) -> bool:
    """Whether ``pair`` is that of one record, drawn with a rate that is neither 0 nor near 1."""
    drawn, still = pair.numerator, pair.denominator
    if reverse:
        drawn, still = still, drawn
    return (
        still.shifts == (0.0,) and drawn.shifts == (0.0, 1.0) and 0.0 < drawn.weights[1] < MOST_RATE
    )


class _Nodes:
    """Trapezoid nodes that serve every step, and what the rule gets wrong for each."""

    def __init__(self, schedule: Schedule, tilt: float, frequency: float, digits: float) -> None:
        self.schedule = schedule
        s, reverse = schedule.shifts, schedule.reverse
        self._stiffness = 1.0 + (tilt * (0.5 * s) ** 2 if reverse else 0.0 * s)
        distance = np.minimum(np.sqrt(2.0 * digits / self._stiffness), 0.9 * math.pi / s)
        growth = self._growth(distance, tilt, frequency)
        steps = 2.0 * math.pi * distance / (digits + growth)
        self.step = float(steps.min())
        top = float(s.max())
        width = math.sqrt(2.0 * digits)
        low = -width - (tilt * top if reverse else 0.0)
        high = width + (0.0 if reverse else (tilt + 1.0) * top)
        self.y = self.step * np.arange(math.floor(low / self.step), math.ceil(high / self.step) + 1)
        if top * float(self.y[-1]) > _MOST_EXPONENT or len(self.y) > 2000:
            raise TooSlow
        constant = math.log(self.step) - 0.5 * math.log(2.0 * math.pi)
        self.log_noise = -0.5 * self.y**2 + constant
        self.tilt = tilt

    def _growth(self, distance: Floats, tilt: float, frequency: float) -> Floats:
        s = self.schedule.shifts
        growth = 0.5 * distance**2 + frequency * s * distance
        if self.schedule.reverse:
            growth = growth - tilt * np.log(np.cos(0.5 * s * distance))
        return growth

    def quadrature(self, frequency: float) -> Floats:
        """Bounds on the rule's error relative to M(Re z), for tilts up to the nodes' own."""
        s = self.schedule.shifts
        found: Floats = np.full(len(s), np.inf)
        for share in (0.0, 0.5, 1.0):
            best = (2.0 * math.pi / self.step - share * frequency * s) / self._stiffness
            distance = np.minimum(np.maximum(best, 0.01 * self.step), 0.9 * math.pi / s)
            periods = 2.0 * math.pi * distance / self.step
            growth = self._growth(distance, self.tilt, frequency)
            exponent = np.minimum(growth - periods, 700.0)
            found = np.minimum(found, 2.0 * np.exp(exponent) / -np.expm1(-periods))
        return found

    def truncation(self, tilt: float, ends: Floats) -> Floats:
        """Bounds on what lies beyond the nodes, from ln of the integrand at their two ends."""
        s = self.schedule.shifts
        down, up = (tilt * s, 0.0 * s) if self.schedule.reverse else (0.0 * s, (tilt + 1.0) * s)
        gaps = np.stack([-self.y[0] - down, self.y[-1] - up])
        if not (gaps > 0.0).all():
            raise TooSlow
        found: Floats = (np.exp(np.minimum(ends, 700.0)) / (gaps * self.step)).sum(axis=0)
        return found

    def log_ratio(self, some: slice) -> Floats:
        """W at the nodes, a row for each of some steps."""
        s = self.schedule.shifts[some, None]
        grown = np.multiply.outer(self.schedule.shifts[some], self.y)
        grown -= 0.5 * s * s
        np.expm1(grown, out=grown)
        grown *= self.schedule.rates[some, None]
        found: Floats = np.log1p(grown, out=grown)
        return found

    def chunks(self) -> Iterator[tuple[slice, Floats]]:
        """W at the nodes for all steps, some at a time."""
        total = len(self.schedule.shifts)
        for start in range(0, total, _CHUNK):
            some = slice(start, min(start + _CHUNK, total))
            yield some, self.log_ratio(some)

    @cached_property
    def log_ratios(self) -> Sequence[tuple[slice, Floats]]:
        """The same, to be looked at several times."""
        return tuple(self.chunks())

    def exponents(self, ratio: Floats, tilt: float) -> Floats:
        """Ln of the nodes' masses under P, tilted."""
        factor = -tilt if self.schedule.reverse else tilt + 1.0
        found = factor * ratio
        found += self.log_noise
        return found


@dataclass(frozen=True, eq=False)
class ScheduleLine:
    """Ln M at real tilts: by a few steps as a guide, by all as a bound."""

    guide: _Nodes
    nodes: _Nodes

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """Ln M and its first two derivatives, about."""
        found = np.zeros(3)
        sign = -1.0 if self.guide.schedule.reverse else 1.0
        for some, ratio in self.guide.log_ratios:
            with np.errstate(over="ignore", invalid="ignore"):
                weights = np.exp(self.guide.exponents(ratio, tilt))
                plain = np.exp(self.guide.exponents(ratio, 0.0)).sum(axis=1)
                total = weights.sum(axis=1)
                mean = sign * (weights * ratio).sum(axis=1) / total
                square = (weights * ratio**2).sum(axis=1) / total
                one = np.stack([np.log(total / plain), mean, np.maximum(square - mean**2, 0.0)])
                found += one @ self.guide.schedule.counts[some]
        if not np.isfinite(found).all():
            raise TooSlow
        return float(found[0]), float(found[1]), float(found[2])

    def log_mgf_bound(self, tilt: float) -> float:
        """A certain upper bound on ln M."""
        total, nodes = 0.0, self.nodes
        counts = nodes.schedule.counts
        sums, ends = np.empty(len(counts)), np.empty((2, len(counts)))
        for some, ratio in nodes.log_ratios:
            exponent = nodes.exponents(ratio, tilt)
            ends[:, some] = exponent[:, 0], exponent[:, -1]
            with np.errstate(over="ignore"):
                sums[some] = np.exp(exponent, out=exponent).sum(axis=1)
        if not np.isfinite(sums).all():
            raise TooSlow
        logs = np.log(sums) + np.log1p(nodes.truncation(tilt, ends) / sums)
        logs += 1e-13 - np.log1p(-np.minimum(nodes.quadrature(0.0), 0.5))
        total = float((counts * logs).sum())
        return total + 1e-13 * abs(total)


@dataclass(frozen=True, eq=False)
class TiltedSchedule:
    """M of a schedule on one vertical line.

    Attributes:
        nodes: Where it was computed.
        tilt: Re z.
        log_mgf: ln M(tilt).
        log_mgf_error: Bounds on its error.
        centre: The mean of the tilted loss, the reference for phases.
        masses: Tilted masses and losses less their mean, at the nodes that carry any, for some
            steps at a time.
        logs: ln M(tilt) of each step.
        spread: The standard deviation of each step's tilted loss.
        truncation: Bounds on the tilted mass beyond the nodes, for each step.
        rounding: How the error of all ratios grows with the frequency.
        distances: Σ counts·E|L - c|.
        sizes: Σ counts·|c|, for the rounding of phases.
        size: How many numbers one frequency costs.
    """

    nodes: _Nodes
    tilt: float
    log_mgf: float
    log_mgf_error: NodeErrors
    centre: float
    masses: Sequence[tuple[slice, Floats, Floats]]
    logs: Floats
    spread: Floats
    truncation: Floats
    rounding: float
    distances: float
    sizes: float
    size: int = 1

    def _product(self, frequencies: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Ln |Φ|, its angle, the work that went into both, and how much an error may grow."""
        size, counts = len(frequencies), self.nodes.schedule.counts
        log_modulus, angle, work = np.zeros(size), np.zeros(size), np.zeros(size)
        least = np.zeros(size)
        # Megabytes that are taken and given back for every chunk cost more than what fills them.
        largest = max(mass.size for _, mass, _ in self.masses)
        scratch = np.empty(2 * (math.isqrt(size) + 2) * largest, np.complex128)
        for some, mass, spread in self.masses:
            found = _less_one(mass, spread, float(frequencies[1]), size, scratch)
            square = 2.0 * found.real + found.real**2 + found.imag**2
            if float(square.min()) < -0.9:
                raise TooSlow  # a step that is far from invisible
            logs, turned = 0.5 * np.log1p(square), np.arctan2(found.imag, 1.0 + found.real)
            log_modulus += counts[some] @ logs
            angle += counts[some] @ turned
            work += counts[some] @ (np.abs(logs) + np.abs(turned))
            np.minimum(least, logs.min(axis=0), out=least)
        return log_modulus, angle, work, np.exp(-least)

    def ratio(self, frequencies: Floats) -> tuple[Floats, Floats]:
        """Real and imaginary part of M(tilt + iu)·exp(-iu·centre)/M(tilt) - 1."""
        log_modulus, angle, _, _ = self._products(frequencies)
        value: Complexes = np.exp(log_modulus + 1j * angle)
        # Near 0 the digits of the difference from 1 are those of its logarithm.
        real = np.expm1(log_modulus) * np.cos(angle) - 2.0 * np.sin(0.5 * angle) ** 2
        return real, value.imag

    def ratio_error(self, frequencies: Floats) -> NodeErrors:
        """Bounds on the error of ``ratio``: of ln Φ, times |Φ|."""
        log_modulus, _, work, enlarge = self._products(frequencies)
        counts = self.nodes.schedule.counts
        quadrature = self.nodes.quadrature(float(frequencies[-1]))
        wrong = float((counts * 2.0 * np.minimum(quadrature, 2.1)).sum())
        # Each multiplication errs by a few roundings of what is turned, each sum by its terms'.
        terms = len(frequencies) + len(self.nodes.y) + 4.0
        turning = 8.0 * _UNIT * terms * self.distances
        rounding = (self.rounding + turning + 4.0 * _UNIT * self.sizes) * frequencies
        rounding = enlarge * rounding + _SAFETY * _UNIT * (64.0 * work + math.log2(len(counts)))
        size = 2.0 * np.exp(log_modulus)
        missing = 2.0 * float((counts * self.truncation).sum())
        return NodeErrors(
            truncation=size * np.minimum(enlarge * missing, 1.0),
            quadrature=size * np.minimum(enlarge * wrong, 1.0),
            rounding=np.where(rounding < 0.5, size * rounding, np.inf),
        )

    def _products(self, frequencies: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """``_product``, kept for the frequencies last asked about."""
        known = self._last.get("frequencies")
        if known is not frequencies:
            self._last["frequencies"] = frequencies
            self._last["product"] = self._product(frequencies)
        found: tuple[Floats, Floats, Floats, Floats] = self._last["product"]
        return found

    @cached_property
    def _last(self) -> dict[str, Any]:
        return {}

    def log_decay(self, frequency: float, thorough: bool) -> float:  # noqa: ARG002
        """Bound on ln |M(tilt + iu)/M(tilt)| for every u ≥ frequency.

        As for a single mixture: on the line Im y = θ the integrand shrinks like exp(-u·|Im L|).
        """
        known: dict[float, float] = self._last.setdefault("decays", {})
        if frequency not in known:
            known[frequency] = self._log_decay(frequency)
        return known[frequency]

    def _log_decay(self, frequency: float) -> float:
        s, reverse = self.nodes.schedule.shifts, self.nodes.schedule.reverse
        pull = frequency * self.spread
        angle = np.minimum(pull / (1.0 + pull**2), 0.8 * 0.5 * math.pi / s)
        coarse = self._coarse
        total = np.empty(len(s))
        for some, grown in self._grown:
            turn = (s[some] * angle[some])[:, None]
            q = self.nodes.schedule.rates[some, None]
            across, along = q * grown * np.sin(turn), 1.0 - q + q * grown * np.cos(turn)
            logs = 0.5 * np.log(across * across + along * along)
            exponent = coarse.exponents(logs, self.tilt)
            exponent += 0.5 * (angle[some] ** 2)[:, None] - self.logs[some, None]
            exponent -= frequency * np.abs(np.arctan2(across, along))
            total[some] = np.exp(np.minimum(exponent, 600.0)).sum(axis=1)
        strip = np.minimum(2.0 * math.pi / coarse.step, 0.95 * (0.5 * math.pi / s - angle))
        lift = 0.5 * angle**2
        growth, beyond = lift + 0.5 * strip**2, lift
        if reverse:
            growth = growth - self.tilt * np.log(np.cos(0.5 * s * (strip + angle)))
            beyond = beyond - self.tilt * np.log(np.cos(0.5 * s * angle))
        periods = 2.0 * math.pi * strip / coarse.step
        error = 2.0 * np.exp(np.minimum(growth - periods, 700.0)) / -np.expm1(-periods)
        error += np.exp(np.minimum(beyond, 700.0)) * self._coarse_truncation
        logs = np.log(total * (1.0 + 1e-10) + error)
        return float((self.nodes.schedule.counts * np.minimum(logs, 0.0)).sum())

    @cached_property
    def _coarse(self) -> _Nodes:
        """Nodes for a modulus, which turns no phases and needs fewer."""
        return _Nodes(self.nodes.schedule, self.tilt, 0.0, _DECAY_DIGITS)

    @cached_property
    def _grown(self) -> list[tuple[slice, Floats]]:
        """Exp(sy - s²/2) at the coarse nodes."""
        s, y = self.nodes.schedule.shifts, self._coarse.y
        found = []
        for start in range(0, len(s), _CHUNK):
            some = slice(start, start + _CHUNK)
            found.append((some, np.exp(np.multiply.outer(s[some], y) - 0.5 * s[some, None] ** 2)))
        return found

    @cached_property
    def _coarse_truncation(self) -> Floats:
        """The tilted mass beyond the coarse nodes."""
        ends = np.empty((2, len(self.logs)))
        q = self.nodes.schedule.rates
        for some, grown in self._grown:
            sides = np.log1p(q[some, None] * (grown[:, [0, -1]] - 1.0))
            factor = -self.tilt if self.nodes.schedule.reverse else self.tilt + 1.0
            ends[:, some] = (factor * sides + self._coarse.log_noise[[0, -1]]).T
        return self._coarse.truncation(self.tilt, ends - self.logs)


def _less_one(
    mass: Floats, spread: Floats, step: float, size: int, scratch: Complexes
) -> Complexes:
    """Σ mass·(exp(ik·step·L) - 1) over each row, a column for every k < ``size``.

    With e_k = exp(ik·step·L) - 1 and k = a + b·A it is e_a·e_bA + e_a + e_bA: what is summed over a
    row is a matrix product, and every term keeps the digits of what is nearly 0.
    """
    many = math.ceil(math.sqrt(size))
    tangent = np.tan((0.5 * step) * spread)
    first = np.empty(spread.shape, np.complex128)
    first.imag = sine = 2.0 * tangent / (1.0 + tangent * tangent)
    first.real = -tangent * sine
    room = mass.size * np.array([0, many, many + -(-size // many)])
    low = scratch[: room[1]].reshape(-1, *mass.shape)
    high = scratch[room[1] : room[2]].reshape(-1, *mass.shape)
    low[0], high[0] = mass, 0.0
    last = _powers(first, low[1:])
    low[1:] *= mass
    _powers(last, high[1:])
    found: Complexes = low.transpose(1, 0, 2) @ high.transpose(1, 2, 0)
    found[:, 1:] += found[:, :1] + low[1:].sum(axis=2).T[..., None]
    return found.transpose(0, 2, 1).reshape(len(mass), -1)[:, :size]


def _powers(first: Complexes, out: Complexes) -> Complexes:
    """(1 + ``first``)ᵏ - 1 for k = 1, 2, … into ``out``; returns the next one."""
    turn, found = 1.0 + first, first
    for one in out:
        one[:] = found
        found = one * turn
        found += first
    return found


def tilt_schedule(nodes: _Nodes, tilt: float) -> TiltedSchedule:
    """Tilts every step and bounds what is wrong with it."""
    schedule = nodes.schedule
    number, counts = len(schedule.shifts), schedule.counts
    sign = -1.0 if schedule.reverse else 1.0
    logs, centres = np.empty(number), np.empty(number)
    second, away = np.empty(number), np.empty(number)
    ends, rounded = np.empty((2, number)), np.empty((2, number))
    masses, left = [], np.empty(number)
    # |ln of a mass| is at most that of the noise and (tilt + 1)·|L|.
    care = len(nodes.y) + 1.0 + 2.0 * np.abs(nodes.log_noise) + nodes.y**2
    often = 2.0 * tilt + 1.0
    for some, ratio in nodes.chunks():
        loss = ratio if sign > 0.0 else -ratio
        excess = np.exp(nodes.exponents(ratio, 0.0))
        excess *= np.expm1(np.minimum(tilt * loss, 700.0))
        logs[some] = np.log1p(excess.sum(axis=1))
        exponent = nodes.exponents(ratio, tilt)
        ends[:, some] = exponent[:, 0], exponent[:, -1]
        exponent -= logs[some, None]
        mass = np.exp(exponent, out=exponent)
        size = np.abs(loss)
        spread = mass * loss
        centres[some] = spread.sum(axis=1)
        np.subtract(loss, centres[some, None], out=spread)
        distance = mass * np.abs(spread)
        second[some] = np.einsum("ij,ij->i", distance, np.abs(spread))
        away[some] = distance.sum(axis=1)
        # Per node and per |L|: exponents err by their size, losses by theirs; sums by their terms.
        np.abs(excess, out=excess)
        each = np.einsum("ij,ij->i", excess, size), np.einsum("ij,ij->i", distance, size)
        lost = np.einsum("ij,ij->i", mass, size)
        rounded[0, some] = math.exp(-float(logs[some].min())) * (excess @ care + often * each[0])
        rounded[0, some] += tilt * lost
        rounded[1, some] = distance @ care + often * each[1] + 4.0 * lost
        (kept,) = np.nonzero(mass.max(axis=0) > _NEGLIGIBLE)
        carrying = slice(int(kept[0]), int(kept[-1]) + 1)
        left[some] = mass[:, : carrying.start].sum(axis=1) + mass[:, carrying.stop :].sum(axis=1)
        masses.append((some, mass[:, carrying].copy(), spread[:, carrying].copy()))
    truncation = nodes.truncation(tilt, ends - logs) + left
    quadrature, unit = nodes.quadrature(0.0), _SAFETY * _UNIT
    log_mgf = float((counts * logs).sum())
    error = NodeErrors(
        truncation=2.0 * float((counts * truncation).sum()),
        quadrature=4.0 * float((counts * np.minimum(quadrature, 1.0)).sum()),
        rounding=unit * (float(counts @ rounded[0]) + 4.0 * float(counts @ np.abs(logs))),
    )
    return TiltedSchedule(
        nodes=nodes,
        tilt=tilt,
        log_mgf=log_mgf,
        log_mgf_error=error.as_log(),
        centre=float((counts * centres).sum()),
        masses=masses,
        logs=logs,
        spread=np.sqrt(second),
        truncation=truncation,
        rounding=unit * float(counts @ rounded[1]),
        distances=float(counts @ away),
        sizes=float(counts @ np.abs(centres)),
    )
