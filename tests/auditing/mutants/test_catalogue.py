"""The catalogue is complete: every bug has a name of its own, a blame and a proof."""

from __future__ import annotations

from typing import Any

import pytest

from tacit.auditing.replay import COMPONENTS

from . import (
    test_charging,
    test_clipping,
    test_correlated,
    test_course,
    test_flow,
    test_gradients,
    test_noise,
    test_ranks,
    test_resuming,
    test_sampling,
)
from .catalogue import BY_NAME, MUTANTS

_PROOFS: tuple[Any, ...] = (
    test_charging, test_clipping, test_correlated, test_course, test_flow, test_gradients,
    test_noise, test_ranks, test_resuming, test_sampling,
)  # fmt: skip


def _shown() -> set[str]:
    """The names of the mutants that some test was handed by ``shows``."""
    marks = [
        mark
        for module in _PROOFS
        for value in vars(module).values()
        for mark in getattr(value, "pytestmark", ())
        if mark.name == "parametrize" and mark.args[0] == "mutant"
    ]
    return {mutant.name for mark in marks for mutant in mark.args[1]}


def test_every_bug_is_shown_by_a_measurement() -> None:
    assert _shown() == set(BY_NAME)


def test_there_are_enough_and_names_are_their_own() -> None:
    assert len(BY_NAME) == len(MUTANTS) >= 30


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_bug_is_blamed_on_known_components(mutant: Any) -> None:
    assert mutant.components
    assert set(mutant.components) <= set(COMPONENTS)
