"""Where and how to compute: a device by its name, full precision, and batches that suit both."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tacit._validation import whole
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray


_NAME = re.compile(r"auto|cpu|cuda(:\d+)?")


def device_named(name: str | torch.device) -> torch.device:
    """The device; ``"auto"`` is a GPU where there is one.

    >>> device_named("cpu")
    device(type='cpu')
    """
    text = str(name)
    if not _NAME.fullmatch(text):
        raise InvalidArgument(f"device must be auto, cpu, cuda or cuda:N, got {text!r}")
    there = torch.cuda.is_available()
    if text == "auto":
        text = "cuda" if there else "cpu"
    rank = os.environ.get("LOCAL_RANK", "")
    if text == "cuda" and rank.isdecimal():  # torchrun's processes have a GPU each
        text = f"cuda:{rank}"
    found = torch.device(text)
    if found.type == "cuda" and (found.index or 0) >= (torch.cuda.device_count() if there else 0):
        raise InvalidArgument(f"device {text} is not there: PyTorch sees {_seen(there)}; take cpu")
    return found


def _seen(there: bool) -> str:
    return f"{torch.cuda.device_count()} GPUs" if there else "no GPU"


# ---- full single precision for a while, whatever the process has switched on


FULL = ("none", "ieee")  # the settings with which products of float32 are those of float32


@contextmanager
def full_precision(device: str) -> Iterator[None]:
    """Neither autocast nor TF32: features with ten bits would not be those that are described.

    The setting belongs to the process: where threads work, whoever starts them sets it, and they
    find nothing left to do.

    >>> torch.set_float32_matmul_precision("high")
    >>> with full_precision("cpu"):
    ...     torch.backends.cuda.matmul.fp32_precision
    'ieee'
    >>> torch.get_float32_matmul_precision()
    'high'
    >>> torch.set_float32_matmul_precision("highest")
    """
    backends: Any = torch.backends  # torch has no annotations for some of it
    products = (backends.cuda.matmul, backends.mkldnn.matmul)
    coarse = [(one, one.fp32_precision) for one in products if one.fp32_precision not in FULL]
    try:
        for one, _ in coarse:
            one.fp32_precision = "ieee"
        with torch.autocast(device, enabled=False):
            yield
    finally:
        for one, before in coarse:
            one.fp32_precision = before


# ---- a fixed transform of many images, in batches that suit the machine


__all__ = ["batched"]

CPU_BATCH = 32  # few enough for a core's cache, and enough that threads seldom meet
GPU_BATCH = 1000


def batched(
    transform: Callable[[Tensor], Tensor],
    images: NDArray[np.uint8] | Tensor,
    *,
    device: torch.device | str = "cpu",
    batch: int | None = None,
) -> Tensor:
    """``transform`` of all images, one after the other: a tensor on ``device``.

    On a CPU as many batches are computed at a time as torch has threads, each by one of them:
    that is faster than all threads together on one batch, which fits no cache.

    Guarantee:
        To the last bit a row depends on its own image, and neither on the others nor on how many
        they are or where it stands among them. Rounding would see to the contrary: libraries add up
        in another order in a smaller batch, and round otherwise at its end. So all batches are of
        one size, the last being filled up. That a row then is the same at every place and beside
        all others is tried first, on noise; where it is not, each image is a batch of its own. It
        needs a ``transform`` that gives the same when it is given the same.

    Args:
        transform: takes pixels from 0 to 1, shape (rows, channels, height, width), on ``device``,
            and returns one row for each; a ``Scattering2d`` that was moved there, say.
        images: uint8, shape (images, channels, height, width).
        device: where to compute, and where the result stays.
        batch: how many images at a time; by default 32 on a CPU and 1,000 elsewhere.

    >>> import numpy as np
    >>> batched(lambda x: x.mean((1, 2, 3)), np.full((3, 1, 4, 4), 51, dtype=np.uint8))
    tensor([0.2000, 0.2000, 0.2000])
    """
    if str(images.dtype) not in ("uint8", "torch.uint8") or images.ndim != 4 or len(images) == 0:
        raise InvalidArgument(
            "images must be uint8 of shape (images, channels, height, width) with one image or "
            f"more, got {images.dtype} of shape {tuple(images.shape)}"
        )
    place = torch.device(device)
    usual = CPU_BATCH if place.type == "cpu" else GPU_BATCH
    rows = whole("batch", usual if batch is None else batch)

    @torch.no_grad()  # it counts for one thread only
    def of(part: Tensor) -> Tensor:
        return transform(part.to(place).float() / 255)

    with full_precision(place.type), _one_core_each(place) as cores:
        size = rows if _each_by_itself(of, rows, images.shape[1:]) else 1

        def rows_from(start: int) -> Tensor:
            part = images[start : start + size]
            # An array is copied: it may be one that cannot be changed.
            full = _filled(part if isinstance(part, Tensor) else torch.tensor(part), size)
            return of(full)[: len(part)]

        first = rows_from(0)
        found = first.new_empty(len(images), *first.shape[1:])
        found[:size] = first

        def fill(start: int) -> None:
            found[start : start + size] = rows_from(start)

        _each(fill, range(size, len(images), size), cores)
    return found


def _filled(part: Tensor, size: int) -> Tensor:
    """``part`` with ``size`` rows: where it has fewer, its own once more."""
    return part if len(part) == size else part[torch.arange(size) % len(part)]


def _each_by_itself(of: Callable[[Tensor], Tensor], size: int, shape: Sequence[int]) -> bool:
    """Whether in a batch of this size a row is the same at all places, and beside any others.

    It is tried on noise: were it on the images, all rows would depend on how these few fare.
    """
    if size == 1:
        return True
    source = torch.Generator().manual_seed(0)
    noise, others = torch.randint(
        256, (2, size, *shape), dtype=torch.uint8, generator=source
    ).unbind()
    others[size // 2] = noise[size // 2]
    found = of(noise)
    return (
        torch.equal(of(noise.roll(1, 0)), found.roll(1, 0))
        and torch.equal(of(noise.flip(0)), found.flip(0))
        and torch.equal(of(others)[size // 2], found[size // 2])
    )


@contextmanager
def _one_core_each(device: torch.device) -> Iterator[int]:
    """How many batches to compute at a time; on a CPU, each by one core while this lasts."""
    cores = torch.get_num_threads()
    if device.type != "cpu" or cores == 1:
        yield 1
        return
    torch.set_num_threads(1)
    try:
        yield cores
    finally:
        torch.set_num_threads(cores)


def _each(work: Callable[[int], None], starts: range, threads: int) -> None:
    """Calls ``work`` for every start: here, or by threads of which each has one core."""
    if threads == 1:
        for start in starts:
            work(start)
        return
    # torch counts its threads for each thread apart: every new one needs the setting again.
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for _ in pool.map(work, starts):  # takes the results, and with them any error
            pass
