"""Sparse vector: exact comparisons, the chances they have, and when it ends."""

from __future__ import annotations

import copy
import math
import os
import pickle
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

from tacit._workers import fork
from tacit.accounting import epsilon as epsilon_of
from tacit.errors import InvalidArgument, ProtocolError
from tacit.mechanisms import SparseVector, sparse_vectors
from tacit.mechanisms.sparse_vectors import RealNoise, is_positive
from tacit.randomness import UnsafeSeededStream

from .laws import has_weights, is_gaussian, is_laplace

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.mechanisms.sparse_vectors import Law

_LAWS: tuple[Law, ...] = ("laplace", "gaussian")
_RUNS = 60_000


@pytest.mark.parametrize("law", _LAWS)
def test_noise_has_its_law(law: Law) -> None:
    stream = UnsafeSeededStream(0, law)
    noise = np.asarray([RealNoise(law, stream).near for _ in range(_RUNS)])
    accepted = is_laplace if law == "laplace" else is_gaussian
    assert accepted(noise, 1.0)
    assert not accepted(0.97 * noise, 1.0)


@pytest.mark.parametrize("law", _LAWS)
def test_what_is_near_lies_within_its_doubt(law: Law) -> None:
    stream = UnsafeSeededStream(1, law)
    context = mpmath.iv.clone() if hasattr(mpmath.iv, "clone") else mpmath.iv
    old = context.prec
    context.prec = 120
    try:
        for _ in range(500):
            noise = RealNoise(law, stream)
            held = noise.enclosed(context)
            slack = noise.doubt * (1 + abs(noise.near))
            assert noise.near - slack <= float(held.a)
            assert float(held.b) <= noise.near + slack
    finally:
        context.prec = old


@pytest.mark.parametrize("law", _LAWS)
def test_comparisons_by_digits_agree(law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    def decisions(stream: UnsafeSeededStream) -> list[bool]:
        return [
            is_positive(Fraction(1, 3), [(Fraction(2), RealNoise(law, stream))]) for _ in range(200)
        ]

    fast = decisions(UnsafeSeededStream(2, law))
    monkeypatch.setattr(sparse_vectors, "GUARD", 1e-3)
    assert decisions(UnsafeSeededStream(2, law)) == fast
    # The noise's own first digits as the gap: only further ones decide.
    noise = RealNoise(law, UnsafeSeededStream(3, law))
    before = noise.bits
    is_positive(-Fraction(noise.near), [(Fraction(1), noise)])
    assert noise.bits >= before


def _laplace_chance(gap: float, threshold: float, query: float) -> float:
    """P(gap + query·X - threshold·Y > 0) for Laplace X, Y: the sum of two scales, by parts."""
    if gap < 0:
        return 1.0 - _laplace_chance(-gap, threshold, query)
    a, b = threshold**2, query**2
    tail = (b * math.exp(-gap / query) - a * math.exp(-gap / threshold)) / (2 * (b - a))
    return 1.0 - tail


def _gaussian_chance(gap: float, threshold: float, query: float) -> float:
    return float(norm.cdf(gap / math.hypot(threshold, query)))


@pytest.mark.parametrize("runs", [8_000, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("noise", "chance"), [("laplace", _laplace_chance), ("gaussian", _gaussian_chance)]
)
def test_the_chance_of_above(
    runs: int,
    noise: Literal["laplace", "gaussian"],
    chance: Callable[[float, float, float], float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A chance that is off by 0.026 shows in ``make test``, by 0.016 in ``make test-slow``."""
    gap, stream = 14.0, UnsafeSeededStream(0, noise)
    delta, length = (1e-5, 100) if noise == "gaussian" else (None, None)

    def made() -> SparseVector:
        return SparseVector(
            3.0, sensitivity=2.0, epsilon=1, delta=delta, noise=noise, length=length, stream=stream
        )

    event = made().event
    monkeypatch.setattr(sparse_vectors, "_event", lambda *_: event)  # calibrating takes longest
    found = np.asarray([made().above(3.0 + gap) for _ in range(runs)], dtype=np.int64)
    scales = 2.0 * event.threshold_scale, 2.0 * event.query_scale
    expected = chance(gap, *scales)
    assert 0.6 < expected < 0.99
    assert has_weights(found, np.asarray([1 - expected, expected]))


def test_a_shared_threshold_ties_the_answers() -> None:
    """Two queries share one threshold's noise: were it drawn anew, they would be independent."""
    stream = UnsafeSeededStream(0, "shared")
    pairs = []
    for _ in range(4_000):
        vector = SparseVector(0, sensitivity=1, epsilon=1, cutoff=2, stream=stream)
        pairs.append((vector.above(0), vector.above(0)))
    same = np.mean([a == b for a, b in pairs])
    assert same > 0.55


def test_it_ends() -> None:
    vector = SparseVector(0, sensitivity=1, epsilon=1000, cutoff=2)
    assert [vector.above(x) for x in (-9, 9, -9)] == [False, True, False]
    assert vector.left == 1
    assert vector.above(9)
    assert vector.done
    with pytest.raises(ProtocolError, match="ended after 4 queries, 2 of them above"):
        vector.above(9)
    short = SparseVector(0, sensitivity=1, epsilon=1000, length=1)
    assert not short.above(-9)
    with pytest.raises(ProtocolError, match="ended after 1 queries"):
        short.above(-9)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one", "zero-out"])
@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("cutoff", [1, 5])
def test_the_accountant_finds_no_more_than_was_asked(
    adjacency: Literal["add-remove", "replace-one", "zero-out"], monotone: bool, cutoff: int
) -> None:
    vector = SparseVector(
        0, sensitivity=3, epsilon=0.7, cutoff=cutoff, monotone=monotone, adjacency=adjacency
    )
    found = epsilon_of(vector.event, 1e-9, "basic", adjacency)
    assert found <= 0.7
    assert found == pytest.approx(0.7)
    vector = SparseVector(
        0,
        sensitivity=3,
        epsilon=0.7,
        delta=1e-6,
        noise="gaussian",
        length=50,
        cutoff=cutoff,
        monotone=monotone,
        adjacency=adjacency,
    )
    found = epsilon_of(vector.event, 1e-6, adjacency=adjacency)
    assert found <= 0.7
    assert found == pytest.approx(0.7, rel=1e-6)


def test_the_share_of_the_threshold_is_the_best() -> None:
    """Lyu, Su & Li 2017: no other split of ε has a smaller variance of query against threshold."""
    event = SparseVector(0, sensitivity=1, epsilon=1, cutoff=4).event
    best = event.threshold_scale**2 + event.query_scale**2
    for share in np.linspace(0.05, 0.95, 50):
        assert (1 / share) ** 2 + (8 / (1 - share)) ** 2 >= best * (1 - 1e-9)


def test_no_copies() -> None:
    vector = SparseVector(0, sensitivity=1, epsilon=1)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(InvalidArgument, match="cannot be copied or pickled"):
            copied(vector)
    assert "threshold_scale" in repr(vector)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
def test_a_forked_process_gets_no_answer() -> None:
    """Each would find its own "above", for one charge."""
    vector = SparseVector(100, sensitivity=1, epsilon=1)
    child = fork()
    if child == 0:
        try:
            vector.above(500)
        except ProtocolError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert vector.above(500)
    assert vector.done


def test_refusals() -> None:
    with pytest.raises(InvalidArgument, match="threshold must be finite"):
        SparseVector(math.nan, sensitivity=1, epsilon=1)
    with pytest.raises(InvalidArgument, match="query must be finite"):
        SparseVector(0, sensitivity=1, epsilon=1).above(math.inf)
    with pytest.raises(InvalidArgument, match="query must be one number"):
        SparseVector(0, sensitivity=1, epsilon=1).above([1.0])  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="length must be given with Gaussian noise"):
        SparseVector(0, sensitivity=1, epsilon=1, delta=1e-5, noise="gaussian")
    with pytest.raises(InvalidArgument, match="epsilon and delta must be given with Gaussian"):
        SparseVector(0, sensitivity=1, rho=1, noise="gaussian", length=3)
    with pytest.raises(InvalidArgument, match="delta must be left out with Laplace"):
        SparseVector(0, sensitivity=1, epsilon=1, delta=1e-5)
