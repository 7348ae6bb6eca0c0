"""Histograms: counts of disjoint cells, known beforehand or not."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._validation import whole
from tacit.accounting.events import ApproxDp, DiscreteGaussian, DiscreteLaplace, Repeated, distance
from tacit.errors import InvalidArgument
from tacit.mechanisms._keys import canonical, column, named, numbered, places, tallied
from tacit.mechanisms._records import (
    columns_named,
    is_frame,
    is_polars_frame,
    is_series,
    numbers,
    reals,
)
from tacit.mechanisms.numbers import gaussian_design
from tacit.mechanisms.release import agreed, amount, ratio_for
from tacit.randomness import discrete_gaussian, discrete_laplace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget
    from tacit.mechanisms.release import Amount, Released, ReleaseTerms
    from tacit.randomness import Stream

    Integers = NDArray[np.int64]

_MOST_CELLS = 1 << 28  # of several columns together


def histogram(
    values: Any,
    *,
    cells: int | Sequence[Any] | Mapping[Any, int | Sequence[Any]] | None = None,
    edges: Sequence[float] | Mapping[Any, Sequence[float]] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "",
    stream: Stream | None = None,
) -> Released[Any]:
    """How many records each cell holds, plus whole-number noise.

    With ``cells`` or ``edges`` the cells are public, and every one is released, the empty ones too:
    discrete Laplace noise for ε alone, discrete Gaussian noise for (ε, δ) or ρ. With neither, the
    cells are the keys found in the data, which are private: with (ε, δ), a key is released if its
    noisy count reaches a threshold that a key of one record reaches with probability δ at most
    (Korolova et al. 2009); the others are left out. Counts may be negative; they are unbiased where
    the cells are public.

    Over several columns, ``cells`` and ``edges`` name the columns and the cells of each, and every
    combination is a cell. Of a DataFrame without either, the keys are tuples of its entries.

    Guarantee:
        Each record, or row, lies in one cell at most. Adding or removing one moves one count by 1,
        replacing one moves two counts by 1. The release is that of ``event``, with what was asked
        for; the laws of the noise are exact. A record in none of the cells, or missing, is not
        counted; nothing in the data is refused. Unknown keys come out in a form that no other
        record has a say in: a whole number below 2⁵³ is an int, whether it was 1, 1.0 or True;
        other numbers are floats; texts, bytes, dates (date-times in UTC if they have a zone) and
        tuples of these are Python's own; a record that is nothing of this kind is not counted
        (larger numbers: give them as texts). They are sorted by kind and value, not in the order of
        the data. What NumPy or pandas did before is not undone: ``np.asarray([1, "x"])`` makes
        every record a text, so give the list itself, or an array whose type you named.

    Args:
        values: A 1-D array, list, pandas or Polars Series, one cell's name or number per record.
            Over several columns a DataFrame, a 2-D array or a mapping of columns.
        cells: All cells, or their number if they are 0, 1, 2, … Over several columns, such cells by
            the name (of an array, the place) of a column.
        edges: The increasing edges of cells of numbers, one more than there are cells; a cell holds
            its lower edge, and the last one its upper edge too. Over several columns, such edges by
            the name of a column.
        epsilon: The ε asked for.
        delta: The δ asked for with it.
        rho: The ρ of zCDP asked for, instead.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``; a user is one record.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    Returns:
        The counts in the order of the cells, as an array, or a Series for a pandas Series. Over
        several columns the array has a dimension for each, those of ``cells`` first and those of
        ``edges`` next, and the Series of a pandas DataFrame a level of its index. Of unknown keys,
        a dictionary, or a Series for a pandas object, with an index of objects.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> blood = ["A"] * 400 + ["B"] * 90 + ["0"] * 450
    >>> histogram(blood, cells=["A", "B", "AB", "0"], epsilon=0.2,
    ...     stream=UnsafeSeededStream(0, "test")).value.tolist()
    [400, 91, 4, 447]
    >>> released = histogram([*blood, "Bombay"], epsilon=1, delta=1e-6,
    ...     stream=UnsafeSeededStream(0, "test"))
    >>> released.value, released.event
    ({'0': 450, 'A': 400, 'B': 90}, ApproxDp(epsilon=1.0, delta=1e-06, adjacency='add-remove'))
    >>> patients = {"blood": ["A", "B", "A"], "age": [31, 64, 70]}
    >>> histogram(patients, cells={"blood": ["A", "B"]}, edges={"age": [0, 50, 120]}, epsilon=50,
    ...     stream=UnsafeSeededStream(0, "test")).value.tolist()
    [[1, 1], [0, 1]]
    """
    terms = agreed("histogram", adjacency, unit, budget, label, stream)
    asked = amount(epsilon, delta, rho)
    if isinstance(cells, Mapping) or isinstance(edges, Mapping):
        axes, counts = _crossed(values, cells or {}, edges or {})
    elif cells is not None and edges is not None:
        raise InvalidArgument("give either cells or edges, got both")
    elif cells is None and edges is None:
        return _of_unknown_keys(values, asked, terms)
    else:
        names, counts = _counted(values, cells, edges)
        axes = {"": (names, edges is not None)}
    scale, event = _design(asked, terms.adjacency)
    grant = terms.charge(event, asked.delta)
    draw = discrete_laplace if asked.pure else discrete_gaussian
    noisy = counts + draw(scale, counts.size, grant.stream).reshape(counts.shape)
    if is_series(values) or is_frame(values):
        return grant.release(_labelled(noisy.ravel(), _index(axes, crossed=is_frame(values))))
    return grant.release(noisy)


def _index(axes: Mapping[Any, tuple[Any, bool]], *, crossed: bool) -> Any:
    """An index of pandas: cells, or, where they lie between edges, intervals."""
    pandas = sys.modules["pandas"]
    levels = [
        pandas.IntervalIndex.from_breaks(names, closed="left") if between else names
        for names, between in axes.values()
    ]
    return pandas.MultiIndex.from_product(levels, names=list(axes)) if crossed else levels[0]


def _design(asked: Amount, adjacency: Adjacency) -> tuple[float, Event]:
    """The noise's scale, and its event.

    Two cells that move by 1 tell no more than one that moves by 2, if the noise is discrete
    Laplace (see ``discrete_laplace``). Gaussian noise is accounted cell by cell.
    """
    if asked.pure:
        assert asked.epsilon is not None
        scale = ratio_for(distance(2.0, adjacency), asked.epsilon)
        return scale, DiscreteLaplace(scale)
    if adjacency == "replace-one":
        return gaussian_design(
            asked,
            math.sqrt(2.0),
            adjacency,
            lambda sigma: Repeated(DiscreteGaussian(sigma, 1, 1.0), 2),
        )
    return gaussian_design(asked, 1.0, adjacency, DiscreteGaussian)


def _of_unknown_keys(values: Any, asked: Amount, terms: ReleaseTerms) -> Released[Any]:
    if asked.epsilon is None or asked.delta is None:
        raise InvalidArgument(
            "epsilon and delta must be given where cells= is not: keys that come from the data "
            "cost a δ; give cells=[…], all that there may be, if you know them without looking"
        )
    moved = distance(2.0, terms.adjacency)  # how many keys a record can touch
    scale = ratio_for(moved, asked.epsilon)
    least = threshold(scale, asked.delta / moved)
    keys, counts = tallied(
        _tuples(values) if is_frame(values) or is_polars_frame(values) else values
    )
    grant = terms.charge(ApproxDp(asked.epsilon, asked.delta, terms.adjacency))
    noisy = counts + discrete_laplace(scale, len(counts), grant.stream)
    kept = np.flatnonzero(noisy >= least)
    names = [keys[place] for place in kept]
    if is_series(values) or is_frame(values):
        # One type of index, whatever was found; tuples are labels, not levels.
        index = sys.modules["pandas"].Index(names, dtype=object, tupleize_cols=False)
        return grant.release(_labelled(noisy[kept], index))
    return grant.release(dict(zip(names, noisy[kept].tolist(), strict=True)))


def threshold(scale: float, delta: float) -> int:
    """The least t that a count of 1 with discrete Laplace noise reaches with probability ≤ δ.

    P(noise ≥ m) = e^{-m/scale}/(1 + e^{-1/scale}) for m ≥ 1.

    >>> threshold(1.0, 1e-6)
    15
    """
    together = math.log1p(math.exp(-1.0 / scale))
    wanted = math.log(delta) - 1e-12 * abs(math.log(delta))
    above = max(1, math.ceil(-scale * (wanted + together)))
    while -above / scale - together > wanted:
        above += 1
    return 1 + above


def _counted(
    values: Any, cells: int | Sequence[Any] | None, edges: Sequence[float] | None
) -> tuple[Any, Integers]:
    """The cells (their edges, if those were given), and how many records each holds."""
    if edges is not None:
        ends = _ends(edges)
        found = _edge_places(values, ends)
        return ends, np.bincount(found[found >= 0], minlength=len(ends) - 1)
    assert cells is not None
    names, keys = _cell_names(cells)
    if isinstance(names, range):
        return names, numbered(values, len(names))
    return names, named(values, keys)


def _cell_names(cells: Any) -> tuple[Sequence[Any], list[Any]]:
    """The cells, and their canonical keys."""
    if isinstance(cells, int | np.integer):
        names = range(whole("cells", cells))
        return names, list(names)
    listed = [] if isinstance(cells, str | bytes) else list(cells)
    keys = [canonical(name) for name in listed]
    if not keys or None in keys or len(set(keys)) != len(keys):
        raise InvalidArgument(
            "cells must be one or more different ones, in a list: numbers below 2**53, texts, "
            "bytes, dates, or tuples of them"
        )
    return listed, keys


def _tuples(values: Any) -> list[tuple[Any, ...]]:
    """The rows of a frame, each by itself."""
    columns = [column(one) for one in columns_named("values", values, values.columns)]
    parts = [one if isinstance(one, list) else one.tolist() for one in columns]
    return list(zip(*parts, strict=True))


def _crossed(values: Any, cells: Any, edges: Any) -> tuple[dict[Any, tuple[Any, bool]], Integers]:
    """The cells of each column, whether they are edges, and how many rows each combination holds.

    A row with an entry in none of its column's cells is not counted.
    """
    if not isinstance(cells, Mapping) or not isinstance(edges, Mapping) or set(cells) & set(edges):
        raise InvalidArgument(
            "cells and edges must name different columns where either names one: "
            "cells={'blood': ['A', 'B']}, edges={'age': [0, 50, 120]}"
        )
    axes = {name: _cell_names(one) for name, one in cells.items()}
    axes |= {name: (_ends(one), None) for name, one in edges.items()}
    shape = tuple(len(names) - (keys is None) for names, keys in axes.values())
    if math.prod(shape) > _MOST_CELLS:
        raise InvalidArgument(f"cells and edges must make at most 2**28 cells, got {shape}")
    place = np.zeros((), dtype=np.int64)
    held = np.ones((), dtype=np.bool_)
    for size, given, (names, keys) in zip(
        shape, columns_named("cells and edges", values, axes), axes.values(), strict=True
    ):
        found = _edge_places(given, names) if keys is None else places(given, keys)
        if place.ndim and len(found) != len(place):
            raise InvalidArgument("values must have columns of one length")
        place, held = place * size + found, held & (found >= 0)
    counts = np.bincount(place[held], minlength=math.prod(shape)).reshape(shape)
    return {name: (names, keys is None) for name, (names, keys) in axes.items()}, counts


def _edge_places(values: Any, ends: NDArray[np.float64]) -> Integers:
    given = numbers("values", values)
    if given.ndim != 1:
        raise InvalidArgument(f"values must be one number per record, got {given.ndim} dimensions")
    inside = (given >= ends[0]) & (given <= ends[-1])
    found = np.minimum(np.searchsorted(ends, given, side="right"), len(ends) - 1) - 1
    return np.where(inside, found, -1)


def _ends(edges: Sequence[float]) -> NDArray[np.float64]:
    ends = reals("edges", edges)
    if ends.ndim != 1 or len(ends) < 2 or not np.all(np.diff(ends) > 0.0):
        raise InvalidArgument("edges must be two or more increasing numbers")
    return ends


def _labelled(counts: Integers, names: Any) -> Any:
    return sys.modules["pandas"].Series(counts, index=names)
