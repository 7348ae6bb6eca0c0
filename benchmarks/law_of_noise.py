# ruff: noqa: B023, E501, E731, PLC0415 - a law is one line, acts have one form, and tacit
# is imported in the process of its mutant
# fmt: off
"""Experiments on chance: noise, who is sampled, and everything that is drawn; see ``release_law``."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from law_of_sums import performance_of, style_of
from release_law import (
    CLIP,
    DELTA,
    EXPERIMENTS,
    RARE,
    Notes,
    dense,
    experiment,
    labels,
    must_refuse,
    numbers,
    plan_of,
    repeatable,
    seeded,
    table,
    trained,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# ---- noise: as wide as planned, in every entry, fresh and Gaussian


def noise(
    notes: Notes, *, steps: int = 160, build: Callable[[], nn.Module] = dense, **changed: Any
) -> None:
    plan = plan_of(noise_multiplier=1.3, steps=steps, lot_size=0.5, **changed)
    dtype = next(build().parameters()).dtype
    x, y, _ = table(10)
    data = TensorDataset(x.to(dtype), y, torch.zeros(10, dtype=dtype))
    clips: list[float] = []
    run = trained(
        seeded(build), data, plan, on_step=lambda dp: clips.append(dp._clip._clip)
    )
    notes.fact("noise", run.sums)
    notes.law("every step is taken", len(run.sums) == steps, len(run.sums))
    # With an adaptive clip the noise goes with the clip of its step, which moves after it.
    widths = [plan.clip, *clips[:-1]] if "clipping" in changed else [plan.clip] * steps
    scaled = run.sums / (plan.noise_multiplier * np.array(widths)[:, None])
    noise_laws(notes, scaled)


def noise_laws(notes: Notes, scaled: np.ndarray) -> None:
    """Laws of a (steps, entries) array that should be standard normal."""
    steps, entries = scaled.shape
    many = scaled.size
    spread = float(np.sqrt(np.mean(scaled**2)))
    notes.law("noise is as wide as planned", spread >= 1 - 5 / math.sqrt(2 * many), f"{spread:.4f}")
    scaled = scaled / max(spread, 1.0)  # more noise than planned is no fault
    by_entry = np.sqrt(np.mean(scaled**2, axis=0))
    least = 1 - math.sqrt(-2 * math.log(RARE / entries)) / math.sqrt(2 * steps) * 1.1
    notes.law("every entry has noise", by_entry.min() >= least, f"{by_entry.min():.3f}")
    by_step = np.sqrt(np.mean(scaled**2, axis=1))
    least = 1 - math.sqrt(-2 * math.log(RARE / steps)) / math.sqrt(2 * entries) * 1.1
    notes.law("every step has noise", by_step.min() >= least, f"{by_step.min():.3f}")
    # On a grid some numbers come again by chance; noise that is used twice has half of them.
    notes.law("no number comes again", len(np.unique(scaled)) >= 0.85 * many, len(np.unique(scaled)))
    limit = 5.5 / math.sqrt(many)
    for name, left, right in (
        ("steps", scaled[1:], scaled[:-1]),
        ("entries", scaled[:, 1:], scaled[:, :-1]),
        ("halves", scaled[:, : entries // 2], scaled[:, entries - entries // 2 :]),
        ("ends", scaled, scaled[:, ::-1] * (np.arange(entries) != entries // 2)),
    ):
        linked = abs(float(np.mean(left * right)))
        reach = 2.0 if name == "ends" else 1.2
        notes.law(f"noise of {name} is independent", linked <= reach * limit, f"{linked:.4f}")
        squares = abs(float(np.mean((left**2 - 1) * (right**2 - 1))))
        reach = 6.0 if name == "ends" else 3.0
        notes.law(f"and so is its size ({name})", squares <= reach * limit, f"{squares:.4f}")
    chance = stats.kstest(scaled.ravel(), "norm").pvalue
    notes.law("noise is Gaussian", chance > RARE, f"p = {chance:.2g}")
    tail = float(np.mean(np.abs(scaled) > 3))
    expected = 0.0027
    slack = 6 * math.sqrt(expected / many)
    notes.law("its tails are there", tail >= expected - slack, f"{tail:.5f}")


for _kind in ("fast", "secure", "exact"):
    EXPERIMENTS[f"noise: {_kind}"] = partial(noise, noise=_kind)
    EXPERIMENTS[f"noise: {_kind}, double"] = partial(
        noise, noise=_kind, build=lambda: dense().double()
    )


EXPERIMENTS["noise: per layer"] = lambda notes: noise(notes, clipping=style_of("PerLayer"))


EXPERIMENTS["noise: half"] = lambda notes: noise(
    notes, build=lambda: nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 3)), noise="fast"
)


@experiment("noise: large parameter")
def _large(notes: Notes) -> None:
    """Far entries of a large parameter: more than a block of any generator."""
    build = lambda: nn.Linear(700, 800)
    for kind in ("fast", "secure"):
        plan = plan_of(noise_multiplier=1.0, steps=2, lot_size=0.5, noise=kind)
        data = TensorDataset(numbers(10, 700), labels(10), torch.zeros(10))
        run = trained(seeded(build), data, plan)
        notes.fact(f"noise {kind}", run.sums)
        scaled = run.sums[:, :560_000].reshape(-1, 1000) / CLIP
        spread = np.sqrt(np.mean(scaled**2, axis=1))
        notes.law("noise everywhere", 0.85 <= spread.min() <= spread.max() <= 1.15, spread.min())
        equal = float(np.mean(scaled[1:] == scaled[:-1]))
        notes.law("no block comes again", equal < 0.01, equal)
        flat = np.sort(run.sums[0])
        again = float(np.mean(flat[1:] == flat[:-1])) if kind == "fast" else 0.0
        notes.law("no number comes again", again < 0.2, again)
        both = abs(float(np.mean(run.sums[0] * run.sums[1]))) / CLIP**2
        notes.law("two steps are independent", both <= 6 / math.sqrt(run.sums.shape[1]), both)


@experiment("noise: adaptive clip")
def _adaptive(notes: Notes) -> None:
    """The count has its noise, and the gradients' noise goes with the clip."""
    from tacit.training import AdaptiveQuantile

    style = AdaptiveQuantile(quantile=0.5, learning_rate=0.2, count_noise=2.0)
    for kind in ("fast", "secure"):
        plan = plan_of(
            noise_multiplier=1.3, steps=100, lot_size=5, clipping=style, noise=kind,
        )
        data = TensorDataset(*table(10, factors=torch.zeros(10)))
        clips: list[float] = []
        run = trained(seeded(dense), data, plan, on_step=lambda dp: clips.append(dp._clip._clip))
        notes.fact(f"noise {kind}", run.sums)
        notes.fact(f"clips {kind}", clips)
        widths = np.array([plan.clip, *clips[:-1]])
        noise_laws(notes, run.sums / (plan.noise_multiplier * widths[:, None]))
        moves = np.diff(np.log([plan.clip, *clips]))
        spread = float(np.std(moves)) / (style.learning_rate * style.count_noise / plan.lot_size)
        notes.law("the count has its noise", spread >= 0.65, f"{spread:.3f}")
        drift = float(np.mean(moves)) / style.learning_rate
        notes.law("and follows the norms", -0.9 <= drift <= 0.1, f"{drift:.3f}")


@experiment("noise: the count of an adaptive clip")
def _count(notes: Notes) -> None:
    """The count is that of the norms within the clip, and its noise does not follow the data."""
    from tacit.training import AdaptiveQuantile

    style = AdaptiveQuantile(quantile=0.5, learning_rate=0.01, count_noise=1.0)
    for kind in ("fast", "secure"):
        for factor in (0.0, 1e3):
            plan = plan_of(noise_multiplier=0.5, steps=60, clipping=style, noise=kind, clip=1e-3)
            clips: list[float] = []
            data = TensorDataset(*table(10, factors=torch.full((10,), factor)))
            trained(seeded(dense), data, plan, on_step=lambda dp: clips.append(dp._clip._clip))
            moves = np.diff(np.log([plan.clip, *clips])) / style.learning_rate
            notes.fact(f"moves {kind} {factor}", moves)
            spread = float(np.std(moves)) * plan.lot_size / style.count_noise
            notes.law("the count's noise is the plan's", 0.6 <= spread <= 1.5, f"{spread:.3f}")
            wanted = -0.5 if factor == 0.0 else 0.5
            notes.law("its mean is the count", abs(float(np.mean(moves)) - wanted) <= 0.1, float(np.mean(moves)))


# ---- sampling: seen in the sums, to which record i adds the i-th unit vector


class OneHot(nn.Module):
    """The gradient of record i is the i-th unit vector."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(count))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def first_column(model: nn.Module, batch: Any) -> Tensor:
    return model(batch[0])


def sampling(notes: Notes, *, lot: float = 12.0, steps: int = 300, **changed: Any) -> None:
    count = changed.pop("count", 48)
    owners = changed.pop("owners", None)
    options = changed.pop("options", dict)()
    plan = plan_of(
        examples=count if owners is None else len(set(owners)), lot_size=lot, steps=steps, clip=1.0,
        **changed,
    )
    if owners is not None:
        options = options | {"groups": np.array(owners)}
    lots = trained(
        seeded(partial(OneHot, count)), TensorDataset(torch.eye(count)), plan, loss=first_column, **options
    ).sums
    notes.fact("lots", np.round(lots, 3))
    inside = np.abs(lots) > 1e-3
    top = float(np.abs(lots).max(initial=0.0))
    notes.law("a record counts once in a lot", top <= 1.001, f"{top:.3f} clips")
    if owners is not None:
        user_laws(notes, lots, np.array(owners), plan)
        return
    rate, total = plan.sample_rate, inside.size
    seen = float(inside.mean())
    sigma = math.sqrt(rate * (1 - rate) / total)
    notes.law("the rate is the plan's", seen <= rate + 5.5 * sigma, f"{seen:.4f} for {rate:.4f}")
    by_record = inside.mean(0)
    most = rate + 6.5 * math.sqrt(rate * (1 - rate) / steps) + 1.0 / steps
    notes.law("so is every record's", by_record.max() <= most, f"{by_record.max():.3f}")
    if rate < 1 and "sampling" not in changed:
        independence(notes, inside, rate)


def independence(notes: Notes, inside: np.ndarray, rate: float) -> None:
    if not inside.any():
        return  # nobody is ever drawn: nothing is given away
    steps, count = inside.shape
    centred = inside - rate
    spread = float(np.var(inside.sum(1)) / (count * rate * (1 - rate)))
    low, high = (stats.chi2.isf(p, steps - 1) / (steps - 1) for p in (1 - RARE, RARE))
    notes.law("records join by themselves", 0.95 * low <= spread <= 1.05 * high, f"{spread:.3f}")
    unit = rate * (1 - rate)
    for name, left, right in (
        ("lots", centred[1:], centred[:-1]),
        ("neighbours", centred[:, 1:], centred[:, :-1]),
        ("opposites", centred[:, : count // 2], centred[:, count - count // 2 :]),
    ):
        linked = abs(float(np.mean(left * right))) / unit
        notes.law(f"{name} are independent", linked <= 6.5 / math.sqrt(left.size), f"{linked:.4f}")
    same = sum(bool((a == b).all()) and a.any() for a, b in itertools.pairwise(inside))
    notes.law("lots are fresh", same <= 1 + steps * 0.02, same)


def user_laws(notes: Notes, lots: np.ndarray, owners: np.ndarray, plan: Any) -> None:
    users = np.unique(owners)
    norms = np.stack([np.linalg.norm(lots[:, owners == user], axis=1) for user in users], 1)
    notes.law("a user adds one clip", norms.max() <= 1.001, f"{norms.max():.3f}")
    inside = norms > 1e-3
    rate = plan.sample_rate
    sigma = math.sqrt(rate * (1 - rate) / inside.size)
    notes.law("the users' rate is the plan's", inside.mean() <= rate + 5.5 * sigma, inside.mean())
    used = np.stack([(np.abs(lots[:, owners == user]) > 1e-3).sum(1) for user in users], 1)
    cap = plan.examples_per_user
    notes.law("the cap holds", used.max() <= cap, int(used.max()))


EXPERIMENTS["sampling: Poisson"] = sampling


EXPERIMENTS["sampling: rare"] = partial(sampling, lot=1.5, steps=300)


EXPERIMENTS["sampling: often"] = partial(sampling, lot=40.0, steps=150)


EXPERIMENTS["sampling: batches"] = lambda notes: sampling(
    notes, options=partial(performance_of, batch=5), steps=120
)


EXPERIMENTS["sampling: exact"] = lambda notes: sampling(notes, noise="exact", steps=60)


EXPERIMENTS["sampling: secure"] = lambda notes: sampling(notes, noise="secure", steps=100)


EXPERIMENTS["sampling: full"] = partial(sampling, lot=48, steps=4)


EXPERIMENTS["sampling: truncated"] = lambda notes: sampling(
    notes, sampling=style_of("TruncatedPoisson", 14), steps=200
)


EXPERIMENTS["sampling: users"] = lambda notes: sampling(
    notes, owners=[at // 4 if at < 32 else 8 + at % 7 for at in range(48)], lot=4.0, steps=150,
    unit="user", examples_per_user=2,
)


EXPERIMENTS["sampling: views"] = lambda notes: sampling(notes, views=2, steps=100)


@experiment("sampling: does not follow the data")
def _by_data(notes: Notes) -> None:
    """The same random bytes on other data and losses: the same lots."""
    found = []
    for factor in (1.0, 1e-3):
        with repeatable("same"):
            plan = plan_of(examples=24, lot_size=6, steps=30, clip=1.0)
            data = TensorDataset(factor * torch.eye(24))
            run = trained(seeded(partial(OneHot, 24)), data, plan, loss=first_column)
            found.append(np.abs(run.sums) > 2e-4)
    notes.fact("lots", found[0])
    notes.law("lots do not follow the data", (found[0] == found[1]).all())


@experiment("fresh randomness")
def _fresh(notes: Notes) -> None:
    """With the system's own bytes no two runs agree, and torch's seed means nothing."""
    real = os.urandom
    for kind in ("fast", "secure"):
        found = []
        for _ in range(2):
            torch.manual_seed(0)
            os.urandom = os.getrandom
            try:
                plan = plan_of(examples=24, lot_size=6, steps=4, noise_multiplier=1.0, noise=kind)
                run = trained(seeded(partial(OneHot, 24)), TensorDataset(torch.eye(24)), plan, loss=first_column)
            finally:
                os.urandom = real
            found.append(run.sums)
        notes.fact(kind, found[0].shape)
        equal = float(np.mean(found[0] == found[1]))
        notes.law("two runs have different noise", equal < 0.01, equal)


@experiment("seeded runs")
def _seeded_runs(notes: Notes) -> None:
    """A seed repeats a run, another one does not, and the claim is void."""
    found = []
    for seed in (1, 1, 2):
        plan = plan_of(examples=24, lot_size=6, steps=4, noise_multiplier=1.0)
        data = TensorDataset(torch.eye(24))
        run = trained(seeded(partial(OneHot, 24)), data, plan, loss=first_column, unsafe_seed=seed)
        found.append(run.sums)
        words = " ".join(run.dp.statement(DELTA).assumptions)
        notes.law("a seed voids the claim", "VOIDS" in words)
    notes.fact("sums", found)
    notes.law("another seed, another run", not np.allclose(found[0], found[2]))


# ---- draws


def _draws(notes: Notes, name: str, values: Any, law: Any, size: int) -> None:
    """A chi-squared test of whole numbers against a law, and no link between neighbours."""
    drawn = np.asarray(values).astype(np.int64)
    notes.fact(name, drawn)
    low, high = (int(law.ppf(p)) for p in (0.02, 0.98)) if hasattr(law, "ppf") else law[1]
    pmf = law.pmf if hasattr(law, "pmf") else law[0]
    places = np.arange(low, high + 1)
    expected = np.array([pmf(k) for k in places]) * size
    rest = size - expected.sum()
    counted = np.array([(drawn == k).sum() for k in places])
    statistic = (((counted - expected) ** 2) / np.maximum(expected, 1e-9)).sum()
    statistic += (size - counted.sum() - rest) ** 2 / max(rest, 1e-9)
    chance = stats.chi2.sf(statistic, len(places))
    notes.law(f"{name} has its law", chance > RARE, f"p = {chance:.2g}")
    centred = (drawn - drawn.mean()) / max(drawn.std(), 1e-12)
    linked = abs(float(np.mean(centred[1:] * centred[:-1])))
    notes.law(f"{name} is independent", linked <= 6 / math.sqrt(size), linked)


@experiment("draws: discrete")
def _discrete(notes: Notes) -> None:
    from tacit import randomness as r

    size = 20_000
    stream = r.UnsafeSeededStream(3, "law")
    for scale in (0.7, 3.0):
        ratio = math.exp(-1 / scale)
        norm = (1 - ratio) / (1 + ratio)
        law = (lambda k, a=norm, b=ratio: a * b ** abs(k), (-int(3 * scale), int(3 * scale)))
        _draws(notes, f"discrete Laplace {scale}", r.discrete_laplace(scale, size, stream), law, size)
        total = sum(math.exp(-(k**2) / (2 * scale**2)) for k in range(-60, 61))
        law = (
            lambda k, s=scale, t=total: math.exp(-(k**2) / (2 * s**2)) / t,
            (-int(2 * scale + 1), int(2 * scale + 1)),
        )
        _draws(notes, f"discrete Gaussian {scale}", r.discrete_gaussian(scale, size, stream), law, size)
        cdf = partial(stats.laplace.cdf, scale=scale)
        law = (lambda k, f=cdf: f(k + 0.5) - f(k - 0.5), (-int(3 * scale), int(3 * scale)))
        _draws(notes, f"rounded Laplace {scale}", r.rounded_laplace(scale, size, stream), law, size)
        cdf = partial(stats.norm.cdf, scale=scale)
        law = (lambda k, f=cdf: f(k + 0.5) - f(k - 0.5), (-int(2 * scale + 1), int(2 * scale + 1)))
        _draws(notes, f"rounded Gaussian {scale}", r.rounded_gaussian(scale, size, stream), law, size)


@experiment("draws: wide")
def _wide(notes: Notes) -> None:
    from tacit import randomness as r

    stream, size = r.UnsafeSeededStream(4, "law"), 20_000
    for scale in (2.0**22 + 5, 1e9):
        for name, cdf in (("laplace", stats.laplace.cdf), ("gaussian", stats.norm.cdf)):
            for kind in ("discrete", "rounded"):
                found = getattr(r, f"{kind}_{name}")(scale, size, stream) / scale
                notes.fact(f"{kind} {name} {scale}", found)
                chance = stats.kstest(found, cdf).pvalue
                notes.law(f"{kind} {name} has its law", chance > RARE, f"p = {chance:.2g}")


@experiment("draws: grid")
def _grid(notes: Notes) -> None:
    from tacit import randomness as r

    stream, size = r.UnsafeSeededStream(5, "law"), 20_000
    for scale in (0.3, 7.0, 1e5):
        values = np.full(size, 0.1)
        for name, cdf, width in (
            ("grid_laplace", stats.laplace.cdf, 1.0),
            ("grid_gaussian", stats.norm.cdf, 1.0),
        ):
            try:
                found = np.asarray(getattr(r, name)(values, scale, 1.0, stream), dtype=float)
            except TypeError:
                found = np.asarray(getattr(r, name)(values, scale, stream=stream), dtype=float)
            notes.fact(f"{name} {scale}", found)
            spread = (found - 0.1) / (scale * width)
            ideal = math.sqrt(2) if "laplace" in name else 1.0
            ratio = float(np.std(spread)) / ideal
            notes.law(f"{name} is wide enough", ratio >= 0.95, f"{ratio:.3f}")
            chance = stats.kstest(spread, cdf).pvalue
            notes.fact(f"{name} {scale} p", round(chance, 3))
        step = r.granularity(scale)
        notes.fact(f"granularity {scale}", step)
        notes.law("the grid is fine", step <= scale / 1000, step / scale)
        notes.law("and a power of two", math.frexp(step)[0] == 0.5, step)


@experiment("draws: inclusion")
def _inclusion(notes: Notes) -> None:
    from tacit import randomness as r

    stream = r.UnsafeSeededStream(6, "law")
    for rate in (0.5, 0.1, 3e-3, 0.999, 0.25):
        count = 200_000
        found = r.included(count, rate, stream)
        notes.fact(f"included {rate}", found)
        seen = len(found) / count
        sigma = math.sqrt(rate * (1 - rate) / count)
        notes.law("the rate holds", seen - rate <= 5.5 * sigma, f"{seen} for {rate}")
        notes.law("nobody is in twice", len(np.unique(found)) == len(found))
    notes.fact("all", r.included(5, 1.0, stream))
    notes.fact("none", r.included(0, 0.5, stream))
    many = r.included(2**22 + 1000, 1e-3, stream)
    notes.fact("blocks", many)
    notes.law("the rate holds over blocks", len(many) <= 4595, len(many))
    picked = np.stack([r.subset(np.arange(10, 22), 4, stream) for _ in range(3000)])
    notes.fact("subset", picked)
    by_place = np.array([(picked == k).any(1).mean() for k in range(10, 22)])
    notes.law("subsets are uniform", np.abs(by_place - 1 / 3).max() <= 0.05, by_place.round(3).tolist())
    notes.law("of the right size", all(len(set(one)) == 4 for one in picked.tolist()))
    joint = float(np.mean((picked == 10).any(1) & (picked == 21).any(1)))
    notes.law("and jointly uniform", abs(joint - 12 / 132) <= 0.03, joint)


@experiment("draws: streams")
def _streams(notes: Notes) -> None:
    from tacit import randomness as r

    for make in (lambda: r.SecureStream("a"), lambda: r.UnsafeSeededStream(0, "a"), r.SystemStream):
        stream = make()
        pieces = [stream.bytes(count) for count in (0, 1, 7, 64, 4095, 4096, 4097, 3000, 600_000)]
        notes.fact("bytes", [hashlib.sha256(piece).hexdigest() for piece in pieces])
        notes.law("as many as asked", [len(p) for p in pieces] == [0, 1, 7, 64, 4095, 4096, 4097, 3000, 600_000])
        whole = np.frombuffer(b"".join(pieces), dtype=np.uint8)
        chance = stats.chisquare(np.bincount(whole, minlength=256)).pvalue
        notes.law("bytes are uniform", chance > RARE, chance)
        words = np.frombuffer(b"".join(pieces)[: len(whole) // 8 * 8], dtype=np.uint64)
        notes.law("no bytes come again", len(np.unique(words)) >= len(words) - 2, len(np.unique(words)))
        linked = np.corrcoef(whole[1:], whole[:-1])[0, 1]
        notes.law("and are independent", abs(linked) < 0.01, linked)
    two = [r.SecureStream("a").bytes(64) for _ in range(2)]
    notes.law("two streams differ", two[0] != two[1])
    names = [r.UnsafeSeededStream(0, name).bytes(64) for name in ("a", "b")]
    notes.law("purposes differ", names[0] != names[1])
    seeds = [r.UnsafeSeededStream(seed, "a").bytes(64) for seed in (0, 1)]
    notes.law("seeds differ", seeds[0] != seeds[1])


@experiment("draws: after a fork")
def _forked(notes: Notes) -> None:
    """A child draws other bytes than its parent, and none of its parent's noise."""
    from tacit import randomness as r

    stream = r.SecureStream("fork")
    stream.bytes(10)
    source = r.GaussianSource(torch.device("cpu"), r.SecureStream("noise"))
    rounded = r.RoundedGaussian(r.SecureStream("noise"), torch.device("cpu"))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = {"bytes": stream.bytes(32).hex(), "fast": "", "exact": ""}
        for name, drawn in (("fast", torch.zeros(4)), ("exact", torch.zeros(4, dtype=torch.int64))):
            try:
                source.normal_(drawn) if name == "fast" else rounded.integers_(drawn, 1e6)
                said[name] = str(drawn.tolist())
            except Exception as error:
                said[name] = type(error).__name__
        os.write(write, json.dumps(said).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    said = json.loads(os.read(read, 65536).decode() or "{}")
    os.close(read)
    notes.law("a child says something", bool(said))
    own = stream.bytes(32).hex()
    fast, exact = torch.zeros(4), torch.zeros(4, dtype=torch.int64)
    source.normal_(fast)
    rounded.integers_(exact, 1e6)
    notes.law("a child has bytes of its own", said.get("bytes") != own)
    notes.law("and noise of its own", said.get("fast") != str(fast.tolist()))
    notes.law("on the grid too", said.get("exact") != str(exact.tolist()))
    notes.fact("child", sorted(said))


@experiment("draws: odd tensors")
def _odd_tensors(notes: Notes) -> None:
    from tacit import randomness as r

    cpu = torch.device("cpu")
    source = r.GaussianSource(cpu, r.UnsafeSeededStream(1, "noise"))
    for dtype in (torch.float32, torch.float64):
        whole = torch.zeros(300, 200, dtype=dtype)
        source.normal_(whole.T[::2], 3.0)
        notes.fact("strided", whole)
        notes.law("scaled", 0.97 <= float(whole[:, ::2].std()) / 3.0 <= 1.03, float(whole[:, ::2].std()))
        notes.law("no other entry", not whole[:, 1::2].any())
        odd = torch.zeros(7, dtype=dtype)
        source.normal_(odd)
        notes.law("odd sizes", bool((odd != 0).all()))
    rounded = r.RoundedGaussian(r.UnsafeSeededStream(2, "noise"), cpu)
    whole = torch.zeros(300, 200, dtype=torch.int64)
    rounded.integers_(whole.T[::2], 1e4)
    notes.fact("strided whole numbers", whole)
    notes.law("all of them", float((whole[:, ::2] != 0).double().mean()) > 0.99 and not whole[:, 1::2].any())
    many = torch.zeros(40_001, dtype=torch.int64)
    for scale in (0.4, 3.0, 5e5, 1e12):
        rounded.integers_(many, scale)
        notes.fact(f"rounded {scale}", many)
        spread = float(many.double().std()) / math.sqrt(scale**2 + 1 / 12)
        least, most = (0.98, 1.02) if scale > 1 else (0.9, 1.1)
        notes.law("as wide as asked", least <= spread <= most, (scale, spread))
        linked = abs(float(np.corrcoef(many[1:].numpy(), many[:-1].numpy())[0, 1]))
        notes.law("independent", linked < 0.03, linked)
    for what, act in (
        ("whole noise of another type", lambda: rounded.integers_(torch.zeros(3), 1.0)),
        ("too wide", lambda: rounded.integers_(many, 2.0**50)),
        ("no width", lambda: rounded.integers_(many, 0.0)),
        ("a scale too large", lambda: r.discrete_laplace(2.0**60, 3, r.SystemStream())),
        ("a step that is no power of two", lambda: r.on_grid([1.0], 0.3)),
        ("a purpose that is no text", lambda: r.SecureStream(3)),
        ("a larger subset", lambda: r.subset(np.arange(3), 4, r.SystemStream())),
        ("a rate above 1", lambda: r.included(3, 1.5, r.SystemStream())),
    ):
        must_refuse(notes, what, act)
    notes.fact("on grid", r.on_grid([0.1, -0.3, 7.25, 1e-9], 0.25))
