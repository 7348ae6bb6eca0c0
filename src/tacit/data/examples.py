"""What every set is given out as: examples to learn from, examples to test on, and their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


@final
@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Inputs with their labels, row by row.

    Args:
        inputs: Images as uint8 of shape (N, channels, height, width), rows of numbers, or texts.
        labels: A whole number an example (for text to be continued: one a byte).

    >>> len(Examples(("good", "bad"), np.array([1, 0])))
    2
    """

    inputs: NDArray[Any] | tuple[str, ...]
    labels: NDArray[np.int64]

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise InvalidArgument(
                f"inputs and labels must be equally many, "
                f"got {len(self.inputs)} and {len(self.labels)}"
            )

    def __len__(self) -> int:
        return len(self.labels)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A set in two parts, which are fixed and public.

    Args:
        name: The set's name.
        train: What to learn from: the private data.
        test: What to test on.
        classes: What the labels 0, 1, … stand for.
        files: The files that were read, each with the checksum that was found, as
            ``sha256:…`` or ``md5:…``; ``unverified sha256:…`` where it was compared to none.
    """

    name: str
    train: Examples
    test: Examples
    classes: tuple[str, ...]
    files: Mapping[str, str]


def fixed_split(count: int, tested: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows to learn from and the rows to test on, where the publisher made no such choice.

    A fixed permutation decides, never the data. NumPy has promised that ``RandomState`` draws the
    same numbers for good, which it does not promise of its newer generators.

    >>> [len(part) for part in fixed_split(1797, 360)]
    [1437, 360]
    """
    order = np.random.RandomState(0).permutation(count).astype(np.int64)
    return np.sort(order[tested:]), np.sort(order[:tested])
