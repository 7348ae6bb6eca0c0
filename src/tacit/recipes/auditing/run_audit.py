"""``audit_run``: attacks the model that a finished run released.

Members are the records that it was trained on, others the held-out ones. Shadow models are trained
by the run's own recipe and settings: on the training records that are not asked about, and on a
random half of those that are, members and others alike.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

from tacit import _files
from tacit._validation import whole
from tacit.accounting import profile
from tacit.accounting.serialization import from_plain
from tacit.auditing.attacks import Outputs, split
from tacit.data import Split, load
from tacit.errors import CheckpointError, InvalidArgument, TacitError
from tacit.models.devices import device_named
from tacit.recipes.auditing.audit_file import NO_PROOF, Audited, Claim
from tacit.recipes.auditing.audit_folder import audit_folder
from tacit.recipes.auditing.audited_records import AuditedRecords, audited_records, with_views
from tacit.recipes.auditing.evidence import (
    attack_names,
    by_thresholds,
    measured,
    most_allowed,
    scores_of,
)
from tacit.recipes.auditing.trial import (
    Crew,
    Trial,
    answers,
    carried_out,
    shadows_of,
    threads_for,
    trained_on_members,
    unfitted,
)
from tacit.recipes.catalogue import find
from tacit.recipes.catalogue import names as recipe_names
from tacit.recipes.running import record as records
from tacit.recipes.running import released as released_values
from tacit.recipes.running import settings as settings_of
from tacit.recipes.running.folder import MODEL, RECORD, STATEMENT, Folder
from tacit.recipes.running.keeping import Forgetful
from tacit.statement import Statement
from tacit.training import checkpoint_file

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from tacit.accounting.events import Event
    from tacit.auditing import Scores
    from tacit.recipes.running.lesson import Lesson
    from tacit.recipes.running.record import Record


NOTHING_CLAIMED: Final = "the run claims nothing that could be contradicted: it has no guarantee"
HELD_OUT: Final = (
    "Members are records that the run was trained on, and the others its held-out records: no coin "
    "decided who is which. A difference between the two kinds that has nothing to do with training "
    "looks like leakage."
)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Run:
    """A finished run, with the data that it was trained and tested on."""

    path: Path
    record: Record
    statement: Statement
    model: str
    data: Split


def audit_run(
    folder: str | os.PathLike[str],
    *,
    attacks: Sequence[str] = ("lira",),
    shadows: int = 16,
    records: int | None = None,
    views: int = 1,
    data: str | os.PathLike[str] | Split | None = None,
    device: str = "cpu",
    seed: int | None = None,
    workers: int = 1,
    cluster: str | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    command: Sequence[str] = (),
) -> Audited:
    """Attacks the model of the run in ``folder``, and holds what is found against its claim.

    Args:
        folder: The folder of a finished run of ``tacit train``.
        attacks: Which attacks of ``tacit.auditing.attacks.ATTACKS``.
        shadows: How many shadow models to train; 0 for attacks that need none.
        records: How many members and how many others to ask about; left out, as many as there are
            of both, and 10,000 at most.
        views: How many views of each image to ask about: as it is, and moved by a pixel.
        data: Where the run's data lie, if not where the run found them; or the data.
        device: Where to train.
        seed: For the audit's own choices; left out, fresh. Noise is never seeded.
        workers: How many processes train.
        cluster: A Ray cluster that trains instead: its address, or "local".
        out: Where ``audit.json`` goes, and finished models until the audit ends; left out, the
            run's folder.
        progress: Whether to show progress on standard error; left out, if it is a terminal.
        command: The command line that started it.

    Guarantee:
        None for the records: what is returned and written was computed from them without noise. The
        bound on ε holds under what it says that it assumes.
    """
    names = attack_names(attacks, whole("shadows", shadows, at_least=0))
    run = _finished(folder, data)
    own = {"run": run.record.configuration, "model": run.model, "shadows": shadows,
           "records": records, "views": views, "seed": seed}  # fmt: skip
    with audit_folder(run.path if out is None else out) as work:
        number = work.seed(seed, own)
        asked = audited_records(run.data, records, number)
        trial = _trial(run, asked, views, str(device_named(device)), threads_for(workers))
        target = Outputs(_target_answers(trial, run), asked.questions.labels)
        compared = shadows_of(
            partial(trained_on_members, trial, asked.rows), target.labels,
            Crew(count=shadows, seed=number, workers=workers, folder=work.models(own),
                 progress=progress, cluster=cluster, gpus=float(trial.device != "cpu")),
        )  # fmt: skip
        scores = {name: split(scores_of(name, target, compared), asked.members) for name in names}
        settings = {**own, "seed": number, "attacks": list(names), "device": trial.device,
                    "asked": len(asked.rows)}  # fmt: skip
        audited = _judged(str(folder), run, scores, settings)
        work.conclude(audited, command)
    return audited


def _trial(run: _Run, asked: AuditedRecords, views: int, device: str, threads: int | None) -> Trial:
    record = run.record
    found = find(record.recipe)
    default = found.settings(record.epsilon)
    return Trial(
        recipe=found,
        settings=settings_of.changed(default, dict(record.winner or record.settings)),
        data=replace(run.data, train=asked.train, test=with_views(asked.questions, views)),
        views=views,
        epsilon=record.epsilon,
        delta=record.delta,
        device=device,
        threads=threads,
    )


def _target_answers(trial: Trial, run: _Run) -> NDArray[np.float32]:
    own = replace(trial, data=replace(trial.data, train=run.data.train))
    return released_answers(own, run.path)


def _judged(
    subject: str, run: _Run, scores: Mapping[str, Scores], settings: Mapping[str, Any]
) -> Audited:
    claim = _claim(run.statement)
    verdict = None if claim is None else by_thresholds(claim.epsilon, claim.delta, scores)
    most = None
    if claim is not None:
        most = most_allowed(profile(from_plain(claim.event), claim.adjacency))
    return Audited(
        kind="run",
        subject=subject,
        words=NOTHING_CLAIMED if verdict is None else verdict.describe(),
        contradicted=verdict is not None and verdict.contradicted,
        verdict=verdict,
        claim=claim,
        attacks=tuple(
            measured(name, one, most, model="the run's model") for name, one in scores.items()
        ),
        settings=settings,
        run={"configuration": run.record.configuration, "model": run.model},
        notes=(HELD_OUT, NO_PROOF),
    )


# ---- the run


def _finished(folder: str | os.PathLike[str], data: str | os.PathLike[str] | Split | None) -> _Run:
    path = Path(folder)
    if not (path / RECORD).is_file():
        raise CheckpointError(f"{path} holds no run; name the folder that tacit train --out named")
    record = records.read(Folder(path))
    if record.recipe not in recipe_names():
        raise InvalidArgument(
            f"the run in {path} is of {record.recipe!r}, which is no recipe of tacit train; audit "
            f"a run of {', '.join(recipe_names())}"
        )
    if not record.finished or not (path / STATEMENT).is_file():
        raise CheckpointError(
            f"the run in {path} has not come to its end; go on with it "
            f"(tacit train --resume --out {path})"
        )
    try:
        statement = Statement.from_json(_files.read(path / STATEMENT).decode("utf-8"))
    except (OSError, ValueError, TacitError) as error:
        line = " ".join(str(error).split())
        raise CheckpointError(f"{path / STATEMENT} is refused: {line[:300]}") from None
    model = checksum(path)
    if statement.files.get(MODEL, model) != model:
        raise CheckpointError(
            f"{path / MODEL} is not the file that {STATEMENT} is about; bring that one back"
        )
    return _Run(
        path=path, record=record, statement=statement, model=model, data=_data(record, data)
    )


def _data(record: Record, data: str | os.PathLike[str] | Split | None) -> Split:
    """The run's data; other ones are refused."""
    if not isinstance(data, Split):
        looked = record.folder if data is None else data
        data = load(str(record.data["name"]), None if looked is None else Path(looked))
    same = {"name": data.name, "files": dict(data.files), "train": len(data.train),
            "test": len(data.test)}  # fmt: skip
    for name, theirs in same.items():
        if record.data.get(name) != theirs:
            raise InvalidArgument(
                f"data must be those of the run, and {name} differs; name their folder (--data)"
            )
    return data


def _claim(statement: Statement) -> Claim | None:
    void = any("VOIDS THE GUARANTEE" in one for one in statement.assumptions)
    if void or not math.isfinite(statement.epsilon):
        return None
    return Claim(
        epsilon=statement.epsilon, delta=statement.delta, adjacency=statement.adjacency,
        event=statement.event,
    )  # fmt: skip


# ---- the model that the run released, put together again by its recipe


def released_answers(trial: Trial, folder: Path) -> NDArray[np.float32]:
    """The logits of the folder's model on what the trial asks about; nothing is trained."""
    try:
        carried_out(trial, trial.data, 0, _show, _Released(folder, trial.recipe.name))
    except _Shown as shown:
        _load(shown.lesson.model, folder / MODEL)
        return answers(shown.lesson.model, shown.lesson, trial.views)
    raise unfitted(trial.recipe)


def checksum(folder: Path) -> str:
    """The SHA-256 of the folder's model."""
    try:
        with _files.opened(folder / MODEL) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(
            f"{folder / MODEL} cannot be read: {reason}; the audit needs the model that the run "
            "released"
        ) from None


def _load(model: nn.Module, path: Path) -> None:
    _, tensors = checkpoint_file.load_tensors(path)
    try:
        model.load_state_dict(tensors)
    except (RuntimeError, TypeError, ValueError) as error:
        line = " ".join(str(error).split())
        raise CheckpointError(f"{path} does not hold the recipe's model: {line[:200]}") from None


class _Shown(Exception):
    def __init__(self, lesson: Lesson) -> None:
        super().__init__()
        self.lesson = lesson


def _show(lesson: Lesson) -> NoReturn:
    raise _Shown(lesson)


@final
class _Released(Forgetful):
    """Gives a job what its run released beside the model, and lets it release nothing more."""

    def __init__(self, folder: Path, recipe: str) -> None:
        self._folder, self._recipe = folder, recipe

    def released(self, name: str) -> tuple[Any, Event] | None:
        """What the run released, if its folder still has it."""
        path = self._folder / f"released-{name}.safetensors"
        if not path.is_file():
            raise InvalidArgument(
                f"the run in {self._folder} cannot be audited: {self._recipe} released its "
                f"{name} beside the model, and the folder does not keep it ({path.name})"
            )
        return released_values.read(path)
