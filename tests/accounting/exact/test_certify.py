"""The certified ends of a whole event."""

import math
from fractions import Fraction

import pytest

from tacit.accounting import (
    ApproxDp,
    DiscreteGaussian,
    PureDp,
    Repeated,
    bounds,
    calibrate,
    epsilon,
)
from tacit.accounting.exact.certificate import enclose_epsilon
from tacit.accounting.normal_form import parts


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
