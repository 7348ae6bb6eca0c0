"""The state of a run: what goes on from step to step beside the weights, over checkpoints too."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from tacit.errors import CheckpointError, InvalidArgument, ProtocolError
from tacit.training import charging, claim
from tacit.training.checkpoint import read, restore
from tacit.training.sampling import Allocation

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from torch import nn
    from torch.optim import Optimizer

    from tacit.randomness.correlated import NoiseMemory
    from tacit.training.charging import FollowedCharges, StepCharges
    from tacit.training.checkpoint import Checkpoint, Stateful
    from tacit.training.noise import ClipState
    from tacit.training.plan import Plan
    from tacit.training.sampling import Groups, RunningEpoch

_RUN, _EPOCH, _NOISE, _GROUPS = "tacit run", "tacit epoch", "tacit noise", "tacit groups"


@final
@dataclass(slots=True)
class RunState:
    """Where a run is, and what its next step depends on beside the weights.

    Guarantee:
        A run that goes on neither takes a step that its ledger has not granted, nor uses again what
        a lost step may have shown: a group's turn, a lot of an epoch, a column of noise.
    """

    plan: Plan
    run: claim.Run
    charges: StepCharges | FollowedCharges
    clip: ClipState
    epoch: RunningEpoch
    memory: NoiseMemory | None  # of correlated noise, which goes on where it was
    groups: Groups | None  # that take turns, the same in a whole run
    resumed: bool  # the groups are known to be those of all steps before
    steps_taken: int = 0

    @property
    def position(self) -> int:
        """The step of the plan that comes next: of the next lot's turn, and of its noise."""
        return self.steps_taken + self.charges.lost

    @property
    def _is_over(self) -> bool:
        return self.position >= self.run.last_step

    def begin(self) -> None:
        """Takes up the charges, and the noise where the next lot is.

        Raises:
            CheckpointError: if there are steps to come, and their groups are missing.
            ProtocolError: if steps were lost and nobody knows which groups took those turns.
        """
        self.charges.begin(self.plan, self.run.last_step, self.steps_taken)
        self._leave_broken_epoch()
        lost = self.charges.lost
        if self.groups is not None and lost and not self.resumed:
            raise ProtocolError(
                f"{lost} steps were lost and no checkpoint says which groups of records "
                "took their turns: a run with groups goes on from a checkpoint; or reserve again"
            )
        if self.groups is not None and not self.groups.needed and not self._is_over:
            raise CheckpointError("the checkpoint does not hold the groups of its run")
        self.resumed = True
        self.follow()

    def follow(self) -> None:
        """Takes correlated noise to the next step; it is there, unless a release has failed.

        A step that is counted has used up its turn and its column. Where its noise could not be
        drawn, that of the next one starts afresh behind it: columns that fall behind the turns of
        the groups would let a record come again before its bands are over.
        """
        if self.memory is not None:
            self.memory.begin(self.position)

    def _leave_broken_epoch(self) -> None:
        """Charges the rest of an epoch of ``Allocation`` of which steps were lost, and leaves it.

        Its lots may have been released already. To release them again, with other noise, is no
        step of that epoch: the next lot is the first of another one.
        """
        lost = self.charges.lost
        if isinstance(self.plan.sampling, Allocation) and lost != self.epoch.lost:
            self.charges.forgo(-(self.steps_taken + lost) % self.plan.steps_per_epoch)
            self.epoch.drop()
            self.epoch.lost = self.charges.lost

    # ---- over checkpoints

    def state(self) -> dict[str, Stateful]:
        """What a checkpoint keeps of it, beside the number of steps taken."""
        self.follow()  # a release that failed has left noise which no step needs
        own: dict[str, Stateful] = {_RUN: self.run}
        if isinstance(self.plan.sampling, Allocation):
            if self._is_over:
                self.epoch.drop()  # none of its lots is to come
            own[_EPOCH] = self.epoch
        if self.memory is not None:
            own[_NOISE] = self.memory
        if self.groups is not None:
            self.groups.needed = not self._is_over
            own[_GROUPS] = self.groups
        return {**own, **self.clip.state(), **self.charges.state()}

    def resume(
        self,
        path: str | os.PathLike[str],
        *,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        state: Mapping[str, Stateful],
        stop_after: int | None,
        budget: object,
        leads: bool,
    ) -> None:
        """Takes up the checkpoint at ``path``, with the weights and whatever else it holds.

        ``budget`` is the one that the run goes on with; of several processes only the one that
        ``leads`` has it.
        """
        checkpoint = read(path)
        if checkpoint.plan_json != self.plan.to_json():
            raise InvalidArgument(
                f"the checkpoint {path} belongs to another plan; resume with the plan it was "
                "started with"
            )
        if leads:
            held = checkpoint.state.get(charging.STATE)
            charging.check_resumable(None if held is None else held.values, budget, path)
        else:
            others = {n: one for n, one in checkpoint.state.items() if n != charging.STATE}
            checkpoint = replace(checkpoint, state=others)
        last = self._last_step(checkpoint, stop_after, path)
        if self.memory is not None:
            self.memory.steps = last
        restore(checkpoint, model=model, optimizers=optimizers, state={**state, **self.state()})
        self.steps_taken = checkpoint.steps_taken

    def _last_step(self, checkpoint: Checkpoint, stop_after: int | None, path: object) -> int:
        """The last step of the run that ``checkpoint`` is of, which was fixed before its first."""
        run = checkpoint.state.get(_RUN)
        last = None if run is None else run.values.get("last_step")
        fixed = claim.check_steps(checkpoint.steps_taken, last, self.plan, path)
        if stop_after is not None and fixed != stop_after:
            raise InvalidArgument(
                f"stop_after={stop_after} was not fixed before the first step: the checkpoint "
                f"{path} is of a run to step {fixed}; leave stop_after out"
            )
        return fixed
