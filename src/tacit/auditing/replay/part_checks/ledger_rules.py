"""The rules of a ledger: what is charged, what is left, and what was lost in a crash."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from scipy import stats

from tacit.accounting import Gaussian, Laplace, PureDp, Repeated
from tacit.auditing.replay.forbidden.charges import ledger
from tacit.auditing.replay.forbidden.small_run import Small, in_child, tried
from tacit.auditing.replay.reference import least_epsilon, least_together
from tacit.auditing.replay.report import Finding
from tacit.training.charging import Lease
from tacit.training.plan import Plan

_DELTA = 1e-5


def basic() -> Finding:
    """Sums of ε and δ: nothing is forgotten, and nothing beyond the limits is granted."""
    wrong: list[str] = []
    with ledger() as books:
        budget = books.open("sums", 3.0, _DELTA)
        total = [0.0, 0.0]
        for event in (Laplace(4.0), Gaussian(12.0), Repeated(Laplace(20.0), 5), Gaussian(9.0)):
            if not budget.affordable(_release(event)):
                wrong.append(f"{event!r} is said not to fit")
                continue
            made = (
                budget.charge(event)
                if event != Gaussian(9.0)
                else budget.reserve(_release(event), label="a release")
            )
            total = [total[0] + made.epsilon, total[1] + made.delta]
            wrong += _pair(event, made.epsilon, made.delta)
        spent, left = budget.spent(), budget.remaining()
        if spent.epsilon < total[0] * (1 - 1e-12) or spent.delta < total[1] * (1 - 1e-12):
            wrong.append(f"{spent.epsilon:.6g}, {spent.delta:.3g} are reported of {total}")
        if left.epsilon > 3.0 - total[0] + 1e-9 or left.delta > _DELTA - total[1] + 1e-15:
            wrong.append(f"{left.epsilon:.6g}, {left.delta:.3g} are said to be left")
        unused = budget.at(2e-6).reserve(_release(Gaussian(15.0)))
        before = budget.spent().epsilon
        unused.end()
        if not spent.epsilon <= budget.spent().epsilon < before:
            wrong.append("a reservation that ended unused is not given back, or more is")
        pure = budget.at(0.0).charge(Laplace(40.0))
        if pure.delta != 0.0 or pure.epsilon < 1 / 40 * (1 - 1e-9) or not repr(pure):
            wrong.append(f"a pure release is charged {pure.epsilon:.6g}, {pure.delta:.3g}")
        budget.check_room([_release(Laplace(60.0))] * 3)
        wrong += tried("too much in bits", lambda: budget.check_room([_release(Laplace(2.0))] * 9))
        wrong += tried("too much", lambda: budget.charge(Laplace(0.3)))
        wrong += tried("an amendment below", lambda: budget.amend(epsilon=0.1, reason="less"))
        budget.amend(epsilon=4.0, reason="more")
        held = budget.reserve(_release(Repeated(Gaussian(40.0), 6)), steps=6)
        granted = [held.lease(4), held.lease(4), held.lease(1), held.lease(1, after=3)]
        held.give_back(2)
        granted += [held.lease(5), held.left, held.steps, held.granted]
        if granted != [4, 2, 0, 0, 2, 0, 6, 6]:
            wrong.append(f"leases of a reservation of 6 steps come to {granted}")
        wrong += tried("giving back too much", lambda: held.give_back(7))
        again = books.budget("sums").reservation(held.number)
        if again.granted != 6 or books.open("sums", 4.0, _DELTA).name != "sums":
            wrong.append("what was written is not what is read")
    return Finding("charging", "sums of pairs", not wrong, "; ".join(wrong) or "as they should be")


def filters() -> Finding:
    """Rényi filters and declared plans: no less than the exact ε of all together is held."""
    wrong: list[str] = []
    plan = Plan(examples=500, lot_size=50, steps=40, noise_multiplier=1.5, clip=1.0)
    other = replace(plan, lot_size=20, noise_multiplier=1.2, steps=30)
    both = least_together(((plan, 40), (other, 30)), _DELTA) or 0.0
    with ledger() as books:
        filtered = books.open("filter", 8.0, _DELTA, composition="renyi")
        held = [filtered.reserve(one, steps=one.steps) for one in (plan, other)]
        declared = books.open("declared", 8.0, _DELTA, composition="declared")
        made = declared.declare([plan, other], "two plans")
        taken = declared.reserve(plan, steps=plan.steps)
        taken.lease(3)
        for budget in (filtered, declared):
            spent, left = budget.spent(), budget.remaining()
            if spent.epsilon < both * (1 - 1e-6) or spent.delta > _DELTA * (1 + 1e-12):
                wrong.append(f"{budget.name}: ε = {spent.epsilon:.6g}, at least {both:.6g}")
            if left.epsilon > 8.0 - spent.epsilon + 1e-9:
                wrong.append(f"{budget.name}: ε = {left.epsilon:.6g} is said to be left")
            _ = budget.affordable(plan), repr(budget), budget.unit
        wrong += tried("a plan declared late", lambda: declared.declare([plan]))
        wrong += tried("a declaration twice", lambda: declared.reserve(plan, steps=plan.steps))
        wrong += tried("what was not declared", lambda: declared.charge(Gaussian(9.0)))
        wrong += tried("another unit", lambda: filtered.reserve(replace(
            plan, unit="user", examples_per_user=1)))  # fmt: skip
        wrong += tried("no room", lambda: filtered.check_room([plan] * 60))
        filtered.check_room([other])
        late = books.open("late", 8.0, _DELTA, composition="declared")
        late.check_room([plan, other])
        wrong += tried("no room among declared", lambda: late.check_room([plan] * 90))
        first = late.reserve(plan, steps=plan.steps)
        if late.spent().epsilon < (least_epsilon(plan, plan.steps, _DELTA) or 0.0) * (1 - 1e-6):
            wrong.append(f"late: ε = {late.spent().epsilon:.6g}")
        if late.remaining().epsilon > 8.0 - late.spent().epsilon + 1e-9 or not first.budget.name:
            wrong.append("late: more is said to be left")
        sole = books.open("sole", 3.0, _DELTA, composition="renyi")
        sole.charge(Laplace(0.5))
        if sole.spent().epsilon < 2.0 - 1e-9:
            wrong.append(f"sole: ε = {sole.spent().epsilon:.6g} of 2")
        wrong += tried("beside a sole plan", lambda: sole.charge(Gaussian(3.0)))
        if len(made) != 2 or len(held) != 2 or not books.verify().ok:
            wrong.append("the ledger does not verify")
    return Finding("charging", "filters", not wrong, "; ".join(wrong) or "as they should be")


def _release(event: Any) -> Any:
    from tacit.ledger import Release  # noqa: PLC0415 - SQLAlchemy only for those who keep one

    return Release(event)


def _pair(event: Any, epsilon: float, delta: float) -> list[str]:
    """Whether a charge is below what an event is known to have."""
    least = 0.0
    match event:
        case Laplace(scale):
            least = 1.0 / scale
        case Repeated(Laplace(scale), times) if delta == 0.0:
            least = times / scale
        case Gaussian(sigma):
            least = gaussian_epsilon(sigma, delta)
    short = epsilon < least * (1.0 - 1e-6)
    return [f"{event!r} is charged ε = {epsilon:.6g}, at least {least:.6g}"] if short else []


def gaussian_epsilon(sigma: float, delta: float) -> float:
    """The ε of a Gaussian mechanism at δ (Balle and Wang 2018, theorem 8), by bisection."""
    low, high = 0.0, 1e3
    for _ in range(100):
        middle = 0.5 * (low + high)
        left, right = 0.5 / sigma - middle * sigma, -0.5 / sigma - middle * sigma
        beyond = stats.norm.cdf(left) - math.exp(middle) * stats.norm.cdf(right) > delta
        low, high = (middle, high) if beyond else (low, middle)
    return low


def lost() -> Finding:
    """Steps whose results were lost in a crash stay charged, and count in what is spent."""
    wrong: list[str] = []
    with ledger() as books, tempfile.TemporaryDirectory(prefix="tacit-parts-") as folder:
        budget, path = books.open("runs", 90.0, 1e-4), Path(folder) / "run"
        plan = Plan(examples=8, lot_size=8, steps=6, noise_multiplier=2.0, clip=1.0)

        def save(scene: Any) -> None:
            scene.dp.save(path)
            raise InterruptedError

        def crash(_: Any) -> None:
            raise InterruptedError

        def look(scene: Any) -> None:
            steps = scene.dp.steps_taken + scene.dp.steps_lost
            spent, least = scene.dp.spent(_DELTA), least_epsilon(plan, steps, _DELTA) or 0.0
            granted = books.refresh().budgets["runs"].granted
            if spent < least * (1 - 1e-6) or scene.dp.steps_lost != 2 or granted < steps:
                wrong.append(f"ε = {spent:.6g} of {steps} steps, at least {least:.6g}")

        released = 0
        for act, after, resume in ((save, 2, None), (crash, 4, path), (look, 3, path)):
            options = {"budget": budget, "resume": resume}
            run = Small(plan=plan, options=options, moment="between lots", after=after, act=act)
            released += run.counted(InterruptedError)
        if released > plan.steps:
            wrong.append(f"{released} steps of a plan of {plan.steps} were released")
    return Finding("charging", "lost steps", not wrong, "; ".join(wrong) or "they are counted")


def guarantees() -> Finding:
    """A charge is a guarantee of its event, or it is refused; of what is not known, too."""
    from tacit.ledger import composition  # noqa: PLC0415 - SQLAlchemy only for those who keep one
    from tacit.ledger.replay import ReservationCost  # noqa: PLC0415

    strange = PureDp(1.0, "replace-one")  # which says nothing of a record more or less
    wrong: list[str] = []
    for charge, event, right in (
        (ReservationCost(1.0, 0.0), PureDp(1.0), True),
        (ReservationCost(0.9, 0.0), PureDp(1.0), False),
        (ReservationCost(9.0, 0.0), Gaussian(1.0), False),
        (ReservationCost(9.0, 1e-6), strange, False),
        (ReservationCost(gaussian_epsilon(2.0, 1e-6) * 1.01, 1e-6), Gaussian(2.0), True),
        (ReservationCost(gaussian_epsilon(2.0, 1e-6) * 0.99, 1e-6), Gaussian(2.0), False),
    ):
        if composition.covers(charge, event, "add-remove", 0.0) is not right:
            wrong.append(f"ε = {charge.epsilon:.6g} of {event!r} is taken for {not right}")
    with ledger() as books:
        for rule in ("basic", "renyi", "declared"):
            budget = books.open(rule, 3.0, _DELTA, composition=rule)
            name = f"what is not known, in {rule}"
            wrong += tried(name, lambda of=budget: of.charge(strange))  # type: ignore[misc]
        least = gaussian_epsilon(2.0, _DELTA)  # hardly less than the budget: no filter holds it
        sole = books.open("sole", 1.005 * least, _DELTA, composition="renyi")
        sole.charge(Gaussian(2.0))
        spent = sole.spent()
        if not least * (1 - 1e-6) <= spent.epsilon <= 1.005 * least or spent.share != 1.0:
            wrong.append(f"ε = {spent.epsilon:.6g} of a plan that has at least {least:.6g}")
        wrong += tried("more beside a plan that has all", lambda: sole.charge(Laplace(1e6)))
    return Finding("charging", "guarantees", not wrong, "; ".join(wrong) or "they are")


def forked() -> Finding:
    """A forked child has none of its parent's steps, and gives none of them back."""
    wrong: list[str] = []
    with ledger() as books:
        budget = books.open("forks", 3.0, _DELTA)
        held = budget.reserve(_release(Repeated(Gaussian(40.0), 6)), steps=6)
        lease = Lease(held, 4)
        lease.take()  # three are held

        def child() -> bytes:
            lease.close()
            return bytes([lease.take()])

        took = in_child(child)
        granted = budget.reservation(held.number).granted
        if took != b"\x01" or granted != 6:
            wrong.append(f"{granted} steps are granted to a parent of 4 and a child of 2")
        lease.close()
        left = budget.reservation(held.number).granted
        if left != 3:
            wrong.append(f"{left} steps are granted when 3 of 6 were given back")
    return Finding("charging", "forks", not wrong, "; ".join(wrong) or "it has none")


def unbegun() -> Finding:
    """A run that was kept before its first step is charged from its first step on."""
    with ledger() as books, tempfile.TemporaryDirectory(prefix="tacit-parts-") as folder:
        budget, path = books.open("runs", 90.0, 1e-4), Path(folder) / "run"

        def save(scene: Any) -> None:
            scene.dp.save(path)
            raise InterruptedError

        start = Small(options={"budget": budget}, moment="before the first lot", act=save)
        before = start.counted(InterruptedError)
        steps = Small(options={"budget": budget, "resume": path}).counted()
        granted = books.refresh().budgets["runs"].granted
    said = f"{granted} steps are charged where {before} and then {steps} were taken"
    return Finding("charging", "kept before", (before, steps, granted) == (0, 3, 3), said)
