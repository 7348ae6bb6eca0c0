"""``tacit data``: what it prints, what it finds out, and what it refuses."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tacit.cli import main
from tacit.data.description import File
from tacit.data.images import read_idx
from tacit.data.sets import SETS

from ..data.serving import Server
from ..data.writing import MNIST_NAMES, known_set, sha256, write_mnist

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No data but what the test makes, and a page so wide that no line is wrapped."""
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TACIT_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "tacit" / "data"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Publishes a set called tiny."""
    write_mnist(tmp_path / "published")
    with Server() as running:
        files = []
        for name in (f"{name}-ubyte.gz" for name in MNIST_NAMES):
            data = running.files[name] = (tmp_path / "published" / name).read_bytes()
            url = running.url(name)
            files.append(File(name=name, size=len(data), digest=sha256(data), urls=(url,)))
        monkeypatch.setitem(SETS, "tiny", known_set("tiny", tuple(files), read_idx))
        yield running


def told(capsys, *arguments: str, status: int = 0) -> str:
    assert main(["data", *arguments]) == status, capsys.readouterr().err
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


def told_json(capsys, *arguments: str, status: int = 0) -> dict:
    return json.loads(told(capsys, *arguments, "--json", status=status))


def refused(capsys, *arguments: str) -> str:
    """The one line of a command that is refused."""
    assert main(["data", *arguments]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert shown.err.startswith("tacit: ")
    return shown.err


def test_list_names_every_set_with_licence_and_place(capsys, place):
    write_mnist(place / "mnist")
    page = told(capsys, "list")
    for name, known in SETS.items():
        assert f" {name} " in page
        assert known.licence in page
    assert str(place / "mnist") in "".join(page.split())  # however narrow its column
    assert "60,000 / 10,000" in page
    assert "not here" in page


def test_list_as_json(capsys, place):
    write_mnist(place / "mnist")
    found = told_json(capsys, "list")
    assert found["places"] == [str(place)]
    by_name = {one["name"]: one for one in found["sets"]}
    assert {*by_name} == {*SETS}
    assert by_name["mnist"]["folder"] == str(place / "mnist")
    assert by_name["mnist"]["files"] == [f"{name}-ubyte.gz" for name in MNIST_NAMES]
    sizes = [path.stat().st_size for path in (place / "mnist").iterdir()]
    assert by_name["mnist"]["bytes"] == sum(sizes)
    assert by_name["cifar10"]["folder"] is None
    assert by_name["cifar10"]["bytes"] == 170_052_171


@pytest.mark.usefixtures("server")
def test_get_downloads_to_the_cache_or_to_a_folder(capsys, place, tmp_path):
    assert f"tiny: as published, 4 files (8.0 kB) in {place}/tiny" in told(capsys, "get", "tiny")
    found = told_json(capsys, "get", "tiny", "--data", str(tmp_path / "new"))
    assert found["sets"][0]["folder"] == str(tmp_path / "new" / "tiny")
    assert len(os.listdir(tmp_path / "new" / "tiny")) == 4


def test_get_that_fails_is_one_line_and_leaves_nothing(capsys, server, tmp_path):
    server.moods = ["wrong"]
    line = refused(capsys, "get", "tiny", "--data", str(tmp_path / "new"))
    assert "tiny: train-images-idx3-ubyte.gz cannot be downloaded" in line
    assert "by its checksum" in line
    assert not (tmp_path / "new").exists()


def test_get_checks_all_names_before_it_downloads(capsys, server):
    assert "got 'nothing'" in refused(capsys, "get", "tiny", "nothing")
    assert server.asked == []


@pytest.mark.usefixtures("server")
def test_check_tells_sound_files_from_wrong_ones(capsys, place):
    told(capsys, "get", "tiny")
    assert "tiny: as published, 4 files in" in told(capsys, "check", "tiny")
    assert told_json(capsys, "check", "tiny")["sound"] is True
    (place / "tiny" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"x" * 100)
    page = told(capsys, "check", status=1)
    assert "tiny: as published, 3 files in" in page
    assert "tiny: wrong, " in page
    assert "mnist: not here" in page
    found = told_json(capsys, "check", "tiny", status=1)
    assert found["sound"] is False
    problems = [file["problem"] for file in found["sets"]["tiny"]]
    assert [problem is None for problem in problems] == [True, True, True, False]
    assert "is not the published file" in problems[-1]


def test_users_own_files_are_called_wrong(capsys, tmp_path):
    write_mnist(tmp_path / "mine")
    assert "wrong" in told(capsys, "check", "mnist", "--data", str(tmp_path / "mine"), status=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("get",), "NAME is missing; say which set to get"),
        (("get", "minst"), "name must be one of digits, mnist"),
        (("check", "minst"), "name must be one of digits, mnist"),
        (("check", "mnist"), "mnist is in none of"),
        (("list", "--data", "none"), "--data must be a folder, got none"),
        (("check", "--data", "none"), "--data must be a folder, got none"),
        (("get", "digits", "--data", "file"), "--data must be a folder, got file"),
        (("list", "extra"), "unexpected extra argument"),
        (("nothing",), "No such command 'nothing'"),
    ],
)
def test_what_is_refused_is_refused_in_a_line(capsys, tmp_path, arguments, message):
    (tmp_path / "file").touch()
    assert message in refused(capsys, *arguments)


def test_a_variable_that_names_no_folder_is_refused(capsys, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", "/none")
    assert "$TACIT_DATA names /none, which is no folder" in refused(capsys, "list")


def test_without_a_command_help_is_shown(capsys):
    assert "tacit data get mnist fashion" in told(capsys)


BARS = """
from tacit.cli.data import download_bars
with download_bars() as progress:
    progress("train.gz", 500_000, 2_000_000)
    progress("train.gz", 2_000_000, 2_000_000)
"""


def test_a_terminal_sees_bars(tmp_path):
    ours, theirs = pty.openpty()
    with open(tmp_path / "out", "wb") as out:
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
        child = subprocess.Popen(
            [sys.executable, "-c", BARS], stderr=theirs, stdout=out, env=environment
        )
        os.close(theirs)
        shown = _read_all(ours)
        assert child.wait() == 0
    assert "train.gz" in shown
    assert "2.0/2.0 MB" in shown
    assert (tmp_path / "out").read_bytes() == b""


def _read_all(terminal: int) -> str:
    parts = []
    try:
        while part := os.read(terminal, 4096):
            parts.append(part)
    except OSError:  # how Linux says that the other side is closed
        pass
    os.close(terminal)
    return b"".join(parts).decode()
