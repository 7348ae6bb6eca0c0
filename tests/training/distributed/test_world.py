"""Ranks that disagree, die, hang or lose their way end together, in one line."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset

import tacit
from tacit.errors import InvalidArgument, LedgerError, LostRank, TacitError
from tacit.training.distributed import agreement
from tacit.training.distributed.world import joined, launch

from .ranks import Killed, together
from .runs import EXAMPLES, Run, by_class, network, rows

if TYPE_CHECKING:
    from collections.abc import Callable


def started(
    *, data: Dataset[Any] | None = None, plan: dict[str, Any] | None = None, **options: Any
) -> tacit.training.Session:
    model = options.pop("model", None) or network()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.pop("lr", 0.1))
    given = rows() if data is None else data
    return tacit.private(model, optimizer, Run(plan=plan or {}).plan_of(), given, **options)


def trained(dp: tacit.training.Session, *, die: Callable[[int], None] | None = None) -> int:
    with dp:
        for lot in dp.lots():
            for batch in lot:
                dp.backward(by_class(dp.model, batch))
            if die is not None:
                die(lot.step)
            dp.step()
    return dp.steps_taken


def lines(found: list[Any]) -> list[str]:
    assert all(isinstance(one, (TacitError, Killed)) for one in found), found
    texts = [str(one) for one in found]
    assert not any("\n" in text for text in texts)
    return texts


# ---- disagreement


class Drawn(Dataset[Any]):
    """Rows with random numbers of their own in them, of a generator that nobody seeds."""

    def __init__(self, labels: torch.Tensor) -> None:
        self._labels, self._random = labels, np.random.default_rng()

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, at: int) -> Any:
        x = torch.from_numpy(self._random.normal(size=5)).float() + torch.rand(5)
        return x, self._labels[at]


DISAGREEMENTS: list[tuple[str, Callable[[int], object]]] = [
    ("the plan", lambda rank: started(plan={"clip": 1.0 + rank})),
    ("the data set", lambda rank: started(
        data=Subset(rows(), np.roll(np.arange(EXAMPLES), rank).tolist()))),
    ("the data set", lambda rank: started(
        data=TensorDataset(rows().tensors[0] + rank * 1e-3, rows().tensors[1]))),
    ("the data set", lambda rank: started(data=Drawn(rows().tensors[1].roll(rank)))),
    ("groups", lambda rank: started(
        plan={"unit": "user", "examples": 12, "lot_size": 4, "examples_per_user": 4},
        groups=np.roll(np.arange(EXAMPLES) % 12, rank))),
    ("the parameters", lambda rank: started(model=torch.nn.Linear(5, 3, bias=rank == 0))),
    ("the optimizers", lambda rank: started(lr=0.1 + rank)),
    ("stop_after", lambda rank: started(stop_after=2 + rank)),
    ("unsafe_seed", lambda rank: started(unsafe_seed=rank)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("what", "start"),
    [
        pytest.param(*one, marks=pytest.mark.slow if at > 1 else ())
        for at, one in enumerate(DISAGREEMENTS)
    ],
)
def test_disagreement_is_refused_everywhere(what: str, start: Callable[[int], object]) -> None:
    texts = lines(together(2, start, expect=TacitError))
    assert texts[0] == texts[1]
    assert texts[0].startswith(f"{what} must be the same on every rank, but that of rank 1")
    assert "Nothing was charged" in texts[0]


def test_another_version_of_tacit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(rank: int) -> object:
        if rank:
            monkeypatch.setattr(agreement, "code_hash", lambda: "a changed checkout")
        return started()

    texts = lines(together(2, start, expect=InvalidArgument))
    assert all(text.startswith("the version of tacit must be the same") for text in texts)


def test_data_with_random_numbers_agree() -> None:
    assert together(2, lambda _: trained(started(data=Drawn(rows().tensors[1])))) == [3, 3]


def test_hashes_see_order_content_and_kind() -> None:
    data = rows()
    x, y = data.tensors
    known = agreement.data_hash(data)
    assert agreement.data_hash(TensorDataset(x.clone(), y.clone())) == known
    others = [
        TensorDataset(x.flip(0), y.flip(0)), TensorDataset(x, y + 1), TensorDataset(x.double(), y),
        Subset(data, range(EXAMPLES)), Subset(data, list(range(EXAMPLES))[::-1]),
    ]  # fmt: skip
    assert len({known, *map(agreement.data_hash, others)}) == 6
    before = torch.get_rng_state()
    assert agreement.data_hash(Drawn(y)) == agreement.data_hash(Drawn(y))
    assert agreement.data_hash(Drawn(y)) != agreement.data_hash(Drawn(y.flip(0)))
    assert torch.equal(before, torch.get_rng_state())


class Ordered(TensorDataset):
    """Takes its rows in an order of its own."""

    def __init__(self, order: list[int]) -> None:
        super().__init__(*rows().tensors)
        self.order = order

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(self.order[index])


def test_hashes_are_of_the_rows_of_a_data_set_and_not_of_its_tensors() -> None:
    order = list(range(EXAMPLES))
    assert agreement.data_hash(Ordered(order)) == agreement.data_hash(Ordered([*order]))
    assert agreement.data_hash(Ordered(order)) != agreement.data_hash(Ordered(order[::-1]))


class Files(Dataset[Any]):
    """A list of files somewhere, which are read one by one, and a cache that ranks fill."""

    def __init__(self, folder: str, names: list[str]) -> None:
        self.files = [Path(folder) / name for name in names]
        self.labels = [(name, at % 3) for at, name in enumerate(names)]
        self.cache: list[Any] = [None for _ in names]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, at: int) -> Any:
        self.cache[at] = torch.zeros(2)  # whatever the file: reading shows nothing
        return self.cache[at]


class Around(Dataset[Any]):
    """Another data set, with something done to its records."""

    def __init__(self, inner: Dataset[Any]) -> None:
        self.inner = [inner]

    def __len__(self) -> int:
        return len(self.inner[0])  # type: ignore[arg-type]

    def __getitem__(self, at: int) -> Any:
        return 2 * self.inner[0][at]


def test_lists_of_files_are_compared_whole_wherever_they_lie() -> None:
    """Two of 500 names are in another order on another machine, which no 64 records would show."""
    names = [f"{at:03}.png" for at in range(500)]
    swapped = [*names[:7], names[8], names[7], *names[9:]]
    known = agreement.data_hash(Files("/data/a", names))
    read = Files("/data/a", names)
    assert [len(read[at]) for at in (3, 4, 5)] == [2, 2, 2]  # fills some of its cache
    assert agreement.data_hash(read) == known
    assert agreement.data_hash(Files("/mnt/b", names)) == known
    assert agreement.data_hash(Files("/data/a", swapped)) != known
    assert agreement.data_hash(Around(Files("/data/a", names))) == agreement.data_hash(
        Around(Files("/mnt/b", names))
    )
    assert agreement.data_hash(Around(Files("/data/a", names))) != agreement.data_hash(
        Around(Files("/data/a", swapped))
    )


# ---- attempts of one launcher


def test_ranks_do_not_meet_those_of_an_attempt_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torchrun's store holds the addresses of ranks that have ended, and torch would take them."""
    server = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")

    def work(rank: int) -> tuple[Any, ...]:
        os.environ["MASTER_PORT"] = str(server.port)
        time.sleep(0.3 * rank)  # rank 0 looks first, and finds an old rank 1
        world = joined(torch.device("cpu"), 20.0)
        again = joined(torch.device("cpu"), 20.0)  # as a second session of the process does
        return world.all_say("who", rank), again.all_say("who", rank), again._prefix, launch()

    attempts = [together(2, work) for _ in range(2)]
    assert all(one[:2] == ([0, 1], [0, 1]) for each in attempts for one in each)
    assert [len({one[2] for one in each}) for each in attempts] == [1, 1]
    assert len({each[0][2] for each in attempts}) == 2
    assert len({one[3] for each in attempts for one in each}) == 1


# ---- other ways


def test_ranks_that_go_different_ways_end() -> None:
    def work(rank: int) -> None:
        with started() as dp:
            for lot in dp.lots():
                for batch in lot:
                    dp.backward(by_class(dp.model, batch))
                dp.step()
                if rank == 0 and lot.step == 1:
                    dp.save("nowhere/checkpoint")

    texts = lines(together(2, work, expect=TacitError))
    assert any("rank 0 is at dp.save() after 2 steps and rank 1 at a new lot" in t for t in texts)


def test_an_error_of_one_rank_ends_the_others_with_its_reason() -> None:
    def work(rank: int) -> int:
        return trained(started(data=rows(EXAMPLES if rank == 0 else EXAMPLES - 1)))

    first, second = lines(together(2, work, expect=TacitError))
    assert "the plan is for examples=48, but the data set has 47" in second
    assert "rank 1 ended with InvalidArgument: the plan is for examples=48" in first


def test_an_error_of_the_loop_ends_the_others_without_its_words() -> None:
    """The words of a foreign error may hold private data."""

    def work(rank: int) -> int:
        def die(step: int) -> None:
            if rank == 1 and step == 1:
                raise KeyError("the label of a patient")

        return trained(started(), die=die)

    first, second = together(2, work, expect=Exception)
    assert isinstance(second, KeyError)
    assert isinstance(first, LostRank)
    assert "rank 1 ended with KeyError" in str(first)
    assert "patient" not in str(first)


def test_a_rank_that_is_killed_ends_the_others() -> None:
    def work(rank: int) -> int:
        def die(step: int) -> None:
            if rank == 0 and step == 1:
                os.kill(os.getpid(), signal.SIGKILL)

        return trained(started(), die=die)

    _, second = together(2, work, expect=LostRank)
    assert "rank 1 of 2 stops at" in str(second)
    assert "start all ranks again" in str(second)


def test_a_rank_that_hangs_ends_the_others() -> None:
    def work(rank: int) -> int:
        def die(step: int) -> None:
            if rank == 1 and step == 1:
                time.sleep(3.0)

        return trained(started(performance=tacit.Performance(patience=1.0)), die=die)

    found = together(2, work, expect=LostRank)
    assert all(isinstance(one, LostRank) for one in found)


# ---- charges


def test_one_rank_charges_for_all(tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        budget = None
        if rank == 0:
            ledger = tacit.Ledger(f"sqlite:///{tmp_path}/budget.db", anchor=tmp_path / "anchor")
            budget = ledger.open("data", epsilon=100, delta=1e-3)
        dp = started(budget=budget)
        trained(dp)
        claim = dp.statement(1e-4)
        entries = [one.kind for one in budget.ledger.history("data")] if budget else []
        return claim, entries, dp.spent(1e-4)

    (claim, entries, spent), (other, _, spent_there) = together(2, work)
    assert entries.count("reserve") == 1
    assert claim.epsilon == other.epsilon
    assert spent == spent_there == claim.epsilon
    assert (claim.charge.reservation, claim.charge.ledger) == (
        other.charge.reservation, other.charge.ledger)  # fmt: skip
    assert any("2 processes trained together" in one for one in claim.assumptions)


def test_what_the_ledger_refuses_all_ranks_refuse(tmp_path: Path) -> None:
    def work(rank: int) -> int:
        ledger = tacit.Ledger(f"sqlite:///{tmp_path}/{rank}.db", anchor=tmp_path / f"{rank}")
        limit = 0.01 if rank == 0 else 100.0  # another rank's own budget is not asked
        return trained(started(budget=ledger.open("data", epsilon=limit, delta=1e-3)))

    first, second = together(2, work, expect=TacitError)
    assert type(first) is type(second)
    assert str(first) == str(second)


def test_a_ledger_that_fails_fails_everywhere(tmp_path: Path) -> None:
    def work(rank: int) -> int:
        budget = None
        if rank == 0:
            ledger = tacit.Ledger(f"sqlite:///{tmp_path}/budget.db", anchor=tmp_path / "anchor")
            budget = ledger.open("data", epsilon=100, delta=1e-3)
        dp = started(budget=budget, performance=tacit.Performance(lease=1))
        if rank == 0:

            def broken() -> bool:
                raise LedgerError("the disk is full")

            dp._charges._own.take = broken
        return trained(dp)

    found = together(2, work, expect=LedgerError)
    assert [str(one) for one in found] == ["the disk is full"] * 2


def test_a_budget_that_rank_0_lacks_is_refused(tmp_path: Path) -> None:
    def work(rank: int) -> int:
        budget = None
        if rank == 1:
            ledger = tacit.Ledger(f"sqlite:///{tmp_path}/budget.db", anchor=tmp_path / "anchor")
            budget = ledger.open("data", epsilon=100, delta=1e-3)
        return trained(started(budget=budget))

    texts = lines(together(2, work, expect=InvalidArgument))
    assert all("budget must be given on rank 0" in text for text in texts)


def test_an_epoch_that_ranks_broke_off_is_paid_for_and_left(tmp_path: Path) -> None:
    """Allocation: its lots may have been seen, so that the rest of it is charged as lost."""
    given: dict[str, Any] = {"steps": 6, "sampling": "allocation", "lot_size": EXAMPLES / 3}

    def budget_of(rank: int) -> Any:
        if rank:
            return None
        ledger = tacit.Ledger(f"sqlite:///{tmp_path}/budget.db", anchor=tmp_path / "anchor")
        return ledger.open("data", epsilon=1000, delta=1e-3)

    def begun(rank: int) -> int:
        one_by_one = tacit.Performance(lease=1)
        dp = started(plan=given, budget=budget_of(rank), performance=one_by_one)
        with dp:
            for lot in dp.lots():
                for batch in lot:
                    dp.backward(by_class(dp.model, batch))
                dp.step()
                if lot.step == 0:
                    dp.save(tmp_path / "checkpoint")
                if lot.step == 1:
                    break  # this step is charged and released, and in no checkpoint
        return dp.steps_taken

    def ended(rank: int) -> tuple[int, int]:
        path = tmp_path / "checkpoint"
        dp = started(plan=given, budget=budget_of(rank), resume=path)
        trained(dp)
        return dp.steps_taken, dp.steps_lost

    assert together(2, begun) == [2, 2]
    assert together(2, ended) == [(4, 2), (4, 2)]


# ---- checkpoints


@pytest.mark.parametrize("after", [1, 3])
def test_a_run_goes_on_with_another_number_of_ranks(tmp_path: Path, after: int) -> None:
    """The same run, whoever took its first steps: a seed makes samples and noise the same."""
    path = tmp_path / "checkpoint"

    def begun(rank: int) -> int:
        del rank
        dp = started(plan={"steps": 5}, unsafe_seed=1)
        with dp:
            for lot in dp.lots():
                for batch in lot:
                    dp.backward(by_class(dp.model, batch))
                dp.step()
                if lot.step == 1:
                    dp.save(path)
                    return dp.steps_taken
        return 0

    def ended(rank: int) -> Any:
        del rank
        dp = started(plan={"steps": 5}, unsafe_seed=1, resume=path)
        trained(dp)
        flat = torch.cat([p.detach().flatten() for p in dp.model.parameters()])
        return dp.steps_taken, flat, dp.verify()

    torch.manual_seed(0)
    assert together(2, begun) == [2, 2]
    found = together(after, ended) if after > 1 else [ended(0)]
    alone = ended(0)
    for taken, flat, check in found:
        assert taken == 5
        assert float((flat - alone[1]).abs().max()) <= 1e-6
        assert check.ranks == after


def test_checkpoints_of_other_steps_are_refused(tmp_path: Path) -> None:
    def work(rank: int) -> int:
        torch.manual_seed(0)
        dp = started(plan={"steps": 4})
        resume = tmp_path / f"{rank}"
        with dp:
            for lot in dp.lots():
                for batch in lot:
                    dp.backward(by_class(dp.model, batch))
                dp.step()
                if lot.step == 0:
                    dp.save(tmp_path / "0")
                if lot.step == 1:
                    dp.save(tmp_path / "1")
        return trained(started(plan={"steps": 4}, resume=resume))

    texts = lines(together(2, work, expect=InvalidArgument))
    assert all(text.startswith("the step to go on from must be the same") for text in texts)


def test_a_seed_and_a_key_are_shared() -> None:
    def work(rank: int) -> Any:
        del rank
        dp = started()
        dp.__enter__()  # and nothing but the sample is looked at
        lot = next(dp.lots())
        lot._draw.sample()
        return dp._sampler._stream.bytes(8), lot._draw.left.tolist()

    (one, lot), (other, lot_there) = together(2, work)
    assert one == other
    assert not set(lot) & set(lot_there)
