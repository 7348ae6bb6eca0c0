"""What every transfer shares: progress lines, the student, its evaluation and its statement.

A student learns from the released labels and is judged once. All of it is post-processing of what
was released, and of images that are public.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from tacit._validation import whole
from tacit.accounting.events import Composed
from tacit.errors import InvalidArgument
from tacit.runs import settings as settings_of
from tacit.transfer.students import StudentMethod, train_student

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.recipes.transferring.splits import Parts
    from tacit.runs import Job
    from tacit.runs.results import Trained
    from tacit.statement import DataDependent, Statement
    from tacit.transfer.students import Student


# ---- what every statement says, whatever the method

RELEASES: Final = (
    "the student's weights",
    "the noisy labels of public images, with the places of those images",
    "the student's accuracy on images of the evaluation",
)
TRUST: Final = "how far each of the noisy labels is trusted"
PUBLIC: Final = (
    "the public images are public: nobody in the private data minds that they are seen, and none "
    "of them was chosen or changed by looking at the private data. Their labels are not used"
)
COUNT: Final = "the number of private records is public: the run's record has it"
NOT_PROMISED: Final = (
    "anything for the people whose images are public: the student shows them as it likes",
    "that an image of the same person is not among the public ones",
)
TEACHERS: Final = (
    "anything if the teachers or their votes become known: they are as private as the data and are "
    "not released. While the run goes, or waits to be resumed, they lie in its folder 'private'; "
    "at its end they are deleted"
)
VOTES: Final = (
    "anything if the votes without noise become known: they are as private as the data and are not "
    "released"
)
NOISE: Final = (
    "drawn from the operating system's entropy on a grid, with its exact law; floating point has "
    "no part in it"
)

ANSWERS: Final = "answers.csv"


def lost_note(count: int) -> tuple[str, ...]:
    """A note on answers that were paid for and that a crash took."""
    if not count:
        return ()
    return (f"{count:,} queries were charged and lost when the run was interrupted",)


# ---- settings


@dataclass(frozen=True, kw_only=True)
class TransferSettings(ABC):
    """What may be set of the student, and what every method's settings say of themselves.

    ``student`` is how it learns; ``student_epochs`` left out, that way has its own. ``mirrored``
    lets the student see mirror images as well; ``upright`` puts writing upright before the student
    looks at it.
    """

    student: StudentMethod = "graph"
    student_epochs: int | None = None
    mirrored: bool = False
    upright: bool = False

    @abstractmethod
    def check(self) -> None:
        """Refuses what cannot be, before anything is begun."""

    @abstractmethod
    def fits(self, parts: Parts) -> None:
        """Refuses what does not fit the data."""

    @abstractmethod
    def events(self, adjacency: Adjacency) -> tuple[Event, ...]:
        """What a run releases, in order, whatever the data are, as charged for such neighbours."""

    def event(self, adjacency: Adjacency) -> Event:
        """All that a run releases, or what covers it."""
        return Composed(*self.events(adjacency))

    @property
    def least_delta(self) -> float:
        """The part of δ that a run costs whatever its noise; a δ that is no larger has no ε."""
        return 0.0

    @property
    @abstractmethod
    def noises(self) -> tuple[str, ...]:
        """The settings that say how much noise is added; an ε given beforehand finds them."""

    @property
    @abstractmethod
    def idle(self) -> Mapping[str, str]:
        """The settings that have no effect beside the others, with the others that make it so."""

    def check_student(self) -> None:
        """Refuses a student that cannot be."""
        if self.student_epochs is not None:
            whole("student_epochs", self.student_epochs)


def check_queries(queries: int, answers: int) -> None:
    """Refuses more answers than queries."""
    if whole("answers", answers) > whole("queries", queries):
        raise InvalidArgument(f"answers must be at most the {queries:,} queries, got {answers:,}")


def fits_public(name: str, number: int, parts: Parts) -> None:
    """Refuses a ``number`` of queries, say, that is larger than that of the public images."""
    if number > len(parts.public):
        raise InvalidArgument(
            f"{name} must be at most the {len(parts.public):,} public images, got {number:,}"
        )


# ---- the student, and what a transfer gives back


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transferred:
    """A student, how well it does, the labels that it learned from, and what may be claimed.

    Args:
        student: The student; it saw public images and released labels only.
        labels: The released label of each public image; -1 where there is none.
        settings: What it was made with.
        trained: The same as other recipes give it back: model, accuracy, statement and notes.
    """

    student: Student
    labels: NDArray[np.int64]
    settings: Mapping[str, Any]
    trained: Trained

    @property
    def accuracy(self) -> float:
        """The share of evaluated images that the student gets right."""
        assert self.trained.accuracy is not None  # every transfer is judged
        return self.trained.accuracy

    @property
    def statement(self) -> Statement:
        """The claim."""
        return self.trained.statement

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know beside the statement."""
        return self.trained.notes

    @property
    def labelled(self) -> int:
        """How many public images have a label."""
        return int((self.labels >= 0).sum())


def answers_bytes(labels: NDArray[np.int64]) -> bytes:
    """The released labels as text: which public image, and its label.

    >>> answers_bytes(np.array([-1, 7, -1, 0])).decode().split()
    ['query,label', '1,7', '3,0']
    """
    lines = [f"{place},{labels[place]}\n" for place in np.flatnonzero(labels >= 0)]
    return "".join(["query,label\n", *lines]).encode()


def taught(
    job: Job,
    parts: Parts,
    labels: NDArray[np.int64],
    weights: NDArray[np.float64] | None = None,
    *,
    quick: bool = False,
) -> Student:
    """A student of the released ``labels`` (-1: none) of the public images.

    A ``quick`` one, for scores on the way, is the linear model of the graph, in seconds.
    """
    chosen: TransferSettings = job.settings
    if not (labels >= 0).any():
        raise InvalidArgument(
            "no query was answered, so that there is nothing to learn from, and what was charged "
            "stands; remove the run's folder, if it has one, for it holds votes that are secret, "
            "and start another that asks more queries, has a lower threshold or spends more"
        )
    return train_student(
        parts.public, labels, classes=len(job.data.classes),
        method="graph" if quick else chosen.student, device=str(job.device), seed=job.seed,
        flip=chosen.mirrored, weights=weights, epochs=None if quick else chosen.student_epochs,
        progress=epoch_progress(False if quick else job.progress), upright=chosen.upright,
    )  # fmt: skip


def concluded(
    job: Job,
    parts: Parts,
    labels: NDArray[np.int64],
    *,
    sampling: str,
    assumptions: Sequence[str],
    unreleased: str,
    notes: Sequence[str] = (),
    weights: NDArray[np.float64] | None = None,
    data_dependent: DataDependent | None = None,
) -> Transferred:
    """Trains the student on ``labels`` (-1: none) of the public images, and states what is claimed.

    Args:
        job: The run, everything of which is released by now.
        parts: What it works on.
        labels: The released label of each public image.
        sampling: How records were sampled, in words.
        assumptions: What must hold beside the public images being public.
        unreleased: What must stay private, as a thing that is not promised.
        notes: What else a reader should know.
        weights: How far each label is to be trusted, where the release says so.
        data_dependent: An ε that depends on the data, released with noise.
    """
    chosen: TransferSettings = job.settings
    labelled = int((labels >= 0).sum())
    student = taught(job, parts, labels, weights)
    images, truth = np.asarray(job.data.test.inputs), job.data.test.labels
    right = float(np.mean(student.predict(images) == truth))
    counted = (COUNT,) if len(job.data.train) else ()  # votes made elsewhere come without records
    done = job.conclude(
        student.model,
        accuracy=right,
        sampling=sampling,
        noise=NOISE,
        assumptions=(PUBLIC, *counted, *assumptions),
        releases=RELEASES if weights is None else (*RELEASES, TRUST),
        not_promised=(unreleased, *NOT_PROMISED),
        data_dependent=data_dependent,
        files={ANSWERS: answers_bytes(labels)},
        notes=(f"{labelled:,} of {len(parts.public):,} public images were labelled", *notes),
    )
    plain = settings_of.as_dict(chosen)
    return Transferred(student=student, labels=labels, settings=plain, trained=done)


# ---- progress, in public numbers

_LINES = 10  # about as many in all, where standard error is no terminal


def announce(wanted: bool | None, what: str) -> None:
    """Says what begins, where it may take minutes without a number to count."""
    if wanted or (wanted is None and sys.stderr.isatty()):
        sys.stderr.write(f"{what} …\n")
        sys.stderr.flush()


def query_progress(wanted: bool | None, total: int) -> Callable[[int, int], None] | None:
    """What shows how many queries were asked and how many answered."""

    def worded(asked: int, answered: int) -> tuple[int, int, str]:
        return asked, total, f"queries asked: {asked:,} of {total:,}, answered: {answered:,}"

    return _shown(wanted, worded)


def epoch_progress(wanted: bool | None) -> Callable[[int, int], None] | None:
    """What shows how many epochs a student has learned, and of how many."""
    return _shown(wanted, lambda done, of: (done, of, f"student: epoch {done:,} of {of:,}"))


def _shown(
    wanted: bool | None, worded: Callable[[int, int], tuple[int, int, str]]
) -> Callable[[int, int], None] | None:
    """One line that is written over on a terminal; elsewhere a few lines if they are wanted."""
    terminal = sys.stderr.isatty()
    if wanted is False or (wanted is None and not terminal):
        return None
    last, shown = 0, ""

    def show(first: int, second: int) -> None:
        nonlocal last, shown
        done, of, text = worded(first, second)
        if text == shown:
            return
        shown = text
        if terminal:
            sys.stderr.write(f"\r{text}\x1b[K" + ("\n" if done >= of else ""))
        elif done >= of or done - last >= of / _LINES:
            last = done
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    return show
