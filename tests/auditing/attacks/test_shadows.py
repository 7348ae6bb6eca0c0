"""Training shadow models: who is a member, in which process, and going on where it stopped."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit._folders import WARNING
from tacit._workers import RayCluster
from tacit.auditing.attacks import Shadows, kept_shadows, lira_each, train_shadows
from tacit.auditing.attacks.shadows import RECORD, ShadowFolder
from tacit.errors import CheckpointError, InvalidArgument, WorkerDied

from .shadow_training import logits_of

# ---- Training shadow models: who is a member, in which process, and going on where it stopped

HERE = Path(__file__).parent


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module by a name that other processes find it by."""
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module("shadow_training")


def train(how: Any = logits_of, **more: Any) -> tuple[np.ndarray, np.ndarray]:
    settings = {"examples": 5, "count": 4, "seed": 1, "progress": False}
    return train_shadows(how, **(settings | more))


# ---- members and seeds


def test_a_model_is_trained_on_its_members_with_its_own_seed() -> None:
    logits, members = train()
    assert logits.shape == (4, 5, 2, 2)
    assert logits.dtype == np.float32
    shown = logits[..., 0, 1] - logits[..., 0, 0]
    np.testing.assert_allclose(shown, members, atol=1e-6)
    assert len({float(one) for one in logits[:, 0, 0, 0]}) == 4
    assert Shadows(logits, [0, 1, 0, 1, 1], members).logits.shape == (4, 5, 2, 2)


def test_half_of_the_models_have_an_example() -> None:
    _, members = train(examples=1000, count=8)
    assert (members.sum(axis=0) == 4).all()
    np.testing.assert_array_equal(members[1::2], ~members[0::2])
    shares = members[0::2].mean(axis=1)  # each by fair coins of its own
    assert (abs(shares - 0.5) < 5 * 0.5 / np.sqrt(1000)).all()
    agreement = [np.mean(members[i] == members[j]) for i in (0, 2) for j in (4, 6)]
    assert max(abs(one - 0.5) for one in agreement) < 5 * 0.5 / np.sqrt(1000)


def test_an_odd_model_has_coins_of_its_own() -> None:
    _, members = train(examples=400, count=5)
    assert 150 < members[4].sum() < 250
    assert (members[:4].sum(axis=0) == 2).all()


def test_another_share() -> None:
    _, members = train(examples=4000, count=3, share=0.2)
    assert (abs(members.mean(axis=1) - 0.2) < 5 * 0.4 / np.sqrt(4000)).all()


def test_seeds() -> None:
    same, other, fresh = train()[1], train(seed=2)[1], train(seed=None, examples=64)[1]
    np.testing.assert_array_equal(train()[1], same)
    assert (other != same).any()
    assert (train(seed=None, examples=64)[1] != fresh).any()
    # A longer run begins with the same models: count is no part of a model.
    longer = train(count=6)
    np.testing.assert_array_equal(longer[0][:4], train()[0])


def test_they_serve_an_attack() -> None:
    logits, members = train(examples=50, count=8)
    scores = lira_each(Shadows(logits, np.ones(50, dtype=int), members), fixed_variance=True)
    assert scores.shape == (8, 50)


# ---- processes


def test_two_processes_train_what_is_trained_here(trainings: Any, tmp_path: Path) -> None:
    found = train(partial(trainings.noted, str(tmp_path)), count=6, workers=2)
    workers = {path.name.split("-")[1] for path in tmp_path.iterdir()}
    assert str(os.getpid()) not in workers
    assert 1 <= len(workers) <= 2
    for mine, expected in zip(found, train(count=6), strict=True):
        np.testing.assert_array_equal(mine, expected)


@pytest.mark.slow
def test_a_killed_process_and_going_on(trainings: Any, tmp_path: Path) -> None:
    folder, notes = tmp_path / "shadows", tmp_path / "notes"
    notes.mkdir()
    train(partial(trainings.noted, str(notes)))
    seeds = [int(path.name.split("-")[0]) for path in notes.iterdir()]
    for path in notes.iterdir():
        path.unlink()
    dying = partial(trainings.dying, str(notes), seeds[0])
    with pytest.raises(WorkerDied, match="call again, which goes on from the folder"):
        train(dying, workers=2, folder=folder)
    before = {path.name for path in folder.glob("model-*")}
    assert 2 <= len(before) <= 3  # the third may have been lost on its way
    for path in notes.glob("*-*"):
        path.unlink()
    found = train(dying, workers=2, folder=folder)
    assert len(list(notes.glob("*-*"))) == 4 - len(before)  # only what was missing
    for mine, expected in zip(found, train(), strict=True):
        np.testing.assert_array_equal(mine, expected)
    train(lambda *_: pytest.fail("nothing is left to train"), folder=folder)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL]
)
def test_a_run_that_is_stopped_leaves_finished_models(tmp_path: Path, number: int) -> None:
    folder, notes = tmp_path / "shadows", tmp_path / "notes"
    notes.mkdir()
    script = [sys.executable, str(HERE / "shadow_training.py"), str(notes), str(folder)]
    process = subprocess.Popen(script, stderr=subprocess.PIPE, text=True)
    try:
        _wait_for(lambda: len(list(folder.glob("model-*.npy"))) >= 2)
        _wait_for(lambda: len(list(notes.glob("begun-*"))) >= 4)
        process.send_signal(number)  # to this process alone: the others must end with it
        _, said = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode != 0
    assert ("KeyboardInterrupt" in said) == (number == signal.SIGINT)
    pids = {int(path.name.split("-")[1]) for path in notes.glob("begun-*")}
    _wait_for(lambda: not any(_alive(pid) for pid in pids))
    logits, members = kept_shadows(folder)
    assert 2 <= len(logits) < 6
    shown = logits[..., 0, 1] - logits[..., 0, 0]
    np.testing.assert_allclose(shown, members, atol=1e-6)
    whole = train(count=6, folder=folder)  # and a second call goes on
    np.testing.assert_array_equal(whole[0], train(count=6)[0])


def _wait_for(come_true: Any, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not come_true():
        assert time.monotonic() < until, "it did not come true in time"
        time.sleep(0.02)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_training_that_fails_says_why(trainings: Any, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no model of 5 examples"):
        train(trainings.failing, workers=2, folder=tmp_path / "shadows")
    with pytest.raises(RuntimeError, match="no model of 5 examples"):
        train(trainings.failing)


def test_what_cannot_be_sent_to_a_process() -> None:
    with pytest.raises(
        InvalidArgument, match=r"train must be picklable with workers=2.*at the top of a module"
    ):
        train(lambda *_: np.zeros((5, 2)), workers=2)


# ---- the folder


def test_a_folder_of_other_models_is_refused(tmp_path: Path) -> None:
    train(folder=tmp_path, task="digits")
    for more, message in (
        ({"seed": 2}, "seed 1, not 2"),
        ({"count": 6}, "count 4, not 6"),
        ({"share": 0.3}, r"share 0\.5, not 0\.3"),
        ({"examples": 6}, "examples 5, not 6"),
        ({"task": "mnist"}, "task 'digits', not 'mnist'"),
    ):
        with pytest.raises(CheckpointError, match=f"is of shadow models with {message}"):
            train(folder=tmp_path, **({"task": "digits"} | more))
    again = train(folder=tmp_path, task="digits", seed=None)  # takes the folder's seed
    np.testing.assert_array_equal(again[0], train()[0])


def test_a_fresh_seed_is_kept(tmp_path: Path) -> None:
    first = train(folder=tmp_path, seed=None)
    (tmp_path / "model-000001.npy").unlink()
    again = train(folder=tmp_path, seed=None)
    for mine, expected in zip(again, first, strict=True):
        np.testing.assert_array_equal(mine, expected)


def test_nothing_is_finished(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no finished shadow model"):
        kept_shadows(tmp_path)
    with pytest.raises(RuntimeError, match="no model"):
        train(_never, folder=tmp_path)
    with pytest.raises(CheckpointError, match="holds no finished shadow model"):
        kept_shadows(tmp_path)


def _never(*_: object) -> np.ndarray:
    raise RuntimeError("no model")


# ---- what trainings give


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((4, 2)), "for each of the 5 examples.*shape .4, 1, 2. for model 0"),
        (np.zeros((5, 1)), "train gave for model 0: logits must be of shape"),
        (np.full((5, 2), np.nan), "train gave for model 0: logits must be finite"),
    ],
)
def test_logits_that_are_none(given: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        train(lambda *_: given)


def test_models_must_be_of_one_shape() -> None:
    shapes = iter((2, 3))
    with pytest.raises(InvalidArgument, match=r"the same views and classes.*for model 1"):
        train(lambda *_: np.zeros((5, next(shapes))))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"count": 0}, "count must be a whole number"),
        ({"examples": 0}, "examples must be a whole number"),
        ({"share": 1.0}, "share must lie strictly between 0 and 1"),
        ({"workers": 0}, "workers must be a whole number"),
        ({"seed": -1}, "seed must be a whole number, 0 or more"),
    ],
)
def test_refusals(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        train(**more)


def test_progress(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    train(progress=True, folder=tmp_path)
    assert capsys.readouterr().err.splitlines()[-1] == "shadow models: 4 of 4"
    train(progress=None)
    assert capsys.readouterr().err == ""


# ---- Ray


def test_ray_is_needed_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    train()
    with pytest.raises(InvalidArgument, match=r"needs Ray.*tacit\[cluster\]"):
        train(workers=RayCluster())


@pytest.mark.slow
def test_ray_trains_what_is_trained_here() -> None:
    ray = pytest.importorskip("ray", reason="Ray (the extra [cluster]) is not installed")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)

    def there(members: np.ndarray, seed: int) -> np.ndarray:
        return np.stack((members, np.full(len(members), seed % 100)), axis=-1)

    try:
        found = train(there, workers=RayCluster())
    finally:
        ray.shutdown()
    for mine, expected in zip(found, train(there), strict=True):
        np.testing.assert_array_equal(mine, expected)


# ---- The folder of shadow models: whole files, for one run, for its owner

LOGITS = np.arange(6, dtype=np.float32).reshape(3, 1, 2)


def begun(path: Path) -> ShadowFolder:
    folder = ShadowFolder(path)
    with folder.opened():
        assert folder.settings() is None
        folder.begin({"seed": 1})
    return folder


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    folder = begun(tmp_path / "new" / "folder")
    folder.add(3, LOGITS)
    folder.add(0, 2 * LOGITS)
    again = ShadowFolder(tmp_path / "new" / "folder")
    with again.opened():
        assert again.settings() == {"seed": 1}
        found = again.models()
    assert list(found) == [0, 3]
    np.testing.assert_array_equal(found[3], LOGITS)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    place = tmp_path / "shadows"
    begun(place).add(0, LOGITS)
    assert place.stat().st_mode & 0o077 == 0
    for path in place.iterdir():
        assert path.stat().st_mode & 0o077 == 0
    assert "private" in (place / WARNING).read_text()


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(CheckpointError, match=r"holds 'thesis\.tex' and no shadow models"):
        begun(tmp_path)
    assert not (tmp_path / RECORD).exists()


def test_a_draft_does_not_count(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    (tmp_path / "model-000002.npy.new").write_bytes(b"half")
    assert folder.models() == {}


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:-1] + b"\x07", lambda _: b""])
def test_damage_is_seen(tmp_path: Path, damage: object) -> None:
    folder = begun(tmp_path)
    folder.add(0, LOGITS)
    path = tmp_path / "model-000000.npy"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=r"damaged: model-000000\.npy is not as it was"):
        folder.models()


def test_a_file_of_another_run_or_name_does_not_pass(tmp_path: Path) -> None:
    one, other = begun(tmp_path / "one"), begun(tmp_path / "other")
    one.add(0, LOGITS)
    written = (tmp_path / "one" / "model-000000.npy").read_bytes()
    (tmp_path / "other" / "model-000000.npy").write_bytes(written)
    with pytest.raises(CheckpointError, match="not as it was written for this run"):
        other.models()
    (tmp_path / "one" / "model-000001.npy").write_bytes(written)
    with pytest.raises(CheckpointError, match="model-000001"):
        one.models()


@pytest.mark.parametrize("text", ["{", '{"format": 1}', "[]", '{"format": 1, "run": "zz"}'])
def test_a_damaged_record(tmp_path: Path, text: str) -> None:
    begun(tmp_path)
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(CheckpointError, match=r"is damaged: shadows\.json cannot be read"):
        ShadowFolder(tmp_path).settings()


def test_a_seed_that_another_wrote_as_a_float(tmp_path: Path) -> None:
    """Regression, found by fuzzing: -0.0 is a whole number, and NumPy's TypeError got out."""

    def train(members: Any, _: int) -> Any:
        return np.tile(members[:, None], (1, 2)).astype(np.float32)

    train_shadows(train, examples=6, count=2, seed=0, folder=tmp_path)
    members = kept_shadows(tmp_path)[1]
    record = tmp_path / RECORD
    text = record.read_text()
    assert '"seed": 0' in text
    record.write_text(text.replace('"seed": 0', '"seed": -0.0'))
    assert np.array_equal(kept_shadows(tmp_path)[1], members)


def test_another_format(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / RECORD).write_text('{"format": 9, "run": "", "settings": {}}')
    with pytest.raises(CheckpointError, match="has the format 9, not 1"):
        ShadowFolder(tmp_path).settings()


@pytest.mark.skipif(os.name != "posix", reason="locks are POSIX")
def test_one_process_at_a_time(tmp_path: Path) -> None:
    with (
        ShadowFolder(tmp_path).opened(),
        pytest.raises(CheckpointError, match="in use by another process"),
        ShadowFolder(tmp_path).opened(),
    ):
        pass


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(CheckpointError, match="cannot be written"),
        ShadowFolder(tmp_path / "file" / "folder").opened(),
    ):
        pass
