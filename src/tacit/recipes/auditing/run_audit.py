"""``audit_run``: attacks the model that a finished run released.

Members are the records that it was trained on, others the held-out ones. Shadow models are trained
by the run's own recipe and settings: on the training records that are not asked about, and on a
random half of those that are, members and others alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from tacit._validation import whole
from tacit._workers import for_device
from tacit.accounting import profile
from tacit.accounting.serialization import from_dict
from tacit.auditing.attacks import Outputs, split
from tacit.data import Split, load
from tacit.errors import InvalidArgument
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
from tacit.recipes.auditing.own_run import (
    check_same_run,
    own_answers,
    own_labels,
    own_trial,
    trained_like_own,
)
from tacit.recipes.auditing.trial import (
    AttackChoice,
    Crew,
    Execution,
    Trial,
    answers,
    prepared_by,
    shadows_of,
    threads_for,
    trained_on_members,
)
from tacit.recipes.catalogue import find
from tacit.recipes.catalogue import names as recipe_names
from tacit.recipes.named import released_by
from tacit.runs import results
from tacit.runs import settings as settings_of
from tacit.runs.folder import MODEL

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from tacit.auditing import Scores
    from tacit.runs.record import RunRecord
    from tacit.runs.results import Finished
    from tacit.statement import Statement
    from tacit.training.fit import Prepared


_ATTACK: Final = AttackChoice()
_EXECUTION: Final = Execution()
NOTHING_CLAIMED: Final = "the run claims nothing that could be contradicted: it has no guarantee"
HELD_OUT: Final = (
    "Members are records that the run was trained on, and the others its held-out records: no coin "
    "decided who is which. A difference between the two kinds that has nothing to do with training "
    "looks like leakage."
)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Subject:
    """What is attacked: how the run's model answers, and how others like it are trained.

    Args:
        labels: The labels of the records that are asked about.
        members: Which of them the run was trained on.
        answers: The logits of the run's model on them.
        train: Trains a model without those whose coin is false; gives its logits.
        device: Where it is trained.
    """

    labels: NDArray[np.int64]
    members: NDArray[np.bool_]
    answers: NDArray[np.float32]
    train: Callable[[NDArray[np.bool_], int], NDArray[np.float32]]
    device: str


def audit_run(
    folder: str | os.PathLike[str],
    *,
    attack: AttackChoice = _ATTACK,
    records: int | None = None,
    data: str | os.PathLike[str] | Split | None = None,
    prepare: Callable[[], Prepared] | None = None,
    seed: int | None = None,
    execution: Execution = _EXECUTION,
) -> Audited:
    """Attacks the model of the run in ``folder``, and holds what is found against its claim.

    Args:
        folder: The folder of a finished run of ``tacit train`` or ``tacit.fit``.
        attack: Which attacks, with how many shadow models.
        records: How many members and how many others to ask about; left out, as many as there are
            of both, and 10,000 at most.
        data: Where the run's data lie, if not where the run found them; or the data.
        prepare: For a run of ``tacit.fit``: gives model, optimizer, plan and data as they were
            given to it, with held-out data, a fresh model each time.
        seed: For the audit's own choices; left out, fresh. Noise is never seeded.
        execution: Where and how it is carried out.

    Guarantee:
        None for the records: what is returned and written was computed from them without noise. The
        bound on ε holds under what it says that it assumes.
    """
    shadows = 16 if attack.shadows is None else whole("shadows", attack.shadows, at_least=0)
    names = attack_names(attack.names or ("lira",), shadows)
    run, workers = _finished(folder), execution.workers
    if run.record.kind == "own" and prepare is None:
        raise InvalidArgument(
            f"prepare must be given for the run in {run.path}, whose model and data are your own: "
            "a function that returns tacit.Prepared with what tacit.fit was given (tacit audit "
            "DIR --model FILE:function)"
        )
    own = {"run": run.record.configuration, "model": run.statement.files[MODEL],
           "shadows": shadows, "records": records, "views": attack.views, "seed": seed}  # fmt: skip
    with audit_folder(run.path if execution.out is None else execution.out) as work:
        number = work.seed(seed, own)
        if run.record.kind == "own":
            asked = _own_subject(run, prepare, records, number, threads_for(workers))
        else:
            place = str(device_named(execution.device))
            asked = _subject(run, data, records, attack.views, number, place, threads_for(workers))
        target = Outputs(asked.answers, asked.labels)
        compared = shadows_of(
            asked.train, asked.labels,
            Crew(count=shadows, seed=number, workers=for_device(workers, asked.device),
                 folder=work.models(own), progress=execution.progress),
        )  # fmt: skip
        scores = {name: split(scores_of(name, target, compared), asked.members) for name in names}
        settings = {**own, "seed": number, "attacks": list(names), "device": asked.device,
                    "asked": len(asked.labels)}  # fmt: skip
        audited = _judged(str(folder), run, scores, settings)
        work.conclude(audited, execution.command)
    return audited


def _subject(
    run: Finished,
    data: str | os.PathLike[str] | Split | None,
    records: int | None,
    views: int,
    seed: int,
    device: str,
    threads: int | None,
) -> _Subject:
    """A run of a recipe, which trains the others."""
    whole_data = _data(run.record, data)
    asked = audited_records(whole_data, records, seed)
    trial = _trial(run.record, whole_data, asked, views, device, threads)
    original = replace(trial, data=replace(trial.data, train=whole_data.train))
    return _Subject(
        labels=asked.questions.labels, members=asked.members, device=device,
        answers=released_answers(original, run),
        train=partial(trained_on_members, trial, asked.rows),
    )  # fmt: skip


def _own_subject(
    run: Finished,
    prepare: Callable[[], Prepared] | None,
    records: int | None,
    seed: int,
    threads: int | None,
) -> _Subject:
    """A run of somebody's own model and data, which their function prepares again."""
    assert prepare is not None
    prepared = prepare()
    check_same_run(run, prepared)
    trial = own_trial(prepare, prepared, records, seed, run.statement.delta, threads)
    network = run.in_model(prepared.released).model
    device = next((one.device for one in network.parameters()), None)
    return _Subject(
        labels=own_labels(trial, prepared), members=trial.asked_members,
        answers=own_answers(trial, prepared, network), train=partial(trained_like_own, trial),
        device="cpu" if device is None else str(device),
    )  # fmt: skip


def _trial(
    record: RunRecord,
    data: Split,
    asked: AuditedRecords,
    views: int,
    device: str,
    threads: int | None,
) -> Trial:
    found = find(record.recipe)
    default = found.settings(record.epsilon)
    return Trial(
        recipe=found,
        settings=settings_of.changed(default, dict(record.winner or record.settings)),
        data=replace(data, train=asked.train, test=with_views(asked.questions, views)),
        views=views,
        epsilon=record.epsilon,
        delta=record.delta,
        device=device,
        threads=threads,
    )


def _judged(
    subject: str, run: Finished, scores: Mapping[str, Scores], settings: Mapping[str, Any]
) -> Audited:
    claim = _claim(run.statement)
    verdict = None if claim is None else by_thresholds(claim.epsilon, claim.delta, scores)
    most = None
    if claim is not None:
        most = most_allowed(profile(from_dict(claim.event), claim.adjacency))
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
        run={"configuration": run.record.configuration, "model": run.statement.files[MODEL]},
        notes=(HELD_OUT, NO_PROOF),
    )


# ---- the run


def _finished(folder: str | os.PathLike[str]) -> Finished:
    run = results.load(folder)
    if run.record.kind != "own" and run.record.recipe not in recipe_names():
        raise InvalidArgument(
            f"the run in {run.path} is of {run.record.recipe!r}, which is no recipe of tacit "
            f"train; audit a run of {', '.join(recipe_names())}"
        )
    return run


def _data(record: RunRecord, data: str | os.PathLike[str] | Split | None) -> Split:
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
    if statement.void or not math.isfinite(statement.epsilon):
        return None
    return Claim(
        epsilon=statement.epsilon, delta=statement.delta, adjacency=statement.adjacency,
        event=statement.event,
    )  # fmt: skip


def released_answers(trial: Trial, run: Finished) -> NDArray[np.float32]:
    """The logits of the run's model on what the trial asks about; nothing is trained."""
    prepared = prepared_by(trial, trial.data, 0, released_by(run.path, trial.recipe))
    return answers(run.in_model(prepared.released).model, prepared, trial.views)
