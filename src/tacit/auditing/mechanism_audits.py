"""Direct audits of ``tacit.mechanisms``: many draws on two neighbouring inputs, by name.

>>> from tacit.randomness import UnsafeSeededStream
>>> stream = UnsafeSeededStream(0, "audit")
>>> audit_mechanism("histogram", epsilon=2, draws=50_000, stream=stream).contradicted
False
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit._validation import open_probability, positive, whole
from tacit.accounting import profile
from tacit.auditing.mechanism_cases import CASES, Case, MechanismCall
from tacit.auditing.statistics.bound import judge
from tacit.auditing.statistics.gaussian_scores import gaussian_scores
from tacit.auditing.statistics.scores import Scores
from tacit.auditing.statistics.thresholds import curve_p_value, every_threshold
from tacit.errors import InvalidArgument
from tacit.randomness import fresh_stream

if TYPE_CHECKING:
    from tacit.auditing.mechanism_cases import Drawn
    from tacit.auditing.statistics.bound import Estimate, Verdict
    from tacit.randomness import Stream

NAMES = tuple(CASES)
_FAILURE = 1e-4


@dataclass(frozen=True)
class MechanismAudit:
    """What the draws of a mechanism say of its own claim.

    Attributes:
        name: Of the mechanism.
        pair: The two neighbouring inputs, in words.
        score: The score, in words.
        draws: How many on each input.
        event: What the mechanism said that it released.
        verdict: The ε asked for, or the event's at δ if that is less, against the strongest bound,
            at 99.995 %.
        p_value: How likely scores at least as extreme are, at most, under the event's whole
            trade-off curve (``curve_p_value``).

    Guarantee:
        A mechanism that keeps its claim is contradicted with probability at most 1e-4, half of it
        spent on either test. No contradiction is no proof: it is one pair of inputs and one score.
    """

    name: str
    pair: str
    score: str
    draws: int
    event: str
    verdict: Verdict
    p_value: float

    @property
    def contradicted(self) -> bool:
        """Whether the evidence contradicts the mechanism's claim."""
        return self.verdict.contradicted or self.p_value <= 0.5 * _FAILURE

    @property
    def exit_status(self) -> int:
        """1 if the claim is contradicted, else 0."""
        return int(self.contradicted)

    def describe(self) -> str:
        """The audit in words."""
        return (
            f"{self.name}: {self.draws:,} draws each on {self.pair}.\nScore: {self.score}.\n"
            f"It claims {self.event}: {self.conclusion()}."
        )

    def conclusion(self) -> str:
        """What follows for the claim, by both tests."""
        if self.p_value > 0.5 * _FAILURE:
            return self.verdict.describe()
        return (
            "the evidence contradicts the trade-off curve of its event: such scores have a "
            f"probability of {self.p_value:.2g} at most; and of its ε: {self.verdict.describe()}"
        )

    def as_dict(self) -> dict[str, Any]:
        """The audit in JSON's types."""
        return {
            "mechanism": self.name,
            "pair": self.pair,
            "score": self.score,
            "draws": self.draws,
            "event": self.event,
            "claimed": self.verdict.claimed,
            "delta": self.verdict.shown.delta,
            "shown": self.verdict.shown.epsilon,
            "shown_confidence": self.verdict.shown.confidence,
            "method": self.verdict.shown.method,
            "assumption": self.verdict.shown.assumption,
            "decisive": self.verdict.decisive.epsilon,
            "decisive_confidence": self.verdict.decisive.confidence,
            "curve_p_value": self.p_value,
            "contradicted": self.contradicted,
            "words": self.describe(),
        }


def audit_mechanism(
    name: str,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    draws: int | None = None,
    stream: Stream | None = None,
) -> MechanismAudit:
    """Draws from one of ``tacit.mechanisms`` on two neighbouring inputs, and judges its claim.

    The mechanism is the one that users call; the claim is the event that it released,
    and the ε that it was asked for.

    Args:
        name: One of ``NAMES``.
        epsilon: The ε asked of the mechanism.
        delta: The δ asked of it where it needs one, and that of the bounds.
        draws: On each input; left out, a million where one call noises many numbers, and as many
            as take about ten seconds where each draw is a call.
        stream: The mechanism's random bytes; fresh and secure unless a test gives another.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> audit = audit_mechanism("laplace", draws=50_000, stream=UnsafeSeededStream(0, "audit"))
    >>> audit.contradicted, round(audit.verdict.shown.epsilon, 2)
    (False, 0.96)
    """
    if name not in CASES:
        raise InvalidArgument(f"name must be one of {', '.join(NAMES)}, got {name!r}")
    case = CASES[name]
    count = case.draws if draws is None else whole("draws", draws)
    asked = MechanismCall(
        positive("epsilon", epsilon),
        open_probability("delta", delta),
        fresh_stream("audit") if stream is None else stream,
    )
    inside, outside = (case.draw(side, count, asked) for side in (True, False))
    return _judged(case, count, asked, inside, outside)


def _judged(
    case: Case, draws: int, asked: MechanismCall, inside: Drawn, outside: Drawn
) -> MechanismAudit:
    if (inside.event, inside.adjacency) != (outside.event, outside.adjacency):
        raise InvalidArgument(
            f"{case.name} claims {inside.event!r} with the record and {outside.event!r} without "
            "it: a claim must not depend on the data"
        )
    scores = Scores(inside.scores, outside.scores)
    curve = profile(inside.event, inside.adjacency)
    estimates: list[Estimate] = [lambda level: every_threshold(scores, asked.delta, level)]
    if case.gaussian:
        estimates.append(lambda level: gaussian_scores(scores, asked.delta, level))
    claimed = min(asked.epsilon, curve.epsilon(asked.delta))
    verdict = judge(claimed, estimates, decisive=1.0 - 0.5 * _FAILURE)
    found = curve_p_value(scores, curve)
    event = repr(inside.event)
    return MechanismAudit(case.name, case.pair, case.score, draws, event, verdict, found)
