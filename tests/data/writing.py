"""Writes small sets in the published formats, by other code than that which reads them."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import tarfile
from typing import TYPE_CHECKING

import numpy as np

from tacit.data.description import File, FileLayout, Known

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.data.description import Reader

MNIST_NAMES = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
ADULT_LINE = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, "
    "2174, 0, 40, United-States, <=50K"
)


def idx(array: np.ndarray) -> bytes:
    sizes = b"".join(int(size).to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def images(count: int, *, seed: int, shape: tuple[int, ...] = (28, 28)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def labels(count: int, *, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 10, count, dtype=np.uint8)


def write_mnist(folder: Path, *, seed: int = 0, packed: bool = True) -> list[np.ndarray]:
    """Seven images to learn from and three to test on; gives what was written."""
    arrays = [
        images(7, seed=seed),
        labels(7, seed=seed + 1),
        images(3, seed=seed + 2),
        labels(3, seed=seed + 3),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(MNIST_NAMES, arrays, strict=True):
        data = idx(array)
        if packed:
            (folder / f"{name}-ubyte.gz").write_bytes(gzip.compress(data))
        else:
            (folder / f"{name}-ubyte").write_bytes(data)
    return arrays


def cifar_rows(count: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    return images(count, seed=seed, shape=(3072,)), labels(count, seed=seed + 100)


def cifar_binary(pixels: np.ndarray, kinds: np.ndarray) -> bytes:
    rows = zip(kinds, pixels, strict=True)
    return b"".join(bytes([kind]) + row.tobytes() for kind, row in rows)


def cifar_pickle(pixels: np.ndarray, kinds: np.ndarray) -> bytes:
    """As Python 2 wrote them: by protocol 2, with bytes for names."""
    batch = {
        b"batch_label": b"training batch 1 of 5",
        b"labels": [int(kind) for kind in kinds],
        b"data": pixels,
        b"filenames": [b"a.png"] * len(kinds),
    }
    return pickle.dumps(batch, protocol=2)


def cifar_pickle_of_python_2(pixels: np.ndarray, kinds: np.ndarray) -> bytes:
    """The opcodes of the published files, whose strings are neither texts nor bytes of Python 3."""

    def string(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    kind = b"cnumpy\ndtype\n" + string(b"u1") + b"K\x00K\x01\x87R"
    kind += b"(K\x03" + string(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n" + b"cnumpy\nndarray\n"
    array += b"K\x00\x85" + string(b"b") + b"\x87R"
    shape = b"".join(b"M" + size.to_bytes(2, "little") for size in pixels.shape) + b"\x86"
    data = b"T" + pixels.size.to_bytes(4, "little") + pixels.tobytes()
    array += b"(K\x01" + shape + kind + b"\x89" + data + b"tb"
    labels = b"](" + b"".join(b"K" + bytes([one]) for one in kinds) + b"e"
    return b"\x80\x02}(" + string(b"data") + array + string(b"labels") + labels + b"u."


def tar_gz(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def known_set(name: str, files: tuple[File, ...], read: Reader, *, remedy: str = "") -> Known:
    """A set of a test's own, to be put among the known ones."""
    return Known(
        name=name,
        summary="a set of a test's own",
        licence="none",
        examples=(7, 3),
        classes=tuple("0123456789"),
        folders=(name,),
        layouts=(FileLayout(files=files, read=read),),
        remedy=remedy,
    )
