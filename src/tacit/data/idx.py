"""MNIST and Fashion-MNIST: the IDX format of images and labels, packed by gzip or not.

Format: http://yann.lecun.com/exdb/mnist/ (two zero bytes, the type, the number of dimensions, each
dimension as a big-endian 32-bit number, then the values).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from tacit.data.catalogue import Known, Layout, files
from tacit.data.contents import Contents, unpacked
from tacit.data.examples import Examples
from tacit.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

UNSIGNED_BYTES = 0x08
CLASSES = 10


def read(contents: Iterator[Contents]) -> tuple[Examples, Examples]:
    """Training images, training labels, test images and test labels, in this order."""
    return (
        _examples(next(contents), next(contents)),
        _examples(next(contents), next(contents)),
    )


def _examples(images: Contents, labels: Contents) -> Examples:
    pixels, digits = array(images, 3), array(labels, 1)
    if len(pixels) != len(digits):
        raise DataError(
            f"{images.where} has {len(pixels):,} images and {labels.where} {len(digits):,} labels; "
            "get both again"
        )
    if digits.size and digits.max() >= CLASSES:
        raise DataError(f"{labels.where} has a label {digits.max()}, past {CLASSES - 1}")
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


DIGITS: Final = tuple("0123456789")
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
    classes=DIGITS,
    folders=("mnist", "MNIST/raw"),
    layouts=(
        Layout(
            files=files(
                """
train-images-idx3-ubyte.gz 9912422 f68b3c2dcbeaaa9fbdd348bbdeb94873
train-labels-idx1-ubyte.gz 28881 d53e105ee54ea40749a09fcbcd1e9432
t10k-images-idx3-ubyte.gz 1648877 9fb629c4189551a2d022fa330f9573f3
t10k-labels-idx1-ubyte.gz 4542 ec29112dd5afa0611ce80d1b7f02629c
""",
                *MNIST_PLACES,
            ),
            read=read,
        ),
        Layout(
            files=files(
                """
train-images-idx3-ubyte 47040016 ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
train-labels-idx1-ubyte 60008 65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
t10k-images-idx3-ubyte 7840016 0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
t10k-labels-idx1-ubyte 10008 ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2
"""
            ),
            read=read,
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
        Layout(
            files=files(
                """
train-images-idx3-ubyte.gz 26421880 8d4fb7e6c68d591d4c3dfef9ec88bf0d
train-labels-idx1-ubyte.gz 29515 25c81989df183df01b3e8a0aad5dffbe
t10k-images-idx3-ubyte.gz 4422102 bef4ecab320f06d8554ea6380940ec79
t10k-labels-idx1-ubyte.gz 5148 bb300cfdad3c16e7a12a480ee83cd310
""",
                *FASHION_PLACES,
            ),
            read=read,
        ),
        Layout(
            files=files(
                """
train-images-idx3-ubyte 47040016 c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888
train-labels-idx1-ubyte 60008 bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9
t10k-images-idx3-ubyte 7840016 5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b
t10k-labels-idx1-ubyte 10008 0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34
"""
            ),
            read=read,
        ),
    ),
)
