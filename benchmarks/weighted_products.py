"""Times sums of scaled gradients on a GPU: a product of scaled copies beside one that scales sums.

A scaled copy in half precision is rounded term by term, so that a record whose terms cancel leaves
its rounding behind. The kernel multiplies the terms as they are, exactly, and scales in single
precision: before it comes to the next unit it multiplies its total by sᵢ₋₁/sᵢ, as attention kernels
do with their running maximum. A norm that is finite in single precision keeps every total finite.

    python benchmarks/weighted_products.py              # on a GPU with Triton
    TRITON_INTERPRET=1 python benchmarks/weighted_products.py --check   # anywhere: only its numbers
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

# units, terms, rows, columns: the GPT shape's layers and head, LoRA's, a long sequence, a short one
SHAPES = {
    "attention": (64, 256, 768, 2304),
    "feed-forward": (64, 256, 768, 3072),
    "head": (64, 256, 768, 50304),
    "long": (16, 1024, 768, 3072),
    "short": (2048, 48, 576, 1536),
}
CHECKED = {"even": (3, 64, 32, 64), "odd": (4, 48, 40, 24), "short": (5, 7, 16, 33)}


@triton.jit(do_not_specialize=["units", "each"])
def _product_kernel(
    left, right, scales, out, units, terms, each, left_size, right_size,
    left_unit, left_term, right_unit, right_term, out_split,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, TERMS: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """One block of the sum over one stretch of units."""
    tile, split = tl.program_id(0), tl.program_id(1)
    high, across = tl.cdiv(left_size, ROWS), tl.cdiv(right_size, COLUMNS)
    first = (tile // (GROUP * across)) * GROUP  # neighbouring programs share what they read
    size = tl.minimum(high - first, GROUP)
    rows = (first + (tile % (GROUP * across)) % size) * ROWS + tl.arange(0, ROWS)
    columns = ((tile % (GROUP * across)) // size) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    scale = 1.0
    for unit in range(split * each, tl.minimum(units, (split + 1) * each)):
        own = tl.load(scales + unit).to(tl.float32)
        if own > 0:
            total *= scale / own
            scale = own
            for start in range(0, terms, TERMS):
                at = start + tl.arange(0, TERMS)
                inside = (at < terms)[:, None]
                lefts = left + unit * left_unit + at[:, None] * left_term + rows[None, :]
                rights = right + unit * right_unit + at[:, None] * right_term + columns[None, :]
                one = tl.load(lefts, mask=inside & (rows < left_size)[None, :], other=0.0)
                two = tl.load(rights, mask=inside & (columns < right_size)[None, :], other=0.0)
                total = tl.dot(tl.trans(one), two, total, input_precision=PRECISION)
    place = out + split.to(tl.int64) * out_split + rows.to(tl.int64)[:, None] * right_size
    mask = (rows < left_size)[:, None] & (columns < right_size)[None, :]
    tl.store(place + columns[None, :], total * scale, mask=mask)


@dataclass(frozen=True)
class Tiles:
    """How a product is cut."""

    rows: int
    columns: int
    terms: int
    warps: int
    stages: int


TILES = [
    Tiles(128, 256, 64, 8, 3),
    Tiles(128, 128, 64, 8, 3),
    Tiles(128, 128, 64, 4, 4),
    Tiles(64, 256, 64, 4, 4),
    Tiles(128, 256, 32, 8, 4),
]


def scaled_inside(left: Tensor, right: Tensor, scales: Tensor, cut: Tiles) -> Tensor:
    """The kernel's sum."""
    units, terms, rows = left.shape
    columns = right.shape[2]
    tiles = triton.cdiv(rows, cut.rows) * triton.cdiv(columns, cut.columns)
    splits = max(1, min(units, 132 // tiles))
    out = torch.empty(splits, rows, columns, dtype=torch.float32, device=left.device)
    _product_kernel[(tiles, splits)](
        left, right, scales, out, units, terms, triton.cdiv(units, splits), rows, columns,
        *left.stride()[:2], *right.stride()[:2], out.stride(0), PRECISION="tf32",
        ROWS=cut.rows, COLUMNS=cut.columns, TERMS=cut.terms, GROUP=8,
        num_warps=cut.warps, num_stages=cut.stages,
    )  # fmt: skip
    return out[0] if splits == 1 else out.sum(0)


def unscaled(left: Tensor, right: Tensor) -> Tensor:
    """The library's product, which clips nothing: what there is to be reached."""
    return torch.mm(left.flatten(0, 1).mT, right.flatten(0, 1), out_dtype=torch.float32)


def scaled_before(left: Tensor, right: Tensor, scales: Tensor) -> Tensor:
    """The library's product, of a copy of the smaller side."""
    small = left.shape[2] <= right.shape[2]
    copy = ((left if small else right).float() * scales[:, None, None]).to(left.dtype)
    one, two = (copy, right) if small else (left, copy)
    return torch.mm(one.flatten(0, 1).mT, two.flatten(0, 1), out_dtype=torch.float32)


def made(shape: tuple[int, int, int, int], dtype: torch.dtype, device: str) -> list[Tensor]:
    """Two sides and scales over many powers of two, one of which is zero beside a NaN."""
    units, terms, rows, columns = shape
    torch.manual_seed(0)
    left = torch.randn(units, terms, rows, device=device).to(dtype)
    right = torch.randn(units, terms, columns, device=device).to(dtype)
    scales = torch.exp(8 * torch.randn(units, device=device)).clamp(max=1.0)
    left[-1, 0, 0], scales[-1] = float("nan"), 0.0
    return [left, right, scales]


def check(device: str, dtype: torch.dtype) -> None:
    """Compares the kernel with double precision."""
    for name, shape in CHECKED.items():
        left, right, scales = made(shape, dtype, device)
        sides = (one[:-1].double() for one in (scales, left, right))
        wide = torch.einsum("i,itp,itq->pq", *sides)
        found = scaled_inside(left, right, scales, Tiles(16, 32, 16, 4, 2)).double()
        print(f"{name}: off by {float((found - wide).norm() / wide.norm()):.1e}")


def milliseconds(work: Callable[[], object]) -> float:
    """Of the device, at the median."""
    return float(triton.testing.do_bench(work, warmup=50, rep=200, return_mode="median"))


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare the numbers, on the CPU")
    if parser.parse_args().check:
        check("cpu", torch.float32)
        return
    check("cuda", torch.bfloat16)
    for name, shape in SHAPES.items():
        left, right, scales = made(shape, torch.bfloat16, "cuda")
        left = left.nan_to_num()
        units, terms, rows, columns = shape
        work = 2 * units * terms * rows * columns / 1e9
        plain = milliseconds(partial(unscaled, left, right))
        before = milliseconds(partial(scaled_before, left, right, scales))
        print(
            f"{name:14} plain {plain:.3f} ({work / plain:.0f} TFLOP/s)  copy {before:.3f}", end=""
        )
        for cut in TILES:
            try:
                took = milliseconds(partial(scaled_inside, left, right, scales, cut))
            except triton.OutOfResources:
                continue
            print(
                f"  {cut.rows}x{cut.columns}x{cut.terms}w{cut.warps}s{cut.stages} {took:.3f}",
                end="",
            )
        print()


if __name__ == "__main__":
    main()
