"""Where rows lie is read off gradients, also when few rows have any."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tacit.errors import UnsupportedModel
from tacit.training.clipping import clipped_gradients
from tacit.training.clipping.recorder import Recorder


def norms(model: nn.Module, losses, rows: int) -> torch.Tensor:
    result = clipped_gradients(dict(model.named_parameters()), losses, rows=rows, clip=1.0)
    return result.norms


@pytest.mark.parametrize("live", [[0], [29], [17, 30]])
def test_a_layout_is_found_from_the_few_rows_that_have_a_gradient(live: list[int]) -> None:
    torch.manual_seed(0)
    rows = 32
    model, x = nn.Linear(4, 3), torch.randn(rows, rows, 4)  # time equals rows
    mask = torch.zeros(rows)
    mask[live] = 1.0

    def losses() -> torch.Tensor:
        time_major = model(x.transpose(0, 1)).tanh()
        return time_major.sum((0, 2)) * mask

    found = norms(model, losses, rows)
    for row in range(rows):
        value = (model(x[row]).tanh().sum()) * mask[row]
        wanted = torch.stack([g.norm() for g in torch.autograd.grad(value, model.parameters())])
        torch.testing.assert_close(found[row].float(), wanted.norm(), rtol=1e-4, atol=1e-6)


def test_mixing_that_only_one_row_shows_is_refused() -> None:
    torch.manual_seed(0)
    rows = 32
    model, x = nn.Linear(4, 3), torch.randn(rows, 4)

    def losses() -> torch.Tensor:
        out = model(x).sum(1)
        mixed = out.clone()
        mixed[21] = out[21] + out[3]
        return mixed * (torch.arange(rows) == 21)

    with pytest.raises(UnsupportedModel, match="loss of row 21 depends on other rows"):
        norms(model, losses, rows)


def test_what_probes_show_is_looked_at_without_the_recorder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With it, the start of a model would take time that grows with the square of its depth."""
    seen: list[Any] = []
    call = Recorder.call

    def counting(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        seen.append(func)
        return call(recorder, func, *args, **kwargs)

    monkeypatch.setattr(Recorder, "call", counting)
    layers = [nn.Linear(4, 4) for _ in range(20)]
    model, x, forward = nn.Sequential(*layers), torch.randn(6, 4), []

    def losses() -> Tensor:
        values: Tensor = model(x).square().sum(1)
        forward.append(len(seen))
        return values

    clipped_gradients(dict(model.named_parameters()), losses, rows=6, clip=1.0)
    assert len(seen) - forward[0] < 20  # ones for the few backward passes, and no more
