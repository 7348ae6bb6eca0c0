"""Difficulty calibration against loops in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tacit.auditing.attacks import Outputs, Shadows, calibrated, calibrated_each, loss_threshold
from tacit.errors import InvalidArgument


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
