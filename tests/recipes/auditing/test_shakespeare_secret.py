"""Secrets in a text: the experiment on a small made-up one, and on Tiny Shakespeare."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tacit.data import Examples, Split
from tacit.errors import CheckpointError, DataError, InvalidArgument
from tacit.recipes.auditing import audit_file, shakespeare_secret
from tacit.recipes.auditing.experiment import find
from tacit.recipes.auditing.secret_results import SecretResult
from tacit.recipes.auditing.shakespeare_secret import carry_out, situations, trial_of

from ...real_data import real_data

if TYPE_CHECKING:
    from pathlib import Path

SMALL = shakespeare_secret.Settings(
    secrets=2, digits=3, window=128, times=8, epochs=20.0, batch=8, lr=2.0, private_epochs=2.0,
    lot=20, epsilons=(8.0, 2.0), width=64, candidates=200, beam=20,
)  # fmt: skip


def text(windows: int, *, seed: int) -> Examples:
    """Words in a random order, in windows of 128 characters."""
    words = ("when", "shall", "we", "three", "meet", "again", "in", "thunder", "or", "rain")
    draw = np.random.default_rng(seed)
    made = " ".join(draw.choice(words, 40 * windows)).encode()
    rows = np.frombuffer(made, np.uint8)[: windows * 129].reshape(windows, 129)
    return Examples(rows[:, :-1].copy(), rows[:, 1:].astype(np.int64))


DATA = Split("made", text(60, seed=0), text(10, seed=1), ("a",), {"made": "up"})


@pytest.fixture(scope="module")
def result() -> SecretResult:
    return shakespeare_secret.run(SMALL, data=DATA, seed=4, progress=False)


def test_the_four_trainings(result: SecretResult) -> None:
    names = [(one.times, one.epsilon) for one in result.situations]
    assert names == [(8, None), (1, None), (8, 8.0), (8, 2.0)]
    assert result.units == 60
    assert result.max_exposure == pytest.approx(np.log2(1000))
    assert all(len(one.secrets) == 2 for one in result.situations)
    assert len({one.secrets[0].secret for one in result.situations}) == 1


def test_what_stood_there_often_is_extracted(result: SecretResult) -> None:
    many = result.situations[0]
    assert many.extracted == 2
    assert many.mean_exposure > 9.0
    assert not many.like_chance
    assert [one.found for one in many.secrets] == [one.secret for one in many.secrets]
    assert many.bound(1e-5).epsilon > 2.0


def test_the_held_out_text_is_learned(result: SecretResult) -> None:
    assert result.situations[0].bits_per_character < 3.0


def test_the_result_is_json_and_comes_back(result: SecretResult) -> None:
    plain = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert SecretResult.from_dict(plain) == result


def test_the_audit_names_every_secret(result: SecretResult) -> None:
    found = shakespeare_secret.audited(result)
    assert found.subject == "shakespeare-secret"
    assert len(found.details) == 8
    assert found.details[0]["extracted"] == "yes"
    assert found.verdict is not None
    assert found.verdict.claimed in (8.0, 2.0)
    assert found.settings["max_exposure"] == result.max_exposure
    assert "8 times, not private: 2 of 2 secrets extracted" in found.words
    shown = audit_file.read_plain(json.loads(json.dumps(found.as_dict(), allow_nan=False)))
    assert shown.settings["epsilons"] == "8, 2"


def test_the_catalogue_knows_it() -> None:
    assert find("shakespeare-secret").data == "shakespeare"


def test_all_copies_of_a_secret_are_in_one_window() -> None:
    trial = trial_of(SMALL, DATA, 4)
    assert len(set(trial.units)) == 2
    with pytest.raises(InvalidArgument, match="times must be at most 11"):
        carry_out(trial, 12, None)


def test_one_seed_gives_one_result() -> None:
    quick = replace(SMALL, epochs=1.0, candidates=100)
    first, second = (carry_out(trial_of(quick, DATA, 9), 8, None) for _ in range(2))
    assert first.secrets == second.secrets
    other = trial_of(quick, DATA, 10)
    assert other.canaries != trial_of(quick, DATA, 9).canaries


def test_it_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = replace(SMALL, epochs=1.0, candidates=100, epsilons=(8.0,))
    carried: list[float | None] = []

    def stopping(*given: object, progress: bool | None) -> object:
        carried.append(given[2])  # type: ignore[arg-type]
        if len(carried) == 2:
            raise KeyboardInterrupt
        return carry_out(*given, progress=progress)  # type: ignore[arg-type]

    monkeypatch.setattr(shakespeare_secret, "carry_out", stopping)
    with pytest.raises(KeyboardInterrupt):
        shakespeare_secret.run(quick, data=DATA, folder=tmp_path, progress=False)
    done = shakespeare_secret.run(quick, data=DATA, folder=tmp_path, progress=False)
    assert carried == [None, None, None, 8.0]  # the first of them is not trained again
    assert len(done.situations) == len(situations(quick)) == 3
    with pytest.raises(CheckpointError, match="another seed or other settings"):
        shakespeare_secret.run(SMALL, data=DATA, folder=tmp_path, progress=False)
    (tmp_path / shakespeare_secret.KEPT).write_text("{}")
    with pytest.raises(CheckpointError, match="is not what an earlier run kept"):
        shakespeare_secret.run(quick, data=DATA, folder=tmp_path, progress=False)


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="secrets must be 1 to 16"):
        replace(SMALL, secrets=17)
    with pytest.raises(DataError, match="too few for 2 secrets"):
        trial_of(replace(SMALL, window=1_500), DATA, 0)
    other = Examples(np.full((20, 128), 200, np.uint8), np.full((20, 128), 200))
    with pytest.raises(DataError, match="must be ASCII"):
        trial_of(SMALL, replace(DATA, train=other), 0)


@pytest.mark.slow
def test_on_tiny_shakespeare() -> None:
    place = real_data("text/tinyshakespeare.txt")
    done = shakespeare_secret.run(data=place, seed=1, progress=False)
    many, once, *private = done.situations
    assert many.mean_exposure > 29.0
    assert many.extracted >= 6
    assert many.p_value < 1e-15
    assert once.extracted == 0
    assert once.p_value > 1e-4
    for one in private:  # their noise has no seed: chance goes below 1e-6 once in a million
        assert one.extracted == 0
        assert one.p_value > 1e-6
