"""What a secret could be, in a model's tokens: a known start, then some choices at each place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from tacit._validation import whole
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_ENUMERABLE = 10_000_000


@final
@dataclass(frozen=True, slots=True)
class Space:
    """All secrets that are possible, each as likely as any other before a model is looked at.

    Args:
        start: The tokens before the secret, which an attacker knows; at least one, for a model
            needs something to continue.
        choices: For each place of the secret, the tokens that may stand there. A place with one
            choice is a known one, such as a hyphen.

    >>> space = Space(start=(7,), choices=((0, 1), (5,), (0, 1, 2)))
    >>> space.size, space.every().tolist()[:3]
    (6, [[0, 5, 0], [0, 5, 1], [0, 5, 2]])
    """

    start: tuple[int, ...]
    choices: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.start:
            raise InvalidArgument("start must hold at least one token, got none")
        for place, tokens in enumerate(self.choices):
            if not tokens or len(set(tokens)) < len(tokens):
                raise InvalidArgument(
                    f"choices[{place}] must hold different tokens, at least one, got {tokens!r}"
                )
        if self.size < 2:
            raise InvalidArgument("choices must leave at least two secrets, got one")

    @property
    def size(self) -> int:
        """How many secrets are possible."""
        return math.prod(map(len, self.choices))

    @property
    def max_exposure(self) -> float:
        """log2 of the size: the exposure of the secret that the model finds likeliest of all."""
        return math.log2(self.size)

    def sample(
        self, count: int, *, seed: int | np.random.Generator | None = None
    ) -> NDArray[np.int64]:
        """``count`` secrets, each drawn from all of them; shape (count, places)."""
        draw = np.random.default_rng(seed)
        size = whole("count", count)
        columns = [
            np.asarray(tokens, np.int64)[draw.integers(len(tokens), size=size)]
            for tokens in self.choices
        ]
        return np.stack(columns, axis=1)

    def every(self) -> NDArray[np.int64]:
        """All secrets in order; shape (size, places)."""
        if self.size > _ENUMERABLE:
            raise InvalidArgument(
                f"a space of {self.size:,} secrets is too large to list; draw a sample of it"
            )
        grids = np.meshgrid(*(np.asarray(one, np.int64) for one in self.choices), indexing="ij")
        return np.stack([grid.ravel() for grid in grids], axis=1)

    def checked(self, secret: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """The secret's tokens, if it is one of the space."""
        tokens = np.asarray(secret, np.int64)
        fits = tokens.shape == (len(self.choices),) and all(
            int(token) in allowed for token, allowed in zip(tokens, self.choices, strict=True)
        )
        if not fits:
            raise InvalidArgument(
                f"secret must hold one of the allowed tokens at each of {len(self.choices)} "
                f"places, got {tokens.tolist()!r}"
            )
        return tokens

    def after_start(self, secrets: NDArray[np.int64]) -> NDArray[np.int64]:
        """The secrets (or their beginnings), each after the known start."""
        start = np.broadcast_to(np.asarray(self.start, np.int64), (len(secrets), len(self.start)))
        return np.concatenate([start, secrets], axis=1)
