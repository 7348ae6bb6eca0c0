"""Full single precision for a while, whatever the process has switched on."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

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
