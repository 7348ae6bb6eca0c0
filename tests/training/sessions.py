"""Small models, data and loops for tests of sessions, and the truth about one step."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import tacit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tacit.training.lot import Lot
    from tacit.training.session import Session

EXAMPLES, WIDTH, CLASSES = 40, 5, 3
CLIP = 1.7  # norms of the examples lie on both sides of it
QUIET = 1e-7  # a noise multiplier that leaves the sum to be seen


def data(examples: int = EXAMPLES, *, seed: int = 0, scale: float = 2.0) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    x = scale * torch.randn(examples, WIDTH, generator=generator)
    return TensorDataset(x, torch.randint(CLASSES, (examples,), generator=generator))


def network(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(WIDTH, 6), nn.Tanh(), nn.Linear(6, CLASSES))


def plan(**changed: Any) -> tacit.Plan:
    given: dict[str, Any] = {
        "examples": EXAMPLES, "lot_size": 12, "steps": 4, "noise_multiplier": QUIET, "clip": CLIP,
    }  # fmt: skip
    given |= changed
    return tacit.Plan(**given)


def sgd(model: nn.Module, lr: float = 0.1) -> torch.optim.SGD:
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr)


def session(model: nn.Module | None = None, **changed: Any) -> Session:
    """A session with whatever the test does not care about filled in."""
    model = network() if model is None else model
    given = {"optimizer": sgd(model), "plan": plan(), "dataset": data()} | changed
    return tacit.private(model, **given)


def cross_entropy(model: nn.Module) -> Callable[[Any], Tensor]:
    def losses(batch: Any) -> Tensor:
        x, y = batch
        return functional.cross_entropy(model(x), y, reduction="none")

    return losses


class Grads:
    """Keeps what each step hands to an optimizer, before it is used."""

    def __init__(self, model: nn.Module, *optimizers: torch.optim.Optimizer) -> None:
        self._model = model
        self.steps: list[dict[str, Tensor]] = []
        for optimizer in optimizers[:1]:
            optimizer.register_step_pre_hook(self._note)

    def _note(self, *_: Any) -> None:
        self.steps.append(
            {n: p.grad.clone() for n, p in self._model.named_parameters() if p.grad is not None}
        )


def whole_lot(dp: Session, lot: Lot, losses: Callable[[Any], Tensor]) -> None:
    """The loop of the manual."""
    for batch in lot:
        dp.backward(losses(batch))
    dp.step()


def drawn(lot: Lot) -> NDArray[Any]:
    """The units of a lot that has not been iterated over yet; the first is not rehearsed then."""
    if lot._draw.rehearses:
        lot._draw.sample()
    return lot._draw.left.copy()


def unit_gradients(
    model: nn.Module,
    losses: Callable[[nn.Module, Any], Tensor],
    units: Sequence[Sequence[Any]],
) -> list[dict[str, Tensor]]:
    """Each unit's gradient, the average over its rows, by looped autograd in double precision."""
    double = copy.deepcopy(model).double()
    names = [name for name, p in double.named_parameters() if p.requires_grad]
    parameters = [p for p in double.parameters() if p.requires_grad]
    found = []
    for rows in units:
        totals = [torch.zeros_like(p) for p in parameters]
        for row in rows:
            loss = losses(double, row).sum() / len(rows)
            for total, grad in zip(totals, torch.autograd.grad(loss, parameters), strict=True):
                total.add_(grad)
        found.append(dict(zip(names, totals, strict=True)))
    return found


def norm(gradient: dict[str, Tensor]) -> float:
    return float(torch.cat([g.flatten() for g in gradient.values()]).norm())


def flat_sum(gradients: Sequence[dict[str, Tensor]], clip: float) -> dict[str, Tensor]:
    """Σ g·min(1, C/‖g‖)."""
    scaled = [min(1.0, clip / max(norm(g), 1e-30)) for g in gradients]
    return {
        name: sum(s * g[name] for s, g in zip(scaled, gradients, strict=True))
        for name in gradients[0]
    }  # type: ignore[return-value]


def row_of(dataset: TensorDataset, index: int) -> tuple[Tensor, ...]:
    """One example as a batch of one, in double precision."""
    return tuple(
        t[index : index + 1].double() if t.is_floating_point() else t[index : index + 1]
        for t in dataset.tensors
    )


def example_sum(
    model: nn.Module, dataset: TensorDataset, indices: Sequence[int], clip: float
) -> dict[str, Tensor]:
    """The clipped sum of a lot of examples under cross-entropy: Algorithm 1 to the letter."""

    def losses(double: nn.Module, row: Any) -> Tensor:
        x, y = row
        return functional.cross_entropy(double(x), y, reduction="none")

    units = [[row_of(dataset, int(index))] for index in indices]
    if not units:
        return {name: torch.zeros_like(p).double() for name, p in model.named_parameters()}
    return flat_sum(unit_gradients(model, losses, units), clip)


def close(given: dict[str, Tensor], truth: dict[str, Tensor], tolerance: float = 1e-5) -> bool:
    """Within ``tolerance`` of the truth's size, and of the same parameters."""
    assert given.keys() == truth.keys()
    size = norm(truth) + 0.1  # where there is nothing but noise, that is not far away
    return all(float((given[n].double() - truth[n]).norm()) <= tolerance * size for n in truth)


class Plain(torch.utils.data.Dataset[Any]):
    """The examples of ``data()``, one by one: nothing that could be indexed as a whole."""

    def __init__(self) -> None:
        self._inner = data()

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int) -> Any:
        return self._inner[index]
