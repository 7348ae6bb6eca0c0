"""Records whose gradient is a small difference of large terms: none is released above the clip.

A sum rounds each term by itself, so that what is left of them after they cancel may be rounding
alone. The oracle is the released sum itself: of a lot of one record, it is what that record moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.training.clipping import sums
from tacit.training.clipping.engine import clipped_gradients
from tacit.training.clipping.forms import OneHot, Outer, matrix

if TYPE_CHECKING:
    from collections.abc import Callable

    Record = tuple[dict[str, nn.Parameter], Callable[[], Tensor]]

WIDE = (torch.float32, torch.bfloat16)


def sequence(kind: torch.dtype, large: float, terms: int, size: int) -> Record:
    """A linear layer along a sequence whose second half takes back its first, but for a little."""
    layer = nn.Linear(size, size, bias=False).to(kind)
    half = large * torch.randn(terms // 2, size)
    x = torch.cat([half, half + torch.randn_like(half)]).to(kind)
    g = torch.randn(terms // 2, size)
    g = torch.cat([g, -g]).to(kind)
    return dict(layer.named_parameters()), lambda: (layer(x[None]) * g).float().sum((1, 2))


def used_twice(kind: torch.dtype, large: float, terms: int, size: int) -> Record:
    """A linear layer with two uses that nearly cancel."""
    layer = nn.Linear(size, size, bias=False).to(kind)
    x = (large * torch.randn(1, terms, size)).to(kind)
    y = (x + torch.randn(1, terms, size)).to(kind)
    g = torch.randn(1, terms, size).to(kind)
    return (
        dict(layer.named_parameters()),
        lambda: (layer(x) * g).float().sum((1, 2)) - (layer(y) * g).float().sum((1, 2)),
    )


def vector_used_twice(kind: torch.dtype, large: float, terms: int, size: int) -> Record:
    """A vector that is added and multiplied."""
    del terms
    vector = nn.Parameter(torch.zeros(size, dtype=kind))
    a = (large * torch.randn(1, size)).to(kind)
    b = (torch.randn(1, size) - a).to(kind)
    none, one = torch.zeros(1, size, dtype=kind), torch.ones(1, size, dtype=kind)
    return (
        {"vector": vector},
        lambda: ((vector + none) * a).float().sum(1) + ((vector * one) * b).float().sum(1),
    )


def table(kind: torch.dtype, large: float, terms: int, size: int) -> Record:
    """One word of an embedding, many times."""
    layer = nn.Embedding(5, size).to(kind)
    half = large * torch.randn(terms // 2, size)
    g = torch.cat([half, torch.randn_like(half) - half])[None].to(kind)
    ids = torch.full((1, len(g[0])), 3)
    return dict(layer.named_parameters()), lambda: (layer(ids) * g).float().sum((1, 2))


def tied(kind: torch.dtype, large: float, terms: int, size: int) -> Record:
    """A table whose head takes back what its look-up gave."""
    weight = nn.Parameter(torch.zeros(7, size, dtype=kind))
    ids = torch.randint(0, 7, (1, terms))
    g = (large * torch.randn(1, terms, size)).to(kind)
    h = (torch.randn(1, terms, size) - g).to(kind)
    hot = F.one_hot(ids, 7).to(kind)
    return (
        {"weight": weight},
        lambda: (
            (F.embedding(ids, weight) * g).float().sum((1, 2))
            + (F.linear(h, weight) * hot).float().sum((1, 2))
        ),
    )


def image(kind: torch.dtype, large: float, terms: int, size: int) -> Record:
    """A convolution of an image whose right half takes back its left, too large to be kept."""
    layer = nn.Conv2d(size, size, 3, stride=2, bias=False).to(kind)
    half = large * torch.randn(1, size, terms, terms)
    x = torch.cat([half, half + torch.randn_like(half)], 3).to(kind)
    g = torch.randn(layer(x).shape)
    out = g.shape[3] // 2
    g[..., -out:] = -g[..., :out]
    return (
        dict(layer.named_parameters()),
        lambda: (layer(x) * g.to(kind)).float().sum((1, 2, 3)),
    )


RECORDS = {
    "by Gram matrices": (sequence, 16, 64),
    "written out": (sequence, 64, 16),
    "used twice": (used_twice, 1, 24),
    "used twice, by Gram matrices": (used_twice, 8, 64),
    "used twice, written out": (used_twice, 16, 4),
    "a vector used twice": (vector_used_twice, 1, 64),
    "one word": (table, 32, 16),
    "tied": (tied, 8, 16),
    "an image": (image, 5, 16),
}


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("name", RECORDS)
def test_terms_that_cancel_are_not_released_above_the_clip(name: str, kind: torch.dtype):
    make, terms, size = RECORDS[name]
    torch.manual_seed(3)
    for large in (1.0, 1e2, 1e4, 1e6, 1e7):
        for _ in range(3):
            parameters, losses = make(kind, large, terms, size)
            found = clipped_gradients(parameters, losses, rows=1, clip=1.0)
            squares = sum(float(one.double().square().sum()) for one in found.sums.values())
            assert squares**0.5 <= 1 + 1e-6, large
            if large == 1.0:  # what does not cancel is not made smaller for it
                assert squares**0.5 >= 0.98


def test_half_precision_gradients_below_its_smallest_numbers_are_not_rounded_up():
    """Scaled in half precision, entries near 2⁻²⁵ would become 2⁻²⁴ each: twice the clip."""
    torch.manual_seed(0)
    layer = nn.Linear(512, 512, bias=False).half()
    x = torch.ones(1, 2, 512, dtype=torch.float16)
    g = torch.full((1, 2, 512), 30.0, dtype=torch.float16)
    g[0, 1] = -29.5
    for clip in (1e-2, 1e-4, 1e-6):
        found = clipped_gradients(
            dict(layer.named_parameters()),
            lambda: (layer(x) * g).float().sum((1, 2)),
            rows=1,
            clip=clip,
        )
        assert float(found.sums["weight"].double().norm()) <= clip * (1 + 1e-6)


# ---- a GPU's coarse products: their arithmetic, done here


def cancelling(terms: int, large: float) -> tuple[Tensor, Tensor]:
    """Two sides of a gradient of norm 3 whose terms take each other back, but for a little."""
    left, right = torch.randn(terms, 24), torch.randn(terms, 16)
    half = terms // 2
    left[half:], right[half:] = left[:half] * (1 + 1 / large), -right[:half]
    return left * (3.0 / float((left.mT @ right).norm())), right


def tf32(values: Tensor) -> Tensor:
    """Cut off after ten binary places, as the tensor cores may read single precision."""
    return (values.float().view(torch.int32) & ~0x1FFF).view(torch.float32)


def released(left: Tensor, right: Tensor, kind: torch.dtype, raised: tuple[float, float]) -> float:
    """The norm of a unit's part of the sum at clip 1, by products of scaled copies."""
    seen = tf32 if kind == torch.float32 else Tensor.bfloat16
    norm = float((seen(left).double().mT @ seen(right).double()).square().sum())
    every = float((left.double().square().sum(1) * right.double().square().sum(1)).sum())
    margin = sums.margin([kind], torch.device("cpu")) if kind != torch.float32 else 2.0**-9
    bound = (raised[0] * norm + raised[1] * every) ** 0.5 * (1 + margin)
    scale = 1.0 / max(1.0, bound)
    return float((seen(left * scale).double().mT @ seen(right).double()).norm())


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32], ids=["bfloat16", "TF32"])
def test_what_coarse_products_of_scaled_copies_round_is_covered(
    kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "rounds_coarsely", lambda *_, **__: True)
    torch.manual_seed(1)
    covered, bare = [], []
    for terms in (2, 8, 64, 256):
        for large in (1.0, 1e1, 1e2, 1e3, 1e4):
            for _ in range(4):
                left, right = (one.to(kind).float() for one in cancelling(terms, large))
                raised = matrix.cover(terms, left.to(kind))
                covered.append(released(left, right, kind, raised))
                bare.append(released(left, right, kind, (1.0, 0.0)))
    assert max(covered) <= 1 + 1e-6
    assert max(bare) > 1.2  # so these records do find it where it is not covered


@pytest.mark.parametrize(("terms", "cost"), [(1, 0.006), (48, 0.04), (256, 0.08)])
def test_the_cover_costs_little_where_nothing_cancels(
    terms: int, cost: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of terms at right angles to each other N² is the sum of squares."""
    monkeypatch.setattr(matrix, "rounds_coarsely", lambda *_, **__: True)
    assert sum(matrix.cover(terms, torch.zeros(1, dtype=torch.bfloat16))) ** 0.5 <= 1 + cost


def test_uses_in_different_precisions_are_covered_as_each_is_rounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One under autocast, one not: joined in single precision, the first would be forgotten."""
    monkeypatch.setattr(matrix, "rounds_coarsely", lambda side, **_: side.dtype == torch.bfloat16)
    torch.manual_seed(0)
    left, right = torch.randn(1, 4, 24).bfloat16(), torch.randn(1, 4, 16).bfloat16()
    half = Outer(left, right, (24, 16))
    single = Outer(left.float(), -right.float(), (24, 16))
    for uses in ([half, single], [single, half], [half, single, half]):
        held = sums.merged_squared_norms(uses)
        assert float(held) >= 2.0**-16 * float(half.uncancelled())


@pytest.mark.parametrize("terms", [1, 2, 8])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32], ids=["bfloat16", "TF32"])
def test_a_head_that_takes_back_its_table_is_covered_for_any_number_of_positions(
    terms: int, kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single position's own norm needs no cover; what it takes back from the table does."""
    monkeypatch.setattr(matrix, "rounds_coarsely", lambda *_, **__: True)
    torch.manual_seed(0)
    ids, right = torch.randint(0, 70, (1, terms)), torch.randn(1, terms, 66).to(kind)
    head = Outer(F.one_hot(ids, 70).to(kind), -right, (70, 66))
    held = sums.merged_squared_norms([OneHot(ids, right, (70, 66)), head])
    assert float(held) >= 2.0**-16 * float(head.uncancelled())
