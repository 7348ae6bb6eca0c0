"""What ``tacit transfer --list`` shows: the methods, their data sets, and what was published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tacit.recipes.transferring.catalogue import METHODS, find
from tacit.recipes.transferring.splits import DATASETS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType


def methods() -> list[dict[str, Any]]:
    """Every method on every data set: what was published, and its one line."""
    return [
        {
            "method": method.name,
            "dataset": dataset,
            "summary": method.summary,
            "anchors": [
                {"epsilon": one.epsilon, "accuracy": one.accuracy, "source": one.source}
                for one in method.anchors(dataset)
            ],
        }
        for method in map(find, METHODS)
        for dataset in DATASETS
    ]


def methods_page(found: list[dict[str, Any]]) -> Iterator[RenderableType]:
    """The methods as a table."""
    table = Table(box=SIMPLE_HEAD)
    for name in ("method", "data", "published (% at ε)", "what it does"):
        table.add_column(name, no_wrap=name == "method")
    for one in found:
        anchors = ", ".join(f"{a['accuracy']:g} at {a['epsilon']:g}" for a in one["anchors"])
        first = one["dataset"] == DATASETS[0]
        table.add_row(
            one["method"] if first else "", one["dataset"], anchors or "–",
            one["summary"] if first else "",
        )  # fmt: skip
    yield table
    yield (
        "Run one: tacit transfer METHOD --dataset NAME. Its settings: tacit transfer METHOD "
        "--dataset NAME --settings."
    )
