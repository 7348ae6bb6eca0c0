"""The options of ``tacit train``, checked: a run to begin or to go on with, or one line of refusal.

Nothing is made here: neither folder nor ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.cli.options import Refusal
from tacit.cli.run_options import (
    check_device,
    data_folder,
    delta_of,
    epsilon_of,
    free_folder,
    seed_of,
)
from tacit.cli.train_settings import given_settings, known_settings, settings_from
from tacit.recipes import find

if TYPE_CHECKING:
    from tacit.recipes import Recipe
    from tacit.runs.record import Record
    from tacit.runs.search import Search

EPSILON, DELTA, DEVICE = 3.0, 1e-5, "auto"
__all__ = ["Request", "Typed", "check_device", "read"]


@dataclass(frozen=True)
class Typed:
    """The options as they were typed; None where one was not."""

    recipe: str | None = None
    epsilon: str | None = None
    delta: str | None = None
    epochs: str | None = None
    lot: str | None = None
    clip: str | None = None
    lr: str | None = None
    sets: tuple[str, ...] = ()
    out: str | None = None
    resume: bool = False
    ledger: str | None = None
    budget: str | None = None
    device: str | None = None
    seed: str | None = None
    data: str | None = None
    search: str | None = None


@dataclass(frozen=True)
class Request:
    """A run to begin, or to go on with."""

    recipe: Recipe
    settings: Any
    epsilon: float
    delta: float
    seed: int | None
    out: Path
    resume: bool
    device: str
    data: Path | None
    ledger: str | None
    budget: str | None
    search: Search | None
    finished: Record | None = None


def read(typed: Typed) -> Request:
    """Checks every option, the first bad one first."""
    if typed.budget is not None and typed.ledger is None and not typed.resume:
        raise Refusal(f"--budget {typed.budget} needs --ledger; name the ledger that holds it")
    if typed.resume:
        return _resumed(typed)
    if typed.recipe is None:
        raise Refusal("RECIPE is missing; tacit train --list shows them")
    recipe = find(typed.recipe)
    epsilon = EPSILON if typed.epsilon is None else epsilon_of(typed.epsilon)
    settings = settings_from(recipe, epsilon, _given(typed))
    return Request(
        recipe=recipe,
        settings=settings,
        epsilon=epsilon,
        delta=DELTA if typed.delta is None else delta_of(typed.delta),
        seed=None if typed.seed is None else seed_of(typed.seed),
        out=Path(typed.out) if typed.out is not None else free_folder(recipe.name),
        resume=False,
        device=typed.device or DEVICE,
        data=data_folder(typed.data),
        ledger=typed.ledger,
        budget=typed.budget,
        search=_search(typed.search, settings),
    )


def _resumed(typed: Typed) -> Request:
    """The run that ``--out`` holds; options that were given again must say the same."""
    from tacit.runs import record as records
    from tacit.runs.folder import Folder
    from tacit.runs.search import search_from
    from tacit.runs.settings import changed

    if typed.out is None:
        raise Refusal("--resume needs --out; name the folder of the run to go on with")
    folder = Folder(typed.out)
    folder.check_run()
    known = records.read(folder)
    recipe = find(known.recipe)
    settings = changed(recipe.settings(known.epsilon), dict(known.settings))
    _check_same(typed, known, recipe, settings)
    return Request(
        recipe=recipe,
        settings=settings,
        epsilon=known.epsilon,
        delta=known.delta,
        seed=known.seed,
        out=Path(typed.out),
        resume=True,
        device=typed.device or known.device,
        data=data_folder(typed.data) or (None if known.folder is None else Path(known.folder)),
        ledger=typed.ledger or (None if known.budget is None else known.budget["ledger"]),
        budget=None if known.budget is None else known.budget["name"],
        search=None if known.search is None else search_from(known.search, settings),
        finished=known if known.finished else None,
    )


def _check_same(typed: Typed, known: Record, recipe: Recipe, settings: Any) -> None:
    from tacit.runs.settings import as_plain, changed

    told = {
        "RECIPE": (typed.recipe, known.recipe),
        "--epsilon": (None if typed.epsilon is None else epsilon_of(typed.epsilon), known.epsilon),
        "--delta": (None if typed.delta is None else delta_of(typed.delta), known.delta),
        "--seed": (None if typed.seed is None else seed_of(typed.seed), known.seed),
        "--budget": (typed.budget, None if known.budget is None else known.budget["name"]),
    }
    given = _given(typed)
    again = as_plain(changed(settings, known_settings(recipe.name, settings, given)))
    told |= {f"--{name}": (again[name], getattr(settings, name)) for name in given}
    for option, (mine, theirs) in told.items():
        if mine is not None and mine != theirs:
            raise Refusal(
                f"{option} {mine} contradicts the run in {typed.out}, which has {theirs}; leave it "
                "out, or start a new run in another folder"
            )
    if typed.ledger is not None and known.budget is None:
        raise Refusal(
            f"--ledger {typed.ledger} contradicts the run in {typed.out}, which is charged to "
            "none; leave it out"
        )
    if typed.search is not None:
        search = _search(typed.search, settings)
        if search is None or known.search != search.as_plain():
            raise Refusal(
                f"--search {typed.search} contradicts the run in {typed.out}; leave it out"
            )


# ---- single options


def _given(typed: Typed) -> dict[str, str]:
    own = {name: getattr(typed, name) for name in ("epochs", "lot", "clip", "lr")}
    return given_settings(own, typed.sets)


def _search(text: str | None, settings: Any) -> Search | None:
    if text is None:
        return None
    from tacit.runs.search import read_search

    if not Path(text).is_file():
        raise Refusal(f"--search must be a TOML file, got {text}; docs/recipes.md shows one")
    return read_search(Path(text), settings)
