"""The noise of a session: its size, its independence, and that nothing but itself decides it."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import tacit
from tacit.training.noise import grid_step, noise_in_steps

from .sessions import Grads, cross_entropy, data, drawn, network, plan, session, sgd, whole_lot

KINDS = ("fast", "secure", "exact")
WIDE = 1000  # a layer of 10^6 weights
SIGMA, CLIP, LOT = 1.5, 2.0, 1e-6  # a lot of which nearly every draw is empty


def empty_steps(model: nn.Module, steps: int, **changed: Any) -> list[dict[str, Tensor]]:
    """What the optimizer gets in steps on empty lots, times the lot size: noise alone."""
    optimizer = sgd(model, lr=1e-12)
    grads = Grads(model, optimizer)
    chosen = plan(
        **{"examples": 3, "lot_size": LOT, "noise_multiplier": SIGMA, "clip": CLIP, "steps": steps}
        | changed
    )
    with tacit.private(model, optimizer, chosen, TensorDataset(torch.zeros(3, 1))) as dp:
        for lot in dp.lots():
            assert len(drawn(lot)) == 0
            assert lot.is_done
            dp.step()
        assert dp.steps_taken == steps
    return [{name: value * LOT for name, value in one.items()} for one in grads.steps]


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def million(kind: str) -> Any:
    return empty_steps(nn.Linear(WIDE, WIDE), 2, noise=kind)


def rejects(noise: Tensor, scale: float) -> bool:
    """Whether a chi-square test at 1e-6 rejects that the noise's standard deviation is this."""
    count = noise.numel()
    statistic = float((noise.double() / scale).square().sum())
    lower, upper = (stats.chi2.ppf(p, count) for p in (5e-7, 1 - 5e-7))
    return not lower < statistic < upper


def test_empty_lots_cost_a_step_and_noise_every_parameter(kind: str, million: Any) -> None:
    for step in million:
        assert step.keys() == {"weight", "bias"}
        # Whole steps are 0 now and then: of millions of values of a step, one in as many.
        for value in step.values():
            assert int((value == 0).sum()) <= (0 if kind == "fast" else 20)


def test_the_standard_deviation_is_sigma_times_clip(kind: str, million: Any) -> None:
    noise = million[0]["weight"]
    scale = SIGMA * CLIP
    assert abs(float(noise.double().std()) / scale - 1) < 0.01
    assert not rejects(noise, drawn_at(kind))
    assert rejects(noise, 0.97 * scale)
    assert rejects(noise, 1.03 * scale)
    assert rejects(noise, 0.99 * scale)


def drawn_at(kind: str) -> float:
    """σ·clip, with the 0.05 % that rounding the sum adds to it."""
    entries = WIDE * WIDE + WIDE
    in_steps = noise_in_steps(SIGMA * CLIP, CLIP, entries, rounded=True)
    return in_steps * grid_step(CLIP, entries) if kind == "secure" else SIGMA * CLIP


@pytest.mark.parametrize(
    ("every", "more"), [(4, 1.03), pytest.param(1, 1.02, marks=pytest.mark.slow)]
)
def test_the_noise_is_normal(every: int, more: float, million: Any) -> None:
    """A quarter of a million numbers tell noise by 3 % wider, all of them by 2 %."""
    noise = million[0]["weight"].flatten()[::every].double().numpy() / (SIGMA * CLIP)
    assert stats.kstest(noise, "norm").pvalue > 1e-6
    assert stats.kstest(noise * more, "norm").pvalue < 1e-6
    assert np.abs(noise).max() > 4.2  # the tails are there


def correlation(one: Tensor, other: Tensor) -> float:
    """In standard deviations of what independent numbers would show."""
    pair = np.corrcoef(one.double().flatten().numpy(), other.double().flatten().numpy())
    return abs(float(pair[0, 1])) * math.sqrt(one.numel())


def test_no_correlation_between_steps_and_parameters(million: Any) -> None:
    first, second = million
    assert correlation(first["weight"], second["weight"]) < 5
    assert correlation(first["weight"][0], first["bias"]) < 5
    assert correlation(first["weight"][:500], first["weight"][500:]) < 5
    assert correlation(first["weight"], first["weight"].roll(1)) < 5
    assert correlation(first["weight"], first["weight"] + second["weight"]) > 5  # it can fail


def test_parameters_that_the_lot_does_not_touch_are_noised() -> None:
    """An embedding row that no example uses must not stay still: that would tell who was there."""

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(50, 4)
            self.head = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.table(x))
            return out

    model = Words()
    optimizer = sgd(model)
    grads = Grads(model, optimizer)
    dataset = TensorDataset(torch.arange(8) % 5, torch.arange(8) % 3)
    chosen = plan(examples=8, lot_size=8, steps=1, noise_multiplier=1.0)
    with tacit.private(model, optimizer, chosen, dataset) as dp:
        whole_lot(dp, next(dp.lots()), cross_entropy(model))
    assert bool((grads.steps[0]["table.weight"] != 0).all())


def one_run(
    seed: int | None = None, *, kind: str = "fast", reseed: bool = False, steps: int = 3
) -> list[Tensor]:
    model = network()
    optimizer = sgd(model)
    grads = Grads(model, optimizer)
    chosen = plan(noise_multiplier=1.0, steps=steps, noise=kind)
    torch.manual_seed(0)
    with session(model, optimizer=optimizer, plan=chosen, unsafe_seed=seed) as dp:
        for lot in dp.lots():
            if reseed:
                torch.manual_seed(0)
                np.random.seed(0)  # noqa: NPY002 - the generator that people seed
            whole_lot(dp, lot, cross_entropy(model))
    return [torch.cat([g.flatten() for g in step.values()]) for step in grads.steps]


def test_manual_seed_has_no_say(kind: str) -> None:
    """PEERS 9: seeding torch before every step must not repeat noise, within or across runs."""
    one, other = one_run(kind=kind, reseed=True), one_run(kind=kind, reseed=True)
    everything = [*one, *other]
    for at, first in enumerate(everything):
        for second in everything[at + 1 :]:
            assert not torch.equal(first, second)
            assert float((first - second).abs().max()) > 0.01


def test_the_session_does_not_disturb_torchs_own_generator() -> None:
    model = nn.Linear(2, 2)
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    empty_steps(model, 3)
    assert torch.equal(torch.rand(3), expected)


def test_an_unsafe_seed_reproduces_and_says_so(kind: str) -> None:
    one, again, other = (one_run(seed, kind=kind) for seed in (5, 5, 6))
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    noisy = plan(noise_multiplier=1.0, noise=kind)
    with session(plan=noisy, unsafe_seed=5) as dp:
        pass
    assert dp.statement(1e-5).void
    assert any("VOIDS THE GUARANTEE" in text for text in dp.statement(1e-5).assumptions)
    assert "VOIDS THE GUARANTEE" in dp.statement(1e-5).describe()
    with session(plan=noisy) as dp:
        pass
    assert not any("VOID" in text for text in dp.statement(1e-5).assumptions)


def test_half_precision_parameters_get_their_noise_before_rounding() -> None:
    (step,) = empty_steps(nn.Linear(400, 400).to(torch.bfloat16), 1)
    assert step["weight"].dtype == torch.bfloat16
    spread = float((step["weight"].double()).std())
    assert spread == pytest.approx(SIGMA * CLIP, rel=0.02)


def test_double_parameters_get_double_noise() -> None:
    (step,) = empty_steps(nn.Linear(300, 300).double(), 1)
    values = step["weight"] / LOT
    assert values.dtype == torch.float64
    assert not torch.equal(values, values.float().double())
    assert float(step["weight"].std()) == pytest.approx(SIGMA * CLIP, rel=0.02)


def test_many_parameters_do_not_share_noise() -> None:
    model = nn.Sequential(*[nn.Linear(40, 40, bias=False) for _ in range(4)])
    (step,) = empty_steps(model, 1)
    values = list(step.values())
    for at, one in enumerate(values):
        for other in values[at + 1 :]:
            assert correlation(one, other) < 5


def test_noise_covers_data_sets_of_any_kind() -> None:
    """The doctest's shape: few steps, all parameters move in each."""
    model = network()
    before = [p.detach().clone() for p in model.parameters()]
    with session(model, plan=plan(lot_size=1e-6, noise_multiplier=1.0), dataset=data()) as dp:
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(model))
    assert all(bool((p != b).all()) for p, b in zip(model.parameters(), before, strict=True))


def masked_sum(rows: Any, **changed: Any) -> Tensor:
    """The sum of a lot of all rows, in clips, by a model with dropout; torch was seeded with 0."""
    model = nn.Sequential(nn.Dropout(0.5), network())
    grads = Grads(model, optimizer := sgd(model))
    whole = plan(examples=len(rows), lot_size=len(rows), steps=1, clip=0.1)
    torch.manual_seed(0)  # known to everybody, as the seeds of trainers are
    with tacit.private(model, optimizer, whole, rows, **changed) as dp:
        for lot in dp.lots():
            torch.manual_seed(0)  # and a loop that seeds, too
            whole_lot(dp, lot, cross_entropy(model))
    return torch.cat([g.flatten() for g in grads.steps[0].values()]) * len(rows) / 0.1


def test_masks_of_a_known_seed_do_not_tie_rows_together() -> None:
    """With them, one record less moves the sum by more than a clip: the others have other masks."""
    rows = data(200)
    fewer = TensorDataset(*(one[1:] for one in rows.tensors))
    known = [float(torch.dist(masked_sum(rows, unsafe_seed=1), masked_sum(one, unsafe_seed=1)))
             for one in (rows, fewer)]  # fmt: skip
    assert known[0] == pytest.approx(0.0, abs=1e-3)
    assert known[1] > 2.0
    assert float(torch.dist(masked_sum(rows), masked_sum(rows))) > 2.0  # as with other rows


class SeededByRow(Dataset[Any]):
    """Seeds with the number of a row before reading it, as for augmentations that are repeated."""

    def __init__(self, rows: TensorDataset) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: int) -> Any:
        torch.manual_seed(at)
        random.seed(at)
        np.random.seed(at)  # noqa: NPY002 - the generator that people seed
        return self._rows[at]


def test_a_data_set_that_seeds_does_not_decide_the_masks() -> None:
    rows = SeededByRow(data(200))
    assert float(torch.dist(masked_sum(rows), masked_sum(rows))) > 2.0


def test_what_is_drawn_after_a_data_set_has_seeded_is_secret() -> None:
    seen: list[tuple[float, ...]] = []
    for _ in range(2):
        with session(dataset=SeededByRow(data()), plan=plan(steps=1)) as dp:
            for lot in dp.lots():
                for batch in lot:
                    if not lot.is_rehearsal:
                        drawn_here = random.random(), np.random.rand()  # noqa: NPY002
                        seen.append((float(torch.rand(())), *map(float, drawn_here)))
                    dp.backward(cross_entropy(dp.model)(batch))
                dp.step()
    assert all(len({*each}) == len(seen) > 1 for each in zip(*seen, strict=True))


@pytest.mark.parametrize("alone", [None, 0, 1, 2], ids=["all", "torch", "python", "numpy"])
def test_what_a_loop_draws_comes_from_secret_seeds(alone: int | None) -> None:
    def draws() -> tuple[float, float, float]:
        return float(torch.rand(())), random.random(), float(np.random.rand())  # noqa: NPY002

    def seed(which: int | None = None) -> None:
        seeds = (torch.manual_seed, random.seed, np.random.seed)
        for one in seeds if which is None else (seeds[which],):
            one(0)

    seed()
    outside, runs = draws(), []
    for _ in range(2):
        seed()
        seen = {outside}
        with session() as dp:
            for lot in dp.lots():
                seed(alone)
                for batch in lot:
                    seen.add(draws())
                    dp.backward(cross_entropy(dp.model)(batch))
                dp.step()
        assert draws() == outside  # where the session found them
        runs.append(seen)
    for one, other in zip(*(zip(*seen, strict=True) for seen in runs), strict=True):
        assert len({*one}) > 4
        assert len({*one} & {*other}) == 1  # what was drawn outside
