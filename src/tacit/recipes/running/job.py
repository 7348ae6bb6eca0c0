"""What a recipe is given: its settings and data, and the ways to touch that data.

A recipe's ``train(job)`` plans first, then releases what it needs of the private data, then fits:

    def train(job: Job) -> Trained:
        settings, data = job.settings, job.data
        rows = features(data.train.inputs)                     # of one image each: free
        plan = job.plan(
            examples=len(rows), lot_size=settings.lot, epochs=settings.epochs,
            clip=settings.clip, also=(Gaussian(settings.mean_noise),),
        )
        mean = job.release(
            "mean",
            lambda budget: gaussian(
                rows.sum(0), sensitivity=1.0, noise_multiplier=settings.mean_noise, budget=budget
            ),
            what="the sum of all feature vectors, each of norm 1",
        )
        model = torch.nn.Linear(rows.shape[1], 10).to(job.device)
        return job.fit(
            model, train_set, plan, optimizer=torch.optim.SGD(model.parameters(), settings.lr),
            held_out=test_set,
        )

The same ``train`` serves a run that is resumed: ``release`` then gives the value that was released
before, and ``fit`` goes on from its checkpoint. So between these calls everything must be computed
anew from settings, data and seed alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, final

from tacit.errors import BudgetExceeded, InvalidArgument, ProtocolError
from tacit.recipes.running import claims
from tacit.recipes.running.interruption import Interrupted
from tacit.recipes.running.keeping import History, check_name
from tacit.recipes.running.lesson import Lesson
from tacit.recipes.running.trained import Trained
from tacit.statement import extended
from tacit.training.averaging import averaged
from tacit.training.fitting import fit
from tacit.training.judging import accuracy
from tacit.training.plan import Plan
from tacit.training.styles import Flat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import torch
    from torch import nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from torch.optim.swa_utils import AveragedModel
    from torch.utils.data import Dataset

    from tacit.accounting.events import Adjacency, Event
    from tacit.data import Split
    from tacit.ledger import Budget
    from tacit.mechanisms import Released
    from tacit.recipes.recipe import Recipe
    from tacit.recipes.running.account import Account
    from tacit.recipes.running.interruption import Interruption
    from tacit.recipes.running.keeping import Keeper
    from tacit.statement import DataDependent, Statement
    from tacit.training.judging import RowWise
    from tacit.training.loaders import Collate
    from tacit.training.performance import Performance
    from tacit.training.plan import Noise
    from tacit.training.sampling import Sampling
    from tacit.training.styles import Style

_FLAT = Flat()


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
    """One run of a recipe; made by ``tacit.recipes.run``.

    Attributes:
        settings: The recipe's settings.
        epsilon: The ε that the run may spend in all.
        delta: Its δ.
        data: The data; ``data.train`` is private, ``data.test`` is held out.
        device: Where to compute.
        seed: For the first weights only; they are set by it already. Sampling and noise never are.

    An audit gives ``watch``, which sees what is about to be learned, and may change it.

    Guarantee:
        What ``fit`` or ``conclude`` return tells of the private data what the statement says, if
        ``train`` reads them through ``release`` and ``fit`` only (and row by row otherwise), and
        ``epsilon`` at ``delta`` covers all of it.
    """

    def __init__(
        self,
        recipe: Recipe,
        settings: Any,
        data: Split,
        *,
        epsilon: float,
        delta: float,
        device: torch.device,
        seed: int | None,
        keeper: Keeper,
        account: Account,
        stop: Interruption,
        progress: bool | None,
        watch: Callable[[Lesson], Lesson] | None = None,
    ) -> None:
        self.recipe, self.settings, self.data = recipe, settings, data
        self._watch = watch
        self.epsilon, self.delta, self.device, self.seed = epsilon, delta, device, seed
        self._keeper, self._account, self._stop, self._progress = keeper, account, stop, progress
        self._plan: Plan | None = None
        self._due: list[Event] = []
        self._released: dict[str, tuple[str, Event]] = {}

    @property
    def budget(self) -> Budget | None:
        """The budget that the run is charged to; for a recipe that makes no plan."""
        return self._account.budget

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
        return self._progress

    # ---- before training

    def plan(
        self,
        *,
        examples: int,
        lot_size: float,
        epochs: float | None = None,
        steps: int | None = None,
        clip: float | None = None,
        also: Sequence[Event] = (),
        views: int = 1,
        clipping: Style = _FLAT,
        sampling: Sampling | None = None,
        noise: Noise = "fast",
    ) -> Plan:
        """The plan with the least noise that, together with ``also``, keeps within the run's ε.

        ``also`` are the events that ``release`` is going to release, one each. With a budget, all
        of them and the plan are charged before this returns, and nothing is released before.
        """
        if self._plan is not None or self._released:
            raise ProtocolError("job.plan() comes once, before anything is released")
        from tacit.accounting import Composed  # noqa: PLC0415 - SciPy comes with the plan, too

        found = Plan.for_budget(
            epsilon=self.epsilon, delta=self.delta, examples=examples, lot_size=lot_size,
            epochs=epochs, steps=steps, clip=clip, views=views, clipping=clipping,
            sampling=sampling, noise=noise, also=Composed(*also) if also else None,
        )  # fmt: skip
        found = self._keeper.same_plan(found, also)
        self._keeper.begin(self._account.place)  # first: a charge must find its run again
        self._account.reserve(found, also)
        self._plan, self._due = found, list(also)
        return found

    def release(
        self, name: str, mechanism: Callable[[Budget | None], Released[Any]], *, what: str
    ) -> Any:
        """Runs ``mechanism`` once, and gives its value: from the run's folder if it is resumed.

        Args:
            name: A short name for the value, in lower case; the folder keeps it under that.
            mechanism: Called with the budget that it must charge, or None.
            what: What is released, in words for the statement.

        Guarantee:
            Its event is one of those that the plan counted, each of which is used once; or the run
            has no plan, and ``conclude`` counts it.
        """
        check_name(name)
        if name in self._released:
            raise ProtocolError(f"{name!r} is released already; each release has its own name")
        kept = self._keeper.released(name)
        if kept is None:
            with self._stop.deferred():
                result = self._run_mechanism(name, mechanism)
                self._take_due(name, result.event)
                self._keeper.keep_released(name, result, what)
            self._stop_if_asked()
            value, event = result.value, result.event
        else:
            value, event = kept
            self._take_due(name, event)
        self._released[name] = (what, event)
        return value

    def declare(self, *events: Event) -> None:
        """Begins a run without a plan: all that it is going to release, in order.

        A budget that wants its plans beforehand is told all of them.
        """
        if self._plan is not None or self._released:
            raise ProtocolError("job.declare() comes before anything is released, without a plan")
        if not self._keeper.resumed:  # what a run was charged before does not count twice
            self._account.check_room(events)
        self._keeper.begin(self._account.place)  # first: a charge must find its run again
        self._account.declare(events)

    def private(self, name: str) -> Path | None:
        """A place for what the run needs to go on and nobody may see; it is gone at the end.

        None if the run keeps nothing.
        """
        self._keeper.begin(self._account.place)
        return self._keeper.private(name)

    def begun(self, name: str) -> bool:
        """Whether anything was released under ``name`` before the run was cut off."""
        journal = self._keeper.journal(check_name(name))
        bit_by_bit = journal is not None and journal.exists()
        return bit_by_bit or self._keeper.released(name) is not None

    def gradually(
        self,
        name: str,
        releases: Callable[[Budget | None, Path | None, Callable[[], bool]], Gradual],
        *,
        what: str,
    ) -> Gradual:
        """Runs what releases bit by bit and keeps a journal of its own; it goes on if it was cut.

        Args:
            name: A short name, in lower case.
            releases: Called with the budget to charge, the journal's place and a function that
                says when to stop; either may be None.
            what: What is released, in words for the statement.
        """
        check_name(name)
        if name in self._released:
            raise ProtocolError(f"{name!r} is released already; each release has its own name")
        self._keeper.begin(self._account.place)
        with self._stop.deferred():
            done = releases(self.budget, self._keeper.journal(name), self._stop)
        if not done.complete:
            raise Interrupted(f"stopped at the {name}", resumable=self._keeper.kept)
        self._released[name] = (what, done.event)
        return done

    def _run_mechanism(
        self, name: str, mechanism: Callable[[Budget | None], Released[Any]]
    ) -> Released[Any]:
        budget = self.budget
        self._keeper.begin(self._account.place)
        try:
            result = mechanism(budget)
        except BudgetExceeded as error:
            if not self._keeper.resumed:
                raise
            raise BudgetExceeded(
                f"{name} cannot be released: it was charged before the run was cut off, and its "
                f"value is lost; start anew with another budget ({error})"
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
                "job.plan(also=...)"
            )
        self._due.remove(event)

    # ---- training

    def fit(
        self,
        model: nn.Module,
        dataset: Dataset[Any],
        plan: Plan,
        *,
        optimizer: Optimizer | Sequence[Optimizer],
        held_out: Dataset[Any],
        loss: RowWise | None = None,
        correct: RowWise | None = None,
        scheduler: LRScheduler | None = None,
        average: AveragedModel | None = None,
        average_from: int = 0,
        performance: Performance | None = None,
        collate: Collate | None = None,
        notes: Sequence[str] = (),
    ) -> Trained:
        """``tacit.fit`` with this run's checkpoint, budget, progress and δ.

        The model of the result has the averaged weights if there is an average. The statement
        counts what was released before.
        """
        if self._plan is None or plan != self._plan:
            raise ProtocolError("job.fit() must be given the plan that job.plan() made")
        self._stop_if_asked()
        self._keeper.begin(self._account.place)
        history = History()
        lesson = Lesson(
            model=model if average is None else average.module, dataset=dataset, loss=loss,
            held_out=held_out, correct=correct, collate=collate,
        )  # fmt: skip
        if self._watch is not None:
            lesson = self._watch(lesson)
        with self._stop.deferred():
            done = fit(
                model, lesson.dataset, plan, optimizer=optimizer, delta=self.delta,
                loss=lesson.loss, held_out=lesson.held_out, correct=correct, scheduler=scheduler,
                state={"history": history}, save=self._keeper.checkpoint,
                resume=self._keeper.resumable_checkpoint(), budget=self._account.reservation,
                collate=lesson.collate, performance=performance, progress=self._progress,
                average=average, average_from=average_from, stop=self._stop,
                also=claims.together(self._released), on_epoch=history.append,
            )  # fmt: skip
        if done.stopped:
            raise self._interrupted(done.statement)
        final = average.module if average is not None and averaged(average) else model
        records = history.records
        right = records[-1].held_out_accuracy if records else None
        if right is None or records[-1].steps != done.statement.steps_taken:
            right = accuracy(final, held_out, correct=correct, collate=collate)
        self._keeper.judge(final, dataset, correct, collate)
        return self._trained(final, records, done.statement, right, notes)

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
            data_dependent: An ε that depends on the data, told with noise.
        """
        if self._plan is not None:
            raise ProtocolError("job.conclude() is for recipes without a plan; use job.fit()")
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
        right: float,
        notes: Sequence[str],
    ) -> Trained:
        whole = claims.whole_run(
            statement,
            preprocessing=tuple(self._released.values()) if self._plan is not None else (),
            tuning=self.recipe.tuning,
            configuration=self._keeper.configuration,
        )
        if whole.epsilon > self.epsilon * (1.0 + 1e-9):
            raise ProtocolError(
                f"the recipe {self.recipe.name!r} spent epsilon={whole.epsilon:.6g} of "
                f"{self.epsilon:g}: it released more than it planned"
            )
        return Trained(
            model=model,
            history=tuple(records),
            statement=whole,
            accuracy=float(right),
            notes=tuple(notes),
        )

    # ---- stopping

    def _stop_if_asked(self) -> None:
        if self._stop():
            raise Interrupted("stopped before training began", resumable=self._keeper.kept)

    def _interrupted(self, statement: Statement) -> Interrupted:
        where = f"stopped after step {statement.steps_taken:,} of {statement.steps_planned:,}"
        return Interrupted(where, resumable=self._keeper.kept)
