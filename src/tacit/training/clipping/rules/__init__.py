"""The rules: one file per kind of operation, keyed by the torch function it serves.

A rule has two halves. *Recording* redoes the call with its weights detached and saves what the
gradient will need; *gradients* is a pure function of what was saved and of the result's gradient,
and returns a form per weight. A faster path for an operation belongs into its form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit.training.clipping.rules import (
    attention,
    convolution,
    elementwise,
    embedding,
    linear,
    normalisation,
    recurrent,
)
from tacit.training.clipping.rules.fallback import fallback

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.training.clipping.recorder import Record

RULES: dict[Callable[..., Any], Record] = {
    **linear.RECORDS,
    **convolution.RECORDS,
    **embedding.RECORDS,
    **normalisation.RECORDS,
    **elementwise.RECORDS,
    **elementwise.EXPANSION_RECORDS,
    **elementwise.JOINING_RECORDS,
    **attention.RECORDS,
    **recurrent.RECORDS,
}

# Served even if no data enters: they turn a weight into data, or into one that rules know again.
EXPANSIONS: dict[Callable[..., Any], Record] = {
    **convolution.DERIVED_RECORDS,
    **elementwise.EXPANSION_RECORDS,
    **embedding.CONSTANT_RECORDS,
}

__all__ = ["EXPANSIONS", "RULES", "fallback"]
