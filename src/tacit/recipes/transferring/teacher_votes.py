"""The votes of teachers on public images, and what answering by them cost.

Votes come from an ensemble that is trained here, or from a file. They are secret: what leaves is
what an aggregator answers and, if wanted, the data-dependent cost of that, once and with noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from torch import nn

from tacit._files import OWNER_ONLY, array_bytes, put
from tacit.errors import BudgetExceeded, CheckpointError, DataError
from tacit.mechanisms import Released
from tacit.recipes.transferring import features
from tacit.recipes.transferring.student import announce
from tacit.statement import DataDependent
from tacit.transfer import ConfidentGNMax, GNMax, Votes
from tacit.transfer.data_dependent_claim import FAILURE_SHARE, sanitised_cost
from tacit.transfer.teachers import Teachers, views

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from tacit.ledger import Budget
    from tacit.recipes.transferring.pate import Settings
    from tacit.runs import Job
    from tacit.transfer import Answers

COST: Final = "cost"
WHAT: Final = (
    "The data-dependent cost of the answers (Papernot et al. 2018, with the bound of "
    "tacit.transfer.rdp_cost) was released once with Gaussian noise by its smooth bound; order, "
    "smoothness and noise were fixed before, and this release is charged in the claim"
)
UNRELEASED: Final = (
    "the data-dependent figure was not released: the budget has no room for it, it was charged and "
    "lost in a crash, or the votes that were asked first are gone"
)


def kept(job: Job, make: Callable[[], Votes], *, begun: bool) -> tuple[Votes, bool]:
    """The votes that ``make`` gives or the run kept; and whether every answer comes from them.

    They lie with what is private until the run ends. Made again, they are not to the bit what they
    were, and from other teachers if these are gone. So once answering has ``begun`` they are kept
    no more: a run that continues from there must not take them for those that were asked first.

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
        put(place, array_bytes(votes.counts), mode=OWNER_ONLY)
    except OSError as error:
        raise CheckpointError(f"{place} cannot be written: {error.strerror or error}") from None


def votes_of(job: Job, images: NDArray[np.uint8]) -> Votes:
    """The votes on ``images``. Private, as the teachers are."""
    chosen: Settings = job.settings
    if chosen.votes is not None:
        return loaded(chosen, len(job.data.classes), len(images))
    make, many = inputs_of(job, images), chosen.views
    records, classes = np.asarray(job.data.train.inputs), len(job.data.classes)
    announce(job.progress, "features of the private images")
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


# ---- votes made elsewhere


def check_votes(chosen: Settings, classes: int, public: int) -> int:
    """On how many of the ``public`` images the file has votes; refuses too many or too few."""
    found = _on_file(chosen, classes, chosen.queries).queries
    if found > public:
        raise DataError(
            f"{chosen.votes} holds votes on {found} images, and {public} are public; see whether "
            "it holds counts (a row for each image) or labels (a row for each teacher)"
        )
    return found


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


# ---- the data-dependent cost


def data_dependent_cost(job: Job, votes: Votes, answers: Answers) -> DataDependent | None:
    """The figure, released as all else is; None if it is not wanted, or cannot be released.

    It cannot be where the budget has no room for it, or where it was charged and lost in a crash.
    The labels are there by then, and all that is claimed of them holds without it.
    """
    chosen: Settings = job.settings
    aggregator = answers.aggregator
    if not chosen.data_dependent or not isinstance(aggregator, ConfidentGNMax | GNMax):
        return None
    failure = FAILURE_SHARE * job.delta

    def release(budget: Budget | None) -> Released[Any]:
        found = sanitised_cost(
            votes, aggregator, answers, order=chosen.order, smoothness=chosen.smoothness,
            noise_multiplier=chosen.cost_noise, budget=budget, label=job.label,
        )  # fmt: skip
        figure = {
            "epsilon": found.epsilon(job.delta),
            "divergence": found.claim(failure).values[0],
        }
        return Released(figure, found.event, found.adjacency, found.unit, found.entry)

    try:
        figure = job.release(COST, release, what="the noisy data-dependent cost of the answers")
    except BudgetExceeded:
        return None
    return DataDependent(**figure, delta=job.delta, order=chosen.order, failure=failure, what=WHAT)
