"""Random streams, and what is drawn from them: who is sampled, and Gaussian noise.

Nothing here reads or moves the random state of torch, NumPy or Python.
"""

from __future__ import annotations

from tacit.randomness.gaussian import GaussianSource
from tacit.randomness.inclusion import included, subset
from tacit.randomness.streams import Stream, SystemStream, UnsafeSeededStream

__all__ = [
    "GaussianSource",
    "Stream",
    "SystemStream",
    "UnsafeSeededStream",
    "included",
    "subset",
]
