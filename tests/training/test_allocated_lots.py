"""Allocation: the sampler's law, with power; epochs that go on after a crash; what is charged."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import tacit
from tacit.accounting import Gaussian, RandomAllocation
from tacit.accounting.serialization import from_dict
from tacit.auditing.replay.checks.sampling import allocation_p_values
from tacit.errors import CheckpointError, InvalidArgument, LedgerError, ProtocolError
from tacit.randomness import UnsafeSeededStream, assigned
from tacit.statement.proof import planned_event
from tacit.training import Allocation, Poisson
from tacit.training.checkpoint import read
from tacit.training.sampling import LotSampler, RunningEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tacit.training import Plan, Session

UNITS, LOTS, EPOCHS = 40, 5, 60
LEVEL = 1e-6


def plan_of(examples: int = UNITS, lots: int = LOTS, epochs: int = EPOCHS) -> Plan:
    return tacit.Plan(
        examples=examples, lot_size=examples / lots, steps=epochs * lots, noise_multiplier=1.0,
        clip=1.0, sampling=Allocation(),
    )  # fmt: skip


# ---- the law


def epochs_of(sampler: LotSampler, plan: Plan, epochs: int) -> NDArray[np.int64]:
    """The lot of each unit, an epoch a row; fails unless each is in exactly one."""
    found = []
    for _ in range(epochs):
        inside = np.zeros((plan.steps_per_epoch, plan.examples), dtype=int)
        for lot in range(plan.steps_per_epoch):
            inside[lot, sampler.draw()] += 1
        assert (inside.sum(0) == 1).all()
        found.append(inside.argmax(0))
    return np.stack(found)


def test_each_unit_is_once_in_an_epoch_uniformly_and_independently() -> None:
    plan = plan_of()
    for seed in range(3):
        sampler = LotSampler(plan, UnsafeSeededStream(seed, "lots"))
        found = allocation_p_values(epochs_of(sampler, plan, EPOCHS), LOTS)
        assert min(found.values()) > LEVEL, found


def shuffled(random: np.random.Generator) -> NDArray[np.int64]:
    return np.stack([random.permutation(UNITS) % LOTS for _ in range(EPOCHS)])


def reused(random: np.random.Generator) -> NDArray[np.int64]:
    return np.tile(random.integers(LOTS, size=UNITS), (EPOCHS, 1))


def reused_in_another_order(random: np.random.Generator) -> NDArray[np.int64]:
    first = random.integers(LOTS, size=UNITS)
    return np.stack([random.permutation(LOTS)[first] for _ in range(EPOCHS)])


def reused_every_other_time(random: np.random.Generator) -> NDArray[np.int64]:
    return np.repeat(random.integers(LOTS, size=(EPOCHS // 2, UNITS)), 2, axis=0)


def in_blocks(random: np.random.Generator) -> NDArray[np.int64]:
    return np.repeat(random.integers(LOTS, size=(EPOCHS, UNITS // 2)), 2, axis=1)


def uneven(random: np.random.Generator) -> NDArray[np.int64]:
    return random.choice(LOTS, p=[0.26, 0.185, 0.185, 0.185, 0.185], size=(EPOCHS, UNITS))


def one_stays(random: np.random.Generator) -> NDArray[np.int64]:
    found = random.integers(LOTS, size=(EPOCHS, UNITS))
    found[:, 7] = 2
    return found


@pytest.mark.parametrize(
    "wrong",
    [shuffled, reused, reused_in_another_order, reused_every_other_time, in_blocks, uneven,
     one_stays],
)  # fmt: skip
def test_the_law_rejects(wrong: Callable[[np.random.Generator], NDArray[np.int64]]) -> None:
    for seed in range(3):
        found = allocation_p_values(wrong(np.random.default_rng(seed)), LOTS)
        assert min(found.values()) < LEVEL, found


def test_assigned_draws_words_above_the_last_whole_multiple_again() -> None:
    class Words:
        """Hands out one word that 3 does not divide evenly, then small ones."""

        def __init__(self) -> None:
            self.words = [2**64 - 1, 4, 5]

        def bytes(self, count: int) -> bytes:
            given, self.words = self.words[: count // 8], self.words[count // 8 :]
            return np.array(given, dtype=np.uint64).tobytes()

    assert assigned(2, 3, Words()).tolist() == [2, 1]
    assert assigned(0, 3, Words()).tolist() == []


def test_a_running_epoch_goes_on_to_the_bit() -> None:
    plan, stream = plan_of(), UnsafeSeededStream(1, "lots")
    epoch = RunningEpoch(plan)
    sampler = LotSampler(plan, stream, epoch=epoch)
    first = [sampler.draw() for _ in range(2)]
    saved = epoch.state_dict()
    rest = [sampler.draw() for _ in range(LOTS - 2)]
    assert epoch.is_over
    assert not len(epoch.state_dict()["lots"])  # nothing secret between epochs
    again = RunningEpoch(plan)
    again.load_state_dict(saved)
    resumed = LotSampler(plan, UnsafeSeededStream(2, "other"), epoch=again)
    for one in rest:
        assert np.array_equal(resumed.draw(), one)
    assert sorted(np.concatenate([*first, *rest]).tolist()) == list(range(UNITS))


@pytest.mark.parametrize(
    "changed",
    [{"count": LOTS + 1}, {"drawn": LOTS}, {"drawn": -1}, {"lots": torch.zeros(3, dtype=torch.int)},
     {"lots": torch.full((UNITS,), LOTS, dtype=torch.int)}],
)  # fmt: skip
def test_an_epoch_of_another_plan_is_refused(changed: dict[str, object]) -> None:
    plan = plan_of()
    epoch = RunningEpoch(plan)
    LotSampler(plan, UnsafeSeededStream(1, "lots"), epoch=epoch).draw()
    with pytest.raises(CheckpointError, match="not one of its plan's"):
        RunningEpoch(plan).load_state_dict({**epoch.state_dict(), **changed})


# ---- the plan


def test_the_plan_counts_whole_epochs() -> None:
    given = {"examples": 1000, "lot_size": 64, "steps": 40, "noise_multiplier": 0.9, "clip": 1.0}
    plan = tacit.Plan(**given, sampling="allocation")  # type: ignore[arg-type]
    assert plan.sampling == Allocation()
    assert (plan.steps_per_epoch, plan.sample_rate, plan.epochs) == (16, 1 / 16, 2.5)
    for steps, epochs in ((1, 1), (16, 1), (17, 2), (32, 2), (40, 3)):
        assert plan.event_after(steps) == RandomAllocation(16, Gaussian(0.9), epochs)
    assert tacit.Plan.from_json(plan.to_json()) == plan
    assert "exactly one of which" in plan.describe()
    planned = planned_event(plan.as_dict())
    assert planned.covered(plan.event) == 48
    assert planned.covered(RandomAllocation(15, Gaussian(0.9), 3)) == 0


def test_a_plan_for_a_budget_has_whole_epochs_and_the_least_noise() -> None:
    plan = tacit.Plan.for_budget(
        epsilon=2, delta=1e-5, examples=1000, lot_size=64, epochs=1.5, clip=1.0,
        sampling="allocation",
    )  # fmt: skip
    assert plan.steps == 32
    assert 2 * (1 - 1e-9) < plan.epsilon(1e-5) <= 2
    poisson = tacit.Plan.for_budget(
        epsilon=2, delta=1e-5, examples=1000, lot_size=64, steps=32, clip=1.0, sampling=Poisson()
    )
    assert plan.noise_multiplier < poisson.noise_multiplier


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"adjacency": "replace-one"}, "adjacency must be 'add-remove' or 'zero-out'"),
        ({"lot_size": 40}, "needs lot_size below examples"),
        ({"sampling": "shuffle"}, "shuffled batches have no known guarantee"),
    ],
)
def test_what_is_not_known_is_refused(changed: dict[str, object], said: str) -> None:
    given = {
        "examples": UNITS, "lot_size": 8, "steps": 10, "noise_multiplier": 1.0, "clip": 1.0,
        "sampling": "allocation",
    }  # fmt: skip
    with pytest.raises(InvalidArgument, match=said):
        tacit.Plan(**{**given, **changed})  # type: ignore[arg-type]


# ---- runs


def run(
    plan: Plan, *, stop: int | None = None, save: Path | None = None, crash: bool = False,
    groups: list[int] | None = None, **given: object,
) -> tuple[Session, list[set[int]]]:  # fmt: skip
    """Trains; the records of each lot, first, are told by their values."""
    count = UNITS if groups is None else len(groups)
    data = TensorDataset(torch.arange(float(count))[:, None], torch.zeros(count, dtype=torch.long))
    model = nn.Linear(1, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    seen: list[set[int]] = []
    session = tacit.private(model, optimizer, plan, data, groups=groups, **given)  # type: ignore[arg-type]
    with session as dp:
        for lot in dp.lots():
            rows: set[int] = set()
            for x, y in lot:
                if not lot.is_rehearsal:
                    rows |= {int(one) for one in x[:, 0]}
                dp.backward(functional.cross_entropy(model(x), y, reduction="none"))
            dp.step()
            seen.append(rows)
            if len(seen) == stop:
                if save is not None:
                    dp.save(save)
                if not crash:
                    break
            if crash and stop is not None and len(seen) == stop + 1:
                break
    return dp, seen


def test_a_run_visits_everybody_once_an_epoch_and_claims_epochs() -> None:
    plan = plan_of(epochs=2)
    dp, seen = run(plan)
    for start in (0, LOTS):
        lots = seen[start : start + LOTS]
        assert sorted(one for lot in lots for one in lot) == list(range(UNITS))
    assert dp.spent(1e-5) == plan.epsilon(1e-5)
    statement = dp.statement(1e-5)
    assert from_dict(statement.event) == RandomAllocation(LOTS, Gaussian(1.0), 2)
    assert "exactly one of the 5 lots of every epoch" in statement.sampling
    assert "exactly one" in dp.explain()


def test_a_run_that_stops_within_an_epoch_pays_for_all_of_it() -> None:
    plan = plan_of(epochs=2)
    dp, seen = run(plan, stop=LOTS + 1, stop_after=LOTS + 1)
    assert len(seen) == LOTS + 1
    assert from_dict(dp.statement(1e-5).event) == RandomAllocation(LOTS, Gaussian(1.0), 2)


def test_a_resumed_epoch_goes_on_with_its_own_lots(tmp_path: Path) -> None:
    plan, path = plan_of(epochs=2), tmp_path / "run.safetensors"
    _, before = run(plan, stop=2, save=path)
    _, after = run(plan, resume=path)
    lots = before + after[: LOTS - 2]
    assert sorted(one for lot in lots for one in lot) == list(range(UNITS))
    assert len(before) + len(after) == plan.steps


def test_a_resumed_epoch_is_not_dealt_to_records_in_another_order(tmp_path: Path) -> None:
    """A record that has moved to the place of one that is to come would be in two lots of it."""
    plan, within, between = plan_of(epochs=2), tmp_path / "within", tmp_path / "between"
    run(plan, stop=2, save=within)
    run(plan, stop=LOTS, save=between)
    model = nn.Linear(1, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    turned = TensorDataset(
        torch.arange(float(UNITS)).flip(0)[:, None], torch.zeros(UNITS, dtype=torch.long)
    )
    with pytest.raises(CheckpointError, match=r"dataset must hold the records .* same order"):
        tacit.private(model, optimizer, plan, turned, resume=within)
    assert read(between).state["tacit epoch"].values["order"] == ""
    tacit.private(model, optimizer, plan, turned, resume=between)


def test_a_run_is_kept_at_the_end_of_an_epoch(tmp_path: Path) -> None:
    plan, path = plan_of(epochs=2), tmp_path / "run.safetensors"
    run(plan, stop=LOTS, save=path)
    _, after = run(plan, resume=path)
    assert sorted(one for lot in after for one in lot) == list(range(UNITS))


def test_an_epoch_of_which_steps_were_lost_is_left_and_paid_for(tmp_path: Path) -> None:
    plan, path = plan_of(epochs=3), tmp_path / "run.safetensors"
    budget = tacit.Ledger(f"sqlite:///{tmp_path}/budget.db").open("x", epsilon=50, delta=1e-5)
    run(plan, stop=2, save=path, crash=True, budget=budget)  # a third step was taken, and is gone
    dp, after = run(plan, resume=path, budget=budget)
    assert dp.steps_lost == LOTS - 2
    assert len(after) == 2 * LOTS  # two epochs are left of the three, each with lots of its own
    for start in (0, LOTS):
        lots = after[start : start + LOTS]
        assert sorted(one for lot in lots for one in lot) == list(range(UNITS))
    assert from_dict(dp.statement(1e-5).event) == plan.event


def test_of_two_copies_of_a_run_one_goes_on_with_the_lots_of_an_epoch(tmp_path: Path) -> None:
    plan, path = plan_of(epochs=3), tmp_path / "run.safetensors"
    budget = tacit.Ledger(f"sqlite:///{tmp_path}/budget.db").open("x", epsilon=50, delta=1e-5)
    run(plan, stop=2, save=path, budget=budget)
    data = TensorDataset(torch.arange(float(UNITS))[:, None], torch.zeros(UNITS, dtype=torch.long))
    model = nn.Linear(1, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    copy = tacit.private(model, optimizer, plan, data, budget, resume=path)
    with pytest.raises(LedgerError, match="another process went on with it"), copy:
        _, seen = run(plan, resume=path, budget=budget, stop=1)
        assert len(seen) == 1
        for lot in copy.lots():
            for x, y in lot:
                copy.backward(functional.cross_entropy(model(x), y, reduction="none"))
            copy.step()
    assert (copy.steps_taken, copy.steps_lost) == (2, 1)


@pytest.mark.parametrize("steps", [LOTS + 2, 2 * LOTS])
def test_after_the_last_step_nobody_learns_who_was_in_which_lot(tmp_path: Path, steps: int) -> None:
    """A plan, or a run that stops early, may end within an epoch."""
    plan, path = replace(plan_of(epochs=2), steps=steps), tmp_path / "run.safetensors"
    for last in (LOTS + 1, LOTS + 2):
        run(plan, stop=last, save=path, stop_after=LOTS + 2)
        held = read(path).state["tacit epoch"].values["lots"]
        assert len(held) == (UNITS if last <= LOTS + 1 else 0)
    dp, after = run(plan, resume=path)
    assert (after, dp.steps_taken) == ([], LOTS + 2)


def test_two_runs_of_one_reservation_begin_no_epoch_that_is_not_paid_for(tmp_path: Path) -> None:
    """Each would deal lots of its own, and a record be in one of every epoch that either begins."""
    budget = tacit.Ledger(f"sqlite:///{tmp_path}/budget.db").open("x", epsilon=50, delta=1e-5)
    plan, data = plan_of(epochs=3), TensorDataset(torch.zeros(UNITS, 1))

    def steps_of(charged: object) -> Iterator[int]:
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        own = tacit.Performance(lease=1)
        with tacit.private(model, optimizer, plan, data, charged, performance=own) as dp:  # type: ignore[arg-type]
            for lot in dp.lots():
                for (x,) in lot:
                    dp.backward(model(x)[:, 0])
                dp.step()
                yield dp.steps_taken

    first = steps_of(budget)
    taken = [[next(first) for _ in range(LOTS - 1)]]
    (number,) = budget.ledger.refresh().reservations
    second = steps_of(budget.reservation(number))
    taken.append(list(islice(second, 2 * LOTS - 2)))
    taken[0] += first
    assert sum(math.ceil(len(one) / LOTS) for one in taken) <= 3


def test_a_lot_that_was_left_and_is_not_charged_ends_the_session() -> None:
    """Its epoch would be over a step early, and the last of the others one that nobody paid for."""
    data, model = TensorDataset(torch.zeros(UNITS, 1)), nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def trains(session: Session, fails_at: int | None) -> None:
        with session as dp:
            for lot in dp.lots():
                for (x,) in lot:
                    dp.backward(model(x)[:, 0])
                if lot.step == fails_at:
                    raise InterruptedError
                dp.step()

    for fails_at in (1, LOTS - 1):
        session = tacit.private(model, optimizer, plan_of(epochs=2), data)
        with pytest.raises(InterruptedError):
            trains(session, fails_at)
        assert session.steps_taken == fails_at
        with pytest.raises(ProtocolError, match="a lot of the epoch was drawn and left"):
            trains(session, None)


def test_users_are_allocated_with_all_of_theirs() -> None:
    groups = [at // 2 for at in range(UNITS)]
    plan = tacit.Plan(
        examples=UNITS // 2, lot_size=UNITS // 2 / LOTS, steps=LOTS, noise_multiplier=1.0,
        clip=1.0, unit="user", examples_per_user=2, sampling=Allocation(),
    )  # fmt: skip
    _, seen = run(plan, groups=groups)
    assert sorted(one for lot in seen for one in lot) == list(range(UNITS))
    assert all(one ^ 1 in lot for lot in seen for one in lot)


def test_lots_are_numbered_by_epochs() -> None:
    plan = plan_of(examples=42, lots=4, epochs=2)
    assert math.isclose(plan.lot_size, 10.5)
    assert plan.steps_per_epoch == 4
