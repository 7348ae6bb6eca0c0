"""What the scattering recipes share: features of one image each, and everything else charged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tacit import recipes
from tacit.accounting import Composed, Gaussian, PoissonSampled, Repeated, epsilon
from tacit.accounting.serialization import from_dict
from tacit.data import Examples
from tacit.recipes import scattering

from .pictures import pictures

SMALL = {"synthetic": 200, "scales": "1+2", "keep": 60, "epochs": 8, "lot": 100}
CPU = torch.device("cpu")


def chosen(**new: object) -> scattering.Settings:
    small = scattering.Settings(
        scales="1+2", exponent=0.5, groups=9, whitening=0.5, ridge=1e-4, keep=40, synthetic=120
    )
    return replace(small, **new)  # type: ignore[arg-type]


def test_the_mean_and_the_head_are_charged_together() -> None:
    data = pictures(channels=1, size=8)
    given = SMALL | {"clip": 0.1, "lr": 300.0}
    done = recipes.run("mnist-scatter", epsilon=8, settings=given, data=data, progress=False)
    plan, claim = done.statement.plan, done.statement
    assert plan is not None
    step = PoissonSampled(0.25, Gaussian(plan["noise_multiplier"]))
    whole = Composed(Gaussian(20.0), Repeated(step, 32))
    assert claim.epsilon == pytest.approx(epsilon(whole, 1e-5), rel=1e-9)
    assert 7.999 < claim.epsilon <= 8.0
    (access,) = claim.preprocessing
    assert from_dict(access.event) == Gaussian(20.0)
    assert "not charged" in claim.tuning or "none of this is charged" in claim.tuning
    assert done.accuracy > 0.6  # guessing has 0.1
    assert any("learning rate of 300" in note for note in done.notes)


def test_the_mean_that_is_kept_has_the_noise_that_is_charged() -> None:
    data = pictures(channels=1, size=8)
    given = SMALL | {"clip": 0.1, "lr": 300.0, "epochs": 1}
    done = recipes.run("mnist-scatter", epsilon=8, settings=given, data=data, progress=False)
    full = replace(
        recipes.find("mnist-scatter").settings(8.0), scales="1+2", synthetic=200, keep=60
    )
    rows = scattering.features(data, full, CPU).train
    off = done.model.mean.double() - rows.double().mean((0, 1))  # type: ignore[union-attr, operator]
    assert 0.5 < float(off.std()) / (20.0 / 400) < 1.6  # of 60 numbers


@pytest.mark.slow
def test_a_cnn_costs_its_plan_alone() -> None:
    data = pictures(channels=3, size=10, train=80, test=20)
    given = {"head": "cnn", "synthetic": 20, "epochs": 2, "lot": 20, "lr": 8.0}
    done = recipes.run("cifar10-scatter", epsilon=8, settings=given, data=data, progress=False)
    assert done.statement.preprocessing == ()
    assert done.statement.plan is not None
    assert done.statement.plan["views"] == 2  # an image and its mirror image
    assert 7.999 < done.statement.epsilon <= 8.0


@pytest.mark.parametrize("head", ["linear", "cnn"])
@pytest.mark.parametrize("mirrored", [False, True])
def test_an_image_s_features_depend_on_nothing_else(head: str, mirrored: bool) -> None:
    data = pictures(channels=1, size=8, train=9, test=4)
    wanted = chosen(head=head, mirrored=mirrored)
    found = scattering.features(data, wanted, CPU)
    images = np.array(data.train.inputs)
    images[4] = 255 - images[4]
    other = scattering.features(
        replace(data, train=Examples(images, data.train.labels)), wanted, CPU
    )
    kept = [index for index in range(9) if index != 4]
    assert found.train.shape[:2] == (9, 1 + mirrored)
    assert torch.allclose(found.train[kept], other.train[kept], atol=1e-5)
    assert not torch.allclose(found.train[4], other.train[4], atol=1e-2)
    assert torch.allclose(found.test, other.test, atol=1e-6)


def test_no_record_adds_more_than_1_to_the_mean() -> None:
    data = pictures(channels=1, size=8, train=30, test=4)
    rows = scattering.features(data, chosen(mirrored=True), CPU).train
    assert rows.double().mean(1).norm(dim=1).max() <= 1 + scattering.SLACK


def test_mirrored_views_are_those_of_the_mirrored_image() -> None:
    data = pictures(channels=1, size=8, train=6, test=4)
    flipped = Examples(np.ascontiguousarray(data.train.inputs[..., ::-1]), data.train.labels)
    both = scattering.features(data, chosen(mirrored=True), CPU).train
    turned = scattering.features(replace(data, train=flipped), chosen(mirrored=True), CPU).train
    assert torch.allclose(both, turned.flip(1), atol=1e-5)


def test_losses_are_means_over_views_and_predictions_their_mean() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 3)
    x, y = torch.randn(7, 2, 5), torch.randint(3, (7,))
    alone = torch.stack([
        torch.nn.functional.cross_entropy(model(x[:, view]), y, reduction="none")
        for view in range(2)
    ])  # fmt: skip
    assert torch.allclose(scattering.mean_loss(model, (x, y)), alone.mean(0), atol=1e-6)
    chances = (model(x[:, 0]).softmax(1) + model(x[:, 1]).softmax(1)).argmax(1)
    assert torch.equal(scattering.mean_correct(model, (x, y)), chances == y)


def test_the_head_s_own_steps_give_way_to_settings() -> None:
    data = pictures(channels=1, size=8, train=120, test=20)
    given = SMALL | {"clip": 0.25, "lot": 60, "epochs": 1.5}
    done = recipes.run("fashion-scatter", epsilon=3, settings=given, data=data, progress=False)
    plan = done.statement.plan
    assert plan is not None
    assert (plan["clip"], plan["lot_size"], plan["steps"]) == (0.25, 60, 3)
