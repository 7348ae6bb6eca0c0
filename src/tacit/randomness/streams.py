"""Streams of random bytes: where all randomness that a guarantee rests on comes from."""

from __future__ import annotations

import hashlib
import os
from typing import Protocol, final

from tacit._validation import whole
from tacit.errors import BrokenRandomness, InvalidArgument

_SAMPLE = 16  # bytes that a healthy source repeats with probability 2⁻¹²⁸


class Stream(Protocol):
    """A source of independent, uniformly random bytes that nobody can predict or repeat."""

    def bytes(self, count: int) -> bytes:
        """The next ``count`` bytes; none is ever given out twice."""


@final
class SystemStream:
    """The operating system's cryptographic generator.

    Guarantee:
        As good as the operating system's: seeded by hardware, unpredictable, and not to be set by
        ``torch.manual_seed`` or anything else in the program.

    >>> len(SystemStream().bytes(16))
    16
    """

    __slots__ = ()

    def bytes(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        return entropy(count)


def entropy(count: int) -> bytes:
    """Bytes of the operating system, refused if its generator is stuck.

    The test is that for repetitions of NIST SP 800-90B (4.4.1), on a sample of 16 bytes; a source
    that works fails it with probability 2⁻¹¹⁹.

    >>> len(entropy(5))
    5
    """
    drawn, again = os.urandom(max(count, _SAMPLE)), os.urandom(_SAMPLE)
    check_varied(drawn[:_SAMPLE], again)
    return drawn[:count]


def check_varied(sample: bytes | bytearray, other: bytes | bytearray) -> None:
    """Raises if two samples of a source are the same, or one is a single byte over and over."""
    if sample == other or len(set(sample)) == 1:
        raise BrokenRandomness(
            "the source of randomness repeats itself, so noise and samples would hide nobody; "
            "check the system's random device (/dev/urandom) and whatever replaces it here"
        )


@final
class UnsafeSeededStream:
    """A stream that anyone with the seed can repeat: for tests and debugging, never for release.

    It voids the guarantee. Noise that can be drawn again can be subtracted, and a sample that can
    be drawn again hides nobody. Streams of one seed with different purposes are independent.

    >>> stream = UnsafeSeededStream(7, "lots")
    >>> stream.bytes(4) == stream.bytes(4)
    False
    >>> UnsafeSeededStream(7, "lots").bytes(4) == UnsafeSeededStream(7, "lots").bytes(4)
    True
    """

    __slots__ = ("_calls", "_key")

    def __init__(self, seed: int, purpose: str) -> None:
        if not isinstance(purpose, str):
            raise InvalidArgument(f"purpose must be a text such as 'noise', got {purpose!r}")
        # The seed ends where the colon is, so that no two pairs share a key.
        self._key = f"{whole('seed', seed, at_least=0)}:{purpose}".encode()
        self._calls = 0

    def bytes(self, count: int) -> bytes:
        """The next ``count`` bytes: SHAKE-256 of the seed, the purpose and the call's number."""
        self._calls += 1
        return hashlib.shake_256(b"%d:%b" % (self._calls, self._key)).digest(count)
