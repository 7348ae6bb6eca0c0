"""Every head that transformers has, as small as it gets: its own loss of each row, or a refusal.

A head is told by the name of its class, and what its own loss is lies in its forward pass: new ones
come with every version. Those that need more than a few numbers to be small are left out.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from tacit import losses
from tacit.errors import InvalidArgument

from . import tiny

transformers = tiny.transformers
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
# With how many of each kind can be made small, at least.
KINDS = {
    "CAUSAL_LM": 120, "MASKED_LM": 40, "SEQ_TO_SEQ_CAUSAL_LM": 16, "SEQUENCE_CLASSIFICATION": 90,
    "TOKEN_CLASSIFICATION": 75, "MULTIPLE_CHOICE": 30, "IMAGE_CLASSIFICATION": 15,
}  # fmt: skip
SMALL: dict[str, Any] = {
    **dict.fromkeys(
        ("hidden_size", "n_embd", "d_model", "dim", "emb_dim", "embedding_size", "embed_dim"), 16
    ),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), 1),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 2),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "d_ff", "d_inner"), 24),
    **dict.fromkeys(("hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim"), 24),
    **dict.fromkeys(("head_dim", "d_kv", "d_head", "q_lora_rank", "kv_lora_rank"), 8),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "state_size"), 8),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 2),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx"), 32),
    "vocab_size": tiny.WORDS, "num_key_value_heads": 1, "num_experts_per_tok": 1, "rotary_dim": 4,
    "image_size": 16, "patch_size": 8, "num_channels": 3,
}  # fmt: skip
ALWAYS = {
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
    "num_labels": tiny.CLASSES,
}  # fmt: skip
# Its decoder reads the input again, unless a collator says what it reads.
OTHERWISE = {"FSMTForConditionalGeneration"}
LARGEST = 3e7  # weights of what is called small


def made(name: str) -> Any:
    """A small model of this class; None where it takes more to make one."""
    kind = getattr(transformers, name, None)
    if kind is None:
        return None
    config = kind.config_class
    known = {*inspect.signature(config.__init__).parameters, *config.attribute_map}
    known |= {*getattr(config, "__dataclass_fields__", {})}
    try:
        chosen = config(**{k: v for k, v in SMALL.items() if k in known}, **ALWAYS)
        with torch.device("meta"):
            size = sum(p.numel() for p in kind(chosen).parameters())
        torch.manual_seed(0)
        return kind(chosen).eval() if size <= LARGEST else None
    except Exception:  # whatever a configuration of strange numbers runs into
        return None


def batch_for(kind: str, model: Any) -> dict[str, torch.Tensor]:
    """Three rows, the second one padded."""
    draw = torch.Generator().manual_seed(3)
    classes = torch.tensor([0, 2, 1])
    if kind == "IMAGE_CLASSIFICATION":
        side = getattr(model.config, "image_size", 32)
        return {"pixel_values": torch.randn(3, 3, side, side, generator=draw), "labels": classes}
    ids, mask = torch.randint(3, tiny.WORDS, (3, 8), generator=draw), torch.ones(3, 8).long()
    ids[:, 4], ids[1, 5:], mask[1, 5:] = ALWAYS["eos_token_id"], 0, 0
    labels = ids.masked_fill(mask == 0, -100)
    if kind == "MULTIPLE_CHOICE":
        pairs = torch.stack([ids, ids.flip(1)], 1), torch.stack([mask, mask.flip(1)], 1)
        return {"input_ids": pairs[0], "attention_mask": pairs[1], "labels": classes % 2}
    labels = {
        "MASKED_LM": torch.where(torch.arange(8) % 2 == 0, -100, labels),
        "SEQUENCE_CLASSIFICATION": classes,
        "TOKEN_CLASSIFICATION": torch.where(labels < 0, labels, labels % tiny.CLASSES),
    }.get(kind, labels)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def alone(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor | None:
    """The model's own loss for each row; None where it has other wishes."""
    rows = [{name: one[at : at + 1] for name, one in batch.items()} for at in range(3)]
    try:
        return torch.stack([model(**row).loss.reshape(()) for row in rows])
    except Exception:
        return None


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_each_row_has_the_loss_that_the_model_has_for_it_alone(kind: str):
    from transformers.models.auto import modeling_auto  # noqa: PLC0415 - takes seconds

    listed = getattr(modeling_auto, f"MODEL_FOR_{kind}_MAPPING_NAMES").values()
    names = {name for one in listed for name in ([one] if isinstance(one, str) else one)}
    tried, wrong = 0, []
    for name in sorted(names - OTHERWISE):
        model = made(name)
        batch = None if model is None else batch_for(kind, model)
        own = None if batch is None else alone(model, batch)
        if batch is None or own is None:
            continue
        try:
            found = losses.of(model, batch)
        except InvalidArgument:
            continue
        tried += 1
        if not torch.allclose(found, own, rtol=1e-5, atol=1e-5):
            wrong.append(name)
    assert not wrong
    assert tried >= KINDS[kind]
