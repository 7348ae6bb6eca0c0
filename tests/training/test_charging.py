"""Training that is charged to a budget: before it samples, over restarts, and to the right one."""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import Dataset

import tacit
from tacit.accounting import Gaussian, Repeated
from tacit.errors import (
    BudgetExceeded,
    CheckpointError,
    InvalidArgument,
    LedgerError,
    ProtocolError,
    TamperedLedger,
)
from tacit.ledger import Release
from tacit.training import Banded, checkpoint_file
from tacit.training.charging import detail_of
from tacit.training.sampling import LotSampler

from .sessions import EXAMPLES, cross_entropy, data, network, plan, session, sgd, whole_lot

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.ledger import Budget, Ledger
    from tacit.training.session import Session

    from ..ledger.conftest import Place

DELTA = 1e-5
STEPS = 10


def noisy(**changed: Any) -> tacit.Plan:
    return plan(**{"noise_multiplier": 2.0, "steps": STEPS, "lot_size": 10} | changed)


def charged(budget: object, lease: int | str = 3, **changed: Any) -> Session:
    given = {"plan": noisy(), "performance": tacit.Performance(lease=lease)} | changed
    return session(budget=budget, **given)


def train(dp: Session, steps: int | None = None) -> int:
    """So many steps, or all that are left; how many there were."""
    done = 0
    for lot in dp.lots():
        whole_lot(dp, lot, cross_entropy(dp.model))
        done += 1
        if done == steps:
            break
    return done


@pytest.fixture
def ledger(sqlite: Place) -> Ledger:
    return sqlite.ledger()


@pytest.fixture
def budget(ledger: Ledger) -> Budget:
    return ledger.open("data", epsilon=20.0, delta=DELTA)


def only(budget: Budget) -> Any:
    """The one reservation of a budget, as the ledger has it now."""
    (found,) = budget.ledger.refresh().of(budget.name)
    return found


# ---- charging


def test_plan_is_reserved_whole_before_the_first_lot_is_sampled(
    budget: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, found = LotSampler.draw, []

    def watched(self: LotSampler) -> Any:
        found.append(only(budget))
        return draw(self)

    monkeypatch.setattr(LotSampler, "draw", watched)
    with charged(budget, lease=1) as dp:
        lots = dp.lots()
        lot = next(lots)
        batches = iter(lot)
        dp.backward(cross_entropy(dp.model)(next(batches)))
        assert lot.is_rehearsal
        assert budget.spent().epsilon == 0.0  # the loop has seen data, and nothing is reserved
        for batch in batches:
            dp.backward(cross_entropy(dp.model)(batch))
        dp.step()
        made = found[0]
        assert (made.steps, made.granted, made.label) == (STEPS, 1, "training")
        assert made.charge.epsilon == noisy().epsilon(made.charge.delta)
        assert budget.spent().epsilon == made.charge.epsilon
        assert train(dp) == STEPS - 1
    assert (only(budget).granted, only(budget).ended) == (STEPS, True)
    assert dp.steps_lost == 0


class Read(Dataset[Any]):
    """Notes which records are read."""

    def __init__(self) -> None:
        self.rows, self.read = data(), list[int]()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> Any:
        self.read.append(place)
        return self.rows[place]


@pytest.mark.parametrize(
    "changed",
    [{}, {"sampling": "allocation", "lot_size": 8}, {"correlation": Banded(3)}],
    ids=["poisson", "allocation", "correlated"],
)
def test_what_no_budget_holds_is_refused_before_a_record_is_read(
    ledger: Ledger, changed: dict[str, Any]
) -> None:
    """Where lots go by the records' order, this is looked at when the first is drawn."""
    small, rows = ledger.open("small", epsilon=1e-3, delta=1e-5), Read()
    with (
        pytest.raises(BudgetExceeded),
        charged(small, plan=noisy(**changed), dataset=rows) as dp,
    ):
        train(dp)
    assert rows.read == []


def test_plan_made_for_a_budget_fits_it_once(ledger: Ledger) -> None:
    budget = ledger.open("whole", epsilon=3.0, delta=DELTA)
    fitting = tacit.Plan.for_budget(
        epsilon=3.0, delta=DELTA, examples=EXAMPLES, lot_size=10, steps=STEPS, clip=1.0
    )
    assert budget.affordable(fitting)
    with charged(budget, plan=fitting) as dp:
        assert train(dp) == STEPS
    model = network()
    before = [p.clone() for p in model.parameters()]
    again = charged(budget, plan=fitting, model=model)
    with pytest.raises(BudgetExceeded, match="'whole'"), again:
        train(again)
    assert again.steps_taken == 0
    assert all(map(torch.equal, before, model.parameters()))


def test_a_bug_in_the_loss_costs_nothing(ledger: Ledger) -> None:
    """The budget holds the plan once: after the bug is found, it still does."""
    budget = ledger.open("tight", epsilon=3.0, delta=DELTA)
    fitting = tacit.Plan.for_budget(
        epsilon=3.0, delta=DELTA, examples=EXAMPLES, lot_size=10, steps=STEPS, clip=1.0
    )
    wrong = charged(budget, plan=fitting)
    with pytest.raises(KeyError, match="label"), wrong:
        for lot in wrong.lots():
            for batch in lot:
                wrong.backward(dict(enumerate(batch))["label"])
    with pytest.raises(KeyError, match="label"):
        tacit.fit(
            wrong.model, wrong.optimizers, fitting, data(), budget, delta=DELTA,
            loss=lambda _, batch: dict(enumerate(batch))["label"],
        )  # fmt: skip
    assert budget.spent().epsilon == 0.0
    assert not budget.ledger.refresh().of("tight")
    with charged(budget, plan=fitting) as dp:
        assert train(dp) == STEPS
    assert dp.steps_lost == 0
    assert only(budget).granted == STEPS


def test_stop_fixed_in_advance_is_what_is_reserved(budget: Budget) -> None:
    with charged(budget, stop_after=4) as dp:
        assert train(dp) == 4
    made = only(budget)
    assert made.steps == made.granted == 4
    assert made.charge.epsilon == noisy(steps=4).epsilon(made.charge.delta)


@pytest.mark.parametrize("lease", [1, 2, 3, 7, 50, "auto"])
def test_step_is_in_the_ledger_before_its_lot_is_sampled(
    lease: int | str, sqlite: Place, budget: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness, seen = sqlite.ledger(), []
    draw = LotSampler.draw

    def watched(self: LotSampler) -> Any:
        (made,) = witness.refresh().of("data")
        seen.append(made.granted)
        return draw(self)

    monkeypatch.setattr(LotSampler, "draw", watched)
    with charged(budget, lease) as dp:
        train(dp)
    assert len(seen) == STEPS
    assert all(granted >= number for number, granted in enumerate(seen, start=1))
    if lease != "auto":
        assert all(granted <= number - 1 + lease for number, granted in enumerate(seen, start=1))


def test_statement_names_the_charge_and_the_newest_entry(budget: Budget) -> None:
    with charged(budget) as dp:
        train(dp)
    said = dp.statement(DELTA).ledger
    made = only(budget)
    assert said is not None
    for part in (f"reservation {made.number}", "'data'", budget.ledger.location, "'basic'"):
        assert part in said
    assert str(budget.ledger.head) in said
    assert budget.ledger.contains(said.rpartition("head ")[2])
    with session(plan=noisy()) as free:
        train(free)
    assert free.statement(DELTA).ledger is None


def test_what_does_not_belong_to_the_budget_is_refused(ledger: Ledger) -> None:
    other = ledger.open("users", epsilon=9.0, delta=DELTA, unit="user")
    with pytest.raises(InvalidArgument, match="unit must be that of the budget 'users'"):
        charged(other).__enter__()
    other = ledger.open("replaced", epsilon=9.0, delta=DELTA, adjacency="replace-one")
    with pytest.raises(InvalidArgument, match="adjacency must be that of the budget 'replaced'"):
        charged(other).__enter__()
    for wrong in (3.0, "data", ledger):
        with pytest.raises(InvalidArgument, match="budget must be a budget of a ledger"):
            charged(wrong)


def test_seeded_run_cannot_be_charged(budget: Budget) -> None:
    with pytest.raises(InvalidArgument, match="unsafe_seed=7 voids the guarantee"):
        charged(budget, unsafe_seed=7)


# ---- giving back


@pytest.mark.parametrize("lease", [1, 4, 50, "auto"])
def test_run_that_is_left_early_gives_back_what_it_did_not_use(
    lease: int | str, budget: Budget
) -> None:
    dp = charged(budget, lease)
    with dp:
        train(dp, 4)
    assert only(budget).granted == 4
    with dp:  # entered again, it goes on with the same reservation
        assert dp.steps_lost == 0
        assert train(dp) == 6
    assert only(budget).granted == STEPS


def test_run_that_fails_gives_back_all_but_the_lot_at_hand(budget: Budget) -> None:
    with pytest.raises(ZeroDivisionError), charged(budget, 8) as dp:
        train(dp, 2)
        next(dp.lots())
        raise ZeroDivisionError
    assert only(budget).granted == 3
    with charged(budget.reservation(only(budget).number)) as again:
        assert again.steps_lost == 3
        assert train(again) == 7
    assert again.steps_lost == 3


def test_error_of_the_run_is_told_and_not_that_of_the_ledger(
    budget: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise LedgerError("locked")

    with pytest.raises(ZeroDivisionError), charged(budget, 8) as dp:
        train(dp, 2)
        monkeypatch.setattr(tacit.ledger.Reservation, "give_back", refuse)
        raise ZeroDivisionError
    assert only(budget).granted == 8
    with pytest.raises(LedgerError, match="locked"), charged(budget, 8) as dp:
        train(dp, 2)


def test_nothing_is_taken_outside_of_the_context(budget: Budget) -> None:
    with charged(budget) as dp:
        lots = dp.lots()
        whole_lot(dp, next(lots), cross_entropy(dp.model))
    with pytest.raises(ProtocolError, match="inside `with"):
        next(lots)
    with pytest.raises(AssertionError):
        dp._charges.take()
    assert only(budget).granted == 1


# ---- checkpoints


def saved(budget: Budget, path: Path, at: int, then: int, lease: int | str = 3) -> int:
    """A run that is saved after ``at`` steps, goes on for ``then`` more, and is left."""
    with charged(budget, lease) as dp:
        train(dp, at)
        dp.save(path)
        if then:
            train(dp, then)
    return only(budget).number


def test_old_checkpoint_never_rewinds_the_ledger(budget: Budget, tmp_path: Path) -> None:
    saved(budget, tmp_path / "run", 2, 3)
    for granted in (5, 7, 9):
        with charged(budget, resume=tmp_path / "run") as dp:
            assert (only(budget).granted, dp.steps_taken) == (granted, 2)
            assert dp.steps_lost == granted - 2
            assert dp.spent(DELTA) == noisy(steps=granted).epsilon(DELTA)
            train(dp, 2)
        if granted < 9:
            assert dp.statement(DELTA).epsilon == noisy().epsilon(DELTA)
    # The third found one step, the next finds none; each is the model of the checkpoint, or near.
    with charged(budget, resume=tmp_path / "run") as dp:
        assert train(dp) == 0
    assert (dp.steps_taken, dp.steps_lost) == (2, 8)
    early = dp.statement(DELTA).stopped_early or ""
    assert "8 of the steps were charged to attempts that crashed or were rewound" in early
    assert budget.spent().epsilon == only(budget).charge.epsilon  # one plan, reserved once


def test_resumed_run_ends_as_many_steps_early_as_were_lost(budget: Budget, tmp_path: Path) -> None:
    number = saved(budget, tmp_path / "run", 4, 3)
    for given in (budget, budget.reservation(number)):
        dp = charged(given, resume=tmp_path / "run")
        assert dp.steps_taken == 4
    with dp:
        assert dp.steps_lost == 3
        assert train(dp) == 3
    assert (dp.steps_taken, dp.steps_lost) == (7, 3)
    assert "3 of the steps were charged" in (dp.statement(DELTA).stopped_early or "")


def test_steps_that_another_run_took_meanwhile_are_told(budget: Budget, tmp_path: Path) -> None:
    number = saved(budget, tmp_path / "run", 2, 0)
    waiting = charged(budget, resume=tmp_path / "run")
    with charged(budget.reservation(number)) as other:
        train(other, 1)
    with waiting:
        assert waiting.steps_lost == 1  # as of entering, not of making
        train(waiting, 2)
        with charged(budget.reservation(number)) as other:
            train(other, 1)
        train(waiting)
    assert waiting.steps_taken + waiting.steps_lost == STEPS
    assert waiting.steps_lost == 2


def test_checkpoint_of_before_the_reservation(budget: Budget, tmp_path: Path) -> None:
    dp = charged(budget)
    dp.save(tmp_path / "run")
    with dp:
        train(dp, 2)
    number = only(budget).number
    with charged(budget.reservation(number), resume=tmp_path / "run") as again:
        assert train(again) == 8
    assert again.steps_lost == 2


def test_checkpoint_goes_on_in_its_own_budget_only(
    budget: Budget, ledger: Ledger, tmp_path: Path
) -> None:
    number = saved(budget, tmp_path / "run", 2, 0)
    with pytest.raises(InvalidArgument, match=r"charged to the budget 'data'; pass budget="):
        charged(None, resume=tmp_path / "run")
    other = ledger.open("other", epsilon=20.0, delta=DELTA)
    with pytest.raises(InvalidArgument, match=rf"reservation {number} of 'data' .*got 'other'"):
        charged(other, resume=tmp_path / "run")
    with tacit.Ledger(f"sqlite:///{tmp_path}/another.db") as foreign:
        same = foreign.open("data", epsilon=20.0, delta=DELTA)
        with pytest.raises(InvalidArgument, match=f"in the ledger {ledger.identity}"):
            charged(same, resume=tmp_path / "run")
    with charged(budget) as second:  # a second run of the same plan
        train(second, 1)
    mine = second._charges._reservation
    with pytest.raises(InvalidArgument, match=rf"must be reservation {number} of 'data', as in"):
        charged(mine, resume=tmp_path / "run")
    with session(plan=noisy()) as free:
        free.save(tmp_path / "free")
    with pytest.raises(InvalidArgument, match="of a run without a budget"):
        charged(budget, resume=tmp_path / "free")


def test_refused_checkpoint_changes_nothing(budget: Budget, tmp_path: Path) -> None:
    saved(budget, tmp_path / "run", 2, 0)
    model = network(seed=3)
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(InvalidArgument):
        charged(None, resume=tmp_path / "run", model=model)
    assert all(map(torch.equal, before, model.parameters()))


def test_reservation_of_another_plan_is_refused(budget: Budget) -> None:
    with charged(budget, stop_after=6) as dp:
        train(dp, 1)
    made = budget.reservation(only(budget).number)
    for changed in (
        {},  # without its stop
        {"stop_after": 5},
        {"plan": noisy(noise_multiplier=1.0), "stop_after": 6},
        {"plan": noisy(clip=9.0), "stop_after": 6},
    ):
        with pytest.raises(InvalidArgument, match="must hold a reservation of this plan"):
            charged(made, **changed).__enter__()
    assert only(budget).granted == 1


def test_a_reservation_of_less_than_its_detail_says_is_refused(budget: Budget) -> None:
    plan = noisy()
    small = Release(Repeated(Gaussian(1000.0), STEPS), plan.adjacency, plan.unit)
    whole = Release(plan.event, plan.adjacency, plan.unit)
    for what, steps in ((small, STEPS), (whole, STEPS - 1)):
        made = budget.reserve(what, steps=steps, detail=detail_of(plan, STEPS))
        with pytest.raises(InvalidArgument, match="must hold a reservation of this plan"):
            charged(made).__enter__()
        assert made.granted == 0


def test_a_reservation_may_differ_in_the_last_digits_of_another_machine(budget: Budget) -> None:
    plan = noisy()
    near = noisy(noise_multiplier=2.0 * (1.0 + 2.0**-50))
    assert near.event != plan.event
    what = Release(near.event, plan.adjacency, plan.unit)
    made = budget.reserve(what, steps=STEPS, detail=detail_of(plan, STEPS))
    with charged(made) as dp:
        assert train(dp, 1) == 1


def test_what_a_run_took_of_a_reservation_nobody_else_gives_back(budget: Budget) -> None:
    plan = noisy()
    what = Release(plan.event, plan.adjacency, plan.unit)
    made = budget.reserve(what, steps=STEPS, detail=detail_of(plan, STEPS))
    with charged(made, lease=1) as dp:
        train(dp, 4)
    with pytest.raises(InvalidArgument, match="at most the 0 that this object leased"):
        made.give_back(4)
    assert only(budget).granted == 4


def test_older_copy_of_the_ledger_is_found_by_the_checkpoint(sqlite: Place, tmp_path: Path) -> None:
    """Both the ledger and its anchor are put back: by themselves they are beyond reproach."""
    ledger = sqlite.ledger()
    budget = ledger.open("data", epsilon=20.0, delta=DELTA)
    files = [tmp_path / "budget.db", tmp_path / "budget.db.anchor"]
    kept = tmp_path / "kept"
    kept.mkdir()
    with charged(budget) as dp:
        train(dp, 2)
    number = only(budget).number
    ledger.close()
    for one in files:
        shutil.copy(one, kept)
    again = sqlite.ledger()
    with charged(again.budget("data").reservation(number)) as dp:
        train(dp, 3)
        dp.save(tmp_path / "run")
    again.close()
    for one in files:
        shutil.copy(kept / one.name, one)
    old = sqlite.ledger().budget("data")
    assert old.ledger.verify().ok
    with pytest.raises(TamperedLedger, match="older copy was put back; bring the newest") as found:
        charged(old, resume=tmp_path / "run")
    assert "\n" not in str(found.value)


def test_checkpoint_that_does_not_say_where_it_is_charged_is_refused(
    budget: Budget, tmp_path: Path
) -> None:
    saved(budget, tmp_path / "run", 1, 0)
    document, tensors = checkpoint_file.read(tmp_path / "run")
    values = document["state"]["tacit ledger"]["values"]["dict"]
    values.pop()
    checkpoint_file.write(tmp_path / "run", document, tensors)
    with pytest.raises(CheckpointError, match="does not say where its run is charged"):
        charged(budget, resume=tmp_path / "run")


# ---- several processes


def in_a_child(work: Any) -> tuple[int, int]:
    """Starts ``work`` in a forked process; its identity, and where its answer can be read."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            answer = str(work())
        except BaseException as error:
            answer = repr(error)
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    return child, reader


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the fork, in newer Pythons
def test_processes_that_share_a_reservation_share_its_steps(place: Place) -> None:
    budget = place.ledger().open("data", epsilon=20.0, delta=DELTA)
    with charged(budget, plan=noisy(steps=60)) as dp:
        train(dp, 5)
    number = only(budget).number

    def work() -> int:
        with tacit.Ledger(place.url, anchor=place.anchor) as mine:
            reservation = mine.budget("data").reservation(number)
            try:
                with charged(reservation, plan=noisy(steps=60)) as other:
                    return train(other)
            except LedgerError:  # the other one took the last step during the rehearsal
                return 0

    children = [in_a_child(work) for _ in range(2)]
    taken = []
    for child, reader in children:
        with os.fdopen(reader) as answer:
            taken.append(int(answer.read()))
        os.waitpid(child, 0)
    assert sum(taken) == 55
    assert only(budget).granted == 60


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the fork, in newer Pythons
def test_kill_9_costs_a_twentieth_of_the_plan_at_most(place: Place) -> None:
    """A run of a second, killed at step 120 of 318: half its plan was lost once."""
    budget = place.ledger().open("data", epsilon=50.0, delta=DELTA)

    def work() -> int:
        with tacit.Ledger(place.url, anchor=place.anchor) as mine:
            dp = charged(mine.budget("data"), "auto", plan=noisy(steps=318))
            with dp:
                train(dp, 120)
                os.kill(os.getpid(), signal.SIGKILL)
        return 0

    child, reader = in_a_child(work)
    os.close(reader)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert 120 <= only(budget).granted <= 120 + 318 // 20


def test_optimizer_of_a_charged_run_is_stepped_once_a_charge(budget: Budget) -> None:
    model = network()
    optimizer = sgd(model)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append(1))
    with charged(budget, model=model, optimizer=optimizer, dataset=data()) as dp:
        train(dp)
    assert len(calls) == only(budget).granted == STEPS


def test_a_plan_that_is_charged_as_an_event_is_refused_in_a_short_line(tmp_path):
    plan = tacit.Plan(examples=200, lot_size=20, steps=5, noise_multiplier=1.0, clip=1.0)
    with (
        tacit.Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger,
        pytest.raises(InvalidArgument, match=r"a plan's is plan\.event$") as refused,
    ):
        ledger.open("people", epsilon=8, delta=1e-5).charge(plan)
    assert len(str(refused.value)) < 200
