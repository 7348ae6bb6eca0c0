"""A private search of a recipe's settings: the winner's model, at a price that covers the choice.

The number of runs is drawn at random, and only the winner is told (``tacit.selection``). Where all
candidates have one kind of plan, which learning rates and clips do not change, the noise is found
for the search as a whole, exactly; otherwise each run is allowed an (ε₀, δ₀), which is dearer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, NoReturn, final

import numpy as np
import torch

from tacit._validation import probability
from tacit.accounting import Composed, DiscreteLaplace
from tacit.errors import CheckpointError, InvalidArgument, ProtocolError
from tacit.recipes.running.account import Account
from tacit.recipes.running.job import Job
from tacit.recipes.running.keeping import Forgetful, epochs
from tacit.recipes.running.settings import changed
from tacit.recipes.running.trained import Trained
from tacit.recipes.running.training import seeded
from tacit.selection import PrivateScore, PublicScore, private_search
from tacit.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import nn
    from torch.utils.data import Dataset

    from tacit.accounting.events import Event
    from tacit.data import Split
    from tacit.ledger import Budget
    from tacit.recipes.recipe import Recipe
    from tacit.recipes.running.interruption import Interruption
    from tacit.recipes.running.search_file import Search
    from tacit.selection import Allowance, Found
    from tacit.training.judging import RowWise
    from tacit.training.loaders import Collate
    from tacit.training.plan import Plan

_HARMLESS = frozenset({"lr", "clip"})  # settings that do not change what a plan releases


@final
class Searching:
    """The runs of one search: each a job that keeps nothing."""

    def __init__(
        self,
        recipe: Recipe,
        settings: Any,
        data: Split,
        search: Search,
        *,
        epsilon: float,
        delta: float,
        device: torch.device,
        seed: int | None,
        stop: Interruption,
    ) -> None:
        self._recipe, self._settings, self._data, self._search = recipe, settings, data, search
        self._epsilon, self._delta = epsilon, delta
        self._device, self._seed, self._stop = device, seed, stop
        self._scores: dict[int, float] = {}

    def run(self, budget: Budget | None, label: str, journal: Path) -> Found:
        """Searches, or goes on with the search of ``journal``."""
        return private_search(
            self._train,
            self._search.candidates,
            self._epsilon,
            self._delta,
            score=self._score(),
            event=self._family(),
            runs=self._search.runs,
            budget=budget,
            label=label,
            journal=journal,
            models=TrainedModels(),
        )

    def _score(self) -> PublicScore | PrivateScore:
        if self._search.score_epsilon is None:
            return PublicScore(lambda trained: float(trained.accuracy))
        scale = 1.0 / self._search.score_epsilon
        # One record changes the count of right answers by at most 1, whatever its neighbour is.
        event = DiscreteLaplace(scale, sensitivity=1, replace_distance=1.0)
        return PrivateScore(lambda trained: self._scores.pop(id(trained)), event)

    def _train(self, candidate: Mapping[str, Any], allowance: Allowance) -> Trained:
        keeper = _Scoring(allowance, self._search.score_epsilon)
        trained = self._job(candidate, allowance.epsilon, allowance.delta, keeper)
        if self._search.score_epsilon is not None:
            if keeper.score is None:
                raise InvalidArgument(
                    f"score = 'training' needs a recipe that fits a plan, and {self._recipe.name} "
                    "does not; take score = 'held-out'"
                )
            self._scores = {id(trained): keeper.score}
        return trained

    def _job(
        self, candidate: Mapping[str, Any], epsilon: float, delta: float, keeper: Forgetful
    ) -> Trained:
        job = Job(
            self._recipe, changed(self._settings, candidate), self._data, epsilon=epsilon,
            delta=delta, device=self._device, seed=self._seed, keeper=keeper,
            account=Account(None, ""), stop=self._stop, progress=False,
        )  # fmt: skip
        with seeded(self._seed):
            return self._recipe.train(job)

    # ---- one family of events for all candidates

    def _family(self) -> Callable[[float], Event] | None:
        """From noise to what a run releases, if that is the same for all candidates."""
        drafts = [self._draft(one) for one in self._asked()]
        first = drafts[0]
        if first is None or any(one is None or one.unlike(first) for one in drafts):
            return None
        return first.event

    def _asked(self) -> Sequence[dict[str, Any]]:
        """The candidates whose plans must be looked at."""
        lists = {
            name: values[:1] if name in _HARMLESS else values
            for name, values in self._search.candidates.items()
        }
        return [dict(zip(lists, one, strict=True)) for one in product(*lists.values())]

    def _draft(self, candidate: Mapping[str, Any]) -> _Draft | None:
        """The plan that a candidate would make; None if it makes none. Nothing is released."""
        try:
            self._job(candidate, self._epsilon, self._delta, _Planning())
        except _Planned as found:
            return found.draft
        except _Unplanned:
            return None
        raise ProtocolError(f"the recipe {self._recipe.name!r} trained without a plan or a release")


@final
@dataclass(frozen=True, slots=True)
class TrainedModels:
    """What a search's journal keeps of a run: its weights by name, and all that is told of it."""

    def state(self, model: Trained) -> dict[str, Any]:
        """Tensors, arrays, numbers and texts."""
        given = model.model
        return {
            "model": dict(given if isinstance(given, Mapping) else given.state_dict()),
            "history": [asdict(one) for one in model.history],
            "statement": model.statement.to_json(),
            "accuracy": float(model.accuracy),
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
            accuracy=probability("accuracy", state["accuracy"]),
            notes=tuple(notes),
        )


@final
class _Draft:
    """A plan whose noise is open, with what is released beside it."""

    def __init__(self, plan: Plan, also: Sequence[Event]) -> None:
        self._plan, self._also = plan, tuple(also)

    def event(self, noise: float) -> Event:
        """What a run with this noise multiplier releases."""
        training = replace(self._plan, noise_multiplier=noise).event
        return Composed(*self._also, training) if self._also else training

    def unlike(self, other: _Draft) -> bool:
        """Whether another noise would be needed for it."""
        return self.event(1.0) != other.event(1.0)


class _Planned(Exception):
    def __init__(self, draft: _Draft) -> None:
        super().__init__()
        self.draft = draft


class _Unplanned(Exception):
    pass


@final
class _Planning(Forgetful):
    """Stops a job as soon as it has planned, or is about to release something without a plan."""

    def same_plan(self, plan: Plan, also: Sequence[Event]) -> NoReturn:
        """Tells the plan."""
        raise _Planned(_Draft(plan, also))

    def begin(self, budget: Mapping[str, str] | None) -> None:
        """There is no plan."""
        del budget
        raise _Unplanned


@final
class _Scoring(Forgetful):
    """Gives a run the noise that the search found, and scores its model on its training data."""

    def __init__(self, allowance: Allowance, epsilon: float | None) -> None:
        self._allowance, self._epsilon = allowance, epsilon
        self.score: float | None = None

    def same_plan(self, plan: Plan, also: Sequence[Event]) -> Plan:
        """The plan with the search's noise; it must release what the search counts on."""
        noise = self._allowance.noise
        if noise is None:
            return plan
        if _Draft(plan, also).event(noise) != self._allowance.event:
            raise ProtocolError("lr or clip changes what the recipe's plan releases")
        return replace(plan, noise_multiplier=noise)

    def judge(
        self,
        model: nn.Module,
        dataset: Dataset[Any],
        correct: RowWise | None,
        collate: Collate | None,
    ) -> None:
        """The share of training examples that are right, with discrete Laplace noise.

        Guarantee:
            It is ε-differentially private for the search's ``score_epsilon``: one example changes
            the count by at most 1, and the number of examples is public.
        """
        if self._epsilon is None:
            return
        from tacit.randomness import discrete_laplace, fresh_stream  # noqa: PLC0415
        from tacit.training.judging import accuracy  # noqa: PLC0415

        rows = len(dataset)  # type: ignore[arg-type]  # a map-style data set has one
        right = round(accuracy(model, dataset, correct=correct, collate=collate) * rows)
        noise = discrete_laplace(1.0 / self._epsilon, 1, fresh_stream("score"))
        self.score = (right + int(noise[0])) / rows
