"""Physical batches: which rows stand for a unit, how many units fit, and how a lot is cut.

A batch that is checked is repeated with some of its units replaced: such probes are made here too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import torch
from torch.utils._pytree import tree_flatten

from tacit.data.units import unit_numbers
from tacit.errors import InvalidArgument
from tacit.randomness import KeyedStream, subset
from tacit.randomness.streams import one_time_key
from tacit.training.loaders import OnDevice, leaves_of, over, shapes
from tacit.training.sampling import FullBatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Literal

    from numpy.typing import NDArray
    from torch import Tensor

    from tacit.randomness import Stream
    from tacit.training.loaders import Loader
    from tacit.training.performance import Performance
    from tacit.training.plan import Plan

# In a small batch one unit's share of whatever is mixed is large, and the check costs little.
WATCHED_UNITS = 8
_FIRST_ROWS = 32  # what an unknown model is first tried with on a GPU
_CPU_ROWS = 1024
_SHARE = 0.8  # of the free memory that a batch may be expected to take
_GROWTH = 32  # at most, from one batch to the next
_MOST_LENGTHS = 8  # each makes a shape of its own, of which few are recorded
_FINEST = 1024  # lengths that are compared with one another
# What a batch takes beside its tokens, in tokens: on a GPU, where launches take as long for few of
# them, and on a CPU, where 40 to 460 were measured for transformers 384 to 32 numbers wide.
_LAUNCHES, _CALLS = 4096, 128


@final
class Batch(NamedTuple):
    """What the session knows of a physical batch, beside the data."""

    units: NDArray[np.int64]  # the real ones; padding follows them
    rows: NDArray[np.int64]
    weights: NDArray[np.float32]
    per_unit: int
    padded_units: int  # with padding
    length: int = 1  # of its longest row, where lengths are known
    cut_to: int = 0  # the most units of the batches that it was cut with
    replaced: tuple[int, ...] = ()  # in a repetition for verification: units that are others now
    only: int | None = None  # in such a repetition: the one unit that counts, where it does
    is_plain: bool = False  # in such a repetition: all units count as they are
    is_company: bool = False  # none counts: other ranks compute a batch meanwhile

    def rows_of(self, unit: int) -> slice:
        """Where the rows of one of the units are."""
        return slice(unit * self.per_unit, (unit + 1) * self.per_unit)

    def replacing(self, others: Mapping[int, NDArray[np.int64]]) -> Batch:
        """The same batch with other rows for some units; as many as they had."""
        changed = self.rows.copy()
        for unit, rows in others.items():
            changed[self.rows_of(unit)] = np.resize(rows, self.per_unit)
        return self._replace(rows=changed, replaced=tuple(others))

    def counting_only(self, unit: int) -> Batch:
        """The same batch, in which the rows of one unit count and the others only keep company."""
        weights = np.zeros_like(self.weights)
        weights[self.rows_of(unit)] = self.weights[self.rows_of(unit)]
        return self._replace(weights=weights, only=unit)

    def alone(self, unit: int) -> Batch:
        """One unit without its company: a batch of it and of a copy that counts for nothing."""
        rows, weights = self.rows[self.rows_of(unit)], self.weights[self.rows_of(unit)]
        return self._replace(
            units=self.units[unit : unit + 1],
            rows=np.concatenate([rows, rows]),
            weights=np.concatenate([weights, np.zeros_like(weights)]),
            padded_units=2,
            only=0,
        )

    def among(self, size: int) -> Batch:
        """The same units among ``size``: copies of them, which count for nothing, follow."""
        rows = np.resize(self.rows, size * self.per_unit)
        weights = np.zeros(len(rows), dtype=np.float32)
        weights[: len(self.weights)] = self.weights
        return self._replace(rows=rows, weights=weights, padded_units=size, is_plain=True)

    @property
    def real_rows(self) -> slice:
        """Where the rows of the real units are, which come before the padding."""
        return slice(len(self.units) * self.per_unit)

    @property
    def repeats(self) -> bool:
        """Whether this is a repetition of a batch, which adds nothing to the sums, or company."""
        return bool(self.replaced) or self.is_dry or self.is_company

    @property
    def is_dry(self) -> bool:
        """Whether no dropout is done: the batch is compared with one of another shape."""
        return self.only is not None or self.is_plain

    @property
    def kept_rows(self) -> NDArray[np.int64]:
        """Where the rows of real units are that were not replaced."""
        units = np.setdiff1d(np.arange(len(self.units)), self.replaced)
        return (units[:, None] * self.per_unit + np.arange(self.per_unit)).ravel()


# ---- units


@final
class RowsOfUnits(NamedTuple):
    """The rows of a physical batch: ``per_unit`` consecutive ones for every unit.

    ``weights`` multiplies a row's loss: an equal share of its unit, or 0 for a row that only fills
    up the rectangle.
    """

    rows: NDArray[np.int64]
    weights: NDArray[np.float32]
    per_unit: int


@final
class Units:
    """The units of a plan's data set.

    A user's examples are averaged into one gradient before clipping. Of a user with more than the
    plan's ``examples_per_user``, a fresh uniform choice of that many is used each time.
    """

    def __init__(
        self,
        plan: Plan,
        groups: Sequence[int] | NDArray[np.int64] | None,
        stream: Stream,
        lengths: Sequence[int] | NDArray[np.int64] | None = None,
    ) -> None:
        self._plan = plan
        self._stream = stream
        self._members = None if groups is None else _members(groups, plan)
        self._counts = np.array([len(one) for one in self._members or ()], dtype=np.int64)
        self.lengths = None if lengths is None else self._of_longest(np.asarray(lengths, np.int64))
        self._most, self._shares = 0, np.empty(0, dtype=np.float32)  # see ``_shares_of``
        self._key = bytearray()
        self.renew()

    def renew(self) -> None:
        """A new lot: other examples of large users are chosen in it.

        The choice follows from a key of the lot and the user, so that it is the same in whichever
        batch, and on whichever rank, the user comes.
        """
        cap = self._plan.examples_per_user
        if cap is not None and self._counts.max(initial=0) > cap:
            self._key = one_time_key(self._stream)

    def _of_longest(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """The length of each unit: that of its longest row, rounded up to one of few."""
        if self._members is None:
            return few_lengths(lengths)
        return few_lengths(np.array([lengths[rows].max() for rows in self._members]))

    def width(self, units: NDArray[np.int64], *, widest: bool) -> int:
        """How many rows each of these units takes in a batch of them."""
        if self._members is None:
            return self._plan.views
        cap = self._plan.examples_per_user
        assert cap is not None
        longest = int(self._counts[units].max(initial=1))
        return (cap if widest else min(cap, longest)) * self._plan.views

    def rows(
        self, units: NDArray[np.int64], *, widest: bool, padded: int | None = None
    ) -> RowsOfUnits:
        """The rows of these units; ``widest`` fills every unit up to the largest possible.

        Rows of the first, which count for nothing, fill them up to those of ``padded`` units.
        """
        views, real, filled = self._plan.views, len(units), units
        if padded is not None and padded > real:
            filled = np.empty(padded, dtype=np.int64)
            filled[:real], filled[real:] = units, units[0]
        if self._members is None:
            rows = np.repeat(filled, views) if views > 1 else filled
            return RowsOfUnits(rows, self._shares_of(real, len(filled)), views)
        cap = self._plan.examples_per_user
        assert cap is not None
        chosen = [self._chosen(int(unit), self._members[unit], cap) for unit in filled]
        width = cap if widest else max((len(one) for one in chosen), default=1)
        rows = np.empty((len(filled), width, views), dtype=np.int64)
        weights = np.zeros((len(filled), width, views), dtype=np.float32)
        for at, members in enumerate(chosen):
            rows[at] = members[0]
            rows[at, : len(members)] = members[:, None]
            if at < real:
                weights[at, : len(members)] = 1.0 / (len(members) * views)
        return RowsOfUnits(rows.ravel(), weights.ravel(), width * views)

    def _shares_of(self, real: int, padded: int) -> NDArray[np.float32]:
        """Equal shares of ``real`` units of one example, and 0 for the others of ``padded``.

        Shares and noughts lie in one array for all batches, which nobody can write to.
        """
        views = self._plan.views
        if padded > self._most:
            self._most = 1 << padded.bit_length()
            self._shares = np.zeros(2 * self._most * views, dtype=np.float32)
            self._shares[: self._most * views] = 1.0 / views
            self._shares.flags.writeable = False
        start = (self._most - real) * views
        return self._shares[start : start + padded * views]

    def _chosen(self, user: int, members: NDArray[np.int64], cap: int) -> NDArray[np.int64]:
        if len(members) <= cap:
            return members
        return subset(members, cap, KeyedStream(self._key, user.to_bytes(12, "little")))


def _members(groups: Sequence[int] | NDArray[np.int64], plan: Plan) -> list[NDArray[np.int64]]:
    if plan.unit != "user":
        raise InvalidArgument(
            f"groups is given, but the plan's unit is {plan.unit!r}; make the plan with unit='user'"
        )
    owner, users = unit_numbers(groups)
    if users != plan.examples:
        raise InvalidArgument(
            f"groups names {users} users, but the plan is for examples={plan.examples} "
            "(which counts users when unit='user')"
        )
    order = np.argsort(owner, kind="stable").astype(np.int64)
    starts = np.searchsorted(owner[order], np.arange(1, users))
    return list(np.split(order, starts))


def few_lengths(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lengths, rounded up until few are left: next those of which the least padding comes.

    >>> few_lengths(np.array([3, 1, 3, 2])).tolist()
    [3, 1, 3, 2]
    >>> few_lengths(np.array([*range(1, 9), 100])).tolist()
    [2, 2, 3, 4, 5, 6, 7, 8, 100]
    """
    step = -(-int(lengths.max(initial=1)) // _FINEST)
    lengths = -(-lengths // step) * step
    kept, counts = np.unique(lengths, return_counts=True)
    while len(kept) > _MOST_LENGTHS:
        at = int(np.argmin(counts[:-1] * np.diff(kept)))
        counts[at + 1] += counts[at]
        kept, counts = np.delete(kept, at), np.delete(counts, at)
    return kept[np.searchsorted(kept, lengths)]


# ---- sizes


@final
class BatchSizer:
    """The sizes of physical batches.

    With ``"auto"`` on a GPU the first batches are small; the memory they took says how large the
    next may be. After running out of memory the limit is halved for good.

    Where the ``lengths`` of units are known, the limit is that of the longest: of shorter ones more
    fit into the same memory. Lengths that are worth no batch of their own are rounded up.
    """

    def __init__(
        self,
        plan: Plan,
        batch: int | Literal["auto"],
        device: torch.device,
        *,
        padded: bool,
        lengths: NDArray[np.int64] | None = None,
    ) -> None:
        self._plan = plan
        self._given = lengths
        self._full = isinstance(plan.sampling, FullBatch)
        self._padded = padded
        self._device = device
        self._measuring = batch == "auto" and device.type == "cuda"
        default = _FIRST_ROWS if self._measuring else _CPU_ROWS
        longest = 1 if lengths is None else int(lengths.max())
        # What a batch may hold: its rows times their length.
        self._room = (default if batch == "auto" else batch) * longest
        self._settled = not self._measuring
        self.lengths = lengths  # rounded up
        self._largest: dict[int, int] = {}  # by length: how many units few lots exceed
        self._arrange()

    @property
    def is_settled(self) -> bool:
        """Whether the next batches will be as large as the last."""
        return self._settled

    def units(self, per_unit: int, length: int = 1) -> int:
        """The most units of the next batch, of rows of this length."""
        most = self._fitting(per_unit, length)
        if not self._settled:
            return most
        return min(most, self._even_share(most, self._largest[length]))

    def may_hold_two(self, per_unit: int) -> bool:
        """Whether any batch may hold more than one unit."""
        return any(self.units(per_unit, length) > 1 for length in self._largest)

    def padded_to(self, units: int, most: int) -> int:
        """How many units a batch of ``units`` real ones, of ``most``, is filled up to."""
        return max(units, most) if self._padded and self._settled else units

    def before(self) -> None:
        """Starts to measure a batch."""
        if self._measuring and not self._settled:
            torch.cuda.reset_peak_memory_stats(self._device)
            self._base = torch.cuda.memory_allocated(self._device)

    def after(self, batch: Batch) -> None:
        """A batch went well: the next may be larger, by what it took."""
        if not self._measuring or self._settled:
            return
        size, room = len(batch.rows) * batch.length, self._room
        taken = torch.cuda.max_memory_allocated(self._device) - self._base
        free, _ = torch.cuda.mem_get_info(self._device)
        reserved = torch.cuda.memory_reserved(self._device)
        free += reserved - torch.cuda.memory_allocated(self._device)
        fitting = int(_SHARE * free * size / max(1, taken))
        is_full = size > room - batch.per_unit * batch.length
        self._room = max(1, min(fitting, room * _GROWTH))
        largest = max(length * units for length, units in self._largest.items()) * batch.per_unit
        measured = is_full and fitting <= room * _GROWTH
        # A lot that fits whole leaves no batch full: then one of its size must have been measured.
        whole = self._room >= (largest if 2 * size >= largest else 4 * largest)
        self._settled = measured or whole
        self._arrange()

    def shrink(self, batch: Batch) -> bool:
        """Memory ran out at a batch: halves the limit; False if it has only one unit."""
        self._settled = True
        half = max(1, batch.padded_units // 2) * batch.per_unit * batch.length
        self._room = min(self._room, half)  # a long row alone may be more than the limit
        self._arrange()
        return batch.padded_units > 1

    def _arrange(self) -> None:
        """Rounds lengths up, or not, as a mean lot takes least, and finds the largest lots.

        To round all of them up, which is to cut without lengths, is one of the ways.
        """
        if self._given is None:
            self._largest = {1: _largest_lot(self._plan, self._plan.examples)}
            return
        lengths, counts = np.unique(self._given, return_counts=True)
        # Of the shortest lengths: what their units take, and which of them are kept.
        best: list[tuple[float, list[int]]] = [(0.0, [])]
        for end in range(1, len(lengths) + 1):
            best.append(min(
                (best[start][0] + self._cost(lengths[start:end], counts[start:end]),
                 [*best[start][1], end - 1])
                for start in range(end)
            ))  # fmt: skip
        kept = lengths[best[-1][1]]
        place = np.searchsorted(kept, lengths)
        self.lengths = kept[place][np.searchsorted(lengths, self._given)]
        self._largest = {
            int(length): _largest_lot(self._plan, int(counts[place == at].sum()))
            for at, length in enumerate(kept)
        }

    def _cost(self, lengths: NDArray[np.int64], counts: NDArray[np.int64]) -> float:
        """What units of these lengths, which share batches, take in a mean lot, in tokens."""
        from scipy.special import pdtrc  # noqa: PLC0415 - only where lengths are known

        plan, count = self._plan, int(counts.sum())
        per_unit = plan.views * (plan.examples_per_user or 1)
        mean, largest = plan.lot_size * count / plan.examples, _largest_lot(plan, count)
        units = self._even_share(self._fitting(per_unit, int(lengths[-1])), largest)
        # There is one more batch where more units were drawn than those before it hold.
        before = np.arange(0, largest, units)
        batches = len(before) if self._full else float(pdtrc(before, mean).sum())
        # As wide as the longest of those that were drawn into a batch.
        up_to = (np.cumsum(counts) / count) ** (mean / batches)
        width = float(np.diff(up_to, prepend=0.0) @ lengths)
        if self._padded:
            return batches * (_LAUNCHES + units * per_unit * width)
        return batches * _CALLS + mean * per_unit * width

    def _fitting(self, per_unit: int, length: int) -> int:
        """How many units of these rows fit into the memory; one is tried in any case."""
        return max(1, self._room // (per_unit * length))

    def _even_share(self, most: int, lot: int) -> int:
        """Lots of nearly equal size are cut into equal batches, so that one shape serves all."""
        share = -(-lot // -(-lot // most))
        rounded = -(-share // 8) * 8
        return share if self._full or rounded > most else rounded


def _largest_lot(plan: Plan, units: int) -> int:
    """How many of these units few lots exceed: four standard deviations above the mean."""
    if isinstance(plan.sampling, FullBatch):
        return units
    mean = plan.lot_size * units / plan.examples
    return min(units, math.ceil(mean + 4 * math.sqrt(mean)))


# ---- cutting


@final
class Cutter:
    """Makes batches of units: as many as fit, padded to few shapes where that serves speed."""

    def __init__(
        self,
        plan: Plan,
        units: Units,
        loader: Loader,
        performance: Performance,
        device: torch.device,
        *,
        padded: bool,
    ) -> None:
        # Integer sums are the same however they are added up; gradients are, if each is computed
        # by itself.
        alone = plan.noise == "exact"
        rows = plan.views if alone else performance.batch
        lengths = None if alone else units.lengths
        self.sizer = BatchSizer(plan, rows, device, padded=padded, lengths=lengths)
        self._units = units
        self._loader = loader
        # The data set, if it lies on the model's device: then a batch is the numbers of its rows.
        self.resident = loader if isinstance(loader, OnDevice) else None
        self._examples = plan.examples
        self._padded = padded

    def begin(self) -> None:
        """A new lot."""
        self._units.renew()

    def explain(self) -> str:
        """What is made of lengths, in a line; nothing where none are known. They are secret."""
        if self._units.lengths is None:
            return ""
        if self.sizer.lengths is None:
            return "Lengths are not used: with noise='exact' every unit is computed by itself."
        return "Rows of like length share batches, which hold more of them the shorter they are."

    def ordered(self, left: NDArray[np.int64]) -> NDArray[np.int64]:
        """Units of one length after another; the longest first, whose memory serves all others."""
        if self.sizer.lengths is None:
            return left
        return left[np.argsort(-self.sizer.lengths[left], kind="stable")]

    def spread(self, left: NDArray[np.int64]) -> NDArray[np.int64]:
        """Units of lengths that are far apart come first, as many as are watched at a time.

        Lots come in the order of the data set, which may be sorted by length.
        """
        if self.sizer.lengths is None or self._units.lengths is None:
            return left
        by_length = left[np.argsort(-self._units.lengths[left], kind="stable")]
        few = min(len(left), self.size(left, watched=True))
        at = np.arange(few) * (len(left) - 1) // max(1, few - 1)
        return np.concatenate([by_length[at], np.delete(by_length, at)])

    def size(self, left: NDArray[np.int64], *, watched: bool) -> int:
        """The most units of the next batch of those ``left``; few, while batches are watched."""
        next_ones = left if watched else self._alike(left)
        most = self.sizer.units(self._width(next_ones), self._length(next_ones))
        return min(most, WATCHED_UNITS) if watched else most

    def cut(self, left: NDArray[np.int64], *, watched: bool) -> list[Batch]:
        """The units that are ``left``, as ``ordered``, in batches.

        A watched one is by itself, and holds units of any length: rows that are padded must count
        as they do alone.
        """
        if watched:
            size = self.size(left, watched=True)
            return [self._made(left[:size], size, min(len(left), size))]
        found: list[Batch] = []
        while len(left):
            size, alike = self.size(left, watched=False), self._alike(left)
            for at in range(0, len(alike), size):
                units = alike[at : at + size]
                found.append(self._made(units, size, self.sizer.padded_to(len(units), size)))
            left = left[len(alike) :]
        return found

    def _alike(self, left: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those at the beginning that are of one length."""
        if self.sizer.lengths is None:
            return left
        others = self.sizer.lengths[left] != self.sizer.lengths[left[:1]]
        return left[: int(others.argmax())] if others.any() else left

    def _length(self, units: NDArray[np.int64]) -> int:
        lengths = self.sizer.lengths
        return 1 if lengths is None else int(lengths[units].max())

    def company(self) -> Batch:
        """A batch of the first unit's rows that counts nothing, whoever was drawn."""
        chosen = self._units.rows(np.zeros(1, dtype=np.int64), widest=self._padded)
        nobody = np.empty(0, dtype=np.int64)
        weights = np.zeros_like(chosen.weights)
        return Batch(nobody, chosen.rows, weights, chosen.per_unit, 1, is_company=True)

    def loaded(self, batches: Sequence[Batch]) -> Iterator[Any]:
        """The data of each batch, in order."""
        return self._loader.batches([batch.rows for batch in batches])

    def probes(self, batch: Batch, data: Any, *, strangers: bool) -> Iterator[tuple[Batch, Any]]:
        """The batch with its last unit replaced, and with all but its first; one of them alone.

        And all of them in a batch as large as those of lots: what only large ones do, such as to
        drop all but the largest losses, shows nowhere else. None stands for data to be loaded.
        A batch that is padded to its longest row may change shape with one of its rows, and random
        numbers with it: then units of the batch itself stand in, of which one choice always fits.
        One unit by itself comes again as it is. Without ``strangers`` they do so in any case.
        """
        units, last = batch.units, len(batch.units) - 1
        if not last:  # nothing to mix with but what is kept: the very same, twice
            for _ in range(2):
                yield batch.counting_only(0), copied(data)
            return
        if strangers:
            self._check_order(batch, data)
        one = [{last: units[0]}, {0: units[last]}]
        rest = range(1, len(units))
        most = [{at: units[at + 1 if at < last else 1] for at in rest}]
        if strangers:
            others = (units + max(1, self._examples // 2)) % self._examples
            one.insert(0, {last: others[last]})
            most.insert(0, {at: others[at] for at in rest})
        for choices in (one, most):
            yield self._probe(batch, data, choices)
        is_fixed = same_tensors(data, next(self.loaded([batch])))
        unit, alone = self._alone(batch, data, is_fixed=is_fixed)
        if alone is None:
            return
        yield batch.counting_only(unit), copied(data)
        yield batch.alone(unit), alone
        size = self.sizer.units(batch.per_unit, batch.length)
        if size > len(units):
            crowd, rows = batch.among(size), len(batch.rows)
            yield batch.among(len(units)), copied(data)
            again = np.resize(np.arange(rows), len(crowd.rows))
            yield crowd, None if is_fixed else chosen_rows(data, again, rows)

    def _check_order(self, batch: Batch, data: Any) -> None:
        """Refuses a ``collate`` that moves units: whose rows are, and which count, goes by places.

        Its repetitions would agree, for it moves the same rows in all of them.
        """
        if self.resident is not None:
            return
        turned = batch.rows.reshape(-1, batch.per_unit)[::-1].ravel()
        again, other_way = (
            next(self.loaded([one])) for one in (batch, batch._replace(rows=turned))
        )
        if moves_units(data, again, other_way, batch.per_unit, len(batch.rows)):
            raise InvalidArgument(
                "collate must keep the rows of a batch in the order in which it is given them: "
                "whose they are, and which only pad the batch, goes by their places; sort nothing "
                "there (pack_padded_sequence takes enforce_sorted=False)"
            )

    def _alone(self, batch: Batch, data: Any, *, is_fixed: bool) -> tuple[int, Any]:
        """A unit and the data of its rows alone: shorter ones than in its batch, if it has any.

        A data set that draws random numbers would give other rows: then the batch's own serve, if
        they can be taken apart, at the batch's length. All of the batch tell whether it does: two
        views of one unit may be alike by chance, as of a short text with words masked at random, or
        differ by their place alone.
        """
        rows, two = len(batch.rows), 2 * batch.per_unit
        if not is_fixed:
            return 0, chosen_rows(data, np.resize(np.arange(batch.per_unit), two), rows)
        last = len(batch.units) - 1
        # The first comes at the end: in its place nothing shows what numbers the rows of a batch.
        for unit in (*range(1, last + 1), 0):
            alone = next(self.loaded([batch.alone(unit)]))
            if row_shapes(alone, two) != row_shapes(data, rows):
                return unit, alone
        return last, next(self.loaded([batch.alone(last)]))

    def _probe(
        self, batch: Batch, data: Any, choices: Sequence[Mapping[int, int]]
    ) -> tuple[Batch, Any]:
        probe, loaded = batch, data
        for choice in choices:
            rows = {
                at: self._units.rows(np.array([unit]), widest=False).rows
                for at, unit in choice.items()
            }
            probe = batch.replacing(rows)
            loaded = next(self.loaded([probe]))
            if shapes(loaded) == shapes(data):
                break
        return probe, spliced(data, loaded, probe)

    def _width(self, left: NDArray[np.int64]) -> int:
        return self._units.width(left, widest=self._padded)

    def _made(self, units: NDArray[np.int64], size: int, padded: int) -> Batch:
        rows, weights, per_unit = self._units.rows(units, widest=self._padded, padded=padded)
        return Batch(units, rows, weights, per_unit, padded, self._length(units), cut_to=size)


# ---- the data of a batch


def copied(data: Any) -> Any:
    """``data`` with its tensors copied: a loop may change its batch in place."""
    return over(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, data)


def spliced(first: Any, second: Any, probe: Batch) -> Any:
    """The data of ``first``, with the rows of replaced units from ``second``.

    A data set that draws random numbers of its own would otherwise change every row. Whatever has
    no row for each example, or another shape, is taken from ``second`` as it is.
    """

    def one(ours: Any, theirs: Any) -> Any:
        both = isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor)
        if not both or ours.shape != theirs.shape or ours.shape[:1] != (len(probe.rows),):
            return theirs
        changed = ours.clone()
        for unit in probe.replaced:
            changed[probe.rows_of(unit)] = theirs[probe.rows_of(unit)]
        return changed

    if tree_flatten(first)[1] != tree_flatten(second)[1]:
        return second
    return over(one, first, second)


def row_shapes(data: Any, rows: int) -> tuple[tuple[int, ...], ...]:
    """The shapes of a batch's tensors, whatever the number of its rows."""
    return tuple(
        tuple(-1 if size == rows else size for size in tensor.shape) for tensor in _tensors(data)
    )


def same_tensors(data: Any, again: Any) -> bool:
    """Whether two batches hold the same tensors, to the last bit."""
    return all(map(_same, _tensors(data), _tensors(again)))


def _same(one: Tensor, other: Tensor) -> bool:
    same = one.shape == other.shape
    return same and bool(((one == other) | (one.isnan() & other.isnan())).all())


def moves_units(data: Any, again: Any, turned: Any, per_unit: int, rows: int) -> bool:
    """Whether no tensor that tells units apart has them the other way round if they are given so.

    ``again`` shows what is drawn at random, which tells nothing.
    """

    def reversed_(one: Tensor) -> Tensor:
        found: Tensor = one.unflatten(0, (-1, per_unit)).flip(0).flatten(0, 1)
        return found

    kept = [
        _same(other_way, reversed_(one))
        for one, same, other_way in zip(*map(_tensors, (data, again, turned)), strict=False)
        if len(one) == rows and _same(one, same) and not _same(one, reversed_(one))
    ]
    return bool(kept) and not any(kept)


def lies_end_to_end(data: Any, rows: int) -> bool:
    """Whether a tensor holds several entries of every row one after another, as nodes of graphs."""
    tensors = [one for one in leaves_of(data) if isinstance(one, torch.Tensor) and one.ndim]
    return any(rows not in one.shape[:2] and len(one) > rows for one in tensors)


def chosen_rows(data: Any, where: NDArray[np.int64], rows: int) -> Any:
    """The batch of these rows of ``data``; None if its tensors do not have one entry per row."""
    leaves = leaves_of(data)
    if not all(isinstance(one, torch.Tensor) and one.shape[:1] == (rows,) for one in leaves):
        return None
    at = torch.from_numpy(where)
    return over(lambda one: one[at.to(one.device)], data)


def _tensors(data: Any) -> list[Tensor]:
    """The tensors of a batch with at least one axis."""
    return [one for one in leaves_of(data) if isinstance(one, torch.Tensor) and one.ndim]
