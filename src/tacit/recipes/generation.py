"""Synthetic text: what a privately trained language model says, with what may be claimed of it.

A text that is made from the model alone is post-processing: it gives away nothing that the model
does not, however many there are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import torch

from tacit import _files
from tacit._validation import positive, whole
from tacit.errors import CheckpointError, InvalidArgument, TacitError
from tacit.models.devices import device_named
from tacit.models.language import Pretrained, language_model
from tacit.recipes import language
from tacit.recipes.catalogue import find, names
from tacit.runs import results
from tacit.runs import settings as settings_of
from tacit.statement import Statement, extended

if TYPE_CHECKING:
    import os

    from tacit.runs.record import RunRecord

STATEMENT: Final = "statement.json"
_LARGEST: Final = 16 << 20  # bytes of a statement; a real one has thousands


@final
@dataclass(frozen=True, slots=True)
class Generated:
    """Texts that a private model made, and the claim that covers them."""

    texts: tuple[str, ...]
    statement: Statement

    def as_dict(self) -> dict[str, Any]:
        """Both in JSON's types."""
        return {"texts": list(self.texts), "statement": json.loads(self.statement.to_json())}


def generate(
    folder: str | os.PathLike[str],
    *,
    count: int = 5,
    prompt: str = "",
    tokens: int = 64,
    temperature: float = 1.0,
    seed: int | None = None,
    device: str | torch.device = "cpu",
) -> Generated:
    """Samples ``count`` texts from the private model in ``folder``.

    Args:
        folder: What ``tacit train`` left of a recipe of a language model; or what a
            ``PrivateTrainer`` saved, with its statement beside it.
        count: How many texts.
        prompt: Their beginning, which must be public: it is no part of what is protected.
        tokens: The most tokens that are added to it.
        temperature: 1 samples as the model thinks; less makes likely words likelier.
        seed: For the sampling; it has no influence on privacy.
        device: Where to compute.

    Guarantee:
        The texts are computed from the released weights, ``prompt`` and random numbers alone, so
        that the statement covers them, however many are made.
    """
    rows, room = whole("count", count), whole("tokens", tokens)
    heat = positive("temperature", temperature)
    pretrained, statement = _private_model(Path(folder), device_named(device))
    tokenizer, model = pretrained.tokenizer, pretrained.model.eval()
    start = tokenizer(prompt or tokenizer.bos_token or tokenizer.eos_token)["input_ids"]
    ids = torch.tensor([start] * rows, device=next(model.parameters()).device)
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        sample: Any = model.generate
        found = sample(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=heat,
            max_new_tokens=room, top_k=0, use_cache=True, pad_token_id=tokenizer.pad_token_id,
        )  # fmt: skip
    texts = tokenizer.batch_decode(found, skip_special_tokens=True)
    also = "synthetic texts, made from the released weights alone: they cost nothing more"
    return Generated(tuple(texts), extended(statement, releases=also))


def _private_model(folder: Path, device: torch.device) -> tuple[Pretrained, Statement]:
    if (folder / "config.json").is_file() and (folder / STATEMENT).is_file():
        found = language_model(folder)
        found.model.to(device)
        return found, _claim(folder / STATEMENT)
    run = results.load(folder)
    chosen = _settings(run.record)
    if getattr(chosen, "adapt", "head") == "head":
        raise InvalidArgument(
            f"folder must hold a language model that was trained itself, got {folder} of "
            f"{run.record.recipe}; tacit train shakespeare-smollm2 makes one"
        )
    public = language.loaded(chosen.model, device)
    model = run.in_model(language.adapted(public.model, chosen.adapt, chosen.rank)).model
    return Pretrained(model, public.tokenizer, public.source), run.statement


def _settings(record: RunRecord) -> Any:
    """Those of the recipe that was run; None where it was none."""
    if record.kind != "recipe" or record.recipe not in names():
        return None
    default = find(record.recipe).settings(record.epsilon)
    return settings_of.changed(default, dict(record.winner or record.settings))


def _claim(path: Path) -> Statement:
    try:
        return Statement.from_json(_files.read(path, most=_LARGEST).decode("utf-8"))
    except (OSError, ValueError, TacitError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())[:200]
        raise CheckpointError(f"{path} is refused: {reason}") from None
