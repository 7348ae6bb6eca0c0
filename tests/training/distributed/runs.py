"""Small private runs that any number of ranks can do, and what they leave."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

import tacit

from ..clipping.cases import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..clipping.cases import Case

EXAMPLES, WIDTH, CLASSES = 48, 5, 3
SEED = 3  # of sampling and noise: the run is the same for any number of ranks


def rows(examples: int = EXAMPLES, *, dtype: torch.dtype = torch.float32) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.randn(examples, WIDTH, generator=generator)
    return TensorDataset(x.to(dtype), torch.randint(CLASSES, (examples,), generator=generator))


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 7), nn.Tanh(), nn.Linear(7, CLASSES))


def by_class(model: nn.Module, batch: Any) -> Tensor:
    x, y = batch
    return functional.cross_entropy(model(x), y, reduction="none")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run: what it trains, on what, by which plan."""

    model: Callable[[], nn.Module] = network
    data: Callable[[], Dataset[Any]] = rows
    loss: Callable[[nn.Module, Any], Tensor] = by_class
    plan: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[nn.Module], nn.Module] | None = None  # in every rank; all start alike then

    def plan_of(self) -> tacit.Plan:
        given: dict[str, Any] = {
            "examples": EXAMPLES, "lot_size": 12, "steps": 3, "noise_multiplier": 1.0, "clip": 0.7,
        }  # fmt: skip
        return tacit.Plan(**(given | dict(self.plan)))

    def __call__(self, rank: int) -> Tensor:
        """Trains, and gives the weights as one vector."""
        alike = rank == 0 or self.prepare is not None
        torch.manual_seed(5 if alike else 50 + rank)  # rank 0's first weights are everybody's
        model = self.model()
        if self.prepare is not None:
            model = self.prepare(model)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
        options = {"unsafe_seed": SEED, **self.options}
        with tacit.private(model, optimizer, self.plan_of(), self.data(), **options) as dp:
            for lot in dp.lots():
                for batch in lot:
                    dp.backward(self.loss(model, batch))
                dp.step()
        return weights(model)


def weights(model: nn.Module) -> Tensor:
    """The trainable parameters as one vector, in double precision, gathered where in pieces."""
    found = [p.detach() for p in model.parameters() if p.requires_grad]
    plain = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in found]
    return torch.cat([one.double().flatten() for one in plain])


def of_case(case: Case, **changed: Any) -> Run:
    """A row of the table as a run: its batch is the data set."""

    def loss(model: nn.Module, batch: Any) -> Tensor:
        return case.call(model, tuple(batch))

    inputs = case.batch()
    plan = {"examples": len(inputs[0]), "lot_size": max(2, len(inputs[0]) // 2)}
    data = partial(TensorDataset, *inputs)
    return Run(model=case.model, data=data, loss=loss, plan={**plan, **changed})


def chosen(*names: str) -> list[Case]:
    """Rows of the table by their names."""
    known = {case.name: case for case in TABLE}
    return [known[name] for name in names]
