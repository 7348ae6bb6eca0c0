"""Bugs that are put into a device's kernels as well are there: shown by Triton's interpreter."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest
import torch

from tacit.randomness import GaussianSource, UnsafeSeededStream, device_noise

from .catalogue import BY_NAME
from .unseen_second import SECOND_UNSEEN_BY_NAME
from .unseen_third import THIRD_UNSEEN_BY_NAME

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from torch import Tensor

    from .mutant import Mutant

pytest.importorskip("triton", reason="needs Triton")

KNOWN: dict[str, Mutant] = BY_NAME | SECOND_UNSEEN_BY_NAME | THIRD_UNSEEN_BY_NAME
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def steps(entries: int) -> Tensor:
    """The noise of two steps, as kernels draw it for two parameters, one of which has a sum."""
    source = GaussianSource(DEVICE, UnsafeSeededStream(0, "noise"))
    if DEVICE.type == "cpu":
        source._native = torch.Generator().manual_seed(1)
    found = []
    for _ in range(2):
        outs = [torch.empty(n, device=DEVICE) for n in (entries - 7, 7)]
        source.means_([torch.ones(entries - 7, device=DEVICE), None], outs, 3.0, 2.0)
        found.append(torch.cat([outs[0] - 0.5, outs[1]]) / 1.5)
    return torch.stack(found).cpu()


def in_half(drawn: Tensor) -> bool:
    return torch.allclose(drawn, drawn.half().float(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "entries", "is_there"),
    [
        ("float holes", 21, in_half),
        ("noise reused across steps", 21, lambda drawn: torch.equal(drawn[0], drawn[1])),
        ("shared stream", 21, lambda drawn: torch.equal(drawn[0], drawn[1])),
        ("noise without tails", 2048, lambda drawn: 2.5 < float(drawn.abs().max()) <= 3.00001),
        (
            "odd draws give their last word back",
            21,
            lambda drawn: torch.allclose(drawn[0, 10], drawn[1, 0], rtol=1e-6, atol=1e-6),
        ),
    ],
)
def test_noise_of_one_pass_has_the_bug(
    name: str, entries: int, is_there: Callable[[Tensor], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_noise, "usable", lambda _: True)
    assert not is_there(steps(entries))
    with KNOWN[name].patch():
        drawn = steps(entries)
    assert is_there(drawn)
    assert 0.6 < float(drawn.std()) < 1.4  # numbers of the right size all the same


@pytest.fixture
def kernels() -> ModuleType:
    return importlib.import_module("tacit.training.clipping.kernels")


def test_norms_of_small_gradients_are_nothing(kernels: ModuleType) -> None:
    left, right = (torch.full((3, 1, size), 1e-4, device=DEVICE) for size in (4, 5))
    product, own = kernels.product_and_left(left, right)
    assert torch.allclose(product, torch.full_like(product, 4e-8 * 5e-8))
    with KNOWN["half-precision norms"].patch():
        product, own = kernels.product_and_left(left, right)
    assert product.shape == own.shape == (1, 3)
    assert not product.any()
    assert not own.any()


def test_repeated_ids_count_once_a_pair(kernels: ModuleType) -> None:
    ids, right = torch.tensor([[1, 2, 1]], device=DEVICE), torch.ones(1, 3, 4, device=DEVICE)

    def norm() -> float:
        return float(kernels.equal_id_norms(ids, right, (1.0, 0.0)).sum())

    assert norm() == pytest.approx(20.0)  # three of a place with itself, two of the pair
    with KNOWN["repeated tokens counted half"].patch():
        assert norm() == pytest.approx(16.0)
