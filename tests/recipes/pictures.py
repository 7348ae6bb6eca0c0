"""Small made-up sets with the shapes of the real ones, and what every recipe's file must say."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from tacit import recipes
from tacit.data import Examples, Split


def pictures(*, channels: int, size: int, train: int = 400, test: int = 200) -> Split:
    """Ten classes, each with a bright bar at its own place, and some noise."""
    rng = np.random.default_rng(7)

    def part(count: int) -> Examples:
        labels = rng.integers(0, 10, count)
        images = rng.integers(0, 60, (count, channels, size, size), dtype=np.uint8)
        wide = size // 5
        for label in range(10):
            row, column = divmod(label, 5)
            top = row * (size // 2)
            images[
                labels == label, :, top : top + size // 2, column * wide : (column + 1) * wide
            ] += 180
        return Examples(images, labels)

    return Split("pictures", part(train), part(test), tuple("0123456789"), {"made": "up"})


def check_published(name: str, anchors: dict[float, float]) -> Any:
    """The file of a recipe opens with its command and holds what was published; its module."""
    found = recipes.find(name)
    assert found.name == name
    assert {one.epsilon: one.accuracy for one in found.anchors} == anchors
    assert all(one.source and one.shortcuts for one in found.anchors)
    assert found.tuning
    module = import_module(f"tacit.recipes.{name.replace('-', '_')}")
    assert (module.__doc__ or "").lstrip("`").startswith(f"tacit train {name} --epsilon ")
    return module
