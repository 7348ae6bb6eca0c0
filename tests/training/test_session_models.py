"""Which models, losses and optimizers a session takes, and which it refuses."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import lr_scheduler
from torch.utils.checkpoint import checkpoint

import tacit
from tacit.errors import InvalidArgument, TacitError, UnsupportedModel
from tacit.training.clipping import clipped_gradients
from tacit.training.performance import Performance

from . import sessions
from .sessions import (
    CLASSES,
    CLIP,
    EXAMPLES,
    WIDTH,
    Grads,
    cross_entropy,
    data,
    network,
    plan,
    session,
    sgd,
    whole_lot,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def full(**changed: Any) -> tacit.Plan:
    return plan(**{"lot_size": EXAMPLES, "steps": 2} | changed)


def train(model: nn.Module, losses: Callable[[Any], Tensor] | None = None, **changed: Any) -> Any:
    """A short run; what the steps handed to the optimizer."""
    optimizer = changed.pop("optimizer", None) or sgd(model)
    grads = Grads(model, optimizer)
    given = {"plan": full()} | changed
    with session(model, optimizer=optimizer, **given) as dp:
        for lot in dp.lots():
            whole_lot(dp, lot, losses or cross_entropy(model))
    return grads.steps


class Through(nn.Module):
    """A small network with an operation of the test's own in the middle."""

    def __init__(self, middle: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, 6)
        self.middle = Lambda(middle)
        self.last = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.middle(torch.tanh(self.first(x))))
        return out


class Lambda(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


# ---- operations that mix examples


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("tracks", [True, False])
def test_batch_norm_is_refused_with_the_remedy(tracks: bool, momentum: Any) -> None:
    norm = nn.BatchNorm1d(6, track_running_stats=tracks, momentum=momentum)
    model = nn.Sequential(nn.Linear(WIDTH, 6), norm, nn.Linear(6, CLASSES))
    with pytest.raises(UnsupportedModel, match=r"1 \(BatchNorm1d\).*tacit\.training\.fix"):
        session(model)


def test_batch_norm_in_eval_mode_is_an_affine_map() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, 6), nn.BatchNorm1d(6), nn.Linear(6, CLASSES))
    model[1].eval()
    steps = train(model)
    assert all(bool(step["1.weight"].abs().sum() > 0) for step in steps)


def test_batch_norm_put_into_training_mode_later_is_refused() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, 6), nn.BatchNorm1d(6), nn.Linear(6, CLASSES))
    model.eval()
    with pytest.raises(UnsupportedModel, match=r"1 \(BatchNorm1d\)"), session(model) as dp:
        model.train()
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(model))
    assert dp.steps_taken == 0


class Centred(nn.Module):
    """Mixes rows, in training mode or always."""

    def __init__(self, *, always: bool = False) -> None:
        super().__init__()
        self.always = always

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0) if self.training or self.always else x


@pytest.mark.parametrize("change", ["mode", "module"])
def test_mixing_that_comes_with_another_mode_or_module_later_is_refused(change: str) -> None:
    model = nn.Sequential(nn.Linear(WIDTH, 6), Centred(), nn.Linear(6, CLASSES)).eval()
    refused = pytest.raises(UnsupportedModel, match=r"module 1 \(Centred\)")
    with refused, session(model, plan=full(steps=4)) as dp:
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(model))
            if lot.step == 1 and change == "mode":
                model.train()
            elif lot.step == 1:
                with dp.public():
                    model[1] = Centred(always=True)
    assert dp.steps_taken == 2


def test_modes_that_were_seen_are_not_looked_at_again() -> None:
    model, repeated = network(), 0
    with session(model, plan=full(steps=6)) as dp:
        for lot in dp.lots():
            for batch in lot:
                repeated += lot.is_rehearsal
                dp.backward(cross_entropy(model)(batch))
            dp.step()
            if lot.step == 1:
                seen = repeated
            model.train(not model.training)
    assert repeated == seen


def test_what_fix_makes_of_batch_norm_is_taken() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.BatchNorm1d(32), nn.Linear(32, CLASSES))
    assert len(train(tacit.training.fix(model))) == 2


class Counter(nn.Module):
    """Keeps the mean of what it saw: private data without noise."""

    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))
        self.in_place = in_place

    def forward(self, x: Tensor) -> Tensor:
        if self.in_place:
            self.mean.copy_(x.detach().mean(0))
        else:
            self.mean = x.detach().mean(0)
        return x


@pytest.mark.parametrize("in_place", [True, False])
def test_a_module_that_keeps_a_buffer_of_data_is_refused_by_name(in_place: bool) -> None:
    model = nn.Sequential(nn.Linear(WIDTH, 6), Counter(in_place=in_place), nn.Linear(6, CLASSES))
    with pytest.raises(UnsupportedModel, match=r"buffer mean of 1 \(Counter\)"):
        train(model)


def test_a_buffer_may_be_changed_in_public() -> None:
    model = Through(lambda x: x)
    model.register_buffer("temperature", torch.ones(()))
    with session(model, plan=full()) as dp:
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(model))
            with dp.public():
                model.temperature.mul_(0.9)  # type: ignore[operator]
    assert dp.steps_taken == 2


MIXING: dict[str, Callable[[Tensor], Tensor]] = {
    "in-batch mean": lambda x: x - x.mean(0),
    "detached in-batch mean": lambda x: x - x.detach().mean(0),
    "detached batch size of activations": lambda x: x / x.detach().norm(),
    "softmax over the batch": lambda x: x * torch.softmax(x, 0),
    "the row before": lambda x: x + x.roll(1, 0),
    "detached row before": lambda x: x + x.detach().roll(1, 0),
    "shuffled by content": lambda x: x[x[:, 0].argsort()],
    "cumulative": lambda x: x + 0.1 * x.cumsum(0),
    "in-batch maximum": lambda x: x / x.detach().abs().amax(0),
}


@pytest.mark.parametrize("name", MIXING)
def test_models_that_mix_examples_are_refused_by_the_module(name: str) -> None:
    """PEERS 8. The gradient shows it at the next weight, or the check at the module itself."""
    with pytest.raises(UnsupportedModel, match=r"middle \(Lambda\)|(first|last)\.(weight|bias)"):
        train(Through(MIXING[name]))


@pytest.mark.parametrize("name", [n for n in MIXING if "detached" in n or "maximum" in n])
def test_detached_mixing_is_seen_in_the_module_that_does_it(name: str) -> None:
    with pytest.raises(UnsupportedModel, match=r"first seen in the result of module middle"):
        train(Through(MIXING[name]))


def test_mixing_of_inputs_is_seen_in_large_lots_too() -> None:
    """One of 500 moves a mean by next to nothing, so the check takes a few examples."""

    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.centre = Lambda(lambda x: x - x.mean(0))
            self.net = network()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.net(self.centre(x))
            return out

    model = Centred()
    with pytest.raises(UnsupportedModel, match=r"module centre \(Lambda\)"):
        train(model, dataset=data(500), plan=full(examples=500, lot_size=500))


def pairwise(model: nn.Module) -> Callable[[Any], Tensor]:
    def losses(batch: Any) -> Tensor:
        out = model(batch[0])
        return (out @ out.T).logsumexp(1)

    return losses


def reweighted(model: nn.Module) -> Callable[[Any], Tensor]:
    def losses(batch: Any) -> Tensor:
        each = cross_entropy(model)(batch)
        return each / each.detach().mean()

    return losses


def whole_batch(model: nn.Module) -> Callable[[Any], Tensor]:
    def losses(batch: Any) -> Tensor:
        each = cross_entropy(model)(batch)
        return each.mean().expand(len(each))

    return losses


@pytest.mark.parametrize("kind", [pairwise, reweighted, whole_batch])
def test_losses_that_mix_examples_are_refused(kind: Any) -> None:
    model = network()
    with pytest.raises(UnsupportedModel, match=r"mixe[sd]|in the loss, it seems"):
        train(model, kind(model))


def test_an_unused_parameter_is_refused_by_name() -> None:
    model = network()
    model.add_module("spare", nn.Linear(2, 2))
    model.forward = lambda x: model[2](model[1](model[0](x)))  # type: ignore[method-assign]
    with pytest.raises(UnsupportedModel, match=r"parameter spare\.weight got no gradient"):
        train(model)


def test_a_parameter_whose_result_is_dropped_is_refused_by_name() -> None:
    model = Through(lambda x: x)
    model.extra = nn.Linear(WIDTH, 2)
    inner = model.forward

    def forward(x: Tensor) -> Tensor:
        model.extra(x)
        return inner(x)

    model.forward = forward  # type: ignore[method-assign]
    with pytest.raises(UnsupportedModel, match=r"parameter extra\.weight got no gradient"):
        train(model)


# ---- numbers that are not finite


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e38])
@pytest.mark.parametrize("batch", [4, "auto"])
def test_an_example_that_is_not_finite_contributes_nothing(value: float, batch: Any) -> None:
    x, y = (t.clone() for t in data().tensors)
    bad = [0, 1, 7, 20, 39]
    x[bad] = value
    good = [at for at in range(EXAMPLES) if at not in bad]
    model = nn.Sequential(nn.Linear(WIDTH, CLASSES))

    def losses(batch: Any) -> Tensor:
        return model(batch[0]).square().sum(1)

    before = copy.deepcopy(model)
    steps = train(
        model,
        losses,
        dataset=torch.utils.data.TensorDataset(x, y),
        plan=full(steps=1),
        performance=Performance(batch=batch),
    )
    rows = [[sessions.row_of(data(), at)] for at in good]
    each = sessions.unit_gradients(before, lambda m, r: m(r[0]).square().sum(1), rows)
    truth = {name: v / EXAMPLES for name, v in sessions.flat_sum(each, CLIP).items()}
    assert sessions.close(steps[0], truth)


# ---- dropout, checkpointing, precision


def test_dropout_works_and_differs_between_rows() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, 50), nn.Dropout(0.5), nn.Linear(50, CLASSES))
    steps = train(model)
    assert len(steps) == 2


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.inner = network()
        self.last = nn.Linear(CLASSES, CLASSES)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        if self.reentrant:
            x = x.clone().requires_grad_()
        hidden = checkpoint(self.inner, x, use_reentrant=self.reentrant)
        out: Tensor = self.last(hidden)
        return out


@pytest.mark.parametrize("batch", [8, 9, "auto"])
def test_activation_checkpointing_gives_the_same_sum(batch: Any) -> None:
    torch.manual_seed(0)
    model = Checkpointed(reentrant=False)
    truth = sessions.example_sum(
        nn.Sequential(model.inner, model.last), data(), range(EXAMPLES), CLIP
    )
    steps = train(model, plan=full(steps=1), performance=Performance(batch=batch))
    for given, (name, value) in zip(steps[0].values(), truth.items(), strict=True):
        torch.testing.assert_close(given.double(), value / EXAMPLES, rtol=1e-4, atol=1e-6, msg=name)


def test_reentrant_checkpointing_is_refused() -> None:
    with pytest.raises(TacitError, match="reentrant"):
        train(Checkpointed(reentrant=True))


@pytest.mark.parametrize("way", ["performance", "forward only", "all of the loop"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_autocast_keeps_sums_in_single_precision(way: str, dtype: Any) -> None:
    """PEERS 7: the sums of many rows must not be rounded to 8 bits."""
    rows = 512
    model = network()
    kind = getattr(torch, dtype)

    def losses(batch: Any) -> Tensor:
        with torch.autocast("cpu", kind, enabled=way == "forward only"):
            return cross_entropy(model)(batch)

    truth = sessions.example_sum(model, data(rows), range(rows), CLIP)
    chosen = plan(examples=rows, lot_size=rows, steps=1)
    optimizer = sgd(model)
    grads = Grads(model, optimizer)
    precision = dtype if way == "performance" else "single"
    with (
        torch.autocast("cpu", kind, enabled=way == "all of the loop"),
        session(
            model, optimizer=optimizer, plan=chosen, dataset=data(rows),
            performance=Performance(precision=precision),
        ) as dp,
    ):  # fmt: skip
        for lot in dp.lots():
            for batch in lot:
                if way == "performance":
                    assert torch.is_autocast_enabled("cpu")
                    dp.backward(cross_entropy(model)(batch))
                elif way == "forward only":
                    dp.backward(losses(batch))
                else:
                    dp.backward(cross_entropy(model)(batch))
            dp.step()
    (step,) = grads.steps
    assert all(value.dtype == torch.float32 for value in step.values())
    scaled = {name: value / rows for name, value in truth.items()}
    assert sessions.close(step, scaled, 3e-2 if dtype == "bfloat16" else 1e-2)
    assert not sessions.close(step, scaled, 1e-6)  # it was half precision indeed
    # Entries of a sum in half precision would be such numbers themselves.
    sums = step["0.weight"] * rows
    assert not torch.allclose(sums, sums.to(kind).float(), rtol=1e-6, atol=0)


def test_double_precision() -> None:
    dataset = torch.utils.data.TensorDataset(data().tensors[0].double(), data().tensors[1])
    steps = train(network().double(), dataset=dataset, plan=full(steps=1, noise_multiplier=1e-14))
    truth = sessions.example_sum(network(), data(), range(EXAMPLES), CLIP)
    scaled = {name: value / EXAMPLES for name, value in truth.items()}
    assert sessions.close(steps[0], scaled, 1e-6)


# ---- parameters and optimizers


def test_frozen_parameters_stay_and_get_neither_gradient_nor_noise() -> None:
    model = network()
    model[0].requires_grad_(False)
    frozen = copy.deepcopy(model[0].state_dict())
    steps = train(model, plan=full(noise_multiplier=1.0))
    assert set(steps[0]) == {"2.weight", "2.bias"}
    assert all(torch.equal(v, frozen[k]) for k, v in model[0].state_dict().items())


def test_frozen_parameters_that_an_optimizer_holds_stay() -> None:
    model = network()
    model[0].requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.5)
    frozen = copy.deepcopy(model[0].state_dict())
    train(model, optimizer=optimizer, plan=full(noise_multiplier=1.0))
    assert all(torch.equal(v, frozen[k]) for k, v in model[0].state_dict().items())


@pytest.mark.parametrize("end", ["step", "release"])
def test_parameters_that_are_frozen_later_are_not_moved_by_noise(end: str) -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    moved = []
    with session(model, optimizer=optimizer, plan=full(steps=3, noise_multiplier=1.0)) as dp:
        for lot in dp.lots():
            model[0].requires_grad_(lot.step != 1)
            before = [p.detach().clone() for p in model.parameters()]
            for batch in lot:
                dp.backward(cross_entropy(model)(batch))
            if end == "step":
                dp.step()
            else:
                dp.release()
                optimizer.step()
            moved.append(
                [not torch.equal(*two) for two in zip(model.parameters(), before, strict=True)]
            )
    assert moved == [[True] * 4, [False, False, True, True], [True] * 4]
    assert dp.statement(1e-3).steps_taken == 3


def test_parameters_may_be_frozen_from_one_lot_to_the_next() -> None:
    """As a discriminator is while its generator makes a step."""
    model = network()
    with session(model, plan=full()) as dp:
        for lot in dp.lots():
            model.requires_grad_()
            whole_lot(dp, lot, cross_entropy(model))
            model.requires_grad_(requires_grad=False)
    assert dp.steps_taken == 2


def test_lazy_parameters_are_refused_by_name() -> None:
    model = nn.LazyLinear(CLASSES)
    with pytest.raises(InvalidArgument, match="parameter weight has no shape yet"):
        session(model)


def test_a_plain_tensor_is_refused_with_the_remedy() -> None:
    model = network()
    prompt = torch.zeros(WIDTH, requires_grad=True)
    with pytest.raises(InvalidArgument, match=r"plain tensor.*torch\.nn\.Parameter"):
        session(model, optimizer=torch.optim.SGD([*model.parameters(), prompt], lr=0.1))


def test_several_optimizers_each_step_their_own() -> None:
    model = network()
    before = copy.deepcopy(model)
    optimizers = [
        torch.optim.SGD(model[0].parameters(), lr=0.0),
        torch.optim.Adam(model[2].parameters(), lr=0.1),
    ]
    with session(model, optimizer=optimizers, plan=full()) as dp:
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(model))
    assert torch.equal(model[0].weight, before[0].weight)
    assert not torch.equal(model[2].weight, before[2].weight)


def test_a_trainable_parameter_without_an_optimizer_is_refused() -> None:
    model = network()
    with pytest.raises(InvalidArgument, match=r"parameter 2\.weight is trainable but no optimizer"):
        session(model, optimizer=torch.optim.SGD(model[0].parameters(), lr=0.1))


def test_two_optimizers_with_one_parameter_are_refused() -> None:
    model = network()
    with pytest.raises(InvalidArgument, match="two optimizers hold the same parameter"):
        session(model, optimizer=[sgd(model), sgd(model)])


def test_nothing_to_train_is_refused() -> None:
    model = network()
    optimizer = sgd(model)
    model.requires_grad_(False)
    with pytest.raises(InvalidArgument, match="no trainable parameter"):
        tacit.private(model, optimizer, plan(), data())


FIRST_ORDER = [
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "RAdam",
    "RMSprop", "Rprop", "SGD",
]  # fmt: skip


def test_the_list_of_optimizers_is_complete() -> None:
    here = {
        name
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
    }
    assert here - {"Optimizer", "LBFGS", "SparseAdam"} == set(FIRST_ORDER)


@pytest.mark.parametrize("name", FIRST_ORDER)
def test_every_first_order_optimizer_gets_the_private_gradient(name: str) -> None:
    """It ends where the same optimizer ends that is handed the same gradients by hand."""
    model = nn.Sequential(nn.Linear(WIDTH, 6, bias=False), nn.Linear(6, CLASSES, bias=False))
    twin = copy.deepcopy(model)
    kind = getattr(torch.optim, name)
    steps = train(model, optimizer=kind(model.parameters(), lr=0.05), plan=full(steps=3))
    optimizer = kind(twin.parameters(), lr=0.05)
    for step in steps:
        for parameter_name, parameter in twin.named_parameters():
            parameter.grad = step[parameter_name]
        optimizer.step()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_second_order_and_sparse_optimizers_are_refused() -> None:
    model = network()
    with pytest.raises(InvalidArgument, match="LBFGS evaluates the loss several times"):
        session(model, optimizer=torch.optim.LBFGS(model.parameters()))
    with pytest.raises(InvalidArgument, match=r"SparseAdam.*use torch\.optim\.Adam"):
        session(model, optimizer=torch.optim.SparseAdam(list(model.parameters())))
    with pytest.raises(InvalidArgument, match="must be a torch Optimizer, got a str"):
        session(model, optimizer=["SGD"])


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 1, gamma=0.5),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda at: 1 / (1 + at)),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.4, 5, cycle_momentum=False),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 4),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_schedule_is_really_applied(name: str) -> None:
    """PEERS 11: dp-transformers #43 never applied it."""
    model = network()
    optimizer = sgd(model, lr=0.4)
    scheduler = SCHEDULERS[name](optimizer)
    grads = Grads(model, optimizer)
    with session(model, optimizer=optimizer, plan=full(steps=4)) as dp:
        for lot in dp.lots():
            before, rate = model[0].weight.detach().clone(), optimizer.param_groups[0]["lr"]
            whole_lot(dp, lot, cross_entropy(model))
            moved = before - rate * grads.steps[-1]["0.weight"]
            torch.testing.assert_close(model[0].weight.detach(), moved)
            scheduler.step()
    assert optimizer.param_groups[0]["lr"] != 0.4


def test_the_modules_names_and_classes_stay_as_they_are() -> None:
    model = network()
    optimizer = sgd(model)
    keys, kinds = list(model.state_dict()), [type(m) for m in model.modules()]
    train(model, optimizer=optimizer)
    assert list(model.state_dict()) == keys
    assert [type(m) for m in model.modules()] == kinds
    assert type(optimizer) is torch.optim.SGD


# ---- gradients inside a loss


def test_a_gradient_penalty_is_refused() -> None:
    """Its second derivatives would silently be missing."""
    model = network()

    def losses(batch: Any) -> Tensor:
        x = batch[0].clone().requires_grad_()
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return slope.square().sum(1)

    with pytest.raises(UnsupportedModel, match="second derivatives"):
        train(model, losses)


def test_adversarial_examples_may_be_made_inside_a_lot() -> None:
    model = network()
    before = copy.deepcopy(model)

    def attacked(model: nn.Module, batch: Any) -> Tensor:
        x = batch[0].clone().requires_grad_()
        loss = functional.cross_entropy(model(x), batch[1], reduction="sum")
        (slope,) = torch.autograd.grad(loss, x)
        moved = batch[0] + 0.1 * slope.sign()
        return functional.cross_entropy(model(moved), batch[1], reduction="none")

    steps = train(model, lambda batch: attacked(model, batch), plan=full(steps=1))
    rows = [[sessions.row_of(data(), at)] for at in range(EXAMPLES)]
    truth = sessions.flat_sum(sessions.unit_gradients(before, attacked, rows), CLIP)
    assert sessions.close(steps[0], {n: v / EXAMPLES for n, v in truth.items()})


def test_a_penalty_on_the_weights_is_clipped_with_the_example() -> None:
    model = network()
    before = copy.deepcopy(model)

    def decayed(model: nn.Module, batch: Any) -> Tensor:
        size = sum(p.square().sum() for p in model.parameters())
        return functional.cross_entropy(model(batch[0]), batch[1], reduction="none") + 0.1 * size

    steps = train(model, lambda batch: decayed(model, batch), plan=full(steps=1))
    rows = [[sessions.row_of(data(), at)] for at in range(EXAMPLES)]
    truth = sessions.flat_sum(sessions.unit_gradients(before, decayed, rows), CLIP)
    assert sessions.close(steps[0], {n: v / EXAMPLES for n, v in truth.items()})


# ---- weights used twice, and adapters


class Tied(nn.Module):
    """PEERS 2: one weight as an embedding, as a hidden layer twice, and as the output."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.tanh(self.shared(torch.tanh(self.shared(x)))) @ self.shared.weight.T
        return out[:, :CLASSES]


@pytest.mark.parametrize("clip", [0.1, 2.0])
def test_a_reused_weight_is_clipped_as_one(clip: float) -> None:
    torch.manual_seed(0)
    model = Tied()
    truth = sessions.example_sum(model, data(), range(EXAMPLES), clip)
    steps = train(model, plan=full(steps=1, clip=clip))
    assert sessions.close(steps[0], {n: v / EXAMPLES for n, v in truth.items()})
    assert sessions.norm(steps[0]) <= clip * (1 + 1e-5)


class Adapted(nn.Module):
    """LoRA (Hu et al. 2022): the second factor starts at zero, so the first has no gradient yet."""

    def __init__(self) -> None:
        super().__init__()
        self.base = network().requires_grad_(False)
        self.down = nn.Linear(WIDTH, 2, bias=False)
        self.up = nn.Linear(2, CLASSES, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + self.up(self.down(x))
        return out


def test_adapters_are_trained() -> None:
    """Opacus #820: they were trained to nothing."""
    model = Adapted()
    base = copy.deepcopy(model.base.state_dict())
    first, second = train(model)
    assert float(first["down.weight"].norm()) < 1e-6
    assert float(first["up.weight"].norm()) > 1e-3
    assert float(second["down.weight"].norm()) > 1e-4
    assert all(torch.equal(v, base[k]) for k, v in model.base.state_dict().items())


class Hidden(torch.autograd.Function):
    """x·w by a function of the user's own, which no torch function mode sees."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return grads[0] @ weight, grads[0].T @ x


class WithHidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.secret = nn.Linear(WIDTH, 6), nn.Parameter(torch.randn(CLASSES, 6))

    def forward(self, x: Tensor) -> Any:
        return Hidden.apply(self.first(x), self.secret)


def test_a_weight_in_an_operation_that_cannot_be_seen_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="parameter secret enters the loss through an oper"):
        train(WithHidden())


def test_a_hook_of_gradients_is_refused_whenever_it_is_put_there() -> None:
    """What it cuts after clipping had been measured after the cut: a record moved 50 clips."""
    model = network()
    weight = next(model.parameters())
    weight.register_hook(lambda gradient: gradient.clamp(-1, 1)).remove()  # gone again
    kept = []
    with (
        pytest.raises(UnsupportedModel, match=r"parameter 0.weight has a hook"),
        session(model) as dp,
    ):
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(model))
            kept.append(weight.register_hook(lambda gradient: gradient.clamp(-1, 1)))
    assert dp.steps_taken == 1
    with pytest.raises(UnsupportedModel, match=r"parameter 0.weight has a hook"):
        session(model)


@torch.library.custom_op("tacit_tests::signs", mutates_args=())
def signs(weight: Tensor) -> Tensor:
    return weight.sign()


signs.register_autograd(lambda _, gradient: gradient.clamp(-1, 1))


class Cut(nn.Module):
    """A weight whose gradient is cut on the way to its parameter."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.weight, self.kind = nn.Parameter(torch.randn(CLASSES, WIDTH)), kind

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "operation":
            return functional.linear(x, signs(self.weight))
        double = 2 * self.weight
        with torch.set_grad_enabled(self.kind != "hook without gradients"):
            double.register_hook(lambda gradient: gradient.clamp(-1, 1))
        return functional.linear(x, double * 0.5)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("operation", "an operation with a backward pass of its own"),
        ("hook", "puts a hook on a private weight"),
        ("hook without gradients", "puts a hook on a private weight"),
    ],
)
def test_a_weight_whose_gradient_may_be_cut_after_clipping_is_refused(kind: str, said: str) -> None:
    with pytest.raises(UnsupportedModel, match=said):
        train(Cut(kind))


class Moody(nn.Module):
    """Takes another path for batches of the same shape, once it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.short = False

    def forward(self, x: Tensor) -> Any:
        return self.last(x if self.short else self.first(x))


def test_another_path_for_batches_of_the_same_shape_is_followed() -> None:
    """What the first batches did is kept for speed; it must not be taken for granted."""
    torch.manual_seed(1)
    model = Moody()
    optimizer = sgd(model)
    grads = Grads(model, optimizer)
    with session(model, optimizer=optimizer, plan=full(steps=4, noise_multiplier=1e-9)) as dp:
        for lot in dp.lots():
            model.short = lot.step == 3
            whole_lot(dp, lot, cross_entropy(model))
    usual, short = grads.steps[2], grads.steps[3]
    assert usual["first.weight"].norm() > 1e-3
    assert short["first.weight"].norm() < 1e-6  # noise alone: the layer was not used
    assert short["last.weight"].norm() > 1e-3


def test_a_layer_that_a_checked_lot_leaves_out_is_none_that_nothing_reaches() -> None:
    model = Moody()
    with session(model, plan=full(steps=3)) as dp:
        for lot in dp.lots():
            model.short = lot.step == 1
            dp.verify()
            whole_lot(dp, lot, cross_entropy(model))
    assert dp.verify() is not None
    assert dp.steps_taken == 3


class DeadUnits(nn.Module):
    """A weight spread over the rows in dimension 1, which no loss reaches: its ReLU is dead."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.head = nn.Parameter(torch.randn(1, 1, 5)), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = torch.relu(self.start.expand(1, len(x), 5) - 1e3)
        return self.head(x + first.squeeze(0))


def test_a_weight_that_is_spread_over_rows_and_reached_by_none() -> None:
    model = DeadUnits()
    with sessions.session(model, plan=sessions.plan(lot_size=sessions.EXAMPLES, steps=2)) as dp:
        for lot in dp.lots():
            sessions.whole_lot(dp, lot, sessions.cross_entropy(model))
    assert dp.steps_taken == 2


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_rows_as_columns_of_a_product(rows: int) -> None:
    """w @ x.T, also for a batch of one row, whose only column does not tell where rows lie."""
    torch.manual_seed(0)
    weight, x = nn.Parameter(torch.randn(3, 4)), torch.randn(rows, 4)

    def losses() -> Tensor:
        return (weight @ x.T).square().sum(0)

    found = clipped_gradients({"weight": weight}, losses, rows=rows, clip=0.7).sums["weight"]
    exact = torch.zeros(3, 4)
    for at in range(rows):
        (own,) = torch.autograd.grad(losses()[at], weight)
        exact += own * min(1.0, 0.7 / float(own.norm()))
    assert torch.allclose(found, exact, atol=1e-5)


class Remembering(nn.Module):
    """Takes off an average that it keeps of all rows so far, where no buffer shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.mean = network(), 0.0

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * float(x.mean())
        found: Tensor = self.inner(x - self.mean)
        return found


@pytest.mark.parametrize(
    "changed",
    [{}, {"performance": Performance(batch=1)}, {"plan": plan(noise="exact")}],
    ids=["batches", "one by one", "exact"],
)
def test_what_a_model_keeps_of_rows_before_is_mixing(changed: dict[str, Any]) -> None:
    """Also where no batch has two rows, so that nothing else could mix them."""
    model = Remembering()
    with (
        pytest.raises(UnsupportedModel, match=r"so (that )?examples are mixed"),
        session(model, **changed) as dp,
    ):
        dp.accumulate(next(dp.lots()), cross_entropy(model))


class Doubling(nn.Module):
    """After the rehearsal it changes its input, which the first layer's gradient needs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.after = network(), False

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x)
        if self.after:
            x.mul_(2)
        return found


def test_a_change_in_place_is_refused_without_the_size_of_the_lot() -> None:
    model = Doubling()
    with (
        pytest.raises(UnsupportedModel, match=r"a tensor of 2 dimensions .* changed in place"),
        session(model) as dp,
    ):
        for lot in dp.lots():
            model.after = lot.step > 1
            dp.accumulate(lot, cross_entropy(model))
            dp.step()
