"""Sparse-vector selection: the first candidate whose private score reaches a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from tacit.errors import InvalidArgument
from tacit.mechanisms import SparseVector
from tacit.mechanisms.release import Released

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tacit.accounting.events import Adjacency
    from tacit.ledger import Budget
    from tacit.randomness import Stream


def first_above(
    candidates: Iterable[Any],
    score: Callable[[Any], float],
    target: float,
    *,
    sensitivity: float,
    epsilon: float,
    delta: float | None = None,
    noise: Literal["laplace", "gaussian"] = "laplace",
    monotone: bool = False,
    length: int | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "sparse-vector selection",
    stream: Stream | None = None,
) -> Released[Any]:
    """The first candidate whose score, with noise, is above ``target`` with noise; else None.

    For candidates that give nothing away themselves: public models, settings of a query, or private
    models that were charged already. Only their scores read private data, and all of them together
    cost one ``epsilon``, however many there are. To train the candidates as well, take
    ``private_search``.

    Args:
        candidates: Tried in this order, which must not depend on the private data. With Gaussian
            noise, no more than ``length`` of them.
        score: A number for a candidate, without noise: the count of right answers, say.
        target: The score that is good enough; public.
        sensitivity: How far neighbours move a score, by the adjacency.
        epsilon: The ε of the whole choice.
        delta: The δ, with Gaussian noise only.
        noise: ``"laplace"`` or ``"gaussian"``, as in ``tacit.mechanisms.SparseVector``.
        monotone: Whether a record moves all scores the same way.
        length: A public bound on the number of candidates, for Gaussian noise; left out, it is
            their number.
        adjacency: Which data sets are neighbours: the budget's, or add-remove.
        unit: Whom the guarantee protects: the budget's, or each example.
        budget: Charged once, before the first score.
        label: A name for the ledger's entry.
        stream: Where noise comes from, for tests.

    Guarantee:
        That of ``tacit.mechanisms.SparseVector`` with cutoff 1: the choice tells no more than its
        event, if neighbours move no score by more than ``sensitivity``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> right = {"small": 310, "medium": 820, "large": 930}
    >>> first_above(
    ...     right, right.get, 700, sensitivity=1, epsilon=1, stream=UnsafeSeededStream(0, "test")
    ... ).value
    'medium'
    """
    offered = list(candidates)
    if noise == "gaussian" and length is None:
        length = max(1, len(offered))
    if length is not None and len(offered) > length:
        raise InvalidArgument(f"candidates must be at most length={length!r}, got {len(offered)}")
    vector = SparseVector(
        target,
        sensitivity=sensitivity,
        epsilon=epsilon,
        delta=delta,
        noise=noise,
        monotone=monotone,
        length=length,
        adjacency=adjacency,
        unit=unit,
        budget=budget,
        label=label,
        stream=stream,
    )
    winner = next((one for one in offered if vector.above(score(one))), None)
    return Released(winner, vector.event, vector.adjacency, vector.unit, vector.entry)
