"""What the commands that run something share: its ledger, its end, and how to go on with it."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from tacit._numbers import at_most
from tacit.cli.options import Refusal
from tacit.cli.streams import complain, say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tacit.ledger import Budget

STOPPED: Final = 130


def command_line() -> tuple[str, ...]:
    """The command line, to be kept with the run: without the password of a ledger."""
    return tuple(map(without_password, ("tacit", *sys.argv[1:])))


def without_password(address: str) -> str:
    """An argument without the password of a ledger's URL, nor what follows its question mark.

    >>> without_password("postgresql://me:secret@host/db?password=secret")
    'postgresql://me:***@host/db?***'
    """
    scheme, mark, rest = address.partition("://")
    before, question, _ = rest.partition("?")
    if "@" in rest and "@" not in before:  # the question mark may be one of the password's
        return f"{scheme}{mark}***"
    who, at, place = before.rpartition("@")
    user, colon, _ = who.partition(":")
    shown = f"{user}:***@" if colon else f"{who}{at}"
    return f"{scheme}{mark}{shown}{place}{'?***' if mark and question else question}"


def opening(
    ledger: str | None, named: str | None, default: str, *, epsilon: float, delta: float,
    resume: bool,
) -> Callable[[], Budget] | None:  # fmt: skip
    """Opens the run's budget when the run needs it, and says which.

    A budget that was ``named`` must exist: one that a slip of the keyboard made would not count
    what the right one has given away. Without a name it is the data's, made if there is none.
    """
    if ledger is None:
        return None
    from tacit.cli.ledger import url_of

    url = url_of(ledger)

    def opened() -> Budget:
        from tacit.ledger import Ledger

        held = Ledger(url, create=not resume and named is None)
        known = [one.name for one in held.budgets()]
        if named is not None and named not in known:
            raise Refusal(
                f"--budget must name one that {held.location} has ({_listed(known) or 'none'}), "
                f"got {named!a}; to make it: tacit ledger open {quote(named)} --epsilon EPS "
                f"--delta D --ledger {quote(without_password(ledger))}"
            )
        name = named or default
        if name in known or resume:
            budget, done, beside = held.budget(name), "opened", ""
        else:
            budget, done = held.open(name, epsilon, delta, composition="declared"), "made"
            beside = f", which already holds {_listed(known)}" if known else ""
            beside = beside or ", which held no budget before"
        complain(
            f"{done} the budget {name!r} (ε = {at_most(budget.epsilon)}, "
            f"δ = {at_most(budget.delta)}, {budget.composition}) in {held.location}{beside}"
        )
        return budget

    return opened


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(map(ascii, names[:8]))}{', …' * (len(names) > 8)}"


def say_how_to_go_on(command: str, out: Path, error: BaseException) -> None:
    """One line: what was stopped, and the command that resumes it if it can be."""
    from tacit.runs import Interrupted

    if isinstance(error, Interrupted) and error.resumable:
        again = f"tacit {command} --resume --out {quote(str(out))}"
        complain(f"{error}; go on with: {again}")
    else:
        complain(str(error) or "stopped; nothing is kept")


def shows_progress(as_json: bool) -> bool:
    """Whether progress goes to standard error: machines that read JSON want none in their logs."""
    return not as_json or sys.stderr.isatty()


def load_engine(progress: bool) -> None:
    """Imports PyTorch, which takes seconds on a cold machine."""
    from tacit.training.progress import waiting

    if find_spec("torch") is None:
        raise Refusal(
            "this command computes with PyTorch, which is not installed: pip install torch"
        )
    with waiting(progress, "loading PyTorch"):
        import torch  # noqa: F401


def clear(out: Path) -> None:
    """Removes what a run that was killed at its very end had no time to remove."""
    from tacit.runs import results
    from tacit.runs.folder import Folder

    folder = Folder(out)
    try:
        results.clear(folder)
    finally:
        folder.close()


def conclude(out: Path, as_json: bool) -> None:
    """Writes the report of a finished run, and shows what came out."""
    from tacit.cli.train_page import result, result_page
    from tacit.training.progress import waiting

    try:
        with waiting(shows_progress(as_json), "writing the report"):
            from tacit.reports.run_report import write

            write(out)
    except OSError as error:
        raise Refusal(
            f"{out} cannot be written: {error.strerror or error}; the model and its "
            f"statement are there, and tacit report {out} tries the report again"
        ) from None
    found: dict[str, Any] = result(Path(out))
    if as_json:
        say(json.dumps(found, indent=2, allow_nan=False))
        return
    from tacit.cli.page import say_page

    say_page(result_page(found))
    say(f"The report is at {out / 'report.html'}")
