"""Images of untrained networks: from the seed alone, with structure, and of all colours."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tacit.errors import InvalidArgument
from tacit.models import style_networks as module
from tacit.models.style_networks import style_images


def test_a_seed_makes_the_same_images_however_many_are_asked_for() -> None:
    images = style_images(40, size=8, seed=5)
    assert torch.equal(style_images(33, size=8, seed=5), images[:33])
    assert not torch.equal(style_images(33, size=8, seed=6), images[:33])
    assert images.shape == (40, 3, 8, 8)
    assert images.dtype == torch.uint8


def test_networks_that_are_computed_together_make_what_each_makes_alone() -> None:
    drawn = [module._drawn(3, 16, network) for network in range(3)]
    together = module._painted(module._on(torch.device("cpu"), drawn), 16)
    alone = [module._painted(module._on(torch.device("cpu"), [one]), 16) for one in drawn]
    apart = (together.int() - torch.cat(alone).int()).abs()
    assert int(apart.max()) <= 1
    assert float((apart > 0).float().mean()) < 1e-3


def test_neighbouring_pixels_are_alike_and_images_are_not() -> None:
    """Unlike noise, where neighbours differ as far as any two pixels; unlike flat colour."""
    images = style_images(64, size=32, seed=1).float()
    spread = images.std((2, 3)).mean()
    steps = images.diff(dim=-1).square().mean((2, 3)).sqrt().mean()
    assert 0.1 * spread < steps < 0.8 * spread  # noise: 1.41
    assert float(images.mean((2, 3)).std(0).min()) > 30  # colours are drawn from nearly all


def test_the_bank_has_forty_filters_of_norm_one_half_of_them_negatives() -> None:
    bank = module._bank()
    assert bank.shape == (40, 3, 3)
    assert np.allclose(np.linalg.norm(bank, axis=(1, 2)), 1.0, atol=1e-6)
    assert np.array_equal(bank[20:], -bank[:20])
    assert len({one.round(4).tobytes() for one in bank}) == 40
    assert np.allclose(bank[:16].sum((1, 2)), 0.0, atol=1e-6)  # edges and bars


@pytest.mark.parametrize("size", [4, 24, 0])
def test_sizes_that_no_network_has_are_refused(size: int) -> None:
    with pytest.raises(InvalidArgument, match="size must be"):
        style_images(1, size=size, seed=0)
