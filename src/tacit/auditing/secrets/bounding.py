"""What exposed secrets say of ε."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tacit._validation import probability
from tacit.auditing.statistics.bound import LowerBound, delta_of, failure_rate
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable

RANDOM_SECRETS = (
    "each secret was drawn at random from all possible ones, and all its copies were in one unit"
)


def exposure_bound(p_values: Iterable[float], delta: float, confidence: float = 0.95) -> LowerBound:
    """The least ε under which secrets can be as exposed as these.

    A model that was trained without a secret's unit knows nothing of the secret, whose p-value is
    then at most t with probability t at most. So with the unit that has a probability of at most
    e^ε t + δ, and one of m secrets is there with probability m (e^ε t + δ) at most. Set to the
    failure rate α and solved at the least p-value, that is ε ≥ ln((α/m - δ)/t). The secrets need
    not be independent, and may be in one model.

    Args:
        p_values: Of all secrets that were planted, also of those that were not found.
        delta: The δ that the bound is meant for.
        confidence: Of the bound.

    Guarantee:
        As for ``LowerBound``, under add-remove, where a unit is left out.

    >>> round(exposure_bound([1e-9], 1e-5).epsilon, 2)
    17.73
    >>> exposure_bound([0.2, 0.7, 0.4], 1e-5).epsilon
    0.0
    """
    values = [probability("p_values", value) for value in p_values]
    if not values or min(values) == 0.0:
        raise InvalidArgument("p_values must hold at least one, and none may be 0")
    failed, least = delta_of(delta), min(values)
    spare = failure_rate(confidence) / len(values) - failed
    return LowerBound(
        max(0.0, math.log(spare / least)) if spare > 0.0 else 0.0,
        failed,
        confidence,
        "the most exposed secret",
        RANDOM_SECRETS,
        (("secrets", len(values)), ("least_p_value", least)),
    )
