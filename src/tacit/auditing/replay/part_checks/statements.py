"""What plans promise and statements prove, against reference bounds of their own."""

from __future__ import annotations

import importlib.util
import json
import math
from dataclasses import asdict, replace

from tacit.accounting import Gaussian
from tacit.auditing.replay.forbidden.small_run import tried
from tacit.auditing.replay.part_checks.ledger_rules import gaussian_epsilon
from tacit.auditing.replay.reference import least_epsilon
from tacit.auditing.replay.report import Finding
from tacit.statement import Statement
from tacit.statement.claim import extended
from tacit.training.claim import Run, statement
from tacit.training.plan import Plan
from tacit.training.sampling import TruncatedPoisson
from tacit.training.styles import AdaptiveQuantile, Automatic, PerGroup, PerLayer

_DELTA = 1e-5


def _plans() -> dict[str, Plan]:
    plan = Plan(examples=400, lot_size=40, steps=30, noise_multiplier=1.1, clip=0.5)
    groups = PerGroup({"": 3.0, "head": 4.0})
    return {
        "flat": plan,
        "whole": Plan(examples=40, lot_size=40, steps=3, noise_multiplier=4.0, clip=1.0),
        "adaptive": replace(plan, clipping=AdaptiveQuantile(count_noise=9.0), noise="secure"),
        "groups": replace(plan, clipping=groups, clip=groups.clip, noise="exact"),
        "layers": replace(plan, clipping=PerLayer(), adjacency="replace-one"),
        "users": replace(plan, unit="user", examples_per_user=3, views=2, clipping=Automatic()),
        "truncated": replace(plan, sampling=TruncatedPoisson(90), adjacency="zero-out"),
    }


def promises() -> Finding:
    """A plan for a budget keeps within it, and what is written of a plan is what is read."""
    wrong = []
    for name, plan in _plans().items():
        if Plan.from_json(plan.to_json()) != plan or not plan.describe(_DELTA):
            wrong.append(f"{name}: it is read as another one")
        least = least_epsilon(plan, plan.steps, _DELTA)
        claimed = plan.epsilon(_DELTA)
        if least is not None and claimed < least * (1 - 1e-6) - 1e-6:
            wrong.append(f"{name}: ε = {claimed:.6g}, at least {least:.6g}")
        part = least_epsilon(plan, 2, _DELTA)
        if part is not None and Run(2, False).last_step == 2 and part > claimed:
            wrong.append(f"{name}: two steps have more than all")
    for also in (None, Gaussian(8.0)):
        found = Plan.for_budget(
            epsilon=2.0, delta=_DELTA, examples=1_000, lot_size=100, clip=1.0, also=also,
            epochs=2.55 if also is None else None, steps=None if also is None else 26,
        )  # fmt: skip
        least = least_epsilon(found, found.steps, _DELTA) or 0.0
        if found.steps != 26 or least > 2.0 or (also is None and least < 1.9):
            wrong.append(f"for ε = 2 a plan of {found.steps} steps has at least {least:.6g}")
    if abs(_plans()["flat"].epochs - 3.0) > 1e-9 or _plans()["flat"].sensitivity != 0.5:
        wrong.append("epochs or sensitivity are others")
    return Finding("charging", "plans", not wrong, "; ".join(wrong) or "they keep their promises")


def proofs() -> Finding:
    """A statement is read as it was written, and refused if it claims less than its event has."""
    wrong = []
    for name, plan in _plans().items():
        for taken, last, lost in ((plan.steps, plan.steps, 0), (1, 2, 0), (1, plan.steps, 1)):
            run = Run(last, unsafe=lost > 0)
            run.load_state_dict(run.state_dict())
            stated = statement(plan, _DELTA, taken, run, lost=lost, ledger=None)
            least = least_epsilon(plan, last, _DELTA)
            if least is not None and stated.epsilon < least * (1 - 1e-6) - 1e-6:
                wrong.append(f"{name}: ε = {stated.epsilon:.6g}, at least {least:.6g}")
            if (stated.steps_taken, stated.steps_planned) != (taken, plan.steps):
                wrong.append(f"{name}: other steps are stated")
    if (
        Statement.from_json(stated.to_json()) != stated
        or str(stated.steps_taken) not in stated.describe()
    ):
        wrong.append("it is read as another one")
    plain = json.loads(stated.to_json())
    for key, value in (("epsilon", 0.5 * stated.epsilon), ("delta", 0.5 * _DELTA)):
        forged = json.dumps(plain | {key: value})
        wrong += tried(f"a forged {key}", lambda text=forged: Statement.from_json(text))  # type: ignore[misc]
    smaller = {**asdict(stated), "epsilon": 0.9 * stated.epsilon}
    wrong += tried("a smaller ε", lambda: Statement(**smaller))
    return Finding("charging", "proofs", not wrong, "; ".join(wrong) or "they prove what they say")


def additions() -> Finding:
    """What is added to a statement is added to its ε, and read again as it was written."""
    wrong = []
    alone = statement(_plans()["whole"], _DELTA, 3, Run(3, unsafe=False), lost=0, ledger=None)
    sigma = 4.0 / math.sqrt(3)  # of a plan of three steps that take everybody
    same = extended(alone, releases="a\nmodel", preprocessing=[("a fixed scale", None)])
    if same.epsilon != alone.epsilon or same.releases != (*alone.releases, "a model"):
        wrong.append(f"what costs nothing makes ε = {same.epsilon:.6g} of {alone.epsilon:.6g}")
    more = extended(same, preprocessing=[("a noisy mean", Gaussian(5.0))], assumptions=["one"])
    both = extended(more, preprocessing=[("another", Gaussian(6.0))], not_promised=("two",))
    for stated, sigmas in ((more, (sigma, 5.0)), (both, (sigma, 5.0, 6.0))):
        least = gaussian_epsilon(sum(one**-2 for one in sigmas) ** -0.5, _DELTA)
        if not least * (1 - 1e-6) <= stated.epsilon <= 1.01 * least:
            wrong.append(f"ε = {stated.epsilon:.6g} of {len(sigmas)} releases, not {least:.6g}")
        if Statement.from_json(stated.to_json()) != stated:
            wrong.append("it is read as another one")
    if len(both.preprocessing) != 3 or both.preprocessing[0].charged:
        wrong.append("what was done before is not what was said")
    plain = json.loads(both.to_json())
    del plain["figures"]
    endless = extended(replace(both, epsilon=math.inf))
    for written, expected in ((json.dumps(plain), both), (endless.to_json(), endless)):
        if Statement.from_json(written) != expected:
            wrong.append("without figures, or without an ε, it is read as another one")
    return Finding("charging", "additions", not wrong, "; ".join(wrong) or "all of them count")


def signatures() -> Finding:
    """A signature fits what was signed and nothing else, and only the key that signed it."""
    if importlib.util.find_spec("cryptography") is None:
        return Finding("charging", "signatures", True, "nobody can sign without cryptography")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - if there
        Ed25519PrivateKey,
    )

    keys = [Ed25519PrivateKey.generate() for _ in range(2)]
    mine, other = (key.public_key() for key in keys)
    plain = statement(_plans()["whole"], _DELTA, 3, Run(3, unsafe=False), lost=0, ledger=None)
    signed = plain.signed(keys[0], by="somebody")
    again = Statement.from_json(signed.to_json())
    said = {
        "what was signed fits": again.signature_fits() and again.verify_signature(mine),
        "another key does not": not signed.verify_signature(other),
        "another ε does not": not replace(signed, epsilon=9.0).signature_fits(),
        "another δ does not": not replace(signed, delta=2 * _DELTA).verify_signature(mine),
        "another text does not": not replace(signed, tuning="none").signature_fits(),
        "what nobody signed does not": not plain.signature_fits()
        and not plain.verify_signature(mine),
        "what is added later does not": extended(signed, tuning="none").signature is None,
    }
    wrong = [name for name, right in said.items() if not right]
    return Finding("charging", "signatures", not wrong, f"not so: {wrong}" if wrong else "it does")
