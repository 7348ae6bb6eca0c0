"""The options of ``tacit transfer``, checked: a run to begin or to go on with, or one line.

Nothing is made here: neither folder nor ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tacit.cli.options import Refusal
from tacit.cli.run_options import data_folder, delta_of, epsilon_of, free_folder, seed_of
from tacit.cli.train_settings import given_settings, known_settings
from tacit.recipes.transferring.method import check_dataset, chosen, find, named, title

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tacit.accounting.events import Adjacency
    from tacit.recipes.running.record import Record
    from tacit.recipes.transferring.method import Method

DATASET: Final = "digits"
DELTA: Final = 1e-5
DEVICE: Final = "auto"
OWN: Final = (
    "queries", "answers", "asked", "aggregator", "teachers", "sigma", "student", "votes", "holds",
)  # fmt: skip
OPTIONS: Final = (
    "dataset", "epsilon", "delta", "set", "out", "resume", "ledger", "budget", "device", "seed",
    "data", "unverified", "settings", "list", "json", "help",
)  # fmt: skip


@dataclass(frozen=True)
class Typed:
    """The options as they were typed; None where one was not."""

    method: str | None = None
    dataset: str | None = None
    epsilon: str | None = None
    delta: str | None = None
    queries: str | None = None
    answers: str | None = None
    asked: str | None = None
    aggregator: str | None = None
    teachers: str | None = None
    sigma: str | None = None
    student: str | None = None
    votes: str | None = None
    holds: str | None = None
    sets: tuple[str, ...] = ()
    out: str | None = None
    resume: bool = False
    ledger: str | None = None
    budget: str | None = None
    device: str | None = None
    seed: str | None = None
    data: str | None = None
    unverified: bool = False


@dataclass(frozen=True)
class Request:
    """A run to begin, or to go on with."""

    method: Method
    dataset: str
    settings: Any
    epsilon: float
    delta: float
    seed: int | None
    out: Path
    resume: bool
    device: str
    data: Path | None
    unverified: bool
    ledger: str | None
    budget: str | None
    finished: Record | None = None

    @property
    def name(self) -> str:
        """What the run is called."""
        return title(self.method.name, self.dataset)


def read(typed: Typed) -> Request:
    """Checks every option, the first bad one first."""
    if typed.budget is not None and typed.ledger is None and not typed.resume:
        raise Refusal(f"--budget {typed.budget} needs --ledger; name the ledger that holds it")
    if typed.resume:
        return _resumed(typed)
    if typed.method is None:
        raise Refusal("METHOD is missing; tacit transfer --list shows them")
    method, dataset = find(typed.method), check_dataset(typed.dataset or DATASET)
    epsilon = None if typed.epsilon is None else epsilon_of(typed.epsilon)
    delta = DELTA if typed.delta is None else delta_of(typed.delta)
    adjacency = _adjacency(typed.ledger, typed.budget or dataset)
    settings, limit = _chosen(method, dataset, _given(typed), epsilon, delta, adjacency)
    return Request(
        method=method,
        dataset=dataset,
        settings=settings,
        epsilon=limit,
        delta=delta,
        seed=None if typed.seed is None else seed_of(typed.seed),
        out=Path(typed.out) if typed.out is not None else free_folder(title(method.name, dataset)),
        resume=False,
        device=typed.device or DEVICE,
        data=data_folder(typed.data),
        unverified=typed.unverified,
        ledger=typed.ledger,
        budget=typed.budget,
    )


def _given(typed: Typed) -> dict[str, str]:
    given = given_settings({name: getattr(typed, name) for name in OWN}, typed.sets)
    if given.get("votes") is not None:  # wherever the run is resumed from
        given["votes"] = str(Path(given["votes"]).absolute())
    return given


def _chosen(
    method: Method,
    dataset: str,
    given: Mapping[str, str],
    epsilon: float | None,
    delta: float,
    adjacency: Adjacency,
) -> tuple[Any, float]:
    default = method.defaults[dataset]
    known_settings(title(method.name, dataset), default, given, OPTIONS)
    return chosen(method, dataset, given, epsilon=epsilon, delta=delta, adjacency=adjacency)


def _adjacency(ledger: str | None, name: str) -> Adjacency:
    """That of the budget that will be charged, for which the noise is found."""
    if ledger is None:
        return "add-remove"
    from tacit.cli.ledger import url_of
    from tacit.errors import LedgerError
    from tacit.ledger import Ledger

    try:
        with Ledger(url_of(ledger), create=False) as held:
            known = {one.name: one.adjacency for one in held.budgets()}
    except LedgerError:  # there is none yet; or the run says what is wrong when it opens it
        return "add-remove"
    return known.get(name, "add-remove")


def _resumed(typed: Typed) -> Request:
    """The run that ``--out`` holds; options that were given again must say the same."""
    from tacit.recipes.running import record as records
    from tacit.recipes.running.folder import Folder
    from tacit.recipes.running.settings import changed

    if typed.out is None:
        raise Refusal("--resume needs --out; name the folder of the run to go on with")
    folder = Folder(typed.out)
    folder.check_run()
    known = records.read(folder)
    way, dataset = named(known.recipe)
    method = find(way)
    settings = changed(method.defaults[dataset], dict(known.settings))
    _check_same(typed, known, settings)
    return Request(
        method=method,
        dataset=dataset,
        settings=settings,
        epsilon=known.epsilon,
        delta=known.delta,
        seed=known.seed,
        out=Path(typed.out),
        resume=True,
        device=typed.device or known.device,
        data=data_folder(typed.data) or (None if known.folder is None else Path(known.folder)),
        # The very files that it began with are checked against its record.
        unverified=any(one.startswith("unverified") for one in known.data["files"].values()),
        ledger=typed.ledger or (None if known.budget is None else known.budget["ledger"]),
        budget=None if known.budget is None else known.budget["name"],
        finished=known if known.finished else None,
    )


def _check_same(typed: Typed, known: Record, settings: Any) -> None:
    from tacit.recipes.running.settings import as_plain, changed

    way, dataset = named(known.recipe)
    stated = {
        "METHOD": (typed.method, way),
        "--dataset": (typed.dataset, dataset),
        "--epsilon": (None if typed.epsilon is None else epsilon_of(typed.epsilon), known.epsilon),
        "--delta": (None if typed.delta is None else delta_of(typed.delta), known.delta),
        "--seed": (None if typed.seed is None else seed_of(typed.seed), known.seed),
        "--budget": (typed.budget, None if known.budget is None else known.budget["name"]),
    }
    given = _given(typed)
    again = as_plain(changed(settings, known_settings(known.recipe, settings, given, OPTIONS)))
    stated |= {f"--{name}": (again[name], getattr(settings, name)) for name in given}
    for option, (mine, theirs) in stated.items():
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
