"""The three kinds of noise in real sessions: what each promises, and what each says of itself."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import tacit
from tacit.randomness import RoundedGaussian, UnsafeSeededStream
from tacit.training import lot as lots
from tacit.training import noise
from tacit.training.noise import entries_of, noise_for
from tacit.training.performance import Performance
from tacit.training.styles import AdaptiveQuantile, Automatic, PerGroup, PerLayer

from .sessions import CLIP, EXAMPLES, cross_entropy, data, drawn, network, plan, session, sgd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tacit.training.clipping.sums import BatchSums

KINDS = ("fast", "secure", "exact")


def trained(
    kind: str,
    dataset: TensorDataset,
    *,
    seed: int = 3,
    batch: int | str = "auto",
    model: nn.Module | None = None,
    rehearsed: bool = True,
    **changed: Any,
) -> dict[str, Tensor]:
    """The parameters after a few steps on all examples, under a seed."""
    model = network() if model is None else model
    given = {"lot_size": EXAMPLES, "noise_multiplier": 1.0, "noise": kind} | changed
    performance = Performance(batch=batch)  # type: ignore[arg-type]
    loss = cross_entropy(model)
    with session(
        model, plan=plan(**given), dataset=dataset, performance=performance, unsafe_seed=seed
    ) as dp:
        for lot in dp.lots():
            if not rehearsed:
                drawn(lot)
            dp.accumulate(lot, loss)
            dp.step()
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


# ---- exact: nothing but the examples decides


def test_the_order_of_examples_changes_no_bit_of_exact_training() -> None:
    there = data()
    order = torch.randperm(EXAMPLES, generator=torch.Generator().manual_seed(1))
    permuted = TensorDataset(*(one[order] for one in there.tensors))
    assert same(trained("exact", there), trained("exact", permuted))
    assert not same(trained("exact", there), trained("exact", there, seed=4))
    assert not same(trained("fast", there), trained("fast", permuted))


@pytest.mark.parametrize(
    "sizes", [(1, 7, 40), pytest.param((1, 3, 7, 40, "auto"), marks=pytest.mark.slow)]
)
def test_the_batch_size_changes_no_bit_of_exact_training(sizes: tuple[Any, ...]) -> None:
    exact = [trained("exact", data(), batch=size) for size in sizes]
    assert all(same(exact[0], other) for other in exact[1:])
    fast = [trained("fast", data(), batch=size) for size in sizes]
    assert not all(same(fast[0], other) for other in fast[1:])


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        pytest.param("per layer", {"clipping": PerLayer()}, marks=pytest.mark.slow),
        pytest.param(
            "per group",
            {"clipping": PerGroup({"0": 1.0, "2": 0.5}), "clip": None},
            marks=pytest.mark.slow,
        ),
        pytest.param("automatic", {"clipping": Automatic()}, marks=pytest.mark.slow),
        ("adaptive", {"clipping": AdaptiveQuantile(count_noise=1.0)}),
        ("views", {"views": 3}),
    ],
)
def test_neither_does_it_with_other_styles_and_views(what: str, changed: dict[str, Any]) -> None:
    order = torch.arange(EXAMPLES).flip(0)
    permuted = TensorDataset(*(one[order] for one in data().tensors))
    one = trained("exact", data(), batch=5, **changed)
    assert same(one, trained("exact", permuted, batch=16, **changed)), what


def units_of_a_lot() -> list[BatchSums]:
    """The clipped gradients of every example, each computed alone by a real session."""
    found: list[BatchSums] = []
    with recorded(lambda before, _: found.append(before)):
        trained("exact", data(), steps=1)
    return found


@contextmanager
def recorded(note: Callable[[BatchSums, BatchSums], object]) -> Iterator[None]:
    """Lets ``note`` see each unit of a session before and after it is rounded."""
    original = noise.rounded_towards_zero

    def spied(batch: BatchSums, clip: float, entries: int) -> BatchSums:
        rounded = original(batch, clip, entries)
        # Copies: a session adds later units to the first one's numbers.
        note(*(replace(one, sums=summed([one.sums])) for one in (batch, rounded)))
        return rounded

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lots, "rounded_towards_zero", spied)
        yield


def summed(parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    total = {name: value.clone() for name, value in parts[0].items()}
    for part in parts[1:]:
        for name, value in part.items():
            total[name] += value
    return total


def released_by_workers(sums: list[dict[str, Tensor]], workers: int, kind: str) -> Any:
    """The release of a lot whose units were dealt to so many workers, in an order of their own."""
    order = torch.randperm(len(sums), generator=torch.Generator().manual_seed(workers)).tolist()
    parts = [summed([sums[at] for at in order[one::workers]]) for one in range(workers)]
    source = noise_for(kind, UnsafeSeededStream(0, "noise"), torch.device("cpu"))
    parameters = dict(network().named_parameters())
    return source.means(parameters, summed(parts), clip=CLIP, scale=CLIP, lot_size=12.0)


def test_the_number_of_workers_changes_no_bit_of_exact_sums() -> None:
    units = units_of_a_lot()
    assert len(units) == EXAMPLES
    entries = entries_of(dict(network().named_parameters()))
    whole = [noise.rounded_towards_zero(unit, CLIP, entries).sums for unit in units]
    exact = [released_by_workers(whole, workers, "exact") for workers in (1, 2, 3, 8, 40)]
    assert all(same(exact[0], other) for other in exact[1:])
    real = [unit.sums for unit in units]
    fast = [released_by_workers(real, workers, "fast") for workers in (1, 2, 3, 8, 40)]
    assert not all(same(fast[0], other) for other in fast[1:])


def squared_norm(sums: dict[str, Tensor]) -> Fraction:
    """Of whole steps or real numbers, in exact arithmetic."""
    return sum((Fraction(v) ** 2 for one in sums.values() for v in one.flatten().tolist()),
               Fraction(0))  # fmt: skip


def most() -> Fraction:
    """The largest squared norm of a unit of the network, in steps."""
    entries = entries_of(dict(network().named_parameters()))
    return (Fraction(CLIP) / Fraction(noise.grid_step(CLIP, entries))) ** 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_no_unit_of_a_session_exceeds_the_clip_in_integers(dtype: torch.dtype) -> None:
    x, y = data(scale=30.0).tensors
    there = TensorDataset(x.to(dtype), y)
    units: list[BatchSums] = []
    with recorded(lambda _, after: units.append(after)):
        trained("exact", there, model=network().to(dtype), steps=1)
    assert len(units) == EXAMPLES
    for unit in units:
        assert all(value.dtype == torch.int64 for value in unit.sums.values())
    norms = [squared_norm(unit.sums) for unit in units]
    assert max(norms) <= most()
    assert max(norms) > most() * Fraction("0.97")  # there are units at the clip


def test_units_without_numbers_and_lots_without_units_release_noise_alone() -> None:
    x, y = data().tensors
    broken = TensorDataset(torch.full_like(x, math.nan), y)
    norms: list[Fraction] = []
    with recorded(lambda _, after: norms.append(squared_norm(after.sums))):
        trained("exact", broken, steps=1, rehearsed=False)  # which would refuse such data
    assert norms == [0] * EXAMPLES
    for kind in KINDS:
        for lot_size in (EXAMPLES, 1e-6):
            after = trained(kind, broken, steps=2, lot_size=lot_size, rehearsed=False)
            assert all(bool(torch.isfinite(value).all()) for value in after.values())


def test_users_are_rounded_whole() -> None:
    groups = [at % 8 for at in range(EXAMPLES)]
    given = {
        "examples": 8, "lot_size": 8, "unit": "user", "examples_per_user": 5, "steps": 1,
        "noise": "exact", "noise_multiplier": 1.0,
    }  # fmt: skip
    model = network()
    norms: list[Fraction] = []
    with (
        recorded(lambda _, after: norms.append(squared_norm(after.sums))),
        session(model, plan=plan(**given), groups=groups, unsafe_seed=1) as dp,
    ):
        for lot in dp.lots():
            dp.accumulate(lot, cross_entropy(model))
            dp.step()
    assert len(norms) == 8
    assert all(0 < one <= most() for one in norms)


# ---- the low bits


class Weights(nn.Module):
    """Its gradient is the example itself."""

    def __init__(self, entries: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(entries))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


ENTRIES, RUNS = 40_000, 5


def parameters_from(kind: str, example: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """What is left of an example of equal entries after a step, parameters having been 0."""
    found = []
    for run in range(RUNS):
        model = Weights(ENTRIES)
        chosen = plan(examples=1, lot_size=1, steps=1, noise_multiplier=0.01, clip=1.0, noise=kind)
        dataset = TensorDataset(torch.full((1, ENTRIES), example))
        seed = run + (100 if example else 200)
        with tacit.private(model, sgd(model, lr=1.0), chosen, dataset, unsafe_seed=seed) as dp:
            for lot in dp.lots():
                for (x,) in lot:
                    dp.backward(model(x))
                dp.step()
        found.append(model.weight.detach().double().numpy().copy())
    return np.concatenate(found)


def last_bits(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which power of two each number's last bit stands for, of numbers so small that 24 bits of
    them reach below what is left of those that made them: 0.005, the example's share, and noise."""
    small = values[(np.abs(values) < 2.0**-12) & (values != 0)]
    mantissa, exponent = np.frexp(small)
    whole = (np.abs(mantissa) * 2.0**53).astype(np.int64)
    lowest = np.log2((whole & -whole).astype(np.float64)).astype(np.int64)
    return np.asarray(exponent - 53 + lowest)


def told_apart(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    """The p-value of the chi-square test that both samples' last bits have one law."""
    bits = [last_bits(values) for values in (one, other)]
    low = min(int(found.min()) for found in bits)
    counts = np.array([np.bincount(found - low, minlength=80) for found in bits])
    kept = counts[:, counts.sum(0) >= 40]
    assert kept.sum() > 2000
    if kept.shape[1] < 2:
        return 1.0
    return float(stats.chi2_contingency(kept).pvalue)


@pytest.mark.parametrize(("kind", "told"), [("fast", True), ("secure", False), ("exact", False)])
def test_low_bits_of_parameters_tell_neighbours_apart_only_if_noise_is_fast(
    kind: str, told: bool
) -> None:
    """Mironov 2012: the example adds 0.005 to each entry, or nothing, under noise of 0.01."""
    pvalue = told_apart(parameters_from(kind, 0.0), parameters_from(kind, 1.0))
    assert (pvalue < 1e-100) if told else (pvalue > 1e-6)


def test_that_test_finds_noise_on_a_coarser_grid_than_the_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then the sum's lowest bit, which is odd with the example, passes through unharmed."""
    original = RoundedGaussian.integers_

    def even(self: RoundedGaussian, tensor: Tensor, scale: float) -> None:
        original(self, tensor, scale / 2.0)
        tensor.mul_(2)

    monkeypatch.setattr(RoundedGaussian, "integers_", even)
    assert told_apart(parameters_from("secure", 0.0), parameters_from("secure", 1.0)) < 1e-100


def test_that_test_finds_a_low_bit_that_follows_the_data_now_and_then() -> None:
    one, other = (parameters_from("secure", example) for example in (0.0, 1.0))
    step = noise.grid_step(1.0, ENTRIES)
    odd = np.rint(other / step).astype(np.int64) % 2 == 1
    odd[len(odd) // 4 :] = False
    assert told_apart(one, other + step * odd) < 1e-6


# ---- counts


@pytest.mark.parametrize(("kind", "on_grid"), [("fast", False), ("secure", True), ("exact", True)])
def test_the_clip_moves_by_counts_on_their_grid(kind: str, on_grid: bool) -> None:
    style = AdaptiveQuantile(count_noise=3.0, learning_rate=0.5)
    chosen = plan(noise_multiplier=1.0, noise=kind, clipping=style, steps=6)
    model = network()
    clips = []
    with session(model, plan=chosen) as dp:
        for lot in dp.lots():
            clips.append(dp._clip.sensitivity)
            dp.accumulate(lot, cross_entropy(model))
            dp.step()
        clips.append(dp._clip.sensitivity)
    moves = -np.diff(np.log(clips)) / style.learning_rate + style.quantile - 0.5
    halves = 2.0 * moves * chosen.lot_size
    assert np.abs(halves).max() > 0.5  # something moved
    assert bool((np.abs(halves - np.rint(halves)) < 1e-9).all()) == on_grid


# ---- what is said and kept


@pytest.mark.parametrize("kind", KINDS)
def test_statements_name_the_noise_and_its_assumptions(kind: str) -> None:
    with session(plan=plan(noise_multiplier=1.0, noise=kind)) as dp:
        pass
    said = dp.statement(1e-5)
    assert said.noise.startswith(f"{kind}: ")
    assert said.noise in said.describe()
    assert noise.ASSUMED[kind] in said.assumptions
    others = [noise.ASSUMED[other] for other in KINDS if other != kind]
    assert not set(others) & set(said.assumptions)
    assert said.plan["noise"] == kind
    words = {
        "fast": ["statistical generator", "floating-point"],
        "secure": ["grid", "cryptographic", "n²·2⁻²⁴ clips", "charged to δ", "0.05 %"],
        "exact": ["towards zero", "in integers", "cryptographic", "its own rows"],
    }
    everything = f"{said.noise} {' '.join(said.assumptions)}"
    assert all(word in everything for word in words[kind])


def test_the_stated_bound_on_float_sums_holds() -> None:
    """n²·2⁻²⁴ clips, for gradients added one after another in single precision."""
    generator = torch.Generator().manual_seed(0)
    for n, sign in ((10, 1.0), (100, 1.0), (1000, 1.0), (1000, -1.0)):
        units = torch.rand(n, 50, generator=generator) + 0.5
        units[1::2] *= sign
        units /= units.norm(dim=1, keepdim=True)
        total = torch.zeros(50)
        for unit in units:
            total += unit
        off = float((total.double() - units.double().sum(0)).norm())
        assert 0.0 < off <= n**2 * 2.0**-24


@pytest.mark.parametrize("kind", KINDS)
def test_plans_keep_their_noise_in_json_and_checkpoints(kind: str, tmp_path: Path) -> None:
    chosen = plan(noise_multiplier=1.0, noise=kind, steps=3)
    again = tacit.Plan.from_json(chosen.to_json())
    assert again == chosen
    assert again.noise == kind
    model, place = network(), tmp_path / "there"
    with session(model, plan=chosen) as dp:
        lots = dp.lots()
        dp.accumulate(next(lots), cross_entropy(model))
        dp.step()
        dp.save(place)
    resumed = network(seed=9)
    with session(resumed, plan=again, resume=place) as dp:
        assert dp.steps_taken == 1
        for lot in dp.lots():
            dp.accumulate(lot, cross_entropy(resumed))
            dp.step()
        assert dp.steps_taken == 3
        assert dp.statement(1e-5).noise.startswith(kind)
    other = plan(noise_multiplier=1.0, noise="fast" if kind != "fast" else "secure", steps=3)
    with pytest.raises(tacit.errors.InvalidArgument, match="another plan"):
        session(network(), plan=other, resume=place)


def test_a_plan_with_unknown_noise_is_refused() -> None:
    with pytest.raises(tacit.errors.InvalidArgument, match=r"noise must be one of .* got 'loud'"):
        plan(noise="loud")
