"""The grid of clipped sums: its step, what rounding to it adds, and units that never exceed it.

The oracle is exact arithmetic: Python's integers and fractions of the binary numbers at hand.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tacit.errors import InvalidArgument
from tacit.training.clipping.sums import BatchSums
from tacit.training.noise import grid_step, noise_in_steps, rounded_towards_zero, to_steps

clips = st.floats(1e-200, 1e200)
sizes = st.integers(1, 10**10)


def batch(*gradients: Tensor, borrowed: bool = False) -> BatchSums:
    """The clipped batch of one unit, with nothing in it but the sums."""
    sums = {str(at): gradient for at, gradient in enumerate(gradients)}
    return BatchSums(torch.zeros(1, 1), torch.ones(1, 1), sums, borrowed)


def squared_norm(values: dict[str, Tensor]) -> int:
    """In Python's integers, which never round."""
    return sum(int(one) ** 2 for value in values.values() for one in value.flatten().tolist())


def most(clip: float, entries: int) -> Fraction:
    """(clip/step)², exactly."""
    return (Fraction(clip) / Fraction(grid_step(clip, entries))) ** 2


# ---- the step


@given(clips, sizes)
def test_the_step_is_the_largest_power_of_two_that_moves_little(clip: float, entries: int) -> None:
    step = Fraction(grid_step(clip, entries))
    assert math.frexp(float(step))[0] == 0.5
    allowed = (Fraction(clip) / 2**11) ** 2 * (1 + Fraction(1, 2**50))
    assert step**2 * entries <= allowed < (2 * step) ** 2 * entries * (1 + Fraction(1, 2**49))


@pytest.mark.parametrize("clip", [5e-324, 1e-305, math.inf, math.nan])
def test_a_clip_that_leaves_no_room_for_a_grid_is_refused(clip: float) -> None:
    with pytest.raises(InvalidArgument, match="clip must be between"):
        grid_step(clip, 100)


def test_no_entries_need_no_grid() -> None:
    assert grid_step(1.0, 0) == grid_step(1.0, 1)
    assert math.isfinite(noise_in_steps(1.0, 1.0, 0, rounded=True))


# ---- the noise


@given(clips, sizes, st.floats(1e-3, 1e4))
@settings(max_examples=500)
def test_the_widening_covers_the_rounding(clip: float, entries: int, multiplier: float) -> None:
    """Noise over sensitivity, both in steps, is at least the plan's multiplier: as fractions."""
    scale = multiplier * clip
    own = Fraction(clip) / Fraction(grid_step(clip, entries))
    wide = Fraction(noise_in_steps(scale, clip, entries, rounded=True)) / Fraction(multiplier)
    assert wide >= own
    assert (wide - own) ** 2 >= entries  # wide ≥ clip/step + √entries
    assert wide <= own * Fraction("1.0005")  # as the statement says
    whole = Fraction(noise_in_steps(scale, clip, entries, rounded=False)) / Fraction(multiplier)
    assert own <= whole <= own * (1 + Fraction(1, 2**47))


def test_without_its_margin_the_widening_would_not_cover() -> None:
    """The test above can fail: plain floating point falls below for some of these."""
    short = 0
    for at in range(1, 200):
        clip, multiplier, entries = 0.1 * at, 1.1, 7 * at
        step = grid_step(clip, entries)
        plain = multiplier * clip * (1.0 + step * math.sqrt(entries) / clip) / step
        wide = Fraction(plain) / Fraction(multiplier) - Fraction(clip) / Fraction(step)
        short += wide**2 < entries
    assert short > 20


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40), st.integers(0, 2**32))
def test_rounded_neighbours_lie_as_close_as_the_noise_takes_them_to(
    values: list[float], seed: int
) -> None:
    clip, entries = 1.0, len(values)
    step = grid_step(clip, entries)
    change = torch.randn(entries, generator=torch.Generator().manual_seed(seed)).double()
    change *= 0.999 / change.norm()
    one = torch.tensor(values, dtype=torch.float64)
    apart = squared_norm({"": to_steps(one + change, step) - to_steps(one, step)})
    scale = noise_in_steps(1.0, clip, entries, rounded=True)  # the sensitivity, in steps
    assert Fraction(apart) <= Fraction(scale) ** 2


def test_noise_that_no_integer_holds_is_refused_by_name() -> None:
    limit = 2.0**45 * grid_step(1.0, 10**6)
    assert noise_in_steps(0.99 * limit, 1.0, 10**6, rounded=True) <= 2.0**45
    with pytest.raises(InvalidArgument, match=r"noise_multiplier must be below .* noise='fast'"):
        noise_in_steps(1.01 * limit, 1.0, 10**6, rounded=True)
    with pytest.raises(InvalidArgument, match="noise_multiplier must be below"):
        noise_in_steps(math.inf, 1.0, 10**6, rounded=False)


# ---- sums


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_sums_go_to_the_nearest_step(dtype: torch.dtype) -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0)).to(dtype)
    step = 2.0**-7
    steps = to_steps(values, step)
    assert steps.dtype == torch.int64
    for value, count in zip(values.tolist(), steps.tolist(), strict=True):
        assert abs(Fraction(value) - count * Fraction(step)) <= Fraction(step) / 2


def test_sums_that_are_no_numbers_have_a_place_all_the_same() -> None:
    values = torch.tensor([math.nan, math.inf, -math.inf, 1e300, 1.0], dtype=torch.float64)
    assert to_steps(values, 0.5).tolist() == [0, 2**62, -(2**62), 2**62, 2]


# ---- one unit


def adversarial(entries: int, clip: float) -> list[Tensor]:
    """Gradients at the clip and just above, as floating point might leave them."""
    step = grid_step(clip, entries)
    generator = torch.Generator().manual_seed(entries)
    spread = torch.randn(entries, generator=generator).double()
    spread *= clip / spread.norm()
    single = torch.zeros(entries).double()
    single[-1] = clip
    even = torch.full((entries,), clip / math.sqrt(entries)).double()
    on_steps = torch.ceil(spread.abs() / step) * step * spread.sign()  # every entry rounded up
    directions = [spread, single, even, on_steps]
    excess = [1.0, 1 + 2**-52, 1 + 1e-12, 1 + 1e-9, 1 + 1e-7, 1 + 2e-6, 1 + 1e-3, 1.5, 1e6, 1e200]
    return [direction * factor for direction in directions for factor in excess]


@pytest.mark.parametrize("clip", [1.0, 1.7, 0.1, 1e-12, 3e12, 1.3e-200])
@pytest.mark.parametrize("entries", [1, 2, 3, 10, 257, 4096])
def test_no_unit_exceeds_the_clip_by_the_smallest_amount(entries: int, clip: float) -> None:
    allowed = most(clip, entries)
    exceeded = 0
    for gradient in adversarial(entries, clip):
        steps = rounded_towards_zero(batch(gradient), clip, entries).sums["0"]
        assert steps.dtype == torch.int64
        assert squared_norm({"": steps}) <= allowed
        exceeded += squared_norm({"": (gradient / grid_step(clip, entries)).trunc()}) > allowed
    assert exceeded > 4  # cutting alone would not do


def test_a_million_entries_are_counted_exactly() -> None:
    clip, entries = 0.3, 10**6
    step = grid_step(clip, entries)
    whole = torch.full((entries,), math.floor(clip / step / 1e3), dtype=torch.float64)
    whole[:3] += 40_000.0
    allowed = most(clip, entries)
    while squared_norm({"": whole}) <= allowed:
        whole[:200_000] += 1.0
    steps = rounded_towards_zero(batch(whole * step), clip, entries).sums["0"]
    assert squared_norm({"": steps}) <= allowed
    assert squared_norm({"": steps}) > allowed * Fraction("0.997")  # and little is lost


def test_rounding_is_towards_zero_and_loses_less_than_a_step() -> None:
    clip, entries = 1.0, 1000
    step = grid_step(clip, entries)
    gradient = torch.randn(entries, generator=torch.Generator().manual_seed(1))
    gradient *= 0.7 / gradient.norm()
    steps = rounded_towards_zero(batch(gradient), clip, entries).sums["0"]
    for value, count in zip(gradient.tolist(), steps.tolist(), strict=True):
        real = Fraction(value) / Fraction(step)
        assert count == math.trunc(real)


def test_one_norm_for_all_parameters() -> None:
    """Each part is within the clip; together they are not, and are brought down together."""
    gradients = [torch.full((40,), 0.1), torch.full((3, 5), 0.2).double(), torch.zeros(0)]
    entries, clip = 55, 0.9
    one = batch(*gradients, borrowed=True)
    rounded = rounded_towards_zero(one, clip, entries)
    assert squared_norm(rounded.sums) <= most(clip, entries)
    assert squared_norm(rounded.sums) > most(clip, entries) * Fraction("0.99")
    assert [value.shape for value in rounded.sums.values()] == [(40,), (3, 5), (0,)]
    ratio = float(rounded.sums["1"][0, 0]) / float(rounded.sums["0"][0])
    assert ratio == pytest.approx(2.0, rel=1e-3)
    assert not rounded.borrowed  # the numbers are new ones
    assert rounded.squared_norms is one.squared_norms


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e308])
def test_a_gradient_that_is_not_finite_counts_as_nothing(bad: float) -> None:
    gradient = torch.tensor([0.1, bad, 0.2], dtype=torch.float64)
    steps = rounded_towards_zero(batch(gradient, torch.ones(2)), 1.0, 5).sums
    assert squared_norm(steps) == 0
    assert [value.tolist() for value in steps.values()] == [[0, 0, 0], [0, 0]]


def test_a_lot_without_gradients_has_none() -> None:
    assert rounded_towards_zero(batch(), 1.0, 10).sums == {}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("excess", [1.0, 1.004, 1.02])
def test_half_precision_is_held_to_the_clip_as_well(dtype: torch.dtype, excess: float) -> None:
    gradient = torch.randn(500, generator=torch.Generator().manual_seed(2))
    gradient = (gradient * (excess / gradient.norm())).to(dtype)
    steps = rounded_towards_zero(batch(gradient), 1.0, 500).sums
    assert squared_norm(steps) <= most(1.0, 500)


def test_the_number_of_threads_changes_no_bit() -> None:
    entries = 3 * 10**5
    gradient = torch.randn(entries, generator=torch.Generator().manual_seed(3))
    gradient *= 1.00001 / gradient.norm()
    before = torch.get_num_threads()
    found: list[Any] = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(rounded_towards_zero(batch(gradient), 1.0, entries).sums["0"])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
