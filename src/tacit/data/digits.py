"""The 1,797 digits of 8 × 8 pixels that come with scikit-learn: rows of 64 values and the label.

They are the test part of the UCI set "Optical recognition of handwritten digits". The file is read
from where scikit-learn keeps it, which is much quicker than importing scikit-learn.
"""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from tacit.data.catalogue import Known, Layout, packed
from tacit.data.contents import Contents, unpacked
from tacit.data.examples import Examples, fixed_split
from tacit.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

CLASSES = tuple("0123456789")
DARKEST = 16
TESTED = 0.2  # of all rows, rounded up: 360 of 1,797


def embedded() -> Path | None:
    """The folder in which an installed scikit-learn keeps the file."""
    found = find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0]) / "datasets" / "data"


def read(contents: Iterator[Contents]) -> tuple[Examples, Examples]:
    """Splits the rows by the fixed permutation."""
    packed = next(contents)
    where, data, _ = unpacked(packed)
    try:
        rows = np.loadtxt(io.BytesIO(data), delimiter=",", dtype=np.int64, ndmin=2)
    except ValueError as error:
        raise DataError(f"{where} holds no rows of numbers ({error}); get it again") from None
    if rows.shape[1:] != (65,) or rows.min() < 0 or rows[:, :-1].max() > DARKEST:
        raise DataError(
            f"{where} holds no rows of 64 values from 0 to 16 and a label; get it again"
        )
    if rows[:, -1].max() >= len(CLASSES):
        raise DataError(f"{where} has a label past 9; get it again")
    images = rows[:, :-1].reshape(-1, 1, 8, 8).astype(np.uint8)
    train, test = fixed_split(len(rows), -int(-TESTED * len(rows) // 1))
    return Examples(images[train], rows[train, -1]), Examples(images[test], rows[test, -1])


DIGITS: Final = Known(
    name="digits",
    summary="handwritten digits, 8 × 8, of scikit-learn",
    licence="CC BY 4.0",
    examples=(1_437, 360),
    classes=CLASSES,
    folders=("digits",),
    layouts=(
        Layout(
            files=(
                packed(
                    "digits.csv.gz",
                    "gzip",
                    "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8",
                    "https://raw.githubusercontent.com/scikit-learn/scikit-learn/main/sklearn/"
                    "datasets/data/digits.csv.gz",
                ),
            ),
            read=read,
        ),
    ),
    embedded=embedded,
    remedy="it comes with scikit-learn: pip install 'tacit[sklearn]'",
)
