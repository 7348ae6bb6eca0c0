"""CIFAR-10 in the layouts it is published in: binary batches and Python batches, packed or not.

Formats: https://www.cs.toronto.edu/~kriz/cifar.html. The Python batches are pickles, and a pickle
can run any program as it is read. They are read only once their checksum is found to be the
published one, and even then by a reader that knows arrays, numbers, texts, lists and dicts only.
"""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tacit.data.contents import Contents, members
from tacit.data.description import Examples, File, FileLayout, Known, file, files
from tacit.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

PIXELS = 3 * 32 * 32
CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
BINARY = tuple(f"cifar-10-batches-bin/{batch}.bin" for batch in BATCHES)
PYTHON = tuple(f"cifar-10-batches-py/{batch}" for batch in BATCHES)
# As the shared tool's and torchvision's lists have them; the archives' own are in the catalogue.
BINARY_MD5 = (
    "5dd7e06a14cb22eb9f671a540d1b7c25",
    "5ea93a67294ea407fff1d09f752e9692",
    "942cd6a4bcdd0dd3c604fbe906cb4421",
    "ae636b3ba5c66a11e91e8cb52e771fcb",
    "53f37980c15c3d472c316c40844f3f0d",
    "803d5f7f4d78ea53de84dbe85f74fb6d",
)
PYTHON_MD5 = (
    "c99cafc152244af753f735de768cd75f",
    "d4bba439e000b95fd0a9bffe97cbabec",
    "54ebc095f3ab1f0389bbae665268c751",
    "634d18415352ddfa80567beed471001a",
    "482c414d41f54cd18b22e5b47cb7c3cb",
    "40351d587109b95175f43aff81a1287e",
)

Batch = tuple["NDArray[np.uint8]", "Sequence[int] | NDArray[np.uint8]"]


def read_binary(contents: Iterable[Contents]) -> tuple[Examples, Examples]:
    """Six files of rows of 3,073 bytes: a label, then the red, green and blue planes."""
    return _parts([_binary(one) for one in contents])


def read_python(contents: Iterable[Contents]) -> tuple[Examples, Examples]:
    """Six pickles of a dict with ``data`` (an array of rows of 3,072 bytes) and ``labels``."""
    return _parts([_python(one) for one in contents])


def read_binary_archive(contents: Iterator[Contents]) -> tuple[Examples, Examples]:
    """The binary batches out of their tar.gz."""
    return read_binary(members(next(contents), BINARY))


def read_python_archive(contents: Iterator[Contents]) -> tuple[Examples, Examples]:
    """The Python batches out of their tar.gz."""
    return read_python(members(next(contents), PYTHON))


def _binary(contents: Contents) -> Batch:
    where, data, _ = contents
    if not data or len(data) % (1 + PIXELS):
        raise DataError(f"{where} holds no whole rows of {1 + PIXELS} bytes; get it again")
    rows = np.frombuffer(data, np.uint8).reshape(-1, 1 + PIXELS)
    return _checked(where, rows[:, 1:], rows[:, 0])


def _python(contents: Contents) -> Batch:
    where, data, verified = contents
    if not verified:
        raise DataError(
            f"{where} is a pickle, which can run any program, and not the published one; "
            "it is not read: use the binary layout"
        )
    try:
        batch = _Restricted(io.BytesIO(data), encoding="bytes").load()
        return _checked(where, batch[b"data"], batch[b"labels"])
    except DataError:
        raise
    except Exception as error:  # a pickle that is none can fail in any way
        raise DataError(f"{where} is no batch of CIFAR-10 ({error}); get it again") from None


def _checked(where: str, pixels: Any, labels: Any) -> Batch:
    sound = (
        isinstance(pixels, np.ndarray)
        and pixels.dtype == np.uint8
        and pixels.shape == (len(labels), PIXELS)
        and all(0 <= label < len(CLASSES) for label in np.unique(labels))
    )
    if not sound:
        raise DataError(
            f"{where} is no batch of CIFAR-10: rows or labels are missing; get it again"
        )
    return pixels, labels


def _parts(batches: list[Batch]) -> tuple[Examples, Examples]:
    return _joined(batches[:-1]), _joined(batches[-1:])


def _joined(batches: list[Batch]) -> Examples:
    pixels = np.concatenate([batch[0] for batch in batches])
    labels = np.concatenate([np.asarray(batch[1], np.int64) for batch in batches])
    return Examples(pixels.reshape(-1, 3, 32, 32), labels)


class _Restricted(pickle.Unpickler):
    """Reads plain values and NumPy arrays; any other name is refused, and not imported."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if (module.replace("_core", "core"), name) == ("numpy.core.multiarray", "_reconstruct"):
            return _empty_array
        if (module, name) == ("numpy", "dtype"):
            return _plain_dtype
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes by protocol 2
            return _latin
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def _empty_array(kind: object, shape: object, code: object) -> NDArray[np.uint8]:
    """What NumPy's own ``_reconstruct`` gives for an array: one to be filled with its state."""
    if kind is not np.ndarray:
        raise pickle.UnpicklingError(f"an array of kind {kind!r:.50}")
    del shape, code
    return np.ndarray.__new__(np.ndarray, (0,), np.uint8)


def _plain_dtype(code: object, *_: object) -> np.dtype[Any]:
    """Numbers only: an array of objects could hold anything."""
    found = np.dtype(str(code.decode() if isinstance(code, bytes) else code), copy=True)
    if found.kind not in "biuf":
        raise pickle.UnpicklingError(f"an array of {found}")
    return found


def _latin(text: str, encoding: object) -> bytes:
    del encoding
    return text.encode("latin-1")


TORONTO: Final = "https://www.cs.toronto.edu/~kriz/"


def _batches(suffix: str, size: int | None, checksums: tuple[str, ...]) -> tuple[File, ...]:
    pairs = zip(BATCHES, checksums, strict=True)
    return tuple(file(f"{batch}{suffix}", size, checksum) for batch, checksum in pairs)


# The binary layout is the one to download: the other one is made of pickles.
CIFAR10: Final = Known(
    name="cifar10",
    summary="photographs of ten kinds, 32 × 32, colour",
    licence="none stated",
    examples=(50_000, 10_000),
    classes=CLASSES,
    folders=(
        *("cifar10", "cifar10/cifar-10-batches-bin", "cifar10/cifar-10-batches-py"),
        *("cifar-10-batches-bin", "cifar-10-batches-py"),
    ),
    layouts=(
        FileLayout(
            files=files(
                "cifar-10-binary.tar.gz 170052171 c32a1d4ab5d03f1284b67883e8d87530", TORONTO
            ),
            read=read_binary_archive,
        ),
        FileLayout(
            files=_batches(".bin", 30_730_000, BINARY_MD5),
            read=read_binary,
        ),
        FileLayout(
            files=files(
                "cifar-10-python.tar.gz 170498071 c58f30108f718f92721af3b95e74349a", TORONTO
            ),
            read=read_python_archive,
        ),
        FileLayout(files=_batches("", None, PYTHON_MD5), read=read_python),
    ),
)
