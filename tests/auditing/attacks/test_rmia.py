"""RMIA against loops over examples, points and views, by hand, and against the best attack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm

from tacit.auditing.attacks import (
    Outputs,
    Roc,
    Shadows,
    loss_threshold,
    offline_correction,
    rmia,
    rmia_each,
    split,
)
from tacit.errors import InvalidArgument

from .gaussians import shadows_of, toy


def random_shadows(models: int = 8, views: int = 1, examples: int = 10) -> Shadows:
    draw = np.random.default_rng(1)
    members = draw.random((models, examples)) < 0.5
    members[0], members[1], members[2], members[3] = True, False, True, False
    return Shadows(
        draw.normal(size=(models, examples, views, 3)), draw.integers(3, size=examples), members
    )


def label_probability(logits: np.ndarray, label: int) -> float:
    return float(torch.from_numpy(logits.astype(np.float64)).softmax(dim=-1)[label])


def by_loops(
    target: Outputs, shadows: Shadows, points: list[int], gamma: float, a: float | None
) -> list[float]:
    def ratio(example: int, view: int) -> float:
        label = target.labels[example]
        means = {}
        for inside in (True, False):
            found = [
                label_probability(shadows.logits[model, example, view], label)
                for model in range(len(shadows))
                if shadows.members[model, example] == inside
            ]
            means[inside] = sum(found) / len(found) if found else None
        if a is not None:
            means[True] = a * means[False] + (1 - a)
        general = means[False] if means[True] is None else (means[True] + means[False]) / 2
        return label_probability(target.logits[example, view], label) / general

    views, scores = target.logits.shape[1], []
    for example in range(len(target)):
        passed = 0
        for point in points:
            wins = sum(
                ratio(example, view) / ratio(point, 0) >= gamma * (1 - 1e-12)
                for view in range(views)
            )
            passed += wins > views / 2
        scores.append(passed / len(points))
    return scores


@pytest.mark.parametrize("views", [1, 2, 3])
@pytest.mark.parametrize("gamma", [1.0, 1.7])
@pytest.mark.parametrize("a", [None, 0.0, 0.3, 1.0])
def test_against_loops(views: int, gamma: float, a: float | None) -> None:
    shadows, draw = random_shadows(views=views), np.random.default_rng(2)
    target = Outputs(draw.normal(size=(10, views, 3)), shadows.labels)
    found = rmia(target, shadows, [0, 3, 4, 7, 9], gamma=gamma, online=a is None, offline_a=a)
    assert found.tolist() == by_loops(target, shadows, [0, 3, 4, 7, 9], gamma, a)


@pytest.mark.parametrize("a", [None, 0.4])
def test_each_model_with_the_others(a: float | None) -> None:
    shadows = random_shadows(models=11)
    found = rmia_each(shadows, online=a is None, offline_a=a)
    for model in range(4, 11):
        others = np.arange(11) != model
        rest = Shadows(shadows.logits[others], shadows.labels, shadows.members[others])
        expected = by_loops(shadows.model(model), rest, list(range(10)), 1.0, a)
        np.testing.assert_allclose(found[model], expected)


def test_by_hand() -> None:
    """Two models: in says 0.9 and 0.6 and 0.5, out says 0.5 and 0.2 and 0.5; target 0.8 of all."""

    def logits(*labels: float) -> Any:
        return [np.log([p, 1 - p]) for p in labels]

    shadows = Shadows(
        [logits(0.9, 0.6, 0.5), logits(0.5, 0.2, 0.5)], [0, 0, 0], [[True] * 3, [False] * 3]
    )
    target = Outputs(logits(0.8, 0.8, 0.8), [0, 0, 0])  # ratios 8/7, 2, 8/5
    np.testing.assert_allclose(rmia(target, shadows), [1 / 3, 1.0, 2 / 3])
    np.testing.assert_allclose(rmia(target, shadows, [0, 2]), [0.5, 1.0, 1.0])
    np.testing.assert_allclose(rmia(target, shadows, gamma=1.5), [0.0, 1 / 3, 0.0])  # 2 ≥ 1.5·8/7
    # a = ½: p(x) = ½(1.5·p_out + 0.5) = 0.625, 0.4, 0.625; ratios 1.28, 2, 1.28
    found = rmia(target, shadows, online=False, offline_a=0.5)
    np.testing.assert_allclose(found, [2 / 3, 1.0, 2 / 3])


def test_points_that_no_shadow_model_was_trained_on() -> None:
    shadows = random_shadows()
    members = np.array(shadows.members)
    members[:, [2, 5]] = False
    rare = Shadows(shadows.logits, shadows.labels, members)
    target = shadows.model(0)
    assert rmia(target, rare, [2, 5]).tolist() == by_loops(target, rare, [2, 5], 1.0, None)
    chosen = np.zeros(10, dtype=bool)
    chosen[[2, 5]] = True
    np.testing.assert_array_equal(rmia(target, rare, chosen), rmia(target, rare, [2, 5]))
    for population in (None, [2]):
        with pytest.raises(InvalidArgument, match=r"a model trained on each .* online=False"):
            rmia(target, rare, population)


def test_where_probabilities_are_small_it_is_the_best_attack() -> None:
    """There p is e^φ, and with equal examples the ratio rises with φ: Neyman and Pearson's test."""
    draw = np.random.default_rng(1)
    members = draw.random((300, 200)) < 0.5
    members[1::2] = ~members[0::2]
    shadows = shadows_of(-12.0 + 1.5 * members + draw.normal(size=members.shape), members)
    for online in (True, False):
        roc = Roc(split(rmia_each(shadows, online=online, offline_a=1.0), members))
        assert roc.auc().value == pytest.approx(norm.cdf(1.5 / np.sqrt(2)), abs=0.015)
        assert roc.tpr_at(0.1).value == pytest.approx(norm.cdf(norm.ppf(0.1) + 1.5), abs=0.03)


def test_among_unequal_examples_it_is_far_better_than_the_loss() -> None:
    shadows = toy(1, models=100, examples=400, shift=1.5)
    members, best = shadows.members, norm.cdf(1.5 / np.sqrt(2))
    plain = Roc(split([loss_threshold(shadows.model(one)) for one in range(100)], members))
    assert plain.auc().value < best - 0.2
    for online, short in ((True, 0.08), (False, 0.1)):
        roc = Roc(split(rmia_each(shadows, online=online), members))
        assert best - short < roc.auc().value < best


def test_models_that_learned_nothing_are_not_told_apart() -> None:
    shadows = toy(2, models=6, examples=10_000, shift=0.0)
    for online in (True, False):
        scores = rmia_each(shadows, online=online, offline_a=None if online else 0.3)
        found = Roc(split(scores, shadows.members)).auc(1 - 1e-6)
        assert found.lower < 0.5 < found.upper


def test_the_correction_is_the_best_on_the_shadow_models() -> None:
    shadows = toy(3, models=6, examples=300, shift=2.0)
    areas = {
        a: Roc(split(rmia_each(shadows, online=False, offline_a=a), shadows.members)).auc().value
        for a in np.linspace(0.0, 1.0, 11).round(1).tolist()
    }
    assert max(areas.values()) > min(areas.values()) + 0.01
    assert areas[offline_correction(shadows)] == max(areas.values())
    target = shadows.model(0)
    np.testing.assert_array_equal(
        rmia(target, shadows, online=False),
        rmia(target, shadows, online=False, offline_a=offline_correction(shadows)),
    )


def test_a_label_that_is_out_of_the_question() -> None:
    """Probabilities of e^-900 are 0 in double precision."""
    members = np.array([[True, True], [False, False]])
    shadows = shadows_of(np.array([[-900.0, 0.0], [-900.0, 0.0]]), members)
    assert np.isfinite(rmia(shadows.model(0), shadows)).all()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"population": [3]}, "population must lie from 0 to 1, got 3 to 3"),
        ({"population": []}, "population must be the places of some examples"),
        ({"population": [0.5]}, "population must be the places"),
        ({"gamma": 0.0}, "gamma must be a positive finite number, got 0"),
        ({"online": False, "offline_a": 2.0}, "offline_a must lie between 0 and 1, got 2"),
    ],
)
def test_refusals(more: dict[str, Any], message: str) -> None:
    members = np.array([[True, True], [False, False]])
    shadows = shadows_of(np.zeros((2, 2)), members)
    with pytest.raises(InvalidArgument, match=message):
        rmia(shadows.model(0), shadows, **more)
