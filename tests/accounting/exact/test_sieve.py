"""Nodes that are left out do not matter: bounds against the transform itself, node by node."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tacit.accounting import DiscreteGaussian
from tacit.accounting.exact.atoms import sampled_atoms, tilt_atoms
from tacit.accounting.exact.lattice import LatticeLoss
from tacit.accounting.exact.pairs import base_pair
from tacit.accounting.exact.sampled_laplace import SampledLaplaceLoss
from tacit.accounting.exact.sieve import Weights, core_of, first_nodes, stride, survivors

if TYPE_CHECKING:
    from tacit.accounting.exact.atoms import TiltedAtoms
    from tacit.accounting.exact.transforms import Floats


def tilted(sigma: float, rate: float, tilt: float, *, reverse: bool = False) -> TiltedAtoms:
    base = base_pair(DiscreteGaussian(sigma), 1.0)
    assert base is not None
    assert isinstance(base.loss, LatticeLoss)
    loss = sampled_atoms(base.loss, rate, reverse=reverse)
    assert loss is not None
    return tilt_atoms(loss.trimmed(1e-25), tilt)


def log_modulus(law: TiltedAtoms, frequencies: Floats) -> Floats:
    """Ln |φ| by a plain sum over all atoms."""
    turns = np.exp(1j * np.multiply.outer(frequencies, law.spread))
    found: Floats = np.log(np.abs((turns * law.mass).sum(axis=1)))
    return found


@pytest.mark.parametrize(
    ("sigma", "rate", "tilt", "count"),
    [
        (0.8, 1e-4, 12.0, 10_000),
        (1.0, 0.01, 4.0, 1000),
        (0.5, 0.1, 0.5, 100),
        (20.0, 0.1, 90.0, 99),
    ],
)
def test_one_look_serves_its_neighbourhood(
    sigma: float, rate: float, tilt: float, count: int
) -> None:
    law = tilted(sigma, rate, tilt)
    core, draw = core_of(law, count), np.random.default_rng(3)
    half = 0.15 / core.law.deviation
    centres = draw.uniform(0.0, 200.0 / core.law.deviation, 300)
    places = centres + half * draw.uniform(-1.0, 1.0, 300)
    truth = count * log_modulus(law, places)
    assert (truth <= core.log_size(centres, half, evenly=False) + 1e-9).all()
    # One with half of the deviation says too much: the test can tell.
    wrong = replace(core, law=replace(core.law, deviation=0.3 * core.law.deviation))
    near = np.linspace(0.0, half, 20)
    said = wrong.log_size(np.full(20, half), half, evenly=False)
    assert (count * log_modulus(law, near) > said).any()


@pytest.mark.parametrize(
    ("sigma", "rate", "tilt", "count", "step"),
    [(0.8, 1e-3, 7.0, 3000, 3.0), (1.0, 0.1, 3.0, 300, 0.1), (4.0, 0.01, 60.0, 1000, 8.0)],
)
def test_what_is_sieved_out_adds_no_more_than_is_said(
    sigma: float, rate: float, tilt: float, count: int, step: float
) -> None:
    law, nodes = tilted(sigma, rate, tilt), 20_000
    cores = [core_of(law, count)]
    width = stride(cores, step)
    assert width >= 3
    weights = Weights(tilt, step, 1e-9, -45.0, -25.0)
    left = survivors(cores, nodes, width, weights)
    assert left is not None
    assert len(left.index) < 0.5 * nodes  # else it spares nothing
    gone = np.setdiff1d(np.arange(nodes), left.index)
    frequencies = step * gone
    size = np.exp(count * log_modulus(law, frequencies))
    assert float((size * weights.value(frequencies)).sum()) <= left.value <= 1.001 * math.exp(-45)
    assert float(size.sum()) * step / math.pi <= left.density
    assert left.index[0] == 0


def test_no_look_is_worth_it_where_nothing_fades() -> None:
    assert stride([core_of(tilted(0.3, 1e-4, 0.5), 100)], 1e-6) == 1  # one atom has nearly all
    assert stride([core_of(tilted(1.0, 0.1, 0.5), 10)], 1e-6) == 1  # too few steps
    assert stride([], 1.0) == 1


def test_the_first_nodes_are_enough_where_a_transform_fades() -> None:
    law = SampledLaplaceLoss(1.0, 0.1).tilted(5.0, 0.0, 30.0, None)  # type: ignore[arg-type]
    count, weights = 400, Weights(5.0, 0.5, 1e-9, -60.0, -40.0)
    left = first_nodes(100_000, weights, lambda u: count * law.log_decay(u, True))
    assert 10 < len(left.index) < 50_000
    sharp = SampledLaplaceLoss(1.0, 0.1).tilted(5.0, 2e4, 30.0, None)  # type: ignore[arg-type]
    frequencies = 0.5 * np.arange(len(left.index), len(left.index) + 20_000)
    real, imaginary = sharp.ratio_at(frequencies)
    size = np.hypot(1.0 + real, imaginary) ** count
    assert float((size * weights.value(frequencies)).sum()) <= left.value
    assert float(size.sum()) * 0.5 / math.pi <= left.density
