"""What an attack sees: the logits of the attacked model, and of models trained to compare it with.

The examples are the same for all models, in the same order. A *view* is an augmentation of an
example; view 0 is the example as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit.auditing.statistics.scores import Scores
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, eq=False)
class Outputs:
    """The logits of one model on some examples, and the examples' labels.

    Args:
        logits: Of shape (examples, views, classes); (examples, classes) is one view of each.
        labels: The class of each example.

    >>> Outputs([[2.0, 0.0], [1.0, 3.0]], [0, 1]).logits.shape
    (2, 1, 2)
    """

    logits: NDArray[np.float32]
    labels: NDArray[np.int64]

    def __init__(self, logits: ArrayLike, labels: ArrayLike) -> None:
        object.__setattr__(self, "logits", checked_logits(logits, leading=1))
        object.__setattr__(self, "labels", _checked_labels(labels, self.logits))

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Shadows:
    """The logits of shadow models on the same examples, and which of these each was trained on.

    Args:
        logits: Of shape (models, examples, views, classes), or without views.
        labels: The class of each example.
        members: Of shape (models, examples): whether the model was trained on the example.

    >>> shadows = Shadows(np.zeros((4, 3, 2)), [0, 1, 1], np.eye(4, 3, dtype=bool))
    >>> len(shadows), shadows.logits.shape
    (4, (4, 3, 1, 2))
    """

    logits: NDArray[np.float32]
    labels: NDArray[np.int64]
    members: NDArray[np.bool_]

    def __init__(self, logits: ArrayLike, labels: ArrayLike, members: ArrayLike) -> None:
        object.__setattr__(self, "logits", checked_logits(logits, leading=2))
        object.__setattr__(self, "labels", _checked_labels(labels, self.logits[0]))
        object.__setattr__(self, "members", _checked_members(members, self.logits.shape[:2]))

    def __len__(self) -> int:
        return len(self.logits)

    def model(self, index: int) -> Outputs:
        """The outputs of one of the models, to be attacked."""
        return Outputs(self.logits[index], self.labels)


def split(scores: ArrayLike, members: ArrayLike) -> Scores:
    """The scores of members and of others: of one model, or of many with a row for each.

    Scores under one model, or of one example under many models, are not independent trials. What
    takes them for such (a bound, an interval) says so.

    >>> split([0.1, 0.9, 0.4], [False, True, False]).outside.tolist()
    [0.1, 0.4]
    """
    found, inside = np.asarray(scores, dtype=np.float64), np.asarray(members)
    if inside.dtype != np.bool_ or found.shape != inside.shape:
        raise InvalidArgument(
            f"members must be true or false for each score, of shape {found.shape}, got "
            f"{inside.dtype} of shape {inside.shape}"
        )
    return Scores(found[inside], found[~inside])


def check_same_examples(target: Outputs, shadows: Shadows) -> None:
    """Refuses shadow models that were asked about other examples than the target."""
    if shadows.logits.shape[1:] != target.logits.shape:
        raise InvalidArgument(
            "shadows must have logits for the target's examples, views and classes, "
            f"{target.logits.shape}, got {shadows.logits.shape[1:]}"
        )
    if not np.array_equal(shadows.labels, target.labels):
        raise InvalidArgument("shadows must have the target's labels: give the same examples")


def checked_logits(logits: ArrayLike, *, leading: int) -> NDArray[np.float32]:
    """Finite logits with an axis for the views; ``leading`` axes come before it."""
    array = np.array(logits, dtype=np.float32)
    if array.ndim == leading + 1:
        array = np.expand_dims(array, leading)
    if array.ndim != leading + 2 or not array.size or array.shape[-1] < 2:
        axes = ("models", "examples", "views", "classes")[2 - leading :]
        raise InvalidArgument(
            f"logits must be of shape ({', '.join(axes)}) with two classes or more, got "
            f"{np.shape(logits)}"
        )
    if wrong := int(np.count_nonzero(~np.isfinite(array))):
        raise InvalidArgument(
            f"logits must be finite, got {wrong} that are not: leave out a model that diverged"
        )
    array.flags.writeable = False
    return array


def _checked_labels(labels: ArrayLike, logits: NDArray[np.float32]) -> NDArray[np.int64]:
    examples, classes = len(logits), logits.shape[-1]
    array = np.array(labels)
    if array.shape != (examples,) or array.dtype.kind not in "iu":
        raise InvalidArgument(
            f"labels must be {examples} whole numbers, one for each example, got {array.dtype} of "
            f"shape {array.shape}"
        )
    if array.min() < 0 or array.max() >= classes:
        raise InvalidArgument(
            f"labels must lie from 0 to {classes - 1}, got {array.min()} to {array.max()}"
        )
    found = array.astype(np.int64)
    found.flags.writeable = False
    return found


def _checked_members(members: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    array = np.array(members)
    if array.dtype != np.bool_ or array.shape != shape:
        raise InvalidArgument(
            f"members must be true or false for each model and example, of shape {shape}, got "
            f"{array.dtype} of shape {array.shape}"
        )
    array.flags.writeable = False
    return array
