"""Constants with as many entries as the batch has rows, by chance or because they are repeated.

And constants that do not stay so: a weight is written into them, or data are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.errors import UnsupportedModel
from tacit.training.clipping import clipped_gradients

if TYPE_CHECKING:
    from collections.abc import Callable

TIME = 4
Scores = tuple[nn.Module, "Callable[[Tensor], Tensor]"]


def positions() -> Scores:
    """GPT-2's: ids 0, 1, 2, … of shape (1, time)."""
    table = nn.Embedding(TIME, 3)
    return table, lambda x: x + table(torch.arange(TIME).unsqueeze(0))


def later_positions() -> Scores:
    table = nn.Embedding(TIME + 2, 3)
    return table, lambda x: x + table(torch.arange(2, TIME + 2, device=x.device).view(1, -1))


def moved_positions() -> Scores:
    """OPT's begin with 2; here they are moved there in place."""
    table = nn.Embedding(TIME + 2, 3)

    def forward(x: Tensor) -> Tensor:
        at = torch.arange(TIME)
        first = at.unsqueeze(0)
        at.add_(2)
        return x + table(first)

    return table, forward


def even_positions() -> Scores:
    table = nn.Embedding(2 * TIME, 3)
    return table, lambda x: x + table(torch.arange(0, 2 * TIME, 2))


def reversed_positions() -> Scores:
    table = nn.Embedding(TIME, 3)
    return table, lambda x: x + table(torch.arange(TIME - 1, -1, -1).unsqueeze(0))


def repeated_positions() -> Scores:
    table = nn.Embedding(TIME, 3)
    return table, lambda x: x + table(torch.arange(TIME).expand(len(x), TIME))


def first_of_repeated_positions() -> Scores:
    """PEFT's prompts: the numbers of their tokens are repeated for every row, and one is taken."""
    table = nn.Embedding(TIME, 3)
    return table, lambda x: x + table(torch.arange(TIME).expand(len(x), TIME)[:1])


def buckets() -> Tensor:
    """Of relative positions, by way of floating-point numbers, as T5 has them."""
    at = torch.arange(TIME)
    return (at[:, None] - at[None, :]).float().abs().log1p().mul(2).long()


def relative_positions() -> Scores:
    table = nn.Embedding(4, 1)
    return table, lambda x: (x @ x.mT + table(buckets()).squeeze(-1)).softmax(-1) @ x


def attention_bias() -> Scores:
    table = nn.Embedding(4, 2)

    def attend(x: Tensor) -> Tensor:
        heads = x.unsqueeze(1).expand(-1, 2, -1, -1)
        bias = table(buckets()).permute(2, 0, 1).unsqueeze(0)
        return F.scaled_dot_product_attention(heads, heads, heads, bias).sum(1)

    return table, attend


def class_token() -> Scores:
    token = nn.Embedding(1, 3)
    return token, lambda x: torch.cat([token.weight.expand(len(x), 1, 3), x], 1).cumsum(1)


def lower_triangle() -> Scores:
    """Zeros, into which the entries of a weight are written; it enters as it is, too."""
    layer = nn.Linear(3, 3, bias=False)

    def mixed(x: Tensor) -> Tensor:
        square = torch.zeros(3, 3)
        square[*torch.tril_indices(3, 3)] = layer.weight.flatten()[:6]
        return F.linear(layer(x), square)

    return layer, mixed


def rows_of_a_triangle() -> Scores:
    layer = nn.Linear(3, 3, bias=False)

    def mixed(x: Tensor) -> Tensor:
        square = torch.zeros(3, 3)
        for at in range(3):
            square[at][: at + 1] = layer.weight[at, : at + 1]
        return F.linear(x, square)

    return layer, mixed


def preallocated() -> Scores:
    """Zeros, into which results are written step by step, and which a weight meets only then."""
    layer = nn.Linear(3, 3, bias=False)

    def steps(x: Tensor) -> Tensor:
        kept, flat = torch.zeros(len(x), TIME, 3), torch.zeros(len(x) * TIME, 3)
        for at in range(TIME):
            kept[:, at] = layer(x[:, at]).tanh()
        flat.copy_(kept.flatten(0, 1))
        return (layer.weight.sum(0) * flat).view_as(kept)

    return layer, steps


def complex_weights() -> Scores:
    """Weights that act on a spectrum, as a matrix and entry by entry."""
    layer = nn.Linear(3, 3, bias=False)

    def turned(x: Tensor) -> Tensor:
        weight = torch.complex(layer.weight, layer.weight.mT)
        found = torch.fft.ifft(torch.einsum("...i,oi->...o", torch.fft.fft(x), weight))
        return F.linear(found, weight).abs() + (found @ weight * weight[0]).real

    return layer, turned


def a_number() -> Scores:
    """A weight without dimensions, which no rule serves."""
    share = nn.Module()
    weight = nn.Parameter(torch.tensor(0.3))
    share.register_parameter("share", weight)
    return share, lambda x: torch.lerp(x, x.flip(1), weight.sigmoid())


def rounded() -> Scores:
    """A weight of which only the sign is seen, and which learns as if it were not."""
    layer = nn.Linear(3, 3, bias=False)
    return layer, lambda x: F.linear(
        x, (layer.weight.sign() - layer.weight).detach() + layer.weight
    )


def orthogonal(kind: str) -> Callable[[], Scores]:
    """With a buffer that is a square, and signs as whole numbers."""

    def made() -> Scores:
        layer = nn.utils.parametrizations.orthogonal(nn.Linear(TIME, TIME), orthogonal_map=kind)
        layer.bias.requires_grad_(requires_grad=False)
        return layer, lambda x: layer(x.mT).mT

    return made


def named_result() -> Scores:
    """A call that names where its result goes: nowhere."""
    layer = nn.Linear(3, 3, bias=False)
    return layer, lambda x: torch.tensordot(x, layer.weight, dims=1)


@pytest.mark.parametrize("rows", [1, 3, TIME])
@pytest.mark.parametrize(
    ("model", "rule"),
    [
        (positions, "elementwise"),
        (later_positions, "elementwise"),
        (moved_positions, "elementwise"),
        (even_positions, "elementwise"),
        (reversed_positions, "elementwise"),
        (repeated_positions, "embedding"),
        (first_of_repeated_positions, "elementwise"),
        (relative_positions, "elementwise"),
        (attention_bias, "expand"),
        (class_token, "expand"),
        (lower_triangle, "linear"),
        (rows_of_a_triangle, "linear"),
        (preallocated, "linear elementwise"),
        (complex_weights, "fallback"),
        (a_number, "fallback"),
        (named_result, "fallback"),
        (rounded, "linear"),
        (orthogonal("householder"), "linear"),
        (orthogonal("matrix_exp"), "linear"),
    ],
)
def test_they_are_not_taken_for_examples(model: Callable[[], Scores], rule: str, rows: int):
    torch.manual_seed(0)
    module, forward = model()
    x = torch.randn(rows, TIME, 3)
    (weight,) = (one for one in module.parameters() if one.requires_grad)
    found = clipped_gradients(
        {"weight": weight}, lambda: forward(x).pow(4).sum((1, 2)), rows=rows, clip=1e9,
        constants=list(module.buffers()),
    )  # fmt: skip
    each = [torch.autograd.grad(forward(x[i : i + 1]).pow(4).sum(), weight)[0] for i in range(rows)]
    torch.testing.assert_close(found.norms.float(), torch.stack([g.norm() for g in each]))
    torch.testing.assert_close(found.sums["weight"], torch.stack(each).sum(0))
    if rows > 1:
        assert {use.rule for use in found.uses} == {*rule.split()}


@pytest.mark.parametrize("model", [positions, later_positions])
def test_positions_are_known_by_how_they_are_made(
    model: Callable[[], Scores], monkeypatch: pytest.MonkeyPatch
):
    """To look at them would be to wait for a device, and no step could be recorded there."""

    def look(*_: object) -> bool:
        raise AssertionError("the host read a number")

    monkeypatch.setattr(torch, "equal", look)
    module, forward = model()
    (weight,) = module.parameters()
    x = torch.randn(3, TIME, 3)
    found = clipped_gradients(
        {"weight": weight}, lambda: forward(x).square().sum((1, 2)), rows=3, clip=1e9
    )
    assert {use.rule for use in found.uses} == {"elementwise"}


def test_a_part_of_a_constant_that_data_are_written_into_is_none():
    weight, x = nn.Parameter(torch.randn(3, 3)), torch.randn(3, TIME, 3)

    def losses() -> Tensor:
        state = torch.zeros(3, TIME, 3)
        first = state[0]
        state.copy_(x)
        return (x + first @ weight).square().sum((1, 2))

    with pytest.raises(UnsupportedModel, match="mixes or moves examples"):
        clipped_gradients({"weight": weight}, losses, rows=3, clip=1.0)


def test_numbers_that_may_be_data_are_refused_with_where_to_keep_them():
    """PEFT's trainable tokens are written into a table at places that forward makes a tensor of."""
    weight, table = nn.Parameter(torch.randn(2, 5)), torch.randn(7, 5)
    ids = torch.tensor([[1], [2], [3]])

    def losses() -> Tensor:
        own = table.index_copy(0, torch.tensor([2, 4]), weight)
        return F.embedding(ids, own).square().sum((1, 2))

    with pytest.raises(UnsupportedModel, match=r"from data.*torch\.tensor.*in a buffer"):
        clipped_gradients({"weight": weight}, losses, rows=3, clip=1.0, constants=[table])


def test_a_weight_inside_of_a_transform_is_refused_in_words():
    weight, x = nn.Parameter(torch.randn(3, 3)), torch.randn(5, 3)
    with pytest.raises(UnsupportedModel, match=r"inside of torch\.func"):
        clipped_gradients(
            {"weight": weight}, lambda: torch.func.vmap(lambda r: (weight @ r).sum())(x), rows=5,
            clip=1.0,
        )  # fmt: skip
