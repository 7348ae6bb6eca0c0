"""The parts of a report that only a transfer has: its labels, and the ε that was told of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tacit._numbers import at_most, compact
from tacit.reports.run_content import Paragraph, Section, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tacit.reports.run_summary import RunSummary
    from tacit.statement import DataDependent


def sections(summary: RunSummary) -> Iterator[Section]:
    """The labels that were released, and the data-dependent figure if one was told."""
    answers = summary.files.answers
    if answers is not None:
        yield Section("The labels that the student learned from", (
            Paragraph(
                f"{len(answers):,} public images have a released label; answers.csv has them. "
                "The student saw these labels and the public images, and nothing else: it may be "
                "used as often as anyone likes, and the labels may be learned from again, at no "
                "further cost."
            ),
            Table(("class", "labels"), _counts(answers), numbers=(0, 1)),
        ))  # fmt: skip
    figure = summary.statement.data_dependent
    if figure is not None:
        yield Section("The data-dependent figure: told beside the claim, and none itself", (
            Paragraph(
                "This figure depends on the data. It is not the guarantee of this run, which is "
                f"ε = {at_most(summary.statement.epsilon, 4)} and holds whatever the data are."
            ),
            Table(("", ""), _facts(figure)),
            Paragraph(figure.describe()),
        ))  # fmt: skip


def _counts(answers: tuple[tuple[int, int], ...]) -> tuple[tuple[str, ...], ...]:
    found = Counter(label for _, label in answers)
    return tuple((str(label), f"{found[label]:,}") for label in sorted(found))


def _facts(figure: DataDependent) -> tuple[tuple[str, str], ...]:
    return (
        ("ε, data-dependent", at_most(figure.epsilon, 6)),
        ("δ, its own", compact(figure.delta)),
        ("of which for a bound that fails", compact(figure.failure)),
        ("Rényi order", f"{figure.order:g}"),
        ("divergence at that order, at most", at_most(figure.divergence, 6)),
    )
