"""A prior's recipe: what is charged, what the statement says, and a rehearsal of all of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import tacit
from tacit import recipes
from tacit.accounting import Composed, epsilon
from tacit.errors import InvalidArgument
from tacit.models import wide_resnet, with_plain_filters
from tacit.recipes import cifar10_prior, prior, svhn_prior
from tacit.runs.recipe import Task
from tacit.training.evaluation import accuracy
from tacit.training.plan import Plan

from .pictures import check_published, pictures

if TYPE_CHECKING:
    from pathlib import Path

TINY = prior.PriorSettings(
    images=32, size=16, view=16, depth=10, width=1, features=8, projection=16, passes=1, batch=16
)
SMALL: dict[str, Any] = {
    "steps": 3, "lot": 20, "views": 2, "probe": 3, "probe_views": 2, "depth": 10, "width": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prior as it is written, with first weights: nothing has to be learned for these tests."""
    torch.manual_seed(3)
    path = tmp_path_factory.mktemp("prior") / prior.FILE
    path.write_bytes(prior.to_bytes(TINY.network(), TINY))
    return path


def _task(file: Path | str, *, epsilon: float = 4.0, **changes: Any) -> Task:
    chosen = cifar10_prior.Settings(**{**SMALL, "prior": str(file), **changes})
    data = pictures(channels=3, size=16, train=60, test=20)
    return Task(
        settings=chosen, data=data, epsilon=epsilon, delta=1e-5, device=torch.device("cpu"), seed=1
    )


def test_what_was_published() -> None:
    check_published("cifar10-prior", {1.0: 72.3})
    chosen = cifar10_prior.settings(1.0)
    assert (chosen.probe, chosen.steps, chosen.views) == (98, 777, 16)
    assert [cifar10_prior.settings(one).lot for one in (0.5, 2.0, 4.0, 8.0)] == [
        2048,
        2048,
        4096,
        4096,
    ]
    assert (chosen.probe_lr, chosen.clip, chosen.decay) == (15.0, 1.0, 0.9999)
    assert chosen.lr == 0.2  # other than published: filters are plain, and rates were compared
    digits = svhn_prior.settings(1.0)
    assert not digits.flip
    assert digits.steps == chosen.steps


@pytest.mark.parametrize(("epsilon", "more"), [(0.5, 1.01), (1.0, 1.016), (2.0, 1.04)])
def test_half_of_the_published_lot_has_hardly_more_noise_up_to_epsilon_2(
    epsilon: float, more: float
) -> None:
    chosen = cifar10_prior.settings(epsilon)
    found = {
        lot: Plan.for_budget(
            epsilon=epsilon, delta=1e-5, examples=50_000, lot_size=lot, clip=1.0,
            steps=chosen.probe + chosen.steps,
        ).noise_multiplier / lot
        for lot in (chosen.lot, 4096)
    }  # fmt: skip
    assert 1.0 < found[chosen.lot] / found[4096] < more


def test_both_phases_are_calibrated_together_and_have_about_the_same_noise() -> None:
    """The published run has σ = 9.3 and 875 steps; the exact accountant needs less for ε = 1."""
    data = pictures(channels=3, size=16, train=60, test=20)
    chosen = replace(cifar10_prior.settings(1.0), lot=4096)
    big = Plan.for_budget(
        epsilon=1.0, delta=1e-5, examples=50_000, lot_size=4096, steps=875, clip=1.0
    )
    assert big.noise_multiplier == pytest.approx(9.119, abs=0.001)

    class Many:  # as CIFAR-10, of which only the number is asked for
        train = range(50_000)
        classes = data.classes

    task = Task(
        settings=chosen, data=Many(), epsilon=1.0, delta=1e-5,  # type: ignore[arg-type]
        device=torch.device("cpu"),
    )  # fmt: skip
    first, both = cifar10_prior.probe_plan(task), cifar10_prior.outline(task)
    assert first is not None
    assert 0 <= first.noise_multiplier - big.noise_multiplier <= 1e-4
    assert both.plan.noise_multiplier == pytest.approx(big.noise_multiplier, abs=1e-4)
    assert (first.steps, both.plan.steps, both.plan.views) == (98, 777, 16)
    assert both.also == (first.event,)
    spent = epsilon(both.event, 1e-5)
    assert 0.9999 < spent <= 1.0
    assert both.event == Composed(first.event, both.plan.event)


def test_the_whole_recipe_in_small_and_in_pieces(file: Path, tmp_path: Path) -> None:
    """Stopped in the second phase and resumed: the first is neither learned nor charged again."""
    data = pictures(channels=3, size=8, train=60, test=20)
    ledger = tacit.Ledger(f"sqlite:///{tmp_path}/budget.db")
    budget = ledger.open("pictures", epsilon=8, delta=1e-5, composition="declared")
    given: dict[str, Any] = {
        "epsilon": 8, "settings": {**SMALL, "prior": str(file)}, "data": data,
        "folder": tmp_path / "run", "progress": False, "budget": budget,
    }  # fmt: skip
    asked: list[int] = []
    with pytest.raises(recipes.Interrupted, match="stopped after step 1 of 3"):
        recipes.run("cifar10-prior", **given, stop=lambda: bool(asked.append(1)) or len(asked) > 2)
    kept = (tmp_path / "run" / "released-probe.safetensors").read_bytes()
    done = recipes.run("cifar10-prior", **given, resume=True)
    assert (tmp_path / "run" / "released-probe.safetensors").read_bytes() == kept
    entries = ledger.history("pictures")
    probes = [at for at, one in enumerate(entries) if "probe" in str(one.data.get("label"))]
    steps = [at for at, one in enumerate(entries) if one.kind == "lease"]
    assert len(probes) == 1
    assert max(at for at, one in enumerate(entries) if one.kind == "declare") < probes[0] < steps[0]
    assert budget.spent().epsilon == pytest.approx(done.statement.epsilon, rel=1e-6)
    assert done.statement.steps_taken == 3
    assert 7.9 < done.statement.epsilon <= 8.0
    what = [one.what for one in done.statement.preprocessing]
    assert any(prior.read(file).sha256 in text and "public" in text for text in what)
    assert [one.charged for one in done.statement.preprocessing] == [False, True]
    assert "last layer" in what[1]
    assert any("took as public" in text for text in done.statement.assumptions)
    assert done.accuracy is not None
    assert isinstance(recipes.load(tmp_path / "run", data=data).model, torch.nn.Module)


def test_the_first_phase_learns_the_last_layer_on_features_of_the_prior(file: Path) -> None:
    """With hardly any noise it learns what there is to see, and the rest stays the prior's."""
    task = _task(
        file, epsilon=2000.0, probe=60, lot=60, probe_lr=4.0, shift=0, flip=False,
        filters="standardised",
    )  # fmt: skip
    kept: list[Any] = []

    def release(name: str, mechanism: Any, *, what: str) -> Any:
        del name, what
        kept.append(mechanism(None))
        return kept[-1].value

    plan = cifar10_prior.outline(task).plan
    ready = cifar10_prior.prepare(task, plan, release)
    (learned,) = kept
    assert learned.value.shape == (10, 65)
    first = cifar10_prior.probe_plan(task)
    assert first is not None
    assert learned.event == first.event
    weights = dict(ready.model.named_parameters())
    for name, value in prior.read(file).weights.items():
        assert torch.equal(weights[name], value)
    last = ready.model[-1]  # type: ignore[index]
    assert np.array_equal(learned.value[:, :-1], last.weight.detach().numpy())
    assert accuracy(ready.model, ready.dataset) > 0.5  # by chance: 0.1


def test_plain_filters_are_those_that_the_prior_uses(file: Path) -> None:
    images = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    found = []
    for filters in ("plain", "standardised"):
        task = _task(file, probe=0, filters=filters)
        ready = cifar10_prior.prepare(task, cifar10_prior.outline(task).plan, _nothing)
        found.append(ready.model[:-1](images).detach())  # type: ignore[index]
    assert torch.allclose(*found, atol=1e-5)


@pytest.mark.parametrize("whitened", ["last", "all"])
def test_whitening_by_synthetic_images_changes_nothing_but_how_layers_learn(
    file: Path, whitened: str
) -> None:
    images = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    found = []
    for chosen in ("none", whitened):
        torch.manual_seed(0)
        task = _task(file, probe=0, whitened=chosen)
        model: Any = cifar10_prior.prepare(task, cifar10_prior.outline(task).plan, _nothing).model
        torch.nn.init.eye_(model[-1].weight)
        features = model[:-1] if chosen == "none" else [*model[:-2]]
        found.append(torch.nn.Sequential(*features)(images).detach())
    assert torch.allclose(*found, atol=1e-4)
    fixed = [name for name, _ in model.named_buffers()]
    assert len(fixed) == (1 if whitened == "last" else 11)


def test_what_is_whitened_by_depends_on_no_private_image(file: Path) -> None:
    task = _task(file, probe=0, whitened="all")
    others = pictures(channels=3, size=16, train=60, test=20)
    black = replace(others.train, inputs=np.zeros_like(others.train.inputs))
    found = []
    for data in (task.data, replace(others, train=black)):
        torch.manual_seed(0)
        ready = cifar10_prior.prepare(
            replace(task, data=data), cifar10_prior.outline(task).plan, _nothing
        )
        assert cifar10_prior.WHITENED in ready.public
        found.append([*ready.model.buffers()])
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("changes", [{"prior": "none"}, {"filters": "standardised"}])
def test_whitening_that_is_not_offered_is_refused(file: Path, changes: dict[str, str]) -> None:
    task = _task(file, probe=0, whitened="all", **changes)
    with pytest.raises(InvalidArgument, match="whitened=all needs a prior, and for all layers"):
        cifar10_prior.prepare(task, cifar10_prior.outline(task).plan, _nothing)


@pytest.mark.parametrize("layers", ["all", "last"])
def test_which_layers_learn(file: Path, layers: str) -> None:
    task = _task(file, probe=0, layers=layers)
    ready = cifar10_prior.prepare(task, cifar10_prior.outline(task).plan, _nothing)
    learn = [name for name, one in ready.model.named_parameters() if one.requires_grad]
    network = with_plain_filters(wide_resnet(depth=10, width=1))
    everything = [name for name, _ in network.named_parameters()]
    assert learn == (everything if layers == "all" else everything[-2:])


def _nothing(name: str, mechanism: Any, *, what: str) -> Any:
    raise AssertionError(f"{name} was released: {mechanism}, {what}")


def test_without_a_prior_nothing_is_claimed_of_one(tmp_path: Path) -> None:
    task = _task("none", probe=0)
    ready = cifar10_prior.prepare(task, cifar10_prior.outline(task).plan, _nothing)
    assert ready.public == ()
    with pytest.raises(InvalidArgument, match="prior must be a file that is there"):
        prior.found(str(tmp_path / "no.safetensors"))


def test_the_prior_of_another_network_is_refused(file: Path) -> None:
    task = _task(file, width=2)
    with pytest.raises(InvalidArgument, match="depth and width must be those of the prior, 10 and"):
        cifar10_prior.prepare(task, cifar10_prior.outline(task).plan, _nothing)


def test_mirror_images_count_in_the_end() -> None:
    class Sides(torch.nn.Module):
        """Sure of class 0 where the left is brighter, and half as sure of 1 where the right is."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            left = (x[..., 0] - x[..., 1]).flatten(1).sum(1)
            return torch.stack([2.0 * left.clamp(min=0), (-left).clamp(min=0)], 1)

    x = torch.tensor([[[[3.0, 0.0]]], [[[0.0, 3.0]]]])
    right = cifar10_prior._correct_on_both_sides(Sides(), (x, torch.tensor([0, 0])))
    assert right.tolist() == [True, True]
