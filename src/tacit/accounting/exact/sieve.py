"""Which of a long sum's nodes matter: a coarse look certifies that all the others are negligible.

Of T losses with atoms |M(z₀ + iu)/M(z₀)|ᵀ does not fade as u grows, but it is next to 0 at nearly
every u: only where all atoms are in phase is it not. To look at every node would take far longer
than the sum over those that matter.

A look at one frequency serves its neighbourhood. With φ = M(z₀ + iu)/M(z₀), the characteristic
function of the tilted loss, and D the difference of two independent ones, f(u) = 1 - |φ(u)|² is
E[1 - cos uD] ≥ 0, and f'' = E[D²·cos uD] ≤ E[D²] = 2s², s² being the variance. A function that
stays above 0 has |f'| ≤ √(2·f·sup f''): else it would fall below. Hence ρ = √f has |ρ'| ≤ s, and

    |φ(u)|² ≤ 1 - ρ² ,   ρ = max(0, ρ(u₁) - s·|u - u₁|) .

Blocks of nodes whose bound is not small enough are cut in three, and looked at more closely.

Rare large losses raise s, and hardly add to what is seen: of many steps only the likeliest atoms
are looked at. If these have the share m, |φ| ≤ 1 - m + m·|φ of them|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tacit.accounting.exact.atoms import TiltedAtoms
    from tacit.accounting.exact.transforms import Floats

_TURN, _LEAST_TURN = 0.5, 0.1  # what ρ may change by in half a block, of what it may at most
_DENSE, _RADIUS = 1_000, 2.5  # atoms, of which those within as many deviations are looked at
_LIKELY, _MANY = 0.95, 300.0  # the share, at least, of the atoms looked at, and that times steps
_WORTH = 1.2  # times what is needed, that a sum must be able to fade by for a look to be of use
_NEAR_ENOUGH = 20_000  # atoms times nodes that are as quickly summed as looked at
_MOST_WORK = 400_000  # atoms times frequencies of a closer look
_SHARE = 0.1  # of what may be left out, by the sieve
_TALL = 30.0  # -ln of what is negligible, about
_TRIES = 60  # at where nothing may be left
_CEILING = 1.0 - 2.0**-40
_WIDEST = 3**25  # nodes in a block


@dataclass(frozen=True)
class Weights:
    """What a node counts: its term in δ is |φ| times step/π·1/|z(z+1)|, in the density step/π.

    Attributes:
        tilt: The contour's.
        step: Between the nodes.
        mu: Of the Gaussian on top.
        log_value: ln of what may be left out of δ.
        log_density: ln of what may be left out of the density.
    """

    tilt: float
    step: float
    mu: float
    log_value: float
    log_density: float

    def value(self, frequencies: Floats) -> Floats:
        """What multiplies |φ| in δ."""
        square = frequencies * frequencies
        sizes = (self.tilt**2 + square) * ((self.tilt + 1.0) ** 2 + square)
        found: Floats = self.step / math.pi / np.sqrt(sizes)
        return found

    def allowed(self, frequencies: Floats, count: int) -> Floats:
        """Ln of |φ| that may be left out at each of ``count`` nodes."""
        share = math.log(_SHARE / count)
        value = self.log_value + share - np.log(self.value(frequencies))
        found: Floats = np.minimum(value, self.log_density + share - math.log(self.step / math.pi))
        return found

    def last_frequency(self) -> float:
        """The frequency u beyond which the Gaussian leaves little.

        ∫ exp(-μ²u²/2)/(πu²) du is then at most exp(``log_value``), and without u² at most
        exp(``log_density``).
        """
        place, stride, mu = 2.0, 1.15, self.mu
        while True:
            below = 0.5 * place**2 + math.log(math.pi * place)
            if below + 2.0 * math.log(place) - math.log(mu) < -self.log_value or (
                below + math.log(mu) < -self.log_density
            ):
                place *= stride
            elif stride < 1.1 or place == 2.0:
                return place / mu
            else:
                place, stride = place / stride, 1.02


@dataclass(frozen=True, eq=False)
class Survivors:
    """The nodes that may matter.

    Attributes:
        index: Their numbers, rising.
        count: How many there are, with those that do not.
        evenly: Whether those that matter are the first ones.
        value: A bound on Σ of the others' terms in δ.
        density: The same in the density.
    """

    index: NDArray[np.intp]
    count: int
    evenly: bool = True
    value: float = 0.0
    density: float = 0.0


@dataclass(frozen=True, eq=False)
class Core:
    """The likeliest atoms of a step that is taken ``count`` times, as a law of their own.

    Attributes:
        law: That law.
        rest: A bound on the probability of all others.
        count: How often.
    """

    law: TiltedAtoms
    rest: float
    count: int

    @property
    def most_fallen(self) -> float:
        """About the most that -ln |φ| is at any frequency."""
        least = max(2.0 * float(self.law.mass.max()) - 1.0, 0.3)
        return -math.log(self.rest + (1.0 - self.rest) * least)

    def log_size(self, frequencies: Floats, half: float, *, evenly: bool) -> Floats:
        """Bounds on ln |φ|^count within ``half`` of each frequency."""
        size = np.minimum(self.law.modulus_bound(frequencies, evenly=evenly), 1.0)
        rho = np.sqrt((1.0 - size) * (1.0 + size)) * _CEILING - self.law.deviation * half
        fallen = 1.0 - np.sqrt(1.0 - np.maximum(rho, 0.0) ** 2)
        found: Floats = self.count * np.log1p(-(1.0 - self.rest) * fallen)
        return found


def core_of(tilted: TiltedAtoms, count: int) -> Core:
    """The atoms nearest to where most of the mass is."""
    error = float((tilted.mass * tilted.mass_errors).sum()) + tilted.missing + tilted.quadrature
    error += 4.0 * 2.0**-53 * len(tilted.mass)
    needed = max(_LIKELY, _MANY / count)
    if len(tilted.mass) > _DENSE:  # hardly rare large losses
        chosen = np.abs(tilted.spread) <= _RADIUS * tilted.deviation
    else:
        away = np.abs(tilted.spread - tilted.spread[int(tilted.mass.argmax())])
        order = np.argsort(away)
        last = int(np.searchsorted(np.cumsum(tilted.mass[order]), needed))
        chosen = away <= away[order[min(last, len(order) - 1)]]
    share = float(tilted.mass[chosen].sum())
    if share < needed or chosen.all():
        return Core(tilted, 0.0, count)
    mass = tilted.mass[chosen] / share
    away = tilted.spread[chosen] - float((mass * tilted.spread[chosen]).sum())
    law = replace(
        tilted,
        spread=away,
        mass=mass,
        mass_errors=tilted.mass_errors[chosen] + error,
        spread_errors=tilted.spread_errors[chosen],
        missing=0.0,
        quadrature=0.0,
        deviation=math.sqrt(float((mass * away * away).sum())) * (1.0 + 1e-6)
        + float(tilted.spread_errors.max()),
    )
    return Core(law, 1.0 - share + error, count)


def stride(cores: Sequence[Core], step: float) -> int:
    """How many nodes a first look may serve: a power of 3, and 1 if looking is of no use."""
    # Where one atom has more than half of the mass the others can undo no more than their own.
    faded = math.fsum(core.count * core.most_fallen for core in cores)
    if faded < _WORTH * _TALL:
        return 1
    lobe = math.sqrt(-math.expm1(-2.0 * _TALL / sum(core.count for core in cores)))
    turn = max(_TURN * (1.0 - lobe), _LEAST_TURN)
    room = 2.0 * turn / (step * max(core.law.deviation for core in cores) + 1e-300)
    found = 1
    while 3 * found <= min(room, _WIDEST):
        found *= 3
    return found


def survivors(cores: Sequence[Core], nodes: int, width: int, weights: Weights) -> Survivors | None:
    """Looks at nodes 0…``nodes`` - 1, first in blocks of ``width``, which is a power of 3.

    None if too many may matter.
    """
    step = weights.step
    atoms = sum(len(core.law.mass) for core in cores)
    centres = width * np.arange((nodes - 1) // width + 2)
    evenly = True
    value = density = 0.0
    while True:
        nearest = step * np.maximum(centres - width // 2, 0)
        log_size = -0.5 * (weights.mu * nearest) ** 2
        for core in cores:
            log_size += core.log_size(step * centres, (width // 2) * step, evenly=evenly)
        keep = log_size > weights.allowed(nearest, nodes)
        keep[0] |= centres[0] == 0  # the largest of all: rounding must not lose it
        lost = width * np.exp(log_size[~keep])
        value += float((lost * weights.value(nearest[~keep])).sum())
        density += float(lost.sum()) * step / math.pi
        centres = centres[keep]
        if width == 1 or len(centres) * width * atoms <= _NEAR_ENOUGH:
            break
        if 3 * len(centres) * atoms > _MOST_WORK:
            return None
        width //= 3
        centres = (centres[:, None] + width * np.array([-1, 0, 1])).ravel()
        evenly = False
        if centres[0] < 0:  # the half of the first block that is not there
            centres = centres[1:]
    index = (centres[:, None] + np.arange(width) - width // 2).ravel()
    index = index[(index >= 0) & (index < nodes)]
    return Survivors(
        index.astype(np.intp), nodes, evenly=False, value=1.001 * value, density=1.001 * density
    )


def first_nodes(count: int, weights: Weights, log_decay: Callable[[float], float]) -> Survivors:
    """The first of ``count`` nodes, up to where ``log_decay`` says that nothing is left.

    It bounds ln |φ| at a frequency and at all above.
    """
    if log_decay(weights.step * count) >= 0.0:
        return Survivors(np.arange(count), count)
    tries = np.unique(np.geomspace(1.0, count, _TRIES).astype(np.intp))[:-1]
    frequencies = weights.step * tries
    allowed, values = weights.allowed(frequencies, count), weights.value(frequencies)
    for last, frequency, most, value in zip(
        tries.tolist(), frequencies.tolist(), allowed.tolist(), values.tolist(), strict=True
    ):
        log_size = log_decay(frequency)
        if log_size <= most:
            # Beyond the first of them the terms are less than an integral over 1/(πu²).
            size = 1.001 * math.exp(log_size)
            beyond = size * (value + 1.0 / (math.pi * frequency))
            spread = size * count * weights.step / math.pi
            return Survivors(np.arange(last), count, value=beyond, density=spread)
    return Survivors(np.arange(count), count)
