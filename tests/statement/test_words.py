"""The words of a statement: complete, and every bound rounded to its safe side."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from tacit.accounting import (
    ApproxDp,
    Composed,
    Event,
    Exponential,
    Gaussian,
    Laplace,
    PoissonRuns,
    PoissonSampled,
    PrivateSelection,
    Repeated,
    SampledWithoutReplacement,
    SampledWithReplacement,
    epsilon,
)
from tacit.accounting.serialization import as_dict
from tacit.statement import Statement, extended
from tacit.statement.words import assumed_sampling, mechanism, utility


def claim(event: Event, **changes: Any) -> Statement:
    told: dict[str, Any] = {
        "epsilon": epsilon(event, 1e-5),
        "delta": 1e-5,
        "event": as_dict(event),
        "sampling": "none",
        "noise": "fast",
        "tacit_version": "0.1.0",
    }
    return Statement(**(told | changes))


def test_a_void_statement_promises_nothing():
    text = claim(Gaussian(4.0), void=True).describe()
    assert text.startswith("This release has no guarantee: a fixed seed was used")
    assert "Claimed: nothing is promised at δ = 1e-5" in text
    for words in ("is (ε, δ)-differentially private", "Certified", "GDP", "No attack", "Proved"):
        assert words not in text


def test_every_part_is_told():
    whole = extended(
        claim(Gaussian(4.0), threat_model="everyone", randomness="dice", ledger="entry 3"),
        releases=["the mean"],
        preprocessing=[("a count", Gaussian(9.0)), ("scaled", None)],
        tuning="by hand",
        versions={"numpy": "2.4"},
        configuration="0" * 64,
        assumptions=["dry paper"],
        not_promised=["the moon"],
    )
    text = whole.describe()
    for words in (
        "Who sees what: everyone.", "Randomness and floating point: dice.", "entry 3",
        "Released: the mean.", "Preprocessing, covered: a count (Gaussian noise of σ = 9",
        "costs nothing: scaled.", "Tuning: by hand.", "numpy 2.4", "0" * 64,
        "It assumes: dry paper", "It does not promise: the moon", "Neighbours: ", "μ-GDP with μ = ",
        "Certified: at δ = 1e-5 the event's ε lies between", "ε = 1.02268", "at δ = 1e-10",
        "false alarm for 1 % of those who were not", "false alarm for 0.1 % of", "(e^ε)",
    ):  # fmt: skip
        assert words in text, words


def test_what_is_not_stated_is_said_to_be_missing():
    text = claim(Gaussian(4.0)).describe()
    assert "Preprocessing: none is stated" in text
    assert "if the same data helped to choose the hyper-parameters, that is not covered" in text


def test_the_wrong_reading_of_delta_is_nowhere():
    text = claim(Gaussian(4.0)).describe()
    assert "with probability 1" not in text
    assert "plus δ = 1e-5" in text


@pytest.mark.parametrize("sigma", [0.7, 1.3, 4.0, 40.0])
def test_numbers_keep_to_their_side(sigma):
    told = claim(Gaussian(sigma))
    figures, text = told.figures(), told.describe()
    (mu,) = re.findall(r"with μ = ([\d.]+) for", text)
    assert figures.mu <= float(mu) <= figures.mu * 1.00001
    low, high = re.search(r"lies between ([\d.]+) and ([\d.]+) \(", text).groups()
    assert float(low) <= figures.lower <= figures.upper <= float(high)
    found = [float(one) / 100 for one in re.findall(r"finds more than ([\d.]+) %", text)]
    for told_rate, (_, exact) in zip(found, figures.attack, strict=True):
        assert exact <= told_rate <= exact * 1.01
    for loss, (_, exact) in zip(re.findall(r"ε = ([\d.]+) at δ", text), figures.curve, strict=True):
        assert exact <= float(loss) <= exact * 1.00001


def test_utility_holds_for_the_worst_mechanism():
    """Of all (ε, δ)-private releases this one is the worst (Kairouz, Oh & Viswanath 2015)."""
    loss, delta = 1.0, 0.01
    inside = [delta, (1 - delta) * math.e / (1 + math.e), (1 - delta) / (1 + math.e), 0.0]
    outside = inside[::-1]
    told = utility(claim(ApproxDp(loss, delta), delta=delta, epsilon=loss))
    most = float(re.search(r"at most ([\d.]+) \(e\^ε\)", told)[1])
    least = float(re.search(r"at least ([\d.]+) \(e\^-ε\)", told)[1])
    for score in range(16):
        liked = [bool(score >> place & 1) for place in range(4)]
        with_, without = (
            math.fsum(chance for chance, good in zip(law, liked, strict=True) if good)
            for law in (inside, outside)
        )
        assert with_ <= most * without + delta + 1e-12
        assert with_ >= least * (without - delta) - 1e-12
    # Without its δ the bound would be false: some release has what the other never does.
    assert inside[0] > most * outside[0]


@pytest.mark.parametrize(
    ("adjacency", "words"),
    [
        ("add-remove", "had it not been there"),
        ("replace-one", "had another been in its place"),
        ("zero-out", "had it counted for nothing"),
    ],
)
def test_utility_names_the_neighbour(adjacency, words):
    event = Gaussian(4.0)
    told = claim(event, adjacency=adjacency, epsilon=epsilon(event, 1e-5, adjacency=adjacency))
    assert words in utility(told)


def test_without_a_guarantee_nothing_is_bounded():
    told = claim(ApproxDp(1.0, 0.5), epsilon=math.inf)
    assert utility(told) == "Nothing bounds what the release may do to anyone."
    assert "infinite at δ" in told.describe()


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Gaussian(4.0), "Gaussian noise of σ = 4 times one record's largest part"),
        (Gaussian(4.0, 1.0), "(replacing one moves 1 times that)"),
        (Repeated(Laplace(2.0), 3), "3 times (Laplace with scale = 2, replace_distance = 2)"),
        (
            PoissonSampled(0.1, Gaussian(1.0), cap=20, population=99),
            "cut down to 20 records: Gauss",
        ),
        (Composed(), "nothing is released"),
        (Composed(Exponential(0.5), Gaussian(1.0)), "Exponential with epsilon = 0.5; and Gaussian"),
        (PrivateSelection(Gaussian(4.0), PoissonRuns(10)), "runs = PoissonRuns with mean = 10"),
    ],
)
def test_a_mechanism_has_every_number(event, words):
    assert words in mechanism(as_dict(event))


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Gaussian(1.0), "none: every record takes part in every release"),
        (
            Repeated(PoissonSampled(0.1, Gaussian(1.0)), 9),
            "Poisson: each record .* probability 0.1",
        ),
        (PoissonSampled(0.1, Gaussian(1.0), cap=20, population=99), "above 20 is cut"),
        (SampledWithoutReplacement(99, 9, Gaussian(1.0)), "9 different draws from 99 records"),
        (SampledWithReplacement(99, 9, Gaussian(1.0)), "9 independent draws from 99 records"),
        # A run of a search that was allowed this much may keep to it by Poisson samples.
        (PrivateSelection(ApproxDp(1.0, 1e-6), PoissonRuns(2)), "^what ApproxDp rests on, which"),
    ],
)
def test_the_sampling_that_is_assumed_is_the_events(event, words):
    assert re.search(words, assumed_sampling(as_dict(event)))


def test_two_ways_of_sampling_are_both_told():
    both = Composed(PoissonSampled(0.1, Gaussian(1.0)), PoissonSampled(0.2, Gaussian(1.0)))
    assert assumed_sampling(as_dict(both)).count("Poisson") == 2
