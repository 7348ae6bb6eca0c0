"""One secret under one model: its exposure in every way, and whether it can be extracted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from tacit.auditing.secrets.exposure import (
    Exposure,
    exposure_by_extrapolation,
    exposure_by_sampling,
    exposure_of_rank,
)
from tacit.auditing.secrets.scoring import log_perplexities
from tacit.auditing.secrets.searching import Extracted, beam, exact_rank, greedy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.auditing.secrets.scoring import NextToken
    from tacit.auditing.secrets.spaces import Space


@final
@dataclass(frozen=True, slots=True)
class Measured:
    """What was found of one secret.

    Attributes:
        log_perplexity: The secret's, in bits.
        sampled: Its exposure among random candidates; its p-value takes nothing for granted.
        extrapolated: Its exposure by the skew normal law.
        ranked: Its exposure by the exact rank in the whole space; None where that takes too long,
            which is so for secrets that are not memorised.
        greedy: What greedy search takes out of the model.
        best: The likeliest secret that beam search takes out.
        found: The secret's place among what beam search takes out, from 1; None if it is not there.
        greedy_found: Whether greedy search takes out the secret.
    """

    log_perplexity: float
    sampled: Exposure
    extrapolated: Exposure
    ranked: Exposure | None
    greedy: Extracted
    best: Extracted
    found: int | None
    greedy_found: bool

    @property
    def exposure(self) -> Exposure:
        """The most exact of the three: by rank, by the sample where it reaches, extrapolated.

        A sample that has nothing as likely as the secret says only that its exposure is no less;
        then the law is taken, if it fits.
        """
        if self.ranked is not None:
            return self.ranked
        beyond = self.sampled.bits == self.sampled.most and self.extrapolated.holds
        return self.extrapolated if beyond else self.sampled

    @property
    def p_value(self) -> float:
        """How likely a secret that the model never saw is to be so exposed, by rank or sample.

        Twice the smaller of the two: whether there is a rank depends on the secret.
        """
        found = [one.p_value for one in (self.sampled, self.ranked) if one is not None]
        return min(1.0, 2.0 * min(found))

    @property
    def extracted(self) -> bool:
        """Whether a search takes out the secret: greedily, or as the first of the beam."""
        return self.found == 1 or self.greedy_found


def measure(
    next_token: NextToken,
    space: Space,
    secret: Sequence[int],
    *,
    candidates: int = 10_000,
    width: int = 100,
    limit: int = 20_000,
    seed: int | np.random.Generator | None = None,
) -> Measured:
    """Measures a secret's exposure under a model, and tries to extract it.

    Args:
        next_token: The model.
        space: What the secret was drawn from; it must have been drawn at random for ``p_value``
            to mean anything.
        secret: Its tokens.
        candidates: How many other secrets are drawn to compare it with.
        width: Of the beam.
        limit: Of the search for the exact rank.
        seed: Of the candidates.

    What is found is computed from the secret, with no privacy: it is for whoever planted it.

    >>> from tacit.auditing.secrets import Space
    >>> chain = np.log([[0.1, 0.9], [0.9, 0.1]])  # a model that likes to alternate
    >>> space = Space(start=(0,), choices=((0, 1),) * 12)
    >>> found = measure(lambda tokens: chain[tokens], space, (1, 0) * 6, candidates=1000, seed=0)
    >>> found.exposure.bits, found.extracted
    (12.0, True)
    """
    own = space.checked(secret)
    others = space.sample(candidates, seed=seed)
    values = log_perplexities(next_token, space, np.concatenate([own[None], others]))
    value, sample = float(values[0]), values[1:]
    rank = exact_rank(next_token, space, value, limit=limit)
    beams = beam(next_token, space, width=width)
    first, planted = greedy(next_token, space), tuple(own.tolist())
    places = [number for number, one in enumerate(beams, 1) if one.secret == planted]
    return Measured(
        log_perplexity=value,
        sampled=exposure_by_sampling(value, sample),
        extrapolated=exposure_by_extrapolation(value, sample, size=space.size),
        ranked=None if rank is None else exposure_of_rank(rank, space.size),
        greedy=first,
        best=beams[0],
        found=places[0] if places else None,
        greedy_found=first.secret == planted,
    )
