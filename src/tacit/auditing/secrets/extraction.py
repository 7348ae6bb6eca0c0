"""Taking a secret out of a model: its log-perplexity, the searches for it, and what they find."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from tacit._validation import whole
from tacit.auditing.secrets.exposure import (
    Exposure,
    exposure_by_extrapolation,
    exposure_by_sampling,
    exposure_of_rank,
)
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from tacit.auditing.secrets.formats import Space


# ---- models, and log-perplexities under them

NextToken: TypeAlias = Callable[[NDArray[np.int64]], NDArray[np.floating]]
"""A model: from tokens of shape (rows, length) to natural logarithms of shape (rows, length,
vocabulary): at [i, j] the probabilities of what follows the first j + 1 tokens of row i."""

BATCH = 1024


def log_perplexities(
    next_token: NextToken, space: Space, secrets: NDArray[np.int64], *, batch: int = BATCH
) -> NDArray[np.float64]:
    """-log2 of the probability of each secret after the space's start (Carlini et al. 2019).

    Args:
        next_token: The model.
        space: What the secrets are of.
        secrets: Their tokens, shape (secrets, places).
        batch: How many the model is asked about at once.

    >>> from tacit.auditing.secrets import Space
    >>> coin = lambda tokens: np.full((*tokens.shape, 2), np.log(0.5))
    >>> space = Space(start=(0,), choices=((0, 1),) * 3)
    >>> log_perplexities(coin, space, np.array([[0, 1, 1]]))
    array([3.])
    """
    size, rows = whole("batch", batch), np.asarray(secrets, np.int64)
    if rows.ndim != 2 or rows.shape[1] != len(space.choices):
        raise InvalidArgument(
            f"secrets must have the shape (secrets, {len(space.choices)}), got {rows.shape}"
        )
    found = np.empty(len(rows))
    for begin in range(0, len(rows), size):
        part = rows[begin : begin + size]
        logs = ask(next_token, space.after_start(part)[:, :-1])[:, len(space.start) - 1 :]
        taken = np.take_along_axis(logs, part[:, :, None], axis=2)[:, :, 0]
        found[begin : begin + size] = -taken.sum(axis=1, dtype=np.float64) / np.log(2.0)
    return found


def ask(next_token: NextToken, tokens: NDArray[np.int64]) -> NDArray[np.floating]:
    """The model's answer, if it is one."""
    logs = next_token(tokens)
    if logs.ndim != 3 or logs.shape[:2] != tokens.shape:
        raise InvalidArgument(
            f"next_token must return the shape (rows, length, vocabulary) for tokens of shape "
            f"{tokens.shape}, got {logs.shape}"
        )
    if not (logs <= 1e-3).all():  # also where there is a NaN
        raise InvalidArgument(
            "next_token must return logarithms of probabilities, 0 or below, got others; apply "
            "log_softmax to the logits"
        )
    return logs


def next_token_of(model: nn.Module) -> NextToken:
    """Wraps a model that makes logits of shape (rows, length, vocabulary) of token numbers.

    It is asked in evaluation mode, where its first parameter is, and left as it was.

    >>> import torch
    >>> embedding = torch.nn.Embedding(4, 4)
    >>> np.exp(next_token_of(embedding)(np.array([[0, 3]]))).sum(axis=-1).round(6)
    array([[1., 1.]], dtype=float32)
    """
    import torch  # noqa: PLC0415 - exposure itself needs no PyTorch

    device = next(model.parameters()).device

    def next_token(tokens: NDArray[np.int64]) -> NDArray[np.floating]:
        training = model.training
        model.eval()
        try:
            with torch.no_grad():
                logits = model(torch.from_numpy(tokens).to(device)).float()
                found: NDArray[np.floating] = torch.log_softmax(logits, -1).cpu().numpy()
        finally:
            model.train(training)
        return found

    return next_token


# ---- searches: the likeliest continuation of the secret's known start

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


# ---- one secret under one model: its exposure in every way, and whether it can be extracted


@final
@dataclass(frozen=True, slots=True)
class MeasuredSecret:
    """What was found of one secret.

    Attributes:
        log_perplexity: The secret's, in bits.
        sampled: Its exposure among random candidates; its p-value takes nothing for granted.
        extrapolated: Its exposure by the skew normal law.
        ranked: Its exposure by the exact rank in the whole space; None where that takes too long,
            which is so for secrets that are not memorised.
        greedy: What greedy search takes out of the model.
        best: The likeliest secret that beam search takes out.
        found: The secret's place among what beam search takes out, from 1; None if it is not there.
        greedy_found: Whether greedy search takes out the secret.
    """

    log_perplexity: float
    sampled: Exposure
    extrapolated: Exposure
    ranked: Exposure | None
    greedy: Extracted
    best: Extracted
    found: int | None
    greedy_found: bool

    @property
    def exposure(self) -> Exposure:
        """The most exact of the three: by rank, by the sample where it reaches, extrapolated.

        A sample that has nothing as likely as the secret says only that its exposure is no less;
        then the law is taken, if it fits.
        """
        if self.ranked is not None:
            return self.ranked
        beyond = self.sampled.bits == self.sampled.most and self.extrapolated.holds
        return self.extrapolated if beyond else self.sampled

    @property
    def p_value(self) -> float:
        """How likely a secret that the model never saw is to be so exposed, by rank or sample.

        Twice the smaller of the two: whether there is a rank depends on the secret.
        """
        found = [one.p_value for one in (self.sampled, self.ranked) if one is not None]
        return min(1.0, 2.0 * min(found))

    @property
    def extracted(self) -> bool:
        """Whether a search takes out the secret: greedily, or as the first of the beam."""
        return self.found == 1 or self.greedy_found


def measure(
    next_token: NextToken,
    space: Space,
    secret: Sequence[int],
    *,
    candidates: int = 10_000,
    width: int = 100,
    limit: int = 20_000,
    seed: int | np.random.Generator | None = None,
) -> MeasuredSecret:
    """Measures a secret's exposure under a model, and tries to extract it.

    Args:
        next_token: The model.
        space: What the secret was drawn from; it must have been drawn at random for ``p_value``
            to mean anything.
        secret: Its tokens.
        candidates: How many other secrets are drawn to compare it with.
        width: Of the beam.
        limit: Of the search for the exact rank.
        seed: Of the candidates.

    What is found is computed from the secret, with no privacy: it is for whoever planted it.

    >>> from tacit.auditing.secrets import Space
    >>> chain = np.log([[0.1, 0.9], [0.9, 0.1]])  # a model that likes to alternate
    >>> space = Space(start=(0,), choices=((0, 1),) * 12)
    >>> found = measure(lambda tokens: chain[tokens], space, (1, 0) * 6, candidates=1000, seed=0)
    >>> found.exposure.bits, found.extracted
    (12.0, True)
    """
    own = space.checked(secret)
    others = space.sample(candidates, seed=seed)
    values = log_perplexities(next_token, space, np.concatenate([own[None], others]))
    value, sample = float(values[0]), values[1:]
    rank = exact_rank(next_token, space, value, limit=limit)
    beams = beam(next_token, space, width=width)
    first, planted = greedy(next_token, space), tuple(own.tolist())
    places = [number for number, one in enumerate(beams, 1) if one.secret == planted]
    return MeasuredSecret(
        log_perplexity=value,
        sampled=exposure_by_sampling(value, sample),
        extrapolated=exposure_by_extrapolation(value, sample, size=space.size),
        ranked=None if rank is None else exposure_of_rank(rank, space.size),
        greedy=first,
        best=beams[0],
        found=places[0] if places else None,
        greedy_found=first.secret == planted,
    )
