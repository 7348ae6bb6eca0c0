"""A finished run in numbers: how well it does, what it gave away, and what others published."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tacit.accounting import Composed, epsilon, profile
from tacit.accounting.serialization import from_dict
from tacit.errors import CheckpointError, TacitError
from tacit.runs.folder import HISTORY
from tacit.statement.claim import UNCHECKABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.accounting.events import Event
    from tacit.reports.run_folder import Epoch, RunFiles
    from tacit.statement import Figures, Statement
    from tacit.training.plan import Plan

MOST_MOMENTS: Final = 60
SMALLEST_RATE: Final = 1e-4
POINTS: Final = 41
_SLACK: Final = 1e-6
Point = tuple[float, float]


@dataclass(frozen=True)
class Moment:
    """A run after some steps; ``epsilon`` is None where no plan says what they cost."""

    epoch: int
    steps: int
    accuracy: float
    epsilon: float | None


@dataclass(frozen=True)
class RunSummary:
    """A run with every figure computed again from its statement.

    ``curve`` has pairs (ε, δ) and ``attack`` pairs of false and largest true positive rate, both to
    be drawn; they are empty where a point of the curve takes too long.
    """

    files: RunFiles
    figures: Figures
    moments: tuple[Moment, ...]
    curve: tuple[Point, ...]
    attack: tuple[Point, ...]

    @property
    def statement(self) -> Statement:
        """What is claimed."""
        return self.files.statement

    @property
    def error(self) -> float | None:
        """The standard error of the accuracy, for as many held-out examples as there are."""
        right = self.files.accuracy
        if right is None:
            return None
        return math.sqrt(right * (1.0 - right) / max(1, self.files.record.data["test"]))

    @property
    def overspent(self) -> bool:
        """Whether the statement claims a larger ε than the run was to spend."""
        return self.statement.epsilon > self.files.record.epsilon * (1.0 + 1e-9)

    @property
    def void(self) -> bool:
        """Whether the statement says itself that it does not hold."""
        return self.statement.void

    def as_dict(self) -> dict[str, Any]:
        """The summary in JSON's types; what is infinite or unknown is None."""
        record = self.files.record
        return {
            "recipe": record.recipe,
            "settings": dict(record.settings),
            "accuracy": self.files.accuracy,
            "accuracy_standard_error": self.error,
            "epsilon": _finite(self.statement.epsilon),
            "delta": self.statement.delta,
            "void": self.void,
            "history": [
                {
                    "epoch": one.epoch,
                    "steps": one.steps,
                    "held_out_accuracy": one.accuracy,
                    "epsilon": None if one.epsilon is None else _finite(one.epsilon),
                }
                for one in self.moments
            ],
            "anchors": [dict(one) for one in record.anchors],
            "configuration": record.configuration,
            **self._of_transfer(),
            **self._of_audit(),
        }

    def _of_transfer(self) -> dict[str, Any]:
        """What only a transfer has."""
        answers, figure = self.files.answers, self.statement.data_dependent
        found: dict[str, Any] = {} if answers is None else {"labelled": len(answers)}
        if figure is not None:
            found["data_dependent_epsilon"] = figure.epsilon
        return found

    def _of_audit(self) -> dict[str, Any]:
        """What only a run that was audited has; it is private."""
        audit = self.files.audit
        if audit is None or audit.verdict is None:
            return {}
        verdict = audit.verdict
        return {
            "audit": {
                "contradicted": verdict.contradicted,
                "words": verdict.describe(),
                "epsilon_at_least": verdict.shown.epsilon,
                "confidence": verdict.shown.confidence,
            }
        }

    def report_as_dict(self) -> dict[str, Any]:
        """The statement, what of it is proved, and the summary: ``tacit report --json``."""
        evidence = self.files.evidence
        return {
            "statement": json.loads(self.statement.to_json()),
            "evidence": [one.as_dict() for one in evidence.findings],
            "warnings": list(evidence.warnings),
            "summary": self.as_dict(),
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def summarise(files: RunFiles) -> RunSummary:
    """Computes what a report says of a run; one whose curve cannot be computed is refused."""
    try:
        return _summary(files)
    except TacitError:
        raise
    except UNCHECKABLE as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{files.path} is refused: it has no curve: {reason}") from None


def _summary(files: RunFiles) -> RunSummary:
    figures = files.statement.figures()
    drawn = figures.attack_from == "curve"
    curve = _curve(files.statement, figures) if drawn else ()
    return RunSummary(
        files=files,
        figures=figures,
        moments=_moments(files),
        curve=curve,
        attack=_attack(curve),
    )


def _curve(statement: Statement, figures: Figures) -> tuple[Point, ...]:
    """δ at evenly spaced ε, to a little beyond where δ is 1e-10."""
    last = max((one for _, one in figures.curve if math.isfinite(one)), default=0.0)
    if not 0.0 < last <= 700.0:
        return ()
    curve = profile(from_dict(statement.event), statement.adjacency)
    places = [1.05 * last * place / (POINTS - 1) for place in range(POINTS)]
    return tuple((place, curve.delta(place)) for place in places)


def _attack(curve: Sequence[Point]) -> tuple[Point, ...]:
    """The largest true positive rates that the points of the curve allow together."""
    if not curve:
        return ()
    places = [SMALLEST_RATE ** (1.0 - place / 100) for place in range(101)]
    return tuple(
        (
            rate,
            min(min(1.0, *_limits(loss, delta, rate)) for loss, delta in curve),
        )
        for rate in places
    )


def _limits(loss: float, delta: float, rate: float) -> tuple[float, float]:
    """e^ε·false + δ and 1 - e^-ε(1 - δ - false), as in ``PrivacyCurve.tradeoff``."""
    return math.exp(loss) * rate + delta, 1.0 - math.exp(-loss) * (1.0 - delta - rate)


def _moments(files: RunFiles) -> tuple[Moment, ...]:
    """The epochs with an accuracy; of many, evenly chosen ones with the last."""
    measured = [one for one in files.history if one.accuracy is not None]
    apart = max(1, math.ceil(len(measured) / MOST_MOMENTS))
    chosen = measured[::-1][::apart][::-1]
    return tuple(_moment(one, files) for one in chosen)


def _moment(one: Epoch, files: RunFiles) -> Moment:
    assert one.accuracy is not None
    plan = files.plan
    if plan is None or not files.is_all:
        return Moment(one.epoch, one.steps, one.accuracy, None)
    alone = _spent(plan.event_after(one.steps), files.statement)
    if one.epsilon < alone * (1.0 - _SLACK):
        raise CheckpointError(
            f"{files.path / HISTORY} is refused: after {one.steps} steps epsilon is "
            f"{alone:.6g}, got {one.epsilon!r}"
        )
    return Moment(one.epoch, one.steps, one.accuracy, _with_preprocessing(plan, one, files))


def _with_preprocessing(plan: Plan, one: Epoch, files: RunFiles) -> float:
    """What had been spent by then: preprocessing comes first."""
    before = [from_dict(part.event) for part in files.statement.preprocessing if part.charged]
    return _spent(Composed(*before, plan.event_after(one.steps)), files.statement)


def _spent(event: Event, statement: Statement) -> float:
    return epsilon(event, statement.delta, adjacency=statement.adjacency)
