"""Measures audits: how much of ε they find, how long they take, and how often they are wrong.

    python benchmarks/audit_power.py [--only PART …] [--runs 5] [--record]

Parts: ``direct`` (a million draws of the Gaussian mechanism), ``laplace`` (few draws of the Laplace
mechanism), ``white-box-1000`` and ``-5000`` (one run of the real engine with that many gradient
canaries), ``false-alarms`` (verdicts on right white-box runs, their scores drawn by their law),
``validity`` (how often each bound is too high, by the simulations that the tests have in
tests/auditing/statistics/test_validity.py). With ``--record`` the parts that ran replace those of
the record.
"""

import argparse
import importlib.util
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import TensorDataset

import audit_power_report
import machine
import tacit
from tacit.auditing import (
    Guesses,
    Scores,
    every_threshold,
    every_threshold_gaussian,
    gaussian_scores,
    held_out_threshold,
    one_run,
    one_run_gaussian,
)
from tacit.auditing.canaries import WhiteBoxResult, white_box
from tacit.auditing.canaries.white_box_result import ratio_p_value
from tacit.mechanisms import gaussian, laplace

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
VALIDITY = HERE.parent / "tests" / "auditing" / "statistics" / "test_validity.py"
DELTA = 1e-5
DRAWS = 1_000_000
LEVELS = (5e-2, 1e-3, 1e-4)
# rate and steps of the plans whose verdicts are simulated
PLANS = ((2.0, 1.0, 10), (8.0, 1.0, 10), (4.0, 0.5, 10), (8.0, 0.1, 50), (4.0, 0.02, 200))


def main() -> None:
    arguments = parse_arguments()
    place = RESULTS / "audit_power.json"
    record = json.loads(place.read_text()) if place.exists() else {}
    for part in arguments.only:
        print(f"{part} ...", file=sys.stderr, flush=True)
        stamp = machine.stamp() | {"load": os.getloadavg()[0]}
        record[part] = {**stamp, "rows": PARTS[part](arguments.runs)}
    report = audit_power_report.markdown(record)
    print(report)
    if arguments.record:
        place.write_text(json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        place.with_suffix(".md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--runs", type=int, default=5, help="audits of each kind (not of all)")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    return parser.parse_args()


# ---- power


def direct(runs: int) -> list[dict[str, Any]]:
    """The real mechanism, a million draws on 1 and on 0; seconds include drawing."""
    bounds = {
        "gaussian_scores": gaussian_scores,
        "every_threshold_gaussian": every_threshold_gaussian,
        "every_threshold": every_threshold,
        "held_out_threshold": held_out_threshold,
    }
    rows = []
    for epsilon in (1, 2, 4, 8):
        found: dict[str, list[float]] = {name: [] for name in bounds}
        seconds = []
        for _ in range(runs):
            started = time.perf_counter()
            inside, outside = (
                gaussian(np.full(DRAWS, x), sensitivity=1, epsilon=epsilon, delta=DELTA).value
                for x in (1.0, 0.0)
            )
            scores = Scores(inside, outside)
            for name, bound in bounds.items():
                found[name].append(bound(scores, DELTA).epsilon / epsilon)
            seconds.append(time.perf_counter() - started)
        rows += [
            {"epsilon": epsilon, "bound": name, **spread(values), "seconds": max(seconds)}
            for name, values in found.items()
        ]
    return rows


def few_laplace(runs: int) -> list[dict[str, Any]]:
    """The real mechanism at ε = 1, δ = 0."""
    rows = []
    for draws, audits in ((1_000, 60 * runs), (10_000, 20 * runs)):
        values = []
        for _ in range(audits):
            inside, outside = (
                laplace(np.full(draws, x), sensitivity=1, epsilon=1.0).value for x in (1.0, 0.0)
            )
            values.append(every_threshold(Scores(inside, outside), 0.0).epsilon)
        rows.append({"draws": draws, "audits": audits, **spread(values)})
    return rows


def engine(canaries: int, runs: int) -> list[dict[str, Any]]:
    """Adam on a small network beside the canaries, on one thread."""
    torch.set_num_threads(1)
    rows = []
    for rate, steps in ((1.0, 20), (0.1, 100)):
        for epsilon in (2, 4, 8):
            rows += one_plan(epsilon, rate, steps, canaries, runs)
            if rate == 1.0:
                rows += one_plan(epsilon, rate, steps, canaries, runs, out="opposite")
    return rows


def one_plan(
    epsilon: float,
    rate: float,
    steps: int,
    canaries: int,
    runs: int,
    out: Literal["absent", "opposite"] = "absent",
) -> list[dict[str, Any]]:
    print(f"{epsilon=} {rate=} {canaries=} {out=} ...", file=sys.stderr, flush=True)
    plan = plan_for(epsilon, rate, steps, 500)
    found: dict[str, list[float]] = {}
    seconds, contradicted = [], 0
    for _ in range(runs):
        started = time.perf_counter()
        one = small_run(plan, canaries, out)
        names = ("gaussian_scores", "one_run_audit", "plan_noise")
        for name, estimate in zip(names, one.estimates(), strict=False):
            found.setdefault(name, []).append(estimate(0.95).epsilon / epsilon)
        seconds.append(time.perf_counter() - started)
        contradicted += one.verdict().contradicted
    about = {"epsilon": epsilon, "rate": rate, "steps": steps, "canaries": canaries, "runs": runs,
             "out": out}  # fmt: skip
    return [
        {**about, "bound": name, **spread(values), "seconds": max(seconds),
         "contradicted": contradicted}
        for name, values in found.items()
    ]  # fmt: skip


def small_run(
    plan: tacit.Plan, canaries: int, out: Literal["absent", "opposite"]
) -> WhiteBoxResult:
    data = torch.randn(plan.examples, 20)
    model = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    return white_box(
        model,
        TensorDataset(data, (data[:, 0] > 0).long()),
        plan,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
        delta=DELTA,
        canaries=canaries,
        out=out,
    )


def plan_for(epsilon: float, rate: float, steps: int, examples: int) -> tacit.Plan:
    return tacit.Plan.for_budget(
        epsilon=epsilon, delta=DELTA, examples=examples, lot_size=rate * examples, steps=steps,
        clip=1.0,
    )  # fmt: skip


# ---- validity


def false_alarms(runs: int) -> list[dict[str, Any]]:
    """Verdicts on right runs with 1,000 canaries, whose scores are drawn by their law."""
    rows = []
    for epsilon, rate, steps in PLANS:
        plan, draw = plan_for(epsilon, rate, steps, 1000), np.random.default_rng(1)
        claimed = plan.epsilon(DELTA)
        verdicts = [drawn(plan, claimed, draw).verdict() for _ in range(40 * runs)]
        p_values = [noise_p_value(plan, draw) for _ in range(4000 * runs)]
        rows.append(
            {
                "epsilon": epsilon, "rate": rate, "steps": steps, "runs": len(verdicts),
                "too_high": sum(one.shown.epsilon > claimed for one in verdicts),
                "contradicted": sum(one.contradicted for one in verdicts),
                "tests": len(p_values),
                "below": [sum(p <= level for p in p_values) for level in LEVELS],
            }
        )  # fmt: skip
    return rows


def drawn(
    plan: tacit.Plan, claimed: float, draw: np.random.Generator, m: int = 1000
) -> WhiteBoxResult:
    q, sigma = plan.sample_rate, plan.noise_multiplier
    coins = draw.random(m) < 0.5
    sampled = (draw.random((plan.steps, m)) < q) & coins
    moved = sampled + sigma * draw.standard_normal((plan.steps, m))
    scores = np.log(1.0 - q + q * np.exp((moved - 0.5) / sigma**2)).sum(axis=0)
    return WhiteBoxResult(plan, DELTA, claimed, coins, scores, moved.sum(axis=0))


def noise_p_value(plan: tacit.Plan, draw: np.random.Generator, m: int = 1000) -> float:
    """Of the plan's own noise, the test that ``plan_noise`` inverts, on totals by their law."""
    coins = draw.random(m) < 0.5
    totals = math.sqrt(plan.steps) * plan.noise_multiplier * draw.standard_normal(m)
    totals += coins * draw.binomial(plan.steps, plan.sample_rate, m)
    scores = Scores(totals[coins], totals[~coins])
    return ratio_p_value(scores, plan, 1.0 / plan.noise_multiplier)


def validity(runs: int) -> list[dict[str, Any]]:
    """400 times ``runs`` simulated audits of each mechanism by each bound."""
    tests, audits = loaded(VALIDITY), 400 * runs
    rows = []

    def note(bound: str, mechanism: str, missed: int) -> None:
        rows.append({"bound": bound, "mechanism": mechanism, "audits": audits, "too_high": missed})

    for name, mechanism in tests.MECHANISMS.items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        for bound, call in tests.ANYWHERE.items():
            note(f"Clopper-Pearson, {bound} threshold", name, tests.misses(call, mechanism, audits))
        curve = tests.PairsTradeOff.of_pair(mechanism.epsilon, mechanism.delta)
        note("every_threshold", name, tests.refusals(mechanism, curve, audits))
        for made in (40, 200):
            right = tests.right_guesses(mechanism, 200, made, audits)
            missed = too_high(right, made, partial(above_epsilon, mechanism))
            note(f"one_run, {made} of 200", name, missed)
    mechanism = tests.MECHANISMS["gaussian"]
    for bound, call in tests.GAUSSIAN.items():
        note(f"gaussian_{bound}", "gaussian", tests.misses(call, mechanism, audits))
    curve = tests.GaussianTradeOff(tests.MU)
    note("every_threshold_gaussian", "gaussian", tests.refusals(mechanism, curve, audits))
    for made in (40, 200):
        right = tests.right_guesses(mechanism, 200, made, audits)
        missed = too_high(right, made, partial(above_mu, tests.MU))
        note(f"one_run_gaussian, {made} of 200", "gaussian", missed)
    return rows


def above_epsilon(mechanism: Any, guesses: Guesses) -> bool:
    return bool(one_run(guesses, mechanism.delta).epsilon > mechanism.epsilon)


def above_mu(mu: float, guesses: Guesses) -> bool:
    return one_run_gaussian(guesses, DELTA).number("mu") > mu


def too_high(right: Sequence[int], made: int, is_high: Callable[[Guesses], bool]) -> int:
    high = {v: is_high(Guesses(canaries=200, made=made, right=v)) for v in set(right)}
    return sum(high[v] for v in right)


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": statistics.fmean(values), "worst": min(values)}


PARTS: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "direct": direct,
    "laplace": few_laplace,
    "white-box-1000": partial(engine, 1000),
    "white-box-5000": partial(engine, 5000),
    "false-alarms": false_alarms,
    "validity": validity,
}


if __name__ == "__main__":
    main()
