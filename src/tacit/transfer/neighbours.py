"""Nearest neighbours, ranked by similarities that are whole numbers and hence exact.

A private vote of neighbours rests on one thing: whether one record is nearer to a query than
another must not depend on which other records there are. Products of matrices in floating point
break that, because their rounding depends on where in the matrix a record lies, and a record that
is removed moves all those behind it: near ties may turn around all over the data set. So rows are
first brought to one length and rounded to whole numbers, each row by itself. Their inner products
are then whole numbers below 2²⁴, which single precision computes without any rounding, in whatever
order, by whatever library and on whatever device. Ties go to the record that comes first.

FAISS finds the neighbours where it is installed (``pip install tacit[neighbours]``), else torch,
by comparing with every record; on a GPU it is torch always. All give the same.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from tacit._validation import whole
from tacit.errors import InvalidArgument
from tacit.mechanisms._keys import placed
from tacit.mechanisms._records import entries, is_series, numbers, unmasked
from tacit.models.devices import full_precision

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Rows = NDArray[np.float32]
    Places = NDArray[np.int64]


LENGTH = 2048.0
"""Of every row, before it is rounded: as long as TF32's eleven bits and sums below 2²⁴ allow."""

_MOST_FEATURES = 1 << 22  # rounding lengthens a row by √features/2 at most: to 3,072
_DOUBLE = 8  # bytes
_BLOCK = 4096  # rows that are rounded at a time
_CELLS = 1 << 25  # similarities that are held at a time, by torch
_SHIFT = 1 << 25  # above twice any similarity


def on_grid(name: str, rows: ArrayLike | torch.Tensor) -> Rows:
    """Rows of length 2048, rounded to whole numbers; a row of zeros stays one.

    Each row is made from itself alone. Neighbours of such rows are those of largest cosine.

    >>> on_grid("rows", [[3.0, 4.0], [0.0, 0.0], [1e-3, 0.0]]).tolist()
    [[1229.0, 1638.0], [0.0, 0.0], [2048.0, 0.0]]
    """
    given = as_rows(name, rows)
    result = np.empty(given.shape, dtype=np.float32)
    for start in range(0, len(given), _BLOCK):
        part = np.ascontiguousarray(given[start : start + _BLOCK], dtype=np.float64)
        result[start : start + _BLOCK] = _rounded(name, part)
    return result


def as_rows(name: str, rows: ArrayLike | torch.Tensor) -> NDArray[Any]:
    """``rows`` as an array of numbers, a row for each record and a column for each feature."""
    given = _array(rows)
    if given.ndim != 2 or given.dtype.kind not in "fiu" or not 0 < given.shape[1] < _MOST_FEATURES:
        raise InvalidArgument(
            f"{name} must be numbers, one row for each record and one column for each feature, "
            f"got rows of shape {given.shape[1:]} of {given.dtype}"
        )
    return given


def private_rows(name: str, rows: Any) -> NDArray[Any]:
    """The rows of private records, each read by itself; one that is not finite becomes 0.

    What is no number is missing. A list is refused, for what is in it would decide its shape.

    >>> private_rows("features", np.array([[1, 2], [3, "x"], [10**400, 1]], dtype=object)).tolist()
    [[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]
    """
    if isinstance(rows, list | tuple):
        raise InvalidArgument(
            f"{name} must be a 2-D array, a tensor or a DataFrame, one row for each record; of a "
            f"list make np.asarray({name}, dtype=float)"
        )
    given = rows if isinstance(rows, torch.Tensor) else np.asarray(unmasked(rows))
    if not isinstance(given, torch.Tensor) and given.dtype.kind in "OUST":
        given = numbers(name, rows)
    found = as_rows(name, given)
    if found.dtype.kind != "f":
        return found
    with np.errstate(over="ignore"):  # beyond double precision a number is infinite
        found = found.astype(np.float64) if found.dtype.itemsize > _DOUBLE else found
    good = np.isfinite(found).all(axis=1, keepdims=True)
    return found if good.all() else np.where(good, found, np.zeros((), dtype=found.dtype))


def private_labels(labels: Any, classes: int, *, records: int) -> Places:
    """One class for each record; -1 for a label that is none of them, which votes for nobody."""
    known = range(whole("classes", classes, at_least=2))
    given: Any = _array(labels) if isinstance(labels, torch.Tensor) else labels
    held = list(given.array) if is_series(given) else entries("labels", given)
    if isinstance(held, np.ndarray) and held.ndim != 1:
        raise InvalidArgument(f"labels must be one for each record, got {held.ndim} dimensions")
    if len(held) != records:
        raise InvalidArgument("labels must be one for each record; features and labels differ")
    if isinstance(held, np.ndarray) and held.dtype.kind in "iu":
        return np.where((held >= 0) & (held < classes), held, -1).astype(np.int64)
    return placed(held, known)


def _array(values: ArrayLike | torch.Tensor) -> NDArray[Any]:
    if not isinstance(values, torch.Tensor):
        return np.asarray(values)
    found = values.detach().cpu()
    return (found.float() if found.dtype == torch.bfloat16 else found).numpy()  # NumPy has none


def _rounded(name: str, part: NDArray[np.float64]) -> NDArray[np.float64]:
    largest = np.abs(part).max(axis=1, keepdims=True)
    if not np.isfinite(largest).all():
        raise InvalidArgument(f"{name} must be finite numbers; replace missing and infinite ones")
    shaped = part / np.where(largest > 0.0, largest, 1.0)  # so that squares neither vanish nor grow
    norms = np.sqrt(np.square(shaped).sum(axis=1, keepdims=True))
    result: NDArray[np.float64] = np.rint(shaped * (LENGTH / np.where(norms > 0.0, norms, 1.0)))
    return result


@final
class Neighbours:
    """Ranks ``records`` by their distance from a query; ties by their place.

    Guarantee:
        ``nearest`` gives the first ``count`` records of a total order which depends on the query
        and, for each two records, on these two and on which of them comes first in ``records``.
        Whether other records are there, and how many are asked for, changes nothing in it.

    Args:
        records: Features, a row for each record.
        device: Where the similarities are computed.

    >>> near = Neighbours([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> near.nearest([[2.0, 0.1], [0.0, 5.0]], 3).tolist()
    [[0, 2, 3], [1, 3, 0]]
    """

    def __init__(
        self, records: ArrayLike | torch.Tensor, *, device: str | torch.device = "cpu"
    ) -> None:
        self._records = on_grid("records", records)
        if len(self._records) == 0:
            raise InvalidArgument("records must be one row or more, got none")
        self._device = torch.device(device)
        self._tensor = torch.from_numpy(self._records).to(self._device)
        self._faiss: Any = None
        if self._device.type == "cpu" and importlib.util.find_spec("faiss") is not None:
            import faiss  # noqa: PLC0415 - an extra

            self._faiss = faiss

    def __len__(self) -> int:
        return len(self._records)

    def nearest(self, queries: ArrayLike | torch.Tensor, count: int) -> Places:
        """The places of the ``count`` nearest records, a row for each query, the nearest first."""
        return self.first(self.prepared(queries), count)

    def prepared(self, queries: ArrayLike | torch.Tensor) -> Rows:
        """Queries in the form that ``first`` and ``ranked`` take."""
        asked = on_grid("queries", queries)
        if asked.shape[1] != self._records.shape[1]:
            raise InvalidArgument(
                f"queries must have {self._records.shape[1]} features as the records do, "
                f"got {asked.shape[1]}"
            )
        return asked

    def first(self, asked: Rows, count: int) -> Places:
        """``nearest`` for queries that ``prepared`` made: rounding twice is another rounding."""
        wanted = whole("count", count)
        if wanted > len(self):
            raise InvalidArgument(f"count must be at most the {len(self)} records, got {count!r}")
        if len(asked) == 0:
            return np.empty((0, wanted), dtype=np.int64)
        # One more than wanted shows whether the last place was tied for.
        scores, places = self._search(asked, min(wanted + 1, len(self)))
        keys = (_SHIFT - scores.astype(np.int64)) * (1 << 32) + places
        keys.sort(axis=1)
        result, ranks = keys[:, :wanted] & ((1 << 32) - 1), keys >> 32
        if wanted < len(self):
            for row in np.flatnonzero(ranks[:, wanted - 1] == ranks[:, wanted]):
                open_ones = np.flatnonzero(ranks[row, :wanted] == ranks[row, wanted])
                tied = np.flatnonzero(self._records @ asked[row] == _SHIFT - ranks[row, wanted])
                result[row, open_ones] = tied[: len(open_ones)]
        return result

    def ranked(self, query: Rows, among: Places, count: int) -> Places:
        """The ``count`` nearest of the records ``among``, given in increasing order, to one query.

        All of them if there are no more. The query is one that ``prepared`` made.
        """
        scores = self._records[among] @ query
        return among[np.argsort(-scores, kind="stable")[:count]]

    def _search(self, asked: Rows, count: int) -> tuple[NDArray[Any], Places]:
        """The ``count`` largest similarities and whose they are; which of tied ones is open."""
        if self._faiss is not None:
            found = self._faiss.knn(
                asked, self._records, count, metric=self._faiss.METRIC_INNER_PRODUCT
            )
            return found[0], found[1]
        step = max(1, _CELLS // len(self))
        with full_precision(self._device.type), torch.no_grad():
            parts = [
                (
                    torch.from_numpy(asked[start : start + step]).to(self._device) @ self._tensor.T
                ).topk(count, dim=1)
                for start in range(0, len(asked), step)
            ]
        scores = torch.cat([part.values for part in parts]).cpu().numpy()
        return scores, torch.cat([part.indices for part in parts]).cpu().numpy()


# ---- clusters of public points: which to ask about, and which private records may vote for

_ROUNDS = 30  # of Lloyd's; the clusters hardly move after a dozen


def cluster_centres(
    features: ArrayLike | torch.Tensor,
    count: int,
    seed: int,
    *,
    device: str | torch.device = "cpu",
) -> NDArray[np.float32]:
    """The centres of ``count`` clusters of PUBLIC points, by spherical k-means (Dhillon 2001).

    Neighbours are those of largest cosine here, and so are the clusters. It begins with ``count``
    of the points, drawn by ``seed``; the same seed gives the same centres on the same machine.

    Guarantee:
        None. This is for points that need no protection: the centres tell of every one of them.

    >>> points = np.array([[1.0, 0.01], [1.0, 0.0], [0.0, 1.0], [0.02, 1.0]])
    >>> cluster_centres(points, 2, seed=0).shape
    (2, 2)
    """
    rows = on_grid("features", features)
    number = whole("count", count)
    if number > len(rows):
        raise InvalidArgument(f"count must be at most the {len(rows)} points, got {count!r}")
    points = torch.from_numpy(rows).to(device)
    generator = torch.Generator().manual_seed(whole("seed", seed, at_least=0))
    chosen = torch.randperm(len(rows), generator=generator)[:number]
    centres = points[chosen.to(points.device)]
    for _ in range(_ROUNDS):
        nearest = Neighbours(centres, device=device).nearest(rows, 1)[:, 0]
        places = torch.from_numpy(nearest).to(points.device)
        sums = torch.zeros_like(centres).index_add_(0, places, points)
        empty = torch.bincount(places, minlength=number) == 0
        moved = torch.where(empty[:, None], centres, torch.nn.functional.normalize(sums))
        if torch.equal(moved, centres):
            break
        centres = moved
    found: NDArray[np.float32] = centres.cpu().numpy()
    return found


def medoids(
    features: ArrayLike | torch.Tensor,
    centres: ArrayLike | torch.Tensor,
    *,
    device: str | torch.device = "cpu",
) -> NDArray[np.int64]:
    """The point nearest to each centre, by its place among ``features``; each point once.

    >>> medoids(np.eye(3), [[0.1, 0.9, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.3]]).tolist()
    [1, 0]
    """
    near = Neighbours(features, device=device).nearest(centres, 1)[:, 0]
    _, first = np.unique(near, return_index=True)
    result: NDArray[np.int64] = near[np.sort(first)]
    return result
