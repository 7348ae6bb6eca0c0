"""Many different steps at once, against the same steps one by one and against equal ones."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tacit.accounting import (
    Composed,
    Event,
    Gaussian,
    PoissonSampled,
    Repeated,
    bounds,
    calibrate,
    delta,
    epsilon,
)
from tacit.accounting.exact import certificate, directions
from tacit.accounting.exact.schedule import _less_one

if TYPE_CHECKING:
    from tacit.accounting.events import Neighbours


def schedule(rates: list[float], sigmas: list[float]) -> Event:
    return Composed(
        *(PoissonSampled(q, Gaussian(sigma)) for q, sigma in zip(rates, sigmas, strict=True))
    )


@pytest.mark.parametrize(("rate", "sigma", "target"), [(0.01, 1.0, 1e-5), (0.05, 2.0, 1e-6)])
def test_steps_that_hardly_differ_cost_what_equal_ones_do(
    rate: float, sigma: float, target: float
) -> None:
    count = 300
    found = bounds(schedule([rate] * count, (sigma + 1e-12 * np.arange(count)).tolist()), target)
    same = bounds(Repeated(PoissonSampled(rate, Gaussian(sigma)), count), target)
    assert found.width <= 1e-8 * max(1.0, found.upper)
    assert found.lower - 1e-9 <= same.upper
    assert same.lower <= found.upper + 1e-9


@pytest.mark.slow
def test_one_by_one_the_answer_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(11)
    rates = random.uniform(0.002, 0.03, 220).tolist()
    sigmas = random.uniform(0.9, 3.0, 220).tolist()
    event = schedule(rates, sigmas)
    together, there = bounds(event, 1e-6), delta(event, 0.5)
    monkeypatch.setattr(certificate, "_epsilon_together", lambda *_: None)
    monkeypatch.setattr(directions, "_together", lambda _: None)
    apart = bounds(event, 1e-6)
    assert max(together.lower, apart.lower) <= min(together.upper, apart.upper)
    assert together.width < 1e-8
    assert there == pytest.approx(delta(event, 0.5), rel=1e-6)


@pytest.mark.parametrize("neighbours", ["add-remove", "add-only", "remove-only", "zero-out"])
def test_without_pairs_the_answer_is_the_same(
    neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that are composed at once, and the pairs of each that are put together later."""
    phases = [(0.005 + 0.0002 * k, 2.0 + 0.03 * k, 50 + k) for k in range(30)]
    steps = [Repeated(PoissonSampled(q, Gaussian(s)), times) for q, s, times in phases]
    event, made, pairs = Composed(*steps), [], certificate.decompose

    def noted(*some: Any) -> certificate.Decomposition:
        made.append(some)
        return pairs(*some)

    monkeypatch.setattr(certificate, "decompose", noted)
    found = bounds(event, 1e-6, neighbours)
    assert found.two_sided
    assert not made
    monkeypatch.setattr(certificate, "_epsilon_together", lambda *_: None)
    assert bounds(event, 1e-6, neighbours) == found
    assert made


def test_replaced_records_are_not_mistaken_for_added_ones() -> None:
    event = schedule([0.02] * 90, np.linspace(1.0, 2.0, 90).tolist())
    assert bounds(event, 1e-6, "replace-one").lower > bounds(event, 1e-6).upper


def test_ten_thousand_different_steps() -> None:
    sigmas = np.linspace(1.0, 2.0, 10_000, endpoint=False).tolist()
    event = schedule([0.01] * 10_000, sigmas)
    start = time.process_time()
    found = bounds(event, 1e-5)
    spent = time.process_time() - start
    assert found.lower <= 3.6097866787 <= found.upper  # one by one: 3.60978667873 ± 5e-12
    assert found.width <= 1e-8 * found.upper
    assert spent < 2.0  # 14 s one by one, 0.25 on an idle machine


def test_a_schedule_of_noise_and_clip_is_calibrated() -> None:
    """Noise of one size, and a clip that falls: σ is the noise over the clip of that step."""
    clips = np.linspace(2.0, 1.0, 210)

    def event(noise: float) -> Event:
        return schedule([0.02] * len(clips), (noise / clips).tolist())

    noise = calibrate(event, 2.0, 1e-5)
    assert epsilon(event(noise), 1e-5) <= 2.0
    assert epsilon(event(0.999 * noise), 1e-5) > 2.0


@pytest.mark.parametrize("size", [2, 7, 41])
def test_sums_at_all_frequencies_keep_the_digits_of_what_is_nearly_nothing(size: int) -> None:
    random = np.random.default_rng(3)
    mass = random.random((3, 20))
    mass /= mass.sum(axis=1, keepdims=True)
    spread = random.normal(0.0, 1e-6, (3, 20))
    spread[0] *= 1e6
    found = _less_one(mass, spread, 0.3, size, np.empty(1000, np.complex128))
    turned = 0.3 * np.arange(size)[:, None, None] * spread
    # e^{ix} - 1 = 2i·sin(x/2)·e^{ix/2}
    true = (mass * 2j * np.sin(0.5 * turned) * np.exp(0.5j * turned)).sum(axis=2).T
    sizes = (mass * np.abs(turned)).sum(axis=2).T
    assert found.shape == (3, size)
    assert (np.abs(found - true) <= 1e-14 * sizes).all()
