"""What an accountant proves for a statement's event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tacit.errors import InvalidArgument
from tacit.statement.figures import bracket, check_work
from tacit.statement.rounding import rounded_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tacit.accounting.events import Adjacency
    from tacit.statement.claim import Statement

_SLACK: Final = 1e-9  # relative: what two builds of one accountant may differ by


def proved(event: Mapping[str, Any], delta: float, accountant: str, adjacency: Adjacency) -> float:
    """The ε that ``accountant`` proves at ``delta``; one that proves nothing is refused."""
    from tacit.accounting import epsilon  # noqa: PLC0415 - SciPy only when it is asked
    from tacit.accounting.serialization import from_plain  # noqa: PLC0415

    if accountant == "gdp-clt":
        raise InvalidArgument("accountant must prove a bound, got 'gdp-clt'; use 'exact'")
    if accountant == "exact":
        return bracket(event, delta, adjacency).upper
    given = from_plain(event)
    check_work(given)
    return epsilon(given, delta, accountant=accountant, adjacency=adjacency)


def check_claim(statement: Statement) -> None:
    """Refuses a claim of less than is proved."""
    least = proved(statement.event, statement.delta, statement.accountant, statement.adjacency)
    if not statement.epsilon >= least * (1.0 - _SLACK):
        raise InvalidArgument(
            f"epsilon must be at least the {rounded_up(least)} that {statement.accountant!r} "
            f"proves for the event, got {statement.epsilon!r}"
        )
