"""SVHN, street view house numbers: cropped digits in MATLAB files, where the digit 0 has label 10.

Format: http://ufldl.stanford.edu/housenumbers/ (``X`` of 32 × 32 × 3 × N bytes, ``y`` of N labels).
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tacit.data.catalogue import Known, Layout, files
from tacit.data.examples import Examples
from tacit.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tacit.data.contents import Contents

CLASSES = tuple("0123456789")
ZERO = 10


def read(contents: Iterator[Contents]) -> tuple[Examples, Examples]:
    """The training file, then the test file."""
    return _examples(next(contents)), _examples(next(contents))


def _examples(contents: Contents) -> Examples:
    pixels, labels = _variables(contents)
    if pixels.dtype != np.uint8 or pixels.shape != (32, 32, 3, labels.size):
        raise DataError(
            f"{contents.where} holds X of shape {pixels.shape} and {labels.size:,} labels, not "
            "images of 32 × 32 × 3 bytes; get it again"
        )
    if labels.size and not (labels.min() >= 1 and labels.max() <= ZERO):
        raise DataError(f"{contents.where} has labels outside 1, …, 10; get it again")
    images = np.ascontiguousarray(pixels.transpose(3, 2, 0, 1))
    return Examples(images, labels.astype(np.int64) % ZERO)


def _variables(contents: Contents) -> tuple[Any, Any]:
    from scipy.io import loadmat  # noqa: PLC0415  # slow to import

    try:
        found = loadmat(io.BytesIO(contents.data), variable_names=["X", "y"])
        return found["X"], found["y"].reshape(-1)
    except Exception as error:  # a MATLAB file that is none can fail in any way
        reason = " ".join(str(error).split())[:100]
        raise DataError(
            f"{contents.where} is no MATLAB file with X and y ({reason}); get it again"
        ) from None


# The MD5 are those that torchvision checks.
SVHN: Final = Known(
    name="svhn",
    summary="house numbers digit by digit, 32 × 32, colour",
    licence="research only",
    examples=(73_257, 26_032),
    classes=CLASSES,
    folders=("svhn", "SVHN"),
    layouts=(
        Layout(
            files=files(
                """
train_32x32.mat 182040794 e26dedcc434d2e4c54c9b2d4a06d8373
test_32x32.mat 64275384 eb5a983be6a315427106f1b164d9cef3
""",
                "http://ufldl.stanford.edu/housenumbers/",
            ),
            read=read,
        ),
    ),
)
