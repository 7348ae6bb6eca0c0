"""What a recipe gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from tacit.statement import Statement
    from tacit.training.progress import EpochRecord


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """A private model, how well it does, and what may be claimed of it.

    Args:
        model: The trained model, with averaged weights if there are any; or arrays by name.
        history: The epochs, in public numbers.
        statement: The claim, with everything that was released of the data.
        accuracy: The share of held-out examples that ``model`` gets right.
        notes: What a reader of the result should know beside the statement.
        files: Other files that are released with the model, by name.
    """

    model: nn.Module | Mapping[str, Any]
    history: tuple[EpochRecord, ...]
    statement: Statement
    accuracy: float
    notes: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
