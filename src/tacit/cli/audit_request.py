"""The options of ``tacit audit``, checked: what is to be audited and how, or a line of refusal."""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tacit.cli import options
from tacit.cli.options import Refusal
from tacit.cli.run_options import (
    RUNS,
    data_folder,
    delta_of,
    epsilon_of,
    given_settings,
    known_settings,
    seed_of,
)
from tacit.cli.user_code import function_of
from tacit.recipes import find as find_recipe
from tacit.recipes import names as recipe_names
from tacit.recipes.auditing.experiment import names as experiment_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

    from tacit.auditing.replay import Setting


Kind = Literal["run", "recipe", "engine", "mechanism", "experiment"]
FILE: Final = "audit.json"
_MODELS: Final = {"attacks", "shadows", "views", "device", "data", "seed", "workers", "cluster",
                  "out"}  # fmt: skip
_OPTIONS: Final[Mapping[Kind, set[str]]] = {
    "run": {*_MODELS, "records", "model"},
    "recipe": {*_MODELS, "one_run", "canaries", "epsilon", "delta", "sets"},
    "engine": {"model", "quick", "workers", "out"},
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
class Typed:
    """The options as they were typed; None where one was not."""

    subject: str = ""
    name: str | None = None
    attacks: tuple[str, ...] = ()
    shadows: str | None = None
    one_run: bool = False
    canaries: str | None = None
    records: str | None = None
    views: str | None = None
    epsilon: str | None = None
    delta: str | None = None
    sets: tuple[str, ...] = ()
    model: str | None = None
    quick: bool = False
    draws: str | None = None
    device: str | None = None
    data: str | None = None
    seed: str | None = None
    workers: str | None = None
    cluster: str | None = None
    out: str | None = None


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
    views: int
    epsilon: float | None
    delta: float | None
    settings: Mapping[str, str]
    model: str | None
    quick: bool
    draws: int | None
    device: str
    data: Path | None
    seed: int | None
    workers: int | None
    cluster: str | None
    out: Path | None


def read(typed: Typed) -> AuditRequest:
    """Checks every option, the first bad one first."""
    kind = _kind(typed.subject)
    _check_fit(kind, typed)
    if kind == "mechanism" and typed.name is None:
        raise Refusal(f"NAME is missing: tacit audit mechanism NAME; {_mechanisms()}")
    if kind != "mechanism" and typed.name is not None:
        raise Refusal(f"{typed.name} is one argument too many after {typed.subject}")
    epsilon = None if typed.epsilon is None else epsilon_of(typed.epsilon)
    return AuditRequest(
        kind=kind,
        subject=typed.subject,
        name=typed.name,
        attacks=typed.attacks,
        shadows=_count("--shadows", typed.shadows, "give how many models, as 16", least=0),
        one_run=typed.one_run,
        canaries=_count("--canaries", typed.canaries, "give how many records, as 1000"),
        records=_count("--records", typed.records, "give how many members and others, as 1000"),
        views=_count("--views", typed.views, "give 1 to 9") or 1,
        epsilon=epsilon,
        delta=None if typed.delta is None else delta_of(typed.delta),
        settings=_settings(typed, epsilon) if kind == "recipe" else {},
        model=typed.model,
        quick=typed.quick,
        draws=_count("--draws", typed.draws, "give how many draws on each side, as 1e6"),
        device=typed.device or "cpu",
        data=data_folder(typed.data),
        seed=None if typed.seed is None else seed_of(typed.seed),
        workers=_count("--workers", typed.workers, "give how many processes, as 2"),
        cluster=typed.cluster,
        out=_out(kind, typed),
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


def _check_fit(kind: Kind, typed: Typed) -> None:
    """Refuses options that say nothing about this kind of audit."""
    given = {one.name for one in fields(typed) if getattr(typed, one.name)}
    for name in sorted(given - {"subject", "name"} - _OPTIONS[kind]):
        own = ", ".join(_spelled(one) for one in sorted(_OPTIONS[kind]))
        raise Refusal(f"{_spelled(name)} has no place in {_WORDS[kind]}, which takes {own}")


def _spelled(name: str) -> str:
    names = {"attacks": "attack", "sets": "set", "one_run": "one-run"}
    return f"--{names.get(name, name)}"


def _settings(typed: Typed, epsilon: float | None) -> Mapping[str, str]:
    recipe = find_recipe(typed.subject)
    given = given_settings({}, typed.sets)
    spelled = [_spelled(one)[2:] for one in (*_OPTIONS["recipe"], "records", "json", "list")]
    return known_settings(recipe.name, recipe.settings(epsilon or 3.0), given, spelled)


def _count(option: str, text: str | None, remedy: str, least: int = 1) -> int | None:
    if text is None:
        return None
    if least == 0 and text.strip() == "0":
        return 0
    return options.whole(option, text, remedy)


def _out(kind: Kind, typed: Typed) -> Path | None:
    """Where the audit is kept: a run's in its own folder, a long one's in a folder of its own."""
    if typed.out is not None:
        if (Path(typed.out) / FILE).exists():
            raise Refusal(f"--out {typed.out} holds an audit already; name another folder")
        return Path(typed.out)
    if kind in ("recipe", "experiment"):
        return _unfinished(f"audit-{typed.subject}")
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
