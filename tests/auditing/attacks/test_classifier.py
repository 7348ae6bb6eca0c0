"""The shadow classifier: what it can see, what it cannot, and what it must not have seen."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.stats import norm

from tacit.auditing.attacks import (
    Roc,
    Shadows,
    loss_threshold,
    shadow_classifier,
    shadow_classifier_each,
    split,
)
from tacit.errors import InvalidArgument

from .gaussians import toy


def by_class(seed: int, models: int = 9) -> Shadows:
    """Members are surer of the label in class 0 and less sure in class 1; class 2 shows nothing."""
    draw = np.random.default_rng(seed)
    labels = np.repeat([0, 1, 2], 60)
    members = draw.random((models, 180)) < 0.5
    members[1::2] = ~members[0 : models - 1 : 2]
    shift = np.array([2.0, -2.0, 0.0])[labels] * members
    logits = 0.5 * draw.normal(size=(models, 180, 3))
    np.put_along_axis(logits, labels[None, :, None], shift[..., None], axis=2)
    logits += 0.3 * draw.normal(size=logits.shape)
    return Shadows(logits, labels, members)


def test_a_network_for_each_class() -> None:
    shadows = by_class(1)
    rest = Shadows(shadows.logits[:8], shadows.labels, shadows.members[:8])
    scores, inside = shadow_classifier(shadows.model(8), rest), shadows.members[8]
    areas = [
        Roc(split(scores[shadows.labels == label], inside[shadows.labels == label])).auc().value
        for label in range(3)
    ]
    assert areas[0] > 0.97
    assert areas[1] > 0.97
    assert 0.25 < areas[2] < 0.75


def test_it_comes_near_the_best_threshold() -> None:
    """Equal examples with N(0, 1) and N(1.5, 1): the log-odds alone are the best score."""
    shadows = toy(1, models=24, examples=400, shift=1.5, spread=0.0)
    rest = Shadows(shadows.logits[12:], shadows.labels, shadows.members[12:])
    scores = [shadow_classifier(shadows.model(one), rest) for one in (0, 2)]
    best = [loss_threshold(shadows.model(one)) for one in (0, 2)]
    areas = [Roc(split(one, shadows.members[[0, 2]])).auc().value for one in (scores, best)]
    assert areas[1] == pytest.approx(norm.cdf(1.5 / np.sqrt(2)), abs=0.04)
    assert areas[1] - 0.01 < areas[0] <= areas[1] + 0.002


def test_models_that_learned_nothing_are_not_told_apart() -> None:
    shadows = toy(2, models=4, examples=1000, shift=0.0)
    found = Roc(split(shadow_classifier_each(shadows), shadows.members)).auc(1 - 1e-6)
    assert found.lower < 0.5 < found.upper


def test_a_classifier_has_not_learned_from_those_it_attacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shadows = by_class(3)
    module = sys.modules["tacit.auditing.attacks.classifier"]
    fitted, learned = module._fitted(shadows, [0, 1], 0), []

    def watched(_shadows: Shadows, models: list[int], _seed: int) -> object:
        learned.append(list(models))
        return fitted

    monkeypatch.setattr(module, "_fitted", watched)
    shadow_classifier_each(shadows)
    attacked = [set(range(9)) - set(models) for models in learned]
    assert sorted(one for group in attacked for one in group) == list(range(9))
    for pair in ({0, 1}, {2, 3}, {4, 5}, {6, 7}):  # complements stay together
        assert sum(pair <= group for group in attacked) == 1


def test_the_same_seed_gives_the_same_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["tacit.auditing.attacks.classifier"], "_STEPS", 20)
    shadows = by_class(4, models=5)
    first, again, other = (shadow_classifier(shadows.model(0), shadows, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_many_classes_of_which_some_have_no_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["tacit.auditing.attacks.classifier"], "_STEPS", 20)
    draw = np.random.default_rng(1)
    members = draw.random((6, 40)) < 0.5
    shadows = Shadows(draw.normal(size=(6, 40, 2, 30)), draw.integers(5, size=40), members)
    assert np.isfinite(shadow_classifier(shadows.model(0), shadows)).all()


def test_one_pair_cannot_attack_itself() -> None:
    shadows = Shadows(np.zeros((2, 3, 2)), [0, 0, 1], [[True] * 3, [False] * 3])
    with pytest.raises(InvalidArgument, match=r"can attack one another, got 2: train more"):
        shadow_classifier_each(shadows)
