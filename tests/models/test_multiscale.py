"""Features at several scales: each block as computed alone, and rows of norm 1."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from tacit.errors import InvalidArgument
from tacit.models import MultiScale, Scattering2d


def images(count: int = 5, channels: int = 1, size: int = 16) -> torch.Tensor:
    return torch.rand(count, channels, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("exponent", [1.0, 0.5])
@pytest.mark.parametrize("channels", [1, 3])
def test_blocks_are_powers_normalised_in_groups_side_by_side(
    exponent: float, channels: int
) -> None:
    x = images(channels=channels)
    found = MultiScale(16, channels=channels, scales=(2, 3), exponent=exponent, groups=27)(x)
    start = 0
    for scale, groups in ((2, 27), (3, 21 if channels == 3 else 7)):  # 217 = 7·31 paths at scale 3
        raw = Scattering2d(16, 16, J=scale)(x).flatten(1, 2).double().clamp(min=0) ** exponent
        parts = raw.reshape(len(x), groups, -1)
        parts = parts - parts.mean(2, keepdim=True)
        parts = parts / (parts.square().mean(2, keepdim=True) + 1e-5).sqrt()
        block = functional.normalize(parts.flatten(1), dim=1) / math.sqrt(2)
        width = block.shape[1]
        assert (found[:, start : start + width] - block).abs().max() < 2e-5
        start += width
    assert start == found.shape[1]


def test_rows_have_norm_1_and_depend_on_their_image_alone() -> None:
    features, x = MultiScale(16, scales=(1, 2)), images()
    rows = features(x)
    assert torch.allclose(rows.norm(dim=1), torch.ones(5), atol=1e-5)
    changed = x.clone()
    changed[2] = 0.0
    kept = [0, 1, 3, 4]
    assert torch.allclose(features(changed)[kept], rows[kept], atol=1e-6)
    assert features(changed)[2].norm() <= 1 + 1e-5


def test_maps_keep_the_places_of_a_block() -> None:
    features, x = MultiScale(16, scales=(2, 3)), images()
    maps = features.maps(0, x)
    assert maps.shape == (5, 81, 4, 4)
    row = functional.normalize(maps.flatten(1), dim=1) / math.sqrt(2)
    assert torch.allclose(features(x)[:, : row.shape[1]], row, atol=1e-6)


@pytest.mark.parametrize(("size", "fine"), [(16, 4), (28, 6)])  # 28 pixels have 7 fine places
def test_places_hold_all_that_finer_maps_have_there(size: int, fine: int) -> None:
    features, x = MultiScale(size, scales=(2, 3)), images(size=size)
    found = features.places(x)
    one, two = features.maps(0, x), features.maps(1, x)
    assert found.shape == (5, 4 * 81 + 217, fine // 2, fine // 2)
    for row in range(fine // 2):
        for column in range(fine // 2):
            inside = one[:, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].flatten(1)
            assert torch.equal(found[:, : 4 * 81, row, column], inside)
    assert torch.equal(found[:, 4 * 81 :], two)


def test_it_learns_nothing() -> None:
    assert list(MultiScale(16).parameters()) == []
    assert not MultiScale(16)(images().requires_grad_()).requires_grad


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scales": ()}, r"scales must name at least one scale"),
        ({"exponent": 0}, "exponent must be a positive finite number"),
        ({"groups": 0}, "groups must be a whole number"),
        ({"scales": (5,)}, "height must be more than 2.J = 32 pixels"),
    ],
)
def test_what_makes_no_features_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        MultiScale(**{"size": 16} | given)
