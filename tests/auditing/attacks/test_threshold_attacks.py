"""Attacks on one model against PyTorch, 50 digits, hand-made cases and what must not matter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mpmath as mp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import rankdata

from tacit.auditing.attacks import (
    Outputs,
    Shadows,
    calibrated,
    calibrated_each,
    confidence,
    entropy,
    loss_threshold,
    margin,
)
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable


# ---- Attacks on one model against PyTorch, 50 digits, hand-made cases and what must not matter

PLAIN = [loss_threshold, confidence, entropy, margin]


def random_outputs(scale: float = 3.0, views: int = 1) -> Outputs:
    draw = np.random.default_rng(1)
    return Outputs(scale * draw.normal(size=(40, views, 5)), draw.integers(5, size=40))


@pytest.mark.parametrize("views", [1, 3])
def test_the_loss_is_that_of_pytorch(views: int) -> None:
    outputs = random_outputs(views=views)
    expected = -F.cross_entropy(
        torch.from_numpy(outputs.logits.astype(np.float64)).reshape(-1, 5),
        torch.from_numpy(np.repeat(outputs.labels, views)),
        reduction="none",
    )
    np.testing.assert_allclose(
        loss_threshold(outputs), expected.numpy().reshape(40, views).mean(axis=1), rtol=1e-12
    )


@pytest.mark.parametrize("scale", [1.0, 30.0, 100.0])
def test_modified_entropy_in_fifty_digits(scale: float) -> None:
    outputs = random_outputs(scale)
    expected = []
    with mp.workdps(400):
        for row, label in zip(outputs.logits[:, 0], outputs.labels, strict=True):
            weights = [mp.exp(mp.mpf(float(z))) for z in row]
            p = [weight / mp.fsum(weights) for weight in weights]
            terms = [(1 - p[label]) * mp.log(p[label])]
            terms += [q * mp.log(1 - q) for j, q in enumerate(p) if j != label]
            expected.append(float(mp.fsum(terms)))
    np.testing.assert_allclose(entropy(outputs), expected, rtol=1e-11)


def test_confidence_needs_no_label() -> None:
    outputs = random_outputs()
    other = Outputs(outputs.logits, (outputs.labels + 1) % 5)
    np.testing.assert_array_equal(confidence(outputs), confidence(other))
    largest = torch.from_numpy(outputs.logits[:, 0].astype(np.float64)).softmax(dim=1).amax(dim=1)
    np.testing.assert_array_equal(rankdata(confidence(outputs)), rankdata(largest.numpy()))


def test_by_hand() -> None:
    outputs = Outputs(np.log([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]), [0, 1])
    np.testing.assert_allclose(loss_threshold(outputs), np.log([0.7, 0.3]), rtol=1e-6)
    np.testing.assert_allclose(confidence(outputs), np.log([0.7 / 0.3, 0.6 / 0.4]), rtol=1e-6)
    np.testing.assert_allclose(margin(outputs), np.log([0.7 / 0.2, 0.3 / 0.6]), rtol=1e-6)
    by_hand = [
        0.3 * np.log(0.7) + 0.2 * np.log(0.8) + 0.1 * np.log(0.9),
        0.7 * np.log(0.3) + 0.1 * np.log(0.9) + 0.6 * np.log(0.4),
    ]
    np.testing.assert_allclose(entropy(outputs), by_hand, rtol=1e-6)


@pytest.mark.parametrize("attack", PLAIN)
def test_what_must_not_matter(attack: Callable[[Outputs], np.ndarray]) -> None:
    outputs, draw = random_outputs(views=2), np.random.default_rng(2)
    found = attack(outputs)
    order = draw.permutation(40)  # of examples
    np.testing.assert_array_equal(
        attack(Outputs(outputs.logits[order], outputs.labels[order])), found[order]
    )
    names = draw.permutation(5)  # of classes: class j is called names[j]
    renamed = Outputs(outputs.logits[:, :, np.argsort(names)], names[outputs.labels])
    np.testing.assert_allclose(attack(renamed), found, rtol=1e-12)
    np.testing.assert_allclose(
        attack(Outputs(outputs.logits[:, ::-1], outputs.labels)), found, rtol=1e-12
    )  # views


@pytest.mark.parametrize("attack", [loss_threshold, entropy, margin])
def test_surer_of_the_label_is_more_of_a_member(attack: Callable[[Outputs], np.ndarray]) -> None:
    sure = np.zeros((30, 3))
    sure[:, 1] = np.linspace(-20.0, 20.0, 30)
    assert (np.diff(attack(Outputs(sure, np.ones(30, dtype=int)))) > 0.0).all()


# ---- Difficulty calibration against loops in plain Python


def random_shadows(models: int = 7, views: int = 2) -> Shadows:
    draw = np.random.default_rng(1)
    members = draw.random((models, 9)) < 0.5
    members[0], members[1] = True, False
    return Shadows(draw.normal(size=(models, 9, views, 4)), draw.integers(4, size=9), members)


def by_loops(target: Outputs, shadows: Shadows, used: list[int]) -> list[float]:
    def log_p(logits: np.ndarray, label: int) -> float:
        rows = torch.from_numpy(logits.astype(np.float64)).log_softmax(dim=-1)[:, label]
        return float(rows.mean())

    scores = []
    for example, label in enumerate(target.labels):
        others = [
            log_p(shadows.logits[model, example], label)
            for model in used
            if not shadows.members[model, example]
        ]
        scores.append(log_p(target.logits[example], label) - sum(others) / len(others))
    return scores


def test_against_loops() -> None:
    shadows, draw = random_shadows(), np.random.default_rng(2)
    target = Outputs(draw.normal(size=(9, 2, 4)), shadows.labels)
    np.testing.assert_allclose(
        calibrated(target, shadows), by_loops(target, shadows, list(range(7))), rtol=1e-9
    )


def test_each_model_with_the_others() -> None:
    shadows = random_shadows(9)
    found = calibrated_each(shadows)
    for model in range(9):
        complement = {0: 1, 1: 0}.get(model)
        used = [one for one in range(9) if one not in (model, complement)]
        np.testing.assert_allclose(
            found[model], by_loops(shadows.model(model), shadows, used), rtol=1e-9
        )


def test_it_undoes_the_difficulty_of_examples() -> None:
    """Examples differ by far more than membership does: calibrated scores do not."""
    draw = np.random.default_rng(1)
    hard, members = -20.0 + 4.0 * draw.normal(size=300), draw.random((41, 300)) < 0.5
    sure = hard + members + 0.1 * draw.normal(size=(41, 300))
    shadows = Shadows(np.stack((sure, 0 * sure), -1), np.zeros(300, dtype=int), members)
    target, inside = shadows.model(0), members[0]
    scores = calibrated(target, Shadows(shadows.logits[1:], shadows.labels, members[1:]))
    assert scores[inside].min() > scores[~inside].max()
    plain = loss_threshold(target)
    assert plain[inside].min() < plain[~inside].max() - 10.0


def test_every_example_needs_a_model_without_it() -> None:
    shadows = Shadows(np.zeros((2, 3, 2)), [0, 0, 0], np.ones((2, 3), dtype=bool))
    with pytest.raises(InvalidArgument, match="at least 1 model not trained on each example"):
        calibrated(shadows.model(0), shadows)
