"""Private components and a hidden layer: both are charged, and together keep within ε."""

from __future__ import annotations

import math

import pytest
import torch

from tacit import recipes
from tacit.accounting import Composed, Gaussian, PoissonSampled, Repeated, epsilon
from tacit.accounting.serialization import from_dict

from ..real_data import real_data
from .pictures import check_published, pictures

SMALL = {"epochs": 12, "lot": 100, "hidden": 64, "components": 20, "lr": 0.4, "pca_noise": 4.0}


def test_what_was_published() -> None:
    module = check_published("mnist-abadi", {0.5: 90.0, 2.0: 95.0, 8.0: 97.0})
    for spent, noise in ((0.5, 16.0), (2.0, 7.0), (8.0, 4.0)):
        chosen = module.settings(spent)
        assert chosen.pca_noise == noise
        assert (chosen.lot, chosen.clip, chosen.hidden, chosen.components) == (600, 4.0, 1000, 60)


def test_components_and_training_are_charged_together() -> None:
    data = pictures(channels=1, size=12)
    done = recipes.run("mnist-abadi", epsilon=8, settings=SMALL, data=data, seed=0, progress=False)
    plan, claim = done.statement.plan, done.statement
    assert plan is not None
    step = PoissonSampled(0.25, Gaussian(plan["noise_multiplier"]))
    whole = Composed(Gaussian(4.0, math.sqrt(2.0)), Repeated(step, 48))
    assert claim.epsilon == pytest.approx(epsilon(whole, 1e-5), rel=1e-9)
    assert 7.999 < claim.epsilon <= 8.0
    assert epsilon(from_dict(claim.event), 1e-5) == pytest.approx(claim.epsilon, rel=1e-9)
    assert epsilon(Repeated(step, 48), 1e-5) < 7.95  # the components cost something
    (access,) = claim.preprocessing
    assert "20 principal components" in access.what
    assert from_dict(access.event) == Gaussian(4.0, math.sqrt(2.0))
    assert "not charged" in claim.tuning
    assert done.accuracy > 0.6  # guessing has 0.1


def test_the_rate_falls_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    step = torch.optim.SGD.step

    def noting(self: torch.optim.SGD, *given: object) -> None:
        rates.append(self.param_groups[0]["lr"])
        step(self, *given)

    monkeypatch.setattr(torch.optim.SGD, "step", noting)
    small = {"epochs": 12, "lot": 100, "hidden": 8, "components": 5}
    small |= {"lr": 0.1, "last_lr": 0.052, "falling": 10 / 12}
    data = pictures(channels=1, size=8)
    recipes.run("mnist-abadi", epsilon=2, settings=small, data=data, progress=False)
    assert [rates[at] for at in (0, 20, 40, 47)] == pytest.approx([0.1, 0.076, 0.052, 0.052])


@pytest.mark.slow
def test_on_the_published_files() -> None:
    folder = real_data("mnist")
    few = {"epochs": 1, "lr": 0.4}
    done = recipes.run("mnist-abadi", epsilon=2, settings=few, data=folder, progress=False)
    assert done.accuracy > 0.8
