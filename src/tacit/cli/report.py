"""``tacit report``: the report of a finished run, written again from the files in its folder."""

from __future__ import annotations

import json
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tacit.cli.options import Refusal
from tacit.cli.streams import say
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tacit.reports.run_summary import RunSummary

EPILOG = """\b
Examples:
  tacit report runs/demo
  tacit report runs/demo --json
  tacit report runs/demo --sign key.pem --name "Clinic of Example"
  tacit report runs/demo --signed-by public.pem --ledger budget.db

\b
A key pair: openssl genpkey -algorithm ed25519 -out key.pem
            openssl pkey -in key.pem -pubout -out public.pem
"""
# Of processor time, for a proof and again for its curve. A statement that tacit wrote takes a
# second; one that was made to keep a reader busy takes days.
MOST_SECONDS = 10


@click.command(epilog=EPILOG, short_help="Proves what a run claims, and writes its report.")
@click.argument("folder", metavar="DIR")
@click.option("--ledger", metavar="URL", help="Ledger in which the run must be charged.")
@click.option(
    "--signed-by", metavar="FILE", help="The public key that must have signed the statement."
)
@click.option("--sign", metavar="FILE", help="Sign the statement with this Ed25519 key.")
@click.option("--name", metavar="NAME", help="Name of the signer, as readers see it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
def report(
    folder: str,
    ledger: str | None,
    signed_by: str | None,
    sign: str | None,
    name: str | None,
    as_json: bool,
) -> None:
    """Writes DIR/report.html and DIR/report.md for the run that DIR holds.

    Every figure is computed again from the run's statement. A statement that claims less than is
    proved, whose figures do not follow from it, or that is about another model than the one in
    DIR, is refused. The report says what is proved, what was checked, and what is only claimed. A
    signature says who claims it; it proves nothing else.
    """
    if name is not None and sign is None:
        raise Refusal("--name is for --sign; give both or none")
    key = None if signed_by is None else _read("--signed-by", signed_by)
    if sign is not None:
        _sign(folder, sign, name or "", _url(ledger))
    from tacit.training.progress import waiting

    with waiting(sys.stderr.isatty(), "proving the statement again and drawing"):
        summary = _checked(folder, _url(ledger), key)
        path = _write(summary)
    if as_json:
        say(json.dumps(summary.report_as_dict() | {"report": str(path)}, indent=2, allow_nan=False))
        return
    say(_headline(summary))
    say(f"The report is at {path}")


def _checked(folder: str, ledger: str | None, signed_by: bytes | None) -> RunSummary:
    from tacit.reports import run_folder, run_summary

    with _within(MOST_SECONDS, folder):
        files = run_folder.read(folder, ledger=ledger, signed_by=signed_by)
    with _within(MOST_SECONDS, folder):
        return run_summary.summarise(files)


def _url(ledger: str | None) -> str | None:
    from tacit.cli.ledger import url_of

    return None if ledger is None else url_of(ledger)


@contextmanager
def _within(seconds: int, folder: str) -> Iterator[None]:
    """Refuses a run whose statement takes longer to check, where the system can interrupt."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGPROF"):
        yield
        return

    def stop(*_: object) -> None:
        raise Refusal(
            f"{folder} cannot be checked within {seconds} seconds; no run that tacit wrote takes "
            "as long"
        )

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


# ---- signing


def _sign(folder: str, file: str, name: str, ledger: str | None) -> None:
    """Signs the statement of a run that was read and checked before, in its place.

    What the ledger that was named contradicts is not signed.
    """
    from tacit._files import put
    from tacit.runs.folder import STATEMENT
    from tacit.statement.signature import private_key

    pem = _read("--sign", file)
    try:
        key = private_key(pem, _password(pem, file))
        signed = _checked(folder, ledger, None).statement.signed(key, by=name)
    except InvalidArgument as error:
        raise Refusal(f"--sign {file} cannot sign: {error}") from None
    try:
        put(Path(folder) / STATEMENT, f"{signed.to_json()}\n".encode())
    except OSError as error:
        raise Refusal(f"{folder} cannot be written: {error.strerror or error}") from None


def _password(pem: bytes, file: str) -> bytes | None:
    if b"ENCRYPTED" not in pem:
        return None
    typed: str = click.prompt(f"Password of {file}", hide_input=True, err=True)
    return typed.encode()


def _read(option: str, file: str) -> bytes:
    try:
        with open(file, "rb") as held:
            return held.read(1 << 16)
    except OSError as error:
        raise Refusal(f"{option} {file} cannot be read: {error.strerror or error}") from None


# ---- what is shown


def _write(summary: RunSummary) -> Path:
    from tacit.reports.run_report import write_summary

    try:
        return write_summary(summary)
    except OSError as error:
        folder = summary.files.path
        raise Refusal(f"{folder} cannot be written: {error.strerror or error}") from None


def _headline(summary: RunSummary) -> str:
    from tacit.reports.run_sections import report as content

    text = content(summary, drawn=False)
    return "\n".join((text.title, text.lead, *_careful(text.warnings), *_standings(summary)))


def _careful(warnings: tuple[str, ...]) -> Iterator[str]:
    return (f"Careful: {one}" for one in warnings)


def _standings(summary: RunSummary) -> Iterator[str]:
    """What is proved, checked and claimed, a line for each finding."""
    from tacit.statement.evidence import MEANINGS

    findings = summary.files.evidence.findings
    for standing, meaning in MEANINGS.items():
        found = [f"  {one.subject}: {one.what}" for one in findings if one.standing == standing]
        if found:
            yield f"{standing.capitalize()} ({meaning}):"
            yield from found
