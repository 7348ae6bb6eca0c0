"""Crops as they would be cut one by one, rates, averages, and precision that is put back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tacit.data import Examples
from tacit.recipes import parts
from tacit.training.fit import arithmetic


def test_images_are_scaled_by_public_numbers() -> None:
    examples = Examples(np.array([[[[0, 255]]]], dtype=np.uint8), np.array([3]))
    x, y = parts.images(examples, torch.device("cpu"))[0]
    assert x.tolist() == [[[-1.0, 1.0]]]
    assert y == 3


@pytest.mark.parametrize(("size", "pad"), [(6, 2), (4, 0), (5, 1)])
def test_every_crop_is_one_that_could_be_cut_and_all_are(size: int, pad: int) -> None:
    image = torch.arange(2 * 6 * 6.0).reshape(2, 6, 6)
    padded = nn.functional.pad(image[None], (pad,) * 4, mode="reflect")[0] if pad else image
    places = range(6 + 2 * pad - size + 1)
    possible = {
        tuple(cut.ravel().tolist())
        for top in places
        for left in places
        for square in [padded[:, top : top + size, left : left + size]]
        for cut in (square, square.flip(2))
    }
    torch.manual_seed(0)
    got = parts.crops(image.expand(4000, 2, 6, 6), size, pad=pad, flip=True)
    assert got.shape == (4000, 2, size, size)
    assert {tuple(one.ravel().tolist()) for one in got} == possible


def test_no_crop_is_mirrored_unless_asked_for() -> None:
    image = torch.arange(36.0).expand(500, 1, 1, 36).reshape(500, 1, 6, 6)
    got = parts.crops(image, 4)
    assert bool((got.diff(dim=3) == 1).all())


def test_the_loss_is_of_the_view() -> None:
    model = nn.Linear(3, 2)
    x, y = torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 0])
    got = parts.loss_of(lambda rows: 2 * rows)(model, (x, y))
    assert torch.allclose(got, nn.functional.cross_entropy(model(2 * x), y, reduction="none"))


def test_the_rate_falls_at_the_end() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=3.0)
    scheduler = parts.falling(optimizer, 10, 0.4)
    rates = []
    for _ in range(10):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates == pytest.approx([3.0] * 7 + [2.25, 1.5, 0.75])


def test_the_moving_average_is_short_at_first() -> None:
    model = nn.Linear(1, 1, bias=False)
    average = parts.moving_average(model, 0.3)
    expected = None
    for step in range(6):
        with torch.no_grad():
            model.weight.fill_(float(step**2))
        average.update_parameters(model)
        keep = min(0.3, (1 + step) / (10 + step))
        expected = 0.0 if expected is None else keep * expected + (1 - keep) * step**2
    assert average.module.weight.item() == pytest.approx(expected)


def test_precision_is_put_back() -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    for tf32 in (True, False):
        with pytest.raises(KeyError), arithmetic(tf32=tf32):
            assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")
            assert torch.backends.cudnn.allow_tf32 is tf32
            raise KeyError
        assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before
