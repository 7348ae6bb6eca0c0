"""Statements as a forger writes them: none is accepted, none ends in a traceback or a hang."""

from __future__ import annotations

import json
import time
from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tacit.accounting import (
    Composed,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    PoissonSampled,
    PureDp,
    Repeated,
    epsilon,
)
from tacit.accounting.serialization import as_dict, from_dict
from tacit.errors import InvalidArgument, TacitError
from tacit.statement import Statement, extended
from tacit.statement.proof import planned_event
from tacit.training.plan import Plan
from tacit.training.sampling import FullBatch, Poisson, TruncatedPoisson
from tacit.training.styles import AdaptiveQuantile, Automatic, Flat, PerGroup, PerLayer

if TYPE_CHECKING:
    from collections.abc import Callable

    Plain = dict[str, Any]

PLAN = Plan(examples=1000, lot_size=100, steps=50, noise_multiplier=2.0, clip=1.0)
SECONDS = 10.0
DELETED = object()


def claimed(epsilon_of: float, **changes: Any) -> Statement:
    told: dict[str, Any] = {
        "epsilon": epsilon_of,
        "delta": 1e-5,
        "event": as_dict(PLAN.event),
        "plan": PLAN.as_dict(),
        "steps_planned": 50,
        "steps_taken": 50,
        "sampling": "Poisson",
        "noise": "fast",
        "assumptions": ("rows are independent",),
        "tacit_version": "0.1.0",
    }
    return Statement(**(told | changes))


@cache
def written() -> str:
    """An honest statement, with one of everything."""
    honest = extended(
        claimed(PLAN.epsilon(1e-5)),
        preprocessing=[("divided by 255", None), ("a noisy mean", Gaussian(30.0))],
        versions={"numpy": "2"},
        configuration="0" * 64,
        files={"model.safetensors": "a" * 64},
        tuning="on other data",
    )
    return honest.to_json()


def honest() -> Plain:
    plain: Plain = json.loads(written())
    return plain


def put(path: str, value: Any) -> Callable[[Plain], None]:
    """Puts ``value`` at a dotted path."""

    def change(plain: Plain) -> None:
        *parents, last = path.split(".")
        place: Any = plain
        for name in parents:
            place = place[int(name)] if isinstance(place, list) else place[name]
        if value is DELETED:
            del place[last]
        elif isinstance(place, list):
            place[int(last)] = value
        else:
            place[last] = value

    return change


def with_event(event: Any, **fields: Any) -> Callable[[Plain], None]:
    """The forger's favourite: another event, with the ε and without the figures of that."""

    def change(plain: Plain) -> None:
        before = [one["event"] for one in plain["preprocessing"] if one["event"]]
        whole = Composed(*map(from_dict, before), event)
        spent = epsilon(whole, plain["delta"], adjacency=plain["adjacency"])
        plain |= {"event": as_dict(whole), "epsilon": spent, "figures": None} | fields

    return change


def several(*changes: Callable[[Plain], None]) -> Callable[[Plain], None]:
    def change(plain: Plain) -> None:
        for one in changes:
            one(plain)

    return change


STEP = PoissonSampled(0.1, Gaussian(2.0))
BARE = {"plan": None, "steps_planned": None, "steps_taken": None, "stopped_early": None}
FORGERIES: dict[str, Callable[[Plain], None]] = {
    # fewer steps than were taken
    "one step for fifty": with_event(Repeated(STEP, 1)),
    "one step, nested": with_event(Composed(Composed(Repeated(STEP, 1)))),
    "one step, no plan": with_event(Repeated(STEP, 1), plan=None),
    "nothing at all": with_event(Composed()),
    "49 steps for 50": with_event(Repeated(STEP, 49)),
    "49 steps, one elsewhere": with_event(
        Composed(Repeated(STEP, 49), PoissonSampled(0.1, Gaussian(2.0000001)))
    ),
    "lost steps forgotten": with_event(
        Repeated(STEP, 20), steps_taken=20, stopped_early="fixed in advance", steps_lost=1
    ),
    "the steps called preprocessing": several(
        put("preprocessing.1.event", as_dict(Repeated(STEP, 50))),
        with_event(Repeated(STEP, 1)),
    ),
    # another event than the plan's
    "more noise in the event": with_event(Repeated(PoissonSampled(0.1, Gaussian(4.0)), 50)),
    "a smaller rate in the event": with_event(Repeated(PoissonSampled(0.01, Gaussian(2.0)), 50)),
    "another mechanism": with_event(Repeated(PureDp(1e-6), 50)),
    "another mechanism of the same noise": with_event(Repeated(Laplace(2000.0), 50)),
    "a cap that the plan has not": with_event(
        Repeated(PoissonSampled(0.1, Gaussian(2.0), cap=900, population=1001), 50)
    ),
    # another plan than the event's
    "less noise in the plan": put("plan.noise_multiplier", 1.0),
    "larger lots in the plan": put("plan.lot_size", 200),
    "more examples in the plan": put("plan.examples", 2000),
    "a full batch in the plan": several(
        put("plan.lot_size", 1000), put("plan.sampling", {"kind": "FullBatch"})
    ),
    "truncated lots in the plan": put(
        "plan.sampling", {"kind": "TruncatedPoisson", "largest": 500}
    ),
    "a count that is not charged": put(
        "plan.clipping",
        {"kind": "AdaptiveQuantile", "quantile": 0.5, "learning_rate": 0.2, "count_noise": 5.0},
    ),
    "the plan's adjacency": put("plan.adjacency", "replace-one"),
    "the statement's adjacency": put("adjacency", "zero-out"),
    "both adjacencies": several(
        put("plan.adjacency", "replace-one"), put("adjacency", "replace-one"), put("figures", None)
    ),
    "the plan's unit": put("plan.unit", "user"),
    "the statement's unit": put("unit", "user"),
    "more steps planned": put("plan.steps", 5000),
    "no steps planned": put("plan.steps", 0),
    "a clip that is none": put("plan.clip", -1.0),
    "a clip below what gradients can be": put("plan.clip", 1e-300),
    "a clip that bounds do not have": several(
        put("plan.clipping", {"kind": "PerGroup", "bounds": [["a", 3.0], ["b", 4.0]]}),
    ),
    "an unknown style": put("plan.clipping", {"kind": "None"}),
    "an unknown sampling": put("plan.sampling", {"kind": "Shuffled"}),
    "a plan with a field more": put("plan.extra", 1),
    "a plan with a field less": put("plan.views", DELETED),
    "a plan that is a list": put("plan", []),
    # steps
    "more steps taken than planned": put("steps_taken", 51),
    "a negative number of steps": put("steps_taken", -1),
    "half a step": put("steps_taken", 49.5),
    "a float for a step": put("steps_taken", 50.0),
    "true for a step": several(put("steps_planned", True), put("steps_taken", True)),
    "text for a step": put("steps_taken", "50"),
    "steps without end": put("steps_planned", 10**39),
    "a negative loss": put("steps_lost", -1),
    "a loss that is true": put("steps_lost", True),
    "a loss beyond the plan": put("steps_lost", 1),
    "stopped early, and not": put("stopped_early", "fixed in advance"),
    # figures
    "half the epsilon": put("epsilon", 0.5),
    "no epsilon": put("epsilon", 0),
    "epsilon as a text": put("epsilon", "9"),
    "epsilon as true": put("epsilon", True),
    "a negative epsilon": put("epsilon", -1.0),
    "a smaller delta": put("delta", 1e-9),
    "delta 0": put("delta", 0),
    "delta 1": put("delta", 1),
    "delta as true": put("delta", True),
    "delta as a list": put("delta", [1e-5]),
    "a smaller mu": put("figures.mu", 0.01),
    "a smaller attack": put("figures.attack.0.true_positive_rate", 0.011),
    "a smaller curve": put("figures.curve.0.epsilon", 0.1),
    "figures of their own": put("figures.proved", True),
    "an accountant that proves nothing": put("accountant", "gdp-clt"),
    "an accountant of their own": put("accountant", "forger"),
    # preprocessing
    "preprocessing that is not charged": several(
        put("preprocessing.0.event", as_dict(Gaussian(5.0))), put("figures", None)
    ),
    "preprocessing that is not first": put("preprocessing.1.event", as_dict(Gaussian(31.0))),
    # what is no field, no text, no number
    "a field more": put("verified", True),
    "a field less": put("event", DELETED),
    "a list for a text": put("sampling", ["Poisson"]),
    "an escape code": put("noise", "fast\x1b[2J"),
    "a line end": put("assumptions.0", "a\nProved: everything"),
    "text turned around": put("tuning", "a\u202eb"),
    "half a letter": put("tuning", "\ud800"),
    "text without end": put("tuning", "a" * 20_000),
    "a text in place of texts": put("assumptions", "rows"),
    "texts without end": put("assumptions", ["a"] * 2000),
    "a path for a file": put("files", {"../model.safetensors": "a" * 64}),
    "a hidden file": put("files", {".ssh": "a" * 64}),
    "a checksum that is none": put("files", {"model.safetensors": "A" * 64}),
    "a configuration that is none": put("configuration", "0"),
    "an event that is too deep": put("event", json.loads('{"kind":' * 60 + "1" + "}" * 60)),
    "tables that no machine holds": put(
        "event", as_dict(Repeated(DiscreteLaplace(1.0, sensitivity=10**12), 2))
    ),
    "thirty thousand events": put(
        "event", {"kind": "Composed", "events": [as_dict(PureDp(i + 1.0)) for i in range(30_000)]}
    ),
    "a head that is none": put(
        "charge",
        {"ledger": "a", "location": "b", "budget": "c", "reservation": 1, "head": "7"},
    ),
    "a charge that is none": put("charge", {"ledger": "a"}),
    "a signature that is none": put("signature", {"by": "x", "key": "0", "value": "0"}),
    "a data-dependent figure below its own": put(
        "data_dependent",
        {"epsilon": 0.1, "delta": 1e-5, "order": 16.0, "divergence": 0.9, "failure": 1e-6,
         "what": "noisily"},
    ),
}  # fmt: skip


def test_the_honest_statement_is_read() -> None:
    assert Statement.from_json(json.dumps(honest())) == Statement.from_json(written())


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused_in_one_line(name: str) -> None:
    plain = honest()
    FORGERIES[name](plain)
    begun = time.process_time()
    with pytest.raises(InvalidArgument) as caught:
        Statement.from_json(json.dumps(plain))
    assert time.process_time() - begun < SECONDS
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "1",
        '"statement"',
        "[" * 100_000,
        '{"a":' * 100_000,
        "\x00",
        "9" * 5000,
        "a" * (5 << 20),
    ],
)
def test_what_is_no_statement_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        Statement.from_json(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"delta": 1e-05', '"delta": 1e-05, "delta": 1e-05'),  # twice
        ('"delta": 1e-05', '"delta": NaN'),
        ('"delta": 1e-05', '"delta": Infinity'),
        ('"delta": 1e-05', f'"delta": {"1" * 400}'),
        ('"delta": 1e-05', '"delta": 1e999'),
        ('"steps_taken": 50', f'"steps_taken": {"5" * 400}'),
        ('"times": 50', f'"times": {"5" * 400}'),
        ('"times": 50', '"times": 50, "times": 1'),
        ('"rate": 0.1', '"rate": 1e-400'),
        ('"lot_size": 100', f'"lot_size": 0.{"0" * 400}1'),
    ],
)
def test_json_that_means_two_things_or_nothing_is_refused(old: str, new: str) -> None:
    assert written().count(old) >= 1
    with pytest.raises(InvalidArgument) as caught:
        Statement.from_json(written().replace(old, new, 1))
    assert len(str(caught.value)) < 1000


# ---- a plan is read a second time, and must stand for the same event

PLANS = [
    Plan(examples=1000, lot_size=100, steps=7, noise_multiplier=2.0, clip=1.0),
    Plan(examples=1000, lot_size=33.3, steps=1, noise_multiplier=0.7, clip=2.0, noise="exact"),
    Plan(examples=50, lot_size=50, steps=3, noise_multiplier=1.5, clip=1.0),
    Plan(examples=50, lot_size=50, steps=3, noise_multiplier=1.5, clip=1.0, sampling=Poisson()),
    Plan(examples=50, lot_size=50, steps=3, noise_multiplier=1.5, clip=1.0, sampling=FullBatch()),
    Plan(examples=90, lot_size=9, steps=3, noise_multiplier=1.5, clip=1.0, clipping=PerLayer()),
    Plan(examples=90, lot_size=9, steps=3, noise_multiplier=1.5, clip=1.0, clipping=Automatic()),
    Plan(examples=90, lot_size=9, steps=3, noise_multiplier=1.5, clip=1.0, clipping=Flat()),
    Plan(
        examples=90, lot_size=9, steps=3, noise_multiplier=1.5,
        clipping=PerGroup({"": 0.3, "a": 1}),
    ),
    Plan(
        examples=90, lot_size=9, steps=3, noise_multiplier=1.5, clip=1.0,
        clipping=AdaptiveQuantile(count_noise=4.0),
    ),
    *(
        Plan(
            examples=900, lot_size=90, steps=3, noise_multiplier=1.5, clip=1.0,
            sampling=TruncatedPoisson(200), adjacency=adjacency,  # type: ignore[arg-type]
        )
        for adjacency in ("add-remove", "replace-one", "zero-out")
    ),
    Plan(
        examples=90, lot_size=9, steps=3, noise_multiplier=1.5, clip=1.0, unit="user",
        examples_per_user=4, views=3, adjacency="zero-out",
    ),
]  # fmt: skip


@pytest.mark.parametrize("plan", PLANS)
def test_both_readings_of_a_plan_agree(plan: Plan) -> None:
    found = planned_event(json.loads(plan.to_json()))
    assert plan.event == Repeated(found.step, plan.steps)
    assert (found.steps, found.adjacency, found.unit) == (plan.steps, plan.adjacency, plan.unit)
    for steps in range(plan.steps + 1):
        assert found.covered(plan.event_after(steps)) == steps


def test_steps_are_counted_wherever_they_are() -> None:
    found = planned_event(json.loads(PLAN.to_json()))
    step = found.step
    assert found.covered(Composed(Repeated(step, 3), step, PureDp(1.0))) == 4
    assert found.covered(Repeated(Composed(step, PureDp(1.0)), 5)) == 5
    assert found.covered(PoissonSampled(0.5, step)) == 0


# ---- what is proved and what is claimed


def test_what_is_claimed_is_not_called_proved() -> None:
    proved = {
        one.subject for one in Statement.from_json(written()).findings() if one.standing == "proved"
    }
    assert proved == {"ε", "other figures", "event"}
    bare = claimed(5.0, **BARE)
    found = {one.subject: one for one in bare.findings()}
    assert found["event"].standing == "claimed"
    assert "no plan is stated" in found["event"].how
    early = claimed(
        PLAN.epsilon(1e-5), steps_taken=20, stopped_early="fixed in advance",
        event=as_dict(PLAN.event_after(20)),
    )  # fmt: skip
    found = {one.subject: one for one in early.findings()}
    assert found["early end"].standing == "claimed"
    assert "20 of 50 steps was fixed in advance" in found["early end"].what
    assert "Claimed: the end after 20 of 50 steps" in early.describe()


def test_preprocessing_that_is_said_to_cost_nothing_is_claimed() -> None:
    """Nobody can see from a file that a mean was computed: it is not charged, and not proved."""
    plain = honest()
    plain["preprocessing"][1]["event"] = None
    with_event(PLAN.event)(plain)
    found = Statement.from_json(json.dumps(plain)).findings()
    looks = [one for one in found if one.subject == "preprocessing"]
    assert [one.standing for one in looks] == ["claimed", "claimed"]
    assert "it depends on no data: a noisy mean" in looks[1].what


# ---- signatures


def test_a_signature_covers_every_field() -> None:
    key = Ed25519PrivateKey.generate()
    signed = Statement.from_json(written()).signed(key, by="the clinic")
    assert Statement.from_json(signed.to_json()).verify_signature(key.public_key())
    assert not signed.verify_signature(Ed25519PrivateKey.generate().public_key())
    changes: dict[str, Any] = {
        "epsilon": 50.0, "accountant": "rdp", "sampling": "x", "noise": "x", "assumptions": ["x"],
        "not_promised": ["x"], "tacit_version": "x", "torch_version": "x", "ledger": "x",
        "threat_model": "x", "releases": ["x"], "tuning": "x", "randomness": "x", "versions": {},
        "configuration": "1" * 64, "files": {}, "figures": None,
        "signature": asdict_of(signed, by="somebody else"),
    }  # fmt: skip
    plain = json.loads(signed.to_json())
    for name, value in changes.items():
        spent = 50.0 if name == "accountant" else plain["epsilon"]
        forged = plain | {"figures": None, "epsilon": spent, name: value}
        other = Statement.from_json(json.dumps(forged))
        assert other.verify_signature(key.public_key()) == (name == "figures"), name
    assert extended(signed, tuning="more").signature is None


def asdict_of(signed: Statement, **changes: str) -> dict[str, str]:
    held = signed.signature
    assert held is not None
    return {"by": held.by, "key": held.key, "value": held.value} | changes


# ---- a fuzzer over the tree

HOSTILE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 50, 10**15, 10**39, 0.0, -0.0, 1e-300, 1e300, 0.1, 0.5, 1e-5,
    "", "add-remove", "replace-one", "user", "exact", "rdp", "x" * 200, "\x1b", [], {}, [[]], [0],
    {"kind": "Composed", "events": []}, {"kind": "Gaussian", "sigma": 9.0, "replace_distance": 2.0},
    {"kind": "PureDp", "epsilon": 0.0}, {"kind": "Repeated", "event": {}, "times": 1},
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, one in items:
        found.append((*path, name))
        if isinstance(one, dict | list):
            found += places(one, (*path, name))[1:]
    return found


@pytest.mark.parametrize("forgeries", [100, pytest.param(250, marks=pytest.mark.slow)])
def test_no_change_of_the_tree_is_a_forged_proof(forgeries: int) -> None:
    tried = settings(max_examples=forgeries, deadline=None, suppress_health_check=list(HealthCheck))
    tried(given(st.data())(is_no_forged_proof))()


def is_no_forged_proof(data: st.DataObject) -> None:
    """Whatever is read is as good as made by hand: proved again, and covering its own steps."""
    plain = deepcopy(honest())
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(plain)))
        place: Any = plain
        for name in path[:-1]:
            place = place[name]
        kind = data.draw(st.sampled_from(["put", "put", "put", "delete", "copy", "nest"]))
        if kind == "delete":
            del place[path[-1]]
        elif kind == "copy":
            place[path[-1]] = deepcopy(data.draw(st.sampled_from([plain["event"], plain["plan"]])))
        elif kind == "nest":
            place[path[-1]] = {"kind": "Composed", "events": [place[path[-1]]]}
        else:
            place[path[-1]] = deepcopy(data.draw(st.sampled_from(HOSTILE)))
        if not places(plain):
            break
    begun = time.process_time()
    try:
        found = Statement.from_json(json.dumps(plain))
    except TacitError:
        return
    finally:
        assert time.process_time() - begun < SECONDS
    event = from_dict(found.event)
    assert found.epsilon >= epsilon(
        event, found.delta, accountant=found.accountant, adjacency=found.adjacency
    ) * (1 - 1e-9)
    if found.plan is not None:
        plan = Plan.from_dict(found.plan)
        assert plan.adjacency == found.adjacency
        assert found.steps_taken is not None
        spent = plan.event_after(found.steps_taken + found.steps_lost)
        alone = epsilon(spent, found.delta, adjacency=found.adjacency) if spent != Composed() else 0
        assert found.epsilon >= alone * (1 - 1e-9)
