"""Secrets in fine-tuning text, on a tiny model whose tokens are characters."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from tacit.data import Examples, Split
from tacit.errors import DataError, InvalidArgument
from tacit.models import language as models
from tacit.recipes.auditing import language_secret, shakespeare_secret

transformers = pytest.importorskip("transformers", reason="needs transformers: pip install .[hf]")
pytest.importorskip("peft", reason="needs PEFT: pip install .[hf]")
tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: pip install .[hf]")

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own
LETTERS = ["\0", *map(chr, range(32, 127)), "\n"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plain = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({one: at for at, one in enumerate(LETTERS)}, "\0")
    )
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
    plain.decoder = tokenizers.decoders.Fuse()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token="\0", unk_token="\0"
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=len(LETTERS), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
            bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip
    place = tmp_path_factory.mktemp("model")
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def speeches(count: int) -> Split:
    texts = tuple(f"ROMEO:\nway {at} and away" for at in range(count))
    part = Examples(texts, np.zeros(count, np.int64))
    return Split("speeches", part, part, ("a",), {})


def small(folder: Path) -> language_secret.Settings:
    return language_secret.Settings(
        secrets=2, digits=3, times=3, longest=32, rank=16, epochs=20.0, batch=8, lr=3e-2,
        epsilons=(8.0,), delta=1e-3, private_epochs=2.0, lot=12, candidates=100, beam=10,
        model=str(folder),
    )  # fmt: skip


@pytest.mark.slow  # three trainings
def test_the_twin_is_asked_and_so_is_the_private_model(folder: Path, tmp_path: Path):
    found = language_secret.run(
        small(folder), data=speeches(24), seed=3, progress=False, folder=tmp_path, device="cpu"
    )
    twin, once, private = found.situations
    assert (twin.times, once.times, private.times) == (3, 1, 3)
    assert (twin.epsilon, private.epsilon, private.delta) == (None, 8.0, 1e-3)
    assert found.max_exposure == pytest.approx(np.log2(1000))
    assert twin.mean_exposure > private.mean_exposure
    assert all(len(one.found) == 3 and one.found.isdigit() for one in twin.secrets)
    shown = shakespeare_secret.audited(found, "language-secret")
    assert shown.subject == "language-secret"
    assert not shown.contradicted
    again = language_secret.run(
        small(folder), data=speeches(24), seed=3, progress=False, folder=tmp_path, device="cpu"
    )
    assert again == found  # kept, and not trained again


def test_a_secret_that_stands_once_is_not_put_in_twice_and_speeches_are_drawn(folder: Path):
    settings = replace(small(folder), times=1, speeches=10, epochs=0.1, private_epochs=0.5)
    found = language_secret.run(
        replace(settings, lot=5), data=speeches(24), seed=3, progress=False, device="cpu"
    )
    assert [(one.times, one.epsilon) for one in found.situations] == [(1, None), (1, 8.0)]
    assert found.units == 10
    trial = language_secret.trial_of(settings, speeches(24), 3)
    everything = {*map(str, speeches(24).train.inputs)}
    assert len({*trial.texts}) == 10
    assert {*trial.texts} < everything
    assert trial.texts != language_secret.trial_of(settings, speeches(24), 4).texts
    assert (
        len(language_secret.trial_of(replace(settings, speeches=99), speeches(24), 3).texts) == 24
    )


def test_a_digit_is_as_likely_as_the_model_thinks(folder: Path):
    pretrained = models.language_model(folder)
    form = shakespeare_secret.SecretFormat("Agnes: {digits:3}\n")
    ask = language_secret.next_digit_of(pretrained, pretrained.model, form)
    logs = ask(np.array([[ord(one) for one in "Agnes: 12"]]))
    with torch.no_grad():
        ids = torch.tensor([[LETTERS.index(one) for one in "Agnes: 12"]])
        oracle = torch.log_softmax(pretrained.model(input_ids=ids).logits[0], -1)
    for place, before in ((6, "Agnes: "), (7, "Agnes: 1"), (8, "Agnes: 12")):
        assert len(before) == place + 1
        for digit in "0123456789":
            expected = float(oracle[place, LETTERS.index(digit)])
            assert logs[0, place, ord(digit)] == pytest.approx(expected, rel=1e-4)


class Pairs:
    """A tokenizer that begins each text with a token, and takes ``pairs`` of digits for one."""

    def __init__(self, *pairs: str) -> None:
        self._pairs = pairs

    def __call__(self, text: str) -> dict[str, list[int]]:
        pattern = "|".join([*self._pairs, r"[\s\S]"])
        return {"input_ids": [7, *(hash(one) % 10**6 for one in re.findall(pattern, text))]}


def test_the_start_is_the_one_that_was_learned_and_every_digit_a_token(folder: Path):
    pretrained = models.language_model(folder)
    form = shakespeare_secret.SecretFormat("Agnes: {digits:3}\n")
    start, tokens = language_secret.digit_tokens(replace(pretrained, tokenizer=Pairs()), form)
    assert (start[0], len(start)) == (7, 1 + len("Agnes: "))
    assert tokens == {digit: hash(digit) % 10**6 for digit in "0123456789"}
    for pair in ("42", "00"):  # never asked for as it was learned
        with pytest.raises(InvalidArgument, match="one token for each digit"):
            language_secret.digit_tokens(replace(pretrained, tokenizer=Pairs(pair)), form)


def test_copies_that_would_be_left_out_are_refused(folder: Path):
    settings = replace(small(folder), times=4)
    trial = language_secret.trial_of(settings, speeches(24), 0)
    with pytest.raises(InvalidArgument, match=r"4 copies of a secret take .* 32 are learned"):
        language_secret.carry_out(trial, 4, None, device=torch.device("cpu"))


def test_held_out_text_is_measured_in_characters(folder: Path):
    pretrained = models.language_model(folder)
    texts = ("to be or not", "away")
    bits = language_secret.bits_per_character(pretrained, pretrained.model, texts, 32)
    total = 0.0
    for text in texts:
        ids = torch.tensor([[LETTERS.index(one) for one in text]])
        with torch.no_grad():
            loss = pretrained.model(input_ids=ids, labels=ids).loss
        total += float(loss) * (len(text) - 1)
    expected = total / np.log(2.0) / sum(len(text) - 1 for text in texts)
    assert bits == pytest.approx(expected, rel=1e-4)


def test_too_few_texts_and_too_many_secrets_are_refused(folder: Path):
    with pytest.raises(DataError, match="too few for 2 secrets"):
        language_secret.run(small(folder), data=speeches(1), progress=False, device="cpu")
    with pytest.raises(InvalidArgument, match="secrets must be 1 to"):
        replace(small(folder), secrets=99)
