"""The folder: a run that was cut off goes on, and what is not its own is refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import stat
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from tacit.errors import CheckpointError, InvalidArgument
from tacit.training import checkpoint_file
from tacit.training.checkpoint_file import Packer, unpack
from tacit.transfer import PickledModels
from tacit.transfer.teachers import Teachers
from tacit.transfer.teachers.models import Constant, TeacherWork

if TYPE_CHECKING:
    from pathlib import Path

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(size=(120, 4)).astype(np.float32)
LABELS = (ROWS[:, 0] > 0).astype(int)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))


def other() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


def tree() -> Any:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from sklearn.tree import DecisionTreeClassifier  # noqa: PLC0415

    return DecisionTreeClassifier()


def teachers(folder: Path, make: Any = mlp, **more: Any) -> Teachers:
    settings = {"classes": 2, "epochs": 2, "how": "loop", "progress": False}
    dataset = more.pop("dataset", (ROWS, LABELS))
    if make is tree:
        more = {"models": PickledModels()} | more
    return Teachers(make, dataset, more.pop("count", 8), folder=folder, **(settings | more))


def cut_off(monkeypatch: pytest.MonkeyPatch, after: int) -> list[int]:
    """From here on, training fails after so many pieces; returns who has been trained."""
    trained: list[int] = []
    train = TeacherWork.train

    def failing(self: TeacherWork, part: Any) -> Any:
        if len(trained) >= after:
            raise KeyboardInterrupt
        trained.extend(part.teachers)
        return train(self, part)

    monkeypatch.setattr(TeacherWork, "train", failing)
    return trained


@pytest.mark.parametrize("make", [mlp, tree])
def test_a_run_that_was_cut_off_trains_only_who_is_missing(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        assert cut_off(patch, 3) == []
        with pytest.raises(KeyboardInterrupt):
            teachers(tmp_path, make).fit()
    before = {path.name: path.read_bytes() for path in tmp_path.glob("[at]*")}
    with monkeypatch.context() as patch:
        trained = cut_off(patch, 99)
        resumed = teachers(tmp_path, make).fit()
        assert trained == [3, 4, 5, 6, 7]
    after = {path.name: path.read_bytes() for path in tmp_path.glob("[at]*")}
    assert before.items() <= after.items()  # the assignment among them
    with monkeypatch.context() as patch:
        assert cut_off(patch, 0) == []
        again = teachers(tmp_path, make).fit()  # nobody is missing
    np.testing.assert_array_equal(again.labels(ROWS), resumed.labels(ROWS))
    np.testing.assert_array_equal(again.sizes, resumed.sizes)


def test_a_resumed_run_is_the_run_that_was_not_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same assignment and seed, and so the same teachers; also by another way of training."""
    for how in ("loop", "gemm"):
        folder = tmp_path / how
        with monkeypatch.context() as patch:
            cut_off(patch, 3)
            with pytest.raises(KeyboardInterrupt):
                teachers(folder).fit()
        resumed = teachers(folder, how=how).fit()
        owner = np.load(_content(folder / "assignment"), allow_pickle=False)

        class Same:
            def bytes(self, count: int, owner: Any = owner) -> bytes:
                return bytes(owner.astype(np.uint32).tobytes()[:count])

        seed = json.loads((folder / "teachers.json").read_text())["seed"]
        whole = Teachers(
            mlp, (ROWS, LABELS), 8, classes=2, epochs=2, stream=Same(), seed=seed, how="loop"
        ).fit()
        np.testing.assert_array_equal(whole.sizes, resumed.sizes)
        np.testing.assert_array_equal(whole.labels(ROWS), resumed.labels(ROWS))


def _content(path: Path) -> Any:
    import io  # noqa: PLC0415

    return io.BytesIO(path.read_bytes()[32:])


def test_the_folder_is_private_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    teachers(folder).fit()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert "Everything in this folder is private" in (folder / "PRIVATE.txt").read_text()
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
    assert not list(folder.glob("*.new"))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"epochs": 3}, "epochs"),
        ({"lr": 0.3}, "lr"),
        ({"weight_decay": 0.1}, "weight_decay"),
        ({"batch_size": 5}, "batch_size"),
        ({"count": 9}, "count"),
        ({"make": other}, "model"),
        ({"make": tree}, "model"),
        ({"dataset": (ROWS + 1e-3, LABELS)}, "records"),
        ({"dataset": (ROWS, 1 - LABELS)}, "records"),
        ({"seed": 77}, "seed"),
    ],
)
def test_a_folder_of_other_teachers_is_refused(
    changed: dict[str, Any], named: str, tmp_path: Path
) -> None:
    teachers(tmp_path / "a", seed=5).fit()
    with pytest.raises(CheckpointError, match=named):
        teachers(tmp_path / "a", **changed).fit()
    teachers(tmp_path / "a", seed=5).fit()


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("dear")
    with pytest.raises(CheckpointError, match=r"holds 'thesis\.tex' and no teachers"):
        teachers(tmp_path).fit()
    assert (tmp_path / "thesis.tex").read_text() == "dear"


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    teachers(tmp_path / "a").fit()
    teachers(tmp_path / "b").fit()
    piece = sorted((tmp_path / "a").glob("teachers-*.safetensors"))[0]
    whole = piece.read_bytes()
    foreign = sorted((tmp_path / "b").glob("teachers-*.safetensors"))[0].read_bytes()
    for content in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), b"", foreign):
        piece.write_bytes(content)
        with pytest.raises(CheckpointError, match="is damaged"):
            teachers(tmp_path / "a").fit()
    piece.write_bytes(whole)
    teachers(tmp_path / "a").fit()
    (tmp_path / "a" / "assignment").unlink()
    with pytest.raises(CheckpointError, match="is damaged: assignment"):
        teachers(tmp_path / "a").fit()
    (tmp_path / "a" / "teachers.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"teachers\.json cannot be read"):
        teachers(tmp_path / "a").fit()


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
def test_pickles_that_others_could_have_written_are_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    teachers(folder, tree).fit()
    folder.chmod(0o770)
    with pytest.raises(CheckpointError, match="could have been written by others"):
        teachers(folder, tree).fit()


def laid(folder: Path, name: str, content: bytes) -> None:
    """Lays a part into a folder as whoever sent it can: the digest is no secret."""
    run = bytes.fromhex(json.loads((folder / "teachers.json").read_text())["run"])
    digest = hashlib.sha256(run + name.encode() + b"\0" + content).digest()
    (folder / name).write_bytes(digest + content)


class Hostile:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("kind", ["pt", "pickle", "safetensors"])
def test_nothing_in_the_folder_is_run(kind: str, tmp_path: Path) -> None:
    folder, mark = tmp_path / "a", tmp_path / "mark"
    teachers(folder).fit()
    piece = sorted(folder.glob("teachers-*"))[0]
    content = io.BytesIO()
    if kind == "pt":
        torch.save(Hostile(mark), content)
    else:
        content.write(pickle.dumps(((0,), (Hostile(mark),))))
    piece.unlink()
    laid(folder, f"{piece.stem}.{kind}", content.getvalue())
    words = "is damaged" if kind == "safetensors" else "as pickles .*which can run any program"
    for make in (mlp, tree):
        with pytest.raises(CheckpointError, match=words if make is mlp else "another model"):
            teachers(folder, make).fit()
    assert not mark.exists()


def test_classifiers_are_kept_only_by_whoever_says_how(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="models must say how the folder keeps"):
        teachers(tmp_path, tree, models=None)


class FirstClasses:
    """A format for what it was told of: fitted trees, of which it keeps the first class."""

    def state(self, model: Any) -> Any:
        return {"first": int(model.classes_[0])}

    def model(self, state: Any) -> Any:
        return Constant(state["first"])


def test_a_teacher_of_one_class_is_kept_whatever_the_format(tmp_path: Path) -> None:
    """Whether some teacher has seen one class only must not show by an error."""
    data = (ROWS[:40], np.array([1] * 39 + [0]))
    alone = teachers(tmp_path, tree, models=FirstClasses(), dataset=data).fit()
    again = teachers(tmp_path, tree, models=FirstClasses(), dataset=data).fit()
    kept = again.labels(ROWS[40:])
    assert (kept[again.sizes == 0] == 0).all()
    assert (kept[again.sizes > 0].max(axis=1) == 1).sum() >= (again.sizes > 0).sum() - 1
    assert alone.sizes.tolist() == again.sizes.tolist()


@pytest.mark.parametrize("harm", ["names", "shape", "dtype", "twice", "strangers", "none"])
def test_weights_that_are_not_the_models_are_refused(harm: str, tmp_path: Path) -> None:
    teachers(tmp_path).fit()
    piece = sorted(tmp_path.glob("teachers-*"))[0]
    document, tensors = checkpoint_file.from_bytes(piece.read_bytes()[32:], "piece")
    kept = unpack(document["kept"], tensors)
    packer = Packer()
    if harm == "names":
        kept["more"] = kept.pop("0.weight")
    elif harm == "shape":
        kept["0.weight"] = kept["0.weight"][:, :1]
    elif harm == "dtype":
        kept["0.weight"] = kept["0.weight"].double()
    numbers = {"twice": [1], "strangers": [8], "none": []}.get(harm, [0])
    document |= {"teachers": numbers, "kept": packer.pack(kept, "teachers")}
    laid(tmp_path, piece.name, checkpoint_file.to_bytes(document, packer.tensors))
    with pytest.raises(CheckpointError, match="is damaged"):
        teachers(tmp_path).fit()


@pytest.mark.skipif(os.name != "posix", reason="locks are POSIX's")
def test_one_process_at_a_time(tmp_path: Path) -> None:
    import fcntl  # noqa: PLC0415

    tmp_path.joinpath("a").mkdir()
    with (tmp_path / "a" / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(CheckpointError, match="in use by another process"):
            teachers(tmp_path / "a").fit()
