"""What an audit of a run asks about: some of its training records, and as many held-out ones."""

from __future__ import annotations

from dataclasses import dataclass
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


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asked:
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


def asked_of(data: Split, records: int | None, seed: int) -> Asked:
    """As many members as others, chosen at random."""
    trained, held_out = len(data.train), len(data.test)
    most = min(trained, held_out)
    count = min(most, MOST_RECORDS) if records is None else whole("records", records)
    if not 10 <= count <= most:
        raise InvalidArgument(
            f"records must lie between 10 and {most}, for there are {trained} training and "
            f"{held_out} held-out records, got {count}"
        )
    draw = np.random.default_rng([seed, 0])
    members = np.sort(draw.choice(trained, count, replace=False))
    others = np.sort(draw.choice(held_out, count, replace=False))
    return Asked(
        train=_joined(data.train, rows_of(data.test, others)),
        rows=np.concatenate([members, trained + np.arange(count)]),
        members=np.repeat([True, False], count),
    )


def _joined(first: Examples, second: Examples) -> Examples:
    labels = np.concatenate([first.labels, second.labels])
    if isinstance(first.inputs, tuple):
        return Examples((*first.inputs, *second.inputs), labels)
    inputs = np.concatenate([np.asarray(first.inputs), np.asarray(second.inputs)])
    return Examples(inputs, labels)
