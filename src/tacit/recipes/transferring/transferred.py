"""What a transfer gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tacit.runs.results import Trained
    from tacit.statement import Statement
    from tacit.transfer.students import Student

ANSWERS = "answers.csv"


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transferred:
    """A student, how well it does, the labels that it learned from, and what may be claimed.

    Args:
        student: The student; it saw public images and released labels only.
        labels: The released label of each public image; -1 where there is none.
        settings: What it was made with.
        trained: The same as other recipes give it back: model, accuracy, statement and notes.
    """

    student: Student
    labels: NDArray[np.int64]
    settings: Mapping[str, Any]
    trained: Trained

    @property
    def accuracy(self) -> float:
        """The share of evaluated images that the student gets right."""
        assert self.trained.accuracy is not None  # there is always an evaluation
        return self.trained.accuracy

    @property
    def statement(self) -> Statement:
        """The claim."""
        return self.trained.statement

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know beside the statement."""
        return self.trained.notes

    @property
    def labelled(self) -> int:
        """How many public images have a label."""
        return int((self.labels >= 0).sum())


def answers_bytes(labels: NDArray[np.int64]) -> bytes:
    """The released labels as text: which public image, and its label.

    >>> answers_bytes(np.array([-1, 7, -1, 0])).decode().split()
    ['query,label', '1,7', '3,0']
    """
    lines = [f"{place},{labels[place]}\n" for place in np.flatnonzero(labels >= 0)]
    return "".join(["query,label\n", *lines]).encode()
