"""What an audit found, a lower bound on ε, and what follows for a claim: the verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tacit._validation import non_negative, open_probability, probability
from tacit.errors import InvalidArgument

NOTHING = "nothing: it holds for every mechanism and every score, if the trials are independent"
GAUSSIAN_CURVE = (
    "the mechanism's trade-off curve is that of a Gaussian; that it is not mu-GDP for a smaller mu "
    "takes nothing for granted"
)


@dataclass(frozen=True)
class LowerBound:
    """The mechanism's ε at ``delta`` is at least ``epsilon``, with probability ``confidence``.

    Attributes:
        epsilon: The bound; 0 says nothing.
        delta: The δ that it is meant for.
        confidence: In a fraction of at most 1 - confidence of all audits the bound is too high.
        method: What was computed, in a few words.
        assumption: What must be true for the bound to hold, in words.
        numbers: What it was computed from, and what was found on the way, by name.

    Guarantee:
        If the assumption holds, P(ε of the mechanism < ``epsilon``) ≤ 1 - ``confidence``. It is
        a statement about this one bound: the largest of several such bounds is no bound at the
        same confidence (``judge`` corrects for that).
    """

    epsilon: float
    delta: float
    confidence: float
    method: str
    assumption: str
    numbers: tuple[tuple[str, float], ...] = ()

    def number(self, name: str) -> float:
        """The number of that name.

        >>> LowerBound(1.0, 1e-5, 0.95, "by hand", "nothing", (("mu", 0.3),)).number("mu")
        0.3
        """
        return dict(self.numbers)[name]

    def as_dict(self) -> dict[str, Any]:
        """The bound in JSON's types."""
        return {**asdict(self), "numbers": dict(self.numbers)}

    def describe(self) -> str:
        """One line for people.

        >>> print(LowerBound(0.613, 1e-5, 0.95, "every threshold", "nothing").describe())
        epsilon >= 0.613 at delta = 1e-05, 95% confidence (every threshold; it assumes nothing)
        """
        return (
            f"epsilon >= {self.epsilon:.4g} at delta = {self.delta:g}, {100 * self.confidence:g}% "
            f"confidence ({self.method}; it assumes {self.assumption})"
        )


def failure_rate(confidence: float) -> float:
    """How often a bound of this confidence may be wrong.

    >>> round(failure_rate(0.95), 12)
    0.05
    """
    return 1.0 - open_probability("confidence", confidence)


def delta_of(delta: float) -> float:
    """A δ for which a bound is asked: 0 is one.

    >>> delta_of(0)
    0.0
    """
    return probability("delta", delta)


# ---- a claim and the evidence against it: contradicted, or not

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
    """Compares a claimed ε with one lower bound, or with the strongest of several.

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


# ---- what bounds are computed with


def last_refuted(refutes: Callable[[float], bool], most: float, *, within: float = 1e-9) -> float:
    """About the largest value from 0 to ``most`` that is refuted, on the refuted side; else 0.

    If a value is refuted, so must every smaller one be. Values are asked for in doubles from 1
    and then by halves, to ``within`` (relative above 1).

    >>> round(last_refuted(lambda value: value < 2.5, 700.0), 6)
    2.5
    """
    if not refutes(0.0):
        return 0.0
    low, high = 0.0, min(1.0, most)
    while refutes(high):
        if high == most:
            return most
        low, high = high, min(2.0 * high, most)
    while high - low > within * max(1.0, high):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if refutes(middle) else (low, middle)
    return low


def pair_for(epsilon: float, delta: float, changes: int) -> tuple[float, float]:
    """(kε, δ(1 + e^ε + … + e^((k-1)ε))): what (ε, δ) for one change says of k (Vadhan 2017, 2.2).

    >>> pair_for(1.0, 1e-5, 1)
    (1.0, 1e-05)
    >>> epsilon, delta = pair_for(1.0, 1e-5, 2)
    >>> epsilon, round(delta, 8)
    (2.0, 3.718e-05)
    """
    if delta == 0.0:
        return changes * epsilon, 0.0
    exponents = [place * epsilon for place in range(changes)]
    if exponents[-1] + math.log(delta) >= 0.0:  # before e^… overflows
        return changes * epsilon, 1.0
    return changes * epsilon, min(1.0, delta * math.fsum(map(math.exp, exponents)))
