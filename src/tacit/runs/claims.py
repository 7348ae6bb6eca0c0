"""The statement of a whole run: training, and what was released beside it."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
import torch

from tacit import __version__
from tacit._validation import one_line
from tacit.accounting import Composed, epsilon
from tacit.accounting.serialization import as_dict
from tacit.errors import ProtocolError
from tacit.statement import Statement, extended

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tacit.accounting.events import Adjacency, Event
    from tacit.statement import Charge

_THREAT_MODEL = (
    "the claim holds against whoever sees what is released, knows the code and all other data, and "
    "has any amount of time. It does not hold against whoever sees into the computer while it runs"
)
_NOT_PROMISED = (
    "anything about choices made with the same data outside of this run, such as settings",
    "anything about how long the run takes, which depends on the data and on the noise",
    "anything about held-out examples, on which accuracy may have been measured",
    "that nothing can be inferred about a person from what the data say about everybody",
)
_RELEASES = ("the final model", "its accuracy on held-out data")


def together(released: Mapping[str, tuple[str, Event]]) -> Event | None:
    """All that was released, as one event; None if nothing was."""
    events = [event for _, event in released.values()]
    return Composed(*events) if events else None


def plain(
    event: Event,
    limit: float,
    delta: float,
    *,
    adjacency: Adjacency,
    sampling: str,
    noise: str,
    assumptions: tuple[str, ...],
    ledger: str | None,
    charge: Charge | None,
    releases: tuple[str, ...] = (),
    not_promised: tuple[str, ...] = (),
) -> Statement:
    """The claim for an event that no plan describes; refused if it is above ``limit``."""
    spent = epsilon(event, delta, adjacency=adjacency)
    if spent > limit * (1.0 + 1e-9):
        raise ProtocolError(f"the recipe spent epsilon={spent:.6g} of {limit:g}")
    return Statement(
        epsilon=spent,
        delta=delta,
        adjacency=adjacency,
        event=as_dict(event),
        sampling=one_line(sampling),
        noise=one_line(noise),
        assumptions=tuple(map(one_line, assumptions)),
        tacit_version=__version__,
        torch_version=torch.__version__,
        ledger=ledger,
        charge=charge,
        releases=tuple(map(one_line, releases)),
        not_promised=(*map(one_line, not_promised), *_NOT_PROMISED),
        threat_model=_THREAT_MODEL,
        randomness=one_line(noise),
    )


def whole_run(
    statement: Statement,
    *,
    public: tuple[str, ...] = (),
    preprocessing: tuple[tuple[str, Event], ...],
    tuning: str,
    configuration: str | None,
) -> Statement:
    """``statement`` with what was released before training, and what a reader must know.

    ``public`` is what went into the run and is the same whatever the private data are.
    """
    return extended(
        statement,
        releases=() if statement.releases else _RELEASES,
        preprocessing=(*((what, None) for what in public), *preprocessing),
        tuning=tuning,
        versions=versions(),
        configuration=configuration,
    )


def versions() -> dict[str, Any]:
    """What the run was computed with."""
    return {
        "python": platform.python_version(),
        "tacit": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "torch": str(torch.__version__),
    }
