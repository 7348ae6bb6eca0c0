"""What is run: a training function, or a copy of a scikit-learn estimator for each candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, final, runtime_checkable

from tacit.accounting.questions import epsilon as epsilon_of
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.accounting.events import Adjacency
    from tacit.selection.terms import Allowance

_SET_BY_THE_SEARCH = ("epsilon", "delta", "budget", "random_state")


@runtime_checkable
class Estimator(Protocol):
    """What scikit-learn calls an estimator."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name."""
        ...

    def set_params(self, **params: Any) -> Any:
        """Sets parameters."""
        ...

    def fit(self, X: Any, y: Any) -> Any:  # noqa: N803 - scikit-learn's names
        """Learns from data."""
        ...


@final
@dataclass(frozen=True, slots=True, eq=False)
class FunctionTrainer:
    """``train(candidate, allowance)``, as it was given."""

    train: Callable[[Any, Allowance], Any]

    def __call__(self, candidate: Any, allowance: Allowance) -> Any:
        """One run."""
        return self.train(candidate, allowance)


@final
@dataclass(frozen=True, slots=True, eq=False)
class EstimatorTrainer:
    """A copy of an estimator, with the candidate's parameters and a run's ε and δ, fitted."""

    estimator: Estimator
    data: Any
    labels: Any
    adjacency: Adjacency

    def __call__(self, candidate: Mapping[str, Any], allowance: Allowance) -> Any:
        """One run."""
        from sklearn.base import clone  # noqa: PLC0415 - of the extra [sklearn]

        names = self.estimator.get_params(deep=False)
        own = {"epsilon": allowance.epsilon, "delta": allowance.delta, "budget": None}
        asked = {name: value for name, value in own.items() if name in names}
        model = clone(self.estimator).set_params(**candidate, **asked)
        model.fit(self.data, self.labels)
        self._check(model, allowance)
        return model

    def _check(self, model: Any, allowance: Allowance) -> None:
        """An estimator of tacit says what it released: it must be within the allowance."""
        event = getattr(model, "event_", None)
        if event is None:
            return
        at = allowance.delta or 1e-12
        spent = epsilon_of(event, at, adjacency=self.adjacency)
        if spent > allowance.epsilon * (1.0 + 1e-9):
            raise InvalidArgument(
                f"train must keep to epsilon={allowance.epsilon:.6g} at delta={at:.3g} a run, got "
                f"{event!r} with {spent:.6g}"
            )


Trainer: TypeAlias = FunctionTrainer | EstimatorTrainer


def trainer_of(
    train: Callable[[Any, Allowance], Any] | Estimator,
    data: tuple[Any, Any] | None,
    candidates: Sequence[Any],
    adjacency: Adjacency,
) -> Trainer:
    """The trainer for ``train``, its arguments checked."""
    if isinstance(train, Estimator):
        return _estimator_trainer(train, data, candidates, adjacency)
    if not callable(train):
        raise InvalidArgument(f"train must be a function or an estimator, got {train!r}")
    if data is not None:
        raise InvalidArgument("data must be left out with a training function, which has its own")
    return FunctionTrainer(train)


def _estimator_trainer(
    estimator: Estimator,
    data: tuple[Any, Any] | None,
    candidates: Sequence[Any],
    adjacency: Adjacency,
) -> EstimatorTrainer:
    names = estimator.get_params(deep=False)
    if "epsilon" not in names:
        raise InvalidArgument(
            f"train must have a parameter epsilon to be a private estimator, got {estimator!r}"
        )
    if names.get("adjacency", adjacency) != adjacency:
        raise InvalidArgument(
            f"adjacency must be the estimator's {names['adjacency']!r}, got {adjacency!r}"
        )
    if names.get("budget") is not None:
        raise InvalidArgument("train must have budget=None: the search charges for all runs")
    if names.get("random_state") is not None:
        raise InvalidArgument(
            f"train must have random_state=None, got {names['random_state']!r}: each run draws "
            "noise of its own, and noise from a seed can be taken off again"
        )
    if data is None or len(data) != 2:
        raise InvalidArgument("data must be the pair (X, y) with an estimator")
    for candidate in candidates:
        _check_parameters(candidate, names)
    return EstimatorTrainer(estimator, *data, adjacency)


def _check_parameters(candidate: object, names: Mapping[str, Any]) -> None:
    if not isinstance(candidate, Mapping):
        raise InvalidArgument(f"candidates must be dictionaries of parameters, got {candidate!r}")
    for name in candidate:
        if name in _SET_BY_THE_SEARCH or name == "adjacency" or name not in names:
            raise InvalidArgument(
                f"candidates may set any parameter but {(*_SET_BY_THE_SEARCH, 'adjacency')}, and "
                f"only ones that there are, got {name!r}"
            )


def listed(candidates: Sequence[Any] | Mapping[str, Sequence[Any]]) -> tuple[Any, ...]:
    """All candidates; of a dictionary of lists, every combination.

    >>> listed({"clip": [1, 2], "rate": [0.1]})
    ({'clip': 1, 'rate': 0.1}, {'clip': 2, 'rate': 0.1})
    """
    if isinstance(candidates, Mapping):
        values = product(*candidates.values())
        found: tuple[Any, ...] = tuple(dict(zip(candidates, one, strict=True)) for one in values)
    elif isinstance(candidates, Sequence) and not isinstance(candidates, str | bytes):
        found = tuple(candidates)
    else:
        raise InvalidArgument(
            f"candidates must be a list, or a dictionary of lists, got {candidates!r}"
        )
    if not found:
        raise InvalidArgument("candidates must not be empty")
    return found
