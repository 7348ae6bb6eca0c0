"""TRL's SFTTrainer by a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import tacit
from tacit import losses
from tacit.errors import InvalidArgument

from . import tiny

trl = pytest.importorskip("trl", reason="needs TRL: pip install .[hf]")
datasets = pytest.importorskip("datasets", reason="needs datasets: pip install .[hf]")
tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install .[hf]")

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own
WORDS = ["[PAD]", "[EOS]", *(f"w{number}" for number in range(30))]
TEXTS = [" ".join(WORDS[2 + (at * 7 + n) % 30] for n in range(3 + at % 5)) for at in range(24)]


def tokenizer() -> Any:
    plain = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: at for at, word in enumerate(WORDS)}, "[PAD]")
    )
    plain.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return tiny.transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="[PAD]", eos_token="[EOS]", unk_token="[PAD]"
    )


def trainer_of(folder: Path, **changed: Any) -> Any:
    texts, model = changed.pop("texts", {"text": TEXTS}), changed.pop("model", None)
    settings = {
        "max_grad_norm": 0.0, "report_to": "none", "save_strategy": "no", "disable_tqdm": True,
        "use_cpu": True, "learning_rate": 0.05, "optim": "adamw_torch", "logging_steps": 1,
        "per_device_train_batch_size": 4, "max_length": 12, "bf16": False,
        "gradient_checkpointing": False, **changed,
    }  # fmt: skip
    torch.manual_seed(1)
    return tacit.hf.PrivateSFTTrainer(
        model=model or tiny.llama(), args=trl.SFTConfig(str(folder), **settings),
        train_dataset=datasets.Dataset.from_dict(texts), processing_class=tokenizer(),
        eval_dataset=datasets.Dataset.from_dict({"text": [text[::-1] for text in TEXTS[:4]]}),
        plan=tacit.Plan(examples=24, lot_size=8, steps=3, noise_multiplier=0.5, clip=0.1),
        unsafe_seed=5,
    )  # fmt: skip


def test_it_equals_the_explicit_loop_and_logs_nothing_secret(tmp_path: Path):
    trainer = trainer_of(tmp_path, eval_strategy="epoch")
    trainer.train()
    torch.manual_seed(1)
    model = tiny.llama().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - step / 3)
    tokens = [[*tokenizer()(text)["input_ids"], 1] for text in TEXTS]
    rows = [{"input_ids": one, "labels": one} for one in tokens]
    with tacit.private(
        model, optimizer, trainer._plan, rows, collate=tiny.padded, unsafe_seed=5,
        performance=tacit.Performance(batch=4),
    ) as dp:  # fmt: skip
        for lot in dp.lots():
            for batch in lot:
                dp.backward(losses.of(model, batch))
            dp.step()
            schedule.step()
    for one, other in zip(trainer.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    logged = {key for one in trainer.state.log_history for key in one if "eval" not in key}
    assert logged == {"step", "epoch", "learning_rate", "grad_norm"}


@pytest.mark.parametrize(
    "setting", [{"packing": True}, {"padding_free": True}, {"loss_type": "dft"},
                {"activation_offloading": True}, {"shuffle_dataset": True}], ids=str,
)  # fmt: skip
def test_what_mixes_rows_is_refused(setting: dict[str, Any], tmp_path: Path):
    with pytest.raises(InvalidArgument, match=f"{next(iter(setting))}=.*cannot be private"):
        trainer_of(tmp_path, **setting)


def test_rows_that_trl_leaves_out_are_not_lost_without_a_word(tmp_path: Path):
    """It drops those of which truncation leaves no completion: the plan counts them."""
    pairs = {"prompt": TEXTS, "completion": [" w1"] * len(TEXTS)}
    with pytest.raises(InvalidArgument, match=r"has 24 rows, and \d+ after .*raise max_length"):
        trainer_of(tmp_path, texts=pairs, max_length=4)
    trainer_of(tmp_path, texts=pairs)


def test_a_mixture_of_experts_is_told_what_trl_calls_its_router(tmp_path: Path):
    """It sets output_router_logits of the model by an argument of its own."""
    config = tiny.transformers.MixtralConfig(
        **tiny._TEXT, num_attention_heads=2, num_key_value_heads=1, num_local_experts=2,
        max_position_embeddings=16, pad_token_id=0, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip

    def made(**settings: Any) -> Any:
        model = tiny.lora(tiny.transformers.MixtralForCausalLM(config), "q_proj")
        return trainer_of(tmp_path, model=model, **settings)

    with pytest.raises(InvalidArgument, match=r"SFTConfig: router_aux_loss_coef=0\.0"):
        made().train()
    made(router_aux_loss_coef=0.0).train()
