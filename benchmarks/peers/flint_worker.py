"""FLINT and Arb: brackets of ε of random allocation, by convolutions of whole numbers.

Nothing of tacit's accounting is used, and no moment of anything. With X = exp(Z/σ - 1/2σ²) and S
the mean of t independent X, E epochs have the profile δ(ε) = E[(ΠS_j - e^ε)₊] if the record is
removed, and E[(1 - e^ε·ΠS_j)₊] if it is added. Both are convex in every single X, and the first
grows with it. So a law of X on a lattice gives

- an upper bound, if the mass between two points goes to both of them and keeps its mean;
- a lower bound of the first, if the mass of a cell goes to a point not above the cell's mean.

Masses are whole numbers of 2⁻¹³⁶ (41 digits), rounded up or down; those of the lattice are from
Arb's error function, which encloses. Laws of sums are products of polynomials over the integers, by
FLINT, which are exact; each is rounded up or down to 2⁻¹³⁶ again. What lies beyond the lattice
counts as lost, for the upper bound with its whole mean. What is a float64 here chooses where cells
end and nothing else, but in the last sum, whose terms are positive: 1e-12 of it are added or taken.

Monte Carlo draws from a distribution that makes large losses likely, and weighs.
"""

import json
import math
import sys
import time
from typing import Any

import numpy as np
from flint import arb, ctx, fmpz_poly

BITS = 136
UNIT = 1 << BITS
SAMPLES = 100_000
WAYS = (0.4, 0.5, 0.1)  # how often one epoch is tilted, all are, none is
CAREFUL = 5_000  # cells whose means are made to meet their points closely
FINE, FINER = 1e-4, 2e-5  # between logarithms of S, for the upper and the lower bound
LOW, HIGH = -12.0, 30.0  # logarithms that are kept

ctx.prec = BITS + 80


def bracketed(
    sigma: float, steps: int, epochs: int, delta: float, claimed: float, reach: float, points: int,
    tilts: tuple[float, float],
) -> dict[str, Any]:  # fmt: skip
    start = time.process_time()
    width = reach / points
    above = Upper.of_epochs(sigma, steps, epochs, width, points)
    below = Lower.of_epochs(sigma, steps, epochs, width, points)
    lower, upper = below.epsilon(delta), above.epsilon(delta)
    estimate, error = simulated(sigma, steps, epochs, claimed, tilts)
    at_claim = [below.delta(claimed), above.delta(claimed)]
    return {
        "sigma": sigma, "steps": steps, "epochs": epochs, "delta": delta, "issue": claimed,
        "lower": lower, "upper": upper, "delta_at_issue": at_claim,
        "simulated_at_issue": [estimate, error],
        "seconds": time.process_time() - start,
    }  # fmt: skip


# ---- whole numbers of 2⁻¹³⁶


class _Law:
    """Masses at logarithms of ΠS from ``first`` on, ``step`` apart."""

    def __init__(self, masses: list[int], first: float, step: float) -> None:
        values = np.exp(first + step * np.arange(len(masses)))
        self.values = values
        self.masses = np.array([mass / UNIT for mass in masses])


class Upper(_Law):
    """A law that is larger in the convex order; what lies beyond it has the mean that is missing.

    ``below`` is mass that was moved up to the first point: an added record may gain by all of it.
    """

    below = 0.0

    @classmethod
    def of_epochs(cls, sigma: float, steps: int, epochs: int, width: float, points: int) -> "Upper":
        edges = [width * k for k in range(points + 1)]
        mass, mean = cell_sums(sigma, edges)
        law = [0] * (points + 1)
        for k in range(points):
            # The mean of a cell's mass, from its left end, in cells: its share on the right.
            right = up((mean[k] - mass[k] * edges[k]) / width)
            law[k + 1] += right
            law[k] += max(0, up(mass[k]) - right + 1)
        total = power(law, steps, points + 1, floor=False)
        size = round((HIGH - LOW) / FINE) + 1
        logs, moved = [0] * size, total[0]
        logs[0] = total[0]
        for k in range(1, len(total)):
            value = width * k / steps
            place = math.floor((math.log(value) - LOW) / FINE)
            if place < 0:
                logs[0] += total[k]
                moved += total[k]
            elif place + 1 < size:
                ends = [math.exp(LOW + FINE * (place + side)) for side in (0, 1)]
                share = min(max((value - ends[0]) / (ends[1] - ends[0]), 0.0), 1.0)
                right = math.ceil(total[k] * share) + 1
                logs[place + 1] += right
                logs[place] += max(0, total[k] - right) + 1
        # The first point of a product is LOW·epochs: points below LOW are moved up to it.
        found, at = convolved(logs, epochs, size, floor=False)
        law_of_all = cls(found, at, FINE)
        law_of_all.below = epochs * moved / UNIT
        return law_of_all

    def delta(self, epsilon: float) -> float:
        """An upper bound of both directions."""
        bar = math.exp(epsilon)
        kept = float(self.masses @ self.values)
        removed = float(self.masses @ np.maximum(self.values - bar, 0.0)) + max(1.0 - kept, 0.0)
        lost = max(1.0 - float(self.masses.sum()), 0.0)
        added = float(self.masses @ np.maximum(1.0 - bar * self.values, 0.0)) + lost + self.below
        return max(removed, added) * (1.0 + 1e-12) + 1e-18

    def epsilon(self, delta: float) -> float:
        return bisected(lambda epsilon: self.delta(epsilon) <= delta)


class Lower(_Law):
    """A law that is smaller in the increasing convex order: for a record that is removed."""

    @classmethod
    def of_epochs(cls, sigma: float, steps: int, epochs: int, width: float, points: int) -> "Lower":
        law = contracted(sigma, width, points)
        total = power(law, steps, points, floor=True)
        size = round((HIGH - LOW) / FINER) + 1
        logs = [0] * size
        for k, mass in enumerate(total):
            value = width * (k + 0.5 * steps) / steps  # points lie in the middle, k + ½
            place = math.floor((math.log(value) - LOW) / FINER - 1e-6)
            if 0 <= place < size:
                logs[place] += mass
        found, at = convolved(logs, epochs, size, floor=True)
        return cls(found, at, FINER)

    def delta(self, epsilon: float) -> float:
        """A lower bound."""
        over = np.maximum(self.values - math.exp(epsilon), 0.0)
        return float(self.masses @ over) * (1.0 - 1e-12)

    def epsilon(self, delta: float) -> float:
        return bisected(lambda epsilon: self.delta(epsilon) <= delta)


def bisected(enough: Any) -> float:
    low, high = 0.0, 20.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def power(law: list[int], exponent: int, size: int, *, floor: bool) -> list[int]:
    """The law of a sum of as many, its first ``size`` masses."""
    found, square, left = None, law, exponent
    while left:
        if left & 1:
            found = square if found is None else product(found, square, size, floor=floor)
        left >>= 1
        if left:
            square = product(square, square, size, floor=floor)
    assert found is not None
    return found


def convolved(law: list[int], epochs: int, size: int, *, floor: bool) -> tuple[list[int], float]:
    """The law of a sum of ``epochs`` logarithms that begin at LOW, and where it begins."""
    found, first = law, LOW
    step = FINER if floor else FINE
    keep = size
    for _ in range(epochs - 1):
        whole = product(found, law, len(found) + size, floor=floor)
        first += LOW
        # Logarithms below LOW are left out, or moved up to it.
        cut = max(round((LOW - first) / step), 0)
        lost, found = whole[:cut], whole[cut:][:keep]
        if not floor and found:
            found[0] += sum(lost)
        first += cut * step
    return found, first


def product(one: list[int], other: list[int], size: int, *, floor: bool) -> list[int]:
    whole = (fmpz_poly(one) * fmpz_poly(other)).coeffs()[:size]
    if floor:
        return [int(mass) >> BITS for mass in whole]
    return [-(-int(mass) >> BITS) for mass in whole]


# ---- X


def cell_sums(sigma: float, edges: list[float]) -> tuple[list[Any], list[Any]]:
    """Enclosures of the mass of X in every cell between edges, and of its mean times the mass."""
    sharp, root = arb(sigma), arb(2).sqrt()
    masses, means = [arb(1)], [arb(1)]
    for edge in edges[1:]:
        z = sharp * arb(edge).log() + 1 / (2 * sharp)
        masses.append((z / root).erfc() / 2)
        means.append(((z - 1 / sharp) / root).erfc() / 2)
    cells = range(len(edges) - 1)
    return [masses[k] - masses[k + 1] for k in cells], [means[k] - means[k + 1] for k in cells]


def contracted(sigma: float, width: float, points: int) -> list[int]:
    """Masses at (k + ½)·width, of cells whose means are no less than that."""
    sharp, root = arb(sigma), arb(2).sqrt()

    def beyond(edge: float) -> tuple[Any, Any]:
        z = sharp * arb(edge).log() + 1 / (2 * sharp)
        return (z / root).erfc() / 2, ((z - 1 / sharp) / root).erfc() / 2

    law, edge, there = [], 0.0, (arb(1), arb(1))
    for k in range(points):
        point = width * (k + 0.5)
        if edge >= point:  # too far already: nothing is left for this point
            law.append(0)
            continue
        reach = point - edge
        # A cell around the point: its mean is about its middle plus slope·(its width)²/12.
        slope = -(sigma**2 * math.log(point) + 1.5) / point
        offset = min(0.5 * reach, max(0.0, -slope * reach * reach * 2.0 / 3.0))
        end = point + reach + offset
        if k < CAREFUL:  # Newton's steps towards a mean that is the point
            for _ in range(4):
                here = beyond(end)
                excess = float(there[1] - here[1] - (there[0] - here[0]) * arb(point))
                z = sigma * math.log(end) + 0.5 / sigma
                density = math.exp(-0.5 * z * z) * sigma / end / math.sqrt(2.0 * math.pi)
                end = max(point + 1e-3 * reach, end - excess / (density * (end - point)))
            end += 1e-9 * reach
        for attempt in range(60):
            here = beyond(end)
            mass, mean = there[0] - here[0], there[1] - here[1]
            if mean > mass * arb(point):
                break
            end += (1e-4 + 0.02 * attempt) * reach
        else:
            raise ArithmeticError(f"no cell for {point}")
        law.append(down(mass))
        edge, there = end, here
    return law


def up(enclosure: Any) -> int:
    return int((enclosure * UNIT).upper().ceil().unique_fmpz())


def down(enclosure: Any) -> int:
    return max(0, int((enclosure * UNIT).lower().floor().unique_fmpz()))


# ---- Monte Carlo


def simulated(
    sigma: float, steps: int, epochs: int, epsilon: float, tilts: tuple[float, float]
) -> tuple[float, float]:
    """δ if the record is removed, and its standard error; the same numbers at every call.

    The record's Z is N(1/σ, 1) in every epoch. It is drawn larger by the first tilt in one epoch,
    or by the second in all of them, or not at all; a sample's weight is its density over that of
    the mixture, both whichever step the record is in.
    """
    generator, (one, every) = np.random.default_rng(22), tilts
    chunk = max(1, 4_000_000 // (steps * epochs))
    found = []
    for at in range(0, SAMPLES, chunk):
        size = min(chunk, SAMPLES - at)
        z = generator.standard_normal((size, epochs, steps))
        z[:, :, 0] += 1.0 / sigma
        way, epoch = generator.choice(3, size, p=WAYS), generator.integers(epochs, size=size)
        rows = np.arange(size)[way == 0]
        z[rows, epoch[rows], 0] += one
        z[way == 1, :, 0] += every
        base, first, second = (
            np.log(np.exp(a * z - 0.5 * a * a).mean(axis=2))
            for a in (1.0 / sigma, 1.0 / sigma + one, 1.0 / sigma + every)
        )
        odds = WAYS[0] * np.exp(first - base).mean(axis=1) + WAYS[2]
        odds += WAYS[1] * np.exp((second - base).sum(axis=1))
        found.append(-np.expm1(np.minimum(epsilon - base.sum(axis=1), 0.0)) / odds)
    values = np.concatenate(found)
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))


if __name__ == "__main__":
    json.dump(bracketed(*json.load(sys.stdin)), sys.stdout)
