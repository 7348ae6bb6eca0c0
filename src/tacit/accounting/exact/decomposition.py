"""From an event to the dominating pairs of its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.accounting.black_boxes import is_direct
from tacit.accounting.choices import concrete
from tacit.accounting.events import (
    BlackBox,
    GaussianMixture,
    PoissonSampled,
    SampledWithoutReplacement,
    SampledWithReplacement,
)
from tacit.accounting.exact.base_pairs import base_pair, distance_of
from tacit.accounting.exact.mixture_nodes import Side
from tacit.accounting.exact.pairs import Decomposition, Part
from tacit.accounting.exact.sampled_pairs import (
    mixture_part,
    poisson_part,
    with_replacement_part,
    without_replacement_part,
)
from tacit.accounting.normal_form import parts
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency, Event


def decompose(event: Event, adjacency: Adjacency) -> Decomposition:
    """The dominating pairs of ``event``.

    Raises:
        UnsupportedEvent: if a part of it has none that we know.
    """
    found = [(_part(part, adjacency), count) for part, count in parts(event, adjacency)]
    return Decomposition(tuple((part, count) for part, count in found if part is not None))


def _part(given: Event, adjacency: Adjacency) -> Part | None:
    """The pair of one part; None if it gives nothing away."""
    event = concrete(given, adjacency)
    # Two steps of another adjacency are a bound that no mechanism need attain.
    tight = not isinstance(given, BlackBox) or is_direct(given, adjacency)
    match event:
        case PoissonSampled():
            return poisson_part(event, adjacency)
        case SampledWithoutReplacement():
            return without_replacement_part(event, adjacency)
        case SampledWithReplacement():
            return with_replacement_part(event, adjacency)
        case GaussianMixture(sigma, weights, shifts):
            if adjacency == "replace-one":
                raise UnsupportedEvent(event, "exact", "a mixture is known under add-remove only")
            return mixture_part(sigma, Side(weights, shifts))
        case _:
            pair = base_pair(event, distance_of(event, adjacency))
            return None if pair is None else Part(pair, tight=tight)
