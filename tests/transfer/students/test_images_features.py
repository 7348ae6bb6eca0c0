"""Whitened scattering features of public images."""

import pytest
import torch

from tacit import data
from tacit.transfer.students import images as module
from tacit.transfer.students.images import Whitened


@pytest.mark.parametrize(
    "shape",
    [
        (1, 8, 8),
        (3, 16, 16),
        pytest.param((1, 28, 28), marks=pytest.mark.slow),  # as published images are
        pytest.param((3, 32, 32), marks=pytest.mark.slow),
    ],
)
def test_later_images_are_treated_as_the_first_were(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    images = torch.randint(0, 256, (40, *shape), dtype=torch.uint8)
    made, rows = Whitened.of(images)
    torch.testing.assert_close(made(images[7:12].float() / 255), rows[7:12], atol=1e-4, rtol=0)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(40))
    assert set(made.state_dict()) == {"mean", "directions"}  # saved with a student's weights


def test_directions_are_of_equal_strength_but_for_a_ridge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DIRECTIONS", 20)
    images = torch.tensor(data.load("digits").train.inputs[:300])
    made, _ = Whitened.of(images)
    raw = made.scattering(images.float() / 255)
    raw = raw - raw.mean(0)
    strengths = torch.linalg.eigvalsh(raw.T @ raw).flip(0)[
        :8
    ]  # the last that are kept are found less exactly
    rows = (made.scattering(images.float() / 255) - made.mean) @ made.directions
    expected = strengths / (strengths + raw.square().sum() / 300)
    torch.testing.assert_close((rows.T @ rows)[:8, :8], expected.diag(), atol=0.01, rtol=0)


def test_upright_features_tell_nothing_of_a_slant() -> None:
    """The same bar, leaning to either side, has the same features."""
    torch.manual_seed(0)
    place = torch.linspace(-1, 1, 28)
    y, x = torch.meshgrid(place, place, indexing="ij")
    leaning = [
        255 * torch.exp(-(((x - slant * y) / 0.15) ** 2) - (y / 0.5) ** 4)
        for slant in (-0.4, 0.0, 0.4)
    ]
    others = torch.randint(0, 256, (60, 1, 28, 28))
    images = torch.cat([torch.stack(leaning)[:, None], others]).to(torch.uint8)
    rows = Whitened.of(images, upright=True)[1]
    assert (rows[0] * rows[2]).sum() > 0.9
    assert (rows[0] * rows[1]).sum() > 0.9
    plain = Whitened.of(images)[1]
    assert (plain[0] * plain[2]).sum() < 0.8
