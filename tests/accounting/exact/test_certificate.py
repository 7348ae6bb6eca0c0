"""The certificate is real: coarser arithmetic widens it, and each of its terms is needed."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tacit.accounting import (
    ApproxDp,
    DiscreteGaussian,
    Gaussian,
    PoissonSampled,
    PureDp,
    Repeated,
    bounds,
    calibrate,
    epsilon,
)
from tacit.accounting.accountants.exact import delta_interval, sketch
from tacit.accounting.exact.certificate import enclose_epsilon
from tacit.accounting.exact.contour import Contour, SaddleSearch, lay_contour
from tacit.accounting.exact.enclosure import Resolution
from tacit.accounting.exact.mixture import MixturePair, MixtureSide
from tacit.accounting.normal_form import parts

if TYPE_CHECKING:
    from tacit.accounting.exact.enclosure import Enclosure


# (rate, sigma, steps, delta) and the 40-digit ε of the remove direction, from the reference.
DPSGD = (256 / 60000, 1.1, 14062, 1e-5, 2.381596921424387)
SHORT = (0.5, 3.0, 5, 1e-6, 2.0)

COARSE: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("truncation", DPSGD, {"output_reach": 0.5}),
    ("truncation", DPSGD, {"output_reach": 0.45}),
    ("quadrature", SHORT, {"output_density": 0.45}),
    ("quadrature", SHORT, {"output_density": 0.4}),
    ("aliasing", DPSGD, {"contour_density": 0.5}),
    ("aliasing", DPSGD, {"contour_density": 0.35}),
    ("tail", DPSGD, {"contour_reach": 0.3}),
    ("tail", DPSGD, {"contour_reach": 0.21}),
    ("rounding", DPSGD, {"dtype": np.float32}),
    ("rounding", SHORT, {"dtype": np.float32}),
]


def _contour(setting: tuple[Any, ...], resolution: Resolution) -> Contour:
    rate, sigma, steps, delta, _ = setting
    pair = MixturePair(sigma, MixtureSide((1.0 - rate, rate), (0.0, 1.0)), MixtureSide())
    composition = ((pair, steps),)
    search = SaddleSearch(composition)
    return lay_contour(composition, search, search.for_delta(delta), resolution)


def _at_truth(setting: tuple[Any, ...], resolution: Resolution) -> tuple[Enclosure, float]:
    """The coarse enclosure at an ε where δ is known to 1e-12 by the fine one, and that δ."""
    fine = _contour(setting, Resolution())
    epsilon = setting[4]
    known = fine.enclose(epsilon)
    assert known.errors.below < 1e-9 * known.estimate
    return _contour(setting, resolution).enclose(epsilon), known.estimate


def test_the_fine_contour_agrees_with_forty_digits() -> None:
    found = _contour(DPSGD, Resolution()).enclose(DPSGD[4])
    assert found.estimate == pytest.approx(1e-5, rel=1e-10)


@pytest.mark.parametrize(("cause", "setting", "coarser"), COARSE)
def test_coarser_is_wider_and_still_holds(
    cause: str, setting: tuple[Any, ...], coarser: dict[str, Any]
) -> None:
    fine = _contour(setting, Resolution()).enclose(setting[4])
    coarse, truth = _at_truth(setting, replace(Resolution(), **coarser))
    assert coarse.lower <= truth <= coarse.upper
    assert getattr(coarse.errors, cause) > 10.0 * fine.errors.below


@pytest.mark.parametrize(("cause", "setting", "coarser"), COARSE)
def test_each_term_is_needed(cause: str, setting: tuple[Any, ...], coarser: dict[str, Any]) -> None:
    coarse, truth = _at_truth(setting, replace(Resolution(), **coarser))
    careless = replace(coarse, errors=replace(coarse.errors, **{cause: 0.0}))
    assert not careless.lower <= truth <= careless.upper


# ---- the certified ends of a whole event


@pytest.mark.parametrize("loss", [0.1, 0.3, 0.5, 1.0, 1.7, 3.0])
@pytest.mark.parametrize("times", [1, 2, 7])
def test_the_rounding_of_a_largest_loss_does_not_lower_the_bound(loss, times):
    """At δ = 1e-300 the truth is times·loss to far beyond the last digit."""
    found = enclose_epsilon(parts(Repeated(PureDp(loss), times)), 1e-300, "add-remove")
    assert Fraction(found.upper) >= times * Fraction(loss)


def test_noise_far_too_small_is_answered_by_a_looser_theorem():
    found = bounds(DiscreteGaussian(0.001, 1), 1e-6)
    assert 5e5 < found.upper < 5.2e5  # 1/(2σ²) is the loss at the likeliest output
    assert not found.two_sided


def test_an_uncertified_end_is_replaced_by_a_looser_theorem():
    """All but 1e-10 of δ is used up by the failures: it used to answer 1e300."""
    found = bounds(ApproxDp(1.0, 9.9999e-6), 1e-5)
    truth = math.log(math.e - 1e-10 * (1 + math.e) / (1 - 9.9999e-6))
    assert truth * (1 - 1e-12) <= found.upper <= 1.0


def test_calibration_survives_bounds_that_are_locally_out_of_order():
    sigma = calibrate(lambda s: DiscreteGaussian(s, 1), 0.1, 1e-6)
    assert 0.0999 < epsilon(DiscreteGaussian(sigma, 1), 1e-6) <= 0.1


def test_a_laid_curve_knows_that_delta_falls() -> None:
    """Of rare samples it is laid where ε is above 0, and once said nothing of δ(0)."""
    run = Repeated(PoissonSampled(1e-3, Gaussian(0.8)), 10)
    curve = sketch(run, "add-remove", (1e-6, 1e-4, 1e-2))
    assert curve is not None
    assert delta_interval(run, 1e-3, "add-remove").lower <= curve.delta(0.0) <= 1e-2
    assert delta_interval(run, 0.05, "add-remove").lower <= curve.delta(0.05) <= 1e-4
    assert curve.delta(40.0) <= 1e-6
