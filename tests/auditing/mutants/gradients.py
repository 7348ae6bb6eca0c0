"""Bugs between a lot and its mean: examples that meet each other, and means over secret sizes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tacit.training import preflight, session
from tacit.training.clipping import engine
from tacit.training.clipping.structure import Layout
from tacit.training.lot import Computation
from tacit.training.noise import FastNoise

from . import settings
from .mutant import Mutant, unwatched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor


@contextmanager
def _mixing_let_through() -> Iterator[None]:
    """Neither modules nor gradients are asked whether examples are mixed."""

    def layouts(losses: Tensor, taps: Any, *_: Any) -> list[list[Layout]]:
        del losses
        return [[Layout()]] * len(taps)

    with (
        unwatched(),
        patch.object(preflight, "check_modules", lambda _: None),
        patch.object(engine, "layouts", layouts),
    ):
        yield


@contextmanager
def _by_realised_lot() -> Iterator[None]:
    """The sum and its noise are divided by how many examples were drawn."""
    lot, means = session.Session._lot, FastNoise.means
    drawn = 1

    def noting(self: session.Session, units: Any, sample: Any = None) -> Any:
        def sampled() -> Any:
            nonlocal drawn
            found = sample()
            drawn = max(1, len(found))
            return found

        nonlocal drawn
        drawn = max(1, len(units))
        return lot(self, units, None if sample is None else sampled)

    def divided(self: FastNoise, *given: Any, lot_size: float, **named: Any) -> dict[str, Tensor]:
        del lot_size
        return means(self, *given, lot_size=float(drawn), **named)

    with (
        patch.object(session.Session, "_lot", noting),
        patch.object(FastNoise, "means", divided),
    ):
        yield


@contextmanager
def _checked_counts_twice() -> Iterator[None]:
    """A batch that is checked again counts at once, and once more when its check has passed."""

    def verified(self: Any, batch: Any, losses: Tensor, result: Any) -> None:
        verify(self, batch, losses, result)
        if not batch.repeats and self._verifier.wants_probe:
            self._count_in(batch, result)

    verify = Computation._verify
    with patch.object(Computation, "_verify", verified):
        yield


MUTANTS = (
    Mutant(
        name="batch norm",
        says="a batch norm is let through, and mixes the examples of a batch",
        components=("gradients", "clipping"),
        setting=settings.batch_norm,
        patch=_mixing_let_through,
    ),
    Mutant(
        name="checked batch twice",
        says="a batch that is checked again, after a call or at random, counts twice",
        components=("update", "gradients"),
        setting=settings.linear,
        patch=_checked_counts_twice,
    ),
    Mutant(
        name="mean over the realised lot",
        says="sum and noise are divided by the number of examples that were drawn",
        components=("gradients", "noise", "update"),
        setting=settings.linear,
        patch=_by_realised_lot,
    ),
)
