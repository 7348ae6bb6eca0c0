"""What an attack sees: the logits of the attacked model, and of models trained to compare it with.

The examples are the same for all models, in the same order. A *view* is an augmentation of an
example; view 0 is the example as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from tacit.auditing.statistics.scores import Scores, nan_where_masked
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Numbers = NDArray[np.float64]


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
    found, inside = nan_where_masked(scores), np.asarray(members)
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


# ---- what logits say of an example whose label is known
#
# All of it is computed in logarithms and in double precision: at a low false-positive rate an
# attack decides by probabilities that are 1 to sixteen digits.


def phi(outputs: Outputs | Shadows) -> Numbers:
    """The log-odds of the label, z_y - log Σ_{j≠y} e^{z_j}: one for each example and view.

    Carlini et al. (2022): unlike a loss or a probability it is near Gaussian over
    models. For shadow models there is a first axis of models.

    >>> from tacit.auditing.attacks.outputs import Outputs
    >>> phi(Outputs([[3.0, 1.0], [0.0, 0.5]], [0, 0])).tolist()
    [[2.0], [-0.5]]
    """
    if outputs.logits.ndim == 3:
        return log_odds_of(outputs.logits, outputs.labels)
    # A model at a time: the logits of all of them in double precision may not fit.
    return np.stack([log_odds_of(one, outputs.labels) for one in outputs.logits])


def log_probability(outputs: Outputs | Shadows) -> Numbers:
    """The logarithm of p_y, minus the cross-entropy loss: of each example and view.

    >>> from tacit.auditing.attacks.outputs import Outputs
    >>> log_probability(Outputs([[0.0, 0.0]], [1])).round(4).tolist()
    [[-0.6931]]
    """
    return -np.logaddexp(0.0, -phi(outputs))


def probability(outputs: Outputs | Shadows) -> Numbers:
    """p_y of each example and view."""
    return np.asarray(expit(phi(outputs)))


def log_odds_of(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> Numbers:
    """The log-odds of these labels: logits (examples, views, classes) to (examples, views)."""
    given, rest = _parted(logits, labels)
    return given - _log_sum_exp(rest)


def every_log_odds(logits: NDArray[np.float32]) -> Numbers:
    """The log-odds of every class: of the shape of the logits.

    For the likeliest class the others are summed by themselves. Elsewhere the probability is ½ at
    most, and nothing cancels in 1 - p.
    """
    z = logits.astype(np.float64)
    likeliest = z.argmax(axis=-1)[..., None]
    log_p = z - _log_sum_exp(z)[..., None]
    odds = log_p - np.log1p(-np.minimum(np.exp(log_p), 0.5))
    rest = _without(z, likeliest)
    own = np.take_along_axis(z, likeliest, axis=-1) - _log_sum_exp(rest)[..., None]
    np.put_along_axis(odds, likeliest, own, axis=-1)
    return odds


def margins(outputs: Outputs) -> Numbers:
    """z_y - max_{j≠y} z_j of each example and view: below 0 where the model is wrong."""
    given, rest = _parted(outputs.logits, outputs.labels)
    return np.asarray(given - rest.max(axis=-1))


def _parted(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> tuple[Numbers, Numbers]:
    """The label's logit, and those of all other classes."""
    z = logits.astype(np.float64)
    classes = np.broadcast_to(labels[:, None, None], (*z.shape[:2], 1))
    return np.take_along_axis(z, classes, axis=-1)[..., 0], _without(z, classes)


def _without(values: Numbers, classes: NDArray[np.int64]) -> Numbers:
    """All but one class of each example and view."""
    kept = np.arange(values.shape[-1]) != classes
    return np.asarray(values[kept].reshape(*values.shape[:-1], values.shape[-1] - 1))


def _log_sum_exp(values: Numbers) -> Numbers:
    top = values.max(axis=-1)
    return np.asarray(top + np.log(np.exp(values - top[..., None]).sum(axis=-1)))
