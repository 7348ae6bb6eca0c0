"""``transformers.Trainer`` that trains by a plan.

The trainer's own loop runs: its epochs, callbacks, schedules, evaluation and checkpoints. One item
of its loader is a whole lot. ``training_step`` computes it in physical batches and leaves the mean
gradient, with its noise, in ``.grad``; everything that the trainer does from there on (looking at
the gradient's norm, stepping the optimizer, logging) sees private numbers only.
"""

from __future__ import annotations

import copy
import json
import math
import os
import shutil
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import torch

from tacit import losses
from tacit._files import put, sha256
from tacit.errors import CheckpointError, InvalidArgument, ProtocolError
from tacit.hf import refusals
from tacit.statement import extended
from tacit.training import checkpoint
from tacit.training.fit import with_unit
from tacit.training.loaders import check_dataset
from tacit.training.performance import Performance
from tacit.training.session import private

try:
    from transformers import Trainer
except ImportError as error:
    raise ImportError("tacit.hf needs transformers: pip install 'tacit[hf]'") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from tacit.ledger import Budget, Reservation
    from tacit.statement import Statement
    from tacit.training.lot import Lot
    from tacit.training.plan import Plan
    from tacit.training.session import Session

    _NextTrainer = Any  # whichever comes after it among the bases of a class
else:
    _NextTrainer = object

SESSION: Final = "tacit.checkpoint"
STATEMENT: Final = "statement.json"
# Functions of the private rows without noise, or of how long they took: never logged.
SECRET: Final = frozenset(
    {
        "loss", "train_loss", "total_flos", "train_runtime", "train_samples_per_second",
        "train_steps_per_second", "train_tokens_per_second", "num_input_tokens_seen",
    }
)  # fmt: skip


class PrivateTraining(_NextTrainer):  # type: ignore[misc]
    """Put before a trainer among the bases of a class, it makes the training private.

    Args:
        plan: What is sampled, clipped, noised and charged; the trainer's steps are the plan's.
        budget: A budget of a ledger, charged as by ``tacit.private``.
        groups: The user of each row, for a plan with ``unit="user"``.
        lengths: How long each row is, as in ``tacit.private``: rows of like length share a batch.
        performance: How lots are computed. Left out, a physical batch has
            ``per_device_train_batch_size`` rows, and workers are those of the data loader.
        unit_in_words: What one example, or one user, is, for the claim; see ``tacit.data.Corpus``.
        unsafe_seed: Voids the guarantee; for tests only.
        trainer: The trainer's own arguments, by name. ``compute_loss_func(outputs, labels,
            num_items_in_batch)`` must return one loss per row; left out, ``tacit.losses.of`` is
            used. ``num_items_in_batch`` is always None: it depends on other rows.

    Guarantee:
        What leaves through the weights, checkpoints, logs and metrics of training is the plan's
        event, as for ``tacit.private``; the training loss, token counts and times are in none of
        them. ``eval_dataset`` must be public or held out: what is measured there is published. What
        a callback or a subclass does with private rows by itself is not covered.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        budget: Budget | Reservation | None = None,
        groups: Sequence[int] | NDArray[np.int64] | None = None,
        lengths: Sequence[int] | NDArray[np.int64] | None = None,
        performance: Performance | None = None,
        unit_in_words: str = "",
        unsafe_seed: int | None = None,
        **trainer: Any,
    ) -> None:
        refusals.check_trainer(trainer)
        refusals.check_methods(type(self), PrivateTraining)
        refusals.check_settings(trainer["args"])
        refusals.check_steps(trainer["args"], plan)
        refusals.check_apart(trainer["train_dataset"], trainer.get("eval_dataset"))
        args = copy.copy(trainer.pop("args"))
        args.max_steps = plan.steps
        args.ignore_data_skip = True  # lots are drawn afresh, and none is skipped
        self._plan, self._budget, self._groups, self._lengths = plan, budget, groups, lengths
        self._performance, self._unsafe_seed = performance, unsafe_seed
        self._unit_in_words = unit_in_words
        self._rows = trainer["train_dataset"]  # as they were given
        self._dp: Session | None = None
        self._lots: Iterator[Lot] = iter(())
        self._saved: set[Path] = set()  # folders
        self._training = ExitStack()
        super().__init__(args=args, **trainer)
        self._check_settings()  # as the trainer completed them
        refusals.check_prepared(self._rows, self.train_dataset)
        check_dataset(self.train_dataset, plan.examples, counts_users=plan.unit == "user")

    # ---- what may be claimed

    @property
    def session(self) -> Session:
        """The private session, once training has begun."""
        if self._dp is None:
            raise ProtocolError("nothing was trained yet; call trainer.train() first")
        return self._dp

    def statement(self, delta: float | None = None) -> Statement:
        """The claim, as ``dp.statement`` makes it; δ may be left out if the plan has one."""
        return with_unit(self.session.statement(delta), self._unit_in_words)

    def spent(self, delta: float | None = None) -> float:
        """ε of the steps taken so far."""
        return self.session.spent(delta)

    # ---- the beginning and the end

    def _check_settings(self) -> None:
        refusals.check_settings(self.args)
        refusals.check_values(self)  # of which the trainer keeps some itself
        refusals.check_steps(self.args, self._plan)
        refusals.check_accelerator(self.accelerator)
        refusals.check_model(self.model)

    def train(self, *given: Any, **named: Any) -> Any:
        """As the trainer's, once; what was set since the trainer was made is checked like the rest.

        What it returns has neither loss nor times.
        """
        if self._dp is not None:
            raise ProtocolError(
                "trainer.train() was called twice: the plan is spent by the first; make a new "
                "trainer with a plan and a budget of its own (resume_from_checkpoint goes on)"
            )
        self._check_settings()
        return super().train(*given, **named)

    def _inner_training_loop(self, *given: Any, **named: Any) -> Any:
        with ExitStack() as self._training:
            done = super()._inner_training_loop(*given, **named)
        return done._replace(training_loss=math.nan, metrics=_public(done.metrics))

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume: Any) -> Any:
        """The model and the optimizer are what they will be: the private session begins."""
        model, loader = super()._prepare_for_training(max_steps, train_dataloader, resume)
        if not isinstance(loader, LotLoader):
            raise InvalidArgument(
                f"get_train_dataloader must return its parent's loader, got a "
                f"{type(loader).__name__}: the plan samples the lots; change train_dataset or "
                "data_collator"
            )
        refusals.check_scheduler(self.lr_scheduler)
        if resume is None:
            refusals.check_folder(self.args)
        self._check_losses(model, loader)
        optimizer = self.optimizer
        while type(optimizer).__module__.partition(".")[0] == "accelerate":
            optimizer = optimizer.optimizer  # steps the inner one, whose step the guard sees
        self._dp = self._training.enter_context(
            private(
                model, optimizer, self._plan, loader.dataset, self._budget, groups=self._groups,
                lengths=self._lengths, resume=_session_file(resume),
                performance=self._performance or self._defaults(), collate=loader.collate,
                unsafe_seed=self._unsafe_seed,
            )
        )  # fmt: skip
        self._lots = self._dp.lots()
        return model, loader

    def _defaults(self) -> Performance:
        args = self.args
        return Performance(
            batch=args.per_device_train_batch_size,
            workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory and args.device.type == "cuda",
        )

    # ---- a lot

    def get_train_dataloader(self) -> LotLoader:
        """One item is one lot; accelerate never sees it, and so repeats no row."""
        dataset, collate = self.train_dataset, self.data_collator
        if hasattr(dataset, "column_names"):
            dataset = self._remove_unused_columns(dataset, description="Training")
        else:
            collate = self._get_collator_with_removed_columns(collate, description="Training")
        return LotLoader(self, dataset, collate, max(1, round(1.0 / self._plan.sample_rate)))

    def lots_until(self, steps: int) -> Iterator[Lot]:
        """The lots up to this number of steps of the plan; fewer if the plan ends before."""
        while self.session.steps_taken < steps and (lot := next(self._lots, None)) is not None:
            yield lot

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        """The next lot; its tokens are not counted."""
        del num_batches, device
        lot = next(epoch_iterator, None)
        return ([] if lot is None else [lot]), None

    def training_step(
        self, model: nn.Module, inputs: Lot, num_items_in_batch: object = None
    ) -> Tensor:
        """Clips and adds up a lot, and leaves its mean with noise in ``.grad``.

        What it returns is no loss, for that is secret: always 0.
        """
        del num_items_in_batch
        model.train()
        self.session.accumulate(inputs, self._by_row(model))
        self.session.release()
        return torch.zeros((), device=self.args.device)

    def row_losses(self, model: nn.Module, batch: Any) -> Tensor:
        """One loss per row of a physical batch: to be overridden by a trainer with its own."""
        return _row_losses(self.compute_loss_func, model, batch)

    @property
    def _has_known_losses(self) -> bool:
        return getattr(self.row_losses, "__func__", None) is PrivateTraining.row_losses

    def _by_row(self, model: nn.Module) -> Callable[[Any], Tensor]:
        """``row_losses`` as a function of batches.

        A GPU's recording is of values that stay, and a trainer counts: it has no part in it unless
        the losses are its own.
        """
        if self._has_known_losses:
            return partial(_row_losses, self.compute_loss_func, model)
        return partial(self.row_losses, model)

    @torch.no_grad()
    def _check_losses(self, model: nn.Module, loader: LotLoader) -> None:
        """Refuses losses that are known to be others than the model's, or that mix rows of a batch.

        Nothing is published but that they do, which lies in model and collator.
        """

        def collate(rows: list[Any]) -> Any:
            return self._prepare_inputs(loader.collate(rows))

        first = range(min(8, len(loader.dataset)))
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        try:
            with torch.random.fork_rng(devices=[]):  # collators may draw, and dropout does later on
                if self.compute_loss_func is None and self._has_known_losses:
                    losses.check_own(model, collate([loader.dataset[0]]))
                rows = (loader.dataset[at] for at in first)
                refusals.check_beside_longer(model, self._by_row(model), collate, rows)
        finally:
            for module, training in modes:
                module.training = training

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        """The norm of the private gradient; it is looked at and not touched."""
        del grad_norm
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        return torch.nn.utils.get_total_norm(gradients)

    def floating_point_ops(self, inputs: object) -> int:
        """0: how much was computed tells how large the lot was."""
        del inputs
        return 0

    # ---- what is written

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Logs what is public, and ε so far in the place of the training loss."""
        trains = bool({"loss", "train_loss"} & {*logs})
        kept = _public(logs)
        if trains and self._dp is not None and self._plan.made_for is not None:
            kept["epsilon"] = self._dp.spent()
        logs.clear()  # the caller's own dictionary is what callbacks see
        logs.update(kept)
        super().log(logs, start_time)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        self.session.save(os.path.join(output_dir, SESSION))

    def _save_rng_state(self, output_dir: str) -> None:
        """Nothing: how far dropout has drawn tells how many rows and tokens the lots had."""

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Nothing: the session draws from seeds of its own."""

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves the model, and beside it what may be claimed of it, if the plan has a δ.

        The statement names the checksums of the weights, so that no others pass for them. One that
        lay there before is of other weights, and is removed.
        """
        place = Path(output_dir or self.args.output_dir)
        folders = _weights_folders(place, self.model)
        for folder in folders:
            (folder / STATEMENT).unlink(missing_ok=True)
        super().save_model(output_dir, _internal_call)
        self._saved.add(place.resolve())
        if self._dp is not None and self._plan.made_for is not None:
            if self.accelerator.unwrap_model(self.model) is not self._dp.model:
                raise ProtocolError(
                    "trainer.model is another than the one that was trained, and nothing can be "
                    "claimed of what was saved; save the other one by its own save_pretrained"
                )
            claim = self.statement()
            for folder in folders:
                about = extended(claim, files=_checksums(folder, self.model))
                put(folder / STATEMENT, f"{about.to_json()}\n".encode())

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """The weights are copied from there to be pushed, and so is what may be claimed of them."""
        if self.args.hub_strategy != "end":
            claim, place = (
                Path(one) / STATEMENT for one in (checkpoint_folder, self.args.output_dir)
            )
            place.unlink(missing_ok=True)
            if claim.is_file():
                shutil.copy(claim, place)
        super()._push_from_checkpoint(checkpoint_folder)

    def _load_best_model(self) -> None:
        """The best by held-out data is one of the models that the plan has released already.

        The trainer goes by the number of the step, under which another run may have left a model.
        """
        best = Path(self.state.best_model_checkpoint)
        if best.resolve() not in self._saved:  # as may be of a run that was resumed
            path = best / SESSION
            if not path.is_file() or checkpoint.read(path).plan_json != self._plan.to_json():
                raise CheckpointError(
                    f"{best} was not saved by this run, and load_best_model_at_end would take it "
                    "for its best model: the last one is kept; resume in a folder of its own"
                )
        with self.session.public():
            super()._load_best_model()

    # ---- what is measured

    def evaluate(self, eval_dataset: Any = None, *given: Any, **named: Any) -> Any:
        """As the trainer's; refuses the private rows, also before the trainer prepares them."""
        refusals.check_apart(self._rows, _named(self.eval_dataset, eval_dataset))
        return super().evaluate(eval_dataset, *given, **named)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """As the trainer's; refuses the private rows."""
        refusals.check_apart(self.train_dataset, _named(self.eval_dataset, eval_dataset))
        return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """As the trainer's; refuses the private rows."""
        refusals.check_apart(self.train_dataset, test_dataset)
        return super().get_test_dataloader(test_dataset)

    def hyperparameter_search(self, *given: Any, **named: Any) -> Any:
        """Refused: every trial would spend the plan, and the choice itself tells of the data."""
        del given, named
        raise InvalidArgument(
            "hyperparameter_search cannot be private: every trial spends, and so does the choice; "
            "use tacit.search, which charges for all of it"
        )


@final
class PrivateTrainer(PrivateTraining, Trainer):  # type: ignore[misc]  # transformers has no types
    """``transformers.Trainer`` that trains by a plan.

    Its arguments are the trainer's and those of ``PrivateTraining``::

        trainer = PrivateTrainer(
            model=model, args=TrainingArguments("out", max_grad_norm=0.0),
            train_dataset=texts, data_collator=collator, plan=plan,
        )
        trainer.train()
        trainer.statement(delta=1e-5)

    Guarantee:
        As for ``PrivateTraining``.
    """


@final
class LotLoader:
    """What the trainer takes for its data loader: an epoch is as many lots as cover the data once.

    It is handed to nobody but the trainer: accelerate would repeat rows to make lots even.
    """

    def __init__(
        self, trainer: PrivateTraining, dataset: Any, collate: Any, lots_an_epoch: int
    ) -> None:
        self._trainer, self.dataset, self.collate = trainer, dataset, collate
        self._length = lots_an_epoch

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Lot]:
        taken = self._trainer.session.steps_taken
        return self._trainer.lots_until(taken - taken % self._length + self._length)


def _row_losses(compute: Callable[..., Tensor] | None, model: nn.Module, batch: Any) -> Tensor:
    """By ``compute_loss_func`` if there is one, else those of the model's head."""
    if compute is None:
        return losses.of(model, batch)
    outputs = losses.outputs_of(model, batch)
    return compute(outputs, batch.get("labels"), num_items_in_batch=None)


def _public(logs: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in logs.items() if name not in SECRET}


def _named(known: Any, wanted: Any) -> Any:
    """An evaluation data set, which may be given by its name among several."""
    if isinstance(wanted, str):
        return known[wanted]
    return known if wanted is None else wanted


def _weights_folders(place: Path, model: Any) -> list[Path]:
    """Where weights are saved: PEFT gives every adapter that has a name a folder of its own."""
    adapters = getattr(model, "peft_config", None) or ["default"]
    return [place if name == "default" else place / name for name in adapters]


def _checksums(place: Path, model: Any) -> dict[str, str]:
    """The SHA-256 of the weights that were just saved, by their names: a folder may hold others."""
    index = "model.safetensors.index.json"
    if getattr(model, "peft_config", None):
        names = ["adapter_model.safetensors"]
    else:  # in one file or in several; of an earlier save the other may lie there still
        there = [one for one in (place / "model.safetensors", place / index) if one.is_file()]
        names = [max(there, key=lambda one: one.stat().st_mtime_ns).name]
    if names == [index]:
        names += sorted({*json.loads((place / index).read_text())["weight_map"].values()})
    return {name: sha256(place / name) for name in names}


def _session_file(folder: Any) -> str | None:
    """Where a checkpoint of the trainer keeps the private session."""
    if folder is None:
        return None
    path = os.path.join(folder, SESSION)
    if not os.path.isfile(path):
        raise CheckpointError(
            f"{folder} holds no {SESSION}, so that nobody knows what was spent: it was saved with "
            "save_only_model=True or by another trainer, or the run was killed meanwhile; resume "
            "from an earlier checkpoint of PrivateTrainer"
        )
    return path
