"""What a recipe hands to ``Job.fit``, as a value: an audit looks at it, and may change it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.data import Dataset

    from tacit.training.judging import RowWise
    from tacit.training.loaders import Collate


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lesson:
    """What is learned from, and what is asked afterwards.

    Args:
        model: What is trained; or the average of its weights, if that is what is released.
        dataset: The training examples, as the recipe made them.
        loss: One number per row, or None for the cross entropy.
        held_out: The held-out examples, as the recipe made them; None to ask nothing on the way.
        correct: How the recipe tells right from wrong, if by an own rule.
        collate: Makes a batch of a list of examples, if by an own rule.
    """

    model: nn.Module
    dataset: Dataset[Any]
    loss: RowWise | None
    held_out: Dataset[Any] | None
    correct: RowWise | None
    collate: Collate | None
