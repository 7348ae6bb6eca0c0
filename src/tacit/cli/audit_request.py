"""The options of ``tacit audit``, checked: what is to be audited and how, or a line of refusal."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tacit.cli.options import Refusal
from tacit.cli.run_options import RUNS, given_settings, known_settings
from tacit.cli.user_code import function_of
from tacit.recipes import find as find_recipe
from tacit.recipes import names as recipe_names
from tacit.recipes.auditing.experiment import names as experiment_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn

    from tacit.auditing.replay import Setting


Kind = Literal["run", "recipe", "engine", "mechanism", "experiment"]
FILE: Final = "audit.json"
_MODELS: Final = {"attacks", "shadows", "views", "device", "data", "seed", "workers", "cluster",
                  "out"}  # fmt: skip
_OPTIONS: Final[Mapping[Kind, set[str]]] = {
    "run": {*_MODELS, "records", "model"},
    "recipe": {*_MODELS, "one_run", "canaries", "epsilon", "delta", "sets"},
    "engine": {"model", "quick", "ranks", "device", "workers", "out"},
    "mechanism": {"epsilon", "delta", "draws", "out"},
    "experiment": {"data", "seed", "workers", "out"},
}
_WORDS: Final[Mapping[Kind, str]] = {
    "run": "an audit of a run",
    "recipe": "an audit of a recipe",
    "engine": "tacit audit engine",
    "mechanism": "tacit audit mechanism",
    "experiment": "an experiment",
}


@dataclass(frozen=True)
class AuditRequest:
    """What is to be audited, and how; None where the audit's own default holds."""

    kind: Kind
    subject: str
    name: str | None
    attacks: tuple[str, ...]
    shadows: int | None
    one_run: bool
    canaries: int | None
    records: int | None
    views: int | None
    epsilon: float | None
    delta: float | None
    settings: Mapping[str, str]
    model: str | None
    quick: bool
    ranks: int | None
    draws: int | None
    device: str | None
    data: Path | None
    seed: int | None
    workers: int | None
    cluster: str | None
    out: Path | None


def read(given: Mapping[str, Any]) -> AuditRequest:
    """The options as click has read them; refuses what does not go together."""
    subject, name = given["subject"], given["name"]
    kind = _kind(subject)
    _check_fit(kind, given)
    if kind == "mechanism" and name is None:
        raise Refusal(f"NAME is missing: tacit audit mechanism NAME; {_mechanisms()}")
    if kind != "mechanism" and name is not None:
        raise Refusal(f"{name} is one argument too many after {subject}")
    settings = _settings(subject, given["sets"], given["epsilon"]) if kind == "recipe" else {}
    plain = {one: value for one, value in given.items() if one not in ("sets", "out")}
    return AuditRequest(
        **plain, kind=kind, settings=settings, out=_out(kind, subject, given["out"])
    )


def _kind(subject: str) -> Kind:
    """A name that is known, else the folder of a run."""
    if subject in ("engine", "mechanism"):
        return subject  # type: ignore[return-value]  # one of the two
    if subject in experiment_names():
        return "experiment"
    if subject in recipe_names() and not (Path(subject) / "run.json").is_file():
        return "recipe"
    if Path(subject).is_dir():
        return "run"
    known = (*recipe_names(), *experiment_names(), "engine", "mechanism")
    close = get_close_matches(subject, known, 1)
    meant = f"did you mean {close[0]}? " if close else ""
    raise Refusal(
        f"{subject} is neither the folder of a run nor anything else that can be audited; {meant}"
        "tacit audit --list shows what there is"
    )


def _check_fit(kind: Kind, given: Mapping[str, Any]) -> None:
    """Refuses options that say nothing about this kind of audit."""
    named = {name for name, value in given.items() if not _is_left_out(value)}
    for name in sorted(named - {"subject", "name"} - _OPTIONS[kind]):
        own = ", ".join(_spelled(one) for one in sorted(_OPTIONS[kind]))
        raise Refusal(f"{_spelled(name)} has no place in {_WORDS[kind]}, which takes {own}")


def _is_left_out(value: object) -> bool:
    return value is None or value is False or value == ()


def _spelled(name: str) -> str:
    names = {"attacks": "attack", "sets": "set", "one_run": "one-run"}
    return f"--{names.get(name, name)}"


def _settings(subject: str, sets: Sequence[str], epsilon: float | None) -> Mapping[str, str]:
    recipe = find_recipe(subject)
    given = given_settings({}, sets)
    spelled = [_spelled(one)[2:] for one in (*_OPTIONS["recipe"], "records", "json", "list")]
    return known_settings(recipe.name, recipe.settings(epsilon or 3.0), given, spelled)


def _out(kind: Kind, subject: str, out: Path | None) -> Path | None:
    """Where the audit is kept: a run's in its own folder, a long one's in a folder of its own."""
    if out is not None:
        if (out / FILE).exists():
            raise Refusal(f"--out {out} holds an audit already; name another folder")
        return out
    if kind in ("recipe", "experiment"):
        return _unfinished(f"audit-{subject}")
    return None


def _unfinished(name: str) -> Path:
    """The first of runs/NAME, runs/NAME-2, … without a finished audit: one may go on there."""
    found, number = RUNS / name, 1
    while (found / FILE).exists():
        number += 1
        found = RUNS / f"{name}-{number}"
    return found


def _mechanisms() -> str:
    from tacit.auditing.mechanism_audits import NAMES

    return f"there are {', '.join(NAMES)}"


# ---- --model FILE:FUNCTION: a user's own model, loss, data and plan for the self-test

WANTED: Final = (
    "a tacit.auditing.replay.Setting, or (model, loss, dataset) and, if you like, a plan"
)


def setting_of(text: str) -> Setting:
    """What the function of the file returns, as a setting. The file is run: it is the user's."""
    return _as_setting(function_of(text)(), text)


def _as_setting(found: Any, text: str) -> Setting:
    from tacit.auditing.replay import Setting
    from tacit.training import Plan

    if isinstance(found, Setting):
        return found
    if not isinstance(found, tuple) or len(found) not in (3, 4):
        raise Refusal(f"--model {text} must return {WANTED}, got {type(found).__name__}")
    model, loss, dataset = found[:3]
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise Refusal(
            f"--model {text} must return a map-style dataset in third place, "
            f"got {type(dataset).__name__}"
        )
    if not callable(loss):
        raise Refusal(f"--model {text} must return loss(model, batch) in second place")
    count = len(dataset)
    plan = found[3] if len(found) == 4 else None
    if plan is None:
        plan = Plan(examples=count, lot_size=max(1, count // 4), steps=100, noise_multiplier=1.0,
                    clip=1.0)  # fmt: skip
    if not isinstance(plan, Plan):
        raise Refusal(
            f"--model {text} must return a Plan in fourth place, got {type(plan).__name__}"
        )
    return Setting(model=_maker(model, text), loss=loss, dataset=dataset, plan=plan)


def _maker(model: Any, text: str) -> Callable[[], nn.Module]:
    """Makes a fresh model each time."""
    from torch import nn

    if isinstance(model, nn.Module):
        return lambda: copy.deepcopy(model)
    if not callable(model):
        raise Refusal(
            f"--model {text} must return a model, or a function that makes one, in first place, "
            f"got {type(model).__name__}"
        )
    return model  # type: ignore[no-any-return]
