"""Losses with one number per row, as ``dp.backward`` takes them.

torch's own losses average over the batch, which mixes the examples; these never do. Each returns
shape (rows,), and what a row has several of (tokens, pixels, outputs) is averaged within the row.

Guarantee: entry i of every result depends on row i of the arguments and on nothing else, whatever
the other rows hold. Half-precision results are added up and returned in float32.

>>> import torch
>>> logits = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
>>> cross_entropy(logits, torch.tensor([0, 1]))
tensor([0.1269, 0.6931])
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import torch
from torch.nn import functional

from tacit._validation import non_negative, positive, probability
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

__all__ = [
    "advice",
    "bce_with_logits",
    "check_own",
    "cross_entropy",
    "huber",
    "l1",
    "mse",
    "nll",
    "of",
    "of_outputs",
    "outputs_of",
    "token_mean",
    "token_sum",
]

IGNORED = -100  # torch's own mark of a label that does not count


def cross_entropy(
    logits: torch.Tensor,
    labels: torch.Tensor,
    *,
    ignore_index: int = IGNORED,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Cross entropy of each row; for dense labels the mean over the row's own positions.

    Args:
        logits: unnormalised scores, shape (rows, classes) or (rows, classes, positions…).
        labels: class numbers, shape (rows,) or (rows, positions…).
        ignore_index: a label that does not count; a row of only such labels has the loss 0.
        label_smoothing: how much of the target is spread evenly over all classes.

    >>> cross_entropy(torch.zeros(2, 4, 3), torch.zeros(2, 3, dtype=torch.int64))
    tensor([1.3863, 1.3863])
    """
    _check_classes("logits", logits, labels)
    smoothing = probability("label_smoothing", label_smoothing)
    losses = functional.cross_entropy(
        logits, labels.long(), reduction="none", ignore_index=ignore_index,
        label_smoothing=smoothing,
    )  # fmt: skip
    return _mean_where(losses, labels != ignore_index)


def nll(
    log_probabilities: torch.Tensor, labels: torch.Tensor, *, ignore_index: int = IGNORED
) -> torch.Tensor:
    """Negative log-likelihood of each row: ``cross_entropy`` of what is normalised already.

    Args:
        log_probabilities: shape (rows, classes) or (rows, classes, positions…).
        labels: class numbers, shape (rows,) or (rows, positions…).
        ignore_index: a label that does not count; a row of only such labels has the loss 0.

    >>> nll(torch.tensor([[0.25, 0.75]]).log(), torch.tensor([1]))
    tensor([0.2877])
    """
    _check_classes("log_probabilities", log_probabilities, labels)
    losses = functional.nll_loss(
        log_probabilities, labels.long(), reduction="none", ignore_index=ignore_index
    )
    return _mean_where(losses, labels != ignore_index)


def token_mean(
    logits: torch.Tensor, labels: torch.Tensor, *, ignore_index: int = IGNORED
) -> torch.Tensor:
    """Cross entropy of each text: the mean over its own tokens that count.

    The labels are taken as they are: to predict the next token, pass ``logits[:, :-1]`` and
    ``labels[:, 1:]``.

    Args:
        logits: shape (rows, tokens, vocabulary).
        labels: token numbers, shape (rows, tokens).
        ignore_index: the label of padding; a row of nothing else has the loss 0.

    >>> logits = torch.zeros(2, 3, 8)
    >>> token_mean(logits, torch.tensor([[1, 2, 3], [4, -100, -100]]))
    tensor([2.0794, 2.0794])
    """
    return _mean_where(_token_losses(logits, labels, ignore_index), labels != ignore_index)


def token_sum(
    logits: torch.Tensor, labels: torch.Tensor, *, ignore_index: int = IGNORED
) -> torch.Tensor:
    """Cross entropy of each text, added up over its own tokens: minus its log-likelihood.

    Args:
        logits: shape (rows, tokens, vocabulary).
        labels: token numbers, shape (rows, tokens).
        ignore_index: the label of padding; a row of nothing else has the loss 0.

    >>> token_sum(torch.zeros(2, 3, 8), torch.tensor([[1, 2, 3], [4, -100, -100]]))
    tensor([6.2383, 2.0794])
    """
    return _row_sum(_token_losses(logits, labels, ignore_index))


def mse(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Squared error of each row, the mean over its outputs.

    >>> mse(torch.tensor([[1.0, 3.0], [0.0, 0.0]]), torch.zeros(2, 2))
    tensor([5., 0.])
    """
    outputs, targets = _alike("outputs", outputs, targets)
    return _row_mean(functional.mse_loss(outputs, targets, reduction="none"))


def l1(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Absolute error of each row, the mean over its outputs.

    >>> l1(torch.tensor([[1.0, -3.0]]), torch.zeros(1, 2))
    tensor([2.])
    """
    outputs, targets = _alike("outputs", outputs, targets)
    return _row_mean(functional.l1_loss(outputs, targets, reduction="none"))


def huber(outputs: torch.Tensor, targets: torch.Tensor, *, delta: float = 1.0) -> torch.Tensor:
    """Huber's loss of each row (squared up to ``delta``, linear beyond), the mean over outputs.

    >>> huber(torch.tensor([0.5, 3.0]), torch.zeros(2))
    tensor([0.1250, 2.5000])
    """
    outputs, targets = _alike("outputs", outputs, targets)
    losses = functional.huber_loss(
        outputs, targets, reduction="none", delta=positive("delta", delta)
    )
    return _row_mean(losses)


def bce_with_logits(
    logits: torch.Tensor, targets: torch.Tensor, *, positive_weight: float = 1.0
) -> torch.Tensor:
    """Binary cross entropy of each row, the mean over its labels.

    Args:
        logits: scores of shape (rows,) or (rows, labels…).
        targets: 0, 1 or a probability, of the same shape.
        positive_weight: how many times a positive label counts. It is public: computing it from
            the private labels is a release of its own.

    >>> bce_with_logits(torch.zeros(2), torch.tensor([0.0, 1.0]))
    tensor([0.6931, 0.6931])
    """
    logits, targets = _alike("logits", logits, targets)
    weight = logits.new_tensor(non_negative("positive_weight", positive_weight))
    losses = functional.binary_cross_entropy_with_logits(
        logits, targets, reduction="none", pos_weight=weight
    )
    return _row_mean(losses)


# ---- the losses of Hugging Face's models, by their heads


def of(model: nn.Module, batch: Mapping[str, Any]) -> torch.Tensor:
    """One loss per row of a Hugging Face model: what ``model(**batch).loss`` is for that row alone.

    The model is called without its labels, and the loss is computed of its logits by the kind of
    its head: causal, masked, sequence-to-sequence, classification of a text, an image, a sound, a
    film or a token, and multiple choice. A model that PEFT or ``torch.compile`` wrapped is looked
    into.

    Args:
        model: A model of transformers with a head, such as ``LlamaForCausalLM``.
        batch: What a collator made, with ``labels``; tokens that do not count are -100 there.

    Guarantee:
        Entry i depends on row i alone if the model treats rows by themselves. A row of several
        tokens has their mean, whatever the other rows hold; a row of none has the loss 0. Losses
        that add something of the whole batch, such as a router's, are refused.
    """
    _kind_of(model)  # refused before anything is computed
    some = _with_a_token(batch) if isinstance(batch, Mapping) else batch
    outputs = outputs_of(model, some)
    return of_outputs(model, outputs, some["labels"])


def _with_a_token(batch: Mapping[str, Any]) -> Mapping[str, Any]:
    """The batch; if all its texts are empty, with a token in each that does not count.

    Whether a lot brings nothing but empty texts together is chance, and must not end a run.
    """
    empty = {
        name: value
        for name, value in batch.items()
        if isinstance(value, torch.Tensor) and value.ndim == 2 and value.shape[1] == 0
    }
    if not {"input_ids", "labels"} <= {*empty}:
        return batch
    fills = {"labels": IGNORED, "attention_mask": 1}
    # torch.tensor([[], []]) is of real numbers, whatever it is that none are there of.
    some = {
        name: one.new_full((len(one), 1), fills.get(name, 0), dtype=torch.int64)
        for name, one in empty.items()
    }
    return {**batch, **some}


def outputs_of(model: nn.Module, batch: Mapping[str, Any]) -> Any:
    """What the model makes of ``batch`` without its labels, which would mix the rows."""
    if not isinstance(batch, Mapping) or "labels" not in batch:
        raise InvalidArgument(
            "batch must be a mapping with 'labels', got "
            f"{sorted(batch) if isinstance(batch, Mapping) else type(batch).__name__}; for text to "
            "be continued, DataCollatorForLanguageModeling(tokenizer, mlm=False) makes them; for "
            "labels of other names, a subclass of PrivateTraining computes row_losses(model, batch)"
        )
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    tokens = inputs.get("input_ids")
    if isinstance(tokens, torch.Tensor) and tokens.ndim > 1 and tokens.shape[-1] == 0:
        raise InvalidArgument(
            "input_ids must hold tokens, got a batch without any: some text of the data is empty; "
            "leave such texts out before you count the examples, or end each one with a token"
        )
    inner = _unwrapped(model)
    config = getattr(inner, "config", None)
    if getattr(config, "output_router_logits", False):
        raise InvalidArgument(
            f"{type(inner).__name__} would add a loss of its router, which is of all rows "
            "together: set model.config.output_router_logits = False (SFTConfig: "
            "router_aux_loss_coef=0.0)"
        )
    decodes = getattr(config, "is_encoder_decoder", False)
    if decodes and not {"decoder_input_ids", "decoder_inputs_embeds"} & {*inputs}:
        inputs = {**_read_by_decoder(inner, batch["labels"]), **inputs}
    return model(**inputs)


def _read_by_decoder(inner: Any, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """What the decoder reads where the model writes the labels; nothing for a classifier."""
    if shifts := getattr(inner, "prepare_decoder_input_ids_from_labels", None):
        read = shifts(labels)
        if type(inner).__name__ != "EncoderDecoderModel":
            return {"decoder_input_ids": read}
        seen = (read != inner.config.pad_token_id).to(read.dtype)  # as it hides padding of its own
        return {"decoder_input_ids": read, "decoder_attention_mask": seen}
    if _KINDS["seq2seq"][0].search(type(inner).__name__):
        return {"decoder_input_ids": _shifted(inner.config, labels)}
    return {}


def _shifted(config: Any, labels: torch.Tensor) -> torch.Tensor:
    """What the decoder reads: the labels, each one place later, behind the token to start with.

    As Whisper, M2M-100 and others do inside of their forward pass, and give no method for.
    """
    first = torch.full_like(labels[:, :1], config.decoder_start_token_id)
    moved = torch.cat([first, labels[:, :-1]], dim=1)
    return moved.masked_fill(moved == IGNORED, config.pad_token_id)


def of_outputs(model: nn.Module, outputs: Any, labels: torch.Tensor) -> torch.Tensor:
    """One loss per row, from outputs that the model has already computed."""
    logits = outputs["logits"] if isinstance(outputs, Mapping) else outputs[0]
    kind = _kind_of(model)
    if kind == "causal" and type(_unwrapped(model)).__name__ in _UNSHIFTED:
        return token_mean(logits, labels)
    if kind == "class":
        return _class_losses(_unwrapped(model).config, logits, labels)
    return _KINDS[kind][1](logits, _behind_prompt(model, logits, labels))


def _behind_prompt(model: nn.Module, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The labels, behind those of virtual tokens that PEFT put before the texts, if it did."""
    virtual = getattr(getattr(model, "active_peft_config", None), "num_virtual_tokens", None)
    if logits.ndim != 3 or virtual is None or logits.shape[1] != labels.shape[-1] + virtual:
        return labels
    return functional.pad(labels, (virtual, 0), value=IGNORED)


def check_own(model: nn.Module, batch: Mapping[str, Any]) -> None:
    """Refuses a model that has another loss of its own for ``batch``, which is one row.

    Raises:
        InvalidArgument: if the two differ by more than rounding. A model that gives no loss, or
            none that is a number, as for a row without labels that count, is let pass.
    """
    found = of(model, batch)
    try:
        own = getattr(model(**_with_a_token(batch)), "loss", None)
    except (RuntimeError, ValueError, TypeError, IndexError):
        return
    if own is None or own.numel() != 1 or not bool(torch.isfinite(own)):
        return
    half = {found.dtype, own.dtype} | {p.dtype for p in model.parameters()}
    close = 1e-4 if half <= {torch.float32, torch.float64} else 5e-2
    if not torch.allclose(found.float(), own.float().reshape(1), rtol=close, atol=close):
        raise InvalidArgument(
            f"the loss of {type(_unwrapped(model)).__name__} is not the one that is known for its "
            "head (it may smooth labels, weigh classes or add another loss): compute one loss per "
            "row of its outputs, and pass that (PrivateTrainer: compute_loss_func)"
        )


def advice(model: nn.Module) -> str:
    """The loss to use in place of ``model(**batch).loss``, in words; empty for other models.

    >>> advice(torch.nn.Linear(2, 2))
    ''
    """
    inner = _unwrapped(model)
    if not hasattr(inner, "config"):
        return ""
    try:
        kind = _kind_of(model)
    except InvalidArgument:
        return ""
    words = _KINDS[kind][2]
    if type(inner).__name__ in _UNSHIFTED:
        words = "token_mean(logits, labels)"
    if kind == "class":
        words = f"{_problem(inner.config, None)}(logits, labels)"
    return (
        f"for {type(inner).__name__}: tacit.losses.of(model, batch), which is tacit.losses.{words}"
    )


def _unwrapped(model: nn.Module) -> Any:
    """The model itself, inside of what ``torch.compile`` and PEFT put around it."""
    inner: Any = model._modules.get("_orig_mod") or model
    while hasattr(inner, "get_base_model"):
        inner = inner.get_base_model()
    return inner


def _kind_of(model: nn.Module) -> str:
    inner = _unwrapped(model)
    name = type(inner).__name__
    decodes = getattr(getattr(inner, "config", None), "is_encoder_decoder", False)
    for kind, (heads, _, _) in _KINDS.items():
        fits = (kind == "seq2seq") == (decodes and kind in _TEXTS)
        if heads.search(name) and fits and not name.startswith(_OTHERWISE):
            return kind
    raise InvalidArgument(
        f"model must have a head whose loss is known (ForCausalLM, ForMaskedLM, "
        "ForSequenceClassification, ForImageClassification, ForAudioClassification, "
        "ForVideoClassification, ForTokenClassification, ForMultipleChoice, "
        f"ForConditionalGeneration, EncoderDecoderModel), got {name}; compute one loss per row of "
        "its outputs, and pass that (PrivateTrainer: compute_loss_func; a subclass with "
        "row_losses(model, batch), if the labels are not in batch['labels'])"
    )


def _next_token(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return token_mean(logits[:, :-1], labels[:, 1:])


def _problem(config: Any, labels: torch.Tensor | None) -> str:
    """The loss of a classifier, as transformers chooses it."""
    problem = getattr(config, "problem_type", None)
    if problem is None:
        whole = labels is None or not labels.is_floating_point()
        single = "single_label_classification" if whole else "multi_label_classification"
        problem = "regression" if config.num_labels == 1 else single
    return {
        "regression": "mse",
        "multi_label_classification": "bce_with_logits",
    }.get(problem, "cross_entropy")


def _class_losses(config: Any, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    match _problem(config, labels):
        case "mse":
            return mse(logits, labels.reshape(logits.shape))
        case "bce_with_logits":
            return bce_with_logits(logits, labels)
        case _:
            return cross_entropy(logits, labels.reshape(-1))


_TEXTS: Final = ("causal", "seq2seq")
_OTHERWISE: Final = "ProphetNet"  # its loss is of several tokens ahead
# Decoders whose own loss takes the labels as they are: who uses them has shifted them.
_UNSHIFTED: Final = frozenset(
    {
        "BartForCausalLM", "BigBirdPegasusForCausalLM", "BlenderbotForCausalLM",
        "BlenderbotSmallForCausalLM", "CpmAntForCausalLM", "FlaubertWithLMHeadModel",
        "MBartForCausalLM", "MarianForCausalLM", "MvpForCausalLM", "PLBartForCausalLM",
        "PegasusForCausalLM", "TrOCRForCausalLM", "WhisperForCausalLM", "XLMWithLMHeadModel",
        "XLNetLMHeadModel",
    }
)  # fmt: skip
_KINDS: Final[Mapping[str, tuple[re.Pattern[str], Callable[..., torch.Tensor], str]]] = {
    "causal": (
        re.compile("ForCausalLM$|LMHeadModel$|ForConditionalGeneration$|GenerationDecoder$"),
        _next_token,
        "token_mean(logits[:, :-1], labels[:, 1:])",
    ),
    "seq2seq": (
        re.compile("ForConditionalGeneration$|MTModel$|EncoderDecoderModel$"),
        token_mean,
        "token_mean(logits, labels)",
    ),
    "masked": (re.compile("ForMaskedLM$"), token_mean, "token_mean(logits, labels)"),
    "token": (re.compile("ForTokenClassification$"), token_mean, "token_mean(logits, labels)"),
    "class": (
        re.compile("For(Sequence|Image|Audio|Video)Classification$"),
        cross_entropy,
        "cross_entropy(logits, labels)",
    ),
    "choice": (
        re.compile("ForMultipleChoice$"),
        cross_entropy,
        "cross_entropy(logits, labels)",
    ),
}


def _token_losses(logits: torch.Tensor, labels: torch.Tensor, ignore_index: int) -> torch.Tensor:
    if logits.ndim != 3:
        raise InvalidArgument(
            f"logits must have the shape (rows, tokens, vocabulary), got {tuple(logits.shape)}"
        )
    _check_labels("logits", logits, labels, expected=tuple(logits.shape[:2]))
    # Flat rows of the vocabulary: the class dimension stays last, and nothing is transposed.
    losses = functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten().long(), reduction="none", ignore_index=ignore_index
    )
    return losses.view(labels.shape)


def _mean_where(losses: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """The mean over a row's counted positions; the others are 0 in ``losses`` already."""
    return _row_sum(losses) / _row_sum(counted).clamp(min=1)


def _row_mean(losses: torch.Tensor) -> torch.Tensor:
    per_row = losses[0].numel() if len(losses) else 1
    return _row_sum(losses) / max(per_row, 1)


def _row_sum(values: torch.Tensor) -> torch.Tensor:
    dtype = None if values.dtype == torch.float64 else torch.float32
    return values.flatten(1).sum(1, dtype=dtype) if values.ndim > 1 else values.to(dtype)


def _check_classes(
    name: Literal["logits", "log_probabilities"], scores: torch.Tensor, labels: torch.Tensor
) -> None:
    if scores.ndim < 2:
        raise InvalidArgument(
            f"{name} must have the shape (rows, classes) or (rows, classes, positions…), "
            f"got {tuple(scores.shape)}"
        )
    _check_labels(name, scores, labels, expected=(scores.shape[0], *scores.shape[2:]))


def _check_labels(
    name: str, scores: torch.Tensor, labels: torch.Tensor, *, expected: tuple[int, ...]
) -> None:
    if tuple(labels.shape) != expected:
        raise InvalidArgument(
            f"labels must have the shape {expected} for {name} of shape {tuple(scores.shape)}, "
            f"got {tuple(labels.shape)}{_reshaped('labels', expected, labels)}"
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InvalidArgument(
            f"labels must be whole class numbers, got {labels.dtype}: use labels.long() if they "
            "are, or a loss for numbers, such as tacit.losses.mse, if there are no classes"
        )


def _reshaped(name: str, expected: tuple[int, ...], given: torch.Tensor) -> str:
    """What to call where nothing but a dimension of size 1 is too many or too few."""
    if tuple(given.shape) == (*expected, 1):
        return f"; use {name}.squeeze(-1)"
    return f"; use {name}.unsqueeze(-1)" if (*given.shape, 1) == expected else ""


def _alike(
    name: str, outputs: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both in the wider of their types, if they have one shape."""
    if outputs.ndim < 1:
        raise InvalidArgument(f"{name} must have one entry per row, got a single number")
    if outputs.shape != targets.shape:
        # torch would broadcast (rows, 1) against (rows,) into (rows, rows) and mix the examples.
        raise InvalidArgument(
            f"targets must have the shape of {name}, {tuple(outputs.shape)}, "
            f"got {tuple(targets.shape)}{_reshaped('targets', tuple(outputs.shape), targets)}"
        )
    dtype = torch.promote_types(outputs.dtype, targets.dtype)
    return outputs.to(dtype), targets.to(dtype)
