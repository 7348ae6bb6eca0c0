"""The example scripts run, on a tiny random model."""

from __future__ import annotations

import math
import runpy
from pathlib import Path

import pytest

import tacit
from tacit.errors import CheckpointError, InvalidArgument
from tacit.recipes.generation import generate

from . import tiny

tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install .[hf]")
pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = ["[PAD]", "[EOS]", *(f"w{at}" for at in range(tiny.WORDS - 2))]
    plain = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: at for at, word in enumerate(words)}, "[PAD]")
    )
    plain.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    place = tmp_path_factory.mktemp("model")
    tiny.transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="[PAD]", eos_token="[EOS]", unk_token="[PAD]"
    ).save_pretrained(place)
    tiny.llama().save_pretrained(place)
    for name, count in (("texts", 40), ("held-out", 6)):
        lines = [" ".join(f"w{(at + n) % 30}" for n in range(3 + at % 4)) for at in range(count)]
        (place / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return place


def run(monkeypatch: pytest.MonkeyPatch, name: str, *given: Path) -> None:
    monkeypatch.setattr("sys.argv", [name, *map(str, given)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_lora(folder: Path, tmp_path: Path, monkeypatch, capsys):
    run(monkeypatch, "lora.py", folder, folder / "texts.txt", tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
    assert "one line of the file" in capsys.readouterr().out
    claim = tacit.Statement.from_json((tmp_path / "adapter" / "statement.json").read_text())
    assert claim.epsilon <= 8
    assert generate(tmp_path / "adapter", count=1, tokens=3).statement.files == claim.files
    body = (EXAMPLES / "lora.py").read_text().partition("sys.argv[1:]")[2]
    assert "PrivateTrainer" not in body


def test_trainer(folder: Path, tmp_path: Path, monkeypatch, capsys):
    out = tmp_path / "run"
    run(monkeypatch, "trainer.py", folder, folder / "texts.txt", folder / "held-out.txt", out)
    assert "one line of the file" in capsys.readouterr().out
    claim = tacit.Statement.from_json((out / "statement.json").read_text())
    assert claim.epsilon <= 8
    assert math.isclose(claim.delta, 1e-5)
    found = generate(out, count=2, prompt="w1", tokens=3, seed=0)
    assert len(found.texts) == 2
    assert found.statement.epsilon == claim.epsilon
    assert "the prompt of the synthetic texts, with which they begin, is public" in (
        found.statement.assumptions
    )
    alone = generate(out, count=1, tokens=3).statement
    assert "made from the released weights alone" in alone.releases[-1]
    assert alone.assumptions == claim.assumptions
    with pytest.raises(InvalidArgument, match="tokens must be at most 15"):
        generate(out, prompt="w1", tokens=16)
    with pytest.raises(CheckpointError, match=r"a model without statement\.json"):
        generate(folder)
    tiny.llama().save_pretrained(out)  # the statement stays, and is not about these
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not a file that statement"):
        generate(out, prompt="w1", tokens=3)


def test_adapters_speak_as_well(folder: Path, tmp_path: Path):
    tokenizer = tiny.transformers.AutoTokenizer.from_pretrained(folder)
    base = tiny.transformers.AutoModelForCausalLM.from_pretrained(folder)
    plan = tacit.Plan.for_budget(epsilon=3, delta=1e-3, examples=24, lot_size=8, steps=1, clip=0.1)
    trainer = tacit.hf.PrivateTrainer(
        model=tiny.lora(base, "q_proj"), plan=plan, train_dataset=tiny.texts(24),
        data_collator=tiny.padded, processing_class=tokenizer,
        args=tiny.transformers.TrainingArguments(
            str(tmp_path), max_grad_norm=0.0, report_to="none", use_cpu=True, disable_tqdm=True,
            save_strategy="no",
        ),
    )  # fmt: skip
    trainer.train()
    trainer.save_model()
    found = generate(tmp_path, count=65, tokens=2)
    assert len(found.texts) == 65
    under = [one for one in found.statement.assumptions if "under the adapters" in one]
    assert len(under) == 1  # which the statement does not name by a checksum
    assert found.statement.epsilon == trainer.statement().epsilon
