"""What a secret can be, as text and in tokens, and how it is put into data."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar, final

import numpy as np

from tacit._validation import whole
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


# ---- in a model's tokens: a known start, then some choices at each place

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


# ---- as text: a stated format, and canaries of it that are drawn at random

ALPHABETS: Final = {
    "digits": "0123456789",
    "hex": "0123456789abcdef",
    "letters": "abcdefghijklmnopqrstuvwxyz",
}
_FIELD: Final = re.compile(r"\{([^{}:]*):([^{}]*)\}")


@final
@dataclass(frozen=True, slots=True)
class Canary:
    """A secret in its place.

    Args:
        text: What is inserted into the data.
        secret: The part of it that an attacker is after: from the first random character to the
            last.
    """

    text: str
    secret: str

    def tokens(self, encode: Callable[[str], Sequence[int]] | None = None) -> tuple[int, ...]:
        """The secret's tokens, as ``SecretFormat.space`` counts them."""
        return tuple(_token(encode, character) for character in self.secret)


@final
@dataclass(frozen=True, slots=True)
class SecretFormat:
    """A text with fields for random characters: ``{digits:9}``, ``{hex:4}``, ``{letters:3}``.

    Args:
        template: Begins with fixed text, which is what an attacker knows. Fixed text between fields
            is known too. What follows the last field is inserted with the secret, but is no part of
            the search for it.

    >>> card = SecretFormat("my card is {digits:4}-{digits:4}.")
    >>> card.size, round(card.max_exposure, 2)
    (100000000, 26.58)
    >>> card.canary("1234-5678")
    Canary(text='my card is 1234-5678.', secret='1234-5678')
    """

    template: str

    def __post_init__(self) -> None:
        if not _FIELD.search(self.template):
            raise InvalidArgument(
                f"template must hold a field such as {{digits:9}}, got {self.template!r}"
            )
        for kind, count in _FIELD.findall(self.template):
            if kind not in ALPHABETS or not count.isdecimal() or int(count) < 1:
                raise InvalidArgument(
                    f"a field must be one of {', '.join(ALPHABETS)} with a number of characters, "
                    f"such as {{digits:9}}, got {{{kind}:{count}}}"
                )
        if not self.before:
            raise InvalidArgument(
                f"template must begin with fixed text, got {self.template!r}; a model needs "
                "something to continue"
            )

    @property
    def before(self) -> str:
        """The fixed text before the secret."""
        return _FIELD.split(self.template)[0]

    @property
    def after(self) -> str:
        """The fixed text after the secret."""
        return _FIELD.split(self.template)[-1]

    @property
    def places(self) -> tuple[str, ...]:
        """For each character of the secret, those that it may be."""
        middle = self.template[len(self.before) : len(self.template) - len(self.after)]
        parts = _FIELD.split(middle)  # fixed, kind, count, fixed, kind, count, …, fixed
        found: list[str] = []
        for fixed, kind, count in zip(parts[0::3], parts[1::3], parts[2::3], strict=False):
            found += [*fixed, *([ALPHABETS[kind]] * int(count))]
        return tuple(found)

    @property
    def size(self) -> int:
        """How many secrets there are."""
        return self.space().size

    @property
    def max_exposure(self) -> float:
        """log2 of the size."""
        return self.space().max_exposure

    def space(self, encode: Callable[[str], Sequence[int]] | None = None) -> Space:
        """The secrets in tokens.

        Args:
            encode: From text to tokens, one for each character; left out, a character's code.
        """
        return Space(
            tuple(_token(encode, character) for character in self.before),
            tuple(tuple(_token(encode, one) for one in allowed) for allowed in self.places),
        )

    def canary(self, secret: str) -> Canary:
        """The canary of a given secret."""
        self.space().checked([ord(character) for character in secret])
        return Canary(self.before + secret + self.after, secret)

    def draw(
        self, count: int = 1, *, seed: int | np.random.Generator | None = None
    ) -> tuple[Canary, ...]:
        r"""Canaries with secrets drawn at random, each from all of them.

        >>> [len(one.text) for one in SecretFormat("code {hex:6}\n").draw(2)]
        [12, 12]
        """
        rows = self.space().sample(count, seed=seed)
        return tuple(self.canary("".join(map(chr, row))) for row in rows.tolist())


def _token(encode: Callable[[str], Sequence[int]] | None, character: str) -> int:
    if encode is None:
        return ord(character)
    tokens = encode(character)
    if len(tokens) != 1:
        raise InvalidArgument(
            f"encode must make one token of each character, got {tokens!r} of {character!r}; build "
            "a Space of tokens instead"
        )
    return int(tokens[0])


# ---- into data: anywhere in a text, or with all copies in one privacy unit

Kind = TypeVar("Kind", bound=np.generic)


def insert(
    text: str, canary: str, times: int, *, seed: int | np.random.Generator | None = None
) -> str:
    r"""The text with ``canary`` between its lines, ``times`` times, at places drawn at random.

    The copies may come to lie in several privacy units: a guarantee for one unit says less of
    such a canary, for groups are protected less than their members. ``insert_into_unit`` keeps
    them together.

    >>> insert("to be\nor not\n", "1234\n", 2, seed=0)
    'to be\n1234\nor not\n1234\n'
    """
    copies = whole("times", times, at_least=0)
    lines = text.splitlines(keepends=True)
    draw = np.random.default_rng(seed)
    places = draw.integers(len(lines) + 1, size=copies)
    found: list[str] = []
    for number in range(len(lines) + 1):
        found += [canary] * int(np.count_nonzero(places == number))
        found += lines[number : number + 1]
    return "".join(found)


def insert_into_unit(
    rows: NDArray[Kind], unit: int, canary: Sequence[int] | NDArray[np.int64], times: int
) -> NDArray[Kind]:
    """A copy of ``rows`` in which one row holds the canary ``times`` times, at even distances.

    The row keeps its length: the canary takes the place of what stood there.

    Args:
        rows: Sequences of tokens, one privacy unit each; shape (units, length).
        unit: The row's number.
        canary: Its tokens.
        times: How many copies; 0 leaves the row as it is.

    Guarantee:
        The result differs from ``rows`` in the one row only.

    >>> insert_into_unit(np.zeros((2, 8), np.int64), 1, [3, 4], 3).tolist()
    [[0, 0, 0, 0, 0, 0, 0, 0], [3, 4, 3, 4, 0, 3, 4, 0]]
    """
    copies, tokens = whole("times", times, at_least=0), np.asarray(canary)
    if rows.ndim != 2 or not 0 <= unit < len(rows):
        raise InvalidArgument(
            f"unit must be the number of one of the rows, got {unit!r} for shape {rows.shape}"
        )
    length = rows.shape[1]
    if copies * len(tokens) > length:
        raise InvalidArgument(
            f"times must be at most {length // len(tokens)}, as a unit of {length} tokens has room "
            f"for, got {times!r}"
        )
    changed = rows.copy()
    for copy in range(copies):
        begin = copy * length // copies
        changed[unit, begin : begin + len(tokens)] = tokens
    return changed
