"""Settings and ε: one follows from the other, and never both are given."""

from __future__ import annotations

import math
from typing import get_args

import pytest

from tacit.accounting import epsilon
from tacit.accounting.events import Adjacency
from tacit.errors import InvalidArgument
from tacit.recipes.transferring.method import (
    METHODS,
    calibrated,
    check_dataset,
    chosen,
    cost,
    find,
    named,
    title,
)
from tacit.recipes.transferring.splits import DATASETS

DELTA = 1e-5


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dataset", DATASETS)
def test_defaults_cost_what_is_said_of_them(method: str, dataset: str) -> None:
    way = find(method)
    settings, limit = chosen(way, dataset, {}, epsilon=None, delta=DELTA)
    assert cost(settings, DELTA, "add-remove") <= limit * (1.0 + 1e-9)
    own = way.epsilons.get(dataset)
    assert own is None or limit == own


@pytest.mark.parametrize(
    "adjacency",
    [
        *sorted({*get_args(Adjacency)} - {"zero-out"}),
        pytest.param("zero-out", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("pate", {}), ("pate", {"data_dependent": "true"}), ("pate", {"aggregator": "gaussian"}),
        pytest.param("pate", {"aggregator": "laplace"}, marks=pytest.mark.slow),
        ("pate", {"aggregator": "interactive"}),
        ("pate", {"aggregator": "sparse-vector"}), ("pate", {"asked": "active"}), ("knn", {}),
        ("knn", {"screened": "false"}), ("knn", {"samples": "two"}), ("rknn", {}),
        ("rknn", {"noise": "gaussian"}), ("rknn", {"k": "3"}), ("rknn", {"rounds": "2"}),
    ],
)  # fmt: skip
def test_the_noise_is_found_for_an_epsilon_and_no_more_of_it(
    method: str, given: dict[str, str], adjacency: Adjacency
) -> None:
    way = find(method)
    settings, limit = chosen(way, "digits", given, epsilon=2.0, delta=DELTA, adjacency=adjacency)
    assert limit == 2.0
    spent = epsilon(settings.event(adjacency), DELTA, adjacency=adjacency)
    assert 2.0 * (1.0 - 1e-3) < spent <= 2.0 * (1.0 + 1e-9)


@pytest.mark.parametrize(
    ("noise", "name", "factor"), [("laplace", "scale", 2.0), ("gaussian", "sigma", math.sqrt(2.0))]
)
def test_a_replaced_record_moves_twice_the_counts(noise: str, name: str, factor: float) -> None:
    """2k counts by 1 instead of k: twice as far in L1, √2 times in L2."""
    way = find("rknn")
    added, replaced = (
        getattr(
            chosen(way, "digits", {"noise": noise, "k": "3"}, epsilon=1.0, delta=DELTA,
                   adjacency=adjacency)[0],
            name,
        )
        for adjacency in ("add-remove", "replace-one")
    )  # fmt: skip
    assert replaced == pytest.approx(factor * added, rel=1e-3)


def test_a_noise_that_was_given_costs_what_the_adjacency_says() -> None:
    given = {"noise": "laplace", "scale": "4"}
    for adjacency, spent in (("add-remove", 0.25), ("replace-one", 0.5), ("zero-out", 0.25)):
        settings, limit = chosen(
            find("rknn"), "digits", given, epsilon=None, delta=1e-12, adjacency=adjacency
        )
        assert settings.scale == 4.0
        assert limit == pytest.approx(spent, rel=1e-6)


def test_all_noises_change_by_one_factor() -> None:
    before = find("pate").defaults["mnist"]
    after = calibrated(before, 1.0, DELTA)
    assert after.sigma / before.sigma == pytest.approx(
        after.screening_sigma / before.screening_sigma
    )
    assert after.threshold == before.threshold


def test_the_noise_of_gaussian_votes_is_that_of_gdp() -> None:
    way = find("pate")
    given = {"aggregator": "gaussian", "queries": "100", "answers": "100"}
    settings, _ = chosen(way, "digits", given, epsilon=1.0, delta=DELTA)
    mu = math.sqrt(2.0 * 100) / settings.sigma  # μ² = 2·queries/σ²

    def normal(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2.0))

    delta = normal(mu / 2.0 - 1.0 / mu) - math.e * normal(-mu / 2.0 - 1.0 / mu)
    assert delta == pytest.approx(DELTA, rel=1e-6)


def test_a_noise_that_was_given_decides_over_the_own_epsilon() -> None:
    way = find("knn")
    settings, limit = chosen(way, "digits", {"sigma": "9.0"}, epsilon=None, delta=DELTA)
    assert settings.sigma == 9.0
    assert limit == pytest.approx(epsilon(settings.event("add-remove"), DELTA))


def test_an_epsilon_and_a_noise_contradict_each_other() -> None:
    with pytest.raises(InvalidArgument, match=r"epsilon=1 and sigma=3 contradict"):
        chosen(find("pate"), "digits", {"sigma": "3"}, epsilon=1.0, delta=DELTA)


@pytest.mark.parametrize(
    ("method", "given", "others"),
    [
        ("pate", {"scale": "3"}, "aggregator=gaussian"),
        ("pate", {"threshold": "30"}, "aggregator=gaussian"),
        ("pate", {"screening_sigma": "3"}, "aggregator=gaussian"),
        ("pate", {"aggregator": "laplace", "sigma": "3"}, "aggregator=laplace"),
        ("pate", {"aggregator": "confident", "scale": "3"}, "aggregator=confident"),
        ("pate", {"holds": "labels"}, "no votes"),
        ("pate", {"votes": "v.npy", "teachers": "60"}, "votes made elsewhere"),
        ("pate", {"smoothness": "0.1"}, "data_dependent=false"),
        ("pate", {"rounds": "2"}, "asked=first"),
        ("pate", {"confidence": "0.8"}, "aggregator=gaussian"),
        ("pate", {"aggregator": "interactive", "cutoff": "2"}, "aggregator=interactive"),
        ("pate", {"aggregator": "sparse-vector", "threshold": "9"}, "aggregator=sparse-vector"),
        ("pate", {"aggregator": "sparse-vector", "answers": "9"}, "aggregator=sparse-vector"),
        ("pate", {"votes": "v.npy", "asked": "active", "lr": "1"}, "votes made elsewhere"),
        ("knn", {"screened": "false", "threshold": "20"}, "screened=false"),
        ("rknn", {"sigma": "3"}, "noise=laplace"),
        ("rknn", {"noise": "gaussian", "scale": "3"}, "noise=gaussian"),
    ],
)
def test_a_setting_that_would_have_no_effect_is_refused(
    method: str, given: dict[str, str], others: str
) -> None:
    """Whoever gives a threshold believes that queries are screened."""
    with pytest.raises(InvalidArgument, match=f"has no effect with {others}; leave it out"):
        chosen(find(method), "digits", given, epsilon=None, delta=DELTA)


def test_settings_that_promise_nothing_at_delta_are_refused() -> None:
    stable = {"aggregator": "sparse-vector", "failure": "1e-3"}
    for goal in (None, 8.0):
        with pytest.raises(InvalidArgument, match=r"delta must be above the 0\.001 of it"):
            chosen(find("pate"), "digits", stable, epsilon=goal, delta=DELTA)


def test_names_lead_to_methods_and_back() -> None:
    assert named(title("rknn", "svhn")) == ("rknn", "svhn")
    for wrong in ("digits", "mnist-scatter", "pate-adult", "pate"):
        with pytest.raises(InvalidArgument, match="is no transfer"):
            named(wrong)
    with pytest.raises(InvalidArgument, match="did you mean 'pate'"):
        find("pat")
    with pytest.raises(InvalidArgument, match="there is no dataset"):
        check_dataset("adult")
