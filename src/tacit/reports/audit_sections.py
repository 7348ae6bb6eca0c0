"""The part of a run's report that an audit adds: verdict, attacks, and what to beware of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tacit._numbers import per_hundred
from tacit.recipes.auditing.audit_file import NO_PROOF
from tacit.reports.run_content import Items, Paragraph, Picture, Section, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tacit.recipes.auditing.audit_file import AttackFigures, AuditFile
    from tacit.reports.run_content import Block
    from tacit.reports.run_summary import RunSummary

SECRET: Final = (
    "The figures of this section were computed from private records. They are no part of what was "
    "released with differential privacy, and no guarantee covers them. Before this report is given "
    "to anyone else: remove audit.json from the folder, and write the report again (tacit report)."
)

_NAMES: Final = {"run": "configuration", "asked": "records attacked", "records": "records, at most"}


def sections(summary: RunSummary, drawn: bool) -> Iterator[Section]:
    """The audit's section, if the run was audited."""
    audit = summary.files.audit
    if audit is not None:
        yield Section("What attacks did reach: the audit", tuple(_blocks(summary, audit, drawn)))


def warnings(summary: RunSummary) -> Iterator[str]:
    """What must not be overlooked: a contradiction, and that the report is secret."""
    audit = summary.files.audit
    if audit is None:
        return
    if audit.verdict is not None and audit.verdict.contradicted:
        yield f"an audit contradicts the claim: {audit.verdict.describe()}."
    yield "this report holds an audit's figures, which no guarantee covers; see its section."


def _blocks(summary: RunSummary, audit: AuditFile, drawn: bool) -> Iterator[Block]:
    words = (
        "the run claims nothing that could be contradicted"
        if audit.verdict is None
        else audit.verdict.describe()
    )
    yield Paragraph(f"The verdict: {words}.")
    if drawn:
        yield Picture(
            "audit",
            "The share of members that each attack finds at each share of false alarms that can be "
            "observed, with a pointwise 95 % band; dotted: the most that the guarantee allows; "
            "dashed: blind guessing.",
        )
    yield Table(
        ("attack", "false alarms", "found", "95 % interval", "allowed"),
        tuple(row for one in audit.attacks for row in rates(one, summary)),
        numbers=(1, 2, 3, 4),
    )
    yield from _resolution(audit)
    yield Table(
        ("attack", "area under the curve", "95 % interval", "advantage", "members", "others"),
        tuple(_whole(one) for one in audit.attacks),
        numbers=(1, 2, 3, 4, 5),
    )
    yield Items((*audit.notes, *(() if NO_PROOF in audit.notes else (NO_PROOF,))))
    yield Paragraph(SECRET)
    settings = ((_NAMES.get(name, name), value) for name, value in audit.settings.items())
    yield Table(("", ""), tuple(one for one in settings if one[1] != "none"))


def _resolution(audit: AuditFile) -> Iterator[Block]:
    others = min((one.others for one in audit.attacks), default=0)
    rates = [rate.fpr for one in audit.attacks for rate in one.found]
    if others and min(rates, default=1.0) * others < 1.0:
        yield Paragraph(
            f"With {others:,} records that were not in the data, no rate of false alarms between 0 "
            f"and {_percent(1.0 / others)} can be observed: below it, what is found is what scores "
            "above all of them, and the interval shows how little that means."
        )


def rates(attack: AttackFigures, summary: RunSummary) -> Iterator[tuple[str, ...]]:
    """An attack's name, false alarms, share found with its interval, and what is allowed."""
    for rate in attack.found:
        yield (
            attack.name,
            f"{100 * rate.fpr:g} %",
            _percent(rate.tpr.value),
            f"{_percent(rate.tpr.lower)} to {_percent(rate.tpr.upper)}",
            _allowed(summary, rate.fpr),
        )


def _allowed(summary: RunSummary, rate: float) -> str:
    """By the run's own statement: what the audit's file says of it is not looked at."""
    known = (*summary.figures.attack, *summary.attack)
    limits = [true for false, true in known if false >= rate * (1.0 - 1e-9)]
    return f"{per_hundred(min(limits))} %" if limits else "–"


def _whole(attack: AttackFigures) -> tuple[str, ...]:
    return (
        attack.name,
        f"{attack.auc.value:.4f}",
        f"{attack.auc.lower:.4f} to {attack.auc.upper:.4f}",
        f"{attack.advantage.value:.4f}",
        f"{attack.members:,}",
        f"{attack.others:,}",
    )


def _percent(share: float) -> str:
    return f"{100.0 * share:.3g} %"
