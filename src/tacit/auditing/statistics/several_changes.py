"""What a guarantee for one record says of inputs that differ in several."""

from __future__ import annotations

import math


def pair_for(epsilon: float, delta: float, changes: int) -> tuple[float, float]:
    """(kε, δ(1 + e^ε + … + e^((k-1)ε))): what (ε, δ) for one change says of k (Vadhan 2017, 2.2).

    >>> pair_for(1.0, 1e-5, 1)
    (1.0, 1e-05)
    >>> epsilon, delta = pair_for(1.0, 1e-5, 2)
    >>> epsilon, round(delta, 8)
    (2.0, 3.718e-05)
    """
    if delta == 0.0:
        return changes * epsilon, 0.0
    exponents = [place * epsilon for place in range(changes)]
    if exponents[-1] + math.log(delta) >= 0.0:  # before e^… overflows
        return changes * epsilon, 1.0
    return changes * epsilon, min(1.0, delta * math.fsum(map(math.exp, exponents)))
