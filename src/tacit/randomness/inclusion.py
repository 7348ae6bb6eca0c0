"""Who is in a lot: independent coin flips for every record, exact and in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tacit._validation import probability, whole
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.randomness.streams import Stream

_BLOCK = 5 << 15  # records at a time: memory stays small, and is not asked for again and again
_FEW = 25  # of 256: where fewer are found, NumPy looks for each of them by itself


def included(count: int, rate: float, stream: Stream) -> NDArray[np.int64]:
    """The places, in increasing order, of the records that a Poisson sample of 0 … count-1 holds.

    A record is in if 72 random bits, read as a number below 1, are below ``rate``. Eight of them
    almost always decide; the other 64 are drawn for the one record in 256 that they leave open.

    Guarantee:
        Records are included independently, each with probability ⌊rate·2⁷²⌋/2⁷²: ``rate`` itself
        if that is at least 2⁻¹⁹, else at most 2⁻⁷² below it.

    >>> from tacit.randomness.streams import UnsafeSeededStream
    >>> included(1000, 0.005, UnsafeSeededStream(0, "lots")).tolist()
    [205, 247, 553, 688, 874]
    """
    total = whole("count", count, at_least=0)
    chance = probability("rate", rate)
    if chance == 1.0:
        return np.arange(total, dtype=np.int64)
    top, rest = divmod(int(chance * 2.0**72), 1 << 64)
    found = [
        start + _block(min(_BLOCK, total - start), top, rest, stream)
        for start in range(0, total, _BLOCK)
    ]
    if len(found) == 1:
        return found[0]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _block(count: int, top: int, rest: int, stream: Stream) -> NDArray[np.int64]:
    first = np.frombuffer(stream.bytes(count), dtype=np.uint8)
    # In, or left open: one pass, as most are neither.
    found = _places_below(first, top + 1) if top + 1 < _FEW else np.flatnonzero(first <= top)
    inside = first.take(found) < top
    open_ones = np.flatnonzero(~inside)
    inside[open_ones] = _words(len(open_ones), stream) < np.uint64(rest)
    return found.compress(inside).astype(np.int64, copy=False)


def _places_below(values: NDArray[np.uint8], bound: int) -> NDArray[np.intp]:
    """Where values are below ``bound``, in increasing order, found in half the time if few are.

    Eight answers are read as one word first; only words in which there is a yes are looked into.
    """
    answers = np.empty(-(-len(values) // 8) * 8, dtype=np.bool_)
    answers[len(values) :] = False
    np.less(values, bound, out=answers[: len(values)])
    words = answers.view(np.uint64)
    some = np.flatnonzero(words != 0)
    inner = np.flatnonzero(words.take(some).view(np.bool_))
    some <<= 3
    places = some.take(inner >> 3)
    inner &= 7
    places += inner
    return places


def subset(indices: NDArray[np.int64], size: int, stream: Stream) -> NDArray[np.int64]:
    """``size`` of ``indices``, every such choice equally likely, in increasing order.

    Each is given 64 random bits, and those with the smallest stay. Should two be given the same
    bits, all are drawn again, so that no order is preferred.

    >>> from tacit.randomness.streams import UnsafeSeededStream
    >>> subset(np.arange(10), 3, UnsafeSeededStream(0, "cut")).tolist()
    [2, 4, 7]
    """
    kept = whole("size", size, at_least=0)
    if kept > len(indices):
        raise InvalidArgument(f"size must be at most the {len(indices)} indices, got {size!r}")
    while True:
        keys = _words(len(indices), stream)
        order = np.argsort(keys)
        if np.all(np.diff(keys[order]) != 0):
            return np.sort(indices[order[:kept]])


def assigned(count: int, lots: int, stream: Stream) -> NDArray[np.int64]:
    """A lot for each of ``count`` records, each of 0 … lots-1 equally likely, independently.

    64 random bits are read as a whole number; where it is not below the largest multiple of
    ``lots``, it is drawn again, so that no lot is preferred.

    >>> from tacit.randomness.streams import UnsafeSeededStream
    >>> assigned(8, 3, UnsafeSeededStream(0, "lots")).tolist()
    [2, 1, 1, 2, 0, 2, 2, 1]
    """
    total, parts = whole("count", count, at_least=0), whole("lots", lots)
    end = (1 << 64) // parts * parts
    found = np.empty(total, dtype=np.int64)
    for start in range(0, total, _BLOCK):
        words = _words(min(_BLOCK, total - start), stream).copy()
        while end < 1 << 64:
            (open_ones,) = np.nonzero(words >= np.uint64(end))
            if not len(open_ones):
                break
            words[open_ones] = _words(len(open_ones), stream)
        found[start : start + len(words)] = words % np.uint64(parts)
    return found


def _words(count: int, stream: Stream) -> NDArray[np.uint64]:
    return np.frombuffer(stream.bytes(8 * count), dtype=np.uint64)
