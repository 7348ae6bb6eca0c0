"""Principal components of rows of bounded norm."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tacit._validation import positive, whole
from tacit.errors import InvalidArgument
from tacit.mechanisms._kinds import is_frame, reals
from tacit.mechanisms._noise import gaussian_event
from tacit.mechanisms._terms import agreed, smooth_amount
from tacit.mechanisms.covariances import APART, Moments, matrix

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency
    from tacit.ledger import Budget
    from tacit.mechanisms.released import Released
    from tacit.randomness import Stream

    Reals = NDArray[np.float64]


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
        """The coordinates of rows along the directions; of private rows they are private."""
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
