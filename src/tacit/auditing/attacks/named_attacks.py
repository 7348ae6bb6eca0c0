"""The attacks by name, with their usual settings."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

import numpy as np

from tacit.auditing.attacks.lira import lira, lira_each
from tacit.auditing.attacks.rmia import rmia, rmia_each
from tacit.auditing.attacks.threshold_attacks import (
    calibrated,
    calibrated_each,
    confidence,
    entropy,
    loss_threshold,
    margin,
)
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from tacit.auditing.attacks.outputs import Outputs, Shadows

    Numbers = NDArray[np.float64]

_MANY: Final = 64  # shadow models from which on a variance for each example is worth its error


@final
@dataclass(frozen=True)
class Attack:
    """An attack: call it with the target's outputs and, if it needs them, with shadow models'.

    Attributes:
        name: What it is called.
        says: What it goes by, in a few words.
        needs_shadows: Whether it needs shadow models.
        one: From a target and shadow models to one score for each example.
        each: From shadow models to a row of scores for each of them, attacked with the others.
    """

    name: str
    says: str
    needs_shadows: bool
    one: Callable[[Outputs, Shadows | None], Numbers]
    each: Callable[[Shadows], Numbers]

    def __call__(self, target: Outputs, shadows: Shadows | None = None) -> Numbers:
        """One score for each example, higher where it was rather a member."""
        if self.needs_shadows and shadows is None:
            raise InvalidArgument(f"the attack {self.name!r} needs shadow models: give shadows")
        return self.one(target, shadows)


def find(name: str) -> Attack:
    """The attack of that name.

    >>> find("loss").needs_shadows
    False
    """
    if name not in ATTACKS:
        raise InvalidArgument(f"attack must be one of {', '.join(ATTACKS)}, got {name!r}")
    return ATTACKS[name]


def _alone(name: str, says: str, function: Callable[[Outputs], Numbers]) -> Attack:
    def one(target: Outputs, _: Shadows | None) -> Numbers:
        return function(target)

    def each(shadows: Shadows) -> Numbers:
        return np.stack([function(shadows.model(index)) for index in range(len(shadows))])

    return Attack(name, says, False, one, each)


def _compared(
    name: str,
    says: str,
    function: Callable[[Outputs, Shadows], Numbers],
    each: Callable[[Shadows], Numbers],
) -> Attack:
    def one(target: Outputs, shadows: Shadows | None) -> Numbers:
        assert shadows is not None  # refused before
        return function(target, shadows)

    return Attack(name, says, True, one, each)


def _lira(online: bool) -> Attack:
    def function(target: Outputs, shadows: Shadows) -> Numbers:
        return lira(target, shadows, online=online, fixed_variance=len(shadows) < _MANY)

    def each(shadows: Shadows) -> Numbers:
        return lira_each(shadows, online=online, fixed_variance=len(shadows) < _MANY)

    if online:
        return _compared("lira", "likelihood ratio, members and others", function, each)
    return _compared("lira-offline", "likelihood, others only", function, each)


def _rmia(online: bool) -> Attack:
    def function(target: Outputs, shadows: Shadows) -> Numbers:
        return rmia(target, shadows, online=online)

    def each(shadows: Shadows) -> Numbers:
        return rmia_each(shadows, online=online)

    if online:
        return _compared("rmia", "ratios against a population, members and others", function, each)
    return _compared("rmia-offline", "ratios against a population, others only", function, each)


def _classifier() -> Attack:
    def function(target: Outputs, shadows: Shadows) -> Numbers:
        # Here alone is PyTorch needed.
        from tacit.auditing.attacks.classifier import shadow_classifier  # noqa: PLC0415

        return shadow_classifier(target, shadows)

    def each(shadows: Shadows) -> Numbers:
        from tacit.auditing.attacks.classifier import shadow_classifier_each  # noqa: PLC0415

        return shadow_classifier_each(shadows)

    return _compared("shadow-classifier", "a classifier of outputs", function, each)


ATTACKS: Final[Mapping[str, Attack]] = MappingProxyType(
    {
        attack.name: attack
        for attack in (
            _lira(online=True),
            _lira(online=False),
            _rmia(online=True),
            _rmia(online=False),
            _compared("calibrated", "loss, less that of others", calibrated, calibrated_each),
            _classifier(),
            _alone("loss", "loss", loss_threshold),
            _alone("confidence", "the likeliest class's probability", confidence),
            _alone("entropy", "modified entropy", entropy),
            _alone("margin", "logit above the next", margin),
        )
    }
)
