"""Lays sums through the tilts that are within reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from tacit.accounting.exact.enclosure import TooSlow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tacit.accounting.exact.resolution import Resolution
    from tacit.accounting.exact.saddle import Aim, Search

Composed_contra = TypeVar("Composed_contra", contravariant=True)
Laid_co = TypeVar("Laid_co", covariant=True)

_RETREATS = (1.0, 0.97, 0.9, 0.75, 0.5, 0.25)


class Lay(Protocol[Composed_contra, Laid_co]):
    """Lays nodes for a composition about an aim, or raises ``TooSlow``."""

    def __call__(
        self, composition: Composed_contra, search: Search, aim: Aim, resolution: Resolution, /
    ) -> Laid_co:
        """The sum over the nodes."""


def lay_within_reach(
    lay: Lay[Composed_contra, Laid_co],
    composition: Composed_contra,
    search: Search,
    aim: Aim,
    resolution: Resolution,
) -> Iterator[tuple[Laid_co, Aim]]:
    """Sums through ever smaller tilts, those that take few enough nodes.

    Close to the tilt at which ln M explodes the copies that the trapezoid rule folds in are far
    off, and the period long; farther from it the sum loses digits, but not validity.
    """
    for factor in _RETREATS:
        try:
            nearer = aim if factor == 1.0 else search.retreat(aim, factor)
            laid = lay(composition, search, nearer, resolution)
        except TooSlow:
            continue
        yield laid, nearer
