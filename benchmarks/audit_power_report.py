"""The tables of audit_power.py, and what is required of tacit."""

import math
from collections.abc import Callable
from typing import Any

from scipy.stats import binom


def markdown(record: dict[str, Any]) -> str:
    lines: list[str] = []
    for part, table in TABLES.items():
        if part in record:
            one = record[part]
            lines += [
                *table(one["rows"]),
                "",
                f"Measured {one['date']} at commit {one['commit']} by `{one['command']}` on "
                f"{one['machine']['cpu']}, {one['machine']['cores']} cores; load average "
                f"{one['load']:.1f} at the start.",
                "",
            ]
    return "\n".join(lines).rstrip()


def direct_table(rows: list[dict[str, Any]]) -> list[str]:
    required = {"gaussian_scores": 0.97, "every_threshold": 0.65}
    return [
        "### A million draws on each input of the Gaussian mechanism, δ = 1e-5",
        "",
        "Lower bound at 95 % over ε; seconds of the slowest audit, all four bounds and the draws.",
        "",
        "| ε | bound | mean | worst | seconds | required |",
        "|---:|---|---:|---:|---:|---|",
        *(
            f"| {row['epsilon']} | `{row['bound']}` | {row['mean']:.3f} | {row['worst']:.3f} | "
            f"{row['seconds']:.1f} | {met(row['worst'], required.get(row['bound']))} |"
            for row in rows
        ),
    ]


def laplace_table(rows: list[dict[str, Any]]) -> list[str]:
    required = {1_000: 0.80, 10_000: 0.93}
    return [
        "### Few draws of the Laplace mechanism at ε = 1, `every_threshold`, δ = 0",
        "",
        "| draws on each input | audits | mean bound | required |",
        "|---:|---:|---:|---|",
        *(
            f"| {row['draws']} | {row['audits']} | {row['mean']:.3f} | "
            f"{met(row['mean'], required[row['draws']])} |"
            for row in rows
        ),
    ]


def engine_table(rows: list[dict[str, Any]]) -> list[str]:
    def wanted(row: dict[str, Any]) -> str:
        if row["bound"] != "gaussian_scores" or row["rate"] < 1.0:
            return ""
        return met(row["mean"], 0.75)

    return [
        "### One white-box run of `tacit.private` with orthogonal gradient canaries, δ = 1e-5",
        "",
        "Lower bound at 95 % over ε, over several runs; seconds of the slowest run and its bounds. "
        "A canary that is out is absent, or has the opposite gradient (two changes from in).",
        "",
        "| canaries | out | rate × steps | ε | bound | mean | worst | runs | seconds | required |",
        "|---:|---|---|---:|---|---:|---:|---:|---:|---|",
        *(
            f"| {row['canaries']} | {row['out']} | {row['rate']:g} × {row['steps']} | "
            f"{row['epsilon']} | `{row['bound']}` | {row['mean']:.3f} | {row['worst']:.3f} | "
            f"{row['runs']} | {row['seconds']:.1f} | {wanted(row)} |"
            for row in rows
        ),
        "",
        f"{sum(r['contradicted'] for r in rows)} verdicts contradicted the claim.",
    ]


def alarms_table(rows: list[dict[str, Any]]) -> list[str]:
    return [
        "### Verdicts on right white-box runs, 1,000 canaries, scores drawn by their law",
        "",
        "Last: how many of the p-values by which `plan_noise` judges the true noise (for full "
        "batches it is the Gaussian statistic) are at most 5e-2, 1e-3, 1e-4.",
        "",
        "| ε | rate × steps | verdicts | shown, too high | contradicted | p-values | small |",
        "|---:|---|---:|---:|---:|---:|---|",
        *(
            f"| {row['epsilon']:g} | {row['rate']:g} × {row['steps']} | {row['runs']} | "
            f"{100 * row['too_high'] / row['runs']:.1f} % | {row['contradicted']} | "
            f"{row['tests']} | {', '.join(map(str, row['below']))} |"
            for row in rows
        ),
    ]


def validity_table(rows: list[dict[str, Any]]) -> list[str]:
    """Within a one-sided 99 % interval of 5 %, as the tests have it."""

    def fine(row: dict[str, Any]) -> str:
        likely = binom.sf(row["too_high"] - 1, row["audits"], 0.05) > 0.01
        return "met" if likely else "**missed**"

    return [
        "### How often a bound at 95 % is too high",
        "",
        "| bound | mechanism | audits | too high | at most 5 % within its interval |",
        "|---|---|---:|---:|---|",
        *(
            f"| {row['bound']} | {row['mechanism']} | {row['audits']} | "
            f"{100 * row['too_high'] / row['audits']:.2f} % | {fine(row)} |"
            for row in rows
        ),
    ]


def met(value: float, required: float | None) -> str:
    if required is None or math.isnan(value):
        return ""
    return f"≥ {required}: {'met' if value >= required else '**missed**'}"


TABLES: dict[str, Callable[[list[dict[str, Any]]], list[str]]] = {
    "direct": direct_table,
    "laplace": laplace_table,
    "white-box-1000": engine_table,
    "white-box-5000": engine_table,
    "false-alarms": alarms_table,
    "validity": validity_table,
}
