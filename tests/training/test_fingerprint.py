"""What the host does for the kernel of fingerprints, with a stand-in for the kernel on the CPU."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tacit.errors import Diverged, ProtocolError, UnsupportedModel
from tacit.training import fingerprint
from tacit.training.fingerprint import Fingerprint
from tacit.training.guards import Guard

if TYPE_CHECKING:
    from torch import Tensor

WORDS = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


class StandIn:
    """``kernels.hashed`` in NumPy: it reads the memory at the addresses that it is given."""

    def __getitem__(self, grid: tuple[int]) -> Any:
        def launch(table: Tensor, secret: Tensor, *rest: Tensor, **given: Any) -> None:
            noted, differs, wild, flags = rest
            assert grid == (len(table),) == (len(noted),) == (len(differs),) == (len(wild),)
            for piece in range(len(table)):
                address, count, exponent = map(int, table[piece])
                words = _words(address, count, given["BITS"])
                total = _hash(words, secret.numpy(), given["LANES"], given["ROWS"])
                if given["NOTING"]:
                    noted[piece] = total
                    if exponent and ((words & exponent) == exponent).any():
                        wild[piece] = flags[1] = 1
                elif total != int(noted[piece]):
                    differs[piece] = flags[0] = 1

        return launch


def _words(address: int, count: int, bits: int) -> Any:
    memory = (ctypes.c_char * (count * bits // 8)).from_address(address)
    return np.frombuffer(memory, WORDS[bits]).astype(np.int64)


def _hash(words: Any, secret: Any, lanes: int, rows: int) -> int:
    key, keys = secret[:lanes].copy(), []
    with np.errstate(over="ignore"):
        for _ in range(rows):
            keys.append(key)
            key = key * secret[lanes] + secret[lanes + 1]
        return int(np.sum(words * np.concatenate(keys)[: len(words)], dtype=np.int64))


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the CPU are taken for those of a device."""
    kernels = types.ModuleType("tacit.training.kernels")
    kernels.hashed = StandIn()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tacit.training.kernels", kernels)
    monkeypatch.setattr(fingerprint, "_for_kernel", fingerprint.is_packed)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool]
)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (17_000,), (40_000,), (2, 3, 4, 5)])
@pytest.mark.parametrize("few", [0, 1 << 22], ids=["long pieces", "short pieces"])
def test_every_word_of_every_tensor_is_read(
    few: int, dtype: torch.dtype, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint, "_FEW_WORDS", few)
    generator = torch.Generator().manual_seed(1)
    values = (torch.randn(shape, generator=generator) > 0).to(dtype)
    tensors = {"a": torch.zeros(4), "b": values, "c": values.new_ones(3), "d": torch.zeros(0)}
    flat = values.view(-1)
    for place in {0, len(flat) // 2, len(flat) - 1}:
        found = Fingerprint(tensors)
        found.note()
        found.compare()
        assert found.changed(wait=True) == []
        kept = flat[place].clone()
        flat[place] = ~kept if dtype == torch.bool else kept + 1
        found.compare()
        found.note()  # what was seen once is not forgotten
        assert found.changed(wait=True) == ["b"]
        flat[place] = kept


@pytest.mark.parametrize("finite", [frozenset(), frozenset("b")])
@pytest.mark.parametrize(
    ("before", "after"),
    [(torch.tensor([1.5]).double(), -1.5), (torch.zeros(1, dtype=torch.int64), -(2**63))],
    ids=["sign", "highest bit"],
)
def test_the_highest_bits_of_long_words_are_read_with_every_key(
    before: torch.Tensor, after: float, finite: frozenset[str]
) -> None:
    """A hash of 64 bits of words of 64 bits passed every other change of a sign by."""
    for _ in range(40):
        values = before.clone()
        found = Fingerprint({"b": values}, finite=finite)
        values[0] = after
        found.compare()
        assert found.changed(wait=True) == ["b"]


def test_memory_that_was_replaced_is_not_read() -> None:
    weight = torch.nn.Parameter(torch.zeros(5))
    found = Fingerprint({"w": weight})
    weight.data = torch.zeros(5)
    found.compare()
    assert found.changed(wait=True) == ["w"]
    found.note()
    assert found.changed(wait=True) == ["w"]


def test_only_what_must_be_finite_is_asked_about() -> None:
    tensors = {name: torch.ones(20_000) for name in "ab"}
    found = Fingerprint(tensors, finite=frozenset("a"))
    tensors["b"][3] = float("nan")
    found.note()
    assert found.not_finite(wait=True) == []
    tensors["a"][19_999] = float("inf")
    found.note()
    assert found.not_finite(wait=True) == ["a"]


@pytest.mark.parametrize("on_device", [True, False])
@pytest.mark.parametrize("harm", ["none", "changed", "moved", "wild"])
def test_there_is_alarm_exactly_where_something_was_found(
    harm: str, on_device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint, "_for_kernel", lambda _: on_device)
    weights = {"v": torch.ones(3), "w": torch.ones(20_000)}
    found = Fingerprint(weights, finite=frozenset("w"))
    if harm == "changed":
        weights["w"].numpy()[19_999] = 2.0
    elif harm == "moved":
        weights["w"].data = torch.ones(2, 10_000)
    found.check_places()
    found.compare()
    if harm == "wild":
        weights["w"].numpy()[0] = float("nan")
        found.note()
    assert found.is_alarmed == (harm != "none")
    assert found.changed(wait=True) == (["w"] if harm in {"changed", "moved"} else [])
    assert found.not_finite(wait=True) == (["w"] if harm == "wild" else [])


@pytest.mark.parametrize("when", ["lot", "step"])
@pytest.mark.parametrize("where", ["weight", "statistics"])
def test_a_guard_refuses_what_a_device_has_found(where: str, when: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    guard = Guard(model, dict(model.named_parameters()), [])
    guard.check_before_lot()
    guard.check_before_step(compare=False)
    guard.compare_values()
    changed = model[0].weight if where == "weight" else model[1].running_mean
    changed.detach().numpy().flat[1] = 7.0
    guard.compare_values()  # by the recorded update, say: the answer comes later
    kind, name = (ProtocolError, "0.weight") if where == "weight" else (UnsupportedModel, "running")
    with pytest.raises(kind, match=name):
        if when == "lot":
            guard.check_before_lot()
        else:
            guard.check_before_step(compare=False)
    guard.close()


def test_a_guard_refuses_weights_that_lie_elsewhere_before_they_are_read() -> None:
    model = torch.nn.Linear(3, 2)
    guard = Guard(model, dict(model.named_parameters()), [])
    model.weight.data = model.weight.data.clone()
    with pytest.raises(ProtocolError, match="weight"):
        guard.check_before_step(compare=False)
    guard.close()


def test_a_guard_ends_a_run_whose_weights_are_not_finite() -> None:
    model = torch.nn.Linear(3, 2)
    guard = Guard(model, dict(model.named_parameters()), [])
    model.bias.detach().numpy()[1] = float("inf")
    guard.note_step()
    guard.check_before_step(compare=False)
    with pytest.raises(Diverged, match="bias"):
        guard.check_before_lot()
    guard.close()


@pytest.mark.parametrize("finite", [1e38, 3e38, -3e38])
def test_large_numbers_whose_sum_overflows_are_finite(
    finite: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint, "_for_kernel", lambda _: False)
    weights = {"w": torch.full((100,), finite)}
    found = Fingerprint(weights, finite=frozenset("w"))
    assert found.not_finite() == []
    for wild in (float("inf"), -float("inf"), float("nan")):
        weights["w"][7] = wild
        found.note()
        assert found.not_finite() == ["w"]
        weights["w"][7] = finite


@pytest.mark.parametrize("small", [0, 1 << 22], ids=["tagged", "kept"])
def test_on_the_cpu_whatever_says_what_numbers_are_is_seen(
    small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is read where it lay the last time: what lies there must still be the tensor."""
    monkeypatch.setattr(fingerprint, "_for_kernel", lambda _: False)
    monkeypatch.setattr(fingerprint, "_SMALL", small)

    def changed(act: Any) -> list[str]:
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(1, 6))
        found = Fingerprint({"w": weight})
        for _ in range(3):
            found.compare()
            assert found.changed() == []
            found.note()
        kept = act(weight)
        found.compare()
        del kept
        return found.changed()

    def swapped(weight: Any, other: Tensor) -> Tensor:
        before = weight.data
        weight.data = other
        return before

    assert changed(lambda w: swapped(w, w.data.clone())) == []  # the same numbers elsewhere
    assert changed(lambda w: swapped(w, w.data + 1e-6)) == ["w"]
    assert changed(lambda w: swapped(w, w.data.view(6, 1))) == ["w"]
    assert changed(lambda w: swapped(w, w.data.view(6))) == ["w"]
    assert changed(lambda w: swapped(w, torch._neg_view(w.data))) == ["w"]
    assert changed(lambda w: swapped(w, w.data.view(torch.int32).view(torch.float32))) == []
    assert changed(lambda w: w.data.numpy().view(np.uint8).__setitem__((0, 3), 0)) == ["w"]
    assert changed(lambda w: swapped(w, torch.cat([w.data, w.data]).mT[:, :1].mT)) == []
