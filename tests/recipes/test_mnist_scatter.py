"""MNIST by scattering: what was published, and that steps are shorter where noise is louder."""

from __future__ import annotations

import pytest

from tacit import recipes

from ..real_data import real_data

LINEAR = {1.2: 98.1, 2.0: 98.5, 2.32: 98.6, 2.5: 98.7, 2.93: 98.7}
CNN = {1.2: 97.8, 2.0: 98.4, 2.32: 98.5, 2.5: 98.6, 2.93: 98.7}


def published(name: str, head: str) -> dict[float, float]:
    anchors = recipes.find(name).anchors
    return {one.epsilon: one.accuracy for one in anchors if one.source.endswith(head)}


def test_what_was_published() -> None:
    assert published("mnist-scatter", "linear") == LINEAR
    assert published("mnist-scatter", "CNN") == CNN
    assert published("fashion-scatter", "linear") == {2.7: 89.5, 3.0: 89.7}
    assert published("fashion-scatter", "CNN") == {2.7: 88.7, 3.0: 89.0}
    assert published("cifar10-scatter", "linear") == {3.0: 67.0}
    assert published("cifar10-scatter", "CNN") == {3.0: 69.3}


@pytest.mark.parametrize("name", ["mnist_scatter", "fashion_scatter", "cifar10_scatter"])
def test_steps_are_shorter_where_noise_is_louder(name: str) -> None:
    module = __import__(f"tacit.recipes.{name}", fromlist=["steps"])
    assert module.steps(0.5, "linear").lr < module.steps(1.0, "linear").lr
    assert module.steps(8.0, "linear").lr == module.steps(80.0, "linear").lr


@pytest.mark.slow
def test_on_the_published_files() -> None:
    folder = real_data("mnist")
    few = {"scales": "3", "synthetic": 2500, "keep": 300, "epochs": 5}
    done = recipes.run("mnist-scatter", epsilon=3, settings=few, data=folder, progress=False)
    assert done.accuracy > 0.95
