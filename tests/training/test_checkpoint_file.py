"""Nested state there and back: types of keys and values, tied tensors, hostile documents."""

from __future__ import annotations

import json
import math
import weakref
from collections import Counter, OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch

from tacit.errors import CheckpointError
from tacit.training.checkpoint_file import DEEPEST, Packer, unpack


def there_and_back(value: object) -> Any:
    packer = Packer()
    packed = json.loads(json.dumps(packer.pack(value, "value"), allow_nan=False))
    return unpack(packed, packer.tensors)


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, 2**70, -1.5, 5e-324, math.inf, -math.inf, "ε", [], (), {},
        [1, (2, [3, (None,)])],
        {0: {"betas": (0.9, 0.999)}, "0": False, None: 1, True: 2, 1.5: 3, (1, "a"): 4},
        OrderedDict(b=1, a=2),
        Counter({30: 1, 80: 2}),
        {"tuple": [1], "tensor": "no"},
        torch.bfloat16,
    ],
    ids=repr,
)  # fmt: skip
def test_values_keep_their_type(value: object) -> None:
    got = there_and_back(value)
    assert type(got) is type(value)
    assert repr(got) == repr(value)  # also the types within, and the order


def test_not_a_number_is_kept() -> None:
    assert math.isnan(there_and_back({"best": math.nan})["best"])


def test_numbers_of_numpy_become_pythons() -> None:
    assert there_and_back([np.int64(3), np.float32(0.5), np.bool_(True)]) == [3, 0.5, True]


DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8,
          torch.int16, torch.int32, torch.int64, torch.bool]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)], ids=str)
def test_tensors_keep_type_and_shape(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.arange(math.prod(shape)).reshape(shape).to(dtype)
    got = there_and_back([tensor])[0]
    assert got.dtype == dtype
    assert torch.equal(got, tensor)


def test_one_tensor_is_stored_once_and_other_views_of_it_are_copied() -> None:
    whole = torch.arange(12.0)
    value = {"a": whole, "tied": whole, "part": whole[2:5], "turned": whole.view(3, 4).T,
             "other shape": whole.view(3, 4)}  # fmt: skip
    packer = Packer()
    packed: Any = packer.pack(value, "model")
    assert list(packer.tensors) == ["model.a", "model.part", "model.turned", "model.other shape"]
    assert dict(packed["dict"])["tied"] == {"tensor": "model.a"}
    storages = {tensor.untyped_storage().data_ptr() for tensor in packer.tensors.values()}
    assert len(storages) == 4
    assert all(tensor.is_contiguous() for tensor in packer.tensors.values())
    got = unpack(packed, packer.tensors)
    assert all(torch.equal(got[name], value[name]) for name in value)


def test_a_packed_tensor_lives_as_long_as_the_packer() -> None:
    # Else its address could be given to the next one, which would be taken for the same.
    packer = Packer()
    tensor = torch.ones(3, 4).T  # stored as a copy, for it is not contiguous
    alive = weakref.ref(tensor)
    packer.pack(tensor, "t")
    del tensor
    assert alive() is not None


def test_names_that_meet_are_told_apart() -> None:
    value = {"a": {"b": torch.zeros(1)}, "a.b": torch.ones(1)}
    got = there_and_back(value)
    assert got["a"]["b"] == 0
    assert got["a.b"] == 1


def test_parameters_come_back_as_tensors_without_gradient() -> None:
    got = there_and_back(torch.nn.Parameter(torch.ones(2)))
    assert not got.requires_grad


class Odd(dict[str, int]):
    pass


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda: 1, "scheduler.f is a function, which a checkpoint cannot hold"),
        (b"raw", "is a bytes"),
        ({1, 2}, "is a set"),
        (Odd(a=1), "is a Odd"),
        (Point(1, 2), "is a Point"),
        (np.array([{}]), "is an array of object"),
        (1j, "is a complex"),
        (torch.eye(2).to_sparse(), "only dense tensors with data"),
        (torch.empty(2, device="meta"), "only dense tensors with data"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_held_is_named(value: object, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as refusal:
        Packer().pack({"f": value}, "scheduler")
    assert "scheduler.f" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def _nested(levels: int, kind: str) -> Any:
    found: Any = 0
    for _ in range(levels):
        found = {"a": found} if kind == "dict" else (found,) if kind == "tuple" else [found]
    return found


@pytest.mark.parametrize("kind", ["list", "tuple", "dict"])
def test_state_that_is_nested_too_deep_is_refused_in_one_line(kind: str) -> None:
    assert there_and_back(_nested(DEEPEST, kind)) == _nested(DEEPEST, kind)
    for levels in (DEEPEST + 2, 3_000):
        with pytest.raises(CheckpointError, match=r"^scheduler.*more than 100 deep") as refusal:
            Packer().pack(_nested(levels, kind), "scheduler")
        assert "\n" not in str(refusal.value)
        assert len(str(refusal.value)) < 250


def test_state_that_holds_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(CheckpointError, match="or holds itself"):
        Packer().pack(endless, "scheduler")


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"tuple": [], "dict": []},
        {"call": ["os.system", "true"]},
        {"tuple": 3},
        {"dict": {"a": 1}},
        {"dict": [["a"]]},
        {"dict": [["a", 1, 2]]},
        {"dict": [[["list"], 1]]},
        {"dict": [[{"dict": []}, 1]]},
        {"float": "1e5"},
        {"float": ["inf"]},
        {"dtype": "Tensor"},
        {"dtype": ["float32"]},
        {"tensor": "elsewhere"},
        {"tensor": ["a"]},
        {"tuple": [{"tensor": "x" * 1000}]},
    ],
    ids=str,
)
def test_documents_that_pack_never_wrote_are_refused(document: object) -> None:
    with pytest.raises(CheckpointError) as refusal:
        unpack(document, {"a": torch.zeros(1)})
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 200
