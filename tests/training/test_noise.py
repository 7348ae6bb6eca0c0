"""What is released: sum and noise, divided by the lot size, in the parameter's precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from scipy import stats

from tacit.errors import InvalidArgument
from tacit.randomness import UnsafeSeededStream
from tacit.training.noise import (
    FastNoise,
    GridNoise,
    entries_of,
    grid_step,
    noise_for,
    noise_in_steps,
    to_steps,
)

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.training.noise import Noise

CPU = torch.device("cpu")
KINDS = ("fast", "secure", "exact")


def noise(kind: str, seed: int = 0) -> Noise:
    return noise_for(kind, UnsafeSeededStream(seed, "noise"), CPU)


def means(
    kind: str,
    parameters: dict[str, Tensor],
    sums: dict[str, Tensor],
    *,
    scale: float,
    lot_size: float,
    clip: float = 1.0,
    source: Noise | None = None,
) -> dict[str, Tensor]:
    """The release; real sums are put on the grid for noise that takes whole steps."""
    if kind == "exact":
        step = grid_step(clip, entries_of(parameters))
        sums = {name: to_steps(value, step) for name, value in sums.items()}
    source = noise(kind) if source is None else source
    return source.means(parameters, sums, clip=clip, scale=scale, lot_size=lot_size)


def test_each_kind_has_its_class() -> None:
    found = [type(noise(kind)) for kind in KINDS]
    assert found == [FastNoise, GridNoise, GridNoise]


@pytest.mark.parametrize("kind", KINDS)
def test_the_sum_and_the_noise_are_both_divided(kind: str) -> None:
    parameters = {"a": torch.zeros(300, 300), "b": torch.zeros(7)}
    sums = {"a": torch.full((300, 300), 50.0), "b": torch.arange(7.0)}
    got = means(kind, parameters, sums, scale=3.0, lot_size=10.0)
    assert float(got["a"].mean()) == pytest.approx(5.0, abs=0.005)
    assert float(got["a"].std()) == pytest.approx(0.3, rel=0.01)
    quiet = means(kind, parameters, sums, scale=1e-9, lot_size=10.0)
    torch.testing.assert_close(quiet["b"], torch.arange(7.0) / 10, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_parameter_without_a_sum_is_noised_all_the_same(kind: str) -> None:
    parameters = {"a": torch.zeros(5), "b": torch.zeros(200, 200)}
    got = means(kind, parameters, {"a": torch.ones(5)}, scale=2.0, lot_size=4.0)
    assert float(got["b"].std()) == pytest.approx(0.5, rel=0.02)
    assert abs(float(got["b"].mean())) < 0.02


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_precision(kind: str, dtype: torch.dtype) -> None:
    parameters = {"a": torch.zeros(300, 300, dtype=dtype)}
    sums = {"a": torch.full((300, 300), 4.0, dtype=dtype)}
    got = means(kind, parameters, sums, scale=3.0, lot_size=2.0)["a"]
    assert got.dtype == dtype
    assert float(got.double().std()) == pytest.approx(1.5, rel=0.01)
    assert float(got.double().mean()) == pytest.approx(2.0, abs=0.03)


@pytest.mark.parametrize("kind", KINDS)
def test_mixed_precisions_do_not_share_noise(kind: str) -> None:
    parameters = {
        "a": torch.zeros(1000), "b": torch.zeros(1000, dtype=torch.float64), "c": torch.zeros(1000)
    }  # fmt: skip
    got = means(kind, parameters, {}, scale=1.0, lot_size=1.0)
    assert set(got) == set(parameters)
    for one, other in (("a", "b"), ("a", "c"), ("b", "c")):
        pair = torch.stack([got[one].double(), got[other].double()])
        assert abs(float(torch.corrcoef(pair)[0, 1])) < 5 / 1000**0.5


@pytest.mark.parametrize("kind", KINDS)
def test_every_call_draws_anew(kind: str) -> None:
    source, parameters = noise(kind), {"a": torch.zeros(50)}
    first, second = (
        means(kind, parameters, {}, scale=1.0, lot_size=1.0, source=source)["a"] for _ in range(2)
    )
    assert not bool((first == second).any())
    assert source.count(3.0, 1e3) != source.count(3.0, 1e3)


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_and_strides_are_the_parameters_own(kind: str) -> None:
    parameters = {"a": torch.zeros(3, 4).t(), "b": torch.zeros(()), "c": torch.zeros(0, 2)}
    sums = {"a": torch.arange(12.0).view(3, 4).t()}
    got = means(kind, parameters, sums, scale=1e-9, lot_size=1.0)
    assert {name: value.shape for name, value in got.items()} == {
        name: value.shape for name, value in parameters.items()
    }
    torch.testing.assert_close(got["a"], sums["a"])


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_without_any_entries(kind: str) -> None:
    got = means(kind, {"a": torch.zeros(0, 3)}, {}, scale=1.0, lot_size=1.0)
    assert got["a"].shape == (0, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_sums_are_left_as_they_were(kind: str) -> None:
    sums = {"a": torch.ones(4, dtype=torch.int64 if kind == "exact" else torch.float32)}
    noise(kind).means({"a": torch.zeros(4)}, sums, clip=1.0, scale=9.0, lot_size=1.0)
    assert sums["a"].tolist() == [1, 1, 1, 1]


# ---- on the grid


@pytest.mark.parametrize("kind", ["secure", "exact"])
def test_an_empty_lot_gets_the_noise_of_any_other(kind: str) -> None:
    """Noise that were widened only where there is a sum would tell an empty lot from one of 1."""
    parameters = {"a": torch.zeros(100), "b": torch.zeros(50)}
    dtype = torch.int64 if kind == "exact" else torch.float32
    of_nothing, of_zeros, of_some = (
        noise(kind).means(parameters, sums, clip=1.0, scale=1.0, lot_size=1.0)
        for sums in ({}, {n: torch.zeros_like(p, dtype=dtype) for n, p in parameters.items()},
                     {"a": torch.zeros(100, dtype=dtype)})
    )  # fmt: skip
    for name in parameters:
        assert torch.equal(of_nothing[name], of_zeros[name])
        assert torch.equal(of_nothing[name], of_some[name])


@pytest.mark.parametrize("kind", ["secure", "exact"])
def test_all_that_is_released_lies_on_the_grid(kind: str) -> None:
    parameters = {"a": torch.zeros(1000, dtype=torch.float64)}
    sums = {"a": torch.linspace(-3.0, 3.0, 1000).double()}
    step = grid_step(1.0, 1000)
    got = means(kind, parameters, sums, scale=1.0, lot_size=4.0)["a"] * 4.0 / step
    assert torch.equal(got, got.round())
    off = means("fast", parameters, sums, scale=1.0, lot_size=4.0)["a"] * 4.0 / step
    assert not torch.equal(off, off.round())


def test_a_shifted_sum_shifts_the_release_by_whole_steps() -> None:
    """Sum and noise are added as integers: the same noise on another sum is the same, shifted."""
    parameters = {"a": torch.zeros(64, dtype=torch.float64)}
    step = grid_step(1.0, 64)
    zero, shifted = (
        noise("exact").means(
            parameters, {"a": torch.full((64,), at)}, clip=1.0, scale=1e5, lot_size=1.0
        )["a"]
        for at in (0, 12345)
    )
    assert torch.equal((shifted - zero) / step, torch.full((64,), 12345.0).double())


def test_secure_noise_is_wider_by_what_rounding_adds_and_exact_noise_is_not() -> None:
    parameters = {"a": torch.zeros(40_000, dtype=torch.float64)}
    sums = {"a": torch.zeros(40_000)}
    secure, exact = (
        means(kind, parameters, sums, scale=1.0, lot_size=1.0)["a"] for kind in ("secure", "exact")
    )
    entries = 40_000
    wide, plain = (noise_in_steps(1.0, 1.0, entries, rounded=one) for one in (True, False))
    assert 1.0 < wide / plain < 1.0005
    assert float(secure.norm() / exact.norm()) == pytest.approx(wide / plain, rel=1e-6)


def test_exact_noise_takes_whole_steps_alone() -> None:
    with pytest.raises(AssertionError):
        noise("exact").means(
            {"a": torch.zeros(3)}, {"a": torch.ones(3)}, clip=1.0, scale=1.0, lot_size=1.0
        )


@pytest.mark.parametrize("kind", ["secure", "exact"])
def test_noise_too_wide_for_the_grid_is_refused(kind: str) -> None:
    with pytest.raises(InvalidArgument, match="noise_multiplier must be below"):
        means(kind, {"a": torch.zeros(9)}, {}, scale=1e12, lot_size=1.0)


@pytest.mark.parametrize("clip", [1e-12, 1e-3, 1e12])
def test_the_grid_follows_the_clip(clip: float) -> None:
    parameters = {"a": torch.zeros(40_000, dtype=torch.float64)}
    got = means("secure", parameters, {}, scale=2.0 * clip, lot_size=1.0, clip=clip)["a"]
    assert float(got.std()) / (2.0 * clip) == pytest.approx(1.0, rel=0.02)


# ---- counts


def test_counts_are_halves_on_a_grid_of_their_own() -> None:
    """The exact law: half of round(N(2·count, (2·scale)²)), by a chi-square test at 1e-6."""
    source, draws, scale = noise("secure"), 4000, 0.8
    found = [2.0 * source.count(1.5, scale) for _ in range(draws)]
    assert all(value == int(value) for value in found)

    def rejects(deviation: float) -> bool:
        edges = [value + 0.5 for value in range(-1, 7)]
        law = stats.norm(3.0, 2.0 * deviation).cdf([-float("inf"), *edges, float("inf")])
        expected = (law[1:] - law[:-1]) * draws
        observed = [0] * len(expected)
        for value in found:
            observed[min(max(int(value), -1), 7) + 1] += 1
        return bool(stats.chisquare(observed, expected).pvalue < 1e-6)

    assert not rejects(scale)
    assert rejects(1.15 * scale)
    assert rejects(0.87 * scale)


def test_fast_counts_are_not_on_a_grid() -> None:
    assert 2.0 * noise("fast").count(1.5, 0.8) % 1.0 != 0.0
