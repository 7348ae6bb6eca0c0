"""The server as a process: where it binds, what a kill loses, and what it prints."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from tacit.cli import main
from tacit.ledger import Ledger
from tacit.serve.server import Setting, _origins, prepared

from .conftest import PLAN

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Served:
    """A server in a process, and one browser's worth of requests to it."""

    def __init__(self, folder: Path) -> None:
        start = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tacit", "serve", "--ledger", "budget.db", "--port", "0"],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline() for _ in range(3)]
        self.links = dict(line.strip().split(": ") for line in lines)
        self.address = urlsplit(self.links["engineer"]).netloc
        self.cookie = ""
        link = urlsplit(self.links["engineer"])
        self.ask("GET", f"{link.path}?{link.query}")
        self.page = self.ask("GET", "/plan")[1]
        self.first_page = time.monotonic() - start
        self.csrf = self.page.split('name="csrf" value="')[1].split('"')[0]

    def ask(self, method: str, target: str, body: str = "") -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.address, timeout=30)
        headers = {"cookie": self.cookie, "origin": f"http://{self.address}",
                   "content-type": "application/x-www-form-urlencoded"}  # fmt: skip
        connection.request(method, target, body or None, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        given = answer.getheader("set-cookie")
        self.cookie = given.partition(";")[0] if given else self.cookie
        connection.close()
        return answer.status, text

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_a_killed_server_loses_no_request(tmp_path: Path) -> None:
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        ledger.open("small", 8.0, 1e-4)
    served = Served(tmp_path)
    assert "Plan a run" in served.page  # its figures may follow
    assert 'id="epsilon-found"' in served.ask("GET", "/plan/answer")[1]
    assert served.first_page < 10.0  # 1 s on an idle machine; this one may be busy
    filed = 0
    for at in range(3):
        body = urlencode({**PLAN, "csrf": served.csrf, "label": f"run {at}"})
        filed += served.ask("POST", "/requests", body)[0] == 303
    served.kill()  # the answer to the last one has just come
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        labels = [one.label for one in ledger.books.requests.values()]
        assert (filed, labels) == (3, ["run 0", "run 1", "run 2"])
        assert ledger.verify().ok


def test_elsewhere_needs_keys_and_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "--host", "0.0.0.0"]) == 2
    assert main(["serve", "--keys", "keys.json", "--add-key", "ada:king"]) == 2
    assert main(["serve", "--add-key", "ada:officer"]) == 2
    assert main(["serve", "--keys", "keys.json", "--add-key", "ada:officer"]) == 0
    assert main(["serve", "--keys", "keys.json", "--add-key", "ada:viewer"]) == 2
    assert main(["serve", "--keys", "keys.json", "--host", "192.0.2.7"]) == 2
    assert main(["serve", "--keys", "none.json"]) == 2
    assert main(["serve", "--runs", "nowhere"]) == 2
    assert main(["serve", "--ledger", "nowhere.db"]) == 2
    assert main(["serve", "--port", "99999"]) == 2
    said = capsys.readouterr()
    for part in ("needs --keys", "role must be", "NAME:ROLE", "has a key", "needs --certificate",
                 "cannot be read", "must be a folder", "no ledger", "0 to 65535"):  # fmt: skip
        assert part in said.err, part
    assert "tacit-key-" in said.out
    assert main(["serve", "--keys", "keys.json/more.json", "--add-key", "bo:viewer"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("tacit: --keys keys.json/more.json cannot be written: ")
    assert said.out == ""
    assert not (tmp_path / "nowhere.db").exists()


def test_a_certificate_that_cannot_be_used_is_refused_before_a_link_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.pem").write_text("no certificate")
    for pair in (("none.pem", "text.pem"), ("text.pem", "none.pem"), ("text.pem", "text.pem")):
        assert main(["serve", "--port", "0", "--certificate", *pair]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith(f"tacit: --certificate {' '.join(pair)} cannot be used: ")
        assert said.err.count("\n") == 1
        assert ("there is no file none.pem" in said.err) == ("none.pem" in pair)


def test_an_approval_lasts_as_long_as_the_command_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for days in ("0", "367", "-3", "soon", "9" * 400, "1.5"):
        assert main(["serve", "--approval-days", days]) == 2
        said = capsys.readouterr().err
        assert "--approval-days must be a number from 1 to 366" in said
        assert said.count("\n") == 1
    served = prepared(Setting(port=0, approval_days=7))
    served.socket.close()
    assert served.console.approval_days == 7


def test_a_server_answers_to_its_own_names_only() -> None:
    local = _origins(Setting(), 8765)
    assert local == ["http://127.0.0.1:8765", "http://localhost:8765", "http://[::1]:8765"]
    named = _origins(Setting(names=("Console.Example",)), 1)
    assert "https://console.example" in named
