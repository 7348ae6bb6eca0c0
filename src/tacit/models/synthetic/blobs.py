"""Textured blobs: outlines with sleeves, legs or soles, lit and patterned like garments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEVEL = (0.6, 1.0)  # brightness of a cloth
GRAIN = (0.01, 0.25)  # how much single pixels differ, as a share of it
KNOTS = 6  # of an outline, from one end to the other


def blobs(random: np.random.Generator, count: int, size: int) -> Floats:
    """Light shapes on black, shape (count, size, size), from 0 to 1."""
    upright = random.random((count, 1, 1)) < 0.7
    shape = np.where(upright, _garment(random, count, size), _shoe(random, count, size))
    light: Floats = (shape * _texture(random, count, size)).clip(0, 1)
    return light


def _garment(random: np.random.Generator, count: int, size: int) -> Floats:
    """Two mirrored outlines, in part with sleeves and with a gap between two legs."""
    down, across = _grid(size)
    half = _outline(random, count, size, low=0.15, high=0.75)[:, :, None]
    top, bottom = _ends(random, count)
    side = np.abs(across - random.normal(0, 0.03, (count, 1, 1)))
    body = _edge(half - side, size) * _edge(down - top, size) * _edge(bottom - down, size)
    reach = random.uniform(0.05, 0.6, (count, 1, 1)) * (random.random((count, 1, 1)) < 0.6)
    slope = random.uniform(0.3, 2.5, (count, 1, 1))
    thick = random.uniform(0.12, 0.3, (count, 1, 1))
    middle = top + thick + slope * (side - half).clip(min=0)
    sleeve = _edge(thick * np.sqrt(1 + slope**2) - np.abs(down - middle), size)
    sleeve = sleeve * _edge(half[:, :1] + reach - side, size) * _edge(side - 0.1, size)
    gap = random.uniform(0.03, 0.15, (count, 1, 1)) * (random.random((count, 1, 1)) < 0.3)
    fork = random.uniform(-0.6, 0.2, (count, 1, 1))
    legs = 1 - _edge(gap * (down - fork).clip(0, 1) * 2 - side, size) * (gap > 0)
    whole: Floats = np.maximum(body, sleeve * (reach > 0)) * legs
    return whole


def _shoe(random: np.random.Generator, count: int, size: int) -> Floats:
    """A flat bottom and a free top: shoes and bags, looking to either side."""
    down, across = _grid(size)
    base = random.uniform(0.2, 0.7, (count, 1, 1))
    top = base - 1.2 * _outline(random, count, size, low=0.1, high=0.9)[:, None, :]
    left, right = _ends(random, count)
    ends = _edge(across - left, size) * _edge(right - across, size)
    return _edge(down - top, size) * _edge(base - down, size) * ends


def _texture(random: np.random.Generator, count: int, size: int) -> Floats:
    """Brightness, shade from side to side, stripes or checks, and a fine grain."""
    down, across = _grid(size)
    level = random.uniform(*LEVEL, (count, 1, 1))
    tilt = random.normal(0, 0.12, (2, count, 1, 1))
    shade = 1 + tilt[0] * down + tilt[1] * across - 0.15 * random.random((count, 1, 1)) * across**2
    angle = random.choice([0, np.pi / 2, 1], (count, 1, 1)) + random.normal(0, 0.1, (count, 1, 1))
    waves = random.uniform(4, 25, (count, 1, 1))
    phase = waves * (np.cos(angle) * down + np.sin(angle) * across)
    depth = random.uniform(0, 0.4, (count, 1, 1)) * (random.random((count, 1, 1)) < 0.4)
    stripes = 1 + depth * np.sin(phase + random.uniform(0, 2 * np.pi, (count, 1, 1)))
    strength = random.uniform(*GRAIN, (count, 1, 1))
    grain = 1 + strength * random.standard_normal((count, size, size))
    light: Floats = level * shade * stripes * grain
    return light


def _outline(
    random: np.random.Generator, count: int, size: int, *, low: float, high: float
) -> Floats:
    """A smooth random function on the pixels of a side, shape (count, size)."""
    widths = random.uniform(low, high, (count, 1)) + random.normal(0, 0.12, (count, KNOTS))
    place = np.linspace(0, KNOTS - 1, size)
    weights = np.exp(-0.5 * ((place[:, None] - np.arange(KNOTS)) / 0.6) ** 2)
    smooth = widths @ (weights / weights.sum(1, keepdims=True)).T
    within: Floats = smooth.clip(0.05, 0.95)
    return within


def _ends(random: np.random.Generator, count: int) -> tuple[Floats, Floats]:
    """Where a shape begins and ends, near the image's borders: garments fill their pictures."""
    first, last = random.uniform(-1.0, -0.6, (count, 1, 1)), random.uniform(0.6, 1.0, (count, 1, 1))
    return first, last


def _grid(size: int) -> tuple[Floats, Floats]:
    """Coordinates from −1 to 1: down as a column, across as a row."""
    line = ((2 * np.arange(size) + 1) / size) - 1
    return line[:, None], line[None, :]


def _edge(inside: Floats, size: int) -> Floats:
    """0 outside and 1 inside, with an edge of a pixel."""
    share: Floats = (inside * size / 2 + 0.5).clip(0, 1)
    return share
