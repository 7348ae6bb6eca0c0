"""Log-perplexities under any model that tells how likely each token is to follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit._validation import whole
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.auditing.secrets.spaces import Space

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
