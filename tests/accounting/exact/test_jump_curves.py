"""The bounds behind rare sampling: each against the thing it bounds, in high precision."""

from __future__ import annotations

import math
from functools import cache

import mpmath as mp
import numpy as np
import pytest
from scipy.special import erfc

from tacit.accounting.exact import jump_curves
from tacit.accounting.exact.jump_curves import Curves, Cut, Part, Step

_RISES = np.array([-60.0, -2.0, 1.0, 4.0, 9.0]), np.array([1.0, 1.0, 0.6, 0.2, 0.05])


@cache
def _moments(step: Step, cut: Cut, power: complex) -> tuple[mp.mpc, mp.mpc]:
    """∫χe^{pλ} and ∫(1 - χ)e^{pλ} times the density, along the real line."""
    odds, variance, p = mp.mpf(step.odds), mp.mpf(step.variance), mp.mpc(power)

    def parts(y: mp.mpf) -> tuple[mp.mpc, mp.mpf]:
        loss = mp.log1p(odds * mp.exp(y))
        away = mp.log(loss / cut.loss)
        place = mp.sqrt(cut.sharpness * (mp.expm1(away) - away)) * mp.sign(away)
        density = mp.exp(-variance / 2 * (y + 1 / (2 * variance)) ** 2)
        return density * mp.sqrt(variance / (2 * mp.pi)) * mp.exp(p * loss), place

    def below(y: mp.mpf) -> mp.mpc:
        whole, place = parts(y)
        return whole * mp.erfc(place) / 2

    def above(y: mp.mpf) -> mp.mpc:
        whole, place = parts(y)
        return whole * mp.erfc(-place) / 2

    edge = step.place(cut.loss)
    ends = mp.linspace(-0.5 / step.variance - 9 / step.sigma, edge, 6)
    ends += [edge + 1, edge + 3, edge + 6, edge + 6 + 9 / step.sigma, edge + 9 + 24 / step.sigma]
    with mp.workdps(22):
        return mp.quad(below, ends, maxdegree=6), mp.quad(above, ends, maxdegree=6)


@pytest.mark.parametrize("part", ["ordinary", "jumps"])
@pytest.mark.parametrize(
    ("step", "cut", "power"),
    [
        (Step(1e-3, 0.8, 10), Cut(0.37, 24.0), 9.0 + 14.0j),
        (Step(1e-4, 2.0, 1000), Cut(1e-3, 60.0), 30.0 + 25.0j),
    ],
)
@pytest.mark.parametrize("digits", [7.0, 31.0])
def test_sums_leave_out_no_more_than_their_bounds(
    step: Step,
    cut: Cut,
    power: complex,
    part: Part,
    digits: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Along every curve that serves p, however coarse; coarse ones err by more than rounding."""
    monkeypatch.setattr(jump_curves, "DIGITS", digits)
    monkeypatch.setattr(jump_curves, "_NODES", 1)
    high = step.place(cut.loss * math.exp(cut.fade)) if part == "ordinary" else step.knee + 14.0
    with np.errstate(all="ignore"):
        span = (-0.5 / step.variance - 8.0 / step.sigma, high)
        curves = Curves(step, cut, _RISES, span, part)
        indices = range(len(_RISES[0]))
        found = [curves.sums(np.array([power]), index) for index in indices]
        sizes = curves.log_sizes(np.full((len(found), 1), power), np.array(indices))
    below, above = _moments(step, cut, power)
    whole = below if part == "ordinary" else below + above
    seen, coarse = 0, False
    for index, sums in zip(indices, found, strict=True):
        most = float(sums.error[0] + sizes.missed[index])
        if not math.isfinite(most):
            continue
        seen += 1
        off = float(abs(mp.mpc(complex(sums.deviation[0])) - (whole - 1)))
        assert off <= most
        assert math.log(float(abs(whole))) <= sizes.log_whole[index, 0]
        if part == "jumps":
            missed = float(sums.jumps_error[0] + sizes.jumps_missed[index])
            assert float(abs(mp.mpc(complex(sums.jumps[0])) - above)) <= missed
            assert math.log(float(abs(above))) <= sizes.log_jumps[index, 0]
        coarse |= off > 10.0 * float(sums.error[0])
    assert seen >= 2
    assert coarse or digits > 20.0


def test_cells_bound_the_cut_function_throughout() -> None:
    """|χ| and |1 - χ| of losses drawn within cells, for sharp and for blunt cuts."""
    random = np.random.default_rng(5)
    for sharpness in (24.0, 300.0):
        cut = Cut(0.01, sharpness)
        size = np.exp(random.uniform(-3.0, 3.0, 300)) * cut.loss
        loss = size * np.exp(1j * random.uniform(0.0, 1.4, 300))
        pull = 0.5 / math.sqrt(sharpness) * loss * np.exp(1j * random.uniform(-0.5, 0.5, 300))
        bend = 0.01 * np.abs(loss)
        chi, rest = cut.bounds(loss, pull, bend)
        for _ in range(40):
            along = random.uniform(-1.0, 1.0, 300) * pull
            off = bend * np.exp(2j * np.pi * random.uniform(size=300))
            found = cut.shares(loss + along + off)
            assert (np.abs(found[0]) <= chi + found[2]).all()
            assert (np.abs(found[1]) <= rest + found[2]).all()
        assert np.median(chi / np.maximum(np.abs(cut.shares(loss)[0]), 1e-9)) < 50.0


def test_curves_bend_no_more_than_is_claimed() -> None:
    """|y''| in the strip, by differences of y'."""
    random, step = np.random.default_rng(7), Step(1e-5, 1.0, 1)
    starts, tops = random.uniform(-20.0, step.knee + 8.0, 60), random.uniform(0.02, 1.0, 60)
    tops[:30], starts[0] = 1.0, -60.0
    s = random.uniform(-25.0, step.knee + 30.0, 4000) + 1j * random.uniform(-0.349, 0.349, 4000)
    near, far = np.asarray(s, dtype=np.complex128), np.asarray(s + 1e-4, dtype=np.complex128)
    turns = [jump_curves._rising(place, step, starts, tops)[1] for place in (near, far)]
    bent = np.abs(turns[0] - turns[1]) / 1e-4
    assert 0.2 < bent.max() <= jump_curves._CURVATURE


def test_the_error_function_is_as_accurate_as_is_assumed() -> None:
    """SciPy's complex erfc, on both sides of its zeros."""
    random = np.random.default_rng(3)
    places = random.uniform(-7.0, 7.0, 400) + 1j * random.uniform(-7.0, 7.0, 400)
    with mp.workdps(30):
        for place, found in zip(places, erfc(places), strict=True):
            x = mp.mpc(complex(place))
            scale = abs(mp.exp(-x * x)) + (1 if place.real < 0.0 else 0)
            assert abs(mp.mpc(complex(found)) - mp.erfc(x)) <= jump_curves._ERFC_ERROR * scale


def test_exponentials_are_right_to_four_roundings() -> None:
    rng = np.random.default_rng(5)
    turns = np.concatenate([rng.normal(0.0, 10.0**k, 60) for k in range(-3, 7)])
    turns = np.concatenate([turns, np.pi * np.arange(-30, 30), np.pi * (np.arange(-30, 30) + 0.5)])
    x = rng.normal(0.0, 3.0, len(turns)) + 1j * turns
    found = jump_curves._exp(x)
    with mp.workdps(30):
        for one, value in zip(x.tolist(), found.tolist(), strict=True):
            true = mp.exp(mp.mpc(one))
            assert abs(mp.mpc(value) - true) <= 4.0 * 2.0**-53 * abs(true)
        small = x / np.abs(x) * 10.0 ** rng.uniform(-12.0, 0.0, len(x))
        for one, value in zip(small.tolist(), jump_curves._expm1(small).tolist(), strict=True):
            assert abs(mp.mpc(value) - mp.expm1(one)) <= 8.0 * 2.0**-53 * abs(one)
