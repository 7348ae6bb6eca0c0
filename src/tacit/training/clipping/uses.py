"""One use of private weights by one operation, and what a rule for an operation consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from torch import Tensor

    from tacit.training.clipping.forms import Form
    from tacit.training.clipping.layout import Rows
    from tacit.training.clipping.recording import Recorder


class Record(Protocol):
    """Redoes a call with its weights detached and hands the pieces to ``recorder.use``.

    It takes the torch function's own arguments after the recorder, and returns the call's result,
    or ``NotImplemented`` where the rule does not apply.
    """

    def __call__(self, recorder: Recorder, /, *args: Any, **kwargs: Any) -> Any:
        """Records one call."""


@final
@dataclass(frozen=True, slots=True)
class Rule:
    """How one kind of operation is recorded, and what its per-example gradients look like.

    ``gradients`` is a pure function of what was saved and of the gradient of the result; it returns
    one form (or None) per weight slot.
    """

    name: str
    gradients: Callable[[Gradient], tuple[Form | None, ...]]


@final
@dataclass(frozen=True, slots=True)
class Gradient:
    """What a rule sees: the saved inputs, the result's gradient, and how rows lie in them."""

    saved: tuple[Tensor, ...]
    settings: Any
    grad: Tensor
    shapes: tuple[tuple[int, ...] | None, ...]  # of the weights; None: no private weight there
    rows: Rows


@final
@dataclass(frozen=True, slots=True)
class Use:
    """One recorded call: which weights entered it, and how many tensors it saved."""

    rule: Rule
    weights: tuple[Tensor | None, ...]
    saved: int
    settings: Any
    shape: tuple[int, ...]  # of the result
    dtype: torch.dtype  # of the result

    def gradients(
        self, saved: Sequence[Tensor], grad: Tensor, rows: Rows
    ) -> tuple[Form | None, ...]:
        """The per-unit gradients of this use's weights."""
        shapes = tuple(None if w is None else tuple(w.shape) for w in self.weights)
        return self.rule.gradients(Gradient(tuple(saved), self.settings, grad, shapes, rows))
