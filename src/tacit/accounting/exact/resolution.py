"""How finely the exact accountant computes. Coarser settings widen its bounds; none voids them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

UNIT_ROUNDOFF = {np.float64: 2.0**-53, np.float32: 2.0**-24}


@dataclass(frozen=True)
class Resolution:
    """Numerical effort. The defaults serve everyone; tests coarsen each to prove its error term.

    Two integrals are computed by the trapezoid rule: the moment-generating function, over the
    mechanism's output x, and the privacy profile, over the imaginary part u of the tilt.
    """

    relative_error: float = 1e-13
    """What each error term of δ may be, relative to δ, before rounding."""
    output_density: float = 1.0
    """Nodes in x, relative to what the error bound asks for (quadrature error)."""
    output_reach: float = 1.0
    """Range of x, relative to what the error bound asks for (truncation error)."""
    contour_density: float = 1.0
    """Nodes in u, relative to what the error bound asks for (aliasing error)."""
    contour_reach: float = 1.0
    """Range of u, relative to what the error bound asks for (tail error)."""
    dtype: type[np.floating[Any]] = np.float64
    """Arithmetic in which the nodes are computed (rounding error)."""
    most_outputs: int = 40_000
    """Nodes in x past which the contour gives up."""
    most_nodes: int = 4_000_000
    """Nodes in u past which a sum gives up."""
    most_work: float = 3e7
    """Nodes in x times nodes in u past which the contour gives up."""
    lattice_nodes: int = 2**16
    """Points, about, of the lattice onto which cells are moved: more narrow the bracket."""
    lower_end: bool = True
    """Whether the lower end is asked for too, where it takes a sum of its own."""

    @property
    def digits(self) -> float:
        """-ln(relative_error)."""
        return -math.log(self.relative_error)

    @property
    def unit_roundoff(self) -> float:
        """Half the distance from 1 to the next number of ``dtype``."""
        return UNIT_ROUNDOFF[self.dtype]
