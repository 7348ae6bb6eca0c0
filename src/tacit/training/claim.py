"""What a run may claim: the ε of its plan, what that assumes, and what it does not promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch

from tacit import __version__
from tacit.accounting.serialization import as_dict
from tacit.errors import CheckpointError
from tacit.statement import Statement
from tacit.training.correlation import Banded
from tacit.training.noise import ASSUMED, IN_WORDS
from tacit.training.sampling import Allocation, Cyclic, FullBatch, Poisson, TruncatedPoisson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tacit.statement import Charge
    from tacit.training.plan import Plan

_ASSUMPTIONS = (
    "the model and the loss treat the rows of a batch independently (checked with a few records "
    "before the first step, and again now and then), and each row that the data set gives is made "
    "of one unit's data alone: no mixture of several, and no copy of another unit's",
    "the number of examples, the lot size and the number of steps are public",
    "nothing of the private data went into what the run took as public, such as first weights",
    "sampling and noise come from the operating system's entropy, and nobody sees their state; nor "
    "that of torch's, NumPy's and Python's generators, which start there too, and which all that "
    "the model and the data draw at random (dropout, augmentation) comes from",
)
_UNCOUNTED = (
    "nothing was seen of attempts that crashed or were rewound, whose steps no ledger counted and "
    "ε does not cover"
)
_KEPT_NOISE = (
    "nobody else sees a checkpoint of the unfinished run: it holds noise of its last steps, and so "
    "takes it off again"
)
_TOGETHER = (
    "{ranks} processes trained together: all hold the same data set in the same order (of which "
    "hashes were compared before the first step), and nobody listens to what they send each other, "
    "which are sums without noise and the key of sampling and noise"
)
_IN_PUBLIC = (
    "what changed the weights in dp.public(), beside the steps of the plan, is public or was "
    "released by these: nobody has checked that, and nothing of it is counted"
)
_SEEDED = "a fixed seed was used for sampling and noise: THIS VOIDS THE GUARANTEE"
_THREAT_MODEL = (
    "the claim holds against whoever sees the result of every single step, and so against whoever "
    "sees the final model alone; they may know the code, the plan and all other data, and have any "
    "amount of time. It does not hold against whoever sees into the computer while it trains"
)
_RELEASES = (
    "the parameters after the last step; those after every other step are covered too, and so is "
    "whatever is made of them alone or with public data, such as their average",
)
_LOTS = "who is in a lot is drawn with cryptographic bits that the operating system keys; "
_RANDOMNESS = {
    "fast": f"{_LOTS}noise is drawn in floating point by a statistical generator (Philox on the "
    "CPU, the device's own elsewhere) that is keyed once from there: no proof against somebody "
    "who breaks that generator, or who reads the lowest bits of floating-point noise (Mironov "
    "2012), as noise='secure' is",
    "secure": f"{_LOTS}so is noise, on a grid and without rounding errors, so that no low bit of a "
    "parameter tells anything; sums of clipped gradients are floating-point ones",
    "exact": f"{_LOTS}so is noise, on a grid and without rounding errors; gradients are rounded to "
    "the grid and added up as integers, so that nothing depends on floating-point sums",
}
_NOT_PROMISED = (
    "anything about choices made with the same data outside of this plan, such as hyper-parameters",
    "anything that was printed or saved of the training data itself, such as losses",
    "anything about how long a step takes, which depends on the data and on the noise",
    "anything about held-out examples, on which accuracy may have been measured",
    "that nothing can be inferred about a person from what the data say about everybody",
)


@final
@dataclass(slots=True)
class Run:
    """What a claim must say of a run beside its plan: it is kept in its checkpoints."""

    last_step: int
    unsafe: bool  # a fixed seed was used, now or before
    in_public: bool = False  # dp.public() was used, now or before

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"last_step": self.last_step, "unsafe": self.unsafe, "in_public": self.in_public}

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Takes up the run of a checkpoint."""
        if type(state_dict["unsafe"]) is not bool:
            raise CheckpointError("the checkpoint does not say whether a fixed seed was used")
        self.last_step = state_dict["last_step"]  # which check_steps let pass
        self.unsafe = self.unsafe or state_dict["unsafe"]
        self.in_public = self.in_public or bool(state_dict.get("in_public"))


def check_steps(taken: int, last: object, plan: Plan, path: object) -> int:
    """``last``, the last step; refuses a checkpoint whose steps are those of no run of ``plan``."""
    if type(last) is not int or not 1 <= last <= plan.steps:
        raise CheckpointError(
            f"the checkpoint {path} is of no run of this plan: its last step is {last!r:.40}, and "
            f"the plan has {plan.steps}"
        )
    if taken > last:
        raise CheckpointError(
            f"the checkpoint {path} is of no run of this plan: it says that {taken} of {last} "
            "steps were taken"
        )
    return last


def epsilon(plan: Plan, steps: int, delta: float) -> float:
    """ε of the plan's first ``steps`` steps."""
    from tacit.accounting import epsilon as epsilon_of  # noqa: PLC0415 - SciPy only when asked

    return epsilon_of(plan.event_after(steps), delta, adjacency=plan.adjacency)


def statement(
    plan: Plan,
    delta: float,
    steps_taken: int,
    run: Run,
    *,
    lost: int,
    ledger: str | None,
    charge: Charge | None = None,
    ranks: int = 1,
) -> Statement:
    """The claim for a run that took ``steps_taken`` steps and was to end at ``run.last_step``.

    Guarantee:
        A run that ended before its last step is charged to that: when to stop may have depended on
        what had been released. So are ``lost`` steps, which attempts took whose results are gone.
    """
    event = plan.event_after(run.last_step)
    assumptions: tuple[str, ...] = (*_ASSUMPTIONS, ASSUMED[plan.noise])
    if plan.correlation is not None:
        assumptions = (*assumptions, _KEPT_NOISE)
    if ranks > 1:
        assumptions = (*assumptions, _TOGETHER.format(ranks=ranks))
    if run.in_public:
        assumptions = (*assumptions, _IN_PUBLIC)
    if ledger is None:
        assumptions = (*assumptions, _UNCOUNTED)
    return Statement(
        epsilon=epsilon(plan, run.last_step, delta),
        delta=delta,
        adjacency=plan.adjacency,
        unit=plan.unit,
        event=as_dict(event),
        plan=plan.as_dict(),
        steps_planned=plan.steps,
        steps_taken=steps_taken,
        steps_lost=lost,
        stopped_early=_early(plan, steps_taken, run.last_step, lost),
        sampling=_sampling(plan),
        noise=_noise(plan),
        assumptions=(*assumptions, _SEEDED) if run.unsafe else assumptions,
        not_promised=_NOT_PROMISED,
        tacit_version=__version__,
        torch_version=torch.__version__,
        ledger=ledger,
        charge=charge,
        void=run.unsafe,
        threat_model=_THREAT_MODEL,
        releases=_RELEASES,
        randomness=_RANDOMNESS[plan.noise],
    )


def _sampling(plan: Plan) -> str:
    """How the sampler draws lots, which is what the plan's event says of them."""
    each = (
        f"Poisson: each of {plan.examples:,} {plan.unit}s joins each lot by itself, with "
        f"probability {plan.sample_rate:.10g}"
    )
    match plan.sampling:
        case FullBatch():
            return f"FullBatch: every lot is all {plan.examples:,} {plan.unit}s"
        case TruncatedPoisson(largest):
            return f"Truncated{each}; of more than {largest:,} that many are kept, at random"
        case Allocation():
            return (
                f"Allocation: each of {plan.examples:,} {plan.unit}s is in exactly one of the "
                f"{plan.steps_per_epoch:,} lots of every epoch, each equally likely, independently "
                "of all others and of all other epochs; lots are not shuffled batches"
            )
        case Cyclic():
            return (
                f"Cyclic: each of {plan.examples:,} {plan.unit}s was dealt into one of "
                f"{plan.groups} groups at random, and the groups are the lots, whole and in turn"
            )
        case Poisson() if plan.groups > 1:
            return (
                f"CyclicPoisson: each of {plan.examples:,} {plan.unit}s was dealt into one of "
                f"{plan.groups} groups at random; the groups take turns, and each of a group's "
                f"{plan.unit}s joins its lot by itself, with probability {plan.group_rate:.10g}"
            )
        case Poisson():
            return f"{each}; lots are not shuffled batches"


def _noise(plan: Plan) -> str:
    """How noise is drawn, and how it is correlated over the steps."""
    if plan.correlation is None:
        return IN_WORDS[plan.noise]
    how = type(plan.correlation).__name__
    if isinstance(plan.correlation, Banded):
        how = f"{how}, {plan.correlation.bands} bands"
    return (
        f"{IN_WORDS[plan.noise]}; correlated over the steps ({how}, with the coefficients of the "
        "plan), which takes back some of earlier steps' noise"
    )


def _early(plan: Plan, steps_taken: int, last_step: int, lost: int) -> str | None:
    """Why the event is right although fewer steps than planned led to what is released."""
    if steps_taken == plan.steps:
        return None
    if last_step < plan.steps:
        early = f"the end after {last_step} steps was fixed in advance, and these are charged"
    else:
        early = "the whole plan is charged, since the moment to stop was not fixed in advance"
    if lost:
        early += f"; {lost} of the steps were charged to attempts that crashed or were rewound"
    return early
