"""``run.json``: what a run is, and how it ended."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, final, get_args

from tacit._validation import printable
from tacit.errors import CheckpointError, InvalidArgument
from tacit.runs import claims
from tacit.runs import settings as settings_of
from tacit.runs.folder import RECORD

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tacit.runs.folder import Folder
    from tacit.runs.recipe import Recipe, Task

FORMAT = "tacit-run"
VERSION = 1
Kind = Literal["recipe", "transfer", "own"]
_CONFIGURATION = ("recipe", "settings", "epsilon", "delta", "seed", "data", "search")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run as data.

    Args:
        run: A random name, by which a ledger knows the run.
        recipe: The recipe's name; of a run of one's own model, that of its class.
        summary: What it does, in one line.
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
        test_accuracy: The final model's accuracy on held-out data; None until then, or if there
            are none.
        notes: What a reader should know beside the statement.
        finished: Whether it has come to its end.
        kind: Whether it is of a recipe, of a transfer, or of somebody's own model and data.
        launch: The name of the torchrun that began it, whose later attempts go on with it.
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
    kind: Kind = "recipe"
    launch: str | None = None

    def how_to_go_on(self, folder: Path) -> str:
        """How to go on with it, in words."""
        match self.kind:
            case "own":
                return (
                    "go on with it by the script that began it (tacit.fit(..., resume=True)), or "
                    f"tacit train --resume --out {folder} --model FILE:function"
                )
            case "transfer":
                return f"go on with it (tacit transfer --resume --out {folder})"
            case "recipe":
                return f"go on with it (tacit train --resume --out {folder})"

    def __post_init__(self) -> None:
        object.__setattr__(self, "configuration", _hash(self))

    def write(self, folder: Folder) -> None:
        """Writes ``run.json``."""
        plain = {"format": FORMAT, "version": VERSION, **asdict(self)}
        text = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)
        folder.write(RECORD, f"{text}\n".encode())


def of_recipe(
    recipe: Recipe,
    task: Task,
    *,
    folder: str | None = None,
    command: Sequence[str] = (),
    search: Mapping[str, Any] | None = None,
) -> RunRecord:
    """The record of a recipe's run that is about to begin."""
    data = task.data
    return RunRecord(
        run=secrets.token_hex(8),
        recipe=recipe.name,
        summary=recipe.summary,
        settings=settings_of.as_dict(task.settings),
        epsilon=task.epsilon,
        delta=task.delta,
        seed=task.seed,
        data={
            "name": data.name,
            "files": dict(data.files),
            "train": len(data.train),
            "test": len(data.test),
        },
        folder=folder,
        search=search,
        device=str(task.device),
        versions=claims.versions(),
        command=tuple(command),
        anchors=tuple(asdict(one) for one in recipe.anchors),
        tuning=recipe.tuning,
        budget=None,
        kind=recipe.kind,
    )


def read(folder: Folder) -> RunRecord:
    """The record of the run that ``folder`` holds, each field of its type.

    Nothing that it names is imported or opened.
    """
    path = folder.file(RECORD)
    try:
        plain = folder.read(RECORD)
        if plain.pop("format") != FORMAT or plain.pop("version") != VERSION:
            raise CheckpointError("it was written by another tacit")
        claimed = plain.pop("configuration")
        for name in ("command", "anchors", "notes"):
            plain[name] = tuple(plain[name])
        found = RunRecord(**plain)
        for name, fits, wanted in _demands(found):
            if not fits:
                raise CheckpointError(f"{name} must be {wanted}")
        if found.configuration != claimed:
            raise CheckpointError("its settings were changed after the run began")
    except CheckpointError as error:
        raise CheckpointError(f"{path} is not the record of a run: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        line = printable(" ".join(str(error).split()))[:200]
        raise CheckpointError(
            f"{path} is not the record of a run: {type(error).__name__}: {line}"
        ) from None
    return found


def resumed(new: RunRecord, old: RunRecord) -> RunRecord:
    """``old``, if ``new`` is the same run; else what differs is refused."""
    for name in _CONFIGURATION:
        mine, theirs = (json.loads(json.dumps(getattr(one, name))) for one in (new, old))
        if mine != theirs:
            raise InvalidArgument(
                f"{name} must be as when the run began, {_short(theirs)}, got {_short(mine)}; "
                "resume it as it was, or start a new run in another folder"
            )
    return replace(old, device=new.device, versions=new.versions, launch=new.launch)


def _hash(record: RunRecord) -> str:
    chosen = {name: getattr(record, name) for name in _CONFIGURATION}
    text = json.dumps(chosen, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


# ---- texts where words go, numbers where numbers go


def _demands(record: RunRecord) -> list[tuple[str, bool, str]]:
    data = record.data if isinstance(record.data, Mapping) else {}
    accuracy, own = record.test_accuracy, record.kind == "own"  # which may have metrics instead
    found = [
        (name, isinstance(getattr(record, name), str), "a text")
        for name in ("run", "recipe", "summary", "device", "tuning")
    ]
    found += [(name, _number(getattr(record, name)), "a number") for name in ("epsilon", "delta")]
    return [
        *found,
        ("seed", record.seed is None or _count(record.seed), "a whole number or null"),
        ("folder", isinstance(record.folder, str | None), "a text or null"),
        ("launch", isinstance(record.launch, str | None), "a text or null"),
        ("budget", record.budget is None or _budget(record.budget), "a ledger and a name, or null"),
        ("settings", _scalars(record.settings), "numbers and texts by name"),
        ("versions", _texts_by_name(record.versions), "texts by name"),
        ("command", _texts(record.command), "texts"),
        ("notes", _texts(record.notes), "texts"),
        ("anchors", all(map(_anchor, record.anchors)), "published results"),
        ("search", isinstance(record.search, Mapping | None), "a table or null"),
        ("winner", record.winner is None or _scalars(record.winner), "settings or null"),
        ("plan", isinstance(record.plan, Mapping | None), "a plan or null"),
        ("data", _data(data), "a name, files with checksums, and numbers of examples"),
        ("kind", record.kind in get_args(Kind), f"one of {', '.join(get_args(Kind))}"),
        ("finished", isinstance(record.finished, bool), "true or false"),
        (
            "test_accuracy",
            (accuracy is None and not (record.finished and data.get("test") and not own))
            or (_number(accuracy) and 0.0 <= float(accuracy or 0.0) <= 1.0),
            "a number between 0 and 1",
        ),
    ]


def _number(value: object) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and math.isfinite(value)


def _count(value: object) -> bool:
    return type(value) is int and value >= 0


def _budget(value: object) -> bool:
    return _texts_by_name(value) and {"ledger", "name"} <= set(value)  # type: ignore[call-overload]


def _texts(values: object) -> bool:
    return isinstance(values, tuple) and all(isinstance(one, str) for one in values)


def _texts_by_name(values: object) -> bool:
    return isinstance(values, Mapping) and all(
        isinstance(one, str) for pair in values.items() for one in pair
    )


def _scalars(values: object) -> bool:
    return isinstance(values, Mapping) and all(
        isinstance(name, str) and (isinstance(value, str | bool | None) or _number(value))
        for name, value in values.items()
    )


def _anchor(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and all(_number(value.get(name)) for name in ("epsilon", "accuracy"))
        and all(isinstance(value.get(name), str) for name in ("source", "shortcuts"))
    )


def _data(data: Mapping[str, object]) -> bool:
    return (
        isinstance(data.get("name"), str)
        and _texts_by_name(data.get("files"))
        and all(_count(data.get(name)) for name in ("train", "test"))
    )
