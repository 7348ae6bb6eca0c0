"""The guide's page on the ledger: its commands run on the ledger that its examples make."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tacit.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "ledger.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_the_commands_of_the_page_run(capsys, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(PAGE.read_text())
    names: dict[str, object] = {}
    for language, code in blocks:
        if language == "python":
            exec(compile(code, "ledger.md", "exec"), names)
    (tmp_path / "ledger.jsonl").unlink()  # the page exports twice: by Python, and by the command
    lines = [line for language, code in blocks if language == "bash" for line in code.splitlines()]
    variable, address = lines[0].removeprefix("export ").split("=")
    monkeypatch.setenv(variable, address)
    for line in lines[1:]:
        program, *arguments = shlex.split(line)
        assert program == "tacit"
        assert main(arguments) == 0, line
    assert capsys.readouterr().err == ""
    assert (tmp_path / "burn-down.png").exists()
    assert (tmp_path / "ledger.jsonl").exists()
    assert {arguments.split()[2] for arguments in lines[1:]} == {
        "open",
        "list",
        "show",
        "history",
        "verify",
        "export",
    }
