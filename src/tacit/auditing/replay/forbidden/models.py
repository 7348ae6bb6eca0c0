"""Models and losses that must be refused: rows that are mixed, and what cannot be clipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import (
    Dataset,
    TensorDataset,
)

from tacit.auditing.replay.forbidden.small_run import (
    CLASSES,
    ROWS,
    WIDTH,
    Layered,
    Model,
    Small,
    layered,
    row_loss,
    rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def _after(layer: Callable[[], nn.Module]) -> Small:
    """A model in which a layer of some kind stands before the last one."""
    return Small(lambda: nn.Sequential(layer(), nn.Flatten(), nn.Linear(WIDTH, CLASSES)))


class _Hidden(torch.autograd.Function):
    """A product that torch's functions do not see."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x @ weight.T

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad.T @ ctx.saved_tensors[0], None


def _unseen(model: Any, x: Tensor) -> Any:
    return _Hidden.apply(model.layer.weight, x) + model.layer.bias  # type: ignore[no-untyped-call]


def _noted(model: Any, x: Tensor) -> Any:
    model.seen.data += x.detach().sum()
    return model.layer(x)


def _assigned(model: Any, x: Tensor) -> Any:
    model.layer.weight.data = model.layer.weight * 0.5
    return model.layer(x)


def _written_into(model: Any, x: Tensor) -> Any:
    both = torch.cat([x, x], 1)
    both[:, :WIDTH] = model.layer.weight[0]
    return model.layer(both[:, :WIDTH] + x)


def _changed_later(model: Any, x: Tensor) -> Any:
    inner = x * 2.0
    result: Tensor = model.layer(inner)
    inner.add_(1.0)
    return result


def _packed(model: Any, x: Tensor) -> Any:
    rows = x.unsqueeze(2)
    lengths = torch.arange(len(x), 0, -1).clamp(max=WIDTH)
    packed = nn.utils.rnn.pack_padded_sequence(rows, lengths, True, enforce_sorted=False)
    return model.layer(model.rnn(packed)[1][0])


def _shared(model: Any, x: Tensor) -> Any:
    """Rows are divided by their number, as an average over the batch does."""
    return model.layer(x) / len(x)


def _by_frequency(**options: Any) -> Small:
    tokens = torch.arange(ROWS * 2).remainder(6).view(ROWS, 2)
    return Small(
        lambda: nn.Sequential(nn.Embedding(6, 3, **options), nn.Flatten(), nn.Linear(6, CLASSES)),
        data=lambda: TensorDataset(tokens, rows()[1]),
    )


_stranger = nn.Parameter(torch.ones(CLASSES))
MODELS: dict[str, Callable[[], object]] = {
    "batch norm": _after(lambda: nn.BatchNorm1d(WIDTH)),
    "batch norm without statistics": Small(
        lambda: nn.Sequential(nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 3)).eval()
    ),
    "batch norm as a function": layered(
        lambda m, x: m.layer(functional.batch_norm(x, None, None, m.gain, training=True)),
        gain=lambda: nn.Parameter(torch.ones(WIDTH)),
    ),
    "batch norm that is switched on": Small(
        lambda: nn.Sequential(nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, CLASSES)).eval(),
        moment="before the first lot", act=lambda s: s.model.train(),
    ),
    "instance norm with statistics": _after(lambda: nn.Sequential(
        nn.Unflatten(1, (1, WIDTH)), nn.InstanceNorm1d(1, track_running_stats=True))),
    "instance norm with statistics as a function": layered(
        lambda m, x: m.layer(functional.instance_norm(
            x.unsqueeze(2).expand(-1, -1, 2), m.mean, m.var, m.gain).mean(2)),
        gain=lambda: nn.Parameter(torch.ones(WIDTH)),
        mean=lambda: torch.zeros(WIDTH), var=lambda: torch.ones(WIDTH),
    ),
    "rows without their mean": layered(lambda m, x: m.layer(x - x.mean(0))),
    "rows divided by the largest": layered(lambda m, x: m.layer(x) / x.detach().abs().max()),
    "rows divided by their number": layered(_shared),
    "rows in another order": layered(lambda m, x: m.layer(x.flip(0))),
    "a buffer of the rows": layered(_noted, seen=lambda: torch.zeros(())),
    "a weight that is assigned to": layered(_assigned),
    "a weight that is changed in place": layered(
        lambda m, x: m.layer(x) + m.layer.weight.add_(0.1).sum()),
    "a weight that is written into a tensor": layered(_written_into),
    "a weight that is added in place": layered(
        lambda m, x: m.layer(x) + torch.zeros(len(x), 3).addmm_(x, m.layer.weight.T)),
    "a tensor that is changed after its use": layered(_changed_later),
    "a weight with an entry for every row": layered(
        lambda m, x: m.layer(x) + m.each[: len(x)],
        each=lambda: nn.Parameter(torch.ones(ROWS, CLASSES))),
    "several results at once": layered(
        lambda m, x: m.layer(x) + torch.linalg.lstsq(m.layer.weight.T, x.T).solution.T),
    "rows in a later dimension": layered(
        lambda m, x: m.layer(x) + torch.cdist(m.layer.weight, x).T),
    "a similarity over rows": layered(
        lambda m, x: m.layer(x) + functional.cosine_similarity(
            m.layer(x)[:, None, :1], m.layer.weight[None, :, :1], dim=0).sum()),
    "packed sequences": Small(lambda: Layered(
        _packed, lambda: nn.Linear(4, CLASSES), rnn=nn.GRU(1, 4, batch_first=True))),
    "an operation that cannot be seen": layered(
        _unseen),
    "a parameter that nobody holds": layered(lambda m, x: m.layer(x) * _stranger),
    "a parameter that is not used": layered(
        lambda m, x: m.layer(x), spare=lambda: nn.Linear(2, 2)),
    "a parameter that is used without a gradient": layered(
        lambda m, x: m.layer(x) * m.gain.detach(), gain=lambda: nn.Parameter(torch.ones(3))),
    "reentrant checkpointing": layered(lambda m, x: checkpoint(
        m.layer, x.requires_grad_(), use_reentrant=True)),
    "an embedding that is normed": _by_frequency(max_norm=0.1),
    "an embedding by frequency": _by_frequency(scale_grad_by_freq=True),
    "data parallel": Small(lambda: nn.DataParallel(Model())),
    "complex parameters": Small(lambda: nn.Linear(WIDTH, CLASSES, dtype=torch.complex64)),
    "parameters that are nowhere": Small(lambda: nn.Linear(WIDTH, CLASSES, device="meta")),
    "parameters in two places": Small(lambda: nn.Sequential(
        nn.Linear(WIDTH, 4), nn.Linear(4, CLASSES, device="meta"))),
}  # fmt: skip


# ---- losses


def _mixed(change: Callable[[Tensor], Any]) -> Small:
    return Small(loss=lambda model, batch: change(row_loss(model, batch)))


def _scaled(model: Any, batch: Any) -> Tensor:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    found: Tensor = scaler.scale(row_loss(model, batch))
    return found


def _penalised(model: Any, batch: Any) -> Any:
    x = batch[0].clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return row_loss(model, batch) + slope.square().sum(1)


def _by_hand(model: Any, batch: Any) -> Tensor:
    losses = row_loss(model, batch)
    losses.sum().backward(retain_graph=True)
    return losses


class _Labelled(Dataset[Any]):
    """Rows whose labels can be moved."""

    def __init__(self) -> None:
        self.x, self.y = rows()
        self.shift = 0

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index] + self.shift


LOSSES: dict[str, Callable[[], object]] = {
    "a sum of losses": _mixed(lambda losses: losses.sum()),
    "a column of losses": _mixed(lambda losses: losses.unsqueeze(1)),
    "too few losses": _mixed(lambda losses: losses[:-1]),
    "whole numbers as losses": _mixed(lambda losses: losses.long()),
    "losses without a gradient": _mixed(lambda losses: losses.detach()),
    "losses from elsewhere": _mixed(lambda losses: torch.ones_like(losses).requires_grad_()),
    "losses that are no tensor": _mixed(lambda losses: losses.tolist()),
    "losses that are not finite": _mixed(lambda losses: losses * float("nan")),
    "losses that are mixed": _mixed(lambda losses: losses * (1.0 + losses.mean())),
    "losses that are weighed by others": _mixed(
        lambda losses: losses / losses.detach().abs().max().clamp_min(1e-3)),
    "losses that are divided by their number": _mixed(lambda losses: losses / len(losses)),
    "losses in another order": _mixed(lambda losses: losses.flip(0)),
    "scaled losses": Small(loss=_scaled),
    "a penalty on gradients": Small(loss=_penalised),
    "loss.backward()": Small(loss=_by_hand),
    "labels beyond the classes": Small(
        data=lambda: TensorDataset(rows()[0], rows()[1] + CLASSES)),
    "labels that go wrong later": Small(
        data=_Labelled, moment="between lots", act=lambda s: setattr(s.data, "shift", 50)),
    "labels below the classes": Small(data=lambda: TensorDataset(rows()[0], rows()[1] - 50)),
}  # fmt: skip
