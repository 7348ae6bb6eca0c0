"""What to search: the candidates of each setting, how many runs, and by which score."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final

from tacit import _files
from tacit._validation import positive
from tacit.errors import InvalidArgument
from tacit.recipes.running.settings import changed, check_names, names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ScoreName = Literal["held-out", "training"]

_LARGEST = 1 << 20  # bytes
_FIELDS = ("runs", "score", "score_epsilon", "candidates")


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

    def as_plain(self) -> dict[str, Any]:
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


def read(path: Path, settings: Any) -> Search:
    """The search that a TOML file describes, each value of its setting's type."""
    try:
        plain = tomllib.loads(_files.read(path, most=_LARGEST).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{path} is no TOML file that can be read: {error}") from None
    try:
        return from_plain(plain, settings)
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error}") from None


def from_plain(plain: Mapping[str, Any], settings: Any) -> Search:
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
    return found
