"""OpenDP's Laplace mechanism on real numbers, timed over a whole vector, its fastest way.

Reads {"draws", "rounds", "scale"} and writes seconds a call.
"""

import json
import math
import sys
import time
from importlib.metadata import version

import opendp.prelude as dp


def main() -> None:
    dp.enable_features("contrib", "honest-but-curious")
    job = json.load(sys.stdin)
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
    release = dp.m.make_laplace(*space, scale=job["scale"])
    zeros = [0.0] * job["draws"]
    times = []
    for _ in range(job["rounds"]):
        start = time.perf_counter()
        values = release(zeros)
        times.append(time.perf_counter() - start)
    size = math.fsum(abs(value) for value in values) / len(values)
    json.dump({"version": version("opendp"), "seconds": times, "mean_size": size}, sys.stdout)


if __name__ == "__main__":
    main()
