"""Which records an audit asks about: a run's, or a recipe's by coins; in one or several views."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

import numpy as np

from tacit._validation import whole
from tacit.data import Examples
from tacit.errors import InvalidArgument
from tacit.recipes.auditing.trial import rows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.data import Split


MOST_RECORDS: Final = 10_000

# ---- of a run


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AuditedRecords:
    """What is asked about: some training records, then as many held-out ones.

    ``train`` has the training records with the asked held-out ones behind them, and ``rows`` are
    the places of all that is asked about in it.
    """

    train: Examples
    rows: NDArray[np.int64]
    members: NDArray[np.bool_]

    @property
    def questions(self) -> Examples:
        """The examples themselves."""
        return rows_of(self.train, self.rows)


def audited_records(data: Split, records: int | None, seed: int) -> AuditedRecords:
    """As many members as others, chosen at random."""
    trained = len(data.train)
    members, others = chosen_rows(trained, len(data.test), records, seed)
    return AuditedRecords(
        train=_joined(data.train, rows_of(data.test, others)),
        rows=np.concatenate([members, trained + np.arange(len(others))]),
        members=np.repeat([True, False], len(others)),
    )


def chosen_rows(
    trained: int, held_out: int, records: int | None, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """As many training rows as held-out ones, chosen at random; both in order."""
    most = min(trained, held_out)
    count = min(most, MOST_RECORDS) if records is None else whole("records", records)
    if not 10 <= count <= most:
        raise InvalidArgument(
            f"records must lie between 10 and {most}, for there are {trained} training and "
            f"{held_out} held-out records, got {count}"
        )
    draw = np.random.default_rng([seed, 0])
    members = np.sort(draw.choice(trained, count, replace=False))
    return members, np.sort(draw.choice(held_out, count, replace=False))


def _joined(first: Examples, second: Examples) -> Examples:
    labels = np.concatenate([first.labels, second.labels])
    if isinstance(first.inputs, tuple):
        return Examples((*first.inputs, *second.inputs), labels)
    inputs = np.concatenate([np.asarray(first.inputs), np.asarray(second.inputs)])
    return Examples(inputs, labels)


# ---- of a recipe


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Canaries:
    """The audited rows of the training data, their coins, and all of the data with them in it."""

    rows: NDArray[np.int64]
    coins: NDArray[np.bool_]
    train: Examples


def canary_count(canaries: int | None, records: int, one_run: bool) -> int:
    """How many records of a recipe are audited."""
    if canaries is None:
        return min(records // 2, 1_000 if one_run else MOST_RECORDS)
    count = whole("canaries", canaries)
    if not 10 <= count <= records:
        raise InvalidArgument(
            f"canaries must lie between 10 and the {records} training records, got {count}"
        )
    return count


def drawn_canaries(data: Split, count: int, seed: int, *, wrong: bool) -> Canaries:
    """Which records are audited, what becomes of them, and their coins."""
    draw = np.random.default_rng([seed, 1])
    rows = np.sort(draw.choice(len(data.train), count, replace=False))
    coins = draw.random(count) < 0.5
    if not wrong:
        return Canaries(rows=rows, coins=coins, train=data.train)
    classes = len(data.classes)
    labels = data.train.labels.copy()
    labels[rows] = (labels[rows] + draw.integers(1, classes, size=count)) % classes
    return Canaries(rows=rows, coins=coins, train=replace(data.train, labels=labels))


# ---- views

# Down and right, in pixels; view 0 is the image as it is.
_MOVES: Final = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))


def with_views(examples: Examples, views: int) -> Examples:
    """Every image as it is and moved by a pixel, all views of an image one after the other.

    >>> from tacit.data import load
    >>> len(with_views(load("digits").test, 5))
    1800
    """
    count = whole("views", views)
    if count == 1:
        return examples
    if count > len(_MOVES):
        raise InvalidArgument(f"views must be at most {len(_MOVES)}, got {count}")
    images = np.asarray(examples.inputs)
    if images.ndim != 4:
        raise InvalidArgument(f"views = {count} needs images, got inputs of {images.ndim} axes")
    moved = np.stack([_moved(images, *_MOVES[view]) for view in range(count)], axis=1)
    return replace(
        examples,
        inputs=moved.reshape(-1, *images.shape[1:]),
        labels=np.repeat(examples.labels, count),
    )


def _moved(images: NDArray[np.generic], down: int, right: int) -> NDArray[np.generic]:
    """Images moved by a pixel, continued by their own edges."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge")
    height, width = images.shape[2:]
    return padded[:, :, 1 - down : 1 - down + height, 1 - right : 1 - right + width]
