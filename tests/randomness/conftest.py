"""Triton's kernels run in its interpreter where there is no GPU; that is set before any import."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
