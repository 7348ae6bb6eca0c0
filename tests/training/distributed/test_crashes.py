"""Ranks that are killed anywhere: no step is released that is not charged, and all ranks end.

A referee sits in every rank: before noise is drawn it opens the ledger for itself and compares what
was granted with all that was ever released. Afterwards another number of ranks goes on.
"""

from __future__ import annotations

import os
import random
import signal
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import distributed, nn

import tacit
from tacit.errors import LostRank, TacitError
from tacit.ledger.budget import Budget
from tacit.ledger.reservation import Reservation
from tacit.randomness import GaussianSource
from tacit.training import checkpoint_file
from tacit.training.charging import FollowedCharges, StepCharges
from tacit.training.clipping.engine import Engine
from tacit.training.distributed import agreement, shares
from tacit.training.distributed.shares import Shares
from tacit.training.distributed.world import World
from tacit.training.noise import FastNoise
from tacit.training.sampling import LotSampler
from tacit.training.session import Session

from ..crash_child import around
from .ranks import Killed, together
from .runs import by_class, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STEPS = 6
PLACES: list[tuple[Any, str]] = [
    (World, "said"), (World, "all_say"), (World, "_broadcast"), (World, "_gathered"),
    (World, "streams"), (World, "broadcast_"), (agreement, "check"), (Budget, "reserve"),
    (Reservation, "lease"), (StepCharges, "begin"), (StepCharges, "take"),
    (FollowedCharges, "take"), (FollowedCharges, "begin"), (LotSampler, "draw"),
    (Engine, "finish"), (Session, "step"),
    (Shares, "totals"), (Shares, "means"), (shares, "reduce_scattered"), (shares, "all_gathered"),
    (FastNoise, "means"), (GaussianSource, "normal_"), (Session, "_update"), (Session, "save"),
    (checkpoint_file, "write"), (Session, "__enter__"), (Session, "__exit__"),
    (distributed, "broadcast"), (distributed, "all_gather"), (os, "replace"),
]  # fmt: skip
POINTS = [(place, when) for place in range(len(PLACES)) for when in ("before", "after")]


def ledger_of(folder: Path) -> Any:
    ledger = tacit.Ledger(f"sqlite:///{folder}/budget.db", anchor=folder / "anchor")
    return ledger.open("data", epsilon=1e5, delta=1e-3)


def granted(folder: Path) -> int:
    budget = ledger_of(folder)
    try:
        return int(budget.ledger.refresh().budgets["data"].granted)
    finally:
        budget.ledger.close()


def released(folder: Path) -> set[tuple[int, int]]:
    """The steps, each with its attempt, that any rank has drawn noise for."""
    path = folder / "released"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return {(int(a), int(b)) for a, b in (line.split() for line in lines)}


def train(rank: int, folder: Path, attempt: int, kill: dict[str, Any] | None) -> dict[str, int]:
    """Goes on with the run in ``folder`` as far as it comes, as a user's script would."""
    checkpoint = folder / "checkpoint"
    resume = checkpoint if checkpoint.exists() else None
    budget = None
    if rank == 0:
        budget = ledger_of(folder)
        made = budget.ledger.books.of("data")
        if made and resume is None:  # it died before its first checkpoint
            budget = budget.reservation(made[-1].number)
    if kill is not None and kill["rank"] == rank:
        arm(kill)
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    plan = tacit.Plan(examples=48, lot_size=12, steps=STEPS, noise_multiplier=1.0, clip=1.0)
    dp = tacit.private(
        model, torch.optim.SGD(model.parameters(), lr=0.1), plan, rows(), budget, resume=resume,
        performance=tacit.Performance(lease=2, patience=20.0),
    )  # fmt: skip

    def referee(*_args: Any, **_kwargs: Any) -> None:
        with (folder / "released").open("a") as log:
            log.write(f"{attempt} {dp.steps_taken}\n")
        allowed = granted(folder)
        assert len(released(folder)) <= allowed, "a step was released that is not charged"

    with dp:
        around(dp._noise, "means", referee)
        for lot in dp.lots():
            for batch in lot:
                dp.backward(by_class(model, batch))
            dp.step()
            if dp.steps_taken % 2 == 0:
                dp.save(checkpoint)
    return {"taken": dp.steps_taken, "lost": dp.steps_lost}


def arm(kill: dict[str, Any]) -> None:
    """Makes this process die at a point, the nth time that it comes there."""
    owner, name = PLACES[kill["place"]]
    times = 0

    def die(*_args: Any, **_kwargs: Any) -> None:
        nonlocal times
        times += 1
        if times == kill["nth"]:
            os.kill(os.getpid(), signal.SIGKILL)

    if kill["when"] == "before":
        around(owner, name, die)
    else:
        around(owner, name, lambda *_a, **_k: None, die)


def survive(folder: Path, size: int, kill: dict[str, Any], after: int) -> bool:
    """One rank is killed; the others end; another number goes on. Whether it died at all."""

    def first(rank: int) -> dict[str, int]:
        return train(rank, folder, 0, kill)

    found = together(size, first, expect=TacitError)
    died = any(isinstance(one, Killed) for one in found)
    if died:
        # Whoever was past the last word that needs all of them has ended well.
        assert all(isinstance(one, (Killed, LostRank, dict)) for one in found), found
    assert len(released(folder)) <= granted(folder)
    work: Callable[[int], dict[str, int]] = lambda rank: train(rank, folder, 1, None)  # noqa: E731
    ended = together(after, work) if after > 1 else [work(0)]
    total = granted(folder)
    assert len(released(folder)) <= total <= STEPS
    for one in ended:
        assert one["taken"] + one["lost"] == STEPS == total, (one, total)
    return died


@pytest.mark.parametrize(
    ("name", "rank", "when", "nth", "after"),
    [
        ("take", 0, "after", 3, 1),
        pytest.param("reduce_scattered", 1, "before", 2, 3, marks=pytest.mark.slow),
    ],
)
def test_a_killed_rank_leaves_nothing_uncharged(
    tmp_path: Path, name: str, rank: int, when: str, nth: int, after: int
) -> None:
    place = next(at for at, (_, known) in enumerate(PLACES) if known == name)
    kill = {"place": place, "rank": rank, "when": when, "nth": nth}
    assert survive(tmp_path, 2, kill, after)


@pytest.mark.slow
@pytest.mark.parametrize("tenth", range(10))
def test_ranks_killed_at_many_places(tmp_path: Path, tenth: int) -> None:
    """Two hundred kills in all, at sixty points of thirty places."""
    chance = random.Random(tenth)
    died = 0
    for number in range(24):
        folder = tmp_path / str(number)
        folder.mkdir()
        size = chance.choice([2, 2, 3])
        place, when = POINTS[(24 * tenth + number) % len(POINTS)]
        rank = chance.randrange(size)
        if PLACES[place][0] in (Budget, Reservation, StepCharges, checkpoint_file, os):
            rank = 0  # which alone comes there
        few = PLACES[place][1] in {"check", "streams", "broadcast_", "begin", "reserve",
                                   "__enter__", "__exit__"}  # fmt: skip
        kill = {"place": place, "when": when, "rank": rank,
                "nth": 1 if few else chance.randint(1, 3)}  # fmt: skip
        died += survive(folder, size, kill, chance.choice([1, 2, 3]))
    assert died >= 20, died
