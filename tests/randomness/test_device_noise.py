"""Noise drawn by the kernels: the CPU's numbers, bit for bit, and means as the CPU adds them up.

The oracle is the CPU's path, which its own tests hold to the law and to interval arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from tacit.errors import BrokenRandomness
from tacit.randomness import RoundedGaussian, UnsafeSeededStream, device_noise
from tacit.randomness.device_noise import OPEN, DeviceNoise
from tacit.randomness.gaussian import fill_tiles
from tacit.training.noise import entries_of, grid_step, noise_for, to_steps

from .test_gaussian_rounded import _accepts

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.training.noise import Noise

pytest.importorskip("triton", reason="needs Triton")

_DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
_CPU = torch.device("cpu")
_KEY = bytes(range(7, 39))
_TYPES = [torch.float16, torch.float32, torch.float64]
if _DEVICE.type == "cuda":
    _TYPES.append(torch.bfloat16)  # which the interpreter cuts off where a GPU rounds


@pytest.fixture(autouse=True)
def _wide_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes as long for a program of many lanes as for one of few."""
    if _DEVICE.type == "cpu":
        monkeypatch.setattr(device_noise, "_LANES", 1024)
        monkeypatch.setattr(device_noise, "_PAIRS", 256)


@pytest.fixture
def _unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceNoise, "_check", lambda *_, **__: None)


@pytest.fixture
def _everywhere(monkeypatch: pytest.MonkeyPatch, _unchecked: None) -> None:
    monkeypatch.setattr(device_noise, "serves", lambda *_: True)


def _on_cpu(count: int, scale: float) -> Tensor:
    numbers = torch.empty(count, dtype=torch.int64)
    fill_tiles(numbers, _KEY, scale)
    return numbers


def _there(count: int, scale: float, guard: float | None = None) -> Tensor:
    """Drawn by the kernels; a guard of 1/scale sends all of them through fixed point."""
    numbers = torch.empty(count, dtype=torch.int64, device=_DEVICE)
    noise = DeviceNoise(_DEVICE)
    draw = noise.draw([None], [numbers], scale, means=False, guard=guard or device_noise.GUARD)
    noise.renew(bytearray(_KEY))
    draw.launch()
    assert draw.left_open() == 0
    return numbers.cpu()


@pytest.mark.usefixtures("_unchecked")
@pytest.mark.parametrize(
    ("count", "scale"), [(1, 1.0), (257, 5.0), (8_191, 2.0**20), (4_000, 2.0**25 / 3)]
)
def test_the_numbers_are_those_of_the_cpu(count: int, scale: float) -> None:
    assert torch.equal(_there(count, scale), _on_cpu(count, scale))


@pytest.mark.usefixtures("_unchecked")
def test_doubtful_numbers_are_too() -> None:
    """At 2³³ one number in a thousand is doubtful, and here eight of them are."""
    assert torch.equal(_there(8_192, 2.0**33), _on_cpu(8_192, 2.0**33))


@pytest.mark.usefixtures("_unchecked")
@pytest.mark.parametrize("scale", [pytest.param(1.0, marks=pytest.mark.slow), 2.0**24 / 7])
def test_fixed_point_alone_gives_the_same(scale: float) -> None:
    assert torch.equal(_there(500, scale, 1.0 / scale), _on_cpu(500, scale))


@pytest.mark.usefixtures("_everywhere")
def test_the_law() -> None:
    values = torch.empty(40_000, dtype=torch.int64, device=_DEVICE)
    RoundedGaussian(UnsafeSeededStream(0, "law"), _DEVICE).integers_(values, 5.0)
    numbers = values.cpu().numpy()
    assert _accepts(numbers, 5.0)
    assert not _accepts(numbers, 5.3)
    assert abs(np.corrcoef(numbers[:-128], numbers[128:])[0, 1]) < 5 / 200  # of one pair


@pytest.mark.usefixtures("_everywhere")
def test_a_stream_gives_every_device_the_same() -> None:
    one, other = torch.empty(300, dtype=torch.int64), torch.empty(300, dtype=torch.int64)
    there = other.to(_DEVICE)
    RoundedGaussian(UnsafeSeededStream(3, "same"), _DEVICE).integers_(there, 1000.0)
    fill_tiles(one, UnsafeSeededStream(3, "same").bytes(32), 1000.0)
    assert torch.equal(there.cpu(), one)


@pytest.mark.usefixtures("_everywhere")
def test_what_the_device_leaves_open_is_decided_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of doubtful pairs overflows: nobody sees the numbers that are missing."""
    monkeypatch.setattr(device_noise, "_capacity", lambda *_: 1)
    scale = 2.0**33
    found = torch.empty(8_192, dtype=torch.int64, device=_DEVICE)
    left = DeviceNoise(_DEVICE).integers_(found, scale, bytearray(_KEY))
    assert left > 1
    assert left <= int((found == OPEN).sum()) <= 2 * left
    sums = torch.zeros(8_192, device=_DEVICE)
    out = torch.zeros(8_192, device=_DEVICE)
    noise = DeviceNoise(_DEVICE)
    noise.renew(bytearray(_KEY))
    noise.draw([sums], [out], scale).launch()
    assert torch.equal(out.isnan(), found == OPEN)
    monkeypatch.setattr("tacit.randomness.gaussian.one_time_key", lambda _: bytearray(_KEY))
    RoundedGaussian(UnsafeSeededStream(0, "x"), _DEVICE).integers_(found, scale)
    assert torch.equal(found.cpu(), _on_cpu(8_192, scale))


@pytest.mark.usefixtures("_unchecked")
def test_keys_are_forgotten_and_used_once() -> None:
    out, key, noise = torch.empty(10, device=_DEVICE), bytearray(_KEY), DeviceNoise(_DEVICE)
    draw = noise.draw([None], [out], 8.0)
    noise.renew(key)
    assert not any(key)
    assert bool(noise._key.any())
    draw.launch()
    assert not bool(noise._key.any())
    assert bool(out.isfinite().all())
    draw.launch()  # without a key there would be noise that everybody knows
    assert bool(out.isnan().all())


class _There:
    """Memory of a device that reads what is sent only when it is asked to."""

    device = torch.device("cuda")

    def __init__(self) -> None:
        self.letters: list[Tensor] = []

    def copy_(self, letter: Tensor, *, non_blocking: bool) -> None:
        assert non_blocking
        self.letters.append(letter)


def test_letters_wait_for_the_device_and_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived, capturing = [], [False]

    class Event:
        def record(self, _: object) -> None:
            self.number = len(arrived)
            arrived.append(False)

        def query(self) -> bool:
            assert not capturing[0]
            return arrived[self.number]

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[0])
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    letters, there = device_noise._Letters(), _There()
    for number in range(1, 51):  # a host that is far ahead
        letters.send(np.full(4, number), there)  # type: ignore[arg-type]
    assert [int(letter[0]) for letter in there.letters] == list(range(1, 51))
    capturing[0] = True
    letters.send(np.full(4, 51), there)  # type: ignore[arg-type]
    capturing[0] = False
    arrived[:20] = [True] * 20
    for number in range(52, 72):  # their memory is used again
        letters.send(np.full(4, number), there)  # type: ignore[arg-type]
    assert [int(letter[0]) for letter in there.letters[20:51]] == list(range(21, 52))
    arrived[:] = [True] * len(arrived)
    letters.send(np.full(4, 99), there)  # type: ignore[arg-type]
    held = {int(letter[0]) for letter in there.letters}
    assert held == {0, 51, 99}  # a recording reads its own for ever
    capturing[0] = True
    with pytest.raises(RuntimeError, match="drawn once before it is captured"):
        letters.send(np.full(7, 1), there)  # type: ignore[arg-type]


def test_kernels_are_checked_once_for_each_type(monkeypatch: pytest.MonkeyPatch) -> None:
    noise, out = DeviceNoise(_DEVICE), torch.empty(10, device=_DEVICE)
    noise.draw([None], [out], 8.0)
    monkeypatch.setattr(DeviceNoise, "_check", lambda *_, **__: pytest.fail("again"))
    noise.draw([None], [out.double().float()], 9.0)


@pytest.mark.slow
def test_kernels_that_are_wrong_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    out = torch.empty(10, device=_DEVICE)
    table = device_noise._table().copy()
    table[1, 0] ^= 1 << 40  # a bit of π: in fixed point alone, angles are wrong by 2^-24
    monkeypatch.setattr(device_noise, "_table", lambda: table)
    noise = DeviceNoise(_DEVICE)
    for _ in range(2):  # and again
        with pytest.raises(BrokenRandomness, match="not the right one"):
            noise.draw([None], [out], 8.0)


# ---- means


@pytest.mark.parametrize("kind", ["secure", "exact"])
@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.usefixtures("_unchecked")
def test_means_are_those_of_the_cpu(
    kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = {"a": (70, 11), "b": (0, 3), "c": (), "d": (5,), "e": (40, 33)}
    parameters = {name: torch.zeros(shape, dtype=dtype) for name, shape in shapes.items()}
    parameters["d"] = parameters["d"].double()  # a kind of its own
    generator = torch.Generator().manual_seed(0)
    sums = {
        name: torch.randn(shape, generator=generator)
        for name, shape in shapes.items()
        if name != "c"
    }
    sums["e"] = sums["e"].view(33, 40).t()
    if dtype != torch.float16:
        sums["a"][0, :4] = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e30])
    if kind == "exact":
        step = grid_step(1.0, entries_of(parameters))
        sums = {name: to_steps(value, step) for name, value in sums.items()}

    def means(device: torch.device) -> dict[str, Tensor]:
        noise = noise_for(kind, UnsafeSeededStream(0, "means"), device)
        there = [{n: t.to(device) for n, t in each.items()} for each in (parameters, sums)]
        return noise.means(there[0], there[1], clip=1.0, scale=1.3, lot_size=7.0)

    wanted = means(_CPU)
    monkeypatch.setattr(device_noise, "serves", lambda *_: True)
    found = means(_DEVICE)
    for name, parameter in parameters.items():
        assert found[name].dtype == parameter.dtype
        assert found[name].shape == parameter.shape
        assert torch.equal(found[name].cpu(), wanted[name])


def test_only_scales_that_the_kernels_take_go_there() -> None:
    cuda = torch.device("cuda")
    assert [device_noise.serves(cuda, s) for s in (0.99, 1.0, 2.0**33, 2.0**33 * 1.01)] == [
        False, True, True, False,
    ]  # fmt: skip
    assert not device_noise.serves(_CPU, 100.0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_captured_means_are_those_that_are_not() -> None:
    parameters = {"w": torch.zeros(5_003, device=_DEVICE), "b": torch.zeros(7, 9, device=_DEVICE)}
    sums = {"w": torch.ones(5_003, device=_DEVICE)}
    noise, other = (noise_for("secure", UnsafeSeededStream(5, "g"), _DEVICE) for _ in range(2))

    def means(source: Noise) -> dict[str, Tensor]:
        return source.means(parameters, sums, clip=1.0, scale=1.0, lot_size=8.0)

    wanted = [means(other) for _ in range(40)]  # keys are under way while others are sent
    assert torch.equal(means(noise)["w"], wanted[0]["w"])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = means(noise)
    for one in wanted[1:]:
        noise.renew()
        graph.replay()
        assert all(torch.equal(found[name], one[name]) for name in parameters)
    graph.replay()
    assert all(bool(value.isnan().all()) for value in found.values())
