"""A report as a page of HTML that needs nothing but itself.

Guarantee:
    Every text is escaped, whoever wrote it; the page loads nothing and runs no script, and tells
    the browser so (Content-Security-Policy).
"""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING, Final

from tacit._validation import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tacit.reports.run_content import Report

_JOIN: Final = "\u00a0"


def page(report: Report, drawings: Mapping[str, str]) -> str:
    """The page, with ``drawings`` as SVG by the names of the report's pictures."""
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - only where a page is made
    from markupsafe import Markup  # noqa: PLC0415

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["clean"] = _clean
    environment.tests["of"] = lambda block, name: type(block).__name__ == name
    source = resources.files("tacit.reports").joinpath("templates", "run.html")
    template = environment.from_string(source.read_text(encoding="utf-8"))
    trusted = {name: Markup(svg) for name, svg in drawings.items()}  # drawn here
    return template.render(report=report, drawings=trusted) + "\n"


def _clean(text: str) -> str:
    """One line of printable letters, in which ``ε = 3`` and ``90 %`` are not torn apart."""
    line = printable(" ".join(text.split()))
    return re.sub(r"(?<=[εδσμ]) = |(?<=\d) (?=%)", lambda found: found[0].replace(" ", _JOIN), line)
