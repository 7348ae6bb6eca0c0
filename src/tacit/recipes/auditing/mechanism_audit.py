"""``audit_one_mechanism``: many draws of a mechanism of ``tacit.mechanisms`` on two neighbours."""

from __future__ import annotations

from tacit.auditing.mechanism_audits import audit_mechanism
from tacit.recipes.auditing.audit_file import NO_PROOF, Audited


def audit_one_mechanism(
    name: str, *, epsilon: float = 1.0, delta: float = 1e-5, draws: int | None = None
) -> Audited:
    """The direct audit of the mechanism of this name; the inputs are the audit's own.

    >>> audit_one_mechanism("laplace", draws=20_000).contradicted
    False
    """
    found = audit_mechanism(name, epsilon=epsilon, delta=delta, draws=draws)
    plain = found.as_dict()
    shown = ("pair", "score", "draws", "event")
    return Audited(
        kind="mechanism",
        subject=name,
        words=found.conclusion(),
        contradicted=found.contradicted,
        verdict=found.verdict,
        curve_p_value=found.p_value,
        details=({one: plain[one] for one in shown},),
        settings={"epsilon": epsilon, "delta": delta, "draws": found.draws},
        notes=(NO_PROOF, "It is one pair of inputs and one score."),
        private=False,
    )
