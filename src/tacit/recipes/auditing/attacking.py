"""Attacks by name, as an audit uses them."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from tacit.auditing.attacks import ATTACKS
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tacit.auditing.attacks import Outputs, Shadows


def attack_names(names: Sequence[str], shadows: int) -> tuple[str, ...]:
    """``names``, each once, if there are such attacks and what they need.

    >>> attack_names(["lira", "lira"], 16)
    ('lira',)
    """
    chosen = tuple(dict.fromkeys(names))
    if not chosen:
        raise InvalidArgument(f"attacks must name at least one; there are {', '.join(ATTACKS)}")
    for name in chosen:
        if name not in ATTACKS:
            close = get_close_matches(str(name), ATTACKS, 1)
            meant = f"did you mean {close[0]!r}? " if close else ""
            raise InvalidArgument(
                f"there is no attack {name!r}; {meant}there are {', '.join(ATTACKS)}"
            )
        if ATTACKS[name].needs_shadows and shadows < 4:
            raise InvalidArgument(
                f"the attack {name!r} needs shadow models, 4 or more, got shadows={shadows}"
            )
    return chosen


def scores_of(name: str, target: Outputs, shadows: Shadows | None) -> NDArray[np.float64]:
    """One score for each example, higher where it was rather a member."""
    return ATTACKS[name](target, shadows)
