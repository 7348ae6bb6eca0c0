"""Randomised response: each answer is private before anyone collects it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._validation import whole
from tacit.accounting.events import RandomizedResponse
from tacit.errors import InvalidArgument
from tacit.mechanisms._keys import canonical, placed
from tacit.mechanisms._races import coins, numbers_below
from tacit.mechanisms._records import is_series, like, unmasked
from tacit.mechanisms.release import agreed, pure_amount

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency
    from tacit.ledger import Budget
    from tacit.mechanisms.release import Released
    from tacit.randomness import Stream


def randomized_response(
    answers: Any,
    *,
    categories: int | Sequence[Any] = 2,
    epsilon: float | None = None,
    rho: float | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "",
    stream: Stream | None = None,
) -> Released[Any]:
    """Gives each answer with probability e^ε/(e^ε + categories - 1), else another one at random.

    Warner 1965, for several categories Kairouz, Bonawitz & Ramage 2016.

    Guarantee:
        Each record gives one answer, and what is released of it is that of ``event``. The law is
        exact. That somebody answers is public, and so is the number of records. Each answer is
        read by itself, as ``histogram`` reads keys. One that is none of the categories counts as
        one of them drawn at random, which is a mixture of the answers that ``event`` is about;
        nothing in the data is refused.

    Args:
        answers: One answer, or an array, list or pandas Series of one per record.
        categories: All possible answers, or their number if they are 0, 1, 2, …; for booleans,
            ``[False, True]``.
        epsilon: The ε asked for.
        rho: The ρ of zCDP asked for, instead of ε.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> released = randomized_response(["yes", "no", "no"], categories=["no", "yes"], epsilon=1,
    ...     stream=UnsafeSeededStream(0, "test"))
    >>> released.value.tolist(), round(released.event.probability, 4)
    (['no', 'yes', 'no'], 0.7311)
    """
    terms = agreed("randomized_response", adjacency, unit, budget, label, stream)
    names, keys = _named(categories)
    places, shaped = _places(answers, keys)
    event = RandomizedResponse(
        epsilon=pure_amount(epsilon, rho).pure_epsilon(), categories=len(names)
    )
    grant = terms.charge(event)
    unknown = places < 0
    places[unknown] = numbers_below(len(names), int(unknown.sum()), grant.stream)
    return grant.release(shaped(names[respond(places, event, grant.stream)]))


def respond(
    places: NDArray[np.int64], event: RandomizedResponse, stream: Stream
) -> NDArray[np.int64]:
    """The answers that are given, as places among the categories."""
    others = event.categories - 1

    def truth(arithmetic: Any) -> Any:
        return 1 / (1 + others * arithmetic.exp(-arithmetic.mpf(event.loss)))

    assert event.probability is not None
    lies = ~coins(event.probability, truth, len(places), stream)
    # Another one: 1 to categories - 1 places further, in a circle.
    turns = 1 + numbers_below(others, int(lies.sum()), stream)
    given = places.copy()
    given[lies] = (places[lies] + turns) % event.categories
    return given


def _named(categories: int | Sequence[Any]) -> tuple[NDArray[Any], list[Any]]:
    """The categories, and their canonical keys."""
    if isinstance(categories, int):
        names: NDArray[Any] = np.arange(whole("categories", categories, at_least=2))
    else:
        names = np.asarray(categories)
    keys = [canonical(name) for name in names.ravel().tolist()]
    if names.ndim != 1 or None in keys or len(set(keys)) != len(keys) or len(keys) < 2:
        raise InvalidArgument(f"categories must be two or more different ones, got {categories!r}")
    return names, keys


def _places(
    answers: Any, keys: list[Any]
) -> tuple[NDArray[np.int64], Callable[[NDArray[Any]], Any]]:
    """Each answer's place among the categories, -1 for none, and what makes them a release."""
    if isinstance(answers, list | tuple):
        return placed(answers, keys), lambda found: found
    given = answers.to_numpy(dtype=object) if is_series(answers) else np.asarray(unmasked(answers))
    kind = like(answers)
    return placed(given.ravel().tolist(), keys), lambda found: kind(found.reshape(given.shape))
