"""``tacit train sst2-smollm2 --epsilon 3``: is a sentence about a film kind? For a GPU.

SmolLM2-135M continues "Review: … Sentiment:", and the likelier of two words is its answer. Adapters
of low rank on every projection are trained (``--adapt lora``), or all weights (``--adapt full``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

from tacit.recipes import language
from tacit.runs import Recipe
from tacit.training import Banded

if TYPE_CHECKING:
    from tacit.runs import Outline, Releasing, Task
    from tacit.training import Plan, Prepared

BEFORE, AFTER = "Review:", "\nSentiment:"
ANSWERS = (" negative", " positive")
RATES = {"lora": 4e-3, "full": 5e-4}


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What may be set.

    ``adapt``: ``lora`` of ``rank``, or ``full``. ``lr`` is the highest learning rate (by default
    4e-3 for adapters, 5e-4 for all weights), ``longest`` how many tokens of a sentence are read,
    ``batch`` how many rows fit into memory, ``model`` a folder of another model. ``correlated``
    noise takes a part of earlier steps' noise back, where that helps; a single step has several
    times more of it, and AdamW needs a rate that is as much higher, which ``lr`` must give.
    """

    adapt: Literal["lora", "full"] = "lora"
    epochs: float = 3.0
    lot: int = 2048
    clip: float = 1.0
    lr: float | None = None
    rank: int = 16
    longest: int = 64
    batch: int = 256
    correlated: bool = False
    model: str | None = None


def settings(epsilon: float) -> Settings:
    """The same at every ε: large lots and few epochs, as in the literature on such fine-tuning."""
    del epsilon
    return Settings()


def outline(task: Task) -> Outline:
    """Poisson lots."""
    chosen = task.settings
    # As for SGD with Adam's momentum and falling rate; Adam itself then needs a higher rate.
    over_steps = Banded(momentum=0.9, schedule="linear") if chosen.correlated else None
    return task.plan(lot=chosen.lot, epochs=chosen.epochs, clip=chosen.clip, correlation=over_steps)


def prepare(task: Task, plan: Plan, release: Releasing) -> Prepared:
    """The network, with adapters or whole."""
    del release  # nothing is released before training
    chosen: Settings = task.settings
    pretrained = language.loaded(chosen.model, task.device)
    prompt = language.Prompt(pretrained, BEFORE, AFTER, ANSWERS, chosen.longest)
    lr = RATES[chosen.adapt] if chosen.lr is None else chosen.lr
    return language.classifier(
        prompt, task, plan, adapt=chosen.adapt, rank=chosen.rank, lr=lr, batch=chosen.batch,
        unit="one phrase of a review: a sentence of which several are there is not protected as a "
        "whole",
    )  # fmt: skip


RECIPE = Recipe(
    name="sst2-smollm2",
    summary="sentiment, by a pretrained language model, its adapters or all of it: for a GPU",
    data="sst2",
    settings=settings,
    outline=outline,
    prepare=prepare,
    tuning=(
        "the learning rates were chosen by accuracy at ε = 3 on 5,000 training phrases that were "
        "held out, without being charged: of all weights among 2e-4 and 5e-4, of adapters among "
        "1e-3, 2e-3 and 4e-3, with 2 and 3 epochs; of adapters at ε = 8 lots of 512, 1,024 and "
        "2,048 were compared in the same way, and differed little; clip and rank are usual ones "
        "for private fine-tuning and were not compared; no rate was chosen for correlated noise"
    ),
)
