"""What every worker of the convex benchmark does: reads a job, tries settings, writes accuracies.

A job is {"data", "folder", "epsilons", "delta", "trials", "repeats"}. A worker tries each of its
settings a few times at each ε and measures the best one afresh: a choice on the test rows, in that
library's favour. Settings may depend on the data's name.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import convex_data

Fit = Callable[[convex_data.Split, float, float, Mapping[str, Any]], float]


def work(
    fit: Fit, settings: Mapping[str, list[dict[str, Any]]], versions: Mapping[str, str]
) -> None:
    job = json.load(sys.stdin)
    split = convex_data.load(job["data"], Path(job["folder"]))
    rows = [
        _measured(partial(fit, split, epsilon, job["delta"]), settings[job["data"]], epsilon, job)
        for epsilon in job["epsilons"]
    ]
    json.dump({"versions": dict(versions), "rows": rows}, sys.stdout)


def _measured(
    fit: Callable[[Mapping[str, Any]], float],
    settings: list[dict[str, Any]],
    epsilon: float,
    job: Mapping[str, Any],
) -> dict[str, Any]:
    def mean(setting: Mapping[str, Any]) -> float:
        accuracy = statistics.mean(fit(setting) for _ in range(job["trials"]))
        print(f"  ε={epsilon} {setting}: {accuracy:.4f}", file=sys.stderr, flush=True)
        return accuracy

    best = max(settings, key=mean)
    start = time.perf_counter()
    accuracies = [fit(best) for _ in range(job["repeats"])]
    seconds = (time.perf_counter() - start) / job["repeats"]
    return {
        "epsilon": epsilon,
        "setting": best,
        "accuracies": accuracies,
        "seconds": seconds,
    }
