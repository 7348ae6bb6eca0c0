"""Folders that were sent: nothing in them is run, and what is wrong with them is said in one line.

Whoever sends a folder chooses every byte of it, knows the formats and can compute every checksum.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
import shutil
import signal
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from tacit import recipes
from tacit.cli import main
from tacit.selection.journal import SearchJournal
from tacit.transfer.journal import LabelJournal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Finished = Callable[..., Any]

PATE = ["--teachers", "6", "--epochs", "1", "--queries", "40", "--answers", "30", "--student",
        "plain", "--student-epochs", "1"]  # fmt: skip


class Hostile:
    """Makes a folder when it is read by anything that runs what it reads."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.system, (f"mkdir '{self.mark}'",)


def hostile_bytes(mark: Path) -> dict[str, bytes]:
    """The same as a pickle, as torch and NumPy write one, and packed."""
    one = Hostile(mark)
    saved, array = io.BytesIO(), io.BytesIO()
    torch.save(one, saved)
    np.save(array, np.array([one], dtype=object), allow_pickle=True)
    plain = pickle.dumps(one)
    return {
        "pickle": plain,
        "text pickle": pickle.dumps(one, 0),
        "torch": saved.getvalue(),
        "npy": array.getvalue(),
        "gzip": gzip.compress(plain),
        "teachers": pickle.dumps(((0,), (one,))),
    }


def test_the_hostile_bytes_are_hostile(tmp_path: Path) -> None:
    for number, (name, content) in enumerate(hostile_bytes(tmp_path / "mark").items()):
        readers: dict[str, Callable[[io.BytesIO], Any]] = {
            "torch": lambda file: torch.load(file, weights_only=False),
            "npy": lambda file: np.load(file, allow_pickle=True),
            "gzip": lambda file: pickle.loads(gzip.decompress(file.read())),
        }
        readers.get(name, pickle.load)(io.BytesIO(content))
        (tmp_path / "mark").rename(tmp_path / f"mark-{number}")


# ---- folders as real commands leave them


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("finished") / "run"
    recipes.run("digits", epsilon=3, settings={"epochs": 1}, folder=folder, progress=False)
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("stopped") / "run"
    asked = iter([False] * 3 + [True] * 99)
    with pytest.raises(recipes.Interrupted):
        recipes.run("digits", epsilon=3, settings={"epochs": 9}, folder=folder, progress=False,
                    stop=lambda: next(asked))  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sklearn")
    place = tmp_path_factory.mktemp("searched")
    (place / "search.toml").write_text("runs = 9\n[candidates]\nlr = [130.0, 120.0]\n")
    write = SearchJournal.write

    def cut_off(self: SearchJournal, progress: Any, *, new_model: bool = False) -> None:
        write(self, progress, new_model=new_model)
        if new_model:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SearchJournal, "write", cut_off)
        main(["train", "digits", "--epochs", "1", "--search", str(place / "search.toml"), "--out",
              str(place / "run")])  # fmt: skip
    return place / "run"


@pytest.fixture(scope="module")
def voting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("voting") / "run"

    def cut_off(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LabelJournal, "answer", cut_off)
        main(["transfer", "pate", *PATE, "--out", str(folder)])
    (folder / "private" / "votes").unlink()  # whoever has them does not ask the teachers
    return folder


def files_of(folder: Path) -> list[str]:
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())


def lay(folder: Path, name: str, content: bytes) -> None:
    """Puts a file there; a part of a folder of parts with the checksum that it needs."""
    place = folder / name
    record = place.parent / "teachers.json"
    if record.exists() and place != record:
        run = bytes.fromhex(json.loads(record.read_text())["run"])
        digest = hashlib.sha256(run + place.name.encode() + b"\0" + content).digest()
        content = digest + content
    place.unlink(missing_ok=True)
    place.write_bytes(content)


def judge(command: list[str], capsys: pytest.CaptureFixture[str], mark: Path) -> int:
    """Status 0 or 2; what is refused in one line; and nothing was run."""
    capsys.readouterr()
    status = main(command)
    told = capsys.readouterr().err
    assert not mark.exists(), command
    assert status in (0, 2), told
    assert "Traceback" not in told
    if status == 2:
        assert len(told.splitlines()[-1]) < 1000
        assert told.splitlines()[-1].startswith("tacit: ")
    return status


def each_file_is_hostile(
    folder: Path, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    names: list[str],
) -> None:  # fmt: skip
    mark = tmp_path / "mark"
    for name in names:
        for kind, content in hostile_bytes(mark).items():
            place = tmp_path / "run"
            shutil.copytree(folder, place)
            lay(place, name, content)
            assert judge([*command, str(place)], capsys, mark) == 2, (name, kind)
            shutil.rmtree(place)


def test_a_run_that_goes_on(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = files_of(stopped)
    assert names == [".lock", "checkpoint.safetensors", "history.jsonl", "run.json"]
    read = [name for name in names[1:] if name != "history.jsonl"]  # which is written over
    each_file_is_hostile(stopped, ["train", "--resume", "--out"], tmp_path, capsys, read)


def test_a_search_that_goes_on(
    searched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = files_of(searched)
    (model,) = (one for one in names if one.startswith("search/model-"))
    assert names == [".lock", "run.json", "search/.lock", model, "search/search.json"]
    command = ["train", "--resume", "--out"]
    each_file_is_hostile(searched, command, tmp_path, capsys, [model, "search/search.json"])
    (searched / model).unlink()
    old = model.replace(".safetensors", ".pickle")
    each_file_is_hostile(searched, command, tmp_path, capsys, [old])


def test_a_vote_that_goes_on(
    voting: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = files_of(voting)
    (piece, *_) = (one for one in names if one.startswith("private/teachers/teachers-"))
    stem = piece.removesuffix(".safetensors")
    read = [piece, f"{stem}.pt", f"{stem}.pickle", "private/teachers/assignment",
            "private/teachers/teachers.json", "private/votes", "answers.journal"]  # fmt: skip
    assert {read[0], *read[3:5]} < set(names)
    assert "answers.journal" in names
    each_file_is_hostile(voting, ["transfer", "--resume", "--out"], tmp_path, capsys, read)


def test_a_finished_run_that_is_reported_or_audited(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["run.json", "statement.json", "history.jsonl", "audit.json", "answers.csv"]
    each_file_is_hostile(finished, ["report"], tmp_path, capsys, names)
    names = ["run.json", "statement.json", "model.safetensors"]
    each_file_is_hostile(finished, ["audit"], tmp_path, capsys, names)


# ---- sizes, depths and kinds that no honest file has

GIB = 1 << 30


def header(length: int, text: bytes = b"") -> bytes:
    """The beginning of a safetensors file; the rest of its header is blanks."""
    return length.to_bytes(8, "little") + text + b" " * (min(length, 90 << 20) - len(text))


def claimed(shape: list[int], kind: str = "F32") -> bytes:
    text = json.dumps({"a": {"dtype": kind, "shape": shape, "data_offsets": [0, 4]}}).encode()
    return header(len(text), text) + bytes(4)


JSON = {
    "400 digits": b'{"format": "tacit-run", "epsilon": ' + b"9" * 400 + b"}",
    "5000 digits": b'{"epsilon": ' + b"9" * 5000 + b"}",
    "an exponent": b'{"epsilon": 1e999}',
    "no number": b'{"epsilon": NaN}',
    "deep lists": b"[" * 10**6,
    "deep objects": b'{"a":' * 10**5 + b"1" + b"}" * 10**5,
    "just deep": b"[" * 900 + b"]" * 900,
    "a key twice": b'{"format": "tacit-run", "format": "tacit-run"}',
    "half a character": b'{"format": "\\ud800"}',
    "no text": b"\xff\xfe\x00",
    "too large": b"[" + b"1," * (9 << 20) + b"1]",
    "nothing": b"",
    "a list": b"[]",
    "null": b"null",
}
SAFETENSORS = {
    "90 MB of header": header(90 << 20, b'{"__metadata__": {}}'),
    "a header without end": header((1 << 63) - 1),
    "half a word": b"\x08\x00",
    "10^15 numbers": claimed([10**15]),
    "a negative shape": claimed([-1]),
    "an overflow": claimed([2**62, 2**62, 2**62]),
    "an unknown kind": claimed([1], "F4242"),
    "deep": header(10**6, b"[" * 10**6),
    "a key twice": header(18, b'{"a":null,"a":null}'[:18]),
}


def npy(shape: str, descr: str = "'<i8'") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (118 - len(text) - 1) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64)


VOTES = {
    "10^15 rows": npy("(1000000000000000, 10)"),
    "10^30 rows": npy("(10**30, 10)".replace("10**30", str(10**30))),
    "negative rows": npy("(-1, 10)"),
    "objects": npy("(8,)", "'|O'"),
    "a deep header": npy("(" * 90),
    "records": npy("(4,)", "[('a', '<i8'), ('b', '<i8')]"),
    "a shape of text": npy("'many'"),
    "nothing": b"",
    "half a header": npy("(2, 4)")[:20],
}


@pytest.fixture
def measured() -> Any:
    """Fails where something hangs, or takes a gigabyte more than was in use before."""
    resource = pytest.importorskip("resource", reason="memory is measured as POSIX does")

    def late(*_: object) -> None:
        pytest.fail("it hangs")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    handler = signal.signal(signal.SIGALRM, late)
    signal.alarm(300)  # far more than any of these takes, on a machine however busy
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, handler)
    unit = 1 if sys.platform == "darwin" else 1024
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit < GIB


def each_content_is_refused(
    folder: Path, name: str, contents: dict[str, bytes], command: list[str], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    place = tmp_path / "run"
    shutil.copytree(folder, place)
    for kind, content in contents.items():
        lay(place, name, content)
        status = judge([*command, str(place)], capsys, tmp_path / "mark")
        assert status == 2, (name, kind)
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)):
        (place / name).unlink() if not (place / name).is_dir() else (place / name).rmdir()
        make(place / name)
        assert judge([*command, str(place)], capsys, tmp_path / "mark") == 2, (name, make)


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(
    "command", [["train", "--resume", "--out"], ["report"], ["audit"]], ids=" ".join
)
def test_records_of_hostile_sizes(
    finished: Path, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    each_content_is_refused(finished, "run.json", JSON, command, tmp_path, capsys)


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("name", ["statement.json", "history.jsonl", "audit.json"])
def test_what_a_report_reads_of_hostile_sizes(
    finished: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = {kind: one for kind, one in JSON.items() if one or name != "history.jsonl"}
    each_content_is_refused(finished, name, contents, ["report"], tmp_path, capsys)


@pytest.mark.usefixtures("measured")
def test_checkpoints_and_models_of_hostile_sizes(
    stopped: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "--resume", "--out"]
    each_content_is_refused(
        stopped, "checkpoint.safetensors", SAFETENSORS, command, tmp_path / "a", capsys
    )
    each_content_is_refused(
        finished, "model.safetensors", SAFETENSORS, ["audit"], tmp_path / "b", capsys
    )


@pytest.mark.usefixtures("measured")
def test_journals_of_hostile_sizes(
    searched: Path, voting: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "--resume", "--out"]
    each_content_is_refused(searched, "search/search.json", JSON, command, tmp_path / "a", capsys)
    command = ["transfer", "--resume", "--out"]
    each_content_is_refused(voting, "private/votes", VOTES, command, tmp_path / "b", capsys)
    name = "private/teachers/assignment"
    each_content_is_refused(voting, name, VOTES, command, tmp_path / "c", capsys)
    name = "private/teachers/teachers.json"
    each_content_is_refused(voting, name, JSON, command, tmp_path / "d", capsys)


@pytest.mark.usefixtures("measured")
def test_votes_of_hostile_sizes_from_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn")
    for kind, content in VOTES.items():
        (tmp_path / "votes.npy").write_bytes(content)
        command = ["transfer", "pate", *PATE, "--set", f"votes={tmp_path / 'votes.npy'}", "--out"]
        status = judge([*command, str(tmp_path / "run")], capsys, tmp_path / "mark")
        assert status == 2, kind
        assert not (tmp_path / "run").exists()
