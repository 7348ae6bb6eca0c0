"""Every injected bug, by component."""

from __future__ import annotations

from . import (
    charging,
    clipping,
    correlated,
    course,
    flow,
    gradients,
    noise,
    norms,
    ranks,
    resuming,
    reuse,
    sampling,
)

MUTANTS = (
    *sampling.MUTANTS,
    *gradients.MUTANTS,
    *clipping.MUTANTS,
    *norms.MUTANTS,
    *noise.MUTANTS,
    *reuse.MUTANTS,
    *charging.MUTANTS,
    *flow.MUTANTS,
    *resuming.MUTANTS,
    *ranks.MUTANTS,
    *correlated.MUTANTS,
    *course.MUTANTS,
)
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
