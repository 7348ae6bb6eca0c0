"""Options of every command that runs something: ε, δ, seed, folders, device, ledger, settings.

A value is read where click reads it, so that a bad one is answered by one line with its remedy.
Nothing is made here: neither folder nor ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import click

from tacit.cli import options
from tacit.cli.options import OptionType, Refusal
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tacit.runs.record import RunRecord

RUNS: Final = Path("runs")
DELTA: Final = 1e-5
DEVICE: Final = "auto"


# ---- single values


def _epsilon_of(option: str, text: str, remedy: str) -> float:
    epsilon = options.positive(option, text, remedy)
    if not 1e-4 <= epsilon <= 1e4:
        raise Refusal(f"{option} must lie between 1e-4 and 1e4, got {text}; {remedy}")
    return epsilon


def _seed_of(option: str, text: str, remedy: str) -> int:
    try:
        seed = int(text)
    except ValueError:
        seed = -1
    if not 0 <= seed < 2**63:
        raise Refusal(f"{option} must be a whole number from 0 to 2**63 - 1, got {text}; {remedy}")
    return seed


def _folder_of(option: str, text: str, remedy: str) -> Path:
    if not Path(text).is_dir():
        raise Refusal(f"{option} must be a folder, got {text}; {remedy}")
    return Path(text)


EPSILON: Final = OptionType("EPS", _epsilon_of, "give the ε of everything released, such as 3")
DELTA_TYPE: Final = OptionType(
    "D", options.open_probability, "give a number well below 1/N, such as 1e-5"
)
REQUEST: Final = OptionType("N", options.whole, "give the number of a request, such as 12")
SEED: Final = OptionType("N", _seed_of, "or leave it out")
DATA: Final = OptionType("DIR", _folder_of, "tacit data get NAME --data makes one")
FOLDER: Final = click.Path(path_type=Path)


def free_folder(name: str) -> Path:
    """The first of runs/NAME, runs/NAME-2, … that is not there."""
    found, number = RUNS / name, 1
    while found.exists():
        number += 1
        found = RUNS / f"{name}-{number}"
    return found


def check_device(name: str) -> Any:
    """The device, or one line."""
    from tacit.models.devices import device_named

    try:
        return device_named(name)
    except InvalidArgument as error:
        raise Refusal(f"--{error}") from None


# ---- a run


@final
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What every run is given; None where an option was not."""

    epsilon: float | None = None
    delta: float | None = None
    out: Path | None = None
    resume: bool = False
    ledger: str | None = None
    budget: str | None = None
    device: str | None = None
    seed: int | None = None
    data: Path | None = None

    @classmethod
    def taken(cls, given: dict[str, Any]) -> RunOptions:
        """Takes its own out of all options; refuses a budget without its ledger."""
        found = cls(**{one.name: given.pop(one.name) for one in fields(cls)})
        if found.budget is not None and found.ledger is None and not found.resume:
            raise Refusal(f"--budget {found.budget} needs --ledger; name the ledger that holds it")
        return found

    def read_record(self) -> RunRecord:
        """The record of the run that ``--out`` holds."""
        from tacit.runs import record as records
        from tacit.runs.folder import Folder

        if self.out is None:
            raise Refusal("--resume needs --out; name the folder of the run to go on with")
        folder = Folder(self.out)
        folder.check_run()
        return records.read(folder)

    def check_same(self, known: RunRecord, more: Mapping[str, tuple[Any, Any]]) -> None:
        """Refuses options that contradict the run; ``more`` has pairs of what was given and is."""
        budget = None if known.budget is None else known.budget["name"]
        given = {
            **more,
            "--epsilon": (self.epsilon, known.epsilon),
            "--delta": (self.delta, known.delta),
            "--seed": (self.seed, known.seed),
            "--budget": (self.budget, budget),
        }
        for option, (mine, theirs) in given.items():
            if mine is not None and mine != theirs:
                raise Refusal(
                    f"{option} {mine} contradicts the run in {self.out}, which has {theirs}; leave "
                    "it out, or start a new run in another folder"
                )
        if self.ledger is not None and known.budget is None:
            raise Refusal(
                f"--ledger {self.ledger} contradicts the run in {self.out}, which is charged to "
                "none; leave it out"
            )

    def data_of(self, known: RunRecord) -> Path | None:
        """Where the run's data lie: where ``--data`` says, or where the run found them."""
        return self.data or (None if known.folder is None else Path(known.folder))

    def ledger_of(self, known: RunRecord) -> str | None:
        """The ledger that the run is charged to."""
        return self.ledger or (None if known.budget is None else known.budget["ledger"])


# ---- an approved request


@final
@dataclass(frozen=True)
class AskedRun:
    """What a request of a ledger asks for; who wrote the ledger wrote all of it."""

    budget: str
    epsilon: float | None
    delta: float | None
    given: Mapping[str, str]

    @classmethod
    def read(cls, ledger: str, number: int) -> AskedRun:
        """The request with this number, if a run may draw on it."""
        from tacit.cli.ledger import url_of
        from tacit.ledger import Ledger, lapse
        from tacit.ledger.approval import check_drawable
        from tacit.ledger.approval import request_of as found

        with Ledger(url_of(ledger), create=False) as opened:
            lapse(opened)
            known = found(opened.books, number)
            check_drawable(opened.books, number)
        plain = known.asked or {}
        numbers = {name: float(value) for name, value in plain.items() if _is_number(value)}
        return cls(
            known.budget,
            numbers.get("epsilon"),
            numbers.get("delta"),
            {
                name: f"{numbers[name]:.17g}"
                for name in ("lot", "epochs", "clip")
                if name in numbers
            },
        )

    def settings(self, default: Any) -> dict[str, str]:
        """Those of its settings that a recipe has."""
        from tacit.runs.settings import names

        return {name: value for name, value in self.given.items() if name in names(default)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and abs(value) <= 1e30


def request_of(known: RunRecord) -> int | None:
    """The request that a run draws on."""
    found = (known.budget or {}).get("request")
    return int(found) if found is not None and found.isdecimal() else None


# ---- settings: ``--lot 500``, ``--set lot=500``, ``--head cnn``


class TakesSettings(click.Command):
    """Takes every unknown ``--name value`` for a setting of what is run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Turns them into ``--set`` before click looks for its own options."""
        known = {"--help": False, "-h": False}
        for parameter in self.params:
            if isinstance(parameter, click.Option):
                known |= dict.fromkeys(parameter.opts, not parameter.is_flag)
        return super().parse_args(ctx, as_sets(args, known))


def given_settings(own: Mapping[str, str | None], sets: Sequence[str]) -> dict[str, str]:
    """The settings that were given, by name: as options of their own and as ``--set``."""
    given: dict[str, str] = {}
    pairs = [(name, value) for name, value in own.items() if value is not None]
    pairs += [_pair(one) for one in sets]
    for name, value in pairs:
        if given.setdefault(name, value) != value:
            raise Refusal(f"{name}={given[name]} and {name}={value} contradict each other")
    return given


def _pair(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark or not name.strip():
        raise Refusal(f"--set must be NAME=VALUE, got {text}; --settings shows the names")
    return name.strip().replace("-", "_"), value.strip()


_OWN_MODEL: Final = "; to train a model of your own, leave out the recipe"


def known_settings(
    recipe: str, settings: Any, given: Mapping[str, str], options: Sequence[str]
) -> Mapping[str, str]:
    """``given``, if the recipe has such settings: a name may also be a mistyped option."""
    from tacit.runs.settings import names

    there = names(settings)
    for name in given:
        if name not in there:
            shown = name.replace("_", "-")
            if shown in options:
                own = _OWN_MODEL if shown == "model" else ""
                raise Refusal(
                    f"{shown} is no setting of {recipe}, whose settings are {', '.join(there)}{own}"
                )
            close = get_close_matches(shown, [*there, *options], 1)
            meant = f"did you mean --{close[0]}? " if close else ""
            raise Refusal(
                f"--{shown} is neither an option nor a setting of {recipe}; {meant}"
                f"its settings are {', '.join(there)}"
            )
    return given


def settings_again(
    recipe: str, settings: Any, given: Mapping[str, str], options: Sequence[str]
) -> dict[str, tuple[Any, Any]]:
    """Settings that were given to a run that is resumed, each beside what the run has."""
    from tacit.runs.settings import as_dict, changed

    again = as_dict(changed(settings, known_settings(recipe, settings, given, options)))
    return {f"--{name}": (again[name], getattr(settings, name)) for name in given}


def as_sets(arguments: Sequence[str], known: Mapping[str, bool]) -> list[str]:
    """Arguments with ``--head cnn`` as ``--set head=cnn``, for every option that is not ``known``.

    >>> as_sets(["mnist", "--out", "x", "--head", "cnn"], {"--out": True})
    ['mnist', '--out', 'x', '--set', 'head=cnn']
    """
    found: list[str] = []
    rest = list(arguments)
    while rest:
        one = rest.pop(0)
        name, mark, value = one.partition("=")
        if not one.startswith("--") or one == "--":
            found.append(one)
        elif name in known:
            found.append(one)
            if known[name] and not mark and rest:
                found.append(rest.pop(0))
        elif mark:
            found += ["--set", f"{name[2:]}={value}"]
        elif not rest or rest[0].startswith("--"):
            raise Refusal(f"{one} needs a value; --help shows the options")
        else:
            found += ["--set", f"{name[2:]}={rest.pop(0)}"]
    return found
