"""Sets of images: MNIST and Fashion-MNIST in the IDX format, SVHN, and scikit-learn's digits.

Format: http://yann.lecun.com/exdb/mnist/ (two zero bytes, the type, the number of dimensions, each
dimension as a big-endian 32-bit number, then the values).
"""

from __future__ import annotations

import io
import struct
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tacit.data.contents import Contents, unpacked
from tacit.data.description import Examples, FileLayout, Known, files, fixed_split, packed
from tacit.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


UNSIGNED_BYTES = 0x08
_CLASSES = 10
_DIGITS: Final = tuple("0123456789")


def read_idx(contents: Iterator[Contents]) -> tuple[Examples, Examples]:
    """Training images, training labels, test images and test labels, in this order."""
    return (
        _idx_examples(next(contents), next(contents)),
        _idx_examples(next(contents), next(contents)),
    )


def _idx_examples(images: Contents, labels: Contents) -> Examples:
    pixels, digits = array(images, 3), array(labels, 1)
    if len(pixels) != len(digits):
        raise DataError(
            f"{images.where} has {len(pixels):,} images and {labels.where} {len(digits):,} labels; "
            "get both again"
        )
    if digits.size and digits.max() >= _CLASSES:
        raise DataError(f"{labels.where} has a label {digits.max()}, past {_CLASSES - 1}")
    return Examples(pixels[:, None], digits.astype(np.int64))


def array(contents: Contents, dimensions: int) -> NDArray[np.uint8]:
    """The array that an IDX file of bytes holds; it is the caller's own to change."""
    where, data, _ = unpacked(contents)
    start = 4 + 4 * dimensions
    if data[:4] != bytes((0, 0, UNSIGNED_BYTES, dimensions)) or len(data) < start:
        raise DataError(f"{where} is no IDX file of {dimensions} dimensions; get it again")
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    if len(data) - start != int(np.prod(shape, dtype=object)):
        raise DataError(
            f"{where} says that it holds {' × '.join(map(str, shape))} bytes, but has "
            f"{len(data) - start:,}; get it again"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape).copy()


CLOTHES: Final = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
MNIST_PLACES: Final = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
FASHION_PLACES: Final = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
)
# The MD5 are the published ones; the SHA-256 are of what those files unpack to.
MNIST: Final = Known(
    name="mnist",
    summary="handwritten digits, 28 × 28, grey",
    licence="none stated",
    examples=(60_000, 10_000),
    classes=_DIGITS,
    folders=("mnist", "MNIST/raw"),
    layouts=(
        FileLayout(
            files=files(
                """
train-images-idx3-ubyte.gz 9912422 f68b3c2dcbeaaa9fbdd348bbdeb94873
train-labels-idx1-ubyte.gz 28881 d53e105ee54ea40749a09fcbcd1e9432
t10k-images-idx3-ubyte.gz 1648877 9fb629c4189551a2d022fa330f9573f3
t10k-labels-idx1-ubyte.gz 4542 ec29112dd5afa0611ce80d1b7f02629c
""",
                *MNIST_PLACES,
            ),
            read=read_idx,
        ),
        FileLayout(
            files=files(
                """
train-images-idx3-ubyte 47040016 ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
train-labels-idx1-ubyte 60008 65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
t10k-images-idx3-ubyte 7840016 0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
t10k-labels-idx1-ubyte 10008 ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2
"""
            ),
            read=read_idx,
        ),
    ),
)

FASHION: Final = Known(
    name="fashion",
    summary="Fashion-MNIST, clothes, 28 × 28, grey",
    licence="MIT",
    examples=(60_000, 10_000),
    classes=CLOTHES,
    folders=("fashion_mnist", "fashion", "FashionMNIST/raw"),
    layouts=(
        FileLayout(
            files=files(
                """
train-images-idx3-ubyte.gz 26421880 8d4fb7e6c68d591d4c3dfef9ec88bf0d
train-labels-idx1-ubyte.gz 29515 25c81989df183df01b3e8a0aad5dffbe
t10k-images-idx3-ubyte.gz 4422102 bef4ecab320f06d8554ea6380940ec79
t10k-labels-idx1-ubyte.gz 5148 bb300cfdad3c16e7a12a480ee83cd310
""",
                *FASHION_PLACES,
            ),
            read=read_idx,
        ),
        FileLayout(
            files=files(
                """
train-images-idx3-ubyte 47040016 c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888
train-labels-idx1-ubyte 60008 bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9
t10k-images-idx3-ubyte 7840016 5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b
t10k-labels-idx1-ubyte 10008 0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34
"""
            ),
            read=read_idx,
        ),
    ),
)


# ---- SVHN, street view house numbers
#
# Format: http://ufldl.stanford.edu/housenumbers/ (``X`` of 32 × 32 × 3 × N bytes, ``y`` of N
# labels).


ZERO = 10


def read_svhn(contents: Iterator[Contents]) -> tuple[Examples, Examples]:
    """The training file, then the test file."""
    return _svhn_examples(next(contents)), _svhn_examples(next(contents))


def _svhn_examples(contents: Contents) -> Examples:
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
    classes=_DIGITS,
    folders=("svhn", "SVHN"),
    layouts=(
        FileLayout(
            files=files(
                """
train_32x32.mat 182040794 e26dedcc434d2e4c54c9b2d4a06d8373
test_32x32.mat 64275384 eb5a983be6a315427106f1b164d9cef3
""",
                "http://ufldl.stanford.edu/housenumbers/",
            ),
            read=read_svhn,
        ),
    ),
)


# ---- the 1,797 digits of 8 × 8 pixels that come with scikit-learn
#
# They are the test part of the UCI set "Optical recognition of handwritten digits". The file is
# read from where scikit-learn keeps it, which is much quicker than importing scikit-learn.


DARKEST = 16
TESTED = 0.2  # of all rows, rounded up: 360 of 1,797


def embedded_digits() -> Path | None:
    """The folder in which an installed scikit-learn keeps the file."""
    found = find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0]) / "datasets" / "data"


def read_digits(contents: Iterator[Contents]) -> tuple[Examples, Examples]:
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
    if rows[:, -1].max() >= len(_DIGITS):
        raise DataError(f"{where} has a label past 9; get it again")
    images = rows[:, :-1].reshape(-1, 1, 8, 8).astype(np.uint8)
    train, test = fixed_split(len(rows), -int(-TESTED * len(rows) // 1))
    return Examples(images[train], rows[train, -1]), Examples(images[test], rows[test, -1])


DIGITS: Final = Known(
    name="digits",
    summary="handwritten digits, 8 × 8, of scikit-learn",
    licence="CC BY 4.0",
    examples=(1_437, 360),
    classes=_DIGITS,
    folders=("digits",),
    layouts=(
        FileLayout(
            files=(
                packed(
                    "digits.csv.gz",
                    "gzip",
                    "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8",
                    "https://raw.githubusercontent.com/scikit-learn/scikit-learn/main/sklearn/"
                    "datasets/data/digits.csv.gz",
                ),
            ),
            read=read_digits,
        ),
    ),
    embedded=embedded_digits,
    remedy="it comes with scikit-learn: pip install 'tacit[sklearn]'",
)
