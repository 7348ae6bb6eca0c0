"""Statements that say less than what happened, or nothing that makes sense."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from tacit.auditing.replay.forbidden.arguments import honest_plan
from tacit.statement import Statement
from tacit.training.claim import Run, statement

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.auditing.replay.forbidden.small_run import (
        Attempts,
    )

_DELTA = 1e-5


def statements() -> Attempts:
    """Statements, each with something changed in it."""
    plan = honest_plan()
    claim = statement(plan, _DELTA, 30, Run(30, unsafe=False), lost=0, ledger=None)
    plain = json.loads(claim.to_json())
    fewer = json.loads(
        statement(plan, _DELTA, 5, Run(5, unsafe=False), lost=0, ledger=None).to_json()
    )
    event, inner = plain["event"], plain["event"]["event"]
    wrong: dict[str, dict[str, Any]] = {
        "a smaller ε": {"epsilon": 0.9 * claim.epsilon}, "a smaller δ": {"delta": 0.1 * _DELTA},
        "ε below 0": {"epsilon": -1.0}, "a text for ε": {"epsilon": "1"}, "no δ": {"delta": 0.0},
        "δ of one": {"delta": 1.0}, "a text for δ": {"delta": "1"},
        "δ without end": {"delta": 1e400}, "an ε that is huge": {"epsilon": 10**400},
        "an ε that is a list": {"epsilon": [1.0]},
        "another adjacency": {"adjacency": "replace-one"}, "no adjacency": {"adjacency": "none"},
        "an unknown unit": {"unit": "nobody"}, "another unit": {"unit": "user"},
        "more steps than planned": {"steps_taken": 31}, "steps below none": {"steps_taken": -1},
        "more steps than charged": {"event": fewer["event"], "epsilon": fewer["epsilon"],
                                    "figures": fewer["figures"]},
        "and no plan": {"event": fewer["event"], "epsilon": fewer["epsilon"], "plan": None,
                        "figures": fewer["figures"]},
        "fewer steps in the plan": {"plan": plain["plan"] | {"steps": 29}},
        "another noise in the plan": {"plan": plain["plan"] | {"noise_multiplier": 1.0}},
        "more in the plan": {"plan": plain["plan"] | {"more": 1}},
        "a plan that is a text": {"plan": "plan"}, "no event": {"event": {}},
        "an event that is a text": {"event": "Gaussian"}, "no figures": {"figures": {}},
        "an unknown event": {"event": {"kind": "Strange"}},
        "an event of no kind at all": {"event": event | {"kind": [1]}},
        "an event of more noise": {"event": event | {"event": inner | {
            "event": inner["event"] | {"sigma": 2.0}}}},
        "an event without end": {"event": event | {"event": inner | {
            "event": inner["event"] | {"sigma": 10**400}}}},
        "an event of no steps": {"event": event | {"times": 0}},
        "an event of a text of steps": {"event": event | {"times": "30"}},
        "another field": {"more": 1}, "figures that are a list": {"figures": [1]},
    }  # fmt: skip
    found: dict[str, Callable[[], object]] = {
        f"a statement with {name}": partial(Statement.from_json, json.dumps(plain | one))
        for name, one in wrong.items()
    }
    for key, value in plain["figures"].items():
        other = json.dumps(plain | {"figures": plain["figures"] | {key: _less(value)}})
        found[f"a statement with another {key}"] = partial(Statement.from_json, other)
    for key in ("epsilon", "delta", "event", "plan", "steps_taken", "assumptions"):
        other = json.dumps({name: one for name, one in plain.items() if name != key})
        found[f"a statement without {key}"] = partial(Statement.from_json, other)
    for text in ("{", "[]", "3", "", '{"epsilon": NaN}', "[" * 100_000):
        found[f"a statement that is {text[:20]!r}"] = partial(Statement.from_json, text)
    return found


def _less(value: Any) -> Any:
    """Figures that say less than the right ones."""
    match value:
        case bool() | str() | None:
            return [value]
        case int() | float():
            return 0.5 * value + 1e-9
        case list() if value:
            return [_less(value[0]), *value[1:]]
        case dict() if value:
            key = next(iter(value))
            return {**value, key: _less(value[key])}
    return 0.125
