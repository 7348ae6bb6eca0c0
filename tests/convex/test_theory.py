"""The rates: the lecture's exponents, its table of gradient calls, and bounds that hold."""

from __future__ import annotations

import math
from functools import cache

import pytest

from tacit.convex.theory import concentrated, descent_risk, rates
from tacit.errors import InvalidArgument

GIVEN = {"examples": 10**7, "parameters": 20, "epsilon": 0.5, "delta": 1e-6}


@cache
def table(**changes):
    return rates(**(GIVEN | changes))


def entry(method, case, **changes):
    found = table(**changes)
    return next(one for one in found if (one.method, one.case) == (method, case))


def slope(quantity, method, case, name, factor=100):
    """By which power of one argument a quantity changes."""
    base = GIVEN | {"lipschitz": 1.0, "smoothness": 1.0, "strong_convexity": 0.01, "distance": 1.0}
    values = [
        getattr(entry(method, case, **{name: value}), quantity)
        for value in (base[name], base[name] * factor)
    ]
    return math.log(values[1] / values[0]) / math.log(factor)


# (method, case): powers of n, d, L, β, λ, D in the excess risk, as in the lecture.
RISKS = {
    ("output", "convex"): (-1 / 2, 1 / 4, 1, 0, 0, 1),
    ("output", "smooth"): (-2 / 3, 1 / 3, 2 / 3, 1 / 3, 0, 4 / 3),
    ("objective", "smooth"): (-1, 1, 1, None, 0, None),
    ("objective", "glm"): (-1, 1 / 2, 1, None, 0, None),
    ("noisy-gd", "convex"): (-1, 1 / 2, 1, 0, 0, 1),
    ("noisy-gd", "smooth"): (-1, 1 / 2, 1, 0, 0, 1),
    ("noisy-gd", "strongly-convex"): (-2, 1, 2, 0, -1, 0),
    ("noisy-gd", "non-convex"): (-1, 1 / 2, 3 / 2, 1 / 2, 0, 1 / 2),
    ("noisy-sgd", "convex"): (-1, 1 / 2, 1, 0, 0, 1),
    ("noisy-sgd", "smooth"): (-1, 1 / 2, 1, 0, 0, 1),
}
NAMES = ("examples", "parameters", "lipschitz", "smoothness", "strong_convexity", "distance")


@pytest.mark.parametrize(("method", "case"), list(RISKS))
def test_excess_risk_has_the_lectures_powers(method, case):
    for name, power in zip(NAMES, RISKS[method, case], strict=True):
        if power is not None:
            assert slope("excess_risk", method, case, name) == pytest.approx(power, abs=0.06), name


# Powers of n in the number of gradient calls, as in the lecture's last table.
CALLS = {
    ("noisy-gd", "smooth"): 2.0,
    ("noisy-gd", "convex"): 3.0,
    ("noisy-gd", "strongly-convex"): 3.0,
    ("noisy-sgd", "convex"): 2.0,
    ("noisy-sgd", "strongly-convex"): 2.0,
}


@pytest.mark.parametrize(("method", "case"), list(CALLS))
def test_gradient_calls_have_the_lectures_powers(method, case):
    assert slope("gradient_calls", method, case, "examples") == pytest.approx(
        CALLS[method, case], abs=0.1
    )


def test_smooth_sgd_takes_three_halves_until_the_noise_takes_two():
    # n^{3/2} + n²/d: the first term rules when d is large.
    assert slope("gradient_calls", "noisy-sgd", "smooth", "examples") > 1.9
    wide = [
        entry("noisy-sgd", "smooth", examples=n, parameters=10**9).gradient_calls
        for n in (10**7, 10**9)
    ]
    assert math.log(wide[1] / wide[0]) / math.log(100) == pytest.approx(1.5, abs=0.15)


def test_sampling_saves_gradients():
    for case in ("convex", "smooth", "strongly-convex"):
        assert (
            entry("noisy-sgd", case).gradient_calls < 0.5 * entry("noisy-gd", case).gradient_calls
        )


def test_best_sampling_rate_is_best_and_its_constraint_is_kept():
    best = entry("noisy-sgd", "convex")
    for factor in (0.3, 0.8, 1.25, 3.0):
        other = entry("noisy-sgd", "convex", sample_rate=best.sample_rate * factor)
        assert other.gradient_calls >= best.gradient_calls * 0.999
    least = float(best.constraint.split("≥ ")[1].split(",")[0])
    assert best.steps >= least * 0.999
    assert "T ≥" in best.constraint


@pytest.mark.parametrize("case", ["convex", "smooth", "strongly-convex", "non-convex"])
def test_more_steps_than_told_gain_at_most_a_constant(case):
    given = {"lipschitz": 1.0, "smoothness": 1.0, "strong_convexity": 0.01, "distance": 1.0}
    told = entry("noisy-gd", case)
    rho = concentrated(GIVEN["epsilon"], GIVEN["delta"])
    noise = GIVEN["parameters"] / (2 * rho * GIVEN["examples"] ** 2)
    limit = descent_risk(case, steps=1e12 * told.steps, variance=noise * 1e12 * told.steps, **given)
    assert limit < told.excess_risk < 2.1 * limit


def test_replacing_costs_twice_what_adding_does():
    for method, case in (("noisy-gd", "convex"), ("objective", "glm")):
        once, twice = (
            entry(method, case, adjacency=name).excess_risk
            for name in ("add-remove", "replace-one")
        )
        assert twice / once == pytest.approx(2.0, rel=0.02)


def test_strong_convexity_is_needed_where_it_is_used():
    with pytest.raises(InvalidArgument, match="strong_convexity"):
        descent_risk(
            "strongly-convex",
            steps=1,
            variance=1,
            lipschitz=1,
            smoothness=1,
            strong_convexity=0,
            distance=1,
        )
    with pytest.raises(InvalidArgument, match="sample_rate"):
        rates(**GIVEN, sample_rate=1.0)


def test_public_name_is_the_function_whatever_was_imported_before():
    import tacit.convex.estimators  # noqa: F401, PLC0415
    from tacit.convex import rates as public  # noqa: PLC0415

    assert public is rates
