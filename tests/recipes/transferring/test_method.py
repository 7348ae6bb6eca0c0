"""Settings and ε: one follows from the other, and never both are given."""

from __future__ import annotations

import math

import pytest

from tacit.accounting import epsilon
from tacit.errors import InvalidArgument
from tacit.recipes.transferring.catalogue import METHODS, check_dataset, find, named, title
from tacit.recipes.transferring.method import calibrated, chosen
from tacit.recipes.transferring.splits import DATASETS

DELTA = 1e-5


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dataset", DATASETS)
def test_defaults_cost_what_is_said_of_them(method: str, dataset: str) -> None:
    way = find(method)
    settings, limit = chosen(way, dataset, {}, epsilon=None, delta=DELTA)
    assert epsilon(way.event(settings), DELTA) <= limit * (1.0 + 1e-9)
    own = way.epsilon(dataset)
    assert own is None or limit == own


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("pate", {}), ("pate", {"told": "true"}), ("pate", {"aggregator": "gaussian"}),
        ("pate", {"aggregator": "laplace"}), ("knn", {}), ("knn", {"screened": "false"}),
        ("knn", {"samples": "two"}), ("rknn", {}), ("rknn", {"noise": "gaussian"}),
        ("rknn", {"k": "3"}), ("rknn", {"rounds": "2"}),
    ],
)  # fmt: skip
def test_the_noise_is_found_for_an_epsilon_and_no_more_of_it(
    method: str, given: dict[str, str]
) -> None:
    way = find(method)
    settings, limit = chosen(way, "digits", given, epsilon=2.0, delta=DELTA)
    assert limit == 2.0
    assert 2.0 * (1.0 - 1e-3) < epsilon(way.event(settings), DELTA) <= 2.0 * (1.0 + 1e-9)


def test_all_noises_change_by_one_factor() -> None:
    way = find("pate")
    before = way.settings("mnist")
    after = calibrated(way, before, 1.0, DELTA)
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
    assert limit == pytest.approx(epsilon(way.event(settings), DELTA))


def test_an_epsilon_and_a_noise_contradict_each_other() -> None:
    with pytest.raises(InvalidArgument, match=r"epsilon=1 and sigma=3 contradict"):
        chosen(find("pate"), "digits", {"sigma": "3"}, epsilon=1.0, delta=DELTA)
    # of another aggregator: it is no noise of this run
    chosen(find("pate"), "digits", {"scale": "3"}, epsilon=1.0, delta=DELTA)


def test_names_lead_to_methods_and_back() -> None:
    assert named(title("rknn", "svhn")) == ("rknn", "svhn")
    for wrong in ("digits", "mnist-scatter", "pate-adult", "pate"):
        with pytest.raises(InvalidArgument, match="is no transfer"):
            named(wrong)
    with pytest.raises(InvalidArgument, match="did you mean 'pate'"):
        find("pat")
    with pytest.raises(InvalidArgument, match="there is no dataset"):
        check_dataset("adult")
