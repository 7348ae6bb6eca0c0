"""Moves cells of a pair onto a lattice of losses, so that δ certainly rises, or certainly falls.

Rising (connect the dots; Doroshenko et al. 2022): a cell's mass is split between its two ends so
that P's and Q's masses both stay; the pair that results tells at least as much as the true one,
because merging the ends again gives the true pair back. An end that is no lattice point is split
between its two neighbours in the same way.

Falling: cells whose losses lie between two lattice points are merged into one, which is a
post-processing of the true pair, and the merged loss is then lowered to a lattice point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit.accounting.exact.lattice_loss import LatticeLoss

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.exact.cells import Cells
    from tacit.accounting.exact.transforms import Floats

_SLACK = 1e-11  # relative error of cells' masses, many times over
_MOST_INDEX = 2.0**50  # of a lattice point: beyond, floating-point numbers pass some over
_MASS_ERROR = 64.0 * 2.0**-53


@dataclass(frozen=True, eq=False)
class Gridded:
    """A lattice loss, and the probability that the loss is infinite."""

    loss: LatticeLoss
    infinite: float


class OutOfRange(ArithmeticError):
    """Every loss of a pair is infinite as far as floating point can tell: noise far too small."""


def grid_up(cells: Cells, spacing: float) -> Gridded:
    """A lattice pair whose δ(ε) is nowhere below that of ``cells``, under composition too."""
    infinite = float(cells.p[np.isinf(cells.high) & (cells.high > 0)].sum())
    keep = np.isfinite(cells.high) & (cells.p > 0.0)
    if not keep.any():
        raise OutOfRange
    p, q, high = cells.p[keep], cells.q[keep], cells.high[keep]
    # A cell too wide to split, or past the range of exp, goes to its upper end whole.
    whole = (cells.low[keep] < high - 40.0) | (high > 600.0)
    low = np.where(whole, high, cells.low[keep])
    span = -np.expm1(low - high)
    excess = p - q * np.exp(np.where(whole, 0.0, low)) + _SLACK * p
    raised = np.where(span > 0.0, np.clip(excess / np.maximum(span, 1e-300), 0.0, p), p)
    losses = np.concatenate([low, high])
    masses = np.concatenate([p - raised, raised])
    return Gridded(_split_onto_lattice(losses, masses, spacing), infinite * (1.0 + _SLACK))


def _split_onto_lattice(losses: Floats, masses: Floats, spacing: float) -> LatticeLoss:
    """Each loss to its two neighbours, P's and Q's masses kept (Q's is mass·exp(-loss))."""
    index = _below(losses, spacing)
    rise = losses - index * spacing
    share = np.expm1(-rise) / math.expm1(-spacing) + _SLACK
    # On a lattice point up to rounding: leave it there, rounded up.
    share = np.where(rise < 1e-12 * spacing, 0.0, np.minimum(share, 1.0))
    place = index.astype(np.int64)
    first = int(place.min())
    size = int(place.max()) - first + 2
    placed = _sums(place - first, masses * (1.0 - share), size)
    placed += _sums(place + 1 - first, masses * share, size)
    offset = 1e-12 * spacing
    return LatticeLoss(offset, spacing, first, placed, mass_error=_MASS_ERROR)


def grid_down(cells: Cells, spacing: float) -> Gridded:
    """A lattice loss whose δ(ε) is nowhere above that of ``cells``, under composition too."""
    infinite = float(cells.p[np.isinf(cells.low) & (cells.low > 0)].sum())
    keep = np.isfinite(cells.low) & (cells.p > 0.0) & (cells.q > 0.0)
    if not keep.any():
        raise OutOfRange
    p, q, low = cells.p[keep], cells.q[keep], cells.low[keep]
    index = _below(low, spacing).astype(np.int64)
    first = int(index.min())
    size = int(index.max()) - first + 1
    p, q = _sums(index - first, p, size), _sums(index - first, q, size)
    filled = p > 0.0
    loss = np.log(p[filled] / q[filled]) - _SLACK
    offset = _best_offset(loss, p[filled], spacing)
    lowered = np.floor((loss - offset) / spacing).astype(np.int64)
    start = int(lowered.min())
    placed = _sums(lowered - start, p[filled], int(lowered.max()) - start + 1)
    return Gridded(
        LatticeLoss(offset, spacing, start, placed, mass_error=_MASS_ERROR),
        infinite * (1.0 - _SLACK),
    )


def _below(losses: Floats, spacing: float) -> Floats:
    """The indices of the lattice points next below."""
    if float(np.abs(losses).max()) > _MOST_INDEX * spacing:
        raise OutOfRange
    index: Floats = np.floor(losses / spacing)
    return index


def _sums(index: NDArray[np.int64], masses: Floats, size: int) -> Floats:
    """The total mass at each index."""
    return np.bincount(index, masses, minlength=size).astype(np.float64)


def _best_offset(loss: Floats, mass: Floats, spacing: float) -> float:
    """The offset of the lattice at which lowering costs least."""
    phase = loss % spacing
    order = np.argsort(phase)
    phase, share = phase[order], np.cumsum(mass[order]) / mass.sum()
    picks = np.searchsorted(share, np.geomspace(1e-9, 0.9, 65))
    candidates = phase[np.minimum(picks, len(phase) - 1)]
    # Lowering costs Σ mass·(phase - offset), and a whole spacing for each phase below the offset.
    below = np.concatenate([[0.0], share])[np.searchsorted(phase, candidates)]
    cost = spacing * below - candidates
    return float(candidates[int(np.argmin(cost))]) - 1e-12 * spacing
