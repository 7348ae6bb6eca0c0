"""``tacit report``: the report of a finished run, written again from the files in its folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tacit.cli.options import Refusal
from tacit.cli.streams import say

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.reports.run_summary import RunSummary

EPILOG = """\b
Examples:
  tacit report runs/demo
  tacit report runs/demo --json
"""


@click.command(epilog=EPILOG)
@click.argument("folder", metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
def report(folder: str, as_json: bool) -> None:
    """Writes DIR/report.html and DIR/report.md again, for the run that DIR holds.

    Every figure is computed anew from the run's statement. One that claims less than is proved, or
    whose figures are not its own, is refused.
    """
    from tacit.reports.run_report import read

    summary = read(folder)
    path = _write(summary)
    if as_json:
        say(json.dumps(summary.to_plain() | {"report": str(path)}, indent=2, allow_nan=False))
    else:
        say(_headline(summary))
        say(f"The report is at {path}")


def _write(summary: RunSummary) -> Path:
    from tacit.reports.run_report import write_summary

    try:
        return write_summary(summary)
    except OSError as error:
        folder = summary.files.path
        raise Refusal(f"{folder} cannot be written: {error.strerror or error}") from None


def _headline(summary: RunSummary) -> str:
    from tacit._validation import printable
    from tacit.reports.run_sections import report as content

    told = content(summary, drawn=False)
    return f"{printable(told.title)}\n{printable(told.lead)}"
