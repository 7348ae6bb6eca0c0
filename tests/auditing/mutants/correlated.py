"""Bugs that only correlated noise has: its columns, its groups, and what a resumed run forgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tacit.randomness import NoiseMemory, included
from tacit.training.correlation import Course
from tacit.training.sampling import Groups, LotSampler

from . import settings
from .mutant import Mutant

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def _columns_not_divided() -> Any:
    """Columns have the norm of their coefficients, and count as if it were 1."""
    return patch.object(Course, "norms", lambda self: [1.0] * len(self.correlation.coefficients))


def _last_columns_too_short() -> Any:
    """The last columns, of fewer bands, are divided by the norm of their first coefficient."""
    norms = Course.norms

    def short(self: Course) -> list[float]:
        own = norms(self)
        return [*[1.0] * (len(own) - 1), own[-1]]

    return patch.object(Course, "norms", short)


def _bands_forgotten() -> Any:
    """A resumed run begins its noise as if it were the first step's."""

    def loaded(self: NoiseMemory, state_dict: Any, /) -> None:
        self.position = state_dict["position"]

    return patch.object(NoiseMemory, "load_state_dict", loaded)


def _sampled_as_one() -> Any:
    """Every lot is drawn from everybody, at the plan's rate: groups are forgotten."""

    def draw(self: LotSampler, groups: Groups) -> NDArray[np.int64]:
        del groups
        return included(self._plan.examples, self._plan.sample_rate, self._stream)

    return patch.object(LotSampler, "_of_group", draw)


def _turns_by_epoch() -> Any:
    """The turns of the groups start with the first one again in every epoch."""
    draw = LotSampler._of_group

    def drawn(self: LotSampler, groups: Groups) -> NDArray[np.int64]:
        position = self._position
        self._position = position % round(self._plan.examples / self._plan.lot_size)
        found = draw(self, groups)
        self._position = position + 1
        return found

    return patch.object(LotSampler, "_of_group", drawn)


def _dealt_again() -> Any:
    """A resumed run deals its records into groups again."""
    return patch.object(Groups, "load_state_dict", lambda *_: None)


MUTANTS = (
    Mutant(
        name="column norms left out", says="noise counts as if its strategy's columns had norm 1",
        components=("noise",), setting=settings.correlated, patch=_columns_not_divided,
    ),
    Mutant(
        name="last columns too short", says="the last steps' columns are not divided by their norm",
        components=("noise",), setting=settings.correlated, patch=_last_columns_too_short,
    ),
    Mutant(
        name="bands forgotten at resume", says="a resumed run has lost the noise that it mixes in",
        components=("resuming",), setting=settings.correlated, patch=_bands_forgotten,
    ),
    Mutant(
        name="groups sampled as one", says="lots are drawn from everybody, not from one group",
        components=("sampling",), setting=settings.correlated, patch=_sampled_as_one,
    ),
    Mutant(
        name="turns begin with the epoch", says="an epoch ends, and the first group is next",
        components=("sampling",), setting=settings.correlated, patch=_turns_by_epoch,
    ),
    Mutant(
        name="groups dealt again", says="a resumed run puts records into other groups",
        components=("sampling", "resuming"), setting=settings.correlated, patch=_dealt_again,
    ),
)  # fmt: skip
