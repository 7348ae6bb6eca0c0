"""The end of every transfer: a student learns from the released labels, and is judged once.

All of it is post-processing of what was released, and of images that are public.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit._validation import whole
from tacit.errors import InvalidArgument
from tacit.recipes.transferring import display, words
from tacit.recipes.transferring.transferred import ANSWERS, Transferred, answers_bytes
from tacit.runs import settings as settings_of
from tacit.transfer.students import StudentMethod, train_student

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tacit.recipes.transferring.splits import Parts
    from tacit.runs import Job
    from tacit.statement import DataDependent
    from tacit.transfer.students import Student


@dataclass(frozen=True, kw_only=True)
class StudentSettings:
    """How the student learns: ``student_epochs`` left out, the way of learning has its own.

    ``mirrored`` lets the student see mirror images as well; ``upright`` puts writing upright
    before the student looks at it.
    """

    student: StudentMethod = "graph"
    student_epochs: int | None = None
    mirrored: bool = False
    upright: bool = False


def check_student(chosen: StudentSettings) -> None:
    """Refuses a student that cannot be, before anything is released for it."""
    if chosen.student_epochs is not None:
        whole("student_epochs", chosen.student_epochs)


def check_queries(queries: int, answers: int) -> None:
    """Refuses more answers than queries."""
    if whole("answers", answers) > whole("queries", queries):
        raise InvalidArgument(f"answers must be at most the {queries:,} queries, got {answers:,}")


def fits(name: str, number: int, parts: Parts) -> None:
    """Refuses a ``number`` of queries, say, that is larger than that of the public images."""
    if number > len(parts.public):
        raise InvalidArgument(
            f"{name} must be at most the {len(parts.public):,} public images, got {number:,}"
        )


def taught(
    job: Job,
    parts: Parts,
    labels: NDArray[np.int64],
    weights: NDArray[np.float64] | None = None,
) -> Student:
    """A student of the released ``labels`` (-1: none) of the public images."""
    chosen: StudentSettings = job.settings
    if not (labels >= 0).any():
        raise InvalidArgument(
            "no query was answered, so that there is nothing to learn from; ask more queries, "
            "lower the threshold, or spend more"
        )
    return train_student(
        parts.public, labels, classes=len(job.data.classes), method=chosen.student,
        device=str(job.device), seed=job.seed, flip=chosen.mirrored, weights=weights,
        epochs=chosen.student_epochs, progress=display.epochs(job.progress),
        upright=chosen.upright,
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
        weights: How far each label is to be trusted, where the release tells.
        data_dependent: An ε that depends on the data, told with noise.
    """
    chosen: StudentSettings = job.settings
    labelled = int((labels >= 0).sum())
    student = taught(job, parts, labels, weights)
    images, truth = np.asarray(job.data.test.inputs), job.data.test.labels
    right = float(np.mean(student.predict(images) == truth))
    done = job.conclude(
        student.model,
        accuracy=right,
        sampling=sampling,
        noise=words.NOISE,
        assumptions=(words.PUBLIC, *assumptions),
        releases=words.RELEASES if weights is None else (*words.RELEASES, words.TRUST),
        not_promised=(unreleased, *words.NOT_PROMISED),
        data_dependent=data_dependent,
        files={ANSWERS: answers_bytes(labels)},
        notes=(f"{labelled:,} of {len(parts.public):,} public images were labelled", *notes),
    )
    plain = settings_of.as_plain(chosen)
    return Transferred(student=student, labels=labels, settings=plain, trained=done)
