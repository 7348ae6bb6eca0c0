"""``tacit train sms-smollm2 --epsilon 3``: is a message spam? A pretrained model's eyes, offline.

SmolLM2-135M reads each message in a prompt, once; its first layers are frozen and public, and a
linear classifier of what they see is trained privately. A message is looked at when it is first
drawn and by itself, so that its features depend on no other message. That is minutes on two cores;
``--adapt lora`` trains adapters of the whole network instead, which is for a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, final

import torch

from tacit.recipes import language
from tacit.runs import Recipe
from tacit.training import Performance, Prepared, Schedule

if TYPE_CHECKING:
    from tacit.runs import Outline, Releasing, Task
    from tacit.training import Plan

BEFORE, AFTER = "Message:", "\nThis message is"
ANSWERS = (" ham", " spam")
UNIT = "one message: neither who sent several nor what was sent twice is protected as a whole"


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What may be set.

    ``adapt``: a ``head`` on what the first ``layers`` see; ``lora`` of ``rank``; or ``full``.
    ``longest`` is how many tokens of a message are read, ``model`` a folder of another model.
    """

    adapt: Literal["head", "lora", "full"] = "head"
    epochs: float
    lot: int
    clip: float
    lr: float
    layers: int = 8
    rank: int = 8
    longest: int = 80
    batch: int = 32
    model: str | None = None


def settings(epsilon: float) -> Settings:
    """Found at ε = 3; where there is more noise, steps are shorter."""
    return Settings(epochs=20.0, lot=446, clip=0.5, lr=min(8.0, 3.0 * epsilon))


def outline(task: Task) -> Outline:
    """Poisson lots."""
    chosen = task.settings
    return task.plan(lot=chosen.lot, epochs=chosen.epochs, clip=chosen.clip)


def prepare(task: Task, plan: Plan, release: Releasing) -> Prepared:
    """A linear model of frozen features, or the network with its adapters."""
    del release  # nothing is released before training
    chosen: Settings = task.settings
    pretrained = language.loaded(chosen.model, task.device)
    prompt = language.Prompt(pretrained, BEFORE, AFTER, ANSWERS, chosen.longest)
    if chosen.adapt != "head":
        return language.classifier(
            prompt, task, plan, adapt=chosen.adapt, rank=chosen.rank, lr=chosen.lr,
            batch=chosen.batch, unit=UNIT,
        )  # fmt: skip
    width = language.width_of(pretrained.model)
    language.shallow(pretrained.model, chosen.layers)
    head = torch.nn.Linear(width, len(ANSWERS)).to(task.device)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    optimizer = torch.optim.SGD(head.parameters(), lr=chosen.lr, momentum=0.9)
    seen = partial(language.Features, prompt)
    return Prepared(
        model=head,
        optimizer=optimizer,
        plan=plan,
        dataset=seen(task.data.train),
        held_out=seen(task.data.test),
        schedule=Schedule(scheduler=language.rising_and_falling(optimizer, plan.steps)),
        performance=Performance(batch=plan.examples),
        unit_in_words=UNIT,
        notes=(language.LEARNED,),
        public=(language.PUBLIC.format(source=pretrained.source),),
    )


RECIPE = Recipe(
    name="sms-smollm2",
    summary="spam, by a linear model of a language model's features: minutes on two cores",
    data="sms",
    settings=settings,
    outline=outline,
    prepare=prepare,
    tuning=(
        "layers, lot, epochs, clip and learning rate were compared on 892 of the training "
        "messages, held out, at ε = 3; this choice is not charged"
    ),
)
