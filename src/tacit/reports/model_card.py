"""A model card: what Hugging Face and people read beside a model, made from a run's summary.

The front matter has the tags that cards of private models carry; what follows is the run's own
report, with what is proved apart from what is only claimed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tacit._numbers import at_most, compact
from tacit.reports.run_content import escaped
from tacit.statement import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tacit.reports.run_summary import RunSummary


def model_card(summary: RunSummary) -> str:
    """The card, as Markdown with a front matter in YAML.

    Guarantee: whatever a text of the run holds, it comes out as that text: no link, no HTML, and
    no field of the front matter.
    """
    return "\n".join((*_front_matter(summary), *_body(summary))) + "\n"


def _front_matter(summary: RunSummary) -> Iterator[str]:
    yield "---"
    yield "tags:"
    yield from ("- differential_privacy", "- dp-sgd", "- tacit")
    yield "library_name: pytorch"
    # JSON's strings are YAML's; whoever wrote the names of the run may have written anything.
    yield f"datasets: [{json.dumps(summary.files.record.data['name'])}]"
    yield "---"


def _body(summary: RunSummary) -> Iterator[str]:
    record, statement, figures = summary.files.record, summary.statement, summary.figures
    yield f"# {escaped(record.recipe)} on {escaped(record.data['name'])}"
    yield ""
    yield escaped(record.summary)
    yield ""
    yield "## Privacy"
    yield ""
    if summary.void:
        yield "> **Careful:** the statement says itself that it does not hold."
        yield ""
    yield (
        f"- guarantee: (ε, δ) = ({at_most(statement.epsilon)}, {compact(statement.delta)}), for "
        f"one {statement.unit}; {escaped(words.neighbours(statement))}"
    )
    yield f"- mechanism: {escaped(words.mechanism(statement.event))}"
    yield f"- sampling: {escaped(statement.sampling)}"
    yield f"- noise: {escaped(statement.noise)}"
    yield f"- accountant: {escaped(statement.accountant)}"
    for false, true in figures.attack:
        yield (
            f"- with {100 * false:g} % false alarms, no attack finds more than "
            f"{at_most(100 * true, 3)} % of the members"
        )
    yield f"- tuning: {escaped(words.tuning(statement).removeprefix('Tuning: '))}"
    yield ""
    yield "## Accuracy"
    yield ""
    right = summary.files.accuracy
    yield (
        "It was not measured." if right is None
        else f"{100 * right:.2f} % on {record.data['test']:,} held-out examples, as the run "
        "recorded it."
    )  # fmt: skip
    yield ""
    yield "## What is proved, and what is claimed"
    yield ""
    for one in summary.files.evidence.findings:
        yield f"- {one.standing}: {escaped(one.subject)}: {escaped(one.what)}"
    for title, texts in (("assumes", statement.assumptions),
                         ("does not promise", statement.not_promised)):  # fmt: skip
        yield ""
        yield f"## What the claim {title}"
        yield ""
        yield from (f"- {escaped(text)}" for text in texts or ("nothing is stated",))
