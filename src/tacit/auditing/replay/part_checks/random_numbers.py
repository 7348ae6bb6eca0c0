"""The laws of random numbers: bits, lots, and noise of every kind, each by an exact test."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy import stats

from tacit.auditing.replay import significance
from tacit.auditing.replay.checks.sampling import allocation_p_values
from tacit.auditing.replay.forbidden.small_run import in_child
from tacit.auditing.replay.report import Finding
from tacit.randomness import (
    GaussianSource,
    RoundedGaussian,
    SystemStream,
    UnsafeSeededStream,
    discrete_gaussian,
    discrete_laplace,
    fresh_stream,
    grid_gaussian,
    grid_laplace,
    included,
    on_grid,
    rounded_gaussian,
    rounded_laplace,
    subset,
)
from tacit.randomness.gaussian import rounded_tiles
from tacit.randomness.inclusion import assigned
from tacit.randomness.streams import SharedStream, _PlainChaCha20, chacha20
from tacit.training.noise import noise_for
from tacit.training.sampling import Groups

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.replay.report import Component


_DRAWS = 20_000
_MOST_CALLS = 20_000  # of a stream, for a few hundred numbers


def _judged(component: Component, check: str, found: dict[str, float]) -> Finding:
    """One finding of several p-values, by name."""
    name = min(found, key=lambda one: found[one])
    p_value = min(1.0, found[name] * len(found))
    return Finding(
        component,
        check,
        p_value > significance.LEVEL,
        f"of {len(found)} laws, that of {name} is the most unusual (p = {p_value:.2g})",
        (("p-value", p_value),),
    )


def bits() -> Finding:
    """Bytes are uniform, and no two streams have any in common, nor a parent and its child."""
    found = {}
    for name, stream in (("lots", fresh_stream("lots")), ("the system", SystemStream())):
        small = b"".join(stream.bytes(count) for count in (1, 7, 100, 3_000) * 20)
        drawn = np.frombuffer(small + stream.bytes(1 << 18), dtype=np.uint8)
        counts = np.bincount(drawn, minlength=256)
        found[f"bytes of {name}"] = _fit(counts, np.full(256, drawn.size / 256))
        bits = int(np.unpackbits(drawn).sum())
        found[f"bits of {name}"] = significance.counts_p_value(bits, 8 * drawn.size, 0.5)
    one, other = fresh_stream("noise"), fresh_stream("noise")
    seeded = UnsafeSeededStream(7, "noise")  # which repeats a run, and nothing within it
    words = [seeded.bytes(16), seeded.bytes(16), UnsafeSeededStream(8, "noise").bytes(16)]
    words += [UnsafeSeededStream(7, "lots").bytes(16)]
    words += [one.bytes(16), one.bytes(16), other.bytes(16), in_child(lambda: one.bytes(16))]
    words.append(one.bytes(16))
    found["what comes again"] = 1.0 if len(set(words)) == len(words) else 0.0
    return _judged("noise", "bits", found)


# RFC 8439, 2.3.2: the block of number 1 under this key and nonce.
_RFC_KEY, _RFC_NONCE = bytes(range(32)), bytes.fromhex("000000090000004a00000000")
_RFC_BLOCK = bytes.fromhex(
    "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
    "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
)


def key_streams() -> Finding:
    """ChaCha20 is the standard's, by the library and without it; a shared key has many streams."""
    wrong = []
    for make in (chacha20, _PlainChaCha20):
        if make(_RFC_KEY, _RFC_NONCE, 1).stream(64) != _RFC_BLOCK:
            wrong.append(f"{make.__name__} is not the standard's")
    plain, fast = _PlainChaCha20(_RFC_KEY, _RFC_NONCE, 3), chacha20(_RFC_KEY, _RFC_NONCE, 3)
    if [plain.stream(n) for n in (64, 6_400)] != [fast.stream(n) for n in (64, 6_400)]:
        wrong.append("the two ways differ in a later block")
    key = os.urandom(32)
    streams = [SharedStream(key, "noise"), SharedStream(key, "noise"), SharedStream(key, "lots")]
    one, same, other = ([stream.bytes(32) for _ in range(3)] for stream in streams)
    if one != same or len({*one, *other}) < 6 or key.hex() in repr(streams):
        wrong.append("a shared key gives other streams, or the same ones twice, or is shown")
    return Finding("noise", "key streams", not wrong, "; ".join(wrong) or "they are")


def inclusion() -> Finding:
    """Records are included at the claimed rate, wherever they are, at rates large and small."""
    stream, found = fresh_stream("lots"), {}
    for count, rate in ((100_000, 0.3), (100_000, 1 / 256), ((1 << 22) + 60_000, 1e-3), (50, 1e-9)):
        inside = included(count, rate, stream)
        name = f"{count:,} records at {rate:.2g}"
        found[name] = significance.counts_p_value(len(inside), count, rate)
        for start, end in ((0, count // 3), (count // 3, count - 50_000), (count - 50_000, count)):
            if 0 < end - start < count:
                some = int(((inside >= start) & (inside < end)).sum())
                p_value = significance.counts_p_value(some, end - start, rate)
                found[f"{name}, from {start:,}"] = p_value
        if len(np.unique(inside)) < len(inside):
            found[f"{name}, twice"] = 0.0
    if (
        len(included(9, 1.0, stream)) != 9
        or len(included(0, 0.5, stream))
        or included(9, 0.0, stream).size
    ):
        found["everybody, and nobody"] = 0.0
    return _judged("sampling", "inclusion", found)


def groups() -> Finding:
    """Records are dealt to groups each by itself: not evenly, nor by who else is there."""
    rounds, records, count = 60, 40, 3
    dealt, moved = np.zeros((rounds, records), dtype=np.int64), 0
    for at in range(rounds):
        made, more = (Groups(records + new, count, fresh_stream("groups")) for new in (0, 1))
        more.load_state_dict(made.state_dict())
        for group in range(count):
            members = made.members(group)
            dealt[at, members] = group
            moved += len(np.setxor1d(members, np.setdiff1d(more.members(group), [records])))
    found = {f"groups, {name}": one for name, one in allocation_p_values(dealt, count).items()}
    return _judged("sampling", "groups", found | {"one record more": 0.0 if moved else 1.0})


def choices() -> Finding:
    """Of too many records, each is as likely to be kept."""
    stream = fresh_stream("lots")
    drawn = [subset(np.arange(40, 60), 7, stream) for _ in range(4_000)]
    counts = np.bincount(np.concatenate(drawn) - 40, minlength=20)
    each = [significance.counts_p_value(int(one), len(drawn), 7 / 20) for one in counts]
    pairs = sum(bool({40, 41} <= set(one.tolist())) for one in drawn)
    together = significance.counts_p_value(pairs, len(drawn), 7 * 6 / (20 * 19))
    sizes = 1.0 if {len(one) for one in drawn} == {7} else 0.0
    found = {"each": significance.corrected(each), "two": together, "their number": sizes}
    return _judged("sampling", "choices", found)


def gaussian() -> Finding:
    """Floating-point noise is normal, in every precision and layout, to its last block."""
    source = GaussianSource(torch.device("cpu"), fresh_stream("noise"))
    found: dict[str, float] = {}
    for kind in (torch.float32, torch.float64):
        for name, tensor in (
            ("a few", torch.empty(2_001, dtype=kind)),
            ("many", torch.empty(300_001, dtype=kind)),
            ("turned", torch.empty(80, 60, dtype=kind).T),
        ):
            source.normal_(tensor, 2.5)
            values = tensor.double().numpy().ravel() / 2.5
            found |= {
                f"{name} in {kind}, {part}": _normal(some)
                for part, some in (("first", values[:1_500]), ("last", values[-1_500:]))
            }
            found[f"{name} in {kind}"] = significance.variance_p_value(values)
            again = values.size - np.unique(np.abs(values)).size
            found[f"{name} in {kind}, again"] = 1.0 if again < 0.05 * values.size else 0.0
    return _judged("noise", "floating point", found)


def _normal(values: NDArray[np.float64]) -> float:
    return significance.corrected(
        [significance.variance_p_value(values), float(stats.kstest(values, "norm").pvalue)]
    )


def whole_numbers() -> Finding:
    """Whole-number noise has the law that it is said to have."""
    stream = fresh_stream("noise")
    values = np.arange(-60, 61)
    wide = 2.0**30
    turned = torch.empty(50, 40, dtype=torch.int64).T
    RoundedGaussian(stream, torch.device("cpu")).integers_(turned, 5.0)
    found = {
        "rounded Gaussian, turned": _pmf(
            turned.numpy().ravel(), np.diff(stats.norm.cdf(_edges(values) / 5.0))
        ),
        "large blocks": _continuous(rounded_gaussian(wide, 70_001, stream)[-6_000:] / wide, "norm"),
    }
    for scale in (0.3, 0.7, 1.0, 2.5):
        found |= {
            f"discrete Laplace of {scale}": _pmf(
                discrete_laplace(scale, _DRAWS, stream), np.exp(-abs(values) / scale)
            ),
            f"discrete Gaussian of {scale}": _pmf(
                discrete_gaussian(scale, _DRAWS, stream), np.exp(-0.5 * (values / scale) ** 2)
            ),
            f"rounded Laplace of {scale}": _pmf(
                rounded_laplace(scale, _DRAWS, stream),
                np.diff(stats.laplace.cdf(_edges(values) / scale)),
            ),
            f"rounded Gaussian of {scale}": _pmf(
                rounded_gaussian(scale, _DRAWS, stream),
                np.diff(stats.norm.cdf(_edges(values) / scale)),
            ),
        }
    for name, draw, law, scale, count in (
        ("discrete Laplace", discrete_laplace, "laplace", 1000.5, 4_000),
        ("discrete Gaussian", discrete_gaussian, "norm", 1000.5, 4_000),
        ("wide discrete Laplace", discrete_laplace, "laplace", wide, 4_000),
        ("wide discrete Gaussian", discrete_gaussian, "norm", wide, 4_000),
        ("wide rounded Laplace", rounded_laplace, "laplace", 1e12, 4_000),
        ("wide rounded Gaussian", rounded_gaussian, "norm", 1e12, 4_000),
        ("exact rounded Laplace", rounded_laplace, "laplace", 2.0**43, 300),
        ("exact rounded Gaussian", rounded_gaussian, "norm", 2.0**43, 300),
    ):
        found[name] = _continuous(draw(scale, count, stream) / scale, law)
    return _judged("noise", "whole numbers", found)


def _edges(values: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.append(values - 0.5, values[-1] + 0.5)


def _pmf(drawn: NDArray[np.int64], weights: NDArray[np.float64]) -> float:
    """How likely whole numbers from -60 to 60 come as often as their weights say."""
    if np.abs(drawn).max() > 60:
        return 0.0
    expected = weights / weights.sum() * drawn.size
    return _fit(np.bincount(drawn + 60, minlength=121), expected)


def _fit(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> float:
    """Pearson's χ², with rare values taken together."""
    often = expected >= 8.0
    found, due = counts[often].astype(float), expected[often]
    if not often.all():
        found = np.append(found, counts[~often].sum())
        due = np.append(due, expected[~often].sum())
    total = float((np.square(found - due) / np.maximum(due, 1e-9)).sum())
    return float(stats.chi2.sf(total, len(due) - 1))


def _continuous(values: NDArray[np.float64], law: str) -> float:
    """The law of numbers of scale 1: its shape, its signs, and its width by an exact law."""
    signs = significance.counts_p_value(int((values > 0).sum()), values.size, 0.5)
    if law == "norm":
        width = significance.variance_p_value(values)
    else:  # twice the sizes of Laplace numbers are χ² of two degrees each
        width = significance.chi_square_p_value(2.0 * float(np.abs(values).sum()), 2 * values.size)
    return significance.corrected([float(stats.kstest(values, law).pvalue), signs, width])


class _Set:
    """A stream of blocks that are set, in turn, where they are not the system's."""

    def __init__(self, *fills: bytes | None) -> None:
        self._fills, self._calls, self._blocks = fills, 0, 0

    def bytes(self, count: int) -> bytes:
        """The next ``count`` bytes: blocks are set, further digits of one number are not."""
        self._calls += 1
        if self._calls > _MOST_CALLS:
            raise RuntimeError("numbers are drawn without an end")
        if count <= 64:
            return os.urandom(count)
        fill = self._fills[self._blocks % len(self._fills)]
        self._blocks += 1
        return os.urandom(count) if fill is None else (fill * count)[:count]


def edge_draws() -> Finding:
    """Numbers whose first digits decide nothing follow their law by the digits after them.

    Of a uniform number whose first 63 digits are 0, -ln has 63·ln 2 above a standard exponential.
    A coin that shows only ones falls as its chance says where that is 1, and else never.
    """
    count, scale = 400, 1000.0
    zeros, ones, none = b"\x00", b"\xff", None
    laplace = np.abs(rounded_laplace(scale, count, _Set(zeros))) / scale - 63 * math.log(2)
    words = torch.zeros(1, 2, count, dtype=torch.int64)
    words[0, 1] = torch.frombuffer(bytearray(os.urandom(8 * count)), dtype=torch.int64)
    first, second = rounded_tiles(words, 1e6, os.urandom(32))[0].numpy() / 1e6
    radii = 0.5 * (first**2 + second**2) - 63 * math.log(2)
    sixth = discrete_gaussian(math.sqrt(6.0), 40, _Set(none, ones))
    low = discrete_laplace(2.0**30, 40, _Set(none, zeros, ones))
    found = {
        "Laplace numbers next to 0": float(stats.kstest(laplace, "expon").pvalue),
        "pairs of normal numbers next to 0": float(stats.kstest(radii, "expon").pvalue),
        "coins of chance 1": 1.0 if (np.abs(sixth) == 2).all() else 0.0,
        "the lowest digits": 1.0 if len(low) == 40 and np.abs(low).max() > 0 else 0.0,
    }
    return _judged("noise", "edges of numbers", found)


def grids() -> Finding:
    """Released numbers lie on a grid, with noise of the claimed law around them."""
    stream, count = fresh_stream("noise"), 4_000
    values = np.linspace(-3.0, 3.0, count)
    laplace = grid_laplace(values, 2.0, 1.0, stream) - values
    gaussian = grid_gaussian(values, 2.0, 1.0, stream) - values
    steps = on_grid(grid_laplace(np.zeros(50), 2.0, 1.0, stream), 2.0**-30)
    even = bool((steps % 2**6 == 0).all())
    found = {
        "Laplace": _continuous(laplace / 2.0, "laplace"),
        "Gaussian": _continuous(gaussian / 2.0, "norm"),
        "the grid": 1.0 if even else 0.0,
    }
    return _judged("noise", "grids", found)


def counts() -> Finding:
    """Counts with noise on a grid are halves, and have the law of rounded Gaussian numbers."""
    noise = noise_for("secure", fresh_stream("noise"), torch.device("cpu"))
    halves = np.array([noise.count(7.5, 1.25) for _ in range(1_000)]) * 2.0 - 15.0
    values = np.arange(-60, 61)
    found = {
        "counts": _pmf(
            np.rint(halves).astype(np.int64), np.diff(stats.norm.cdf(_edges(values) / 2.5))
        ),
        "halves": 1.0 if (halves == np.rint(halves)).all() else 0.0,
    }
    return _judged("noise", "counts", found)


def ties() -> Finding:
    """Where two records draw the same number, all draw again; a source shows nothing of its key."""
    drawn = [subset(np.arange(20), 7, _Set(b"\x00", None)) for _ in range(40)]
    first = sum(bool((one == np.arange(7)).all()) for one in drawn)
    stream, device = fresh_stream("noise"), torch.device("cpu")
    shown = [
        {repr(make()) for _ in range(3)}
        for make in (
            lambda: fresh_stream("noise"),
            lambda: GaussianSource(device, stream),
            lambda: RoundedGaussian(stream, device),
        )
    ]
    dealt = assigned(_DRAWS, 3, _Set(b"\xff", None))  # of which no word of ones may count
    found = {
        "lots that are dealt again": _fit(np.bincount(dealt, minlength=3), np.full(3, _DRAWS / 3)),
        "ties": 1.0 if first < 3 and {len(one) for one in drawn} == {7} else 0.0,
        "what is shown": 1.0 if all(len(one) == 1 for one in shown) else 0.0,
    }
    return _judged("sampling", "ties", found)
