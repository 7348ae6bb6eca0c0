"""Events are plain values: equal, hashable, readable, and the same after a trip through JSON."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.accounting import (
    AboveThreshold,
    ApproxDp,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Exponential,
    Gaussian,
    GaussianMixture,
    Laplace,
    NoisyMax,
    PoissonRuns,
    PoissonSampled,
    PrivateSelection,
    PureDp,
    RandomizedResponse,
    RenyiCurve,
    Repeated,
    SampledWithoutReplacement,
    SampledWithReplacement,
    TruncatedConcentrated,
    TruncatedNegativeBinomial,
    ZeroConcentrated,
    from_json,
    to_json,
)
from tacit.accounting.events import check_runs
from tacit.accounting.normal_form import parts, simplify
from tacit.errors import InvalidArgument

_positive = st.floats(1e-3, 1e3)
_leaves: st.SearchStrategy[Event] = st.one_of(
    st.builds(Gaussian, _positive, st.sampled_from([1.0, math.sqrt(2), 2.0])),
    st.builds(Laplace, _positive),
    st.builds(DiscreteGaussian, _positive, st.integers(1, 5)),
    st.builds(DiscreteLaplace, _positive, st.integers(1, 5)),
    st.builds(
        lambda e, k: RandomizedResponse(epsilon=e, categories=k), _positive, st.integers(2, 9)
    ),
    st.builds(lambda p: RandomizedResponse(probability=p), st.floats(0.5, 0.999)),
    st.builds(Exponential, _positive),
    st.builds(
        NoisyMax, _positive, st.sampled_from(["laplace", "gumbel", "exponential"]), st.booleans()
    ),
    st.builds(AboveThreshold, _positive, _positive, st.integers(1, 9), length=st.integers(1, 99)),
    st.builds(PureDp, _positive),
    st.builds(ApproxDp, _positive, st.floats(0, 1)),
    st.builds(ZeroConcentrated, _positive),
    st.builds(TruncatedConcentrated, _positive, st.floats(1.5, 100)),
    st.just(RenyiCurve((2.0, 4.0), (0.1, 0.2))),
    st.just(GaussianMixture(2.0, (0.5, 0.5), (0.0, 1.0))),
)
_runs = st.one_of(
    st.builds(PoissonRuns, _positive),
    st.builds(TruncatedNegativeBinomial, st.floats(-0.9, 3.0), st.floats(0.001, 0.9)),
)
events: st.SearchStrategy[Event] = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.builds(PoissonSampled, st.floats(0, 1), inner),
        st.builds(lambda q, e: PoissonSampled(q, e, cap=5, population=10), st.floats(0, 1), inner),
        st.builds(lambda n, e: SampledWithoutReplacement(100, n, e), st.integers(1, 100), inner),
        st.builds(lambda n, e: SampledWithReplacement(100, n, e), st.integers(1, 300), inner),
        st.builds(PrivateSelection, inner, _runs),
        st.builds(Repeated, inner, st.integers(1, 10**6)),
        st.lists(inner, max_size=3).map(lambda found: Composed(*found)),
    ),
    max_leaves=5,
)


@given(events)
def test_json_gives_the_same_value_back(event: Event) -> None:
    again = from_json(to_json(event))
    assert again == event
    assert hash(again) == hash(event)
    assert repr(again) == repr(event)


@given(events)
def test_simple_events_stay_simple(event: Event) -> None:
    simple = simplify(event)
    assert simplify(simple) == simple


def test_events_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Gaussian(1.0).sigma = 2.0  # type: ignore[misc]


def test_order_and_grouping_do_not_matter() -> None:
    a, b = Gaussian(1), PureDp(0.5)
    one = parts(Composed(Repeated(Composed(a, b), 2), a))
    other = parts(Composed(a, a, a, b, b))
    assert dict(one) == dict(other) == {a: 3, b: 2}


def test_sampling_of_gaussians_merges() -> None:
    assert simplify(PoissonSampled(0.5, Composed(Gaussian(3), Gaussian(4)))) == PoissonSampled(
        0.5, Gaussian(1 / math.sqrt(1 / 9 + 1 / 16))
    )
    assert simplify(PoissonSampled(1.0, Laplace(2))) == Laplace(2)
    assert parts(PoissonSampled(0.0, Laplace(2))) == ()
    everybody = SampledWithoutReplacement(7, 7, Laplace(2))
    assert simplify(everybody, "replace-one") == simplify(everybody, "zero-out") == Laplace(2)
    assert simplify(everybody, "add-remove") == everybody  # of eight records, seven are taken


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Gaussian(0), "sigma must be a positive finite number, got 0"),
        (lambda: Gaussian(math.nan), "sigma .* got nan"),
        (lambda: Gaussian(True), "sigma must be a number, got True"),
        (lambda: Laplace("1"), "scale must be a number, got '1'"),
        (lambda: PoissonSampled(1.5, Gaussian(1)), "rate must lie between 0 and 1, got 1.5"),
        (lambda: PoissonSampled(0.1, "Gaussian"), "event must be a tacit.accounting event"),
        (lambda: PoissonSampled(0.1, Gaussian(1), cap=3), "cap and population go together"),
        (lambda: Repeated(Gaussian(1), 0), "times must be a whole number, 1 or more, got 0"),
        (lambda: Repeated(Gaussian(1), 1.5), "times .* got 1.5"),
        (RandomizedResponse, "either epsilon or probability"),
        (lambda: RandomizedResponse(probability=0.2), "at least 1/categories = 0.5, got 0.2"),
        (lambda: SampledWithoutReplacement(5, 6, Gaussian(1)), "size must be at most population"),
        (lambda: RenyiCurve((2.0, 1.5), (0.1, 0.1)), "orders must be above 1 and increasing"),
        (lambda: GaussianMixture(1.0, (0.5, 0.4), (0.0, 1.0)), "weights must add up to 1"),
        (lambda: DiscreteGaussian(1.0, 1, 1.5), "whole number on a lattice"),
        (lambda: from_json('{"kind": "Nonsense"}'), "an event needs a kind among"),
        (lambda: from_json('{"kind": "PureDp"}'), "PureDp needs the fields"),
        (lambda: from_json("not json"), "text must be JSON"),
    ],
)
def test_refusals_name_the_argument_and_its_value(make: object, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        make()  # type: ignore[operator]


# ---- the laws of the number of runs, against sums over their probabilities


def weights(eta: float, gamma: float, largest: int) -> list[float]:
    """The unnormalised probabilities of k = 1, 2, …, from the definition."""
    found, product = [], 1.0 / eta if eta else 0.0
    for k in range(1, largest + 1):
        product = product * (k - 1 + eta) / k if eta else 1.0 / k
        found.append((1.0 - gamma) ** k * product)
    return found


@pytest.mark.parametrize("eta", [-0.5, 0.0, 1e-12, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("gamma", [0.5, 0.1, 0.01])
def test_the_mean_is_the_sum_over_all_numbers(eta: float, gamma: float) -> None:
    found = weights(eta, gamma, 6000)
    mean = math.fsum(k * one for k, one in enumerate(found, 1)) / math.fsum(found)
    assert TruncatedNegativeBinomial(eta, gamma).mean == pytest.approx(mean, rel=1e-9)


@given(st.floats(1.01, 1e4), st.sampled_from([-0.3, 0.0, 0.5, 1.0, 2.0]))
def test_a_mean_is_met_from_below(mean: float, eta: float) -> None:
    found = TruncatedNegativeBinomial.with_mean(mean, eta).mean
    assert mean * (1.0 - 1e-9) <= found <= mean


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TruncatedNegativeBinomial(-1.0, 0.1), "eta must be a finite number above -1"),
        (lambda: TruncatedNegativeBinomial(math.nan, 0.1), "eta .* got nan"),
        (lambda: TruncatedNegativeBinomial("1", 0.1), "eta .* got '1'"),
        (lambda: TruncatedNegativeBinomial(1.0, 1.5), "gamma must lie strictly between 0 and 1"),
        (lambda: TruncatedNegativeBinomial.with_mean(1.0), "mean must be above 1, got 1.0"),
        (lambda: PoissonRuns(0.0), "mean must be a positive finite number, got 0.0"),
        (lambda: check_runs(3), "runs must be .* got 3"),
    ],
)
def test_refusals(make: object, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        make()  # type: ignore[operator]
