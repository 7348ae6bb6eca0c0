"""Parts that the recipes of pretrained language models share: prompts, rows, adapters, scores.

A text is classified by continuing a prompt: the label whose token the model finds likelier is its
class. Without training that is the zero-shot model, and what is trained is the same network.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from tacit.errors import InvalidArgument
from tacit.models.language import Pretrained, language_model
from tacit.training import Performance, Prepared, Schedule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tacit.data import Examples
    from tacit.runs import Task
    from tacit.training import Plan

Adapt = Literal["head", "lora", "full"]
_WIDTHS = (16, 24, 40, 72, 128, 192, 256, 384, 512)  # of a batch, in tokens
LORA_MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PUBLIC = "the weights that training began with, which are public: {source}"
LEARNED = "What the public weights had learned of the same texts before is not covered."


@final
@dataclass(frozen=True, eq=False)
class Prompt:
    """A text between fixed words, and the word that follows for each class."""

    pretrained: Pretrained
    before: str
    after: str
    answers: tuple[str, ...]
    longest: int  # tokens of a text; the rest of it is left out

    def tokens(self, text: str) -> list[int]:
        """The whole prompt; a text that is too long loses its end."""
        return self.tokens_of([text])[0]

    def tokens_of(self, texts: Sequence[str]) -> list[list[int]]:
        """Those of many texts: at once, which takes a tenth of the time."""
        before, after = self._known
        _check_room(self.pretrained, self.longest + len(before) + len(after))
        found = self.pretrained.tokenizer([f" {text}" for text in texts], add_special_tokens=False)
        return [[*before, *middle[: self.longest], *after] for middle in found["input_ids"]]

    @cached_property
    def _known(self) -> tuple[list[int], list[int]]:
        return self._encoded(self.before), self._encoded(self.after)

    @cached_property
    def labels(self) -> tuple[int, ...]:
        """The token of each class."""
        found = [self._encoded(answer) for answer in self.answers]
        for answer, tokens in zip(self.answers, found, strict=True):
            if len(tokens) != 1:
                raise InvalidArgument(
                    f"model must have one token for {answer!r}, got {len(tokens)}; take another "
                    "model or a recipe of your own"
                )
        labels = tuple(tokens[0] for tokens in found)
        if len({*labels}) < len(labels):
            raise InvalidArgument(
                f"model must have a token for each of {', '.join(map(repr, self.answers))}, got "
                "one for several: it cannot tell them apart; take another model or a recipe of "
                "your own"
            )
        return labels

    def _encoded(self, text: str) -> list[int]:
        found: list[int] = self.pretrained.tokenizer(text, add_special_tokens=False)["input_ids"]
        return found


# ---- rows


@final
class Rows(Dataset[tuple[Tensor, int]]):
    """Token numbers, and a class or the tokens themselves."""

    def __init__(self, tokens: Sequence[Sequence[int]], classes: Sequence[int]) -> None:
        self._tokens = [torch.tensor(one, dtype=torch.int32) for one in tokens]
        self._classes = [int(one) for one in classes]

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return self._tokens[row], self._classes[row]

    @property
    def lengths(self) -> list[int]:
        """How long each row is in a batch of rows no longer than itself."""
        return [_width(len(tokens)) for tokens in self._tokens]


def prompted(prompt: Prompt, examples: Examples) -> Rows:
    """Every text in its prompt, with its class; short ones first.

    Where they are read in this order, little of a batch is padding. Who is drawn does not depend on
    it.
    """
    tokens = prompt.tokens_of([str(text) for text in examples.inputs])
    order = sorted(range(len(tokens)), key=lambda row: len(tokens[row]))
    classes = examples.labels.tolist()
    return Rows([tokens[row] for row in order], [classes[row] for row in order])


def token_rows(pretrained: Pretrained, texts: Iterable[str], longest: int) -> Rows:
    """Texts to be continued, each up to its first ``longest`` tokens."""
    _check_room(pretrained, longest)
    found = [pretrained.tokenizer(text)["input_ids"][:longest] for text in texts]
    return Rows(found, [0] * len(found))


def prompt_batch(rows: list[tuple[Tensor, int]]) -> dict[str, Tensor]:
    """Prompts, padded at their ends, with the place of each one's last token and its class."""
    ids, _ = _right_padded(rows)
    last = torch.tensor([len(tokens) - 1 for tokens, _ in rows])
    return {"input_ids": ids, "last": last, "classes": torch.tensor([one for _, one in rows])}


def right_padded(rows: list[tuple[Tensor, int]]) -> dict[str, Tensor]:
    """Texts to be continued: labels are the tokens, and -100 beyond a text's end."""
    ids, mask = _right_padded(rows)
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def _right_padded(rows: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    texts = [tokens for tokens, _ in rows]
    lengths = torch.tensor([len(tokens) for tokens in texts])
    ids = pad_sequence(texts, batch_first=True).long()
    ids = functional.pad(ids, (0, _width(ids.shape[1]) - ids.shape[1]))
    return ids, (torch.arange(ids.shape[1]) < lengths[:, None]).long()


def _width(longest: int) -> int:
    """The longest row's length, rounded up to one of few: each is recorded once on a GPU."""
    last = _WIDTHS[-1]
    return next((width for width in _WIDTHS if longest <= width), -(-longest // last) * last)


def _check_room(pretrained: Pretrained, longest: int) -> None:
    """Refuses rows for which a model that learns each place has none, were any so long."""
    config: Any = pretrained.model.config
    most = getattr(config, "max_position_embeddings", None)
    rotates = getattr(config, "rope_parameters", None) is not None
    if most is not None and not rotates and _width(longest) > most:
        raise InvalidArgument(
            f"longest must be less: rows are padded to {_width(longest)} tokens then, and the "
            f"model has places for {most}; pass --set longest=N"
        )


# ---- scores


def class_scores(prompt: Prompt, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """What the model thinks of each class's token after each prompt; shape (rows, classes).

    Nothing looks ahead, so that what pads a prompt at its end changes no score. The mask is a
    constant: of any other, transformers reads numbers back from the device. Networks that count
    positions by the mask, which are those without rotations, have none.
    """
    network: Any = getattr(model, "get_base_model", lambda: model)()
    ids, last = batch["input_ids"], batch["last"]
    square = torch.ones(2 * ids.shape[1:], dtype=torch.bool, device=ids.device)
    rotates = getattr(network.config, "rope_parameters", None) is not None
    mask = square.tril()[None, None] if rotates else None
    seen = network.get_decoder()(input_ids=ids, attention_mask=mask, use_cache=False)
    rows = torch.arange(len(ids), device=ids.device)
    logits = network.get_output_embeddings()(seen.last_hidden_state[rows, last])
    return torch.stack([logits[:, token] for token in prompt.labels], dim=1)


def class_losses(prompt: Prompt, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """The cross entropy of each row."""
    return functional.cross_entropy(
        class_scores(prompt, model, batch).float(), batch["classes"], reduction="none"
    )


def class_right(prompt: Prompt, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Where the likelier token is that of the row's class."""
    return class_scores(prompt, model, batch).argmax(1) == batch["classes"]


def token_right(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Which of the tokens that count the model would have guessed."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    labels = batch["labels"][:, 1:]
    found: Tensor = logits[:, :-1].argmax(2) == labels
    return found[labels != -100]


# ---- what is trained


def adapted(model: nn.Module, adapt: Adapt, rank: int) -> nn.Module:
    """The model with what is to be trained: adapters of low rank on every projection, or all."""
    if adapt == "full":
        return model
    try:
        import peft  # noqa: PLC0415 - an extra
    except ImportError:
        raise InvalidArgument("adapt=lora needs PEFT: pip install 'tacit[hf]'") from None
    names = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    usual = [name for name in LORA_MODULES if name in names]
    config = peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=usual or "all-linear",
        fan_in_fan_out="c_attn" in names,  # GPT-2 keeps its weights the other way round
    )  # fmt: skip
    found: nn.Module = peft.get_peft_model(model, config)
    return found


def classifier(
    prompt: Prompt,
    task: Task,
    plan: Plan,
    *,
    adapt: Adapt,
    rank: int,
    lr: float,
    batch: int,
    unit: str,
) -> Prepared:
    """The network itself, trained to continue each prompt with its class."""
    model = adapted(prompt.pretrained.model, adapt, rank)
    optimizer = torch.optim.AdamW(trainable(model), lr=lr, weight_decay=0.0)
    rows = prompted(prompt, task.data.train)
    return Prepared(
        model=model,
        optimizer=optimizer,
        plan=plan,
        dataset=rows,
        held_out=prompted(prompt, task.data.test),
        loss=partial(class_losses, prompt),
        correct=partial(class_right, prompt),
        collate=prompt_batch,
        lengths=rows.lengths,
        schedule=Schedule(scheduler=rising_and_falling(optimizer, plan.steps)),
        performance=performance(batch, task.device),
        unit_in_words=unit,
        notes=(LEARNED,),
        public=(PUBLIC.format(source=prompt.pretrained.source),),
    )


def performance(batch: int, device: torch.device) -> Performance:
    """On a GPU in bfloat16, with batches that arrive while the one before is computed."""
    if device.type != "cuda":
        return Performance(batch=batch)
    return Performance(batch=batch, precision="bfloat16", pin_memory=True)


def width_of(model: nn.Module) -> int:
    """How many numbers a model has for each token."""
    config: Any = model.config
    return int(config.hidden_size)


def loaded(folder: str | None, device: torch.device) -> Pretrained:
    """The pretrained model on the device."""
    found = language_model(folder)
    found.model.to(device)
    return found


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that are trained."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def rising_and_falling(
    optimizer: torch.optim.Optimizer, steps: int, rising: float = 0.05
) -> torch.optim.lr_scheduler.LRScheduler:
    """A rate that rises over the first steps and falls linearly to 0."""
    first = max(1.0, rising * steps)
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(1.0, (step + 1) / first) * max(0.0, (steps - step) / steps),
    )


# ---- a frozen network's view of a text


def shallow(model: nn.Module, layers: int) -> nn.Module:
    """The model's first layers, frozen, in bfloat16: half of a network tells spam as well."""
    inner: Any = getattr(model, "model", None)
    if not hasattr(inner, "layers") or not hasattr(inner, "norm"):
        raise InvalidArgument(
            f"adapt=head needs a network whose layers are known, such as Llama's, got "
            f"{type(model).__name__}; use adapt=lora or full"
        )
    if not 1 <= layers <= len(inner.layers):
        raise InvalidArgument(
            f"layers must be 1 to {len(inner.layers)} for this model, got {layers!r}"
        )
    inner.layers = inner.layers[:layers]
    inner.norm = nn.Identity()
    return model.requires_grad_(False).eval().to(torch.bfloat16)


@final
class Features(Dataset[tuple[Tensor, Tensor]]):
    """What the first layers of a frozen model make of each prompt, of norm 1; computed once.

    A text is looked at when it is first asked for, and by itself: its features depend on no other
    row. They are measured from those of the prompt without a text, which are public.
    """

    def __init__(self, prompt: Prompt, examples: Examples) -> None:
        self._prompt = prompt
        self._texts, self._labels = examples.inputs, torch.as_tensor(examples.labels)
        self._known: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        if row not in self._known:
            found = self._seen(str(self._texts[row])) - self._empty
            self._known[row] = functional.normalize(found, dim=0)
        return self._known[row], self._labels[row]

    @cached_property
    def _empty(self) -> Tensor:
        return self._seen("")

    @torch.no_grad()
    def _seen(self, text: str) -> Tensor:
        model = self._prompt.pretrained.model
        inner: Any = model.get_submodule("model")
        ids = torch.tensor([self._prompt.tokens(text)], device=next(model.parameters()).device)
        found: Tensor = inner(ids).last_hidden_state[0, -1].float()
        return found
