"""``train_student``: public images and noisy labels in, a student out."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch.nn import functional

from tacit._validation import whole
from tacit.errors import InvalidArgument
from tacit.models.devices import device_named
from tacit.transfer.students.gan import train_gan
from tacit.transfer.students.graph import train_committee, train_consistency, train_graph
from tacit.transfer.students.images import strong, weak
from tacit.transfer.students.student import (
    BATCH,
    Descent,
    Student,
    StudentTask,
    as_tensor,
    cross_entropy,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn


StudentMethod = Literal["plain", "graph", "committee", "consistency", "virtual-adversarial", "gan"]
STUDENT_METHODS: tuple[StudentMethod, ...] = get_args(StudentMethod)
# How long grey images are learned; photographs are learned _LONGER times as long.
_EPOCHS: dict[StudentMethod, int] = {
    "plain": 10, "graph": 1, "committee": 10, "consistency": 12, "virtual-adversarial": 30,
    "gan": 100,
}  # fmt: skip
_LONGER = 4


def train_student(
    images: NDArray[np.uint8] | Tensor,
    labels: NDArray[np.int64] | Tensor,
    *,
    classes: int,
    method: StudentMethod | None = None,
    network: Callable[[], nn.Module] | None = None,
    epochs: int | None = None,
    device: torch.device | str = "cpu",
    seed: int | None = None,
    weights: NDArray[Any] | Tensor | None = None,
    progress: Callable[[int, int], None] | None = None,
    flip: bool = False,
    upright: bool = False,
) -> Student:
    """Trains a student on public images, some of which have a label that may be wrong.

    Args:
        images: the public ones, uint8, shape (images, channels, height, width), labelled or not.
        labels: one an image; -1 where there is none.
        classes: how many there are.
        method: ``"plain"`` learns the labelled images alone. ``"graph"`` spreads labels along a
            graph of similar images and fits a linear model to them, in seconds. ``"committee"``
            has a small network learn its labels on bent images, beside it, in minutes.
            ``"consistency"`` (FixMatch) goes on from there with a network.
            ``"virtual-adversarial"`` and ``"gan"`` (PATE-G's) are as published. By default what
            measured best on images that are not evaluated: ``"committee"`` for grey images,
            ``"consistency"`` for others.
        network: makes the network, with fresh weights and one score a class; by default a short
            residual network.
        epochs: how long to train: an epoch is as many examples as there are images. The graph's
            linear model is solved, and takes no heed of it, nor of ``network``.
        device: where to train.
        seed: makes the run repeatable on the same machine; by default each run is another.
        weights: how much each label counts, compared with the others; by default all the same.
        progress: called after each epoch with how many are done and how many there are.
        flip: whether images may be mirrored: true of photographs, not of digits.
        upright: whether images may be put upright before they are compared: true of writing. It
            is of use to ``"graph"``, and to those that begin with it.

    Guarantee:
        It sees public images and labels that were released, and nothing else: post-processing,
        which costs no privacy. Its randomness hides nothing, so that a ``seed`` is safe.

    >>> import numpy as np
    >>> images = np.zeros((60, 1, 8, 8), dtype=np.uint8)
    >>> images[::2, :, 2:6, 2:6] = 255
    >>> labels = np.full(60, -1)
    >>> labels[:4] = [1, 0, 1, 0]
    >>> student = train_student(images, labels, classes=2, seed=0)
    >>> student.predict(images[:6]).tolist()
    [1, 0, 1, 0, 1, 0]
    """
    width = whole("classes", classes, at_least=2)
    shown = _images(images)
    grey = shown.shape[1] == 1
    chosen = method if method is not None else ("committee" if grey else "consistency")
    if chosen not in STUDENT_METHODS:
        raise InvalidArgument(f"method must be one of {', '.join(STUDENT_METHODS)}, got {method!r}")
    given, place = _labels(labels, len(shown), width), device_named(device)
    usual = _EPOCHS[chosen] * (1 if grey else _LONGER)
    task = StudentTask(
        images=shown.to(place), labels=given.to(place),
        weights=_weights(weights, given).to(place), classes=width,
        epochs=whole("epochs", epochs) if epochs is not None else usual, flip=flip,
        network=network, progress=progress, upright=upright,
    )  # fmt: skip
    with _repeatable(seed, task.device):
        return Student(_TRAIN[chosen](task).eval())


@contextmanager
def _repeatable(seed: int | None, device: torch.device) -> Iterator[None]:
    """Torch's generators, seeded, and put back afterwards; cuDNN kept to what it can repeat."""
    used = [device] if device.type == "cuda" else []
    flags = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True)
    with torch.random.fork_rng(devices=used), flags:
        if seed is None:
            torch.seed()
        else:
            torch.manual_seed(whole("seed", seed, at_least=0))
        yield


def _images(images: NDArray[np.uint8] | Tensor) -> Tensor:
    given = as_tensor(images)
    if given.dtype != torch.uint8 or given.ndim != 4 or len(given) < 2:
        raise InvalidArgument(
            "images must be uint8 of shape (images, channels, height, width) with two images or "
            f"more, got {given.dtype} of shape {tuple(given.shape)}"
        )
    return given


def _labels(labels: NDArray[np.int64] | Tensor, count: int, classes: int) -> Tensor:
    given = as_tensor(labels).cpu()
    if given.is_floating_point() or tuple(given.shape) != (count,):
        raise InvalidArgument(
            f"labels must be whole numbers, one for each of the {count} images, "
            f"got {given.dtype} of shape {tuple(given.shape)}"
        )
    if int(given.min()) < -1 or int(given.max()) >= classes:
        raise InvalidArgument(f"labels must lie between -1 (none) and classes - 1 = {classes - 1}")
    if int(given.max()) < 0:
        raise InvalidArgument("labels must hold a label other than -1, got none")
    return given.long()


def _weights(weights: NDArray[Any] | Tensor | None, labels: Tensor) -> Tensor:
    """As given where there is a label, 0 elsewhere; the mean of the former is 1."""
    known = labels.ge(0)
    given = torch.ones(len(labels)) if weights is None else as_tensor(weights).cpu().float()
    if given.shape != labels.shape or not bool(given.isfinite().all()) or bool((given < 0).any()):
        raise InvalidArgument(
            f"weights must be finite, zero or above, and one for each of the {len(labels)} images, "
            f"got shape {tuple(given.shape)}"
        )
    found = torch.where(known, given, 0.0)
    if float(found.sum()) <= 0:
        raise InvalidArgument("weights must be above zero for at least one label, got none")
    return found * known.sum() / found.sum()


# ---- the methods that need no file of their own


def _plain(task: StudentTask) -> nn.Module:
    """Trains on the labelled points, changed at random, and on no others."""
    model = task.model()
    descent = Descent(model)
    for done, rows in task.batches():
        drawn = task.draw(task.weights, max(len(rows), BATCH))
        scores = model(strong(task.pixels(drawn), flip=task.flip))
        descent.step(cross_entropy(scores, task.labels[drawn]).mean(), done)
    return descent.average


PROBE = 1e-2  # ξ, the length at which the worst direction is looked for, in pixels from 0 to 1
LENGTH = 0.1  # ε: how far an image is moved, for each pixel's root; 2.8 in all for 28×28
ENTROPY = 1.0


def _virtual_adversarial(task: StudentTask) -> nn.Module:
    """Trains so that what the student says changes little even in the worst direction.

    Miyato et al. 2018, "Virtual adversarial training", algorithm 1 with one power iteration, and
    the entropy of what it says of unlabelled points beside it ("VAT+EntMin").
    """
    model = task.model()
    descent = Descent(model)
    for done, rows in task.batches():
        own = task.draw(task.weights, BATCH)
        learned = cross_entropy(
            model(weak(task.pixels(own), flip=task.flip)), task.labels[own]
        ).mean()
        images = weak(task.pixels(rows), flip=task.flip)
        scores = model(images)
        said = scores.detach()
        moved = images + LENGTH * images[0].numel() ** 0.5 * _worst(model, images, said)
        smoothness = _divergence(said, model(moved))
        entropy = -(scores.softmax(1) * scores.log_softmax(1)).sum(1).mean()
        descent.step(learned + smoothness + ENTROPY * entropy, done)
    return descent.average


def _worst(model: nn.Module, images: Tensor, said: Tensor) -> Tensor:
    """The direction, of length 1, in which what the model says changes fastest."""
    probe = _unit(torch.randn_like(images)).requires_grad_()
    change = _divergence(said, model(images + PROBE * probe))
    (gradient,) = torch.autograd.grad(change, [probe])
    return _unit(gradient)


def _unit(directions: Tensor) -> Tensor:
    return functional.normalize(directions.flatten(1), eps=1e-20).view_as(directions)


def _divergence(said: Tensor, says: Tensor) -> Tensor:
    """The mean over the rows of KL(softmax(said) ‖ softmax(says))."""
    return functional.kl_div(
        says.log_softmax(1), said.log_softmax(1), log_target=True, reduction="batchmean"
    )


_TRAIN: dict[StudentMethod, Callable[[StudentTask], nn.Module]] = {
    "plain": _plain,
    "graph": train_graph,
    "committee": train_committee,
    "consistency": train_consistency,
    "virtual-adversarial": _virtual_adversarial,
    "gan": train_gan,
}
