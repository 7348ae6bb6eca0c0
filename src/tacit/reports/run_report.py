"""``write``: the report of a finished run, as a page and as Markdown, from the files in its folder.

Everything in the report follows from those files, which may come from anyone: they are checked
(``run_folder``), the figures are computed again (``run_summary``), and texts are escaped.
"""

from __future__ import annotations

from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from tacit._files import drafted
from tacit.reports import run_folder, run_sections, run_summary
from tacit.reports.run_content import markdown, page

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    from tacit.reports.run_summary import RunSummary

PAGE: Final = "report.html"
MARKDOWN: Final = "report.md"


def write(folder: str | os.PathLike[str]) -> Path:
    """Writes ``report.html`` and ``report.md`` into the run's folder; returns the former's path.

    Guarantee:
        Each file ends up as the whole report or as it was before. Nothing is written if a file of
        the run is missing, malformed or false.

    Raises:
        CheckpointError: with one line that names the file of the run.
    """
    return write_summary(run_summary.summarise(run_folder.read(folder)))


def write_summary(summary: RunSummary) -> Path:
    """As ``write``, for a run that was read."""
    drawn = find_spec("matplotlib") is not None
    content = run_sections.report(summary, drawn=drawn)
    folder = summary.files.path
    _replace(
        folder,
        {
            PAGE: page(content, _drawings(summary) if drawn else {}),
            MARKDOWN: markdown(content),
        },
    )
    return folder / PAGE


def _drawings(summary: RunSummary) -> dict[str, str]:
    from tacit.reports.run_figure import drawings  # noqa: PLC0415 - only with matplotlib

    return drawings(summary)


def _replace(folder: Path, texts: Mapping[str, str]) -> None:
    """Puts files in their places, each in one operation, once all of them are on the disk."""
    with ExitStack() as stack:
        for name, text in texts.items():
            stack.enter_context(drafted(folder / name)).write_bytes(text.encode())
