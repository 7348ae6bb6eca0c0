"""Where to compute: a device by its name, refused if this machine has none such."""

from __future__ import annotations

import re

import torch

from tacit.errors import InvalidArgument

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
        return torch.device("cuda" if there else "cpu")
    found = torch.device(text)
    if found.type == "cuda" and (found.index or 0) >= (torch.cuda.device_count() if there else 0):
        raise InvalidArgument(f"device {text} is not there: PyTorch sees {_seen(there)}; take cpu")
    return found


def _seen(there: bool) -> str:
    return f"{torch.cuda.device_count()} GPUs" if there else "no GPU"
