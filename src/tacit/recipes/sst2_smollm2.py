"""``tacit train sst2-smollm2 --epsilon 3``: is a sentence about a film kind? For a GPU.

SmolLM2-135M continues "Review: … Sentiment:", and the likelier of two words is its answer. Adapters
of low rank on every projection are trained (``--adapt lora``), or all weights (``--adapt full``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, final

from tacit.recipes import language
from tacit.runs import Recipe
from tacit.training import Banded

if TYPE_CHECKING:
    from tacit.runs import Outline, Releasing, Task
    from tacit.training import Plan, Prepared

BEFORE, AFTER = "Review:", "\nSentiment:"
ANSWERS = (" negative", " positive")


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What may be set.

    ``adapt``: ``lora`` of ``rank``, or ``full``. ``epochs``, ``clip`` and the highest learning rate
    ``lr`` follow from it and the ε unless they are set. ``longest`` is how many tokens of a
    sentence are read, ``batch`` how many rows fit into memory, ``model`` a folder of another model.
    ``correlated`` noise takes a part of earlier steps' noise back, where that helps; a single step
    has several times more of it, and AdamW needs a rate that is as much higher, which ``lr`` must
    give.
    """

    adapt: Literal["lora", "full"] = "lora"
    epochs: float | None = None
    lot: int = 2048
    clip: float | None = None
    lr: float | None = None
    rank: int
    longest: int = 64
    batch: int = 256
    correlated: bool = False
    model: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Steps:
    """How long, and with what rate."""

    epochs: float
    clip: float
    lr: float


_MUCH_NOISE: Final = 5.0  # up to this ε as at 3, above as at 8


def settings(epsilon: float) -> Settings:
    """Large lots, as in the literature on such fine-tuning; adapters may be wide at a large ε."""
    return Settings(rank=16 if epsilon <= _MUCH_NOISE else 64)


def steps(chosen: Settings, epsilon: float) -> Steps:
    """As set, or else as found for adapters or all weights.

    >>> steps(Settings(rank=64, clip=2.0), 8.0)
    Steps(epochs=8.0, clip=2.0, lr=0.0025)
    """
    if chosen.adapt == "full":
        usual = Steps(epochs=3.0, clip=1.0, lr=5e-4)
    elif epsilon <= _MUCH_NOISE:
        usual = Steps(epochs=3.0, clip=1.0, lr=4e-3)
    else:
        usual = Steps(epochs=8.0, clip=10.0, lr=2.5e-3)
    given = {name: getattr(chosen, name) for name in ("epochs", "clip", "lr")}
    return replace(usual, **{name: one for name, one in given.items() if one is not None})


def outline(task: Task) -> Outline:
    """Poisson lots."""
    chosen, taken = task.settings, steps(task.settings, task.epsilon)
    # As for SGD with Adam's momentum and falling rate; Adam itself then needs a higher rate.
    over_steps = Banded(momentum=0.9, schedule="linear") if chosen.correlated else None
    return task.plan(lot=chosen.lot, epochs=taken.epochs, clip=taken.clip, correlation=over_steps)


def prepare(task: Task, plan: Plan, release: Releasing) -> Prepared:
    """The network, with adapters or whole."""
    del release  # nothing is released before training
    chosen: Settings = task.settings
    lr = steps(chosen, task.epsilon).lr
    pretrained = language.loaded(chosen.model, task.device)
    prompt = language.Prompt(pretrained, BEFORE, AFTER, ANSWERS, chosen.longest)
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
        "1e-3, 2e-3 and 4e-3, with 2 and 3 epochs; of adapters at ε = 8, in the same way, lots of "
        "512, 1,024 and 2,048, clips of 1, 3 and 10, 3 and 8 epochs with their rates, and on 2,000 "
        "whole texts of which no part was learned ranks of 4, 16 and 64 and four other changes, "
        "which were not taken; no rate was chosen for correlated noise"
    ),
)
