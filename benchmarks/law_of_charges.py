# ruff: noqa: ARG001, B008, B023, E501, PLC0415, PLR0915 - a law is one line, acts have one form, and tacit
# is imported in the process of its mutant
# fmt: off
"""Experiments on plans, claims, statements and the ledger; see ``release_law``."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import shutil
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from law_of_noise import OneHot, first_column
from law_of_sums import performance_of
from release_law import (
    DELTA,
    Notes,
    Run,
    Witness,
    experiment,
    must_refuse,
    plan_of,
    seeded,
    trained,
)

# ---- charges and claims


def event_of(plan: Any, steps: int) -> Any:
    """What so many steps of a plan release, written down from its fields."""
    from tacit.accounting import Composed, Gaussian, PoissonSampled, Repeated

    one: Any = Gaussian(plan.noise_multiplier)
    if type(plan.clipping).__name__ == "AdaptiveQuantile":
        one = Composed(one, Gaussian(2.0 * plan.clipping.count_noise))
    kind = type(plan.sampling).__name__
    if kind != "FullBatch":
        more = 1 if plan.adjacency == "add-remove" else 0
        cut = (
            {"cap": plan.sampling.largest, "population": plan.examples + more}
            if kind == "TruncatedPoisson"
            else {}
        )
        one = PoissonSampled(plan.lot_size / plan.examples, one, **cut)
    return Repeated(one, steps)


def _epsilon(plan: Any, steps: int, delta: float) -> float:
    from tacit.accounting import epsilon

    return epsilon(event_of(plan, steps), delta, adjacency=plan.adjacency)


def claims(notes: Notes, plan: Any, statement: Any, steps: int, charged: int) -> None:
    """A statement of a run that took ``steps`` steps and must be charged for ``charged``.

    Its JSON is read in another experiment: figures take their time.
    """
    from tacit.accounting.serialization import as_dict

    right = _epsilon(plan, charged, statement.delta)
    notes.fact("claim", round(statement.epsilon, 9))
    notes.law("ε covers the event", statement.epsilon >= right * (1 - 1e-7), f"{statement.epsilon} for {right}")
    notes.law("the event is the plan's", statement.event == as_dict(event_of(plan, charged)))
    notes.law("steps are those taken", (statement.steps_taken or 0) >= steps, statement.steps_taken)
    notes.law("adjacency is the plan's", statement.adjacency == plan.adjacency)
    notes.law("unit is the plan's", statement.unit == plan.unit)
    notes.law("the plan is the plan's", statement.plan == plan.as_dict())
    notes.fact("fields", [statement.sampling, statement.noise, statement.assumptions,
                          statement.not_promised, statement.stopped_early, statement.randomness])


@experiment("plans")
def _plans(notes: Notes) -> None:
    """Every plan's event is what its fields say, and a budget is kept."""
    import tacit
    from tacit.training import AdaptiveQuantile, PerGroup, PerLayer, TruncatedPoisson

    adaptive = AdaptiveQuantile(count_noise=3.0)
    variations: list[dict[str, Any]] = [
        {}, {"adjacency": "replace-one"}, {"adjacency": "zero-out"}, {"clipping": adaptive},
        {"lot_size": 100}, {"sampling": TruncatedPoisson(60)}, {"noise": "secure"},
        {"noise": "exact"}, {"views": 3}, {"unit": "user", "examples_per_user": 2},
        {"clipping": PerGroup({"a": 3.0, "b": 4.0}), "clip": None}, {"clipping": PerLayer()},
        {"sampling": TruncatedPoisson(60), "adjacency": "replace-one"}, {"lot_size": 2.5},
    ]
    for changed in variations:
        given = {"examples": 100, "lot_size": 20, "steps": 7, "noise_multiplier": 1.1, "clip": 2.0}
        plan = tacit.Plan(**(given | changed))
        for steps in (1, 3, 7):
            notes.law("an event is its plan's", plan.event_after(steps) == event_of(plan, steps), changed)
        notes.law("the whole is all steps", plan.event == event_of(plan, 7))
        notes.law("σ·clip", math.isclose(plan.noise_scale, plan.noise_multiplier * plan.clip))
        notes.law("the clip", plan.sensitivity == plan.clip)
        notes.law("the rate", plan.sample_rate == plan.lot_size / plan.examples)
        right = _epsilon(plan, 7, 1e-4)
        notes.law("ε is the event's", plan.epsilon(1e-4) >= right * (1 - 1e-9))
        notes.law("JSON brings it back", tacit.Plan.from_json(plan.to_json()) == plan)
        notes.fact("words", [plan.describe(1e-4), plan.epochs, plan.to_json()])
        budget = {"epsilon": 2.0, "delta": 1e-4, "examples": 100, "lot_size": 20, "epochs": 1.3,
                  "clip": 2.0}
        found = tacit.Plan.for_budget(**(budget | changed))
        notes.fact("for a budget", found.to_json())
        kept = _epsilon(found, found.steps, 1e-4)
        notes.law("a budget is kept", kept <= 2.0 * (1 + 1e-9), kept)
        expected = 1.3 * 100 / found.lot_size
        notes.law("all its steps are there", found.steps >= expected - 1e-6, found.steps)
    from tacit.accounting import Composed, Gaussian, epsilon

    also = tacit.Plan.for_budget(
        epsilon=2.0, delta=1e-4, examples=100, lot_size=20, steps=9, clip=1.0, also=Gaussian(5.0)
    )
    both = epsilon(Composed(Gaussian(5.0), event_of(also, 9)), 1e-4)
    notes.law("with what else is released", both <= 2.0 * (1 + 1e-9), both)
    group = PerGroup({"a": 3.0, "b": 4.0})
    notes.law("the clip of groups", math.isclose(group.clip, 5.0), group.clip)


@experiment("claims")
def _claims(notes: Notes) -> None:
    from tacit.training import AdaptiveQuantile, TruncatedPoisson

    for changed in (
        {}, {"adjacency": "replace-one", "noise": "secure"}, {"lot_size": 24, "noise": "exact"},
        {"sampling": TruncatedPoisson(14)}, {"clipping": AdaptiveQuantile(count_noise=3.0)},
    ):
        plan = plan_of(**({"examples": 24, "lot_size": 6, "steps": 5, "noise_multiplier": 1.0} | changed))
        data = TensorDataset(torch.eye(24))
        spent: list[tuple[int, float]] = []
        for stop_after, steps in ((None, None), (3, None), (None, 2), (4, 2)):
            run = trained(
                seeded(partial(OneHot, 24)), data, plan, loss=first_column, stop_after=stop_after,
                steps=steps, after=lambda dp: spent.append((dp.steps_taken, dp.spent(DELTA))),
            )
            charged = plan.steps if stop_after is None else stop_after
            taken = len(run.sums)
            notes.law("no step beyond the end", taken <= charged, taken)
            notes.law("steps are counted", run.dp.steps_taken == taken, run.dp.steps_taken)
            claims(notes, plan, run.dp.statement(DELTA), taken, charged)
        for steps, value in spent:
            notes.law("what is spent covers it", value >= _epsilon(plan, steps, DELTA) * (1 - 1e-7))
        notes.fact("spent", spent)


@experiment("statements")
def _statements(notes: Notes) -> None:
    """A statement that claims less than its event is refused, however it is written."""
    from tacit.accounting import Gaussian, epsilon
    from tacit.accounting.serialization import as_dict
    from tacit.statement import Statement

    event = Gaussian(2.0)
    right = epsilon(event, DELTA)
    given: dict[str, Any] = {
        "epsilon": right, "delta": DELTA, "event": as_dict(event), "sampling": "none",
        "noise": "fast", "tacit_version": "1",
    }
    claim = Statement(**given)
    notes.fact("claim", claim.describe())
    notes.fact("figures", repr(claim.figures()))
    notes.law("reads back", Statement.from_json(claim.to_json()) == claim)
    infinite = Statement(**(given | {"epsilon": math.inf}))
    notes.law("an infinite ε stays", Statement.from_json(infinite.to_json()).epsilon == math.inf)
    for wrong in (
        {"epsilon": 0.9 * right}, {"epsilon": -1.0}, {"epsilon": math.nan}, {"delta": 0.0},
        {"delta": 1.5}, {"adjacency": "none"}, {"unit": "nobody"}, {"adjacency": "replace-one"},
        {"steps_planned": 3, "steps_taken": 5}, {"event": {}}, {"delta": DELTA / 10},
    ):
        must_refuse(notes, f"a statement with {wrong}", lambda w=wrong: Statement(**(given | w)))
    plain = json.loads(claim.to_json())
    for name, value in (("epsilon", 0.5 * right), ("delta", 1e-9), ("figures", {}), ("more", 1)):
        changed = json.dumps(plain | {name: value})
        must_refuse(notes, f"JSON with another {name}", lambda t=changed: Statement.from_json(t))
    less = copy.deepcopy(plain)
    for key, value in less["figures"].items():
        if isinstance(value, float) and value > 0:
            less["figures"][key] = 0.5 * value
            must_refuse(notes, f"another figure {key}", lambda t=json.dumps(less): Statement.from_json(t))
            less["figures"][key] = value
    must_refuse(notes, "a missing field", lambda: Statement.from_json(json.dumps({k: v for k, v in plain.items() if k != "event"})))
    must_refuse(notes, "no JSON", lambda: Statement.from_json("{"))


def ledger_at(notes: Notes, name: str = "budget") -> Any:
    import tacit

    return tacit.Ledger(f"sqlite:///{notes.folder / name}.db")


def charged_run(
    notes: Notes, budget: Any, plan: Any, *, lease: Any = 1, crash_at: int | None = None,
    released: list[int], **options: Any,
) -> Run | None:
    """A charged run: at every release the ledger must hold it already."""

    def on_step(dp: Any) -> None:
        released[0] += 1
        state = budget.ledger.refresh().budgets[budget.name]
        notes.law("charged before release", state.granted >= released[0], f"{state.granted} < {released[0]}")

    at = [0]

    def loss(model: nn.Module, batch: Any) -> Tensor:
        at[0] += 1
        if crash_at is not None and released[0] >= crash_at:
            raise RuntimeError("crash")
        return model(batch[0])

    data = TensorDataset(torch.eye(24))
    target = options.pop("target", budget)
    try:
        return trained(
            seeded(partial(OneHot, 24)), data, plan, loss=loss, budget=target, on_step=on_step,
            **({"performance": performance_of(lease=lease)["performance"]} | options),
        )
    except RuntimeError as error:
        if str(error) != "crash":
            raise
        return None


def spent_laws(notes: Notes, budget: Any, events: list[Any], adjacency: str = "add-remove") -> None:
    """What a budget says is spent covers the composition of what was released."""
    from tacit.accounting import Composed, delta

    spent = budget.spent()
    notes.fact("spent", [round(spent.epsilon, 9), spent.delta, round(spent.share, 9), spent.meaning])
    left = budget.remaining()
    notes.fact("left", [round(left.epsilon, 9), left.delta, round(left.share, 9), left.meaning])
    if events:
        real = delta(Composed(*events), spent.epsilon, adjacency=adjacency)
        notes.law("what is spent covers the releases", real <= spent.delta * (1 + 1e-6) + 1e-15, f"δ {real} > {spent.delta}")
    notes.law("no more than the limit", spent.epsilon <= budget.epsilon * (1 + 1e-9) or budget.composition == "renyi")
    notes.law("and of δ", spent.delta <= budget.delta * (1 + 1e-9), spent.delta)
    if budget.composition == "basic":
        notes.law("what is left is the rest", left.epsilon <= budget.epsilon - spent.epsilon + 1e-9)
        notes.law("and of δ as well", left.delta <= budget.delta - spent.delta + 1e-15, left.delta)


def _charged_plan(**changed: Any) -> Any:
    return plan_of(**({"examples": 24, "lot_size": 6, "steps": 6, "noise_multiplier": 2.0} | changed))


@experiment("ledger: a run")
def _ledger_run(notes: Notes) -> None:
    for lease in (1, 3, 50):
        budget = ledger_at(notes, f"run{lease}").open("b", 8.0, DELTA)
        plan, released = _charged_plan(), [0]
        run = charged_run(notes, budget, plan, lease=lease, released=released)
        assert run is not None
        state = budget.ledger.refresh().budgets["b"]
        notes.fact("granted", state.granted)
        notes.law("every step is granted", state.granted >= released[0], state.granted)
        claims(notes, plan, run.dp.statement(DELTA), released[0], plan.steps)
        ledger = run.dp.statement(DELTA).ledger or ""
        notes.law("the claim names the charge", "reservation" in ledger, ledger)
        spent_laws(notes, budget, [event_of(plan, plan.steps)])
        budget.ledger.close()


@experiment("ledger: stopped and crashed")
def _ledger_crash(notes: Notes) -> None:
    budget = ledger_at(notes).open("b", 30.0, DELTA)
    plan, released, events = _charged_plan(), [0], []
    charged_run(notes, budget, plan, released=released, stop_after=3)
    events.append(event_of(plan, 3))
    notes.law("an end in advance holds", released[0] == 3, released[0])
    spent_laws(notes, budget, events)
    charged_run(notes, budget, plan, released=released, steps=2)
    events.append(event_of(plan, 6))
    spent_laws(notes, budget, events)
    for lease in (1, 4):
        charged_run(notes, budget, plan, released=released, crash_at=released[0] + 2, lease=lease)
        events.append(event_of(plan, 6))
        spent_laws(notes, budget, events)
    granted = budget.ledger.refresh().budgets["b"].granted
    notes.fact("granted", granted)
    notes.law("crashed steps stay granted", granted >= released[0], (granted, released[0]))
    budget.ledger.close()


@experiment("ledger: resumed")
def _ledger_resumed(notes: Notes) -> None:
    """Over a crash and a rewound checkpoint no more steps are released than one plan has."""
    budget = ledger_at(notes).open("b", 30.0, DELTA)
    plan, released = _charged_plan(), [0]
    path = notes.folder / "run.ckpt"
    charged_run(notes, budget, plan, released=released, steps=2, after=lambda dp: dp.save(path))
    first = released[0]
    charged_run(notes, budget, plan, released=released, resume=path, crash_at=first + 2)
    run = charged_run(notes, budget, plan, released=released, resume=path)
    notes.fact("released", released)
    notes.law("one plan, its steps", released[0] <= plan.steps, released[0])
    notes.law("none beyond the grant", budget.ledger.refresh().budgets["b"].granted >= released[0])
    assert run is not None
    claims(notes, plan, run.dp.statement(DELTA), len(run.sums), plan.steps)
    notes.fact("lost", run.dp.steps_lost)
    spent = run.dp.spent(DELTA)
    notes.law("lost steps count", spent >= _epsilon(plan, released[0], DELTA) * (1 - 1e-7), spent)
    spent_laws(notes, budget, [event_of(plan, plan.steps)])
    number = max(budget.ledger.books.reservations)
    other = budget.reservation(number)
    charged_run(notes, budget, plan, released=released, target=other)
    notes.law("a spent reservation gives none", released[0] <= plan.steps, released[0])
    must_refuse(notes, "resumed without its budget", lambda: trained(
        seeded(partial(OneHot, 24)), TensorDataset(torch.eye(24)), plan, loss=first_column, resume=path))
    must_refuse(notes, "resumed in another budget", lambda: charged_run(
        notes, ledger_at(notes, "other").open("b", 9.0, DELTA), plan, released=[0], resume=path))
    must_refuse(notes, "a reservation of another plan", lambda: charged_run(
        notes, budget, _charged_plan(noise_multiplier=0.5), released=[0], target=other))
    budget.ledger.close()


@experiment("ledger: an older copy")
def _ledger_copy(notes: Notes) -> None:
    ledger = ledger_at(notes)
    budget = ledger.open("b", 30.0, DELTA)
    plan, released, path = _charged_plan(), [0], notes.folder / "run.ckpt"
    copied = notes.folder / "copy"
    ledger.close()
    shutil.copytree(notes.folder, copied, ignore=shutil.ignore_patterns("copy"))
    budget = ledger_at(notes).open("b", 30.0, DELTA)
    charged_run(notes, budget, plan, released=released, steps=2, after=lambda dp: dp.save(path))
    budget.ledger.close()
    for name in os.listdir(copied):
        shutil.copy(copied / name, notes.folder / name)
    must_refuse(notes, "a run on an older ledger", lambda: charged_run(
        notes, ledger_at(notes).open("b", 30.0, DELTA), plan, released=released, resume=path))


@experiment("ledger: several runs")
def _ledger_several(notes: Notes) -> None:
    """Runs and releases together keep within the limits, by each rule."""
    from tacit.accounting import Gaussian, Laplace, Repeated
    from tacit.errors import BudgetExceeded
    from tacit.ledger import Release

    plan = _charged_plan()
    for rule in ("basic", "renyi", "declared"):
        budget = ledger_at(notes, rule).open("b", 2.5, DELTA, composition=rule)
        events: list[Any] = []
        if rule == "declared":
            whats = [plan, Release(Gaussian(6.0)), plan]
            notes.fact("declared", [one.number for one in budget.declare(whats)])
            must_refuse(notes, "declared beyond the limit", lambda b=budget: b.declare([Release(Gaussian(0.5))]))
            events = [event_of(plan, 6), Gaussian(6.0), event_of(plan, 6)]
            charged_run(notes, budget, plan, released=[0])
            budget.reserve(Release(Gaussian(6.0))).lease(1)
            spent_laws(notes, budget, events)
            must_refuse(notes, "declared after a release", lambda b=budget: b.declare([plan]))
            must_refuse(notes, "undeclared", lambda b=budget: b.reserve(Release(Gaussian(9.0))))
            charged_run(notes, budget, plan, released=[6])
            must_refuse(notes, "used twice", lambda b=budget: charged_run(notes, b, plan, released=[12]))
            budget.ledger.close()
            continue
        for round_ in range(30):
            what = (plan, Release(Laplace(8.0)), Release(Repeated(Gaussian(9.0), 2)))[round_ % 3]
            fits = budget.affordable(what)
            notes.fact(f"fits {round_}", fits)
            try:
                if round_ % 3 == 0:
                    charged_run(notes, budget, plan, released=[budget.state.granted])
                elif round_ % 3 == 1:
                    budget.charge(what.event, label="one")
                else:
                    budget.reserve(what, steps=2).lease(2)
            except BudgetExceeded:
                notes.law("what fits is granted", not fits)
                notes.fact("full at", round_)
                break
            notes.law("what does not fit is refused", fits)
            events.append(event_of(plan, 6) if round_ % 3 == 0 else what.event)
            spent_laws(notes, budget, events)
        else:
            notes.law("a budget ends", False)
        total_law(notes, budget, events)
        budget.ledger.close()


def total_law(notes: Notes, budget: Any, events: list[Any]) -> None:
    from tacit.accounting import Composed, delta

    real = delta(Composed(*events), budget.epsilon)
    notes.law("all together keep the limits", real <= budget.delta * (1 + 1e-6), real)


@experiment("ledger: reservations")
def _reservations(notes: Notes) -> None:
    from tacit.accounting import Gaussian, Laplace, PureDp, Repeated
    from tacit.errors import TacitError
    from tacit.ledger import Release

    budget = ledger_at(notes).open("b", 6.0, DELTA)
    what = Release(Repeated(Gaussian(8.0), 10))
    one = budget.reserve(what, steps=10, label="x", detail={"a": 1})
    notes.fact("lease", [one.lease(4), one.granted, one.left, one.lease(4, after=3), one.lease(2, after=4)])
    notes.law("four and two", one.granted == 6, one.granted)
    one.give_back(2)
    notes.law("two are back", (one.granted, one.left) == (4, 6), (one.granted, one.left))
    notes.law("no more than all", one.lease(99) == 6 and one.lease(1) == 0 and one.granted == 10)
    must_refuse(notes, "more given back than granted", lambda: one.give_back(11))
    one.end()
    notes.law("an end is an end", one.lease(1) == 0)
    must_refuse(notes, "given back after the end", lambda: one.give_back(1))
    notes.law("its ε", one.epsilon >= 0.9 * budget.spent().epsilon and one.delta > 0)
    empty = budget.reserve(what, steps=10)
    before = budget.spent().epsilon
    empty.end()
    notes.fact("ended unused", [before > budget.spent().epsilon, repr(one)])
    spent_laws(notes, budget, [what.event])
    pure = budget.charge(PureDp(0.5))
    notes.law("a pure release costs no δ", pure.delta == 0.0 and pure.epsilon >= 0.5, (pure.epsilon, pure.delta))
    spent_laws(notes, budget, [what.event])
    fixed = budget.at(1e-7).reserve(Release(Gaussian(20.0)))
    notes.law("a δ that was set", fixed.delta == 1e-7, fixed.delta)
    notes.law("is paid for", fixed.epsilon >= 0.99 * _gaussian_epsilon(20.0, 1e-7), fixed.epsilon)
    half = budget.at(0.0).reserve(Release(Laplace(10.0)))
    notes.law("δ = 0 for Laplace", (half.delta, half.epsilon >= 0.1) == (0.0, True), half.epsilon)
    must_refuse(notes, "δ = 0 for a Gaussian", lambda: budget.at(0.0).reserve(Release(Gaussian(5.0))))
    for name, wrong in {
        "another adjacency": lambda: budget.reserve(Release(Gaussian(5.0), "replace-one")),
        "another unit": lambda: budget.reserve(Release(Gaussian(5.0), unit="user")),
        "more steps than repetitions": lambda: budget.reserve(what, steps=11),
        "what does not fit": lambda: budget.reserve(Release(Gaussian(0.1))),
        "too much at once": lambda: budget.check_room([what] * 30),
        "room for another unit": lambda: budget.check_room([Release(Gaussian(9.0), unit="user")]),
        "an ε below what is charged": lambda: budget.amend(epsilon=0.1, reason="less"),
        "a δ below what is charged": lambda: budget.amend(delta=1e-12, reason="less"),
        "no reason": lambda: budget.amend(epsilon=9.0, reason=" "),
        "no such number": lambda: budget.reservation(10**6),
        "declared in another rule": lambda: budget.declare([what]),
        "other limits": lambda: budget.ledger.open("b", 7.0, DELTA),
        "no limit": lambda: budget.ledger.open("c", 2e6, DELTA),
        "δ of 1": lambda: budget.ledger.open("c", 1.0, 1.0),
        "a filter without δ": lambda: budget.ledger.open("c", 1.0, 0.0, composition="renyi"),
        "an unknown rule": lambda: budget.ledger.open("c", 1.0, DELTA, composition="free"),
        "no name": lambda: budget.ledger.open("", 1.0, DELTA),
        "the unit changed": lambda: budget.ledger.open("b", 6.0, DELTA, unit="user"),
        "an unknown adjacency": lambda: Release(Gaussian(1.0), "none"),
        "an unknown unit": lambda: Release(Gaussian(1.0), unit="nobody"),
        "a lease of nothing": lambda: one.lease(0),
        "a lease below nothing": lambda: one.lease(-3),
    }.items():
        must_refuse(notes, name, wrong)
    budget.check_room([Release(Gaussian(40.0))])
    before_ = budget.remaining()
    budget.amend(epsilon=12.0, reason="more")
    notes.law("a limit that was raised", budget.epsilon == 12.0 and budget.remaining().epsilon > before_.epsilon)
    notes.fact("amended", [budget.delta, budget.unit, budget.adjacency, budget.composition])
    other = budget.ledger.open("users", 3.0, 0.0, unit="user", adjacency="replace-one")
    with contextlib.suppress(TacitError):
        other.reserve(Release(Gaussian(9.0), "replace-one", "user"))
        notes.law("no Gaussian without δ", False)
    lone = budget.ledger.open("lone", 1.0, DELTA, composition="renyi")
    plan = plan_of(examples=1000, lot_size=10, steps=60, noise_multiplier=1.05)
    notes.fact("sole", lone.affordable(plan))
    with contextlib.suppress(TacitError):
        lone.reserve(plan, steps=60).lease(60)
        spent_laws(notes, lone, [event_of(plan, 60)])
        notes.law("one plan fits", _epsilon(plan, 60, DELTA) <= 1.0)
    with contextlib.suppress(TacitError):
        lone.amend(epsilon=0.2, reason="less")
        notes.law("an amendment keeps what is charged", _epsilon(plan, 60, DELTA) <= 0.2)
    budget.ledger.close()


def _gaussian_epsilon(sigma: float, delta: float) -> float:
    from tacit.accounting import Gaussian, epsilon

    return epsilon(Gaussian(sigma), delta)


@experiment("ledger: a forked child")
def _ledger_fork(notes: Notes) -> None:
    """A child in the middle of a run takes none of its parent's steps."""
    budget = ledger_at(notes).open("b", 8.0, DELTA)
    plan = _charged_plan()
    model = seeded(partial(OneHot, 24))
    import tacit

    optimizer = Witness(model.parameters())
    said = ""
    with tacit.private(
        model, optimizer, plan, TensorDataset(torch.eye(24)), budget,
        performance=performance_of(lease=4)["performance"],
    ) as dp:
        lots = dp.lots()
        lot = next(lots)
        dp.accumulate(lot, lambda batch: model(batch[0]))
        dp.step()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            count = len(optimizer.given)
            with contextlib.suppress(BaseException):
                for lot in lots:
                    dp.accumulate(lot, lambda batch: model(batch[0]))
                    dp.step()
                    break
            os.write(write, str(len(optimizer.given) - count).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        said = os.read(read, 100).decode()
        os.close(read)
        for lot in lots:
            dp.accumulate(lot, lambda batch: model(batch[0]))
            dp.step()
    granted = budget.ledger.refresh().budgets["b"].granted
    total = len(optimizer.given) + int(said or 0)
    notes.fact("steps", [len(optimizer.given)])
    notes.law("no step without a charge", total <= granted, (total, granted))
    budget.ledger.close()


@experiment("ledger: leases by the pace")
def _auto_lease(notes: Notes) -> None:
    budget = ledger_at(notes).open("b", 30.0, DELTA)
    plan, released = _charged_plan(steps=80, noise_multiplier=4.0), [0]
    charged_run(notes, budget, plan, lease="auto", released=released)
    notes.law("all steps", released[0] == 80, released[0])
    granted = budget.ledger.refresh().budgets["b"].granted
    notes.law("all are granted", granted >= 80, granted)
    spent_laws(notes, budget, [event_of(plan, 80)])
    budget.ledger.close()


@experiment("ledger: verified")
def _ledger_verified(notes: Notes) -> None:
    from tacit.accounting import Composed, Gaussian, Laplace, PureDp, Repeated
    from tacit.ledger import Release

    for rule in ("basic", "renyi"):
        ledger = ledger_at(notes, rule)
        budget = ledger.open("b", 20.0, 1e-4, composition=rule)
        events = [
            Laplace(2.0), Gaussian(5.0), Composed(Laplace(9.0), Laplace(8.0)), PureDp(0.25),
            Repeated(Laplace(20.0), 5), Composed(Gaussian(9.0), Laplace(4.0)),
        ]
        for event in events:
            one = budget.reserve(Release(event))
            notes.law("a step", one.lease(1) == 1)
            notes.fact("charge", [round(one.epsilon, 9), one.delta])
        spent_laws(notes, budget, events)
        report = ledger.verify() if hasattr(ledger, "verify") else None
        notes.fact("verified", type(report).__name__)
        ledger.close()
    free = ledger_at(notes, "free").open("b", 1.0, 0.0)
    for event in (Composed(Laplace(9.0), Laplace(8.0)), Repeated(PureDp(0.1), 3), PureDp(0.2)):
        one = free.reserve(Release(event))
        one.lease(1)
        notes.fact("pure charge", [one.epsilon, one.delta])
    notes.law("pure charges add up", free.spent().epsilon >= 1 / 9 + 1 / 8 + 0.5 - 1e-9, free.spent().epsilon)
    must_refuse(notes, "more than is left", lambda: free.reserve(Release(PureDp(0.5))))
    free.ledger.close()
