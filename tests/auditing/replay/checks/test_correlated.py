"""Correlated noise is the strategy's inverse times independent noise, number by number."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
import pytest
import torch

from tacit.auditing.replay import TACIT
from tacit.auditing.replay.checks import correlated
from tacit.auditing.replay.experiments import Experiments
from tacit.auditing.replay.laboratory import Laboratory
from tacit.auditing.replay.standard import special_settings
from tacit.randomness import GaussianSource, device_noise
from tacit.training.correlation import Course
from tacit.training.performance import Performance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import Tensor

    from tacit.auditing.replay import Finding


def _asked(name: str, folder: Path, *, recorded: bool = False) -> Finding:
    setting = special_settings()[name]
    if recorded:
        setting = replace(setting, performance=Performance(capture=True))
    return correlated.exactly(Experiments(Laboratory(setting, TACIT, folder)))


@pytest.mark.parametrize("name", ["correlated", "replayed", "buffered"])
def test_noise_is_the_strategys(name: str, tmp_path: Path) -> None:
    found = _asked(name, tmp_path)
    assert found.passed, found.describe()
    assert dict(found.numbers)["off"] < 1e-5


_norms = Course.norms


@pytest.mark.parametrize(
    "wrong",
    [
        lambda own: [*[1.0] * (len(_norms(own)) - 1), _norms(own)[-1]],  # of the last columns
        lambda own: [1.001 * one for one in _norms(own)],
    ],
)
def test_a_column_that_is_a_little_off_is_seen(
    wrong: Callable[[Course], list[float]], tmp_path: Path
) -> None:
    with patch.object(Course, "norms", wrong):
        found = _asked("correlated", tmp_path)
    assert not found.passed
    assert found.component == "noise"


# ---- where kernels draw independent noise in one pass with the means


@pytest.fixture
def drawn_by_kernels(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A CPU with such kernels, as a GPU has them: their numbers of a seed are their own."""
    draws: list[int] = []

    def means_(
        _: GaussianSource, sums: Sequence[Tensor | None], outs: Sequence[Tensor],
        scale: float, lot_size: float, starts: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        assert starts is None
        draws.append(len(outs))
        with torch.random.fork_rng():
            torch.manual_seed(len(draws))
            for own, out in zip(sums, outs, strict=True):
                out.normal_(0.0, scale).add_(0.0 if own is None else own).div_(lot_size)

    monkeypatch.setattr(device_noise, "usable", lambda _: True)
    monkeypatch.setattr(GaussianSource, "means_", means_)
    return draws


@pytest.mark.parametrize("name", ["correlated", "buffered"])
def test_kernels_that_draw_other_numbers_are_no_alarm(
    name: str, tmp_path: Path, drawn_by_kernels: list[int]
) -> None:
    """On an H200 the two were 5.4 apart: torch's normal numbers and the kernels' of one seed."""
    found = _asked(name, tmp_path, recorded=True)
    assert found.passed, found.describe()
    assert dict(found.numbers)["off"] < 1e-5
    assert not drawn_by_kernels  # neither run has drawn by them


@pytest.mark.usefixtures("drawn_by_kernels")
def test_a_wrong_column_is_seen_there_too(tmp_path: Path) -> None:
    with patch.object(Course, "norms", lambda own: [1.001 * one for one in _norms(own)]):
        found = _asked("correlated", tmp_path, recorded=True)
    assert not found.passed
    assert dict(found.numbers)["off"] < 0.01  # not because all numbers are others


def test_independent_noise_is_drawn_by_them(tmp_path: Path, drawn_by_kernels: list[int]) -> None:
    """So that the two before show something."""
    lab = Laboratory(special_settings()["recorded"], TACIT, tmp_path)
    Experiments(lab).sum_of("as it is")
    assert drawn_by_kernels


def test_what_has_no_correlation_has_the_identity() -> None:
    plain = correlated.uncorrelated(special_settings()["correlated"].plan)
    assert plain.correlation is None
    assert np.array_equal(correlated.strategy_of(plain), np.eye(plain.steps))
