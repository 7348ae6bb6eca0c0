"""A recipe's finished run is loaded: its network, put together by the recipe, with its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import tacit
from tacit.errors import CheckpointError, InvalidArgument
from tacit.recipes import load, run
from tacit.recipes.mnist_abadi import _pixels
from tacit.runs.kept import read_released

from .pictures import pictures

if TYPE_CHECKING:
    from pathlib import Path

SMALL = {"epochs": 2, "lot": 100, "hidden": 16, "components": 8, "pca_noise": 4.0}


def test_a_run_of_a_recipe_is_loaded_with_what_it_released_before(tmp_path: Path) -> None:
    data, out = pictures(channels=1, size=12), tmp_path / "run"
    done = run("mnist-abadi", epsilon=8, settings=SMALL, data=data, folder=out, progress=False)
    found = load(out, data=data)
    assert found.statement == done.statement
    assert found.history == done.history
    weights = done.model.state_dict()  # type: ignore[union-attr]
    assert all(one.equal(weights[name]) for name, one in found.model.state_dict().items())
    components = read_released(out / "released-components.safetensors")[0]
    seen = torch.as_tensor(_pixels(data.test) @ components.T).float()
    right = (found.model(seen).argmax(1).numpy() == data.test.labels).mean()
    assert right == pytest.approx(done.accuracy)
    (out / "released-components.safetensors").unlink()
    with pytest.raises(InvalidArgument, match="released its components beside it"):
        load(out, data=data)


def test_a_recipe_without_a_network_has_weights(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    inputs = rng.random((300, 4)).astype(np.float32)
    part = tacit.data.Examples(inputs, (inputs[:, 0] > 0.5).astype(np.int64))
    data = tacit.data.Split("adult", part, part, ("no", "yes"), {"made": "up"})
    run("adult-logistic", epsilon=1, data=data, folder=tmp_path / "run")
    found = load(tmp_path / "run")
    assert set(found.weights) == {"coefficients", "intercepts"}
    with pytest.raises(InvalidArgument, match="model must be given"):
        _ = found.model


def test_a_folder_without_a_finished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no run"):
        load(tmp_path)
