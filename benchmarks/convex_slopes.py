"""How excess risk falls with n·ε on a hard instance, against the exponents that theory gives.

    python benchmarks/convex_slopes.py [--record]

The instance is a linear loss on a ball: ℓ(θ; x) = x·θ, |θ| ≤ 1, with n examples of norm at most 1
whose mean has the norm m, and the risk is the worst over m. It is the instance of the lower bounds
(Bassily, Smith & Thakurta 2014); its second derivative is 0, and output perturbation is told β = 1,
which is all that its theory asks. Minima are those on the ball; noise that is added to one stays,
for that is what output perturbation releases. Noise and designs are `tacit.convex`'s.
"""

import argparse
import datetime
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import machine
from tacit.convex.descent import descent_design, release_descent
from tacit.convex.losses import Linear
from tacit.convex.perturbation import OutputDesign, gaussian_vector, objective_design, output_design
from tacit.convex.problem import ConvexTask
from tacit.randomness import UnsafeSeededStream, grid_gaussian

RESULTS = Path(__file__).resolve().parent / "results"
DIMENSION = 20
DELTA = 1e-6
# n·ε from 10³ to 10⁵: by n at ε = 1, and by ε at n = 10⁵.
SWEEPS = {
    "n": [(n, 1.0) for n in (1_000, 3_162, 10_000, 31_623, 100_000)],
    "ε": [(100_000, epsilon) for epsilon in (0.01, 0.0316, 0.1, 0.316, 1.0)],
}
MEANS = np.geomspace(1e-5, 1.0, 21)
REPEATS = {"output": 40_000, "objective": 2_000, "noisy-gd": 10}
STEPS = 100
EXPECTED = {"output": -2.0 / 3.0, "objective": -1.0, "noisy-gd": -1.0}
TOLERANCE = 0.15

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Instance:
    """n examples of mean m·e₁, which is all that a linear loss sees of them."""

    examples: int
    mean: float

    def gradient(self, theta: Array, rows: NDArray[np.int64] | None = None) -> Array:
        assert rows is None
        summed = np.zeros_like(theta)
        summed[0] = self.examples * self.mean
        return summed

    def excess(self, thetas: Array) -> float:
        """The mean over some θ of x̄·θ less its least value on the ball, -m."""
        return self.mean * (float(np.mean(thetas[:, 0])) + 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    arguments = parser.parse_args()
    record: dict[str, Any] = {
        "command": machine.command(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": machine.commit(),
        "rows": [row(method, sweep) for method in EXPECTED for sweep in SWEEPS],
    }
    report = markdown(record)
    print(report)
    if arguments.record:
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        (RESULTS / "convex_slopes.json").write_text(text + "\n")
        (RESULTS / "convex_slopes.md").write_text(report + "\n")


def row(method: str, sweep: str) -> dict[str, Any]:
    """The worst risk at each point of a sweep, and the slope of its logarithm in n·ε."""
    risks = [worst(method, *point) for point in SWEEPS[sweep]]
    sizes = [n * epsilon for n, epsilon in SWEEPS[sweep]]
    slope = float(np.polyfit(np.log(sizes), np.log(risks), 1)[0])
    off = abs(slope / EXPECTED[method] - 1.0)
    return {
        "method": method,
        "sweep": sweep,
        "risks": risks,
        "slope": slope,
        "expected": EXPECTED[method],
        "met": off <= TOLERANCE,
    }


def worst(method: str, examples: int, epsilon: float) -> float:
    task = ConvexTask(
        examples=examples,
        features=DIMENSION,
        loss=Linear(),
        norm=1.0,
        epsilon=epsilon,
        delta=DELTA,
        radius=1.0,
    )
    stream = UnsafeSeededStream(0, f"{method} {examples} {epsilon}")
    risks = {"output": output, "objective": objective, "noisy-gd": descent}[method]
    return max(risks(task, [Instance(examples, float(mean)) for mean in MEANS], stream))


def output(task: ConvexTask, instances: list[Instance], stream: UnsafeSeededStream) -> list[float]:
    """The minimum of the mean loss and λ/2·|θ|² on the ball, with noise.

    λ is that of least bound for smooth losses with β = 1. A minimum on a convex set moves no more
    than one without it. The same noise serves every m.
    """
    multiplier = output_design(task).noise_multiplier
    assert multiplier is not None
    noise = DIMENSION * (multiplier / task.examples) ** 2
    design = OutputDesign(task, (2.0 * noise) ** (1.0 / 3.0), multiplier)
    shape = (REPEATS["output"], DIMENSION)
    drawn = grid_gaussian(
        np.zeros(shape), multiplier * design.sensitivity, design.sensitivity, stream
    )
    start = np.zeros(DIMENSION)
    minima = [in_ball(-one.gradient(start) / design.ridge) for one in instances]
    return [one.excess(best + drawn) for one, best in zip(instances, minima, strict=True)]


def objective(
    task: ConvexTask, instances: list[Instance], stream: UnsafeSeededStream
) -> list[float]:
    """The minimum on the ball under the design's ridge and tilt: exact, for the loss is linear."""
    design = objective_design(task)
    assert design.sigma is not None
    drawn, _ = gaussian_vector(design.sigma, REPEATS["objective"] * DIMENSION, stream)
    tilts = drawn.reshape(-1, DIMENSION)
    start = np.zeros(DIMENSION)
    return [one.excess(in_ball(-(one.gradient(start) + tilts) / design.ridge)) for one in instances]


def descent(task: ConvexTask, instances: list[Instance], stream: UnsafeSeededStream) -> list[float]:
    """Projected noisy descent at the step size for smooth losses."""
    design = descent_design(task, steps=STEPS, case="smooth")
    return [
        one.excess(
            np.array(
                [
                    release_descent(design, one, stream, radius=1.0)
                    for _ in range(REPEATS["noisy-gd"])
                ]
            )
        )
        for one in instances
    ]


def in_ball(theta: Array) -> Array:
    return np.asarray(theta / np.maximum(1.0, np.linalg.norm(theta, axis=-1, keepdims=True)))


def markdown(record: dict[str, Any]) -> str:
    sizes = [f"{n * epsilon:.3g}" for n, epsilon in SWEEPS["n"]]
    lines = [
        f"Run {record['date']} at commit {record['commit']} by `{record['command']}`: a linear "
        f"loss on the unit ball, d = {DIMENSION}, δ = {DELTA:g}, add-remove; the worst mean risk "
        f"over {len(MEANS)} lengths of the mean.",
        "",
        "| method | swept | "
        + " | ".join(f"nε = {size}" for size in sizes)
        + " | slope | theory | |",
        "|---|---|" + "---:|" * (len(sizes) + 2) + "---|",
    ]
    for one in record["rows"]:
        risks = " | ".join(f"{value:.3g}" for value in one["risks"])
        verdict = f"within {TOLERANCE:.0%}" if one["met"] else "**NOT MET**"
        lines.append(
            f"| {one['method']} | {one['sweep']} | {risks} | {one['slope']:.3f} "
            f"| {one['expected']:.3f} | {verdict} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
