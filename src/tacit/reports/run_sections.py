"""A run's summary as a report: everything it says, in plain words, in the order of a reader."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tacit._numbers import at_most, compact, factors, per_hundred
from tacit._validation import printable
from tacit.reports import audit_sections
from tacit.reports.run_content import Card, Items, Paragraph, Picture, RunReport, Section, Table
from tacit.reports.run_details import (
    checking,
    covered,
    mechanism,
    origin,
    published,
    transferred,
)
from tacit.statement import words
from tacit.statement.evidence import MEANINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tacit.reports.run_content import Block
    from tacit.reports.run_summary import RunSummary

MOST_ROWS: Final = 12
NO_DRAWING: Final = (
    "No drawings: matplotlib was not installed where this report was made (pip install "
    "'tacit[plots]'). The tables say the same."
)


def report(summary: RunSummary, *, drawn: bool = True) -> RunReport:
    """The report; without drawings it says so."""
    record = summary.files.record
    sections = (
        Section("What this means for one person", tuple(_meaning(summary))),
        Section("What is proved, and what is only claimed", tuple(_evidence(summary))),
        Section("Accuracy against ε over the run", tuple(_accuracy(summary, drawn))),
        Section("The privacy curve", tuple(_curve(summary, drawn))),
        Section("What an attacker can reach", tuple(_attack(summary, drawn))),
        *audit_sections.sections(summary, drawn),
        *transferred(summary),
        mechanism(summary),
        covered(summary),
        published(summary),
        checking(summary),
        origin(summary),
    )
    claimed = f"at ε = {epsilon(summary)}" if holds(summary) else "without a guarantee"
    return RunReport(
        title=f"{printable(record.recipe)}: {_title(summary.files.accuracy)}{claimed}",
        lead=_lead(summary),
        warnings=tuple(_warnings(summary)),
        cards=_cards(summary),
        sections=sections,
    )


def holds(summary: RunSummary) -> bool:
    """Whether there is a guarantee at all."""
    return math.isfinite(summary.statement.epsilon) and not summary.void


def epsilon(summary: RunSummary, digits: int = 4) -> str:
    """The claimed ε, rounded up."""
    return at_most(summary.statement.epsilon, digits)


def _share(right: float) -> str:
    return f"{100.0 * right:.2f} %"


def _title(right: float | None) -> str:
    return "" if right is None else f"{_share(right)} "


def _lead(summary: RunSummary) -> str:
    record, statement = summary.files.record, summary.statement
    accuracy = summary.files.accuracy
    right = "How well this model does was not measured: there were no held-out examples."
    if accuracy is not None:
        right = (
            f"This model gets {_share(accuracy)} of {record.data['test']:,} held-out examples "
            "right."
        )
    if not holds(summary):
        return f"{right} Its training has no guarantee of privacy."
    return (
        f"{right} Its training is (ε, δ)-differentially private with ε = {epsilon(summary)} and "
        f"δ = {compact(statement.delta)} for every single {statement.unit} of the training data."
    )


def _evidence(summary: RunSummary) -> Iterator[Block]:
    """Every finding, the proved ones first."""
    yield Paragraph(
        "What is proved or checked need not be taken on trust. What is claimed is the word of "
        "whoever wrote the files. The event is all that the training released about the data, as "
        "the accountant counts it: what was sampled, and under how much noise."
    )
    for standing, meaning in MEANINGS.items():
        found = [one for one in summary.files.evidence.findings if one.standing == standing]
        if found:
            yield Paragraph(f"{standing.capitalize()}: {meaning}.")
            yield Table(("", "", ""), tuple((one.subject, one.what, one.how) for one in found))


def _warnings(summary: RunSummary) -> Iterator[str]:
    """What makes the figures less than they seem."""
    delta, examples = summary.statement.delta, summary.files.record.data["train"]
    yield from summary.files.evidence.warnings
    yield from audit_sections.warnings(summary)
    if summary.void:
        yield (
            "a fixed seed was used for sampling and noise. This voids the guarantee: no figure of "
            "privacy in this report holds."
        )
    if math.isinf(summary.statement.epsilon):
        yield words.claim(summary.statement)
    if summary.overspent:
        yield f"the run was to spend ε = {compact(summary.files.record.epsilon)} and spent more."
    if delta * examples >= 1.0:
        yield (
            f"δ = {compact(delta)} is not below 1/{examples:,}: publishing one example outright "
            "would meet it."
        )


def _cards(summary: RunSummary) -> tuple[Card, ...]:
    if summary.void:
        return (*_accuracy_card(summary), Card("ε", "none", "a fixed seed voids the guarantee"))
    false, true = summary.figures.attack[0]
    return (
        *_accuracy_card(summary),
        Card("ε, at most", epsilon(summary), f"proved, for one {summary.statement.unit}"),
        Card("δ", compact(summary.statement.delta), "added to every bound"),
        Card(
            "found by attackers",
            f"{per_hundred(true)} of 100",
            f"at most, with {100 * false:g} false alarm in 100",
        ),
    )


def _accuracy_card(summary: RunSummary) -> Iterator[Card]:
    accuracy, error = summary.files.accuracy, summary.error
    if accuracy is not None and error is not None:
        yield Card(
            "test accuracy",
            _share(accuracy),
            f"claimed; standard error {_points(error)} points",
        )


def _points(share: float) -> str:
    return f"{100.0 * share:.2f}"


def _meaning(summary: RunSummary) -> Iterator[Block]:
    statement = summary.statement
    if math.isinf(statement.epsilon):
        yield Paragraph(words.utility(statement))
        return
    most, _ = factors(statement.epsilon)
    if holds(summary):
        yield Paragraph(_plainly(summary))
    yield Paragraph(
        f"Take one {statement.unit} of the training data, and anything that anybody may conclude "
        "or do once they have this model. Compare with the same training on data in which "
        f"{words.neighbours(statement)}: the probability of that outcome is at most {most} (e^ε) "
        f"times as large, plus δ = {compact(statement.delta)}, and the same holds in the other "
        "direction. The closer the factor is to 1, the less it matters to anyone whether they are "
        "in the data."
    )
    yield Paragraph(words.utility(statement))
    if statement.unit == "example":
        yield Paragraph(
            "The guarantee is for one example. A person with several examples in the data is "
            "protected less: k examples together have at most k times this ε, at a larger δ."
        )


def _plainly(summary: RunSummary) -> str:
    """For a reader who has never heard of ε."""
    unit, (false, true) = summary.statement.unit, summary.figures.attack[0]
    among = round(1.0 / false)
    return (
        f"In plain words: what the model learned from any one {unit} is hidden, up to a limit that "
        f"ε sets. Suppose that someone has the model, knows all other data, and wrongly names 1 "
        f"of {among:,} that were not in the data. Then they find at most {_found(true, among)} of "
        f"{among:,} that were; blind guessing finds 1. What the data say about everybody is "
        "not hidden: if smokers fall ill more often, the model may say so of any smoker, in the "
        "data or not."
    )


def _found(true: float, among: int) -> str:
    return f"{min(float(at_most(true * among, 3)), float(among)):.3g}"


def _accuracy(summary: RunSummary, drawn: bool) -> Iterator[Block]:
    yield from _metrics(summary)
    if summary.files.accuracy is None:
        reason = (
            "it judged them otherwise"
            if summary.files.record.data["test"]
            else ("the run had no held-out examples")
        )
        yield Paragraph(f"Accuracy was not measured: {reason}.")
        return
    if not summary.moments and summary.files.answers is not None:
        yield Paragraph(
            "The student spent nothing while it learned: all was spent for the labels, before. "
            f"{_chance(summary)}"
        )
        return
    if not summary.moments:
        yield Paragraph("The run has no epochs: its model was released in one piece.")
        return
    if drawn:
        yield Picture("accuracy", "Accuracy on held-out data against the ε spent by then.")
    else:
        yield Paragraph(NO_DRAWING)
    step = max(1, math.ceil(len(summary.moments) / MOST_ROWS))
    shown = summary.moments[::-1][::step][::-1]
    yield Table(
        ("epoch", "steps", "ε spent by then, at most", "held-out accuracy"),
        tuple(
            (
                f"{one.epoch:,}",
                f"{one.steps:,}",
                "–" if one.epsilon is None else at_most(one.epsilon, 4),
                _share(one.accuracy),
            )
            for one in shown
        ),
        numbers=(0, 1, 2, 3),
    )
    yield Paragraph(_on_accuracy(summary))


def _metrics(summary: RunSummary) -> Iterator[Block]:
    """What ``metrics=`` measured after the last epoch."""
    last = summary.files.history[-1].metrics if summary.files.history else {}
    if last:
        shown = [
            (name, "not finite" if one is None else f"{one:.4g}") for name, one in last.items()
        ]
        yield Table(("held-out metric", "after the last epoch"), tuple(shown), numbers=(1,))


def _chance(summary: RunSummary) -> str:
    return (
        "The accuracy is what the run recorded: without the data nobody can compute it again. "
        f"With {summary.files.record.data['test']:,} held-out examples chance alone moves it by "
        f"about {_points(summary.error or 0.0)} points (one standard error)."
    )


def _on_accuracy(summary: RunSummary) -> str:
    text = _chance(summary)
    if summary.files.record.search is not None:
        return f"{text} The search is charged as a whole: no moment of it has an ε of its own."
    if summary.moments[-1].epsilon is None:
        return f"{text} What was spent at each of these moments is not known."
    charged = any(one.charged for one in summary.statement.preprocessing)
    before = ", with what preprocessing had cost before" if charged else ""
    return f"{text} Every ε here was computed again from the plan{before}."


def _curve(summary: RunSummary, drawn: bool) -> Iterator[Block]:
    figures, statement = summary.figures, summary.statement
    if drawn and summary.curve:
        yield Picture("curve", "δ against ε: every pair on the line or above it is guaranteed.")
    yield Paragraph(
        "One release has many guarantees: a smaller δ goes with a larger ε. All of these hold."
    )
    yield Table(
        ("δ", "ε, at most"),
        tuple((compact(delta), at_most(loss)) for delta, loss in figures.curve),
        numbers=(0, 1),
    )
    yield Paragraph(
        f"{words.bracket(statement, figures)} The claim of ε = {epsilon(summary, 6)} is by the "
        f"accountant {statement.accountant!r}. {words.gaussian(figures)}"
    )


def _attack(summary: RunSummary, drawn: bool) -> Iterator[Block]:
    figures, unit = summary.figures, summary.statement.unit
    if drawn and summary.attack:
        yield Picture(
            "attack", "The largest share found of those who were in the data, at each share of "
            "false alarms; dashed: blind guessing.",
        )  # fmt: skip
    yield Paragraph(
        f"Suppose that someone knows all other data, the code and every step of the run, and wants "
        f"to tell whether a given {unit} was in the training data. Whatever they do:"
    )
    yield Items((*_odds(summary), _advantage(figures.advantage)))
    if figures.attack_from == "pair":
        yield Paragraph(
            "These limits follow from the one pair (ε, δ) and are larger than they need be: for "
            "this release the whole curve takes too long to compute."
        )


def _odds(summary: RunSummary) -> Iterator[str]:
    for false, true in summary.figures.attack:
        among = round(1.0 / false)
        yield (
            f"an attacker who guesses with 1 false alarm in {among:,} finds at most "
            f"{_found(true, among)} of {among:,} that were in the data (guessing blindly: 1);"
        )


def _advantage(advantage: float) -> str:
    right = min(float(at_most(50.0 + 50.0 * advantage, 3)), 100.0)
    return (
        f"where being in the data and not being in it are equally likely, they are right at most "
        f"{right:.3g} times in 100 (guessing blindly: 50)."
    )
