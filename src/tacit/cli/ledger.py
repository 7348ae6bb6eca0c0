"""``tacit ledger``: budgets made, shown and closed, and whether their ledger can be trusted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tacit import __version__
from tacit._validation import printable
from tacit.cli import options
from tacit.cli.options import OptionType, Refusal, picture_file
from tacit.cli.streams import say
from tacit.errors import TacitError, TamperedLedger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import RenderableType

    from tacit.accounting.events import Adjacency
    from tacit.ledger import Entry, Ledger, Verification
    from tacit.reports.ledger_summary import BudgetAccount

UNSOUND = 1
VARIABLE = "TACIT_LEDGER"
LIMIT = "give the limit, such as --epsilon 8"
FAILURE = "give the limit, such as --delta 1e-5"
UNFINISHED = "tacit ledger list names unfinished reservations"

EPILOG = """\b
Examples:
  tacit ledger open patients-2026 --epsilon 8 --delta 1e-5 --ledger budget.db
  tacit ledger list --ledger budget.db
  tacit ledger show patients-2026 --ledger budget.db --plot burn-down.png
  tacit ledger close patients-2026 7 --ledger budget.db
  tacit ledger history patients-2026 --ledger postgresql://me@host/budgets
  tacit ledger verify --ledger budget.db
  tacit ledger verify --ledger budget.db --accept --reason "moved to a new disk"
  tacit ledger export ledger.jsonl --ledger budget.db
"""

# What comes of numbers that are words, missing fields, dates that are none, limits of zero.
_NONSENSE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)

Command = Any  # click's own type for what its decorators take and give


@dataclass(frozen=True)
class LedgerPlace:
    """Where a ledger is, and what it is checked with."""

    address: str | None
    anchor: str | None
    key: str | None

    @property
    def url(self) -> str:
        """The URL of what ``--ledger`` names."""
        return url_of(self.address)


def _common(command: Command) -> Command:
    """The options that every command has; it is given the ledger's as ``where``."""

    @wraps(command)
    def placed(*, address: str | None, anchor: str | None, key: str | None, **own: Any) -> Any:
        return command(where=LedgerPlace(address, anchor, key), **own)

    return _with_options(placed)


def _with_options(command: Command) -> Command:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else."),
        click.option(
            "--anchor",
            metavar="FILE",
            help="The ledger's anchor file, if it is not in the usual place.",
        ),
        click.option(
            "--key",
            metavar="FILE",
            envvar="TACIT_LEDGER_KEY",
            show_envvar=True,
            help="File of the key that seals the ledger, if it is sealed.",
        ),
        click.option(
            "--ledger",
            "address",
            metavar="URL",
            envvar=VARIABLE,
            show_envvar=True,
            help="The ledger: an SQLite file, sqlite:///FILE or postgresql://USER@HOST/DATABASE.",
        ),
    ):
        command = option(command)
    return command


class _Commands(click.Group):
    """Commands whose ledger may come from anyone: what cannot be read is refused in one line."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except TacitError:
            raise
        except _NONSENSE as error:
            raise Refusal(
                "the ledger holds something that tacit did not write "
                f"({type(error).__name__}: {printable(str(error)[:300])}); find out who did"
            ) from error


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    epilog=EPILOG,
    short_help="Keeps budgets: what is spent, by what, and what is left.",
)
@click.pass_context
def ledger(context: click.Context) -> None:
    """Keeps the budgets of a ledger: what is spent, by what, and what is left.

    Only open, close and verify --accept write into it.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@ledger.command("open", short_help="Makes a budget, and the ledger if there is none.")
@click.argument("name")
@click.option(
    "--epsilon",
    metavar="E",
    type=OptionType("number", options.positive, LIMIT),
    help="The ε that all releases together may not exceed.",
)
@click.option(
    "--delta",
    metavar="D",
    type=OptionType("number", options.probability, FAILURE),
    help="The δ that all releases together may not exceed; 0 for pure releases only.",
)
@click.option(
    "--unit", default="example", show_default=True, help="Whom the budget protects: example, user."
)
@click.option(
    "--adjacency",
    default="add-remove",
    show_default=True,
    help="Which data sets are neighbours: add-remove, replace-one, zero-out.",
)
@click.option(
    "--composition",
    default="basic",
    show_default=True,
    help="How charges add up: basic, renyi, declared.",
)
@_common
def open_(
    name: str,
    epsilon: float | None,
    delta: float | None,
    unit: str,
    adjacency: Adjacency,
    composition: str,
    where: LedgerPlace,
    as_json: bool,
) -> None:
    """Opens the budget NAME; makes it, and the ledger, if there is none.

    A declared budget is for plans that are fixed together before the first release, and takes no
    further run after it; a basic one takes run after run.
    """
    from tacit.cli import ledger_page
    from tacit.reports.ledger_summary import summarise

    if epsilon is None:
        raise Refusal(f"--epsilon is missing; {LIMIT}")
    if delta is None:
        raise Refusal(f"--delta is missing; {FAILURE}")
    with _opened(where, create=True) as opened:
        made = name not in {one.name for one in opened.budgets()}
        opened.open(name, epsilon, delta, unit=unit, adjacency=adjacency, composition=composition)
        found = summarise(opened.books.budgets[name])
        heading = _heading(opened)
    page = ledger_page.opened_page(heading, found, made=made)
    _tell(heading | {"made": made, "budget": found.as_dict()}, page, as_json=as_json)


@ledger.command(short_help="Ends an unfinished reservation.")
@click.argument("name")
@click.argument("number", type=OptionType("number", options.whole, UNFINISHED))
@_common
def close(name: str, number: int, where: LedgerPlace, as_json: bool) -> None:
    """Ends the unfinished reservation NUMBER of the budget NAME: it grants nothing more.

    If no step of it was granted, it is no longer charged; otherwise all of it stays charged.
    """
    from tacit.cli import ledger_page
    from tacit.reports.ledger_summary import summarise

    with _opened(where) as opened:
        budget = opened.budget(name)
        reservation = budget.reservation(number)
        if reservation.state.ended:
            raise Refusal(
                f"reservation {number} of {name!a} has ended already; nothing was changed"
            )
        reservation.end()
        budget.spent()  # reads the ledger again
        void = reservation.state.void
        found = summarise(budget.state)
        heading = _heading(opened)
    page = ledger_page.closed_page(heading, found, number, void=void)
    plain = {"reservation": number, "void": void, "budget": found.as_dict()}
    _tell(heading | plain, page, as_json=as_json)


@ledger.command("list", short_help="Lists all budgets and what is left of each.")
@_common
def list_(where: LedgerPlace, as_json: bool) -> None:
    """Lists all budgets: limits, what is left, unfinished reservations and requests."""
    from tacit.cli import ledger_page
    from tacit.reports.ledger_summary import summarise, unfinished

    with _opened(where) as opened:
        budgets = [summarise(state) for state in opened.budgets()]
        pending = unfinished(opened.books)
        requests = [
            one for one in opened.books.requests.values()
            if one.standing in ("pending", "approved", "drawn")
        ]  # fmt: skip
        heading = _heading(opened)
    page = ledger_page.budgets_page(heading, budgets, pending, requests)
    plain = {
        "requests": [
            {
                "number": one.number,
                "budget": one.budget,
                "label": one.label,
                "by": one.by.name,
                "standing": one.standing,
                "until": one.until or None,
                "reservation": one.reservation,
            }
            for one in requests
        ],
        "budgets": [one.as_dict() for one in budgets],
        "unfinished": [one.as_dict() | {"budget": one.state.budget} for one in pending],
    }
    _tell(heading | plain, page, as_json=as_json)


@ledger.command(short_help="Shows one budget: its reservations and its figures.")
@click.argument("name")
@click.option("--plot", metavar="FILE", help="Draw the burn-down, as .png or .svg.")
@_common
def show(
    name: str,
    plot: str | None,
    where: LedgerPlace,
    as_json: bool,
) -> None:
    """Shows the budget NAME: its reservations, and what its figures mean."""
    from tacit.cli import ledger_page
    from tacit.reports.ledger_summary import account

    picture = None if plot is None else picture_file("--plot", plot)
    with _opened(where) as opened:
        found = account(opened.history(name))
        heading = _heading(opened)
    if picture is not None:
        _draw(found, picture)
    page = ledger_page.account_page(heading, found)
    _tell(heading | {"budget": found.as_dict(), "plot": plot}, page, as_json=as_json)
    if picture is not None and not as_json:
        say(f"The picture is at {picture}")


@ledger.command(short_help="Lists all entries, or those of one budget.")
@click.argument("name", required=False)
@click.option(
    "--last",
    metavar="N",
    type=OptionType("number", options.whole, "give how many entries to show, such as 20"),
    help="Only the last N entries.",
)
@_common
def history(
    name: str | None,
    last: int | None,
    where: LedgerPlace,
    as_json: bool,
) -> None:
    """Lists all entries, or those of the budget NAME, oldest first."""
    from tacit.cli import ledger_page

    with _opened(where) as opened:
        entries = opened.history(name)[-(last or 0) :]
        heading = _heading(opened)
    page = ledger_page.history_page(heading, entries)
    _tell(heading | {"entries": [_plain(one) for one in entries]}, page, as_json=as_json)


@ledger.command(short_help="Checks the whole ledger.")
@click.option("--accept", is_flag=True, help="Adopt a ledger whose anchor is missing or ahead.")
@click.option(
    "--reason", metavar="TEXT", help="Why it is adopted; the ledger keeps the reason for good."
)
@_common
@click.pass_context
def verify(
    context: click.Context,
    accept: bool,
    reason: str | None,
    where: LedgerPlace,
    as_json: bool,
) -> None:
    """Checks the whole ledger: its chain, its anchor and its sums. Status 1 if it is not sound."""
    from tacit.cli import ledger_page

    _check_acceptance(accept, reason)
    found = _verified(where)
    accepted = reason is not None and _needs_anchor(found, where)
    if accepted:
        assert reason is not None
        _adopt(reason, where)
        found = _verified(where)
    page = ledger_page.verification_page(found, accepted=accepted, asked=accept)
    _tell(_verdict(found) | {"accepted": accepted}, page, as_json=as_json)
    if not found.ok:
        context.exit(UNSOUND)


@ledger.command(short_help="Writes all entries to a file, as JSON lines.")
@click.argument("file")
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@click.option(
    "--exact-times", is_flag=True, help="Export entries that are dated to the microsecond, too."
)
@_common
def export(
    file: str,
    force: bool,
    exact_times: bool,
    where: LedgerPlace,
    as_json: bool,
) -> None:
    """Writes all entries to FILE as JSON lines, to be checked without the database."""
    from tacit.cli import ledger_page

    path = _target(file, force)
    with _opened(where) as opened:
        _spare(path, file, opened, where)
        entries = opened.history()
        heading = _heading(opened)
    exact = [one.number for one in entries if "T" in one.at]
    if exact and not exact_times:
        raise Refusal(
            f"entries {exact[0]} to {exact[-1]} were written by an earlier tacit and have exact "
            "times, which follow the sizes of lots; export them with --exact-times, and keep the "
            "file to yourself"
        )
    _export(entries, path, file)
    page = ledger_page.export_page(file, entries[-1])
    _tell(heading | {"file": file, "entries": len(entries)}, page, as_json=as_json)


def url_of(address: str | None) -> str:
    """The URL of what ``--ledger`` names, which may be a plain path.

    >>> url_of("runs/budget.db")
    'sqlite:///runs/budget.db'
    """
    if not address:
        raise Refusal(f"--ledger is missing; give --ledger budget.db, say, or set ${VARIABLE}")
    if "://" in address:
        return address
    if "?" in address:
        raise Refusal(f"--ledger must name a file without a ?, got {address}; rename the file")
    return f"sqlite:///{address}"


def _opened(where: LedgerPlace, *, create: bool = False) -> Ledger:
    # SQLAlchemy comes with it: a refusal need not wait for that.
    from tacit.ledger import Ledger

    return Ledger(where.url, anchor=where.anchor, key=where.key, create=create)


def _heading(opened: Ledger) -> dict[str, Any]:
    return {"tacit": __version__, "ledger": opened.location, "head": str(opened.head)}


def _tell(plain: Mapping[str, object], page: Iterable[RenderableType], *, as_json: bool) -> None:
    if as_json:
        say(json.dumps(plain, indent=2, allow_nan=False))
        return
    from tacit.cli.page import say_page

    say_page(page)


def _plain(entry: Entry) -> dict[str, object]:
    return {
        "number": entry.number,
        "at": entry.at,
        "budget": entry.budget,
        "kind": entry.kind,
        "data": entry.data,
        "hash": entry.hash,
    }


def _draw(found: BudgetAccount, picture: Path) -> None:
    from tacit.reports.ledger_figure import write

    try:
        write(found, picture)
    except OSError as error:
        raise Refusal(f"--plot {picture} cannot be written: {error.strerror or error}") from None


# ---- verify


def _check_acceptance(accept: bool, reason: str | None) -> None:
    if accept and not (reason or "").strip():
        raise Refusal("--accept needs --reason; say why the anchor is not the newest entry's")
    if reason is not None and not accept:
        raise Refusal("--reason is for --accept; give both or none")


def _verified(where: LedgerPlace) -> Verification:
    from tacit.ledger import verify

    found = verify(where.url, anchor=where.anchor, key=where.key)
    if not found.reached:
        raise Refusal(found.problems[0])
    return found


def _needs_anchor(found: Verification, where: LedgerPlace) -> bool:
    """Whether the anchor is what is wrong, so that adopting can mend it."""
    if found.anchored is None:
        return True
    try:
        _opened(where).close()
    except TamperedLedger:
        return True
    return False


def _adopt(reason: str, where: LedgerPlace) -> None:
    from tacit.ledger import Ledger

    Ledger.adopt(where.url, reason=reason, anchor=where.anchor, key=where.key).close()


def _verdict(found: Verification) -> dict[str, object]:
    return {
        "tacit": __version__,
        "ledger": found.location,
        "sound": found.ok,
        "entries": found.entries,
        "head": None if found.head is None else str(found.head),
        "anchored": None if found.anchored is None else str(found.anchored),
        "problems": list(found.problems),
        "notes": list(found.notes),
    }


# ---- export


def _target(file: str, force: bool) -> Path:
    """Where to write: the file itself if FILE is a link, and never a folder or device."""
    path = Path(file).resolve()
    if path.exists() and not path.is_file():
        raise Refusal(f"FILE must be a file, got {file}; name another one")
    if path.exists() and not force:
        raise Refusal(f"{file} exists; name another file, or overwrite it with --force")
    return path


def _spare(path: Path, file: str, opened: Ledger, where: LedgerPlace) -> None:
    """Refuses to write over any file of the ledger itself, with or without --force."""
    owned = [opened.anchor, Path(f"{opened.anchor}.lock")]
    if where.url.startswith("sqlite"):
        database = where.url.partition(":///")[2]
        owned += [Path(database + end) for end in ("", "-wal", "-shm", "-journal")]
    if path in [one.resolve() for one in owned]:
        raise Refusal(f"{file} belongs to the ledger itself; name another file")


def _export(entries: Iterable[Entry], path: Path, file: str) -> None:
    from tacit.reports.ledger_summary import export

    try:
        export(entries, path)
    except OSError as error:
        raise Refusal(f"{file} cannot be written: {error.strerror or error}") from None
