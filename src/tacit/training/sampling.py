"""Who is in a lot: the ways of sampling that a plan may name, and the sampler that does it.

The sampler takes its rate and its sizes from the plan, and its randomness from a stream of its own.
What it draws is private: which records were drawn, and how many, must stay in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np

from tacit._validation import whole
from tacit.errors import CheckpointError, ProtocolError
from tacit.randomness import assigned, included, subset
from tacit.randomness.streams import chacha20, one_time_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from tacit.randomness import Stream
    from tacit.training.plan import Plan


_MOST_LOTS, _MOST_COINS = 16, 5 << 15  # drawn at once, where that is wanted


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
    """Poisson sampling, except that a lot of more than ``largest`` records is cut to that many.

    The records that stay are a uniform choice. What cutting costs is charged in δ, at the chance
    that any lot is cut: leave ``largest`` ten or so standard deviations √lot_size above
    ``lot_size``, and the cost is nil.
    """

    largest: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "largest", whole("largest", self.largest))


@final
@dataclass(frozen=True, slots=True)
class Allocation:
    """Each record is in exactly one lot of every epoch, drawn at random, afresh for each epoch.

    An epoch has ⌈examples/lot_size⌉ lots, whose sizes are random ("balls in bins"). It is a pass
    over the data, as shuffling gives, but unlike shuffling it has a guarantee that is known.
    """


@final
@dataclass(frozen=True, slots=True)
class Cyclic:
    """Each lot is one of examples/lot_size groups, in turn; a record always stays in its group.

    Records are dealt into the groups at random, once. It is for correlated noise: nothing is gained
    in privacy by sampling, and every record comes back at equal distances.
    """


Sampling: TypeAlias = Poisson | FullBatch | TruncatedPoisson | Allocation | Cyclic


@final
class RunningEpoch:
    """Who is in which lot of the epoch that is under way: SECRET until the epoch is over.

    It joins the checkpoint, for an epoch must go on with its own lots: a record that was in one
    must not come again. Between epochs it holds nothing.
    """

    def __init__(self, plan: Plan, order: Callable[[], str] = str) -> None:
        """``order`` tells the records' places from those of another run of the program.

        It may read some of them, and is asked where a lot is drawn, which is charged by then.
        """
        self._plan, self._order_of_data = plan, order
        self._known = ""  # the order by which the lots are
        self.lost = 0  # steps of the run that were charged and lost before
        self._lots: NDArray[np.int64] | None = None
        self._order: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._ends: list[int] = []
        self._next = 0

    @property
    def is_over(self) -> bool:
        """Whether the next lot is the first of another epoch."""
        return self._next == len(self._ends)

    @property
    def drawn(self) -> int:
        """How many of its lots were drawn; 0 once it is over."""
        return self._next

    def begin(self, lots: NDArray[np.int64], count: int) -> None:
        """Starts an epoch of ``count`` lots; ``lots`` says which one each record is in."""
        self._lots, self._next, self._known = lots, 0, self._order_of_data()
        self._order = np.argsort(lots, kind="stable")
        self._ends = np.cumsum(np.bincount(lots, minlength=count)).tolist()

    def draw(self) -> NDArray[np.int64]:
        """The records of the epoch's next lot, in increasing order."""
        start = self._ends[self._next - 1] if self._next else 0
        drawn = self._order[start : self._ends[self._next]]
        self._next += 1
        if self.is_over:
            self.drop()
        return drawn

    def drop(self) -> None:
        """Forgets the epoch; the next lot is the first of another one."""
        self._lots, self._order, self._ends, self._next = None, self._order[:0], [], 0

    def state_dict(self) -> dict[str, Any]:
        """The lots of all records, and how many of the lots were drawn."""
        held = np.empty(0, dtype=np.int64) if self._lots is None else self._lots
        return {
            "lots": held.astype(np.int32),
            "count": len(self._ends),
            "drawn": self._next,
            "lost": self.lost,
            "order": self._known if self._ends else "",
        }

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Goes on with the epoch of a checkpoint; one that is not of the plan is refused."""
        lots = np.asarray(state_dict["lots"]).astype(np.int64)
        count, drawn = int(state_dict["count"]), int(state_dict["drawn"])
        places = (self._plan.examples, self._plan.steps_per_epoch) if count else (0, 0)
        fits = (lots.shape, count) == ((places[0],), places[1]) and 0 <= drawn <= max(count - 1, 0)
        if not fits or (count and not 0 <= lots.min() <= lots.max() < count):
            raise CheckpointError("the checkpoint's epoch is not one of its plan's")
        _checked_order(state_dict, self._order_of_data)
        self.drop()
        self.lost = int(state_dict["lost"])
        if count:
            self.begin(lots, count)
            self._next = drawn


@final
class LotSampler:
    """Draws the lots of a plan, one after the other.

    Guarantee:
        Lots are independent of each other and of everything but ``stream``, and are distributed as
        the plan's event says: each record is in with probability ``plan.sample_rate`` (to within
        2⁻⁶⁴), independently of the others; or every record is; or, of a Poisson sample above
        ``largest``, a uniform subset of that size. Under ``Allocation`` each record is in exactly
        one lot of every epoch, each equally likely, independently of all other records and epochs.
        Where the plan has ``groups``, records are in them as ``Groups`` dealt them; step t takes
        the group t modulo their number, whole, or each of its records with that many times the
        plan's rate.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> from tacit.training.plan import Plan
    >>> plan = Plan(examples=10, lot_size=2, steps=5, noise_multiplier=1.0, clip=1.0)
    >>> sampler = LotSampler(plan, UnsafeSeededStream(0, "lots"))
    >>> [sampler.draw().tolist() for _ in range(4)]
    [[1, 2, 3, 5, 9], [3, 9], [], [1]]
    """

    def __init__(
        self,
        plan: Plan,
        stream: Stream,
        *,
        ahead: bool = False,
        epoch: RunningEpoch | None = None,
        groups: Groups | None = None,
    ) -> None:
        """With ``ahead``, the coins of several lots are flipped at once, which takes less time.

        ``epoch`` is the one to go on with, under ``Allocation``.
        """
        self._plan = plan
        self._epoch = epoch or RunningEpoch(plan)
        self._groups = groups
        self._position = 0  # of the next lot in the plan, where groups take turns
        self._rate = plan.sample_rate
        self._stream = stream
        self._at_once = max(1, min(_MOST_LOTS, _MOST_COINS // plan.examples)) if ahead else 1
        self._bounds = np.arange(self._at_once + 1) * plan.examples  # between lots drawn at once
        self._waiting: list[NDArray[np.int64]] = []

    def draw(self) -> NDArray[np.int64]:
        """The records of the next lot, in increasing order; there may be none.

        A record is an example's place in the data set, or a user's among the users.
        """
        plan = self._plan
        if self._groups is not None:
            return self._of_group(self._groups)
        if isinstance(plan.sampling, FullBatch | Cyclic):  # a single group is everybody
            return np.arange(plan.examples, dtype=np.int64)
        if isinstance(plan.sampling, Allocation):
            if self._epoch.is_over:
                lots = plan.steps_per_epoch
                self._epoch.begin(assigned(plan.examples, lots, self._stream), lots)
            return self._epoch.draw()
        drawn = self._next_sample()
        if isinstance(plan.sampling, TruncatedPoisson) and len(drawn) > plan.sampling.largest:
            return subset(drawn, plan.sampling.largest, self._stream)
        return drawn

    @property
    def keeps_place(self) -> bool:
        """Whether a lot is that of one step of the plan, so that ``go_to`` comes before it."""
        return self._groups is not None or isinstance(self._plan.sampling, Allocation)

    def go_to(self, position: int) -> None:
        """The next lot is that of this step of the plan: only then a group's turn is right.

        Raises:
            ProtocolError: if an epoch is at another lot: one was drawn and left, uncharged.
        """
        of_epochs = isinstance(self._plan.sampling, Allocation)
        if of_epochs and self._epoch.drawn != position % self._plan.steps_per_epoch:
            raise ProtocolError(
                "a lot of the epoch was drawn and left without dp.step(), which no ledger counts: "
                "epochs that do not end where the plan's do would be more than it is charged for; "
                "go on from a checkpoint, or start again"
            )
        self._position = position

    def _of_group(self, groups: Groups) -> NDArray[np.int64]:
        members = groups.members(self._position % self._plan.groups)
        self._position += 1
        if isinstance(self._plan.sampling, Cyclic):
            return members
        return members[included(len(members), self._plan.group_rate, self._stream)]

    def _next_sample(self) -> NDArray[np.int64]:
        """The next Poisson sample."""
        if self._at_once == 1:
            return included(self._plan.examples, self._rate, self._stream)
        if not self._waiting:
            self._waiting = self._several()
        return self._waiting.pop()

    def _several(self) -> list[NDArray[np.int64]]:
        """The samples of several lots, last first: they are one of so many times all records."""
        joined = included(self._plan.examples * self._at_once, self._rate, self._stream)
        places = joined.searchsorted(self._bounds)
        joined -= self._bounds[:-1].repeat(places[1:] - places[:-1])
        return [joined[start:end] for start, end in pairwise(places.tolist())][::-1]


# ---- groups that take turns


@final
class Groups:
    """Which of a plan's groups each record is in: dealt at random, once for a whole run.

    Guarantee:
        Each record's group is uniform (to within 2⁻⁵⁰) and independent of the others', whatever its
        place: whether another record is there or not changes nothing of it. Who is in which group
        may be known. A checkpoint keeps the key, so that a resumed run has the same groups, as long
        as they are ``needed``: where a record is missing, the same key deals those behind it into
        other groups than before, and together with what was released it would tell.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> groups = Groups(10, 3, UnsafeSeededStream(0, "groups"))
    >>> [groups.members(at).tolist() for at in range(3)]
    [[1, 3], [0, 2, 4, 6, 7, 8, 9], [5]]
    """

    def __init__(
        self, records: int, count: int, stream: Stream, order: Callable[[], str] = str
    ) -> None:
        """``order`` is as for ``RunningEpoch``."""
        self._records, self._count, self._order = records, count, order
        self._known = ""  # the order by which groups were dealt; none before the first lot
        self._key = bytes(one_time_key(stream))
        self.needed = True  # until the last step
        self._members: list[NDArray[np.int64]] | None = None

    def members(self, group: int) -> NDArray[np.int64]:
        """The records of a group, in increasing order."""
        if self._members is None:
            self._known = self._order()
            words = np.frombuffer(chacha20(self._key).stream(8 * self._records), np.uint64)
            dealt = (words % np.uint64(self._count)).astype(np.int64)
            order = np.argsort(dealt, kind="stable")
            ends = np.searchsorted(dealt[order], np.arange(1, self._count))
            self._members = [one.astype(np.int64) for one in np.split(order, ends)]
        return self._members[group]

    def state_dict(self) -> dict[str, Any]:
        """The key, for a checkpoint, and the order that it is about; none after the last step."""
        return {"key": self._key.hex(), "order": self._known} if self.needed else {"key": ""}

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Takes up the groups of a checkpoint."""
        key = bytes.fromhex(str(state_dict["key"]))
        if len(key) not in (0, len(self._key)):
            raise CheckpointError("the checkpoint's key of groups is not of 32 bytes")
        self._known = _checked_order(state_dict, self._order)
        self.needed = bool(key)
        if key:
            self._key, self._members = key, None


def _checked_order(before: Mapping[str, Any], order: Callable[[], str]) -> str:
    """The order of a checkpoint; other records in the places by which it names them are refused.

    A record that has moved would come again in its epoch, or before its group's turn.
    """
    known = str(before.get("order", ""))
    if known and known != order():
        raise CheckpointError(
            "dataset must hold the records that it held before, in the same order: who is in which "
            "lot goes by their places; seed random_split, and sort lists of files"
        )
    return known
