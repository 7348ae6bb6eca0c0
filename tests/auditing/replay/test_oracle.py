"""The oracle against gradients in closed form, and styles against their definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tacit import Plan
from tacit.auditing.replay import TACIT, Setting
from tacit.auditing.replay.experiments import Experiments, moved
from tacit.auditing.replay.laboratory import Laboratory
from tacit.auditing.replay.oracle import clipped, groups_of
from tacit.training.styles import Automatic, Flat, PerGroup, PerLayer, Style

if TYPE_CHECKING:
    from pathlib import Path

FLAT = Flat()
X = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))


def half_square(model: nn.Module, batch: tuple[torch.Tensor]) -> torch.Tensor:
    return 0.5 * model(batch[0]).square().sum(1)


def laboratory(tmp_path: Path, clipping: Style = FLAT, clip: float | None = 1.0) -> Laboratory:
    plan = Plan(
        examples=20,
        lot_size=5,
        steps=5,
        noise_multiplier=1.0,
        clip=clip,
        clipping=clipping,  # type: ignore[arg-type]
    )
    model = lambda: nn.Sequential(nn.Linear(4, 2, bias=False), nn.Linear(2, 2))  # noqa: E731
    setting = Setting(model=model, loss=half_square, dataset=TensorDataset(X), plan=plan)
    return Laboratory(setting, TACIT, tmp_path)


def test_a_gradient_is_that_of_the_closed_form(tmp_path: Path) -> None:
    lab = laboratory(tmp_path)
    experiments = Experiments(lab)
    gradients = experiments.oracle.of_step(experiments.sum_of("as it is"))
    model, _ = lab.made(still=True)
    first, second, bias = (p.detach().double() for p in model.parameters())
    for unit, found in gradients.items():
        x = X[unit].double()
        hidden = first @ x
        out = second @ hidden + bias
        parts = [torch.outer(second.T @ out, x), torch.outer(out, hidden), out]
        torch.testing.assert_close(found, torch.cat([part.reshape(-1) for part in parts]))


def test_gradients_of_a_later_step_are_those_of_its_own_parameters(tmp_path: Path) -> None:
    experiments = Experiments(laboratory(tmp_path))
    trace, _ = moved(experiments)
    before = trace.steps[3].before
    assert before is not None
    first, second, bias = before.double().split([8, 4, 2])
    scale = experiments.mixed
    for unit, found in experiments.oracle.of_step(trace, 3).items():
        x = X[unit].double()
        hidden = first.view(2, 4) @ x
        out = second.view(2, 2) @ hidden + bias
        parts = [torch.outer(second.view(2, 2).T @ out, x), torch.outer(out, hidden), out]
        torch.testing.assert_close(found, scale * torch.cat([part.reshape(-1) for part in parts]))
    # And it goes back to the first ones.
    fresh = Experiments(experiments.lab).oracle.of_step(experiments.sum_of("as it is"))
    for unit, found in experiments.oracle.of_step(experiments.sum_of("as it is")).items():
        assert torch.equal(found, fresh[unit])


def test_a_factor_of_a_unit_is_in_its_gradient(tmp_path: Path) -> None:
    experiments = Experiments(laboratory(tmp_path))
    plain = experiments.oracle.of_step(experiments.sum_of("as it is"))
    varied = experiments.oracle.of_step(experiments.sum_of("varied", scale=2.0, factors={3: -5.0}))
    torch.testing.assert_close(varied[3], -10.0 * plain[3])
    torch.testing.assert_close(varied[4], 2.0 * plain[4])


GRADIENT = torch.tensor([3.0] * 8 + [0.1] * 4 + [2.0] * 2, dtype=torch.float64)


@pytest.mark.parametrize(
    ("style", "clip", "norms"),
    [
        (Flat(), 1.0, None),
        (PerLayer(), 1.0, [(0.5**0.5, [0]), (0.5**0.5, [1, 2])]),
        (PerGroup({"0": 3.0, "": 4.0}), None, [(3.0, [0]), (4.0, [1, 2])]),
    ],
)
def test_no_group_is_above_its_bound_and_small_ones_are_left_alone(
    tmp_path: Path, style: Style, clip: float | None, norms: list[tuple[float, list[int]]] | None
) -> None:
    lab = laboratory(tmp_path, style, clip)
    plan = lab.setting.plan
    groups = groups_of(plan, lab.names)
    expected = norms or [(1.0, [0, 1, 2])]
    assert [(pytest.approx(bound), members) for bound, members in expected] == groups
    parts = clipped(lab, plan, GRADIENT).split(list(lab.sizes))
    for bound, members in expected:
        before = torch.cat([GRADIENT.split(list(lab.sizes))[at] for at in members]).norm()
        after = torch.cat([parts[at] for at in members]).norm()
        assert float(after) == pytest.approx(min(bound, float(before)))
    small = 1e-3 * GRADIENT
    torch.testing.assert_close(clipped(lab, plan, small), small)


def test_automatic_clipping_normalises(tmp_path: Path) -> None:
    lab = laboratory(tmp_path, Automatic(stability=0.5))
    norm = float(GRADIENT.norm())
    torch.testing.assert_close(clipped(lab, lab.setting.plan, GRADIENT), GRADIENT / (norm + 0.5))


def test_what_is_not_finite_adds_nothing(tmp_path: Path) -> None:
    lab = laboratory(tmp_path)
    broken = GRADIENT.clone()
    broken[3] = float("inf")
    assert not clipped(lab, lab.setting.plan, broken).any()
