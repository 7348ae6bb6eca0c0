"""Random changes of images."""

import pytest
import torch

from tacit.transfer.students import images as module
from tacit.transfer.students.images import bent, strong, weak


def shifted(image: torch.Tensor, down: int, right: int) -> torch.Tensor:
    """An image moved by whole pixels, black coming in."""
    height, width = image.shape[1:]
    padded = torch.nn.functional.pad(image, (4, 4, 4, 4))
    return padded[:, 4 - down : 4 - down + height, 4 - right : 4 - right + width]


@pytest.mark.parametrize("flip", [False, True])
def test_weak_shifts_by_whole_pixels(flip: bool) -> None:
    torch.manual_seed(0)
    image = torch.rand(1, 28, 28)
    sides = [image, image.flip(2)] if flip else [image]
    places = range(-2, 3)
    allowed = torch.stack([shifted(s, i, j) for s in sides for i in places for j in places])
    changed = weak(image.expand(400, 1, 28, 28), flip=flip)
    distances = (changed[:, None] - allowed[None]).abs().amax((2, 3, 4))
    nearest = distances.min(1)
    assert nearest.values.max() < 1e-4
    assert set(nearest.indices.tolist()) == set(range(len(allowed)))


@pytest.mark.parametrize("channels", [1, 3])
def test_strong_changes_each_image_in_its_own_way(channels: int) -> None:
    torch.manual_seed(0)
    images = torch.rand(1, channels, 28, 28).expand(50, -1, -1, -1)
    changed = strong(images, flip=False)
    assert changed.shape == images.shape
    assert changed.min() >= 0
    assert changed.max() <= 1
    assert torch.cdist(changed.flatten(1), changed.flatten(1)).fill_diagonal_(9).min() > 0.5


def test_strong_with_all_strengths_at_zero_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHIFT", "TURN", "SCALE", "SHEAR", "LIGHT", "BLANK"):
        monkeypatch.setattr(module, name, 0.0)
    images = torch.rand(5, 3, 16, 16)
    middle = slice(1, -1)  # the square of size 0 may still hit a pixel on its line
    torch.testing.assert_close(
        strong(images, flip=False)[..., middle, middle], images[..., middle, middle],
        atol=1e-5, rtol=0,
    )  # fmt: skip


def test_strong_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHIFT", "SCALE", "SHEAR", "BLANK"):
        monkeypatch.setattr(module, name, 0.0)
    angle = torch.pi / 2
    monkeypatch.setattr(module, "TURN", angle)
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.ones(shape))  # the largest turn
    images = torch.arange(16.0).view(1, 1, 4, 4) / 16
    found = strong(images, flip=False)
    expected = torch.rot90(images, 1, (2, 3))
    clear = found[..., :-1, :-1]  # the blank square of size 0 lies on the last pixel
    torch.testing.assert_close(clear, expected[..., :-1, :-1], atol=1e-5, rtol=0)


def test_a_photograph_goes_on_beyond_its_edge() -> None:
    torch.manual_seed(0)
    assert weak(torch.ones(50, 3, 32, 32), flip=True).min() > 0.999
    assert weak(torch.ones(50, 1, 32, 32), flip=True).min() < 0.001


def test_bent_images_are_moved_a_little_and_unevenly() -> None:
    torch.manual_seed(0)
    images = torch.zeros(400, 1, 28, 28)
    images[..., 6:9, 6:9] = images[..., 19:22, 19:22] = 1.0
    changed = bent(images, flip=False)
    down, right = torch.meshgrid(torch.arange(28.0), torch.arange(28.0), indexing="ij")

    def places(part: torch.Tensor, upper: bool) -> torch.Tensor:
        """The middle of one of the two squares: they lie on different sides of a diagonal."""
        own = part[:, 0] * ((down + right < 27) if upper else (down + right > 27))
        whole = own.sum((1, 2))
        return torch.stack([(own * axis).sum((1, 2)) / whole for axis in (down, right)], dim=1)

    moves = torch.stack([places(changed, u) - places(images, u) for u in (True, False)])
    assert moves.norm(dim=2).max() < 9
    assert moves.mean(1).abs().max() < 0.5  # to no side
    assert moves.std(1).min() > 1
    assert (moves[0] - moves[1]).norm(dim=1).median() > 1  # not a mere shift


def test_bent_with_all_strengths_at_zero_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHIFT", "GENTLE", "BEND"):
        monkeypatch.setattr(module, name, 0.0)
    images = torch.rand(5, 1, 16, 16)
    torch.testing.assert_close(bent(images, flip=False), images, atol=1e-5, rtol=0)
