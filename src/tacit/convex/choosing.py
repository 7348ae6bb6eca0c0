"""Choosing a method: the one whose theory promises least excess risk, at one adjacency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, final, get_args

from tacit.convex.amp import AmpDesign, amp_design, release_amp
from tacit.convex.descent import (
    DescentDesign,
    best_sample_rate,
    descent_design,
    release_descent,
)
from tacit.convex.output import OutputDesign, output_design, release_output
from tacit.convex.perturbed import ObjectiveDesign, objective_design, release_objective
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.convex.losses import Array
    from tacit.convex.perturbed import Analysis
    from tacit.convex.problem import Problem
    from tacit.convex.task import Task
    from tacit.randomness import Stream

Method: TypeAlias = Literal["auto", "output", "objective", "amp", "noisy-gd", "noisy-sgd"]
Design: TypeAlias = OutputDesign | ObjectiveDesign | AmpDesign | DescentDesign


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a user may set of a method; anything left out follows from theory."""

    method: Method = "auto"
    analysis: Analysis | None = None
    steps: int | None = None
    sample_rate: float | None = None

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise InvalidArgument(f"method must be one of {get_args(Method)}, got {self.method!r}")
        allowed = {
            "analysis": ("objective", "amp"),
            "steps": ("noisy-gd", "noisy-sgd"),
            "sample_rate": ("noisy-sgd",),
        }
        for name, methods in allowed.items():
            if getattr(self, name) is not None and self.method not in methods:
                raise InvalidArgument(
                    f"{name} goes with method {' or '.join(map(repr, methods))}, "
                    f"got method {self.method!r}; leave it out"
                )


def designed(task: Task, settings: Settings) -> tuple[str, Design]:
    """The method, chosen if it is to be, and its design."""
    if settings.method != "auto":
        return settings.method, _design(task, settings.method, settings)
    several = task.clip is not None and task.loss.outputs > 1
    candidates: tuple[Method, ...] = ("output", "objective")
    if task.delta > 0.0:
        # "amp" in place of "objective", for it needs no trust in the solver; "noisy-sgd" promises
        # no more than "noisy-gd" and differs in its cost.
        candidates = ("noisy-gd",) if several else ("output", "amp", "noisy-gd")
    designs = [(method, _design(task, method, settings)) for method in candidates]
    return min(designs, key=lambda one: one[1].excess_risk)


def released(design: Design, problem: Problem, stream: Stream) -> Array:
    """Learns from the private data as the design says."""
    match design:
        case OutputDesign():
            return release_output(design, problem, stream)
        case ObjectiveDesign():
            return release_objective(design, problem, stream)
        case AmpDesign():
            return release_amp(design, problem, stream)
        case DescentDesign():
            return release_descent(design, problem, stream)


def _design(task: Task, method: Method, settings: Settings) -> Design:
    match method:
        case "output":
            return output_design(task)
        case "objective":
            return objective_design(task, settings.analysis)
        case "amp":
            return amp_design(task, settings.analysis)
        case "noisy-gd":
            return descent_design(task, steps=settings.steps)
        case _:
            rate = settings.sample_rate
            chosen = best_sample_rate(task) if rate is None else rate
            return descent_design(task, steps=settings.steps, sample_rate=chosen)
