"""``Teachers``: assigned at random, trained apart (here or on a Ray cluster), and asked to vote."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import torch
from torch import nn

from tacit import _workers
from tacit._validation import non_negative, positive, whole
from tacit._workers import RayCluster, check_workers, for_device
from tacit.errors import CheckpointError, InvalidArgument, ProtocolError
from tacit.models.devices import device_named
from tacit.randomness import fresh_stream
from tacit.training.progress import counting
from tacit.transfer.teachers.models import NOBODY, TeacherWork, joined
from tacit.transfer.teachers.records import as_tensor, part, read, rows_by_teacher
from tacit.transfer.teachers.schedule import (
    TeacherSchedule,
    check_scores,
    described,
    made,
    split,
    way,
)
from tacit.transfer.teachers.store import TeacherStore
from tacit.transfer.votes import Votes

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tacit._pickles import ModelFormat
    from tacit._workers import Workers
    from tacit.randomness import Stream
    from tacit.transfer.teachers.models import TrainedTeachers
    from tacit.transfer.teachers.records import Part

    Records = Callable[[Sequence[int]], Part]


@final
class Teachers:
    """An ensemble of models, each trained on records that no other has seen.

    Every record (or group of records) is given to one of ``count`` teachers by a secure throw of
    its own. Teachers share nothing: no statistics of the data, no running means, no random state,
    not even rounding. Their first weights and the order of their batches come from a public seed
    and each one's number.

    Guarantee:
        For any two data sets that differ in one record, and any assignment of the others, at most
        one teacher differs, and so at most one vote on each query: whoever adds noise to
        ``votes`` may rely on that. It needs that ``make_model`` and any transform of the inputs
        look at no private data, or at one record at a time. Nothing here is private by itself:
        weights, sizes, labels and votes give records away and must not leave. A teacher without
        records votes for class 0.

    Args:
        make_model: Makes a new model without looking at data: an ``nn.Module`` that gives scores
            of shape (rows, classes), or a classifier with scikit-learn's ``fit`` and ``predict``.
        dataset: ``(inputs, labels)``, or a map-style data set of such pairs, which is read once;
            a random transform draws the same for each record (``views`` makes several of each).
            Networks are given uint8 inputs as numbers between 0 and 1; classifiers are given rows
            as they are.
        count: How many teachers. More make larger gaps between votes, and each of them weaker.
        classes: How many classes there are, which is public.
        epochs: How often a network sees each of its records.
        batch_size: Records in one of a network's steps.
        lr: The rate of Nesterov's momentum (0.9) at first; it falls linearly to 0.
        weight_decay: λ of λ/2·‖w‖², which is added to the loss.
        how: ``"loop"`` (one after the other; any model), ``"batched"`` (an ensemble by
            ``torch.func``), ``"gemm"`` (batched products, for stacks of linear layers), or
            ``"auto"``: the one that was fastest when measured. All give the same but for rounding.
        device: Where networks are trained and asked.
        workers: How many processes train teachers; or a ``tacit.selection.RayCluster``, to whose
            workers they are shared out. Each is sent its own teachers' records only.
        folder: Where to keep trained teachers, so that ``fit`` goes on after a crash with the same
            assignment. It is private, and says so; nothing in it is run.
        models: How the folder keeps fitted classifiers (networks need nothing): an object with
            ``state(model)`` and ``model(state)``; or ``PickledModels()``, which runs whatever the
            folder's files say when ``fit`` goes on.
        stream: The randomness of the assignment; by default the system's secure one.
        progress: Whether progress goes to standard error; left out, if that is a terminal.
        seed: Public, of first weights and orders; by default a new one.
        groups: The group of every record: those of one group go to one teacher. For all records of
            a person, whose data are then protected together, or for several views of one record.

    >>> random = np.random.default_rng(0)
    >>> rows = random.normal(size=(600, 2)).astype(np.float32)
    >>> labels = (rows[:, 0] > 0).astype(int)
    >>> teachers = Teachers(
    ...     lambda: nn.Linear(2, 2), (rows, labels), 20, classes=2, epochs=20, lr=0.5, seed=1
    ... ).fit()
    >>> votes = teachers.votes(np.array([[2.0, 0.0], [-2.0, 0.0]]))
    >>> votes, votes.counts.argmax(axis=1).tolist()
    (Votes(queries=2, classes=2, teachers=20), [1, 0])
    """

    def __init__(
        self,
        make_model: Callable[[], Any],
        dataset: Any,
        count: int,
        *,
        classes: int,
        epochs: int = 30,
        batch_size: int = 32,
        lr: float = 0.05,
        weight_decay: float = 0.0,
        how: Literal["auto", "loop", "batched", "gemm"] = "auto",
        device: str | torch.device = "cpu",
        workers: Workers = 1,
        folder: str | os.PathLike[str] | None = None,
        models: ModelFormat | None = None,
        stream: Stream | None = None,
        progress: bool | None = None,
        seed: int | None = None,
        groups: Sequence[int] | NDArray[np.int64] | None = None,
    ) -> None:
        self._count = whole("count", count)
        self._classes = whole("classes", classes, at_least=2)
        self._make = make_model
        self._seed = None if seed is None else whole("seed", seed, at_least=0)
        self._schedule = TeacherSchedule(
            epochs=whole("epochs", epochs),
            batch_size=whole("batch_size", batch_size),
            lr=positive("lr", lr),
            weight_decay=non_negative("weight_decay", weight_decay),
            seed=self._seed or 0,
        )
        # A cluster's workers may have a GPU where this machine has none.
        there = isinstance(check_workers(workers), RayCluster)
        self._device = str(device if there else device_named(device))
        self._workers, self._progress = workers, progress
        self._stream = stream if stream is not None else fresh_stream("teachers")
        self._records = read(dataset, self._classes, groups)
        self._first = made(make_model, self._schedule, 0)
        self._how = way(how, self._first, self._device)
        check_scores(self._first, self._records.inputs, self._classes)
        self._folder = None
        if folder is not None:
            self._folder = TeacherStore(folder, self._settings(), first=self._first, models=models)
        self._fitted: _Fitted | None = None

    def fit(self) -> Teachers:
        """Assigns the records and trains; after a crash, or once more, only those missing."""
        if self._fitted is None:
            with self._folder.opened() if self._folder else nullcontext():
                self._fitted = self._fit()
        return self

    def labels(self, inputs: NDArray[Any] | torch.Tensor) -> NDArray[np.int64]:
        """The class that each teacher gives to each input, shape (teachers, inputs). Private."""
        fitted = self._trained()
        rows, known = as_tensor("inputs", inputs), self._records.inputs
        alike = (rows.dtype == torch.uint8) == (known.dtype == torch.uint8)
        if rows.shape[1:] != known.shape[1:] or not len(rows) or not alike:
            raise InvalidArgument(
                f"inputs must be one or more {known.dtype} of shape {tuple(known.shape[1:])}, as "
                f"the records are, got {rows.dtype} of shape {tuple(rows.shape)}"
            )
        found = fitted.trained.labels(rows, fitted.work)
        found[fitted.sizes == 0] = NOBODY
        return found

    def votes(self, inputs: NDArray[Any] | torch.Tensor) -> Votes:
        """How many teachers give each class to each input. Private."""
        return Votes.from_labels(self.labels(inputs), self._classes)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many records each teacher has. Private."""
        return self._trained().sizes.copy()

    def __repr__(self) -> str:
        state = "trained" if self._fitted else "not trained"
        return f"Teachers(count={self._count}, classes={self._classes}, how={self._how!r}, {state})"

    def _trained(self) -> _Fitted:
        if self._fitted is None:
            raise ProtocolError("these teachers are not trained yet: call fit() first")
        return self._fitted

    def _fit(self) -> _Fitted:
        assignment, seed = self._begin()
        work = TeacherWork(
            self._make, replace(self._schedule, seed=seed), self._how, self._device,
            isinstance(self._first, nn.Module),
        )  # fmt: skip
        found = self._folder.pieces() if self._folder else []
        done = {teacher for piece in found for teacher in piece.teachers}
        missing = [teacher for teacher in range(self._count) if teacher not in done]
        rows_of = rows_by_teacher(self._records, assignment, self._count)
        with counting(self._progress, "teachers", total=self._count, done=len(done)) as show:
            pieces = split(missing, self._how, self._device, self._workers != 1)
            records = partial(part, self._records, rows_of)
            for trained in carried_out(work, pieces, records, self._workers):
                if self._folder:
                    self._folder.add(trained)
                found.append(trained)
                show(sum(len(piece.teachers) for piece in found))
        sizes = np.array([len(rows) for rows in rows_of], dtype=np.int64)
        return _Fitted(joined(found), work, sizes)

    def _begin(self) -> tuple[NDArray[np.int64], int]:
        """The assignment and the seed: the folder's, or new ones, which it keeps first."""
        kept = self._folder.begun(self._records.units) if self._folder else None
        if kept is not None:
            if self._seed not in (None, kept[1]):
                raise CheckpointError(
                    f"the folder's teachers have the seed {kept[1]}, got seed={self._seed}: "
                    "leave it out, or name a new folder"
                )
            return kept
        assignment = assigned(self._records.units, self._count, self._stream)
        seed = self._seed
        if seed is None:
            seed = int.from_bytes(self._stream.bytes(4))
        if self._folder:
            self._folder.begin(assignment, seed)
        return assignment, seed

    def _settings(self) -> dict[str, Any]:
        """What a folder must have been made with to be gone on with."""
        kept = asdict(self._schedule)
        del kept["seed"]  # compared apart: left out, it is the folder's
        return kept | {
            "count": self._count,
            "classes": self._classes,
            "model": described(self._first),
            "records": self._records.digest(),
        }


@final
@dataclass(frozen=True, eq=False)
class _Fitted:
    trained: TrainedTeachers
    work: TeacherWork
    sizes: NDArray[np.int64]


_WORDS = 1 << 32  # a throw is 32 random bits
_BLOCK = 1 << 20  # throws at a time


def assigned(records: int, count: int, stream: Stream) -> NDArray[np.int64]:
    """The teacher of each record, uniform among ``count`` and independent of all others.

    A shuffled list that is cut into equal parts is no such thing: to take one record out moves
    those behind it, and several teachers change. Here the other records stay where they are, and
    one record is in one teacher only. The price is that sizes vary, by about the root of their
    mean, and that a teacher may have no record at all.

    Guarantee:
        Records are assigned independently, each teacher with probability exactly 1/``count``: of
        32 random bits, those that would favour some are drawn again.

    Args:
        records: How many records there are.
        count: How many teachers, at most 2³¹.
        stream: Where the random bits come from. The assignment is private.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> assigned(8, 3, UnsafeSeededStream(0, "teachers")).tolist()
    [0, 2, 0, 2, 2, 0, 1, 0]
    """
    wanted, teachers = whole("records", records, at_least=0), whole("count", count)
    if teachers > _WORDS // 2:
        raise InvalidArgument(f"count must be at most 2**31, got {count!r}")
    fair = _WORDS - _WORDS % teachers  # below it, all remainders are equally many
    parts = [np.empty(0, dtype=np.int64)]
    missing = wanted
    while missing:
        drawn = np.frombuffer(stream.bytes(4 * min(_BLOCK, missing)), dtype=np.uint32)
        kept = drawn[drawn.astype(np.int64) < fair]
        parts.append(kept.astype(np.int64) % teachers)
        missing -= len(kept)
    return np.concatenate(parts)


def carried_out(
    work: TeacherWork, pieces: Sequence[Sequence[int]], records: Records, workers: Workers
) -> Iterator[TrainedTeachers]:
    """Trains the teachers of each piece, and gives each piece when it is done."""
    if workers == 1:
        return (work.train(records(piece)) for piece in pieces)
    parts = (records(piece).to("cpu") for piece in pieces)
    there = for_device(workers, work.device)
    done = _workers.carried_out(
        _train, work, enumerate(parts), there, names="make_model and what it holds"
    )
    return (trained for _, trained in done)


def _train(work: TeacherWork, part: Part) -> TrainedTeachers:
    return work.train(part)
