"""What a sum in bf16 is judged by: ordinary PyTorch in the same arithmetic, one row at a time.

A tolerance beside the fp64 oracle cannot do it alone. Where a rectifier's input is nearly zero, a
rounding turns it on or off, and the gradient jumps: PyTorch's own gradient in bf16 is then as far
from the oracle as the engine's. So each weight's sum must be the oracle's or PyTorch's, within
`SAME`. A batch is not added up in the order of a single row, which may turn a rectifier, too. What
is neither's must be as near to one of them as they are to one another, record by record, or as
twice what PyTorch's gradients move by when weights and inputs are nudged by a fraction of a
rounding. Such steps are counted; an error that comes back in every step shows in the others.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from tests.training.clipping import oracle
from tests.training.clipping.cases import Case
from tests.training.clipping.oracle import Truth
from torch import Tensor

# Of the norms of what records contribute to a weight, added up. PyTorch rounds a row's gradient of
# a weight to bf16, by 2⁻⁹ of each entry at most, and of a bias the sum; the engine does not.
SAME = 1e-2
NUDGE = 2.0**-17  # of a number: a 256th of its rounding to bf16, and 128 of single precision
DRAWS, MULTIPLE = 16, 2.0  # the furthest of so many nudges, and this many times as far
GUARD = 2.0**-7  # what the engine adds to norms in bf16, relatively
NOTHING = 1e-6  # of the clip: a sum that is to be zero, but for its noise


@dataclass(frozen=True)
class Lot:
    """The records of a lot: the truth about them, and PyTorch's gradients in their arithmetic."""

    clip: float
    truth: Truth
    plain: Truth
    nudges: Callable[[], Iterator[Truth]]  # the same, at weights and inputs moved at random

    def contributions(self, of: Truth) -> Tensor:
        """What each record releases, with the engine's margin."""
        return of.contributions(self.clip / (1 + GUARD))


@dataclass(frozen=True)
class Judged:
    """How far a released sum is from both, weight by weight: the largest, of a weight's norms."""

    off: float  # from the nearer one
    plain: float  # from PyTorch's
    itself: float  # PyTorch's from the oracle's
    coarse: tuple[str, ...]  # weights that are neither's within `SAME`
    faults: tuple[str, ...]


def judged(lot: Lot, released: Tensor, sizes: dict[str, int]) -> Judged:
    """A released sum, whole and weight by weight; ``sizes`` are the weights', in order."""
    exact, half = lot.contributions(lot.truth), lot.contributions(lot.plain)
    moved: Tensor | None = None
    off, plain, itself = 0.0, 0.0, 0.0
    coarse, faults = list[str](), list[str]()
    for name, part in _parts(sizes):
        size = float(max(one[:, part].norm(dim=1).sum() for one in (exact, half)))
        least = NOTHING * lot.clip
        from_truth, from_plain = (
            float((released - one.sum(0))[part].norm()) for one in (exact, half)
        )
        apart = min(from_truth, from_plain)
        if size > least:
            off, plain = max(off, apart / size), max(plain, from_plain / size)
            itself = max(itself, float((half - exact).sum(0)[part].norm()) / size)
        if apart <= max(SAME * size, least):
            continue
        if moved is None:
            each = [lot.contributions(one) - half for one in lot.nudges()]
            moved = torch.stack(each).square()
        by_nudges = float(moved[..., part].sum(2).sqrt().amax(0).sum())
        between = float((half - exact)[:, part].norm(dim=1).sum())
        allowed = max(MULTIPLE * by_nudges, between)
        coarse.append(name)
        if not apart <= allowed:
            faults.append(f"{name} is off by {apart:.2e} of {size:.2e}; allowed: {allowed:.2e}")
    return Judged(off, plain, itself, tuple(coarse), tuple(faults))


def _parts(sizes: dict[str, int]) -> Iterator[tuple[str, slice]]:
    yield "the whole", slice(None)
    at = 0
    for name, size in sizes.items():
        yield name, slice(at, at + size)
        at += size


def lot_of(
    case: Case, inputs: tuple[Tensor, ...], weights: dict[str, Tensor], clip: float, device: str,
    seed: int,
) -> Lot:  # fmt: skip
    """The yardstick of a lot with these rows, at these weights."""
    truth = oracle.truth_about(case, inputs, weights)

    def nudges() -> Iterator[Truth]:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(DRAWS):
            rows = tuple(nudged(x, generator) for x in inputs)
            at = {name: nudged(value, generator) for name, value in weights.items()}
            yield plain_gradients(case, rows, at, device)

    return Lot(clip, truth, plain_gradients(case, inputs, weights, device), nudges)


def plain_gradients(
    case: Case, inputs: tuple[Tensor, ...], weights: dict[str, Tensor], device: str
) -> Truth:
    """Gradients by autograd alone, one row at a time, in the arithmetic of the case."""
    model = case.model().to(device)
    model.load_state_dict(weights)
    parameters = oracle.trainable(model)
    size = sum(p.numel() for p in parameters.values())
    rows = torch.zeros(len(inputs[0]), size, dtype=torch.float64)
    for at in range(len(inputs[0])):
        (loss,) = case.call(model, tuple(x[at : at + 1].to(device) for x in inputs))
        found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        parts = [
            (torch.zeros_like(p) if g is None else g).flatten().to("cpu", torch.float64)
            for p, g in zip(parameters.values(), found, strict=True)
        ]
        rows[at] = torch.cat(parts)
    units = rows.view(len(rows) // case.views, case.views, size).mean(1)
    return Truth(tuple(parameters), units)


def nudged(values: Tensor, generator: torch.Generator) -> Tensor:
    """Each number moved by up to `NUDGE` of itself."""
    if not values.is_floating_point():
        return values
    return values * (1 + NUDGE * (2 * torch.rand(values.shape, generator=generator) - 1))
