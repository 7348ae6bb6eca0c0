"""Models whose every probability is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.secrets import NextToken, Space


def chain(vocabulary: int, *, seed: int, sharp: float = 1.0) -> NextToken:
    """A model of two tokens' memory with random probabilities; a larger ``sharp`` is surer."""
    draw = np.random.default_rng(seed)
    logits = sharp * draw.normal(size=(vocabulary, vocabulary, vocabulary))
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))

    def next_token(tokens: NDArray[np.int64]) -> NDArray[np.floating]:
        before = np.concatenate([np.zeros_like(tokens[:, :1]), tokens[:, :-1]], axis=1)
        return logs[before, tokens]

    return next_token


def one_by_one(next_token: NextToken, space: Space, secret: list[int]) -> float:
    """A secret's log-perplexity, token by token: the second way."""
    bits = 0.0
    for place, token in enumerate(secret):
        seen = np.array([[*space.start, *secret[:place]]], np.int64)
        bits -= float(next_token(seen)[0, -1, token]) / np.log(2.0)
    return bits
