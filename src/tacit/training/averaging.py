"""An average of the weights over the steps: computed from what is released, and so free."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.optim.swa_utils import AveragedModel


@final
class Averaging:
    """The average of the weights, if one is kept."""

    def __init__(self, model: nn.Module, average: AveragedModel | None, first: int) -> None:
        self._model, self._average, self._first = model, average, first
        if average is not None and _shapes(average.module) != _shapes(model):
            raise InvalidArgument(
                "average must be an average of this model, as AveragedModel(model), got one whose "
                "parameters have other names or shapes"
            )

    def after(self, steps: int) -> None:
        """Takes the weights after this many steps in."""
        if self._average is not None and steps >= self._first:
            self._average.update_parameters(self._model)

    @property
    def best(self) -> nn.Module:
        """What is to be judged: the average once it holds something, else the model."""
        return self._model if not averaged(self._average) else self._average.module  # type: ignore[union-attr]


def averaged(average: AveragedModel | None) -> bool:
    """Whether an average was given, and holds the weights of at least one step."""
    return average is not None and int(average.n_averaged) > 0


def _shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: parameter.shape for name, parameter in model.named_parameters()}
