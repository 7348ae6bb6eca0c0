"""Students of the graph: labels spread over all points, and a model learns them.

``graph`` learns a linear model on scattering features, which no label was needed for, and so takes
seconds: the first choice where a few labels have to do and images are simple. For photographs the
features say too little. ``committee`` and ``consistency`` begin with it.

The graph joins each image to those nearest to it. Labels spread as in Zhou et al. 2004, "Learning
with local and global consistency": Z = αSZ + (1−α)B, with S the normalised weights of the graph and
B the given labels; weights and certainties are those of Iscen et al. 2019, "Label propagation for
deep semi-supervised learning", section 4. A label is also compared with what the *other* labels say
of its point: that shows wrong labels, how far labels should spread, and how far the graph is to be
believed at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from scipy import sparse
from torch import nn
from torch.nn import functional

from tacit.transfer.neighbours import Neighbours
from tacit.transfer.students.images import Upright, Whitened, bent, strong, weak
from tacit.transfer.students.student import (
    BATCH,
    Descent,
    Pixels,
    Together,
    cross_entropy,
    small_network,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from tacit.transfer.students.student import StudentTask

    Numbers = NDArray[np.float32]


ROUNDS = 3
STEPS = 100
DECAY = 1e-5


@final
@dataclass(frozen=True, eq=False)
class Beginning:
    """A model learned from spread labels.

    Args:
        model: takes images and gives scores.
        said: the log-probability that it gives to each class of each public point.
        agrees: of each point with a label, whether the other labels say the same.
    """

    model: nn.Module
    said: Tensor
    agrees: Tensor


def train_graph(task: StudentTask) -> nn.Module:
    """The trained model."""
    return begin(task).model


def begin(task: StudentTask) -> Beginning:
    """Spreads the labels, learns them, and then what it has made of them."""
    features, rows = Whitened.of(task.images, upright=task.upright)
    first = propagate(rows, task.labels, task.weights, task.classes)
    labels, certainty = first.labels, first.certainty
    head = nn.Linear(rows.shape[1], task.classes).to(task.device)
    for _ in range(ROUNDS):
        _learn(head, rows, labels, certainty)
        said = head(rows).detach().log_softmax(1)
        certainty, labels = said.exp().max(1)
    return Beginning(nn.Sequential(Pixels(), features, head), said, first.agrees)


def _learn(head: nn.Linear, rows: Tensor, labels: Tensor, certainty: Tensor) -> None:
    """Logistic regression, each point as weighty as its label is certain."""
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=STEPS, history_size=10)

    def loss() -> Tensor:
        optimizer.zero_grad()
        size = sum(parameter.square().sum() for parameter in head.parameters())
        value = (certainty * cross_entropy(head(rows), labels)).mean() + DECAY * size
        value.backward()
        return value

    optimizer.step(loss)


# ---- spreading

NEIGHBOURS = 10
SHARPNESS = 4  # a weight is similarity^4; Iscen et al. have 3
ALPHAS = (0.99, 0.9)  # far, for classes that lie apart; or less far, if that predicts labels better
SPREADS = 100
FOLDS = 10  # of the labels; each is compared with what the others say


@final
@dataclass(frozen=True, eq=False)
class Propagated:
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


def propagate(rows: Tensor, labels: Tensor, weights: Tensor, classes: int) -> Propagated:
    """Spreads labels over the graph of all points.

    Args:
        rows: the points' features, each of norm 1.
        labels: one a point; -1 where there is none.
        weights: how much each label counts.
        classes: how many there are.

    >>> rows = functional.normalize(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0]]))
    >>> propagate(rows, torch.tensor([1, 0, -1, -1]), torch.tensor([1.0, 1.0, 0.0, 0.0]), 2).labels
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
    return Propagated(
        labels_found.to(place), certainty.to(place), torch.from_numpy(best[1]).to(place)
    )


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
    for _ in range(SPREADS):
        found = alpha * (graph @ found) + (1 - alpha) * sources
    return found


def train_committee(task: StudentTask) -> nn.Module:
    """The trained model of several: linear models of the graph, and a network, side by side.

    The linear model is good at finding labels for all public images, and knows nothing of how a
    shape may be bent. A small network learns those labels on bent copies. Of writing there are two
    linear models, one for images as they are and one for images put upright. Each errs at other
    images than the others do, and all of them together err least.
    """
    ways = (False, True) if task.upright else (False,)
    graphs = [begin(replace(task, upright=one)) for one in ways]
    said = torch.stack([graph.said for graph in graphs]).mean(0).softmax(1)
    return Together(*(graph.model for graph in graphs), _network(task, said))


def _network(task: StudentTask, said: Tensor) -> nn.Module:
    """A network that learns the likeliest label of each image, as weighty as it is likely."""
    belief, labels = said.max(1)
    if task.upright:
        pixels = Upright()(task.images.float() / 255)
        task = replace(task, images=pixels.mul(255).round().to(torch.uint8))
    network = task.model(lambda: small_network(task.images.shape[1], task.classes))
    descent = Descent(network)
    for done, rows in task.batches():
        scores = network(bent(task.pixels(rows), flip=task.flip))
        descent.step((cross_entropy(scores, labels[rows]) * belief[rows]).mean(), done)
    if task.upright:
        return nn.Sequential(Pixels(), Upright(), descent.average)
    return descent.average


SURE = 0.95  # a probability above which the student believes itself
BELIEVABLE = 0.9  # the share of labels that the graph must predict from the others
LABELLED = 32  # labelled points beside each batch, if the graph labels it; else as many as it has


def train_consistency(task: StudentTask) -> nn.Module:
    """The trained model: a network that believes itself where it is sure, also of changed images.

    After FixMatch (Sohn et al. 2020): the label of a point is what the student, its weights
    averaged, says of a weakly changed copy, if it is sure; the student then learns that label on a
    strongly changed copy. Two things are added, for labels that are few and of which some are
    wrong. A given label does not count while the student is sure of another. And where the graph
    predicts labels that it was not given, its labels are learned instead of the network's own, and
    its linear model stays beside the network.
    """
    graph = begin(task)
    believable = float(graph.agrees[task.labelled].float().mean()) >= BELIEVABLE
    model = task.model()
    descent = Descent(model)
    beside = LABELLED if believable else BATCH
    for done, rows in task.batches():
        both = torch.cat([rows, task.draw(task.weights, beside)])
        if believable:
            belief, labels = graph.said[both].exp().max(1)
        else:
            labels, belief = _believed(descent.average, task, both)
        own = slice(len(rows), None)
        given = task.labels[both[own]]
        belief[own] = torch.where(labels[own] == given, 1.0, 1.0 - belief[own])
        labels[own] = given
        losses = cross_entropy(model(strong(task.pixels(both), flip=task.flip)), labels) * belief
        descent.step(losses[: len(rows)].mean() + losses[own].mean(), done)
    return Together(graph.model, descent.average) if believable else descent.average


@torch.no_grad()
def _believed(average: nn.Module, task: StudentTask, rows: Tensor) -> tuple[Tensor, Tensor]:
    """What the averaged network says of weakly changed images; 1 where it is sure, else 0."""
    certainty, labels = average(weak(task.pixels(rows), flip=task.flip)).softmax(1).max(1)
    return labels, certainty.ge(SURE).float()
