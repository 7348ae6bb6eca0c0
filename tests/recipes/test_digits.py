"""The embedded recipe: accurate at ε = 3, on rows that are computed one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tacit.data import Examples, load
from tacit.errors import InvalidArgument
from tacit.recipes import find, run
from tacit.recipes.digits import BIAS, rows


def test_it_is_accurate_at_epsilon_3() -> None:
    # Ten runs had 93 to 95 %; a run at 85 % would be ten standard deviations off.
    done = run("digits", epsilon=3, data=load("digits"))
    assert done.accuracy >= 0.85
    assert done.statement.epsilon <= 3.0


def test_rows_are_normalised_one_by_one() -> None:
    images = np.random.default_rng(0).integers(0, 17, (5, 1, 8, 8)).astype(np.uint8)
    found = rows(Examples(images, np.arange(5)), torch.device("cpu")).tensors[0].numpy()
    for one, row in zip(images.reshape(5, 64).astype(float), found, strict=True):
        centred = one - one.mean()
        np.testing.assert_allclose(row[:-1], centred / np.linalg.norm(centred), atol=1e-6)
        assert row[-1] == np.float32(BIAS)


def test_steps_are_shorter_where_there_is_more_noise() -> None:
    settings = find("digits").settings
    assert settings(0.5).lr < settings(1.0).lr < settings(3.0).lr == settings(8.0).lr


def test_a_share_above_one_is_named_as_it_was_given() -> None:
    with pytest.raises(InvalidArgument, match="averaged must lie between 0 and 1, got 7"):
        run("digits", epsilon=3, data=load("digits"), settings={"averaged": 7.0})
