"""The parts of a report for whoever wants to check it: every number, every source, every gap."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from typing import TYPE_CHECKING, Any

from tacit._numbers import at_most, compact
from tacit.accounting.serialization import from_dict
from tacit.reports.run_content import Code, Items, Paragraph, Section, Table
from tacit.statement import words
from tacit.training.sampling import Poisson

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tacit.reports.run_content import Block
    from tacit.reports.run_summary import RunSummary
    from tacit.statement import DataDependent
    from tacit.training.plan import Plan

Rows = tuple[tuple[str, ...], ...]


def mechanism(summary: RunSummary) -> Section:
    """What was done, with every number."""
    statement = summary.statement
    plan = summary.files.plan
    facts = [
        ("mechanism", f"{words.mechanism(statement.event)}."),
        ("sampling, as claimed", f"{statement.sampling}."),
        ("sampling assumed", f"{words.assumed_sampling(statement.event)}."),
        ("noise, as claimed", f"{statement.noise}."),
        ("randomness and floating point, as claimed", statement.randomness or "nothing is stated."),
        ("neighbours", f"two data sets are neighbours if {words.neighbours(statement)}."),
        ("unit of privacy", f"one {statement.unit}."),
    ]
    if statement.steps_planned is not None:
        early = f"; {statement.stopped_early}" if statement.stopped_early else ""
        facts.append(
            ("steps", f"{statement.steps_taken:,} of {statement.steps_planned:,} taken{early}.")
        )
    blocks: list[Block] = [Table(("", ""), tuple(facts))]
    if plan is not None:
        blocks += [Paragraph(f"{plan.describe()}"), Table(("plan", ""), _plan(plan))]
    return Section("The plan and the mechanism", tuple(blocks))


def _plan(plan: Plan) -> Rows:
    mixed, turns = plan.correlation is not None, plan.groups > 1
    noise = "noise behind each step's, before it is mixed" if mixed else "noise on each coordinate"
    facts: dict[str, object] = {
        "examples" if plan.unit == "example" else "users": plan.examples,
        "lot size, on average": plan.lot_size,
        "sampling rate, of all groups together" if turns else "sampling rate": plan.sample_rate,
        "groups that take turns": plan.groups if turns else None,
        "sampling rate within a group": plan.group_rate if turns else None,
        "steps": plan.steps,
        "epochs": plan.epochs,
        "noise multiplier σ": plan.noise_multiplier,
        "clip": plan.clip,
        f"{noise} of the sum (σ·clip)": plan.noise_scale,
        "clipping": plan.clipping,
        "sampling": plan.sampling,
        "noise": plan.noise,
        "correlation of the noise": plan.correlation,
        "views of an example": plan.views,
        "adjacency": plan.adjacency,
        "unit": plan.unit,
        "examples of one user, at most": plan.examples_per_user,
    }
    return tuple((name, _shown(value)) for name, value in facts.items() if value is not None)


def _shown(value: object) -> str:
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.12g}" if isinstance(value, float) else repr(value)


def covered(summary: RunSummary) -> Section:
    """What the claim covers and what it does not."""
    statement = summary.statement
    return Section(
        "What is covered, and what is not",
        (
            Table(("", ""), tuple(_coverage(summary))),
            Paragraph("The claim assumes:"),
            Items(tuple(f"{one}." for one in statement.assumptions) or ("nothing is stated.",)),
            Paragraph("It does not promise:"),
            Items(tuple(f"{one}." for one in statement.not_promised) or ("nothing is stated.",)),
        ),
    )


def _ledger_standing(summary: RunSummary) -> str:
    """Whether the ledger was looked at."""
    found = (one for one in summary.files.evidence.findings if one.subject == "ledger")
    return next((one.standing for one in found), "claimed")


def _coverage(summary: RunSummary) -> Iterator[tuple[str, str]]:
    """Part by part: is it in ε or not?"""
    statement = summary.statement
    yield "who sees what", f"{statement.threat_model or 'nothing is stated'}."
    for one in statement.releases or ("nothing is stated",):
        yield "released", f"{one}."
    yield "training", "covered: all that the mechanism above releases is in ε."
    for done in statement.preprocessing:
        if done.event is None:
            yield "preprocessing", f"costs nothing, for it is the same for all data: {done.what}."
        else:
            yield "preprocessing", f"covered: {done.what} ({words.mechanism(done.event)})."
    if not statement.preprocessing:
        yield "preprocessing", "none is stated, so none that depends on the data is covered."
    yield "tuning", words.tuning(statement).removeprefix("Tuning: ")
    yield "held-out data", "not covered: accuracy on them is published as it was measured."
    if statement.ledger is not None:
        yield "ledger", f"{_ledger_standing(summary)}: {statement.ledger}."


def published(summary: RunSummary) -> Section:
    """Our figure beside those of others."""
    record = summary.files.record
    if not record.anchors:
        return Section(
            "Beside what was published",
            (Paragraph("Nobody has published a figure for this recipe to compare with."),),
        )
    ours = (at_most(summary.statement.epsilon, 4), _percent(summary.files.accuracy), "this run")
    others = sorted(record.anchors, key=lambda one: float(one["epsilon"]))
    return Section(
        "Beside what was published",
        (
            Table(("ε", "accuracy", "source"), (ours, *map(_anchor, others)), numbers=(0, 1)),
            Paragraph(
                "Published figures are as their authors state them, at the δ that the source "
                "names. What they did that this run did not:"
            ),
            Items(tuple(dict.fromkeys(map(_shortcuts, others)))),
        ),
    )


def _percent(right: float | None) -> str:
    return "–" if right is None else f"{100.0 * right:.2f} %"


def _anchor(anchor: Mapping[str, Any]) -> tuple[str, ...]:
    return compact(float(anchor["epsilon"])), f"{anchor['accuracy']:.4g} %", anchor["source"]


def _shortcuts(anchor: Mapping[str, Any]) -> str:
    return f"{anchor['source']}: {anchor['shortcuts'] or 'nothing that is known'}."


def checking(summary: RunSummary) -> Section:
    """The commands with which anyone can check the claim."""
    blocks: list[Block] = [
        Paragraph(
            "In the folder of this report. The command computes every figure again from "
            "statement.json, derives the event from the plan, compares released files with their "
            "checksums, and refuses a statement that claims less than is proved:"
        ),
        Code(("tacit report .",)),
        Paragraph("The whole statement in words:"),
        Code(
            (
                'python -c "import tacit; print(tacit.Statement.from_json('
                "open('statement.json', encoding='utf-8').read()).describe())\"",
            )
        ),
    ]
    own = _own_plan(summary)
    if own is not None:
        blocks += [
            Paragraph("The ε of the plan by every accountant, without any file of the run:"),
            Code((own,)),
        ]
    return Section("How to check it", tuple(blocks))


def _own_plan(summary: RunSummary) -> str | None:
    """``tacit plan`` for the same event, where it has no more to it than such a plan."""
    plan, statement = summary.files.plan, summary.statement
    if (
        plan is None
        or not isinstance(plan.sampling, Poisson)
        or plan.event != from_dict(statement.event)
    ):
        return None
    return (
        f"tacit plan --rate {plan.group_rate!r} --steps {-(-plan.steps // plan.groups)} --sigma "
        f"{plan.noise_multiplier!r} --delta {statement.delta!r} --adjacency {plan.adjacency}"
    )


def origin(summary: RunSummary) -> Section:
    """Where the run came from: settings, data, software."""
    record, statement = summary.files.record, summary.statement
    versions = {"tacit": statement.tacit_version}
    if statement.torch_version is not None:
        versions["torch"] = statement.torch_version
    versions |= dict(record.versions) | statement.versions
    facts: list[tuple[str, str]] = [
        ("recipe", f"{record.recipe}: {record.summary}"),
        ("command", shlex.join(record.command) or "none: it was called from Python"),
        ("asked for", f"ε = {compact(record.epsilon)} at δ = {compact(record.delta)}"),
        ("device", record.device),
        ("data", _data(record.data)),
        ("configuration (SHA-256)", record.configuration),
        *((f"setting: {name}", _shown(value)) for name, value in record.settings.items()),
        *((f"chosen: {name}", _shown(value)) for name, value in (record.winner or {}).items()),
        *((f"data file: {name}", str(value)) for name, value in record.data["files"].items()),
        *((f"version: {name}", str(value)) for name, value in versions.items()),
    ]
    if record.search is not None:
        facts.append(("search", json.dumps(record.search, ensure_ascii=False)))
    blocks: tuple[Block, ...] = (Table(("", ""), tuple(facts)),)
    if record.notes:
        blocks = (Items(record.notes), *blocks)
    words = Paragraph("Whoever wrote run.json says this; nothing of it is proved.")
    return Section("Where it comes from", (words, *blocks))


def _data(data: Mapping[str, object]) -> str:
    return f"{data['name']}: {data['train']:,} examples to train on, {data['test']:,} held out"


# ---- what only a transfer has: its labels, and the data-dependent ε that was released with them


def transferred(summary: RunSummary) -> Iterator[Section]:
    """The labels that were released, and the data-dependent figure if one was released."""
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
        yield Section("The data-dependent figure: released beside the claim, and none itself", (
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
