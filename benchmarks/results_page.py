"""Brings the tables of docs/results.md and docs/choosing.md up to date with the records.

    python benchmarks/results_page.py            # writes the pages
    python benchmarks/results_page.py --check    # exits with 1 if one is not up to date

A page says itself what goes where. Between these two lines stands the second table of a record,
with three of its columns:

    <!-- benchmarks/results/recipes.md: table 2: recipe · ε · ours: begin -->
    <!-- benchmarks/results/recipes.md: end -->

``table 2`` alone takes all columns, ``table 1+3`` reads two tables of the same rows as one, and
``headline`` takes the record's first heading.
"""

import re
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
PAGES = [Path(__file__).parents[1] / "docs" / f"{name}.md" for name in ("results", "choosing")]
PLACE = re.compile(
    r"^(<!-- benchmarks/results/(?P<record>\w+)\.md: (?P<what>[^\n]+?): begin -->\n)"
    r".*?"
    r"^(?P<end><!-- benchmarks/results/(?P=record)\.md: end -->)$",
    re.DOTALL | re.MULTILINE,
)
TABLE = re.compile(r"(?:^\|.*\|[ ]*\n)+", re.MULTILINE)
BAR = re.compile(r"(?<!\\)\|")


def cells(line: str) -> list[str]:
    """Those of one line of a table."""
    return [cell.strip() for cell in BAR.split(line.strip())[1:-1]]


def excerpt(record: str, what: str) -> str:
    """What a page asks of a record.

    Raises:
        LookupError: if the record has no such table, column or heading.
    """
    text = (RESULTS / f"{record}.md").read_text(encoding="utf-8") + "\n"
    if what == "headline":
        return next(line for line in text.splitlines() if line.startswith("#")).lstrip("# ") + "."
    number, _, named = what.removeprefix("table ").partition(": ")
    tables = [TABLE.findall(text)[int(one) - 1].splitlines() for one in number.split("+")]
    rows = [[one for line in lines for one in cells(line)] for lines in zip(*tables, strict=True)]
    names = [name.strip() for name in named.split(" · ")] if named else rows[0]
    missing = [name for name in names if name not in rows[0]]
    if missing:
        raise LookupError(f"table {number} of {record}.md has no column {missing[0]!r}: {rows[0]}")
    kept = [rows[0].index(name) for name in names]
    return "\n".join("| " + " | ".join(row[at] for at in kept) + " |" for row in rows)


def filled(page: str) -> str:
    """The page with every excerpt as the records have it now."""
    return PLACE.sub(
        lambda at: f"{at[1]}\n{excerpt(at['record'], at['what'])}\n\n{at['end']}", page
    )


def main() -> int:
    stale = [
        page
        for page in PAGES
        if filled(page.read_text(encoding="utf-8")) != page.read_text(encoding="utf-8")
    ]
    if "--check" in sys.argv[1:]:
        for page in stale:
            print(f"docs/{page.name} is not up to date: python benchmarks/results_page.py")
        return int(bool(stale))
    for page in stale:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
