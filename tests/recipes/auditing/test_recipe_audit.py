"""Audits of a recipe: an honest engine passes, a broken one is contradicted, coins are coins."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import default_collate

from tacit.errors import InvalidArgument
from tacit.recipes.auditing import AttackChoice, Execution, audit_recipe
from tacit.recipes.auditing import recipe_audit as module
from tacit.recipes.auditing import trial as trials
from tacit.training.fit import Fit, Prepared, Watch, carry_out

from ...runs import small

if TYPE_CHECKING:
    from pathlib import Path


FAST = {"epochs": 3.0}


def by_heart(prepared: Prepared, **_: Any) -> Fit:
    """A broken engine: no clipping, no noise, and the statement of an honest one."""
    model, dataset, loss = prepared.model, prepared.dataset, prepared.loss
    average = prepared.schedule.average
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    batch = default_collate([dataset[row] for row in range(len(dataset))])
    for _ in range(300):
        optimizer.zero_grad()
        loss(model, batch).sum().backward()
        optimizer.step()
    average.update_parameters(model)
    twin = torch.nn.Linear(65, 10, bias=False)
    honest = carry_out(
        Prepared(model=twin, optimizer=torch.optim.SGD(twin.parameters(), lr=0.1), loss=loss,
                 plan=prepared.plan, dataset=dataset),
        delta=1e-5, watch=Watch(progress=False),
    )  # fmt: skip
    return Fit((), honest.statement)


def test_an_honest_engine_is_not_contradicted() -> None:
    found = audit_recipe("digits", epsilon=2, one_run=True, canaries=300, seed=1)
    assert (found.kind, found.contradicted, found.exit_status) == ("one-run", False, 0)
    assert found.words.startswith("no evidence against the claim epsilon = 2 ")
    assert found.claim is not None
    assert found.claim.epsilon == pytest.approx(2.0, abs=1e-6)
    (attack,) = found.attacks
    assert attack.name == "loss"
    assert attack.members + attack.others == 300
    assert any("wrong label" in note for note in found.notes)


def test_an_engine_without_noise_is_contradicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "carry_out", by_heart)
    found = audit_recipe("digits", epsilon=0.5, settings=FAST, one_run=True, canaries=600, seed=1)
    assert (found.contradicted, found.exit_status) == (True, 1)
    assert found.words.startswith("the evidence contradicts the claim epsilon = 0.5 ")
    assert found.verdict is not None
    assert found.verdict.shown.epsilon > 0.5


def test_shadow_models_and_their_target(tmp_path: Path) -> None:
    found = audit_recipe(
        "digits", epsilon=3, settings=FAST, canaries=100, seed=1,
        attack=AttackChoice(names=["lira", "margin"], shadows=4, views=2),
        execution=Execution(out=tmp_path / "out", command=["tacit", "audit", "digits"]),
    )  # fmt: skip
    assert found.kind == "recipe"
    assert [one.name for one in found.attacks] == ["lira", "margin"]
    assert not any("wrong label" in note for note in found.notes)
    plain = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert plain["settings"]["shadows"] == 4
    assert plain["settings"]["settings"]["epochs"] == 3.0
    assert plain["command"] == ["tacit", "audit", "digits"]
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["audit.json"]


def test_an_audit_goes_on_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, calls = module.trained_with_members, []

    def stopped(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return honest(*given)

    def audit() -> Any:
        return audit_recipe(
            "digits", settings=FAST, canaries=60, attack=AttackChoice(shadows=4),
            execution=Execution(out=tmp_path / "out"),
        )  # fmt: skip

    monkeypatch.setattr(module, "trained_with_members", stopped)
    with pytest.raises(KeyboardInterrupt):
        audit()
    found = audit()
    assert len(calls) == 6  # target, one shadow, the stop; then the three others
    assert found.settings["seed"] >= 0


def test_a_recipe_that_releases_more_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"1 further release.*audit a run of it"):
        audit_recipe(small.recipe(), data=small.split(), one_run=True, canaries=20)


def test_a_recipe_of_ones_own() -> None:
    own = replace(small.recipe(also=False), name="own")
    found = audit_recipe(own, epsilon=1, data=small.split(), one_run=True, canaries=50, seed=1)
    assert found.subject == "own"
    assert not found.contradicted


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"attack": AttackChoice(names=["liar"])},
            "there is no attack 'liar'; did you mean 'lira'",
        ),
        ({"attack": AttackChoice(names=["lira"], shadows=3)}, "needs shadow models, 4 or more"),
        ({"attack": AttackChoice(names=["lira"]), "one_run": True}, "needs shadow models"),
        ({"canaries": 5}, "canaries must lie between 10 and the 1437"),
        ({"canaries": 1438}, "canaries must lie between"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"execution": Execution(device="tpu")}, "device must be"),
        ({"settings": {"lots": 1}}, "there is no setting 'lots'"),
        ({"attack": AttackChoice(views=10)}, "views must be at most 9"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        audit_recipe("digits", **changes)
