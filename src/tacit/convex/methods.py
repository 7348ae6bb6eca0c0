"""From rows and targets to coefficients: scaling, design, charge, release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal, TypeAlias, final, get_args

import numpy as np

from tacit._validation import non_negative, positive
from tacit.convex.descent import (
    DescentDesign,
    best_sample_rate,
    descent_design,
    release_descent,
)
from tacit.convex.perturbation import (
    AmpDesign,
    ObjectiveDesign,
    OutputDesign,
    amp_design,
    objective_design,
    output_design,
    release_amp,
    release_objective,
    release_output,
)
from tacit.convex.problem import Problem, shortened
from tacit.errors import InvalidArgument
from tacit.randomness import fresh_stream

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency
    from tacit.convex.losses import Array
    from tacit.convex.perturbation import Analysis
    from tacit.convex.problem import ConvexTask
    from tacit.ledger import Budget
    from tacit.randomness import Stream
    from tacit.statement import Statement


@final
@dataclass(frozen=True, slots=True)
class DataScaling:
    """Public scaling: rows divided by ``data_norm``, and a constant column for the intercept.

    Nothing is learned from the data here. Rows longer than ``data_norm`` are shortened to it. The
    constant is ``intercept_scale``, 0 for no intercept: a model is then a linear one of rows whose
    norm is at most √(1 + intercept_scale²), and the intercept is regularised like the rest.
    """

    data_norm: float
    intercept_scale: float

    def __post_init__(self) -> None:
        if self.data_norm is None:
            raise InvalidArgument(
                "data_norm must be given: the largest norm of a row, known without looking at the "
                "data (longer rows are shortened to it)"
            )
        object.__setattr__(self, "data_norm", positive("data_norm", self.data_norm))
        scale = non_negative("intercept_scale", self.intercept_scale)
        object.__setattr__(self, "intercept_scale", scale)

    @property
    def norm(self) -> float:
        """The largest norm of a scaled row."""
        return math.sqrt(1.0 + self.intercept_scale**2)

    def rows(self, data: Array) -> Array:
        """The scaled rows."""
        with np.errstate(over="ignore"):
            scaled = shortened(np.asarray(data, dtype=np.float64) / self.data_norm, 1.0)
        if self.intercept_scale == 0.0:
            return scaled
        return np.column_stack([scaled, np.full(len(scaled), self.intercept_scale)])

    def coefficients(self, theta: Array, outputs: int) -> tuple[Array, Array]:
        """Coefficients and intercepts for rows in the user's unit."""
        table = theta.reshape(outputs, -1)
        if self.intercept_scale == 0.0:
            return table / self.data_norm, np.zeros(outputs)
        return table[:, :-1] / self.data_norm, table[:, -1] * self.intercept_scale


_THREAT_MODEL = (
    "the claim holds against whoever sees the fitted model, knows the code and all other data, and "
    "has any amount of time. It does not hold against whoever sees into the computer while it fits"
)
_NOT_PROMISED = (
    "anything about choices made with the same data before, such as settings or columns",
    "anything about how long fitting takes, which depends on the data and on the noise, or about a "
    "fit that ends in an error because its minimum cannot be reached in floating point",
    "anything about held-out examples, on which accuracy may have been measured",
    "that nothing can be inferred about a person from what the data say about everybody",
)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """What was learned, by which method, and where it is charged."""

    theta: Array
    method: str
    design: Design
    ledger: str | None


def learn(
    task: ConvexTask,
    rows: Array,
    targets: Array,
    settings: MethodSettings,
    budget: Budget | None = None,
    stream: Stream | None = None,
) -> Learned:
    """Learns a task from its scaled rows; the budget is charged before any noise is drawn.

    Args:
        task: The public facts.
        rows: The scaled rows, within ``task.norm``.
        targets: ±1, the classes' numbers, or scaled targets, as the loss takes them.
        settings: The method.
        budget: Where to charge.
        stream: The random bytes; a fresh secure stream unless a test gives another.

    Guarantee:
        The release has the design's guarantee; charged is the design's event.
    """
    method, design = designed(task, settings)
    problem = Problem(task, rows, targets)
    where = None if budget is None else _charge(budget, design, task.adjacency, method)
    source = fresh_stream("convex learning") if stream is None else stream
    return Learned(released(design, problem, source), method, design, where)


def _charge(budget: Budget, design: Design, adjacency: Adjacency, method: str) -> str:
    budget.check_protects("example", adjacency)
    charged = budget.charge(design.event, label=f"tacit.convex, {method}")
    return f"{budget.name}, entry {charged.number}"


def stated(learned: Learned, delta: float | None, assumptions: tuple[str, ...]) -> Statement:
    """The claim of a fitted model, at the task's δ unless another is given."""
    from tacit.accounting import epsilon  # noqa: PLC0415
    from tacit.accounting.serialization import as_dict  # noqa: PLC0415
    from tacit.statement import Statement  # noqa: PLC0415

    design = learned.design
    task = design.task
    at = task.delta if delta is None else delta
    if at == 0.0:
        raise InvalidArgument("delta must be given for a statement of pure differential privacy")
    return Statement(
        epsilon=epsilon(design.event, at, adjacency=task.adjacency),
        delta=at,
        adjacency=task.adjacency,
        event=as_dict(design.event),
        sampling=_sampling(design),
        noise=_noise(design),
        assumptions=(
            *assumptions,
            *_trusted(design),
        ),
        not_promised=_NOT_PROMISED,
        tacit_version=version("tacit"),
        ledger=learned.ledger,
        threat_model=_THREAT_MODEL,
        releases=("the coefficients and intercepts",),
        randomness="cryptographic bits that the operating system keys",
    )


def public_number(task: ConvexTask, *, declared: bool) -> str:
    """What is public about the number of examples, and what that means for neighbours."""
    if declared:
        return (
            f"at most {task.examples} examples was declared without looking at the data; their "
            "number is protected"
        )
    public = f"the number of examples, {task.examples}, is public"
    if task.adjacency == "replace-one":
        return public
    return (
        f"{public} and sets regularisation, noise and steps: a neighbour's missing example "
        "contributes nothing, and the number stays"
    )


def _sampling(design: Design) -> str:
    rate = getattr(design, "sample_rate", 1.0)
    return (
        "none: all examples" if rate == 1.0 else f"Poisson, rate {rate:.6g}, a fresh sample a step"
    )


def _noise(design: Design) -> str:
    if design.task.delta == 0.0:
        return "Gamma-norm, in floating point, from a cryptographic stream"
    return "Gaussian, on a grid, from a cryptographic stream"


def _trusted(design: Design) -> tuple[str, ...]:
    """What of the arithmetic the guarantee takes on trust."""
    if isinstance(design, ObjectiveDesign):
        return (
            "the minimum is exact and its floating-point digits tell nothing more "
            "(method 'amp' needs neither)",
        )
    if isinstance(design, OutputDesign) and design.noise_multiplier is None:
        return ("floating-point noise hides like real noise (Gaussian noise needs no such trust)",)
    return ()


# ---- the choice of a method: least excess risk by theory, at one adjacency


Method: TypeAlias = Literal["auto", "output", "objective", "amp", "noisy-gd", "noisy-sgd"]
Design: TypeAlias = OutputDesign | ObjectiveDesign | AmpDesign | DescentDesign


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MethodSettings:
    """What a user may set of a method; anything left out follows from theory."""

    method: Method = "auto"
    analysis: Analysis | None = None
    steps: int | None = None
    sample_rate: float | None = None

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise InvalidArgument(
                f"method must be one of {', '.join(get_args(Method))}, got {self.method!r}"
            )
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


def designed(task: ConvexTask, settings: MethodSettings) -> tuple[str, Design]:
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


def _design(task: ConvexTask, method: Method, settings: MethodSettings) -> Design:
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
