"""Who is in a lot: the ways of sampling that a plan may name, and the sampler that does it.

The sampler takes its rate and its sizes from the plan, and its randomness from a stream of its own.
What it draws is private: which records were drawn, and how many, must stay in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, final

import numpy as np

from tacit._validation import whole
from tacit.randomness import included, subset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.randomness import Stream
    from tacit.training.plan import Plan


_MOST_LOTS, _MOST_COINS = 16, 1 << 19  # drawn at once, where that is wanted


@final
@dataclass(frozen=True, slots=True)
class Poisson:
    """Each record joins each lot independently with probability lot_size/examples."""


@final
@dataclass(frozen=True, slots=True)
class FullBatch:
    """Every lot is the whole data set."""


@final
@dataclass(frozen=True, slots=True)
class TruncatedPoisson:
    """Poisson sampling, save that a lot of more than ``largest`` records is cut down to that many.

    The records that stay are a uniform choice. What cutting costs is charged in δ, at the chance
    that any lot is cut: leave ``largest`` ten or so standard deviations √lot_size above
    ``lot_size``, and the cost is nil.
    """

    largest: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "largest", whole("largest", self.largest))


Sampling: TypeAlias = Poisson | FullBatch | TruncatedPoisson


@final
class LotSampler:
    """Draws the lots of a plan, one after the other.

    Guarantee:
        Lots are independent of each other and of everything but ``stream``, and are distributed as
        the plan's event says: each record is in with probability ``plan.sample_rate`` (to within
        2⁻⁶⁴), independently of the others; or every record is; or, of a Poisson sample above
        ``largest``, a uniform subset of that size.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> from tacit.training.plan import Plan
    >>> plan = Plan(examples=10, lot_size=2, steps=5, noise_multiplier=1.0, clip=1.0)
    >>> sampler = LotSampler(plan, UnsafeSeededStream(0, "lots"))
    >>> [sampler.draw().tolist() for _ in range(4)]
    [[1, 2, 3, 5, 9], [3, 9], [], [1]]
    """

    def __init__(self, plan: Plan, stream: Stream, *, ahead: bool = False) -> None:
        """With ``ahead``, the coins of several lots are flipped at once, which takes less time."""
        self._plan = plan
        self._rate = plan.sample_rate
        self._stream = stream
        self._at_once = max(1, min(_MOST_LOTS, _MOST_COINS // plan.examples)) if ahead else 1
        self._waiting: list[NDArray[np.int64]] = []

    def draw(self) -> NDArray[np.int64]:
        """The records of the next lot, in increasing order; there may be none.

        A record is an example's place in the data set, or a user's among the users.
        """
        plan = self._plan
        if isinstance(plan.sampling, FullBatch):
            return np.arange(plan.examples, dtype=np.int64)
        drawn = self._next_sample()
        if isinstance(plan.sampling, TruncatedPoisson) and len(drawn) > plan.sampling.largest:
            return subset(drawn, plan.sampling.largest, self._stream)
        return drawn

    def _next_sample(self) -> NDArray[np.int64]:
        """The next Poisson sample. Those of several lots are one sample of so many times all."""
        records, lots = self._plan.examples, self._at_once
        if lots == 1:
            return included(records, self._rate, self._stream)
        if not self._waiting:
            joined = included(records * lots, self._rate, self._stream)
            ends = np.searchsorted(joined, np.arange(1, lots) * records)
            parts = np.split(joined, ends)
            self._waiting = [part - at * records for at, part in enumerate(parts)][::-1]
        return self._waiting.pop()
