"""A record for the registry of DP deployments (registry.opendp.org), from a run's summary.

Its fields and tiers are those of opendp/deployments-registry-data as of 2026-07-15. What only the
curator knows (region, sector, intended use, actors, justification) is left to be filled in, and
says so; all else follows from the statement. The registry has no field for the sampling that was
assumed, numerical error or an audit: they are in the details.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tacit._numbers import at_most, compact
from tacit._validation import one_line
from tacit.errors import InvalidArgument
from tacit.statement import words

if TYPE_CHECKING:
    from tacit.reports.run_summary import RunSummary

OPEN: Final = "To be filled in by the curator."


def registry_record(summary: RunSummary, *, author: str, today: str | None = None) -> str:
    """The record in YAML, at tier 3 and as a draft; ``today`` stands for the day of publication.

    Guarantee: ε and δ are the statement's, which proved itself. A statement that is void or has
    no finite ε is refused.
    """
    if summary.void or not math.isfinite(summary.statement.epsilon):
        raise InvalidArgument("a statement that claims nothing cannot be registered")
    day = today or datetime.now(UTC).date().isoformat()
    return _yaml(record_of(summary, author=author, today=day))


def record_of(summary: RunSummary, *, author: str, today: str) -> dict[str, Any]:
    """The same in JSON's types."""
    record = summary.files.record
    name = f"{record.recipe} on {record.data['name']}"
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:80] or "model",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": one_line(name),
                "data_curators": [OPEN],
                "intended_use": OPEN,
                "data_product_type": "Machine learning model",
                "data_product_region": OPEN,
                "description": one_line(record.summary) or "A model trained privately.",
                "publication_date": today,
            },
            "dp_variant": {
                "variant_name": "Approximate DP",
                "data_domain": _domain(summary),
                "unprotected_quantities": _unprotected(summary),
            },
            "privacy_loss": _privacy_loss(summary),
            "deployment_model": _deployment_model(summary),
            "accounting": _accounting(summary),
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": _tuning(summary),
                "mechanisms": _mechanisms(summary),
                "justification": OPEN,
            },
            "administrative": {
                "notes": _audit(summary),
                "registry_authors": [one_line(author)],
            },
        },
    }


def _privacy_loss(summary: RunSummary) -> dict[str, Any]:
    statement = summary.statement
    return {
        "privacy_unit": f"one {statement.unit}",
        "privacy_unit_details": f"Two data sets are neighbours if {words.neighbours(statement)}.",
        "privacy_parameters": {
            "epsilon": float(at_most(statement.epsilon)),
            "delta": statement.delta,
        },
        "privacy_parameters_details": _parameters(summary),
    }


def _deployment_model(summary: RunSummary) -> dict[str, str]:
    statement = summary.statement
    return {
        "model_name": "Central",
        "model_name_details": (
            "The training data are read by the training process alone; "
            f"{statement.threat_model or 'who sees what is not stated'}."
        ),
        "actors": OPEN,
        "release_type": "One release",
        "release_type_details": " ".join(f"{one}." for one in statement.releases) or "Not stated.",
        "data_source_type": "Static",
        "data_source_type_details": f"{summary.files.record.data['train']:,} training examples.",
        "access_type": "Non-interactive",
        "access_type_details": "The model is published; nobody queries the data.",
    }


def _accounting(summary: RunSummary) -> dict[str, str]:
    statement = summary.statement
    return {
        "post_processing": (
            "Whatever is computed from the released model and its history costs nothing."
        ),
        "composition": (
            f"{words.mechanism(statement.event)}; the accountant {statement.accountant!r} of tacit "
            f"composes all of it, with a certified bracket of numerical error. {_charge(summary)}"
        ),
    }


def _domain(summary: RunSummary) -> str:
    data = summary.files.record.data
    return (
        f"Data sets like {data['name']}, with any number of "
        f"{summary.statement.unit}s under the neighbouring relation; {data['train']:,} examples "
        "were trained on."
    )


def _unprotected(summary: RunSummary) -> str:
    plan = summary.files.plan
    public = "the number of examples, the lot size and the number of steps" if plan else (
        "the number of examples and the settings of the run"
    )  # fmt: skip
    return (
        f"Public by convention: {public}. Accuracy is of held-out data, which the guarantee does "
        "not cover."
    )


def _parameters(summary: RunSummary) -> str:
    figures, statement = summary.figures, summary.statement
    pairs = [f"ε = {at_most(loss)} at δ = {compact(delta)}" for delta, loss in figures.curve]
    return (
        f"The same release satisfies: {'; '.join(pairs)}. {words.bracket(statement, figures)} "
        f"{words.gaussian(figures)}"
    )


def _charge(summary: RunSummary) -> str:
    statement = summary.statement
    if statement.charge is None:
        return "It is charged to no ledger."
    findings = summary.files.evidence.findings
    checked = any((one.subject, one.standing) == ("ledger", "checked") for one in findings)
    how = "where it was looked up" if checked else "as it claims"
    return f"It is charged to the budget {statement.charge.budget!r} of a ledger of tacit, {how}."


def _tuning(summary: RunSummary) -> str:
    done = [
        f"{one.what} ({'charged' if one.charged else 'the same for all data, so free'})"
        for one in summary.statement.preprocessing
    ]
    before = "; ".join(done) or "none is stated"
    return f"Preprocessing: {before}. {words.tuning(summary.statement)}"


def _mechanisms(summary: RunSummary) -> str:
    statement = summary.statement
    named = [f"{name} {one}" for name, one in sorted(statement.versions.items())]
    versions = ", ".join(named) or "other versions are not stated"
    return " ".join(
        (
            f"{words.mechanism(statement.event)}.",
            f"Library: tacit {statement.tacit_version} ({versions}).",
            f"Sampling, as carried out: {statement.sampling}.",
            f"Sampling, as accounted for: {words.assumed_sampling(statement.event)}.",
            f"Noise: {statement.noise}.",
            f"Randomness and floating point: {statement.randomness or 'nothing is stated'}.",
            "Timing: times depend on the data and are not released.",
        )
    )


def _audit(summary: RunSummary) -> str:
    found = (
        "It was not audited."
        if summary.files.audit is None
        else "It was audited; the figures are computed from private records, and are not published."
    )
    return (
        f"Made by tacit from a statement that proves its ε when it is read. {found} "
        f"Configuration: SHA-256 {summary.files.record.configuration}."
    )


def _yaml(value: Any, depth: int = 0) -> str:
    """JSON's types as YAML; texts are quoted as in JSON, which YAML reads the same."""
    space = "  " * depth
    lines = []
    for name, one in value.items():
        if isinstance(one, dict):
            lines.append(f"{space}{name}:\n{_yaml(one, depth + 1)}")
        elif isinstance(one, list):
            items = "".join(f"{space}  - {_scalar(item)}\n" for item in one)
            lines.append(f"{space}{name}:\n{items}")
        else:
            lines.append(f"{space}{name}: {_scalar(one)}\n")
    return "".join(lines)


def _scalar(value: object) -> str:
    # YAML 1.1 reads a number such as 1e-05 as a text: it wants a point.
    if isinstance(value, float):
        text = repr(value)
        return text if "e" not in text or "." in text else text.replace("e", ".0e")
    return json.dumps(one_line(value) if isinstance(value, str) else value, ensure_ascii=False)
