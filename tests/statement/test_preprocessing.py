"""Extending a statement adds to what it charges, and never takes away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tacit.accounting import Composed, Gaussian, PureDp, epsilon
from tacit.accounting.serialization import as_dict, from_dict
from tacit.errors import InvalidArgument
from tacit.statement import Access, Statement, extended
from tacit.statement.preprocessing import without_preprocessing
from tacit.training.plan import Plan

PLAN = Plan(examples=60_000, lot_size=600, steps=1000, noise_multiplier=4.0, clip=4.0)


def claim(**changes: Any) -> Statement:
    told: dict[str, Any] = {
        "epsilon": PLAN.epsilon(1e-5),
        "delta": 1e-5,
        "event": as_dict(PLAN.event),
        "plan": PLAN.as_dict(),
        "steps_planned": 1000,
        "steps_taken": 1000,
        "sampling": "Poisson",
        "noise": "fast",
        "tacit_version": "0.1.0",
    }
    return Statement(**(told | changes))


def test_preprocessing_is_charged():
    more = extended(claim(), preprocessing=[("PCA", Gaussian(16.0)), ("a count", PureDp(0.1))])
    whole = Composed(Gaussian(16.0), PureDp(0.1), PLAN.event)
    assert from_dict(more.event) == whole
    assert more.epsilon == pytest.approx(epsilon(whole, 1e-5), rel=1e-12)
    assert [one.what for one in more.preprocessing] == ["PCA", "a count"]
    assert Statement.from_json(more.to_json()) == more


def test_twice_is_as_good_as_once():
    parts: list[Any] = [("PCA", Gaussian(16.0)), ("scaling", None), ("a count", PureDp(0.1))]
    once = extended(claim(), preprocessing=parts)
    twice = claim()
    for part in parts:
        twice = extended(twice, preprocessing=[part])
    assert twice == once
    assert without_preprocessing(twice.event, twice.preprocessing) == as_dict(PLAN.event)


def test_what_is_the_same_for_all_data_costs_nothing():
    more = extended(claim(), preprocessing=[("divided by 255", None)])
    assert (more.event, more.epsilon) == (claim().event, claim().epsilon)
    assert not more.preprocessing[0].charged


def test_epsilon_is_never_less_than_before():
    generous = claim(epsilon=7.0)
    assert extended(generous, preprocessing=[("PCA", Gaussian(16.0))]).epsilon == 7.0
    assert extended(claim()) == claim()


def test_other_accountants_prove_the_whole():
    loose = claim(accountant="rdp", epsilon=PLAN.epsilon(1e-5, "rdp"))
    more = extended(loose, preprocessing=[("PCA", Gaussian(16.0))])
    whole = Composed(Gaussian(16.0), PLAN.event)
    assert more.epsilon == pytest.approx(epsilon(whole, 1e-5, accountant="rdp"), rel=1e-12)


def test_texts_are_added_and_single_ones_replaced():
    first = claim(assumptions=("a",), not_promised=("b",), releases=("c",), tuning="d")
    more = extended(
        first,
        releases="the model",
        assumptions=["e"],
        not_promised=("f",),
        tuning="g",
        versions={"numpy": "2"},
        configuration="0" * 64,
        threat_model="h",
    )
    assert more.releases == ("c", "the model")
    assert more.assumptions == ("a", "e")
    assert more.not_promised == ("b", "f")
    assert (more.tuning, more.threat_model, more.configuration) == ("g", "h", "0" * 64)
    again = extended(more, versions={"scipy": "1"})
    assert again.versions == {"numpy": "2", "scipy": "1"}
    assert again.tuning == "g"


def test_preprocessing_cannot_be_stated_without_its_charge():
    with pytest.raises(InvalidArgument, match="event must begin with the events of preprocessing"):
        replace(claim(), preprocessing=(Access("PCA", as_dict(Gaussian(16.0))),))
    more = extended(claim(), preprocessing=[("PCA", Gaussian(16.0))])
    cheaper = (Access("PCA", as_dict(Gaussian(160.0))),)
    with pytest.raises(InvalidArgument, match="event must begin with"):
        replace(more, preprocessing=cheaper)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"preprocessing": [("", None)]}, "preprocessing must say what was done, got ''"),
        ({"preprocessing": [(3, None)]}, "preprocessing must say what was done, got 3"),
        ({"releases": [3]}, "releases must be a tuple of texts"),
        ({"versions": {"numpy": 2}}, "versions must map names to versions"),
        ({"configuration": "xyz"}, "configuration must be a SHA-256"),
        ({"configuration": "A" * 64}, "configuration must be a SHA-256"),
    ],
)
def test_refusals(changes, words):
    with pytest.raises(InvalidArgument, match=words):
        extended(claim(), **changes)


def test_words_of_several_lines_become_one():
    """A run's statement must not fail at its end because of a line end in somebody's words."""
    more = extended(
        claim(), releases="a\nb", tuning="first\n  second\x1b", assumptions=["c\td"],
        preprocessing=[("x\ny", None)],
    )  # fmt: skip
    assert more.releases[-1] == "a b"
    assert more.tuning == "first second?"
    assert more.assumptions[-1] == "c d"
    assert more.preprocessing[-1].what == "x y"
