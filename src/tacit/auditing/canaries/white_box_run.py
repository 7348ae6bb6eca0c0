"""``white_box``: trains a model with canaries beside its data, and scores these."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import torch
from torch import nn
from torch.utils.data import default_collate

from tacit._validation import open_probability, whole
from tacit.auditing.canaries.canary_dataset import (
    AxisDirections,
    CanaryCollate,
    CanaryDataset,
    SpreadDirections,
    canary_loss,
)
from tacit.auditing.canaries.white_box_result import WhiteBoxResult
from tacit.data.units import unit_numbers
from tacit.errors import InvalidArgument
from tacit.training.evaluation import default_loss
from tacit.training.preflight import private_parameters
from tacit.training.sampling import FullBatch, TruncatedPoisson
from tacit.training.session import private
from tacit.training.styles import AdaptiveQuantile, Automatic, Flat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor
    from torch.optim import Optimizer
    from torch.utils.data import Dataset

    from tacit.auditing.canaries.canary_dataset import Directions
    from tacit.training.evaluation import RowWise
    from tacit.training.loaders import Collate
    from tacit.training.performance import Performance
    from tacit.training.plan import Plan


def white_box(
    model: nn.Module,
    dataset: Dataset[Any],
    plan: Plan,
    *,
    optimizer: Optimizer | Sequence[Optimizer],
    delta: float,
    loss: RowWise | None = None,
    canaries: int = 5000,
    directions: Literal["axes", "spread"] = "axes",
    out: Literal["absent", "opposite"] = "absent",
    groups: Sequence[int] | NDArray[np.int64] | None = None,
    collate: Collate | None = None,
    performance: Performance | None = None,
    seed: int | None = None,
    on_step: Callable[[int], None] | None = None,
) -> WhiteBoxResult:
    """Trains ``model`` with ``tacit.private`` and canaries beside its data, and scores these.

    The canaries come on top of the data set, and the lot grows with them, so that rate, steps,
    noise and clip are those of ``plan``, and so is its ε. Each is in by a fair coin; one that is
    out contributes nothing (under replace-one, the opposite), while it is still sampled. This is
    the attack that the accountant assumes: the record's gradient is at the clip, in a direction
    that is its own and known to the attacker, who sees every released gradient.

    Args:
        model: What is trained, in place, as ``tacit.fit`` would. The audit uses it up.
        dataset: The data it is trained on; ``plan.examples`` of them.
        plan: What is audited; ``AdaptiveQuantile`` clipping is refused.
        optimizer: Over the model's parameters, or several.
        delta: The δ of the claim and of the bounds.
        loss: As in ``tacit.fit``.
        canaries: How many; the bounds' distance from the truth falls with their square root.
        directions: ``"axes"``: of a vector of the canaries' own, exactly orthogonal; for ``Flat``
            and ``Automatic`` clipping. ``"spread"``: random ones among the model's parameters,
            which must be many more than the canaries; it looks at the noise on all of them.
        out: What a canary that is out contributes. ``"absent"``: nothing (under replace-one, the
            opposite). ``"opposite"``: under add-remove and with full batches, the opposite too. The
            two cases are then two changes apart, and group privacy says what that means for one:
            Gaussian scores find ε with half the error; ``one_run_audit`` finds less of a large ε.
        groups: The user of each example, as in ``tacit.private``; each canary is a user more.
        collate: As in ``tacit.private``.
        performance: As in ``tacit.private``.
        seed: Of the coins and directions; left out, they are drawn afresh. Sampling and noise
            are always the engine's own.
        on_step: Called after each step with the number of steps taken.

    Returns:
        What was found, to be judged (``WhiteBoxResult.verdict``). The run is charged to no budget:
        throw the model away, or count the run. Scores on axes say nothing of the data set; spread
        ones are a release by the plan.

    >>> import tacit, torch
    >>> data = torch.utils.data.TensorDataset(torch.randn(50, 3), torch.randint(2, (50,)))
    >>> model = torch.nn.Linear(3, 2)
    >>> plan = tacit.Plan(examples=50, lot_size=50, steps=4, noise_multiplier=2.0, clip=1.0)
    >>> found = white_box(
    ...     model, data, plan, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), delta=1e-5,
    ...     canaries=1000,
    ... )
    >>> len(found.scores), round(found.claimed, 2), found.verdict().claimed == found.claimed
    (1000, 4.38, True)
    """
    count, failed = whole("canaries", canaries, at_least=2), open_probability("delta", delta)
    _check_examples(dataset, plan, groups)
    audited = plan_with_canaries(plan, count)
    coins = np.random.default_rng(seed).random(count) < 0.5
    changes = _changes(out, plan)
    other = -1.0 if plan.adjacency == "replace-one" or changes == 2 else 0.0
    optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else [*optimizer]
    chosen = _directions(directions, model, optimizers, audited, count, seed)
    scorer = CanaryScorer(chosen, audited, count)
    losses = canary_loss(loss or default_loss, model, chosen, audited)
    reading = optimizers[0].register_step_pre_hook(scorer.note)
    try:
        with private(
            model,
            [*optimizers, *chosen.optimizers()],
            audited,
            CanaryDataset(dataset, np.where(coins, 1.0, other).astype(np.float32)),
            groups=_users(groups, count),
            performance=performance,
            collate=CanaryCollate(collate or default_collate),
        ) as dp:
            for lot in dp.lots():
                dp.accumulate(lot, losses)
                dp.step()
                if on_step is not None:
                    on_step(dp.steps_taken)
    finally:
        reading.remove()
    return WhiteBoxResult(
        audited, failed, audited.epsilon(failed), coins, scorer.scores.numpy(),
        scorer.totals.numpy(), changes,
    )  # fmt: skip


def plan_with_canaries(plan: Plan, canaries: int) -> Plan:
    """The plan for as many records more, at the same rate.

    >>> from tacit import Plan
    >>> plan = Plan(examples=60, lot_size=6, steps=9, noise_multiplier=2.0, clip=1.0)
    >>> plan_with_canaries(plan, 40).lot_size
    10
    """
    examples = plan.examples + canaries
    grown = examples / plan.examples
    match plan.sampling:
        case FullBatch():
            return replace(plan, examples=examples, lot_size=examples)
        case TruncatedPoisson(largest):
            most = TruncatedPoisson(math.ceil(grown * largest))
            return replace(
                plan, examples=examples, lot_size=plan.sample_rate * examples, sampling=most
            )
        case _:
            return replace(plan, examples=examples, lot_size=plan.sample_rate * examples)


def _directions(
    kind: str,
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    plan: Plan,
    canaries: int,
    seed: int | None,
) -> Directions:
    if isinstance(plan.clipping, AdaptiveQuantile):
        raise InvalidArgument(
            "plan.clipping must have one clip for all steps, got AdaptiveQuantile; audit the plan "
            "with Flat()"
        )
    if plan.correlation is not None:
        raise InvalidArgument(
            "plan.correlation must be None: these canaries are distinguished by independent noise, "
            f"got {type(plan.correlation).__name__}"
        )
    parameters = private_parameters(model, optimizers)
    if kind == "spread":
        return SpreadDirections(canaries, parameters, plan, seed)
    if kind != "axes":
        raise InvalidArgument(f"directions must be 'axes' or 'spread', got {kind!r}")
    if not isinstance(plan.clipping, Flat | Automatic):
        raise InvalidArgument(
            f"directions='axes' bring one more layer, which {plan.clipping!r} would give a bound "
            "of its own; take directions='spread'"
        )
    return AxisDirections(canaries, next(iter(parameters.values())).device)


def _changes(out: str, plan: Plan) -> int:
    """How many records' changes a canary's two cases are apart."""
    if out == "absent":
        return 1
    if out != "opposite":
        raise InvalidArgument(f"out must be 'absent' or 'opposite', got {out!r}")
    if plan.adjacency == "replace-one" or plan.sample_rate < 1.0:
        raise InvalidArgument(
            "out='opposite' is for add-remove and full batches, got a plan with "
            f"{plan.adjacency} and sample_rate={plan.sample_rate:g}; leave it out"
        )
    return 2


def _check_examples(dataset: Dataset[Any], plan: Plan, groups: object) -> None:
    if groups is None and len(dataset) != plan.examples:  # type: ignore[arg-type]
        raise InvalidArgument(
            f"the plan is for examples={plan.examples}, but the data set has {len(dataset)}"  # type: ignore[arg-type]
        )


def _users(
    groups: Sequence[int] | NDArray[np.int64] | None, canaries: int
) -> NDArray[np.int64] | None:
    """The users, with one more for each canary."""
    if groups is None:
        return None
    users, count = unit_numbers(groups)
    return np.concatenate([users, count + np.arange(canaries)])


# ---- scores of canaries, read off the gradients that a run releases


@final
class CanaryScorer:
    """Adds up, over the steps, what the released gradients say of each canary.

    It sees what the optimizers see: the noisy mean gradient. ``totals`` adds up the coordinate
    along a canary's direction, in clips. ``scores`` adds up the logarithms of the ratio of a step's
    densities, with the canary and without it, under the plan: the best score there is for a run by
    this plan. For full batches it is a multiple of the total, plus a constant.
    """

    def __init__(self, directions: Directions, plan: Plan, canaries: int) -> None:
        self._directions, self._plan = directions, plan
        self.totals = torch.zeros(canaries, dtype=torch.float64)
        self.scores = torch.zeros(canaries, dtype=torch.float64)

    def note(self, *_: object) -> None:
        """Reads a step's gradient, as a hook before an optimizer's step."""
        in_clips = self._plan.lot_size / self._plan.clip
        moved = self._directions.released().double().cpu() * in_clips
        self.totals += moved
        self.scores += log_ratio(moved, self._plan)


def log_ratio(moved: Tensor, plan: Plan) -> Tensor:
    """The logarithm of the densities' ratio at ``moved``: with the canary and without.

    (1-q)·N(0, σ²) + q·N(1, σ²) over N(0, σ²). Under replace-one a canary that is out was replaced
    by its opposite: q·N(-1, σ²) is below the line.
    """
    out = math.log1p(-plan.sample_rate) if plan.sample_rate < 1.0 else -math.inf
    apart, within = torch.tensor(out, dtype=torch.float64), math.log(plan.sample_rate)
    squares = plan.noise_multiplier**2

    def density(place: float) -> Tensor:
        return torch.logaddexp(apart, within + (place * moved - 0.5) / squares)

    return density(1.0) - density(-1.0) if plan.adjacency == "replace-one" else density(1.0)
