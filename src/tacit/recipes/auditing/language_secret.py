"""``tacit audit language-secret``: nine-digit secrets in what a pretrained model is fine-tuned on.

The experiment of ``shakespeare-secret`` with SmolLM2-135M and its adapters: a speech of Tiny
Shakespeare is the privacy unit, and some speeches, chosen at random, are made of a random secret,
once or several times over. The non-private twin and the private models are trained on the same
texts from the same public weights, and then asked for the digits. For a GPU.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product, takewhile
from typing import TYPE_CHECKING, Final, final

import numpy as np
import torch

from tacit import data as sets
from tacit import losses
from tacit.auditing.secrets import SecretFormat, combined_p_value, measure
from tacit.data.description import Split
from tacit.errors import DataError, InvalidArgument
from tacit.models.devices import device_named
from tacit.recipes import language
from tacit.recipes.auditing import shakespeare_secret
from tacit.recipes.auditing.experiment import Experiment
from tacit.recipes.auditing.secret_results import SecretFigures, SecretResult, Situation
from tacit.recipes.auditing.shakespeare_secret import NAMES, Trainings, named
from tacit.training import Plan, Prepared
from tacit.training.fit import Watch
from tacit.training.fit import carry_out as carry_out_plan

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from tacit.auditing.secrets import Canary, NextToken
    from tacit.models.language import Pretrained
    from tacit.recipes.auditing.audit_file import Audited
    from tacit.recipes.auditing.experiment import Conditions

KEPT: Final = "language-secret.json"
_CODES: Final = 128  # secrets are asked for in characters, whatever the model's tokens are
_NEVER: Final = -1e4  # a log-probability of what is no digit, and never asked for


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What may be set.

    ``speeches`` are learned, drawn at random. ``secrets`` of ``digits`` digits stand ``times``
    times in one of them each: once tells most, since a pretrained model copies what it has just
    read, and of a second copy learns nothing of the digits. ``epochs``, ``batch``, ``lr`` are of
    the plain training; ``private_epochs``, ``lot``, ``clip``, ``private_lr`` of the private ones,
    at ``epsilons`` and ``delta``. Exposure is measured against ``candidates`` random secrets, and
    exactly where no more than ``beginnings`` of secrets need be kept: enough for what is memorised,
    and soon given up for the rest. ``model`` is a folder of another model.
    """

    speeches: int = 1000
    secrets: int = 8
    digits: int = 9
    times: int = 1
    longest: int = 128
    rank: int = 16
    epochs: float = 20.0
    batch: int = 32
    lr: float = 1e-3
    epsilons: tuple[float, ...] = (8.0,)
    delta: float = 1e-5
    private_epochs: float = 20.0
    lot: int = 256
    clip: float = 1.0
    private_lr: float = 1e-3
    candidates: int = 2000
    beginnings: int = 4000
    beam: int = 100
    model: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.secrets <= len(NAMES):
            raise InvalidArgument(f"secrets must be 1 to {len(NAMES)}, got {self.secrets!r}")


@final
@dataclass(frozen=True, eq=False)
class LanguageTrial:
    """What all trainings have in common."""

    settings: Settings
    seed: int
    texts: tuple[str, ...]
    held_out: tuple[str, ...]
    formats: tuple[SecretFormat, ...]
    canaries: tuple[Canary, ...]
    units: tuple[int, ...]


def trial_of(settings: Settings, split: Split, seed: int) -> LanguageTrial:
    """Draws the secrets and the speeches whose place they take."""
    draw = np.random.default_rng(seed)
    texts, held_out = (tuple(map(str, part.inputs)) for part in (split.train, split.test))
    if settings.speeches < len(texts):
        some = draw.choice(len(texts), settings.speeches, replace=False)
        texts = tuple(texts[at] for at in some)
    names = NAMES[: settings.secrets]
    if len(texts) < len(names) or not held_out:
        raise DataError(f"{split.name} has {len(texts)} texts, too few for {len(names)} secrets")
    formats = tuple(SecretFormat(f"{name}: {{digits:{settings.digits}}}\n") for name in names)
    return LanguageTrial(
        settings, seed, texts, held_out, formats,
        tuple(form.draw(seed=draw)[0] for form in formats),
        tuple(draw.choice(len(texts), len(names), replace=False).tolist()),
    )  # fmt: skip


def carry_out(
    trial: LanguageTrial,
    times: int,
    epsilon: float | None,
    *,
    device: torch.device,
    progress: bool | None = False,
) -> Situation:
    """Trains one model and asks it for the secrets."""
    settings = trial.settings
    texts = [*trial.texts]
    for canary, unit in zip(trial.canaries, trial.units, strict=True):
        texts[unit] = canary.text * times  # the whole speech: nobody else's unit is touched
    pretrained = language.loaded(settings.model, device)
    _check_room(pretrained, [texts[unit] for unit in trial.units], settings.longest, times)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(trial.seed)  # the adapters and the order; never sampling or noise
        model = language.adapted(pretrained.model, "lora", settings.rank)
        rows = language.token_rows(pretrained, texts, settings.longest)
        if epsilon is None:
            steps = _train_plainly(model, rows, settings, device)
        else:
            steps = _train_privately(model, rows, settings, epsilon, device, progress)
    secrets = tuple(_revealed(pretrained, model, trial, at) for at in range(len(trial.formats)))
    return Situation(
        name=named(times, epsilon), times=times, epsilon=epsilon,
        delta=None if epsilon is None else settings.delta, steps=steps,
        bits_per_character=bits_per_character(pretrained, model, trial.held_out, settings.longest),
        secrets=secrets, p_value=combined_p_value(one.p_value for one in secrets),
    )  # fmt: skip


def _check_room(pretrained: Pretrained, texts: list[str], longest: int, times: int) -> None:
    """Refuses secrets of which copies would be left out, unsaid: a text loses what is too long."""
    most = max(len(pretrained.tokenizer(text.rstrip())["input_ids"]) for text in texts)
    if most > longest:
        raise InvalidArgument(
            f"times must be fewer, or longest more: {times} copies of a secret take {most} tokens, "
            f"of which {longest} are learned"
        )


def _loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return losses.of(model, batch)


def _train_plainly(
    model: nn.Module, rows: language.Rows, settings: Settings, device: torch.device
) -> int:
    optimizer = torch.optim.AdamW(language.trainable(model), lr=settings.lr, weight_decay=0.0)
    steps = max(1, round(settings.epochs * len(rows) / settings.batch))
    schedule = language.rising_and_falling(optimizer, steps)
    order: list[int] = []
    model.train()
    for _ in range(steps):
        if len(order) < settings.batch:
            order = torch.randperm(len(rows)).tolist()
        taken, order = order[: settings.batch], order[settings.batch :]
        batch = language.right_padded([rows[at] for at in taken])
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            found = _loss(model, {name: one.to(device) for name, one in batch.items()})
        optimizer.zero_grad()
        found.mean().backward()
        optimizer.step()
        schedule.step()
    return steps


def _train_privately(
    model: nn.Module,
    rows: language.Rows,
    settings: Settings,
    epsilon: float,
    device: torch.device,
    progress: bool | None,
) -> int:
    plan = Plan.for_budget(
        epsilon=epsilon, delta=settings.delta, examples=len(rows), lot_size=settings.lot,
        epochs=settings.private_epochs, clip=settings.clip,
    )  # fmt: skip
    optimizer = torch.optim.AdamW(
        language.trainable(model), lr=settings.private_lr, weight_decay=0.0
    )
    prepared = Prepared(
        model=model, optimizer=optimizer, plan=plan, dataset=rows, loss=_loss,
        collate=language.right_padded, lengths=rows.lengths,
        performance=language.performance(settings.batch, device),
    )  # fmt: skip
    carry_out_plan(prepared, watch=Watch(progress=progress))
    return plan.steps


# ---- asking for a secret, in characters


def digit_tokens(pretrained: Pretrained, form: SecretFormat) -> tuple[list[int], dict[str, int]]:
    """The tokens before the secret as the model was trained on them, and the token of each digit.

    Raises:
        InvalidArgument: if a secret is not one token for each digit after the same start: asked
            digit by digit, the model would be asked for what it never saw.
    """
    places, digits = len(form.places), "0123456789"

    def tokens_of(secret: str) -> list[int]:
        found: list[int] = pretrained.tokenizer(form.canary(secret).text)["input_ids"]
        return found

    alike = {digit: tokens_of(digit * places) for digit in digits}
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(alike["0"], alike["1"], strict=False))
    start = [one for one, _ in pairs]
    token = {digit: found[len(start)] for digit, found in alike.items() if len(found) > len(start)}
    for one, other in product(digits, repeat=2):
        secret = (f"{one}{other}" * places)[:places]
        expected = [*start, *(token.get(digit, -1) for digit in secret)]
        if not start or tokens_of(secret)[: len(expected)] != expected:
            raise InvalidArgument("model must have one token for each digit; take another model")
    return start, token


def next_digit_of(pretrained: Pretrained, model: nn.Module, form: SecretFormat) -> NextToken:
    """What the model thinks of each digit after the known start, by the digits' characters."""
    start, digits = digit_tokens(pretrained, form)
    token = np.zeros(_CODES, np.int64)
    for digit, number in digits.items():
        token[ord(digit)] = number
    codes = [ord(digit) for digit in digits]
    known, device = len(form.before), next(model.parameters()).device
    asked = torch.from_numpy(token[codes]).to(device)

    def next_digit(characters: NDArray[np.int64]) -> NDArray[np.floating]:
        rows, length = characters.shape
        ids = np.concatenate(
            [np.tile(np.array(start, np.int64), (rows, 1)), token[characters[:, known:]]], axis=1
        )
        model.eval()
        with torch.no_grad():
            logits = model(input_ids=torch.from_numpy(ids).to(device)).logits.float()
            logs = torch.log_softmax(logits[:, len(start) - 1 :], -1)[:, :, asked].cpu().numpy()
        found = np.full((rows, length, _CODES), _NEVER, np.float64)
        found[:, known - 1 :, codes] = logs
        return found

    return next_digit


def _revealed(
    pretrained: Pretrained, model: nn.Module, trial: LanguageTrial, number: int
) -> SecretFigures:
    form, canary, settings = trial.formats[number], trial.canaries[number], trial.settings
    measured = measure(
        next_digit_of(pretrained, model, form), form.space(), canary.tokens(),
        candidates=settings.candidates, width=settings.beam, limit=settings.beginnings,
        seed=trial.seed + 1 + number,
    )  # fmt: skip
    return SecretFigures.of(NAMES[number], canary, measured)


@torch.no_grad()
def bits_per_character(
    pretrained: Pretrained, model: nn.Module, texts: tuple[str, ...], longest: int
) -> float:
    """How many bits a character of the held-out texts takes, up to ``longest`` tokens of each."""
    model.eval()
    device = next(model.parameters()).device
    rows = language.token_rows(pretrained, texts, longest)
    nats = characters = 0.0
    for begin in range(0, len(rows), 32):
        part = [rows[at] for at in range(begin, min(begin + 32, len(rows)))]
        batch = {name: one.to(device) for name, one in language.right_padded(part).items()}
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        nats += float(losses.token_sum(logits[:, :-1], batch["labels"][:, 1:]).sum())
        said = [pretrained.tokenizer.decode(tokens[1:].tolist()) for tokens, _ in part]
        characters += sum(map(len, said))
    return nats / math.log(2.0) / max(characters, 1.0)


# ---- the experiment


def run(
    settings: Settings | None = None,
    *,
    data: Split | str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    seed: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    device: str = "auto",
) -> SecretResult:
    """Carries out the experiment; its arguments are those of ``shakespeare_secret.run``."""
    chosen, where = settings or Settings(), device_named(device)
    split = data if isinstance(data, Split) else sets.load("speeches", data)  # type: ignore[arg-type]

    def begun(number: int) -> Trainings:
        trial = trial_of(chosen, split, number)
        plain: list[tuple[int, float | None]] = [
            (times, None) for times in dict.fromkeys((chosen.times, 1))
        ]
        return Trainings(
            len(trial.texts), trial.formats[0].max_exposure,
            [*plain, *((chosen.times, epsilon) for epsilon in chosen.epsilons)],
            partial(carry_out, trial, device=where, progress=progress),
        )  # fmt: skip

    return shakespeare_secret.carried_out(
        begun, json.loads(json.dumps(asdict(chosen))), KEPT, seed=seed, folder=folder,
        progress=progress,
    )  # fmt: skip


def audit(conditions: Conditions) -> Audited:
    """The experiment on Tiny Shakespeare's speeches, as ``tacit audit`` shows it."""
    found = run(
        data=conditions.data, progress=conditions.progress, seed=conditions.seed,
        folder=conditions.folder,
    )  # fmt: skip
    named_model = {**found.settings, "model": found.settings["model"] or "SmolLM2-135M-Instruct"}
    return shakespeare_secret.audited(replace(found, settings=named_model), EXPERIMENT.name)


EXPERIMENT = Experiment(
    name="language-secret",
    summary="nine-digit secrets in what a pretrained language model is fine-tuned on: for a GPU",
    data="speeches",
    run=audit,
    picture="secrets",
)
