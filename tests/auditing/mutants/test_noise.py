"""Each bug of the noise is there: shown on losses of zero, where noise is all that is released."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from tacit.training.noise import grid_step
from tacit.training.styles import AdaptiveQuantile

from .watching import noise, noise_multipliers, of_everybody, run, shows, silent, with_plan

if TYPE_CHECKING:
    from .mutant import Mutant


def _ratio(mutant: Mutant) -> torch.Tensor:
    """The mutant's noise over the healthy one, from the same seed: (steps, entries)."""
    setting = mutant.setting()
    healthy = noise(setting)
    with mutant.patch():
        return noise(setting) / healthy


def _nothing(mutant: Mutant) -> dict[str, torch.Tensor]:
    with mutant.patch():
        return run(silent(mutant.setting()), steps=1).released[0]


@shows("noise scale")
def test_noise_is_too_small(mutant: Mutant) -> None:
    ratio = _ratio(mutant)
    assert torch.allclose(ratio, torch.full_like(ratio, 0.95), rtol=1e-5)


@shows("noise by batches")
def test_noise_is_divided_by_the_batches(mutant: Mutant) -> None:
    ratio = _ratio(mutant)[:, 0]
    shares = 1.0 / ratio
    assert torch.allclose(shares, shares.round(), rtol=1e-5)
    assert shares.max() >= 3.0


@shows("noise of a mean")
def test_noise_is_divided_by_the_root_of_the_lot(mutant: Mutant) -> None:
    ratio = _ratio(mutant)
    expected = 1.0 / math.sqrt(mutant.setting().plan.lot_size)
    assert torch.allclose(ratio, torch.full_like(ratio, expected), rtol=1e-5)


@shows("no noise beside a frozen layer")
def test_the_last_parameter_is_exact(mutant: Mutant) -> None:
    released = _nothing(mutant)
    assert list(released) == ["2.weight", "2.bias"]
    assert (released["2.bias"] == 0).all()
    assert (released["2.weight"] != 0).all()


@shows("no noise on a tied weight")
def test_the_table_is_exact(mutant: Mutant) -> None:
    released = _nothing(mutant)
    assert (released["table.weight"] == 0).all()
    assert (released["head.bias"] != 0).all()


@shows("no noise on a buffer")
def test_the_buffer_is_the_mean_of_the_data(mutant: Mutant) -> None:
    setting = of_everybody(mutant.setting())
    with mutant.patch():
        seen = run(setting, steps=1)
    exact = 0.1 * setting.dataset.tensors[0].mean(0)  # type: ignore[attr-defined]
    assert torch.allclose(seen.buffers[0]["mean"], exact, atol=1e-6)


@shows("no noise on untouched rows")
def test_words_that_nobody_used_show(mutant: Mutant) -> None:
    setting = with_plan(mutant.setting(), lot_size=2)
    words = setting.dataset.tensors[0]  # type: ignore[attr-defined]
    with mutant.patch():
        seen = run(setting, unsafe_seed=1)
    for lot, released in list(zip(seen.lots, seen.released, strict=True))[1:]:
        used = set(words[lot].flatten().tolist())
        shown = set(released["table.weight"].any(1).nonzero().flatten().tolist())
        assert shown == used


@shows("noise reused across steps")
def test_every_step_has_the_same_noise(mutant: Mutant) -> None:
    with mutant.patch():
        rows = noise(mutant.setting(), seed=None)
    assert torch.allclose(rows, rows[:1].expand_as(rows), rtol=1e-5)


@shows("noise reused across parameters")
def test_a_bias_has_the_noise_of_a_weight(mutant: Mutant) -> None:
    released = _nothing(mutant)
    assert torch.equal(released["0.bias"], released["0.weight"].flatten()[:6])


@shows("fixed seed")
def test_every_run_is_the_same(mutant: Mutant) -> None:
    with mutant.patch():
        one, other = (run(mutant.setting()) for _ in range(2))
    assert one.lots == other.lots
    assert all(torch.equal(a, b) for a, b in zip(one.sums(), other.sums(), strict=True))


@shows("shared stream")
def test_the_noise_tells_who_was_drawn(mutant: Mutant) -> None:
    setting = mutant.setting()
    with mutant.patch():
        seen = run(silent(setting))
    limit = float(torch.special.ndtri(torch.tensor(setting.plan.sample_rate)))
    for lot, total in list(zip(seen.lots, seen.sums(), strict=True))[1:]:
        found = (total / setting.plan.noise_scale < limit).nonzero().flatten().tolist()
        assert found == [record for record in sorted(set(lot)) if record < len(total)]


@shows("noise after momentum")
def test_the_optimizer_is_given_exact_gradients(mutant: Mutant) -> None:
    setting = of_everybody(mutant.setting())
    with mutant.patch():
        one, other = (run(setting, steps=1) for _ in range(2))
    assert torch.equal(one.sums()[0], other.sums()[0])
    assert not torch.equal(one.weights[0]["weight"], other.weights[0]["weight"])


@shows("float holes on the grid")
def test_released_sums_are_on_no_grid(mutant: Mutant) -> None:
    setting = with_plan(mutant.setting(), lot_size=16)  # a power of two: nothing is rounded
    entries = sum(p.numel() for p in setting.model().parameters())

    def steps() -> torch.Tensor:
        return torch.cat(run(setting).sums()) / grid_step(setting.plan.clip, entries)

    with mutant.patch():
        assert not torch.equal(steps(), steps().round())
    healthy = steps()
    assert torch.equal(healthy, healthy.round())


@shows("float holes")
def test_noise_has_few_different_values(mutant: Mutant) -> None:
    setting = with_plan(mutant.setting(), steps=100, lot_size=16)
    with mutant.patch():
        rough = noise(setting).float()
    assert torch.equal(rough, rough.half().float())
    fine = noise(setting).float()
    assert not torch.equal(fine, fine.half().float())


@shows("noise for the next clip")
def test_noise_fits_another_clip_than_the_sums(mutant: Mutant) -> None:
    style = AdaptiveQuantile(count_noise=1e-6, quantile=0.1, learning_rate=0.5)
    setting = with_plan(of_everybody(mutant.setting()), clipping=style, clip=2.5)
    sigma = setting.plan.noise_multiplier
    assert min(noise_multipliers(setting)) >= sigma
    with mutant.patch():
        assert min(noise_multipliers(setting)) < 0.95 * sigma
