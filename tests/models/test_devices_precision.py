"""Full precision for a while, and the settings of before whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tacit.models.devices import FULL, full_precision

if TYPE_CHECKING:
    from collections.abc import Iterator

PRODUCTS = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)


def settings() -> list[str]:
    return [one.fp32_precision for one in PRODUCTS]


@pytest.fixture(params=["highest", "high", "medium"])
def legacy(request: pytest.FixtureRequest) -> Iterator[str]:
    torch.set_float32_matmul_precision(request.param)
    yield request.param
    torch.set_float32_matmul_precision("highest")


def test_products_are_exact_inside_and_as_before_outside(legacy: str) -> None:
    before = settings()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with full_precision("cpu"):
            assert set(settings()) <= set(FULL)
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    assert settings() == before
    assert torch.get_float32_matmul_precision() == legacy


def test_the_newer_way_to_set_it_is_heeded_too() -> None:
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        with full_precision("cpu"):
            assert torch.backends.cuda.matmul.fp32_precision == "ieee"
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_an_error_restores_it_too(legacy: str) -> None:
    before = settings()
    with pytest.raises(ZeroDivisionError), full_precision("cpu"):
        raise ZeroDivisionError
    assert settings() == before
    assert torch.get_float32_matmul_precision() == legacy
