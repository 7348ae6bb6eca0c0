"""The votes of teachers on public images: from an ensemble that is trained here, or from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from tacit._files import PRIVATE, array_bytes, put
from tacit.errors import CheckpointError, DataError
from tacit.recipes.transferring import display, features
from tacit.transfer import Votes
from tacit.transfer.teachers import Teachers, views

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from tacit.recipes.transferring.pate_settings import Settings
    from tacit.runs import Job


def kept(job: Job, make: Callable[[], Votes], *, begun: bool) -> tuple[Votes, bool]:
    """The votes that ``make`` gives or the run kept; and whether every answer comes from them.

    They lie with what is private until the run ends. Made anew, they are not to the bit what they
    were, and from other teachers if these are gone. So once answering has ``begun`` they are kept
    no more: whoever goes on from there must not take them for those that were asked first.

    Guarantee:
        Where the second is true, no answer of the run comes from other votes.
    """
    place = job.private("votes")
    if place is not None and place.exists():
        return Votes.load(place, holds="counts"), True
    votes = make()
    if place is not None and not begun:
        _write(place, votes)
    return votes, not begun


def _write(place: Path, votes: Votes) -> None:
    try:
        put(place, array_bytes(votes.counts), mode=PRIVATE)
    except OSError as error:
        raise CheckpointError(f"{place} cannot be written: {error.strerror or error}") from None


def votes_of(job: Job, images: NDArray[np.uint8]) -> Votes:
    """The votes on ``images``. Private, as the teachers are."""
    chosen: Settings = job.settings
    if chosen.votes is not None:
        return loaded(chosen, len(job.data.classes), len(images))
    make, many = inputs_of(job, images), chosen.views
    records, classes = np.asarray(job.data.train.inputs), len(job.data.classes)
    display.doing(job.progress, "features of the private images")
    shown = records if many == 1 else views(records, many).flatten(0, 1).numpy()
    inputs = make(shown)
    teachers = Teachers(
        lambda: network(chosen.teacher, inputs.shape[1:], classes),
        (inputs, np.repeat(job.data.train.labels, many)),
        chosen.teachers,
        classes=classes,
        groups=None if many == 1 else np.repeat(np.arange(len(records)), many),
        epochs=chosen.epochs,
        batch_size=chosen.batch,
        lr=chosen.lr,
        weight_decay=chosen.decay,
        device=str(job.device),
        folder=job.private("teachers"),
        progress=job.progress,
        seed=job.seed,
    )
    return teachers.fit().votes(make(images))


def check_votes(chosen: Settings, classes: int, public: int) -> None:
    """Refuses votes made elsewhere on more or fewer images than there are to ask about."""
    found = _on_file(chosen, classes, chosen.queries).queries
    if found > public:
        raise DataError(
            f"{chosen.votes} holds votes on {found} images, and {public} are public; see whether "
            "it holds counts (a row for each image) or labels (a row for each teacher)"
        )


def loaded(chosen: Settings, classes: int, queries: int) -> Votes:
    """Votes made elsewhere, on the first public images."""
    return Votes(_on_file(chosen, classes, queries).counts[:queries])


def _on_file(chosen: Settings, classes: int, queries: int) -> Votes:
    """All votes of the file, which must be on as many images as are asked about."""
    assert chosen.votes is not None
    votes = Votes.load(chosen.votes, holds=chosen.holds, classes=classes)
    if votes.queries < queries:
        raise DataError(
            f"{chosen.votes} holds votes on {votes.queries} images, and {queries} are to be asked "
            f"about; ask about fewer (--queries {votes.queries})"
        )
    return votes


def inputs_of(job: Job, like: NDArray[np.uint8]) -> features.Maker:
    """What makes a teacher's inputs of images."""
    chosen: Settings = job.settings
    if chosen.teacher == "cnn":
        return lambda images: (images / np.float32(255.0)).astype(np.float32)
    return features.maker(chosen.features, like, job.device, keep=chosen.keep)


def network(kind: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    """A teacher with fresh weights: a linear model of rows, or a small CNN of images."""
    if kind == "linear":
        head = nn.Linear(shape[0], classes)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        return head
    channels, size = shape[:2]
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (size // 4) ** 2, 128), nn.ReLU(),
        nn.Linear(128, classes),
    )  # fmt: skip
