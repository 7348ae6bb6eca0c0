"""Where rows lie is read off gradients, also when few rows have any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from tacit.errors import UnsupportedModel
from tacit.training.clipping import clipped_gradients
from tacit.training.clipping import engine as engine_module
from tacit.training.clipping import structure as structure_module
from tacit.training.clipping.engine import Engine
from tacit.training.clipping.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable


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


@pytest.mark.parametrize(
    "layer",
    [nn.BatchNorm1d(6).eval(), nn.Conv1d(6, 6, 1), nn.ConvTranspose1d(6, 6, 1)],
    ids=lambda layer: type(layer).__name__,
)
def test_rows_that_lie_where_a_rule_has_channels_or_pixels_are_refused(layer: nn.Module) -> None:
    """As many channels as time steps: norms would be others, and no size would tell."""
    torch.manual_seed(0)
    x = torch.randn(8, 6, 6)
    with pytest.raises(UnsupportedModel, match="rows of the batch elsewhere"):
        norms(layer, lambda: layer(x.permute(2, 1, 0)).tanh().sum((0, 1)), 8)


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


class Adapter(nn.Module):
    """A matrix behind another that begins with zeros, so that no loss reaches it at first."""

    def __init__(self, *, mixes: bool = False) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 2, bias=False), nn.Linear(2, 3, bias=False)
        self.mixes = mixes
        nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.first(x)
        return self.last(found + found.flip(0) if self.mixes else found)


def batches_of(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The norms of one batch after the other, by one engine."""
    parameters = dict(model.named_parameters())
    engine = Engine(parameters, dict.fromkeys(parameters, 0))

    def norms(x: Tensor) -> Tensor:
        engine.begin(len(x))
        engine.enter()
        losses = (model(x) - 1.0).square().sum(1)
        engine.stop()
        one, all_ = torch.ones(len(x)), torch.ones(len(x), dtype=torch.bool)
        result = engine.finish(losses, one, torch.tensor([1.0]), all_)
        return result.squared_norms.sum(0).sqrt()

    return norms


def test_what_no_loss_reaches_yet_is_looked_for_alone_and_once_it_is_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of an adapter's batches, each had all of its results looked at in a whole first lot.

    Their gradients were held beside all activations: a quarter more memory than without privacy.
    """
    asked: list[int] = []  # for how many gradients, in each backward pass
    for module in (engine_module, structure_module):
        run = module.gradients_at

        def noted(losses: Tensor, weights: Tensor, taps: Any, _run: Any = run, **how: Any) -> Any:
            asked.append(len(taps))
            return _run(losses, weights, taps, **how)

        monkeypatch.setattr(module, "gradients_at", noted)
    torch.manual_seed(0)
    model, x = Adapter(), torch.randn(6, 4)
    norms, passes = batches_of(model), []
    for _ in range(3):
        norms(x)
        passes.append([*asked])
        asked.clear()
    assert passes == [[2] * 5, [1, 2], [1, 2]]  # all losses, three rows, and the one that counts
    nn.init.normal_(model.last.weight)
    found = norms(x)
    assert asked == [1, 1, 1, 1, 1, 2]
    for row in range(6):
        value = (model(x[row]) - 1.0).square().sum()
        wanted = torch.stack([g.norm() for g in torch.autograd.grad(value, model.parameters())])
        torch.testing.assert_close(found[row].float(), wanted.norm(), rtol=1e-4, atol=1e-6)
    asked.clear()
    norms(x)
    assert asked == [2]


def test_mixing_that_no_loss_reaches_at_first_is_refused_once_one_does() -> None:
    torch.manual_seed(0)
    model, x = Adapter(mixes=True), torch.randn(6, 4)
    norms = batches_of(model)
    norms(x)
    nn.init.normal_(model.last.weight)
    with pytest.raises(UnsupportedModel, match=r"first\.weight mixes or moves examples"):
        norms(x)


# ---- batches of several sizes, by one engine


class Flat(nn.Module):
    """Time-major rows in one dimension, of which a part adds what ``gate`` lets through."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, width), nn.Linear(width, 3)
        self.gated = nn.Linear(4, width, bias=False)
        self.gate: Callable[[Tensor], Tensor] = torch.zeros_like

    def forward(self, x: Tensor) -> Tensor:
        rows, steps, _ = x.shape
        flat = x.transpose(0, 1).reshape(steps * rows, -1)
        gates = self.gate(x[..., 0]).t().reshape(steps * rows, 1)
        found = self.last((self.first(flat) + gates * self.gated(flat)).tanh())
        return found.view(steps, rows, -1).transpose(0, 1).flatten(1)


def true_norms(model: nn.Module, x: Tensor) -> Tensor:
    found = []
    for row in x:
        value = (model(row[None]) - 1.0).square().sum()
        gradients = torch.autograd.grad(value, model.parameters())
        found.append(torch.cat([one.flatten() for one in gradients]).norm())
    return torch.stack(found).double()


def test_rows_of_one_entry_do_not_tell_how_longer_ones_lie() -> None:
    torch.manual_seed(0)
    model = Flat()
    norms = batches_of(model)
    for steps in (1, 3, 1, 2):
        x = torch.randn(4, steps, 4)
        torch.testing.assert_close(norms(x), true_norms(model, x), rtol=1e-4, atol=1e-6)


def test_a_layout_that_one_row_fits_by_accident_is_not_kept() -> None:
    """The first entry of all belongs to the first row, in whichever order rows lie."""
    torch.manual_seed(0)
    model = Flat()
    norms, x = batches_of(model), torch.randn(4, 3, 4)
    for lit in ([(0, 0)], [(0, 0), (1, 0), (2, 1)]):
        gates = torch.zeros(4, 3)
        gates[tuple(zip(*lit, strict=True))] = 1.0
        model.gate = lambda _, gates=gates: gates
        found = norms(x)
        for row in range(4):
            model.gate = lambda _, own=gates[row : row + 1]: own
            wanted = true_norms(model, x[row : row + 1])[0]
            torch.testing.assert_close(found[row], wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("width", [4, 6])
def test_a_row_that_is_not_finite_takes_no_other_out_where_none_is_reached(width: int) -> None:
    """With ``width`` 4 a result could have a row in each of its columns, as there are four."""
    torch.manual_seed(0)
    model, x = Flat(width), torch.randn(4, 4, 4)
    found = batches_of(model)(x)
    x[2] = torch.nan
    broken = batches_of(model)(x)
    others = [0, 1, 3]
    assert not broken[2].isfinite()
    torch.testing.assert_close(broken[others], found[others])


def test_what_vanishes_without_the_scale_of_half_precision_is_looked_for_with_it() -> None:
    torch.manual_seed(0)
    model, x = Adapter().half(), torch.randn(4, 4, 4).half()
    nn.init.constant_(model.last.weight, 2.0**-16).requires_grad_(False)

    def losses() -> Tensor:
        return model(x.transpose(0, 1)).float().sum((0, 2)) * 2.0**-12

    found = clipped_gradients({"first.weight": model.first.weight}, losses, rows=4, clip=1.0)
    wanted = 2**0.5 * 3 * 2.0**-28 * x.float().sum(1).norm(dim=1)
    torch.testing.assert_close(found.norms.float(), wanted, rtol=2e-2, atol=0.0)


def test_a_row_whose_loss_is_not_finite_is_known_before_any_loss_reaches_a_weight() -> None:
    """Of a table of nothing but missing values, no gradient shows where rows lie."""
    model, x = Adapter(), torch.randn(6, 4)
    found = batches_of(model)(torch.full((6, 4), torch.nan))
    assert found.isnan().all()
    x[2] = torch.nan
    assert batches_of(model)(x).isnan().tolist() == [at == 2 for at in range(6)]
