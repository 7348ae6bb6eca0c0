"""The shadow-model attack: a classifier learns what members look like (Shokri et al. 2017).

The shadow models' members are known. For each class a small network learns to separate them from
other examples by a model's outputs alone, and is then shown the target's. Unlike LiRA it does not
know which example it sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
import torch.nn.functional as F

from tacit.auditing.attacks.in_out_shadows import left_out
from tacit.auditing.attacks.outputs import check_same_examples, every_log_odds
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tacit.auditing.attacks.outputs import Outputs, Shadows

_HIDDEN: Final = 64  # units, as in the paper
_FEATURES: Final = 10  # at most: the label's log-odds and the largest others
_ROWS: Final = 2048  # of a step, for all classes together
_STEPS: Final = 250
_RATE: Final = 0.01  # of learning at first; it falls to 0
_FOLDS: Final = 4


def shadow_classifier(target: Outputs, shadows: Shadows, *, seed: int = 0) -> NDArray[np.float64]:
    """The log-odds of membership that a classifier trained on the shadow models gives.

    One network of a hidden layer for each class of the labels. It sees the log-odds of the label
    and, in falling order, the largest of the other classes, each the mean over the views. ``seed``
    chooses its first weights and the order of what it learns from.

    >>> from tacit.auditing.attacks import Shadows
    >>> draw = np.random.default_rng(1)
    >>> members = draw.random((8, 50)) < 0.5
    >>> logits = np.stack((4.0 * members, 0.0 * members), axis=-1)  # members stand out at once
    >>> shadows = Shadows(logits, np.zeros(50, dtype=int), members)
    >>> scores = shadow_classifier(shadows.model(0), shadows)
    >>> bool(scores[members[0]].min() > scores[~members[0]].max())
    True
    """
    check_same_examples(target, shadows)
    attack = _fitted(shadows, range(len(shadows)), seed)
    return attack.scores(_features(target.logits, target.labels), target.labels)


def shadow_classifier_each(shadows: Shadows, *, seed: int = 0) -> NDArray[np.float64]:
    """``shadow_classifier`` with each of the models as target: a row for each.

    Models are attacked in four groups, each by one classifier that learned from the models of the
    other groups: a classifier for each model would cost as many times as much. A model and its
    complement are in one group.
    """
    classes = shadows.labels
    scores = np.empty(shadows.members.shape)
    for group in _groups(shadows.members):
        rest = [one for one in range(len(shadows)) if one not in group]
        attack = _fitted(shadows, rest, seed)
        for one in group:
            scores[one] = attack.scores(_features(shadows.logits[one], classes), classes)
    return scores


@dataclass(frozen=True, eq=False)
class _Networks:
    """A network for each class: weights with a first axis of classes."""

    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: tuple[torch.Tensor, ...]

    def scores(
        self, features: NDArray[np.float64], labels: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        rows = torch.from_numpy(((features - self.centre) / self.scale).astype(np.float32))
        found = np.empty(len(labels))
        with torch.no_grad():
            for label in np.unique(labels):
                at = np.flatnonzero(labels == label)
                one = tuple(weight[label : label + 1] for weight in self.weights)
                found[at] = _odds(one, rows[at][None])[0].numpy()
        return found


def _fitted(shadows: Shadows, models: Sequence[int], seed: int) -> _Networks:
    features = np.stack([_features(shadows.logits[one], shadows.labels) for one in models])
    flat = features.reshape(-1, features.shape[-1])
    centre, scale = flat.mean(axis=0), flat.std(axis=0) + 1e-6
    learned = torch.from_numpy(((flat - centre) / scale).astype(np.float32))
    wanted = torch.from_numpy(shadows.members[models].reshape(-1).astype(np.float32))
    classes, draw = shadows.logits.shape[-1], np.random.default_rng(seed)
    weights = _first_weights(classes, flat.shape[1], torch.Generator().manual_seed(seed))
    optimizer = torch.optim.Adam(weights, lr=_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 1.0 / _STEPS, _STEPS)
    for _ in range(_STEPS):
        rows = _rows(shadows.labels, classes, len(models), draw)
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(_odds(weights, learned[rows]), wanted[rows]).backward()
        optimizer.step()
        schedule.step()
    return _Networks(centre, scale, tuple(weight.detach() for weight in weights))


def _odds(weights: Sequence[torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
    """Log-odds of membership: rows (classes, rows, features) to (classes, rows)."""
    first, first_bias, last, last_bias = weights
    hidden = torch.relu(torch.baddbmm(first_bias, rows, first))
    return torch.baddbmm(last_bias, hidden, last)[..., 0]


def _first_weights(classes: int, features: int, draw: torch.Generator) -> list[torch.Tensor]:
    shapes = ((classes, features, _HIDDEN), (classes, 1, _HIDDEN), (classes, _HIDDEN, 1))
    weights = [torch.randn(shape, generator=draw) / shape[1] ** 0.5 for shape in shapes]
    return [weight.requires_grad_() for weight in (*weights, torch.zeros(classes, 1, 1))]


def _rows(
    labels: NDArray[np.int64], classes: int, models: int, draw: np.random.Generator
) -> NDArray[np.int64]:
    """Equally many (model, example) rows of each class, by chance; any rows if it has none."""
    count = max(16, _ROWS // classes)
    chosen = np.empty((classes, count), dtype=np.int64)
    for label in range(classes):
        of_class = np.flatnonzero(labels == label)
        examples = of_class if len(of_class) else np.arange(len(labels))
        picked = examples[draw.integers(len(examples), size=count)]
        chosen[label] = draw.integers(models, size=count) * len(labels) + picked
    return chosen


def _features(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of each example: the label's log-odds, then the largest others; means over the views."""
    odds = every_log_odds(logits).mean(axis=1)
    own = np.take_along_axis(odds, labels[:, None], axis=1)
    np.put_along_axis(odds, labels[:, None], np.inf, axis=1)  # sorted to the front, and dropped
    rest = -np.sort(-odds, axis=1)[:, 1:_FEATURES]
    return np.concatenate((own, rest), axis=1)


def _groups(members: NDArray[np.bool_]) -> list[list[int]]:
    """The models in groups; those that are complements of one another stay together."""
    seen: set[int] = set()
    together = []
    for out in left_out(members):
        if fresh := [one for one in out if one not in seen]:
            together.append(fresh)
            seen.update(fresh)
    if len(together) < 2:
        raise InvalidArgument(
            f"shadows must be models that can attack one another, got {len(members)}: train more"
        )
    return [
        [one for some in together[start::_FOLDS] for one in some]
        for start in range(min(_FOLDS, len(together)))
    ]
