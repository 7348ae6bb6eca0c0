"""Settings of Hugging Face's trainers that cannot be private, each with why and what to do.

A default that would be harmful is refused as well, so that a script says what it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from tacit.errors import InvalidArgument, UnsupportedModel
from tacit.training.evaluation import check_held_out

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
    Refused("fsdp", _given, _ONE),
    Refused("deepspeed", _given, _ONE),
    Refused("parallelism_config", lambda c: c is not None, _ONE),
    Refused("packing", _given, "it puts several examples into one row: pass packing=False"),
    Refused("padding_free", _given, "it joins the rows of a batch into one: pass "
            "padding_free=False"),
    Refused("loss_type", lambda t: t != "nll", "it is one number for a batch: use loss_type='nll'"),
    Refused("activation_offloading", _given, "it was not tried with private gradients: use "
            "gradient_checkpointing=True"),
)  # fmt: skip


def check_settings(args: Any) -> None:
    """Refuses ``TrainingArguments`` that would void the guarantee, or that a plan replaces."""
    for one in SETTINGS:
        value = getattr(args, one.name, None)
        if value is not None and one.wrong(value):
            raise InvalidArgument(f"{one.name}={_shown(value)} cannot be private: {one.why}")
    kwargs = getattr(args, "gradient_checkpointing_kwargs", None) or {}
    if kwargs.get("use_reentrant"):
        raise InvalidArgument(
            "gradient_checkpointing_kwargs={'use_reentrant': True} cannot be private: it hides "
            "parameters from the losses; use {'use_reentrant': False}"
        )
    if kwargs.get("offload"):
        raise InvalidArgument(
            "gradient_checkpointing_kwargs={'offload': True} cannot be private: it was not tried "
            "with private gradients; leave it out"
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
    if given.get("train_dataset") is None:
        raise InvalidArgument("train_dataset must be given: it is what the plan protects")


def check_apart(private: Any, other: Any) -> None:
    """Refuses to measure on the private rows: what is measured is logged and published."""
    if isinstance(other, dict):
        for part in other.values():
            check_apart(private, part)
        return
    check_held_out(private, other)
    marks = {getattr(one, "_fingerprint", None) for one in (private, other)}
    if other is not None and len(marks) == 1 and marks != {None}:
        raise InvalidArgument(
            "eval_dataset must not be the private data set: what is measured on it is logged "
            "without noise; hold other examples out"
        )


def _shown(value: Any) -> str:
    return (
        repr(str(getattr(value, "value", value)))[:60]
        if not isinstance(value, bool | int | float)
        else repr(value)
    )
