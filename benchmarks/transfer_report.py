"""The rows of knowledge transfer as tables: ours beside the lectures', and what each one did."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from recipes_report import listed, mean

Row = Mapping[str, Any]

# The least accuracy asked for, in per cent: method, data, the largest ε, whether that is the
# data-dependent one, the accuracy.
REQUIRED: tuple[tuple[str, str, float, bool, float], ...] = (
    ("pate", "mnist", 1.97, True, 98.5),
    ("knn", "mnist", 1.0, False, 98.5),
    ("rknn", "mnist", 0.5, False, 98.8),
)
LEAST_SEEDS = 5
WAYS = {"confident": "Confident-GNMax", "gaussian": "GNMax", "laplace": "LNMax"}
ASSUMED = (
    "Public images are taken to be public, as in the published rows: the first test images without "
    "their labels. The last ones are the evaluation. They had a say in one thing: how far labels "
    "spread in the graph student was put back to what it had been after another rule had shown "
    "97.7 % with the published labels (docs/transfer.md)."
)
SVHN = (
    "SVHN: the published rows have 604,388 private images, the training set and the extra set "
    "together. The extra set (531,131 images) is not at hand, so that ours have 73,257."
)
REBUILT = (
    "Its images are not the published files but crops rebuilt from the full-number pictures: the "
    "same counts, order and labels, pixels within 4 grey levels where they could be compared."
)

SHARED_GPU = (
    "Rows of a GPU were run three to five at a time on it, so that a run by itself takes less."
)


def markdown(rows: Sequence[Row]) -> str:
    """Everything, as Markdown."""
    judged = [row for row in rows if not row["validation"]]
    tuned = [row for row in rows if row["validation"]]
    lines: list[str] = []
    if judged:
        lines += ["# Knowledge transfer", "", *accuracies(judged), "", *requirements(judged), ""]
        lines += [*published(judged), "", *settings(judged)]
    if tuned:
        lines += ["", "## Settings tried on training images alone; not charged", "", *tuning(tuned)]
    return "\n".join(lines)


def accuracies(rows: Sequence[Row]) -> list[str]:
    svhn = [row for row in rows if row["dataset"] == "svhn"]
    rebuilt = f" {REBUILT}" if any(row.get("unverified") for row in svhn) else ""
    notes = [ASSUMED, *([SVHN + rebuilt] if svhn else [])]
    if any(row["device"] != "cpu" for row in rows):
        notes.append(SHARED_GPU)
    return [
        "Accuracy of the student in %, mean ± standard error over all seeds that were run (how "
        "many). ε is the upper end of the certified bracket of everything that was released, "
        "whatever the data are. Beside it, where one was told, the data-dependent ε, which is read "
        "off a noisy figure; the price of telling it is in both.",
        "",
        *(line for note in notes for line in (note, "")),
        "| data | method | student | ε | data-dependent ε | δ | labels | of them right, % | "
        "ours | published without privacy | seconds a run | device |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|",
        *(_accuracy(row) for row in rows),
    ]


def _accuracy(row: Row) -> str:
    bare = {"mnist": "99.2", "svhn": "92.8", "cifar10": "80.5"}.get(row["dataset"], "–")
    return (
        f"| {row['dataset']} | {label(row)} | {row['settings']['student']} | "
        f"{row['epsilon_upper']:.4g} | {dependent(row)} | "
        f"{row['delta']:g} | {average(row, 'labelled'):.0f} | "
        f"{100 * average(row, 'labels_right'):.1f} | {mean(row)} | {bare} | "
        f"{row['seconds']:.0f} | {row['device']} |"
    )


def requirements(rows: Sequence[Row]) -> list[str]:
    lines = [
        "## Asked for", "", "| data | method | student | ε at most | at least | ours | |",
        "|---|---|---|---:|---:|---:|---|",
    ]  # fmt: skip
    for method, dataset, most, of_data, least in REQUIRED:
        for row in rows:
            if (row["method"], row["dataset"]) != (method, dataset) or not within(
                row, most, of_data
            ):
                continue
            few = len(row["runs"]) < LEAST_SEEDS
            verdict = "met" if row["mean"] >= least else "**not met**"
            verdict += f", but {len(row['runs'])} seeds only" if few else ""
            kind = " (told)" if of_data else ""
            lines.append(
                f"| {dataset} | {label(row)} | {row['settings']['student']} | {most:g}{kind} | "
                f"{least} | {mean(row)} | {verdict} |"
            )
    return lines


def within(row: Row, most: float, of_data: bool) -> bool:
    """Whether every run of the row keeps to this ε."""
    if not of_data:
        return bool(row["epsilon_upper"] <= most * (1.0 + 1e-9))
    told = [run["data_dependent"] for run in row["runs"].values()]
    return all(one is not None and one <= most for one in told)


def published(rows: Sequence[Row]) -> list[str]:
    lines = [
        "## What was published, and what it did that these did not", "",
        "| data | ε | accuracy, % | source | shortcuts |", "|---|---:|---:|---|---|",
    ]  # fmt: skip
    told = {
        (row["dataset"], one["epsilon"], one["accuracy"], one["source"], one["shortcuts"])
        for row in rows
        for one in row["anchors"]
    }
    return lines + [
        f"| {dataset} | {epsilon:g} | {accuracy:g} | {source} | {shortcuts} |"
        for dataset, epsilon, accuracy, source, shortcuts in sorted(told)
    ]


def settings(rows: Sequence[Row]) -> list[str]:
    lines = [
        "## Settings and runs",
        "",
        "| data | method | ε bracket | settings | accuracy by seed | run |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        found = ", ".join(f"{100 * run['accuracy']:.2f}" for _, run in sorted(row["runs"].items()))
        lines.append(
            f"| {row['dataset']} | {row['method']} | [{row['epsilon_lower']:.12g}, "
            f"{row['epsilon_upper']:.12g}] | {listed(row['settings'])} | {found} | {origin(row)} |"
        )
    return lines


def tuning(rows: Sequence[Row]) -> list[str]:
    ranked = sorted(rows, key=lambda row: (row["dataset"], row["method"], -row["mean"]))
    return [
        "| data | method | ε | settings | labels | of them right, % | accuracy | seconds |",
        "|---|---|---:|---|---:|---:|---:|---:|",
        *(
            f"| {row['dataset']} | {label(row)} | {row['epsilon_upper']:.4g} | "
            f"{listed(row['settings'])} | {average(row, 'labelled'):.0f} | "
            f"{100 * average(row, 'labels_right'):.1f} | {mean(row)} | {row['seconds']:.0f} |"
            for row in ranked
        ),
    ]


def label(row: Row) -> str:
    """The method, with PATE's aggregator, and how many rounds the neighbours had."""
    names = {"knn": "Private-kNN", "rknn": "reverse-kNN"}
    way = WAYS.get(row["settings"].get("aggregator"))
    rounds = row["settings"].get("rounds", 1)
    name = names.get(row["method"], f"PATE, {way}" if way else row["method"])
    return f"{name}, {rounds} rounds" if rounds > 1 else name


def dependent(row: Row) -> str:
    """The data-dependent ε that was told, from its smallest to its largest over the seeds."""
    told = [run["data_dependent"] for run in row["runs"].values()]
    if any(one is None for one in told):
        return "–"
    low, high = min(told), max(told)
    return f"{high:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def average(row: Row, name: str) -> float:
    return statistics.mean(run[name] for run in row["runs"].values())


def origin(row: Row) -> str:
    shared = ", a seed's teachers shared" if row["share_teachers"] else ""
    shared += ", features computed once" if row["share_features"] else ""
    return (
        f"`{row['command']}`, {row['date']}, commit {row['commit']}, torch "
        f"{row['versions']['torch']}{shared}, {row['machine']['cpu']}"
    )
