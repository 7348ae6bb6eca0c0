"""Sampling: every unit by itself with the claimed chance, drawn again for every lot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from tacit.auditing.replay import significance
from tacit.auditing.replay.checks.noise import membership, standardised
from tacit.auditing.replay.experiments import allocated, at_own_rate, faint
from tacit.auditing.replay.oracle import is_adaptive
from tacit.auditing.replay.report import Finding
from tacit.training.sampling import TruncatedPoisson

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace

_BINS = 24
_TAILS = (0.2, 0.1, 0.05)


def rate(experiments: Experiments) -> Finding:
    """All units together, and each by itself, are in lots as often as the plan claims."""
    trace = longest_sampled(experiments)
    inside, chance = membership(trace)[1:], trace.variation.plan.sample_rate
    if not len(inside):
        said = f"only {len(trace.steps)} of {trace.variation.plan.steps} steps were taken"
        return Finding("control flow", "rate", False, f"{said}{_error_of(trace)}", ())
    together = significance.counts_p_value(int(inside.sum()), inside.size, chance)
    single = [
        significance.counts_p_value(int(column.sum()), len(column), chance) for column in inside.T
    ]
    p_value = significance.corrected([together, significance.corrected(single)])
    return Finding(
        "sampling",
        "rate",
        p_value > significance.LEVEL,
        f"units are in {inside.mean():.4f} of the lots, {chance:.4f} is claimed; the most unusual "
        f"is in {inside.mean(0)[int(np.argmin(single))]:.4f} (p = {p_value:.2g})",
        (("found", float(inside.mean())), ("claimed", chance), ("p-value", p_value)),
    )


def independence(experiments: Experiments) -> Finding:
    """Units come independently of each other and of the lot before: no shuffling, no fixed size."""
    trace = longest_sampled(experiments)
    inside, chance = membership(trace)[1:], trace.variation.plan.sample_rate
    steps, units = inside.shape
    pairs = inside.astype(np.float64).T @ inside.astype(np.float64)
    together = _most_unusual(pairs[np.triu_indices(units, 1)], steps, chance)
    again = [together_p_value(inside, lag, chance) for lag in (1, 2, 3)]
    sizes = inside.sum(1)
    p_value = significance.corrected(
        [
            together,
            *again,
            _sizes_p_value(sizes, units, chance),
            _unusual_sizes_p_value(sizes, units, chance),
        ]
    )
    spread = float(inside.sum(1).var()) / max(units * chance * (1.0 - chance), 1e-12)
    return Finding(
        "sampling",
        "independence",
        p_value > significance.LEVEL,
        f"the variance of lot sizes is {spread:.3f} of what independent units have; units that "
        f"come together, that come again in a later lot, and sizes: p = {p_value:.2g}",
        (("variance", spread), ("p-value", p_value)),
    )


def own_rate(experiments: Experiments) -> Finding:
    """At the plan's own rate, and of many records, each is as likely as claimed, wherever it is."""
    trace = at_own_rate(experiments)
    if trace is None:
        return Finding("sampling", "own rate", True, "everybody is in every lot")
    plan = trace.variation.plan
    if trace.error is not None or len(trace.steps) < 3:
        said = f"a run at the plan's own rate took {len(trace.steps)} steps{_error_of(trace)}"
        return Finding("control flow", "own rate", False, said)
    lots = [trace.units_of(step) for step in range(1, len(trace.steps))]
    chance, units = plan.sample_rate, plan.examples
    drawn = np.concatenate(lots)
    sizes = np.array([len(lot) for lot in lots])
    together = significance.counts_p_value(len(drawn), units * len(lots), chance)
    law = [together, _sizes_p_value(sizes, units, chance)]
    if isinstance(plan.sampling, TruncatedPoisson):
        law = [_cut_p_value(sizes, units, chance, plan.sampling.largest)]
        chance = len(drawn) / units / len(lots)  # the cut makes it less: places are judged by it
    bins = np.array_split(np.arange(units), min(_BINS, units))
    edges = np.array([part[0] for part in bins[1:]], dtype=np.int64)
    found = np.bincount(np.searchsorted(edges, drawn, side="right"), minlength=len(bins))
    places = [
        significance.counts_p_value(int(count), len(part) * len(lots), chance)
        for count, part in zip(found, bins, strict=True)
    ]
    again = sum(len(np.intersect1d(a, b)) for a, b in zip(lots[::2], lots[1::2], strict=False))
    pairs = units * min(len(lots[::2]), len(lots[1::2]))
    twice = significance.counts_p_value(again, pairs, chance * chance)
    p_value = significance.corrected([*law, significance.corrected(places), twice])
    return Finding(
        "sampling",
        "own rate",
        p_value > significance.LEVEL,
        f"of {units:,} records {len(drawn) / units / len(lots):.3g} are in a lot, {chance:.3g} is "
        f"claimed; of {len(bins)} parts of the data the most unusual has p = {min(places):.2g}, "
        f"records that come again p = {twice:.2g} (p = {p_value:.2g} in all)",
        (("found", len(drawn) / units / len(lots)), ("claimed", chance), ("p-value", p_value)),
    )


def epochs(experiments: Experiments) -> Finding:
    """Under allocation each unit is in one lot of every epoch, any of them, by its own draw."""
    trace = allocated(experiments)
    if trace is None:
        return Finding("sampling", "epochs", True, "no unit is allocated to a lot of an epoch")
    plan = trace.variation.plan
    lots = plan.steps_per_epoch
    if trace.error is not None or len(trace.steps) != plan.steps:
        said = f"of {plan.steps} steps {len(trace.steps)} were taken{_error_of(trace)}"
        return Finding("control flow", "epochs", False, said)
    inside = membership(trace)[lots:].reshape(-1, lots, plan.examples)  # the first lot rehearses
    often = inside.sum(1)
    if (often != 1).any():
        said = f"in an epoch a unit is in {often.min()} to {often.max()} lots, not in one"
        return Finding("sampling", "epochs", False, said)
    p_values = allocation_p_values(inside.argmax(1), lots)
    p_value = significance.corrected(list(p_values.values()))
    return Finding(
        "sampling",
        "epochs",
        p_value > significance.LEVEL,
        f"each unit is in one lot of each of {len(inside)} epochs; "
        + ", ".join(f"{name}: p = {one:.2g}" for name, one in p_values.items()),
        (("p-value", p_value),),
    )


def allocation_p_values(assigned: NDArray[np.int64], lots: int) -> dict[str, float]:
    """How unusual an allocation is: ``assigned`` has the lot of each unit, a row for each epoch.

    Sizes of lots are multinomial, neither even, as after a shuffle, nor uneven; in the next epochs
    a unit, and two units together, come as often as chance would have it.
    """
    rounds, units = assigned.shape
    sizes = np.stack([np.bincount(row, minlength=lots) for row in assigned])
    spread = float(((sizes - units / lots) ** 2).sum()) * lots / units
    law = stats.chi2((lots - 1) * rounds)
    each = [
        significance.counts_p_value(int(count), rounds * units, 1.0 / lots)
        for count in sizes.sum(0)
    ]
    own = [
        significance.counts_p_value(int((column == lot).sum()), rounds, 1.0 / lots)
        for column in assigned.T
        for lot in range(lots)
    ]
    again = [
        significance.counts_p_value(
            int((assigned[lag:] == assigned[:-lag]).sum()), (rounds - lag) * units, 1.0 / lots
        )
        for lag in (1, 2, 3)
    ]
    one, other = np.triu_indices(units, 1)
    together = assigned[:, one] == assigned[:, other]
    both = int((together[1:] & together[:-1]).sum())
    pairs = significance.counts_p_value(both, (rounds - 1) * len(one), 1.0 / lots**2)
    return {
        "sizes": min(1.0, 2.0 * min(float(law.cdf(spread)), float(law.sf(spread)))),
        "lots": significance.corrected(each),
        "units": significance.corrected(own),
        "again": significance.corrected(again),
        "pairs": pairs,
    }


def fresh(experiments: Experiments) -> Finding:
    """Another run, under the same global seeds, draws other lots; by the same plan, too."""
    little = [experiments.noise_run(f"a little noise {at}", steps=6) for at in range(2)]
    pairs = [(experiments.lots, experiments.moving), (little[0], little[1])]
    p_value = significance.corrected(
        [
            significance.same_rows_p_value(
                membership(one)[1:], membership(other)[1:], one.variation.plan.sample_rate
            )
            for one, other in pairs
        ]
    )
    return Finding(
        "sampling",
        "fresh in every run",
        p_value > significance.LEVEL,
        f"lots that come again in another run under the same global seeds have p = {p_value:.2g}",
        (("p-value", p_value),),
    )


def empty_lots(experiments: Experiments) -> Finding:
    """Empty lots come as often as they should, and are steps like all others."""
    trace = experiments.sparse
    plan = trace.variation.plan
    if trace.error is not None or len(trace.steps) != plan.steps:
        return Finding(
            "control flow",
            "empty lots",
            False,
            f"of {plan.steps} steps with a lot of {plan.lot_size:g} units on average only "
            f"{len(trace.steps)} were taken{_error_of(trace)}: empty lots end or skip a step",
            (("steps", float(len(trace.steps))),),
        )
    empty = [at for at in range(len(trace.steps)) if not len(trace.steps[at].rows)]
    chance = (1.0 - plan.sample_rate) ** plan.examples
    p_value = significance.counts_p_value(len(empty), plan.steps, chance)
    silent = sum(not bool(trace.steps[at].gradient.any()) for at in empty)
    noise, noise_note = _small_noise(trace)
    return Finding(
        "noise" if silent or noise <= significance.LEVEL else "sampling",
        "empty lots",
        min(p_value, noise) > significance.LEVEL and not silent,
        f"{len(empty)} of {plan.steps} lots are empty, {chance * plan.steps:.1f} are expected "
        f"(p = {p_value:.2g}); {silent} of them released no noise; {noise_note}",
        (("empty", float(len(empty))), ("p-value", p_value), ("silent", float(silent))),
    )


def _small_noise(trace: Trace) -> tuple[float, str]:
    """Whether the noise on lots of a unit or none is of the claimed size, in every step."""
    if is_adaptive(trace.variation.plan):
        return 1.0, "the clip moves: the size of their noise is not known"
    values = standardised(trace)
    p_value = significance.variances_p_value(values.T)
    ratio = float(np.sqrt(np.square(values).mean()))
    return p_value, f"in all steps the noise is {ratio:.3f} of the claimed (p = {p_value:.2g})"


def _error_of(trace: Trace) -> str:
    error = trace.error
    return "" if error is None else f" ({type(error).__name__}: {error})".splitlines()[0][:160]


def longest_sampled(experiments: Experiments) -> Trace:
    """The longest run with sampled lots."""
    return experiments.counted if is_adaptive(experiments.plan) else experiments.noise


def _most_unusual(counts: NDArray[np.float64], steps: int, chance: float) -> float:
    low, high = int(counts.min()), int(counts.max())
    ends = [significance.counts_p_value(end, steps, chance * chance) for end in (low, high)]
    return min(1.0, min(ends) * counts.size)


def together_p_value(inside: NDArray[np.bool_], lag: int, chance: float) -> float:
    """Whether two rows that are ``lag`` apart have as much in common as they should.

    No row is in two of the pairs that are counted, so that pairs are independent.
    """
    first = np.arange(len(inside) - lag)
    first = first[first // lag % 2 == 0]
    both = inside[first] & inside[first + lag]
    return significance.counts_p_value(int(both.sum()), both.size, chance * chance)


def _sizes_p_value(sizes: NDArray[np.int64], units: int, chance: float) -> float:
    """Whether lot sizes spread as binomial ones do.

    Σ(size - n·q)²/(n·q·(1-q)) has the mean T and, with the binomial's excess kurtosis κ, the
    variance T·(2 + κ); its distribution is close to a scaled χ² of the same two.
    """
    variance = units * chance * (1.0 - chance)
    if variance == 0.0:
        return 1.0
    kurtosis = (1.0 - 6.0 * chance * (1.0 - chance)) / variance
    total = float(np.square(sizes - units * chance).sum()) / variance
    # A χ² of k degrees, times c: mean c·k = T, variance 2·c²·k = T·(2 + κ).
    width = (2.0 + kurtosis) / 2.0
    degrees = len(sizes) / width
    return significance.chi_square_p_value(total / width, degrees)


def _cut_p_value(sizes: NDArray[np.int64], units: int, chance: float, largest: int) -> float:
    """Whether lots are cut to the largest size as often as they should be, and never larger."""
    if int(sizes.max()) > largest:
        return 0.0
    law = stats.binom(units, chance)
    cut = int((sizes == largest).sum())
    below = sizes[sizes < largest]
    return significance.corrected(
        [
            significance.counts_p_value(cut, len(sizes), float(law.sf(largest - 1))),
            significance.counts_p_value(
                int((below < units * chance).sum()), len(sizes), float(law.cdf(units * chance - 1))
            ),
        ]
    )


def _unusual_sizes_p_value(sizes: NDArray[np.int64], units: int, chance: float) -> float:
    """Whether large and small lots come as often as binomial ones: neither cut nor drawn again."""
    law = stats.binom(units, chance)
    found = []
    for share in _TAILS:
        most, least = int(law.isf(share)), int(law.ppf(share))
        found += [
            significance.counts_p_value(int((sizes > most).sum()), len(sizes), law.sf(most)),
            significance.counts_p_value(int((sizes < least).sum()), len(sizes), law.cdf(least - 1)),
        ]
    return significance.corrected(found)


# ---- lots over a run: at one rate from start to end, each unit once, whatever the data are


_PARTS = 3, 10  # of a run: start, middle and end, and finer
_LAGS = tuple(range(1, 13))


def once(experiments: Experiments) -> Finding:
    """A record is in a lot once, and has as many views in it as the plan says."""
    plan = experiments.plan
    if plan.unit == "user":
        said = "users' records may come again to fill up a batch; the sums tell if they count"
        return Finding("sampling", "once in a lot", True, said)
    performance = experiments.lab.setting.performance
    if performance.capture or performance.compile:
        said = "records may come again to fill up a batch; the sums tell if they count"
        return Finding("sampling", "once in a lot", True, said)
    trace = longest_sampled(experiments)
    most, found = plan.views, 0
    for step in trace.steps[1:]:  # an engine may look at its first lot more than once
        places = [trace.reads[row].place for row in step.rows]
        found += int((np.bincount(places, minlength=1) > most).sum())
    return Finding(
        "sampling",
        "once in a lot",
        not found,
        f"in {len(trace.steps) - 1} lots, {found} times a record was in a lot more often than its "
        f"{most} view{'s' if most > 1 else ''}",
        (("found", float(found)),),
    )


def steady(experiments: Experiments) -> Finding:
    """Lots are as large at the start, in the middle and at the end, and know nothing of others."""
    trace = longest_sampled(experiments)
    inside, chance = membership(trace)[1:], trace.variation.plan.sample_rate
    if len(inside) < 2 * max(_PARTS) or not 0.0 < chance < 1.0:
        return Finding("sampling", "steady", True, "too few lots, or everybody is in every lot")
    parts = [part for count in _PARTS for part in np.array_split(inside, count)]
    rates = [significance.counts_p_value(int(part.sum()), part.size, chance) for part in parts]
    scores = significance.count_scores(inside.sum(1), inside.shape[1], chance)
    sizes = [
        significance.spread_p_value(scores),
        *(significance.lag_p_value(scores[:, None], lag) for lag in _LAGS),
        *(significance.cosines_p_value(scores[None], shape[None]) for shape in _drifts(scores)),
    ]
    p_value = significance.corrected([significance.corrected(rates), significance.corrected(sizes)])
    thirds = ", ".join(f"{part.mean():.3f}" for part in parts[: _PARTS[0]])
    return Finding(
        "sampling",
        "steady",
        p_value > significance.LEVEL,
        f"at the start, in the middle and at the end units are in {thirds} of the lots; rates, and "
        f"sizes of lots one after the other: p = {p_value:.2g}",
        (("p-value", p_value),),
    )


def neighbours(experiments: Experiments) -> Finding:
    """Units come neither with those next to them nor again later, and none is favoured."""
    trace = longest_sampled(experiments)
    inside, chance = membership(trace)[1:], trace.variation.plan.sample_rate
    if len(inside) < 2 or not 0.0 < chance < 1.0:
        return Finding("sampling", "neighbours", True, "everybody is in every lot")
    steps, units = inside.shape
    beside = [together_p_value(inside.T, lag, chance) for lag in _shifts(units)]
    later = [together_p_value(inside, lag, chance) for lag in _LAGS if lag < steps]
    favoured = significance.spread_p_value(significance.count_scores(inside.sum(0), steps, chance))
    p_value = significance.corrected(
        [significance.corrected(beside), significance.corrected(later), favoured]
    )
    return Finding(
        "sampling",
        "neighbours",
        p_value > significance.LEVEL,
        f"over all pairs: units next to each other p = {min(beside):.2g}, units in later lots "
        f"p = {min(later):.2g}, units that are favoured p = {favoured:.2g}",
        (("p-value", p_value),),
    )


def by_data(experiments: Experiments) -> Finding:
    """Who is in a lot does not follow the sizes of gradients, nor what came of earlier lots.

    Half of the units have losses that are far smaller than the others'.
    """
    trace = experiments.counted if is_adaptive(experiments.plan) else faint(experiments)
    inside, chance = membership(trace.taken(2))[1:], trace.variation.plan.sample_rate
    norms = _norms(experiments, trace)
    order = np.argsort(norms)
    found = []
    for share in (2, 4):
        few = max(1, len(order) // share)
        for name, group in (("smallest", order[:few]), ("largest", order[-few:])):
            chosen = inside[:, group]
            p_value = significance.counts_p_value(int(chosen.sum()), chosen.size, chance)
            found.append((p_value, f"the {few} {name}", float(chosen.mean())))
    single = significance.corrected(
        [significance.counts_p_value(int(one.sum()), len(one), chance) for one in inside.T]
    )
    worst, name, rate = min(found)
    p_value = significance.corrected([min(1.0, worst * len(found)), single])
    return Finding(
        "sampling",
        "without the data",
        p_value > significance.LEVEL,
        f"units with {name} gradients are in {rate:.3f} of the lots, {chance:.3f} is claimed "
        f"(p = {p_value:.2g})",
        (("rate", rate), ("p-value", p_value)),
    )


def _drifts(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """How lots may change over a run: evenly, in the middle, and every other one."""
    time = np.linspace(-1.0, 1.0, len(scores))
    return np.stack([time, time * time - 1.0 / 3.0, 1.0 - 2.0 * (np.arange(len(scores)) % 2)])


def _shifts(units: int) -> list[int]:
    return [lag for lag in dict.fromkeys((1, 2, 3, units // 2)) if 0 < lag < units]


def _norms(experiments: Experiments, trace: Trace) -> NDArray[np.float64]:
    """The norm of every unit's gradient in a run at the first weights; 0 if it never came."""
    norms = np.zeros(trace.variation.records.count)
    for step in range(len(trace.steps)):
        if norms[trace.units_of(step)].all():
            continue
        for unit, gradient in experiments.oracle.of_step(trace, step).items():
            norms[unit] = float(gradient.norm())
    return norms
