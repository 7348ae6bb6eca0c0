"""One run: what is special about it, and what it showed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from tacit.auditing.replay.setting import Records
    from tacit.auditing.replay.subject import Outcome
    from tacit.auditing.replay.watch import Read, Step
    from tacit.training.plan import Plan


AMPLE = 1e6  # the ε of a budget that no run exhausts


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Variation:
    """What is special about one run.

    Attributes:
        plan: The plan of the run.
        records: Its data.
        scale: A factor on all losses.
        factors: Factors on the losses of single units.
        still: Whether learning rates are 0, so that all steps are taken at the same parameters.
        rate: A factor on learning rates otherwise.
        batch: The most rows of a physical batch; the setting's own if None.
        ledger: The name of the ledger that the run is charged to, if it is charged.
        limit: The ε of the budget in it.
        lease: How many steps are charged in advance, or ``"auto"``.
        crash_at: The lot in which the loss raises.
        full_above: The number of rows beyond which a batch is too large for the memory.
        own: Whether the engine is given the user's own data set as it is, and its workers.
        wrapped: Whether the data set is wrapped in any case.
        rehearsed: Whether tacit rehearses its loop, as it does before every first lot.
        cut: Whether it may end before its plan does, for yet another reason.
        save, resume, stop_at, ranks: As in ``Task``.
    """

    plan: Plan
    records: Records
    scale: float = 1.0
    factors: Mapping[int, float] = field(default_factory=dict)
    still: bool = True
    rate: float = 1.0
    batch: int | None = None
    ledger: str | None = None
    limit: float = AMPLE
    lease: int | Literal["auto"] = 1
    crash_at: int | None = None
    full_above: int | None = None
    own: bool = False
    wrapped: bool = False
    rehearsed: bool = True
    cut: bool = False
    save: Path | None = None
    resume: Path | None = None
    stop_at: int | None = None
    ranks: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether every step of the plan should be taken."""
        ends = (self.crash_at, self.resume, self.stop_at)
        return not self.cut and self.limit == AMPLE and all(one is None for one in ends)

    @property
    def kind(self) -> tuple[object, ...]:
        """What decides which of an engine's lines a run may execute; many runs have the same."""
        plan, odd = self.plan, [f for f in self.factors.values() if not math.isfinite(f)]
        there = (self.ledger, self.save, self.resume, self.stop_at, self.crash_at, self.full_above)
        return (
            type(plan.sampling), type(plan.clipping), plan.noise_multiplier < 1e-3, plan.steps > 1,
            plan.lot_size < 1.0, self.scale == 0.0, bool(odd), self.batch, self.lease, self.own,
            self.wrapped, self.rehearsed, self.limit == AMPLE, self.ranks,
            *(one is None for one in there),
        )  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Account:
    """What a ledger holds when a run is over: ε and δ in all, and those of each reservation."""

    epsilon: float
    delta: float
    steps: int
    pairs: tuple[tuple[float, float], ...]


@final
@dataclass(frozen=True, eq=False)
class Trace:
    """What one run showed.

    ``start`` and ``end`` are the parameters before and after it; ``other_ranks`` the gradients that
    other ranks' optimizers were given; ``account`` what the ledger holds at the end; ``printed``
    what was written to the terminal meanwhile, and ``optimizer`` its state at the end.
    """

    variation: Variation
    steps: tuple[Step, ...]
    reads: tuple[Read, ...]
    start: Tensor
    end: Tensor
    other_ranks: tuple[tuple[Tensor, ...], ...]
    lots_begun: int
    outcome: Outcome | None
    error: Exception | None
    account: Account | None
    printed: str = ""
    optimizer: Mapping[str, Any] = field(default_factory=dict)

    @property
    def charged(self) -> int | None:
        """How many steps the ledger holds at the end."""
        return None if self.account is None else self.account.steps

    @property
    def charged_epsilon(self) -> float | None:
        """The ε that it holds."""
        return None if self.account is None else self.account.epsilon

    def taken(self, steps: int = 1) -> Trace:
        """The run itself, if it got so far.

        Raises:
            Ended: if it took fewer steps.
        """
        if len(self.steps) < steps or (self.error is not None and self.outcome is None):
            said = one_line(self.error) if self.error is not None else "no error"
            resumed = self.variation.resume is not None
            kind = "a resumed run" if resumed else "a run"
            raise Ended(
                f"{kind} ended after {len(self.steps)} of {steps} steps with {said}", resumed
            )
        return self

    def released(self, step: int = 0) -> Tensor:
        """What a step released, as a sum: the gradient times the plan's lot size."""
        return self.taken(step + 1).steps[step].gradient.double() * float(
            self.variation.plan.lot_size
        )

    @property
    def settled(self) -> list[int]:
        """The steps whose losses are those of their lot, and of nobody else.

        An engine may look at its first lot of several units more than once, with others in it.
        """
        several = (at for at in range(len(self.steps)) if len(self.units_of(at)) > 1)
        first = next(several, None)
        return [at for at in range(len(self.steps)) if at != first]

    def units_of(self, step: int) -> NDArray[np.int64]:
        """Whose losses were computed for a step; each unit once, in increasing order."""
        places = [self.reads[row].place for row in self.steps[step].rows]
        return np.unique(self.variation.records.units[places])


class Ended(Exception):
    """A run ended before what a check wants to see; ``resumed``: it went on with another."""

    def __init__(self, said: str, resumed: bool = False) -> None:
        super().__init__(said)
        self.resumed = resumed


def one_line(error: Exception) -> str:
    """An error in a line."""
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:200]
