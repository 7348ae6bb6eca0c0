"""A private search of settings: the winner's model, at a price that covers the choice.

``search`` is for one's own model and data, ``searched`` for a recipe's.

The number of runs is drawn at random, and only the winner is released (``tacit.selection``). Where
all candidates have one kind of plan, which learning rates and clips do not change, the noise is
found for the search as a whole, exactly; otherwise each run is allowed an (ε₀, δ₀), which costs
more.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import torch

from tacit import _files
from tacit._validation import check_delta, positive, probability
from tacit.accounting import DiscreteLaplace
from tacit.errors import CheckpointError, Diverged, InvalidArgument, ProtocolError
from tacit.runs import claims
from tacit.runs import record as records
from tacit.runs.folder import SEARCH
from tacit.runs.interruption import Interrupted, Interruption
from tacit.runs.job import Job, RunTerms, nowhere
from tacit.runs.kept import epochs
from tacit.runs.recipe import Outline
from tacit.runs.results import Trained
from tacit.runs.run import kept_run, seeded, trained
from tacit.runs.settings import as_dict, changed, check_names, names
from tacit.selection import PrivateScore, PublicScore, private_search
from tacit.statement import Statement, extended, rounded_up
from tacit.training.distributed.world import launched
from tacit.training.evaluation import counted, judges_rows
from tacit.training.fingerprint import new_key, tags
from tacit.training.fit import Prepared, averaged, check_trainable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from torch import nn

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget
    from tacit.runs.job import Surroundings
    from tacit.runs.recipe import Recipe, Task
    from tacit.runs.record import RunRecord
    from tacit.runs.run import Place
    from tacit.selection import Allowance, Winner
    from tacit.training.plan import Plan

ScoreName = Literal["held-out", "training"]

_LARGEST = 1 << 20  # bytes of a file
_FIELDS = ("runs", "score", "score_epsilon", "candidates")
_HARMLESS = frozenset({"lr", "clip"})  # settings that do not change what a plan releases


# ---- what to search


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A private search of settings.

    Args:
        candidates: The values to try of each setting; all combinations are candidates.
        runs: How many runs there are on average; their number is drawn at random.
        score: ``"held-out"``: accuracy on the held-out examples, which costs nothing; or
            ``"training"``: accuracy on the training examples, with noise, which is charged.
        score_epsilon: The ε of one such noisy score.
    """

    candidates: Mapping[str, tuple[Any, ...]]
    runs: float | None = None
    score: ScoreName = "held-out"
    score_epsilon: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The search in JSON's types."""
        return {
            "candidates": {name: list(values) for name, values in self.candidates.items()},
            "runs": self.runs,
            "score": self.score,
            "score_epsilon": self.score_epsilon,
        }

    @property
    def count(self) -> int:
        """How many candidates there are."""
        number = 1
        for values in self.candidates.values():
            number *= len(values)
        return number


def read_search(path: Path, settings: Any) -> Search:
    """The search that a TOML file describes, each value of its setting's type."""
    try:
        plain = tomllib.loads(_files.read(path, most=_LARGEST).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{path} is no TOML file that can be read: {error}") from None
    try:
        return search_from(plain, settings)
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error}") from None


def search_from(plain: Mapping[str, Any], settings: Any) -> Search:
    """A search from its plain form; what it leaves out has its default."""
    for name in plain:
        if name not in _FIELDS:
            raise InvalidArgument(f"a search has {', '.join(_FIELDS)}, got {name!r}")
    score = plain.get("score", "held-out")
    if score not in ("held-out", "training"):
        raise InvalidArgument(f"score must be 'held-out' or 'training', got {score!r}")
    given = plain.get("score_epsilon")
    if (given is not None) != (score == "training"):
        raise InvalidArgument(
            f"score_epsilon goes with score = 'training', and only with it, got {given!r}"
        )
    runs = plain.get("runs")
    return Search(
        candidates=_candidates(plain.get("candidates"), settings),
        runs=None if runs is None else positive("runs", runs),
        score=score,
        score_epsilon=None if given is None else positive("score_epsilon", given),
    )


def _candidates(plain: Any, settings: Any) -> dict[str, tuple[Any, ...]]:
    if not isinstance(plain, dict) or not plain:
        raise InvalidArgument(
            f"candidates must list values of settings, as [candidates] lr = [0.5, 1], got {plain!r}"
        )
    check_names(plain, names(settings))
    found: dict[str, tuple[Any, ...]] = {}
    for name, values in plain.items():
        if not isinstance(values, list) or not values:
            raise InvalidArgument(f"{name} must be a list of values to try, got {values!r}")
        found[name] = tuple(getattr(changed(settings, {name: one}), name) for one in values)
        if name == "lr":  # a run that refuses its rate would end the search after it was charged
            found[name] = tuple(positive("lr", one) for one in found[name])
    return found


# ---- one's own model and data


def search(
    prepare: Callable[[dict[str, Any]], Prepared],
    candidates: Mapping[str, Sequence[Any]],
    *,
    epsilon: float,
    delta: float,
    runs: float | None = None,
    budget: Budget | None = None,
    label: str = "private search",
    folder: str | os.PathLike[str] | None = None,
) -> Winner:
    """Trains your own model with settings drawn at random, and keeps the best by held-out data.

    Args:
        prepare: ``prepare(settings)`` returns model, optimizer, plan, data and held-out data for
            one choice of settings, with a fresh model each time. The data must be the same for
            all, and so must the plan but for its clip: its noise is found here, whatever it says.
        candidates: The values to try of each setting; all combinations are candidates. They must
            not depend on the private data.
        epsilon: The ε of the whole search.
        delta: Its δ.
        runs: How many runs there are on average; left out, the number of candidates. Their number
            is drawn at random.
        budget: Charged once, for the whole search, before the first run.
        label: A name for the ledger's entry.
        folder: A folder for the search's journal, from which it goes on if it was interrupted. It
            is secret, and nothing in it is run.

    Returns:
        The winner: ``candidate`` is its settings, ``model`` its trained model, ``score`` its
        held-out accuracy, and ``statement()`` what may be claimed of all three together.

    Guarantee:
        The result is (ε, δ)-differentially private, as ``tacit.selection.private_search`` has it,
        if held-out data are independent of the private ones. Each run trains by its plan with the
        noise that was found for the search as a whole, and from weights that no other run of this
        call has trained, or is refused.

    >>> import tacit, torch
    >>> x = torch.randn(300, 4)
    >>> data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
    >>> train, test = (torch.utils.data.Subset(data, r) for r in (range(200), range(200, 300)))
    >>> def prepare(settings):
    ...     model = torch.nn.Linear(4, 2)
    ...     plan = tacit.Plan(
    ...         examples=200, lot_size=200, steps=10, noise_multiplier=1.0, clip=settings["clip"],
    ...         sampling=tacit.training.FullBatch(),
    ...     )
    ...     optimizer = torch.optim.SGD(model.parameters(), lr=settings["lr"])
    ...     return tacit.Prepared(
    ...         model=model, optimizer=optimizer, plan=plan, dataset=train, held_out=test
    ...     )
    >>> won = tacit.search(
    ...     prepare, {"lr": [0.1, 0.5], "clip": [0.5, 1.0]}, epsilon=3, delta=1e-4, runs=2
    ... )
    >>> sorted(won.candidate), round(won.statement().epsilon, 3), type(won.model).__name__
    (['clip', 'lr'], 3.0, 'Linear')
    """
    plan = _common_plan(prepare, candidates)
    failure = check_delta(delta, plan.examples, plan.unit)
    if budget is not None:
        budget.check_protects(plan.unit, plan.adjacency)

    beginnings = _Beginnings()

    def train(candidate: dict[str, Any], allowance: Allowance) -> Trained:
        prepared = prepare(candidate)
        terms = RunTerms(
            name=type(prepared.model).__qualname__, epsilon=allowance.epsilon,
            delta=allowance.delta, tuning="covered by the search that this run belongs to",
        )  # fmt: skip
        job = Job(terms, nowhere())
        chosen = job.reserve(_with_noise(Outline(prepared.plan), allowance))
        with beginnings.of_a_run(prepared):
            return job.fit(replace(prepared, plan=chosen))

    found = private_search(
        train, candidates, epsilon, failure, score=PublicScore(_held_out),
        event=lambda noise: replace(plan, noise_multiplier=noise).event, runs=runs,
        adjacency=plan.adjacency, budget=budget, label=label, folder=folder,
        models=TrainedModels(),
    )  # fmt: skip
    _check_won(found)
    return replace(
        found, model=_in_module(found.model, prepare(found.candidate)), unit=plan.unit,
        own=found.model.statement,
    )  # fmt: skip


_NOT_FRESH = (
    "prepare must make a fresh model each time, got weights that another run {has}, and what that "
    "one learned would not be counted; make or copy the model, and tensors that it is made of "
    "(from_pretrained), within prepare"
)


@final
class _Beginnings:
    """The weights that runs begin with: none may be another run's result.

    Weights are known by their values, whatever brought them along: each that was trained got noise.
    """

    def __init__(self) -> None:
        self._key = new_key()
        self._trained: set[bytes] = set()

    @contextmanager
    def of_a_run(self, prepared: Prepared) -> Iterator[None]:
        """Goes around the training of one run."""
        before = self._tags(prepared)
        if averaged(prepared.schedule.average) or not self._trained.isdisjoint(before.values()):
            raise InvalidArgument(_NOT_FRESH.format(has="has trained"))
        try:
            yield
        finally:
            after = self._tags(prepared)
            self._trained.update(tag for name, tag in after.items() if tag != before[name])

    def _tags(self, prepared: Prepared) -> dict[str, bytes]:
        return tags({str(at): one for at, one in enumerate(_trainable(prepared))}, self._key)


def _trainable(prepared: Prepared) -> list[torch.Tensor]:
    """What a run's optimizers train."""
    given = prepared.optimizer
    optimizers = (given,) if isinstance(given, torch.optim.Optimizer) else tuple(given)
    held = [p for one in optimizers for group in one.param_groups for p in group["params"]]
    return [one for one in held if one.requires_grad and one.numel()]


def _check_apart(one: Prepared, other: Prepared) -> None:
    """Refuses two runs that would train the same memory, before anything is charged."""
    ours, theirs = ({p.untyped_storage()._cdata for p in _trainable(each)} for each in (one, other))
    if not ours.isdisjoint(theirs):
        raise InvalidArgument(_NOT_FRESH.format(has="trains"))


def _check_won(found: Winner) -> None:
    if found.candidate is None:
        raise Diverged(
            "every run of the search ended with weights that are not finite, and what was charged "
            "stands; search smaller learning rates in another folder"
        )


def _common_plan(
    prepare: Callable[[dict[str, Any]], Prepared], candidates: Mapping[str, Sequence[Any]]
) -> Plan:
    """The plan of the first candidate, if those of the others release the same."""
    if not isinstance(candidates, Mapping) or not candidates:
        raise InvalidArgument(
            f"candidates must list values of settings, as {{'lr': [0.5, 1]}}, got {candidates!r}"
        )
    plans = []
    before: Prepared | None = None
    every = [dict(zip(candidates, values, strict=True)) for values in product(*candidates.values())]
    for chosen in every if len(every) > 1 else 2 * every:
        prepared = prepare(chosen)
        if not isinstance(prepared, Prepared):
            raise InvalidArgument(
                f"prepare must return a tacit.Prepared for {chosen}, got a "
                f"{type(prepared).__name__}"
            )
        check_trainable(prepared)
        if prepared.held_out is None:
            raise InvalidArgument(
                "prepare must return held-out data, by which the best run is found, got None"
            )
        if not prepared.judges(prepared.model):
            raise InvalidArgument(
                "prepare must return correct=f, for f(model, batch) that is true for each row that "
                "is right: the best run is found by accuracy, not by metrics"
            )
        if before is not None:
            _check_apart(before, prepared)
        before = prepared
        plans.append(replace(prepared.plan, noise_multiplier=1.0))
        if _released_by(plans[-1]) != _released_by(plans[0]):
            raise InvalidArgument(
                f"prepare must return plans that differ in clip and noise only, got another one "
                f"for {chosen}; use tacit.selection.private_search to vary lots or steps"
            )
    if not plans:
        raise InvalidArgument("candidates must list at least one value of each setting, got none")
    return plans[0]


def _released_by(plan: Plan) -> tuple[Event, str, str]:
    return plan.event, plan.unit, plan.adjacency


def _in_module(trained: Trained, prepared: Prepared) -> nn.Module:
    """The trained model; a journal gives its weights only."""
    if not isinstance(trained.model, Mapping):
        return trained.model
    module = prepared.released
    module.load_state_dict(dict(trained.model))
    return module


# ---- searching, in a folder


def searched(recipe: Recipe, task: Task, search: Search, place: Place) -> Trained:
    """Searches settings privately; the whole search is (ε, δ)-private, its winner is kept."""
    check_delta(task.delta, len(task.data.train), "example")
    assert place.folder is not None
    record = records.of_recipe(
        recipe, task, command=place.command, search=search.as_dict(),
        folder=None if place.looked_in is None else str(place.looked_in),
    )  # fmt: skip

    def train(around: Surroundings) -> Trained:
        kept, account = around.kept, around.account
        kept.begin(account.place)
        assert kept.folder is not None
        searching = Searching(recipe, task, search, place.stop)
        try:
            found = searching.run(account.budget, account.label, kept.folder.inner(SEARCH))
        except Interrupted:  # what a run of the search left is in the journal
            raise Interrupted("stopped during the search", resumable=True) from None
        _check_won(found)
        settings = changed(task.settings, found.candidate)
        kept.choose(as_dict(settings), found.model.statement.plan)
        return _winner(found, search, kept.record)

    if launched(os.environ):
        raise InvalidArgument(
            "a search has one process, whose candidates are trained one after the other; start it "
            "without torchrun"
        )
    return kept_run(f"recipe {recipe.name}", record, place, train, device=task.device)


def _winner(found: Winner, search: Search, record: RunRecord) -> Trained:
    """The winner's model; every figure of ε is that of the whole search."""
    inner: Trained = found.model
    chosen = ", ".join(f"{name}={value}" for name, value in found.candidate.items())
    statement = extended(
        found.statement(),
        releases=("the winner's model", "its settings", "its accuracy on held-out data"),
        tuning=(
            f"covered for {', '.join(search.candidates)}: a private search chose among "
            f"{search.count} candidates, at a cost of ε = {rounded_up(found.tuning_cost, 4)} which "
            f"is part of the whole; not covered for the others: {record.tuning}"
        ),
        versions=claims.versions(),
        configuration=record.configuration,
    )
    notes = [f"the search chose {chosen}"]
    if search.score == "held-out":
        notes.append(
            "the winner was chosen by its accuracy on the held-out examples, which therefore "
            "flatters it a little"
        )
    return Trained(
        model=inner.model,
        history=tuple(replace(one, epsilon=found.epsilon) for one in inner.history),
        statement=statement,
        accuracy=inner.accuracy,
        notes=(*inner.notes, *notes),
    )


# ---- the runs of a search


@final
class Searching:
    """The runs of one search, each of which keeps nothing."""

    def __init__(self, recipe: Recipe, task: Task, search: Search, stop: Interruption) -> None:
        self._recipe, self._task, self._search, self._stop = recipe, task, search, stop
        self._scores: dict[int, float] = {}

    def run(self, budget: Budget | None, label: str, folder: Path) -> Winner:
        """Searches, or goes on with the one whose journal ``folder`` holds.

        What a run protects is its plan's to say, so that a budget for others is refused.
        """
        unit, adjacency = self._protected()
        self._check_score(unit)
        if budget is not None:
            budget.check_protects(unit, adjacency)
        found = private_search(
            self._train,
            self._search.candidates,
            self._task.epsilon,
            self._task.delta,
            score=self._score(),
            event=self._family(),
            runs=self._search.runs,
            adjacency=adjacency,
            budget=budget,
            label=label,
            folder=folder,
            models=TrainedModels(),
        )
        own = None if found.model is None else found.model.statement
        return replace(found, unit=unit, own=own)

    def _protected(self) -> tuple[str, Adjacency]:
        """Whom every run protects, and which data sets are its neighbours."""
        outline = self._recipe.outline
        if outline is None:
            return "example", "add-remove"  # that of a job without a budget
        plans = [outline(self._of(one)).plan for one in self._asked()]
        found = {(plan.unit, plan.adjacency) for plan in plans}
        if len(found) > 1:
            raise InvalidArgument(
                f"candidates must protect the same unit under one adjacency, got {sorted(found)}"
            )
        return found.pop()

    def _check_score(self, unit: str) -> None:
        """Refuses to count right examples where they are not what is protected."""
        recipe = self._recipe
        if self._search.score_epsilon is None:
            return
        if recipe.outline is None or recipe.prepare is None:
            raise InvalidArgument(
                f"score = 'training' needs a recipe that fits a plan, and {recipe.name} "
                "does not; take score = 'held-out'"
            )
        if unit != "example":
            raise InvalidArgument(
                f"score = 'training' counts examples, and the plan protects each {unit}, who may "
                "have many; take score = 'held-out'"
            )

    def _score(self) -> PublicScore | PrivateScore:
        if self._search.score_epsilon is None:
            return PublicScore(_held_out)
        scale = 1.0 / self._search.score_epsilon
        # One record changes the count of right ones by at most 1, whatever its neighbour is.
        event = DiscreteLaplace(scale, sensitivity=1, replace_distance=1.0)
        return PrivateScore(lambda trained: self._scores.pop(id(trained)), event)

    def _train(self, candidate: Mapping[str, Any], allowance: Allowance) -> Trained:
        recipe, task = self._recipe, self._of(candidate)
        if allowance.noise is None:
            task = replace(task, epsilon=allowance.epsilon, delta=allowance.delta)
        # Else the noise was found with what outlines of the whole ε release before training.
        terms = RunTerms(
            name=recipe.name, epsilon=allowance.epsilon, delta=allowance.delta, tuning=recipe.tuning
        )
        job = Job(terms, nowhere(self._stop), task)
        with seeded(task.seed):
            if recipe.outline is None or recipe.prepare is None:
                return trained(recipe, task, job)
            plan = job.reserve(_with_noise(recipe.outline(task), allowance))
            prepared = recipe.prepare(task, plan, job.release)
            if self._search.score_epsilon is not None:
                check_rows(prepared)
            done = job.fit(prepared)
        if self._search.score_epsilon is not None:
            self._scores = {id(done): _noisy_score(prepared, self._search.score_epsilon)}
        return done

    def _of(self, candidate: Mapping[str, Any]) -> Task:
        return replace(self._task, settings=changed(self._task.settings, candidate))

    # ---- one family of events for all candidates

    def _family(self) -> Callable[[float], Event] | None:
        """From noise to what a run releases, if that is the same for all candidates."""
        outline = self._recipe.outline
        if outline is None:
            return None
        first, *others = (outline(self._of(one)) for one in self._asked())
        alike = all(_noised(one, 1.0).event == _noised(first, 1.0).event for one in others)
        return (lambda noise: _noised(first, noise).event) if alike else None

    def _asked(self) -> Sequence[dict[str, Any]]:
        """The candidates whose plans must be looked at."""
        lists = {
            name: values[:1] if name in _HARMLESS else values
            for name, values in self._search.candidates.items()
        }
        return [dict(zip(lists, one, strict=True)) for one in product(*lists.values())]


def _held_out(trained: Trained) -> float:
    if trained.accuracy is None:
        raise InvalidArgument("score = 'held-out' needs held-out examples, and there are none")
    return float(trained.accuracy)


def _noised(outline: Outline, noise: float) -> Outline:
    """The outline with another noise multiplier."""
    return replace(outline, plan=replace(outline.plan, noise_multiplier=noise))


def _with_noise(outline: Outline, allowance: Allowance) -> Outline:
    """The outline with the search's noise; it must release what the search counts on."""
    if allowance.noise is None:
        return outline
    found = _noised(outline, allowance.noise)
    if found.event != allowance.event:
        raise ProtocolError("lr or clip changes what the plan releases")
    return found


def check_rows(prepared: Prepared) -> None:
    """Refuses a judge of several numbers a row: one record would move the count by as many."""
    correct, held_out = prepared.correct, prepared.held_out
    if correct is None:
        return
    if held_out is None or not judges_rows(prepared.model, held_out, correct, prepared.collate):
        raise InvalidArgument(
            "score = 'training' needs rows that are right or wrong as a whole, and not token by "
            "token, which held-out rows must show; take score = 'held-out'"
        )


def _noisy_score(prepared: Prepared, epsilon: float) -> float:
    """The share of training examples that are right, with discrete Laplace noise.

    Guarantee:
        It is ε-differentially private: one example changes the count by at most 1, and the number
        of examples is public. That a row is judged by itself is for ``prepared.correct`` to see to.
    """
    from tacit.randomness import discrete_laplace, fresh_stream  # noqa: PLC0415

    dataset = prepared.dataset
    rows = len(dataset)  # type: ignore[arg-type]  # a map-style data set has one
    right, judged = counted(
        prepared.final, dataset, correct=prepared.correct, collate=prepared.collate
    )
    if judged != rows:
        raise InvalidArgument("score = 'training' needs one number of correct for each row")
    noise = discrete_laplace(1.0 / epsilon, 1, fresh_stream("score"))
    return (right + int(noise[0])) / rows


@final
@dataclass(frozen=True, slots=True)
class TrainedModels:
    """What a search's journal keeps of a run: its weights by name, and what it says of itself."""

    def state(self, model: Trained) -> dict[str, Any]:
        """Tensors, arrays, numbers and texts."""
        given = model.model
        return {
            "model": dict(given if isinstance(given, Mapping) else given.state_dict()),
            "history": [asdict(one) for one in model.history],
            "statement": model.statement.to_json(),
            "accuracy": None if model.accuracy is None else float(model.accuracy),
            "notes": list(model.notes),
        }

    def model(self, state: Any) -> Trained:
        """A ``Trained`` whose model is its weights by name; what is none raises."""
        weights, notes = state["model"], state["notes"]
        if not isinstance(weights, dict) or not all(isinstance(one, str) for one in weights):
            raise CheckpointError("it has no weights by name")
        if not all(isinstance(one, torch.Tensor | np.ndarray) for one in weights.values()):
            raise CheckpointError("its weights are no numbers")
        if not isinstance(notes, list) or not all(isinstance(one, str) for one in notes):
            raise CheckpointError("its notes are no texts")
        return Trained(
            model=weights,
            history=epochs(state["history"]),
            statement=Statement.from_json(state["statement"]),
            accuracy=None
            if state["accuracy"] is None
            else probability("accuracy", state["accuracy"]),
            notes=tuple(notes),
        )
