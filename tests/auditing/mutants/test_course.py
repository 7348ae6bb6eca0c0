"""Each bug from step to step or rank to rank is there: shown by what is drawn and who draws it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import tacit
from tacit.randomness import CorrelatedSource, GaussianSource, UnsafeSeededStream
from tacit.training.distributed.shares import Shares
from tacit.training.distributed.world import World
from tacit.training.noise import FastNoise, memory_of
from tacit.training.sampling import Allocation, Cyclic, LotSampler, RunningEpoch

from .watching import shows

if TYPE_CHECKING:
    from .mutant import Mutant

CPU = torch.device("cpu")


def _plan(**changed: Any) -> tacit.Plan:
    given = {"examples": 12, "lot_size": 4, "steps": 9, "noise_multiplier": 1.0, "clip": 1.0}
    return tacit.Plan(**(given | changed))


def _epoch(*, resumed: bool) -> list[int]:
    """The records of an epoch's three lots, perhaps with a checkpoint after the first."""
    plan = _plan(sampling=Allocation())
    epoch = RunningEpoch(plan)
    sampler = LotSampler(plan, UnsafeSeededStream(0, "lots"), epoch=epoch)
    drawn = [*sampler.draw()]
    if resumed:
        again = RunningEpoch(plan)
        again.load_state_dict(epoch.state_dict())
        sampler = LotSampler(plan, UnsafeSeededStream(1, "lots"), epoch=again)
    return sorted(int(one) for one in [*drawn, *sampler.draw(), *sampler.draw()])


@shows("epoch dealt again at resume", "first lot comes again")
def test_records_are_in_two_lots_of_an_epoch(mutant: Mutant) -> None:
    resumed = mutant.name == "epoch dealt again at resume"
    with mutant.patch():
        assert _epoch(resumed=resumed) != list(range(12))
    assert _epoch(resumed=resumed) == list(range(12))


@shows("epoch goes on after a lost step")
def test_an_epoch_with_a_lost_step_is_not_left(mutant: Mutant, tmp_path: Any) -> None:
    def taken(name: str) -> int:
        ledger = tacit.Ledger(f"sqlite:///{tmp_path / name}.db", anchor=tmp_path / f"{name}.anchor")
        budget = ledger.open("epochs", 1e5, 1e-3)
        data = torch.utils.data.TensorDataset(torch.ones(12, 2))
        for resume in (None, tmp_path / name):
            model = torch.nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            plan = _plan(sampling=Allocation())
            dp = tacit.private(model, optimizer, plan, data, budget, resume=resume)
            with dp:
                for lot in dp.lots():
                    dp.accumulate(lot, lambda batch, m=model: m(batch[0])[:, 0])
                    dp.step()
                    if dp.steps_taken == 4 and resume is None:
                        dp.save(tmp_path / name)
                    if dp.steps_taken == 5 and resume is None:
                        break
        ledger.close()
        return dp.steps_taken

    with mutant.patch():
        assert taken("wrong") == 8
    assert taken("right") == 7  # the fifth is lost, and the sixth is left with its epoch


def _mixed(correlation: Any, gap: int) -> Any:
    memory = memory_of(_plan(correlation=correlation, sampling=Cyclic()))
    assert memory is not None
    source = CorrelatedSource(memory, CPU, UnsafeSeededStream(0, "noise"))
    rows = [torch.empty(2_000) for _ in range(2)]
    for at, row in enumerate(rows):
        memory.begin(at * gap)
        source.normal_(row)
        source.advance()
    return np.corrcoef(rows[0], rows[1])[0, 1]


@shows("noise of before lost steps")
def test_noise_of_lost_steps_is_mixed_in(mutant: Mutant) -> None:
    with mutant.patch():
        assert abs(_mixed(tacit.Banded(3), 4)) > 0.2
    assert abs(_mixed(tacit.Banded(3), 4)) < 0.1


@shows("noise replayed one step late")
def test_a_step_takes_back_its_own_noise(mutant: Mutant) -> None:
    with mutant.patch():
        assert abs(_mixed(tacit.Anticorrelated(0.9), 1)) < 0.1
    assert _mixed(tacit.Anticorrelated(0.9), 1) < -0.5


@shows("lot on every rank")
def test_units_are_on_two_ranks(mutant: Mutant) -> None:
    def shares() -> list[int]:
        parts = [World(rank, 2).share(np.arange(5)) for rank in range(2)]
        return sorted(int(one) for part in parts for one in part)

    with mutant.patch():
        assert len(shares()) == 10
    assert shares() == list(range(5))


@shows("own sums only")
def test_nothing_is_added_up(mutant: Mutant) -> None:
    sums = {"a": torch.arange(4.0)}
    two = Shares(World(1, 2), {"a": torch.zeros(4)}, whole_numbers=False)
    with mutant.patch():
        assert two.totals(sums)["a"].tolist() == [2.0, 3.0]  # without a word to the other rank
    with pytest.raises(ValueError, match="process group"):  # the right one asks it
        two.totals(sums)


@shows("same noise on both shares")
def test_two_shares_have_the_same_noise(mutant: Mutant) -> None:
    def shares() -> list[Any]:
        found = []
        for stretch in ((0, 3), (3, 6)):
            source = GaussianSource(CPU, UnsafeSeededStream(0, "noise"))
            made = FastNoise(source, CPU).means(
                {"a": torch.zeros(6)}, {}, clip=1.0, scale=1.0, lot_size=1.0,
                stretches={"a": stretch},
            )  # fmt: skip
            found.append(made["a"].tolist())
        return found

    with mutant.patch():
        one, other = shares()
        assert one == other
    one, other = shares()
    assert one != other
