"""Secrets as text: a stated format, and canaries of it that are drawn at random."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tacit.auditing.secrets.spaces import Space
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

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
