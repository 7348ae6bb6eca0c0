"""Derives the truths in `accounting_rows.py` with 30-digit arithmetic and no code of tacit's.

    python benchmarks/accounting_truth.py [a b c ...]

Needs mpmath and NumPy. A privacy profile is a contour integral of the moment-generating function M
of the privacy loss, δ(ε) = 1/2πi ∫ M(z) e^{-zε} / (z(z+1)) dz over Re z = z₀ for any z₀ > 0. Both
it and M are taken by the trapezoid rule, which converges exponentially here; halving both steps
changes no digit that is printed. Mechanisms on a lattice (h2, h3) are plain binomial sums.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mpmath import erfc, exp, expjpi, findroot, fprod, log, log1p, mp, mpc, mpf, pi, sqrt

from accounting_rows import (
    ROWS,
    Allocated,
    ApproximateDp,
    Calibration,
    DiscreteNoise,
    Group,
    LaplaceNoise,
    Phase,
    RandomizedResponse,
    Row,
    SampledGaussian,
)

Array = np.ndarray

mp.dps = 30
DIGITS = 20  # of the quadrature; the printed figures are shorter


@dataclass(frozen=True)
class Loss:
    """A discretised privacy loss: (value, weight) of one release, and how often it is made."""

    points: list[tuple[mpf, mpf]]
    count: int

    def tilted(self, z: mpf) -> tuple[mpf, mpf, mpf]:
        """The logarithm of the moment M(z) of all releases, and its first two derivatives."""
        terms = [(v, w * exp(z * v)) for v, w in self.points]
        total = sum(t for _, t in terms)
        mean = sum(t * v for v, t in terms) / total
        variance = sum(t * (v - mean) ** 2 for v, t in terms) / total
        return self.count * log(total), self.count * mean, self.count * variance


def sampled_gaussian_loss(phase: Phase, remove: bool, z_max: mpf, u_max: mpf, fine: int) -> Loss:
    """The loss of one phase for the neighbour that lacks the record (`remove`) or has one more."""
    q, s = mpf(phase.sample_rate), mpf(phase.noise_multiplier)
    tail = s * sqrt(2 * DIGITS * log(10))
    low, high = (-tail, z_max + 1 + tail) if remove else (-z_max - tail, tail)
    # The integrand is analytic up to |Im x| = πσ², oscillates with Im z and decays like a Gaussian.
    analytic = 2 * pi**2 * s**2 / (DIGITS * log(10))
    step = min(2 * pi / (u_max / s**2 + 2 * tail / s**2), analytic) / fine
    points = []
    for k in range(int((high - low) / step) + 1):
        x = low + step * k
        loss = log(1 - q + q * exp((2 * x - 1) / (2 * s**2)))
        mass = step * exp(-(x**2) / (2 * s**2)) / (s * sqrt(2 * pi))
        points.append((loss, mass * exp(loss)) if remove else (-loss, mass))
    return Loss(points, phase.steps)


def saddle(losses: Sequence[Loss], epsilon: mpf) -> mpf:
    """Roughly the z₀ where the integrand is flattest: any is right, this one converges fast."""
    low, high = mpf("0.01"), mpf(60)
    for _ in range(20):
        middle = sqrt(low * high)
        if sum(loss.tilted(middle)[1] for loss in losses) < epsilon:
            low = middle
        else:
            high = middle
    return low


def moments_on_line(loss: Loss, z0: mpf, step: mpf, count: int) -> list[mpc]:
    """M(z₀ + i k step) for k < count, each by turning the previous one's terms a little further."""
    terms = [(mpc(w * exp(z0 * v)), expjpi(step * v / pi)) for v, w in loss.points]
    moments = []
    for _ in range(count):
        moments.append(sum((t for t, _ in terms), mpc(0)) ** loss.count)
        terms = [(t * turn, turn) for t, turn in terms]
    return moments


def solve_on_line(moments: Sequence[mpc], z0: mpf, step: mpf, delta: mpf, guess: mpf) -> mpf:
    """The ε at which the contour integral is `delta`."""
    scale = abs(moments[0])
    terms = []
    for k, moment in enumerate(moments):
        z = mpc(z0, step * k)
        terms.append((step * k, moment / scale / (z * (z + 1)) / (1 if k else 2)))

    def log_delta(epsilon: mpf) -> mpf:
        total = sum((t * expjpi(-u * epsilon / pi)).real for u, t in terms)
        return log(total * step / pi) + log(scale) - z0 * epsilon

    return findroot(lambda e: log_delta(e) - log(delta), (guess, guess * (1 + mpf("1e-6"))))


def period(losses: Sequence[Loss], z0: mpf, epsilon: mpf) -> mpf:
    """How far apart the trapezoid rule's copies of the profile must lie to leave no trace.

    A copy is damped by e^{-z₀·period} on one side, and on the other by Chernoff's bound at any
    z₁ > z₀, however heavy the tail of the loss is.
    """
    nats = DIGITS * log(10)
    height = sum(loss.tilted(z0)[0] for loss in losses)
    left = (nats + z0 * epsilon - height + 2 * log(z0 + 1) + 10) / z0

    def right(z1: mpf) -> mpf:
        rise = sum(loss.tilted(z1)[0] for loss in losses) - height
        return (rise + nats + 10) / (z1 - z0) - epsilon

    return max(left, min(right(z0 * factor) for factor in (1.1, 1.3, 1.6, 2, 3)))


def one_direction(phases: Sequence[Phase], remove: bool, row: Row, guess: mpf, fine: int) -> mpf:
    """ε of the phases for one of the two neighbours; `guess` only places the contour."""
    coarse = [sampled_gaussian_loss(p, remove, mpf(200), mpf(0), 1) for p in phases]
    z0 = saddle(coarse, guess)
    step = 2 * pi / period(coarse, z0, guess) / fine
    count, small = 64, mpf(10) ** -DIGITS
    while True:
        losses = [sampled_gaussian_loss(p, remove, z0, step * count, fine) for p in phases]
        by_phase = [moments_on_line(loss, z0, step, count) for loss in losses]
        moments = [fprod(factors) for factors in zip(*by_phase, strict=True)]
        if abs(moments[-1]) < abs(moments[0]) * small:
            break
        count *= 2
    epsilon = solve_on_line(moments, z0, step, mpf(row.delta), guess)
    if abs(epsilon - guess) > guess / 1000:  # the contour was placed for another ε
        return one_direction(phases, remove, row, epsilon, fine)
    return epsilon


def gaussian_epsilon(mu: mpf, delta: mpf, guess: mpf) -> mpf:
    """The closed form of Balle and Wang (2018) for a Gaussian mechanism of signal-to-noise μ."""

    def upper_tail(x: mpf) -> mpf:
        return erfc(x / sqrt(2)) / 2

    def log_delta(e: mpf) -> mpf:
        return log(upper_tail(e / mu - mu / 2) - exp(e) * upper_tail(e / mu + mu / 2))

    return findroot(lambda e: log_delta(e) - log(delta), (guess, guess * (1 + mpf("1e-6"))))


def sampled_gaussian_epsilon(phases: Sequence[Phase], row: Row, guess: mpf, fine: int) -> mpf:
    if all(phase.sample_rate == 1 for phase in phases):
        mu = sqrt(sum(p.steps / mpf(p.noise_multiplier) ** 2 for p in phases))
        return gaussian_epsilon(mu, mpf(row.delta), guess)
    return max(one_direction(phases, remove, row, guess, fine) for remove in (True, False))


def laplace_epsilon(task: LaplaceNoise, row: Row, fine: int) -> mpf:
    """The loss has atoms at ±1/b and an exponential density between: M is elementary."""
    b, guess = mpf(task.scale), mpf(row.truth)

    def moment(z: mpf | mpc) -> mpf | mpc:
        up, down = exp(z / b), exp(-(z + 1) / b)
        return (up + down + (up - down) / (2 * z + 1)) / 2

    def slope(z: mpf) -> mpf:
        return mp.diff(lambda x: task.count * log(moment(x)), z)

    z0 = findroot(lambda z: slope(z) - guess, (mpf(1), mpf(3)))
    step = mpf("0.05") / fine
    moments = [moment(mpc(z0, step * k)) ** task.count for k in range(int(400 * fine))]
    return solve_on_line(moments, z0, step, mpf(row.delta), guess)


def binary_epsilon(epsilon0: mpf, count: int, delta: mpf) -> mpf:
    """`count` releases of ε₀-DP randomised response: the loss is (2j - count) ε₀, j binomial."""
    p = 1 / (1 + exp(-epsilon0))
    masses = [mp.binomial(count, j) * p**j * (1 - p) ** (count - j) for j in range(count + 1)]
    above = mirrored = mpf(0)
    for j in range(count, -1, -1):
        loss = (2 * j - count) * epsilon0
        above, mirrored = above + masses[j], mirrored + masses[count - j]
        epsilon = log((above - delta) / mirrored) if above > delta else mpf("inf")
        if loss - 2 * epsilon0 <= epsilon <= loss:
            return epsilon
    raise ArithmeticError("no ε reaches this δ")


def calibrated_sigma(task: Calibration, row: Row, fine: int) -> mpf:
    def gap(sigma: mpf) -> mpf:
        phase = Phase(task.sample_rate, sigma, task.steps)
        return sampled_gaussian_epsilon([phase], row, mpf(task.epsilon), fine) - task.epsilon

    guess = mpf(row.truth)
    return findroot(gap, (guess, guess * (1 + mpf("1e-7"))), tol=mpf("1e-32"))


def discrete_epsilon(sigma: mpf, count: int, delta: mpf) -> mpf:
    """The loss is (count - 2·sum)/2σ², and the law of the sum comes by convolution."""
    reach = 20
    weights = [exp(-(mpf(x) ** 2) / (2 * sigma**2)) for x in range(-reach, reach + 1)]
    one = [weight / sum(weights) for weight in weights]
    law = {0: mpf(1)}
    for _ in range(count):
        grown: dict[int, mpf] = {}
        for total, mass in law.items():
            for x, weight in enumerate(one, -reach):
                grown[total + x] = grown.get(total + x, mpf(0)) + mass * weight
        law = grown
    above = mirrored = mpf(0)
    for total in sorted(law):  # losses fall as the sum grows
        loss = (count - 2 * total) / (2 * sigma**2)
        above, mirrored = above + law[total], mirrored + law[total] * exp(-loss)
        epsilon = log((above - delta) / mirrored) if above > delta else mpf("inf")
        if loss - 1 / sigma**2 <= epsilon <= loss:
            return epsilon
    raise ArithmeticError("no ε reaches this δ")


# The rows of 10⁴ phases and of a thousand records would take days with 30 digits: in float64 the
# same contour integral leaves 12.


def step_losses(phases: Sequence[Phase], remove: bool) -> tuple[Array, Array, Array]:
    """Losses and masses at 400 outputs of every phase, in units of its noise, and the counts."""
    q = np.array([phase.sample_rate for phase in phases])[:, None]
    s = np.array([1 / phase.noise_multiplier for phase in phases])[:, None]
    y = np.linspace(-11, 25, 400)
    y = y if remove else -y
    loss = np.log1p(q * np.expm1(s * y - s * s / 2))
    mass = np.abs(y[1] - y[0]) * np.exp(-y * y / 2) / np.sqrt(2 * np.pi) * np.ones_like(loss)
    counts = np.array([float(phase.steps) for phase in phases])
    return (loss, mass * np.exp(loss), counts) if remove else (-loss, mass, counts)


def group_losses(phase: Phase, size: int, remove: bool) -> tuple[Array, Array, Array]:
    """The same for a group of `size`: the shifts 0, 1, … with binomial weights."""
    j = np.arange(61)
    q, s = phase.sample_rate, 1 / phase.noise_multiplier
    weights = np.array([float(mp.binomial(size, int(k)) * mpf(q) ** int(k)
                              * (1 - mpf(q)) ** (size - int(k))) for k in j])  # fmt: skip
    y = np.linspace(-14, 30, 2000)
    y = y if remove else -y
    ratio = np.exp(np.multiply.outer(y, j * s) - (j * s) ** 2 / 2) @ weights
    loss = np.log(ratio)[None, :]
    mass = (np.abs(y[1] - y[0]) * np.exp(-y * y / 2) / np.sqrt(2 * np.pi))[None, :]
    counts = np.array([float(phase.steps)])
    return (loss, mass * np.exp(loss), counts) if remove else (-loss, mass, counts)


def float_epsilon(losses: tuple[Array, Array, Array], row: Row) -> float:
    loss, mass, counts = losses

    def log_moment(z: complex) -> complex:
        return complex(counts @ np.log((mass * np.exp(z * loss)).sum(axis=1)))

    guess, z0 = row.truth, 1.0
    for _ in range(60):  # the saddle, by Newton's method on a difference
        slope = (log_moment(z0 * 1.001) - log_moment(z0 * 0.999)).real / (0.002 * z0)
        z0 *= (guess / slope) ** 0.5 if slope > 0 else 2.0
    step = 2 * math.pi / (12 * guess + 60 / z0)
    height = log_moment(complex(z0)).real
    terms = []
    for k in range(3000):
        z = complex(z0, step * k)
        value = np.exp(log_moment(z) - height) / (z * (z + 1)) / (1 if k else 2)
        terms.append((step * k, value))
        if abs(value) < 1e-18 * abs(terms[0][1]):
            break
    u, values = np.array([u for u, _ in terms]), np.array([value for _, value in terms])

    def delta(epsilon: float) -> float:
        total = float((values * np.exp(-1j * u * epsilon)).real.sum())
        return total * step / math.pi * math.exp(height - z0 * epsilon)

    low, high = 0.5 * guess, 1.5 * guess
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if delta(middle) > row.delta else (low, middle)
    return high


def truth(row: Row, fine: int) -> mpf:
    match row.task:
        case SampledGaussian(phases) if len(phases) > 1000:
            return mpf(max(float_epsilon(step_losses(phases, r), row) for r in (True, False)))
        case SampledGaussian(phases):
            return sampled_gaussian_epsilon(phases, row, mpf(row.truth), fine)
        case LaplaceNoise():
            return laplace_epsilon(row.task, row, fine)
        case RandomizedResponse(epsilon, count):
            return binary_epsilon(mpf(epsilon), count, mpf(row.delta))
        case ApproximateDp(epsilon, delta, count):
            lost = -mp.expm1(count * log1p(-mpf(delta)))
            return binary_epsilon(mpf(epsilon), count, (mpf(row.delta) - lost) / (1 - lost))
        case Calibration():
            return calibrated_sigma(row.task, row, fine)
        case DiscreteNoise(sigma, count):
            return discrete_epsilon(mpf(sigma), count, mpf(row.delta))
        case Group(phase, size):
            return mpf(max(float_epsilon(group_losses(phase, size, r), row) for r in (True, False)))
        case Allocated():  # tests/accounting/reference/make_allocation.py derives it
            return mpf(row.truth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help="default: all of them")
    parser.add_argument("--fine", type=int, default=1, help="divide every quadrature step by this")
    arguments = parser.parse_args()
    for name in arguments.rows or ROWS:
        print(f"{name:3} {mp.nstr(truth(ROWS[name], arguments.fine), 16)}", flush=True)


if __name__ == "__main__":
    main()
