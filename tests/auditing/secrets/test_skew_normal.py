"""The skew normal law against SciPy and mpmath."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy import stats

from tacit.auditing.secrets import SkewNormal, fit_skew_normal
from tacit.auditing.secrets.skew_normal import gap_p_value, largest_gap
from tacit.errors import InvalidArgument


@pytest.mark.parametrize("shape", [-20.0, -2.0, 0.0, 2.0, 20.0])
@pytest.mark.parametrize("z", [-12.0, -6.0, -1.0, 0.02, 0.5, 6.0])
def test_the_far_tail_by_mpmath(shape: float, z: float) -> None:
    with mpmath.workdps(20):

        def density(x: mpmath.mpf) -> mpmath.mpf:
            return 2 * mpmath.npdf(x) * mpmath.ncdf(shape * x)

        steps = [0.0, *(1e-4 * 2.0**power for power in range(18))]
        expected = mpmath.log(mpmath.quad(density, [z - step for step in reversed(steps)]))
    found = SkewNormal(5.0, 2.0, shape).log_cdf(5.0 + 2.0 * z)
    assert found == pytest.approx(float(expected), rel=1e-9, abs=1e-11)


def test_the_distribution_by_scipy() -> None:
    x = np.linspace(-3.0, 9.0, 50)
    for shape in (-4.0, 0.0, 2.5):
        expected = stats.skewnorm.cdf(x, shape, loc=1.0, scale=2.0)
        np.testing.assert_allclose(SkewNormal(1.0, 2.0, shape).cdf(x), expected, atol=1e-10)


def test_the_ends() -> None:
    law = SkewNormal(0.0, 1.0, 1.0)
    assert law.log_cdf(np.inf) == 0.0
    assert law.log_cdf(-np.inf) == -np.inf


@pytest.mark.parametrize("shape", [-6.0, -2.0, 2.0, 6.0])
def test_a_fit_finds_the_law_as_scipy_does(shape: float) -> None:
    sample = stats.skewnorm.rvs(shape, loc=50.0, scale=4.0, size=5000, random_state=7)
    law = fit_skew_normal(sample)
    ours, theirs = (
        float(np.sum(stats.skewnorm.logpdf(sample, *parameters)))
        for parameters in ((law.shape, law.location, law.scale), stats.skewnorm.fit(sample))
    )
    assert ours >= theirs - 1e-3  # no less likely than what SciPy finds
    assert law.location == pytest.approx(50.0, abs=0.3)
    assert law.scale == pytest.approx(4.0, rel=0.05)
    assert law.shape == pytest.approx(shape, rel=0.15)


def test_a_normal_sample_is_fitted_as_well() -> None:
    sample = np.random.default_rng(2).normal(30.0, 3.0, size=5000)
    law = fit_skew_normal(sample)
    assert gap_p_value(largest_gap(sample, law), len(sample)) > 0.05
    x = np.linspace(20.0, 40.0, 50)
    np.testing.assert_allclose(law.cdf(x), stats.norm.cdf(x, 30.0, 3.0), atol=0.02)


def test_the_gap_by_scipy() -> None:
    sample, law = np.random.default_rng(3).normal(size=400), SkewNormal(0.1, 1.1, 0.0)
    expected = stats.kstest(sample, lambda x: stats.norm.cdf(x, 0.1, 1.1))
    assert largest_gap(sample, law) == pytest.approx(expected.statistic, abs=1e-12)
    assert gap_p_value(expected.statistic, 400) == pytest.approx(expected.pvalue, rel=0.03)


def test_another_law_is_rejected() -> None:
    draw = np.random.default_rng(4)
    two = np.concatenate([draw.normal(-3.0, size=2000), draw.normal(3.0, size=2000)])
    for sample in (two, draw.standard_t(2, size=4000), draw.uniform(size=4000)):
        assert gap_p_value(largest_gap(sample, fit_skew_normal(sample)), len(sample)) < 1e-3


def test_what_cannot_be_fitted_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at least 100 finite numbers"):
        fit_skew_normal(np.arange(99.0))
    with pytest.raises(InvalidArgument, match="at least 100 finite numbers"):
        fit_skew_normal(np.full(200, np.inf))
    with pytest.raises(InvalidArgument, match="constant"):
        fit_skew_normal(np.full(200, 3.0))
