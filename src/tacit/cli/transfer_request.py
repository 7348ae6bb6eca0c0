"""The options of ``tacit transfer``, checked: a run to begin or to go on with, or one line.

Nothing is made here: neither folder nor ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tacit.cli.options import Refusal
from tacit.cli.run_options import (
    DELTA,
    DEVICE,
    RunOptions,
    free_folder,
    given_settings,
    known_settings,
    settings_again,
)
from tacit.data.description import UNVERIFIED
from tacit.recipes.transferring.method import check_dataset, chosen, find, named, title

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tacit.accounting.events import Adjacency
    from tacit.recipes.transferring.method import Method
    from tacit.runs.record import RunRecord

DATASET: Final = "digits"
OWN: Final = (
    "queries", "answers", "asked", "aggregator", "teachers", "sigma", "student", "votes", "holds",
)  # fmt: skip
OPTIONS: Final = (
    "dataset", "epsilon", "delta", "set", "out", "resume", "ledger", "budget", "device", "seed",
    "data", "unverified", "settings", "list", "json", "help",
)  # fmt: skip


@dataclass(frozen=True)
class TransferOptions:
    """What was asked for beside ``RunOptions``; None where an option was not given."""

    options: RunOptions
    method: str | None = None
    dataset: str | None = None
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
    unverified: bool = False


@dataclass(frozen=True)
class TransferRequest:
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
    finished: RunRecord | None = None

    @property
    def name(self) -> str:
        """What the run is called."""
        return title(self.method.name, self.dataset)


def read(asked: TransferOptions) -> TransferRequest:
    """Checks every option, the first bad one first."""
    options = asked.options
    if options.resume:
        return _resumed(asked)
    if asked.method is None:
        raise Refusal("METHOD is missing; tacit transfer --list shows them")
    method, dataset = find(asked.method), check_dataset(asked.dataset or DATASET)
    delta = DELTA if options.delta is None else options.delta
    adjacency = _adjacency(options.ledger, options.budget or dataset)
    settings, limit = _chosen(method, dataset, _given(asked), options.epsilon, delta, adjacency)
    return TransferRequest(
        method=method,
        dataset=dataset,
        settings=settings,
        epsilon=limit,
        delta=delta,
        seed=options.seed,
        out=options.out or free_folder(title(method.name, dataset)),
        resume=False,
        device=options.device or DEVICE,
        data=options.data,
        unverified=asked.unverified,
        ledger=options.ledger,
        budget=options.budget,
    )


def _given(asked: TransferOptions) -> dict[str, str]:
    given = given_settings({name: getattr(asked, name) for name in OWN}, asked.sets)
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


def _resumed(asked: TransferOptions) -> TransferRequest:
    """The run that ``--out`` holds; options that are given again must say the same."""
    from tacit.runs.settings import changed

    options, known = asked.options, asked.options.read_record()
    assert options.out is not None
    way, dataset = named(known.recipe)
    method = find(way)
    settings = changed(method.defaults[dataset], dict(known.settings))
    again = settings_again(known.recipe, settings, _given(asked), OPTIONS)
    options.check_same(
        known, {"METHOD": (asked.method, way), "--dataset": (asked.dataset, dataset), **again}
    )
    return TransferRequest(
        method=method,
        dataset=dataset,
        settings=settings,
        epsilon=known.epsilon,
        delta=known.delta,
        seed=known.seed,
        out=options.out,
        resume=True,
        device=options.device or known.device,
        data=options.data_of(known),
        # Published files are checked against its record; it has no checksum of others.
        unverified=UNVERIFIED in known.data["files"].values(),
        ledger=options.ledger_of(known),
        budget=None if known.budget is None else known.budget["name"],
        finished=known if known.finished else None,
    )
