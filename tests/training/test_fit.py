"""``fit``: a small run from end to end, what it records, and what it refuses."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

import tacit
from tacit import losses
from tacit.accounting import Composed, Gaussian, epsilon
from tacit.errors import InvalidArgument
from tacit.training import checkpoint
from tacit.training.evaluation import accuracy, check_held_out
from tacit.training.fit import Fit, Keeping, Prepared, Schedule, Watch, carry_out, finished_epoch
from tacit.training.plan import Plan

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.training.progress import StepRecord

EXAMPLES, LOT, DELTA = 400, 40, 1e-5


def blobs(count: int, seed: int) -> TensorDataset:
    """Two classes, well apart."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (count,), generator=generator)
    centres = torch.tensor([[2.0, 0.0, 1.0], [-2.0, 1.0, 0.0]])
    return TensorDataset(centres[labels] + torch.randn(count, 3, generator=generator), labels)


def plan(**changed: Any) -> Plan:
    given = {"examples": EXAMPLES, "lot_size": LOT, "steps": 30, "noise_multiplier": 1.0,
             "clip": 1.0}  # fmt: skip
    return Plan(**given | changed)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))


def sgd(model: nn.Module, rate: float = 0.5) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=rate)


def fit(
    model: nn.Module,
    dataset: Dataset[Any],
    chosen: Plan,
    *,
    optimizer: torch.optim.Optimizer,
    delta: float,
    also: Any = None,
    **given: Any,
) -> Fit:
    """Carries a run out, its settings sorted into the values that hold them."""
    sorted_ = {
        kind: {name: given.pop(name) for name in kind.__dataclass_fields__ if name in given}
        for kind in (Keeping, Watch, Schedule)
    }
    prepared = Prepared(
        model=model, optimizer=optimizer, plan=chosen, dataset=dataset,
        schedule=Schedule(**sorted_[Schedule]), **given,
    )  # fmt: skip
    keeping, watch = Keeping(**sorted_[Keeping]), Watch(**sorted_[Watch])
    return carry_out(prepared, delta=delta, keeping=keeping, watch=watch, also=also)


def test_a_run_learns_and_says_what_it_gave_away() -> None:
    model, chosen = network(), plan()
    done = fit(
        model, blobs(EXAMPLES, 1), chosen, optimizer=sgd(model), delta=DELTA, held_out=blobs(500, 2)
    )
    assert [record.epoch for record in done.history] == [1, 2, 3]
    assert [record.steps for record in done.history] == [10, 20, 30]
    final = done.history[-1]
    assert final.held_out_accuracy is not None
    assert final.held_out_accuracy > 0.9
    assert final.held_out_accuracy == accuracy(model, blobs(500, 2))
    assert final.epsilon == pytest.approx(chosen.epsilon(DELTA))
    spent = [record.epsilon for record in done.history]
    assert spent == sorted(spent)
    assert spent[0] < spent[-1]
    assert done.statement.epsilon == pytest.approx(chosen.epsilon(DELTA))
    assert done.statement.delta == DELTA
    assert (done.statement.steps_planned, done.statement.steps_taken) == (30, 30)


def test_a_record_holds_public_numbers_only() -> None:
    model = network()
    done = fit(model, blobs(EXAMPLES, 1), plan(steps=10), optimizer=sgd(model), delta=DELTA)
    (record,) = done.history
    assert set(dataclasses.asdict(record)) == {
        "epoch", "steps", "held_out_accuracy", "epsilon", "metrics",
    }  # fmt: skip
    assert record.held_out_accuracy is None
    assert record.metrics == {}


def test_a_log_has_one_line_per_epoch(capfd: pytest.CaptureFixture[str]) -> None:
    for progress in (None, False):
        model = network()
        fit(model, blobs(EXAMPLES, 1), plan(steps=20), optimizer=sgd(model), delta=DELTA,
            progress=progress)  # fmt: skip
        shown = capfd.readouterr()
        assert shown.out == ""
        assert len(shown.err.splitlines()) == (2 if progress is None else 0)
        assert "loss" not in shown.err


# ---- metrics of one's own, and who looks on


def mean_margin(model: nn.Module, batches: Any) -> float:
    """A metric that no row has by itself: it must see all rows, once, in evaluation mode."""
    assert not model.training
    assert not torch.is_grad_enabled()
    margins = torch.cat([model(x)[:, 1] * (2 * y - 1) for x, y in batches])
    return float(margins.mean())


def test_any_metric_of_the_held_out_data_is_recorded() -> None:
    model, held = network(), blobs(1500, 2)  # two batches
    done = fit(model, blobs(EXAMPLES, 1), plan(), optimizer=sgd(model), delta=DELTA, held_out=held,
               metrics={"margin": mean_margin, "ppl": lambda *_: torch.inf})  # fmt: skip
    last = done.history[-1]
    with torch.no_grad():
        expected = (model(held.tensors[0])[:, 1] * (2 * held.tensors[1] - 1)).mean()
    assert last.metrics["margin"] == pytest.approx(float(expected), rel=1e-5)
    assert done.history[0].metrics["margin"] != last.metrics["margin"]
    assert last.metrics["ppl"] is None
    assert last.held_out_accuracy == accuracy(model, held)


def test_a_regression_is_judged_by_its_metrics_alone() -> None:
    model = nn.Linear(3, 1)
    features = blobs(EXAMPLES, 1).tensors[0]
    data = TensorDataset(features, features.sum(1))

    def error(trained: nn.Module, batches: Any) -> float:
        return float(torch.cat([(trained(x)[:, 0] - y) ** 2 for x, y in batches]).mean())

    def loss(trained: nn.Module, batch: Any) -> torch.Tensor:
        return (trained(batch[0])[:, 0] - batch[1]) ** 2

    held = TensorDataset(*(one[:50] + 0 for one in data.tensors))
    done = fit(model, data, plan(steps=10), optimizer=sgd(model, 0.01), delta=DELTA, loss=loss,
               held_out=held, metrics={"mse": error})  # fmt: skip
    assert done.history[-1].held_out_accuracy is None
    assert (done.history[-1].metrics["mse"] or 0.0) > 0.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metrics": {"auc": mean_margin}}, "metrics need held_out= to be measured on, got auc"),
        ({"metrics": {"a b": mean_margin}, "held_out": blobs(20, 2)}, "metrics must have names"),
        ({"metrics": {"auc": lambda *_: "x"}, "held_out": blobs(20, 2)},
         r"metrics\['auc'\] must give a number, got a str"),
    ],
)  # fmt: skip
def test_a_metric_that_cannot_be_recorded_costs_nothing(
    given: dict[str, Any], message: str
) -> None:
    model = network()
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(InvalidArgument, match=message):
        fit(model, blobs(EXAMPLES, 1), plan(), optimizer=sgd(model), delta=DELTA, **given)
    assert all(map(torch.equal, before, model.parameters()))


def test_a_step_is_seen_in_public_numbers_and_its_loss_only_by_name() -> None:
    seen: list[StepRecord] = []
    secret: list[float] = []
    model = network()
    optimizer = sgd(model, 1.0)
    fit(model, blobs(EXAMPLES, 1), plan(steps=12), optimizer=optimizer, delta=DELTA,
        scheduler=torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
        on_step=seen.append, on_secret_loss=secret.append)  # fmt: skip
    assert set(dataclasses.asdict(seen[0])) == {"steps", "epoch", "learning_rates"}
    assert [one.steps for one in seen] == list(range(1, 13))
    assert [one.epoch for one in seen] == [0] * 9 + [1] * 3
    assert [one.learning_rates for one in seen] == [(0.5**at,) for at in range(12)]
    assert len(secret) == 12
    assert 0.1 < secret[0] < 5.0  # before anything is learned
    assert secret[-1] < secret[0]


@pytest.mark.parametrize(
    ("changed", "ends"),
    [
        ({}, [10, 20, 30]),
        ({"steps": 25}, [10, 20, 25]),
        ({"steps": 7}, [7]),
        ({"lot_size": 150, "steps": 9}, [3, 6, 8, 9]),  # an epoch is 2⅔ steps
        ({"lot_size": EXAMPLES, "steps": 3}, [1, 2, 3]),
        ({"examples": 49, "lot_size": 7, "steps": 21}, [7, 14, 21]),
    ],
)
def test_epochs_end_where_each_record_was_seen_once_on_average(
    changed: dict[str, Any], ends: list[int]
) -> None:
    chosen = plan(**changed)
    found = {step: finished_epoch(chosen, step) for step in range(1, chosen.steps + 1)}
    assert [step for step, epoch in found.items() if epoch is not None] == ends
    assert [epoch for epoch in found.values() if epoch is not None] == list(range(1, len(ends) + 1))


class Named(Dataset[dict[str, torch.Tensor]]):
    """Examples as dictionaries."""

    def __init__(self, data: TensorDataset) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        x, y = self.data[index]
        return {"features": x, "label": y.float()}


def named_loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return losses.bce_with_logits(model(batch["features"]).squeeze(1), batch["label"])


def named_correct(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return (model(batch["features"]).squeeze(1) > 0) == (batch["label"] > 0)


def test_a_loss_of_ones_own_on_batches_of_ones_own() -> None:
    model = nn.Linear(3, 1)
    done = fit(
        model, Named(blobs(EXAMPLES, 1)), plan(), optimizer=sgd(model), delta=DELTA,
        loss=named_loss, correct=named_correct, held_out=Named(blobs(300, 2)),
    )  # fmt: skip
    assert done.history[-1].held_out_accuracy is not None
    assert done.history[-1].held_out_accuracy > 0.9


def test_other_batches_need_a_loss_and_a_judgement() -> None:
    model = nn.Linear(3, 1)
    with pytest.raises(InvalidArgument, match=r"loss must be given .* pass loss=f"):
        fit(model, Named(blobs(EXAMPLES, 1)), plan(), optimizer=sgd(model), delta=DELTA)
    with pytest.raises(InvalidArgument, match=r"correct must be given .* pass correct=f"):
        accuracy(model, Named(blobs(10, 1)))


class Interrupted(Exception):
    pass


def test_an_interrupted_run_goes_on_from_its_last_epoch(tmp_path: Path) -> None:
    data, held = blobs(EXAMPLES, 1), blobs(300, 2)
    model, chosen = network(), plan(steps=40)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    path = tmp_path / "run.safetensors"
    rates = torch.optim.lr_scheduler.StepLR(optimizer, 15)

    def breaking(trained: nn.Module, batch: Any) -> torch.Tensor:
        if rates.last_epoch == 25:
            raise Interrupted
        return losses.cross_entropy(trained(batch[0]), batch[1])

    with pytest.raises(Interrupted):
        fit(model, data, chosen, optimizer=optimizer, delta=DELTA, loss=breaking, save=path,
            scheduler=rates)  # fmt: skip

    again = network()
    fresh = torch.optim.Adam(again.parameters(), lr=0.05)
    resumed = torch.optim.lr_scheduler.StepLR(fresh, 15)
    done = fit(again, data, chosen, optimizer=fresh, delta=DELTA, held_out=held, resume=path,
               save=path, scheduler=resumed)  # fmt: skip
    assert [record.epoch for record in done.history] == [3, 4]
    assert done.history[-1].steps == 40
    assert done.statement.steps_taken == 40
    assert resumed.last_epoch == 40  # stepped once a step, across the interruption
    assert done.history[-1].held_out_accuracy is not None
    assert done.history[-1].held_out_accuracy > 0.9

    spent = fit(again, data, chosen, optimizer=fresh, delta=DELTA, resume=path, scheduler=resumed)
    assert spent.history == ()
    assert spent.statement == done.statement


def test_the_scheduler_is_stepped_once_a_step() -> None:
    model = network()
    optimizer = sgd(model, 1.0)
    rates = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    fit(model, blobs(EXAMPLES, 1), plan(steps=12), optimizer=optimizer, delta=DELTA,
        scheduler=rates)  # fmt: skip
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.9**12)


def test_a_second_scheduler_by_the_same_name_is_refused() -> None:
    model = network()
    optimizer = sgd(model)
    one, two = (torch.optim.lr_scheduler.StepLR(optimizer, 5) for _ in range(2))
    with pytest.raises(InvalidArgument, match=r"state\['scheduler'\] must be left to scheduler="):
        fit(model, blobs(EXAMPLES, 1), plan(), optimizer=optimizer, delta=DELTA, scheduler=one,
            state={"scheduler": two})  # fmt: skip


def test_held_out_data_must_not_be_the_private_data() -> None:
    model, data = network(), blobs(500, 1)
    private = Subset(data, range(EXAMPLES))
    nested = Subset(Subset(data, range(399, 500)), [0, 1])  # 399 and 400
    joined = Subset(data, range(450, 500)) + Subset(data, [399])
    for held_out in (private, data, Subset(data, range(399, 500)), nested, joined):
        before = [parameter.clone() for parameter in model.parameters()]
        with pytest.raises(InvalidArgument, match=r"held_out must not .* hold other examples out"):
            fit(model, private, plan(), optimizer=sgd(model), delta=DELTA, held_out=held_out)
        assert all(map(torch.equal, before, model.parameters()))
    fit(model, private, plan(steps=1), optimizer=sgd(model), delta=DELTA,
        held_out=Subset(data, range(EXAMPLES, 500)))  # fmt: skip


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(blobs(9, 1))


def test_a_stream_is_refused_with_held_out_data_too() -> None:
    model = network()
    with pytest.raises(InvalidArgument, match="must be map-style"):
        fit(model, Stream(), plan(), optimizer=sgd(model), delta=DELTA,
            held_out=blobs(9, 1))  # fmt: skip


def test_held_out_data_must_not_be_the_same_tensors_or_rows() -> None:
    x, y = blobs(500, 1).tensors
    private, rows = TensorDataset(x[:EXAMPLES], y[:EXAMPLES]), list(zip(x, y, strict=True))
    pairs: list[tuple[Any, Any]] = [
        (private, TensorDataset(x[:EXAMPLES].clone()[:1], y[:1])),
        (private, TensorDataset(x[EXAMPLES:], y[EXAMPLES:])),
        (TensorDataset(x[::2]), TensorDataset(x[1::2])),
        (rows[:EXAMPLES], rows[EXAMPLES:]),
    ]
    for one, other in pairs:
        check_held_out(one, other)
    pairs = [
        (private, TensorDataset(x[:EXAMPLES], y[:EXAMPLES])),
        (private, TensorDataset(x[EXAMPLES - 1 :], y[EXAMPLES - 1 :])),
        (TensorDataset(x[::2]), TensorDataset(x)),
        (TensorDataset(x[::2]), TensorDataset(x[4::8])),
        (Subset(TensorDataset(x, y), range(EXAMPLES)), TensorDataset(x[EXAMPLES - 1 :])),
        (rows[:EXAMPLES], rows[EXAMPLES - 1 :]),
    ]
    for one, other in pairs:
        with pytest.raises(InvalidArgument, match="share examples"):
            check_held_out(one, other)


def test_evaluation_leaves_every_module_in_its_mode() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(), nn.Dropout())
    model.train()
    model[2].eval()
    accuracy(model, blobs(20, 1))
    assert [module.training for module in model.modules()] == [True, True, True, False]


def test_evaluation_is_in_evaluation_mode_and_without_gradients() -> None:
    model = nn.Linear(3, 2).train()

    def judge(judged: nn.Module, batch: Any) -> torch.Tensor:
        assert not judged.training
        outputs = judged(batch[0])
        assert not outputs.requires_grad
        return outputs.argmax(1) == batch[1]

    accuracy(model, blobs(20, 1), correct=judge)


def test_no_held_out_examples_have_no_accuracy() -> None:
    with pytest.raises(InvalidArgument, match="held_out must hold at least one example, got none"):
        accuracy(nn.Linear(3, 2), TensorDataset(torch.zeros(0, 3), torch.zeros(0)))


def test_delta_is_checked_before_training() -> None:
    model = network()
    with pytest.raises(InvalidArgument, match="delta must lie strictly between 0 and 1, got 0"):
        fit(model, blobs(EXAMPLES, 1), plan(), optimizer=sgd(model), delta=0.0)


# ---- averages, stopping, and what else was released


class Asked:
    """Says stop at this question."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self) -> bool:
        self.left -= 1
        return self.left == 0


def test_an_average_is_the_mean_of_the_steps_from_the_first_on() -> None:
    model = network()
    average = AveragedModel(model)
    weights: list[torch.Tensor] = []
    optimizer = sgd(model)
    optimizer.register_step_post_hook(lambda *_: weights.append(model[0].weight.detach().clone()))
    done = fit(model, blobs(EXAMPLES, 1), plan(), optimizer=optimizer, delta=DELTA,
               held_out=blobs(500, 2), average=average, average_from=21)  # fmt: skip
    assert len(weights) == 30
    expected = torch.stack(weights[20:]).mean(0)
    assert torch.allclose(average.module[0].weight, expected, atol=1e-6)
    assert not torch.allclose(model[0].weight, expected, atol=1e-6)
    assert done.history[-1].held_out_accuracy == accuracy(average.module, blobs(500, 2))


def test_accuracy_is_the_models_until_there_is_an_average() -> None:
    model = network()
    average = AveragedModel(model)
    done = fit(model, blobs(EXAMPLES, 1), plan(), optimizer=sgd(model), delta=DELTA,
               held_out=blobs(500, 2), average=average, average_from=31)  # fmt: skip
    assert int(average.n_averaged) == 0
    assert done.history[-1].held_out_accuracy == accuracy(model, blobs(500, 2))


def test_an_average_of_another_model_is_refused() -> None:
    model = network()
    with pytest.raises(InvalidArgument, match="average must be an average of this model"):
        fit(model, blobs(EXAMPLES, 1), plan(), optimizer=sgd(model), delta=DELTA,
            average=AveragedModel(nn.Linear(3, 2)))  # fmt: skip


def test_an_average_joins_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run"
    model = network()
    average = AveragedModel(model)
    fit(model, blobs(EXAMPLES, 1), plan(), optimizer=sgd(model), delta=DELTA, save=path,
        average=average, average_from=5, stop=Asked(17))  # fmt: skip
    again = network()
    resumed = AveragedModel(again)
    fit(again, blobs(EXAMPLES, 1), plan(), optimizer=sgd(again), delta=DELTA, resume=path,
        average=resumed, average_from=5, stop=Asked(1))  # fmt: skip
    assert int(average.n_averaged) == 13
    assert int(resumed.n_averaged) == 14
    moved = average.module[0].weight + (again[0].weight - average.module[0].weight) / 14
    assert torch.allclose(resumed.module[0].weight, moved, atol=1e-6)


def test_state_cannot_take_the_averages_place() -> None:
    model = network()
    with pytest.raises(InvalidArgument, match="must be left to average="):
        fit(model, blobs(EXAMPLES, 1), plan(), optimizer=sgd(model), delta=DELTA,
            state={"average": AveragedModel(model)}, average=AveragedModel(model))  # fmt: skip


def test_a_run_that_is_stopped_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run"
    model = network()
    stopped = fit(model, blobs(EXAMPLES, 1), plan(), optimizer=sgd(model), delta=DELTA,
                  save=path, stop=Asked(17))  # fmt: skip
    assert stopped.stopped
    assert stopped.statement.steps_taken == 17
    assert stopped.statement.epsilon == pytest.approx(plan().epsilon(DELTA))  # the whole plan
    assert [record.steps for record in stopped.history] == [10]
    again = network()
    done = fit(again, blobs(EXAMPLES, 1), plan(), optimizer=sgd(again), delta=DELTA, resume=path)
    assert not done.stopped
    assert [record.steps for record in done.history] == [20, 30]


def test_an_epoch_is_seen_once_it_is_saved_and_noted_before(tmp_path: Path) -> None:
    """Seen before, it would be seen twice if a crash undid it: with other noise, uncharged."""
    path, model = tmp_path / "run", network()
    seen: list[tuple[str, int, int]] = []

    def saved() -> int:
        return checkpoint.read(path).steps_taken if path.exists() else 0

    fit(model, blobs(EXAMPLES, 1), plan(), optimizer=sgd(model), delta=DELTA, save=path,
        note=lambda record: seen.append(("noted", record.steps, saved())),
        on_epoch=lambda record: seen.append(("seen", record.steps, saved())))  # fmt: skip
    assert seen == [
        ("noted", 10, 0), ("seen", 10, 10), ("noted", 20, 10), ("seen", 20, 20),
        ("noted", 30, 20), ("seen", 30, 30),
    ]  # fmt: skip


def test_a_run_at_its_end_is_not_asked_to_stop() -> None:
    model, asked = network(), Asked(30)
    done = fit(model, blobs(EXAMPLES, 1), plan(), optimizer=sgd(model), delta=DELTA, stop=asked)
    assert not done.stopped
    assert asked.left == 1  # after each of 29 steps


def test_every_epsilon_counts_what_else_was_released() -> None:
    model, other = network(), Gaussian(5.0)
    told: list[float] = []
    done = fit(model, blobs(EXAMPLES, 1), plan(), optimizer=sgd(model), delta=DELTA, also=other,
               on_epoch=lambda record: told.append(record.epsilon))  # fmt: skip
    expected = [
        epsilon(Composed(other, plan().event_after(steps)), DELTA) for steps in (10, 20, 30)
    ]
    assert told == [record.epsilon for record in done.history] == pytest.approx(expected)


# ---- what a newcomer passes, refused before anything is charged


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (nn.CrossEntropyLoss(), "got CrossEntropyLoss, which is given outputs and labels"),
        (nn.MSELoss(reduction="none"), "got MSELoss, which is given outputs and labels"),
        (nn.functional.cross_entropy, "got cross_entropy, which is given outputs and labels"),
        (losses.bce_with_logits, "got bce_with_logits, which is given outputs and labels"),
        ("mse", "got 'mse'; leave it out for the cross entropy"),
    ],
)
def test_a_loss_of_outputs_and_labels_is_refused_with_the_way_to_write_it(
    loss: Any, words: str
) -> None:
    model = network()
    with pytest.raises(InvalidArgument, match="loss must be a function of model and batch") as said:
        fit(model, blobs(EXAMPLES, 1), plan(), optimizer=sgd(model), delta=DELTA, loss=loss)
    assert words in str(said.value)


def test_a_loss_that_torch_cannot_compute_is_refused_in_torchs_words() -> None:
    model = network()
    with pytest.raises(TypeError, match="must be Tensor, not Sequential"):
        fit(model, blobs(EXAMPLES, 1), plan(), optimizer=sgd(model), delta=DELTA,
            loss=lambda out, labels: nn.functional.cross_entropy(out, labels) * 2)  # fmt: skip


def test_a_learning_rate_that_teaches_nothing_is_refused() -> None:
    model, data = network(), blobs(EXAMPLES, 1)
    for rate, words in ((0.0, "lr of the optimizer must be above 0, got 0"),
                        (float("nan"), "lr of the optimizer must be a finite number")):  # fmt: skip
        with pytest.raises(InvalidArgument, match=words):
            tacit.fit(model, sgd(model, rate), plan(), data, delta=DELTA)
    still = sgd(model, 0.0)
    flat = torch.optim.lr_scheduler.LambdaLR(still, lambda step: 1.0 + step)
    with pytest.raises(InvalidArgument, match="must be above 0"):
        tacit.fit(model, still, plan(), data, delta=DELTA, schedule=Schedule(scheduler=flat))
    optimizer = sgd(model)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(step > 0))
    assert optimizer.param_groups[0]["lr"] == 0.0
    tacit.fit(model, optimizer, plan(), data, delta=DELTA, schedule=Schedule(scheduler=warm))


def test_an_audit_may_keep_weights_where_they_are() -> None:
    model = network()
    before = [one.detach().clone() for one in model.parameters()]
    fit(model, blobs(EXAMPLES, 1), plan(), optimizer=sgd(model, 0.0), delta=DELTA)
    assert all(map(torch.equal, before, model.parameters()))


class Wrapped(nn.Module):
    """Gives its scores as a part of something, as many models do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.inner(x)}


def test_outputs_and_labels_that_the_usual_loss_cannot_take_are_named() -> None:
    model = Wrapped()
    with pytest.raises(InvalidArgument, match="loss must be given for a model whose output is no "):
        fit(model, blobs(EXAMPLES, 1), plan(), optimizer=sgd(model), delta=DELTA)
    with pytest.raises(InvalidArgument, match="correct must be given for a model whose output is"):
        fit(model, blobs(EXAMPLES, 1), plan(), optimizer=sgd(model), delta=DELTA,
            loss=lambda m, b: losses.cross_entropy(m(b[0])["logits"], b[1]),
            held_out=blobs(9, 2))  # fmt: skip
    plain, named = network(), [(x, "yes") for x, _ in blobs(EXAMPLES, 1)]
    with pytest.raises(
        InvalidArgument, match=r"labels must be numbers of classes \(0, 1, …\), got"
    ):
        fit(plain, named, plan(), optimizer=sgd(plain), delta=DELTA)  # type: ignore[arg-type]


def test_settings_of_another_kind_are_named() -> None:
    model = network()
    rates = torch.optim.lr_scheduler.StepLR(sgd(model), 5)
    given = Prepared(model=model, optimizer=sgd(model), plan=plan(), dataset=blobs(EXAMPLES, 1))
    with pytest.raises(InvalidArgument, match=r"schedule must be a tacit\.Schedule, got a StepLR"):
        carry_out(dataclasses.replace(given, schedule=rates), delta=DELTA)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"metrics\['auc'\] must be a function of model and"):
        carry_out(dataclasses.replace(given, held_out=blobs(9, 2), metrics={"auc": 3}), delta=DELTA)  # type: ignore[dict-item]


def test_inputs_of_another_precision_are_named() -> None:
    data = blobs(EXAMPLES, 1)
    for model, x in ((network(), data.tensors[0].double()), (network().half(), data.tensors[0])):
        rows = TensorDataset(x, data.tensors[1])
        with pytest.raises(
            InvalidArgument, match=r"inputs must be of the model's type, torch\.float"
        ):
            fit(model, rows, plan(), optimizer=sgd(model), delta=DELTA)
    model = network()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):  # not of its type
        fit(model, TensorDataset(torch.zeros(EXAMPLES, 4), data.tensors[1]), plan(),
            optimizer=sgd(model), delta=DELTA)  # fmt: skip


def test_an_optimizer_of_another_model_is_named() -> None:
    with pytest.raises(InvalidArgument, match="the optimizer holds no parameter of this model"):
        fit(network(), blobs(EXAMPLES, 1), plan(), optimizer=sgd(network()), delta=DELTA)
