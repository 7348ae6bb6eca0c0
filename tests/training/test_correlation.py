"""A plan with correlated noise: its event, words and JSON, what it refuses and what it chooses."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.accounting import Composed, Gaussian, PoissonSampled, Repeated, epsilon
from tacit.accounting.serialization import as_dict, from_dict
from tacit.auditing.replay.checks.correlated import strategy_of
from tacit.errors import InvalidArgument
from tacit.statement.proof import planned_event
from tacit.training import AdaptiveQuantile, Cyclic, FullBatch, Poisson, TruncatedPoisson
from tacit.training.correlation import Correlation, course
from tacit.training.noise import mixing_of

KINDS: dict[str, Correlation] = {
    "banded": tacit.Banded(4),
    "inverse": tacit.InverseBanded(3),
    "buffered": tacit.Buffered(2, scales=(-0.06, -0.2), decays=(0.9, 0.4)),
    "anticorrelated": tacit.Anticorrelated(0.7),
    "with momentum": tacit.Banded(4, momentum=0.9, schedule="linear"),
}


def plan(correlation: Correlation | None, **changed: Any) -> tacit.Plan:
    given: dict[str, Any] = {
        "examples": 100, "lot_size": 10, "steps": 23, "noise_multiplier": 2.0, "clip": 1.5,
        "correlation": correlation,
    }  # fmt: skip
    return tacit.Plan(**given | changed)


def test_a_banded_plan_is_as_private_as_turns_of_its_groups() -> None:
    made = plan(tacit.Banded(4))
    turn = PoissonSampled(0.4, Gaussian(2.0))
    assert made.groups == 4
    assert made.event == Composed(Repeated(turn, 6))  # 23 steps: some groups have six turns
    assert made.event_after(4) == Composed(Repeated(turn, 1))
    assert made.event_after(5) == Composed(Repeated(turn, 2))
    assert made.event_after(0) == Composed()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("sampling", [Cyclic(), FullBatch()])
def test_without_coins_the_whole_run_is_one_gaussian_release(name: str, sampling: Any) -> None:
    """Its σ is that of the largest participation in the dense strategy, and not above."""
    size = 10 if isinstance(sampling, Cyclic) else 100
    made = plan(KINDS[name], sampling=sampling, lot_size=size)
    matrix = strategy_of(made)
    groups = 10 if isinstance(sampling, Cyclic) else 1
    moved = [np.linalg.norm(matrix[:, start::groups].sum(1)) for start in range(groups)]
    exact = 2.0 / max(moved)
    assert isinstance(made.event, Gaussian)
    assert exact * (1.0 - 1e-9) < made.event.sigma <= exact
    assert made.event_after(1) == made.event  # charged from the start
    assert np.linalg.norm(matrix, axis=0).max() <= 1.0 + 1e-12


@pytest.mark.parametrize("name", KINDS)
def test_a_plan_is_read_again_to_the_bit(name: str) -> None:
    made = plan(KINDS[name])
    again = tacit.Plan.from_json(made.to_json())
    assert again == made
    assert again.to_json() == made.to_json()
    assert mixing_of(again) == mixing_of(made)
    assert again.correlation is not None
    assert replace(again, noise_multiplier=3.0).correlation == again.correlation


@pytest.mark.parametrize("name", KINDS)
def test_a_plan_is_taken_up_where_its_digits_are_others(name: str) -> None:
    made = plan(KINDS[name])

    def moved(by: float) -> tacit.Plan:
        plain = made.as_dict()
        own = plain["correlation"]
        part = next(one for one in ("coefficients", "decays", "share") if own.get(one))
        own[part] = own[part] - by if part == "share" else [*own[part][:-1], own[part][-1] - by]
        return tacit.Plan.from_dict(plain)

    assert moved(1e-11) != made
    assert made.taken_up(moved(1e-11)) == moved(1e-11)
    assert made.taken_up(replace(moved(1e-11), noise_multiplier=2.0 + 1e-11)) is not None
    for other in (moved(1e-3), replace(made, noise_multiplier=2.001), replace(made, clip=1.0)):
        assert made.taken_up(other) is None
    assert plan(None).taken_up(plan(None)) == plan(None)
    assert made.taken_up(plan(None)) is None
    assert plan(None).taken_up(made) is None


def test_a_plan_with_independent_noise_is_written_as_before() -> None:
    assert "correlation" not in plan(None).as_dict()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("sampling", [None, Cyclic()])
@pytest.mark.parametrize("noise", ["fast", "secure", "exact"])
def test_a_statement_derives_the_same_event(name: str, sampling: Any, noise: Any) -> None:
    made = plan(KINDS[name], sampling=sampling, noise=noise)
    planned = planned_event(json.loads(made.to_json()))
    assert planned.covered(made.event) >= made.steps
    assert planned.covered(made.event_after(5)) >= 5
    less = replace(made, noise_multiplier=1.99)
    assert planned.covered(replace(made, noise_multiplier=2.01).event) == 0
    if isinstance(made.event, Gaussian):
        assert planned.covered(less.event) >= made.steps  # less noise releases more
        assert planned.covered(Gaussian(made.event.sigma * 1.001)) == 0
    else:
        assert planned.covered(Composed(Repeated(PoissonSampled(0.4, Gaussian(2.0)), 5))) < 23


def test_a_plan_for_another_number_of_groups_does_not_cover_the_event() -> None:
    event = as_dict(plan(tacit.Banded(4)).event)
    other = planned_event(plan(tacit.Banded(5)).as_dict())
    assert other.covered(from_dict(event)) == 0


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"correlation": tacit.Banded(11)}, "at most 10"),
        ({"correlation": tacit.Banded(8), "steps": 7}, "at most 7"),
        ({"correlation": tacit.Banded()}, "for_budget"),
        ({"correlation": "banded"}, "tacit.Banded"),
        ({"correlation": tacit.Buffered(), "sampling": Poisson()}, "Cyclic"),
        (
            {"correlation": tacit.Banded(4), "clipping": AdaptiveQuantile(count_noise=3.0)},
            "AdaptiveQuantile",
        ),
        ({"correlation": tacit.Banded(4), "sampling": TruncatedPoisson(40)}, "TruncatedPoisson"),
        ({"correlation": tacit.Banded(4), "sampling": "allocation"}, "Allocation"),
        ({"correlation": tacit.Buffered(), "sampling": "allocation"}, "Allocation"),
        ({"correlation": None, "sampling": Cyclic()}, "correlated"),
    ],
)
def test_what_no_theorem_covers_is_refused(changed: dict[str, Any], words: str) -> None:
    correlation = changed.pop("correlation")
    with pytest.raises(InvalidArgument, match=words):
        plan(correlation, **changed)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tacit.Banded(1), "bands"),
        (lambda: tacit.Banded(2000), "bands"),
        (lambda: tacit.Banded("many"), "bands"),  # type: ignore[arg-type]
        (lambda: tacit.Banded(2, coefficients=(1.0, 0.5, 0.2)), "2 finite numbers"),
        (lambda: tacit.Banded(2, coefficients=(2.0, 0.5)), "begin with 1"),
        (lambda: tacit.Banded(2, momentum=1.0), "momentum"),
        (lambda: tacit.Banded(2, schedule="steps"), "schedule"),  # type: ignore[arg-type]
        (lambda: tacit.InverseBanded(2, coefficients=(1.0, 0.5)), "none above 0"),
        (lambda: tacit.Buffered(11), "buffers"),
        (lambda: tacit.Buffered(2, scales=(-0.1,)), "together"),
        (lambda: tacit.Buffered(1, scales=(0.1,), decays=(0.5,)), "at most 0"),
        (lambda: tacit.Buffered(1, scales=(-0.1,), decays=(1.0,)), "between 0 and 1"),
        (lambda: tacit.Anticorrelated(1.0), "share"),
        (lambda: tacit.InverseBanded(2, coefficients=(1.0, math.nan)), "finite"),
    ],
)
def test_wrong_values_are_refused(make: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        make()


def test_coefficients_say_how_many_bands_there_are() -> None:
    own = tacit.Banded(coefficients=(1.0, 0.5, 0.2))
    assert own.bands == 3
    assert budgeted(correlation=own).correlation == own


@pytest.mark.parametrize(
    "grows",
    [
        tacit.InverseBanded(2, coefficients=(1.0, -1.1)),
        tacit.Buffered(1, scales=(-0.3,), decays=(0.9,)),
        tacit.Banded(2, coefficients=(1.0, 1.5)),
        tacit.Banded(3, coefficients=(1.0, 2.0, 1.0)),
    ],
)
def test_a_strategy_that_grows_is_refused(grows: Correlation) -> None:
    """Its noise would be huge, and hide a little number by cancelling: floats do not hold that."""
    with pytest.raises(InvalidArgument, match=r"do(es)? not grow"):
        plan(grows, steps=400)
    plain = plan(tacit.Anticorrelated(0.5), steps=400).as_dict()
    plain["correlation"] = {"kind": "Anticorrelated", "share": 1.1, "momentum": 0.0,
                            "schedule": "constant"}  # fmt: skip
    with pytest.raises(InvalidArgument, match="do not grow"):
        planned_event(plain)


# ---- for a budget


def budgeted(**changed: Any) -> tacit.Plan:
    given: dict[str, Any] = {
        "epsilon": 8.0, "delta": 1e-5, "examples": 20_000, "lot_size": 200, "steps": 200,
        "clip": 1.0,
    }  # fmt: skip
    return tacit.Plan.for_budget(**given | changed)


@pytest.mark.parametrize("name", KINDS)
def test_a_plan_keeps_within_its_budget(name: str) -> None:
    made = budgeted(correlation=KINDS[name])
    assert 0.999 * 8.0 < made.epsilon(1e-5) <= 8.0
    assert epsilon(made.event, 1e-5) == made.epsilon(1e-5)


def test_bands_are_chosen_where_they_help() -> None:
    made = budgeted(correlation=tacit.Banded())
    assert isinstance(made.correlation, tacit.Banded)
    errors = dict(made.tried)
    chosen = made.correlation.bands
    assert errors[chosen] == min(errors.values()) < 0.7  # type: ignore[index]
    assert made.epsilon(1e-5) <= 8.0
    assert f"{chosen}: {errors[chosen]:.3g}" in made.describe()  # type: ignore[index]
    independent = budgeted()
    by_hand = made.noise_multiplier * math.sqrt(course(made.correlation, 200, made.groups).error())
    alone = independent.noise_multiplier * math.sqrt(201 / 2)
    assert by_hand / alone == pytest.approx(errors[chosen], rel=1e-9)  # type: ignore[index]


def test_independent_noise_is_chosen_where_it_is_best() -> None:
    made = budgeted(correlation=tacit.Banded(), epsilon=0.5, lot_size=4000)
    assert made.correlation is None
    assert min(error for _, error in made.tried) >= 1.0
    assert "Independent noise is best here" in made.describe()
    assert made == budgeted(epsilon=0.5, lot_size=4000)


def test_nothing_else_is_tried_where_lots_are_too_large() -> None:
    made = budgeted(correlation=tacit.Banded(), lot_size=15_000)
    assert made.correlation is None
    assert made.tried == ((1, 1.0),)
    assert "Correlated noise was not tried" in made.describe()
    assert "is best here" not in made.describe()
    with pytest.raises(InvalidArgument, match="a number with sampling"):
        budgeted(correlation=tacit.Banded(), sampling=Cyclic())


@pytest.mark.parametrize("name", KINDS)
def test_a_single_step_has_more_noise_than_stays(name: str) -> None:
    made = plan(KINDS[name])
    assert made.correlation is not None
    rows = np.linalg.norm(np.linalg.inv(strategy_of(made)), axis=1)
    found = course(made.correlation, made.steps, made.groups).step_noise()
    assert found == pytest.approx(np.sqrt(np.square(rows).mean()), rel=1e-9)
    assert f"has {found:.3g} times as much" in made.describe()


def test_the_plan_in_words() -> None:
    said = plan(tacit.Banded(4, momentum=0.9)).describe(1e-3)
    assert "one of 4 groups" in said
    assert "a strategy of 4 bands" in said
    assert "momentum 0.9" in said
    assert "whole and in turn" in plan(KINDS["buffered"]).describe()


def test_a_statement_of_both_allocation_and_correlation_proves_nothing() -> None:
    forged = plan(tacit.Banded(4)).as_dict() | {"sampling": {"kind": "Allocation"}}
    with pytest.raises(InvalidArgument):
        tacit.Plan.from_json(json.dumps(forged))
