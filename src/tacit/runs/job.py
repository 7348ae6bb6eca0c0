"""One run while it goes: what it releases, in order, and what may be claimed at its end.

A run with a plan reserves all of it, releases what its outline counts, and fits. A recipe without a
plan is given the job itself: it declares what it will release, releases it, and concludes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, final

from tacit.errors import BudgetExceeded, InvalidArgument, ProtocolError
from tacit.runs import claims
from tacit.runs.account import RunAccount
from tacit.runs.interruption import Interrupted, Interruption
from tacit.runs.kept import History, Kept, check_name, shared_release
from tacit.runs.results import Trained
from tacit.statement import extended
from tacit.training.distributed.sharded import is_sharded, whole
from tacit.training.fit import Keeping, Watch, carry_out, check_trainable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import torch
    from torch import nn

    from tacit.accounting.events import Adjacency, Event
    from tacit.data import Split
    from tacit.ledger import Budget
    from tacit.mechanisms import Released
    from tacit.runs.recipe import Outline, Task
    from tacit.statement import DataDependent, Statement
    from tacit.training.distributed.world import World
    from tacit.training.fit import Prepared
    from tacit.training.plan import Plan
    from tacit.training.progress import EpochRecord, StepRecord


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerms:
    """What a run is called, what it may spend, and how its settings were found."""

    name: str
    epsilon: float
    delta: float
    tuning: str


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Surroundings:
    """Where a run keeps and charges what it does, and who looks on."""

    kept: Kept
    account: RunAccount
    stop: Interruption
    progress: bool | None = None
    on_epoch: Callable[[EpochRecord], None] | None = None
    on_step: Callable[[StepRecord], None] | None = None
    on_secret_loss: Callable[[float], None] | None = None


def nowhere(stop: Interruption | None = None) -> Surroundings:
    """Keeps nothing, charges nobody, shows nothing."""
    return Surroundings(
        kept=Kept(), account=RunAccount(None, ""), stop=stop or Interruption(), progress=False
    )


class _Gradual(Protocol):
    """What was released bit by bit, and what it is charged as."""

    @property
    def event(self) -> Event:
        """What was charged."""
        ...

    @property
    def complete(self) -> bool:
        """Whether it came to its end, and was not stopped."""
        ...


Gradual = TypeVar("Gradual", bound=_Gradual)


@final
class Job:
    """One run; made by ``tacit.recipes.run`` and ``tacit.fit``.

    Guarantee:
        What ``fit`` or ``conclude`` return gives away of the private data what the statement says,
        if they are read through ``release`` and ``fit`` only (and row by row otherwise), and
        ``epsilon`` at ``delta`` covers all of it.
    """

    def __init__(self, terms: RunTerms, around: Surroundings, task: Task | None = None) -> None:
        self._terms, self._around, self._task = terms, around, task
        self._kept, self._account, self._stop = around.kept, around.account, around.stop
        self._plan: Plan | None = None
        self._due: list[Event] = []
        self._released: dict[str, tuple[str, Event]] = {}

    # ---- what a recipe without a plan is given

    @property
    def task(self) -> Task:
        """Settings, data, device and seed."""
        if self._task is None:
            raise ProtocolError("a run of your own model has no recipe's settings and data")
        return self._task

    @property
    def world(self) -> World:
        """The processes that carry the run out together."""
        return self._kept.world

    @property
    def settings(self) -> Any:
        """The recipe's settings."""
        return self.task.settings

    @property
    def data(self) -> Split:
        """The data; ``data.train`` is private, ``data.test`` is held out."""
        return self.task.data

    @property
    def device(self) -> torch.device:
        """Where to compute."""
        return self.task.device

    @property
    def seed(self) -> int | None:
        """For the first weights only; sampling and noise are never seeded."""
        return self.task.seed

    @property
    def epsilon(self) -> float:
        """The ε that the run may spend in all."""
        return self._terms.epsilon

    @property
    def delta(self) -> float:
        """Its δ."""
        return self._terms.delta

    @property
    def budget(self) -> Budget | None:
        """The budget that the run is charged to; for a recipe that makes no plan."""
        budget = self._account.budget
        if self._plan is None and budget is not None:
            budget.check_protects("example")
        return budget

    @property
    def adjacency(self) -> Adjacency:
        """Which data sets are neighbours: as the budget has it; for a recipe that makes no plan."""
        budget = self.budget
        return "add-remove" if budget is None else budget.adjacency

    @property
    def label(self) -> str:
        """What a ledger knows the run by."""
        return self._account.label

    @property
    def progress(self) -> bool | None:
        """Whether to show progress, as in ``tacit.fit``."""
        return self._around.progress

    # ---- before training

    def reserve(self, outline: Outline) -> Plan:
        """The plan to go by. With a budget, all that the outline has is charged by now."""
        if self._plan is not None or self._released:
            raise ProtocolError("a plan comes once, before anything is released")
        found = self._kept.same_plan(self._account.plan_for(outline))
        self._begin()  # first: a charge must find its run again
        self._account.reserve(found, outline.also)
        self._plan, self._due = found, list(outline.also)
        return found

    def release(
        self, name: str, mechanism: Callable[[Budget | None], Released[Any]], *, what: str
    ) -> Any:
        """Runs ``mechanism`` once, and gives its value: from the run's folder if it is resumed.

        Its arguments are those of ``tacit.runs.recipe.Releasing``.

        Guarantee:
            Its event is one of those that the outline has, each of which is used once; or the run
            has no plan, and ``conclude`` counts it.
        """
        check_name(name)
        if name in self._released:
            raise ProtocolError(f"{name!r} is released already; each release has its own name")
        world = self._kept.world
        kept = self._kept.released(name)
        if world.any(f"whether {name} was released", kept is not None):
            value, event = shared_release(world, name, lambda: kept or _missing(name))
            self._take_due(name, event)
        else:

            def release() -> tuple[Any, Event]:
                result = self._run_mechanism(name, mechanism)
                self._take_due(name, result.event)
                self._kept.keep_released(name, result, what)
                return result.value, result.event

            with self._stop.deferred():
                value, event = shared_release(world, name, release)
                if not world.leads:
                    self._take_due(name, event)
            self._stop_if_asked()
        self._released[name] = (what, event)
        return value

    def declare(self, *events: Event) -> None:
        """Begins a run without a plan: all that it is going to release, in order.

        All of them are declared to a budget that wants its plans beforehand.
        """
        if self._plan is not None or self._released:
            raise ProtocolError("job.declare() comes before anything is released, without a plan")
        if not self._kept.resumed:  # what a run was charged before does not count twice
            self._account.check_room(events)
        self._begin()  # first: a charge must find its run again
        self._account.declare(events)

    def private(self, name: str) -> Path | None:
        """A place for what the run needs to go on and nobody may see; it is gone at the end.

        None if the run keeps nothing.
        """
        self._begin()
        return self._kept.secret(name)

    def begun(self, name: str) -> bool:
        """Whether anything was released under ``name`` before the run was interrupted."""
        journal = self._kept.journal(check_name(name))
        bit_by_bit = journal is not None and journal.exists()
        return bit_by_bit or self._kept.released(name) is not None

    def gradually(
        self,
        name: str,
        releases: Callable[[Budget | None, Path | None, Callable[[], bool]], Gradual],
        *,
        what: str,
    ) -> Gradual:
        """Runs what releases bit by bit and keeps a journal of its own, from which it goes on.

        Args:
            name: A short name, in lower case.
            releases: Called with the budget to charge, the journal's place and a function that
                says when to stop; either may be None.
            what: What is released, in words for the statement.
        """
        check_name(name)
        if name in self._released:
            raise ProtocolError(f"{name!r} is released already; each release has its own name")
        self._begin()
        with self._stop.deferred():
            done = releases(self.budget, self._kept.journal(name), self._stop)
        if not done.complete:
            raise Interrupted(f"stopped at the {name}", resumable=self._kept.resumable)
        self._released[name] = (what, done.event)
        return done

    def _run_mechanism(
        self, name: str, mechanism: Callable[[Budget | None], Released[Any]]
    ) -> Released[Any]:
        budget = self.budget
        self._begin()
        try:
            result = mechanism(budget)
        except BudgetExceeded as error:
            if not self._kept.resumed:
                raise
            raise BudgetExceeded(
                f"{name} cannot be released: it was charged before the run was interrupted, and "
                f"its value is lost; start a new run with another budget ({error})"
            ) from None
        if budget is not None and result.entry is None:
            raise ProtocolError(f"the mechanism of {name!r} must be given the budget to charge")
        return result

    def _take_due(self, name: str, event: Event) -> None:
        if self._plan is None:
            return
        if event not in self._due:
            raise ProtocolError(
                f"{name!r} has the event {event!r}, which the plan did not count; give it to "
                "task.plan(also=...)"
            )
        self._due.remove(event)

    # ---- training

    def fit(self, prepared: Prepared) -> Trained:
        """Trains by the reserved plan, with the run's checkpoint, budget and δ.

        The model of the result has the averaged weights if there is an average. The statement
        counts what was released before.
        """
        if self._plan is None or prepared.plan != self._plan:
            raise ProtocolError("prepare must train by the plan that it is given")
        check_trainable(prepared)
        self._stop_if_asked()
        self._begin()
        history = History()
        save, resume = self._kept.checkpoints()
        with self._stop.deferred():
            done = carry_out(
                prepared, delta=self.delta, budget=self._account.reservation,
                keeping=Keeping(save=save, resume=resume,
                                state={"history": history}, note=history.append),
                watch=Watch(progress=self.progress, on_epoch=partial(self._saw, history),
                            on_step=self._around.on_step,
                            on_secret_loss=self._around.on_secret_loss, stop=self._stop),
                also=claims.together(self._released),
            )  # fmt: skip
        if done.stopped:
            raise self._interrupted(done.statement)
        right = _accuracy(prepared, history.records, done.statement)
        return self._trained(
            prepared.final, history.records, done.statement, right, prepared.notes,
            public=prepared.public,
        )  # fmt: skip

    def conclude(
        self,
        model: nn.Module | Mapping[str, Any],
        *,
        accuracy: float,
        sampling: str,
        noise: str,
        event: Event | None = None,
        what: str = "",
        assumptions: Sequence[str] = (),
        notes: Sequence[str] = (),
        releases: Sequence[str] = (),
        not_promised: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
        data_dependent: DataDependent | None = None,
    ) -> Trained:
        """The result of a recipe without a plan: a model that was itself released.

        Args:
            model: The model, or its arrays by name.
            accuracy: Its accuracy on held-out data.
            sampling: How records were sampled, in words.
            noise: Which noise was added, in words.
            event: What training released, if it did not come through ``release``.
            what: What that is, in words.
            assumptions: What must hold for the claim.
            notes: What else a reader should know.
            releases: What is released, in words; left out, the model and its accuracy.
            not_promised: What a reader might take the claim to say and it does not.
            files: Other files that are released with the model, by name.
            data_dependent: An ε that depends on the data, released with noise.
        """
        if self._plan is not None:
            raise ProtocolError("job.conclude() is for recipes without a plan")
        if event is not None:
            self._released["training"] = (what, event)
        counted = claims.together(self._released)
        if counted is None:
            raise InvalidArgument("event must say what training released, got None")
        statement = claims.plain(
            counted, self.epsilon, self.delta, adjacency=self.adjacency, sampling=sampling,
            noise=noise, assumptions=tuple(assumptions), ledger=self._account.describe(),
            charge=self._account.charge(),
            releases=tuple(releases), not_promised=tuple(not_promised),
        )  # fmt: skip
        statement = extended(statement, data_dependent=data_dependent)
        return replace(self._trained(model, (), statement, accuracy, notes), files=files or {})

    def _trained(
        self,
        model: nn.Module | Mapping[str, Any],
        records: Sequence[Any],
        statement: Statement,
        right: float | None,
        notes: Sequence[str],
        *,
        public: Sequence[str] = (),
    ) -> Trained:
        whole = claims.whole_run(
            statement,
            public=tuple(public),
            preprocessing=tuple(self._released.values()) if self._plan is not None else (),
            tuning=self._terms.tuning,
            configuration=self._kept.configuration,
        )
        if whole.epsilon > self.epsilon * (1.0 + 1e-9):
            raise ProtocolError(
                f"the run {self._terms.name!r} spent epsilon={whole.epsilon:.6g} of "
                f"{self.epsilon:g}: it released more than it planned"
            )
        return Trained(
            model=_in_one_piece(model),
            history=tuple(records),
            statement=whole,
            accuracy=None if right is None else float(right),
            notes=tuple(notes),
        )

    def _saw(self, history: History, record: EpochRecord) -> None:
        """An epoch is saved: whoever watches the folder may see it, in public numbers."""
        self._kept.show(history.records)
        if self._around.on_epoch is not None:
            self._around.on_epoch(record)

    # ---- beginning and stopping

    def _begin(self) -> None:
        self._kept.begin(self._account.place)

    def _stop_if_asked(self) -> None:
        if self._kept.world.any("whether to stop", self._stop()):
            raise Interrupted("stopped before training began", resumable=self._kept.resumable)

    def _interrupted(self, statement: Statement) -> Interrupted:
        where = f"stopped after step {statement.steps_taken:,} of {statement.steps_planned:,}"
        return Interrupted(where, resumable=self._kept.resumable)


def _missing(name: str) -> NoReturn:
    raise ProtocolError(f"rank 0 has not {name}, which another rank has; its folder is the run's")


def _in_one_piece(model: nn.Module | Mapping[str, Any]) -> nn.Module | Mapping[str, Any]:
    """The model, or its tensors if they are spread over processes; all of them gather."""
    if isinstance(model, Mapping) or not any(map(is_sharded, model.parameters())):
        return model
    gathered: Mapping[str, Any] = whole(dict(model.state_dict()))
    return gathered


def _accuracy(
    prepared: Prepared, records: Sequence[EpochRecord], statement: Statement
) -> float | None:
    """The final model's, if there are held-out data: the last epoch's, or measured now."""
    if records and records[-1].steps == statement.steps_taken:
        return records[-1].held_out_accuracy
    return prepared.accuracy(prepared.final)
