"""PrivateTrainer beside the explicit loop, what it writes, resumes, refuses, and hides."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import tacit
from tacit import losses
from tacit.errors import CheckpointError, InvalidArgument, ProtocolError, UnsupportedModel

from . import tiny

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

from transformers import BatchEncoding, Trainer, TrainerCallback, TrainingArguments

from tacit.hf import PrivateTrainer, PrivateTraining, refusals
from tacit.hf.refusals import SETTINGS

datasets = pytest.importorskip("datasets", reason="needs datasets: pip install .[hf]")
tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install .[hf]")
pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own
ROWS, SEED = 24, 5


def plan(steps: int = 4, **changed: Any) -> tacit.Plan:
    terms = {"lot_size": 8, "noise_multiplier": 0.5, "clip": 0.1, **changed}
    return tacit.Plan(examples=ROWS, steps=steps, **terms)


def arguments(folder: Path, **changed: Any) -> TrainingArguments:
    given = {
        "max_grad_norm": 0.0, "report_to": "none", "save_strategy": "no", "disable_tqdm": True,
        "use_cpu": True, "learning_rate": 0.05, "optim": "adamw_torch", "logging_steps": 1,
        "per_device_train_batch_size": 4, **changed,
    }  # fmt: skip
    return TrainingArguments(output_dir=str(folder), **given)


def trainer_of(case: tiny.Case, folder: Path, **changed: Any) -> Any:
    settings, kind = changed.pop("settings", {}), changed.pop("kind", PrivateTrainer)
    given: dict[str, Any] = {
        "model": case.made(), "args": arguments(folder, **settings), "plan": plan(),
        "train_dataset": case.rows(ROWS), "data_collator": case.collate, "unsafe_seed": SEED,
        **changed,
    }  # fmt: skip
    return kind(**given)


def by_hand(case: tiny.Case, steps: int = 4) -> nn.Module:
    """The same training as an explicit loop: AdamW with the trainer's default schedule."""
    model = case.made().train()
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=0.05, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - step / steps)
    with tacit.private(
        model, optimizer, plan(steps), case.rows(ROWS), collate=case.collate, unsafe_seed=SEED,
        performance=tacit.Performance(batch=4),
    ) as dp:  # fmt: skip
        for lot in dp.lots():
            for batch in lot:
                dp.backward(losses.of(model, batch))
            dp.step()
            schedule.step()
    return model


def apart(one: nn.Module, other: nn.Module) -> float:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs if a.is_floating_point())


def often(case: tiny.Case) -> Any:
    """Three are compared in `make test`, one of them with adapters; the rest are slow."""
    quick = case.name in ("GPT-2", "BERT") or case.name.startswith("Llama")
    return pytest.param(case, id=str(case), marks=() if quick else pytest.mark.slow)


class WithOwnLosses(PrivateTrainer):
    def row_losses(self, model: nn.Module, batch: Any) -> torch.Tensor:
        return losses.of(model, batch)


def test_lots_are_recorded_unless_the_trainer_itself_has_a_part_in_losses(tmp_path: Path) -> None:
    case = tiny.CASES[5]
    of_one_width = tiny.Case(
        case.name, case.model,
        lambda count: [row for row in tiny.texts(20 * count) if len(row["input_ids"]) == 6][:count],
        lambda rows: BatchEncoding(tiny.padded(rows)),
    )  # fmt: skip
    ends = []
    for kind in (PrivateTrainer, WithOwnLosses):
        trainer = trainer_of(
            of_one_width, tmp_path, kind=kind, plan=plan(12), settings={"max_steps": 12},
            performance=tacit.Performance(batch=4, capture=True),
        )  # fmt: skip
        trainer.train()
        recorded = "Batches are replayed" in trainer.session.explain()
        assert recorded == (kind is PrivateTrainer)  # the other's function holds what it counts
        ends.append(torch.cat([p.detach().flatten() for p in trainer.model.parameters()]))
    assert torch.allclose(*ends, atol=1e-6)


@pytest.mark.parametrize("case", [often(case) for case in tiny.CASES])
def test_it_equals_the_explicit_loop(case: tiny.Case, tmp_path: Path):
    trainer = trainer_of(case, tmp_path, plan=plan(2))
    done = trainer.train()
    assert done.global_step == 2
    assert apart(trainer.model, by_hand(case, 2)) <= 1e-6
    assert apart(trainer.model, case.made()) > 1e-3


PROMPTS = (
    tiny.Case("Llama", lambda: tiny.prompted(tiny.llama(), "CAUSAL_LM")),
    tiny.Case("BERT", lambda: tiny.prompted(tiny.bert(), "SEQ_CLS"), tiny.labelled),
    tiny.Case("T5", lambda: tiny.prompted(tiny.t5(), "SEQ_2_SEQ_LM")),
)


@pytest.mark.parametrize("case", PROMPTS, ids=str)
def test_prompts_get_the_sum_of_every_rows_clipped_gradient(case: tiny.Case, tmp_path: Path):
    onlooker = Onlooker()
    quiet = plan(1, lot_size=ROWS, noise_multiplier=1e-9)
    trainer_of(case, tmp_path, plan=quiet, callbacks=[onlooker]).train()
    model: Any = case.made().double().train()
    learned = [p for p in model.parameters() if p.requires_grad]
    total = torch.zeros(sum(p.numel() for p in learned), dtype=torch.float64)
    for row in case.rows(ROWS):
        found = torch.autograd.grad(model(**case.collate([row])).loss, learned)
        gradient = torch.cat([one.flatten() for one in found])
        total += gradient * min(1.0, quiet.clip / float(gradient.norm()))
    torch.testing.assert_close(onlooker.gradients[0].double(), total / ROWS, rtol=1e-4, atol=1e-7)


def test_rows_of_like_length_share_batches(tmp_path: Path):
    case = tiny.CASES[0]
    lengths = [1000 * len(row["input_ids"]) for row in case.rows(ROWS)]  # too far to round up
    assert len({*lengths}) > 1
    trainer = trainer_of(case, tmp_path, plan=plan(2), lengths=lengths)
    trainer.train()
    assert "Rows of like length share batches" in trainer.session.explain()
    assert apart(trainer.model, by_hand(case, 2)) <= 1e-6


def test_lots_and_noise_of_another_seed_lead_elsewhere(tmp_path: Path):
    """The comparison above can fail."""
    case = tiny.CASES[0]
    trainer = trainer_of(case, tmp_path, unsafe_seed=SEED + 1)
    trainer.train()
    assert apart(trainer.model, by_hand(case)) > 1e-3


# ---- what is logged and written


SECRETS = ("loss", "runtime", "per_second", "flos", "tokens_seen")


def test_nothing_secret_is_logged_or_written(tmp_path: Path):
    case = tiny.CASES[0]
    trainer = trainer_of(
        case, tmp_path, eval_dataset=tiny.texts(6, seed=9),
        plan=tacit.Plan.for_budget(
            epsilon=3, delta=1e-3, examples=ROWS, lot_size=8, steps=4, clip=0.1
        ),
        settings={"save_strategy": "steps", "save_steps": 2, "eval_strategy": "epoch"},
    )  # fmt: skip
    done = trainer.train()
    assert math.isnan(done.training_loss)
    history = trainer.state.log_history
    steps = [one for one in history if "learning_rate" in one]
    assert [one["step"] for one in steps] == [1, 2, 3, 4]
    assert steps[-1]["epsilon"] == pytest.approx(trainer.spent(1e-3))
    assert any("eval_loss" in one for one in history)
    for one in (*history, done.metrics):
        assert not [key for key in one if "eval" not in key and any(s in key for s in SECRETS)]
    state = json.loads((tmp_path / "checkpoint-4" / "trainer_state.json").read_text())
    assert state["log_history"] == history[: len(state["log_history"])]
    assert state["total_flos"] == 0
    claim = tacit.Statement.from_json((tmp_path / "checkpoint-4/statement.json").read_text())
    assert claim.epsilon <= 3


def test_neither_masks_nor_a_checkpoint_tell_how_many_rows_were_drawn(tmp_path: Path):
    """The trainer seeds torch with args.seed: where its generator has come to counts dropout."""
    case = tiny.Case("with dropout", lambda: tiny.llama(attention_dropout=0.5))

    def ends(number: int, **changed: Any) -> nn.Module:
        folder = tmp_path / str(number)
        trainer = trainer_of(
            case, folder, settings={"save_strategy": "steps", "save_steps": 1}, **changed,
            plan=plan(1, lot_size=ROWS, noise_multiplier=1e-9),
        )  # fmt: skip
        trainer.train()
        assert not [*folder.rglob("*rng*")]
        return trainer.model

    known = [ends(number) for number in range(2)]
    assert apart(*known) <= 1e-6
    secret = [ends(number, unsafe_seed=None) for number in range(2, 4)]
    assert apart(*secret) > 1e-4  # all that differs is the masks


class Onlooker(TrainerCallback):
    """Notes what a callback sees."""

    def __init__(self) -> None:
        self.norms: list[float] = []
        self.gradients: list[torch.Tensor] = []
        self.events: list[str] = []

    def on_pre_optimizer_step(self, _args: Any, _state: Any, _control: Any, **seen: Any) -> None:
        gradients = [p.grad for p in seen["model"].parameters() if p.requires_grad]
        assert all(one is not None for one in gradients)
        self.norms.append(float(torch.nn.utils.get_total_norm(gradients)))
        self.gradients.append(torch.cat([one.flatten() for one in gradients]))

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_seen: Any) -> None:
        self.events.append(f"step {state.global_step}")

    def on_epoch_end(self, _args: Any, state: Any, _control: Any, **_seen: Any) -> None:
        self.events.append(f"epoch {state.epoch:g}")


def test_callbacks_see_private_gradients_and_the_plans_epochs(tmp_path: Path):
    onlooker = Onlooker()
    noisy = plan(noise_multiplier=1000.0, clip=1.0, lot_size=8)
    trainer = trainer_of(tiny.CASES[0], tmp_path, callbacks=[onlooker], plan=noisy)
    trainer.train()
    assert onlooker.events == ["step 1", "step 2", "step 3", "epoch 1", "step 4", "epoch 1.33333"]
    entries = sum(p.numel() for p in trainer.model.parameters())
    expected = 1000.0 / 8 * math.sqrt(entries)  # noise and nothing else: no row shows
    assert onlooker.norms == pytest.approx([expected] * 4, rel=0.1)
    logged = [one["grad_norm"] for one in trainer.state.log_history if "grad_norm" in one]
    assert logged == pytest.approx(onlooker.norms)


def test_no_row_is_repeated_to_make_lots_even(tmp_path: Path):
    """Accelerate's even_batches would; the loader is never given to it."""
    seen: list[int] = []
    rows = [{**row, "number": at} for at, row in enumerate(tiny.texts(ROWS))]

    def collate(batch: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        seen.extend(row["number"] for row in batch)
        return tiny.padded(batch)

    trainer = trainer_of(
        tiny.CASES[0], tmp_path, train_dataset=rows, data_collator=collate, plan=plan(1),
        settings={"remove_unused_columns": False},
    )  # fmt: skip
    assert len(trainer.get_train_dataloader()) == 3
    trainer.train()
    with tacit.private(
        (other := tiny.CASES[0].made()), torch.optim.SGD(other.parameters(), lr=0.1), plan(1),
        rows, collate=collate, unsafe_seed=SEED, performance=tacit.Performance(batch=4),
    ) as dp:  # fmt: skip
        by_trainer, seen = seen, []
        for lot in dp.lots():
            for batch in lot:
                dp.backward(losses.of(other, batch))
            dp.step()
    assert by_trainer == [0] * 7 + seen  # the first row's loss is looked at, also beside a longer


# ---- stopping and going on


def test_a_resumed_run_counts_on_and_takes_the_rest_of_the_plan(tmp_path: Path):
    case, ledger = tiny.CASES[5], tacit.Ledger(f"sqlite:///{tmp_path}/budget.db")
    terms = tacit.Plan.for_budget(
        epsilon=3, delta=1e-3, examples=ROWS, lot_size=8, steps=6, clip=0.1
    )
    budget = ledger.open("texts", epsilon=4, delta=1e-3)
    saves = {"save_strategy": "steps", "save_steps": 2}

    class Crash(TrainerCallback):
        def on_step_end(self, _args: Any, state: Any, _control: Any, **_seen: Any) -> None:
            if state.global_step == 5:
                raise RuntimeError("crash")

    first = trainer_of(
        case, tmp_path / "run", plan=terms, budget=budget, unsafe_seed=None, settings=saves,
        callbacks=[Crash()], performance=tacit.Performance(batch=4, lease=1),
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="crash"):
        first.train()
    again = trainer_of(
        case, tmp_path / "run", plan=terms, budget=budget, unsafe_seed=None, settings=saves
    )
    done = again.train(resume_from_checkpoint=True)
    assert again.session.steps_lost == 1  # step 5, of which nothing is left
    assert done.global_step == again.session.steps_taken == 5  # 4 in the checkpoint, and one more
    assert again.statement().steps_lost == 1
    assert again.spent() == pytest.approx(3.0, rel=1e-6)  # the lost step counts


def test_a_checkpoint_without_its_session_is_refused(tmp_path: Path):
    case = tiny.CASES[0]
    settings = {"save_strategy": "steps", "save_steps": 2, "save_only_model": True}
    trainer_of(case, tmp_path, settings=settings).train()
    with pytest.raises(CheckpointError, match="nobody knows what was spent"):
        trainer_of(case, tmp_path).train(resume_from_checkpoint=True)


def test_a_plan_is_spent_once(tmp_path: Path):
    trainer = trainer_of(tiny.CASES[0], tmp_path)
    with pytest.raises(ProtocolError, match=r"trainer\.train\(\) first"):
        trainer.statement(1e-3)
    trainer.train()
    with pytest.raises(ProtocolError, match="twice"):
        trainer.train()


@pytest.mark.slow  # saves and judges after every step
def test_the_best_model_by_held_out_data_keeps_its_claim(tmp_path: Path):
    trainer = trainer_of(
        tiny.CASES[1], tmp_path, eval_dataset=tiny.texts(6, seed=9), unsafe_seed=None,
        settings={"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps",
                  "eval_steps": 1, "load_best_model_at_end": True, "learning_rate": 1.0,
                  "metric_for_best_model": "eval_loss"},
    )  # fmt: skip
    trainer.train()
    assert trainer.state.best_model_checkpoint is not None
    assert trainer.evaluate()["eval_loss"] == pytest.approx(trainer.state.best_metric, rel=1e-5)
    assert trainer.statement(1e-3).steps_taken == 4


def test_a_model_that_another_run_has_left_is_not_taken_for_the_best(tmp_path: Path):
    """The trainer finds the best model by the number of its step alone."""
    settings = {
        "save_strategy": "steps", "save_steps": 4, "eval_strategy": "steps", "eval_steps": 2,
        "load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "learning_rate": 1.0,
    }  # fmt: skip
    case, held_out = tiny.CASES[0], tiny.texts(6, seed=9)
    other = case.made()

    def made(folder: Path) -> Any:
        return trainer_of(
            case, folder, settings=settings, eval_dataset=held_out, unsafe_seed=None, plan=plan(8)
        )

    stale = tmp_path / "checkpoint-2"
    other.save_pretrained(stale)  # without privacy
    with pytest.raises(InvalidArgument, match=r"checkpoint-2 of another run, which load_best"):
        made(tmp_path).train()
    run = tmp_path / "run"

    class Late(TrainerCallback):
        """Puts it there when the run has begun; of the two steps judged, 2 is the better."""

        def on_train_begin(self, _args: Any, _state: Any, _control: Any, **_seen: Any) -> None:
            stale.rename(run / stale.name)

        def on_evaluate(self, _args: Any, state: Any, _control: Any, **seen: Any) -> None:
            seen["metrics"]["eval_loss"] = float(state.global_step)

    trainer = made(run)
    trainer.add_callback(Late())
    with pytest.raises(CheckpointError, match="checkpoint-2 was not saved by this run"):
        trainer.train()
    assert apart(trainer.model, other) > 1e-3
    assert trainer.statement(1e-3).steps_taken == 8


# ---- ways to compute


@pytest.mark.parametrize("settings", [
    {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
    pytest.param({"dataloader_num_workers": 1}, marks=pytest.mark.slow),  # starts a process
], ids=["checkpointing", "workers"])  # fmt: skip
def test_how_it_is_computed_changes_nothing(settings: dict[str, Any], tmp_path: Path):
    case = tiny.CASES[4]
    trainer = trainer_of(case, tmp_path, settings=settings)
    trainer.train()
    assert apart(trainer.model, by_hand(case)) <= 1e-5


def test_bfloat16_is_close(tmp_path: Path):
    case = tiny.CASES[4]
    trainer = trainer_of(
        case, tmp_path, settings={"bf16": True}, plan=plan(noise_multiplier=1e-3),
        optimizers=(None, None),
    )  # fmt: skip
    trainer.train()
    assert trainer.session.steps_taken == 4
    assert all(p.dtype == torch.float32 for p in trainer.model.parameters())


def test_users_are_units(tmp_path: Path):
    rows = tiny.texts(ROWS)
    terms = tacit.Plan(
        examples=6, lot_size=3, steps=2, noise_multiplier=1.0, clip=1.0, unit="user",
        examples_per_user=4,
    )  # fmt: skip
    trainer = trainer_of(
        tiny.CASES[0], tmp_path, train_dataset=rows, plan=terms,
        groups=[at % 6 for at in range(ROWS)], unit_in_words="one author",
    )  # fmt: skip
    trainer.train()
    claim = trainer.statement(1e-3)
    assert claim.unit == "user"
    assert "one user is one author" in claim.assumptions


def test_a_loss_of_ones_own_has_a_number_for_each_row(tmp_path: Path):
    def each(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
        assert num_items_in_batch is None
        return losses.token_mean(outputs.logits[:, :-1], labels[:, 1:])

    case = tiny.CASES[0]
    trainer = trainer_of(case, tmp_path, compute_loss_func=each)
    trainer.train()
    assert apart(trainer.model, by_hand(case)) <= 1e-6

    def mean(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
        return each(outputs, labels, num_items_in_batch).mean()

    with pytest.raises(InvalidArgument, match="a single number"):
        trainer_of(case, tmp_path, compute_loss_func=mean).train()


def test_with_deafening_noise_accuracy_is_chance(tmp_path: Path):
    """And without, the same training learns: what the rows say comes in by the gradients only."""
    case = tiny.CASES[2]

    def right(multiplier: float) -> float:
        trainer = trainer_of(
            case, tmp_path, plan=plan(30, noise_multiplier=multiplier, clip=1.0, lot_size=24),
            settings={"learning_rate": 0.02, "logging_strategy": "no",
                      "per_device_train_batch_size": 24},
        )  # fmt: skip
        trainer.train()
        batch = tiny.padded(case.rows(ROWS))
        with torch.no_grad():
            scores = trainer.model.eval()(
                input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]
            ).logits
        return float((scores.argmax(1) == batch["labels"]).float().mean())

    assert right(1000.0) <= 0.6  # 3 classes: 1/3, and 0.6 is 2.8 standard deviations above
    assert right(1e-3) >= 0.9


# ---- what is refused


WRONG: dict[str, list[Any]] = {
    "max_grad_norm": [1.0],
    "gradient_accumulation_steps": [2],
    "auto_find_batch_size": [True],
    "train_sampling_strategy": ["group_by_length", "sequential"],
    "dataloader_drop_last": [True],
    "accelerator_config": [{"split_batches": True}, {"dispatch_batches": True}],
    "label_smoothing_factor": [0.1],
    "neftune_noise_alpha": [5.0],
    "bf16_full_eval": [True],
    "fp16_full_eval": [True],
    "torch_compile": [True],
    "include_num_input_tokens_seen": ["all", "non_padding"],
    "skip_memory_metrics": [False],
    "debug": ["underflow_overflow"],
    "optim": ["lomo", "galore_adamw_layerwise", "schedule_free_adamw"],
    "lr_scheduler_type": ["reduce_lr_on_plateau", "greedy"],
    "gradient_checkpointing_kwargs": [
        {"use_reentrant": True},
        {"offload": True},
        {"selective": True},
    ],
    "enable_jit_checkpoint": [True],
    "hub_strategy": ["checkpoint", "all_checkpoints"],
}
# These cannot be set on this machine, or belong to TRL: the value is put there afterwards.
PATCHED: dict[str, Any] = {
    "use_liger_kernel": True, "fp16": True, "fsdp": "full_shard", "deepspeed": "zero3.json",
    "parallelism_config": object(), "packing": True, "padding_free": True, "loss_type": "dft",
    "shuffle_dataset": True,
    "activation_offloading": True, "mixed_precision": "fp16",
}  # fmt: skip


def test_every_refused_setting_is_tried():
    tried = {*WRONG, *PATCHED}
    assert {one.name for one in SETTINGS} <= tried


@pytest.mark.parametrize("name", [*WRONG, *PATCHED])
def test_a_setting_that_cannot_be_private_is_refused_by_name(name: str, tmp_path: Path):
    for value in WRONG.get(name, [PATCHED.get(name)]):
        settings = {name: value} if name in WRONG else {}
        settings |= {"eval_strategy": "epoch"} if name == "lr_scheduler_type" else {}
        with pytest.raises(InvalidArgument, match=f"{name}=.*cannot be private") as refused:
            args = arguments(tmp_path, **settings)
            if name in PATCHED:
                setattr(args, name, value)
            trainer_of(tiny.CASES[0], tmp_path, args=args)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda trainer: setattr(trainer.args, "max_grad_norm", 1.0),
        lambda trainer: setattr(trainer.args, "include_num_input_tokens_seen", "all"),
        lambda trainer: setattr(trainer.args, "lr_scheduler_type", "reduce_lr_on_plateau"),
        lambda trainer: setattr(trainer, "neftune_noise_alpha", 5.0),
        lambda trainer: setattr(
            trainer, "lr_scheduler", torch.optim.lr_scheduler.ReduceLROnPlateau(trainer.optimizer)
        ),
        lambda trainer: trainer.accelerator.state.dynamo_plugin.__setattr__("backend", "EAGER"),
    ],
    ids=["norm", "tokens", "schedule", "neftune", "scheduler", "compiler"],
)
def test_what_is_set_after_the_trainer_was_made_is_refused_as_well(
    change: Callable[[Any], None], tmp_path: Path
):
    model = tiny.CASES[0].made()
    mine = torch.optim.SGD(model.parameters(), lr=0.1), None
    trainer = trainer_of(tiny.CASES[0], tmp_path, model=model, optimizers=mine)
    change(trainer)
    with pytest.raises(InvalidArgument, match=r"cannot be private|follows a metric"):
        trainer.train()
    assert not trainer.state.log_history


def test_a_method_that_would_be_passed_over_is_refused(tmp_path: Path):
    """A trainer's own loss or sampler would change nothing, and nobody would notice."""

    class Loss(Trainer):
        def compute_loss(self, *given: Any, **named: Any) -> Any:
            return super().compute_loss(*given, **named)

    class Weighted(Trainer):
        def _get_train_sampler(self, *given: Any) -> Any:
            return super()._get_train_sampler(*given)

    class Own(PrivateTraining, Loss):
        pass

    class Sampled(PrivateTraining, Weighted):
        pass

    class ByRow(Own):
        def row_losses(self, model: nn.Module, batch: Any) -> torch.Tensor:
            return 2.0 * losses.of(model, batch)

    class Loading(PrivateTraining, Trainer):
        def get_train_dataloader(self) -> Any:
            return Trainer.get_train_dataloader(self)

    case = tiny.CASES[0]
    given: Any = {
        "model": case.made(), "args": arguments(tmp_path), "plan": plan(),
        "train_dataset": case.rows(ROWS), "data_collator": case.collate,
    }  # fmt: skip
    with pytest.raises(InvalidArgument, match=r"Loss\.compute_loss .*override row_losses"):
        Own(**given)
    with pytest.raises(InvalidArgument, match=r"Weighted\._get_train_sampler .*plan samples"):
        Sampled(**given)
    ByRow(**given)
    with pytest.raises(InvalidArgument, match="got a DataLoaderShard: the plan samples"):
        Loading(**given).train()


def deberta() -> Any:
    config = tiny.transformers.DebertaV2Config(
        **tiny._TEXT, **tiny._STILL, num_attention_heads=2, max_position_embeddings=16,
        max_relative_positions=8, relative_attention=True, pos_att_type=["p2c", "c2p"],
        pooler_dropout=0.0, num_labels=tiny.CLASSES, pad_token_id=0,
    )  # fmt: skip
    return tiny.transformers.DebertaV2ForSequenceClassification(config)


def adapted(kind: str, **settings: Any) -> nn.Module:
    return tiny.peft.get_peft_model(tiny.llama(), getattr(tiny.peft, kind)(**settings))


def heard() -> Any:
    config = tiny.transformers.Wav2Vec2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
        conv_dim=(8,), conv_kernel=(4,), conv_stride=(2,), num_feat_extract_layers=1,
        num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    return tiny.transformers.Wav2Vec2ForSequenceClassification(config)


UNFOLLOWED: dict[str, tuple[Callable[[], Any], str]] = {
    "LoHa": (lambda: adapted("LoHaConfig", target_modules=["q_proj"]),
             "peft_type='LOHA' cannot be private: .*use LoraConfig"),
    "tokens": (lambda: tiny.lora(tiny.llama(), "q_proj", trainable_token_indices=[1, 2]),
               r"trainable_token_indices=.*modules_to_save=\['embed_tokens'\]"),
    "parameters": (lambda: adapted("LoraConfig", target_modules=[], target_parameters=[
        "model.layers.0.self_attn.q_proj.weight"]), "target_parameters=.*by target_modules"),
    "activated": (lambda: tiny.lora(tiny.llama(), "q_proj", alora_invocation_tokens=[5],
                                    task_type="CAUSAL_LM"), "alora_invocation_tokens=.*leave it"),
    "LSTM": (lambda: adapted("PromptEncoderConfig", task_type="CAUSAL_LM", num_virtual_tokens=3,
                             encoder_hidden_size=8, encoder_reparameterization_type="LSTM"),
             "encoder_reparameterization_type='LSTM' cannot .*use .*='MLP'"),
    "SpecAugment": (heard, "masked_spec_embed cannot be private: .*freeze it"),
    "DeBERTa": (deberta, r"query_proj.weight cannot be private: .*\['value_proj', 'dense'\]"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFOLLOWED)
def test_layers_that_cannot_be_followed_are_refused_with_others_that_can(name: str, tmp_path: Path):
    model, why = UNFOLLOWED[name]
    with pytest.raises((InvalidArgument, UnsupportedModel), match=why) as refused:
        trainer_of(tiny.CASES[4], tmp_path, model=model())
    assert "\n" not in str(refused.value)


def test_what_is_told_to_use_in_place_of_them_works(tmp_path: Path):
    instead = tiny.lora(deberta(), "value_proj", "dense", task_type="SEQ_CLS")
    trainer_of(tiny.CASES[2], tmp_path, model=instead, plan=plan(1)).train()
    mlp = adapted("PromptEncoderConfig", task_type="CAUSAL_LM", num_virtual_tokens=3,
                  encoder_hidden_size=8, encoder_dropout=0.0)  # fmt: skip
    trainer_of(tiny.CASES[4], tmp_path, model=mlp, plan=plan(1)).train()


def test_layers_that_checkpointing_computes_otherwise_are_refused_in_one_line(tmp_path: Path):
    dora = tiny.lora(tiny.llama(), "q_proj", use_dora=True)
    trainer = trainer_of(
        tiny.CASES[4], tmp_path, model=dora, settings={"gradient_checkpointing": True}
    )
    with pytest.raises(UnsupportedModel, match="gradient_checkpointing=False") as refused:
        trainer.train()
    assert "\n" not in str(refused.value)


def test_a_model_with_another_loss_of_its_own_is_refused(tmp_path: Path):
    class SmoothedLMHeadModel(tiny.transformers.GPT2LMHeadModel):
        def forward(self, input_ids: Any, attention_mask: Any = None, labels: Any = None) -> Any:
            found = super().forward(input_ids, attention_mask=attention_mask, labels=labels)
            found.loss = None if found.loss is None else 0.9 * found.loss
            return found

    case = tiny.CASES[0]
    with pytest.raises(InvalidArgument, match="the loss of SmoothedLMHeadModel is not the one"):
        trainer_of(case, tmp_path, model=SmoothedLMHeadModel(case.made().config)).train()


def in_front(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    batch = tiny.padded(rows)
    beyond = [int((one == 0).sum()) for one in batch["attention_mask"]]
    return {
        name: torch.stack([row.roll(by) for row, by in zip(one, beyond, strict=True)])
        for name, one in batch.items()
    }


def numbered(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    batch = tiny.padded(rows)
    batch["input_ids"][:, 0] = torch.arange(len(rows))
    return batch


def placed(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Where each token stands, counted from the end of the batch."""
    batch = tiny.padded(rows)
    places = torch.arange(16)[-batch["input_ids"].shape[1] :]
    return {**batch, "position_ids": places.expand_as(batch["input_ids"])}


def mean_with_padding(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None
) -> torch.Tensor:
    del num_items_in_batch
    return losses.token_sum(outputs.logits, labels) / labels.shape[1]


def masked(side: str) -> Any:
    tokenizer = words()
    tokenizer.padding_side = side
    return tiny.transformers.DataCollatorForLanguageModeling(tokenizer, mlm=True)


@pytest.mark.parametrize(
    "changed",
    [
        lambda: {"data_collator": in_front},
        lambda: {"data_collator": numbered},
        lambda: {"data_collator": placed, "model": tiny.gpt2()},
        lambda: {"compute_loss_func": mean_with_padding},
        lambda: {"model": tiny.bert("BertForMaskedLM"), "data_collator": masked("left")},
    ],
    ids=["in front", "numbered", "placed", "averaged", "masked at random"],
)
def test_rows_that_the_longest_beside_them_changes_are_refused(
    changed: Callable[[], dict[str, Any]], tmp_path: Path
):
    """Also where the rehearsal meets rows of one length, and where collators draw at random."""
    rows = [one for one in tiny.texts(20 * ROWS) if len(one["input_ids"]) == 6][:ROWS]
    given = changed()
    if hasattr(given.get("data_collator"), "torch_call"):  # which makes the labels
        rows = [{"input_ids": one["input_ids"]} for one in rows]
    with pytest.raises(InvalidArgument, match="a longer row stands beside it") as refused:
        trainer_of(tiny.CASES[4], tmp_path, train_dataset=rows, **given).train()
    assert "\n" not in str(refused.value)


def test_sounds_that_are_normed_with_their_padding_are_refused(tmp_path: Path):
    """By group norm over time, as in the first Wav2Vec2; by layer norm each moment stands alone."""

    def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        sounds = [torch.tensor(row["input_values"]) for row in rows]
        pad = torch.nn.utils.rnn.pad_sequence
        mask = pad([torch.ones(len(one), dtype=torch.int64) for one in sounds], batch_first=True)
        return {
            "input_values": pad(sounds, batch_first=True), "attention_mask": mask,
            "labels": torch.tensor([row["labels"] for row in rows]),
        }  # fmt: skip

    def learn(norm: str) -> None:
        config = tiny.transformers.Wav2Vec2Config(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
            conv_dim=(8, 8), conv_kernel=(4, 4), conv_stride=(2, 2), num_feat_extract_layers=2,
            num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, num_labels=tiny.CLASSES,
            classifier_proj_size=8, feat_extract_norm=norm, apply_spec_augment=False, layerdrop=0.0,
        )  # fmt: skip
        torch.manual_seed(0)
        model = tiny.transformers.Wav2Vec2ForSequenceClassification(config)
        model.wav2vec2.masked_spec_embed.requires_grad_(False)
        draw = torch.Generator().manual_seed(0)
        rows = [
            {"input_values": torch.randn(150, generator=draw).tolist(), "labels": at % 3}
            for at in range(ROWS)
        ]
        trainer_of(
            tiny.CASES[2], tmp_path, model=model, train_dataset=rows, data_collator=collate,
            plan=plan(1),
        ).train()  # fmt: skip

    with pytest.raises(InvalidArgument, match="a longer row stands beside it"):
        learn("group")
    learn("layer")


def test_words_masked_at_random_are_learned_where_padding_is_at_the_ends(tmp_path: Path):
    rows = [{"input_ids": one["input_ids"]} for one in tiny.texts(ROWS)]
    trainer = trainer_of(
        tiny.CASES[2], tmp_path, model=tiny.bert("BertForMaskedLM"), train_dataset=rows,
        data_collator=masked("right"), plan=plan(2), unsafe_seed=None,
    )  # fmt: skip
    trainer.train()
    assert trainer.session.steps_taken == 2


# ---- what is written beside the weights


def budgeted() -> tacit.Plan:
    return tacit.Plan.for_budget(
        epsilon=3, delta=1e-3, examples=ROWS, lot_size=8, steps=1, clip=0.1
    )


@pytest.mark.parametrize("case", [tiny.CASES[0], tiny.CASES[5]], ids=str)
def test_a_statement_is_about_the_weights_beside_it(case: tiny.Case, tmp_path: Path):
    first = trainer_of(case, tmp_path, plan=budgeted())
    first.train()
    (tmp_path / "old.safetensors").write_bytes(b"of something else")
    first.save_model()
    claim = tacit.Statement.from_json((tmp_path / "statement.json").read_text())
    (name,) = claim.files
    found = hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    assert claim.files == {name: found}
    assert name == ("adapter_model" if "LoRA" in case.name else "model") + ".safetensors"
    trainer_of(case, tmp_path).save_model()  # other weights, of which nothing is claimed
    assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() != found
    assert not (tmp_path / "statement.json").exists()
    first.model = case.made()
    with pytest.raises(ProtocolError, match=r"trainer\.model is another"):
        first.save_model()
    assert not (tmp_path / "statement.json").exists()


@pytest.mark.slow  # two adapters, of which one is trained
def test_every_adapter_has_a_statement_beside_it(tmp_path: Path):
    case = tiny.CASES[5]
    model: Any = case.made()
    model.add_adapter("second", tiny.peft.LoraConfig(r=2, target_modules=["v_proj"]))
    trainer = trainer_of(case, tmp_path, model=model, plan=budgeted())
    trainer.train()
    trainer.save_model()
    for folder in (tmp_path, tmp_path / "second"):
        claim = tacit.Statement.from_json((folder / "statement.json").read_text())
        weights = (folder / "adapter_model.safetensors").read_bytes()
        assert claim.files["adapter_model.safetensors"] == hashlib.sha256(weights).hexdigest()


@pytest.mark.slow  # several files
def test_a_large_model_is_named_by_all_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    trainer = trainer_of(tiny.CASES[0], tmp_path, plan=budgeted())
    trainer.train()
    whole = trainer.model.save_pretrained
    monkeypatch.setattr(
        trainer.model, "save_pretrained", lambda *a, **k: whole(*a, **k, max_shard_size="8KB")
    )
    trainer.save_model()
    claim = tacit.Statement.from_json((tmp_path / "statement.json").read_text())
    parts = {path.name for path in tmp_path.glob("model*.safetensors*")}
    assert len(parts) > 2
    assert {*claim.files} == parts


def test_what_is_pushed_has_its_own_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    trainer = trainer_of(tiny.CASES[0], tmp_path, plan=budgeted())
    trainer.train()
    trainer.save_model(str(tmp_path / "checkpoint-1"))
    (tmp_path / "statement.json").write_text("of other weights")
    pushed: list[str] = []
    monkeypatch.setattr(Trainer, "_push_from_checkpoint", lambda _self, one: pushed.append(one))
    trainer._push_from_checkpoint(str(tmp_path / "checkpoint-1"))
    kept = [(folder / "statement.json").read_text() for folder in (tmp_path, Path(pushed[0]))]
    assert kept[0] == kept[1]


def test_steps_and_epochs_are_the_plans(tmp_path: Path):
    case = tiny.CASES[0]
    for settings in ({"max_steps": 7}, {"num_train_epochs": 5}):
        with pytest.raises(InvalidArgument, match="plan"):
            trainer_of(case, tmp_path, settings=settings)
    trainer_of(case, tmp_path, settings={"max_steps": 4})
    trainer_of(case, tmp_path, settings={"num_train_epochs": 4 / 3})


def test_private_rows_are_never_measured_on(tmp_path: Path):
    rows = tiny.texts(ROWS)
    case = tiny.CASES[0]
    for given in (rows, {"mine": rows}, torch.utils.data.Subset(rows, [0, 1])):
        with pytest.raises(InvalidArgument, match="private data"):
            trainer_of(case, tmp_path, train_dataset=rows, eval_dataset=given)
    table = datasets.Dataset.from_list(rows)
    other = datasets.Dataset.from_list(tiny.texts(ROWS, seed=1))
    for given in (table, table.select([3, 1]), table.select(range(2, 5)), table.shuffle(seed=1),
                  datasets.concatenate_datasets([other, table.select(range(4, 6))])):  # fmt: skip
        with pytest.raises(InvalidArgument, match="private data"):
            trainer_of(case, tmp_path, train_dataset=table.select(range(ROWS)), eval_dataset=given)
    wider = table.add_column("number", [*range(len(table))])
    for mine, given in ((table.select_columns(["labels", "input_ids"]), wider),
                        (wider.remove_columns("input_ids").select([3]), table),
                        (table, table.rename_column("labels", "targets").select([2]))):  # fmt: skip
        with pytest.raises(InvalidArgument, match="private data"):
            refusals.check_apart(mine, given)
    split = datasets.concatenate_datasets([table, other]).train_test_split(test_size=ROWS, seed=0)
    trainer_of(case, tmp_path, train_dataset=split["train"], eval_dataset=split["test"])
    trainer = trainer_of(case, tmp_path, train_dataset=rows, eval_dataset=tiny.texts(3, seed=1))
    for measure in (trainer.evaluate, trainer.predict):
        with pytest.raises(InvalidArgument, match="private data"):
            measure(rows)


def words() -> Any:
    """A tokenizer, as far as a collator that masks words asks for one."""
    marks = {"mask_token": "[MASK]", "pad_token": "[PAD]"}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "[MASK]": 1}, "[PAD]"))
    return tiny.transformers.PreTrainedTokenizerFast(tokenizer_object=plain, **marks)


def test_what_trains_or_chooses_outside_of_the_plan_is_refused(tmp_path: Path):
    case = tiny.CASES[0]
    with pytest.raises(InvalidArgument, match="model_init"):
        trainer_of(case, tmp_path, model=None, model_init=case.made)
    with pytest.raises(InvalidArgument, match="train_dataset"):
        trainer_of(case, tmp_path, train_dataset=None)
    seeded = tiny.transformers.DataCollatorForLanguageModeling(words(), mlm=True, seed=1)
    with pytest.raises(InvalidArgument, match="data_collator has seed=1"):
        trainer_of(case, tmp_path, data_collator=seeded)
    with pytest.raises(InvalidArgument, match="args must be given"):
        trainer_of(case, tmp_path, args=None)
    with pytest.raises(InvalidArgument, match="examples=24"):
        trainer_of(case, tmp_path, train_dataset=tiny.texts(5))
    with pytest.raises(InvalidArgument, match=r"tacit\.search"):
        trainer_of(case, tmp_path).hyperparameter_search()


@pytest.mark.parametrize("act", ["clip", "backward"])
def test_what_a_callback_does_to_a_released_gradient_is_noticed(act: str, tmp_path: Path):
    class Meddler(TrainerCallback):
        def on_pre_optimizer_step(
            self, _args: Any, _state: Any, _control: Any, **seen: Any
        ) -> None:
            model = seen["model"]
            if act == "clip":
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            else:
                model(input_ids=torch.ones(1, 3, dtype=torch.int64)).logits.sum().backward()

    trainer = trainer_of(tiny.CASES[0], tmp_path, callbacks=[Meddler()])
    with pytest.raises(ProtocolError):
        trainer.train()
