"""Fixed-size sampling under replacement: the folded loss against 30 digits, and against cells."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mpmath as mp
import numpy as np
import pytest

from tacit.accounting import (
    Gaussian,
    PoissonSampled,
    Repeated,
    SampledWithoutReplacement,
    bounds,
    delta,
    epsilon,
)
from tacit.accounting.exact.enclosure import Resolution
from tacit.accounting.exact.folded import FoldedLoss
from tacit.accounting.exact.grid import epsilon_on_grid
from tacit.accounting.exact.pairs import PairLoss
from tacit.accounting.exact.sampled_pairs import without_replacement_part

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency

LOSSES = [FoldedLoss(0.01, 1.0), FoldedLoss(0.1, 2.0, 1.0), FoldedLoss(0.5, 0.3)]


def _moment(loss: FoldedLoss, z: mp.mpc) -> mp.mpc:
    """M(z) by mpmath."""

    def weight(t: mp.mpf, shift: float) -> mp.mpf:
        return 1 - mp.mpf(loss.rate) * (1 - mp.exp(shift * t - mp.mpf(shift) ** 2 / 2))

    def term(t: mp.mpf) -> mp.mpc:
        above, below = weight(t, loss.far), weight(t, loss.near)
        lost = mp.log(above / below)
        grown = above * (mp.exp(z * lost) - 1) + below * (mp.exp(-z * lost) - 1)
        return mp.npdf(t) * grown

    return 1 + mp.quad(term, [loss.start + k for k in range(0, 26, 2)])


@pytest.mark.parametrize(
    ("loss", "tilt"),
    [
        (LOSSES[2], 4.0),
        *(
            pytest.param(loss, tilt, marks=pytest.mark.slow)
            for loss in LOSSES[:2]
            for tilt in (0.7, 4.0)
        ),
    ],
)
def test_the_transform_is_right_within_its_errors(loss: FoldedLoss, tilt: float) -> None:
    line = loss.tilted(tilt, 40.0, 33.0, Resolution())
    frequencies = np.array([0.0, 3.0, 17.0, 40.0])
    real, imaginary = line.ratio(frequencies)
    errors = line.ratio_error(frequencies)
    with mp.workdps(25):
        there = _moment(loss, mp.mpf(tilt))
        assert line.log_mgf == pytest.approx(float(mp.log(there)), rel=1e-11, abs=1e-14)
        assert loss.real_line(tilt, 30.0).log_mgf_bound(tilt) >= mp.log(there)
        for k, u in enumerate(frequencies.tolist()):
            turned = mp.expj(-u * mp.mpf(line.centre)) * _moment(loss, mp.mpc(tilt, u)) / there
            off = abs(mp.mpc(1.0 + real[k], imaginary[k]) - turned)
            most = np.asarray(errors.truncation)[k] + np.asarray(errors.quadrature)[k]
            most += np.asarray(errors.rounding)[k] + 1e-14
            assert off <= most < 1e-9


@pytest.mark.parametrize("loss", LOSSES)
def test_no_frequency_beyond_is_above_the_decay(loss: FoldedLoss) -> None:
    line = loss.tilted(3.0, 60.0, 33.0, Resolution())
    sharp = loss.tilted(3.0, 500.0, 20.0, Resolution())
    u = np.linspace(1.0, 500.0, 3000)
    real, imaginary = sharp.ratio(u)
    true = 0.5 * np.log((1.0 + real) ** 2 + imaginary**2)
    for frequency in (1.0, 5.0, 30.0, 60.0):
        bound = line.log_decay(frequency, thorough=True)
        assert float(true[u >= frequency].max()) <= bound
    assert bound < 0.5 * float(true[u >= 60.0].max())  # and worth something


@pytest.mark.parametrize("loss", LOSSES)
def test_how_fast_a_transform_turns_is_bounded(loss: FoldedLoss) -> None:
    line = loss.tilted(2.0, 1.0, 33.0, Resolution())
    _, mean, variance = loss.real_line(2.0, 30.0).moments(2.0)
    assert math.sqrt(variance + mean**2) <= line.steepest <= 1.3 * math.sqrt(variance + mean**2)


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
@pytest.mark.parametrize(("size", "sigma", "steps", "target"), [(10, 2.0, 200, 1e-5)])
def test_it_is_what_cells_say_and_sharper(
    adjacency: Adjacency, size: int, sigma: float, steps: int, target: float
) -> None:
    event = SampledWithoutReplacement(1000, size, Gaussian(sigma))
    part = without_replacement_part(event, adjacency)
    assert part is not None
    assert isinstance(part.forward.loss, FoldedLoss)
    cells = ((PairLoss(part.forward.cells), steps),)
    by_cells = epsilon_on_grid(cells, target, Resolution())
    found = bounds(Repeated(event, steps), target, adjacency)
    assert found.method == "contour"
    assert by_cells.lower <= found.upper <= by_cells.upper < 1.0001 * found.upper
    assert delta(Repeated(event, steps), found.upper, adjacency=adjacency) == pytest.approx(
        target, rel=1e-6
    )


@pytest.mark.parametrize(("size", "sigma", "steps"), [(10, 2.0, 100), (200, 5.0, 50)])
def test_the_lower_end_is_that_of_neighbours_that_differ_most(
    size: int, sigma: float, steps: int
) -> None:
    """All other records are alike, and the replaced one becomes like them: 2 apart."""
    event = Repeated(SampledWithoutReplacement(1000, size, Gaussian(sigma)), steps)
    found = bounds(event, 1e-5, "replace-one")
    actual = Repeated(PoissonSampled(size / 1000, Gaussian(0.5 * sigma)), steps)
    assert found.two_sided
    assert found.lower == pytest.approx(epsilon(actual, 1e-5), rel=1e-8)
    assert found.lower <= found.upper
    less = bounds(event, 1e-5, "zero-out")
    assert less.two_sided
    assert less.lower < found.lower
    added = bounds(event, 1e-5)
    assert found.lower * 0.98 < added.lower < added.upper
