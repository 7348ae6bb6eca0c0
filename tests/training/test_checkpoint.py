"""Checkpoints: the next updates after a restore, damage at every byte, and files of others."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import struct
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim import lr_scheduler as schedulers
from torch.optim.swa_utils import SWALR, AveragedModel

from tacit import _files
from tacit.errors import CheckpointError, TacitError
from tacit.training import checkpoint, checkpoint_file
from tacit.training.checkpoint import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    Optimizer = torch.optim.Optimizer

PLAN = '{"examples": 100, "σ": 1.0}'


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def matrices(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.ndim == 2]


OPTIMIZERS: dict[str, Callable[[nn.Module], Optimizer]] = {
    "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=0.1),
    "momentum": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda m: torch.optim.Adam(m.parameters(), lr=0.1, betas=(0.8, 0.95)),
    "adam, lr as a tensor": lambda m: torch.optim.Adam(m.parameters(), lr=torch.tensor(0.1)),
    "adamw, amsgrad": lambda m: torch.optim.AdamW(m.parameters(), lr=0.1, amsgrad=True),
    "rmsprop": lambda m: torch.optim.RMSprop(m.parameters(), momentum=0.5, centered=True),
    "adagrad": lambda m: torch.optim.Adagrad(m.parameters(), lr=0.1, lr_decay=0.1),
    "adadelta": lambda m: torch.optim.Adadelta(m.parameters()),
    "nadam": lambda m: torch.optim.NAdam(m.parameters(), lr=0.1),
    "radam": lambda m: torch.optim.RAdam(m.parameters(), lr=0.1),
    "adamax": lambda m: torch.optim.Adamax(m.parameters(), lr=0.1),
    "asgd": lambda m: torch.optim.ASGD(m.parameters(), lr=0.1, t0=1),
    "rprop": lambda m: torch.optim.Rprop(m.parameters(), lr=0.1),
    "adafactor": lambda m: torch.optim.Adafactor(m.parameters(), lr=0.1),
    "muon": lambda m: torch.optim.Muon(matrices(m), lr=0.1),
    "two groups": lambda m: torch.optim.Adam(
        [{"params": matrices(m), "lr": 0.01, "betas": (0.5, 0.6)},
         {"params": [p for p in m.parameters() if p.ndim == 1]}], lr=0.1),
    "named": lambda m: torch.optim.Adam(m.named_parameters(), lr=0.1),
}  # fmt: skip
SCHEDULERS: dict[str, Callable[[Optimizer], Any]] = {
    "lambda": lambda o: schedulers.LambdaLR(o, lambda step: 0.9**step),
    "step": lambda o: schedulers.StepLR(o, 2),
    "multi-step": lambda o: schedulers.MultiStepLR(o, [2, 4, 4]),
    "exponential": lambda o: schedulers.ExponentialLR(o, 0.9),
    "cosine": lambda o: schedulers.CosineAnnealingLR(o, 10),
    "warm restarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 3),
    "one cycle": lambda o: schedulers.OneCycleLR(o, 0.3, total_steps=20),
    "cyclic": lambda o: schedulers.CyclicLR(o, 0.01, 0.1, step_size_up=3),
    "linear": schedulers.LinearLR,
    "polynomial": lambda o: schedulers.PolynomialLR(o, 10),
    "sequential": lambda o: schedulers.SequentialLR(
        o, [schedulers.LinearLR(o, total_iters=2), schedulers.ExponentialLR(o, 0.9)], [2]),
    "chained": lambda o: schedulers.ChainedScheduler(
        [schedulers.LinearLR(o), schedulers.ExponentialLR(o, 0.9)], o),
    "averaging": lambda o: SWALR(o, swa_lr=0.05),
}  # fmt: skip


def descend(model: nn.Module, stepped: Iterable[Any], steps: range) -> None:
    """Deterministic updates: optimizers, then schedulers, in the order given."""
    x = torch.linspace(-1, 1, 20).view(5, 4)
    for step in steps:
        model.zero_grad()
        ((model(x + 0.1 * step) - 0.3) ** 2).mean().backward()
        for one in stepped:
            one.step()


def save(path: Path, model: nn.Module, optimizers: list[Optimizer], **state: Any) -> None:
    checkpoint.write(
        path, model=model, optimizers=optimizers, state=state, plan_json=PLAN, steps_taken=4
    )


def identical(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor):
        same = first.dtype == second.dtype and first.shape == second.shape
        return same and torch.equal(first, second)
    if isinstance(first, dict):
        return list(first) == list(second) and all(identical(first[k], second[k]) for k in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(identical, first, second))
    return type(first) is type(second) and bool(first == second)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_the_next_updates_are_those_of_an_unbroken_run(
    make: Callable[[nn.Module], Optimizer], tmp_path: Path
) -> None:
    model = network()
    optimizer = make(model)
    descend(model, [optimizer], range(4))
    save(tmp_path / "run", model, [optimizer])
    descend(model, [optimizer], range(4, 9))

    again = network()
    other = make(again)
    descend(again, [other], range(2))  # it need not be fresh
    checkpoint.restore(checkpoint.read(tmp_path / "run"), model=again, optimizers=[other], state={})
    before = copy.deepcopy(again.state_dict())
    descend(again, [other], range(4, 9))
    assert identical(dict(again.state_dict()), dict(model.state_dict()))
    assert identical(other.state_dict(), optimizer.state_dict())
    assert not identical(dict(again.state_dict()), dict(before))


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=SCHEDULERS.keys())
def test_schedules_go_on(make: Callable[[Optimizer], Any], tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = make(optimizer)
    descend(model, [optimizer, scheduler], range(3))
    save(tmp_path / "run", model, [optimizer], scheduler=scheduler)
    descend(model, [optimizer, scheduler], range(3, 8))

    again = network()
    other = torch.optim.SGD(again.parameters(), lr=0.1, momentum=0.9)
    next_scheduler = make(other)
    checkpoint.restore(
        checkpoint.read(tmp_path / "run"),
        model=again, optimizers=[other], state={"scheduler": next_scheduler},
    )  # fmt: skip
    descend(again, [other, next_scheduler], range(3, 8))
    assert identical(dict(again.state_dict()), dict(model.state_dict()))
    assert next_scheduler.get_last_lr() == scheduler.get_last_lr()
    assert type(getattr(next_scheduler, "milestones", None)) is type(
        getattr(scheduler, "milestones", None)
    )


def test_a_plateau_is_remembered(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = schedulers.ReduceLROnPlateau(optimizer, patience=1)
    save(tmp_path / "fresh", model, [optimizer], plateau=scheduler)  # its best is infinite
    for value in (1.0, 2.0):
        scheduler.step(value)
    save(tmp_path / "later", model, [optimizer], plateau=scheduler)
    scheduler.step(3.0)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)
    for name, rate in (("fresh", 0.1), ("later", 0.01)):
        checkpoint.restore(
            checkpoint.read(tmp_path / name),
            model=model, optimizers=[optimizer], state={"plateau": scheduler},
        )  # fmt: skip
        scheduler.step(3.0)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate)


def test_several_optimizers_and_an_average_of_weights(tmp_path: Path) -> None:
    model = network()
    average = AveragedModel(model)
    optimizers: list[Optimizer] = [
        torch.optim.Adam(model[0].parameters()), torch.optim.SGD(model[2].parameters(), lr=0.1)
    ]  # fmt: skip
    for step in range(3):
        descend(model, optimizers, range(step, step + 1))
        average.update_parameters(model)
    save(tmp_path / "run", model, optimizers, ema=average)
    held = copy.deepcopy(average.state_dict())
    descend(model, optimizers, range(3, 5))
    average.update_parameters(model)
    checkpoint.restore(
        checkpoint.read(tmp_path / "run"), model=model, optimizers=optimizers,
        state={"ema": average},
    )  # fmt: skip
    assert identical(dict(average.state_dict()), dict(held))
    assert held["n_averaged"] == 3


def test_what_was_read_is_the_value_that_was_written(tmp_path: Path) -> None:
    model = network()
    save(tmp_path / "run", model, [torch.optim.SGD(model.parameters(), lr=0.1)])
    got = checkpoint.read(tmp_path / "run")
    assert isinstance(got, Checkpoint)
    assert (got.plan_json, got.steps_taken) == (PLAN, 4)
    assert identical(dict(got.model), dict(model.state_dict()))
    assert got.optimizers[0].kind == "SGD"
    assert got.optimizers[0].shapes == (((6, 4), (6,), (3, 6), (3,)),)
    with pytest.raises(dataclasses.FrozenInstanceError):
        got.steps_taken = 0  # type: ignore[misc]


def test_a_checkpoint_is_not_changed_by_those_it_was_restored_into(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    descend(model, [optimizer], range(3))
    save(tmp_path / "run", model, [optimizer])
    got = checkpoint.read(tmp_path / "run")
    held = copy.deepcopy((dict(got.model), dict(got.optimizers[0].values)))
    checkpoint.restore(got, model=model, optimizers=[optimizer], state={})
    descend(model, [optimizer], range(3))
    assert identical((dict(got.model), dict(got.optimizers[0].values)), held)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("row", self.embedding.weight.detach()[1])


def test_tied_weights_are_stored_once_and_stay_tied(tmp_path: Path) -> None:
    model, other = Tied(), Tied()
    save(tmp_path / "run", model, [torch.optim.SGD(model.parameters(), lr=0.1)])
    assert sorted(load_file(tmp_path / "run")) == ["model.embedding.weight", "model.row"]
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    checkpoint.restore(
        checkpoint.read(tmp_path / "run"), model=other, optimizers=[optimizer], state={}
    )
    assert other.head.weight is other.embedding.weight
    assert torch.equal(other.head.weight, model.head.weight)


def test_half_precision_and_whole_numbers_are_kept(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2).to(torch.bfloat16), nn.BatchNorm1d(2))
    save(tmp_path / "run", model, [])
    got = checkpoint.read(tmp_path / "run").model
    assert got["0.weight"].dtype == torch.bfloat16
    assert got["1.num_batches_tracked"].dtype == torch.int64


@pytest.mark.filterwarnings("ignore:`torch.jit")  # torch's own, on importing its compiler
def test_a_compiled_model_has_the_names_of_its_own(tmp_path: Path) -> None:
    model = network()
    save(tmp_path / "run", torch.compile(model), [])
    assert set(checkpoint.read(tmp_path / "run").model) == set(model.state_dict())
    checkpoint.restore(
        checkpoint.read(tmp_path / "run"), model=torch.compile(network()), optimizers=[], state={}
    )


# What is refused, and that nothing was changed by it.


def other_networks() -> dict[str, tuple[nn.Module, str]]:
    wide, half, more = network(), network(), network()
    wide[2] = nn.Linear(6, 4)
    half[0] = half[0].double()
    more.add_module("extra", nn.Linear(3, 3))
    return {
        "shape": (wide, r"the model's '2.weight' has the shape \(4, 6\), and \(3, 6\) in the"),
        "type": (half, r"the model's '0.weight' has the type torch.float64, and torch.float32"),
        "more": (more, r"the checkpoint lacks 'extra.bias' and 1 more of the model"),
        "fewer": (network()[:2], r"the checkpoint holds '2.bias' and 1 more, which the model has"),
    }


@pytest.mark.parametrize("name", other_networks())
def test_another_model_is_refused(name: str, tmp_path: Path) -> None:
    model, message = other_networks()[name]
    save(tmp_path / "run", network(), [])
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(CheckpointError, match=message) as refusal:
        checkpoint.restore(checkpoint.read(tmp_path / "run"), model=model, optimizers=[], state={})
    assert "\n" not in str(refusal.value)
    assert identical(dict(model.state_dict()), dict(before))


@pytest.mark.parametrize(
    "state", [None, [], {9: {}}, {"a": {}}, {0: 1.0}], ids=["none", "list", "9", "a", "number"]
)
def test_what_an_optimizer_cannot_remember_is_refused(state: Any, tmp_path: Path) -> None:
    model = network()
    save(tmp_path / "run", model, [sgd(model.parameters())])
    got = checkpoint.read(tmp_path / "run")
    (saved,) = got.optimizers
    values = {"param_groups": saved.values["param_groups"]}
    if state is not None:
        values["state"] = state
    got = dataclasses.replace(got, optimizers=(dataclasses.replace(saved, values=values),))
    with pytest.raises(CheckpointError, match="optimizer 0 remembers nothing of its parameters"):
        checkpoint.restore(got, model=model, optimizers=[sgd(model.parameters())], state={})


def sgd(parameters: Any) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


OTHERS: dict[str, tuple[Callable[[nn.Module], list[Optimizer]], str]] = {
    "none": (lambda _: [], r"the checkpoint is of 1 optimizers, got 0"),
    "kind": (lambda m: [torch.optim.Adam(m.parameters())],
             r"optimizer 0 is a Adam, and a SGD in the checkpoint"),
    "order": (lambda m: [sgd([*m.parameters()][::-1])],
              r"another order .*\(parameter 0: \(3,\) here, \(6, 4\) there\)"),
    "groups": (lambda m: [sgd([{"params": [*part.parameters()]} for part in (m[0], m[2])])],
               r"parameters by group: \[2, 2\] here, \[4\] there"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "message"), OTHERS.values(), ids=OTHERS.keys())
def test_other_optimizers_are_refused(
    make: Callable[[nn.Module], list[Optimizer]], message: str, tmp_path: Path
) -> None:
    first, model = network(), nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    optimizer = sgd(first.parameters())
    descend(first, [optimizer], range(2))
    save(tmp_path / "run", first, [optimizer])
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(CheckpointError, match=message):
        checkpoint.restore(
            checkpoint.read(tmp_path / "run"), model=model, optimizers=make(model), state={}
        )
    assert identical(dict(model.state_dict()), dict(before))


class Counting:
    """State of a user's own, that may refuse what it is given."""

    def __init__(self, count: int, *, stubborn: bool = False) -> None:
        self.count = count
        self.stubborn = stubborn

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.stubborn:
            raise RuntimeError("not\nme")
        self.count = state["count"]


def test_other_state_is_refused(tmp_path: Path) -> None:
    model = network()
    save(tmp_path / "run", model, [], counter=Counting(3))
    got = checkpoint.read(tmp_path / "run")
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "the checkpoint holds 'counter', which state has not"),
        ({"counter": Counting(0), "ema": Counting(0)}, "the checkpoint lacks 'ema' of state"),
        ({"counter": network()}, "state 'counter' is a Sequential, and a Counting in the"),
    ]
    for state, message in cases:
        with pytest.raises(CheckpointError, match=message):
            checkpoint.restore(got, model=model, optimizers=[], state=state)


def test_a_failing_load_puts_everything_back(tmp_path: Path) -> None:
    first = network()
    optimizer = sgd(first.parameters())
    descend(first, [optimizer], range(2))
    save(tmp_path / "run", first, [optimizer], one=Counting(3), two=Counting(4))
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    other = sgd(model.parameters())
    one = Counting(1)
    before = copy.deepcopy((dict(model.state_dict()), other.state_dict()))
    with pytest.raises(CheckpointError, match="into state 'two': RuntimeError: not me"):
        checkpoint.restore(
            checkpoint.read(tmp_path / "run"), model=model, optimizers=[other],
            state={"one": one, "two": Counting(2, stubborn=True)},
        )  # fmt: skip
    assert one.count == 1
    assert identical((dict(model.state_dict()), other.state_dict()), before)


def small_file(path: Path) -> bytes:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    save(path, model, [optimizer], counter=Counting(1))
    return path.read_bytes()


def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    whole = small_file(tmp_path / "run")
    for length in [*range(64), *range(64, len(whole), 37), len(whole) - 1]:
        (tmp_path / "cut").write_bytes(whole[:length])
        with pytest.raises(CheckpointError) as refusal:
            checkpoint.read(tmp_path / "cut")
        assert "\n" not in str(refusal.value)
    (tmp_path / "long").write_bytes(whole + b"\0")
    with pytest.raises(CheckpointError):
        checkpoint.read(tmp_path / "long")


def test_a_changed_byte_anywhere_is_refused(tmp_path: Path) -> None:
    whole = small_file(tmp_path / "run")
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    for position in [*range(0, header, 11), *range(header, len(whole), 3)]:
        if whole[position : position + 1] == b" ":
            continue  # the padding of the header, and blanks between values, mean nothing
        spoilt = bytearray(whole)
        spoilt[position] ^= 0x01
        (tmp_path / "spoilt").write_bytes(spoilt)
        with pytest.raises(CheckpointError) as refusal:
            checkpoint.read(tmp_path / "spoilt")
        assert "\n" not in str(refusal.value)


class Hostile:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self.target), "w"))


def test_a_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    for name, write in {
        "pickle": lambda path: path.write_bytes(pickle.dumps(Hostile(tmp_path / "ran"))),
        "torch": lambda path: torch.save({"model": Hostile(tmp_path / "ran")}, path),
    }.items():
        write(tmp_path / name)
        with pytest.raises(CheckpointError, match="truncated, damaged or no safetensors file"):
            checkpoint.read(tmp_path / name)
    assert not (tmp_path / "ran").exists()
    pickle.loads((tmp_path / "pickle").read_bytes()).close()  # the trap works
    assert (tmp_path / "ran").exists()


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "plain")
    save_file({"a": torch.ones(2)}, tmp_path / "hf", metadata={"format": "pt"})
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("a note")
    (tmp_path / "folder").mkdir()
    for name, message in {
        "plain": "is a safetensors file, but not a checkpoint of tacit's",
        "hf": "is a safetensors file, but not a checkpoint of tacit's",
        "empty": "truncated",
        "text": "no safetensors file",
        "folder": "folder",
        "absent": "cannot read the checkpoint .*absent",
    }.items():
        with pytest.raises(CheckpointError, match=message) as refusal:
            checkpoint.read(tmp_path / name)
        assert "\n" not in str(refusal.value)


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as future:
        future.setattr(checkpoint_file, "VERSION", 2)
        save(tmp_path / "run", network(), [])
    with pytest.raises(CheckpointError, match=r"of format '2', and this tacit .* reads format 1"):
        checkpoint.read(tmp_path / "run")


@pytest.mark.parametrize(
    "change",
    [
        {"model": [1]},
        {"model": {"call": "os.system"}},
        {"model": {"dict": [["0.weight", {"tensor": "nowhere"}]]}},
        {"optimizers": 3},
        {"optimizers": [{"kind": "SGD"}]},
        {"optimizers": [{"kind": "SGD", "shapes": [[["a"]]], "values": {"dict": []}}]},
        {"optimizers": ["SGD"]},
        {"state": []},
        {"state": {"a": {"kind": 3, "values": {"dict": []}}}},
        {"plan": 3},
        {"steps_taken": -1},
        {"steps_taken": "4"},
        {"steps_taken": 1.5},
    ],
    ids=str,
)
def test_a_forged_document_with_the_right_checksum_is_refused(
    change: dict[str, object], tmp_path: Path
) -> None:
    save(tmp_path / "run", network(), [])
    document, tensors = checkpoint_file.read(tmp_path / "run")
    checkpoint_file.write(tmp_path / "run", document, tensors)
    checkpoint.read(tmp_path / "run")  # the forger's way works
    checkpoint_file.write(tmp_path / "forged", document | change, tensors)
    with pytest.raises(CheckpointError, match="is not a valid checkpoint") as refusal:
        checkpoint.read(tmp_path / "forged")
    assert "\n" not in str(refusal.value)


def test_a_bottomless_document_is_refused(tmp_path: Path) -> None:
    text = json.dumps({"model": 1}).replace("1", "[" * 200_000 + "]" * 200_000)
    metadata = {"format": "tacit-checkpoint", "version": "1", "document": text}
    metadata["sha256"] = checkpoint_file._digest(text, {})
    save_file({}, tmp_path / "deep", metadata=metadata)
    with pytest.raises(CheckpointError):
        checkpoint.read(tmp_path / "deep")


# Writing.


def test_a_failed_write_leaves_the_previous_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = small_file(tmp_path / "run")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for function in ("fsync", "replace"):
        with monkeypatch.context() as broken:
            broken.setattr(_files.os, function, full)
            with pytest.raises(CheckpointError, match=r"cannot write .*No space left on device"):
                save(tmp_path / "run", network(), [])
    with pytest.raises(CheckpointError, match=r"state\.odd\.f is a function"):
        save(tmp_path / "run", network(), [], odd=Odd())
    with pytest.raises(CheckpointError, match=r"state\.deep\.0.* is nested more than 100 deep"):
        save(tmp_path / "run", network(), [], deep=Deep())
    assert (tmp_path / "run").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


class Deep:
    def state_dict(self) -> dict[int, Any]:
        found: dict[int, Any] = {}
        for _ in range(3_000):
            found = {0: found}
        return found

    def load_state_dict(self, state: dict[int, Any]) -> None:
        del state


class Odd:
    def state_dict(self) -> dict[str, Any]:
        return {"f": small_file}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        del state


def test_everything_is_on_the_disk_before_the_file_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    real_fsync, real_replace = _files.os.fsync, _files.os.replace

    def fsync(descriptor: int) -> None:
        order.append("flush")
        real_fsync(descriptor)

    def replace(old: Path, new: Path) -> None:
        order.append("move")
        assert old.parent == new.parent
        real_replace(old, new)

    monkeypatch.setattr(_files.os, "fsync", fsync)
    monkeypatch.setattr(_files.os, "replace", replace)
    save(tmp_path / "run", network(), [])
    assert order == ["flush", "move", "flush"]  # the file, then the folder's entry for it


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot write the checkpoint .*absent"):
        save(tmp_path / "absent" / "run", network(), [])


def test_steps_are_counted_in_whole_numbers(tmp_path: Path) -> None:
    with pytest.raises(TacitError, match="steps_taken must be a whole number, 0 or more, got -1"):
        checkpoint.write(
            tmp_path / "run", model=network(), optimizers=[], state={}, plan_json="{}",
            steps_taken=-1,
        )  # fmt: skip


def test_content_in_memory_is_that_of_a_file_and_refused_alike() -> None:
    tensors = {"a": torch.arange(3.0)}
    content = checkpoint_file.to_bytes({"steps": 3}, tensors)
    document, found = checkpoint_file.from_bytes(content, "the content")
    assert document == {"steps": 3}
    assert torch.equal(found["a"], tensors["a"])
    for damaged in (b"", content[:20], content[:-1], content[:-1] + b"x", b"[" + content):
        with pytest.raises(CheckpointError, match="the content is"):
            checkpoint_file.from_bytes(damaged, "the content")
