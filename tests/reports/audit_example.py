"""The plain form of an audit of the run that ``conftest`` makes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.accounting import profile
from tacit.accounting.serialization import from_dict
from tacit.auditing import Scores
from tacit.recipes.auditing.audit_file import NO_PROOF, Audited, Claim
from tacit.recipes.auditing.evidence import by_thresholds, measured, most_allowed


def example(record: Any, statement: Any, distance: float = 0.3) -> dict[str, Any]:
    """Two attacks on 300 members and as many others."""
    draw = np.random.default_rng(1)
    scores = {
        name: Scores(distance + draw.normal(size=300), draw.normal(size=300))
        for name in ("lira", "loss")
    }
    curve = profile(from_dict(statement.event), statement.adjacency)
    verdict = by_thresholds(statement.epsilon, statement.delta, scores)
    return Audited(
        kind="run",
        subject="runs/demo",
        words=verdict.describe(),
        contradicted=verdict.contradicted,
        verdict=verdict,
        claim=Claim(
            epsilon=statement.epsilon, delta=statement.delta, adjacency=statement.adjacency,
            event=statement.event,
        ),
        attacks=tuple(measured(name, one, most_allowed(curve)) for name, one in scores.items()),
        settings={"seed": 1, "shadows": 16, "records": None, "attacks": list(scores)},
        run={"configuration": record.configuration, "model": "00"},
        notes=("<b>a note</b>", NO_PROOF),
    ).as_dict(("tacit", "audit", "runs/demo"))  # fmt: skip
