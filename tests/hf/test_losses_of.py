"""The loss of each row beside the loss that the model itself has for that row alone."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest
import torch

import tacit
from tacit import losses
from tacit.errors import InvalidArgument

from . import tiny

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own


def tagged(count: int) -> list[dict[str, Any]]:
    rows = tiny.texts(count)
    return [{**row, "labels": [one % tiny.CLASSES for one in row["labels"]]} for row in rows]


def chosen(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Two answers a row, of which the first is right or the second."""
    batch = tiny.padded(rows)
    both = {
        name: torch.stack([value, value.flip(1)], 1)
        for name, value in batch.items()
        if name != "labels"
    }
    return {**both, "labels": torch.tensor([row["labels"] % 2 for row in rows])}


def with_real_labels(rows: list[dict[str, Any]], width: int) -> dict[str, torch.Tensor]:
    batch = tiny.padded([{**row, "labels": 0} for row in rows])
    draw = torch.Generator().manual_seed(0)
    shape = (len(rows), width) if width > 1 else (len(rows),)
    return {**batch, "labels": torch.rand(shape, generator=draw)}


def masked(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    batch = tiny.padded(rows)
    labels = batch["labels"].clone()
    labels[:, ::2] = -100
    return {**batch, "labels": labels}


def written() -> nn.Module:
    """An encoder and a decoder put together; padding is also where the decoder begins."""
    kinds = tiny.transformers
    parts = (
        tiny.bert("BertModel").config,
        kinds.BertConfig(
            **tiny.bert().config.to_dict() | {"is_decoder": True, "add_cross_attention": True}
        ),
    )
    config = kinds.EncoderDecoderConfig.from_encoder_decoder_configs(*parts)
    config.decoder_start_token_id = config.pad_token_id = 0
    return kinds.EncoderDecoderModel(config=config)


_SEEN = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24,
    "patch_size": 8, "num_labels": tiny.CLASSES,
}  # fmt: skip


def heard() -> nn.Module:
    config = tiny.transformers.ASTConfig(
        **_SEEN, max_length=32, num_mel_bins=16, frequency_stride=8, time_stride=8
    )
    return tiny.transformers.ASTForAudioClassification(config)


def filmed() -> nn.Module:
    config = tiny.transformers.VideoMAEConfig(
        **_SEEN, image_size=16, num_frames=2, tubelet_size=2, **tiny._STILL
    )
    return tiny.transformers.VideoMAEForVideoClassification(config)


def drawn(name: str, *shape: int) -> Callable[[list[Any]], dict[str, torch.Tensor]]:
    def collate(rows: list[Any]) -> dict[str, torch.Tensor]:
        draw = torch.Generator().manual_seed(0)
        classes = torch.tensor([row["labels"] for row in rows])
        return {name: torch.randn(len(rows), *shape, generator=draw), "labels": classes}

    return collate


OTHERS = (
    tiny.Case("masked", lambda: tiny.bert("BertForMaskedLM"), collate=masked),
    tiny.Case("tokens", lambda: tiny.bert("BertForTokenClassification"), tagged),
    tiny.Case("choice", lambda: tiny.bert("BertForMultipleChoice"), tiny.labelled, chosen),
    tiny.Case("regression", lambda: tiny.bert(num_labels=1), tiny.labelled,
              functools.partial(with_real_labels, width=1)),
    tiny.Case("a decoder that does not shift", tiny.bart_decoder),
    tiny.Case("virtual tokens before a text", lambda: tiny.prompted(tiny.llama(), "CAUSAL_LM")),
    tiny.Case("decoder inputs made inside", tiny.m2m100),
    tiny.Case("put together", written),
    tiny.Case("sounds", heard, tiny.labelled, drawn("input_values", 32, 16)),
    tiny.Case("films", filmed, tiny.labelled, drawn("pixel_values", 2, 3, 16, 16)),
    tiny.Case("several classes", lambda: tiny.bert(problem_type="multi_label_classification"),
              tiny.labelled, functools.partial(with_real_labels, width=tiny.CLASSES)),
)  # fmt: skip


@pytest.mark.parametrize("case", [*tiny.CASES[::2], *OTHERS, tiny.CASES[5]], ids=str)
def test_each_row_has_the_loss_that_the_model_has_for_it_alone(case: tiny.Case):
    model = case.made().eval()
    batch = case.collate(case.rows(5))
    found = losses.of(model, batch)
    assert found.shape == (5,)
    with torch.no_grad():
        alone = [
            model(**{name: value[at : at + 1] for name, value in batch.items()}).loss
            for at in range(5)
        ]
    torch.testing.assert_close(found.detach(), torch.stack(alone), rtol=1e-5, atol=1e-6)
    assert f"for {type(losses._unwrapped(model)).__name__}: tacit.losses.of" in losses.advice(model)


def test_the_models_own_loss_is_refused_with_the_one_to_use():
    model = tiny.llama()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = tacit.Plan(examples=4, lot_size=4, steps=1, noise_multiplier=1.0, clip=1.0)

    def loop(model: nn.Module) -> None:
        with tacit.private(model, optimizer, plan, tiny.texts(4), collate=tiny.padded) as dp:
            for lot in dp.lots():
                for batch in lot:
                    dp.backward(model(**batch).loss)

    with pytest.raises(InvalidArgument, match=r"LlamaForCausalLM: tacit\.losses\.of\(model, batch\)"
                       r", which is tacit\.losses\.token_mean\(logits\[:, :-1\]"):  # fmt: skip
        loop(model)


def test_what_has_no_known_loss_is_refused():
    base = tiny.transformers.BertModel(tiny.bert().config)
    with pytest.raises(InvalidArgument, match="got BertModel; compute one loss per row"):
        losses.of_outputs(base, {"logits": torch.zeros(1, 2)}, torch.zeros(1))
    assert losses.advice(base) == ""
    with pytest.raises(InvalidArgument, match="with 'labels', got"):
        losses.of(tiny.gpt2(), {"input_ids": torch.ones(1, 2)})
    nothing = torch.ones(1, 0, dtype=torch.int64)
    with pytest.raises(InvalidArgument, match="some text of the data is empty"):
        losses.of(tiny.bert(), {"input_ids": nothing, "labels": torch.ones(1, dtype=torch.int64)})
    with pytest.raises(InvalidArgument, match="got list"):
        losses.of(tiny.gpt2(), [1])  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="labels must have the shape"):
        losses.of_outputs(tiny.gpt2(), {"logits": torch.zeros(1, 5, 7)}, torch.zeros(1, 3))
    routed = tiny.gpt2()
    routed.config.output_router_logits = True
    with pytest.raises(InvalidArgument, match="output_router_logits = False"):
        losses.of(routed, {"input_ids": torch.ones(1, 2), "labels": torch.ones(1, 2)})


@pytest.mark.parametrize("model", [tiny.gpt2, tiny.llama, tiny.t5])
def test_a_batch_of_empty_texts_counts_for_nothing(model: Any):
    """Whether a lot brings nothing else together is chance: it must not end a run."""
    nothing = torch.ones(2, 0, dtype=torch.int64)
    batch = {"input_ids": nothing, "attention_mask": nothing, "labels": nothing}
    made = model()
    found = losses.of(made, batch)
    assert found.tolist() == [0.0, 0.0]
    found.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in made.parameters())
