"""Which teacher a record goes to: a throw of its own for every record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tacit._validation import whole
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.randomness import Stream

_WORDS = 1 << 32  # a throw is 32 random bits
_BLOCK = 1 << 20  # throws at a time


def assigned(records: int, count: int, stream: Stream) -> NDArray[np.int64]:
    """The teacher of each record, uniform among ``count`` and independent of all others.

    A shuffled list that is cut into equal parts is no such thing: to take one record out moves
    those behind it, and several teachers change. Here the other records stay where they are, and
    one record is in one teacher only. The price is that sizes vary, by about the root of their
    mean, and that a teacher may have no record at all.

    Guarantee:
        Records are assigned independently, each teacher with probability exactly 1/``count``: of
        32 random bits, those that would favour some are drawn again.

    Args:
        records: How many records there are.
        count: How many teachers, at most 2³¹.
        stream: Where the random bits come from. The assignment is private.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> assigned(8, 3, UnsafeSeededStream(0, "teachers")).tolist()
    [0, 2, 0, 2, 2, 0, 1, 0]
    """
    wanted, teachers = whole("records", records, at_least=0), whole("count", count)
    if teachers > _WORDS // 2:
        raise InvalidArgument(f"count must be at most 2**31, got {count!r}")
    fair = _WORDS - _WORDS % teachers  # below it, all remainders are equally many
    parts = [np.empty(0, dtype=np.int64)]
    missing = wanted
    while missing:
        drawn = np.frombuffer(stream.bytes(4 * min(_BLOCK, missing)), dtype=np.uint32)
        kept = drawn[drawn.astype(np.int64) < fair]
        parts.append(kept.astype(np.int64) % teachers)
        missing -= len(kept)
    return np.concatenate(parts)
