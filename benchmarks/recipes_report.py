"""The recipes' rows as tables: our accuracy beside what was published and what was asked for."""

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

# The least test accuracy asked for, in per cent: recipe, ε, settings that it is about.
REQUIRED: tuple[tuple[str, float, dict[str, Any], float], ...] = (
    ("mnist-abadi", 0.5, {}, 89.5),
    ("mnist-abadi", 2.0, {}, 94.5),
    ("mnist-abadi", 8.0, {}, 96.5),
    ("mnist-tempered", 2.93, {}, 98.1),
    ("fashion-tempered", 2.7, {}, 86.1),
    ("mnist-scatter", 0.5, {}, 98.3),
    ("mnist-scatter", 1.0, {}, 98.6),
    ("mnist-scatter", 2.0, {}, 98.8),
    ("mnist-scatter", 3.0, {}, 98.9),
    ("fashion-scatter", 1.0, {}, 89.0),
    ("fashion-scatter", 3.0, {}, 90.2),
    ("cifar10-scatter", 3.0, {"head": "linear"}, 67.0),
    ("cifar10-scatter", 3.0, {"head": "cnn"}, 69.3),
)
LEAST_SEEDS = 5


def markdown(rows: Sequence[Row]) -> str:
    """Everything, as Markdown."""
    judged = [row for row in rows if not row["validation"]]
    tuned = [row for row in rows if row["validation"]]
    lines: list[str] = []
    if judged:
        lines += ["# Recipes", "", *accuracies(judged), "", *requirements(judged), ""]
        lines += [*shortcuts(judged), "", *settings(judged)]
    if tuned:
        lines += ["", "## Settings tried on held-out training examples; not charged", ""]
        lines += tuning(tuned)
    return "\n".join(lines)


def accuracies(rows: Sequence[Row]) -> list[str]:
    return [
        "Test accuracy in %, mean ± standard error over all seeds that were run (how many); ε is "
        "the upper end of the certified bracket of everything that was released, with true Poisson "
        "sampling.",
        "",
        "| recipe | ε asked | ε | ours | published | difference | seconds a run | device |",
        "|---|---:|---:|---:|---|---:|---:|---|",
        *(_accuracy(row) for row in rows),
    ]


def _accuracy(row: Row) -> str:
    anchors = anchors_of(row)
    published = "; ".join(f"{one['accuracy']:g} ({one['source']})" for one in anchors) or "–"
    best = max((one["accuracy"] for one in anchors), default=None)
    difference = "–" if best is None else f"{row['mean'] - best:+.2f}"
    return (
        f"| {label(row)} | {row['epsilon']:g} | {row['epsilon_upper']:.6g} | {mean(row)} | "
        f"{published} | {difference} | {row['seconds']:.0f} | {row['device']} |"
    )


def requirements(rows: Sequence[Row]) -> list[str]:
    lines = ["## Asked for", "", "| recipe | ε | at least | ours | |", "|---|---:|---:|---:|---|"]
    for name, epsilon, chosen, least in REQUIRED:
        for row in rows:
            right = all(row["settings"].get(key) == value for key, value in chosen.items())
            if (row["recipe"], row["epsilon"]) == (name, epsilon) and right:
                few = len(row["runs"]) < LEAST_SEEDS
                verdict = "met" if row["mean"] >= least else "**not met**"
                verdict += f", but {len(row['runs'])} seeds only" if few else ""
                lines.append(f"| {label(row)} | {epsilon:g} | {least} | {mean(row)} | {verdict} |")
    return lines


def shortcuts(rows: Sequence[Row]) -> list[str]:
    lines = ["## What the published ones did that these did not", ""]
    said: dict[str, list[str]] = {}
    for row in rows:
        for anchor in anchors_of(row):
            what = f"{anchor['source']}: {anchor['shortcuts']}"
            said.setdefault(what, []).append(f"{row['recipe']} @{row['epsilon']:g}")
    return lines + [f"- {what} ({', '.join(dict.fromkeys(of))})" for what, of in said.items()]


def settings(rows: Sequence[Row]) -> list[str]:
    lines = [
        "## Settings and runs",
        "",
        "| recipe | ε bracket | δ | σ | q | T | clip | settings | accuracy by seed | run |",
        "|---|---|---:|---:|---:|---:|---:|---|---|---|",
    ]
    for row in rows:
        found = ", ".join(f"{100 * run['accuracy']:.2f}" for _, run in sorted(row["runs"].items()))
        lines.append(
            f"| {row['recipe']} | [{row['epsilon_lower']:.12g}, {row['epsilon_upper']:.12g}] | "
            f"{row['delta']:g} | {number(row['noise_multiplier'])} | "
            f"{number(row['sample_rate'])} | {number(row['steps'])} | {number(row['clip'])} | "
            f"{'; '.join([listed(row['settings']), *row.get('notes', [])])} | {found} | "
            f"{origin(row)} |"
        )
    return lines


def tuning(rows: Sequence[Row]) -> list[str]:
    by_accuracy = sorted(rows, key=lambda row: (row["recipe"], row["epsilon"], -row["mean"]))
    return [
        "| recipe | ε | settings | accuracy | seconds |",
        "|---|---:|---|---:|---:|",
        *(
            f"| {row['recipe']} | {row['epsilon']:g} | {listed(row['settings'])} | {mean(row)} | "
            f"{row['seconds']:.0f} |"
            for row in by_accuracy
        ),
    ]


def anchors_of(row: Row) -> list[dict[str, Any]]:
    """What was published for the row's ε."""
    return [one for one in row["anchors"] if abs(one["epsilon"] - row["epsilon"]) < 1e-9]


def label(row: Row) -> str:
    """The recipe, and its head if it has several."""
    head = row["settings"].get("head")
    return f"{row['recipe']} ({head})" if head else row["recipe"]


def mean(row: Row) -> str:
    error = row["standard_error"]
    spread = "" if error is None else f" ± {error:.2f}"
    return f"{row['mean']:.2f}{spread} ({len(row['runs'])})"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.5g}"


def listed(chosen: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key}={value:.5g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in chosen.items()
        if value is not None
    )


def origin(row: Row) -> str:
    numbers = row["versions"]
    return (
        f"`{row['command']}`, {row['date']}, commit {row['commit']}, torch {numbers['torch']}, "
        f"{row['processes']} side by side, {row['machine']['cpu']}"
    )
