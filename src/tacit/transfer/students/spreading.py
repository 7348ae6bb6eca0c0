"""Labels spread from the few points that have one to all, along a graph of similar images.

The graph joins each image to those nearest to it. Labels spread as in Zhou et al. 2004, "Learning
with local and global consistency": Z = αSZ + (1−α)B, with S the normalised weights of the graph and
B the given labels; weights and certainties are those of Iscen et al. 2019, "Label propagation for
deep semi-supervised learning", section 4.

A label is also compared with what the *other* labels say of its point: that tells wrong labels, how
far labels should spread, and how far the graph is to be believed at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from scipy import sparse
from torch.nn import functional

from tacit.transfer.neighbours import Neighbours

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    Numbers = NDArray[np.float32]

NEIGHBOURS = 10
SHARPNESS = 4  # a weight is similarity^4; Iscen et al. have 3
ALPHAS = (0.99, 0.9)  # far, for classes that lie apart; or less far, if that predicts labels better
ROUNDS = 100
FOLDS = 10  # of the labels; each is compared with what the others say


@final
@dataclass(frozen=True, eq=False)
class Spread:
    """What the graph says.

    Args:
        labels: the label of each point.
        certainty: 1 − H(z)/ln(classes), from 0 to 1, z being a point's share of each class; 0 where
            no label arrives.
        agrees: of each point with a label, whether the other labels say the same.
    """

    labels: Tensor
    certainty: Tensor
    agrees: Tensor


def spread(rows: Tensor, labels: Tensor, weights: Tensor, classes: int) -> Spread:
    """Spreads labels over the graph of all points.

    Args:
        rows: the points' features, each of norm 1.
        labels: one a point; -1 where there is none.
        weights: how much each label counts.
        classes: how many there are.

    >>> rows = functional.normalize(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0]]))
    >>> spread(rows, torch.tensor([1, 0, -1, -1]), torch.tensor([1.0, 1.0, 0.0, 0.0]), 2).labels
    tensor([1, 0, 1, 0])
    """
    given, strength = labels.cpu().numpy(), weights.cpu().numpy()
    known = np.flatnonzero(given >= 0)
    folds = np.full(len(given), -1)
    folds[known] = np.random.default_rng(0).permutation(len(known)) % FOLDS
    sources = [
        _sources(given, np.where(folds == left_out, 0, strength), classes)
        for left_out in range(FOLDS + 1)  # the last leaves none out
    ]
    graph, every = _graph(rows), np.hstack(sources)
    best: tuple[Numbers, NDArray[np.bool_]] | None = None
    for alpha in ALPHAS:
        found = _spread(graph, every, alpha).reshape(len(given), FOLDS + 1, classes)
        agrees = found[np.arange(len(given)), folds].argmax(1) == given
        if best is None or _more(agrees, best[1]):
            best = found[:, FOLDS], agrees
    assert best is not None
    labels_found, certainty = _settled(best[0])
    place = rows.device
    return Spread(labels_found.to(place), certainty.to(place), torch.from_numpy(best[1]).to(place))


def _settled(found: Numbers) -> tuple[Tensor, Tensor]:
    """Each point's label, and how certain it is."""
    shares = functional.normalize(torch.tensor(found), p=1, dim=1)
    entropy = torch.special.entr(shares).sum(1) / math.log(shares.shape[1])
    return shares.argmax(1), torch.where(shares.sum(1) > 0, 1 - entropy, 0.0)


def _more(new: NDArray[np.bool_], old: NDArray[np.bool_]) -> bool:
    """Whether more are true, by more than two standard errors of the difference."""
    gained, lost = int((new & ~old).sum()), int((old & ~new).sum())
    return gained - lost > 2 * math.sqrt(gained + lost)


def _graph(rows: Tensor) -> Any:
    """The symmetric weights of the graph, D^(−1/2)·W·D^(−1/2), as a sparse matrix."""
    count = len(rows)
    near = min(NEIGHBOURS + 1, count)
    nearest = Neighbours(rows, device=rows.device).nearest(rows, near)
    columns = torch.tensor(nearest.T, device=rows.device)
    similar = torch.stack([(rows * rows[column]).sum(1) for column in columns], dim=1)
    weights = similar.clamp(min=0).pow(SHARPNESS).cpu().numpy()
    weights[nearest == np.arange(count)[:, None]] = 0  # itself
    ends = np.repeat(np.arange(count), near), nearest.ravel()
    matrix = sparse.csr_matrix((weights.ravel(), ends), shape=(count, count))
    matrix = matrix + matrix.T
    degree = np.maximum(np.asarray(matrix.sum(1)).ravel(), 1e-12)
    scale = sparse.diags((degree**-0.5).astype(np.float32))
    return (scale @ matrix @ scale).tocsr()


def _sources(given: NDArray[np.int64], strength: NDArray[Any], classes: int) -> Numbers:
    """B: the labels that have strength, all of a class together as strong as any other's."""
    found = np.zeros((len(given), classes), dtype=np.float32)
    known = np.flatnonzero(given >= 0)
    found[known, given[known]] = strength[known]
    found /= np.maximum(found.sum(0), 1e-9)
    return found


def _spread(graph: Any, sources: Numbers, alpha: float) -> Numbers:
    found = sources
    for _ in range(ROUNDS):
        found = alpha * (graph @ found) + (1 - alpha) * sources
    return found
