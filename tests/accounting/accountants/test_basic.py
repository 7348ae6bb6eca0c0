"""Basic composition: sums, shared δ, amplification and refusals."""

from __future__ import annotations

import math

import pytest

from tacit.accounting import gaussian_profile
from tacit.accounting.accountants.composition import basic_delta, basic_epsilon
from tacit.accounting.events import (
    ApproxDp,
    Composed,
    Event,
    Exponential,
    Gaussian,
    Laplace,
    PoissonSampled,
    PureDp,
    RandomizedResponse,
    Repeated,
    SampledWithoutReplacement,
    SampledWithReplacement,
    ZeroConcentrated,
)
from tacit.errors import UnsupportedEvent


def test_pure_losses_add_and_cost_no_delta() -> None:
    event = Composed(
        Repeated(PureDp(0.1), 3), Laplace(2.0), RandomizedResponse(0.2), Exponential(0.3)
    )
    for delta in (0.0, 1e-300, 1e-5):
        assert basic_epsilon(event, delta, "add-remove") == pytest.approx(1.3)
    assert basic_delta(event, 1.3 + 1e-12, "add-remove") == 0.0
    assert basic_delta(event, 1.29, "add-remove") == 1.0
    assert basic_epsilon(event, 1e-5, "replace-one") == pytest.approx(1.8)  # Laplace moves by 2


def test_deltas_add_and_too_small_a_total_is_refused_by_infinity() -> None:
    event = Repeated(ApproxDp(0.1, 1e-6), 10)
    assert basic_epsilon(event, 1e-5, "add-remove") == pytest.approx(1.0)
    assert basic_epsilon(event, 0.99e-5, "add-remove") == math.inf
    assert basic_delta(event, 1.0 + 1e-12, "add-remove") == pytest.approx(1e-5)


def test_equal_gaussians_share_delta_equally() -> None:
    event = Repeated(Gaussian(5.0), 8)
    expected = 8 * gaussian_profile.epsilon(0.2, 1e-6 / 8)
    assert basic_epsilon(event, 1e-6, "add-remove") == pytest.approx(expected, rel=1e-11)


def test_different_gaussians_share_delta_better_than_equally() -> None:
    event = Composed(Gaussian(1.0), Repeated(Gaussian(50.0), 99))
    equal = gaussian_profile.epsilon(1.0, 1e-8) + 99 * gaussian_profile.epsilon(0.02, 1e-8)
    found = basic_epsilon(event, 1e-6, "add-remove")
    best = min(
        gaussian_profile.epsilon(1.0, share * 1e-6)
        + 99 * gaussian_profile.epsilon(0.02, (1 - share) * 1e-6 / 99)
        for share in [k / 200 for k in range(1, 200)]
    )
    assert best * (1 - 1e-6) <= found <= best * (1 + 1e-4)
    assert found < 0.99 * equal


def test_sampling_amplifies_each_release_exactly() -> None:
    rate, delta = 0.01, 1e-6
    inner = gaussian_profile.epsilon(0.25, delta / rate)
    expected = math.log1p(rate * math.expm1(inner))
    for event in (
        PoissonSampled(rate, Gaussian(4.0)),
        SampledWithoutReplacement(100, 1, Gaussian(8.0)),
    ):
        assert basic_epsilon(event, delta, "add-remove") == pytest.approx(expected, rel=1e-11)
    pure = PoissonSampled(rate, PureDp(2.0))
    assert basic_epsilon(pure, 1e-9, "add-remove") == pytest.approx(
        math.log1p(rate * math.expm1(2.0))
    )
    assert basic_epsilon(pure, 1e-9, "replace-one") == 2.0  # it may tell who was drawn
    failing = PoissonSampled(rate, ApproxDp(2.0, 1e-4))
    assert basic_epsilon(failing, 1e-6, "add-remove") == pytest.approx(
        math.log1p(rate * math.expm1(2.0))
    )
    assert basic_epsilon(failing, 0.9e-6, "add-remove") == math.inf


def test_replacing_in_a_poisson_sample_needs_both_distances() -> None:
    # A replace distance below 1 does not help: the record may also be left out.
    near = PoissonSampled(0.1, Gaussian(4.0, replace_distance=0.5))
    far = PoissonSampled(0.1, Gaussian(4.0, replace_distance=2.0))
    assert basic_epsilon(near, 1e-6, "replace-one") == basic_epsilon(near, 1e-6, "add-remove")
    assert basic_epsilon(far, 1e-6, "replace-one") > basic_epsilon(far, 1e-6, "add-remove")


def test_a_sampled_composition_is_composed_first() -> None:
    event = PoissonSampled(0.1, Composed(PureDp(0.4), Laplace(2.0)))
    assert basic_epsilon(event, 1e-6, "add-remove") == pytest.approx(
        math.log1p(0.1 * math.expm1(0.9))
    )


@pytest.mark.parametrize(
    "event",
    [
        Repeated(PoissonSampled(0.01, Gaussian(4.0)), 50),
        Composed(Gaussian(3.0), Repeated(ZeroConcentrated(0.01), 3)),
        Composed(Gaussian(3.0), ApproxDp(0.1, 1e-7)),
    ],
)
def test_delta_inverts_epsilon_and_never_understates(event: Event) -> None:
    epsilon = basic_epsilon(event, 1e-5, "add-remove")
    found = basic_delta(event, epsilon, "add-remove")
    assert found == pytest.approx(1e-5, rel=1e-3)
    assert basic_epsilon(event, found, "add-remove") <= epsilon * (1 + 1e-9)


def test_a_cut_sample_costs_more() -> None:
    plain = Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10)
    cut = Repeated(PoissonSampled(0.01, Gaussian(4.0), cap=650, population=50_000), 10)
    less = basic_epsilon(plain, 1e-5, "add-remove")
    more = basic_epsilon(cut, 1e-5, "add-remove")
    assert less < more < 1.001 * less


def test_edges() -> None:
    assert basic_epsilon(Composed(), 1e-5, "add-remove") == 0.0
    assert basic_delta(Composed(), 0.0, "add-remove") == 0.0
    assert basic_epsilon(Gaussian(1.0), 0.0, "add-remove") == math.inf
    assert basic_epsilon(Repeated(PureDp(10.0), 10**6), 1e-5, "add-remove") == pytest.approx(1e7)


def test_refusal_names_event_and_accountant() -> None:
    with pytest.raises(UnsupportedEvent, match="'basic' does not support SampledWithReplacement"):
        basic_epsilon(SampledWithReplacement(10, 2, Gaussian(1.0)), 1e-5, "add-remove")
