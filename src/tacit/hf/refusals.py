"""Settings of Hugging Face's trainers that cannot be private, each with why and what to do.

A default that would be harmful is refused as well, so that a script says what it does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import torch

from tacit.errors import InvalidArgument, TacitError, UnsupportedModel
from tacit.training.evaluation import check_held_out
from tacit.training.preflight import check_states
from tacit.training.verification import random_state, same_random_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray
    from torch import Tensor

    from tacit.training.plan import Plan


@final
@dataclass(frozen=True, slots=True)
class Refused:
    """A setting, when it is wrong, why, and the remedy."""

    name: str
    wrong: Callable[[Any], bool]
    why: str


def _given(value: Any) -> bool:
    return bool(value)


def _config(name: str) -> Callable[[Any], bool]:
    return lambda config: bool(
        config.get(name) if isinstance(config, dict) else getattr(config, name, False)
    )


_LOTS = "the plan samples the lots; leave it out"
_ONE = "a plan covers one process and one device; leave it out"
_ROUNDS = "to evaluate rounds the weights, and nothing could be claimed of them: use bf16=True"
SETTINGS: Final = (
    Refused("max_grad_norm", _given, "clipping the mean of a lot bounds nobody, and the plan's "
            "clip bounds every record: pass max_grad_norm=0.0"),
    Refused("gradient_accumulation_steps", lambda n: n != 1, "a lot is computed in physical "
            "batches of per_device_train_batch_size rows anyway: set the plan's lot_size"),
    Refused("auto_find_batch_size", _given, "a run that starts again would spend twice: pass "
            "performance=tacit.Performance(batch='auto') instead"),
    Refused("train_sampling_strategy", lambda s: s != "random", f"{_LOTS}"),
    Refused("dataloader_drop_last", _given, _LOTS),
    Refused("accelerator_config", _config("split_batches"), f"split_batches: {_LOTS}"),
    Refused("accelerator_config", _config("dispatch_batches"), f"dispatch_batches: {_LOTS}"),
    Refused("label_smoothing_factor", _given, "it averages over the tokens of a batch: pass "
            "compute_loss_func with tacit.losses.cross_entropy(..., label_smoothing=...)"),
    Refused("neftune_noise_alpha", lambda a: a is not None, "its noise depends on the longest row "
            "of a batch, which mixes examples: leave it out"),
    Refused("use_liger_kernel", _given, "its losses are one number for a batch: leave it out"),
    Refused("fp16", _given, "its loss scaling steps past the noise: use bf16=True"),
    Refused("mixed_precision", lambda p: p not in ("no", "bf16"), "accelerate's setting, perhaps "
            "of ACCELERATE_MIXED_PRECISION, steps past the noise: use bf16=True"),
    Refused("bf16_full_eval", _given, _ROUNDS),
    Refused("fp16_full_eval", _given, _ROUNDS),
    Refused("torch_compile", _given, "use performance=tacit.Performance(compile=True)"),
    Refused("include_num_input_tokens_seen", lambda s: s not in ("no", False), "how many tokens "
            "were drawn is secret, and it would be logged: leave it out"),
    Refused("skip_memory_metrics", lambda s: not s, "memory follows the lots' sizes, which are "
            "secret, and it would be logged: leave it out"),
    Refused("debug", _given, "it prints activations of private rows: leave it out"),
    Refused("optim", lambda o: any(k in str(getattr(o, "value", o)) for k in
            ("lomo", "layerwise", "schedule_free")), "it steps during the backward pass, before "
            "there is noise, or moves weights between steps: use optim='adamw_torch'"),
    Refused("lr_scheduler_type", lambda s: str(getattr(s, "value", s)) in
            ("reduce_lr_on_plateau", "greedy"), "a rate that follows a metric may follow the "
            "secret loss: use a schedule of the number of steps, such as 'cosine'"),
    Refused("enable_jit_checkpoint", _given, "it would save in the middle of a lot, which is not "
            "released: use save_steps"),
    Refused("hub_strategy", lambda s: str(getattr(s, "value", s)) in
            ("checkpoint", "all_checkpoints"), "a checkpoint may hold who is in the lots to come, "
            "or their noise, and belongs to nobody else: use 'every_save' or 'end'"),
    Refused("fsdp", _given, _ONE),
    Refused("deepspeed", _given, _ONE),
    Refused("parallelism_config", lambda c: c is not None, _ONE),
    Refused("shuffle_dataset", _given, "groups and lengths go by the order of the rows that were "
            "given, and the plan samples the lots: leave it out"),
    Refused("packing", _given, "it puts several examples into one row: pass packing=False"),
    Refused("padding_free", _given, "it joins the rows of a batch into one: pass "
            "padding_free=False"),
    Refused("loss_type", lambda t: t != "nll", "it is one number for a batch: use loss_type='nll'"),
    Refused("activation_offloading", _given, "it was not tried with private gradients: use "
            "gradient_checkpointing=True"),
)  # fmt: skip


def check_values(holder: Any) -> None:
    """Refuses values of ``SETTINGS`` that would void the guarantee, or that a plan replaces."""
    check_each(SETTINGS, holder)


def check_each(settings: Iterable[Refused], holder: Any) -> None:
    """Refuses the first of these settings that is wrong."""
    for one in settings:
        value = getattr(holder, one.name, None)
        if value is not None and one.wrong(value):
            raise InvalidArgument(f"{one.name}={_shown(value)} cannot be private: {one.why}")


def check_settings(args: Any) -> None:
    """Refuses such ``TrainingArguments``."""
    check_values(args)
    kwargs = getattr(args, "gradient_checkpointing_kwargs", None) or {}
    if kwargs.get("use_reentrant"):
        raise InvalidArgument(
            "gradient_checkpointing_kwargs={'use_reentrant': True} cannot be private: it hides "
            "parameters from the losses; use {'use_reentrant': False}"
        )
    for name in ("offload", "selective"):
        if kwargs.get(name):
            raise InvalidArgument(
                f"gradient_checkpointing_kwargs={{{name!r}: True}} cannot be private: it does not "
                "go with private gradients; leave it out"
            )
    if args.n_gpu > 1 or args.world_size > 1:
        raise UnsupportedModel(
            f"this run has {args.n_gpu} devices in {args.world_size} processes, and a plan covers "
            "one of each: set CUDA_VISIBLE_DEVICES=0 and start one process"
        )


def check_steps(args: Any, plan: Plan) -> None:
    """Refuses a number of steps or epochs that contradicts the plan's."""
    if args.max_steps not in (-1, plan.steps):
        raise InvalidArgument(
            f"max_steps must be left out or the plan's {plan.steps}, got {args.max_steps}"
        )
    default = type(args).__dataclass_fields__["num_train_epochs"].default
    off = abs(args.num_train_epochs - plan.epochs) * plan.examples / plan.lot_size
    if args.max_steps == -1 and args.num_train_epochs != default and off > 1.0:
        raise InvalidArgument(
            f"num_train_epochs={args.num_train_epochs:g} contradicts the plan, which has "
            f"{plan.epochs:g} epochs; leave it out"
        )


def check_trainer(given: Mapping[str, Any]) -> None:
    """Refuses arguments of a trainer that would train, or choose, outside of the plan."""
    if given.get("args") is None:
        raise InvalidArgument(
            "args must be given: TrainingArguments(output_dir, max_grad_norm=0.0, ...)"
        )
    if given.get("model_init") is not None:
        raise InvalidArgument(
            "model_init cannot be private: every trial of a search would spend the plan; pass "
            "model, and search with tacit.search"
        )
    if getattr(given.get("data_collator"), "seed", None) is not None:
        raise InvalidArgument(
            f"data_collator has seed={_shown(given['data_collator'].seed)}, and cannot be private: "
            "whoever knows it sees by what each row draws how many rows came before; leave it out"
        )
    if given.get("train_dataset") is None:
        raise InvalidArgument("train_dataset must be given: it is what the plan protects")


def check_prepared(given: Any, prepared: Any) -> None:
    """Refuses rows that a trainer's preparation has left out, or made more of."""
    counts = [len(one) if hasattr(one, "__len__") else -1 for one in (given, prepared)]
    if min(counts) >= 0 and counts[0] != counts[1]:
        raise InvalidArgument(
            f"train_dataset has {counts[0]} rows, and {counts[1]} after the trainer's preparation, "
            "which leaves out rows of which no label counts once they are cut to max_length: leave "
            "them out before you make the plan, or raise max_length"
        )


def check_accelerator(accelerator: Any) -> None:
    """Refuses what accelerate was asked for behind the arguments: by its launcher, or a variable.

    Those are ACCELERATE_USE_FSDP, ACCELERATE_USE_DEEPSPEED, ACCELERATE_DYNAMO_BACKEND and others.
    """
    kind = str(getattr(accelerator.distributed_type, "value", accelerator.distributed_type))
    if kind != "NO" or accelerator.num_processes != 1:
        raise InvalidArgument(f"accelerate's distributed_type={kind!r} cannot be private: {_ONE}")
    compiler = getattr(accelerator.state.dynamo_plugin, "backend", "NO")
    if str(getattr(compiler, "value", compiler)) != "NO":
        raise InvalidArgument(
            f"accelerate's dynamo_backend={_shown(compiler)} cannot be private: use "
            "performance=tacit.Performance(compile=True)"
        )


_LAYERS: Final = "it uses weights in ways that tacit cannot follow: use LoraConfig"
_ADAPTERS: Final = (
    Refused("peft_type", lambda kind: str(getattr(kind, "value", kind)) in
            ("LOHA", "OFT", "BOFT", "C3A", "RANDLORA", "WAVEFT", "SHIRA", "TRAINABLE_TOKENS",
             "CPT"), _LAYERS),
    Refused("trainable_token_indices", _given, "it uses weights in ways that tacit cannot follow: "
            "train the embedding whole, by modules_to_save=['embed_tokens']"),
    Refused("target_parameters", _given, "it uses weights in ways that tacit cannot follow: name "
            "modules, by target_modules"),
    Refused("alora_invocation_tokens", _given, "where adapters begin depends on the row: leave it "
            "out"),
    Refused("encoder_reparameterization_type", lambda kind: str(getattr(kind, "value", kind)) ==
            "LSTM", "it runs one sequence for all rows: use encoder_reparameterization_type='MLP'"),
)  # fmt: skip
# Of DeBERTa: what is multiplied where rows and heads are one dimension.
_FOLDED: Final = re.compile(r"(query|key|in|pos|pos_q)_proj|rel_embeddings|[qv]_bias")


def check_model(model: Any) -> None:
    """Refuses adapters and layers that tacit cannot follow, by the names of their settings."""
    for config in (getattr(model, "peft_config", None) or {}).values():
        if not getattr(config, "inference_mode", False):
            check_each(_ADAPTERS, config)
    deberta = str(getattr(getattr(model, "config", None), "model_type", "")).startswith("deberta")
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and deberta and _FOLDED.search(name):
            raise UnsupportedModel(
                f"parameter {name} cannot be private: DeBERTa multiplies it where rows and "
                "heads are one; train adapters of other layers "
                "(LoraConfig(target_modules=['value_proj', 'dense'])), or another model"
            )
        if parameter.requires_grad and name.endswith("masked_spec_embed"):
            raise UnsupportedModel(
                f"parameter {name} cannot be private: SpecAugment writes it into sounds in place; "
                "freeze it with requires_grad_(False)"
            )


def check_folder(args: Any) -> None:
    """Refuses a folder in which the best model of a run that begins might be taken for another's.

    The trainer finds it again by the number of its step, whoever has saved it there.
    """
    if not args.load_best_model_at_end:
        return
    found = next(iter(sorted(Path(args.output_dir).glob("checkpoint-*"))), None)
    if found is not None:
        raise InvalidArgument(
            f"output_dir={args.output_dir!r} holds {found.name} of another run, which "
            "load_best_model_at_end may take for this one's best: choose an empty folder, or pass "
            "resume_from_checkpoint if the run goes on"
        )


def check_scheduler(scheduler: object) -> None:
    """Refuses a schedule that follows a metric, whoever made it."""
    check_states({"lr_scheduler": scheduler})
    if type(scheduler).__name__ == "GreedyLR":
        raise InvalidArgument(
            "lr_scheduler is a GreedyLR, which follows a metric: use a schedule of the number of "
            "steps, such as 'cosine'"
        )


# Of a row: as many tell as a whole text or sound, and take less memory.
_TOKENS, _SAMPLES = 32, 8000


def check_beside_longer(
    model: Any,
    losses: Callable[[Any], Tensor],
    collate: Callable[[list[Any]], Any],
    rows: Iterable[Any],
) -> None:
    """Refuses losses of a text that change where a longer one stands before it in a batch.

    The session's own check sees that only if the rows that it meets differ in length, and not where
    the collator draws random numbers. So longer ones are made here of a text. A row of which
    nothing counts, such as one without a masked word, tells nothing, and the next is taken.
    """
    for row in rows:
        text, *longer = _lengths(row, getattr(model, "main_input_name", "input_ids"))
        found = [one for other in longer if (one := _beside(model, losses, collate, text, other))]
        if not found or not bool(torch.isfinite(found[0][0])):
            return
        for together, *alone in found:
            close = _closeness(model, together)
            if not all(torch.allclose(one, together, rtol=close, atol=close) for one in alone):
                raise InvalidArgument(
                    "data_collator must pad rows at their ends (tokenizer.padding_side='right') "
                    "and number none, and losses leave padding out (see tacit.losses.token_mean): "
                    "a row's loss changes where a longer row stands beside it, so that examples "
                    "are mixed"
                )
        if bool(found[0][0]):
            return


def _closeness(model: Any, found: Tensor) -> float:
    """How far rounding may put losses apart that are the same."""
    half = {one.dtype for one in (found, *model.parameters())} - {torch.float32, torch.float64}
    if half or torch.is_autocast_enabled(found.device.type):
        return 5e-2
    return 2e-5 if torch.get_float32_matmul_precision() == "highest" else 1e-3


def _beside(
    model: Any,
    losses: Callable[[Any], Tensor],
    collate: Callable[[list[Any]], Any],
    text: Any,
    longer: Any,
) -> list[Tensor]:
    """The loss of a text behind a longer one, and alone; none where that cannot be computed.

    Alone are its own tokens without their padding, and what is collated of it alone, unless that
    draws random numbers.
    """
    try:
        together = collate([longer, text])
        before = random_state()
        alone = collate([text])
        views = [alone] if same_random_state(before) else []
        views += _without_padding(model, together)
        return [losses(together)[1], *(losses(one)[0] for one in views)]
    except TacitError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError):
        return []  # such as no place for it; the rehearsal tells whatever else is wrong


def _lengths(row: Any, name: str) -> list[Any]:
    """Some of a text or a sound, the same twice as long, and a little longer; no other row."""
    tokens = row.get(name) if isinstance(row, Mapping) else None
    if not isinstance(tokens, list | tuple | np.ndarray | torch.Tensor) or np.ndim(tokens) != 1:
        return [row]
    count = len(tokens)
    if count == 0:
        return [row]
    whole = list(range(count))
    most = _TOKENS if np.asarray(tokens).dtype.kind in "iu" else _SAMPLES
    if count > most:  # both ends stay: what marks a text's beginning and end stands there
        whole = [*whole[: most // 2], *whole[-most // 2 :]]
    middle = (len(whole) - 1) // 2
    longer = (
        [*whole[:middle], *[whole[middle]] * more, *whole[middle:]]
        for more in (0, len(whole), 1)
    )  # fmt: skip
    return [{key: _picked(value, places, count) for key, value in row.items()} for places in longer]


def _picked(value: Any, places: list[int], count: int) -> Any:
    """These entries of what a row has one of for each token; anything else as it is."""
    if not hasattr(value, "__len__") or isinstance(value, str | bytes) or len(value) != count:
        return value
    return [value[at] for at in places] if isinstance(value, list | tuple) else value[places]


def _without_padding(model: Any, batch: Any) -> list[Any]:
    """The second row as it is without its padding; none where no mask tells what that is."""
    mask = batch.get("attention_mask")
    if not isinstance(mask, torch.Tensor) or mask.ndim != 2:
        return []
    decodes = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    apart = ("labels", "decoder_") if decodes else ()  # of other lengths, and padded by themselves

    def second(name: str, value: Any) -> Any:
        of_tokens = value.shape[:2] == mask.shape and not name.startswith(apart)
        return value[1:, mask[1].bool()] if of_tokens else value[1:]

    return [{name: second(name, value) for name, value in batch.items()}]


# Methods of a trainer that training by a plan does not call, and what to override in their place.
_REPLACED: Final = {
    "compute_loss": "override row_losses(model, batch), which gives one loss per row",
    "training_step": "override row_losses(model, batch), which gives one loss per row",
    "get_train_dataloader": "the plan samples the lots; change train_dataset or data_collator",
    "_get_train_sampler": "the plan samples the lots; leave it out",
    "get_batch_samples": "the plan samples the lots; leave it out",
}
_KNOWN: Final = frozenset(
    {"transformers.trainer", "transformers.trainer_seq2seq", "trl.trainer.sft_trainer"}
)


def check_methods(kind: type, private: type) -> None:
    """Refuses a trainer of which a method would be passed over, and its loss or sampling with it.

    Args:
        kind: The class of the trainer.
        private: The one among its bases that makes it private.
    """
    bases = kind.__mro__
    own = bases.index(private)
    for name, remedy in _REPLACED.items():
        after = bases if name == "compute_loss" else bases[own:]
        found = next(
            (one for one in after if name in vars(one) and one is not private
             and one.__module__ not in _KNOWN), None,
        )  # fmt: skip
        by_row = any("row_losses" in vars(one) for one in bases[:own])
        if found is not None and not (by_row and name in ("compute_loss", "training_step")):
            raise InvalidArgument(
                f"{found.__name__}.{name} cannot be private, and would not be called: {remedy}"
            )


def check_apart(private: Any, other: Any) -> None:
    """Refuses to measure on the private rows: what is measured is logged and published."""
    if isinstance(other, dict):
        for part in other.values():
            check_apart(private, part)
        return
    check_held_out(private, other)
    marks = {getattr(one, "_fingerprint", None) for one in (private, other)}
    same = other is not None and len(marks) == 1 and marks != {None}
    if same or _share_rows(private, other):
        raise InvalidArgument(
            "eval_dataset must not hold rows of the private data set: what is measured on them is "
            "logged without noise; hold other examples out"
        )


def _share_rows(one: Any, other: Any) -> bool:
    """Whether two data sets of Hugging Face have rows in common, as far as memory tells.

    ``select``, ``shuffle`` and ``filter`` leave the rows where they are, and so do those that drop
    or name columns; ``map`` makes copies.
    """
    pairs = ((mine, others) for mine in _columns(one) for others in _columns(other))
    pair = next((both for both in pairs if _buffers(both[0]) & _buffers(both[1])), None)
    if pair is None:
        return False
    mine, others = _places(one, pair[0]), _places(other, pair[1])
    _, buffers = np.unique(np.concatenate([mine[0], others[0]]), return_inverse=True)
    places = (buffers.astype(np.int64) << 40) + np.concatenate([mine[1], others[1]])
    split = len(mine[0])
    return bool(np.isin(places[split:], places[:split]).any())


def _columns(dataset: Any) -> list[list[Any]]:
    """The columns of a data set of Hugging Face, each in its parts; none of another one."""
    table: Any = getattr(dataset, "data", None)
    if not hasattr(dataset, "_indices") or not hasattr(table, "column_names"):
        return []
    columns = (table.column(at).chunks for at in range(len(table.column_names)))
    return [[part for part in parts if len(part)] for parts in columns]


def _buffer(part: Any) -> int:
    return next((one.address for one in part.buffers() if one is not None), 0)


def _buffers(parts: list[Any]) -> set[int]:
    return {_buffer(part) for part in parts} - {0}


def _places(dataset: Any, parts: list[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The buffer of each row's entry in a column, and its place there.

    Arrow's tables are parts of buffers, each with an offset, and Hugging Face's data sets are
    tables with the numbers of the rows that were chosen.
    """
    lengths = [len(part) for part in parts]
    where = np.repeat(np.array([_buffer(part) for part in parts], np.int64), lengths)
    offsets = [np.arange(part.offset, part.offset + len(part)) for part in parts]
    place = np.concatenate([np.empty(0, np.int64), *offsets])
    if dataset._indices is None:
        return where, place
    chosen = dataset._indices.column(0).to_numpy().astype(np.int64)
    return where[chosen], place[chosen]


def _shown(value: Any) -> str:
    return (
        repr(str(getattr(value, "value", value)))[:60]
        if not isinstance(value, bool | int | float)
        else repr(value)
    )
