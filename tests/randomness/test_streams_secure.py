"""The secure stream: ChaCha20 as published, keys that are forgotten, no byte given out twice."""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
import struct
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import chi2

from tacit.errors import BrokenRandomness, InvalidArgument
from tacit.randomness import SecureStream, SystemStream, fresh_stream, streams
from tacit.randomness.streams import _ChaCha20

if TYPE_CHECKING:
    from collections.abc import Callable

_LEVEL = 1e-6

# RFC 8439, section 2.3.2 and appendix A.1: key, nonce, block, key stream.
_VECTORS = [
    (
        bytes(range(32)).hex(),
        "000000090000004a00000000",
        1,
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
    ),
    (
        "00" * 32,
        "00" * 12,
        0,
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
    ),
    (
        "00" * 32,
        "00" * 12,
        1,
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
    ),
    (
        "00" * 31 + "01",
        "00" * 12,
        1,
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
    ),
    (
        "00ff" + "00" * 30,
        "00" * 12,
        2,
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
    ),
    (
        "00" * 32,
        "00" * 11 + "02",
        0,
        "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
        "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d",
    ),
]


def _quarter(x: list[int], a: int, b: int, c: int, d: int) -> None:
    for into, add, turned, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x[into] = (x[into] + x[add]) & 0xFFFFFFFF
        mixed = x[turned] ^ x[into]
        x[turned] = (mixed << by | mixed >> (32 - by)) & 0xFFFFFFFF


def _block(key: bytes, nonce: bytes, block: int) -> bytes:
    """RFC 8439, section 2.3, in plain Python: the oracle."""
    start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574]
    start += [*struct.unpack("<8I", key), block, *struct.unpack("<3I", nonce)]
    x = list(start)
    for _ in range(10):
        for k in range(4):
            _quarter(x, k, 4 + k, 8 + k, 12 + k)
        for k in range(4):
            _quarter(x, k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4)
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(x, start, strict=True)))


def _stream(key: bytes, nonce: bytes, count: int, block: int = 0) -> bytes:
    blocks = range(block, block + (count + 63) // 64)
    return b"".join(_block(key, nonce, one) for one in blocks)[:count]


@pytest.mark.parametrize(("key", "nonce", "block", "expected"), _VECTORS)
def test_the_published_vectors(key: str, nonce: str, block: int, expected: str) -> None:
    arguments = bytes.fromhex(key), bytes.fromhex(nonce), block
    assert _ChaCha20(*arguments).stream(64).hex() == expected
    assert _block(*arguments).hex() == expected  # and the oracle is ChaCha20


def test_long_output_is_one_key_stream() -> None:
    key, nonce = bytes(range(32)), bytes(range(12))
    count = 2 * streams._PIECE + 77
    long = _ChaCha20(key, nonce).stream(count)
    assert len(long) == count
    for place in (0, streams._PIECE - 64, streams._PIECE, count - 77):
        assert long[place : place + 64] == _stream(key, nonce, 64, place // 64)


def test_every_key_is_used_once_and_makes_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    key, nonce = bytes(range(32)), hashlib.sha256(b"noise").digest()[:12]
    monkeypatch.setattr(streams, "entropy", lambda count: bytes(range(count)))
    stream = SecureStream("noise")

    def rekeyed(count: int) -> bytes:
        nonlocal key
        drawn = _stream(key, nonce, 64 + count)
        key = drawn[:32]
        return drawn[64:]

    size = streams._POOL
    pool = rekeyed(size)
    assert [stream.bytes(10), stream.bytes(0), stream.bytes(30)] == [pool[:10], b"", pool[10:40]]
    assert stream.bytes(size + 1) == rekeyed(size + 1)  # a large request leaves the pool as it is
    assert stream.bytes(size - 96) == pool[40:-56]
    assert stream.bytes(100) == rekeyed(size)[:100]  # what the pool has left is too little


def test_what_was_given_out_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    first = os.urandom(32)
    monkeypatch.setattr(streams, "entropy", lambda _: first)
    stream = SecureStream("noise")
    small, large = stream.bytes(100), stream.bytes(streams._POOL + 1)
    (state,) = stream._idle
    assert state._pool[:100] == bytes(100)
    assert state._pool[100:] != bytes(streams._POOL - 100)
    kept = bytes(state._key) + bytes(state._pool)
    assert not any(past in kept for past in (first, small[:8], large[:8]))


def test_streams_are_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SecureStream("noise").bytes(32) != SecureStream("noise").bytes(32)
    monkeypatch.setattr(streams, "entropy", bytes)  # even under the same key
    assert SecureStream("noise").bytes(32) != SecureStream("lots").bytes(32)


def test_bytes_are_uniform() -> None:
    data = np.frombuffer(SecureStream("noise").bytes(1_000_000), dtype=np.uint8)
    expected = len(data) / 256
    statistic = float(((np.bincount(data, minlength=256) - expected) ** 2 / expected).sum())
    assert chi2.ppf(_LEVEL / 2, 255) < statistic < chi2.isf(_LEVEL / 2, 255)


@pytest.mark.parametrize("count", [0, 1, 17, streams._POOL, streams._POOL + 1, (1 << 18) + 1])
def test_the_asked_length(count: int) -> None:
    stream = SecureStream("any")
    drawn = stream.bytes(count)
    assert isinstance(drawn, bytes)
    assert len(drawn) == count
    assert count < 16 or stream.bytes(count) != drawn


def test_threads_share_no_bytes() -> None:
    stream = SecureStream("threads")

    def draw(_: int) -> list[bytes]:
        return [stream.bytes(16 if turn % 50 else 20_000)[:16] for turn in range(2_000)]

    with ThreadPoolExecutor(8) as pool:
        drawn = [one for part in pool.map(draw, range(8)) for one in part]
    assert len(set(drawn)) == 16_000


def test_a_draw_in_the_middle_of_a_draw_shares_no_bytes() -> None:
    stream = SecureStream("signals")  # a signal handler may draw, too
    stream.bytes(1)
    outer, inner = stream._take(), stream._take()
    assert outer is not inner
    assert outer.draw(32) != inner.draw(32)


_FORKING = textwrap.dedent("""
    import os, sys
    from tacit.randomness import SecureStream
    stream = SecureStream("noise")
    stream.bytes(5)
    if sys.argv[1] == "same number":  # the system gives numbers of ended processes out again
        os.getpid = lambda: 1
        stream.bytes(5)
    if sys.argv[1] == "uncounted":  # a fork that Python does not see
        from tacit.randomness.streams import _Forks
        _Forks.process = lambda self: (os.getpid(), 0)
    here, there = os.pipe()
    for _ in range(3):
        if os.fork() == 0:
            os.write(there, stream.bytes(16) + stream.bytes(5000)[:16])
            os._exit(0)
        os.wait()
    found = os.read(here, 96) + stream.bytes(16) + stream.bytes(5000)[:16]
    print(len({found[at : at + 16] for at in range(0, len(found), 16)}))
""")


@pytest.mark.parametrize("case", ["plain", "same number", "uncounted"])
def test_a_forked_child_has_keys_of_its_own(case: str) -> None:
    command = [sys.executable, "-c", _FORKING, case]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "8\n"


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_cannot_be_copied(take: object) -> None:
    with pytest.raises(InvalidArgument, match="cannot be copied or pickled"):
        take(SecureStream("noise"))  # type: ignore[operator]


def test_its_text_shows_no_key() -> None:
    assert repr(SecureStream("noise")) == "SecureStream('noise')"
    assert not hasattr(SecureStream("noise"), "__dict__")


def test_without_the_library_the_system_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(fresh_stream("noise"), SecureStream)
    monkeypatch.setattr(streams, "_has_cryptography", lambda: False)
    assert isinstance(fresh_stream("noise"), SystemStream)
    with pytest.raises(InvalidArgument, match="needs the library cryptography"):
        SecureStream("noise")


def test_the_library_is_imported_only_when_used() -> None:
    code = "import sys, tacit.randomness as r; r.SecureStream('x'); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not {"cryptography", "mpmath", "torch"} & set(found.stdout.split())


def test_it_is_fast() -> None:
    stream, times = SecureStream("speed"), []
    for _ in range(20):
        start = time.thread_time()
        stream.bytes(8 << 20)
        times.append(time.thread_time() - start)
    # A second of the processor's, whoever else uses it: 2.6e9 on the machine this was written on.
    assert (8 << 20) / min(times) > 500e6


def test_refusals() -> None:
    with pytest.raises(InvalidArgument, match=r"purpose must be a text .* got 3"):
        SecureStream(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"count .* got -1"):
        SecureStream("noise").bytes(-1)


def stuck(count: int) -> bytes:
    return bytes(range(count))


@pytest.mark.parametrize("urandom", [bytes, stuck, lambda count: b"\xff" * count])
def test_a_system_that_repeats_itself_is_refused(
    urandom: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", urandom)
    for draw in (lambda: SecureStream("noise").bytes(1), lambda: SystemStream().bytes(1)):
        with pytest.raises(BrokenRandomness, match="repeats itself"):
            draw()


def test_a_cipher_that_gives_only_zeros_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ChaCha20, "fill", lambda *_: None)
    with pytest.raises(BrokenRandomness, match="repeats itself"):
        SecureStream("noise").bytes(1)


def test_a_stream_that_gives_only_zeros_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SecureStream, "bytes", lambda _, count: bytes(count))
    with pytest.raises(BrokenRandomness, match="repeats itself"):
        streams.fresh_stream("noise")
