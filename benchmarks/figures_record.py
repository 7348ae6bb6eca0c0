"""What the figures' runs found, as data and as tables."""

import statistics
from typing import Any

import machine
from figures_runs import DELTA, EXAMPLES, REFERENCE, Run, levels, spending, sweeps
from tacit._numbers import rounded_up
from tacit.accounting import bounds

ACCOUNTED = "ε is the upper end of `bounds()`, the PCA included"


def record(headers: list[dict[str, Any]], histories: dict[Run, Any]) -> dict[str, Any]:
    """Every point of every figure, with the accuracy that each seed ended at."""
    epochs, level_epochs = headers[0]["epochs"], headers[0]["level_epochs"]
    ended: dict[tuple[Any, int], list[float]] = {}
    for run in sorted(histories, key=lambda run: run.seed):
        ended.setdefault((run.setting, run.steps), []).append(histories[run][-1][1])

    def rows(runs: dict[str, Run]) -> list[dict[str, Any]]:
        return [
            point(name, run, ended[run.setting, run.steps])
            for name, run in runs.items()
            if (run.setting, run.steps) in ended
        ]

    return {
        "drawn": machine.stamp(),
        "runs": headers,
        "delta": DELTA,
        "reference": vars(REFERENCE),
        "levels": rows(levels(level_epochs)),
        "privacy": rows({f"{run.setting.noise:g}": run for run in spending(epochs)}),
        "parameters": {
            name: rows({f"{getattr(run.setting, name):g}": run for run in ordered(sweep, name)})
            for name, sweep in sweeps(epochs).items()
        },
    }


def ordered(sweep: list[Run], name: str) -> list[Run]:
    return sorted(sweep, key=lambda run: getattr(run.setting, name))


def point(name: str, run: Run, accuracies: list[float]) -> dict[str, Any]:
    setting = run.setting
    return {
        "point": name,
        "setting": vars(setting),
        "sample_rate": setting.lot / EXAMPLES,
        "steps": run.steps,
        "epochs": run.steps * setting.lot / EXAMPLES,
        "epsilon": bounds(setting.event(run.steps), DELTA).upper,
        "accuracies": accuracies,
        "mean": statistics.fmean(accuracies),
    }


def markdown(found: dict[str, Any]) -> str:
    lines = ["# The paper's figures: the runs behind them", ""]
    lines += [said(header) + "\n" for header in found["runs"]]
    lines += [
        "MNIST after private PCA, one hidden layer of ReLU units; where nothing else is said: "
        f"{', '.join(f'{name} {value:g}' for name, value in found['reference'].items())}. "
        f"{ACCOUNTED}, at δ = {found['delta']:g}; accuracy is on MNIST's test images after the "
        "last step, never the best epoch, and no run was left out. Training accuracy is private "
        "and was not kept. The settings are the paper's as published; nothing was tuned here.",
        "",
        "## Three noise levels",
        *table("level", found["levels"]),
        "## Accuracy against (ε, δ)",
        *table("noise", found["privacy"]),
    ]
    for name, rows in found["parameters"].items():
        lines += [f"## {name}", *table(name, rows)]
    return "\n".join(lines).rstrip()


def said(header: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in header["versions"].items())
    return (
        f"Trained {header['date']} at commit {header['commit']} by `{header['command']}` on "
        f"{header['device']} ({header['machine']['cpu']}, {header['machine']['cores']} cores), "
        f"Python {header['machine']['python']}, {versions}."
    )


def table(what: str, rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"| {what} | σ | σ of PCA | q | steps | epochs | ε | test accuracy, mean | each run |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        setting = row["setting"]
        pca = f"{setting['pca_noise']:.4g}" if setting["components"] else "no PCA"
        each = " ".join(f"{100 * one:.2f}" for one in row["accuracies"])
        lines.append(
            f"| {row['point']} | {setting['noise']:g} | {pca} | {row['sample_rate']:g} | "
            f"{row['steps']:,} | {row['epochs']:.3g} | {rounded_up(row['epsilon'], 4)} | "
            f"{row['mean']:.2%} | {each} |"
        )
    return [*lines, ""]
