"""An audit of a run of somebody's own model and data: its shadow models, and what they answer.

Shadow models are trained by the user's own ``prepare``, on the training examples that are not asked
about, and on a random half of those that are, members and others alike. Their plan is the run's,
for as many examples as there are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset

from tacit.errors import InvalidArgument
from tacit.recipes.auditing.audited_records import chosen_rows
from tacit.recipes.auditing.trial import answers, threads
from tacit.runs.run import seeded
from tacit.training.fit import Watch, carry_out
from tacit.training.plan import Plan
from tacit.training.sampling import FullBatch, Poisson

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import nn
    from torch.utils.data import Dataset

    from tacit.runs.results import Finished
    from tacit.training.fit import Prepared


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnTrial:
    """What all models of the audit have in common.

    Args:
        prepare: Gives model, optimizer, plan and data, a fresh model each time.
        examples: How many training examples there are.
        members: Which of them are asked about.
        others: Which held-out examples are.
        delta: The δ of the run.
        threads: How many threads a model may take; None for as many as PyTorch likes.
    """

    prepare: Callable[[], Prepared]
    examples: int
    members: NDArray[np.int64]
    others: NDArray[np.int64]
    delta: float
    threads: int | None

    @property
    def rows(self) -> NDArray[np.int64]:
        """What is asked about, with the held-out examples behind all training examples."""
        return np.concatenate([self.members, self.examples + np.arange(len(self.others))])

    @property
    def asked_members(self) -> NDArray[np.bool_]:
        """Which of ``rows`` the run was trained on."""
        return np.arange(len(self.rows)) < len(self.members)


def check_same_run(run: Finished, prepared: Prepared) -> None:
    """Refuses a model, plan or data that are not those of the run."""
    record, held_out = run.record, prepared.held_out
    if held_out is None:
        raise InvalidArgument(
            "held_out must be prepared, too: an audit compares members with held-out examples"
        )
    if prepared.groups is not None:
        raise InvalidArgument("groups must be None: an audit asks about examples, not about users")
    same = {
        "model": (record.recipe, type(prepared.model).__qualname__),
        "number of training examples": (record.data["train"], prepared.plan.examples),
        "number of held-out examples": (record.data["test"], _length(held_out)),
    }
    for name, (theirs, mine) in same.items():
        if theirs != mine:
            raise InvalidArgument(
                f"prepare must give what the run in {run.path} was given, and the {name} is "
                f"{theirs} there, got {mine}"
            )
    theirs = Plan.from_dict(run.statement.plan)
    if prepared.plan.taken_up(theirs) is None:
        raise InvalidArgument(
            f"prepare must give the plan of the run in {run.path}, got another one"
        )


def own_trial(
    prepare: Callable[[], Prepared],
    prepared: Prepared,
    records: int | None,
    seed: int,
    delta: float,
    threads: int | None,
) -> OwnTrial:
    """As many members as others, chosen at random."""
    trained = _length(prepared.dataset)
    members, others = chosen_rows(trained, _length(prepared.held_out), records, seed)
    return OwnTrial(
        prepare=prepare,
        examples=trained,
        members=members,
        others=others,
        delta=delta,
        threads=threads,
    )


def own_labels(trial: OwnTrial, prepared: Prepared) -> NDArray[np.int64]:
    """The label of each example that is asked about."""
    joined = _joined(trial, prepared)
    found = [joined[int(row)] for row in trial.rows]
    if not all(isinstance(one, list | tuple) and len(one) == 2 for one in found):
        raise InvalidArgument("an audit asks about examples that are pairs (x, y)")
    labels = np.asarray([torch.as_tensor(y).item() for _, y in found])
    if labels.dtype.kind not in "iu":
        raise InvalidArgument("labels must be whole numbers: an audit asks models that classify")
    return labels.astype(np.int64)


def own_answers(trial: OwnTrial, prepared: Prepared, model: nn.Module) -> NDArray[np.float32]:
    """The logits of ``model`` on what is asked about."""
    questions: Dataset[Any] = Subset(_joined(trial, prepared), trial.rows.tolist())
    return answers(model, replace(prepared, held_out=questions, correct=None))


def trained_like_own(trial: OwnTrial, coins: NDArray[np.bool_], seed: int) -> NDArray[np.float32]:
    """The logits of a model that was trained without those of ``rows`` whose coin is false."""
    with threads(trial.threads), seeded(seed):
        prepared = trial.prepare()
        inside = np.ones(trial.examples + len(trial.others), dtype=np.bool_)
        inside[trial.rows] = coins
        kept = np.flatnonzero(inside)
        silent = replace(
            prepared,
            dataset=Subset(_joined(trial, prepared), kept.tolist()),
            plan=_plan_for(prepared.plan, len(kept)),
            held_out=None,
            metrics={},
        )
        carry_out(silent, delta=trial.delta, watch=Watch(progress=False))
        return own_answers(trial, prepared, prepared.final)


def _plan_for(plan: Plan, examples: int) -> Plan:
    """The same plan for another number of examples; a lot of all stays one.

    A Poisson lot comes from one of the groups that take turns, and has no more than are in that.
    """
    if isinstance(plan.sampling, FullBatch):
        return replace(plan, examples=examples, lot_size=examples)
    most = examples // plan.groups if isinstance(plan.sampling, Poisson) else examples
    return replace(plan, examples=examples, lot_size=min(plan.lot_size, most))


def _joined(trial: OwnTrial, prepared: Prepared) -> ConcatDataset[Any]:
    assert prepared.held_out is not None
    return ConcatDataset([prepared.dataset, Subset(prepared.held_out, trial.others.tolist())])


def _length(dataset: Dataset[Any] | None) -> int:
    return len(dataset)  # type: ignore[arg-type]  # a map-style data set has one
