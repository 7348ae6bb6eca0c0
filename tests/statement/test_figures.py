"""The figures of an event, against closed forms; and figures that are not its own, refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy.stats import norm

from tacit.accounting import (
    ApproxDp,
    Composed,
    Event,
    Exponential,
    Gaussian,
    GaussianMixture,
    Laplace,
    PoissonSampled,
    PureDp,
    Repeated,
    bounds,
    epsilon,
)
from tacit.accounting.accountants.exact import delta_interval
from tacit.accounting.serialization import as_dict
from tacit.errors import InvalidArgument
from tacit.statement.figures import Figures, bracket, check_figures, figures


def of(event: Event, delta: float = 1e-5, adjacency: Any = "add-remove") -> Figures:
    return figures(as_dict(event), delta, adjacency)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0])
def test_those_of_the_gaussian_are_known(sigma):
    found = of(Gaussian(sigma))
    assert found.mu == pytest.approx(1.0 / sigma, rel=4e-3)
    assert found.mu >= 1.0 / sigma
    assert [rate for rate, _ in found.attack] == [0.01, 0.001]
    for rate, most in found.attack:
        exact = norm.cdf(norm.ppf(rate) + 1.0 / sigma)
        assert exact <= most * (1 + 1e-9)
        assert most == pytest.approx(exact, rel=1e-3)
    assert found.advantage == pytest.approx(2 * norm.cdf(0.5 / sigma) - 1, rel=1e-9)
    assert found.two_sided
    assert found.lower <= found.upper
    for delta, loss in found.curve:
        exact = norm.cdf(0.5 / sigma - loss * sigma)
        exact -= math.exp(loss) * norm.cdf(-0.5 / sigma - loss * sigma)
        assert delta == pytest.approx(exact, rel=1e-6)
    assert found.most == pytest.approx(math.exp(found.upper))
    assert found.least * found.most == pytest.approx(1.0)


def test_several_deltas_with_the_claims_own():
    assert [delta for delta, _ in of(Gaussian(1.0)).curve] == [1e-4, 1e-5, 1e-6, 1e-8, 1e-10]
    assert [delta for delta, _ in of(Gaussian(1.0), 3e-7).curve][3] == 3e-7
    found = of(Repeated(PoissonSampled(0.01, Gaussian(4.0)), 1000), 1e-12)
    assert found.mu_smallest_delta == 1e-12
    losses = [loss for _, loss in found.curve]
    assert losses == sorted(losses)


def test_replacing_costs_more():
    assert of(Gaussian(2.0), adjacency="replace-one").mu == pytest.approx(1.0, rel=4e-3)


@pytest.mark.parametrize("loss", [0.1, 1.0, 5.0])
def test_one_pair_alone_bounds_an_attack(loss):
    found = of(Exponential(loss))
    assert found.attack_from == "pair"
    assert found.mu is None
    assert found.curve == ((1e-5, found.upper),)
    for rate, most in found.attack:
        # Whatever is (ε, δ)-private: randomised response reaches e^ε·rate, and no more is allowed.
        known = min(math.exp(found.upper) * rate + 1e-5, 1.0)
        assert most <= known
        assert most >= min(rate, 1.0)
    assert found.advantage == pytest.approx(
        (math.exp(found.upper) - 1 + 2e-5) / (math.exp(found.upper) + 1)
    )


def test_pure_privacy_has_the_corners_of_randomised_response():
    found = of(PureDp(1.0), 1e-9)
    for rate, most in found.attack:
        assert most >= math.e * rate * (1.0 - 1e-12)  # a limit, and so never below
        assert most == pytest.approx(math.e * rate, rel=1e-4)
    assert found.advantage == pytest.approx(math.tanh(0.5), rel=1e-6)


def test_the_edges():
    nothing = of(Composed())
    assert (nothing.upper, nothing.mu, nothing.advantage, nothing.most) == (0.0, 0.0, 0.0, 1.0)
    hopeless = of(ApproxDp(1.0, 0.5))
    assert hopeless.upper == math.inf
    assert hopeless.mu is None
    assert hopeless.as_dict()["upper"] is None
    assert (hopeless.most, hopeless.least) == (math.inf, 0.0)
    loud = of(Gaussian(0.01))
    assert loud.mu is None
    assert loud.most == math.inf
    assert loud.attack[0][1] == pytest.approx(1.0)


def test_the_bracket_is_that_of_bounds():
    run = Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000)
    assert bracket(as_dict(run), 1e-5, "add-remove") == bounds(run, 1e-5)
    assert of(run).upper == epsilon(run, 1e-5)


def _forged(plain: dict[str, Any], *path: Any, value: Any) -> dict[str, Any]:
    import copy  # noqa: PLC0415

    forged = copy.deepcopy(plain)
    inner = forged
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return forged


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("upper",), 0.9),
        (("upper",), None),
        (("upper",), "0.2"),
        (("lower",), 0.0),
        (("two_sided",), False),
        (("two_sided",), 1),
        (("method",), "magic"),
        (("mu",), 0.2),
        (("mu",), None),
        (("mu_smallest_delta",), 1e-20),
        (("curve", 0, "epsilon"), 0.1),
        (("curve", 0, "delta"), 1e-9),
        (("curve",), []),
        (("attack", 1, "true_positive_rate"), 0.001),
        (("attack", 1), 3),
        (("attack_from",), "pair"),
        (("advantage",), True),
        (("most",), 1.0),
        (("least",), 1.0),
    ],
)
def test_forged_figures_are_refused(path, value):
    computed = of(Gaussian(4.0)).as_dict()
    check_figures(computed, computed)
    with pytest.raises(InvalidArgument, match=f"whose {path[0]} is"):
        check_figures(_forged(computed, *path, value=value), computed)


def test_what_another_build_may_differ_by_is_let_pass():
    computed = of(Gaussian(4.0)).as_dict()
    check_figures(_forged(computed, "mu", value=computed["mu"] * (1 + 1e-8)), computed)
    with pytest.raises(InvalidArgument, match="whose mu is"):
        check_figures(_forged(computed, "mu", value=computed["mu"] * (1 - 1e-5)), computed)


@pytest.mark.parametrize("written", [3, [], {}, {"upper": 1.0}])
def test_figures_that_are_none_are_refused(written):
    with pytest.raises(InvalidArgument, match="figures must have the fields"):
        check_figures(written, of(Gaussian(4.0)).as_dict())


@pytest.mark.parametrize(
    ("rate", "sigma", "steps"),
    [
        pytest.param(0.01, 1.0, 5, marks=pytest.mark.slow),
        pytest.param(0.1, 1.0, 2, marks=pytest.mark.slow),
        (0.02, 0.8, 60),
    ],
)
def test_few_steps_are_laid_once_and_stay_bounds(
    rate: float, sigma: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = Repeated(PoissonSampled(rate, Gaussian(sigma)), steps)
    known = {delta: bounds(event, delta) for delta in (1e-4, 1e-6, 1e-10)}
    lower = delta_interval(event, 0.0, "add-remove").lower
    bracket(as_dict(event), 1e-5, "add-remove")
    # Point by point it took up to twenty seconds.
    for name in ("epsilon_interval", "delta_interval"):
        monkeypatch.setattr(f"tacit.accounting.accountants.exact.{name}", None)
    found = of(event)
    for delta, loss in found.curve:
        if delta in known:
            assert known[delta].lower <= loss <= known[delta].upper * 1.001
    assert lower <= found.advantage <= lower * 1.02
    for fpr, most in found.attack:
        assert most >= fpr
    assert found.attack_from == "curve"
    assert found.mu is not None


def test_many_different_releases_are_refused_in_one_line() -> None:
    many = Composed(*(PoissonSampled(1e-3 + 1e-8 * one, Gaussian(5.0)) for one in range(10_001)))
    with pytest.raises(InvalidArgument, match=r"at most 10,000 different parts .* got 10,001"):
        of(many)
    some = Composed(*(PureDp(1e-3 + 1e-6 * one) for one in range(300)))
    with pytest.raises(InvalidArgument, match=r"at most 256 different parts .* got 300"):
        of(some)
    slow = Composed(*(PoissonSampled(0.01, Laplace(5.0 + one)) for one in range(30)))
    with pytest.raises(InvalidArgument, match="got 600"):
        of(slow)
    shifts = [float(one) for one in range(3000)]
    with pytest.raises(InvalidArgument, match="got 3000"):  # a mixture is as slow as it is wide
        of(GaussianMixture(0.01, [1 / 3000] * 3000, shifts))
    alike = Composed(*(PureDp(1e-3) for _ in range(30_000)))
    assert of(alike).upper < 30.0
    assert of(Composed(*(Gaussian(100.0 + one) for one in range(300)))).two_sided
