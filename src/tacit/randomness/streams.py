"""Streams of random bytes: where all randomness that a guarantee rests on comes from.

The fast cryptographic one is ChaCha20 that forgets its keys.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
from typing import Any, NoReturn, Protocol, final

from tacit._validation import whole
from tacit.errors import BrokenRandomness, InvalidArgument

_KEY = 32  # bytes
_BLOCK = 64  # bytes of ChaCha20's key stream that one count of its counter gives
_POOL = 1 << 14  # bytes made at a time for small requests: a new key takes longer than they do
_PIECE = 1 << 16  # bytes made at a time for large ones: zeros and result stay in the cache
_ZEROS = bytes(_PIECE)
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


# ---- the fast cryptographic stream


@final
class SecureStream:
    """ChaCha20 (RFC 8439) under a key of its own, taken from the operating system.

    ``purpose`` names what the bytes are for ("noise", "lots"). It is part of the cipher's nonce, so
    that streams of different purposes are independent whatever their keys.

    Guarantee:
        To whoever cannot break ChaCha20 and does not read this process's memory, the bytes cannot
        be distinguished from random ones, and nobody can set or repeat them. Before bytes are given
        out, the key that made them is replaced by other output of the same key (fast key erasure,
        Bernstein 2017), so that a later look at the memory tells no past bytes. A forked child, a
        second thread and a signal handler draw under keys of their own: no byte is given out twice.
        A stream cannot be copied or pickled, and its text shows no key. A virtual machine that is
        copied while it runs is copied with its keys: make new streams after that.

    >>> stream = SecureStream("noise")
    >>> len(stream.bytes(16)), stream.bytes(16) == stream.bytes(16)
    (16, False)
    """

    __slots__ = ("_idle", "_nonce", "_purpose")

    def __init__(self, purpose: str) -> None:
        if not isinstance(purpose, str):
            raise InvalidArgument(f"purpose must be a text such as 'noise', got {purpose!r}")
        if not _has_cryptography():
            raise InvalidArgument(
                "SecureStream needs the library cryptography: pip install cryptography, "
                "or take fresh_stream, which falls back on the system's generator"
            )
        self._purpose = purpose
        self._nonce = hashlib.sha256(purpose.encode()).digest()[:12]
        # Whoever draws takes a generator out of this list, or makes one if there is none. Taking
        # one out is atomic, so no two draws share a generator, and no lock can be left held.
        self._idle: list[_Erasing] = []

    def bytes(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        wanted = whole("count", count, at_least=0)
        generator = self._take()
        drawn = generator.draw(wanted)
        self._idle.append(generator)
        return drawn

    def _take(self) -> _Erasing:
        here = _FORKS.process()
        while self._idle:
            try:
                generator = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if generator.home == here:
                return generator
            # One that this process has from its parent, which goes on with it: never used here.
        return _Erasing(entropy(_KEY), self._nonce, here)

    def __repr__(self) -> str:
        return f"SecureStream({self._purpose!r})"

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument(
            "a SecureStream cannot be copied or pickled: its bytes would be drawn twice; "
            "make a new one"
        )


def fresh_stream(purpose: str) -> Stream:
    """A `SecureStream`, or the system's own generator where `cryptography` is not installed.

    The two guarantee the same; the system's takes several times as long. A stream whose first bytes
    repeat themselves is refused.

    >>> len(fresh_stream("lots").bytes(3))
    3
    """
    stream: Stream = SecureStream(purpose) if _has_cryptography() else SystemStream()
    check_varied(stream.bytes(_KEY), stream.bytes(_KEY))
    return stream


@final
class SharedStream:
    """ChaCha20 under a key that several processes share: those who ask alike are given the same.

    It is for what must be one decision of all processes of a run. They ask for the same counts of
    bytes in the same order.

    Guarantee:
        To whoever has not the key, as `SecureStream`. Every request replaces the key by other
        output of the same key, so that a later look at the memory tells no past bytes. Streams of
        one key with different purposes are independent. A forked child is refused: its parent draws
        the same bytes.

    >>> one, other = (SharedStream(bytes(range(32)), "lots") for _ in range(2))
    >>> one.bytes(4) == other.bytes(4), one.bytes(4) == one.bytes(4)
    (True, False)
    """

    __slots__ = ("_home", "_key", "_purpose")

    def __init__(self, key: bytes, purpose: str) -> None:
        if len(key) != _KEY:
            raise InvalidArgument(f"key must be {_KEY} bytes, got {len(key)}")
        check_varied(key[: _KEY // 2], key[_KEY // 2 :])
        self._purpose = purpose
        self._home = _FORKS.process()
        self._key = bytearray(hashlib.sha256(key + purpose.encode()).digest())

    def bytes(self, count: int) -> bytes:
        """The next ``count`` bytes: the key stream from its second block on."""
        if self._home != _FORKS.process():
            raise BrokenRandomness(
                "a forked process cannot go on with its parent's shared stream, whose bytes the "
                "parent draws as well; start the run in the process that trains"
            )
        stream = chacha20(self._key)
        self._key[:] = stream.stream(_BLOCK)[:_KEY]
        return stream.stream(count)

    def __repr__(self) -> str:
        return f"SharedStream({self._purpose!r})"

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument(
            "a SharedStream cannot be copied or pickled: its bytes would be drawn twice"
        )


def _has_cryptography() -> bool:
    return importlib.util.find_spec("cryptography") is not None


@final
class _Erasing:
    """A generator that replaces its key at every use."""

    __slots__ = ("_key", "_nonce", "_place", "_pool", "home")

    def __init__(self, key: bytes, nonce: bytes, home: tuple[int, int]) -> None:
        self.home = home
        self._key = bytearray(key)
        self._nonce = nonce
        self._pool = bytearray(_POOL)
        self._place = _POOL  # where the pool's unused bytes begin

    def draw(self, count: int) -> bytes:
        if count > _POOL:
            return self._rekeyed().stream(count)
        if count > _POOL - self._place:
            self._rekeyed().fill(self._pool)
            self._place = 0
        end = self._place + count
        drawn = bytes(memoryview(self._pool)[self._place : end])
        self._pool[self._place : end] = bytes(count)  # given out, and forgotten here
        self._place = end
        return drawn

    def _rekeyed(self) -> _ChaCha20:
        """The cipher under the present key, whose first bytes have become the next key."""
        cipher = _ChaCha20(self._key, self._nonce)
        head = bytearray(_BLOCK)
        cipher.fill(head)
        check_varied(head[:_KEY], head[_KEY:])
        memoryview(self._key)[:] = memoryview(head)[:_KEY]
        head[:] = bytes(_BLOCK)
        return cipher


@final
class _ChaCha20:
    """The key stream of RFC 8439 from a block on, which the library gives by enciphering zeros."""

    __slots__ = ("_encryptor",)

    def __init__(self, key: bytes | bytearray, nonce: bytes, block: int = 0) -> None:
        from cryptography.hazmat.primitives.ciphers import (  # noqa: PLC0415 - only when used
            Cipher,
            algorithms,
        )

        start = block.to_bytes(4, "little") + nonce
        self._encryptor = Cipher(algorithms.ChaCha20(key, start), mode=None).encryptor()

    def fill(self, buffer: bytearray) -> None:
        self._encryptor.update_into(memoryview(_ZEROS)[: len(buffer)], buffer)

    def stream(self, count: int) -> bytes:
        # Written where it is given out from: joining pieces would take three times as long.
        output = io.BytesIO(bytes(count))
        with output.getbuffer() as whole_output:
            for start in range(0, count, _PIECE):
                with whole_output[start : start + _PIECE] as piece:
                    self._encryptor.update_into(memoryview(_ZEROS)[: len(piece)], piece)
        return output.getvalue()


# ---- many words from one key


def one_time_key(stream: Stream) -> bytearray:
    """32 bytes of the stream, the key of one draw; whoever uses it sets it to 0 afterwards.

    Guarantee:
        Bytes of `chacha20` under it are as good as the stream's own to whoever cannot break
        ChaCha20. A key that repeats itself is refused. Nothing here keeps it or shows it.

    >>> len(one_time_key(SystemStream()))
    32
    """
    key = bytearray(stream.bytes(_KEY))
    check_varied(key[: _KEY // 2], key[_KEY // 2 :])
    return key


class KeyStream(Protocol):
    """The key stream of ChaCha20 (RFC 8439) under one key and nonce, from its first block on."""

    def stream(self, count: int) -> bytes:
        """The next ``count`` bytes, of whole blocks except in the last call."""


def chacha20(key: bytes | bytearray, nonce: bytes = bytes(12), block: int = 0) -> KeyStream:
    """The key stream from a block on, by `cryptography` or, where that is not installed, by NumPy.

    NumPy takes ten times as long.

    >>> chacha20(bytes(32)).stream(4).hex()
    '76b8e0ad'
    """
    kind = _ChaCha20 if _has_cryptography() else _PlainChaCha20
    return kind(key, nonce, block)


@final
class KeyedStream:
    """The key stream under one key and nonce, in requests of any length.

    Whoever has the key finds the numbers of a place, by which the nonce is chosen, without those of
    any other.

    >>> stream = KeyedStream(bytes(32), bytes(12))
    >>> stream.bytes(1).hex(), stream.bytes(3).hex()
    ('76', 'b8e0ad')
    """

    __slots__ = ("_bits", "_left")

    def __init__(self, key: bytes | bytearray, nonce: bytes) -> None:
        self._bits, self._left = chacha20(key, nonce), b""

    def bytes(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        missing = count - len(self._left)
        if missing > 0:
            self._left += self._bits.stream(_BLOCK * -(-missing // _BLOCK))
        drawn, self._left = self._left[:count], self._left[count:]
        return drawn


@final
class _PlainChaCha20:
    """All blocks of a request at once, a row of NumPy's for each of a block's four rows."""

    __slots__ = ("_block", "_start")

    def __init__(self, key: bytes | bytearray, nonce: bytes, block: int) -> None:
        import numpy as np  # noqa: PLC0415 - only where `cryptography` is not installed

        self._start = np.frombuffer(b"expand 32-byte k" + bytes(key) + bytes(4) + nonce, "<u4")
        self._block = block

    def stream(self, count: int) -> bytes:
        import numpy as np  # noqa: PLC0415

        blocks = -(-count // _BLOCK)
        start = np.repeat(self._start.reshape(4, 4, 1), blocks, axis=2)
        start[3, 0] = np.arange(self._block, self._block + blocks)
        self._block += blocks
        a, b, c, d = start.copy()
        for turn in range(20):
            a, d = _mixed(a, b, d, 16)
            c, b = _mixed(c, d, b, 12)
            a, d = _mixed(a, b, d, 8)
            c, b = _mixed(c, d, b, 7)
            # Columns and diagonals in turn: the rows below the first are moved there and back.
            by = 1 if turn % 2 else -1
            b, c, d = np.roll(b, by, 0), np.roll(c, 2, 0), np.roll(d, -by, 0)
        words = np.stack([a, b, c, d]) + start
        return bytes(words.reshape(16, blocks).T.astype("<u4").tobytes()[:count])


def _mixed(into: Any, other: Any, turned: Any, by: int) -> tuple[Any, Any]:
    into = into + other
    turned = turned ^ into
    return into, turned << by | turned >> (32 - by)


@final
class _Forks:
    """Tells a process from its parent, also where a number of an ended process is used again."""

    _count = 0

    def forked(self) -> None:
        """This process is the child."""
        self._count += 1

    def process(self) -> tuple[int, int]:
        """Its number, and how many forks it is from the first."""
        return os.getpid(), self._count


_FORKS = _Forks()
if hasattr(os, "register_at_fork"):  # where processes fork at all
    os.register_at_fork(after_in_child=_FORKS.forked)


def this_process() -> tuple[int, int]:
    """What tells this process from its parent and its children, also from ended ones.

    >>> this_process() == this_process()
    True
    """
    return _FORKS.process()
