"""The sampler draws what the event says: Poisson lots, not shuffled ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, chi2

from tacit.errors import BrokenRandomness, InvalidArgument
from tacit.randomness import SystemStream, UnsafeSeededStream, included
from tacit.training.plan import Plan
from tacit.training.sampling import FullBatch, LotSampler, Poisson, Sampling, TruncatedPoisson

_LEVEL = 1e-6
_RECORDS, _LOT, _LOTS = 2_000, 100, 10_000
_RATE = _LOT / _RECORDS

Membership = NDArray[np.bool_]  # lots by records


def _plan(
    sampling: Sampling | None = None, lot_size: float = _LOT, examples: int = _RECORDS
) -> Plan:
    return Plan(
        examples=examples,
        lot_size=lot_size,
        steps=_LOTS,
        noise_multiplier=1.0,
        clip=1.0,
        sampling=sampling,  # type: ignore[arg-type]
    )


def _members(plan: Plan, purpose: str, lots: int = _LOTS) -> Membership:
    sampler = LotSampler(plan, UnsafeSeededStream(0, purpose))
    found = np.zeros((lots, plan.examples), dtype=np.bool_)
    for row in found:
        row[sampler.draw()] = True
    return found


def _shuffled(lots: int = _LOTS) -> Membership:
    """What a shuffling loader does: every record exactly once an epoch, in lots of one size."""
    rng = np.random.default_rng(0)
    per_epoch = _RECORDS // _LOT
    found = np.zeros((lots, _RECORDS), dtype=np.bool_)
    for epoch in range(lots // per_epoch):
        order = rng.permutation(_RECORDS).reshape(per_epoch, _LOT)
        np.put_along_axis(found[epoch * per_epoch : (epoch + 1) * per_epoch], order, True, axis=1)
    return found


def _counts_fit(members: Membership, rate: float = _RATE) -> bool:
    """Chi-square of how often each record was drawn against Binomial(lots, rate), two-sided."""
    lots, records = members.shape
    spread = lots * rate * (1.0 - rate)
    statistic = float(((members.sum(axis=0) - lots * rate) ** 2 / spread).sum())
    return bool(chi2.ppf(_LEVEL / 2, records) < statistic < chi2.isf(_LEVEL / 2, records))


def _sizes_fit(members: Membership, rate: float = _RATE) -> bool:
    """Chi-square of the histogram of lot sizes against Binomial(records, rate)."""
    lots, records = members.shape
    sizes = members.sum(axis=1)
    edges = binom.ppf(np.linspace(0.05, 0.95, 10), records, rate)
    share = np.diff(np.concatenate([[0.0], binom.cdf(edges, records, rate), [1.0]]))
    seen = np.bincount(np.searchsorted(edges, sizes), minlength=len(share))
    statistic = float(((seen - lots * share) ** 2 / (lots * share)).sum())
    return bool(statistic < chi2.isf(_LEVEL, len(share) - 1))


def _pairs_fit(one: Membership, other: Membership, rate: float = _RATE) -> bool:
    """Two memberships that should be independent coincide as often as chance has it."""
    both = int((one & other).sum())
    expected = one.size * rate**2
    return abs(both - expected) < 5.0 * math.sqrt(expected * (1.0 + 4.0 * rate))


@pytest.fixture(scope="module")
def poisson() -> Membership:
    return _members(_plan(), "poisson")


@pytest.fixture(scope="module")
def shuffled() -> Membership:
    return _shuffled()


def test_inclusion_counts_are_binomial(poisson: Membership) -> None:
    assert _counts_fit(poisson)


def test_shuffling_is_told_from_poisson(shuffled: Membership) -> None:
    assert not _counts_fit(shuffled)
    assert not _sizes_fit(shuffled)


@pytest.mark.parametrize("off", [0.97, 1.03])
def test_a_rate_three_percent_off_is_rejected(off: float) -> None:
    members = _members(_plan(lot_size=off * _LOT), f"off by {off}")
    assert _counts_fit(members, off * _RATE)
    assert not _counts_fit(members, _RATE)


def test_lot_sizes_are_binomial(poisson: Membership) -> None:
    assert _sizes_fit(poisson)
    variance = float(poisson.sum(axis=1).var())
    expected = _RECORDS * _RATE * (1.0 - _RATE)
    assert abs(variance / expected - 1.0) < 5.0 * math.sqrt(2.0 / _LOTS)


def test_sizes_and_counts_have_power(poisson: Membership) -> None:
    assert not _sizes_fit(poisson, 1.01 * _RATE)
    assert not _counts_fit(np.repeat(poisson[: _LOTS // 10], 10, axis=0))  # each lot ten times


def test_lots_and_records_are_independent(poisson: Membership, shuffled: Membership) -> None:
    assert _pairs_fit(poisson[:-1], poisson[1:])  # a record in one lot, and in the next
    assert _pairs_fit(poisson[:, :-1], poisson[:, 1:])  # a record, and its neighbour
    assert not _pairs_fit(shuffled[:-1], shuffled[1:])
    sticky = np.where(np.arange(_RECORDS) % 20 == 0, poisson[:-1], poisson[1:])
    assert not _pairs_fit(poisson[:-1], sticky)


def test_empty_lots_happen_as_often_as_they_should() -> None:
    plan = _plan(lot_size=1, examples=100)
    empty = int((~_members(plan, "empty").any(axis=1)).sum())
    chance = 0.99**100
    assert binom.ppf(_LEVEL / 2, _LOTS, chance) <= empty <= binom.isf(_LEVEL / 2, _LOTS, chance)


def test_a_full_batch_is_everybody_every_time() -> None:
    sampler = LotSampler(_plan(lot_size=_RECORDS), UnsafeSeededStream(0, "full"))
    for _ in range(3):
        assert sampler.draw().tolist() == list(range(_RECORDS))


def test_truncated_lots_never_exceed_their_cap_and_are_cut_at_random() -> None:
    largest = 105  # so low that half of the lots are cut: a test, not a plan to train with
    members = _members(_plan(TruncatedPoisson(largest)), "truncated")
    sizes = members.sum(axis=1)
    assert sizes.max() == largest
    chance = float(binom.sf(largest - 1, _RECORDS, _RATE))
    at_cap = int((sizes == largest).sum())
    assert binom.ppf(_LEVEL / 2, _LOTS, chance) <= at_cap <= binom.isf(_LEVEL / 2, _LOTS, chance)
    cut = members[sizes == largest]
    assert _counts_fit(cut, largest / _RECORDS)


def test_the_cutting_test_has_power(poisson: Membership) -> None:
    largest = 105
    long = poisson[poisson.sum(axis=1) >= largest]
    first = long & (long.cumsum(axis=1) <= largest)  # keeps whoever comes first
    assert not _counts_fit(first, largest / _RECORDS)


def test_a_cap_that_never_bites_changes_nothing() -> None:
    plain = _members(_plan(Poisson()), "same", 50)
    assert np.array_equal(_members(_plan(TruncatedPoisson(_RECORDS)), "same", 50), plain)


def test_a_draw_is_sorted_and_in_range() -> None:
    drawn = LotSampler(_plan(), SystemStream()).draw()
    assert drawn.dtype == np.int64
    assert np.all(np.diff(drawn) > 0)
    assert drawn.min() >= 0
    assert drawn.max() < _RECORDS


def test_samplers_of_the_system_differ_and_seeded_ones_repeat() -> None:
    one, other = (LotSampler(_plan(), SystemStream()).draw() for _ in range(2))
    assert not np.array_equal(one, other)
    assert np.array_equal(_members(_plan(), "again", 20), _members(_plan(), "again", 20))


@pytest.mark.parametrize("largest", [0, -3, 2.5, True, "600"])
def test_a_bad_cap_is_refused(largest: object) -> None:
    with pytest.raises(InvalidArgument, match="largest must be a whole number"):
        TruncatedPoisson(largest)  # type: ignore[arg-type]


def test_ways_of_sampling_are_plain_values() -> None:
    assert TruncatedPoisson(5) == TruncatedPoisson(5) != TruncatedPoisson(6)
    assert len({Poisson(), FullBatch(), Poisson(), TruncatedPoisson(5)}) == 3


def test_lots_that_are_drawn_ahead_are_poisson_samples_too() -> None:
    """Independent lots, each record with its rate; several lots' coins are flipped at once."""
    chosen = Plan(examples=50, lot_size=10, steps=9, noise_multiplier=1.0, clip=1.0)
    sampler = LotSampler(chosen, UnsafeSeededStream(0, "lots"), ahead=True)
    lots = np.zeros((4000, 50))
    for lot in lots:
        drawn = sampler.draw()
        assert (np.diff(drawn) > 0).all()
        lot[drawn] = 1
    assert np.abs(lots.mean(0) - 0.2).max() < 5 * np.sqrt(0.16 / 4000)
    together = np.corrcoef(np.concatenate([lots[1:], lots[:-1]], axis=1).T) - np.eye(100)
    assert np.abs(together).max() < 6 / np.sqrt(4000)
    sizes = lots.sum(1)
    assert np.isclose(sizes.var(), 50 * 0.16, rtol=0.1)


def test_lots_that_are_drawn_ahead_follow_from_the_stream_alone() -> None:
    """A seeded run can be repeated."""
    chosen = _plan(examples=300, lot_size=40)
    sampler = LotSampler(chosen, UnsafeSeededStream(0, "lots"), ahead=True)
    stream, whole = UnsafeSeededStream(0, "lots"), sampler._at_once
    for _ in range(3):
        joined = included(300 * whole, chosen.sample_rate, stream)
        for lot in range(whole):
            expected = joined[joined // 300 == lot] - 300 * lot
            assert np.array_equal(sampler.draw(), expected)


class _Failing:
    """A stream that ends."""

    def __init__(self, left: int) -> None:
        self._left, self._inner = left, SystemStream()

    def bytes(self, count: int) -> bytes:
        self._left -= count
        if self._left < 0:
            raise BrokenRandomness("nothing is left")
        return self._inner.bytes(count)


def test_a_stream_that_fails_fails_where_its_lot_is_drawn() -> None:
    chosen = _plan(examples=100, lot_size=10)
    sampler = LotSampler(chosen, _Failing(4_000), ahead=True)
    taken = 0
    with pytest.raises(BrokenRandomness, match="nothing is left"):
        while True:
            sampler.draw()
            taken += 1
    assert taken == 32  # two times sixteen lots of a hundred coins, and a few more coins each
