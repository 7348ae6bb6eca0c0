"""OpenDP's discrete noise on integers, timed: once over a whole vector, once a number at a time.

Reads {"draws", "single", "rounds", "cases": [[law, scale], ...]} and writes seconds a draw.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import opendp.prelude as dp


def measurement(law: str, scale: float, vector: bool) -> Any:
    """The mechanism that adds this noise to an integer, or to every one of a vector."""
    # Python's int would be i32 there, which cuts large noise off.
    atoms = dp.atom_domain(T="i64")
    if law == "laplace":
        metric = dp.l1_distance(T="i64") if vector else dp.absolute_distance(T="i64")
        make = dp.m.make_laplace
    else:
        metric = dp.l2_distance(T="i64") if vector else dp.absolute_distance(T="i64")
        make = dp.m.make_gaussian
    return make(dp.vector_domain(atoms) if vector else atoms, metric, scale=scale)


def seconds(call: Callable[[], object], rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def row(law: str, scale: float, job: dict[str, Any]) -> dict[str, Any]:
    whole, single = measurement(law, scale, True), measurement(law, scale, False)
    zeros = [0] * job["draws"]
    values = whole(zeros)
    moment = math.fsum(value * value for value in values) / len(values)
    return {
        "vector": [time / job["draws"] for time in seconds(lambda: whole(zeros), job["rounds"])],
        "single": [
            time / job["single"]
            for time in seconds(lambda: [single(0) for _ in range(job["single"])], job["rounds"])
        ],
        "deviation": math.sqrt(moment),
    }


def main() -> None:
    dp.enable_features("contrib", "honest-but-curious")
    job = json.load(sys.stdin)
    rows = [row(law, scale, job) for law, scale in job["cases"]]
    json.dump({"version": version("opendp"), "rows": rows}, sys.stdout)


if __name__ == "__main__":
    main()
