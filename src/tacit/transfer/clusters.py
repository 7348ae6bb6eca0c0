"""Clusters of public points: which to ask about, and which private records may vote for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from tacit._validation import whole
from tacit.errors import InvalidArgument
from tacit.transfer.neighbours import Neighbours, on_grid

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

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
