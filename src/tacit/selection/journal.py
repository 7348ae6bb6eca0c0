"""The journal: a folder from which a search that was cut off goes on as if it had not been.

The number of runs and their candidates are drawn once and written before anything is run. Drawing
them anew after a crash would let a search be repeated until its number of runs suits, which the
guarantee does not cover. A run that was cut off told nobody anything, and is run again.

The journal is private until the search has ended: the number of runs and the losers' scores are no
part of what is released. At the end both are removed from it, and only the winner stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from tacit._files import PRIVATE, locked, put
from tacit.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FORMAT = 1
_STATE = "search.json"


@final
@dataclass(frozen=True, slots=True)
class Best:
    """The best run so far: its number among the runs and its score."""

    run: int
    score: float

    def loses_to(self, other: Best, target: float) -> bool:
        """Whether ``other`` is better; of two that are alike, the earlier run wins.

        Scores that reach ``target`` are all alike. Which of equal results wins must not depend on
        the data, so it is not the one that was finished first.
        """
        return (min(other.score, target), -other.run) > (min(self.score, target), -self.run)


@final
@dataclass(slots=True, eq=False)
class Progress:
    """Where a search stands: what was drawn, what was charged, which runs are done, the best."""

    choices: tuple[int, ...] = ()
    entry: int | None = None
    done: set[int] = field(default_factory=set)
    best: Best | None = None
    model: Any = None
    winner: int | None = None
    finished: bool = False

    def record(self, run: int, score: float, model: Any, target: float) -> bool:
        """Notes that a run is done; returns whether it is the best so far."""
        self.done.add(run)
        rival = Best(run, score)
        if self.best is not None and not self.best.loses_to(rival, target):
            return False
        self.best, self.model = rival, model
        return True

    def is_needed(self, run: int, target: float) -> bool:
        """Whether this run could still win: none after the first that reached the target can."""
        reached = self.best is not None and self.best.score >= target
        return run not in self.done and not (reached and self.best and run > self.best.run)

    def finish(self) -> None:
        """Keeps the winner and forgets how many runs there were."""
        self.winner = None if self.best is None else self.choices[self.best.run]
        self.choices, self.done, self.finished = (), set(), True


class Journal:
    """Keeps ``Progress`` in a folder, or (with no folder) in memory only.

    Guarantee: the folder holds all of one state or all of the one before, also after a crash of
    the machine. Two processes cannot use it at once. Models are pickles, since they may be any
    object: they are read only if nobody but this user can write them, and from this folder only.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, fingerprint: dict[str, Any]) -> None:
        self._folder = None if folder is None else Path(folder)
        text = json.dumps(fingerprint, sort_keys=True, default=lambda value: type(value).__name__)
        self._fingerprint = hashlib.sha256(text.encode()).hexdigest()

    @contextlib.contextmanager
    def opened(self) -> Iterator[Progress | None]:
        """What the folder holds, None if it is new; nobody else can open it meanwhile."""
        if self._folder is None:
            yield None
            return
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise CheckpointError(f"journal {self._folder} cannot be written: {error}") from None
        try:
            if not locked(handle):
                raise CheckpointError(
                    f"journal {self._folder} is in use by another search; wait for it"
                )
            yield self._read()
        finally:
            os.close(handle)

    def write(self, progress: Progress, *, new_model: bool = False) -> None:
        """Writes where the search stands, the best model first where it is a new one."""
        if self._folder is None:
            return
        best = progress.best
        plain = {
            "format": _FORMAT,
            "fingerprint": self._fingerprint,
            "choices": list(progress.choices),
            "entry": progress.entry,
            "done": sorted(progress.done),
            "score": None if best is None else best.score.hex(),
            "run": None if best is None or progress.finished else best.run,
            "winner": progress.winner,
            "finished": progress.finished,
        }
        try:
            if best is not None and new_model:
                self._replace(_name(best, progress), pickle.dumps(progress.model))
            self._replace(_STATE, json.dumps(plain).encode())
            self._sweep(None if best is None else _name(best, progress))
        except (OSError, pickle.PicklingError, AttributeError, TypeError) as error:
            raise CheckpointError(
                f"journal {self._folder} cannot be written: {error}; models must be picklable"
            ) from None

    def _read(self) -> Progress | None:
        assert self._folder is not None
        try:
            plain = json.loads((self._folder / _STATE).read_text(encoding="utf-8"))
            known = plain["format"] == _FORMAT
            same = plain["fingerprint"] == self._fingerprint
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(error) from None
        if not (known and same):
            raise CheckpointError(
                f"journal {self._folder} belongs to a search with other candidates, runs, events "
                "or limits; give another folder"
            )
        try:
            return self._progress(plain)
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            pickle.UnpicklingError,
            EOFError,
        ) as error:
            raise self._damaged(error) from None

    def _progress(self, plain: dict[str, Any]) -> Progress:
        assert self._folder is not None
        found = Progress(
            choices=tuple(plain["choices"]),
            entry=plain["entry"],
            done=set(plain["done"]),
            winner=plain["winner"],
            finished=plain["finished"],
        )
        if plain["score"] is not None:
            found.best = Best(int(plain["run"] or 0), float.fromhex(plain["score"]))
            found.model = self._model(_name(found.best, found))
        return found

    def _model(self, name: str) -> Any:
        """Reads a model. A pickle may run code, so it must be one that only its owner can write."""
        assert self._folder is not None
        path = self._folder / name
        for found in (self._folder.stat(), path.lstat()):
            if os.name == "posix" and (found.st_uid != os.getuid() or found.st_mode & 0o022):
                raise CheckpointError(
                    f"journal {self._folder} could have been written by others, whose code its "
                    "models would run: make it yours alone (chown, chmod -R go-w), or give another"
                )
        return pickle.loads(path.read_bytes())

    def _replace(self, name: str, content: bytes) -> None:
        assert self._folder is not None
        put(self._folder / name, content, mode=PRIVATE)

    def _sweep(self, kept: str | None) -> None:
        """Removes the models of runs that lost."""
        assert self._folder is not None
        for path in self._folder.glob("model-*"):
            if path.name != kept:
                path.unlink(missing_ok=True)

    def _damaged(self, error: Exception) -> CheckpointError:
        return CheckpointError(
            f"journal {self._folder} is damaged ({error}); what it was charged stands: start a "
            "new search in another folder"
        )


def _name(best: Best, progress: Progress) -> str:
    """The file of the best model; the winner's name does not tell its place among the runs."""
    return "model-winner.pickle" if progress.finished else f"model-{best.run}.pickle"
