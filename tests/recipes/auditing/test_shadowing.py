"""Shadow models: none, here, in processes or on a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.recipes.auditing import shadowing
from tacit.recipes.auditing.shadowing import Crew, shadows_of, threads_for

LABELS = np.array([0, 1, 1, 0])


def train(members: np.ndarray, seed: int) -> np.ndarray:
    """Logits that tell who was a member."""
    del seed
    return np.stack([1.0 * members, 1.0 - members], axis=1).astype(np.float32)


def test_a_crew_of_none_trains_none() -> None:
    assert shadows_of(train, LABELS, Crew(count=0, seed=1)) is None


def test_each_model_is_asked_about_all_examples() -> None:
    found = shadows_of(train, LABELS, Crew(count=4, seed=1))
    assert found is not None
    assert found.members.sum(0).tolist() == [2, 2, 2, 2]
    assert np.array_equal(found.logits[:, :, 0, 0] == 1.0, found.members)


def test_a_cluster_is_told_of_and_what_a_model_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}

    def noting(train: Any, **given: Any) -> tuple[np.ndarray, np.ndarray]:
        told.update(given)
        members = np.eye(4, dtype=bool)
        return np.stack([train(one, 0) for one in members])[:, :, None], members

    monkeypatch.setattr(shadowing, "train_shadows", noting)
    shadows_of(train, LABELS, Crew(count=4, seed=1, cluster="local", gpus=1.0))
    assert (told["cluster"], told["gpus"], told["examples"]) == ("local", 1.0, 4)


@pytest.mark.parametrize(("workers", "cores", "each"), [(1, 8, None), (2, 8, 4), (16, 8, 1)])
def test_processes_share_the_cores(
    workers: int, cores: int, each: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert threads_for(workers) == each
