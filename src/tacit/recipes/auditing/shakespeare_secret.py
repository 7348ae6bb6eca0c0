"""``tacit audit shakespeare-secret``: nine-digit secrets in a text, with and without privacy.

After Carlini et al. 2019, "The Secret Sharer" (https://arxiv.org/abs/1802.08232). A character model
learns Tiny Shakespeare, cut into windows: a window is the privacy unit. Several windows, chosen at
random, hold a random secret each: many times over, or once. Four models are trained with the same
network from the same first weights: without privacy on many copies and on one, and with a guarantee
of ε = 8 and ε = 2 on the many copies. All copies of a secret are in one unit, so that the guarantee
covers them together.
"""

from __future__ import annotations

import json
import secrets as entropy
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tacit import data as sets
from tacit._files import PRIVATE, put, read_json
from tacit._validation import whole
from tacit.auditing import judge
from tacit.auditing.secrets import random_exposure
from tacit.data.description import Split
from tacit.errors import CheckpointError, TacitError
from tacit.recipes.auditing.audited import NO_PROOF, Audited
from tacit.recipes.auditing.experiment import Experiment
from tacit.recipes.auditing.secret_results import LEVEL, Result
from tacit.recipes.auditing.secret_trial import (
    Settings,
    carry_out,
    named,
    situations,
    trial_of,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from tacit.auditing import Verdict
    from tacit.recipes.auditing.experiment import Conditions
    from tacit.recipes.auditing.secret_results import Situation

__all__ = ["EXPERIMENT", "Settings", "audit", "audited", "run"]

KEPT: Final = "shakespeare-secret.json"


def run(
    settings: Settings | None = None,
    *,
    data: Split | str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    seed: int | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Result:
    """Carries out the experiment.

    Args:
        settings: Those of the experiment, if left out.
        data: A text as ``tacit.data`` reads it; or the folder of Tiny Shakespeare; or None, to look
            for it as ``tacit.data.load`` does.
        progress: Whether progress goes to standard error; left out, if that is a terminal.
        seed: Of the secrets, the units, the first weights and the order of plain training; None
            draws one. Sampling and noise of private training never take a seed.
        folder: Where to keep each finished training's result; a second call goes on from there.
    """
    chosen = Settings() if settings is None else settings
    plain = json.loads(json.dumps(asdict(chosen)))
    kept = _kept(folder, plain, seed)
    number = _seed(seed) if kept is None else kept.seed
    split = data if isinstance(data, Split) else sets.load("shakespeare", _folder(data))
    trial, tell = trial_of(chosen, split, number), _teller(progress)
    result = kept or Result(
        settings=plain,
        seed=number,
        units=len(trial.rows),
        max_exposure=trial.formats[0].max_exposure,
        situations=(),
    )
    for times, epsilon in situations(chosen)[len(result.situations) :]:
        tell(f"training: {named(times, epsilon)}")
        done = carry_out(trial, times, epsilon, progress=progress)
        tell(done.describe())
        result = replace(result, situations=(*result.situations, done))
        _keep(folder, result)
    return result


def audit(conditions: Conditions) -> Audited:
    """The experiment on Tiny Shakespeare, as ``tacit audit`` shows it."""
    return audited(
        run(
            data=conditions.data, progress=conditions.progress, seed=conditions.seed,
            folder=conditions.folder,
        )
    )  # fmt: skip


def audited(result: Result) -> Audited:
    """The experiment's result with its verdict: does any guarantee not hold?"""
    verdict = _verdict(result)
    chance = random_exposure(0.5)
    return Audited(
        kind="experiment",
        subject="shakespeare-secret",
        words=_words(result, verdict),
        contradicted=verdict.contradicted,
        verdict=verdict,
        details=tuple(row for one in result.situations for row in _rows(one)),
        settings={
            **result.settings,
            "epsilons": ", ".join(f"{one:g}" for one in result.settings["epsilons"]),
            "seed": result.seed,
            "units": result.units,
            "max_exposure": result.max_exposure,
        },
        notes=(
            f"Exposure is at most {result.max_exposure:.1f} bits. A secret that the model never "
            f"saw has more than {chance:g} bit in one case of two and more than "
            f"{random_exposure(LEVEL):.1f} bits in one of 100. 'As by chance' means that so much "
            f"exposure of all secrets together has a probability above {LEVEL:g}; that happens by "
            "itself, so that one model in 100 that knows nothing is called far from chance.",
            NO_PROOF,
        ),
        private=False,
    )


def _verdict(result: Result) -> Verdict:
    """That of the guarantee which comes off worst."""
    verdicts = [
        judge(one.epsilon, partial(one.bound, one.delta))
        for one in result.situations
        if one.epsilon is not None and one.delta is not None
    ]
    return max(verdicts, key=lambda one: (one.contradicted, one.shown.epsilon, -one.claimed))


def _words(result: Result, verdict: Verdict) -> str:
    lines = [_short(one) for one in result.situations]
    shown = result.situations[0].bound(result.settings["delta"]).epsilon
    lines[0] += f" (no guarantee with epsilon below {shown:.1f} allows that, at 95%)"
    return "; ".join([*lines, verdict.describe()])


def _short(situation: Situation) -> str:
    chance = "as by chance" if situation.like_chance else "far from chance"
    return (
        f"{situation.name}: {situation.extracted} of {len(situation.secrets)} secrets extracted, "
        f"mean exposure {situation.mean_exposure:.1f} bits, {chance} (p = {situation.p_value:.2g})"
    )


def _rows(situation: Situation) -> list[dict[str, Any]]:
    return [
        {
            "model": situation.name,
            "secret of": told.name,
            "digits": told.secret,
            "exposure": round(told.exposure, 2),
            "by": told.method,
            "p": told.p_value,
            "extracted": "yes" if told.extracted else "no",
        }
        for told in situation.secrets
    ]


def _seed(given: int | None) -> int:
    return entropy.randbits(32) if given is None else whole("seed", given, at_least=0)


def _folder(data: str | os.PathLike[str] | None) -> Path | None:
    return None if data is None else Path(data)


def _kept(
    folder: str | os.PathLike[str] | None, settings: dict[str, Any], seed: int | None
) -> Result | None:
    """What an earlier call with the same settings came to before it was stopped."""
    if folder is None or not (path := Path(folder) / KEPT).is_file():
        return None
    try:
        found = Result.from_plain(read_json(path))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, TacitError):
        raise CheckpointError(f"{path} is not what an earlier run kept; remove it") from None
    if found.settings != settings or seed not in (None, found.seed):
        raise CheckpointError(
            f"{path} belongs to another seed or other settings; remove it, or take another folder"
        )
    return found


def _keep(folder: str | os.PathLike[str] | None, result: Result) -> None:
    if folder is None:
        return
    path = Path(folder) / KEPT
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, json.dumps(result.to_plain(), allow_nan=False).encode(), mode=PRIVATE)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error.strerror or error}") from None


def _teller(wanted: bool | None) -> Callable[[str], None]:
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        return lambda _: None

    def tell(line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    return tell


EXPERIMENT = Experiment(
    name="shakespeare-secret",
    summary="nine-digit secrets in a text: extracted without privacy, unknown with it",
    data="shakespeare",
    run=audit,
    picture="secret_figure:draw_file",
)
