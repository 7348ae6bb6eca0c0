"""The plan: one value, and sampler, clip, noise and event all follow from it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from typing import Any

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import (
    Composed,
    Event,
    Gaussian,
    PoissonSampled,
    Repeated,
    epsilon,
    to_json,
)
from tacit.accounting.normal_form import parts
from tacit.errors import InvalidArgument, Uncalibratable
from tacit.training.plan import Plan
from tacit.training.sampling import FullBatch, Poisson, Sampling, TruncatedPoisson
from tacit.training.styles import AdaptiveQuantile, Automatic, Flat, PerGroup, PerLayer, Style

_SMALL: dict[str, Any] = {
    "examples": 1_000,
    "lot_size": 50,
    "steps": 100,
    "noise_multiplier": 1.0,
    "clip": 1.0,
}
_BUDGET: dict[str, Any] = {
    "epsilon": 2.0,
    "delta": 1e-5,
    "examples": 60_000,
    "lot_size": 600,
    "epochs": 5,
    "clip": 1.0,
}


def _small(**changes: Any) -> Plan:
    return Plan(**(_SMALL | changes))


def _budget(**changes: Any) -> Plan:
    return Plan.for_budget(**(_BUDGET | changes))


_positive = st.floats(1e-3, 1e3)
_styles: st.SearchStrategy[Style] = st.one_of(
    st.just(Flat()),
    st.just(PerLayer()),
    st.dictionaries(st.text(max_size=5), _positive, min_size=1, max_size=4).map(PerGroup),
    st.builds(Automatic, _positive),
    st.builds(
        AdaptiveQuantile,
        quantile=st.floats(0.01, 0.99),
        learning_rate=_positive,
        count_noise=_positive,
    ),
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    examples = draw(st.integers(1, 10**7))
    full = draw(st.booleans())
    lot_size = examples if full else draw(st.floats(1e-3, 1.0)) * examples
    style = draw(_styles)
    unit = draw(st.sampled_from(["example", "user"]))
    ways: list[Sampling | None] = [None, Poisson(), TruncatedPoisson(int(lot_size) + 1)]
    return Plan(
        examples=examples,
        lot_size=lot_size,
        steps=draw(st.integers(1, 10**6)),
        noise_multiplier=draw(_positive),
        clip=None if isinstance(style, PerGroup) else draw(_positive),  # type: ignore[arg-type]
        adjacency=draw(st.sampled_from(["add-remove", "replace-one", "zero-out"])),
        unit=unit,  # type: ignore[arg-type]
        examples_per_user=draw(st.integers(1, 100)) if unit == "user" else None,
        views=draw(st.integers(1, 16)),
        clipping=style,
        sampling=draw(st.sampled_from(ways)),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("count", [40, pytest.param(100, marks=pytest.mark.slow)])
def test_json_gives_the_same_plan_back(count: int) -> None:
    settings(deadline=None, max_examples=count)(given(plans())(comes_back))()


def comes_back(plan: Plan) -> None:
    assert json.loads(plan.to_json()) == plan.as_dict()  # lists of bounds, too
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert hash(again) == hash(plan)
    assert again.event == plan.event
    assert again.to_json() == plan.to_json()


@settings(deadline=None)
@given(plans())
def test_everything_follows_from_the_plan(plan: Plan) -> None:
    assert plan.sample_rate == plan.lot_size / plan.examples
    assert plan.epochs == pytest.approx(plan.steps * plan.sample_rate)
    assert plan.sensitivity == plan.clip > 0
    assert plan.noise_scale == plan.noise_multiplier * plan.clip
    assert plan.event == plan.event_after(plan.steps)
    ((part, times),) = parts(replace(plan, clipping=Flat(), sampling=None).event)  # type: ignore[arg-type]
    assert times == plan.steps
    expected: Event = Gaussian(plan.noise_multiplier)
    if plan.sample_rate < 1:
        expected = PoissonSampled(plan.sample_rate, expected)
    assert part == expected
    assert plan.describe()


def test_the_examples_of_the_design() -> None:
    found = _budget(epochs=100, clip=4.0)
    assert found.steps == 10_000
    assert round(found.noise_multiplier, 7) == 2.1273754
    explicit = Plan(examples=60_000, lot_size=600, steps=10_000, noise_multiplier=4.0, clip=4.0)
    assert explicit.sample_rate == 0.01
    assert explicit.event == Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000)
    assert round(explicit.epsilon(delta=1e-5), 7) == 0.9468668
    assert explicit.epsilon(1e-5, accountant="moments") > explicit.epsilon(1e-5)


def test_a_plan_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        _small().noise_multiplier = 2.0  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        _small().other = 2.0  # type: ignore[attr-defined]


def test_sampling_follows_from_the_sizes() -> None:
    assert _small().sampling == Poisson()
    assert _small(lot_size=1_000).sampling == FullBatch()
    assert _small(lot_size=1_000).event == Repeated(Gaussian(1.0), 100)
    both = _small(lot_size=1_000), _small(lot_size=1_000, sampling=Poisson())
    assert both[0].epsilon(1e-5) == both[1].epsilon(1e-5)


def test_a_lot_size_may_be_any_number() -> None:
    assert _small(lot_size=50.0) == _small(lot_size=50)
    assert _small(lot_size=0.5).sample_rate == 0.0005
    assert json.loads(_small(lot_size=12.25).to_json())["lot_size"] == 12.25


def test_events_of_a_part_of_the_run() -> None:
    plan = _small()
    assert plan.event_after(0) == Composed()
    assert plan.event_after(7) == Repeated(PoissonSampled(0.05, Gaussian(1.0)), 7)
    for steps in (-1, 101, 1.5):
        with pytest.raises(InvalidArgument, match=f"steps .* got {steps}"):
            plan.event_after(steps)  # type: ignore[arg-type]


@pytest.mark.parametrize("style", [Flat(), PerLayer(), Automatic()])
def test_styles_bounded_by_the_clip_cost_the_same(style: Style) -> None:
    assert _small(clipping=style).event == _small().event


def test_groups_set_the_clip_and_with_it_the_noise() -> None:
    plan = _small(
        clip=None, clipping=PerGroup({"features": 3.0, "head": 4.0}), noise_multiplier=2.0
    )
    assert plan.clip == plan.sensitivity == 5.0
    assert plan.noise_scale == 10.0
    assert plan.event == _small(noise_multiplier=2.0).event
    assert replace(plan, noise_multiplier=1.0).clip == 5.0
    with pytest.raises(InvalidArgument, match=r"clip follows .* is 5 here, got 4.0"):
        replace(plan, clip=4.0)


# ---- the adaptive clip: its count is charged, at its whole sensitivity


def _adaptive(count_noise: float = 2.0, **changes: Any) -> Plan:
    return _small(clipping=AdaptiveQuantile(count_noise=count_noise), **changes)


@pytest.mark.parametrize("count_noise", [0.3, 1.0, 2.5, 30.0])
@pytest.mark.parametrize("sigma", [0.7, 1.0, 4.0])
def test_the_count_adds_its_precision(count_noise: float, sigma: float) -> None:
    """1/σ_eff² = 1/σ² + 1/(2σ_b)², in 30 digits (Andrew et al. 2021, Theorem 1)."""
    plan = _adaptive(count_noise, noise_multiplier=sigma)
    with mpmath.workdps(30):
        precision = 1 / mpmath.mpf(sigma) ** 2 + 1 / (2 * mpmath.mpf(count_noise)) ** 2
        effective = float(1 / mpmath.sqrt(precision))
    ((part, times),) = parts(plan.event)
    assert isinstance(part, PoissonSampled)
    assert isinstance(part.event, Gaussian)
    assert times == plan.steps
    assert part.rate == plan.sample_rate
    assert part.event.sigma == pytest.approx(effective, rel=1e-14)
    hand = Repeated(PoissonSampled(plan.sample_rate, Gaussian(effective)), plan.steps)
    assert plan.epsilon(1e-5) == pytest.approx(epsilon(hand, 1e-5), rel=1e-9)


def test_one_full_batch_step_is_the_gaussian_of_both_releases() -> None:
    """The record that moves the gradient by C and the count by ½ is told apart with μ = ‖both‖."""
    sigma, count_noise, delta = 3.0, 2.0, mpmath.mpf("1e-5")
    plan = _adaptive(count_noise, lot_size=1_000, steps=1, noise_multiplier=sigma)
    with mpmath.workdps(40):
        mu = mpmath.sqrt((1 / mpmath.mpf(sigma)) ** 2 + (mpmath.mpf("0.5") / count_noise) ** 2)

        def excess(eps: mpmath.mpf) -> mpmath.mpf:
            left = mpmath.ncdf(mu / 2 - eps / mu)
            return left - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu) - delta

        truth = float(mpmath.findroot(excess, (0.5, 4.0), solver="ridder"))
    assert plan.epsilon(1e-5) == pytest.approx(truth, rel=1e-9)
    assert plan.epsilon(1e-5) >= truth * (1 - 1e-12)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one", "zero-out"])
@pytest.mark.parametrize("lot_size", [50, 1_000])
def test_the_count_is_not_free_nor_at_half_its_price(adjacency: Any, lot_size: int) -> None:
    plan = _adaptive(0.4, adjacency=adjacency, lot_size=lot_size)
    ignored = _small(adjacency=adjacency, lot_size=lot_size).epsilon(1e-5)
    half = replace(plan, clipping=AdaptiveQuantile(count_noise=0.8)).epsilon(1e-5)  # ¼ for ½
    assert plan.epsilon(1e-5) > 1.1 * half > 1.1 * ignored


def test_a_budget_pays_for_the_count() -> None:
    style = AdaptiveQuantile(count_noise=30.0)
    plain, adaptive = _budget(), _budget(clipping=style)
    assert adaptive.epsilon(1e-5) <= 2.0
    precision = adaptive.noise_multiplier**-2 + 60.0**-2
    assert precision == pytest.approx(plain.noise_multiplier**-2, rel=1e-9)
    with pytest.raises(Uncalibratable, match=r"count .* by itself; raise clipping.count_noise"):
        _budget(clipping=AdaptiveQuantile(count_noise=0.1))


# ---- truncation


@pytest.mark.parametrize(
    "adjacency",
    [
        pytest.param("add-remove", marks=pytest.mark.slow),
        "replace-one",
        pytest.param("zero-out", marks=pytest.mark.slow),
    ],
)
def test_truncation_is_charged(adjacency: Any) -> None:
    def of(largest: int | None) -> float:
        sampling = Poisson() if largest is None else TruncatedPoisson(largest)
        plan = _budget(adjacency=adjacency)
        return replace(plan, sampling=sampling).epsilon(1e-5)

    costs = [of(largest) for largest in (765, 780, 800)]
    assert math.isfinite(costs[0])
    assert costs[0] > costs[1] > costs[2] >= of(None)
    assert costs[0] > of(None) * (1 + 1e-8)
    assert costs[0] < of(610) < math.inf


def test_truncation_counts_the_record_that_a_neighbour_may_have_more() -> None:
    for adjacency, population in (("add-remove", 1_001), ("replace-one", 1_000)):
        plan = _small(sampling=TruncatedPoisson(90), adjacency=adjacency)
        assert plan.event == Repeated(
            PoissonSampled(0.05, Gaussian(1.0), cap=90, population=population), 100
        )


def test_a_budget_that_truncation_eats_names_a_cap_that_works() -> None:
    with pytest.raises(Uncalibratable, match=r"raise sampling.largest to \d+ or more") as no:
        _budget(sampling=TruncatedPoisson(650), accountant="rdp")
    roomy = int(str(no.value).split("largest to ")[1].split()[0])
    assert 700 < roomy < 900
    assert _budget(sampling=TruncatedPoisson(roomy), accountant="rdp").epsilon(1e-5) <= 2.0


# ---- budgets


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"epsilon": 0.1},
        {"epsilon": 30.0},
        {"delta": 1e-12},
        {"epochs": None, "steps": 1},
        {"lot_size": 60_000},
        {"lot_size": 600.5},
        {"adjacency": "replace-one"},
        {"adjacency": "zero-out"},
        {"sampling": TruncatedPoisson(800)},
        pytest.param(
            {"sampling": TruncatedPoisson(760), "clipping": AdaptiveQuantile(count_noise=30.0)},
            marks=pytest.mark.slow,
        ),
        {"clip": None, "clipping": PerGroup({"a": 1.0, "b": 2.0})},
        {"unit": "user", "examples_per_user": 10},
        {"accountant": "rdp"},
    ],
)
def test_a_budget_is_kept_and_used_up(changes: dict[str, Any]) -> None:
    asked = _BUDGET | changes
    plan = Plan.for_budget(**asked)
    accountant = asked.get("accountant", "exact")
    assert plan.epsilon(asked["delta"], accountant) <= asked["epsilon"]
    less = replace(plan, noise_multiplier=0.999 * plan.noise_multiplier)
    assert less.epsilon(asked["delta"], accountant) > asked["epsilon"]


@settings(max_examples=15, deadline=None)
@given(st.floats(0.1, 8.0), st.floats(1e-9, 1e-4), st.integers(500, 5_000), st.integers(20, 1_000))
def test_every_budget_is_kept(target: float, delta: float, steps: int, lot_size: int) -> None:
    plan = Plan.for_budget(
        epsilon=target, delta=delta, examples=1_000, lot_size=lot_size, steps=steps, clip=1.0
    )
    assert plan.epsilon(delta) <= target


def test_epochs_are_rounded_up_to_steps() -> None:
    assert _budget(epochs=1, lot_size=256).steps == 235  # 234.375
    assert 2.49 * 1_200 / 9 > 332  # in floats
    assert _budget(epochs=2.49, examples=1_200, lot_size=9).steps == 332
    assert _budget(epochs=0.0099).steps == 1


def test_a_budget_that_any_noise_keeps_is_refused() -> None:
    with pytest.raises(
        Uncalibratable, match=r"delta=1e-05 must be below .* 1.67e-06: any noise would do"
    ):
        _budget(epochs=None, steps=1, lot_size=0.1, delta=1e-5)


@pytest.mark.parametrize("delta", [1 / 60_000, 1e-4, 0.5])
def test_a_delta_that_allows_to_publish_a_record_is_refused(delta: float) -> None:
    with pytest.raises(InvalidArgument, match=r"delta must be below 1/60000 .* 2e-06 or less"):
        _budget(delta=delta)


# ---- users, words, refusals


def test_users_are_counted_instead_of_examples() -> None:
    plan = _small(unit="user", examples_per_user=8)
    assert plan.event == _small().event
    assert "each user (of at most 8 examples)" in plan.describe()
    assert "one user is protected" in plan.describe()


def test_the_description_says_what_matters() -> None:
    text = Plan(
        examples=60_000, lot_size=600, steps=10_000, noise_multiplier=4.0, clip=4.0, views=3
    ).describe(delta=1e-5)
    for words in ("10,000 steps", "600 of 60,000 examples", "rate 0.01", "σ = 4", "deviation 16"):
        assert words in text
    for words in ("bounded by 4;", "3 views", "divided by 600", "add-remove"):
        assert words in text
    assert "bounded by 1 (Automatic(" in _small(clipping=Automatic()).describe()
    assert "(0.946867, 1e-5)-private" in text  # rounded up
    assert "all 1,000 examples" in _small(lot_size=1_000).describe()
    assert "cut to 90" in _small(sampling=TruncatedPoisson(90)).describe()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"examples": 0}, "examples must be a whole number, 1 or more, got 0"),
        ({"examples": 10.5}, "examples .* got 10.5"),
        ({"examples": True}, "examples .* got True"),
        ({"lot_size": 0}, "lot_size must be a positive finite number, got 0"),
        ({"lot_size": math.nan}, "lot_size .* got nan"),
        ({"lot_size": 1_001}, "lot_size must be at most examples = 1000, got 1001"),
        ({"steps": 0}, "steps .* got 0"),
        ({"steps": "9"}, "steps .* got '9'"),
        ({"noise_multiplier": 0}, "noise_multiplier must be a positive finite number, got 0"),
        ({"noise_multiplier": -1.0}, "noise_multiplier .* got -1.0"),
        ({"noise_multiplier": math.inf}, "noise_multiplier .* got inf"),
        ({"clip": None}, "clip must be a positive finite number, got None"),
        ({"clip": 0.0}, "clip .* got 0.0"),
        ({"clip": math.nan}, "clip .* got nan"),
        ({"adjacency": "swap"}, "adjacency must be one of .* got 'swap'"),
        ({"unit": "patient"}, "unit must be one of example, user, got 'patient'"),
        ({"unit": "user"}, "examples_per_user must be given with unit='user'"),
        ({"examples_per_user": 3}, "examples_per_user must be .* got 3 with unit='example'"),
        ({"unit": "user", "examples_per_user": 0}, "examples_per_user .* got 0"),
        ({"views": 0}, "views .* got 0"),
        ({"clipping": "flat"}, r"clipping must be a style such as Flat\(\), got 'flat'"),
        ({"clipping": Flat}, "clipping must be a style"),
        ({"sampling": "poisson"}, "sampling must be Poisson.* got 'poisson'"),
        ({"sampling": FullBatch()}, r"sampling=FullBatch\(\) needs lot_size = examples = 1000"),
        ({"sampling": TruncatedPoisson(50)}, "sampling.largest must be above lot_size = 50"),
        ({"noise": "loud"}, "noise must be one of fast, secure, exact, got 'loud'"),
        ({"clip": 1e-13}, "clip must lie between 1e-12 and 1e12, got 1e-13"),
        ({"clip": 1e13}, "clip must lie between 1e-12 and 1e12, got 10000000000000.0"),
    ],
)
def test_refusals_name_the_argument_and_its_value(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        _small(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 5}, "either epochs or steps, got epochs=5 and steps=5"),
        ({"epochs": None}, "either epochs or steps, got epochs=None and steps=None"),
        ({"epochs": 0}, "epochs .* got 0"),
        ({"epochs": 1e300}, "epochs .* got 1e[+]300"),
        ({"epochs": None, "steps": 0}, "steps .* got 0"),
        ({"epsilon": 0}, "epsilon .* got 0"),
        ({"delta": 0}, "delta .* got 0"),
        ({"delta": 1.0}, "delta .* got 1.0"),
        ({"lot_size": 60_001}, "lot_size must be at most examples"),
        ({"clip": None}, "clip .* got None"),
        ({"accountant": "gdp-clt"}, "accountant must prove a bound, got 'gdp-clt'"),
        ({"accountant": "magic"}, "accountant must be one of .* got 'magic'"),
        ({"noise": "loud"}, "noise must be one of fast, secure, exact, got 'loud'"),
    ],
)
def test_budgets_refuse_likewise(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        _budget(**changes)


def _with(**changes: Any) -> str:
    return json.dumps(_small().as_dict() | changes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not json", "text must be JSON"),
        ("[]", "a plan needs exactly the fields"),
        ("{}", "a plan needs exactly the fields"),
        (_with(extra=1), "a plan needs exactly the fields"),
        (_with(clipping={"kind": "Sharp"}), "clipping must be written as by to_json"),
        (_with(clipping={"kind": "Automatic"}), "clipping must be written as by to_json"),
        (_with(clipping={"kind": "Poisson"}), "clipping must be a style"),
        (_with(sampling={"kind": "Flat"}), "sampling must be Poisson"),
        (_with(steps=-1), "steps .* got -1"),
        (_with(noise_multiplier="4"), "noise_multiplier must be a number, got '4'"),
    ],
)
def test_bad_json_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Plan.from_json(text)


def test_the_event_is_readable_by_others() -> None:
    assert json.loads(to_json(_small().event))["times"] == 100


def test_a_plan_needs_no_torch() -> None:
    code = (
        "import sys; from tacit.training.plan import Plan; "
        "Plan(examples=9, lot_size=3, steps=5, noise_multiplier=2, clip=1).epsilon(1e-5); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- with what else is released of the same data


@pytest.mark.parametrize("also", [Gaussian(20.0), Composed(Gaussian(7.0), Gaussian(30.0))])
@pytest.mark.parametrize(
    "changed",
    [{}, {"lot_size": 60_000, "epochs": None, "steps": 20}, {"accountant": "rdp"},
     {"adjacency": "replace-one", "epsilon": 8.0},
     {"clipping": AdaptiveQuantile(count_noise=100.0)}],
)  # fmt: skip
def test_a_plan_leaves_room_for_what_else_is_released(also: Event, changed: dict[str, Any]) -> None:
    plan, alone = _budget(also=also, **changed), _budget(**changed)
    asked = _BUDGET | changed
    accountant = asked.get("accountant", "exact")
    both = epsilon(Composed(also, plan.event), 1e-5, accountant, plan.adjacency)
    assert asked["epsilon"] * (1 - 1e-6) < both <= asked["epsilon"]
    assert plan.noise_multiplier > alone.noise_multiplier
    assert replace(plan, noise_multiplier=1.0) == replace(alone, noise_multiplier=1.0)


def test_full_batches_share_a_budget_as_gaussians_do() -> None:
    # Gaussians compose by 1/σ² (Dong, Roth & Su 2022, Corollary 3.3), here and in the plan.
    alone = _budget(lot_size=60_000, epochs=None, steps=1)
    plan = _budget(lot_size=60_000, epochs=None, steps=1, also=Gaussian(5.0))
    total = plan.noise_multiplier**-2 + 5.0**-2
    assert total == pytest.approx(alone.noise_multiplier**-2, rel=1e-8)


@pytest.mark.parametrize("also", [Gaussian(1.0), Composed(Gaussian(2.0), Gaussian(2.0))])
def test_what_leaves_nothing_of_the_budget_is_refused(also: Event) -> None:
    with pytest.raises(Uncalibratable, match="also must leave something of epsilon=2"):
        _budget(also=also)


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        _budget(also=3.0)


def test_a_plan_made_for_a_budget_knows_its_epsilon_and_delta() -> None:
    given = {"examples": 300, "lot_size": 30, "steps": 10, "clip": 1.0}
    plan = Plan.for_budget(epsilon=2.0, delta=1e-5, **given)
    assert plan.made_for == (2.0, 1e-5)
    assert plan.delta_or(None) == 1e-5
    assert plan.delta_or(1e-6) == 1e-6
    # It says nothing of what is released: the same plan without it is the same plan.
    explicit = Plan(noise_multiplier=plan.noise_multiplier, **given)
    assert explicit == plan
    assert hash(explicit) == hash(plan)
    assert explicit.as_dict() == plan.as_dict()
    assert Plan.from_json(plan.to_json()) == plan
    with pytest.raises(InvalidArgument, match="delta must be given"):
        explicit.delta_or(None)
