"""How narrow and how quick certified ends are where sampling is rare, noise small or steps few.

    python benchmarks/rare_sampling.py [--every 1] [--pairs 10000] [--record]

A grid of Poisson-sampled Gaussian runs: rates 1e-7 to 0.1, σ 0.5 to 5, 1 to 10⁷ steps, δ 1e-12 to
1e-5. Every setting is asked once, in CPU time of one thread. Neighbours on the grid say whether the
upper end is monotone in each parameter. ``--every 7`` asks every seventh setting. For every
eighteenth of those that have an ε its noise is searched for, too: how far is σ from the least?
Pairs of settings at random that differ in one number are put in order as well.
"""

import argparse
import itertools
import json
import math
import os
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import machine
import tacit
from tacit.accounting import Event, Gaussian, PoissonSampled, Repeated, bounds, noise_multiplier

RESULTS = Path(__file__).resolve().parent / "results"
RATES = (1e-7, 1e-6, 1e-5, 4e-5, 1e-4, 1e-3, 1e-2, 0.1)
SIGMAS = (0.5, 0.614, 0.8, 1.0, 2.0, 5.0)
STEPS = (1, 2, 10, 1_000, 100_000, 10_000_000)
DELTAS = (1e-12, 1e-8, 1e-5)
AXES = ("rate", "sigma", "steps", "delta")
RISES = {"rate": True, "sigma": False, "steps": True, "delta": False}  # does ε rise with it?
REQUIRED_WIDTH, REQUIRED_MEDIAN, REQUIRED_WORST = 1e-6, 5e-3, 0.1
REQUIRED_SEARCH, REQUIRED_NOISE = 0.05, 1e-6
SEARCHED = 18  # one in so many


def main() -> None:
    arguments = parse_arguments()
    load = os.getloadavg()[0]
    settings = list(itertools.product(RATES, SIGMAS, STEPS, DELTAS))[:: arguments.every]
    bounds(Repeated(PoissonSampled(0.01, Gaussian(1.0)), 10), 1e-5)  # imports
    rows = []
    for number, setting in enumerate(settings):
        if number % 50 == 0:
            print(f"{number} of {len(settings)} ...", file=sys.stderr, flush=True)
        rows.append(ask(*setting))
    known = [row for row in rows if row["upper"]]
    print(f"noise of {len(known[::SEARCHED])} ...", file=sys.stderr, flush=True)
    found = [search(row) for row in known[::SEARCHED]]
    print(f"{arguments.pairs} random neighbours ...", file=sys.stderr, flush=True)
    record = {
        **machine.stamp(), "load": load, "tacit": tacit.__version__, "rows": rows, "noise": found,
        "neighbours": random_neighbours(arguments.pairs),
    }  # fmt: skip
    report = markdown(record)
    print(report)
    if arguments.record:
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        (RESULTS / "rare_sampling.json").write_text(text + "\n")
        (RESULTS / "rare_sampling.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="ask every n-th setting")
    parser.add_argument("--pairs", type=int, default=10_000, help="random neighbours to compare")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    return parser.parse_args()


def run(rate: float, sigma: float, steps: int) -> Event:
    return Repeated(PoissonSampled(rate, Gaussian(sigma)), steps)


def search(row: dict[str, Any]) -> dict[str, Any]:
    """The least noise for a row's own ε; whether it is enough, and a millionth less is not."""
    rate, steps, delta, epsilon = row["rate"], row["steps"], row["delta"], row["upper"]
    start = time.process_time()
    sigma = noise_multiplier(epsilon, delta, rate, steps)
    seconds = time.process_time() - start
    return {
        **{axis: row[axis] for axis in AXES},
        "epsilon": epsilon,
        "found": sigma,
        "enough": bounds(run(rate, sigma, steps), delta).upper <= epsilon,
        "least": bounds(run(rate, sigma * (1.0 - REQUIRED_NOISE), steps), delta).upper > epsilon,
        "seconds": seconds,
    }


def ask(rate: float, sigma: float, steps: int, delta: float) -> dict[str, Any]:
    start = time.process_time()
    found = bounds(run(rate, sigma, steps), delta)
    return {
        "rate": rate,
        "sigma": sigma,
        "steps": steps,
        "delta": delta,
        "lower": found.lower,
        "upper": found.upper if math.isfinite(found.upper) else None,
        "two_sided": found.two_sided,
        "method": found.method,
        "seconds": time.process_time() - start,
    }


def width(row: dict[str, Any]) -> float:
    """Of the bracket, over max(1, ε)."""
    if row["upper"] is None:
        return math.inf
    return float((row["upper"] - row["lower"]) / max(1.0, row["upper"]))


def against_order(rows: list[dict[str, Any]]) -> tuple[int, int]:
    """How many neighbours on the grid have brackets in the wrong order, and how many there are."""
    known = {tuple(row[axis] for axis in AXES): row for row in rows}
    values = {"rate": RATES, "sigma": SIGMAS, "steps": STEPS, "delta": DELTAS}
    wrong = pairs = 0
    for key, row in known.items():
        for place, axis in enumerate(AXES):
            later = values[axis].index(key[place]) + 1
            if later == len(values[axis]):
                continue
            other = known.get((*key[:place], values[axis][later], *key[place + 1 :]))
            if other is None or row["upper"] is None or other["upper"] is None:
                continue
            less, more = (row, other) if RISES[axis] else (other, row)
            wrong += less["lower"] > more["upper"]
            pairs += 1
    return wrong, pairs


def random_neighbours(count: int) -> dict[str, Any]:
    """Settings at random, each beside one that differs in one number, by a lot or by little.

    Brackets are in the wrong order if they exclude each other; upper ends, which are what users
    are told, if they fall by more than 1e-8·max(1, ε) where ε rises.
    """
    draw = random.Random(21)
    found: dict[str, Any] = {"pairs": 0, "brackets": 0, "upper_ends": 0, "worst": 0.0}
    for _ in range(count):
        setting = {
            "rate": 10 ** draw.uniform(-7, -0.5), "sigma": 10 ** draw.uniform(-0.35, 0.9),
            "steps": round(10 ** draw.uniform(0, 6.5)), "delta": 10 ** draw.uniform(-12, -4),
        }  # fmt: skip
        axis = draw.choice(AXES)
        moved = setting[axis] * (1 + 10 ** draw.uniform(-5, 0))
        other = setting | {axis: math.ceil(moved) if axis == "steps" else moved}
        asked = [ask(**one) for one in ((setting, other) if RISES[axis] else (other, setting))]
        less, more = asked
        fall = (less["upper"] - more["upper"]) / max(1.0, less["upper"])
        found["pairs"] += 1
        found["brackets"] += less["lower"] > more["upper"]
        found["upper_ends"] += fall > 1e-8
        found["worst"] = max(found["worst"], fall)
    return found


def markdown(record: dict[str, Any]) -> str:
    rows, place = record["rows"], record["machine"]
    widths, times = [width(row) for row in rows], [row["seconds"] for row in rows]
    narrow = sum(one <= 1e-8 for one in widths) / len(rows)
    wide = sum(one > REQUIRED_WIDTH for one in widths)
    methods = sorted({row["method"] for row in rows})
    wrong, pairs = against_order(rows)
    noise, near = record["noise"], record["neighbours"]
    searches = sorted(1e3 * one["seconds"] for one in noise)
    least = sum(one["enough"] and one["least"] for one in noise)
    requirements = [
        ("no bracket wider than 1e-6·max(1, ε)", f"{wide} of {len(rows)} wider", wide == 0),
        ("95 % within 1e-8·max(1, ε)", f"{100 * narrow:.1f} %", narrow >= 0.95),
        (
            "median ≤ 5 ms of CPU",
            f"{1e3 * statistics.median(times):.1f} ms",
            statistics.median(times) <= REQUIRED_MEDIAN,
        ),
        ("worst ≤ 100 ms", f"{1e3 * max(times):.0f} ms", max(times) <= REQUIRED_WORST),
        ("no neighbours in the wrong order", f"{wrong} of {pairs}", 0 == wrong < pairs),
        (
            "no random neighbours in the wrong order, nor their upper ends by over 1e-8",
            f"{near['brackets']} and {near['upper_ends']} of {near['pairs']}",
            near["brackets"] == near["upper_ends"] == 0,
        ),
        ("noise within 1e-6 of the least", f"{least} of {len(noise)}", least == len(noise)),
        (
            "noise in ≤ 50 ms",
            f"median {statistics.median(searches):.1f}, worst {searches[-1]:.0f} ms",
            searches[-1] <= 1e3 * REQUIRED_SEARCH,
        ),
    ]
    lines = [
        f"Measured {record['date']} at commit {record['commit']} by `{record['command']}` on "
        f"{place['cpu']}, {place['cores']} cores, {place['system']}, Python {place['python']}; "
        f"one thread, CPU time; load average {record['load']:.1f} at the start.",
        "",
        "| required | measured | |",
        "|---|---:|---|",
        *(
            f"| {what} | {got} | {'met' if met else '**missed**'} |"
            for what, got, met in requirements
        ),
        "",
        "| method | settings | wider than 1e-8 | median ms | worst ms |",
        "|---|---:|---:|---:|---:|",
        *(
            method_row(method, [row for row in rows if row["method"] == method])
            for method in methods
        ),
        "",
        "### The widest",
        "",
        "| rate | σ | steps | δ | lower | upper | method | ms |",
        "|---:|---:|---:|---:|---:|---:|---|---:|",
        *(setting_row(row) for row in sorted(rows, key=width, reverse=True)[:25]),
    ]
    return "\n".join(lines)


def method_row(method: str, rows: list[dict[str, Any]]) -> str:
    times = [1e3 * row["seconds"] for row in rows]
    wide = sum(width(row) > 1e-8 for row in rows)
    median = statistics.median(times)
    return f"| {method} | {len(rows)} | {wide} | {median:.1f} | {max(times):.0f} |"


def setting_row(row: dict[str, Any]) -> str:
    upper = "∞" if row["upper"] is None else f"{row['upper']:.9g}"
    return (
        f"| {row['rate']:g} | {row['sigma']:g} | {row['steps']:,} | {row['delta']:g} "
        f"| {row['lower']:.9g} | {upper} | {row['method']} | {1e3 * row['seconds']:.0f} |"
    )


if __name__ == "__main__":
    main()
