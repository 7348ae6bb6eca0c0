"""Correlated noise: what is claimed of it over a whole run, in groups that take turns, and resumed.

The strategy matrix is made here from the plan's coefficients by its definition. Times the noise of
all steps it must give independent noise of the claimed size again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tacit.auditing.replay import plans, significance
from tacit.auditing.replay.checks.noise import columns_of, membership
from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.tacit_subject import seeded_run, seeded_without_kernels
from tacit.auditing.replay.trace import Variation
from tacit.training.correlation import Anticorrelated, Banded, Buffered, InverseBanded
from tacit.training.sampling import Cyclic, Poisson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace
    from tacit.training.plan import Plan
    from tacit.training.sampling import Sampling

_LAGS = (1, 2, 3, 4)
_SEEDED_STEPS, _ROUNDING = 12, 2e-5  # of noise of size 1 in single precision, at every step
_FEWEST_TURNS = 8


def strategy_of(plan: Plan) -> NDArray[np.float64]:
    """C of a plan, each column at most of norm 1, by definition.

    >>> import tacit
    >>> plan = tacit.Plan(examples=4, lot_size=1, steps=2, noise_multiplier=1, clip=1,
    ...     correlation=tacit.Anticorrelated(0.75))
    >>> strategy_of(plan).round(6).tolist()
    [[0.8, 0.0], [0.6, 0.8]]
    """
    steps, own = plan.steps, plan.correlation
    match own:
        case Banded(coefficients=tuple(given)):
            columns = _toeplitz(given, steps)
            normed: NDArray[np.float64] = columns / np.linalg.norm(columns, axis=0)
            return normed
        case InverseBanded(coefficients=tuple(given)):
            inverse: Sequence[float] = given
        case Anticorrelated(share=float(share)):
            inverse = (1.0, -share)
        case Buffered(scales=tuple(scales), decays=tuple(decays)):
            pairs = list(zip(scales, decays, strict=True))
            inverse = [1.0] + [sum(w * d**k for w, d in pairs) for k in range(steps - 1)]
        case _:
            return np.eye(steps)
    matrix = np.linalg.inv(_toeplitz(inverse, steps))
    return np.asarray(matrix / np.linalg.norm(matrix[:, 0]), dtype=np.float64)


def _toeplitz(coefficients: Sequence[float], steps: int) -> NDArray[np.float64]:
    matrix = np.zeros((steps, steps))
    for band, one in enumerate(coefficients[:steps]):
        matrix += one * np.eye(steps, k=-band)
    return matrix


def _independent(*parts: Trace) -> NDArray[np.float64]:
    """The independent noise behind runs of noise alone, one after the other: a row for a step."""
    plan = parts[0].taken().variation.plan
    rows = [part.released(at).numpy() for part in parts for at in range(len(part.steps))]
    matrix = strategy_of(plan)[: len(rows), : len(rows)]
    result: NDArray[np.float64] = matrix @ np.stack(rows) / plan.noise_scale
    return result


def uncorrelated(plan: Plan) -> Plan:
    """A plan whose noise is the independent noise behind that of ``plan``, under the same seed.

    What replays its last steps draws from another place than what does not: it takes back a share
    of nothing.
    """
    if isinstance(plan.correlation, InverseBanded | Anticorrelated):
        return replace(plan, correlation=Anticorrelated(0.0))
    return replace(plan, correlation=None, sampling=_plain(plan))


def _plain(plan: Plan) -> Sampling:
    return Poisson() if isinstance(plan.sampling, Cyclic) else plan.sampling


def exactly(experiments: Experiments) -> Finding:
    """With a seed the strategy times the noise is the independent noise, to the last step."""
    if not experiments.is_tacit:
        return Finding("noise", "strategy", True, "a seed means something to tacit only")
    plan = plans.sampled(experiments.plan, experiments.many, steps=_SEEDED_STEPS)
    own, plain = (
        experiments.once(
            name, Variation(plan=one, records=experiments.many, scale=0.0), train
        ).taken(_SEEDED_STEPS)
        for name, one, train in (
            ("seeded noise", plan, seeded_run),
            ("seeded, uncorrelated", uncorrelated(plan), seeded_without_kernels),
        )
    )
    drawn = np.stack([plain.released(at).numpy() for at in range(_SEEDED_STEPS)]) / plan.noise_scale
    off = np.abs(_independent(own) - drawn).max(1)
    worst, limit = int(off.argmax()), _ROUNDING * _SEEDED_STEPS
    return Finding(
        "noise",
        "strategy",
        bool(off.max() <= limit),
        f"with a seed the strategy times the noise is {off.max():.2g} from the independent noise "
        f"of the same seed, in step {worst + 1} of {_SEEDED_STEPS} (rounding explains {limit:.2g})",
        (("off", float(off.max())),),
    )


def law(experiments: Experiments) -> Finding:
    """Over a whole run the noise is the claimed strategy's: of its size in every step."""
    values = _independent(experiments.noise.taken(experiments.noise.variation.plan.steps))
    found = float(np.sqrt(np.square(values).mean()))
    some = values[:, columns_of(experiments)]
    p_value = significance.corrected(
        [
            significance.variance_p_value(values),
            significance.variances_p_value(values.T),
            significance.variances_p_value(values),
            significance.shape_p_value(some / np.sqrt(np.square(some).mean())),
            significance.cosines_p_value(some),
            *(significance.lag_p_value(values, lag) for lag in _LAGS),
        ]
    )
    return Finding(
        "noise",
        "correlated",
        p_value > significance.LEVEL,
        f"the strategy times the noise of {len(values)} steps is {found:.4f} of the claimed "
        f"σ·clip, and of independent entries with p = {p_value:.2g}",
        (("ratio", found), ("p-value", p_value)),
    )


def resumed(experiments: Experiments) -> Finding:
    """A resumed run goes on with the strategy, with new noise, in every resumption."""
    if not experiments.lab.subject.resumes:
        return Finding("resuming", "correlated", True, "the engine cannot resume: nothing to check")
    first = experiments.broken_off()
    parts = [experiments.resumed(), experiments.resumed_again()]
    whole = [_independent(first, part)[len(first.steps) :] for part in parts]
    together = np.concatenate(whole)
    columns = columns_of(experiments)
    before = _independent(first)[:, columns]
    p_value = significance.corrected(
        [
            significance.variance_p_value(together),
            significance.variances_p_value(together.T),
            significance.cosines_p_value(together[:, columns]),
            significance.cosines_p_value(together[:, columns], before),
        ]
    )
    ratio = float(np.sqrt(np.square(together).mean()))
    return Finding(
        "resuming",
        "correlated",
        p_value > significance.LEVEL,
        f"the strategy times the noise of both parts is {ratio:.3f} of the claimed σ·clip in the "
        f"{len(together)} steps after resuming, and new with p = {p_value:.2g}",
        (("ratio", ratio), ("p-value", p_value)),
    )


def groups(experiments: Experiments) -> Finding:
    """Each unit is in steps of one group's turns only, at the claimed rate in these."""
    return _turns("groups", [experiments.noise])


def groups_resumed(experiments: Experiments) -> Finding:
    """A resumed run has the same groups, and goes on with their turns."""
    if not experiments.lab.subject.resumes:
        return Finding("resuming", "groups", True, "the engine cannot resume: nothing to check")
    first = experiments.broken_off()
    return _turns("groups after resuming", [first, experiments.resumed()])


def _turns(check: str, parts: Sequence[Trace]) -> Finding:
    plan = parts[0].variation.plan
    # An engine may look at its first lot more than once, with others in it.
    inside = np.concatenate([membership(part) for part in parts])
    steps = np.arange(len(inside))
    seen_twice = np.cumsum([0, *(len(part.steps) for part in parts[:-1])])
    inside[seen_twice] = False
    others = np.setdiff1d(steps, seen_twice)
    by_turn = np.stack([inside[steps % plan.groups == at].sum(0) for at in range(plan.groups)])
    strayed = int((np.count_nonzero(by_turn, axis=0) > 1).sum())
    own = by_turn.argmax(0)
    drawn = by_turn.max(0) > 0
    turns = np.array([int((others % plan.groups == at).sum()) for at in range(plan.groups)])
    count, trials = int(by_turn.max(0).sum()), int(turns[own[drawn]].sum())
    sizes = np.bincount(own[drawn], minlength=plan.groups)
    dealt, share = int(drawn.sum()), 1.0 / plan.groups
    p_values = [significance.counts_p_value(int(n), dealt, share) for n in sizes]
    if isinstance(plan.sampling, Cyclic):
        p_values.append(1.0 if count == trials else 0.0)
    elif int(turns.min()) >= _FEWEST_TURNS:  # of fewer, who is never drawn has too large a part
        p_values.append(significance.counts_p_value(count, trials, plan.group_rate))
    p_value = 0.0 if strayed else significance.corrected(p_values)
    return Finding(
        "sampling",
        check,
        p_value > significance.LEVEL,
        f"of {inside.shape[1]} units {strayed} are in lots of more than one of {plan.groups} "
        f"groups; in their own group's lots units are {count} times of {trials}, and "
        f"{plan.group_rate:.3f} of them is claimed (p = {p_value:.2g})",
        (("strayed", float(strayed)), ("p-value", p_value)),
    )
