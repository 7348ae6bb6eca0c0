"""``tacit train`` under torchrun: rank 0 keeps, charges and speaks, and any number goes on."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import tacit
from tacit.cli.program import run
from tacit.cli.train import _without_ray
from tacit.training.distributed.world import joined
from tacit.training.session import Session

from ..training.distributed.ranks import together
from ..training.distributed.runs import rows

if TYPE_CHECKING:
    from pathlib import Path


def command(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(list(arguments))
    return status, out.getvalue(), err.getvalue()


def train(out: Path, *further: str) -> Any:
    return lambda rank: command(  # noqa: ARG005 - the same on every rank
        "train", "digits", "--epochs", "1", "--epsilon", "3", "--out", str(out), "--json", *further
    )


@pytest.mark.slow
def test_two_ranks_train_a_recipe_as_one(tmp_path: Path) -> None:
    out = tmp_path / "run"
    first, second = together(2, train(out, "--ledger", str(tmp_path / "budget.db")))
    assert first[0] == second[0] == 0, (first, second)
    assert second[1] == second[2] == ""
    said = json.loads(first[1])
    assert said
    statement = json.loads((out / "statement.json").read_text())
    assert any("2 processes trained together" in one for one in statement["assumptions"])
    assert statement["charge"]["budget"] == "digits"
    assert (out / "report.html").exists()


@pytest.mark.slow
def test_a_run_of_ones_own_is_kept_once_and_goes_on(tmp_path: Path) -> None:
    """Killed after its second epoch on two ranks, and resumed on three."""
    out = tmp_path / "run"

    def fit(*, resume: bool, stop: int | None) -> Any:
        torch.manual_seed(0)
        model = nn.Linear(5, 3)
        plan = tacit.Plan.for_budget(
            epsilon=3, delta=1e-3, examples=48, lot_size=12, epochs=4, clip=1.0
        )
        taken = 0

        def stepped(self: Session) -> None:
            nonlocal taken
            step(self)
            taken += 1
            if stop is not None and taken > stop:
                raise KeyboardInterrupt

        step = Session.step
        Session.step = stepped  # type: ignore[method-assign]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        try:
            done = tacit.fit(model, optimizer, plan, rows(), out=out, resume=resume)
        finally:
            Session.step = step  # type: ignore[method-assign]
        return len(done.history), done.statement.steps_taken, model.weight.detach()

    def begun(rank: int) -> str:
        del rank
        with pytest.raises((KeyboardInterrupt, tacit.errors.LostRank)):
            fit(resume=False, stop=9)
        return "stopped"

    assert together(2, begun) == ["stopped"] * 2
    assert not (out / "statement.json").exists()
    ended = together(3, lambda _: fit(resume=True, stop=None))
    assert all(taken == 16 for _, taken, _ in ended)
    assert all(torch.equal(weight, ended[0][2]) for *_, weight in ended)
    loaded = tacit.load(out)
    assert torch.equal(loaded.weights["weight"], ended[0][2])
    assert any("3 processes" in one for one in loaded.statement.assumptions)


def test_searches_have_one_process(tmp_path: Path) -> None:
    search = tmp_path / "search.toml"
    search.write_text('runs = 4\nscore = "held-out"\n[candidates]\nlr = [30.0, 60.0]\n')
    found = together(2, train(tmp_path / "run", "--search", str(search)))
    assert all(status == 2 for status, *_ in found), found
    assert all("a search has one process" in said for *_, said in found), found


def test_the_command_line_of_a_rank_on_ray(tmp_path: Path) -> None:
    given = ["train", "digits", "--ray=4", "--out", "runs/a", "--lr", "0.1"]
    assert _without_ray(given, tmp_path) == [
        "train",
        "digits",
        "--lr",
        "0.1",
        "--out",
        str(tmp_path),
    ]


def test_one_process_is_a_world_of_its_own() -> None:
    world = joined(torch.device("cpu"), 1.0)
    assert (world.rank, world.size, world.is_alone) == (0, 1, True)
    assert world.all_say("anything", 5) == [5]
