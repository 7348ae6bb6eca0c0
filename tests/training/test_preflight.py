"""What is refused before anything is charged, each in one line that names the remedy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import lr_scheduler
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset, TensorDataset

import tacit
from tacit.errors import InvalidArgument, ProtocolError, TacitError, UnsupportedModel
from tacit.randomness import UnsafeSeededStream
from tacit.training import verification
from tacit.training.fit import Keeping, Watch, carry_out
from tacit.training.lot import Lot
from tacit.training.performance import Performance
from tacit.training.sampling import LotSampler

from .sessions import (
    CLASSES,
    CLIP,
    EXAMPLES,
    WIDTH,
    Grads,
    close,
    cross_entropy,
    data,
    example_sum,
    network,
    plan,
    session,
    sgd,
    whole_lot,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tacit.training.session import Session

DELTA = 1e-5


@pytest.fixture
def nothing_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(_: LotSampler) -> Any:
        pytest.fail("a lot was sampled")

    monkeypatch.setattr(LotSampler, "draw", draw)


def one_line(refused: pytest.ExceptionInfo[BaseException]) -> str:
    assert isinstance(refused.value, TacitError)
    text = str(refused.value)
    assert "\n" not in text
    return text


def step(dp: Session, losses: Callable[[Any], Tensor]) -> None:
    with dp:
        whole_lot(dp, next(dp.lots()), losses)


# ---- the process, optimizers and schedules


def test_one_of_several_launched_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that cannot find each other: both would train, and each claim the plan's ε."""
    for name, value in (("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with pytest.raises(UnsupportedModel, match="WORLD_SIZE=2") as refused:
        session()
    assert "or one process with python" in one_line(refused)
    monkeypatch.setenv("WORLD_SIZE", "1")
    session()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK")  # some clusters set it everywhere
    session()


def accelerated(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """As accelerate 1.15 does: an optimizer that holds another, and was never initialised."""

    class AcceleratedOptimizer(torch.optim.Optimizer):
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer = optimizer

        @property
        def param_groups(self) -> Any:
            return self.optimizer.param_groups

    AcceleratedOptimizer.__module__ = "accelerate.optimizer"
    return AcceleratedOptimizer(optimizer)


def test_an_optimizer_that_accelerate_wrapped_is_refused() -> None:
    model = network()
    with pytest.raises(InvalidArgument, match="accelerate's AcceleratedOptimizer") as refused:
        session(model, optimizer=accelerated(sgd(model)))
    assert "pass optimizer.optimizer" in one_line(refused)


def test_a_model_without_numbers_is_refused() -> None:
    with torch.device("meta"):
        model = nn.Linear(WIDTH, CLASSES)
    with pytest.raises(InvalidArgument, match="on the device 'meta'"):
        session(model)


def saved(place: Any) -> Any:
    model = network()
    prepared = tacit.Prepared(model=model, optimizer=sgd(model), plan=plan(), dataset=data())
    return carry_out(
        prepared, delta=DELTA, keeping=Keeping(save=place), watch=Watch(progress=False)
    )


def fitted(model: nn.Module, **changed: Any) -> Any:
    given = {"delta": DELTA, "progress": False} | changed
    optimizer = given.pop("optimizer", None) or sgd(model)
    return tacit.fit(model, optimizer, plan(), data(), **given)


@pytest.mark.usefixtures("nothing_is_sampled")
def test_a_schedule_that_follows_a_metric_is_refused() -> None:
    model = network()
    optimizer = sgd(model)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(InvalidArgument, match="scheduler is a ReduceLROnPlateau") as refused:
        fitted(model, optimizer=optimizer, schedule=tacit.Schedule(scheduler=plateau))
    assert "number of steps" in one_line(refused)
    with pytest.raises(InvalidArgument, match="mine is a ReduceLROnPlateau"):
        session(model, optimizer=optimizer, state={"mine": plateau})


@pytest.mark.usefixtures("nothing_is_sampled")
def test_a_schedule_of_another_optimizer_is_refused() -> None:
    model = network()
    schedule = lr_scheduler.StepLR(sgd(model), 1)
    with pytest.raises(InvalidArgument, match="made for the optimizer that is passed"):
        fitted(model, schedule=tacit.Schedule(scheduler=schedule))


# ---- where results go, and δ


@pytest.mark.usefixtures("nothing_is_sampled")
def test_a_place_that_cannot_be_written_is_refused_before_the_first_step(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for place in (file / "run", tmp_path):
        with pytest.raises(InvalidArgument, match="save must be a file") as refused:
            saved(place)
        one_line(refused)


def test_a_folder_that_is_missing_is_made(tmp_path: Path) -> None:
    place = tmp_path / "new" / "deep" / "run"
    saved(place)
    assert place.exists()


@pytest.mark.usefixtures("nothing_is_sampled")
@pytest.mark.parametrize("delta", [1 / EXAMPLES, 0.5])
def test_a_delta_of_one_record_is_refused(delta: float) -> None:
    with pytest.raises(InvalidArgument, match=f"delta must be below 1/{EXAMPLES}") as refused:
        fitted(network(), delta=delta)
    one_line(refused)


# ---- the data


def test_a_data_frame_is_refused() -> None:
    frame = type("DataFrame", (dict,), {"__module__": "pandas.core.frame"})()
    with pytest.raises(InvalidArgument, match=r"is a DataFrame, .*TensorDataset"):
        session(dataset=frame)


class Ragged(Dataset[Any]):
    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int) -> Any:
        return torch.ones(4321 + index), 0


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.usefixtures("nothing_is_sampled")
def test_rows_of_different_length_need_a_collation(workers: int) -> None:
    dp = session(dataset=Ragged(), performance=Performance(workers=workers))
    with pytest.raises(InvalidArgument, match="collate must be given") as refused:
        step(dp, lambda batch: batch[0].sum(1))
    assert "pad_sequence" in str(refused.value)
    assert "43" not in str(refused.value)  # how long a record is stays secret


@pytest.mark.usefixtures("nothing_is_sampled")
def test_a_table_of_nan_is_refused_before_anything_is_charged() -> None:
    table = TensorDataset(torch.full((EXAMPLES, WIDTH), torch.nan), data().tensors[1])
    model = network()
    with pytest.raises(InvalidArgument, match="missing values") as refused:
        tacit.fit(model, sgd(model), plan(), table, delta=DELTA)
    assert "Nothing was charged" in one_line(refused)


@pytest.mark.parametrize("noise", ["fast", "exact"])
def test_some_records_of_nan_stop_nothing(noise: str) -> None:
    x, y = (tensor.clone() for tensor in data().tensors)
    x[::2] = torch.nan
    model = network()
    chosen = plan(noise=noise, noise_multiplier=1.0)
    tacit.fit(model, sgd(model), chosen, TensorDataset(x, y), delta=DELTA)


# ---- the loss


@pytest.mark.usefixtures("nothing_is_sampled")
@pytest.mark.parametrize("label", [CLASSES, 1777, -3])
def test_labels_out_of_range_are_refused_and_not_told(label: int) -> None:
    x, _ = data().tensors
    model = network()
    dataset = TensorDataset(x, torch.full((EXAMPLES,), label))
    with pytest.raises(InvalidArgument, match="labels must be numbers of classes") as refused:
        tacit.fit(model, sgd(model), plan(), dataset, delta=DELTA)
    assert str(label) not in one_line(refused)


def test_a_label_out_of_range_in_a_later_lot_is_not_told() -> None:
    """The rehearsal has not seen it: what the loop meets later says no more."""
    x, y = (tensor.clone() for tensor in data().tensors)
    model = network()
    dp = session(model, dataset=TensorDataset(x, y), plan=plan(lot_size=EXAMPLES))
    criterion = nn.CrossEntropyLoss(reduction="none")
    with pytest.raises(InvalidArgument, match="labels must be numbers of classes") as refused, dp:
        for lot in dp.lots():
            for inputs, labels in lot:
                wrong = labels + 1777 * (lot.step > 0)
                dp.backward(criterion(model(inputs), wrong))
            dp.step()
    assert dp.steps_taken == 1
    assert "177" not in one_line(refused)
    assert refused.value.__suppress_context__


@pytest.mark.usefixtures("nothing_is_sampled")
def test_losses_that_a_scaler_has_multiplied_are_refused() -> None:
    model = network()
    scaler = torch.amp.GradScaler("cpu")

    def losses(batch: Any) -> Tensor:
        x, y = batch
        each = functional.cross_entropy(model(x), y, reduction="none")
        scaled: Tensor = scaler.scale(each)
        return scaled

    with pytest.raises(UnsupportedModel, match="leave the scaler out") as refused:
        step(session(model), losses)
    one_line(refused)


@pytest.mark.parametrize("used", [False, True])
def test_a_scaler_that_steps_the_optimizer_is_refused_with_the_remedy(used: bool) -> None:
    """Torch gives up first: there are no gradients for it to unscale."""
    model = network()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu")
    if used:
        scaler.scale(torch.zeros(()))
    with (
        pytest.raises(ProtocolError, match=r"leave the GradScaler out and call dp\.step"),
        session(model, optimizer=optimizer) as dp,
    ):
        lot = next(dp.lots())
        for batch in lot:
            dp.backward(cross_entropy(model)(batch))
        scaler.step(optimizer)


@pytest.mark.usefixtures("nothing_is_sampled")
def test_reentrant_checkpointing_is_refused() -> None:
    model = network()

    def losses(batch: Any) -> Tensor:
        x, y = batch
        out = checkpoint(model, x.requires_grad_(), use_reentrant=True)
        return functional.cross_entropy(out, y, reduction="none")

    with pytest.raises(UnsupportedModel, match="use_reentrant=False") as refused:
        step(session(model), losses)
    one_line(refused)


@pytest.mark.usefixtures("nothing_is_sampled")
def test_one_loss_for_the_whole_batch_is_refused() -> None:
    model = network()

    def losses(batch: Any) -> Tensor:
        x, y = batch
        return functional.cross_entropy(model(x), y)

    with pytest.raises(InvalidArgument, match=r"reduction='none'.*tacit\.losses\.of"):
        step(session(model), losses)


WRONG_SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "column": lambda each: each[:, None],
    "table": lambda each: each[:, None].expand(-1, 7) * 1,
    "short": lambda each: each[:-1],
    "twice": lambda each: torch.cat([each, each]),
    "turned": lambda each: each[None] * 1,
}


@pytest.mark.parametrize("kind", WRONG_SHAPES)
def test_the_refusal_of_a_shape_does_not_tell_how_many_were_drawn(kind: str) -> None:
    model = network()
    dp = session(model, plan=plan(steps=2, lot_size=20), unsafe_seed=3)
    rows: list[int] = []
    with pytest.raises(InvalidArgument, match="one number per row") as refused, dp:
        for lot in dp.lots():
            for x, y in lot:
                each = functional.cross_entropy(model(x), y, reduction="none")
                rows.append(len(each))
                dp.backward(WRONG_SHAPES[kind](each) if lot.step else each)
            dp.step()
    text = one_line(refused)
    assert rows[-1] > 9
    assert not any(str(rows[-1] + more) in text for more in (-1, 0, 1))
    assert str(2 * rows[-1]) not in text


# ---- the rehearsal


def test_a_loop_can_leave_rehearsals_out() -> None:
    """What it counts is then each row of the lot, once."""
    model = network()
    counted = []
    with session(model, plan=plan(lot_size=EXAMPLES, steps=3)) as dp:
        for lot in dp.lots():
            if lot.step == 1:
                dp.verify()
            rows = 0
            for x, y in lot:
                dp.backward(functional.cross_entropy(model(x), y, reduction="none"))
                rows += 0 if lot.is_rehearsal else len(x)
            dp.step()
            counted.append(rows)
    assert counted == [EXAMPLES] * 3


def test_the_rehearsal_changes_nothing() -> None:
    """Neither random numbers, nor modes, nor a step count; and it does not see the lot."""
    model = nn.Sequential(nn.Linear(WIDTH, 6), nn.Dropout(0.5), nn.Linear(6, CLASSES))
    model[1].eval()
    dp = session(model, plan=plan(lot_size=1e-9))
    with dp:
        before = torch.get_rng_state()
        lot = next(dp.lots())
        assert isinstance(lot, Lot)
        seen = 0
        for x, y in lot:
            assert lot.is_rehearsal
            noise = torch.randn(())
            dp.backward(functional.cross_entropy(model(x), y, reduction="none") + 0 * noise)
            seen += 1
        assert seen == 5
        assert torch.equal(before, torch.get_rng_state())
        assert dp.steps_taken == 0
        dp.step()
    assert not model[1].training


def test_checks_come_again_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss that begins to mix later is found."""
    monkeypatch.setattr(verification, "EVERY", 5)
    monkeypatch.setattr(verification, "SHARE", 1e9)
    model = network()
    dp = session(model, plan=plan(steps=400, lot_size=20))
    with pytest.raises(UnsupportedModel, match="changed the loss of others"), dp:
        for lot in dp.lots():
            for x, y in lot:
                each = functional.cross_entropy(model(x), y, reduction="none")
                dp.backward(each * each.detach().mean() if lot.step > 3 else each)
            dp.step()
    assert 3 < dp.steps_taken < 30


@pytest.mark.parametrize(("lot", "check"), [(1e-4, 2e-2), (0.1, 0.5), (2.0, 0.5)])
def test_later_checks_take_a_hundredth_of_the_time(
    lot: float, check: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(verification, "time", SimpleNamespace(perf_counter=lambda: now))
    schedule = verification.CheckSchedule(UnsafeSeededStream(1, "checks"))
    schedule.begin()
    now += check
    schedule.end()
    begun, checks, steps = now, 0, 40_000
    for _ in range(steps):
        if schedule.due():
            schedule.begin()
            now += check
            schedule.end()
            checks += 1
        now += lot
        assert checks * check <= 0.01 * (now - begun) + 1e-9
    likely = min(steps / verification.EVERY, 0.01 * steps * lot / check)
    assert checks >= 0.4 * likely  # and they do come


def test_the_result_of_a_check_says_that_it_is_secret() -> None:
    model = network()
    with session(model) as dp:
        found = dp.verify(
            lambda batch: functional.cross_entropy(model(batch[0]), batch[1], reduction="none")
        )
    assert found is not None
    assert "secret" in repr(found)
    assert f"{found.moved:.4}"[:5] not in repr(found)
    assert "SECRET" in (type(found).__doc__ or "")
    assert "SECRET" in (type(dp).verify.__doc__ or "")


def test_explain_does_not_follow_the_size_of_a_lot() -> None:
    texts = set()
    for seed in range(3):
        with session(plan=plan(lot_size=12, steps=2), unsafe_seed=seed) as dp:
            for lot in dp.lots():
                whole_lot(dp, lot, cross_entropy(dp.model))
                texts.add(dp.explain())
    assert len(texts) == 1
    assert "temporary for 8 examples" in texts.pop()


# ---- another default precision


class Words(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.inner = inner
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        words = self.table((x.abs() * 3).long() % 7)
        if isinstance(self.inner, nn.MultiheadAttention):
            words = self.inner(words, words, words, need_weights=False)[0]
        elif isinstance(self.inner, nn.RNNBase):
            words = self.inner(words)[0]
        shown: Tensor = self.head(self.norm(words).mean(1))
        return shown


class Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(),
            nn.Linear(4 * (WIDTH - 2), CLASSES),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        shown: Tensor = self.net(x[:, None])
        return shown


KINDS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(nn.Linear(WIDTH, 6), nn.Tanh(), nn.Linear(6, CLASSES)),
    "convolution": Image,
    "embedding": lambda: Words(nn.Identity()),
    "attention": lambda: Words(nn.MultiheadAttention(4, 2, batch_first=True)),
    "recurrent": lambda: Words(nn.LSTM(4, 4, batch_first=True)),
    "gru": lambda: Words(nn.GRU(4, 4, batch_first=True)),
}


@pytest.fixture
def double() -> Any:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("noise", ["fast", "secure", pytest.param("exact", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_double_precision_by_default(kind: str, noise: str) -> None:
    """The clipped sum is that of looped autograd; on a grid, as near as that is fine."""
    tolerance = 2e-6 if noise == "fast" else 1e-3
    torch.manual_seed(1)
    model = KINDS[kind]()
    assert {p.dtype for p in model.parameters()} == {torch.float64}
    optimizer = sgd(model, lr=1e-12)
    grads = Grads(model, optimizer)
    x, y = data().tensors
    dataset = TensorDataset(x.double(), y)
    truth = example_sum(model, dataset, range(EXAMPLES), CLIP)
    chosen = plan(lot_size=EXAMPLES, steps=1, noise=noise, noise_multiplier=1e-7)
    dp = session(model, optimizer=optimizer, dataset=dataset, plan=chosen)
    step(dp, lambda b: functional.cross_entropy(model(b[0]), b[1], reduction="none"))
    assert close(grads.steps[0], {n: v / EXAMPLES for n, v in truth.items()}, tolerance)


# ---- held-out data


@pytest.mark.usefixtures("nothing_is_sampled")
@pytest.mark.parametrize("kind", ["one logit", "regression", "no class", "broken"])
def test_accuracy_that_means_nothing_is_refused(kind: str) -> None:
    """One output is never largest at label 1: 0.0 or 0.5 was reported as accuracy."""
    model = nn.Linear(WIDTH, 1 if kind == "one logit" else CLASSES)
    x, y = data(8, seed=1).tensors
    held_out = TensorDataset(x, y.float() if kind == "regression" else y % 2)
    given: dict[str, Any] = {"held_out": held_out}
    if kind == "no class":
        model = nn.Sequential(model, nn.Unflatten(1, (CLASSES, 1)))
    if kind == "broken":
        given["correct"] = lambda _, batch: dict(enumerate(batch))["label"]
    with pytest.raises(KeyError if kind == "broken" else InvalidArgument):
        tacit.fit(model, sgd(model), plan(), data(), delta=DELTA, **given)


def test_one_logit_is_judged_as_asked() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, 1), nn.Flatten(0))
    x, _ = data().tensors
    train, test = (TensorDataset(x + by, (x[:, 0] + by > 0).double()) for by in (0, 1))

    def losses(model: nn.Module, batch: Any) -> Tensor:
        return functional.binary_cross_entropy_with_logits(
            model(batch[0]), batch[1].float(), reduction="none"
        )

    def correct(model: nn.Module, batch: Any) -> Tensor:
        right: Tensor = (model(batch[0]) > 0) == (batch[1] > 0.5)
        return right

    done = tacit.fit(
        model, sgd(model, 1.0), plan(lot_size=EXAMPLES, steps=60), train, delta=DELTA,
        loss=losses, held_out=test, correct=correct,
    )  # fmt: skip
    accuracy = done.history[-1].held_out_accuracy
    assert accuracy is not None
    assert accuracy > 0.8
