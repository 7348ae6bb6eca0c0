"""What sampling does to a release of which only a Rényi curve is known.

Both theorems hold at whole orders and need the base curve at all whole orders up to the one asked
for; between whole orders (α-1)·D_α is convex and its linear interpolation is an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.renyi.curves import Curve

    Array = NDArray[np.float64]

_LARGEST_ORDER = 4096  # beyond, nothing is claimed
_LARGEST_DIFFERENCE = 128  # of the forward differences in the Gaussian theorem
_LARGEST_SHIFT = 4.0  # in them; beyond, they gain nothing
_ROUND_UP = 1e-10  # on E[t^α] - 1: the rounding of ln Γ at the largest order is a tenth of this

LogFactors = Callable[["Array"], "Array"]
"""Maps the numbers 2, …, α to the logarithms of the factors that multiply rate^j·C(α, j)."""


def poisson_general(rate: float, base: Curve) -> Curve:
    """Poisson sampling of any mechanism, adding or removing (Zhu & Wang 2019, Theorem 5).

    E[t^α] ≤ Σ_j C(α, j)·(1-q)^{α-j}·q^j·m_j with m_0 = m_1 = 1, m_2 = e^{D_2} and, for j ≥ 3,
    m_j = 3·e^{(j-1)·D_j}. The binomial weights add up to 1, which leaves m_j - 1 in the excess.
    """

    def factors(j: Array, exponents: Array) -> Array:
        third = exponents + np.log(3.0 - np.exp(-exponents))
        return np.where(j == 2.0, _log_expm1(exponents), third)

    return _whole_orders(rate, base, factors, binomial=True)


def three_laws_general(rate: float, base: Curve) -> Curve:
    """Sampling where a record is replaced (Wang, Balle & Kasiviswanathan 2019, Theorem 9).

    E[t^α] ≤ 1 + γ²·C(α, 2)·min(4(e^{D_2} - 1), 2e^{D_2}) + Σ_{j≥3} γ^j·C(α, j)·2·e^{(j-1)·D_j}. Its
    proof compares (1-γ)A + γB with (1-γ)A + γC and uses only that A, B and C are pairwise within
    the base curve; so it serves fixed-size samples, and Poisson samples whose base is within the
    curve both when the record is replaced and when it is left out.
    """

    def factors(j: Array, exponents: Array) -> Array:
        plain = exponents + math.log(2.0)
        return np.where(j == 2.0, np.minimum(_log_expm1(exponents) + math.log(4.0), plain), plain)

    return _whole_orders(rate, base, factors, binomial=False)


def fixed_size_gaussian(rate: float, shift: float) -> Curve:
    """A fixed-size sample under Gaussian noise (Wang, Balle & Kasiviswanathan 2019, Theorem 27).

    As ``three_laws_general`` with D_j = j·shift²/2, but from j = 3 on the factor is at most
    4·√(B(2⌊j/2⌋)·B(2⌈j/2⌉)), where B(l) = E[(t - 1)^l] for t the ratio of two Gaussians. The paper
    writes B as an alternating sum; for even l it is the integral of a positive function.
    """

    def base(orders: Array) -> Array:
        return 0.5 * shift * shift * orders

    def factors(j: Array, exponents: Array) -> Array:
        plain = exponents + math.log(2.0)
        plain[0] = min(plain[0], math.log(4.0) + float(_log_expm1(exponents[:1])[0]))
        some = j[(j >= 3.0) & (j <= _LARGEST_DIFFERENCE)].astype(np.int64)
        if some.size and shift <= _LARGEST_SHIFT:
            even = _log_even_differences(shift, int(some[-1]) + 1)
            sharper = math.log(4.0) + 0.5 * (even[some // 2] + even[(some + 1) // 2])
            plain[1 : 1 + some.size] = np.minimum(plain[1 : 1 + some.size], sharper)
        return plain

    return _whole_orders(rate, base, factors, binomial=False)


def _log_even_differences(shift: float, largest: int) -> Array:
    """The logarithms of B(l) = E[(t - 1)^l] for l = 0, 2, … up to ``largest``.

    t is e^{shift·z - shift²/2} with z ~ N(0, 1). Near its peaks the integrand behaves as z^l·φ(z),
    whose spectrum ends near 2√l; the step resolves 12 beyond that.
    """
    bend = math.sqrt(2.0 * largest)
    step = 2.0 * math.pi / (2.0 * bend + 12.0 + 12.0 * shift)
    z = np.arange(-bend - 12.0, largest * shift + bend + 12.0, step)
    x = shift * z - 0.5 * shift * shift
    with np.errstate(divide="ignore"):
        log_distance = np.where(x > 30.0, x, np.log(np.abs(np.expm1(np.minimum(x, 30.0)))))
    powers = 2.0 * np.arange(largest // 2 + 1)[:, np.newaxis]
    with np.errstate(invalid="ignore"):
        logs = np.where(powers == 0.0, 0.0, powers * log_distance) - 0.5 * z * z
    top = np.max(logs, axis=1, keepdims=True)
    scaled: Array = top[:, 0] + np.log(np.sum(np.exp(logs - top), axis=1))
    return scaled + math.log(step) - 0.5 * math.log(2.0 * math.pi)


def _whole_orders(
    rate: float, base: Curve, factors: Callable[[Array, Array], Array], *, binomial: bool
) -> Curve:
    """The curve whose excess at a whole order α is Σ_j C(α, j)·rate^j·[(1-rate)^{α-j}]·factor_j."""
    known: dict[int, float] = {1: 0.0}
    tables: list[Array] = []

    def log_factors(order: int) -> Array:
        if not tables or tables[-1].size < order - 1:
            j = np.arange(2.0, 1.0 + max(64, 1 << (order - 1).bit_length()))
            tables[:] = [factors(j, (j - 1.0) * base(j))]
        return tables[-1][: order - 1]

    def scaled(order: int) -> float:
        """(α-1)·D_α."""
        if order not in known:
            j = np.arange(2.0, order + 1.0)
            logs = gammaln(order + 1.0) - gammaln(j + 1.0) - gammaln(order - j + 1.0)
            logs += j * math.log(rate) + log_factors(order)
            if binomial:
                logs += (order - j) * math.log1p(-rate)
            known[order] = float(np.logaddexp(0.0, np.logaddexp.reduce(logs) + _ROUND_UP))
        return known[order]

    def one(order: float) -> float:
        if order > _LARGEST_ORDER:
            return math.inf
        low = math.floor(order)
        share = order - low
        if share == 0.0:
            return scaled(low) / (order - 1.0)
        return ((1.0 - share) * scaled(low) + share * scaled(low + 1)) / (order - 1.0)

    def curve(orders: Array) -> Array:
        return np.asarray([one(float(order)) for order in orders])

    return curve


def _log_expm1(x: Array) -> Array:
    with np.errstate(divide="ignore"):
        return x + np.log(-np.expm1(-x))
