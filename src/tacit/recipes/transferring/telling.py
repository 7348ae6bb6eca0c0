"""What PATE's answers cost on the votes at hand: told once, with noise, as a figure of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tacit._validation import positive
from tacit.errors import BudgetExceeded, InvalidArgument
from tacit.mechanisms import Released
from tacit.statement import DataDependent
from tacit.transfer import ConfidentGNMax, GNMax
from tacit.transfer.data_dependent_claim import FAILURE_SHARE, sanitised_cost

if TYPE_CHECKING:
    from tacit.ledger import Budget
    from tacit.recipes.transferring.pate_settings import Settings
    from tacit.runs import Job
    from tacit.transfer import Answers, LNMax, Votes

WHAT: Final = (
    "The data-dependent cost of the answers (Papernot et al. 2018, with the bound of "
    "tacit.transfer.rdp_cost) was told once with Gaussian noise by its smooth bound; order, "
    "smoothness and noise were fixed before, and telling is charged in the claim"
)
COST: Final = "cost"
UNTOLD: Final = (
    "the data-dependent figure was not told: the budget has no room for it, it was charged and "
    "lost in a crash, or the votes that were asked first are gone"
)


def check(chosen: Settings) -> None:
    """Refuses to tell what cannot be told."""
    if chosen.told and chosen.aggregator == "laplace":
        raise InvalidArgument(
            "told must be false with aggregator=laplace, whose data-dependent cost cannot be told; "
            "give told=false"
        )
    if chosen.order <= 1.0:
        raise InvalidArgument(f"order must be above 1, got {chosen.order!r}")
    positive("smoothness", chosen.smoothness)
    positive("told_noise", chosen.told_noise)


def told_cost(
    job: Job, votes: Votes, aggregator: ConfidentGNMax | GNMax | LNMax, answers: Answers
) -> DataDependent | None:
    """The figure, released as all else is; None if it is not to be told, or cannot be.

    It cannot be where the budget has no room for it, or where it was charged and lost in a crash.
    The labels are there by then, and all that is claimed of them holds without it.
    """
    chosen: Settings = job.settings
    if not chosen.told or not isinstance(aggregator, ConfidentGNMax | GNMax):
        return None
    failure = FAILURE_SHARE * job.delta

    def tell(budget: Budget | None) -> Released[Any]:
        found = sanitised_cost(
            votes, aggregator, answers, order=chosen.order, smoothness=chosen.smoothness,
            noise_multiplier=chosen.told_noise, budget=budget, label=job.label,
        )  # fmt: skip
        figure = {
            "epsilon": found.epsilon(job.delta),
            "divergence": found.claim(failure).values[0],
        }
        return Released(figure, found.event, found.adjacency, found.unit, found.entry)

    try:
        figure = job.release(COST, tell, what="the noisy data-dependent cost of the answers")
    except BudgetExceeded:
        return None
    return DataDependent(**figure, delta=job.delta, order=chosen.order, failure=failure, what=WHAT)
