"""The table of rates: its powers, and what the lecture reads off it."""

from __future__ import annotations

import math

import pytest

from tacit.errors import InvalidArgument
from tacit.transfer import rates

# So many public points that the private term decides.
GIVEN = {"examples": 10**8, "public": 10**18, "dimension": 4, "epsilon": 0.5, "disagreement": 2.0}


def entry(algorithm, setting, **changes):
    (found,) = [
        one
        for one in rates(**(GIVEN | changes))
        if (one.algorithm, one.setting) == (algorithm, setting)
    ]
    return found.excess_error


def slope(algorithm, setting, name, **changes):
    base = (GIVEN | changes)[name]
    low, high = (entry(algorithm, setting, **(changes | {name: at})) for at in (base, 4 * base))
    return math.log(high / low) / math.log(4)


@pytest.mark.parametrize(
    ("algorithm", "setting", "tau", "n", "d", "theta"),
    [
        ("gaussian", "realizable", 1.0, -2 / 3, 1, 0),
        ("sparse-vector-2018", "realizable", 1.0, -2 / 3, 1, 0),
        ("sparse-vector", "realizable", 1.0, -1, 3 / 2, 0),
        ("active", "realizable", 1.0, -1, 3 / 2, 1 / 2),
        ("gaussian", "noise", 0.5, -2 / 7, 3 / 7, 0),
        ("sparse-vector", "noise", 0.5, -1 / 3, 1 / 2, 0),
        ("active", "noise", 0.5, -1 / 3, 1 / 2, 1 / 6),
        ("sparse-vector-2018", "noise", 0.5, -2 / 5, 3 / 5, 0),
        ("sparse-vector-2018", "agnostic", 1.0, -2 / 5, 3 / 5, 0),
    ],
)
def test_powers_are_the_lectures(algorithm, setting, tau, n, d, theta):
    for name, power in (("examples", n), ("epsilon", n), ("dimension", d), ("disagreement", theta)):
        found = slope(algorithm, setting, name, noise_exponent=tau)
        assert found == pytest.approx(power, abs=1e-6), name


def test_public_points_limit_every_rate():
    for algorithm, setting, power in (
        ("gaussian", "realizable", -1),
        ("sparse-vector-2018", "realizable", -1 / 2),
        ("active", "noise", -1),
        ("sparse-vector-2018", "agnostic", -1 / 2),
    ):
        assert slope(algorithm, setting, "public", public=10) == pytest.approx(power)


def test_without_noise_its_condition_is_the_realizable_case():
    for algorithm in ("gaussian", "sparse-vector", "active"):
        assert entry(algorithm, "noise") == pytest.approx(entry(algorithm, "realizable"))


def test_sixteen_entries_and_seven_without_a_rate():
    found = rates(**GIVEN)
    assert len(found) == 16
    assert sum(one.excess_error is None for one in found) == 7
    assert entry("sparse-vector-2018", "agnostic", best_error=0.1) > 1.3


@pytest.mark.parametrize("bad", [{"noise_exponent": 1.1}, {"noise_exponent": 0.0}, {"public": 0}])
def test_numbers_outside_the_table_are_refused(bad):
    with pytest.raises(InvalidArgument, match=next(iter(bad))):
        rates(**(GIVEN | bad))
