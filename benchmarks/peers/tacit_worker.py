"""tacit's exact accountant. It builds the event anew for every call, and clears every cache.

What `prepare` clears (functools caches of tacit's modules) is named in the row's note, so that a
reader sees that no answer was remembered from one call to the next.
"""

import functools
import gc
import sys
from typing import Any

from accounting_rows import (
    Allocated,
    ApproximateDp,
    Calibration,
    DiscreteNoise,
    Group,
    LaplaceNoise,
    Phase,
    RandomizedResponse,
    Row,
    SampledGaussian,
)
from accounting_worker import Accountant, serve
from tacit import accounting


def phase_event(phase: Phase) -> accounting.Repeated:
    gaussian = accounting.Gaussian(phase.noise_multiplier)
    if phase.sample_rate == 1:
        return accounting.Repeated(gaussian, phase.steps)
    sampled = accounting.PoissonSampled(phase.sample_rate, gaussian)
    return accounting.Repeated(sampled, phase.steps)


def event(row: Row) -> accounting.Event:
    match row.task:
        case SampledGaussian((phase,)):
            return phase_event(phase)
        case SampledGaussian(phases):
            return accounting.Composed(*(phase_event(phase) for phase in phases))
        case LaplaceNoise(scale, count):
            return accounting.Repeated(accounting.Laplace(scale), count)
        case RandomizedResponse(epsilon, count):
            return accounting.Repeated(accounting.RandomizedResponse(epsilon=epsilon), count)
        case ApproximateDp(epsilon, delta, count):
            return accounting.Repeated(accounting.ApproxDp(epsilon, delta), count)
        case DiscreteNoise(sigma, count):
            return accounting.Repeated(accounting.DiscreteGaussian(sigma), count)
        case Group(phase, size):
            return accounting.group(phase_event(phase), size)
        case Allocated(sigma, steps, epochs):
            return accounting.RandomAllocation(steps, accounting.Gaussian(sigma), epochs)
        case Calibration():
            raise TypeError("a calibration asks for the event")


def answer(row: Row) -> float:
    if isinstance(row.task, Calibration):
        return accounting.noise_multiplier(
            epsilon=row.task.epsilon,
            delta=row.delta,
            sample_rate=row.task.sample_rate,
            steps=row.task.steps,
        )
    return accounting.epsilon(event(row), delta=row.delta)


def caches() -> dict[str, Any]:
    return _caches(len(sys.modules))


@functools.cache  # the search walks all of memory, which would cool the processor before each call
def _caches(_modules_loaded: int) -> dict[str, Any]:
    found = (x for x in gc.get_objects() if isinstance(x, functools._lru_cache_wrapper))
    return {f"{x.__module__}.{x.__qualname__}": x for x in found if x.__module__[:5] == "tacit"}


def clear_caches() -> None:
    for cache in caches().values():
        cache.cache_clear()


def bracket(row: Row) -> tuple[float, float] | None:
    if isinstance(row.task, Calibration):
        return None
    interval = accounting.bounds(event(row), delta=row.delta)
    return interval.lower, interval.upper


def note(_: Row) -> str | None:
    return f"cleared before each call: {', '.join(sorted(caches()))}" if caches() else None


if __name__ == "__main__":
    exact = Accountant(answer, prepare=clear_caches, bracket=bracket, note=note)
    serve({"exact": exact}, packages=("tacit", "numpy", "scipy"))
