"""The journal of a labelling run: a file by which no query is asked twice, whatever crashes.

Queries are announced, in a line that is synced, before anything is drawn for them; outcomes follow.
A query that was announced and has no outcome was in flight when the run was interrupted. It may
have been answered: it is lost, and stays charged. A last line that was torn was never synced: if it
announced queries they were not asked, and if it was an outcome the query is lost.

The file holds public numbers and what was released. It holds nothing else of the data, not even a
fingerprint of the votes, which would tell of them: that a resumed run has the same votes is for the
caller to see to.
"""

from __future__ import annotations

import json
import os
import secrets
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, final

import numpy as np

from tacit._files import append_to, locked, parse_json, read, sync_folder
from tacit.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from numpy.typing import NDArray

    from tacit.mechanisms.release import ReleaseTerms


_KIND: Final = "tacit labelling journal 1"
_LARGEST: Final = 256 << 20  # bytes: tens for each query
_CLASSES: Final = 1 << 31  # where nobody knows how many there are

# How far a query got. The last two stay as they are: it was in flight when a run was interrupted.
WAITING, SCREENING, SCREENED_OUT, ANSWERING, ANSWERED, LOST_SCREENING, LOST_ANSWER = range(7)


@final
@dataclass(slots=True, eq=False)
class LabellingState:
    """Where a run stands: how far each query got, its label, and what was announced last."""

    stages: NDArray[np.int8]
    labels: NDArray[np.int64]
    classes: int = _CLASSES
    screenings: int = 0
    answers: int = 0
    last: tuple[int, int] = (0, 0)  # screenings and answers of the latest announcement
    ended: bool = False

    @classmethod
    def of(cls, queries: int, classes: int = _CLASSES) -> LabellingState:
        """That of a run which has not begun."""
        stages = np.zeros(queries, dtype=np.int8)
        return cls(stages, np.full(queries, -1, dtype=np.int64), classes)

    @property
    def next(self) -> int:
        """The first query that was never announced; all before it were."""
        waiting = np.flatnonzero(self.stages == WAITING)
        return int(waiting[0]) if waiting.size else len(self.stages)

    def take(self, what: str, values: list[int]) -> None:
        """Enters one line; an impossible one raises ``ValueError``."""
        match what:
            case "screen":
                self._move(values, (WAITING,), SCREENING)
                self.screenings, self.last = self.screenings + len(values), (len(values), 0)
            case "answer":  # of those being screened, the others did not pass
                self._move(values, (WAITING, SCREENING), ANSWERING)
                self.stages[self.stages == SCREENING] = SCREENED_OUT
                self.answers, self.last = self.answers + len(values), (0, len(values))
            case "tell":
                query, label = values
                if type(label) is not int or not 0 <= label < self.classes:
                    raise ValueError("a label is no class")
                self._move([query], (ANSWERING,), ANSWERED)
                self.labels[query] = label
            case "resume":
                self.stages[self.stages == SCREENING] = LOST_SCREENING
                self.stages[self.stages == ANSWERING] = LOST_ANSWER
            case "end":
                self.ended = True
            case _:
                raise ValueError(f"a line says {what!r}")

    def _move(self, queries: list[int], before: tuple[int, ...], after: int) -> None:
        known = all(type(one) is int and 0 <= one < len(self.stages) for one in queries)
        places = np.asarray(queries if known else [], dtype=np.int64)
        twice = len(set(places.tolist())) != len(queries)
        if self.ended or twice or not np.isin(self.stages[places], before).all():
            raise ValueError("a query is there twice, or out of turn")
        self.stages[places] = after


@final
class LabelJournal:
    """A ``LabellingState`` that is kept in a file, or (with no path) in memory only.

    Guarantee:
        ``screen`` and ``answer`` return when their line is on the disk. No two processes have the
        file at once. A file that was written for other ``settings``, or whose lines are not those
        that were written, is refused; only what follows the last whole line is dropped.

    ``run`` is a name that this run alone has; ``resumed`` says whether the file was there before.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        settings: dict[str, Any],
        queries: int,
        classes: int | None = None,
    ) -> None:
        self._path = None if path is None else Path(path)
        self._settings = json.loads(json.dumps(settings))
        self._file: int | None = None
        self.record = LabellingState.of(queries, classes or _CLASSES)
        self.run = secrets.token_hex(16)
        self.resumed = False

    @property
    def kept(self) -> bool:
        """Whether there is a file."""
        return self._path is not None

    def __enter__(self) -> Self:
        if self._path is None:
            return self
        try:
            self._file = append_to(self._path)
            self._lock(self._file)
            self._open(read(self._path, most=_LARGEST))
        except (OSError, ValueError) as error:
            self.close()
            raise CheckpointError(f"journal {self._path} cannot be used: {error}") from None
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets others have the file."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def screen(self, queries: Iterable[int]) -> None:
        """Announces that these are screened."""
        self._write("screen", list(queries), synced=True)

    def answer(self, queries: Iterable[int]) -> None:
        """Announces that these are answered; others that were screened are not."""
        self._write("answer", list(queries), synced=True)

    def tell(self, query: int, label: int) -> None:
        """Notes an answer; it is on the disk with the next announcement, or the end."""
        self._write("tell", [query, label])

    def end(self) -> None:
        """Notes that nothing more is asked."""
        self._write("end", [], synced=True)

    # ---- the file

    def _write(self, what: str, values: list[int], *, synced: bool = False) -> None:
        self.record.take(what, values)
        if self._file is None:
            return
        try:
            _append(self._file, _line([what, *values]))
            if synced:
                os.fsync(self._file)
        except OSError as error:
            raise CheckpointError(f"journal {self._path} cannot be written: {error}") from None

    def _open(self, content: bytes) -> None:
        assert self._file is not None
        assert self._path is not None
        whole, _, torn = content.rpartition(b"\n")
        if b"\n" not in content:
            self._begin(torn)
            return
        self._read(whole.split(b"\n"))
        self.resumed = True
        if torn:
            os.ftruncate(self._file, len(content) - len(torn))
        self._write("resume", [], synced=True)

    def _begin(self, torn: bytes) -> None:
        assert self._file is not None
        assert self._path is not None
        head = _line([_KIND, self._settings, self.run])
        sure = head[: len(_KIND) + 3]  # what every journal begins with
        if torn[: len(sure)] != sure[: len(torn)]:
            raise CheckpointError(f"{self._path} is no labelling journal; give another file")
        os.ftruncate(self._file, 0)
        _append(self._file, head)
        os.fsync(self._file)
        sync_folder(self._path.parent)

    def _read(self, content: list[bytes]) -> None:
        try:
            kind, settings, self.run = _values(content[0])
            if kind != _KIND or not isinstance(settings, dict) or not isinstance(self.run, str):
                raise ValueError("it begins otherwise")
        except ValueError:
            raise CheckpointError(
                f"{self._path} is no labelling journal; give another file"
            ) from None
        self._check_settings(settings)
        for number, line in enumerate(content[1:], start=2):
            try:
                what, *values = _values(line)
                self.record.take(what, values)
            except (ValueError, TypeError, IndexError) as error:
                raise CheckpointError(
                    f"journal {self._path} is damaged in line {number} ({error}); what it was "
                    "charged stands: start a new run in another file"
                ) from None

    def _check_settings(self, settings: dict[str, Any]) -> None:
        for name, ours in self._settings.items():
            if settings.get(name) != ours:
                raise CheckpointError(
                    f"journal {self._path} is of a run with {name} = {settings.get(name)!r:.100}, "
                    f"not {ours!r}; give another file, or resume with the same settings"
                )

    def _lock(self, file: int) -> None:
        if not locked(file):
            raise CheckpointError(f"journal {self._path} is in use by another run; wait for it")


def journal_terms(terms: ReleaseTerms) -> dict[str, Any]:
    """What a journal holds of a run's terms, so that others are refused when it is resumed."""
    budget = terms.budget
    return {
        "adjacency": terms.adjacency,
        "unit": terms.unit,
        "budget": None if budget is None else [budget.ledger.identity, budget.name],
    }


# ---- lines, each with a checksum by which a torn or changed one is found


def _line(values: list[Any]) -> bytes:
    r"""A line that holds these values, of JSON's types.

    >>> _line(["tell", 3, 7])
    b'["tell",3,7] d2897f99\n'
    """
    text = json.dumps(values, ensure_ascii=True, separators=(",", ":")).encode()
    return b"%b %08x\n" % (text, zlib.crc32(text))


def _values(line: bytes) -> list[Any]:
    """What a line holds, which is without its end; ``ValueError`` if it is not as written."""
    text, _, check = line.rpartition(b" ")
    if check != b"%08x" % zlib.crc32(text):
        raise ValueError("it is not what was written")
    found = parse_json(text)
    if not isinstance(found, list) or not found:
        raise ValueError("it holds no values")
    return found


def _append(file: int, data: bytes) -> None:
    """Writes all of ``data`` at the end of a file opened for appending."""
    while data:
        data = data[os.write(file, data) :]
