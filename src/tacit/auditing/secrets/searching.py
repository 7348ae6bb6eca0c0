"""Taking the secret out of a model: the likeliest continuation of its known start."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, final

import numpy as np

from tacit._validation import whole
from tacit.auditing.secrets.scoring import BATCH, ask
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.secrets.scoring import NextToken
    from tacit.auditing.secrets.spaces import Space

_TIE = 1e-4  # bits: what single precision can make of one log-perplexity in two batches


@final
@dataclass(frozen=True, slots=True)
class Extracted:
    """A secret that a search took out of a model: its tokens and its log-perplexity in bits."""

    secret: tuple[int, ...]
    log_perplexity: float


def greedy(next_token: NextToken, space: Space) -> Extracted:
    """The likeliest token at each place, one place after the other.

    >>> from tacit.auditing.secrets import Space
    >>> chain = np.log([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8], [0.5, 0.25, 0.25]])
    >>> greedy(lambda tokens: chain[tokens], Space((1,), ((0, 1, 2),) * 2)).secret
    (2, 0)
    """
    return beam(next_token, space, width=1)[0]


def beam(next_token: NextToken, space: Space, *, width: int = 100) -> tuple[Extracted, ...]:
    """The likeliest secrets that a beam finds, best first; no more than ``width``.

    At each place the ``width`` likeliest beginnings are kept. It may miss the likeliest secret, if
    that begins in an unlikely way; ``likeliest`` does not.
    """
    kept = whole("width", width)
    rows, costs = _root()
    for _ in space.choices:
        rows, costs = _longer(next_token, space, rows, costs)
        order = np.argsort(costs, kind="stable")[:kept]
        rows, costs = rows[order], costs[order]
    return tuple(_extracted(row, cost) for row, cost in zip(rows, costs, strict=True))


def likeliest(
    next_token: NextToken, space: Space, *, limit: int = 100_000, batch: int = 64
) -> Extracted | None:
    """The likeliest secret of all, by the shortest path through the tree of beginnings.

    The extraction of Carlini et al. 2019: beginnings are taken up in the order of their
    log-perplexity, which can only grow, so that a whole secret that comes first is the best. A
    memorised one is found after few of them; of a model that knows nothing nearly all are tried.

    Args:
        next_token: The model.
        space: Where to search.
        limit: How many beginnings are continued at most.
        batch: How many of them at once.

    Returns:
        The secret; None if the limit was reached first.
    """
    left, numbers = whole("limit", limit), count()
    at_once, places = whole("batch", batch), len(space.choices)
    heap: list[tuple[float, int, tuple[int, ...]]] = [(0.0, next(numbers), ())]
    best: Extracted | None = None
    while heap and (best is None or heap[0][0] < best.log_perplexity):
        taken = [heapq.heappop(heap) for _ in range(min(at_once, len(heap)))]
        for depth in {len(tokens) for _, _, tokens in taken}:
            group = [(cost, tokens) for cost, _, tokens in taken if len(tokens) == depth]
            left -= len(group)
            if left < 0:
                return None
            rows = np.array([tokens for _, tokens in group], np.int64).reshape(len(group), depth)
            rows, costs = _longer(next_token, space, rows, np.array([cost for cost, _ in group]))
            for row, cost in zip(rows, costs, strict=True):
                if best is not None and cost >= best.log_perplexity:
                    continue
                if depth + 1 == places:
                    best = _extracted(row, cost)
                else:
                    heapq.heappush(heap, (float(cost), next(numbers), tuple(row.tolist())))
    return best


def exact_rank(
    next_token: NextToken, space: Space, log_perplexity: float, *, limit: int = 20_000
) -> int | None:
    """How many secrets of the whole space are as likely as one of this log-perplexity, or likelier.

    It is found without listing the space: a beginning that is less likely already has no likely
    end. So it takes little for a memorised secret.

    Args:
        next_token: The model.
        space: The whole space; the secret is in it, and is counted.
        log_perplexity: The secret's, as ``log_perplexities`` finds it.
        limit: How many beginnings of one length are kept at most.

    Returns:
        The rank, from 1; None if the limit was reached. Differences below 1e-4 bits are ties, and
        ties count as likelier.
    """
    kept = whole("limit", limit)
    rows, costs = _root()
    for _ in space.choices:
        rows, costs = _longer(next_token, space, rows, costs)
        likely = costs <= log_perplexity + _TIE
        rows, costs = rows[likely], costs[likely]
        if len(rows) > kept:
            return None
    if not len(rows):
        raise InvalidArgument(
            f"log_perplexity must be that of a secret of the space, got {log_perplexity!r}, which "
            "is below all of them"
        )
    return len(rows)


def _root() -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    return np.empty((1, 0), np.int64), np.zeros(1)


def _longer(
    next_token: NextToken, space: Space, rows: NDArray[np.int64], costs: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Each beginning with each token that may come next, and what that costs in bits."""
    tokens = np.asarray(space.choices[rows.shape[1]], np.int64)
    contexts = space.after_start(rows)
    parts = [
        ask(next_token, contexts[begin : begin + BATCH])[:, -1][:, tokens]
        for begin in range(0, len(contexts), BATCH)
    ]
    logs = np.concatenate(parts) if parts else np.empty((0, len(tokens)))
    longer = np.concatenate(
        [np.repeat(rows, len(tokens), axis=0), np.tile(tokens, len(rows))[:, None]], axis=1
    )
    return longer, (costs[:, None] - logs / np.log(2.0)).ravel()


def _extracted(row: NDArray[np.int64], cost: float) -> Extracted:
    return Extracted(tuple(row.tolist()), float(cost))
