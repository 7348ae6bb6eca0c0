"""What a training run would give away: every accountant's answer, the curve, an attacker's odds."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tacit import __version__
from tacit.accounting import (
    Gaussian,
    PoissonSampled,
    Repeated,
    UnsupportedEvent,
    bounds,
    compare,
    noise_multiplier,
    profile,
    to_json,
)
from tacit.errors import Uncalibratable

if TYPE_CHECKING:
    from tacit.accounting import Adjacency, Interval, PrivacyCurve, Row

DELTAS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-12)
FALSE_POSITIVE_RATES = (0.1, 0.01, 0.001)


@dataclass(frozen=True)
class AccountedRun:
    """A run of DP-SGD as an accountant sees it; ``examples`` and ``lot`` are only shown."""

    rate: float
    steps: int
    sigma: float
    delta: float
    adjacency: Adjacency = "add-remove"
    examples: int | None = None
    lot: int | None = None

    @property
    def epochs(self) -> float:
        """How often the run sees each example on average."""
        return self.rate * self.steps

    def event(self, steps: int | None = None) -> Repeated:
        """The event of the run, or of its first ``steps`` steps."""
        return Repeated(PoissonSampled(self.rate, Gaussian(self.sigma)), steps or self.steps)


@dataclass(frozen=True)
class Demand:
    """The noise that an accountant's theorem demands for a target ε; None if it has no answer."""

    accountant: str
    sigma: float | None
    seconds: float
    note: str = ""


@dataclass(frozen=True)
class Odds:
    """The best that any test for one record's presence can do against the run.

    ``advantage`` is the largest true minus false positive rate; ``right`` how often a test can be
    right if presence and absence are equally likely; ``catches`` pairs false positive rates with
    the largest true ones.
    """

    advantage: float
    right: float
    catches: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class PlanSummary:
    """Everything that ``tacit plan`` tells."""

    setting: AccountedRun
    interval: Interval
    rows: tuple[Row, ...]
    odds: Odds
    curve: tuple[tuple[float, float], ...]
    target: float | None = None
    demands: tuple[Demand, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """The summary in JSON's types; what is infinite or unknown is None."""
        return {
            "tacit": __version__,
            "setting": asdict(self.setting) | {"epochs": self.setting.epochs},
            "event": json.loads(to_json(self.setting.event())),
            "target_epsilon": self.target,
            "epsilon": _finite(self.interval.upper),
            "interval": _plain(asdict(self.interval)),
            "accountants": [_plain(asdict(row)) for row in self.rows],
            "demands": [_plain(asdict(demand)) for demand in self.demands],
            "attacker": {
                "advantage": self.odds.advantage,
                "right_from_even": self.odds.right,
                "true_positive_limits": [
                    {"false_positive_rate": false, "true_positive_rate": true}
                    for false, true in self.odds.catches
                ],
            },
            "curve": [
                {"delta": delta, "epsilon": _finite(epsilon)} for delta, epsilon in self.curve
            ],
        }


def summarise(setting: AccountedRun, target: float | None = None) -> PlanSummary:
    """Asks every accountant about ``setting``, and what noise each demands for ``target``."""
    event = setting.event()
    curve = profile(event, adjacency=setting.adjacency)
    interval = bounds(event, delta=setting.delta, adjacency=setting.adjacency)
    rows = compare(event, delta=setting.delta, adjacency=setting.adjacency)
    return PlanSummary(
        setting=setting,
        interval=interval,
        rows=rows,
        odds=_odds(curve),
        curve=_points(curve, setting.delta),
        target=target,
        demands=tuple(_demand(row.accountant, setting, target) for row in rows if target),
    )


def _odds(curve: PrivacyCurve) -> Odds:
    return Odds(
        advantage=curve.advantage(),
        right=curve.posterior(0.5),
        catches=tuple((rate, 1.0 - curve.tradeoff(rate)) for rate in FALSE_POSITIVE_RATES),
    )


def _points(curve: PrivacyCurve, own: float) -> tuple[tuple[float, float], ...]:
    return tuple((delta, curve.epsilon(delta)) for delta in sorted({*DELTAS, own}, reverse=True))


def _demand(accountant: str, setting: AccountedRun, target: float) -> Demand:
    start = time.perf_counter()
    sigma, note = None, ""
    try:
        sigma = noise_multiplier(
            epsilon=target,
            delta=setting.delta,
            sample_rate=setting.rate,
            steps=setting.steps,
            accountant=accountant,
            adjacency=setting.adjacency,
        )
    except UnsupportedEvent as refusal:
        note = refusal.reason
    except Uncalibratable as refusal:
        note = str(refusal)
    return Demand(accountant, sigma, time.perf_counter() - start, note)


def _plain(fields: dict[str, object]) -> dict[str, object]:
    return {
        name: _finite(value) if isinstance(value, float) else value
        for name, value in fields.items()
    }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
