"""Which strategy has the least error: coefficients of correlated noise, optimised for a run.

What counts is how far the noise moves the model in each of n steps. A model after step t is the
start plus Σ_{i≤t} A_ti g_i: with a constant rate and no momentum A is the prefix sum, ones on and
below the diagonal; momentum and a schedule of learning rates are in A too (`Workload`). Noise C⁻¹Z
on the gradients has the mean squared error s²·mean_t ‖row_t(AC⁻¹)‖², s the sensitivity of C.

Everything here is about utility. What is optimised badly is a worse strategy, and no less private.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final, get_args

from tacit._validation import probability
from tacit.accounting.factorization import inverse_coefficients
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

Schedule = Literal["constant", "linear", "cosine"]

_MOST_ROUNDS = 500  # of L-BFGS
_LONGEST_DENSE = 2_000  # steps; a longer run with a schedule is optimised for this many
_NOWHERE = 1e6  # a logarithm of an error: further than any strategy is off
_COLUMNS = 256  # of AC⁻¹ at a time
_STEP = 1e-30  # of a complex derivative, which has no cancellation however small it is
_GAPS = (-10.0, 10.0)  # between which the numbers behind the poles' gaps are kept
_LEAST_GAIN = 0.002  # in the mean squared error, for which another buffer is kept


@final
@dataclass(frozen=True, slots=True)
class Workload:
    """How steps become the model: SGD with ``momentum`` and a ``schedule`` of learning rates.

    ``"linear"`` and ``"cosine"`` fall from the first step's rate to 0 after the last.
    """

    momentum: float = 0.0
    schedule: Schedule = "constant"

    def __post_init__(self) -> None:
        if probability("momentum", self.momentum) == 1.0:
            raise InvalidArgument(f"momentum must be below 1, got {self.momentum!r}")
        if self.schedule not in get_args(Schedule):
            raise InvalidArgument(
                f"schedule must be one of {', '.join(get_args(Schedule))}, got {self.schedule!r}"
            )

    def rates(self, steps: int) -> NDArray[np.float64]:
        """The learning rate of every step, in units of the first one's."""
        import numpy as np  # noqa: PLC0415 - only when it is asked

        done = np.arange(steps) / steps
        if self.schedule == "linear":
            return 1.0 - done
        if self.schedule == "cosine":
            return 0.5 * (1.0 + np.cos(math.pi * done))
        return np.ones(steps)

    def applied(self, noise: NDArray[np.float64]) -> NDArray[np.float64]:
        """A times a matrix: what noise on the steps comes to in the models, row by row."""
        import numpy as np  # noqa: PLC0415

        moved = self.rates(len(noise))[:, None] * self._with_momentum(noise)
        total: NDArray[np.float64] = np.cumsum(moved, axis=0)
        return total

    def _with_momentum(self, values: NDArray[Any]) -> NDArray[Any]:
        from scipy.signal import lfilter  # noqa: PLC0415

        result: NDArray[Any] = lfilter([1.0], [1.0, -self.momentum], values, axis=0)
        return result if self.momentum else values

    def error(self, inverse: NDArray[Any]) -> tuple[Any, NDArray[Any]]:
        """The mean of ‖row_t(AD)‖² for a Toeplitz D, and its derivatives by D's coefficients."""
        import numpy as np  # noqa: PLC0415

        steps = len(inverse)
        carried = self._with_momentum(inverse)
        if self.schedule == "constant":
            weights = 1.0 - np.arange(steps) / steps
            sums = np.cumsum(carried)
            error = (weights * sums * sums).sum()
            by_carried = np.cumsum((2.0 * weights * sums)[::-1])[::-1]
        else:
            error, by_carried = self._scheduled(carried)
        return error, self._with_momentum(by_carried[::-1])[::-1]

    def _scheduled(self, carried: NDArray[Any]) -> tuple[Any, NDArray[Any]]:
        import numpy as np  # noqa: PLC0415
        from scipy.linalg import toeplitz  # noqa: PLC0415

        steps, rates = len(carried), self.rates(len(carried))[:, None]
        rows = np.cumsum(rates * np.tril(toeplitz(carried)), axis=0)
        by_entry = rates * np.cumsum((2.0 / steps) * rows[::-1], axis=0)[::-1]
        along = np.array([np.trace(by_entry, -back) for back in range(steps)])
        return np.square(rows).sum() / steps, along


def mean_squared_error(inverse: NDArray[np.float64], workload: Workload) -> float:
    """The mean of ‖row_t(AC⁻¹)‖² for a Toeplitz C⁻¹ of these n coefficients.

    >>> import numpy as np
    >>> mean_squared_error(np.array([1.0, 0.0, 0.0]), Workload())
    2.0
    """
    return float(workload.error(inverse)[0])


def normalised_error(
    coefficients: Sequence[float], norms: NDArray[np.float64], workload: Workload
) -> float:
    """The same for a banded Toeplitz C whose column i was divided by ``norms[i]``.

    >>> import numpy as np
    >>> normalised_error([1.0], np.ones(3), Workload())
    2.0
    """
    import numpy as np  # noqa: PLC0415
    from scipy.signal import lfilter  # noqa: PLC0415

    steps, total = len(norms), 0.0
    for start in range(0, steps, _COLUMNS):
        impulses = np.eye(steps, min(_COLUMNS, steps - start), -start)
        noise = norms[:, None] * lfilter([1.0], coefficients, impulses, axis=0)
        total += float(np.square(workload.applied(noise)).sum())
    return total / steps


# ---- closed forms


def square_root(workload: Workload, steps: int) -> NDArray[np.float64]:
    """The coefficients of √A at a constant rate: 1/√((1 - x)(1 - βx)) as a power series.

    Without momentum c_k = c_{k-1}(2k - 1)/2k (Fichtenberger et al. 2023).

    >>> square_root(Workload(), 4).tolist()
    [1.0, 0.5, 0.375, 0.3125]
    """
    import numpy as np  # noqa: PLC0415

    k = np.arange(1, steps)
    plain = np.cumprod(np.concatenate([[1.0], (2.0 * k - 1.0) / (2.0 * k)]))
    if not workload.momentum:
        return plain
    faded = plain * workload.momentum ** np.arange(steps)
    both: NDArray[np.float64] = np.convolve(plain, faded)[:steps]
    return both


# ---- optimised


def banded(steps: int, bands: int, workload: Workload) -> tuple[float, ...]:
    """The b coefficients of the Toeplitz C of least error·‖c‖² (2405.15913, section 4).

    A record takes part at most once in b steps, so that a column's norm is the sensitivity of a
    participation, however often it takes part.

    >>> [round(one, 3) for one in banded(100, 3, Workload())]
    [1.0, 0.739, 0.622]
    """
    import numpy as np  # noqa: PLC0415

    length = _length(steps, workload)
    start = square_root(workload, bands)[1:length]

    def loss(free: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        coefficients = np.concatenate([[1.0], free])
        inverse = inverse_coefficients(coefficients, length)
        error, by_inverse = workload.error(inverse)
        square = float(coefficients @ coefficients)
        by_free = _through_inverse(by_inverse, inverse, len(coefficients))[1:]
        return math.log(error * square), by_free / error + 2.0 * free / square

    found = _least(loss, start, (0.0, 1.0))
    return (1.0, *(float(one) for one in found), *[0.0] * (bands - 1 - len(found)))


def inverse_banded(
    steps: int, bands: int, separation: int, workload: Workload
) -> tuple[float, ...]:
    """The b coefficients of the Toeplitz C⁻¹ of least error, at the steps ``separation`` apart.

    It starts from those of the inverse square root (BISR, 2505.12128) and keeps all but the first
    below 0 with a sum below 1 in size, so that C ≥ 0 and is known to the last digits: they are
    shares of 1, and the logarithms of their odds are free.

    >>> [round(one, 3) for one in inverse_banded(100, 3, 20, Workload())]
    [1.0, -0.517, -0.311]
    """
    import numpy as np  # noqa: PLC0415

    length = _length(steps, workload)
    first = -inverse_coefficients(square_root(workload, bands), bands)[1:length]
    start = np.log(first / (1.0 - first.sum()))

    def shares(free: NDArray[np.float64]) -> NDArray[np.float64]:
        odds = np.exp(free - max(0.0, float(free.max(initial=0.0))))
        result: NDArray[np.float64] = odds / (odds.sum() + math.exp(-max(0.0, free.max(initial=0))))
        return result

    def loss(free: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        own = -shares(free)
        count = len(own) + 1
        inverse = np.zeros(length)
        inverse[:count] = [1.0, *own]
        error, by_inverse = workload.error(inverse)
        strategy = inverse_coefficients(inverse[:count], length)
        square, by_strategy = _participating(strategy, separation)
        by_own = _through_inverse(by_strategy, strategy, count)[1:] / square
        by_own += by_inverse[1:count] / error
        return math.log(error * square), own * (by_own + float(by_own @ own))

    found = -shares(_least(loss, start, None)) * (1.0 - 2.0**-40)
    return (1.0, *(float(one) for one in found), *[0.0] * (bands - 1 - len(found)))


def buffered(
    steps: int, buffers: int, separation: int, workload: Workload
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Scales ω and decays λ of at most ``buffers`` buffers of C⁻¹: coefficients Σ ω_i λ_i^(k-1).

    Poles of C and of C⁻¹ lie in turn below 1 (2404.16706, section 4): all coefficients of C⁻¹ after
    the first are then negative and C's positive and falling. One more buffer is kept while it
    lowers the error by 0.2 %.

    >>> scales, decays = buffered(100, 2, 20, Workload())
    >>> all(scale < 0.0 < decay < 1.0 for scale, decay in zip(scales, decays))
    True
    """
    import numpy as np  # noqa: PLC0415

    length = _length(steps, workload)

    def loss(free: NDArray[Any]) -> tuple[float, NDArray[np.float64]]:
        return _buffered_loss(free, length, separation, workload)

    best: tuple[float, NDArray[np.float64]] | None = None
    for count in range(1, buffers + 1):
        starts = _spreads(count, length)
        if best is not None:  # one more pair, near to each other, below all others
            starts.append(np.append(best[1], [-3.0, 0.0]))
        values, found = min(
            ((loss(one)[0], one) for one in (_least(loss, start, _GAPS) for start in starts)),
            key=lambda pair: pair[0],
        )
        if best is not None and values > best[0] + math.log1p(-_LEAST_GAIN):
            break
        best = values, found
    assert best is not None
    own, others = _poles(best[1])
    scales, decays = _residues(others, own), others
    return tuple(float(one) for one in scales), tuple(float(one) for one in decays)


def anticorrelated(steps: int, separation: int, workload: Workload) -> float:
    """The λ in [0, 1) of least error for noise z_t - λ·z_{t-1} (2601.22334).

    >>> 0.5 < anticorrelated(100, 20, Workload()) < 1.0
    True
    """
    return -inverse_banded(steps, 2, separation, workload)[1]


def _length(steps: int, workload: Workload) -> int:
    return steps if workload.schedule == "constant" else min(steps, _LONGEST_DENSE)


def _through_inverse(
    by_inverse: NDArray[np.float64], inverse: NDArray[np.float64], count: int
) -> NDArray[np.float64]:
    """Derivatives by the first coefficients of a series from those by its reciprocal's."""
    import numpy as np  # noqa: PLC0415
    from scipy.signal import fftconvolve  # noqa: PLC0415

    squared = fftconvolve(inverse, inverse)[: len(inverse)]
    steps = len(inverse)
    return np.array([-(by_inverse[at:] @ squared[: steps - at]) for at in range(count)])


def _participating(strategy: NDArray[Any], separation: int) -> tuple[Any, NDArray[Any]]:
    """‖v‖² of v_i = Σ_j c_{i-jb} for c ≥ 0, and its derivatives by c."""
    import numpy as np  # noqa: PLC0415

    steps = len(strategy)
    total = np.zeros_like(strategy)
    for at in range(0, steps, separation):
        total[at:] += strategy[: steps - at]
    derivatives = np.zeros_like(strategy)
    for at in range(0, steps, separation):
        derivatives[: steps - at] += 2.0 * total[at:]
    return (total * total).sum(), derivatives


def _least(
    loss: Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]],
    start: NDArray[np.float64],
    within: tuple[float, float] | None,
) -> NDArray[np.float64]:
    from scipy.optimize import minimize  # noqa: PLC0415

    if not len(start):
        return start
    bounds = None if within is None else [within] * len(start)
    options = {"maxiter": _MOST_ROUNDS, "maxfun": 4 * _MOST_ROUNDS, "ftol": 1e-13, "gtol": 1e-9}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    result: NDArray[np.float64] = found.x if loss(found.x)[0] <= loss(start)[0] else start
    return result


# ---- poles of a buffered strategy: numbers without bounds, so that no two poles can meet


def _spreads(count: int, steps: int) -> list[NDArray[np.float64]]:
    """Poles whose distances from 1 grow evenly in size, a pair for each buffer: two beginnings."""
    import numpy as np  # noqa: PLC0415

    starts = []
    for least, most in ((0.5, 0.7), (10.0, 0.9)):
        away = -np.log(np.geomspace(min(least / steps, 0.4), most, 2 * count))
        starts.append(np.log(np.expm1(-np.diff(np.append(away, 0.0)))))
    return starts


def _poles(free: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Poles of C and of C⁻¹, falling in turn: -log of the distance from 1 adds up positive gaps."""
    import numpy as np  # noqa: PLC0415

    away = np.cumsum(np.log1p(np.exp(free))[::-1])[::-1]
    poles = -np.expm1(-away)
    return poles[0::2], poles[1::2]


def _residues(own: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
    """ω_i of 1 + Σ ω_i x/(1 - λ_i x) = Π(1 - λ'_i x)/Π(1 - λ_i x)."""
    import numpy as np  # noqa: PLC0415

    apart = own[:, None] - own[None] + np.eye(len(own))
    result: NDArray[Any] = (own[:, None] - others[None]).prod(1) / apart.prod(1)
    return result


def series(scales: NDArray[Any], decays: NDArray[Any], steps: int) -> NDArray[Any]:
    """1, Σω_i, Σω_i λ_i, Σω_i λ_i², …: the coefficients of a buffered matrix.

    >>> import numpy as np
    >>> series(np.array([-0.5]), np.array([0.5]), 4).tolist()
    [1.0, -0.5, -0.25, -0.125]
    """
    import numpy as np  # noqa: PLC0415

    powers = np.exp(np.arange(steps - 1)[:, None] * np.log(decays)[None])
    return np.concatenate([np.ones(1, dtype=powers.dtype), powers @ scales])


def _buffered_loss(
    free: NDArray[Any], steps: int, separation: int, workload: Workload
) -> tuple[float, NDArray[np.float64]]:
    import numpy as np  # noqa: PLC0415

    def value(at: NDArray[Any]) -> Any:
        own, others = _poles(at)
        strategy = series(_residues(own, others), own, steps)
        inverse = series(_residues(others, own), others, steps)
        square = _participating(strategy, separation)[0]
        return np.log(workload.error(inverse)[0] * square)

    derivatives = []
    with np.errstate(all="ignore"):  # far off, two poles are one number
        for at in range(len(free)):
            moved = free.astype(np.complex128)
            moved[at] += 1j * _STEP
            derivatives.append(value(moved).imag / _STEP)
        found = float(value(free))
    if not (math.isfinite(found) and np.isfinite(derivatives).all()):
        return _NOWHERE, np.zeros(len(free))
    return found, np.array(derivatives)
