"""A distinguishing attack on every mechanism: none proves more than its ε, most prove much of it.

96,000 draws on each of two neighbours, in ``make test-slow`` 240,000 as well, and a lower bound on
ε that holds with 99.9 %. Where one release has many independent parts (numbers, cells, columns),
each is a draw; a part on which neighbours differ is then a release of its own, with noise as for
one part alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import binom

from tacit.accounting import Gaussian
from tacit.accounting import epsilon as epsilon_of
from tacit.mechanisms import (
    SparseVector,
    choices,
    discrete_gaussian,
    discrete_laplace,
    exponential,
    gaussian,
    histogram,
    laplace,
    mean,
    noisy_max,
    permute_and_flip,
    quantile,
    quantiles,
    randomized_response,
)
from tacit.mechanisms import sum as private_sum
from tacit.mechanisms._races import winners
from tacit.mechanisms.covariances import Moments
from tacit.randomness import UnsafeSeededStream

from .attack import _bound, _ends, proven_epsilon

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

_MANY = 240_000


@pytest.fixture(params=[96_000, pytest.param(_MANY, marks=pytest.mark.slow)])
def count(request: pytest.FixtureRequest) -> Any:
    """How many draws there are on either side."""
    return request.param


def _streams() -> tuple[UnsafeSeededStream, UnsafeSeededStream]:
    return UnsafeSeededStream(0, "one"), UnsafeSeededStream(0, "other")


def _pair(release: Callable[[int, Any], Any]) -> tuple[Any, Any]:
    """The draws on data that give 0 and on neighbours that give 1."""
    one, other = _streams()
    return release(0, one), release(1, other)


def test_the_attack_finds_a_lie(count: int) -> None:
    """With a third less noise than claimed, the claim is refuted."""
    for claimed in (0.5, 1.0):
        proven = proven_epsilon(
            *_pair(
                lambda at, s, e=claimed: (
                    laplace(
                        np.full(count, float(at)), sensitivity=1, epsilon=1.5 * e, stream=s
                    ).value
                )
            )
        )
        assert proven > claimed


def test_the_attack_proves_nothing_of_equal_laws(count: int) -> None:
    one, other = _streams()
    zeros = np.zeros(count)
    draws = (laplace(zeros, sensitivity=1, epsilon=1, stream=s).value for s in (one, other))
    assert proven_epsilon(*draws) <= 0


@pytest.mark.parametrize(("hits", "draws"), [(3, 50), (17, 40)])
def test_the_bound_is_clopper_and_pearsons(hits: int, draws: int) -> None:
    """At either end the binomial law has 0.0005 beyond what was found."""
    least, most = _ends(hits, draws)
    assert binom.sf(hits - 1, draws, least) == pytest.approx(0.0005)
    assert binom.cdf(hits, draws, most) == pytest.approx(0.0005)
    assert _bound(hits, hits, draws, 0.001) == pytest.approx(math.log((least - 0.001) / most))


@pytest.mark.parametrize(
    "epsilon",
    [pytest.param(0.5, marks=pytest.mark.slow), 1.0, pytest.param(3.0, marks=pytest.mark.slow)],
)
def test_laplace(count: int, epsilon: float) -> None:
    proven = proven_epsilon(
        *_pair(
            lambda at, s: (
                laplace(np.full(count, 0.3 + at), sensitivity=1, epsilon=epsilon, stream=s).value
            )
        )
    )
    assert 0.6 * epsilon <= proven <= epsilon


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        pytest.param(0.5, 1e-2, marks=pytest.mark.slow),
        (1.0, 1e-2),
        (1.0, 1e-3),
        pytest.param(4.0, 1e-2, marks=pytest.mark.slow),
    ],
)
def test_gaussian(count: int, epsilon: float, delta: float) -> None:
    proven = proven_epsilon(
        *_pair(
            lambda at, s: (
                gaussian(
                    np.full(count, 0.3 + at), sensitivity=1, epsilon=epsilon, delta=delta, stream=s
                ).value
            )
        ),
        delta=delta,
    )
    assert 0.6 * epsilon <= proven <= epsilon


@pytest.mark.parametrize("delta", [1e-5, pytest.param(1e-2, marks=pytest.mark.slow)])
def test_classical_gaussian(delta: float) -> None:
    draws = _pair(
        lambda at, s: (
            gaussian(
                np.full(_MANY, float(at)),
                sensitivity=1,
                epsilon=0.9,
                delta=delta,
                calibration="classical",
                stream=s,
            ).value
        )
    )
    assert 0.3 <= proven_epsilon(*draws, delta=delta) <= 0.9


def test_discrete_noise(count: int) -> None:
    counts = np.zeros(count, dtype=np.int64)
    draws = _pair(lambda at, s: discrete_laplace(counts + at, epsilon=1, stream=s).value)
    assert 0.9 <= proven_epsilon(*draws) <= 1
    draws = _pair(
        lambda at, s: discrete_gaussian(counts + at, epsilon=1, delta=1e-2, stream=s).value
    )
    assert 0.6 <= proven_epsilon(*draws, delta=1e-2) <= 1


@pytest.mark.parametrize(
    ("epsilon", "categories"),
    [
        pytest.param(0.5, 2, marks=pytest.mark.slow),
        (1.0, 2),
        pytest.param(3.0, 2, marks=pytest.mark.slow),
        (1.0, 5),
    ],
)
def test_randomized_response(count: int, epsilon: float, categories: int) -> None:
    draws = _pair(
        lambda at, s: (
            randomized_response(
                np.full(count, at), categories=categories, epsilon=epsilon, stream=s
            ).value
        )
    )
    assert 0.6 * epsilon <= proven_epsilon(*draws) <= epsilon


def _chosen_first(
    count: int, call: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch, *data: Any
) -> list[Any]:
    """Whether the first one won, in many of the races that the mechanism itself asks for."""
    drawn: list[Any] = []

    def many(scores: Any, rate: Fraction, law: Any, _stream: Any, weights: Any = None) -> int:
        stream = UnsafeSeededStream(len(drawn), "races")
        races = [winners(scores, rate, law, count // 8, stream, weights) for _ in range(8)]
        drawn.append((np.concatenate(races) == 0).astype(np.int64))
        return 0

    for module in (choices, quantiles):
        monkeypatch.setattr(module, "winner", many)
    for one in data:
        call(one)
    return drawn


@pytest.mark.parametrize(
    "epsilon",
    [pytest.param(0.5, marks=pytest.mark.slow), 1.0, pytest.param(3.0, marks=pytest.mark.slow)],
)
def test_exponential(count: int, epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst neighbours: one candidate's score falls, and all the others' rise."""
    draws = _chosen_first(
        count,
        lambda scores: exponential(scores, sensitivity=1, epsilon=epsilon),
        monkeypatch,
        [2.0] + [0.0] * 30,
        [1.0] + [1.0] * 30,
    )
    assert 0.6 * epsilon <= proven_epsilon(*draws) <= epsilon


@pytest.mark.parametrize("noise", ["laplace", "gumbel", "exponential"])
@pytest.mark.parametrize("monotone", [False, True])
def test_noisy_max(count: int, noise: Any, monotone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = _chosen_first(
        count,
        lambda scores: noisy_max(scores, sensitivity=1, epsilon=1, noise=noise, monotone=monotone),
        monkeypatch,
        [0.0, 0.0, 0.0],
        [1.0, 0.0, 0.0] if monotone else [1.0, -1.0, -1.0],
    )
    assert 0.2 <= proven_epsilon(*draws) <= 1


def test_permute_and_flip(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = _chosen_first(
        count,
        lambda scores: permute_and_flip(scores, sensitivity=1, epsilon=1),
        monkeypatch,
        [0.0, 8.0],
        [1.0, 7.0],
    )
    assert 0.6 <= proven_epsilon(*draws) <= 1  # the unlikely one is e^ε times as likely


def test_quantile(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A median over two points: the records' own votes."""
    draws = _chosen_first(
        count,
        lambda data: quantile(data, 0.5, bounds=(0, 1), step=1, epsilon=1),
        monkeypatch,
        [0.0] * 4,
        [0.0] * 5,
    )
    assert 0.1 <= proven_epsilon(*draws) <= 1


def test_histogram(count: int) -> None:
    cells = np.arange(count)
    draws = _pair(
        lambda at, s: histogram(np.tile(cells, at), cells=count, epsilon=1, stream=s).value
    )
    assert 0.9 <= proven_epsilon(*draws) <= 1
    draws = _pair(
        lambda at, s: (
            histogram(np.tile(cells, at), cells=count, epsilon=1, delta=1e-2, stream=s).value
        )
    )
    assert 0.6 <= proven_epsilon(*draws, delta=1e-2) <= 1


@pytest.mark.parametrize("held", [0, 1, pytest.param(4, marks=pytest.mark.slow)])
def test_histogram_of_unknown_keys(count: int, held: int) -> None:
    """A key with so many records against one more; a key that is left out counts as -1."""

    def counts(at: int, stream: Any) -> Any:
        keys = np.repeat(np.arange(count), held + at)
        released = histogram(keys, epsilon=1, delta=1e-2, stream=stream).value
        found = np.full(count, -1)
        found[list(released)] = list(released.values())
        return found

    draws = _pair(counts)
    assert proven_epsilon(*draws, delta=1e-2) <= 1
    if held == 0:  # that a key is there at all tells of its record: this is what δ is for
        assert proven_epsilon(*draws, delta=1e-3) > 1


def test_sum_and_mean(count: int) -> None:
    """A row of as many columns, of which each has an ε of 1."""
    row = np.ones((1, count))
    draws = _pair(lambda at, s: private_sum(row[:at], bounds=(0, 1), epsilon=count, stream=s).value)
    assert 0.8 <= proven_epsilon(*draws) <= 1
    draws = _pair(
        lambda at, s: (
            mean(
                row * (2 * at - 1), bounds=(-1, 1), epsilon=count, adjacency="replace-one", stream=s
            ).value
        )
    )
    assert 0.5 <= proven_epsilon(*draws) <= 1


def test_second_moments(count: int) -> None:
    """A row (e_i + e_j)/√2 moves the entry (i, j) by a half: here all entries off the diagonal."""
    size, sigma, delta = 2 * (math.isqrt(count) // 2 + 5), 1.0, 1e-2

    def entries(at: int, stream: Any) -> Any:
        rows = np.full((at * size // 2, size), 1.0 / math.sqrt(size))
        drawn = [Moments(size, 1.0).noisy(rows, Gaussian(sigma), stream) for _ in range(2)]
        return np.concatenate([one[np.triu_indices(size, 1)] for one in drawn])[:count]

    claimed = epsilon_of(Gaussian(sigma), delta)
    assert 0.4 * claimed <= proven_epsilon(*_pair(entries), delta=delta) <= claimed


def _answers(lower: float, upper: float, runs: int) -> Any:
    """Which of four pairs of answers two queries get, run by run."""
    stream = UnsafeSeededStream(0, f"{lower} {upper}")
    found = []
    for _ in range(runs):
        vector = SparseVector(0, sensitivity=1, epsilon=2, cutoff=2, stream=stream)
        found.append(2 * vector.above(lower) + vector.above(upper))
    return np.asarray(found)


@pytest.mark.parametrize("runs", [5_000, pytest.param(_MANY, marks=pytest.mark.slow)])
def test_sparse_vector(runs: int) -> None:
    """Neighbours move one query up and the other down."""
    one, other = _answers(-0.5, 0.5, runs), _answers(0.5, -0.5, runs)
    hits = [[int((side == outcome).sum()) for side in (one, other)] for outcome in range(4)]
    proven = max(_bound(*pair, runs, 0.0) for each in hits for pair in (each, each[::-1]))
    assert 0.05 <= proven <= 2
