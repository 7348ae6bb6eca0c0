"""Leaving records out of a training run whose numbers stay what they are.

A record that is left out is sampled like any other, and its loss is taken times 0: its gradient is
0, whatever clipping does, and nothing of it reaches the sum that noise is added to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch.utils.data import Dataset, TensorDataset, default_collate

from tacit.training.judging import default_loss

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.training.fit import Prepared
    from tacit.training.judging import RowWise
    from tacit.training.loading import Collate


def without(prepared: Prepared, left_out: NDArray[np.bool_]) -> Prepared:
    """``prepared`` in which these rows of the data set count nothing.

    >>> from tacit.training import Plan, Prepared
    >>> data = TensorDataset(torch.eye(2), torch.tensor([0, 1]))
    >>> model = torch.nn.Linear(2, 2)
    >>> plan = Plan(examples=2, lot_size=1, steps=1, noise_multiplier=1.0, clip=1.0)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    >>> prepared = Prepared(model=model, optimizer=optimizer, plan=plan, dataset=data)
    >>> changed = without(prepared, np.array([False, True]))
    >>> batch = changed.dataset[:2]
    >>> [value > 0 for value in changed.loss(model, batch).tolist()]
    [True, False]
    """
    counted = torch.from_numpy(np.where(left_out, 0.0, 1.0).astype(np.float32))
    loss = prepared.loss or default_loss
    if isinstance(prepared.dataset, TensorDataset) and prepared.collate is None:
        # Stays a data set of tensors, which is indexed on its device.
        tensors = prepared.dataset.tensors
        marked = TensorDataset(*tensors, counted.to(tensors[0].device))
        return replace(prepared, dataset=marked, loss=_Counted(loss, flat=True))
    return replace(
        prepared,
        dataset=_Marked(prepared.dataset, counted),
        loss=_Counted(loss, flat=False),
        collate=_Apart(prepared.collate or default_collate),
    )


@final
class _Counted:
    """A loss times the mark of each row: the batch's last entry."""

    def __init__(self, loss: RowWise, *, flat: bool) -> None:
        self._loss, self._flat = loss, flat

    def __call__(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        rest, counted = (tuple(batch[:-1]), batch[-1]) if self._flat else batch
        losses: torch.Tensor = self._loss(model, rest) * counted
        return losses


@final
class _Marked(Dataset[Any]):
    """Examples with their marks."""

    def __init__(self, dataset: Dataset[Any], counted: torch.Tensor) -> None:
        self._dataset, self._counted = dataset, counted

    def __len__(self) -> int:
        return len(self._counted)

    def __getitem__(self, row: int) -> tuple[Any, torch.Tensor]:
        return self._dataset[row], self._counted[row]


@final
class _Apart:
    """Collates examples and marks apart."""

    def __init__(self, collate: Collate) -> None:
        self._collate = collate

    def __call__(self, rows: list[Any]) -> tuple[Any, torch.Tensor]:
        return self._collate([row for row, _ in rows]), torch.stack([mark for _, mark in rows])
