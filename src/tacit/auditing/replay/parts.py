"""Parts of the engine by themselves, where no model is needed.

These are the laws of random numbers, the ledger's rules, what a plan promises and what a statement
proves: they are tested once, beside all settings.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from scipy import stats
from torch import nn
from torch.utils.data import TensorDataset

from tacit.accounting import Gaussian, Laplace, Repeated
from tacit.auditing.replay import significance
from tacit.auditing.replay.forbidden_runs import Small, in_child, refused_runs
from tacit.auditing.replay.forbidden_values import (
    ledger,
    refused_charges,
    refused_files,
    refused_values,
)
from tacit.auditing.replay.reference import least_epsilon, least_together
from tacit.auditing.replay.report import Finding, Report
from tacit.auditing.replay.tacit_subject import Screen
from tacit.auditing.replay.watch import flat
from tacit.errors import TacitError
from tacit.randomness import (
    GaussianSource,
    RoundedGaussian,
    SystemStream,
    UnsafeSeededStream,
    discrete_gaussian,
    discrete_laplace,
    fresh_stream,
    grid_gaussian,
    grid_laplace,
    included,
    on_grid,
    rounded_gaussian,
    rounded_laplace,
    subset,
)
from tacit.randomness.gaussian import rounded_tiles
from tacit.statement import Statement
from tacit.training.claim import Run, statement
from tacit.training.clipping import clipped_gradients
from tacit.training.clipping.sums import BatchSums
from tacit.training.evaluation import accuracy, default_correct, default_loss
from tacit.training.noise import grid_step, rounded_towards_zero
from tacit.training.performance import Performance
from tacit.training.plan import Plan
from tacit.training.progress import counting
from tacit.training.replace_batchnorm import fix, fixes
from tacit.training.sampling import TruncatedPoisson
from tacit.training.styles import AdaptiveQuantile, Automatic, PerGroup, PerLayer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.replay.coverage import Tracer
    from tacit.auditing.replay.report import Component

_DELTA = 1e-5
_DRAWS = 20_000
_MOST_CALLS = 20_000  # of a stream, for a few hundred numbers
Part: TypeAlias = Callable[[], Finding]


def replay_parts(tracer: Tracer | None = None, only: Part | None = None) -> Report:
    """Tests what needs no model, all of it or ``only`` one of ``PARTS``.

    Guarantee:
        A correct engine is accused with probability at most 1e-5.

    >>> replay_parts().passed
    True
    """
    started = time.perf_counter()
    findings = []
    for part, component in PARTS.items():
        if only not in (None, part):
            continue
        try:
            with tracer or nullcontext():
                findings.append(part())
        except Exception as error:  # what raises here is no refusal of anything of a user's
            said = f"it ended with {type(error).__name__}: {error}"[:300]
            findings.append(Finding(component, part.__name__.strip("_"), False, said))
    return Report("tacit", tuple(findings), time.perf_counter() - started)


# ---- random numbers


def _judged(component: Component, check: str, found: dict[str, float]) -> Finding:
    """One finding of several p-values, by name."""
    name = min(found, key=lambda one: found[one])
    p_value = min(1.0, found[name] * len(found))
    return Finding(
        component,
        check,
        p_value > significance.LEVEL,
        f"of {len(found)} laws, that of {name} is the most unusual (p = {p_value:.2g})",
        (("p-value", p_value),),
    )


def _bits() -> Finding:
    """Bytes are uniform, and no two streams have any in common, nor a parent and its child."""
    found = {}
    for name, stream in (("lots", fresh_stream("lots")), ("the system", SystemStream())):
        small = b"".join(stream.bytes(count) for count in (1, 7, 100, 3_000) * 20)
        drawn = np.frombuffer(small + stream.bytes(1 << 18), dtype=np.uint8)
        counts = np.bincount(drawn, minlength=256)
        found[f"bytes of {name}"] = _fit(counts, np.full(256, drawn.size / 256))
        bits = int(np.unpackbits(drawn).sum())
        found[f"bits of {name}"] = significance.counts_p_value(bits, 8 * drawn.size, 0.5)
    one, other = fresh_stream("noise"), fresh_stream("noise")
    seeded = UnsafeSeededStream(7, "noise")  # which repeats a run, and nothing within it
    words = [seeded.bytes(16), seeded.bytes(16), UnsafeSeededStream(8, "noise").bytes(16)]
    words += [UnsafeSeededStream(7, "lots").bytes(16)]
    words += [one.bytes(16), one.bytes(16), other.bytes(16), in_child(lambda: one.bytes(16))]
    words.append(one.bytes(16))
    found["what comes again"] = 1.0 if len(set(words)) == len(words) else 0.0
    return _judged("noise", "bits", found)


def _inclusion() -> Finding:
    """Records are included at the claimed rate, wherever they are, at rates large and small."""
    stream, found = fresh_stream("lots"), {}
    for count, rate in ((100_000, 0.3), (100_000, 1 / 256), ((1 << 22) + 60_000, 1e-3), (50, 1e-9)):
        inside = included(count, rate, stream)
        name = f"{count:,} records at {rate:.2g}"
        found[name] = significance.counts_p_value(len(inside), count, rate)
        for start, end in ((0, count // 3), (count // 3, count - 50_000), (count - 50_000, count)):
            if 0 < end - start < count:
                some = int(((inside >= start) & (inside < end)).sum())
                p_value = significance.counts_p_value(some, end - start, rate)
                found[f"{name}, from {start:,}"] = p_value
        if len(np.unique(inside)) < len(inside):
            found[f"{name}, twice"] = 0.0
    if (
        len(included(9, 1.0, stream)) != 9
        or len(included(0, 0.5, stream))
        or included(9, 0.0, stream).size
    ):
        found["everybody, and nobody"] = 0.0
    return _judged("sampling", "inclusion", found)


def _choices() -> Finding:
    """Of too many records, each is as likely to be kept."""
    stream = fresh_stream("lots")
    drawn = [subset(np.arange(40, 60), 7, stream) for _ in range(4_000)]
    counts = np.bincount(np.concatenate(drawn) - 40, minlength=20)
    each = [significance.counts_p_value(int(one), len(drawn), 7 / 20) for one in counts]
    pairs = sum(bool({40, 41} <= set(one.tolist())) for one in drawn)
    together = significance.counts_p_value(pairs, len(drawn), 7 * 6 / (20 * 19))
    sizes = 1.0 if {len(one) for one in drawn} == {7} else 0.0
    found = {"each": significance.corrected(each), "two": together, "their number": sizes}
    return _judged("sampling", "choices", found)


def _gaussian() -> Finding:
    """Floating-point noise is normal, in every precision and layout, to its last block."""
    source = GaussianSource(torch.device("cpu"), fresh_stream("noise"))
    found: dict[str, float] = {}
    for kind in (torch.float32, torch.float64):
        for name, tensor in (
            ("a few", torch.empty(2_001, dtype=kind)),
            ("many", torch.empty(300_001, dtype=kind)),
            ("turned", torch.empty(80, 60, dtype=kind).T),
        ):
            source.normal_(tensor, 2.5)
            values = tensor.double().numpy().ravel() / 2.5
            found |= {
                f"{name} in {kind}, {part}": _normal(some)
                for part, some in (("first", values[:1_500]), ("last", values[-1_500:]))
            }
            found[f"{name} in {kind}"] = significance.variance_p_value(values)
            again = values.size - np.unique(np.abs(values)).size
            found[f"{name} in {kind}, again"] = 1.0 if again < 0.05 * values.size else 0.0
    return _judged("noise", "floating point", found)


def _normal(values: NDArray[np.float64]) -> float:
    return significance.corrected(
        [significance.variance_p_value(values), float(stats.kstest(values, "norm").pvalue)]
    )


def _whole_numbers() -> Finding:
    """Whole-number noise has the law that it is said to have."""
    stream = fresh_stream("noise")
    values = np.arange(-60, 61)
    wide = 2.0**30
    turned = torch.empty(50, 40, dtype=torch.int64).T
    RoundedGaussian(stream, torch.device("cpu")).integers_(turned, 5.0)
    found = {
        "rounded Gaussian, turned": _pmf(
            turned.numpy().ravel(), np.diff(stats.norm.cdf(_edges(values) / 5.0))
        ),
        "large blocks": _continuous(rounded_gaussian(wide, 70_001, stream)[-6_000:] / wide, "norm"),
    }
    for scale in (0.3, 0.7, 1.0, 2.5):
        found |= {
            f"discrete Laplace of {scale}": _pmf(
                discrete_laplace(scale, _DRAWS, stream), np.exp(-abs(values) / scale)
            ),
            f"discrete Gaussian of {scale}": _pmf(
                discrete_gaussian(scale, _DRAWS, stream), np.exp(-0.5 * (values / scale) ** 2)
            ),
            f"rounded Laplace of {scale}": _pmf(
                rounded_laplace(scale, _DRAWS, stream),
                np.diff(stats.laplace.cdf(_edges(values) / scale)),
            ),
            f"rounded Gaussian of {scale}": _pmf(
                rounded_gaussian(scale, _DRAWS, stream),
                np.diff(stats.norm.cdf(_edges(values) / scale)),
            ),
        }
    for name, draw, law, scale, count in (
        ("discrete Laplace", discrete_laplace, "laplace", 1000.5, 4_000),
        ("discrete Gaussian", discrete_gaussian, "norm", 1000.5, 4_000),
        ("wide discrete Laplace", discrete_laplace, "laplace", wide, 4_000),
        ("wide discrete Gaussian", discrete_gaussian, "norm", wide, 4_000),
        ("wide rounded Laplace", rounded_laplace, "laplace", 1e12, 4_000),
        ("wide rounded Gaussian", rounded_gaussian, "norm", 1e12, 4_000),
        ("exact rounded Laplace", rounded_laplace, "laplace", 2.0**43, 300),
        ("exact rounded Gaussian", rounded_gaussian, "norm", 2.0**43, 300),
    ):
        found[name] = _continuous(draw(scale, count, stream) / scale, law)
    return _judged("noise", "whole numbers", found)


def _edges(values: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.append(values - 0.5, values[-1] + 0.5)


def _pmf(drawn: NDArray[np.int64], weights: NDArray[np.float64]) -> float:
    """How likely whole numbers from -60 to 60 come as often as their weights say."""
    if np.abs(drawn).max() > 60:
        return 0.0
    expected = weights / weights.sum() * drawn.size
    return _fit(np.bincount(drawn + 60, minlength=121), expected)


def _fit(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> float:
    """Pearson's χ², with rare values taken together."""
    often = expected >= 8.0
    found, due = counts[often].astype(float), expected[often]
    if not often.all():
        found = np.append(found, counts[~often].sum())
        due = np.append(due, expected[~often].sum())
    total = float((np.square(found - due) / np.maximum(due, 1e-9)).sum())
    return float(stats.chi2.sf(total, len(due) - 1))


def _continuous(values: NDArray[np.float64], law: str) -> float:
    """The law of numbers of scale 1: its shape, its signs, and its width by an exact law."""
    signs = significance.counts_p_value(int((values > 0).sum()), values.size, 0.5)
    if law == "norm":
        width = significance.variance_p_value(values)
    else:  # twice the sizes of Laplace numbers are χ² of two degrees each
        width = significance.chi_square_p_value(2.0 * float(np.abs(values).sum()), 2 * values.size)
    return significance.corrected([float(stats.kstest(values, law).pvalue), signs, width])


class _Set:
    """A stream of blocks that are set, in turn, where they are not the system's."""

    def __init__(self, *fills: bytes | None) -> None:
        self._fills, self._calls, self._blocks = fills, 0, 0

    def bytes(self, count: int) -> bytes:
        """The next ``count`` bytes: blocks are set, further digits of one number are not."""
        self._calls += 1
        if self._calls > _MOST_CALLS:
            raise RuntimeError("numbers are drawn without an end")
        if count <= 64:
            return os.urandom(count)
        fill = self._fills[self._blocks % len(self._fills)]
        self._blocks += 1
        return os.urandom(count) if fill is None else (fill * count)[:count]


def _edge_draws() -> Finding:
    """Numbers whose first digits decide nothing follow their law by the digits after them.

    Of a uniform number whose first 63 digits are 0, -ln has 63·ln 2 above a standard exponential.
    A coin that shows only ones falls as its chance says where that is 1, and else never.
    """
    count, scale = 400, 1000.0
    zeros, ones, none = b"\x00", b"\xff", None
    laplace = np.abs(rounded_laplace(scale, count, _Set(zeros))) / scale - 63 * math.log(2)
    words = torch.zeros(1, 2, count, dtype=torch.int64)
    words[0, 1] = torch.frombuffer(bytearray(os.urandom(8 * count)), dtype=torch.int64)
    first, second = rounded_tiles(words, 1e6, os.urandom(32))[0].numpy() / 1e6
    radii = 0.5 * (first**2 + second**2) - 63 * math.log(2)
    sixth = discrete_gaussian(math.sqrt(6.0), 40, _Set(none, ones))
    low = discrete_laplace(2.0**30, 40, _Set(none, zeros, ones))
    found = {
        "Laplace numbers next to 0": float(stats.kstest(laplace, "expon").pvalue),
        "pairs of normal numbers next to 0": float(stats.kstest(radii, "expon").pvalue),
        "coins of chance 1": 1.0 if (np.abs(sixth) == 2).all() else 0.0,
        "the lowest digits": 1.0 if len(low) == 40 and np.abs(low).max() > 0 else 0.0,
    }
    return _judged("noise", "edges of numbers", found)


def _grids() -> Finding:
    """Released numbers lie on a grid, with noise of the claimed law around them."""
    stream, count = fresh_stream("noise"), 4_000
    values = np.linspace(-3.0, 3.0, count)
    laplace = grid_laplace(values, 2.0, 1.0, stream) - values
    gaussian = grid_gaussian(values, 2.0, 1.0, stream) - values
    steps = on_grid(grid_laplace(np.zeros(50), 2.0, 1.0, stream), 2.0**-30)
    even = bool((steps % 2**6 == 0).all())
    found = {
        "Laplace": _continuous(laplace / 2.0, "laplace"),
        "Gaussian": _continuous(gaussian / 2.0, "norm"),
        "the grid": 1.0 if even else 0.0,
    }
    return _judged("noise", "grids", found)


# ---- the ledger


def _basic() -> Finding:
    """Sums of ε and δ: nothing is forgotten, and nothing beyond the limits is granted."""
    wrong: list[str] = []
    with ledger() as books:
        budget = books.open("sums", 3.0, _DELTA)
        total = [0.0, 0.0]
        for event in (Laplace(4.0), Gaussian(12.0), Repeated(Laplace(20.0), 5), Gaussian(9.0)):
            if not budget.affordable(_release(event)):
                wrong.append(f"{event!r} is said not to fit")
                continue
            made = (
                budget.charge(event)
                if event != Gaussian(9.0)
                else budget.reserve(_release(event), label="a release")
            )
            total = [total[0] + made.epsilon, total[1] + made.delta]
            wrong += _pair(event, made.epsilon, made.delta)
        spent, left = budget.spent(), budget.remaining()
        if spent.epsilon < total[0] * (1 - 1e-12) or spent.delta < total[1] * (1 - 1e-12):
            wrong.append(f"{spent.epsilon:.6g}, {spent.delta:.3g} are reported of {total}")
        if left.epsilon > 3.0 - total[0] + 1e-9 or left.delta > _DELTA - total[1] + 1e-15:
            wrong.append(f"{left.epsilon:.6g}, {left.delta:.3g} are said to be left")
        unused = budget.at(2e-6).reserve(_release(Gaussian(15.0)))
        before = budget.spent().epsilon
        unused.end()
        if not spent.epsilon <= budget.spent().epsilon < before:
            wrong.append("a reservation that ended unused is not given back, or more is")
        pure = budget.at(0.0).charge(Laplace(40.0))
        if pure.delta != 0.0 or pure.epsilon < 1 / 40 * (1 - 1e-9) or not repr(pure):
            wrong.append(f"a pure release is charged {pure.epsilon:.6g}, {pure.delta:.3g}")
        budget.check_room([_release(Laplace(60.0))] * 3)
        wrong += _refused(
            "too much in bits", lambda: budget.check_room([_release(Laplace(2.0))] * 9)
        )
        wrong += _refused("too much", lambda: budget.charge(Laplace(0.3)))
        wrong += _refused("an amendment below", lambda: budget.amend(epsilon=0.1, reason="less"))
        budget.amend(epsilon=4.0, reason="more")
        held = budget.reserve(_release(Repeated(Gaussian(40.0), 6)), steps=6)
        granted = [held.lease(4), held.lease(4), held.lease(1), held.lease(1, after=3)]
        held.give_back(2)
        granted += [held.lease(5), held.left, held.steps, held.granted]
        if granted != [4, 2, 0, 0, 2, 0, 6, 6]:
            wrong.append(f"leases of a reservation of 6 steps come to {granted}")
        wrong += _refused("giving back too much", lambda: held.give_back(7))
        again = books.budget("sums").reservation(held.number)
        if again.granted != 6 or books.open("sums", 4.0, _DELTA).name != "sums":
            wrong.append("what was written is not what is read")
    return Finding("charging", "sums of pairs", not wrong, "; ".join(wrong) or "as they should be")


def _filters() -> Finding:
    """Rényi filters and declared plans: no less than the exact ε of all together is held."""
    wrong: list[str] = []
    plan = Plan(examples=500, lot_size=50, steps=40, noise_multiplier=1.5, clip=1.0)
    other = replace(plan, lot_size=20, noise_multiplier=1.2, steps=30)
    both = least_together(((plan, 40), (other, 30)), _DELTA) or 0.0
    with ledger() as books:
        filtered = books.open("filter", 8.0, _DELTA, composition="renyi")
        held = [filtered.reserve(one, steps=one.steps) for one in (plan, other)]
        declared = books.open("declared", 8.0, _DELTA, composition="declared")
        made = declared.declare([plan, other], "two plans")
        taken = declared.reserve(plan, steps=plan.steps)
        taken.lease(3)
        for budget in (filtered, declared):
            spent, left = budget.spent(), budget.remaining()
            if spent.epsilon < both * (1 - 1e-6) or spent.delta > _DELTA * (1 + 1e-12):
                wrong.append(f"{budget.name}: ε = {spent.epsilon:.6g}, at least {both:.6g}")
            if left.epsilon > 8.0 - spent.epsilon + 1e-9:
                wrong.append(f"{budget.name}: ε = {left.epsilon:.6g} is said to be left")
            _ = budget.affordable(plan), repr(budget), budget.unit
        wrong += _refused("a plan declared late", lambda: declared.declare([plan]))
        wrong += _refused("a declaration twice", lambda: declared.reserve(plan, steps=plan.steps))
        wrong += _refused("what was not declared", lambda: declared.charge(Gaussian(9.0)))
        wrong += _refused("another unit", lambda: filtered.reserve(replace(
            plan, unit="user", examples_per_user=1)))  # fmt: skip
        wrong += _refused("no room", lambda: filtered.check_room([plan] * 60))
        filtered.check_room([other])
        late = books.open("late", 8.0, _DELTA, composition="declared")
        late.check_room([plan, other])
        wrong += _refused("no room among declared", lambda: late.check_room([plan] * 90))
        first = late.reserve(plan, steps=plan.steps)
        if late.spent().epsilon < (least_epsilon(plan, plan.steps, _DELTA) or 0.0) * (1 - 1e-6):
            wrong.append(f"late: ε = {late.spent().epsilon:.6g}")
        if late.remaining().epsilon > 8.0 - late.spent().epsilon + 1e-9 or not first.budget.name:
            wrong.append("late: more is said to be left")
        sole = books.open("sole", 3.0, _DELTA, composition="renyi")
        sole.charge(Laplace(0.5))
        if sole.spent().epsilon < 2.0 - 1e-9:
            wrong.append(f"sole: ε = {sole.spent().epsilon:.6g} of 2")
        wrong += _refused("beside a sole plan", lambda: sole.charge(Gaussian(3.0)))
        if len(made) != 2 or len(held) != 2 or not books.verify().ok:
            wrong.append("the ledger does not verify")
    return Finding("charging", "filters", not wrong, "; ".join(wrong) or "as they should be")


def _release(event: Any) -> Any:
    from tacit.ledger import Release  # noqa: PLC0415 - SQLAlchemy only for those who keep one

    return Release(event)


def _pair(event: Any, epsilon: float, delta: float) -> list[str]:
    """Whether a charge is below what an event is known to have."""
    least = 0.0
    match event:
        case Laplace(scale):
            least = 1.0 / scale
        case Repeated(Laplace(scale), times) if delta == 0.0:
            least = times / scale
        case Gaussian(sigma):
            least = _gaussian_epsilon(sigma, delta)
    short = epsilon < least * (1.0 - 1e-6)
    return [f"{event!r} is charged ε = {epsilon:.6g}, at least {least:.6g}"] if short else []


def _gaussian_epsilon(sigma: float, delta: float) -> float:
    """The ε of a Gaussian mechanism at δ (Balle and Wang 2018, theorem 8), by bisection."""
    low, high = 0.0, 1e3
    for _ in range(100):
        middle = 0.5 * (low + high)
        left, right = 0.5 / sigma - middle * sigma, -0.5 / sigma - middle * sigma
        beyond = stats.norm.cdf(left) - math.exp(middle) * stats.norm.cdf(right) > delta
        low, high = (middle, high) if beyond else (low, middle)
    return low


def _refused(name: str, what: Callable[[], object]) -> list[str]:
    try:
        what()
    except TacitError:
        return []
    return [f"{name} is not refused"]


def _lost() -> Finding:
    """Steps whose results were lost in a crash stay charged, and count in what is spent."""
    wrong: list[str] = []
    with ledger() as books, tempfile.TemporaryDirectory(prefix="tacit-parts-") as folder:
        budget, path = books.open("runs", 90.0, 1e-4), Path(folder) / "run"
        plan = Plan(examples=8, lot_size=8, steps=6, noise_multiplier=2.0, clip=1.0)

        def save(scene: Any) -> None:
            scene.dp.save(path)
            raise InterruptedError

        def crash(_: Any) -> None:
            raise InterruptedError

        def look(scene: Any) -> None:
            steps = scene.dp.steps_taken + scene.dp.steps_lost
            spent, least = scene.dp.spent(_DELTA), least_epsilon(plan, steps, _DELTA) or 0.0
            granted = books.refresh().budgets["runs"].granted
            if spent < least * (1 - 1e-6) or scene.dp.steps_lost != 2 or granted < steps:
                wrong.append(f"ε = {spent:.6g} of {steps} steps, at least {least:.6g}")

        released = 0
        for act, after, resume in ((save, 2, None), (crash, 4, path), (look, 3, path)):
            options = {"budget": budget, "resume": resume}
            run = Small(plan=plan, options=options, moment="between lots", after=after, act=act)
            released += run.counted(InterruptedError)
        if released > plan.steps:
            wrong.append(f"{released} steps of a plan of {plan.steps} were released")
    return Finding("charging", "lost steps", not wrong, "; ".join(wrong) or "they are counted")


def _whole_steps() -> Finding:
    """A gradient in whole steps is as long as the clip at most, exactly, whatever it was before."""
    clip, seed = 0.7, torch.Generator().manual_seed(9)
    wrong: list[str] = []
    for entries in (1, 3, 40, 1_000):
        one = torch.randn(entries, generator=seed, dtype=torch.float64)
        for name, factor in (
            ("below", 0.5), ("at", 1.0), ("just above", 1.0 + 1e-4), ("far above", 40.0),
            ("nowhere", math.nan), ("infinite", math.inf),
        ):  # fmt: skip
            given = {"a": factor * clip * one / one.norm(), "b": torch.zeros(2)}
            batch = BatchSums(torch.ones(1, 1), torch.ones(1, 1), given)
            steps = rounded_towards_zero(batch, clip, entries + 2).sums
            whole, step = [int(number) for number in steps["a"]], grid_step(clip, entries + 2)
            if Fraction(clip) ** 2 < Fraction(step) ** 2 * sum(number**2 for number in whole):
                wrong.append(f"one {name} the clip is longer than it")
            near = torch.as_tensor(whole).double() * step - min(factor, 1.0) * given["a"] / factor
            if math.isfinite(factor) and not float(near.norm()) <= 2e-3 * clip:
                wrong.append(f"one {name} the clip is {float(near.norm()):.2g} from it")
            if not math.isfinite(factor) and any(whole):
                wrong.append(f"one {name} adds something")
    return Finding("clipping", "whole steps", not wrong, "; ".join(wrong[:3]) or "it is")


# ---- what must be refused


def _table(refused: Callable[[], list[str]], check: str) -> Finding:
    wrong = refused()
    said = "; ".join(wrong[:6]) or "all of them are refused"
    return Finding("control flow", check, not wrong, said)


def _refused_runs() -> Finding:
    """Changes by others, mixed rows, wrong data, and calls out of order are refused."""
    return _table(refused_runs, "forbidden runs")


def _refused_values() -> Finding:
    """Arguments out of range, copied noise, and statements that say too little are refused."""
    return _table(refused_values, "forbidden values")


def _refused_charges() -> Finding:
    """Charges beyond a budget, names alike, and runs in the wrong budget are refused."""
    return _table(refused_charges, "forbidden charges")


def _refused_files() -> Finding:
    """Checkpoints that are damaged, forged or of another run are refused."""
    return _table(refused_files, "forbidden files")


# ---- plans and statements


def _plans() -> dict[str, Plan]:
    plan = Plan(examples=400, lot_size=40, steps=30, noise_multiplier=1.1, clip=0.5)
    groups = PerGroup({"": 3.0, "head": 4.0})
    return {
        "flat": plan,
        "whole": Plan(examples=40, lot_size=40, steps=3, noise_multiplier=4.0, clip=1.0),
        "adaptive": replace(plan, clipping=AdaptiveQuantile(count_noise=9.0), noise="secure"),
        "groups": replace(plan, clipping=groups, clip=groups.clip, noise="exact"),
        "layers": replace(plan, clipping=PerLayer(), adjacency="replace-one"),
        "users": replace(plan, unit="user", examples_per_user=3, views=2, clipping=Automatic()),
        "truncated": replace(plan, sampling=TruncatedPoisson(90), adjacency="zero-out"),
    }


def _promises() -> Finding:
    """A plan for a budget keeps within it, and what is written of a plan is what is read."""
    wrong = []
    for name, plan in _plans().items():
        if Plan.from_json(plan.to_json()) != plan or not plan.describe(_DELTA):
            wrong.append(f"{name}: it is read as another one")
        least = least_epsilon(plan, plan.steps, _DELTA)
        claimed = plan.epsilon(_DELTA)
        if least is not None and claimed < least * (1 - 1e-6) - 1e-6:
            wrong.append(f"{name}: ε = {claimed:.6g}, at least {least:.6g}")
        part = least_epsilon(plan, 2, _DELTA)
        if part is not None and Run(2, False).last_step == 2 and part > claimed:
            wrong.append(f"{name}: two steps have more than all")
    for also in (None, Gaussian(8.0)):
        found = Plan.for_budget(
            epsilon=2.0, delta=_DELTA, examples=1_000, lot_size=100, clip=1.0, also=also,
            epochs=2.55 if also is None else None, steps=None if also is None else 26,
        )  # fmt: skip
        least = least_epsilon(found, found.steps, _DELTA) or 0.0
        if found.steps != 26 or least > 2.0 or (also is None and least < 1.9):
            wrong.append(f"for ε = 2 a plan of {found.steps} steps has at least {least:.6g}")
    if abs(_plans()["flat"].epochs - 3.0) > 1e-9 or _plans()["flat"].sensitivity != 0.5:
        wrong.append("epochs or sensitivity are others")
    return Finding("charging", "plans", not wrong, "; ".join(wrong) or "they keep their promises")


def _proofs() -> Finding:
    """A statement is read as it was written, and refused if it claims less than its event has."""
    wrong = []
    for name, plan in _plans().items():
        for taken, last, lost in ((plan.steps, plan.steps, 0), (1, 2, 0), (1, plan.steps, 1)):
            run = Run(last, unsafe=lost > 0)
            run.load_state_dict(run.state_dict())
            stated = statement(plan, _DELTA, taken, run, lost=lost, ledger=None)
            least = least_epsilon(plan, last, _DELTA)
            if least is not None and stated.epsilon < least * (1 - 1e-6) - 1e-6:
                wrong.append(f"{name}: ε = {stated.epsilon:.6g}, at least {least:.6g}")
            if (stated.steps_taken, stated.steps_planned) != (taken, plan.steps):
                wrong.append(f"{name}: other steps are stated")
    if (
        Statement.from_json(stated.to_json()) != stated
        or str(stated.steps_taken) not in stated.describe()
    ):
        wrong.append("it is read as another one")
    plain = json.loads(stated.to_json())
    for key, value in (("epsilon", 0.5 * stated.epsilon), ("delta", 0.5 * _DELTA)):
        forged = json.dumps(plain | {key: value})
        wrong += _refused(f"a forged {key}", lambda text=forged: Statement.from_json(text))  # type: ignore[misc]
    smaller = {**asdict(stated), "epsilon": 0.9 * stated.epsilon}
    wrong += _refused("a smaller ε", lambda: Statement(**smaller))
    return Finding("charging", "proofs", not wrong, "; ".join(wrong) or "they prove what they say")


def _fixes() -> Finding:
    """A model whose layers mixed rows does not after ``fix``: each row's result is its own."""
    model = nn.Sequential(
        nn.Conv2d(2, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.InstanceNorm2d(16, affine=True, track_running_stats=True), nn.Flatten(),
        nn.Linear(16 * 16, 32), nn.BatchNorm1d(32), nn.Linear(32, 2),
    )  # fmt: skip
    advised, fixed = fixes(model), fix(model)
    x = torch.randn(6, 2, 4, 4, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        together, alone = fixed(x), torch.cat([fixed(row[None]) for row in x])
    off = float((together - alone).abs().max())
    single = isinstance(fix(nn.BatchNorm2d(8)), nn.GroupNorm) and len(str(advised[0])) > 0
    return Finding(
        "gradients",
        "fix",
        off < 1e-4 and len(advised) == 3 and single,
        f"{len(advised)} layers are replaced; a row's result moves by {off:.2g} with the others",
    )


class _Positions(nn.Module):
    """A table of positions, as many as a batch has rows, looked up in one of several ways."""

    def __init__(self, ids: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.table, self.head, self.ids = nn.Embedding(16, 3), nn.Linear(3, 2), ids

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = self.table(self.ids(x))
        places = places.mean(-2) if places.ndim == 3 and len(places) == places.shape[1] else places
        result: torch.Tensor = self.head(torch.tanh(x + places)).mean(1)
        return result


class _Expanded(nn.Module):
    """A weight that is written once for every row."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.head = nn.Parameter(torch.randn(1, 1, 3)), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = torch.cat([self.start.expand(len(x), -1, -1), x], 1)
        result: torch.Tensor = self.head(torch.tanh(both)).prod(1)
        return result


def _layers() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """A model of every kind of layer, small and with one long dimension, and a row's shape."""
    normed = nn.utils.parametrizations.weight_norm

    def flat(*layers: nn.Module) -> nn.Module:
        return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(2))

    return {
        "linear": (nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), (4,)),
        "linear over time": (flat(nn.Linear(4, 3)), (9, 4)),
        "normed": (flat(normed(nn.Linear(4, 3)), nn.LayerNorm(3), nn.PReLU()), (5, 4)),
        "convolution": (flat(nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2)), (2, 7, 6)),
        "dilated": (flat(nn.Conv1d(2, 3, 2, dilation=2), nn.GroupNorm(1, 3)), (2, 9)),
        "normed convolution": (flat(normed(nn.Conv2d(2, 3, 3, padding=1))), (2, 6, 5)),
        "normed, wide": (flat(normed(nn.Conv2d(2, 5, 2, stride=2, groups=1))), (2, 12, 12)),
        "normed in groups": (flat(normed(nn.Conv1d(4, 4, 3, groups=2, dilation=2))), (4, 11)),
        "transposed": (flat(nn.ConvTranspose1d(2, 3, 3, stride=2)), (2, 5)),
        "normed, transposed": (flat(normed(nn.ConvTranspose2d(2, 3, 2, stride=2))), (2, 4, 3)),
        "positions": (_Positions(lambda _: torch.arange(8)), (8, 3)),
        "positions in a row": (_Positions(lambda _: torch.arange(8)[None]), (8, 3)),
        "an expanded weight": (_Expanded(), (4, 3)),
        "volumes": (flat(nn.Conv3d(1, 2, 2)), (1, 3, 4, 3)),
    }


def _once() -> Finding:
    """One batch by itself is clipped as autograd has it, for layers of every kind; so judged."""
    off: dict[str, float] = {}
    apart: dict[str, float] = {}
    for name, (model, shape) in _layers().items():
        for rows, views in ((8, 1), (8, 2), (1, 1)):
            case = f"{name}, {rows} rows of {views} views"
            off[case], apart[case] = _off(model, shape, rows, views)
    model = nn.Linear(4, 2)
    batch = _rows_of((4,))
    right = float((model(batch[0]).argmax(1) == batch[1]).float().mean())
    measured = accuracy(model, TensorDataset(*batch), correct=default_correct)
    worst, longest = max(off, key=lambda one: off[one]), max(apart.values())
    return Finding(
        "clipping",
        "one batch",
        off[worst] < 1e-5 and longest < 1e-4 and abs(measured - right) < 1e-9,
        f"its sum ({worst}) is {off[worst]:.2g}, its norms are {longest:.2g} and its accuracy is "
        f"{abs(measured - right):.2g} from those of autograd",
    )


def _rows_of(shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    seed = torch.Generator().manual_seed(5)
    return torch.randn(8, *shape, generator=seed), torch.randint(2, (8,), generator=seed)


def _off(model: nn.Module, shape: tuple[int, ...], rows: int, views: int) -> tuple[float, float]:
    """How far sum and norms are from autograd's."""
    x, y = _rows_of(shape)
    batch = x[:rows], y[:rows]
    model(batch[0])  # gives lazy layers their sizes
    parameters = dict(model.named_parameters())
    losses = default_loss(model, batch).view(-1, views).mean(1)
    total, norms = torch.zeros(sum(p.numel() for p in parameters.values())), []
    for loss in losses:
        gradient = flat(list(torch.autograd.grad(loss, [*parameters.values()], retain_graph=True)))
        norms.append(float(gradient.norm()))
        total += gradient * min(1.0, 0.1 / norms[-1])
    found = clipped_gradients(
        parameters, lambda: default_loss(model, batch), rows=rows, clip=0.1, views=views
    )
    off = float((flat([found.sums[name] for name in parameters]) - total).norm())
    return off, float((found.norms - torch.tensor(norms)).abs().max())


def _shown() -> Finding:
    """What is shown of work that goes on is how much is done, and nothing else."""
    shown = []
    for wanted, terminal in ((None, True), (True, False), (None, False), (False, True)):
        screen = Screen(terminal=terminal)
        with redirect_stderr(screen), counting(wanted, "lots", total=20, done=2) as show:
            for done in range(3, 21):
                show(done)
        shown.append(screen.getvalue())
    paces = [Performance(batch=8, workers=0, lease=2), Performance()]
    lines, silent = shown[1].splitlines(), not shown[2] and not shown[3]
    right = silent and bool(shown[0]) and lines[-1] == "lots: 20 of 20" and len(lines) <= 10
    right = right and [pace.batch for pace in paces] == [8, "auto"]
    said = f"{len(lines)} lines in a file, the last of which is {lines[-1]!r}"
    return Finding("control flow", "shown", right, said)


PARTS: dict[Part, Component] = {
    _bits: "noise", _inclusion: "sampling", _choices: "sampling", _gaussian: "noise",
    _whole_numbers: "noise", _grids: "noise", _basic: "charging", _filters: "charging",
    _promises: "charging", _proofs: "charging", _fixes: "gradients", _once: "clipping",
    _shown: "control flow", _edge_draws: "noise", _whole_steps: "clipping", _lost: "charging",
    _refused_runs: "control flow", _refused_values: "control flow",
    _refused_charges: "control flow", _refused_files: "control flow",
}  # fmt: skip
