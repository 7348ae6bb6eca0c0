"""Three parts of a data set: private records, public images without labels, and an evaluation.

As published, the public images are the first of the test set, and the last of it are what a student
is judged by. What makes that a fair picture is an assumption: that images like the private ones are
public. Labels of public images are dropped here, so that nothing later can look at them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from tacit.data import Examples, Split
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import NDArray

# How many of the test images are public; the others are the evaluation.
PUBLIC: Final = {"mnist": 9_000, "fashion": 9_000, "cifar10": 9_000, "svhn": 10_000}
DATASETS: Final = ("digits", *PUBLIC)
DIGITS: Final = (1_000, 500)  # private and public ones, of all; the rest is the evaluation


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Parts:
    """What a transfer works on.

    Args:
        data: ``data.train`` is private, ``data.test`` is the evaluation.
        public: Images that everyone may see, uint8 of shape (images, channels, height, width).
    """

    data: Split
    public: NDArray[np.uint8]

    def __post_init__(self) -> None:
        if self.public.dtype != np.uint8 or self.public.ndim != 4 or not len(self.public):
            raise InvalidArgument(
                "public must be uint8 of shape (images, channels, height, width) with one image "
                f"or more, got {self.public.dtype} of shape {self.public.shape}"
            )


def parts_of(whole: Split) -> Parts:
    """The three parts of a data set, always the same.

    >>> from tacit.data import load
    >>> parts = parts_of(load("digits"))
    >>> len(parts.data.train), len(parts.public), len(parts.data.test)
    (1000, 500, 297)
    """
    if whole.name == "digits":
        return _of_digits(whole)
    if whole.name not in PUBLIC:
        raise InvalidArgument(f"dataset must be one of {', '.join(DATASETS)}, got {whole.name!r}")
    images, labels = np.asarray(whole.test.inputs), whole.test.labels
    first = PUBLIC[whole.name]
    return _parts(whole, whole.train, images[:first], Examples(images[first:], labels[first:]))


def _of_digits(whole: Split) -> Parts:
    """Digits have few test images: all are put together and cut again."""
    images = np.concatenate([np.asarray(whole.train.inputs), np.asarray(whole.test.inputs)])
    labels = np.concatenate([whole.train.labels, whole.test.labels])
    private, public = DIGITS
    rest = private + public
    return _parts(
        whole,
        Examples(images[:private], labels[:private]),
        images[private:rest],
        Examples(images[rest:], labels[rest:]),
    )


def tuning_parts(whole: Split) -> Parts:
    """Three parts of the training set alone, to choose settings by: no test image is in them.

    The last sixtieth is the evaluation, and the three twentieths before it are public: 1,000 and
    9,000 of 60,000.
    """
    images, labels = np.asarray(whole.train.inputs), whole.train.labels
    judged = len(images) - len(images) // 60
    public = judged - (3 * len(images)) // 20
    return _parts(
        whole,
        Examples(images[:public], labels[:public]),
        images[public:judged],
        Examples(images[judged:], labels[judged:]),
    )


def _parts(whole: Split, private: Examples, public: NDArray[np.uint8], judged: Examples) -> Parts:
    return Parts(
        data=Split(whole.name, private, judged, whole.classes, whole.files),
        public=np.ascontiguousarray(public),
    )
