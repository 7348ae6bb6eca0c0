"""Labels spread along a graph, against a dense computation with no code of ours."""

import math

import numpy as np
import pytest
import torch

from tacit.transfer.students import graph


def two_clusters(count: int = 60) -> torch.Tensor:
    """Rows of norm 1 around two directions, in turn."""
    generator = torch.Generator().manual_seed(1)
    middles = torch.eye(2, 12).repeat(count // 2, 1)
    rows = middles + 0.2 * torch.randn(count, 12, generator=generator)
    return torch.nn.functional.normalize(rows)


def dense(rows: np.ndarray, sources: np.ndarray, alpha: float) -> np.ndarray:
    """Zhou et al. 2004 written out: every pair compared, 100 rounds of dense products."""
    similar = rows @ rows.T
    near = np.rint(2048 * rows) @ np.rint(2048 * rows).T  # ranks are those of whole numbers
    np.fill_diagonal(near, -np.inf)
    weights = np.zeros_like(similar)
    for i, row in enumerate(near):
        for j in np.argsort(-row, kind="stable")[:10]:
            weights[i, j] = max(similar[i, j], 0) ** 4
    weights = weights + weights.T
    degree = weights.sum(1)
    smooth = weights / np.sqrt(np.outer(degree, degree))
    found = sources.copy()
    for _ in range(100):
        found = alpha * smooth @ found + (1 - alpha) * sources
    return found


@pytest.mark.parametrize("alpha", [0.99, 0.9])
def test_equals_the_dense_computation(alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "ALPHAS", (alpha,))
    generator = torch.Generator().manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(80, 6, generator=generator))
    labels = torch.full((80,), -1)
    labels[:12] = torch.arange(12) % 3
    weights = torch.where(labels >= 0, torch.rand(80, generator=generator) + 0.5, 0.0)
    found = graph.propagate(rows, labels, weights, 3)
    sources = np.zeros((80, 3))
    sources[np.arange(12), labels[:12].numpy()] = weights[:12].numpy()
    truth = dense(rows.double().numpy(), sources / sources.sum(0), alpha)
    shares = truth / truth.sum(1, keepdims=True)
    entropy = -(shares * np.log(shares)).sum(1) / math.log(3)
    assert found.labels.tolist() == shares.argmax(1).tolist()
    np.testing.assert_allclose(found.certainty.numpy(), 1 - entropy, atol=1e-4)


def test_a_wrong_label_is_told_and_outvoted() -> None:
    rows = two_clusters()
    labels = torch.full((60,), -1)
    labels[:20] = torch.arange(20) % 2
    labels[4] = 1  # of a point in cluster 0
    found = graph.propagate(rows, labels, labels.ge(0).float(), 2)
    assert [i for i in range(20) if not found.agrees[i]] == [4]
    assert found.labels.tolist() == [0, 1] * 30


@pytest.mark.parametrize(("weight", "label"), [(0.1, 0), (10.0, 1)])
def test_a_weightier_label_counts_more(weight: float, label: int) -> None:
    rows = two_clusters()
    labels = torch.full((60,), -1)
    labels[:4] = torch.tensor([0, 1, 1, 0])  # points 2 and 3 say the contrary of points 0 and 1
    weights = torch.zeros(60)
    weights[:4] = torch.tensor([1.0, 1.0, weight, weight])
    found = graph.propagate(rows, labels, weights, 2)
    right = sum(int(found.labels[i]) == (i + label) % 2 for i in range(4, 60))
    assert right > 50


def test_where_no_label_arrives_nothing_is_certain() -> None:
    rows = torch.eye(2).repeat(20, 1)  # two heaps, with nothing between them
    labels = torch.where(torch.arange(40) == 0, 1, -1)
    found = graph.propagate(rows, labels, labels.ge(0).float(), 3)
    assert found.certainty[::2].min() > 0.99
    assert found.certainty[1::2].max() == 0


def test_points_without_a_label_never_agree() -> None:
    labels = torch.full((60,), -1)
    labels[:6] = torch.arange(6) % 2
    found = graph.propagate(two_clusters(), labels, labels.ge(0).float(), 2)
    assert not found.agrees[6:].any()


def test_labels_spread_less_far_if_that_predicts_them_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Classes in short arcs of a circle: labels from afar are as likely wrong as right."""
    generator = torch.Generator().manual_seed(0)
    angles = torch.rand(400, generator=generator) * 2 * math.pi
    rows = torch.stack([angles.cos(), angles.sin()], dim=1)
    labels = (angles * 8 / math.pi).long() % 2  # sixteen arcs of about 25 points

    def agreeing(*alphas: float) -> int:
        monkeypatch.setattr(graph, "ALPHAS", alphas)
        return int(graph.propagate(rows, labels, torch.ones(400), 2).agrees.sum())

    far, near = agreeing(0.999), agreeing(0.5)
    assert near > far + 20
    assert agreeing(0.999, 0.5) == near
    assert agreeing(0.5, 0.999) == near


@pytest.mark.parametrize(
    ("gained", "lost", "more"), [(4, 0, False), (5, 0, True), (10, 2, True), (10, 3, False)]
)
def test_more_by_more_than_two_standard_errors(gained: int, lost: int, more: bool) -> None:
    new = np.array([True] * gained + [False] * lost + [True, False])
    old = np.array([False] * gained + [True] * lost + [True, False])
    assert graph._more(new, old) == more
