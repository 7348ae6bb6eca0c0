"""A claim and the evidence against it: contradicted, or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tacit._validation import non_negative
from tacit.auditing.statistics.bound import LowerBound, failure_rate
from tacit.errors import InvalidArgument

Estimate = Callable[[float], LowerBound]
"""A lower bound as a function of its confidence."""


@dataclass(frozen=True)
class Verdict:
    """What an audit says of a claimed ε.

    Attributes:
        claimed: The ε that was claimed, at the δ of the bounds.
        shown: The strongest bound at the confidence that people read (95 %).
        decisive: The strongest bound at the confidence that it takes to contradict (99.99 %).

    Guarantee:
        A true claim is contradicted with probability at most 1 - ``decisive.confidence``, if the
        assumption of ``decisive`` holds. No contradiction is no proof: a stronger attack may find
        what this one did not.
    """

    claimed: float
    shown: LowerBound
    decisive: LowerBound

    @property
    def contradicted(self) -> bool:
        """Whether the evidence contradicts the claim."""
        return self.decisive.epsilon > self.claimed

    @property
    def exit_status(self) -> int:
        """1 if the claim is contradicted, else 0."""
        return int(self.contradicted)

    def describe(self) -> str:
        """The verdict in words."""
        if self.contradicted:
            found, claim = self.decisive, "the evidence contradicts the claim"
        else:
            found, claim = self.shown, "no evidence against the claim"
            if self.shown.epsilon > self.claimed:
                claim = f"not enough evidence (below {100 * self.decisive.confidence:g}%) against"
                claim += " the claim"
        return (
            f"{claim} epsilon = {self.claimed:g} at delta = {found.delta:g}; the strongest attack "
            f"shows epsilon >= {found.epsilon:.3g} at {100 * found.confidence:g}% confidence "
            f"({found.method}; it assumes {found.assumption})"
        )


def judge(
    claimed: float,
    estimates: Estimate | Sequence[Estimate],
    *,
    shown: float = 0.95,
    decisive: float = 0.9999,
) -> Verdict:
    """Holds a claimed ε against one lower bound, or against the strongest of several.

    Each of k bounds is taken at a k-th of the failure rate (Bonferroni), so that the strongest of
    them has the confidence that is said.

    Args:
        claimed: The claimed ε.
        estimates: Functions from a confidence to a bound, all at the δ of the claim.
        shown: The confidence of the bound to be read.
        decisive: The confidence at which a claim is contradicted.

    >>> from tacit.auditing import Rates, clopper_pearson
    >>> rates = Rates(tp=500, n_in=1000, fp=10, n_out=1000)
    >>> verdict = judge(2.0, lambda confidence: clopper_pearson(rates, 1e-5, confidence))
    >>> verdict.contradicted, round(verdict.shown.epsilon, 2), round(verdict.decisive.epsilon, 2)
    (True, 3.24, 2.73)
    """
    several = [estimates] if callable(estimates) else list(estimates)
    if not several:
        raise InvalidArgument("estimates must hold at least one bound to judge by, got none")
    return Verdict(
        non_negative("claimed", claimed),
        _strongest(several, shown),
        _strongest(several, decisive),
    )


def _strongest(estimates: Sequence[Estimate], confidence: float) -> LowerBound:
    each = 1.0 - failure_rate(confidence) / len(estimates)
    bounds = [estimate(each) for estimate in estimates]
    if len({bound.delta for bound in bounds}) > 1:
        raise InvalidArgument(
            "estimates must all be at the delta of the claim, got "
            f"{sorted(bound.delta for bound in bounds)}"
        )
    return replace(max(bounds, key=lambda bound: bound.epsilon), confidence=confidence)
