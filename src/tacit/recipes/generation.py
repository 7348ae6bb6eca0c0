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
CONFIGURATIONS: Final = ("config.json", "adapter_config.json")  # of a whole model, of adapters
_TOGETHER: Final = 64  # texts that are sampled at once
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
        that the statement covers them, however many are made, if ``prompt`` is public; it says so.
        Weights other than those that the statement names are refused; those under adapters are
        taken to be the ones that training began with, and the statement says so.
    """
    rows, room = whole("count", count), whole("tokens", tokens)
    heat = positive("temperature", temperature)
    pretrained, statement = _private_model(Path(folder), device_named(device))
    start = _start(pretrained, prompt, room)
    parts = [min(_TOGETHER, rows - begin) for begin in range(0, rows, _TOGETHER)]
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        texts = [text for part in parts for text in _sampled(pretrained, start, part, room, heat)]
    return Generated(tuple(texts), _covering(statement, prompt))


def _covering(statement: Statement, prompt: str) -> Statement:
    """The claim with what is released now; a prompt is somebody's words, and not the model's."""
    if not prompt:
        also = "synthetic texts, made from the released weights alone: they cost nothing more"
        return extended(statement, releases=also)
    return extended(
        statement,
        releases="synthetic texts, made from the released weights and a prompt: they cost nothing "
        "more if the prompt is public",
        assumptions="the prompt of the synthetic texts, with which they begin, is public",
    )


def _start(pretrained: Pretrained, prompt: str, room: int) -> list[int]:
    """The tokens of the prompt, or the one that begins a text."""
    tokenizer = pretrained.tokenizer
    begin = prompt or tokenizer.bos_token or tokenizer.eos_token
    start: list[int] = tokenizer(begin)["input_ids"] if begin else []
    if not start:
        raise InvalidArgument(
            "prompt must be given: the model's tokenizer has no token that begins a text"
        )
    config: Any = pretrained.model.config
    most = getattr(config, "max_position_embeddings", None)
    if most is not None and len(start) + room > most:
        raise InvalidArgument(
            f"tokens must be at most {max(0, most - len(start))}, got {room}: the model has room "
            f"for {most}, and the prompt takes {len(start)}"
        )
    return start


def _sampled(
    pretrained: Pretrained, start: list[int], rows: int, room: int, heat: float
) -> list[str]:
    tokenizer, model = pretrained.tokenizer, pretrained.model.eval()
    ids = torch.tensor([start] * rows, device=next(model.parameters()).device)
    sample: Any = model.generate
    found = sample(
        input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=heat,
        max_new_tokens=room, top_k=0, use_cache=True, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    texts: list[str] = tokenizer.batch_decode(found, skip_special_tokens=True)
    return texts


def _private_model(folder: Path, device: torch.device) -> tuple[Pretrained, Statement]:
    if any((folder / name).is_file() for name in CONFIGURATIONS):
        if not (folder / STATEMENT).is_file():
            raise CheckpointError(
                f"{folder} holds a model without {STATEMENT}, so that nothing is known of it; "
                "PrivateTrainer.save_model writes one if the plan was made by Plan.for_budget"
            )
        statement = _claim(folder / STATEMENT)
        _check_weights(folder, statement)
        found = language_model(folder)
        found.model.to(device)
        adapters = (folder / CONFIGURATIONS[1]).is_file()
        return found, _over_others(statement) if adapters else statement
    run = results.load(folder)
    chosen = _settings(run.record)
    if getattr(chosen, "adapt", "head") == "head":
        raise InvalidArgument(
            f"folder must hold a language model whose own weights or adapters were trained, got "
            f"{folder} of {run.record.recipe}; tacit train shakespeare-smollm2 makes one"
        )
    public = language.loaded(chosen.model, device)
    model = run.in_model(language.adapted(public.model, chosen.adapt, chosen.rank)).model
    found = Pretrained(model, public.tokenizer, public.source)
    return found, _over_others(run.statement) if chosen.adapt == "lora" else run.statement


def _over_others(statement: Statement) -> Statement:
    """The claim about what adapters say: it names them, and not the weights under them."""
    return extended(
        statement,
        assumptions="the weights under the adapters are still the public ones that training began "
        "with",
    )


def _check_weights(folder: Path, statement: Statement) -> None:
    """Refuses weights that the statement does not name by their checksums: any could lie there."""
    names = sorted(
        path.name
        for path in folder.iterdir()
        if path.name.endswith((".safetensors", ".safetensors.index.json"))
    )
    if not names:
        raise CheckpointError(f"{folder} holds no weights in safetensors")
    for name in names:
        try:
            found = _files.sha256(folder / name)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{folder / name} cannot be read: {error}") from None
        if statement.files.get(name) != found:
            raise CheckpointError(
                f"{folder / name} is not a file that {STATEMENT} is about; save the model once "
                "more with the trainer's save_model(), and leave nothing else there"
            )


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
