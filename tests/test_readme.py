"""Every Python block of the README and of the guide runs as it stands, and says what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)`: `(test_\w+)`")
SHOWN = re.compile(r"^(?P<code>[^#\n]+?)\s+#\s+(?P<value>-?\d[\d.]*)…?$")


def blocks(page: Path, language: str) -> list[str]:
    return [code for found, code in BLOCK.findall(page.read_text()) if found == language]


def check(code: str, names: dict[str, object]) -> None:
    """Runs a block; a line that ends in a comment with a number must come to that number."""
    exec(compile(code, "README", "exec"), names)
    for line in code.splitlines():
        if match := SHOWN.match(line):
            digits = len(match["value"].partition(".")[2])
            value = eval(match["code"].split(" = ")[-1], names)
            assert value == pytest.approx(float(match["value"]), abs=10.0**-digits), line


def test_readme_has_three_short_examples():
    training, accounting, releases = blocks(ROOT / "README.md", "python")
    assert len(training.strip().splitlines()) <= 18
    assert len(accounting.strip().splitlines()) <= 12
    assert len(releases.strip().splitlines()) <= 6


def test_readme_runs():
    for code in blocks(ROOT / "README.md", "python"):
        check(code, {})


def timed(page: str) -> Any:
    """Audits take their time, also the small ones of their page."""
    return pytest.param(page, marks=pytest.mark.slow) if page == "auditing.md" else page


@pytest.mark.parametrize("page", [timed(page) for page in PAGES])
def test_guide_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}  # a page's blocks build on one another
    for code in blocks(ROOT / "docs" / page, "python"):
        check(code, names)


def test_the_tests_that_the_pages_name_exist():
    named = [
        (path, name)
        for page in PAGES
        for path, name in TEST.findall((ROOT / "docs" / page).read_text())
    ]
    assert named
    for path, name in named:
        source = ROOT / "tests" / path
        assert source.exists(), path
        assert f"def {name}(" in source.read_text(), f"{path}: {name}"


def test_the_commands_of_the_readme_exist(capsys):
    from tacit.cli import main  # noqa: PLC0415

    lines = [line for code in blocks(ROOT / "README.md", "bash") for line in code.splitlines()]
    for line in lines:
        program, *arguments = shlex.split(line, comments=True) or [""]
        if program == "tacit":
            assert main(arguments) == 0, line
    targets = {line.split()[1] for line in lines if line.startswith("make ")}
    rules = (ROOT / "Makefile").read_text()
    assert {"demo", "test"} <= targets
    assert all(re.search(rf"^{target}:", rules, re.MULTILINE) for target in targets)
    assert capsys.readouterr().err == ""
