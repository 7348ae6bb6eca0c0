"""What is released: sum and noise, divided by the lot size, in the parameter's precision."""

from __future__ import annotations

import pytest
import torch

from tacit.randomness import GaussianSource, UnsafeSeededStream
from tacit.training.noise import noisy_means

CPU = torch.device("cpu")


def source(seed: int = 0) -> GaussianSource:
    return GaussianSource(CPU, UnsafeSeededStream(seed, "noise"))


def test_the_sum_and_the_noise_are_both_divided() -> None:
    parameters = {"a": torch.zeros(300, 300), "b": torch.zeros(7)}
    sums = {"a": torch.full((300, 300), 50.0), "b": torch.arange(7.0)}
    got = noisy_means(parameters, sums, source(), scale=3.0, lot_size=10.0)
    assert float(got["a"].mean()) == pytest.approx(5.0, abs=0.005)
    assert float(got["a"].std()) == pytest.approx(0.3, rel=0.01)
    quiet = noisy_means(parameters, sums, source(), scale=1e-9, lot_size=10.0)
    torch.testing.assert_close(quiet["b"], torch.arange(7.0) / 10)


def test_a_parameter_without_a_sum_is_noised_all_the_same() -> None:
    parameters = {"a": torch.zeros(5), "b": torch.zeros(200, 200)}
    got = noisy_means(parameters, {"a": torch.ones(5)}, source(), scale=2.0, lot_size=4.0)
    assert float(got["b"].std()) == pytest.approx(0.5, rel=0.02)
    assert abs(float(got["b"].mean())) < 0.02


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_precision(dtype: torch.dtype) -> None:
    parameters = {"a": torch.zeros(300, 300, dtype=dtype)}
    got = noisy_means(parameters, {}, source(), scale=3.0, lot_size=2.0)["a"]
    assert got.dtype == dtype
    assert float(got.double().std()) == pytest.approx(1.5, rel=0.01)


def test_mixed_precisions_do_not_share_noise() -> None:
    parameters = {
        "a": torch.zeros(1000), "b": torch.zeros(1000, dtype=torch.float64), "c": torch.zeros(1000)
    }  # fmt: skip
    got = noisy_means(parameters, {}, source(), scale=1.0, lot_size=1.0)
    assert list(got) == ["a", "c", "b"] or set(got) == set(parameters)
    for one, other in (("a", "b"), ("a", "c"), ("b", "c")):
        pair = torch.stack([got[one].double(), got[other].double()])
        assert abs(float(torch.corrcoef(pair)[0, 1])) < 5 / 1000**0.5


def test_every_call_draws_anew() -> None:
    one = source()
    parameters = {"a": torch.zeros(50)}
    first, second = (
        noisy_means(parameters, {}, one, scale=1.0, lot_size=1.0)["a"] for _ in range(2)
    )
    assert not bool((first == second).any())


def test_shapes_and_strides_are_the_parameters_own() -> None:
    parameters = {"a": torch.zeros(3, 4).t(), "b": torch.zeros(()), "c": torch.zeros(0, 2)}
    sums = {"a": torch.arange(12.0).view(4, 3)}
    got = noisy_means(parameters, sums, source(), scale=1e-9, lot_size=1.0)
    assert {name: value.shape for name, value in got.items()} == {
        name: value.shape for name, value in parameters.items()
    }
    torch.testing.assert_close(got["a"], sums["a"])
