"""How well an attack did, in the numbers that an audit keeps, beside what the guarantee allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tacit.auditing.attacks import Roc, allowed
from tacit.recipes.auditing.audited import Attack, Figure, Found

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.accounting import PrivacyCurve
    from tacit.auditing import Scores
    from tacit.auditing.attacks import Measured

RATES: Final = (0.01, 0.001, 0.0001)
POINTS: Final = 200  # of a curve, at most
CONFIDENCE: Final = 0.95


def most_allowed(curve: PrivacyCurve | None) -> tuple[float, ...] | None:
    """What the guarantee allows at ``RATES``, if there is one."""
    return None if curve is None else tuple(allowed(curve, np.array(RATES)).tolist())


def measured(
    name: str, scores: Scores, most: Sequence[float] | None, *, model: str = "the model"
) -> Attack:
    """The numbers of one attack; ``most`` is what ``most_allowed`` gives for what it attacked."""
    roc = Roc(scores)
    bands = roc.bands(CONFIDENCE, points=POINTS)
    rows = np.stack([bands.fpr, bands.tpr, bands.tpr_lower, bands.tpr_upper], axis=1)
    return Attack(
        name=name,
        model=model,
        members=len(scores.inside),
        others=len(scores.outside),
        auc=_figure(roc.auc(CONFIDENCE)),
        advantage=_figure(roc.advantage(CONFIDENCE)),
        found=tuple(
            Found(rate, _figure(roc.tpr_at(rate, CONFIDENCE)), limit)
            for rate, limit in zip(RATES, most or (None,) * len(RATES), strict=True)
        ),
        roc=tuple((row[0], row[1], row[2], row[3]) for row in rows.tolist()),
    )


def _figure(found: Measured) -> Figure:
    return Figure(found.value, found.lower, found.upper)
