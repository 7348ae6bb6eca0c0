"""What a search gives back, and the claim that goes with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from tacit.accounting.events import PoissonRuns
from tacit.accounting.serialization import to_plain
from tacit.selection.scores import PrivateScore, PublicScore
from tacit.statement import Statement, rounded_up

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency, PrivateSelection, Runs
    from tacit.selection.scores import Score
    from tacit.selection.terms import Terms


@final
@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The winner of a private search.

    Attributes:
        candidate: The candidate that won; None if there was no run, as Poisson runs allow.
        model: What its run returned.
        score: Its score; minus infinity if no run had one.
        terms: The event of the search, and what each run was allowed.
        unit: Whom the guarantee protects.
        entry: The number of the ledger's entry that charged the search; None without a budget.

    Guarantee:
        ``candidate``, ``model`` and ``score`` together are no more than ``event`` says. How many
        runs there were, how long the search took and what the losers scored is not covered, and
        not kept.
    """

    candidate: Any
    model: Any
    score: float
    terms: Terms
    scoring: Score
    unit: str = "example"
    entry: int | None = None
    ledger: str | None = None

    @property
    def event(self) -> PrivateSelection:
        """What the whole search released."""
        return self.terms.event

    @property
    def epsilon(self) -> float:
        """The ε of the whole search at ``delta``."""
        return self.terms.epsilon

    @property
    def delta(self) -> float:
        """The δ of the whole search."""
        return self.terms.delta

    @property
    def adjacency(self) -> Adjacency:
        """Which data sets are neighbours."""
        return self.terms.adjacency

    @property
    def tuning_cost(self) -> float:
        """By how much ε is larger than that of one run, at the same δ."""
        return max(0.0, self.epsilon - self.terms.single)

    def statement(self) -> Statement:
        """The claim, with what tuning cost in it, for somebody else to check."""
        from tacit import __version__  # noqa: PLC0415 - the package's own number

        return Statement(
            epsilon=self.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            unit=self.unit,
            event=to_plain(self.event),
            sampling=_sampling(self),
            noise="that of each run, drawn by the training function",
            assumptions=_assumptions(self.scoring),
            not_promised=(
                "that the number of runs, the time taken or the scores of other runs are hidden "
                "from whoever watches the search",
            ),
            tacit_version=__version__,
            ledger=self.ledger,
            threat_model="the claim holds against whoever sees the winner and its settings; the "
            "other runs, their number and their scores are not released",
            releases=("the model that won, with its settings",),
            tuning="covered: the event is that of the whole search",
        )


def _sampling(found: Found) -> str:
    terms = found.terms
    return (
        f"the best of a random number of runs ({_law(terms.event.runs)}), each of a candidate "
        f"drawn at random; one run has ε = {rounded_up(terms.single)} at this δ, and choosing the "
        f"best costs {rounded_up(found.tuning_cost)} more"
    )


def _law(runs: Runs) -> str:
    if isinstance(runs, PoissonRuns):
        return f"Poisson, {runs.mean:.6g} on average"
    names = {0.0: "logarithmic", 1.0: "geometric"}
    name = names.get(runs.eta, f"negative binomial, η = {runs.eta:g}")
    return f"{name}, {runs.mean:.6g} on average"


def _assumptions(score: Score) -> tuple[str, ...]:
    kept = "every run releases no more than its event, whatever the candidate"
    drawn = "candidates and their number were fixed without looking at the private data"
    if isinstance(score, PublicScore):
        return kept, drawn, "the score reads no private data beside the model it judges"
    if isinstance(score, PrivateScore):
        return kept, drawn, "each score releases no more than its event"
    return kept, drawn, "each run's event covers the score that it returns"
