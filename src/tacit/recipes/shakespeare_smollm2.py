"""``tacit train shakespeare-smollm2 --epsilon 8``: a pretrained model learns to speak in verse.

SmolLM2-135M is trained to continue the speeches of Tiny Shakespeare. One speech is the unit of
privacy (``--unit speech``), or all speeches of one speaker (``--unit speaker``), of which a lot
holds ``per_speaker`` at most. ``tacit generate DIR`` lets the result speak. For a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

import torch

from tacit import losses
from tacit.data import by_author, by_document
from tacit.recipes import language
from tacit.runs import Outline, Recipe
from tacit.training import Plan, Prepared, Schedule

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tacit.data import Corpus
    from tacit.runs import Releasing, Task


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What may be set.

    ``unit``: one speech, or everything that one speaker says; accuracy is then that of the speeches
    of others, for a speaker's own would give the speaker away. ``longest`` is how many tokens of a
    speech are learned; ``lot`` counts units. ``model`` is a folder of another model.
    """

    unit: Literal["speech", "speaker"] = "speech"
    per_speaker: int = 8
    adapt: Literal["lora", "full"] = "lora"
    epochs: float = 10.0
    lot: int
    clip: float = 1.0
    lr: float = 1e-3
    rank: int = 16
    longest: int = 128
    batch: int = 32
    model: str | None = None


def settings(epsilon: float) -> Settings:
    """Usual ones for private fine-tuning."""
    del epsilon
    return Settings(lot=512)


def corpus(task: Task) -> Corpus:
    """The speeches by the unit that is chosen; each by itself, short ones first.

    Then those of like length share a batch, and little of it is padding.
    """
    texts = tuple(str(text) for text in task.data.train.inputs)
    if task.settings.unit == "speech":
        return by_document(tuple(sorted(texts, key=len)))
    return by_author(texts, task.data.train.labels.tolist())


def held_out(task: Task) -> list[str]:
    """The speeches to test on; none of a speaker who is protected as a whole."""
    train, test = task.data.train, task.data.test
    if task.settings.unit == "speech":
        return [str(text) for text in test.inputs]
    protected = {*train.labels.tolist()}
    pairs = zip(test.inputs, test.labels.tolist(), strict=True)
    return [str(text) for text, speaker in pairs if speaker not in protected]


def outline(task: Task) -> Outline:
    """Poisson lots of units."""
    chosen, units = task.settings, corpus(task)
    cap = chosen.per_speaker if chosen.unit == "speaker" else None
    return Outline(
        Plan.for_budget(
            epsilon=task.epsilon, delta=task.delta, lot_size=min(chosen.lot, units.units),
            epochs=chosen.epochs, clip=chosen.clip, **units.plan_terms(examples_per_user=cap),
        )
    )  # fmt: skip


def prepare(task: Task, plan: Plan, release: Releasing) -> Prepared:
    """The network, with adapters or whole."""
    del release  # nothing is released before training
    chosen: Settings = task.settings
    pretrained = language.loaded(chosen.model, task.device)
    model = language.adapted(pretrained.model, chosen.adapt, chosen.rank)
    optimizer = torch.optim.AdamW(language.trainable(model), lr=chosen.lr, weight_decay=0.0)
    units, others = corpus(task), held_out(task)
    rows = language.token_rows(pretrained, units.texts, chosen.longest)
    return Prepared(
        model=model,
        optimizer=optimizer,
        plan=plan,
        dataset=rows,
        held_out=language.token_rows(pretrained, others, chosen.longest) if others else None,
        loss=_losses,
        correct=language.token_right,
        collate=language.right_padded,
        groups=units.groups if chosen.unit == "speaker" else None,
        lengths=rows.lengths,
        schedule=Schedule(scheduler=language.rising_and_falling(optimizer, plan.steps)),
        performance=language.performance(chosen.batch, task.device),
        unit_in_words=(
            "one speech of a play: who holds several is not protected as a whole"
            if chosen.unit == "speech"
            else "all speeches of one speaker"
        ),
        notes=(language.LEARNED, "Accuracy is that of the next token."),
        public=(language.PUBLIC.format(source=pretrained.source),),
    )


def _losses(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return losses.of(model, batch)


RECIPE = Recipe(
    name="shakespeare-smollm2",
    summary="a pretrained language model learns Shakespeare by speeches or speakers: for a GPU",
    data="speeches",
    settings=settings,
    outline=outline,
    prepare=prepare,
    tuning=(
        "lot, epochs, clip, rank and learning rate are usual ones for private fine-tuning and were "
        "not compared on these data; nothing is charged for them"
    ),
)
