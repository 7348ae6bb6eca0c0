"""Sums in stages are sums; what torch says of TF32 is understood."""

from __future__ import annotations

import pytest
import torch

from tacit.training.clipping.forms import matrix
from tacit.training.clipping.forms.matrix import in_stages


@pytest.mark.parametrize("shape", [(5,), (5, 7), (5, 7, 3), (300, 7, 3), (2, 3, 4, 5), (0, 4, 4)])
def test_every_unit_is_added_up(shape: tuple[int, ...]) -> None:
    values = torch.randn(shape, dtype=torch.float64)
    wanted = torch.stack([one.sum() for one in values]) if len(values) else torch.zeros(0)
    torch.testing.assert_close(in_stages(values), wanted.double())


@pytest.mark.parametrize("newer", [False, True], ids=["allow_tf32", "fp32_precision"])
@pytest.mark.parametrize("wanted", [False, True])
def test_tf32_is_known_by_either_of_torchs_switches(newer: bool, wanted: bool) -> None:
    """To read the older one after the newer was set is an error of torch's."""
    matrices, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = matrices.fp32_precision, convolutions.fp32_precision
    try:
        if newer:
            matrices.fp32_precision = convolutions.fp32_precision = "tf32" if wanted else "ieee"
        else:
            matrices.allow_tf32 = torch.backends.cudnn.allow_tf32 = wanted
        assert matrix.tf32_matrices() is wanted
        assert matrix.tf32_convolutions() is wanted
    finally:
        matrices.allow_tf32, torch.backends.cudnn.allow_tf32 = False, True
        matrices.fp32_precision, convolutions.fp32_precision = before
