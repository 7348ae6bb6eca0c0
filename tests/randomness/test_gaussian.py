"""Gaussian noise: of the right size and shape, independent, and nobody else's to set."""

from __future__ import annotations

import copy
import math
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import binom, chi2, kstest, norm

from tacit.errors import InvalidArgument, ProtocolError
from tacit.randomness import GaussianSource, SystemStream, UnsafeSeededStream
from tacit.randomness.gaussian import _box_muller

_LEVEL = 1e-6
_DRAWS = 1_000_000
_CPU = torch.device("cpu")

Numbers = NDArray[np.float64]


def _source(purpose: str = "noise") -> GaussianSource:
    return GaussianSource(_CPU, UnsafeSeededStream(0, purpose))


def _draw(
    source: GaussianSource, count: int = _DRAWS, dtype: torch.dtype = torch.float32
) -> Numbers:
    tensor = torch.empty(count, dtype=dtype)
    source.normal_(tensor)
    return tensor.double().numpy()


def _accepts_scale(values: Numbers, sigma: float) -> bool:
    """The exact two-sided chi-square test of σ for normal data of mean 0, at 1e-6."""
    statistic = float((values**2).sum()) / sigma**2
    count = len(values)
    return bool(chi2.ppf(_LEVEL / 2, count) < statistic < chi2.isf(_LEVEL / 2, count))


def _uncorrelated(a: Numbers, b: Numbers) -> bool:
    """A correlation of the values or of their squares within five standard errors of 0."""
    pairs = ((a, b), (a**2, b**2))
    found = [abs(float(np.corrcoef(x, y)[0, 1])) for x, y in pairs]
    return max(found) < 5.0 / math.sqrt(len(a))


def _looks_normal(values: Numbers) -> bool:
    count = len(values)
    standard = (values - values.mean()) / values.std()
    skew, kurtosis = float((standard**3).mean()), float((standard**4).mean()) - 3.0
    beyond = int((abs(values) > 4.0).sum())
    tail = 2.0 * float(norm.sf(4.0))
    return (
        abs(skew) < 5.0 * math.sqrt(6.0 / count)
        and abs(kurtosis) < 5.0 * math.sqrt(24.0 / count)
        and float(kstest(values, "norm").pvalue) > _LEVEL
        and binom.ppf(_LEVEL / 2, count, tail) <= beyond <= binom.isf(_LEVEL / 2, count, tail)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sigma", [1.0, 4.0])
def test_sigma_is_right_to_a_percent(dtype: torch.dtype, sigma: float) -> None:
    values = sigma * _draw(_source(), dtype=dtype)
    assert _accepts_scale(values, sigma)
    for off in (0.97, 0.99, 1.01, 1.03):
        assert not _accepts_scale(off * values, sigma)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_shape_is_normal(dtype: torch.dtype) -> None:
    assert _looks_normal(_draw(_source(), dtype=dtype))


@pytest.mark.slow
def test_the_shape_test_has_power() -> None:
    rng = np.random.default_rng(0)
    assert _looks_normal(rng.standard_normal(_DRAWS))
    assert not _looks_normal(rng.standard_t(50, _DRAWS) * math.sqrt(48 / 50))
    assert not _looks_normal(rng.random((12, _DRAWS)).sum(axis=0) - 6.0)
    assert not _looks_normal(rng.laplace(size=_DRAWS) / math.sqrt(2))
    assert not _looks_normal(np.clip(rng.standard_normal(_DRAWS), -3.9, 3.9))
    assert not _looks_normal(rng.standard_normal(_DRAWS) + 0.01)


@pytest.mark.parametrize("lag", [1, 2, 7, (1 << 17), (1 << 18), 500_000])
def test_draws_do_not_depend_on_each_other(lag: int) -> None:
    # A block of 2^18 holds the cosines of its words, then their sines: 2^17 apart.
    values = _draw(_source())
    assert _uncorrelated(values[:-lag], values[lag:])


def test_streams_and_steps_do_not_depend_on_each_other() -> None:
    one, other = _source("one"), _source("other")
    first, second = _draw(one), _draw(one)
    assert _uncorrelated(first, second)
    assert _uncorrelated(first, _draw(other))


def test_the_correlation_test_has_power() -> None:
    one, other = _draw(_source("one")), _draw(_source("other"))
    assert not _uncorrelated(one, one)
    assert not _uncorrelated(one, 0.01 * one + math.sqrt(1 - 1e-4) * other)
    assert not _uncorrelated(one, abs(one) * np.sign(other))  # uncorrelated, but for the squares


def test_sources_from_the_system_differ() -> None:
    torch.manual_seed(0)
    one = _draw(GaussianSource(_CPU, SystemStream()), 1_000)
    torch.manual_seed(0)
    other = _draw(GaussianSource(_CPU, SystemStream()), 1_000)
    assert (one == other).sum() <= 5  # single precision has some values twice


def test_a_seeded_source_repeats_whatever_torch_and_numpy_are_seeded_with() -> None:
    expected = _draw(_source(), 1_000)
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 - the old global state is what must not matter
    assert np.array_equal(_draw(_source(), 1_000), expected)


def test_it_leaves_the_global_states_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    _draw(_source(), 1_000)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (7, 11), ((1 << 18) + 1,)])
def test_every_shape_is_filled_once(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tensor = torch.full(shape, math.nan, dtype=dtype)
    _source().normal_(tensor)
    assert torch.isfinite(tensor).all()
    assert len(torch.unique(tensor)) >= 0.99 * tensor.numel()


def test_a_strided_view_is_filled_and_nothing_else() -> None:
    whole = torch.zeros(6, 10)
    view = whole[::2, 1::3].T
    _source().normal_(view)
    assert bool((view != 0).all())
    assert int((whole != 0).sum()) == view.numel()


def test_a_parameter_is_filled_without_a_graph() -> None:
    parameter = torch.nn.Parameter(torch.zeros(5))
    _source().normal_(parameter)
    assert bool((parameter != 0).all())
    assert parameter.grad_fn is None


def test_no_bits_give_an_infinite_number() -> None:
    from tacit.randomness.gaussian import _box_muller  # noqa: PLC0415

    words = np.array([0, 2**64 - 1, 2**24 - 1, 2**24, 2**63], dtype=np.uint64)
    both = torch.stack(_box_muller(words))
    assert torch.isfinite(both).all()
    assert float(both[0, 0]) == pytest.approx(math.sqrt(2 * math.log(2**41)), rel=1e-6)


def test_precision_below_single_is_refused() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.int64):
        with pytest.raises(InvalidArgument, match=f"tensor must be .* got {dtype}"):
            _source().normal_(torch.zeros(2, dtype=dtype))


def test_a_tensor_elsewhere_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="tensor must be on cpu, got one on meta"):
        _source().normal_(torch.zeros(2, device="meta"))


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_source_cannot_be_copied(take: object) -> None:
    with pytest.raises(InvalidArgument, match="cannot be copied or pickled"):
        take(_source())  # type: ignore[operator]


def test_its_text_shows_no_key() -> None:
    assert repr(_source()) == "GaussianSource(cpu)"
    assert not hasattr(_source(), "__dict__")


def test_randomness_needs_no_torch() -> None:
    code = "import sys, tacit.randomness; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_on_a_gpu(dtype: torch.dtype) -> None:
    device = torch.device("cuda")

    def draw(source: GaussianSource) -> Numbers:
        tensor = torch.empty(_DRAWS, dtype=dtype, device=device)
        source.normal_(tensor)
        return tensor.double().cpu().numpy()

    torch.cuda.manual_seed_all(0)
    source = GaussianSource(device, UnsafeSeededStream(0, "gpu"))
    first, second = draw(source), draw(source)
    assert _accepts_scale(first, 1.0)
    assert not _accepts_scale(1.03 * first, 1.0)
    assert _uncorrelated(first, second)
    torch.cuda.manual_seed_all(7)
    assert np.array_equal(draw(GaussianSource(device, UnsafeSeededStream(0, "gpu"))), first)
    assert (draw(GaussianSource(device, SystemStream())) == first).sum() <= 50


def test_no_word_gives_noise_of_exactly_zero_or_infinity():
    """Half a step of the angle's lattice, and the rounding of u to 1, once gave exact zeros."""
    top = (1 << 40) - 1
    words = [r << 24 | a for r in (0, 1, top - 1, top) for a in (0, 1, 1 << 22, 1 << 23, 0xFFFFFF)]
    for numbers in _box_muller(np.array(words, dtype=np.uint64)):
        assert bool(numbers.isfinite().all())
        assert bool((numbers != 0).all())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_cannot_draw_its_parents_noise() -> None:
    source = GaussianSource(torch.device("cpu"), SystemStream())
    child = os.fork()
    if child == 0:
        try:
            source.normal_(torch.empty(3))
        except ProtocolError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    source.normal_(torch.empty(3))
