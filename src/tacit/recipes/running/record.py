"""``run.json``: what a run is, and how it ended."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, final

from tacit.errors import CheckpointError, InvalidArgument
from tacit.recipes.running import claims
from tacit.recipes.running import settings as settings_of
from tacit.recipes.running.folder import RECORD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tacit.data import Split
    from tacit.recipes.recipe import Recipe
    from tacit.recipes.running.folder import Folder

FORMAT = "tacit-run"
VERSION = 1
_CONFIGURATION = ("recipe", "settings", "epsilon", "delta", "seed", "data", "search")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A run as data.

    Args:
        run: A random name, by which a ledger knows the run.
        recipe: The recipe's name.
        summary: Its one line.
        settings: Its settings by name.
        epsilon: The ε that the run may spend.
        delta: Its δ.
        seed: For the first weights.
        data: The data's name, files with checksums, and numbers of examples.
        folder: Where the data were looked for first.
        search: The search that the run is the winner of, as its file says it.
        winner: The settings that the search chose.
        device: Where it was computed.
        versions: What it was computed with.
        command: The command line that started it.
        anchors: What was published.
        tuning: How the default settings were found.
        budget: The ledger and the budget that it is charged to.
        plan: The plan, once there is one.
        configuration: A SHA-256 over all that decides the result, but for chance.
        test_accuracy: The final model's accuracy on held-out data; None until then.
        notes: What a reader should know beside the statement.
        finished: Whether it has come to its end.
    """

    run: str
    recipe: str
    summary: str
    settings: Mapping[str, Any]
    epsilon: float
    delta: float
    seed: int | None
    data: Mapping[str, Any]
    folder: str | None
    search: Mapping[str, Any] | None
    device: str
    versions: Mapping[str, str]
    command: tuple[str, ...]
    anchors: tuple[Mapping[str, Any], ...]
    tuning: str
    budget: Mapping[str, str] | None
    plan: Mapping[str, Any] | None = None
    winner: Mapping[str, Any] | None = None
    configuration: str = ""
    test_accuracy: float | None = None
    notes: tuple[str, ...] = ()
    finished: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "configuration", _hash(self))

    def write(self, folder: Folder) -> None:
        """Writes ``run.json``."""
        plain = {"format": FORMAT, "version": VERSION, **asdict(self)}
        text = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)
        folder.write(RECORD, f"{text}\n".encode())


def begun(
    recipe: Recipe,
    settings: Any,
    data: Split,
    *,
    epsilon: float,
    delta: float,
    seed: int | None,
    folder: str | None,
    device: str,
    command: Sequence[str],
    search: Mapping[str, Any] | None = None,
) -> Record:
    """The record of a run that is about to begin."""
    return Record(
        run=secrets.token_hex(8),
        recipe=recipe.name,
        summary=recipe.summary,
        settings=settings_of.as_plain(settings),
        epsilon=epsilon,
        delta=delta,
        seed=seed,
        data={
            "name": data.name,
            "files": dict(data.files),
            "train": len(data.train),
            "test": len(data.test),
        },
        folder=folder,
        search=search,
        device=device,
        versions=claims.versions(),
        command=tuple(command),
        anchors=tuple(asdict(one) for one in recipe.anchors),
        tuning=recipe.tuning,
        budget=None,
    )


def read(folder: Folder) -> Record:
    """The record of the run that ``folder`` holds; nothing that it names is imported or opened."""
    path = folder.file(RECORD)
    try:
        plain = folder.read(RECORD)
        if plain.pop("format") != FORMAT or plain.pop("version") != VERSION:
            raise CheckpointError("it was written by another tacit")
        told = plain.pop("configuration")
        for name in ("command", "anchors", "notes"):
            plain[name] = tuple(plain[name])
        found = Record(**plain)
        if found.configuration != told:
            raise CheckpointError("its settings were changed after the run began")
    except CheckpointError as error:
        raise CheckpointError(f"{path} is not the record of a run: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is not the record of a run: {type(error).__name__}: {error}"
        ) from None
    return found


def resumed(new: Record, old: Record) -> Record:
    """``old``, if ``new`` is the same run; else what differs is refused."""
    for name in _CONFIGURATION:
        mine, theirs = (json.loads(json.dumps(getattr(one, name))) for one in (new, old))
        if mine != theirs:
            raise InvalidArgument(
                f"{name} must be as when the run began, {_short(theirs)}, got {_short(mine)}; "
                "resume it as it was, or start a new run in another folder"
            )
    return replace(old, device=new.device, versions=new.versions)


def _hash(record: Record) -> str:
    chosen = {name: getattr(record, name) for name in _CONFIGURATION}
    text = json.dumps(chosen, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
