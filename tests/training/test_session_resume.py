"""Stopping early, saving and going on: what is charged, and that nothing is drawn twice."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.optim import lr_scheduler

import tacit
from tacit.errors import CheckpointError, InvalidArgument, ProtocolError
from tacit.training import AdaptiveQuantile, checkpoint_file
from tacit.training.checkpoint_file import Packer, unpack

from .sessions import Grads, cross_entropy, data, drawn, network, plan, session, whole_lot

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from tacit.training.session import Session

DELTA = 1e-5


def noisy(**changed: Any) -> tacit.Plan:
    return plan(**{"noise_multiplier": 1.0, "steps": 6, "lot_size": 10} | changed)


def take(dp: Session, steps: int) -> list[list[int]]:
    """So many steps; the lots they took."""
    found = []
    for _ in range(steps):
        lot = next(dp.lots())
        found.append(drawn(lot).tolist())
        whole_lot(dp, lot, cross_entropy(dp.model))
    return found


# ---- what is charged


def test_what_was_spent_grows_to_the_whole_plan() -> None:
    with session(plan=noisy()) as dp:
        spent = [dp.spent(DELTA)]
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(dp.model))
            spent.append(dp.spent(DELTA))
    assert spent[0] == 0.0
    assert all(a < b for a, b in pairwise(spent))
    assert spent[-1] == noisy().epsilon(DELTA)
    assert spent[3] == noisy(steps=3).epsilon(DELTA)


def test_after_an_early_stop_the_whole_plan_is_charged() -> None:
    with session(plan=noisy()) as dp:
        take(dp, 2)
    claim = dp.statement(DELTA)
    assert claim.epsilon == noisy().epsilon(DELTA)
    assert (claim.steps_taken, claim.steps_planned) == (2, 6)
    assert "whole plan is charged" in (claim.stopped_early or "")


def test_a_stop_that_was_fixed_in_advance_is_charged_alone() -> None:
    with session(plan=noisy(), stop_after=3) as dp:
        take(dp, 2)
        early = dp.statement(DELTA)
        take(dp, 1)
        assert list(dp.lots()) == []
        with pytest.raises(ProtocolError):
            dp.step()
    for claim in (early, dp.statement(DELTA)):
        assert claim.epsilon == noisy(steps=3).epsilon(DELTA)
        assert "fixed in advance" in (claim.stopped_early or "")
    assert dp.steps_taken == 3


def test_a_finished_plan_needs_no_excuse() -> None:
    with session(plan=noisy()) as dp:
        take(dp, 6)
    claim = dp.statement(DELTA)
    assert claim.stopped_early is None
    assert claim.epsilon == noisy().epsilon(DELTA)
    assert claim.plan == noisy().as_dict()
    assert tacit.Plan.from_dict(claim.plan) == noisy()


@pytest.mark.parametrize("stop", [0, 7, 2.5])
def test_a_stop_must_lie_within_the_plan(stop: Any) -> None:
    with pytest.raises(InvalidArgument, match="stop_after"):
        session(plan=noisy(), stop_after=stop)


# ---- checkpoints


def build(optimizer: str = "AdamW", **changed: Any) -> tuple[Session, Any, Grads]:
    model = network(seed=7)
    made = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1)
    scheduler = lr_scheduler.StepLR(made, 2, gamma=0.5)
    grads = Grads(model, made)
    given = {"plan": noisy(), "state": {"scheduler": scheduler}} | changed
    return session(model, optimizer=made, **given), scheduler, grads


def train(dp: Session, scheduler: Any, steps: int) -> list[list[int]]:
    found = []
    for _ in range(steps):
        found += take(dp, 1)
        scheduler.step()
    return found


def test_model_optimizer_scheduler_and_steps_come_back(tmp_path: Path) -> None:
    dp, scheduler, _ = build()
    with dp:
        train(dp, scheduler, 3)
        dp.save(tmp_path / "run")
    again, other, _ = build(resume=tmp_path / "run")
    assert again.steps_taken == 3
    for one, two in zip(dp.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, two)
    (first,), (second,) = dp.optimizers, again.optimizers
    assert first.param_groups[0]["lr"] == second.param_groups[0]["lr"] == 0.05
    for at, state in first.state_dict()["state"].items():
        for name, value in state.items():
            assert torch.equal(value, second.state_dict()["state"][at][name])
    assert scheduler.state_dict() == other.state_dict()
    with again:
        train(again, other, 3)
        assert list(again.lots()) == []
    assert again.steps_taken == 6
    assert again.statement(DELTA).epsilon == noisy().epsilon(DELTA)


@pytest.mark.parametrize("seed", [None, 11])
def test_a_resumed_run_draws_nothing_twice(seed: int | None, tmp_path: Path) -> None:
    """PEERS 9 and 10; not even under a fixed seed."""
    dp, scheduler, grads = build("SGD", unsafe_seed=seed)
    with dp:
        dp.save(tmp_path / "start")
        lots = train(dp, scheduler, 2)
        dp.save(tmp_path / "run")
        lots += train(dp, scheduler, 2)
    noises = [step["0.weight"] for step in grads.steps]
    for _ in range(2):
        again, other, more = build("SGD", unsafe_seed=seed, resume=tmp_path / "run")
        with again:
            lots += train(again, other, 2)
        noises += [step["0.weight"] for step in more.steps]
        if seed is not None:
            break  # a seed is to reproduce: what it must not do is to start again from its start
    assert len({tuple(lot) for lot in lots if lot}) == len([lot for lot in lots if lot])
    for at, one in enumerate(noises):
        assert not any(torch.equal(one, other) for other in noises[at + 1 :])


def test_another_plan_is_refused(tmp_path: Path) -> None:
    dp, _, _ = build()
    dp.save(tmp_path / "run")
    for changed in ({"noise_multiplier": 0.5}, {"steps": 60}, {"clip": 9.0}):
        with pytest.raises(InvalidArgument, match="belongs to another plan"):
            build(plan=noisy(**changed), resume=tmp_path / "run")


def test_a_stop_cannot_be_fixed_afterwards(tmp_path: Path) -> None:
    dp, scheduler, _ = build()
    with dp:
        train(dp, scheduler, 4)
        dp.save(tmp_path / "run")
    for stop in (2, 5):
        with pytest.raises(InvalidArgument, match="was not fixed before the first step"):
            build(stop_after=stop, resume=tmp_path / "run")


def test_a_stop_fixed_in_advance_is_kept(tmp_path: Path) -> None:
    dp, scheduler, _ = build(stop_after=3)
    with dp:
        train(dp, scheduler, 2)
        dp.save(tmp_path / "run")
    for given in ({}, {"stop_after": 3}):
        again, other, _ = build(resume=tmp_path / "run", **given)
        with again:
            train(again, other, 1)
            assert list(again.lots()) == []
        assert again.statement(DELTA).epsilon == noisy(steps=3).epsilon(DELTA)


def test_a_run_that_was_seeded_stays_void(tmp_path: Path) -> None:
    dp, scheduler, _ = build(unsafe_seed=1)
    with dp:
        train(dp, scheduler, 1)
        dp.save(tmp_path / "run")
    again, _, _ = build(resume=tmp_path / "run")
    assert any("VOIDS" in text for text in again.statement(DELTA).assumptions)


def test_an_adaptive_clip_is_restored(tmp_path: Path) -> None:
    chosen = noisy(clipping=AdaptiveQuantile(count_noise=1.0, learning_rate=0.5))
    dp, scheduler, _ = build(plan=chosen)
    with dp:
        train(dp, scheduler, 4)
        dp.save(tmp_path / "run")
    again, _, _ = build(plan=chosen, resume=tmp_path / "run")
    assert dp._clip.sensitivity != chosen.clip
    assert again._clip.sensitivity == dp._clip.sensitivity
    assert torch.equal(again._clip.bounds, dp._clip.bounds)


def test_saving_comes_between_lots(tmp_path: Path) -> None:
    dp, scheduler, _ = build()
    with dp:
        train(dp, scheduler, 1)
        lot = next(dp.lots())
        with pytest.raises(ProtocolError, match="comes between lots"):
            dp.save(tmp_path / "run")
        assert not (tmp_path / "run").exists()
        for batch in lot:
            dp.backward(cross_entropy(dp.model)(batch))
            with pytest.raises(ProtocolError, match="comes between lots"):
                dp.save(tmp_path / "run")
        dp.step()
        dp.save(tmp_path / "run")
    dp.save(tmp_path / "after")


def test_a_checkpoint_is_of_private_parameters_only(tmp_path: Path) -> None:
    dp, _, _ = build()
    with pytest.raises(ProtocolError, match="was changed in place"), dp:
        with torch.no_grad():
            next(dp.model.parameters()).zero_()
        dp.save(tmp_path / "run")


def test_other_state_is_refused(tmp_path: Path) -> None:
    dp, _, _ = build()
    dp.save(tmp_path / "run")
    with pytest.raises(CheckpointError, match="scheduler"):
        build(state={}, resume=tmp_path / "run")


def test_a_checkpoint_holds_no_random_state(tmp_path: Path) -> None:
    dp, _, _ = build(unsafe_seed=123456789)
    dp.save(tmp_path / "run")
    assert b"123456789" not in (tmp_path / "run").read_bytes()


def test_a_run_may_go_on_in_many_pieces(tmp_path: Path) -> None:
    resume, total = None, 0
    for _ in range(6):
        dp, scheduler, _ = build(resume=resume)
        with dp:
            total += len(train(dp, scheduler, 1))
            dp.save(resume := tmp_path / "run")
    assert dp.steps_taken == total == 6
    with dp:
        assert list(dp.lots()) == []


def weights(dp: Session) -> list[Tensor]:
    return [p.detach().clone() for p in dp.model.parameters()]


def test_saving_changes_nothing(tmp_path: Path) -> None:
    ended = []
    for saves in (True, False):
        dp, scheduler, _ = build(unsafe_seed=4, dataset=data())
        with dp:
            for _ in range(3):
                train(dp, scheduler, 1)
                if saves:
                    dp.save(tmp_path / "run")
        ended.append(weights(dp))
    assert all(torch.equal(a, b) for a, b in zip(*ended, strict=True))


# ---- what a file may say


def forged(path: Path, **changed: Any) -> Path:
    """A checkpoint after 2 of 6 steps, changed by somebody who knows the format."""
    with session(plan=noisy()) as dp:
        take(dp, 2)
        dp.save(path)
    document, tensors = checkpoint_file.read(path)
    if "last_step" in changed or "unsafe" in changed:
        values = unpack(document["state"]["tacit run"]["values"], tensors) | changed
        document["state"]["tacit run"]["values"] = Packer().pack(values, "run")
    elif "weight" in changed:
        name = next(name for name in tensors if name.startswith("model"))
        tensors[name] = torch.full_like(tensors[name], changed["weight"])
    elif "lr" in changed:
        values = unpack(document["optimizers"][0]["values"], tensors)
        values["param_groups"][0] |= changed
        document["optimizers"][0]["values"] = Packer().pack(values, "o")
    else:
        document |= changed
    checkpoint_file.write(path, document, tensors)
    return path


@pytest.mark.parametrize(
    "change",
    [
        *({"steps_taken": taken} for taken in (7, 11, -1, 1e30, 10**30, 2.0, True, None, "2")),
        *({"last_step": last} for last in (1, 0, -1, 7, 6.0, "6", None, True)),
        {"unsafe": 0},
        {"unsafe": None},
        {"weight": float("nan")},
        {"weight": float("-inf")},
        {"lr": "1"},
        {"lr": None},
        {"lr": float("nan")},
        {"lr": float("inf")},
        {"lr": [0.1]},
    ],
    ids=str,
)
def test_a_checkpoint_with_impossible_numbers_is_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    path = forged(tmp_path / "run", **change)
    with pytest.raises(CheckpointError) as refusal:
        session(plan=noisy(), resume=path)
    assert "\n" not in str(refusal.value)


def test_the_forgers_way_works(tmp_path: Path) -> None:
    path = forged(tmp_path / "run", steps_taken=6)
    assert session(plan=noisy(), resume=path).steps_taken == 6
