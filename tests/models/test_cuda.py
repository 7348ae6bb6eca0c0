"""On a GPU: the features of the CPU, also where TF32 is switched on."""

from __future__ import annotations

import pytest
import torch

from tacit.models import MultiScale, Scattering2d, Whitening, batched, synthetic_images
from tacit.transfer.students.student import residual_network

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_features_are_those_of_the_cpu_whatever_tf32_says() -> None:
    images = synthetic_images(300, size=32, channels=3, kind="dead-leaves", seed=0)
    transform = Scattering2d(32, 32)
    wanted = batched(transform, images)
    try:
        torch.set_float32_matmul_precision("high")
        found = batched(transform.to("cuda"), images, device="cuda")
    finally:
        torch.set_float32_matmul_precision("highest")
    assert found.device.type == "cuda"
    assert (found.cpu() - wanted).abs().max() < 2e-6


def test_whitening_is_that_of_the_cpu() -> None:
    images = synthetic_images(500, size=8, kind="strokes", seed=0)
    features = batched(MultiScale(8), images)
    here = Whitening.of(features, power=1.0, ridge=1e-3)
    there = Whitening.of(features.cuda(), power=1.0, ridge=1e-3)
    # The covariance is summed in single precision, in another order there: seen on an H200 were
    # differences of 5e-9 of the largest strength.
    largest = float(here.strengths.max())
    assert (there.strengths.cpu() - here.strengths).abs().max() < 1e-7 * largest
    a, b = here(features), there(features)
    assert (a @ a.T - (b @ b.T).cpu()).abs().max() < 1e-4


@pytest.mark.parametrize("gone", [0, 1499])
def test_to_leave_an_image_out_changes_no_bit_of_the_others(gone: int) -> None:
    images = torch.from_numpy(synthetic_images(1500, size=32, channels=3, kind="noise", seed=0))
    torch.manual_seed(0)
    layers = residual_network(3, 10).eval().to("cuda")
    found = batched(layers, images, device="cuda")
    rest = [place for place in range(1500) if place != gone]
    assert torch.equal(batched(layers, images[rest], device="cuda"), found[rest])
