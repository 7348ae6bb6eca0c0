"""A statement is a claim that anybody can check, and that cannot contradict itself."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import (
    ApproxDp,
    Composed,
    Event,
    Gaussian,
    Laplace,
    PureDp,
    Repeated,
    bounds,
    epsilon,
    from_laws,
)
from tacit.accounting.serialization import as_dict
from tacit.errors import InvalidArgument
from tacit.statement import Statement, rounded_up
from tacit.training.plan import Plan

_TEXT = st.text(  # what is no control character, and turns no text around
    st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp", "Cf"))
)
_PLAN = Plan(examples=60_000, lot_size=600, steps=10_000, noise_multiplier=4.0, clip=4.0)


def _claim(**changes: Any) -> Statement:
    claim: dict[str, Any] = {
        "epsilon": _PLAN.epsilon(1e-5),
        "delta": 1e-5,
        "event": as_dict(_PLAN.event),
        "plan": _PLAN.as_dict(),
        "steps_planned": 10_000,
        "steps_taken": 10_000,
        "sampling": "Poisson, rate 0.01",
        "noise": "fast",
        "assumptions": ("the data set has 60000 examples", "floating point is exact"),
        "not_promised": ("anything about the number of examples",),
        "tacit_version": "0.1.0",
        "torch_version": "2.13.0",
    }
    return Statement(**(claim | changes))


def _bare(**changes: Any) -> Statement:
    """A claim for an event that no plan describes."""
    return _claim(**({"plan": None, "steps_planned": None, "steps_taken": None} | changes))


def test_json_gives_the_same_statement_back() -> None:
    for claim in (_claim(), _claim(ledger="run 7", epsilon=1.5), _bare(unit="user")):
        again = Statement.from_json(claim.to_json())
        assert again == claim
        assert hash(again) == hash(claim)
        assert again.to_json() == claim.to_json()


@pytest.mark.parametrize("claims", [30, pytest.param(100, marks=pytest.mark.slow)])
def test_json_keeps_every_bit_and_letter(claims: int) -> None:
    drawn = given(st.floats(0.5, 50.0), st.floats(1e-10, 0.5), _TEXT, st.lists(_TEXT, max_size=3))
    settings(deadline=None, max_examples=claims)(drawn(comes_back))()


def comes_back(sigma: float, delta: float, words: str, more: list[str]) -> None:
    claim = Statement(
        epsilon=epsilon(Gaussian(sigma), delta),
        delta=delta,
        event=as_dict(Gaussian(sigma)),
        sampling=words,
        noise="fast",
        assumptions=tuple(more),
        tacit_version="0",
    )
    assert Statement.from_json(claim.to_json()) == claim


def test_an_infinite_epsilon_is_told_as_such() -> None:
    claim = _bare(epsilon=math.inf, event=as_dict(ApproxDp(1.0, 0.5)))
    assert json.loads(claim.to_json())["epsilon"] is None
    assert Statement.from_json(claim.to_json()) == claim
    assert "has no guarantee" in claim.describe()
    assert "has no guarantee" not in _claim().describe()


def test_a_claim_below_what_is_proved_is_refused() -> None:
    truth = _PLAN.epsilon(1e-5)
    assert _claim(epsilon=truth * (1 + 1e-6)).epsilon > truth
    for less in (truth * (1 - 1e-6), 0.5, 0.0):
        with pytest.raises(InvalidArgument, match=r"epsilon must be at least the 0\.946867"):
            _claim(epsilon=less)
    with pytest.raises(InvalidArgument, match="epsilon must be at least"):
        _claim(accountant="rdp")  # which proves more than the exact ε only
    with pytest.raises(InvalidArgument, match="epsilon must be at least"):
        _bare(adjacency="replace-one")
    with pytest.raises(InvalidArgument, match="epsilon must be at least"):
        _claim(delta=1e-6)


ANSWERS = from_laws(p=[0.6, 0.3, 0.1], q=[0.1, 0.3, 0.6])


@pytest.mark.parametrize(
    "event",
    [Repeated(ANSWERS, 10), Composed(Gaussian(2.0), ANSWERS)],
    ids=["answers", "noise and answers"],
)
def test_what_epsilon_proves_on_a_grid_can_be_claimed_and_no_less(event: Event) -> None:
    ends, proved = bounds(event, 1e-8), epsilon(event, 1e-8)
    assert ends.on_grid
    assert ends.lower <= proved == ends.upper
    assert _bare(epsilon=proved, delta=1e-8, event=as_dict(event)).epsilon == proved
    with pytest.raises(InvalidArgument, match="epsilon must be at least"):
        _bare(epsilon=ends.lower * (1.0 - 1e-8), delta=1e-8, event=as_dict(event))
    with pytest.raises(InvalidArgument, match="epsilon must be at least"):
        _bare(epsilon=proved * (1.0 - 2e-9), delta=1e-8, event=as_dict(event))


def test_a_claim_that_another_certified_end_proves_is_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    event = Repeated(Laplace(3.0), 10)
    proved = epsilon(event, 1e-8)
    loose = replace(bounds(event, 1e-8), upper=proved * 1.001)
    monkeypatch.setattr("tacit.statement.proof.bracket", lambda *_: loose)
    assert _bare(epsilon=proved, delta=1e-8, event=as_dict(event)).epsilon == proved
    with pytest.raises(InvalidArgument, match="epsilon must be at least"):
        _bare(epsilon=proved * (1.0 - 2e-9), delta=1e-8, event=as_dict(event))


def test_a_file_that_was_tampered_with_is_refused() -> None:
    plain = json.loads(_claim().to_json())
    for name, value in (("epsilon", 0.9), ("delta", 1e-9), ("adjacency", "replace-one")):
        with pytest.raises(InvalidArgument, match="must be"):
            Statement.from_json(json.dumps(plain | {name: value}))
    plain["event"]["times"] = 20_000
    with pytest.raises(InvalidArgument, match="epsilon must be at least"):
        Statement.from_json(json.dumps(plain))


def test_nobody_can_change_it() -> None:
    event: dict[str, Any] = as_dict(Repeated(PureDp(0.1), 3))
    claim = _bare(event=event)
    event["times"] = 1_000
    assert claim.event["times"] == 3
    with pytest.raises(FrozenInstanceError):
        claim.epsilon = 0.0  # type: ignore[misc]


def test_an_early_stop_needs_its_rule() -> None:
    rule = "The stop was not fixed in advance: the whole plan is charged."
    claim = _claim(steps_taken=70, stopped_early=rule)
    assert f"70 of 10000 steps were taken. {rule}" in claim.describe()
    with pytest.raises(InvalidArgument, match="stopped_early must say which rule"):
        _claim(steps_taken=70)
    with pytest.raises(InvalidArgument, match="stopped_early must say which rule"):
        _claim(stopped_early=rule)


def test_the_description_tells_everything_in_it() -> None:
    claim = replace(_claim(), ledger="patients-2026, charge 3")
    text = claim.describe()
    assert "ε = 0.946867 and δ = 1e-5 for every single example, under add-remove" in text
    assert "'exact' proves" in text
    assert "Poisson, rate 0.01" in text
    for words in (*claim.assumptions, *claim.not_promised, "tacit 0.1.0", "2.13.0", "charge 3"):
        assert words in text


def test_an_infinite_epsilon_is_not_called_proved() -> None:
    """The event may well have a finite one: that nothing is promised is all that is said."""
    claim = _bare(epsilon=math.inf)
    (found,) = [one for one in claim.findings() if one.subject == "ε"]
    assert found.standing == "claimed"


@pytest.mark.parametrize("value", [0.94686680081, 1.0000000001, 3.0, 123456.7, 1e-7, math.inf])
def test_bounds_are_rounded_up(value: float) -> None:
    assert value <= float(rounded_up(value)) <= value * (1 + 1e-5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": -1.0}, "epsilon .* got -1.0"),
        ({"epsilon": math.nan}, "epsilon .* got nan"),
        ({"delta": 0.0}, "delta .* got 0.0"),
        ({"delta": 1.0}, "delta .* got 1.0"),
        ({"adjacency": "swap"}, "adjacency .* got 'swap'"),
        ({"unit": "city"}, "unit must be one of .* got 'city'"),
        ({"accountant": "gdp-clt"}, "accountant must prove a bound"),
        ({"accountant": "magic"}, "accountant must be one of .* got 'magic'"),
        ({"event": {"kind": "Nonsense"}}, "an event needs a kind"),
        ({"event": Gaussian(4.0)}, "event must be a dictionary"),
        ({"plan": _PLAN}, "plan must be a dictionary"),
        ({"unit": "user"}, "unit must be as in the plan, 'example', got 'user'"),
        ({"steps_planned": 9_999, "steps_taken": 9_999}, "steps must be as in the plan, 10000"),
        ({"steps_taken": None}, "steps_planned and steps_taken go together"),
        ({"steps_taken": 10_001}, "steps_taken must be at most 10000, got 10001"),
        ({"steps_taken": -1}, "steps_taken .* got -1"),
        ({"sampling": None}, "sampling must be a text, got None"),
        ({"noise": 1}, "noise must be a text, got 1"),
        ({"assumptions": "one"}, "assumptions must be a tuple of texts, .* got 'one'"),
        ({"not_promised": (1,)}, "not_promised must be a tuple of texts"),
        ({"tacit_version": None}, "tacit_version must be a text"),
        ({"torch_version": 2}, "torch_version must be a text or None, got 2"),
        ({"ledger": 3}, "ledger must be a text or None, got 3"),
    ],
)
def test_refusals_name_the_argument_and_its_value(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        _claim(**changes)


@pytest.mark.parametrize("text", ["not json", "[]", '{"epsilon": 1.0}'])
def test_bad_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"text must be JSON|a statement needs exactly"):
        Statement.from_json(text)


def test_any_event_can_be_stated() -> None:
    released: Event = Repeated(PureDp(0.1), 3)
    claim = _bare(event=as_dict(released), epsilon=0.31)
    assert claim.epsilon == 0.31


def test_every_field_must_be_there() -> None:
    plain = json.loads(_claim().to_json())
    for name in plain.keys() - {"figures"}:
        less = {key: value for key, value in plain.items() if key != name}
        with pytest.raises(InvalidArgument, match=f"needs exactly its fields: missing: '{name}'$"):
            Statement.from_json(json.dumps(less))


def test_figures_are_written_for_readers_and_refused_if_forged() -> None:
    plain = json.loads(_claim().to_json())
    assert plain["figures"]["upper"] == pytest.approx(0.9468668)
    assert [one["false_positive_rate"] for one in plain["figures"]["attack"]] == [0.01, 0.001]
    plain["figures"]["attack"][0]["true_positive_rate"] = 0.011
    with pytest.raises(InvalidArgument, match="figures must be those of the event, whose attack"):
        Statement.from_json(json.dumps(plain))
    del plain["figures"]
    assert Statement.from_json(json.dumps(plain)) == _claim()


def test_figures_of_another_event_are_refused() -> None:
    """Also where the claim itself is generous enough for both."""
    quiet, loud = (_bare(epsilon=5.0, event=as_dict(Gaussian(s))) for s in (9.0, 3.0))
    plain = json.loads(loud.to_json()) | {"figures": json.loads(quiet.to_json())["figures"]}
    with pytest.raises(InvalidArgument, match="figures must be those of the event"):
        Statement.from_json(json.dumps(plain))


@pytest.mark.parametrize(
    "event",
    [
        {"kind": ["Gaussian"]},
        {"kind": "Gaussian", "sigma": {}, "replace_distance": 2.0},
        {"kind": "Gaussian", "sigma": 1e-320, "replace_distance": 2.0},
        {"kind": "Composed", "events": 3},
        {"kind": "Repeated", "event": 3, "times": 2},
    ],
)
def test_events_that_are_none_are_refused_in_one_line(event: dict[str, Any]) -> None:
    plain = json.loads(_bare(epsilon=1.2).to_json())
    del plain["figures"]
    with pytest.raises(InvalidArgument):
        Statement.from_json(json.dumps(plain | {"event": event, "epsilon": 0.1}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"threat_model": 1}, "threat_model must be a text or None, got 1"),
        ({"tuning": []}, "tuning must be a text or None"),
        ({"randomness": {}}, "randomness must be a text or None"),
        ({"releases": "one"}, "releases must be a tuple of texts"),
        ({"preprocessing": "one"}, "preprocessing must be a tuple of Access"),
        ({"preprocessing": ({"what": "x"},)}, "preprocessing must be a tuple of Access"),
        ({"versions": []}, "versions must map names to versions"),
        ({"configuration": "0"}, "configuration must be a SHA-256"),
    ],
)
def test_the_newer_fields_are_checked_too(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        _claim(**changes)


def test_its_versions_are_its_own() -> None:
    versions = {"numpy": "2"}
    claim = _claim(versions=versions)
    versions["numpy"] = "3"
    assert claim.versions == {"numpy": "2"}
    assert hash(claim) == hash(_claim())
