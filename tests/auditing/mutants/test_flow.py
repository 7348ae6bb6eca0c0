"""Each step or number that depends on the data itself is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tacit.training.checkpoint import read

from .watching import run, shows, silent

if TYPE_CHECKING:
    from pathlib import Path

    from .mutant import Mutant


@shows("empty lot without noise")
def test_an_empty_lot_changes_nothing(mutant: Mutant) -> None:
    setting = mutant.setting()
    with mutant.patch():
        seen = run(setting, unsafe_seed=0)
    empty = [not lot for lot in seen.lots]
    before, after = seen.weights[:-1], seen.weights[1:]
    still = [torch.equal(a["weight"], b["weight"]) for a, b in zip(before, after, strict=True)]
    assert any(empty[1:])
    assert still == empty[1:]


@shows("exact loss in the checkpoint")
def test_the_checkpoint_tells_the_loss(mutant: Mutant, tmp_path: Path) -> None:
    setting = mutant.setting()
    with mutant.patch():
        session = run(setting, steps=1, unsafe_seed=0).session
        session.save(tmp_path / "run")
    held = read(tmp_path / "run").state["tacit run"].values
    assert 0.1 < held["loss"] < 10.0


@shows("exact loss in the update")
def test_the_step_follows_the_loss(mutant: Mutant) -> None:
    setting = mutant.setting()
    with mutant.patch():
        assert (run(silent(setting), steps=1).sums()[0] == 0).all()
    assert (run(silent(setting), steps=1).sums()[0] != 0).all()


@shows("step skipped by loss")
def test_no_step_where_the_loss_is_small(mutant: Mutant) -> None:
    setting = mutant.setting()
    with mutant.patch():
        assert not run(silent(setting)).released
        assert len(run(setting, unsafe_seed=0).released) > 0
