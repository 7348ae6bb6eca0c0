"""On a GPU: the features of the CPU, also where TF32 is switched on."""

from __future__ import annotations

import pytest
import torch

from tacit.models import MultiScale, Scattering2d, Whitening, batched, synthetic_images

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
