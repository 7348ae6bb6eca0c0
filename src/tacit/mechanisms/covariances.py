"""Second moments and covariances of rows of bounded norm (Analyze-Gauss)."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tacit._validation import positive, whole
from tacit.errors import InvalidArgument
from tacit.mechanisms._records import is_frame, numbers, reals
from tacit.mechanisms.release import UP, agreed, gaussian_event, smooth_amount
from tacit.randomness import rounded_gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Gaussian
    from tacit.ledger import Budget
    from tacit.mechanisms.release import Released
    from tacit.randomness import Stream

    Reals = NDArray[np.float64]
    Integers = NDArray[np.int64]


_BITS = 18  # a row's entries are whole numbers of at most 2¹⁸
_MOST_ROWS = 1 << 16  # their products add up to less than 2⁵³, so that float64 adds them exactly
_BLOCK = 1 << 22  # entries at a time
_BLOCKS_HELD = 1 << 8  # of fewer than 2⁵³ each, so that their sums stay below 2⁶²
_WIDEST = 2.0**44
APART = math.sqrt(2.0)
"""How far replacing a row moves xxᵀ, over its norm: abs(xxᵀ - yyᵀ)² = x⁴ + y⁴ - 2(x·y)²."""


def covariance(
    rows: Any,
    *,
    norm: float,
    count: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    noise_multiplier: float | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "",
    stream: Stream | None = None,
) -> Released[Any]:
    """The covariance of the columns, about their mean, of rows that are clipped to ``norm``.

    One release: of each row x, with a constant entry ``norm`` beside it, the products of all
    entries are summed up with Gaussian noise. They hold Σxxᵀ, Σx and the number of rows, from
    which the covariance follows.

    Guarantee:
        As for ``Moments.noisy``. The number of rows is public if ``count`` is given or the
        adjacency is not ``"add-remove"``, and else part of the release. Eigenvalues may be
        negative. An entry that is no number is missing, and nothing in the data is refused.

    Args:
        rows: A 2-D array, or a DataFrame, which gives one back.
        norm: The public largest norm of a row; longer ones are scaled down to it.
        count: A public number to divide by.
        epsilon: The ε asked for, with ``delta``.
        delta: The δ asked for.
        rho: The ρ of zCDP asked for, instead.
        noise_multiplier: σ asked for, instead: the noise's deviation in units of twice the
            square of ``norm``.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``; a user is one row.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> rows = np.random.default_rng(0).normal(size=(20_000, 2)) @ [[0.3, 0.1], [0.0, 0.2]]
    >>> covariance(rows, norm=1, epsilon=1, delta=1e-6,
    ...     stream=UnsafeSeededStream(0, "test")).value.round(2).tolist()
    [[0.09, 0.03], [0.03, 0.05]]
    """
    terms = agreed("covariance", adjacency, unit, budget, label, stream)
    asked = smooth_amount(epsilon, delta, rho, noise_multiplier)
    data, bound = matrix(rows), positive("norm", norm)
    public = whole("count", count) if count is not None else None
    if public is None and terms.adjacency != "add-remove":
        public = max(len(data), 1)
    moments = Moments(data.shape[1], bound, constant=True)
    event = gaussian_event(asked, APART, terms.adjacency)
    grant = terms.charge(event, asked.delta)
    noisy = moments.noisy(data, event, grant.stream)
    number = max(1.0, noisy[-1, -1] / bound**2) if public is None else float(public)
    means = noisy[-1, :-1] / (bound * number)
    found = noisy[:-1, :-1] / number - np.outer(means, means)
    if is_frame(rows):
        frame = sys.modules["pandas"].DataFrame
        return grant.release(frame(found, index=rows.columns, columns=rows.columns))
    return grant.release(found)


def matrix(rows: Any) -> Reals:
    """The rows, as float64; a list is refused, for what is in it would decide its shape."""
    data = None if isinstance(rows, list | tuple) else numbers("rows", rows)
    if data is None or data.ndim != 2 or data.shape[1] == 0:
        raise InvalidArgument(
            "rows must be a 2-D array or a DataFrame, one row per record; of a list make "
            "np.asarray(rows, dtype=float)"
        )
    return data


@final
@dataclass(frozen=True, slots=True)
class Moments:
    """Σxxᵀ over rows x of norm at most ``norm``, with ``constant`` over rows (x, norm).

    Args:
        columns: How many entries a row has.
        norm: The public largest norm.
        constant: Whether ``norm`` itself is appended to every row.
    """

    columns: int
    norm: float
    constant: bool = False

    @property
    def size(self) -> int:
        """Of the matrix."""
        return self.columns + self.constant

    @property
    def most(self) -> float:
        """The largest Frobenius norm of one row's products, as whole numbers.

        Rounding moves an entry by 1/2 at most, and the norm's own float64 error is below
        (columns + 8)·2⁻⁵² of it.
        """
        length = 2.0**_BITS * (1.0 + (self.columns + 8) * 2.0**-52) + 0.5 * math.sqrt(self.columns)
        return (length**2 + (2.0 ** (2 * _BITS) if self.constant else 0.0)) * UP

    def noisy(
        self, rows: Reals, event: Gaussian, stream: Stream, centre: Reals | None = None
    ) -> Reals:
        """The sum of products of the rows less ``centre``, with symmetric Gaussian noise.

        Analyze-Gauss (Dwork, Talwar, Thakurta & Zhang 2014).

        Guarantee:
            The release is that of ``event``, a ``Gaussian`` in units of norm² (2·norm² with the
            constant) whose ``replace_distance`` is √2 or more. A symmetric matrix with its entries
            off the diagonal times √2 is a vector whose L2 norm is the Frobenius norm, which a row
            moves by its squared norm at most; noise of σ on that vector is noise of σ on the
            diagonal and σ/√2 off it. (The paper has σ everywhere: more than is needed.) Rows are
            clipped and rounded to whole numbers one by one, their products are added up exactly,
            and the sums are rounded to a grid, which moves neighbours apart by ``size`` steps at
            most, whereby the noise is widened. A row with an entry that is not finite counts as 0.
        """
        coarse = max(0, math.frexp(self.most / max(2.0**20, 2.0**10 * self.size))[1] - 1)
        wide = (math.ldexp(self.most, -coarse) + self.size) * event.sigma * UP
        if wide > _WIDEST:
            raise InvalidArgument(
                "epsilon (or rho) must be larger, or noise_multiplier smaller: noise of "
                f"{event.sigma:.3g} times what a row adds drowns everything"
            )
        steps = self._products(rows, centre, coarse)
        above = np.triu_indices(self.size, 1)
        off = rounded_gaussian(wide * math.sqrt(0.5) * UP, len(above[0]), stream)
        steps[above] += off
        steps[above[1], above[0]] = steps[above]
        steps[np.diag_indices(self.size)] += rounded_gaussian(wide, self.size, stream)
        unit = 2.0**coarse * (self.norm * 2.0**-_BITS) ** 2
        return np.asarray(steps * unit, dtype=np.float64)

    def _products(self, rows: Reals, centre: Reals | None, bits: int = 0) -> Integers:
        """The sums of the products over 2^bits, rounded to the nearest.

        Their parts above 2^bits are put aside now and then, so that the number of rows has no limit
        at which int64 overflows: it may be private.
        """
        above: Integers | int = 0
        rest = np.zeros((self.size, self.size), dtype=np.int64)
        many = min(_MOST_ROWS, 1 + _BLOCK // self.columns)
        for number, start in enumerate(range(0, len(rows), many), start=1):
            part = rows[start : start + many]
            if centre is not None:
                with np.errstate(over="ignore"):
                    part = part - centre
            block = np.rint(_clipped(part, self.norm) * 2.0**_BITS)
            if self.constant:
                block = np.column_stack([block, np.full(len(block), 2.0**_BITS)])
            rest += (block.T @ block).astype(np.int64)
            if number % _BLOCKS_HELD == 0:
                above = above + (rest >> bits)
                rest &= (1 << bits) - 1
        return above + ((rest + ((1 << bits) >> 1)) >> bits)


def _clipped(rows: Reals, norm: float) -> Reals:
    """The rows in units of the norm, those above it scaled down to it.

    Each is computed by itself, to the last bit: were one odd row to change how the others are
    computed, any number of entries half-way between two whole numbers would be rounded otherwise.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        units = np.ascontiguousarray(rows) / norm
        lengths = _lengths(units)
        units /= np.maximum(lengths, 1.0)
    odd = np.flatnonzero(~np.isfinite(lengths))
    units[odd] = _clipped_with_care(rows[odd], norm)
    return units


def _clipped_with_care(rows: Reals, norm: float) -> Reals:
    """The same where squares overflow, or entries are not finite, whose rows become 0."""
    good = np.isfinite(rows).all(axis=1, keepdims=True)
    finite = np.where(good, rows, 0.0)
    largest = np.abs(finite).max(axis=1, keepdims=True)
    shape = finite / np.where(largest == 0.0, 1.0, largest)
    lengths = _lengths(shape)
    with np.errstate(over="ignore"):
        size = largest / norm * lengths
        short = np.minimum(largest / norm, 1.0)
    factors = np.where(size > 1.0, 1.0 / np.maximum(lengths, 1.0), short)
    return np.asarray(shape * factors, dtype=np.float64)


def _lengths(rows: Reals) -> Reals:
    """The norms, a column; in C order the order in which a row is added up is always the same."""
    squares = np.ascontiguousarray(np.square(rows))
    return np.asarray(np.sqrt(squares.sum(axis=1, keepdims=True)))


# ---- principal components


@final
@dataclass(frozen=True, slots=True, eq=False)
class Components:
    """Principal directions, the strongest first.

    Args:
        directions: One row of norm 1 each, orthogonal to the others; a DataFrame for a DataFrame.
        strengths: The sums of squares along them, with their noise; the weak ones may be negative.
        centre: What is subtracted from rows, a public point.
    """

    directions: Any
    strengths: Reals
    centre: Reals

    def project(self, rows: Any) -> Reals:
        """The coordinates of rows along the directions; of private rows they are secret."""
        return np.asarray((matrix(rows) - self.centre) @ np.asarray(self.directions).T)


def pca(
    rows: Any,
    components: int,
    *,
    norm: float = 1.0,
    centre: Any = 0.0,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    noise_multiplier: float | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "",
    stream: Stream | None = None,
) -> Released[Components]:
    """Principal components by Analyze-Gauss (Dwork, Talwar, Thakurta & Zhang 2014).

    The strongest directions of XᵀX with symmetric Gaussian noise, the rows of X less ``centre``
    and clipped to ``norm``.

    Guarantee:
        The noisy XᵀX is released as ``event`` says (``tacit.mechanisms.covariances.Moments``), with
        what was asked for, and everything follows from it. A row with an entry that is missing, no
        number or infinite counts as 0. Nothing in the data is refused. The number of rows is
        protected: nothing is divided by it.

    Args:
        rows: A 2-D array, one row per record, or a DataFrame.
        components: How many directions.
        norm: The public largest norm of a row; longer ones are scaled down to it.
        centre: A public point to measure from: a number, or one per column.
        epsilon: The ε asked for, with ``delta``.
        delta: The δ asked for.
        rho: The ρ of zCDP asked for, instead.
        noise_multiplier: σ asked for, instead: the noise's deviation in units of the square of
            ``norm``.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``; a user is one row.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> rows = np.random.default_rng(0).normal(size=(20_000, 3)) * [0.05, 0.5, 0.1]
    >>> found = pca(rows, 1, epsilon=1, delta=1e-6, stream=UnsafeSeededStream(0, "test"))
    >>> abs(found.value.directions.round(1)).tolist()
    [[0.0, 1.0, 0.0]]
    """
    terms = agreed("pca", adjacency, unit, budget, label, stream)
    asked = smooth_amount(epsilon, delta, rho, noise_multiplier)
    data, bound = matrix(rows), positive("norm", norm)
    number = whole("components", components)
    if number > data.shape[1]:
        raise InvalidArgument(
            f"components must be at most the {data.shape[1]} columns, got {components!r}"
        )
    middle = _centre(centre, data.shape[1])
    event = gaussian_event(asked, APART, terms.adjacency)
    grant = terms.charge(event, asked.delta)
    noisy = Moments(data.shape[1], bound).noisy(data, event, grant.stream, middle)
    directions, strengths = _strongest(noisy, number)
    if is_frame(rows):
        frame = sys.modules["pandas"].DataFrame
        return grant.release(Components(frame(directions, columns=rows.columns), strengths, middle))
    return grant.release(Components(directions, strengths, middle))


def _centre(centre: Any, columns: int) -> Reals:
    point = reals("centre", centre)
    if point.shape not in ((), (columns,)) or not np.all(np.isfinite(point)):
        raise InvalidArgument(f"centre must be a finite number, or one per column ({columns})")
    return np.broadcast_to(point, (columns,)).copy()


def _strongest(symmetric: Reals, number: int) -> tuple[Reals, Reals]:
    """The eigenvectors of the largest eigenvalues, each with its largest entry positive."""
    strengths, vectors = np.linalg.eigh(symmetric)
    directions = vectors.T[::-1][:number]
    peaks = np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1)
    return directions * np.sign(peaks), strengths[::-1][:number].copy()
