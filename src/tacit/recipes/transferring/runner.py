"""``run``: a transfer from its data to its student, kept in a folder or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tacit._validation import open_probability, positive
from tacit.data import Examples, load
from tacit.errors import InvalidArgument
from tacit.recipes import run as run_recipe
from tacit.recipes.transferring.method import check_dataset, chosen, cost, find, title
from tacit.recipes.transferring.splits import Parts, parts_of
from tacit.runs.recipe import Recipe

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from tacit.ledger import Budget
    from tacit.recipes.transferring.method import Method
    from tacit.recipes.transferring.student import Transferred
    from tacit.runs import Job, Trained

# A checksum would let whoever guesses all votes but one find out that one.
NO_CHECKSUM: Final = "votes, of which a checksum would tell"


def run(
    method: str,
    *,
    dataset: str = "digits",
    settings: Mapping[str, Any] | None = None,
    epsilon: float | None = None,
    delta: float = 1e-5,
    data: str | os.PathLike[str] | Parts | None = None,
    device: str | torch.device = "cpu",
    folder: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    budget: Budget | None = None,
    resume: bool = False,
    progress: bool | None = None,
    stop: Callable[[], bool] | None = None,
    command: Sequence[str] = (),
) -> Transferred:
    """Transfers what private records teach to a student that sees public images only.

    Args:
        method: ``"pate"``, ``"knn"`` or ``"rknn"``.
        dataset: ``"digits"``, ``"mnist"``, ``"fashion"``, ``"svhn"`` or ``"cifar10"``.
        settings: Some of the method's settings by name, instead of the defaults.
        epsilon: The ε of all that is released, from which the noise follows. Left out, it follows
            from the noise that ``settings`` has, or is the method's own.
        delta: Its δ.
        data: A folder where the data lie; or the parts to work on.
        device: As in ``tacit.recipes.run``, and so are the others.
        folder: Where to keep the run while it goes, and its results.
        seed: For first weights and the student's augmentations. Assignment of records, samples and
            noise are never seeded.
        budget: A budget of a ledger, which is charged before anything is released. It must be one
            for examples; the claim is for such neighbours as it has, or add-remove.
        resume: Whether to go on with the run that ``folder`` holds.
        progress: Whether to show progress.
        stop: Asked between queries: true ends the run there, to be resumed.
        command: The command line that started it.

    Guarantee:
        Student, labels and statement are (ε, δ)-differentially private, as the statement says and
        under what it assumes: above all that the public images are public. The labels of public
        images are not looked at, and those of the evaluation once, for the student's accuracy.

    >>> done = run("rknn", epsilon=4, seed=0)
    >>> done.accuracy > 0.8, round(done.statement.epsilon, 3), done.labelled
    (True, 4.0, 500)
    """
    way, name = find(method), check_dataset(dataset)
    failure = open_probability("delta", delta)
    goal = None if epsilon is None else positive("epsilon", epsilon)
    own, limit = chosen(
        way, name, settings or {}, epsilon=goal, delta=failure,
        adjacency="add-remove" if budget is None else budget.adjacency,
    )  # fmt: skip
    if not isinstance(data, Parts):
        data = parts_of(load(name, None if data is None else Path(data)))
    parts = prepared(data, own)
    recipe, results = recipe_of(way, own, parts)
    run_recipe(
        recipe, epsilon=limit, delta=failure, settings=own, data=parts.data, device=device,
        folder=folder, seed=seed, budget=budget, resume=resume, progress=progress, stop=stop,
        command=command,
    )  # fmt: skip
    return results[-1]


def recipe_of(method: Method, settings: Any, parts: Parts) -> tuple[Recipe, list[Transferred]]:
    """The transfer as a recipe that ``tacit.recipes`` can run, and where its result will be.

    Settings that cannot be are refused here, before anything is begun.
    """
    settings.fits(parts)
    results: list[Transferred] = []

    def train(job: Job) -> Trained:
        check_budget(job)
        results.append(method.transfer(job, parts))
        return results[-1].trained

    name = parts.data.name
    recipe = Recipe(
        name=title(method.name, name),
        summary=method.summary,
        data=name,
        settings=lambda _: settings,
        train=train,
        kind="transfer",
        anchors=method.anchors.get(name, ()),
        tuning=method.tuning(name),
    )
    return recipe, results


def check_budget(job: Job) -> None:
    """Refuses a budget for users, and one to whose neighbours the run costs more than its ε."""
    budget = job.budget
    if budget is None:
        return
    budget.check_protects("example")
    spent = cost(job.settings, job.delta, budget.adjacency)
    if spent > job.epsilon * (1.0 + 1e-9):
        raise InvalidArgument(
            f"epsilon must be at least the {spent:.6g} that the run costs by the "
            f"{budget.adjacency} adjacency of the budget {budget.name!r}, got {job.epsilon:g}; "
            "charge another budget"
        )


def prepared(parts: Parts, settings: Any) -> Parts:
    """``parts`` for these settings: with votes from a file, no private record is looked at."""
    votes = getattr(settings, "votes", None)
    if votes is None:
        return parts
    data = parts.data
    nobody = Examples(np.asarray(data.train.inputs)[:0], data.train.labels[:0])
    files = {**data.files, Path(votes).name: NO_CHECKSUM}
    return replace(parts, data=replace(data, train=nobody, files=files))
