"""The scattering transform against its definition in double precision, and against kymatio."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tacit.errors import InvalidArgument
from tacit.models import Scattering2d

from . import direct

# kymatio 0.3.0's features of `pattern(size, size)` at the places (0, 0), (3, 4) and (last, 2), by
# path: ScatteringTorch2D(2, (size, size)) of kymatio.scattering2d.frontend.torch_frontend, made in
# the environment of benchmarks/peers/kymatio.txt (torch 2.13.0). benchmarks/scattering.py compares
# all paths on real images.
KYMATIO = {
    28: {
        0: [0.428735, 0.5167767, 0.488422],
        1: [0.0707239, 0.0312987, 0.0732358],
        6: [0.0545534, 0.0408809, 0.0545906],
        9: [0.0387082, 0.0349226, 0.0263582],
        14: [0.0189449, 0.0305483, 0.0353557],
        17: [0.0108218, 0.0074743, 0.0096478],
        24: [0.0056397, 0.0044007, 0.012645],
        43: [0.0070578, 0.0078772, 0.0057274],
        80: [0.0088621, 0.0030086, 0.0045107],
    },
    32: {
        0: [0.4297339, 0.5167766, 0.5414941],
        1: [0.0718602, 0.0312987, 0.0360071],
        6: [0.0541278, 0.0408809, 0.0526721],
        9: [0.0427263, 0.0349363, 0.0334128],
        14: [0.0212783, 0.0305474, 0.0442503],
        17: [0.0108916, 0.0074747, 0.0048294],
        24: [0.0081375, 0.0043991, 0.004921],
        43: [0.0077133, 0.0078842, 0.0062923],
        80: [0.0078949, 0.0030124, 0.0049802],
    },
}


def pattern(height: int, width: int) -> torch.Tensor:
    rows, columns = torch.arange(height)[:, None], torch.arange(width)
    return ((3 * rows * rows + 5 * columns + rows * columns) % 17) / 17.0


def images(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("size", [28, 32])
def test_it_gives_kymatios_numbers(size: int) -> None:
    features = Scattering2d(size, size)(pattern(size, size)[None, None])[0, 0]
    for path, (corner, middle, edge) in KYMATIO[size].items():
        found = features[path]
        wanted = torch.tensor([corner, middle, edge])
        got = torch.stack([found[0, 0], found[3, 4], found[-1, 2]])
        assert torch.allclose(got, wanted, rtol=0, atol=5e-7), path


@pytest.mark.parametrize(
    ("height", "width", "scales", "angles"),
    [(28, 28, 2, 8), (8, 8, 2, 8), (18, 13, 2, 5), (17, 24, 3, 4), (6, 6, 1, 8)],
)
def test_every_path_is_that_of_the_definition(
    height: int, width: int, scales: int, angles: int
) -> None:
    transform = Scattering2d(height, width, J=scales, L=angles)
    x = images(2, 3, height, width)
    found = transform(x)
    assert found.shape == (2, 3, transform.paths, *transform.out_size)
    wanted = direct.scattered(x[1, 2].double().numpy(), scales, angles)
    assert np.abs(found[1, 2].double().numpy() - wanted).max() < 2e-6
    # The order of paths matters: no path comes as near to its neighbour.
    assert np.abs(found[1, 2, 1:].double().numpy() - wanted[:-1]).max(axis=(1, 2)).min() > 1e-4


def test_it_has_81_paths_and_a_quarter_of_the_pixels() -> None:
    transform = Scattering2d(28, 32)
    assert (transform.paths, transform.out_size) == (81, (7, 8))
    assert transform(images(2, 1, 28, 32)).shape == (2, 1, 81, 7, 8)


def test_a_flat_image_has_a_mean_and_nothing_else() -> None:
    features = Scattering2d(16, 16)(torch.full((1, 1, 16, 16), 0.5))[0, 0]
    assert torch.allclose(features[0], torch.tensor(0.5), atol=5e-5)  # 3.1415 for π
    assert features[1:].abs().max() < 1e-6


def test_an_image_has_the_same_features_among_others_and_in_every_channel() -> None:
    transform, x = Scattering2d(12, 12), images(5, 2, 12, 12)
    together = transform(x)
    alone = torch.cat(
        [transform(one[None, channel : channel + 1]) for one in x for channel in (0, 1)]
    )
    assert torch.allclose(together.flatten(0, 1), alone.flatten(0, 1), atol=1e-7)
    changed = x.clone()
    changed[3] = 9.0
    kept = [0, 1, 2, 4]
    assert torch.equal(transform(changed)[kept], together[kept])


def test_it_learns_nothing_and_is_no_part_of_a_checkpoint() -> None:
    transform = Scattering2d(8, 8)
    assert list(transform.parameters()) == []
    assert transform.state_dict() == {}
    assert not transform(images(1, 1, 8, 8).requires_grad_()).requires_grad


def test_autocast_and_coarse_products_change_nothing() -> None:
    transform, x = Scattering2d(8, 8), images(2, 1, 8, 8)
    wanted = transform(x)
    try:
        torch.set_float32_matmul_precision("medium")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = transform(x)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.equal(found, wanted)


def test_no_images_give_no_features() -> None:
    assert Scattering2d(8, 8)(torch.zeros(0, 1, 8, 8)).shape == (0, 1, 81, 2, 2)


@pytest.mark.parametrize("shape", [(2, 28, 28), (2, 1, 28, 27), (2, 1, 32, 32)])
def test_images_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArgument, match=r"shape \(batch, channels, 28, 28\), got"):
        Scattering2d(28, 28)(torch.zeros(shape))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"height": 4}, "height must be more than 2.J = 4 pixels, got 4"),
        ({"width": 3}, "width must be more"),
        ({"J": 0}, "J must be a whole number"),
        ({"L": 1.5}, "L must be a whole number"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(given: dict[str, int], message: str) -> None:
    sizes = {"height": 28, "width": 28} | given
    with pytest.raises(InvalidArgument, match=message):
        Scattering2d(**sizes)
