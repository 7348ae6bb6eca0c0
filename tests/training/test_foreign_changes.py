"""Weights that anything but a private step changes, in every way that we know, at every moment.

Each way is tried at each moment: nothing may be signed afterwards. An honest run is signed.
"""

from __future__ import annotations

import copy
import ctypes
import os
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from tacit.errors import Diverged, ProtocolError, TacitError
from tacit.training.fingerprint import Fingerprint
from tacit.training.performance import Performance

from .sessions import EXAMPLES, cross_entropy, data, plan, session, sgd, whole_lot

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.training.session import Session

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    ),
]


class Net(nn.Module):
    """A trained layer, a frozen one, and a buffer; the trained one is square."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.frozen = nn.Linear(5, 5), nn.Linear(5, 5)
        self.head = nn.Linear(5, 3)
        self.frozen.requires_grad_(False)
        self.register_buffer("scale", torch.ones(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.frozen(self.first(x)) * self.scale))


def made(device: str) -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Net().to(device)


# ---- the ways


def other_step(model: Net, kind: type[torch.optim.Optimizer], **given: Any) -> None:
    weights = [p for p in model.parameters() if p.requires_grad]
    stranger = kind(weights, lr=0.1, **given)
    for p in weights:
        p.grad = torch.ones_like(p)
    try:
        stranger.step()
    finally:
        for p in weights:
            p.grad = None


def unhooked_step(model: Net) -> None:
    """What a fused kernel does to memory when no hook of the optimizer's is called."""
    p = model.first.weight
    torch._fused_sgd_(
        [p.data], [torch.ones_like(p)], [], weight_decay=0.0, momentum=0.0, lr=0.1, dampening=0.0,
        nesterov=False, maximize=False, is_first_step=False,
    )  # fmt: skip


def in_place(model: Net) -> None:
    with torch.no_grad():
        model.first.weight.add_(1e-3)


def past_autograd(model: Net) -> None:
    model.first.weight.data.add_(1e-3)


def alias(model: Net) -> None:
    """Another view of the same memory: NumPy's, or what a device exchanges."""
    p = model.first.weight.detach()
    if p.device.type == "cpu":
        p.numpy()[2, 3] += 1e-3
    else:
        torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(p))[2, 3] += 1e-3


def assigned(model: Net) -> None:
    model.first.weight.data = model.first.weight.data + 1e-3


def storage(model: Net) -> None:
    p = model.first.weight
    p.untyped_storage().copy_((p.detach() + 1e-3).untyped_storage())


def one_bit(model: Net) -> None:
    words = model.head.bias.data.view(torch.int32)
    words[1] ^= 1


def swapped_entries(model: Net) -> None:
    values = model.first.weight.data
    values[0, 0], values[1, 1] = values[1, 1].clone(), values[0, 0].clone()


def swapped_rows(model: Net) -> None:
    model.first.weight.data = model.first.weight.data.flip(0).contiguous()


def transposed(model: Net) -> None:
    model.first.weight.data = model.first.weight.data.t()


def raw_memory(model: Net) -> None:
    p = model.first.weight
    if p.device.type == "cpu":
        ctypes.memset(p.data_ptr(), 0x3C, 4)
    else:
        torch.cuda.current_stream().synchronize()
        p.data.view(torch.int32).fill_(0x3C3C3C3C)


def replaced_parameter(model: Net) -> None:
    model.head.weight = nn.Parameter(model.head.weight.detach() + 1e-3)


def replaced_module(model: Net) -> None:
    model.head = nn.Linear(5, 3).to(model.scale.device)


def swapped_objects(model: Net) -> None:
    one = nn.Parameter(model.first.weight.detach() + 1e-3)
    torch.utils.swap_tensors(model.first.weight, one)


def loaded(model: Net) -> None:
    model.load_state_dict({k: v + 1e-3 for k, v in model.state_dict().items()})


def from_vector(model: Net) -> None:
    vector = nn.utils.parameters_to_vector(model.parameters()).detach() + 1e-3
    nn.utils.vector_to_parameters(vector, model.parameters())


def halved(model: Net) -> None:
    model.bfloat16()


def frozen_weight(model: Net) -> None:
    model.frozen.weight.data.add_(1e-3)


def buffer_value(model: Net) -> None:
    model.scale.data.mul_(1.5)


def buffer_alias(model: Net) -> None:
    if model.scale.device.type == "cpu":
        model.scale.numpy()[:] += 1.0
    else:
        model.scale.data.add_(1.0)


def replaced_buffer(model: Net) -> None:
    model.scale = torch.full_like(model.scale, 2.0)


def another_thread(model: Net) -> None:
    thread = threading.Thread(target=model.first.weight.data.add_, args=(1e-3,))
    thread.start()
    thread.join()


def foreach(model: Net) -> None:
    torch._foreach_add_([p.data for p in model.parameters()], 1e-3)


WAYS: dict[str, Callable[[Net], None]] = {
    "SGD": lambda m: other_step(m, torch.optim.SGD),
    "fused SGD": lambda m: other_step(m, torch.optim.SGD, fused=True),
    "fused AdamW": lambda m: other_step(m, torch.optim.AdamW, fused=True),
    "foreach Adam": lambda m: other_step(m, torch.optim.Adam, foreach=True),
    "a fused kernel": unhooked_step,
    "in place": in_place,
    ".data.add_": past_autograd,
    ".data =": assigned,
    "another view": alias,
    "storage": storage,
    "one bit": one_bit,
    "two entries swapped": swapped_entries,
    "rows in another order": swapped_rows,
    "transposed": transposed,
    "raw memory": raw_memory,
    "replaced parameter": replaced_parameter,
    "replaced module": replaced_module,
    "swap_tensors": swapped_objects,
    "load_state_dict": loaded,
    "vector_to_parameters": from_vector,
    "another precision": halved,
    "frozen weight": frozen_weight,
    "buffer": buffer_value,
    "buffer's other view": buffer_alias,
    "replaced buffer": replaced_buffer,
    "another thread": another_thread,
    "_foreach_add_": foreach,
}
MOMENTS = (
    "before the first lot", "before backward", "before the step", "between lots",
    "after the last lot", "after the context",
)  # fmt: skip


def carried_out(model: Net, moment: str, change: Callable[[Net], object]) -> Any:
    """A run in which ``change`` happens at a moment, up to its statement."""
    device = model.scale.device
    x, y = data().tensors
    private = {"dataset": torch.utils.data.TensorDataset(x.to(device), y.to(device))}

    left = {moment}

    def at(now: str) -> None:
        if now in left:
            left.remove(now)
            change(model)

    with session(
        model, optimizer=sgd(model), plan=plan(lot_size=EXAMPLES, steps=2), **private
    ) as dp:
        at("before the first lot")
        for lot in dp.lots():
            for batch in lot:
                losses = cross_entropy(model)(batch)
                at("before backward")
                dp.backward(losses)
            at("before the step")
            dp.step()
            at("between lots")
        at("after the last lot")
    at("after the context")
    return dp.statement(delta=1e-5)


def after_an_error(model: Net, change: Callable[[Net], None]) -> Any:
    """An error of the user's ends the context right after the change, and is caught."""
    dp: Session = session(model, optimizer=sgd(model), plan=plan(lot_size=EXAMPLES, steps=2))
    with pytest.raises(KeyboardInterrupt), dp:
        whole_lot(dp, next(dp.lots()), cross_entropy(model))
        change(model)
        raise KeyboardInterrupt
    return dp.statement(delta=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_signed_after_a_foreign_change(way: str, moment: str, device: str) -> None:
    model = made(device)
    # Inside a batch the recorder, autograd or the check of row independence may be first to refuse.
    said = None if moment == "before backward" else r"private context|no optimizer holds"
    with pytest.raises((TacitError, RuntimeError), match=said):
        carried_out(model, moment, WAYS[way])


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_signed_after_a_change_and_an_error(way: str) -> None:
    with pytest.raises(TacitError, match=r"private context|no optimizer holds"):
        after_an_error(made("cpu"), WAYS[way])


@pytest.mark.parametrize("device", DEVICES)
def test_an_honest_run_is_signed(device: str) -> None:
    assert carried_out(made(device), "never", in_place).epsilon > 0


@pytest.mark.parametrize("device", DEVICES)
def test_a_signed_run_may_be_moved_and_judged(device: str) -> None:
    model = made(device)
    carried_out(model, "after the context", lambda m: m.eval() and None)
    carried_out(made(device), "after the context", lambda m: m.cpu() and None)
    carried_out(
        made(device),
        "after the context",
        lambda m: m.to(memory_format=torch.preserve_format) and None,
    )


def test_what_happened_is_named() -> None:
    for way, said in {
        "fused SGD": r"SGD\.step\(\) of an optimizer .* would change parameter first\.weight",
        ".data.add_": r"parameter first\.weight was changed .* past autograd",
        "replaced module": "module head was replaced",
        "replaced parameter": r"parameter head\.weight was replaced",
        "buffer": "buffer scale of the model .* was changed",
    }.items():
        with pytest.raises(TacitError, match=said):
            carried_out(made("cpu"), "between lots", WAYS[way])


def test_a_stranger_may_train_its_own_model() -> None:
    stranger = made("cpu")

    def change(_: Net) -> None:
        with torch.no_grad():  # inside a batch, what is done with gradients belongs to the model
            other_step(stranger, torch.optim.AdamW, fused=True)

    for moment in MOMENTS:
        assert carried_out(made("cpu"), moment, change).epsilon > 0


def test_an_optimizer_that_is_given_another_parameter() -> None:
    model = made("cpu")

    def change(_: Net) -> None:
        model.frozen.weight.requires_grad_(True)
        dp.optimizers[0].add_param_group({"params": [model.frozen.weight]})

    with (
        pytest.raises(ProtocolError, match="given other parameters"),
        session(model, optimizer=sgd(model), plan=plan(lot_size=EXAMPLES)) as dp,
    ):
        for lot in dp.lots():
            for batch in lot:
                dp.backward(cross_entropy(model)(batch))
            change(model)
            dp.step()


def test_a_change_between_two_contexts_is_refused() -> None:
    model = made("cpu")
    dp = session(model, optimizer=sgd(model), plan=plan(lot_size=EXAMPLES))
    with dp:
        whole_lot(dp, next(dp.lots()), cross_entropy(model))
    model.first.weight.data.add_(1.0)
    with pytest.raises(ProtocolError, match=r"parameter first\.weight was changed outside"), dp:
        pass


def test_public_changes_are_taken_up_but_not_what_came_before_them() -> None:
    model = made("cpu")
    with session(model, optimizer=sgd(model), plan=plan(lot_size=EXAMPLES)) as dp:
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(model))
            with dp.public():
                other_step(model, torch.optim.AdamW, fused=True)
                model.scale.data.mul_(1.01)
    assert dp.statement(1e-5).steps_taken == 4
    with pytest.raises(ProtocolError, match="past autograd"), session(model) as dp:
        model.first.weight.data.add_(1.0)
        with dp.public():
            pass


# ---- divergence


def test_weights_that_are_not_finite_end_the_run_before_the_next_charge() -> None:
    model = made("cpu")
    planned = plan(lot_size=EXAMPLES, noise_multiplier=1e3)
    with (
        pytest.raises(Diverged, match=r"no longer finite.*smaller learning rate"),
        session(model, optimizer=sgd(model, lr=1e38), plan=planned) as dp,
    ):
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(model))
    assert dp.steps_taken == 1
    with pytest.raises(Diverged):
        dp.statement(1e-5)


# ---- whose session it is


@pytest.mark.parametrize("noise", ["fast", "secure", "exact"])
def test_a_forked_child_cannot_go_on_with_a_lot(noise: str) -> None:
    """The same lot would be released twice and charged once."""
    model = made("cpu")
    attempts: dict[str, Callable[[], object]] = {}
    with session(model, optimizer=sgd(model), plan=plan(lot_size=EXAMPLES, noise=noise)) as dp:
        lots = dp.lots()
        lot = next(lots)
        for batch in lot:
            dp.backward(cross_entropy(model)(batch))
        attempts |= {
            "step": dp.step, "lots": lambda: next(dp.lots()),
            "statement": lambda: dp.statement(1e-5),
            "leave": lambda: dp.__exit__(None, None, None),
        }  # fmt: skip
        assert refused_in_a_child(attempts) == len(attempts)
        dp.step()
        lots.close()


def refused_in_a_child(attempts: dict[str, Callable[[], object]]) -> int:
    """How many of them a forked child was refused."""
    child = os.fork()
    if child == 0:
        refused = 0
        try:
            for attempt in attempts.values():
                try:
                    attempt()
                except ProtocolError as error:
                    refused += "belongs to the process" in str(error)
        finally:
            os._exit(refused)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_session_cannot_be_copied(copied: Callable[[Any], Any]) -> None:
    with session() as dp, pytest.raises(ProtocolError, match="cannot be copied or pickled"):
        copied(dp)


# ---- the fingerprint itself


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool]
)
def test_every_single_change_shows(dtype: torch.dtype, device: str) -> None:
    generator = torch.Generator().manual_seed(1)
    for shape in [(), (1,), (3, 5), (17000,), (2, 3, 4, 5)]:
        values = (torch.randn(shape, generator=generator) > 0).to(dtype).to(device)
        tensors = {"a": torch.zeros(4, device=device), "b": values, "c": values.new_ones(3)}
        found = Fingerprint(tensors)
        flat = values.view(-1)
        for place in {0, len(flat) // 2, len(flat) - 1}:
            found.note()
            kept = flat[place].clone()
            found.compare()
            assert found.changed(wait=True) == []
            flat[place] = ~kept if dtype == torch.bool else kept + 1
            found.compare()
            assert found.changed(wait=True) == ["b"]
            flat[place] = kept
            found = Fingerprint(tensors)


@pytest.mark.parametrize("device", DEVICES)
def test_memory_layouts_without_gaps_are_read(device: str) -> None:
    values = torch.randn(4, 3, 5, 5).to(device, memory_format=torch.channels_last)
    gaps = torch.randn(6, 6, device=device)[:, ::2]
    found = Fingerprint({"dense": values, "gaps": gaps})
    found.compare()
    assert found.changed(wait=True) == []
    values[1, 2, 3, 4] += 1
    gaps[5, 2] += 1
    found.compare()
    assert sorted(found.changed(wait=True)) == ["dense", "gaps"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bad", [float("inf"), -float("inf"), float("nan")])
def test_numbers_that_are_not_finite_show(bad: float, dtype: torch.dtype, device: str) -> None:
    tensors = {n: torch.ones(20000, dtype=dtype, device=device) for n in "ab"}
    found = Fingerprint(tensors, finite=frozenset("a"))
    tensors["b"][7] = bad  # nobody asks about that one
    found.note()
    assert found.not_finite(wait=True) == []
    tensors["a"][19_999] = bad
    found.note()
    assert found.not_finite(wait=True) == ["a"]


# ---- what a hostile reader found


def test_an_old_gradient_of_a_frozen_layer_is_not_stepped() -> None:
    """Optimizers step whatever has a gradient, whether or not it is to be trained."""
    model = made("cpu")
    model.frozen.weight.grad = torch.ones(5, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        pytest.raises(ProtocolError, match=r"gradient of frozen\.weight .*zero_grad"),
        session(model, optimizer=optimizer, plan=plan(lot_size=EXAMPLES)) as dp,
    ):
        next(dp.lots())


def test_what_optimizers_hold_is_fixed_in_public_too() -> None:
    model = made("cpu")
    with (
        pytest.raises(ProtocolError, match="given other parameters"),
        session(model, optimizer=sgd(model), plan=plan(lot_size=EXAMPLES)) as dp,
    ):
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(model))
            with dp.public():
                extra = nn.Parameter(torch.zeros(2))
                model.register_parameter("extra", extra)
                dp.optimizers[0].add_param_group({"params": [extra]})


class Keeping(Net):
    """Keeps the last batch where its ``state_dict`` takes it from."""

    kept = torch.zeros(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = x.detach().clone()
        return super().forward(x)

    def get_extra_state(self) -> Any:
        return {"kept": self.kept, "version": 1}

    def set_extra_state(self, state: Any) -> None:
        self.kept = state["kept"]


def test_extra_state_that_keeps_data_is_refused() -> None:
    model = Keeping()
    with (
        pytest.raises(TacitError, match="extra state of a module"),
        session(model, optimizer=sgd(model), plan=plan(lot_size=EXAMPLES)) as dp,
    ):
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(model))
    with pytest.raises(TacitError, match="extra state of a module"):
        dp.statement(1e-5)


class Told(Net):
    """Extra state that no forward pass changes."""

    note = "first"

    def get_extra_state(self) -> Any:
        return self.note

    def set_extra_state(self, state: Any) -> None:
        self.note = state


def test_extra_state_is_named_when_it_is_changed_after_the_context() -> None:
    def change(model: Net) -> None:
        model.note = "second"

    assert carried_out(Told(), "never", change).epsilon > 0
    with pytest.raises(ProtocolError, match="the extra state of a module was changed outside"):
        carried_out(Told(), "after the context", change)


@pytest.mark.parametrize("rehearsal", [True, False])
def test_two_loops_over_one_lot_count_nobody_twice(rehearsal: bool) -> None:
    model = made("cpu")
    terms = {"plan": plan(lot_size=EXAMPLES), "performance": Performance(batch=4)}
    with (
        pytest.raises(ProtocolError, match="another loop over the lot"),
        session(model, optimizer=sgd(model), **terms) as dp,
    ):
        lot = next(dp.lots())
        if not rehearsal:
            whole_lot(dp, lot, cross_entropy(model))
            lot = next(dp.lots())
        first, second = iter(lot), iter(lot)
        dp.backward(cross_entropy(model)(next(first)))
        for batch in second:
            dp.backward(cross_entropy(model)(batch))
        for batch in first:
            dp.backward(cross_entropy(model)(batch))


def test_steps_are_counted_by_the_session_alone() -> None:
    with session() as dp, pytest.raises(AttributeError):
        dp.steps_taken = 0  # type: ignore[misc]


def test_a_statement_from_another_thread_waits_for_the_step() -> None:
    model, done, failed = made("cpu"), threading.Event(), []

    def ask() -> None:
        while not done.is_set():
            try:
                dp.statement(1e-5)
            except TacitError as error:
                failed.append(error)

    with session(model, optimizer=sgd(model), plan=plan(lot_size=EXAMPLES, steps=20)) as dp:
        thread = threading.Thread(target=ask)
        thread.start()
        try:
            for lot in dp.lots():
                whole_lot(dp, lot, cross_entropy(model))
        finally:
            done.set()
            thread.join()
    assert not failed
    assert dp.steps_taken == 20
