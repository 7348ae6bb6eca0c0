"""Random streams, and what is drawn from them: who is sampled, and noise of every kind.

- Streams of bytes: `SecureStream` (or `fresh_stream`, which takes it where it can), `SystemStream`,
  `SharedStream` of several processes, `KeyedStream` of places, and `UnsafeSeededStream` for tests.
- Sampling: `included` (Poisson), `assigned` (one lot each), `subset`.
- Noise for gradients: `GaussianSource` (fast, floating point), `CorrelatedSource` (the same,
  correlated over steps), `RoundedGaussian` (exact, whole numbers), `CorrelatedIntegers` (whole
  numbers, correlated); a `Share` of a draw where several processes draw together.
- Noise for released numbers: `grid_laplace`, `grid_gaussian`; whole-number noise with exact laws:
  `discrete_laplace`, `discrete_gaussian`, `rounded_laplace`, `rounded_gaussian`.

Nothing here reads or moves the random state of torch, NumPy or Python.
"""

from __future__ import annotations

from tacit.randomness.correlated import CorrelatedIntegers, CorrelatedSource, NoiseMemory
from tacit.randomness.discrete import discrete_gaussian, discrete_laplace, rounded_laplace
from tacit.randomness.gaussian import GaussianSource, RoundedGaussian, Share, rounded_gaussian
from tacit.randomness.grid import granularity, grid_gaussian, grid_laplace, on_grid, power_below
from tacit.randomness.inclusion import assigned, included, subset
from tacit.randomness.streams import (
    KeyedStream,
    SecureStream,
    SharedStream,
    Stream,
    SystemStream,
    UnsafeSeededStream,
    fresh_stream,
    this_process,
)

__all__ = [
    "CorrelatedIntegers",
    "CorrelatedSource",
    "GaussianSource",
    "KeyedStream",
    "NoiseMemory",
    "RoundedGaussian",
    "SecureStream",
    "Share",
    "SharedStream",
    "Stream",
    "SystemStream",
    "UnsafeSeededStream",
    "assigned",
    "discrete_gaussian",
    "discrete_laplace",
    "fresh_stream",
    "granularity",
    "grid_gaussian",
    "grid_laplace",
    "included",
    "on_grid",
    "power_below",
    "rounded_gaussian",
    "rounded_laplace",
    "subset",
    "this_process",
]
