"""Asks the accountant what is seldom asked, as a user would, beside truths that share no code.

    python benchmarks/corners.py [--record]

Every row is a line of Python: what was found, its bracket where there is one, CPU time of the
second call, a truth by mpmath, a closed form or a published figure, and the test that covers it.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from scipy import stats

import machine
import tacit
from tacit import accounting, mechanisms
from tacit.errors import TacitError

RESULTS = Path(__file__).resolve().parent / "results"
NAMES: dict[str, Any] = {
    name: getattr(accounting, name) for name in accounting.__all__ if not name.startswith("_")
} | {"math": math, "np": np, "mechanisms": mechanisms}


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Balle & Wang 2018, in 40 digits."""
    with mpmath.workdps(40):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return float(mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m))


def gaussian_epsilon(mu: float, delta: float) -> float:
    with mpmath.workdps(40):
        m, d = mpmath.mpf(mu), mpmath.mpf(delta)
        low, high = mpmath.mpf(0), m * m + 40 * m + 10
        for _ in range(160):
            middle = (low + high) / 2
            found = mpmath.ncdf(m / 2 - middle / m)
            found -= mpmath.exp(middle) * mpmath.ncdf(-m / 2 - middle / m)
            low, high = (middle, high) if found > d else (low, middle)
        return float(high)


def gaussian_power(mu: float, rate: float) -> float:
    """The most powerful test at a false-positive rate (Dong, Roth & Su 2022)."""
    with mpmath.workdps(40):
        place = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(rate))
        return float(mpmath.ncdf(mu - place))


def mixture_epsilon(weights: dict[float, float], sigma: float, delta: float) -> float:
    """ε of one release: a mixture of shifts against plain noise, and the reverse, by 40 digits."""
    with mpmath.workdps(40):
        s = mpmath.mpf(sigma)
        pairs = [(mpmath.mpf(m), mpmath.mpf(w)) for m, w in weights.items() if w > 1e-60]

        def ratio(x: mpmath.mpf) -> mpmath.mpf:
            return mpmath.fsum(w * mpmath.exp((2 * m * x - m * m) / (2 * s * s)) for m, w in pairs)

        def one(level: mpmath.mpf, *, forward: bool) -> mpmath.mpf:
            goal = mpmath.exp(level if forward else -level)
            if not forward and goal <= mpmath.fsum(w for m, w in pairs if m == 0):
                return mpmath.mpf(0)
            low, high = mpmath.mpf(-400) * s - 400, mpmath.mpf(400) * s + 400
            for _ in range(180):
                middle = (low + high) / 2
                low, high = (middle, high) if ratio(middle) < goal else (low, middle)
            above = mpmath.ncdf(-low / s)
            mixed = mpmath.fsum(w * mpmath.ncdf((m - low) / s) for m, w in pairs)
            if forward:
                return mixed - goal * above
            return (1 - above) - mpmath.exp(level) * (1 - mixed)

        low, high = mpmath.mpf(0), mpmath.mpf(300)
        for _ in range(60):
            middle = (low + high) / 2
            most = max(one(middle, forward=True), one(middle, forward=False))
            low, high = (middle, high) if most > delta else (low, middle)
        return float(high)


def binomial(k: int, rate: float) -> dict[float, float]:
    law = stats.binom(k, rate)
    return {float(j): float(law.pmf(j)) for j in range(k + 1) if law.pmf(j) > 1e-40}


def discrete_gaussian_epsilon(sigma: float, delta: float) -> float:
    with mpmath.workdps(40):
        s = mpmath.mpf(sigma)
        law = {x: mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * s * s)) for x in range(-60, 61)}
        total = mpmath.fsum(law.values())

        def one(level: mpmath.mpf) -> mpmath.mpf:
            found = mpmath.mpf(0)
            for x, p in law.items():
                loss = (1 - 2 * x) / (2 * s * s)
                found += p / total * -mpmath.expm1(level - loss) if loss > level else 0
            return found

        low, high = mpmath.mpf(0), mpmath.mpf(900)
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if one(middle) > delta else (low, middle)
        return float(high)


# What is asked, the question, the truth (None: see the test), and the test that covers it.
ROWS: list[tuple[str, str, Any, str]] = [
    (
        "a group of 1,000, plain noise",
        "bounds(group(Repeated(Gaussian(4000.0), 10), 1000), 1e-5)",
        lambda: gaussian_epsilon(1000 / 4000 * math.sqrt(10), 1e-05),
        "test_questions",
    ),
    (
        "a group of 1,000, sampled once",
        "bounds(group(PoissonSampled(1e-3, Gaussian(2.0)), 1000), 1e-5)",
        lambda: mixture_epsilon(binomial(1000, 0.001), 2.0, 1e-05),
        "test_sampled_pairs",
    ),
    (
        "a group of 1,000 over 100 steps",
        "bounds(group(Repeated(PoissonSampled(1e-3, Gaussian(4.0)), 100), 1000), 1e-5)",
        None,
        "test_sampled_pairs",
    ),
    (
        "δ = 0 of a pure mechanism",
        "epsilon(Repeated(Laplace(2.0), 3), 0)",
        lambda: 1.5,
        "test_questions",
    ),
    (
        "δ = 0 of Gaussian noise",
        "epsilon(Gaussian(1.0), 0)",
        lambda: math.inf,
        "test_questions",
    ),
    (
        "δ = 0, sampled",
        "bounds(PoissonSampled(0.1, Laplace(0.5)), 0)",
        lambda: math.log1p(0.1 * math.expm1(2.0)),
        "test_questions",
    ),
    (
        "δ = 1",
        "epsilon(Gaussian(1.0), 1)",
        lambda: 0.0,
        "test_questions",
    ),
    (
        "δ of 1e-300",
        "bounds(Gaussian(1.0), 1e-300)",
        lambda: gaussian_epsilon(1.0, 1e-300),
        "test_questions",
    ),
    (
        "δ of 1e-310",
        "bounds(Gaussian(1.0), 1e-310)",
        None,
        "test_questions",
    ),
    (
        "with replacement, add-remove",
        "bounds(Repeated(SampledWithReplacement(1000, 10, Gaussian(2.0)), 100), 1e-5)",
        None,
        "test_samples_by_enumeration",
    ),
    (
        "with replacement, replace-one",
        "bounds(Repeated(SampledWithReplacement(1000, 10, Gaussian(2.0)), 100), 1e-5, "
        "'replace-one')",
        None,
        "test_samples_by_enumeration",
    ),
    (
        "a group of 5, fixed size",
        "bounds(group(SampledWithoutReplacement(1000, 10, Gaussian(2.0)), 5), 1e-5)",
        None,
        "test_samples_by_enumeration",
    ),
    (
        "a group of 5, truncated",
        "bounds(group(PoissonSampled(0.01, Gaussian(2.0), 30, 1000), 5), 1e-5)",
        None,
        "test_samples_by_enumeration",
    ),
    (
        "zero-out at fixed size",
        "bounds(Repeated(SampledWithoutReplacement(1000, 10, Gaussian(2.0)), 100), 1e-5, "
        "'zero-out')",
        None,
        "test_samples_by_enumeration",
    ),
    (
        "fixed size, replace-one",
        "bounds(Repeated(SampledWithoutReplacement(1000, 10, Gaussian(2.0)), 100), 1e-5, "
        "'replace-one')",
        None,
        "test_samples_by_enumeration",
    ),
    (
        "DiscreteGaussian(.307)",
        "bounds(DiscreteGaussian(0.307), 1e-5)",
        lambda: discrete_gaussian_epsilon(0.307, 1e-05),
        "test_discrete",
    ),
    (
        "Poisson-sampled DiscreteGaussian(4)",
        "bounds(Repeated(PoissonSampled(0.01, DiscreteGaussian(4.0)), 10_000), 1e-5)",
        None,
        "test_smoothing",
    ),
    (
        "Poisson-sampled Laplace",
        "bounds(Repeated(PoissonSampled(0.01, Laplace(1.0)), 100), 1e-5)",
        None,
        "test_smoothing",
    ),
    (
        "Laplace and discrete noise together",
        "bounds(Composed(Repeated(Laplace(5.0), 10), DiscreteGaussian(3.0), Gaussian(2.0)), 1e-6)",
        None,
        "test_smoothing",
    ),
    *(
        (
            f"truncated Poisson, cap {cap}",
            f"bounds(Repeated(PoissonSampled(0.01, Gaussian(1.0), {cap}, 1000), 100), 1e-5)",
            None,
            "test_peers_table, test_either",
        )
        for cap in (16, 20, 25, 30, 35, 41, 45)
    ),
    (
        "selection's Rényi curve, Poisson runs",
        "epsilon(PrivateSelection(Gaussian(4.0), PoissonRuns(10.0)), 1e-6)",
        None,
        "test_selection_profile",
    ),
    (
        "one run for certain",
        "epsilon(PrivateSelection(Gaussian(2.0), TruncatedNegativeBinomial(1.0, 1.0)), 1e-6)",
        lambda: gaussian_epsilon(0.5, 1e-06),
        "test_selection_profile",
    ),
    (
        "μ of a Gaussian",
        "profile(Gaussian(2.0)).mu().mu",
        lambda: 0.5,
        "test_curve",
    ),
    (
        "power at FPR 1e-9",
        "profile(Gaussian(1.0)).power(1e-9)",
        lambda: gaussian_power(1.0, 1e-9),
        "test_questions",
    ),
    (
        "power at FPR 1e-7, DP-SGD",
        "profile(Repeated(PoissonSampled(0.01, Gaussian(1.0)), 1000)).power(1e-7)",
        None,
        "test_questions",
    ),
    (
        "a schedule of noise and clip",
        "bounds(Composed(*(Repeated(PoissonSampled(0.01, Gaussian(1.0 + k / 50)), 10)"
        " for k in range(100))), 1e-5)",
        None,
        "test_schedule",
    ),
    (
        "10,000 different steps",
        "epsilon(Composed(*(PoissonSampled(0.01, Gaussian(1.0 + k / 5000))"
        " for k in range(10_000))), 1e-5)",
        None,
        "test_schedule",
    ),
    (
        "add-only",
        "bounds(Repeated(PoissonSampled(0.1, Gaussian(1.0)), 10), 1e-5, 'add-only')",
        None,
        "test_questions",
    ),
    (
        "remove-only, one step",
        "bounds(PoissonSampled(0.1, Gaussian(1.0)), 1e-5, 'remove-only')",
        lambda: mixture_epsilon({0.0: 0.9, 1.0: 0.1}, 1.0, 1e-05),
        "test_questions",
    ),
    (
        "(ξ, ρ)-zCDP",
        "epsilon(ZeroConcentrated(0.1, xi=0.2), 1e-5)",
        None,
        "test_zcdp",
    ),
    (
        "by δ(ε)",
        "epsilon(from_profile(epsilons=[0.0, 1.0, 2.0], deltas=[0.4, 0.1, 1e-6]), 0.1)",
        lambda: 1.0,
        "test_exchange",
    ),
    (
        "by its trade-off, error rates falling between points",
        "epsilon(from_tradeoff(fpr=[0.0, 0.25, 1.0], fnr=[1.0, 0.25, 0.0]), 0)",
        lambda: math.inf,
        "test_exchange",
    ),
    (
        "by two laws",
        "epsilon(from_laws(p=[0.75, 0.25], q=[0.25, 0.75]), 0)",
        lambda: math.log(3.0),
        "test_exchange",
    ),
    (
        "a rate",
        "sample_rate(epsilon=2, delta=1e-5, noise_multiplier=2.0, steps=1_000)",
        None,
        "test_calibration",
    ),
    (
        "out to dp-accounting and back",
        "delta(from_dp_accounting(to_dp_accounting(loss_distribution(Gaussian(2.0), "
        "spacing=0.001), 0.001)), 1.0)",
        lambda: gaussian_delta(0.5, 1.0),
        "test_exchange",
    ),
    (
        "out as CSV and back",
        "epsilon(read_tradeoff(write_tradeoff(Gaussian(2.0), fpr=list(np.geomspace(1e-9, "
        "1, 200)))), 1e-3)",
        lambda: gaussian_epsilon(0.5, 0.001),
        "test_exchange",
    ),
    (
        "variance",
        "mechanisms.variance(np.arange(1000.0), bounds=(0, 1000), epsilon=1.0).event",
        None,
        "test_variances",
    ),
    (
        "standard deviation",
        "mechanisms.standard_deviation(np.arange(1000.0), bounds=(0, 1000), epsilon=1.0).event",
        None,
        "test_variances",
    ),
    (
        "top-k",
        "mechanisms.top_k([5, 9, 1, 7], 2, sensitivity=1, epsilon=1.0).event",
        None,
        "test_choices_top",
    ),
    (
        "geometric noise",
        "mechanisms.geometric(10, sensitivity=1, epsilon=1.0).event",
        None,
        "test_numbers_whole",
    ),
    (
        "bounded Laplace noise",
        "mechanisms.bounded_laplace(0.5, sensitivity=1, bounds=(0, 1), epsilon=1.0).event",
        None,
        "test_numbers_bounded",
    ),
    (
        "a mean that skips what is missing",
        "mechanisms.mean([1.0, None, 3.0, float('nan')], bounds=(0, 5), epsilon=1.0, "
        "skip_missing=True).event",
        None,
        "test_sums",
    ),
]


def main() -> None:
    arguments = parse_arguments()
    rows = [ask(*row) for row in ROWS]
    record = {**machine.stamp(), "tacit": tacit.__version__, "rows": rows}
    report = markdown(record)
    print(report)
    if arguments.record:
        text = json.dumps(record, indent=1, ensure_ascii=False)
        (RESULTS / "corners.json").write_text(text + "\n")
        (RESULTS / "corners.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    return parser.parse_args()


def ask(what: str, question: str, truth: Any, test: str) -> dict[str, Any]:
    print(what, "...", file=sys.stderr, flush=True)
    seconds = 0.0
    for _ in range(2):
        start = time.process_time()
        try:
            found = eval(question, NAMES)
        except TacitError as refusal:
            found = refusal
        seconds = time.process_time() - start
    two_sided = getattr(found, "two_sided", None)
    lower = found.lower if two_sided else None
    upper = getattr(found, "upper", found)
    return {
        "what": what,
        "question": question,
        "lower": lower,
        "upper": upper if isinstance(upper, float) else str(upper),
        "method": getattr(found, "method", ""),
        "truth": None if truth is None else truth(),
        "seconds": seconds,
        "test": test,
    }


def markdown(record: dict[str, Any]) -> str:
    place = record["machine"]
    return "\n".join(
        [
            f"Measured {record['date']} at commit {record['commit']} by `{record['command']}` on "
            f"{place['cpu']}, {place['cores']} cores, {place['system']}; one thread, CPU time.",
            "",
            "| asked | found | width | truth | method | ms | covered by |",
            "|---|---:|---:|---:|---|---:|---|",
            *map(table_row, record["rows"]),
            "",
            "| asked | in Python |",
            "|---|---|",
            *(f"| {row['what']} | `{row['question']}` |" for row in record["rows"]),
        ]
    )


def table_row(row: dict[str, Any]) -> str:
    upper, truth = row["upper"], row["truth"]
    shown = f"{upper:.10g}" if isinstance(upper, float) else f"`{upper}`"
    width = "" if row["lower"] is None else f"{upper - row['lower']:.1e}"
    if isinstance(upper, float) and math.isinf(upper):
        width = ""
    known = "" if truth is None else f"{truth:.10g}"
    if truth is not None and isinstance(upper, float) and upper < truth * (1.0 - 1e-15):
        known += " **above**"
    return (
        f"| {row['what']} | {shown} | {width} | {known} | {row['method']} | "
        f"{1e3 * row['seconds']:.1f} | `{row['test']}` |"
    )


if __name__ == "__main__":
    main()
