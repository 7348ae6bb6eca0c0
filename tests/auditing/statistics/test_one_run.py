"""One run against the issue's figures and a sum by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from tacit.auditing import Guesses, one_run, one_run_p_value
from tacit.errors import InvalidArgument

ISSUE = [
    (1000, 1000, 1000, 5.7823),
    (1000, 100, 100, 3.4654),
    (1000, 100, 95, 2.1652),
    (1000, 1000, 900, 2.0206),
    (5000, 500, 490, 3.3357),
]
guesses = st.integers(1, 60).flatmap(
    lambda made: st.builds(
        lambda canaries, right: Guesses(canaries=made + canaries, made=made, right=right),
        st.integers(0, 60),
        st.integers(0, made),
    )
)


@pytest.mark.parametrize(("canaries", "made", "right", "epsilon"), ISSUE)
def test_the_figures_of_the_issue(canaries: int, made: int, right: int, epsilon: float) -> None:
    found = one_run(Guesses(canaries=canaries, made=made, right=right), 1e-5)
    assert found.epsilon == pytest.approx(epsilon, abs=5.1e-5)
    assert found.number("right") == right


@settings(max_examples=60, deadline=None)
@given(guesses, st.floats(0.0, 5.0), st.sampled_from([0.0, 1e-5, 1e-2]))
def test_the_p_value_is_the_sum_by_hand(found: Guesses, epsilon: float, delta: float) -> None:
    p = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    below = binom.cdf(found.right - 1, found.made, p)
    worst = max(
        (
            (below - binom.cdf(found.right - i - 1, found.made, p)) / i
            for i in range(1, found.right + 1)
        ),
        default=0.0,
    )
    truth = min(1.0, 1.0 - below + 2.0 * found.canaries * delta * worst)
    assert one_run_p_value(found, epsilon, delta) == pytest.approx(truth, rel=1e-7, abs=1e-13)


@settings(max_examples=60, deadline=None)
@given(guesses, st.sampled_from([0.0, 1e-4]))
def test_laws(found: Guesses, delta: float) -> None:
    epsilon = one_run(found, delta).epsilon
    assert one_run(found, delta + 1e-4).epsilon <= epsilon + 1e-8
    assert one_run(found, delta, 0.999).epsilon <= epsilon + 1e-8
    if found.right < found.made:
        more = Guesses(canaries=found.canaries, made=found.made, right=found.right + 1)
        assert one_run(more, delta).epsilon >= epsilon - 1e-8


@pytest.mark.parametrize("wrong", [(5, 6, 1), (5, 5, 6), (5, 0, 0), (5, 3, -1)])
def test_impossible_guesses_are_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidArgument):
        Guesses(canaries=wrong[0], made=wrong[1], right=wrong[2])
