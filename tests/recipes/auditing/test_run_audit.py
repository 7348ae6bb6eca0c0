"""Audits of a finished run: its own model, its own data, nothing left behind."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tacit import recipes
from tacit.data import load
from tacit.errors import CheckpointError, InvalidArgument, TacitError
from tacit.recipes import find
from tacit.recipes.auditing import AttackChoice, Execution, audit_run
from tacit.recipes.auditing import run_audit as module
from tacit.recipes.auditing.audited_records import audited_records
from tacit.recipes.auditing.run_audit import NOTHING_CLAIMED, released_answers
from tacit.recipes.auditing.trial import Trial
from tacit.recipes.digits import RECIPE, rows
from tacit.recipes.named import released_by
from tacit.runs import results

from ..pictures import pictures

if TYPE_CHECKING:
    from pathlib import Path


FAST = {"epochs": 3.0}
LOSS = AttackChoice(names=["loss"], shadows=0)
LEFT = {"run.json", "statement.json", "history.jsonl", "model.safetensors"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited") / "run"
    recipes.run("digits", epsilon=3, settings=FAST, folder=folder, seed=1)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


def test_the_released_model_answers(finished: Path) -> None:
    """By hand: a linear model's logits are products with its weights."""
    data = load("digits")
    trial = Trial(
        recipe=RECIPE, settings=replace(RECIPE.settings(3.0), epochs=3.0), data=data, epsilon=3.0,
        delta=1e-5,
    )  # fmt: skip
    (weight,) = load_file(finished / "model.safetensors").values()
    x, _ = rows(data.test, torch.device("cpu")).tensors
    found = released_answers(trial, results.load(finished))
    assert np.allclose(found[:, 0], (x @ weight.T).numpy(), atol=1e-6)


def test_an_audit_of_a_run(run: Path) -> None:
    found = audit_run(
        run,
        attack=AttackChoice(names=["lira", "loss"], shadows=4),
        records=100,
        seed=1,
        execution=Execution(command=["tacit", "audit"]),
    )
    assert (found.kind, found.contradicted) == ("run", False)
    assert found.verdict is not None
    assert "only roughly" in found.verdict.shown.assumption
    assert found.words.startswith("no evidence against the claim epsilon = 3 ")
    assert [one.members for one in found.attacks] == [100, 100]
    assert {one.name for one in run.iterdir()} == LEFT | {"audit.json"}
    plain = json.loads((run / "audit.json").read_text())
    assert (
        plain["run"]["configuration"] == json.loads((run / "run.json").read_text())["configuration"]
    )
    assert "not cover" in plain["secret"]


def test_a_model_that_remembers_is_contradicted(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The released weights are replaced by ones that know who was in."""
    asked = audited_records(load("digits"), 300, 1)
    x, y = rows(asked.questions, torch.device("cpu")).tensors
    weight = torch.zeros(10, 65, requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=0.5)
    sign = torch.from_numpy(np.where(asked.members, 1.0, -0.2))
    for _ in range(400):
        optimizer.zero_grad()
        losses = torch.nn.functional.cross_entropy(x @ weight.T, y, reduction="none")
        (sign * losses.clamp(max=8.0)).sum().backward()
        optimizer.step()
    (name,) = load_file(run / "model.safetensors")
    save_file({name: weight.detach()}, run / "model.safetensors")
    with pytest.raises(TacitError, match=r"is not the file that statement\.json is about"):
        audit_run(run, attack=LOSS, records=300, seed=1)
    forged = hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()
    change(run / "statement.json", files={"model.safetensors": forged})
    monkeypatch.setattr(module, "_claim", lambda statement: replace(before(statement), epsilon=0.1))
    found = audit_run(run, attack=LOSS, records=300, seed=1)
    assert found.attacks[0].auc.value > 0.6
    assert found.exit_status == 1
    assert found.words.startswith("the evidence contradicts the claim")


before = module._claim


def test_members_are_of_the_training_data_and_others_are_not() -> None:
    data = load("digits")
    asked = audited_records(data, 50, 1)
    first = np.asarray(asked.questions.inputs)
    trained = {one.tobytes() for one in np.asarray(data.train.inputs)}
    inside = [one.tobytes() in trained for one in first]
    assert inside[:50] == [True] * 50
    assert sum(inside[50:]) <= 2  # a few images are there twice
    assert asked.members.tolist() == [True] * 50 + [False] * 50
    assert len(asked.train) == len(data.train) + 50


def test_it_goes_on_after_a_stop(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, calls = module.trained_on_members, []

    def stopped(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return honest(*given)

    monkeypatch.setattr(module, "trained_on_members", stopped)
    with pytest.raises(KeyboardInterrupt):
        audit_run(run, attack=AttackChoice(shadows=4), records=50)
    assert (run / "private").stat().st_mode & 0o077 == 0
    audit_run(run, attack=AttackChoice(shadows=4), records=50)
    assert len(calls) == 5  # two, the stop, and the other two
    assert {one.name for one in run.iterdir()} == LEFT | {"audit.json"}


def test_another_place_for_the_audit(run: Path, tmp_path: Path) -> None:
    audit_run(run, attack=LOSS, records=50, execution=Execution(out=tmp_path / "out"))
    assert {one.name for one in run.iterdir()} == LEFT
    assert (tmp_path / "out" / "audit.json").is_file()


def test_a_run_without_a_guarantee(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_claim", lambda _: None)
    found = audit_run(run, attack=LOSS, records=50)
    assert (found.words, found.exit_status, found.verdict) == (NOTHING_CLAIMED, 0, None)
    assert found.attacks[0].found[0].allowed is None


def test_a_run_that_released_more_than_its_model(tmp_path: Path) -> None:
    """Without its private components the network could not be asked."""
    data = pictures(channels=1, size=12)
    small = {"epochs": 2, "lot": 100, "hidden": 16, "components": 8, "lr": 0.4, "pca_noise": 4.0}
    recipes.run(
        "mnist-abadi", epsilon=8, settings=small, data=data, folder=tmp_path / "run", seed=0,
        progress=False,
    )  # fmt: skip
    found = audit_run(tmp_path / "run", attack=LOSS, records=100, seed=1, data=data)
    assert not found.contradicted
    assert found.attacks[0].members == 100


def refused(run: Path, words: str, **changes: Any) -> None:
    given: dict[str, Any] = {"attack": LOSS, "records": 50}
    with pytest.raises(TacitError, match=words) as caught:
        audit_run(run, **(given | changes))
    assert "\n" not in str(caught.value)


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_folders_that_cannot_be_audited(run: Path, tmp_path: Path) -> None:
    refused(tmp_path, "holds no run")
    (run / "model.safetensors").write_bytes(b"no model")
    refused(run, r"is not the file that statement\.json is about")
    (run / "model.safetensors").unlink()
    refused(run, r"model\.safetensors cannot be read")
    change(run / "run.json", finished=False)
    refused(run, "has not come to its end; go on with it")
    (run / "statement.json").write_text("{")
    change(run / "run.json", finished=True)
    refused(run, r"statement\.json is refused")


def test_a_run_of_a_transfer(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "recipe_names", lambda: ("mnist-abadi",))
    refused(run, "no recipe of tacit train; audit a run of mnist-abadi")


def test_other_data_than_the_runs(run: Path) -> None:
    data = load("digits")
    refused(run, "data must be those of the run, and files differs",
            data=replace(data, files={"digits.csv.gz": "sha256:00"}))  # fmt: skip


@pytest.mark.parametrize("records", [5, 361])
def test_records_that_are_not_there(run: Path, records: int) -> None:
    refused(run, "records must lie between 10 and 360", records=records)


def test_what_was_released_beside_the_model_must_be_there(run: Path) -> None:
    release = released_by(run, find("mnist-scatter"))
    with pytest.raises(InvalidArgument, match="released its mean beside it"):
        release("mean", lambda _: pytest.fail("released again"), what="")


def test_a_record_that_is_none(run: Path) -> None:
    (run / "run.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"run\.json"):
        audit_run(run)
