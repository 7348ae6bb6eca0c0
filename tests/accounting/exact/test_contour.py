"""The contour integral: where its nodes lie, and what one direction's line says of the other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from mpmath import mp

from tacit.accounting.exact.contour import SaddleSearch, certify_beside, lay_contour
from tacit.accounting.exact.enclosure import Resolution, invert
from tacit.accounting.exact.mixture import MixturePair, MixtureSide, turned_sums, turns

if TYPE_CHECKING:
    from tacit.accounting.exact.contour import Contour
    from tacit.accounting.exact.mixture import MixtureNodes, TiltedMixture
    from tacit.accounting.exact.transforms import Floats, NodeErrors

# (rate, sigma, steps, delta): few and many steps, where the directions differ little and a lot.
SETTINGS = [
    (0.01, 4.0, 10_000, 1e-5),
    (0.01, 5.0, 1_000, 1e-6),
    (256 / 60_000, 1.1, 14_062, 1e-5),
    (0.08, 3.0, 2_468, 1e-5),
    (0.1, 0.7, 1_000, 1e-5),
    (0.5, 3.0, 5, 1e-6),
    (0.3, 20.0, 40, 1e-9),
    (0.02, 1.3, 600, 1e-9),
]
QUICK = Resolution(relative_error=1e-5, lower_end=False)


def _both_ways(rate: float, sigma: float) -> tuple[MixturePair, MixturePair]:
    side, plain = MixtureSide((1.0 - rate, rate), (0.0, 1.0)), MixtureSide()
    return MixturePair(sigma, side, plain), MixturePair(sigma, plain, side)


def _laid(pair: MixturePair | Watched, steps: int, delta: float) -> Contour:
    search = SaddleSearch(((pair, steps),))
    return lay_contour(((pair, steps),), search, search.for_delta(delta), Resolution())


# ---- the other direction along the same line


@pytest.mark.parametrize(("rate", "sigma", "steps", "delta"), SETTINGS)
def test_the_line_of_one_direction_certifies_the_other_and_nothing_below_the_truth(
    rate: float, sigma: float, steps: int, delta: float
) -> None:
    forward, backward = _both_ways(rate, sigma)
    along, other = _laid(forward, steps, delta), ((backward, steps),)
    epsilon = invert(along, delta, along.spectrum.centre).upper
    search = SaddleSearch(other)
    truth = lay_contour(other, search, search.for_epsilon(epsilon), Resolution()).enclose(epsilon)
    assert 0.0 < truth.upper < delta
    assert certify_beside(along, other, epsilon, delta, QUICK)
    for share in (1e-3, 0.3, 0.9, 1.0 - 1e-9):
        assert not certify_beside(along, other, epsilon, share * truth.lower, QUICK)


@pytest.mark.parametrize(("rate", "sigma", "steps", "delta"), SETTINGS[:4])
def test_where_the_directions_are_alike_the_line_tells_them_apart(
    rate: float, sigma: float, steps: int, delta: float
) -> None:
    forward, backward = _both_ways(rate, sigma)
    along, own = _laid(forward, steps, delta), _laid(backward, steps, delta)
    epsilon = invert(own, delta, own.spectrum.centre).upper
    assert certify_beside(along, ((backward, steps),), epsilon, (1.0 + 1e-4) * delta, QUICK)


# ---- nodes


@dataclass(frozen=True)
class Watched:
    """A pair whose transforms refuse frequencies beyond those they were asked to serve."""

    pair: MixturePair

    @property
    def largest(self) -> float:
        return self.pair.largest

    @property
    def rough_variance(self) -> float:
        return self.pair.rough_variance

    def real_line(self, reach: float, digits: float) -> MixtureNodes:
        return self.pair.real_line(reach, digits)

    def tilted(
        self, tilt: float, frequency: float, digits: float, resolution: Resolution
    ) -> WatchedTransform:
        return WatchedTransform(self.pair.tilted(tilt, frequency, digits, resolution), frequency)


class WatchedTransform:
    def __init__(self, transform: TiltedMixture, served: float) -> None:
        self._transform, self._served = transform, served
        self.log_mgf, self.log_mgf_error = transform.log_mgf, transform.log_mgf_error
        self.centre, self.size = transform.centre, transform.size

    def ratio(self, frequencies: Floats) -> tuple[Floats, Floats]:
        assert frequencies[-1] <= self._served
        return self._transform.ratio(frequencies)

    def ratio_error(self, frequencies: Floats) -> NodeErrors:
        assert frequencies[-1] <= self._served
        return self._transform.ratio_error(frequencies)

    def log_decay(self, frequency: float, thorough: bool) -> float:
        return self._transform.log_decay(frequency, thorough)


def test_no_node_lies_beyond_the_frequency_that_the_transforms_serve() -> None:
    """Their bounds end there. The last node used to lie up to a step farther out."""
    rng = np.random.default_rng(7)
    for _ in range(60):
        rate, sigma = 10.0 ** rng.uniform(-2, -0.3), 10.0 ** rng.uniform(-0.2, 0.8)
        steps, delta = int(10.0 ** rng.uniform(1.5, 4)), 10.0 ** rng.uniform(-12, -3)
        forward, backward = _both_ways(float(rate), float(sigma))
        along = _laid(Watched(forward), steps, float(delta))
        _laid(Watched(backward), steps, float(delta))
        quick = ((Watched(backward), steps),)
        certify_beside(along, quick, along.spectrum.centre, float(delta), QUICK)


# ---- exp(iuy) - 1


@pytest.mark.parametrize("count", [12, 400])  # summed as they are, and by a table
def test_turns_keep_the_digits_of_small_angles_and_of_half_turns(count: int) -> None:
    rng = np.random.default_rng(3)
    step = math.pi / 7.0  # every seventh frequency turns the spread 1 by a multiple of π
    frequencies = step * np.arange(count)
    spread = np.concatenate([[1.0, -1.0, 2.0, 1e-9, -1e-14], rng.normal(size=20)])
    mass = rng.uniform(size=len(spread))
    mass /= mass.sum()
    single = turns(frequencies, spread)
    real, imaginary = turned_sums(frequencies, spread, mass)
    with mp.workdps(40):
        for k in [0, 1, 3, 7, count - 1]:
            truth = [mp.expm1(mp.mpc(0, mp.mpf(frequencies[k]) * mp.mpf(y))) for y in spread]
            for found, right in zip(single[k].tolist(), truth, strict=True):
                assert abs(found - complex(right)) <= 2e-14 * min(2.0, abs(right)) * (1 + k)
            whole = complex(mp.fsum(mp.mpf(m) * one for m, one in zip(mass, truth, strict=True)))
            assert abs(complex(real[k], imaginary[k]) - whole) <= 2e-14 * (1 + k)
