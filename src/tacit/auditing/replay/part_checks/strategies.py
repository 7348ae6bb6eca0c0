"""Correlated noise by itself: what is drawn, what it comes to, and how its bands are chosen.

The noise of a run with a seed is compared, number by number, with the strategy's inverse times the
independent noise of the same seed. Matrices are made here by their definition, and are dense.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tacit.accounting import Gaussian, bounds
from tacit.auditing.replay.checks.correlated import strategy_of, uncorrelated
from tacit.auditing.replay.forbidden.small_run import Small, row_loss, small_plan
from tacit.auditing.replay.report import Finding
from tacit.randomness import CorrelatedSource, GaussianSource, UnsafeSeededStream
from tacit.training import checkpoint_file
from tacit.training.correlation import (
    Anticorrelated,
    Banded,
    Buffered,
    InverseBanded,
    course,
    workload_of,
)
from tacit.training.noise import memory_of
from tacit.training.plan import Plan
from tacit.training.sampling import Cyclic, FullBatch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.training.correlation import Correlation

_STEPS, _BROKEN_OFF = 9, 4
_SIGMA, _ENTRIES = 1.5, 300
_EXACT = 2e-5  # of the noise: a few roundings in single precision
_SLACK = 1e-9  # of a sum of doubles


def _kinds() -> dict[str, Plan]:
    """A plan for each kind of correlation and each kind of lots that it goes with."""
    given: dict[str, Any] = {"steps": _STEPS, "noise_multiplier": _SIGMA, "lot_size": 2}
    correlations: dict[str, Correlation] = {
        "bands": Banded(3, momentum=0.5),
        "two bands with a schedule": Banded(2, schedule="linear"),
        "inverse bands": InverseBanded(3),
        "given inverse bands": InverseBanded(3, coefficients=(1.0, -0.4, -0.1)),
        "buffers": Buffered(2),
        "given buffers": Buffered(2, scales=(-0.06, -0.2), decays=(0.9, 0.4)),
        "a share": Anticorrelated(),
        "a given share": Anticorrelated(0.3, momentum=0.9, schedule="cosine"),
    }
    found = {
        f"{name}, in turns": small_plan(**given, correlation=one, sampling=Cyclic())
        for name, one in correlations.items()
    }
    everybody = given | {"lot_size": 8, "sampling": FullBatch()}
    return found | {
        "bands, drawn": small_plan(**given, correlation=Banded(3)),
        "inverse bands, everybody": small_plan(**everybody, correlation=InverseBanded(2)),
    }


def mixtures() -> Finding:
    """Noise of every kind is C⁻¹ times independent noise, number by number, also when resumed."""
    worst, which = 0.0, ""
    drawn: dict[Plan, NDArray[np.float64]] = {}
    for name, plan in _kinds().items():
        plain = uncorrelated(plan)
        if plain not in drawn:
            drawn[plain] = _released(plain)
        off = float(np.abs(strategy_of(plan) @ _released(plan) - drawn[plain]).max())
        worst, which = max((worst, which), (off, name))
    right = worst <= _EXACT * (1.0 + _STEPS)
    said = f"the strategy times the noise is at most {worst:.2g} from independent noise ({which})"
    return Finding("noise", "mixtures", right, said, (("off", worst),))


def _released(plan: Plan) -> NDArray[np.float64]:
    """The noise of a seeded run, a row for a step, in units of σ·clip: it is kept and resumed."""
    rows: list[Any] = []

    def optimizer(model: Any) -> Any:
        made = torch.optim.SGD(model.parameters(), lr=0.1)
        held = [p for p in model.parameters() if p.requires_grad]

        def note(*_: Any) -> None:
            rows.append(torch.cat([p.grad.flatten() for p in held]).double().numpy())

        made.register_step_pre_hook(note)
        return made

    with tempfile.TemporaryDirectory(prefix="tacit-parts-") as folder:
        path = Path(folder) / "run"
        run = Small(
            plan=plan, optimizer=optimizer, options={"unsafe_seed": 7},
            loss=lambda model, batch: 0.0 * row_loss(model, batch),
            moment="between lots", after=_BROKEN_OFF, act=lambda scene: scene.dp.save(path),
        )  # fmt: skip
        run()
        del rows[_BROKEN_OFF:]
        replace(run, options={"unsafe_seed": 7, "resume": path}, act=lambda _: None)()
    result: NDArray[np.float64] = np.stack(rows) * plan.lot_size / plan.noise_scale
    return result


def lost() -> Finding:
    """After lost steps the noise starts afresh: C without their rows and columns, on new noise."""
    worst = 0.0
    for plan in _kinds().values():
        after = np.stack(_with_a_gap(plan))
        rest = strategy_of(plan)[_BROKEN_OFF:, _BROKEN_OFF:]
        plain = uncorrelated(plan)
        drawn = _independent() if plain.correlation is None else np.stack(_with_a_gap(plain))
        worst = max(worst, float(np.abs(rest @ after - drawn).max()))
    right = worst <= _EXACT * (1.0 + _STEPS)
    said = f"after lost steps the noise is at most {worst:.2g} from the rest of its strategy's"
    return Finding("noise", "lost steps", right, said, (("off", worst),))


def _with_a_gap(plan: Plan) -> list[NDArray[np.float64]]:
    """The noise after steps that were lost, of a memory that knows of two steps before them."""
    memory, rows = memory_of(plan), []
    assert memory is not None
    for first, last in ((0, 2), (_BROKEN_OFF, _STEPS)):
        source = CorrelatedSource(memory, torch.device("cpu"), UnsafeSeededStream(first, "noise"))
        memory.begin(first)
        for _ in range(first, last):
            rows.append(torch.empty(_ENTRIES))
            source.normal_(rows[-1])
            source.advance()
    return [row.double().numpy() for row in rows[2:]]


def _independent() -> NDArray[np.float64]:
    source = GaussianSource(torch.device("cpu"), UnsafeSeededStream(_BROKEN_OFF, "noise"))
    drawn = torch.empty(_STEPS - _BROKEN_OFF, _ENTRIES)
    for row in drawn:
        source.normal_(row)
    result: NDArray[np.float64] = drawn.double().numpy()
    return result


def forgotten() -> Finding:
    """A checkpoint after the last step, planned or fixed, holds as much as with independent noise.

    What it held of earlier noise would take that off again.
    """
    wrong = []
    for name, plan in _kinds().items():
        plain = replace(plan, correlation=None, sampling=FullBatch(), lot_size=plan.examples)
        for options in ({}, {"stop_after": _BROKEN_OFF}):
            held, usual = (_held_at_the_end(one, options) for one in (plan, plain))
            if held > usual:
                wrong.append(f"{name}, {options}: {held} numbers are kept in place of {usual}")
    said = "; ".join(wrong[:4]) or "it does"
    return Finding("noise", "forgotten", not wrong, said)


def _held_at_the_end(plan: Plan, options: dict[str, Any]) -> int:
    """How many numbers a checkpoint after the last step has in floating point."""
    with tempfile.TemporaryDirectory(prefix="tacit-parts-") as folder:
        path = Path(folder) / "run"
        Small(
            plan=plan, options=options, moment="after the last lot",
            act=lambda scene: scene.dp.save(path),
        )()  # fmt: skip
        _, tensors = checkpoint_file.read(path)
    return sum(one.numel() for one in tensors.values() if one.is_floating_point())


def sensitivities() -> Finding:
    """A run is charged for no less than what one record can move, in all of its turns together."""
    wrong = []
    for name, plan in _kinds().items():
        matrix = strategy_of(plan)
        # No entry is negative: a record moves the most if it moves all of its steps alike.
        apart = [matrix[:, at :: plan.groups].sum(1) for at in range(plan.groups)]
        least = max(float(np.linalg.norm(one)) for one in apart)
        assert plan.correlation is not None
        found = course(plan.correlation, plan.steps, plan.groups).sensitivity
        if not least * (1.0 - _SLACK) <= found <= 1.01 * least:
            wrong.append(f"{name}: {found:.6g} is said to be moved, and {least:.6g} can be")
        if isinstance(plan.sampling, Cyclic | FullBatch):
            claimed, true = plan.epsilon(1e-5), bounds(Gaussian(_SIGMA / least), delta=1e-5)
            if claimed < true.lower * (1.0 - _SLACK):
                wrong.append(f"{name}: ε = {claimed:.6g} is claimed of {true.lower:.6g}")
        if len(plan.describe().splitlines()) < 4 or plan != Plan.from_json(plan.to_json()):
            wrong.append(f"{name}: the plan is not described, or written as another")
    return Finding("charging", "turns", not wrong, "; ".join(wrong[:4]) or "they are")


def bands() -> Finding:
    """For a budget the number of bands is that of least error in the models, by dense matrices."""
    wrong: list[str] = []
    for examples, steps, momentum in ((600, 24, 0.5), (100, 40, 0.0)):
        wanted = Banded("auto", momentum=momentum)
        plan = Plan.for_budget(
            epsilon=2.0, delta=1e-5, examples=examples, lot_size=40.0, steps=steps, clip=1.0,
            correlation=wanted,
        )  # fmt: skip
        tried = dict(plan.tried)
        if plan.epsilon(1e-5) > 2.0 * (1.0 + _SLACK):
            wrong.append(f"{plan.epsilon(1e-5):.6g} is spent of 2")
        chosen = 1 if plan.correlation is None else plan.groups
        if not math.isclose(tried[chosen], min(tried.values()), rel_tol=1e-12):
            wrong.append(f"{chosen} bands are chosen, of {tried}")
        if chosen > 1:
            alone = Plan.for_budget(
                epsilon=2.0, delta=1e-5, examples=examples, lot_size=40.0, steps=steps, clip=1.0
            )
            ratio = _error(plan, momentum) / _error(alone, momentum)
            if not math.isclose(ratio, tried[chosen], rel_tol=1e-5):
                wrong.append(
                    f"{chosen} bands have {ratio:.6g} of the error, not {tried[chosen]:.6g}"
                )
        if not plan.describe():
            wrong.append("the choice is not described")
    for plan in _kinds().values():
        assert plan.correlation is not None
        found = course(plan.correlation, plan.steps, plan.groups).error()
        own = workload_of(plan.correlation)
        dense = own.applied(np.asarray(np.linalg.inv(strategy_of(plan)), dtype=np.float64))
        if not math.isclose(found, np.square(dense).sum() / plan.steps, rel_tol=1e-6):
            wrong.append(f"{plan.correlation}: an error of {found:.6g}")
    return Finding("charging", "bands", not wrong, "; ".join(wrong[:4]) or "they are")


def _error(plan: Plan, momentum: float) -> float:
    """σ times the root of the mean squared error of A·C⁻¹, all by definition."""
    steps = plan.steps
    carried = [[momentum ** (t - j) if t >= j else 0.0 for j in range(steps)] for t in range(steps)]
    models = np.cumsum(np.array(carried), axis=0) @ np.linalg.inv(strategy_of(plan))
    return float(plan.noise_multiplier * np.sqrt(np.square(models).sum() / steps))
