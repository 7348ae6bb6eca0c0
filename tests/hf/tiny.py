"""Tiny random models of transformers, and rows for them: nothing is downloaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

transformers = pytest.importorskip("transformers", reason="needs transformers: pip install .[hf]")
peft = pytest.importorskip("peft", reason="needs PEFT: pip install .[hf]")

WORDS, LENGTH, CLASSES = 37, 9, 3
_TEXT = {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 24}
_PAIR = {
    "vocab_size": WORDS, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24, "max_position_embeddings": 16, "dropout": 0.0, "attention_dropout": 0.0,
    "activation_dropout": 0.0, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 2,
}  # fmt: skip
_STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def gpt2() -> nn.Module:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=WORDS, n_positions=16, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip


def llama(**changed: Any) -> nn.Module:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            **_TEXT, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16,
            bos_token_id=0, eos_token_id=0, pad_token_id=0, **changed,
        )
    )  # fmt: skip


def bert(kind: str = "BertForSequenceClassification", **changed: Any) -> nn.Module:
    return getattr(transformers, kind)(
        transformers.BertConfig(
            **_TEXT, **_STILL, num_attention_heads=2, max_position_embeddings=16,
            **{"num_labels": CLASSES, **changed},
        )
    )  # fmt: skip


def t5() -> nn.Module:
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=WORDS, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2,
            dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0,
        )
    )  # fmt: skip


def bart_decoder() -> nn.Module:
    """Its own loss takes labels as they are."""
    return transformers.BartForCausalLM(transformers.BartConfig(**_PAIR, is_decoder=True))


def m2m100() -> nn.Module:
    """It shifts labels inside of its forward pass, and has no method for that."""
    return transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(**_PAIR))


def vit() -> nn.Module:
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(
            image_size=16, patch_size=8, hidden_size=16, num_hidden_layers=2, num_labels=CLASSES,
            num_attention_heads=2, intermediate_size=24, **_STILL,
        )
    )  # fmt: skip


def lora(model: nn.Module, *modules: str, **changed: Any) -> nn.Module:
    config = peft.LoraConfig(r=3, lora_alpha=6, target_modules=list(modules), **changed)
    return peft.get_peft_model(model, config)


def prompted(model: nn.Module, task: str) -> nn.Module:
    """Virtual tokens before each text, whose embeddings are all that is learned."""
    config = peft.PromptTuningConfig(task_type=task, num_virtual_tokens=3)
    return peft.get_peft_model(model, config)


def texts(count: int, *, labelled: bool = False, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of different lengths; labelled ones have the class that their first token tells."""
    draw = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        length = int(torch.randint(4, LENGTH + 1, (), generator=draw))
        tokens = torch.randint(1, WORDS, (length,), generator=draw).tolist()
        rows.append({"input_ids": tokens, "labels": tokens[0] % CLASSES if labelled else tokens})
    return rows


def pictures(count: int) -> list[dict[str, Any]]:
    draw = torch.Generator().manual_seed(0)
    return [
        {"pixel_values": torch.randn(3, 16, 16, generator=draw), "labels": at % CLASSES}
        for at in range(count)
    ]


def padded(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Rows with padding to the right, which attention leaves out."""
    longest = max(len(row["input_ids"]) for row in rows)

    def filled(values: list[int], fill: int) -> list[int]:
        return values + [fill] * (longest - len(values))

    labels = [row["labels"] for row in rows]
    by_token = isinstance(labels[0], list)
    return {
        "input_ids": torch.tensor([filled(row["input_ids"], 0) for row in rows]),
        "attention_mask": torch.tensor([filled([1] * len(row["input_ids"]), 0) for row in rows]),
        "labels": torch.tensor([filled(one, -100) for one in labels] if by_token else labels),
    }


def stacked(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    return {
        "pixel_values": torch.stack([row["pixel_values"] for row in rows]),
        "labels": torch.tensor([row["labels"] for row in rows]),
    }


@dataclass(frozen=True)
class Case:
    """A model, its rows and what collates them."""

    name: str
    model: Callable[[], nn.Module]
    rows: Callable[[int], list[dict[str, Any]]] = texts
    collate: Callable[[list[dict[str, Any]]], dict[str, torch.Tensor]] = padded

    def __str__(self) -> str:
        return self.name

    def made(self) -> nn.Module:
        torch.manual_seed(1)
        return self.model()


def labelled(count: int) -> list[dict[str, Any]]:
    return texts(count, labelled=True)


CASES = (
    Case("GPT-2", gpt2),
    Case("GPT-2 with LoRA", lambda: lora(gpt2(), "c_attn", fan_in_fan_out=True)),
    Case("BERT", bert, labelled),
    Case("BERT with LoRA", lambda: lora(bert(), "query", "value", task_type="SEQ_CLS"), labelled),
    Case("Llama", llama),
    Case("Llama with LoRA", lambda: lora(llama(), "q_proj", "v_proj")),
    Case("T5", t5),
    Case("T5 with LoRA", lambda: lora(t5(), "q", "v")),
    Case("ViT", vit, pictures, stacked),
    Case("ViT with LoRA", lambda: lora(vit(), "q_proj", "v_proj"), pictures, stacked),
)
