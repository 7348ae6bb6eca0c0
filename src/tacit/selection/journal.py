"""The journal: a folder from which a search that was interrupted goes on as if it had not been.

The number of runs and their candidates are drawn once and written before anything is run. Drawing
them again after a crash would let a search be repeated until its number of runs suits, which the
guarantee does not cover. A run that was interrupted released nothing, and is run again.

The journal is private until the search has ended: the number of runs and the losers' scores are no
part of what is released. At the end both are removed from it, and only the winner stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from tacit._files import OWNER_ONLY, held, put, read_json
from tacit._pickles import PickledModels, check_owner
from tacit.errors import CheckpointError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from tacit._pickles import ModelFormat

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
    """Where a search stands: what was drawn, what was charged, which runs are done, the best.

    ``name`` is what a ledger knows the search by, and ``proof`` the secret with which the ledger
    grants its winner; a journal of an older tacit has none.
    """

    choices: tuple[int, ...] = ()
    entry: int | None = None
    done: set[int] = field(default_factory=set)
    best: Best | None = None
    model: Any = None
    winner: int | None = None
    finished: bool = False
    name: str | None = None
    proof: str | None = None

    def record(self, run: int, score: float | None, model: Any, target: float) -> bool:
        """Notes that a run is done; returns whether it is the best so far. None has no model."""
        self.done.add(run)
        if score is None:
            return False
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
        self.proof = secrets.token_hex(16)


class SearchJournal:
    """Keeps ``Progress`` in a folder, or (with no folder) in memory only.

    Args:
        folder: The folder, which is made if need be.
        fingerprint: What must be the same for a search to go on.
        candidates: How many there are.
        models: How models become state that a file can hold.

    Guarantee: the folder holds all of one state or all of the one before, also after a crash of
    the machine. Two processes cannot use it at once. Nothing in it is run when it is read, unless
    ``models`` is ``PickledModels()``; whoever can write it can choose the winner.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        fingerprint: dict[str, Any],
        *,
        candidates: int,
        models: ModelFormat,
    ) -> None:
        self._folder = None if folder is None else Path(folder)
        self._candidates, self._models = candidates, models
        text = json.dumps(fingerprint, sort_keys=True, default=lambda value: type(value).__name__)
        self._fingerprint = hashlib.sha256(text.encode()).hexdigest()

    @contextlib.contextmanager
    def opened(self) -> Iterator[Progress | None]:
        """What the folder holds, None if it is new; nobody else can open it meanwhile."""
        if self._folder is None:
            yield None
            return
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(held(self._folder))
            except BlockingIOError:
                raise CheckpointError(
                    f"journal {self._folder} is in use by another search; wait for it"
                ) from None
            except OSError as error:
                raise self._unwritable(error) from None
            yield self._read()

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
            "name": progress.name,
            "proof": progress.proof,
            "done": sorted(progress.done),
            "score": None if best is None else best.score.hex(),
            "run": None if best is None or progress.finished else best.run,
            "winner": progress.winner,
            "finished": progress.finished,
        }
        try:
            if best is not None and new_model:
                self._write_model(self._folder / _name(best, progress), progress.model)
            put(self._folder / _STATE, json.dumps(plain).encode(), mode=OWNER_ONLY)
            self._sweep(None if best is None else _name(best, progress))
        except OSError as error:
            raise self._unwritable(error) from None

    def _read(self) -> Progress | None:
        assert self._folder is not None
        try:
            plain = read_json(self._folder / _STATE)
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
            found = self._progress(plain)
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise self._damaged(error) from None
        if found.best is not None:
            found.model = self._read_model(self._folder / _name(found.best, found))
        return found

    def _progress(self, plain: dict[str, Any]) -> Progress:
        """The state, each field of its type and within its range; anything else: ValueError."""
        choices = tuple(_below(one, self._candidates) for one in _listed(plain["choices"]))
        found = Progress(
            choices=choices,
            entry=None if plain["entry"] is None else _below(plain["entry"], 2**63),
            done={_below(one, len(choices)) for one in _listed(plain["done"])},
            finished=plain["finished"],
            name=plain.get("name"),
            proof=plain.get("proof"),
        )
        if not (isinstance(found.name, str | None) and isinstance(found.proof, str | None)):
            raise ValueError("its name is none")
        if type(found.finished) is not bool or (found.finished and choices):
            raise ValueError("it has neither come to its end nor not")
        if plain["winner"] is not None:
            found.winner = _below(plain["winner"], self._candidates)
        if plain["score"] is not None:
            run = 0 if found.finished else _below(plain["run"], len(choices))
            found.best = Best(run, float.fromhex(plain["score"]))
        if (found.winner is not None) != (found.finished and found.best is not None):
            raise ValueError("its winner is none")
        if found.best is not None and not (found.finished or found.best.run in found.done):
            raise ValueError("its best run was not run")
        if found.best is not None and math.isnan(found.best.score):
            raise ValueError("its score is no number")
        return found

    def _write_model(self, path: Path, model: Any) -> None:
        from tacit.training import checkpoint_file  # noqa: PLC0415 - only where models are kept
        from tacit.training.checkpoint_file import Packer  # noqa: PLC0415

        packer = Packer()
        try:
            packed = packer.pack(self._models.state(model), "model")
        except CheckpointError as error:
            raise CheckpointError(
                f"journal {self._folder} cannot keep this model: {error}; say how with models=, "
                "and search again with this journal: what was charged is not charged again"
            ) from None
        document = {"models": type(self._models).__name__, "state": packed}
        checkpoint_file.write(path, document, packer.tensors)

    def _read_model(self, path: Path) -> Any:
        from tacit.training import checkpoint_file  # noqa: PLC0415 - as above
        from tacit.training.checkpoint_file import unpack  # noqa: PLC0415

        if not path.exists() and path.with_suffix(".pickle").exists():
            raise CheckpointError(
                f"journal {self._folder} keeps its model as a pickle, which can run any program "
                "and is not read; an older tacit wrote it: start a new search in another folder"
            )
        try:
            document, tensors = checkpoint_file.read(path)
            kind = document["models"]
            if kind != type(self._models).__name__:
                raise CheckpointError(
                    f"its models were kept with models={kind!r:.60}, not with "
                    f"{type(self._models).__name__}"
                )
            if isinstance(self._models, PickledModels):
                check_owner(path.parent, path)
            return self._models.model(unpack(document["state"], tensors))
        except (CheckpointError, OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(error) from None

    def _sweep(self, kept: str | None) -> None:
        """Removes the models of runs that lost."""
        assert self._folder is not None
        for path in self._folder.glob("model-*"):
            if path.name != kept:
                path.unlink(missing_ok=True)

    def _unwritable(self, error: OSError) -> CheckpointError:
        return CheckpointError(
            f"journal {self._folder} cannot be written: {error.strerror or error}"
        )

    def _damaged(self, error: Exception) -> CheckpointError:
        line = " ".join(str(error).split())[:300]
        return CheckpointError(
            f"journal {self._folder} is damaged ({line}); what it was charged stands: start a "
            "new search in another folder"
        )


def _name(best: Best, progress: Progress) -> str:
    """The file of the best model; the winner's name does not tell its place among the runs."""
    return f"model-{'winner' if progress.finished else best.run}.safetensors"


def _listed(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("it has no list where one belongs")
    return value


def _below(value: object, most: int) -> int:
    if type(value) is not int or not 0 <= value < most:
        raise ValueError(f"{str(value)[:40]} is no whole number from 0 to {most - 1}")
    return value
