"""Correlated whole numbers against their whole law: every outcome of three steps of one entry.

Every value of the independent noise goes through the code itself, so that the probability of each
released sequence is known for two neighbouring runs. Their privacy curve is to lie below that of
the Gaussian release which is charged.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from scipy import stats

import tacit
from tacit.errors import InvalidArgument
from tacit.randomness.correlated import Averages, CorrelatedIntegers, Echo, Feedback, NoiseMemory
from tacit.randomness.streams import UnsafeSeededStream
from tacit.training.correlation import Banded, Buffered, Rounding, course, rounding_of, weights
from tacit.training.noise import finer_grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.randomness.correlated import Mixing
    from tacit.training.correlation import Correlation, Course

    Moved = Callable[[int, NDArray[np.int64]], Any]

STEPS, SCALE, APART = 3, 1.4, 1

# A strategy, and in every how many steps a record takes part.
RUNS: dict[str, tuple[Correlation, int]] = {
    "banded": (tacit.Banded(2, coefficients=(1.0, 0.5)), 2),
    "banded, often": (tacit.Banded(2, coefficients=(1.0, 0.45)), 1),
    "anticorrelated": (tacit.Anticorrelated(0.9), 3),
    "inverse": (tacit.InverseBanded(3, coefficients=(1.0, -0.35, -0.25)), 1),
    "buffered": (tacit.Buffered(1, scales=(-0.4,), decays=(0.7,)), 1),
}


def mixing(of: Course) -> Mixing:
    match of.correlation:
        case Banded(coefficients=tuple(own)):
            return Feedback(own, tuple(of.norms()), STEPS)
        case Buffered(scales=tuple(scales), decays=tuple(decays)):
            return Averages(scales, decays, of.gain)
        case _:
            return Echo(tuple(weights(of.correlation)), of.gain)


def every_noise(of: Course, patch: pytest.MonkeyPatch) -> tuple[NDArray[np.int64], Any]:
    """What is added in each step, for every value of the independent noise; its probability."""
    how = mixing(of)
    wide = [SCALE * (how.norm(t) if isinstance(how, Feedback) else how.gain) for t in range(STEPS)]
    grids = [np.arange(-math.ceil(7 * one), math.ceil(7 * one) + 1) for one in wide]
    chances = [
        np.diff(stats.norm.cdf((np.append(grid, grid[-1] + 1) - 0.5) / one))
        for grid, one in zip(grids, wide, strict=True)
    ]
    drawn = np.stack([one.ravel() for one in np.meshgrid(*grids, indexing="ij")])
    chance = math.prod(one.ravel() for one in np.meshgrid(*chances, indexing="ij"))

    class Given:
        def integers_(self, tensor: torch.Tensor, scale: float, **_: object) -> None:
            assert math.isclose(scale, wide[memory.position])
            tensor.copy_(torch.from_numpy(drawn[memory.position]))

    def again(_: object, tensor: torch.Tensor, step: int, *__: object) -> bool:
        tensor.copy_(torch.from_numpy(drawn[step]))
        return True

    memory = NoiseMemory(how, STEPS)
    source = CorrelatedIntegers(memory, torch.device("cpu"), UnsafeSeededStream(0, "noise"))
    patch.setattr(CorrelatedIntegers, "_draw", again)
    source._fresh = Given()  # type: ignore[assignment]
    added = []
    for _ in range(STEPS):
        noise = torch.empty(drawn.shape[1], dtype=torch.int64)
        source.integers_(noise, SCALE)
        source.advance()
        added.append(noise.numpy())
    return np.stack(added), chance


def laws(noise: NDArray[np.int64], chance: Any, moved: Moved) -> tuple[Any, Any]:
    """Probabilities of all that may be released, without the record and with it."""
    other = noise.copy()
    for step in range(STEPS):
        other[step] += moved(step, other[:step])
    least = min(noise.min(), other.min())
    size = (max(noise.max(), other.max()) - least + 1,) * STEPS
    found = np.zeros((2, math.prod(size)))
    for law, released in zip(found, (noise, other), strict=True):
        np.add.at(law, np.ravel_multi_index(tuple(released - least), size), chance)
    return found[0], found[1]


def above(first: Any, second: Any, real: tuple[Any, Any], odds: NDArray[np.float64]) -> float:
    """By how much the curve of a pair lies above that of a real one, at most; both ways."""
    pairs = (((first, second), real), ((second, first), real[::-1]))
    return max(
        float(np.maximum(p - e * q, 0.0).sum() - np.maximum(r - e * s, 0.0).sum())
        for (p, q), (r, s) in pairs
        for e in odds
    )


def real_pair(apart: float, rate: float) -> tuple[Any, Any]:
    """A real Gaussian release in fine cells, with a record that takes part at a rate."""
    edges = np.linspace(-9.0, 9.0 + apart, 40_001)
    without, present = (np.diff(stats.norm.cdf(edges - at)) for at in (0.0, apart))
    return without, (1.0 - rate) * without + rate * present


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("adaptive", [False, True])
def test_a_run_is_as_private_as_is_charged(
    name: str, adaptive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    correlation, groups = RUNS[name]

    def moved(step: int, before: NDArray[np.int64]) -> Any:
        if step % groups:
            return 0
        return np.where(before[-1] % 2, -APART, APART) if adaptive and step else APART

    of = course(correlation, STEPS, groups)
    first, second = laws(*every_noise(of, monkeypatch), moved)
    odds = np.exp(np.linspace(0.0, 6.0, 13))
    wide = APART + rounding_of(of).excess(SCALE)
    charged = real_pair(of.sensitivity * wide / SCALE, 1.0)
    assert above(first, second, charged, odds) <= 1e-7
    if not adaptive:  # so the cost of rounding is there, and is seen
        without = real_pair(of.sensitivity * APART / SCALE, 1.0)
        assert above(first, second, without, odds) > 1e-3


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_a_turn_with_a_coin_is_as_private_as_is_charged(
    rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = course(tacit.Banded(3, coefficients=(1.0, 0.5, 0.3)), STEPS, 3)
    first, present = laws(*every_noise(of, monkeypatch), lambda step, _: 0 if step else APART)
    second = (1.0 - rate) * first + rate * present
    odds = np.exp(np.linspace(-2.0, 4.0, 13))
    wide = APART + rounding_of(of).excess(SCALE)
    assert above(first, second, real_pair(wide / SCALE, rate), odds) <= 1e-7
    assert above(first, second, real_pair(APART / SCALE, rate), odds) > 1e-3


def test_what_is_mixed_stays_within_whole_numbers_of_64_bits() -> None:
    """A strategy whose inverse grows: halving the step would let all of it grow, without end."""
    inexact = (1.0 - 2.0**-24) / (2.5 * 2.0**15)  # just within what the clip allows
    with pytest.raises(InvalidArgument, match="correlation must leave less to rounding"):
        finer_grid(1.0, 1.0, 100, Rounding(1.0, inexact, 1.5), rounded=False)
