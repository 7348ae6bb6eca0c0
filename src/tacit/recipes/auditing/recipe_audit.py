"""``audit_recipe``: trains a model by a recipe with members drawn by coins, and attacks it.

Each audited record is in or out by its own fair coin, all others are in. One that is out adds
exactly nothing, while the plan stays that of the whole (``trained_with_members``). So guesses about
many records of this one model bound ε without any assumption about the records (``one_run``).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tacit._validation import open_probability, positive, whole
from tacit._workers import for_device
from tacit.accounting import profile
from tacit.accounting.serialization import as_dict
from tacit.auditing.attacks import Outputs, split
from tacit.data import Split, load
from tacit.errors import InvalidArgument
from tacit.models.devices import device_named
from tacit.recipes.auditing.audit_file import NO_PROOF, Audited, Claim
from tacit.recipes.auditing.audit_folder import audit_folder
from tacit.recipes.auditing.audited_records import canary_count, drawn_canaries, with_views
from tacit.recipes.auditing.evidence import (
    attack_names,
    by_guesses,
    measured,
    most_allowed,
    scores_of,
)
from tacit.recipes.auditing.trial import (
    AttackChoice,
    Crew,
    Execution,
    Trial,
    planned,
    rows_of,
    shadows_of,
    threads_for,
    trained_with_members,
)
from tacit.recipes.catalogue import find
from tacit.runs import settings as settings_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from tacit.runs.recipe import Recipe
    from tacit.training.plan import Plan


_ATTACK: Final = AttackChoice()
_EXECUTION: Final = Execution()
COINS: Final = (
    "A fair coin for each audited record decided whether it was in; one that was out was sampled "
    "like any other, and its loss taken times 0. The model was trained for this audit only."
)
WRONG: Final = (
    "The audited records are canaries: training records with a wrong label, which a model learns "
    "only by remembering them."
)


def audit_recipe(
    recipe: Recipe | str,
    *,
    epsilon: float = 3.0,
    delta: float = 1e-5,
    settings: Mapping[str, Any] | None = None,
    one_run: bool = False,
    canaries: int | None = None,
    attack: AttackChoice = _ATTACK,
    data: str | os.PathLike[str] | Split | None = None,
    seed: int | None = None,
    execution: Execution = _EXECUTION,
) -> Audited:
    """Trains a model by ``recipe`` with some records in by coins, attacks it, and judges.

    Args:
        recipe: A recipe, or the name of one. It must fit a plan, and release nothing beside it.
        epsilon: What the model may spend: the claim that is audited.
        delta: Its δ.
        settings: Some of the recipe's settings by name.
        one_run: Whether one model is all that is trained: the audited records are then canaries
            with a wrong label, and the attack needs no shadow models.
        canaries: How many records are audited; left out, half of them, and 10,000 at most (1,000
            with ``one_run``).
        attack: Which attacks, with how many shadow models.
        data: Where the data lie; or the data.
        seed: For coins, canaries and first weights; left out, fresh. Noise is never seeded.
        execution: Where and how it is carried out.

    Guarantee:
        If training keeps what the plan claims, the claim is contradicted with probability 1e-4 at
        most. None for the records: the result was computed from them without noise.

    >>> audited = audit_recipe("digits", epsilon=2, one_run=True, canaries=200, seed=1)
    >>> audited.contradicted, audited.exit_status
    (False, 0)
    """
    default, usual = (0, "loss") if one_run else (16, "lira")
    count = default if attack.shadows is None else whole("shadows", attack.shadows, at_least=0)
    names = attack_names(attack.names or (usual,), count)
    views, workers = attack.views, execution.workers
    bare = _trial(recipe, epsilon, delta, settings, data, execution)
    plan = _plan(bare)
    own = _own(bare, canaries, count, views, seed, one_run=one_run)
    with audit_folder(execution.out) as work:
        number = work.seed(seed, own)
        drawn = drawn_canaries(bare.data, own["canaries"], number, wrong=one_run)
        questions = rows_of(drawn.train, drawn.rows)
        asked = replace(bare.data, train=drawn.train, test=with_views(questions, views))
        trial = replace(bare, views=views, data=asked)
        train = partial(trained_with_members, trial, drawn.rows)
        target = Outputs(
            work.kept("target", own, lambda: train(drawn.coins, number)), questions.labels
        )
        compared = shadows_of(
            train, target.labels,
            Crew(count=count, seed=number + 1, workers=for_device(workers, trial.device),
                 folder=work.models(own), progress=execution.progress),
        )  # fmt: skip
        scores = {name: scores_of(name, target, compared) for name in names}
        used = {**own, "seed": number, "attacks": list(names), "device": trial.device}
        audited = _judged(trial, plan, drawn.coins, scores, used)
        work.conclude(audited, execution.command)
    return audited


def _own(
    trial: Trial, canaries: int | None, shadows: int, views: int, seed: int | None, *, one_run: bool
) -> dict[str, Any]:
    """All that makes this audit another than others."""
    return {
        "recipe": trial.recipe.name,
        "settings": settings_of.as_dict(trial.settings),
        "epsilon": trial.epsilon,
        "delta": trial.delta,
        "data": dict(trial.data.files),
        "one_run": one_run,
        "canaries": canary_count(canaries, len(trial.data.train), one_run),
        "shadows": shadows,
        "views": views,
        "seed": seed,
    }


def _judged(
    trial: Trial,
    plan: Plan,
    coins: NDArray[np.bool_],
    scores: Mapping[str, NDArray[np.float64]],
    settings: Mapping[str, Any],
) -> Audited:
    claimed = plan.epsilon(trial.delta)
    curve = profile(plan.event, plan.adjacency)
    judged = by_guesses(claimed, trial.delta, scores, coins, curve)
    most = most_allowed(curve)
    one_run = bool(settings["one_run"])
    return Audited(
        kind="one-run" if one_run else "recipe",
        subject=trial.recipe.name,
        words=judged.describe(),
        contradicted=judged.contradicted,
        verdict=judged.verdict,
        curve_p_value=judged.p_value,
        claim=Claim(
            epsilon=claimed, delta=trial.delta, adjacency=plan.adjacency, event=as_dict(plan.event)
        ),
        attacks=tuple(
            measured(name, split(one, coins), most, model="the audit's model")
            for name, one in scores.items()
        ),
        settings=settings,
        notes=(COINS, *((WRONG,) if one_run else ()), NO_PROOF),
    )


def _trial(
    recipe: Recipe | str,
    epsilon: float,
    delta: float,
    settings: Mapping[str, Any] | None,
    data: str | os.PathLike[str] | Split | None,
    execution: Execution,
) -> Trial:
    device = str(device_named(execution.device))
    chosen = find(recipe) if isinstance(recipe, str) else recipe
    limit, failure = positive("epsilon", epsilon), open_probability("delta", delta)
    if not isinstance(data, Split):
        data = load(chosen.data, None if data is None else Path(data))
    return Trial(
        recipe=chosen, settings=settings_of.changed(chosen.settings(limit), settings or {}),
        data=data, epsilon=limit, delta=failure, device=device,
        threads=threads_for(execution.workers),
    )  # fmt: skip


def _plan(trial: Trial) -> Plan:
    """The plan to be audited; refused if records are read in other ways, too."""
    plan, also = planned(trial)
    if also:
        raise InvalidArgument(
            f"{trial.recipe.name} reads all records for {len(also)} further release(s), from which "
            "none can be left out alone; audit a run of it (tacit train, then tacit audit DIR)"
        )
    return plan
