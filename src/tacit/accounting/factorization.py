"""How far one record can move a run with correlated noise: the sensitivity of its strategy matrix.

A run of n steps with correlated noise releases G + C⁻¹Z: the rows of G are the clipped sums of its
steps, in units of the clip, and Z is independent Gaussian noise. That is post-processing of
CG + Z, a Gaussian mechanism; for a lower triangular C also where later sums depend on what was
released before (Denisov et al. 2022, Theorem 2.1). A record that takes part in the steps π moves
CG by Σ_{i∈π} C eᵢ uᵢᵀ with ‖uᵢ‖ ≤ 1, and C's sensitivity is the largest Frobenius norm of that over
all steps π that the participation allows:

| participation | C | sensitivity² | theorem |
|---|---|---|---|
| any | any | ≤ max_π Σ_{i,j∈π} abs(X_ij), X = CᵀC; equal where X ≥ 0 | 2211.06530, Prop. 2 |
| `FixedEpochs` | Toeplitz, c ≥ 0 | ‖v‖², v_i = Σ_j c_{i-jb} | a later start has fewer rows |
| `MinimumSeparation` | banded, ≤ b bands | max_π Σ_{i∈π} X_ii | 2306.08153, Theorem 2 |
| `MinimumSeparation` | Toeplitz, c₀ ≥ c₁ ≥ … ≥ 0 | the same ‖v‖² | 2405.13763, Theorem 2 |
| `MinimumSeparation` | any | ≤ the programme for banded ones, twice | 2306.08153, section 4 |

Where records are dealt into b groups that take turns, and each group is sampled by Poisson's coins,
a C of at most b bands whose columns have norm 1 is as private as ⌈n/b⌉ steps of DP-SGD at the rate
within a group (2306.08153, Theorem 4): the rows that two participations touch are different ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias, final

from tacit._validation import whole
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

_UNIT = 2.0**-53
_LARGEST = 1.0 + 1e-9  # of a strategy's coefficients, the first being 1


@final
@dataclass(frozen=True, slots=True)
class FixedEpochs:
    """A record is in one step of the first ``separation``, and in every ``separation``-th after."""

    separation: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "separation", whole("separation", self.separation))


@final
@dataclass(frozen=True, slots=True)
class MinimumSeparation:
    """A record is in at most ``most`` steps, any two of them ``separation`` or more apart."""

    separation: int
    most: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "separation", whole("separation", self.separation))
        object.__setattr__(self, "most", whole("most", self.most))


Participation: TypeAlias = FixedEpochs | MinimumSeparation


@final
@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The sensitivity of a strategy, rounded up: ``exact`` up to rounding, else an upper bound."""

    value: float
    exact: bool
    theorem: str


def sensitivity(strategy: ArrayLike, participation: Participation) -> Sensitivity:
    """The sensitivity of a lower triangular matrix, given whole.

    Guarantee:
        ``value`` is not below the sensitivity for gradients of any dimension, and equal to it up to
        rounding where ``exact``.

    >>> sensitivity([[1, 0, 0], [0.5, 1, 0], [0, 0.5, 1]], MinimumSeparation(2, 2)).theorem
    'banded: 2306.08153, Theorem 2'
    >>> round(sensitivity([[1, 0], [1, 1]], FixedEpochs(1)).value ** 2, 12)
    5.0
    """
    import numpy as np  # noqa: PLC0415 - only when it is asked

    matrix = _lower_triangular(strategy)
    steps = len(matrix)
    products = matrix.T @ matrix
    # Each product is off by at most n+1 roundings of the sum of its terms' sizes.
    slack = (steps + 2.0) * _UNIT * (np.abs(matrix).T @ np.abs(matrix))
    sizes = np.abs(products) + slack
    if isinstance(participation, FixedEpochs):
        starts = range(min(participation.separation, steps))
        parts = [slice(start, None, participation.separation) for start in starts]
        squares = [float(sizes[part, part].sum()) for part in parts]
        worst = parts[int(np.argmax(squares))]
        exact = bool((products[worst, worst] >= 0.0).all())
        said = "2211.06530, Proposition 2"
        return _rounded_up(max(squares), 2 * steps, exact, said)
    apart, most = participation.separation, participation.most
    rows, columns = np.nonzero(matrix)
    if np.all(rows - columns < apart):
        square = float(_best(np.diag(sizes)[None], apart, most)[0])
        return _rounded_up(square, 2 * steps, True, "banded: 2306.08153, Theorem 2")
    row_best = _best(sizes, apart, most)
    square = float(_best(row_best[None], apart, most)[0])
    return _rounded_up(square, 4 * steps, False, "an upper bound: 2306.08153, section 4")


def toeplitz_sensitivity(
    coefficients: ArrayLike, steps: int, participation: Participation
) -> Sensitivity:
    """The sensitivity of the lower triangular Toeplitz matrix of these coefficients.

    Guarantee:
        As for ``sensitivity``, in O(n·participations) time and O(n) memory.

    >>> toeplitz_sensitivity([1, 0.5, 0.25], 4, FixedEpochs(2)).exact
    True
    """
    import numpy as np  # noqa: PLC0415

    n = whole("steps", steps)
    given = np.asarray(coefficients, dtype=np.float64)[:n]
    if given.ndim != 1 or not len(given) or not np.isfinite(given).all():
        raise InvalidArgument(f"coefficients must be finite numbers, got {coefficients!r}")
    apart = participation.separation
    sizes = np.abs(given)
    count = -(-n // apart)
    if isinstance(participation, MinimumSeparation):
        count = min(count, participation.most)
        if len(given) <= apart:
            exact, said = True, "banded: 2306.08153, Theorem 2"
        else:
            exact = bool((given >= 0.0).all() and (np.diff(given) <= 0.0).all())
            said = "2405.13763, Theorem 2"
            sizes = np.maximum.accumulate(sizes[::-1])[::-1]
    else:
        exact = bool((given >= 0.0).all()) or len(given) <= apart
        said = "fixed epochs: a later start has fewer rows"
    total = np.zeros(n)
    for at in range(0, count * apart, apart):
        part = sizes[: n - at]
        total[at : at + len(part)] += part
    square = float(np.square(total).sum())
    return _rounded_up(square, n + 2 * count, exact, said if exact else f"a bound: {said}")


def column_norms(coefficients: Sequence[float]) -> list[float]:
    """The norms of the columns of a banded Toeplitz matrix: of 1, 2, … of the coefficients.

    Guarantee:
        Each is the smallest float64 that is not below the real norm of these coefficients, so that
        a column divided by it has a norm of at most 1.

    >>> column_norms([3.0, 4.0])
    [3.0, 5.0]
    """
    square, norms = Fraction(0), []
    for one in coefficients:
        square += Fraction(one) ** 2
        norm = math.sqrt(square)
        while Fraction(norm) ** 2 < square:
            norm = math.nextafter(norm, math.inf)
        while Fraction(below := math.nextafter(norm, 0.0)) ** 2 >= square > 0:
            norm = below
        norms.append(norm)
    return norms


def normalised_sensitivity(
    coefficients: Sequence[float], steps: int, participation: FixedEpochs
) -> Sensitivity:
    """The sensitivity of a banded Toeplitz matrix whose columns were divided by their norms.

    Guarantee:
        As for ``sensitivity``. Of participations that are at least as far apart as there are bands,
        each touches rows of its own, and k of them have √k.

    >>> round(normalised_sensitivity([1.0, 0.5], 6, FixedEpochs(2)).value ** 2, 12)
    3.0
    """
    import numpy as np  # noqa: PLC0415

    n, apart, bands = whole("steps", steps), participation.separation, len(coefficients)
    if bands <= apart:
        return _rounded_up(float(-(-n // apart)), 1, True, "banded: 2306.08153, Theorem 2")
    norms = np.array(column_norms(coefficients))
    of_column = norms[np.minimum(bands, n - np.arange(n)) - 1]
    sizes = np.abs(np.asarray(coefficients, dtype=np.float64))
    moved = np.zeros((apart, n))
    for band in range(min(bands, n)):
        columns = np.arange(n - band)
        moved[columns % apart, columns + band] += sizes[band] / of_column[: n - band]
    exact = min(coefficients) >= 0.0
    said = "2211.06530, Proposition 2"
    return _rounded_up(float(np.square(moved).sum(1).max()), n + 3 * bands, exact, said)


# ---- strategies that are given by their inverse, C⁻¹: what is mixed into the noise


def inverse_coefficients(coefficients: ArrayLike, steps: int) -> NDArray[np.float64]:
    """The coefficients of the inverse of a lower triangular Toeplitz matrix: a power series.

    >>> inverse_coefficients([1.0, -0.5], 4).tolist()
    [1.0, 0.5, 0.25, 0.125]
    """
    import numpy as np  # noqa: PLC0415
    from scipy.signal import lfilter  # noqa: PLC0415

    impulse = np.zeros(whole("steps", steps))
    impulse[0] = 1.0
    result: NDArray[np.float64] = lfilter([1.0], np.asarray(coefficients, np.float64), impulse)
    return result


def buffered_coefficients(scales: ArrayLike, decays: ArrayLike, steps: int) -> NDArray[np.float64]:
    """The coefficients of a C whose inverse has 1, Σω_i, Σω_i λ_i, Σω_i λ_i² and so on.

    >>> buffered_coefficients([-0.5], [0.5], 4).tolist()
    [1.0, 0.5, 0.5, 0.5]
    """
    import numpy as np  # noqa: PLC0415

    weights, fading = np.asarray(scales, np.float64), np.asarray(decays, np.float64)
    held = np.ones_like(fading)
    result = np.ones(whole("steps", steps))
    for at in range(1, steps):
        result[at] = -(weights @ held)
        held = fading * held + result[at]
    return result


@final
@dataclass(frozen=True, slots=True)
class Participations:
    """What a Toeplitz strategy comes to over a run, once its first column has norm 1.

    ``norm`` is that of the column before, and ``sensitivity`` that of all participations, rounded
    up: 1 if there is only one.
    """

    norm: float
    sensitivity: float


def inverse_sensitivity(
    strategy: ArrayLike, participation: FixedEpochs, *, terms: int
) -> Participations:
    """The sensitivity of a C ≥ 0 that was found from a C⁻¹ whose off-diagonal entries are ≤ 0.

    Guarantee:
        ``sensitivity`` is not below that of C/``norm``, if each of C's coefficients was found by
        adding up at most ``terms`` products of those before, none of them negative: nothing cancels
        then, and n of them are within n·(terms + 4)·2⁻⁵³ of the real ones, relatively.

    >>> found = inverse_sensitivity([1.0, 0.5, 0.25, 0.125], FixedEpochs(4), terms=1)
    >>> round(found.norm, 6), round(found.sensitivity, 12)
    (1.152443, 1.0)
    """
    import numpy as np  # noqa: PLC0415

    coefficients = np.asarray(strategy, dtype=np.float64)
    steps = len(coefficients)
    if not 0.0 <= coefficients.min() <= coefficients.max() <= _LARGEST:
        raise InvalidArgument(
            "correlation must have coefficients after the first that add up to -1 at most, so that "
            "the strategy's own do not grow over the run, got one whose largest is "
            f"{coefficients.max():.3g}; leave them out"
        )
    norm = math.sqrt(math.fsum(float(one) ** 2 for one in coefficients))
    slack = 2.0 * steps * (terms + 4) * _UNIT
    whole_run = toeplitz_sensitivity(coefficients, steps, participation).value
    return Participations(norm, whole_run * (1.0 + slack) * (1.0 + 4.0 * _UNIT) / norm)


def _lower_triangular(strategy: ArrayLike) -> NDArray[np.float64]:
    import numpy as np  # noqa: PLC0415

    matrix = np.asarray(strategy, dtype=np.float64)
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] and len(matrix) > 0
    if not square or not np.isfinite(matrix).all() or np.triu(matrix, 1).any():
        raise InvalidArgument(
            f"strategy must be a lower triangular matrix of finite numbers, got one of shape "
            f"{matrix.shape}"
        )
    return matrix


def _best(values: NDArray[np.float64], apart: int, most: int) -> NDArray[np.float64]:
    """For every row of values ≥ 0, the largest sum of ``most`` of them that lie ``apart``.

    F[i, k] = max(x_i + F[i + apart, k - 1], F[i + 1, k]), from the end (2306.08153, Algorithm 3).
    """
    import numpy as np  # noqa: PLC0415

    rows, steps = values.shape
    count = min(most, -(-steps // apart))
    best = np.zeros((rows, steps + apart))
    for _ in range(count):
        further = np.zeros_like(best)
        for at in reversed(range(steps)):
            taken = values[:, at] + best[:, at + apart]
            further[:, at] = np.maximum(taken, further[:, at + 1])
        best = further
    result: NDArray[np.float64] = best[:, 0]
    return result


def _rounded_up(square: float, operations: int, exact: bool, theorem: str) -> Sensitivity:
    """The root of a sum of terms ≥ 0, each of which took part in so many roundings at most."""
    value = math.sqrt(square * (1.0 + 2.0 * (operations + 4) * _UNIT)) * (1.0 + 2.0 * _UNIT)
    return Sensitivity(value, exact, theorem)
