"""A recipe as data: what it trains on, its settings, its plan, and how its model is prepared.

A recipe that trains a network is two functions of a ``Task``: ``outline`` says what the run will
release, and ``prepare`` makes the model and its data:

    def outline(task: Task) -> Outline:
        chosen = task.settings
        return task.plan(
            lot=chosen.lot, epochs=chosen.epochs, clip=chosen.clip,
            also=(Gaussian(chosen.mean_noise),),
        )

    def prepare(task: Task, plan: Plan, release: Releasing) -> Prepared:
        rows = features(task.data.train.inputs)                # of one image each: free
        mean = release(
            "mean",
            lambda budget: gaussian(
                rows.sum(0), sensitivity=1.0, noise_multiplier=task.settings.mean_noise,
                budget=budget,
            ),
            what="the sum of all feature vectors, each of norm 1",
        )
        model = torch.nn.Linear(rows.shape[1], 10).to(task.device)
        return Prepared(
            model=model, optimizer=torch.optim.SGD(model.parameters(), task.settings.lr),
            plan=plan, dataset=centred(rows, mean), held_out=test_set,
        )

Both serve a run that is resumed, a search and an audit as well: ``release`` then gives the value
that was released before. So everything must follow from settings, data and seed alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, final

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from tacit.accounting.events import Event
    from tacit.data import Split
    from tacit.ledger import Budget
    from tacit.mechanisms import Released
    from tacit.runs.job import Job
    from tacit.runs.results import Trained
    from tacit.training.correlation import Correlation
    from tacit.training.fit import Prepared
    from tacit.training.plan import Plan


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A published result to compare with.

    Args:
        epsilon: The ε that it claims, at δ = 1e-5 unless ``source`` says otherwise.
        accuracy: The test accuracy, in per cent.
        source: Who published it, and where in the paper.
        shortcuts: What it did that the recipe does not, such as shuffling where it accounts for
            Poisson sampling.
    """

    epsilon: float
    accuracy: float
    source: str
    shortcuts: str


class Releasing(Protocol):
    """Releases something of the private data before training, once."""

    def __call__(
        self, name: str, mechanism: Callable[[Budget | None], Released[Any]], *, what: str
    ) -> Any:
        """The value that ``mechanism`` gives, or gave before the run was interrupted.

        Args:
            name: A short name for the value, in lower case; the folder keeps it under that.
            mechanism: Called with the budget that it must charge, or None. Its event must be one of
                those that the outline counts.
            what: What is released, in words for the statement.
        """
        ...


@final
@dataclass(frozen=True, slots=True)
class Outline:
    """All that a run will release: what ``also`` says, then the steps of the plan."""

    plan: Plan
    also: tuple[Event, ...] = ()

    @property
    def event(self) -> Event:
        """All of it, as one event."""
        from tacit.accounting import Composed  # noqa: PLC0415 - SciPy only where it is asked

        return Composed(*self.also, self.plan.event) if self.also else self.plan.event


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """What a recipe is given.

    Args:
        settings: The recipe's settings.
        data: The data; ``data.train`` is private, ``data.test`` is held out.
        epsilon: The ε that the run may spend in all.
        delta: Its δ.
        device: Where to compute.
        seed: For the first weights only; they are set by it already. Sampling and noise never are.
    """

    settings: Any
    data: Split
    epsilon: float
    delta: float
    device: torch.device
    seed: int | None = None

    def plan(
        self,
        *,
        lot: float,
        clip: float,
        epochs: float | None = None,
        steps: int | None = None,
        views: int = 1,
        correlation: Correlation | None = None,
        also: Sequence[Event] = (),
    ) -> Outline:
        """The plan with the least noise that, together with ``also``, keeps within the run's ε.

        ``also`` are the events that ``prepare`` is going to release, one each.
        """
        from tacit.accounting import Composed  # noqa: PLC0415 - SciPy comes with the plan, too
        from tacit.training.plan import Plan  # noqa: PLC0415

        examples = len(self.data.train)
        if lot > examples:
            raise InvalidArgument(
                f"lot must be at most the {examples:,} training examples, got {lot:,}; take a "
                "smaller one"
            )
        found = Plan.for_budget(
            epsilon=self.epsilon, delta=self.delta, examples=examples, lot_size=lot,
            epochs=epochs, steps=steps, clip=clip, views=views, correlation=correlation,
            also=Composed(*also) if also else None,
        )  # fmt: skip
        return Outline(found, tuple(also))


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recipe:
    """A named experiment: one that trains a network by a plan, or one that releases by itself.

    Args:
        name: What it is called, in lower case with hyphens.
        summary: What it does, in one line.
        data: The data set, by its name in ``tacit.data``.
        settings: The default settings for an ε: a frozen dataclass whose fields are numbers,
            texts, truth values or one of ``Literal``.
        outline: What a run will release, by its plan, and
        prepare: the model and the data that the plan trains it on.
        train: In their place, for a recipe without a plan: releases through the job's methods.
        kind: Whether ``tacit train`` or ``tacit transfer`` runs it.
        anchors: What was published.
        tuning: How the default settings were found, in words, for the statement: what is not
            charged must be said.
    """

    name: str
    summary: str
    data: str
    settings: Callable[[float], Any]
    outline: Callable[[Task], Outline] | None = None
    prepare: Callable[[Task, Plan, Releasing], Prepared] | None = None
    train: Callable[[Job], Trained] | None = None
    kind: Literal["recipe", "transfer"] = "recipe"
    anchors: tuple[Anchor, ...] = ()
    tuning: str

    def __post_init__(self) -> None:
        by_plan = (self.outline is not None, self.prepare is not None)
        if by_plan not in ((True, True), (False, False)) or by_plan[0] == (self.train is not None):
            raise InvalidArgument(
                f"the recipe {self.name!r} must have outline and prepare, or train instead"
            )


def free(name: str, mechanism: Callable[[Budget | None], Released[Any]], *, what: str) -> Any:
    """Releases and charges nobody: for models that are never released, as an audit's."""
    del name, what
    return mechanism(None).value
