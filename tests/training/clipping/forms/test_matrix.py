"""Sums in stages are sums."""

from __future__ import annotations

import pytest
import torch

from tacit.training.clipping.forms.matrix import in_stages


@pytest.mark.parametrize("shape", [(5,), (5, 7), (5, 7, 3), (300, 7, 3), (2, 3, 4, 5), (0, 4, 4)])
def test_every_unit_is_added_up(shape: tuple[int, ...]) -> None:
    values = torch.randn(shape, dtype=torch.float64)
    wanted = torch.stack([one.sum() for one in values]) if len(values) else torch.zeros(0)
    torch.testing.assert_close(in_stages(values), wanted.double())
