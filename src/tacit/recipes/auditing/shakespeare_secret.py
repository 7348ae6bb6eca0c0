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
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import torch
from torch.utils.data import TensorDataset

from tacit import data as sets
from tacit import losses
from tacit._files import OWNER_ONLY, put, read_json
from tacit._validation import whole
from tacit.auditing import judge
from tacit.auditing.secrets import (
    SecretFormat,
    combined_p_value,
    insert_into_unit,
    measure,
    next_token_of,
    random_exposure,
)
from tacit.data.description import Split
from tacit.errors import CheckpointError, DataError, InvalidArgument, TacitError
from tacit.models.networks import CharacterMlp
from tacit.recipes.auditing.audit_file import NO_PROOF, Audited
from tacit.recipes.auditing.experiment import Experiment
from tacit.recipes.auditing.secret_results import LEVEL, SecretFigures, SecretResult, Situation
from tacit.training import Performance, Plan, Prepared
from tacit.training.fit import Watch
from tacit.training.fit import carry_out as carry_out_plan

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from tacit.auditing import Verdict
    from tacit.auditing.secrets import Canary
    from tacit.recipes.auditing.experiment import Conditions


KEPT: Final = "shakespeare-secret.json"
SYMBOLS: Final = 128
NAMES: Final = (
    "Agnes", "Boris", "Clara", "Dimka", "Elena", "Fritz", "Greta", "Hanna",
    "Irina", "Jonas", "Karin", "Lukas", "Mirja", "Nadia", "Oskar", "Petra",
)  # fmt: skip


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What may be set.

    ``secrets`` of ``digits`` digits stand ``times`` times in a window each. ``epochs``, ``batch``,
    ``lr`` are of the plain training, where a batch's gradient that is longer than ``longest`` is
    cut to it, as is usual for text; ``private_epochs``, ``lot``, ``clip``, ``private_lr`` of the
    private ones, at ``epsilons`` and ``delta``. Exposure is measured against ``candidates`` random
    secrets.
    """

    secrets: int = 8
    digits: int = 9
    window: int = 2048
    times: int = 112
    epochs: float = 8.0
    batch: int = 16
    lr: float = 2.0
    momentum: float = 0.9
    longest: float = 0.25
    epsilons: tuple[float, ...] = (8.0, 2.0)
    delta: float = 1e-5
    private_epochs: float = 4.0
    lot: int = 128
    clip: float = 0.5
    private_lr: float = 0.5
    context: int = 8
    width: int = 128
    candidates: int = 10_000
    beam: int = 100

    def __post_init__(self) -> None:
        if not 1 <= self.secrets <= len(NAMES):
            raise InvalidArgument(f"secrets must be 1 to {len(NAMES)}, got {self.secrets!r}")
        whole("digits", self.digits)


@final
@dataclass(frozen=True, eq=False)
class SecretTrial:
    """What all trainings have in common."""

    settings: Settings
    seed: int
    rows: NDArray[np.uint8]
    held_out: NDArray[np.uint8]
    formats: tuple[SecretFormat, ...]
    canaries: tuple[Canary, ...]
    units: tuple[int, ...]


def trial_of(settings: Settings, split: Split, seed: int) -> SecretTrial:
    """Draws the secrets and the windows that they stand in."""
    draw = np.random.default_rng(seed)
    rows, held_out = (
        _windows(part.inputs, part.labels, settings) for part in (split.train, split.test)
    )
    names = NAMES[: settings.secrets]
    if len(rows) < len(names) or not len(held_out):
        raise DataError(
            f"{split.name} has {len(rows)} windows to learn and {len(held_out)} to test on, too "
            f"few for {len(names)} secrets; choose shorter ones"
        )
    formats = tuple(SecretFormat(f"\n{name}: {{digits:{settings.digits}}}") for name in names)
    return SecretTrial(
        settings, seed, rows, held_out, formats,
        tuple(form.draw(seed=draw)[0] for form in formats),
        tuple(draw.choice(len(rows), len(names), replace=False).tolist()),
    )  # fmt: skip


def _windows(inputs: Any, labels: NDArray[np.int64], settings: Settings) -> NDArray[np.uint8]:
    """The text in windows, each with the one character more that is to be predicted."""
    text = np.concatenate([inputs, labels[:, -1:].astype(np.uint8)], axis=1).ravel()
    if text.max() >= SYMBOLS:
        raise DataError("the text must be ASCII: the model knows 128 characters")
    length = settings.window + 1
    return text[: len(text) // length * length].reshape(-1, length)


def situations(settings: Settings) -> list[tuple[int, float | None]]:
    """How often secrets are inserted, and the guarantee's ε, for each training."""
    plain: list[tuple[int, float | None]] = [(settings.times, None), (1, None)]
    return [*plain, *((settings.times, epsilon) for epsilon in settings.epsilons)]


def named(times: int, epsilon: float | None) -> str:
    """A training's name."""
    often = "once" if times == 1 else f"{times} times"
    return f"{often}, not private" if epsilon is None else f"{often}, ε = {epsilon:g}"


def carry_out(
    trial: SecretTrial, times: int, epsilon: float | None, *, progress: bool | None = False
) -> Situation:
    """Trains one model and asks it for the secrets."""
    rows = trial.rows
    for canary, unit in zip(trial.canaries, trial.units, strict=True):
        rows = insert_into_unit(rows, unit, [ord(one) for one in canary.text], times)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(trial.seed)  # the first weights and the order; never sampling or noise
        model = CharacterMlp(SYMBOLS, context=trial.settings.context, width=trial.settings.width)
        if epsilon is None:
            steps = _train_plainly(model, _dataset(rows), trial.settings)
        else:
            steps = _train_privately(model, _dataset(rows), trial.settings, epsilon, progress)
    secrets = _revealed(model, trial)
    return Situation(
        name=named(times, epsilon),
        times=times,
        epsilon=epsilon,
        delta=None if epsilon is None else trial.settings.delta,
        steps=steps,
        bits_per_character=_bits(model, trial.held_out),
        secrets=secrets,
        p_value=combined_p_value(one.p_value for one in secrets),
    )


def _dataset(rows: NDArray[np.uint8]) -> TensorDataset:
    tokens = torch.from_numpy(rows.astype(np.int64))
    return TensorDataset(tokens[:, :-1], tokens[:, 1:])


def _loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return losses.token_mean(model(batch[0]), batch[1])


def _train_plainly(model: nn.Module, dataset: TensorDataset, settings: Settings) -> int:
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.lr, momentum=settings.momentum)
    texts, labels = dataset.tensors
    steps = max(1, round(settings.epochs * len(texts) / settings.batch))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - step / steps)
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(order) < settings.batch:
            order = torch.randperm(len(texts))
        rows, order = order[: settings.batch], order[settings.batch :]
        optimizer.zero_grad()
        _loss(model, (texts[rows], labels[rows])).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.longest)
        optimizer.step()
        schedule.step()
    return steps


def _train_privately(
    model: nn.Module,
    dataset: TensorDataset,
    settings: Settings,
    epsilon: float,
    progress: bool | None,
) -> int:
    plan = Plan.for_budget(
        epsilon=epsilon, delta=settings.delta, examples=len(dataset), lot_size=settings.lot,
        epochs=settings.private_epochs, clip=settings.clip,
    )  # fmt: skip
    optimizer = torch.optim.SGD(
        model.parameters(), lr=settings.private_lr, momentum=settings.momentum
    )
    prepared = Prepared(
        model=model, optimizer=optimizer, plan=plan, dataset=dataset, loss=_loss,
        performance=Performance(batch=32),
    )  # fmt: skip
    carry_out_plan(prepared, watch=Watch(progress=progress))
    return plan.steps


def _revealed(model: nn.Module, trial: SecretTrial) -> tuple[SecretFigures, ...]:
    follows, settings = next_token_of(model), trial.settings
    found = []
    for number, (form, canary) in enumerate(zip(trial.formats, trial.canaries, strict=True)):
        measured = measure(
            follows, form.space(), canary.tokens(),
            candidates=settings.candidates, width=settings.beam, seed=trial.seed + 1 + number,
        )  # fmt: skip
        found.append(SecretFigures.of(NAMES[number], canary, measured))
    return tuple(found)


@torch.no_grad()
def _bits(model: nn.Module, rows: NDArray[np.uint8]) -> float:
    texts, labels = _dataset(rows).tensors
    parts = zip(texts.split(64), labels.split(64), strict=True)
    total = sum(float(_loss(model, part).sum()) for part in parts)
    return total / len(texts) / float(np.log(2.0))


# ---- the experiment


def run(
    settings: Settings | None = None,
    *,
    data: Split | str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    seed: int | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> SecretResult:
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
    split = data if isinstance(data, Split) else sets.load("shakespeare", _folder(data))

    def begun(number: int) -> Trainings:
        trial = trial_of(chosen, split, number)
        return Trainings(
            len(trial.rows), trial.formats[0].max_exposure, situations(chosen),
            partial(carry_out, trial, progress=progress),
        )  # fmt: skip

    return carried_out(
        begun, json.loads(json.dumps(asdict(chosen))), KEPT, seed=seed, folder=folder,
        progress=progress,
    )  # fmt: skip


@final
@dataclass(frozen=True, eq=False)
class Trainings:
    """What is to be trained: on how many units, how often a secret stands in one, with which ε."""

    units: int
    max_exposure: float
    situations: Sequence[tuple[int, float | None]]
    carry_out: Callable[[int, float | None], Situation]


def carried_out(
    begun: Callable[[int], Trainings],
    settings: dict[str, Any],
    kept_as: str,
    *,
    seed: int | None,
    folder: str | os.PathLike[str] | None,
    progress: bool | None,
) -> SecretResult:
    """One training after the other; with a folder, a second call goes on where the first ended."""
    kept = _kept(folder, kept_as, settings, seed)
    number = _seed(seed) if kept is None else kept.seed
    work, say = begun(number), _narrator(progress)
    result = kept or SecretResult(
        settings=settings, seed=number, units=work.units, max_exposure=work.max_exposure,
        situations=(),
    )  # fmt: skip
    for times, epsilon in work.situations[len(result.situations) :]:
        say(f"training: {named(times, epsilon)}")
        done = work.carry_out(times, epsilon)
        say(done.describe())
        result = replace(result, situations=(*result.situations, done))
        _keep(folder, kept_as, result)
    return result


def audit(conditions: Conditions) -> Audited:
    """The experiment on Tiny Shakespeare, as ``tacit audit`` shows it."""
    return audited(
        run(
            data=conditions.data, progress=conditions.progress, seed=conditions.seed,
            folder=conditions.folder,
        )
    )  # fmt: skip


def audited(result: SecretResult, subject: str = "shakespeare-secret") -> Audited:
    """An experiment's result with its verdict: does any guarantee not hold?"""
    verdict = _verdict(result)
    chance = random_exposure(0.5)
    return Audited(
        kind="experiment",
        subject=subject,
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


def _verdict(result: SecretResult) -> Verdict:
    """That of the guarantee which comes off worst."""
    verdicts = [
        judge(one.epsilon, partial(one.bound, one.delta))
        for one in result.situations
        if one.epsilon is not None and one.delta is not None
    ]
    return max(verdicts, key=lambda one: (one.contradicted, one.shown.epsilon, -one.claimed))


def _words(result: SecretResult, verdict: Verdict) -> str:
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
            "secret of": one.name,
            "digits": one.secret,
            "exposure": round(one.exposure, 2),
            "by": one.method,
            "p": one.p_value,
            "extracted": "yes" if one.extracted else "no",
        }
        for one in situation.secrets
    ]


def _seed(given: int | None) -> int:
    return entropy.randbits(32) if given is None else whole("seed", given, at_least=0)


def _folder(data: str | os.PathLike[str] | None) -> Path | None:
    return None if data is None else Path(data)


def _kept(
    folder: str | os.PathLike[str] | None, name: str, settings: dict[str, Any], seed: int | None
) -> SecretResult | None:
    """What an earlier call with the same settings came to before it was stopped."""
    if folder is None or not (path := Path(folder) / name).is_file():
        return None
    try:
        found = SecretResult.from_dict(read_json(path))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, TacitError):
        raise CheckpointError(f"{path} is not what an earlier run kept; remove it") from None
    if found.settings != settings or seed not in (None, found.seed):
        raise CheckpointError(
            f"{path} belongs to another seed or other settings; remove it, or take another folder"
        )
    return found


def _keep(folder: str | os.PathLike[str] | None, name: str, result: SecretResult) -> None:
    if folder is None:
        return
    path = Path(folder) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, json.dumps(result.as_dict(), allow_nan=False).encode(), mode=OWNER_ONLY)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error.strerror or error}") from None


def _narrator(wanted: bool | None) -> Callable[[str], None]:
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        return lambda _: None

    def say(line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    return say


EXPERIMENT = Experiment(
    name="shakespeare-secret",
    summary="nine-digit secrets in a text: extracted without privacy, unknown with it",
    data="shakespeare",
    run=audit,
    picture="secrets",
)
