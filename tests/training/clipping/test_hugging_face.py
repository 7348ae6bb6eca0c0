"""Models of Hugging Face's transformers, and LoRA by PEFT, against the oracle.

They are made from small configurations, with random weights: nothing is downloaded.
"""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import tacit
from tacit import losses as tacit_losses
from tacit.training.clipping import clipped_gradients

if TYPE_CHECKING:
    from collections.abc import Callable

transformers = pytest.importorskip("transformers", reason="needs transformers: pip install .[hf]")

EXACT = 1e-5
VOCABULARY, LENGTH = 37, 9
pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own; none of them is tacit's


@dataclass(frozen=True)
class Case:
    """A model, its batch, and one loss per row."""

    name: str
    model: Callable[[], nn.Module]
    losses: Callable[[nn.Module, Tensor], Tensor]
    data: Callable[[int], Tensor]
    rules: frozenset[str]

    def __str__(self) -> str:
        return self.name


def tokens(rows: int) -> Tensor:
    return torch.randint(1, VOCABULARY, (rows, LENGTH), generator=torch.Generator().manual_seed(0))


def images(rows: int) -> Tensor:
    return torch.randn(rows, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def next_token(model: nn.Module, ids: Tensor) -> Tensor:
    logits = model(input_ids=ids).logits
    return tacit_losses.token_mean(logits[:, :-1], ids[:, 1:])


def padded_next_token(model: nn.Module, ids: Tensor) -> Tensor:
    """The second half of the odd rows is padding, which attention leaves out."""
    present = torch.ones_like(ids)
    present[1::2, LENGTH // 2 :] = 0
    logits = model(input_ids=ids, attention_mask=present).logits
    labels = ids.masked_fill(present == 0, -100)
    return tacit_losses.token_mean(logits[:, :-1], labels[:, 1:])


def first_token_class(model: nn.Module, ids: Tensor) -> Tensor:
    present = torch.ones_like(ids)
    present[:, LENGTH - 2 :] = 0
    logits = model(input_ids=ids, attention_mask=present).logits
    return nn.functional.cross_entropy(logits, ids[:, 0] % logits.shape[1], reduction="none")


def image_class(model: nn.Module, pixels: Tensor) -> Tensor:
    logits = model(pixel_values=pixels).logits
    labels = (pixels.flatten(1).sum(1) > 0).long()  # a row's own, whatever rows lie beside it
    return nn.functional.cross_entropy(logits, labels, reduction="none")


def translated(model: nn.Module, ids: Tensor) -> Tensor:
    logits = model(input_ids=ids, decoder_input_ids=ids.flip(1)).logits
    return tacit_losses.token_mean(logits, ids)


def gpt2() -> nn.Module:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCABULARY, n_positions=16, n_embd=16, n_layer=2, n_head=2,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )
    )  # fmt: skip


def bert() -> nn.Module:
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=24, max_position_embeddings=16, num_labels=3,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    )  # fmt: skip


def llama(tied: bool = False) -> nn.Module:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16,
            tie_word_embeddings=tied,
        )
    )  # fmt: skip


def vit() -> nn.Module:
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(
            image_size=16, patch_size=8, hidden_size=16, num_hidden_layers=2, num_labels=3,
            num_attention_heads=2, intermediate_size=24,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    )  # fmt: skip


def t5() -> nn.Module:
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2,
            dropout_rate=0.0, decoder_start_token_id=0,
        )
    )  # fmt: skip


def with_lora(base: Callable[[], nn.Module], modules: list[str], **kwargs: Any) -> nn.Module:
    peft = pytest.importorskip("peft", reason="needs PEFT: pip install .[hf]")
    config = peft.LoraConfig(r=3, lora_alpha=6, lora_dropout=0.0, target_modules=modules, **kwargs)
    model = peft.get_peft_model(base(), config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:  # PEFT starts with zeros, at which half of the gradients vanish
            nn.init.normal_(parameter, std=0.1)
    return model


gpt2_lora = functools.partial(with_lora, gpt2, ["c_attn"], fan_in_fan_out=True)
llama_lora = functools.partial(with_lora, llama, ["q_proj", "v_proj"])
CASES = [
    Case("GPT-2", gpt2, next_token, tokens, frozenset({"embedding", "matmul", "layer_norm"})),
    Case("GPT-2 with padding", gpt2, padded_next_token, tokens, frozenset({"matmul"})),
    Case("BERT", bert, first_token_class, tokens, frozenset({"embedding", "linear", "layer_norm"})),
    Case("Llama", llama, next_token, tokens, frozenset({"embedding", "linear", "elementwise"})),
    Case("Llama, tied", functools.partial(llama, True), padded_next_token, tokens, frozenset()),
    Case("ViT", vit, image_class, images, frozenset({"conv", "linear", "expand", "elementwise"})),
    Case("T5", t5, translated, tokens, frozenset({"embedding", "linear", "elementwise"})),
    Case("GPT-2 with LoRA", gpt2_lora, next_token, tokens, frozenset({"linear"})),
    Case("Llama with LoRA", llama_lora, padded_next_token, tokens, frozenset({"linear"})),
]


def made(case: Case) -> nn.Module:
    torch.manual_seed(1)
    return case.model().train()


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def oracle(case: Case, model: nn.Module, data: Tensor) -> Tensor:
    """Every row's gradient in double precision: (rows, numbers of all parameters)."""
    exact = copy.deepcopy(model).double()
    parameters = list(trainable(exact).values())
    inputs = data.double() if data.is_floating_point() else data
    rows = []
    for loss in case.losses(exact, inputs):
        found = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        parts = [
            torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)
        ]
        rows.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(rows)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(1, marks=pytest.mark.slow),  # as the others, and seconds together
        pytest.param(5, marks=pytest.mark.slow),
        LENGTH,  # as many rows as tokens: easily confused
    ],
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_norms_and_clipped_sums_are_the_oracles(case: Case, rows: int):
    model, data = made(case), case.data(rows)
    each = oracle(case, model, data)
    wanted = each.norm(dim=1)
    for clip in (wanted.min().item() / 2, wanted.median().item(), 2 * wanted.max().item()):
        found = clipped_gradients(
            trainable(model),
            lambda: case.losses(model, data),
            rows=rows,
            clip=clip,
            constants=list(model.buffers()),
        )
        torch.testing.assert_close(found.norms.double(), wanted, rtol=EXACT, atol=0)
        total = torch.cat([found.sums[name].double().flatten() for name in trainable(model)])
        expected = ((clip / wanted).clamp(max=1)[:, None] * each).sum(0)
        assert (total - expected).norm() <= EXACT * expected.norm()
        used = {use.rule for use in found.uses}
        assert case.rules <= used
        assert "fallback" not in used


@pytest.mark.slow  # tests/hf compares steps of the same models with those of a trainer
@pytest.mark.parametrize("name", ["GPT-2 with LoRA", "BERT", "GPT-2", "Llama", "ViT", "T5"])
def test_a_private_step_trains_the_trainable_parameters_alone(name: str):
    case = next(one for one in CASES if one.name == name)
    model, data = made(case), case.data(6)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    optimizer = torch.optim.AdamW(trainable(model).values(), lr=1e-2)
    plan = tacit.Plan(examples=6, lot_size=6, steps=2, noise_multiplier=1.0, clip=1.0)
    with tacit.private(model, optimizer, plan, TensorDataset(data)) as dp:
        for lot in dp.lots():
            for (batch,) in lot:
                dp.backward(case.losses(model, batch))
            dp.step()
    assert dp.steps_taken == 2
    changed = {key for key, value in model.state_dict().items() if not value.equal(before[key])}
    assert set(trainable(model)) <= changed
    frozen = {key for key, p in model.named_parameters() if not p.requires_grad}
    assert not changed & frozen
