"""The command as a module, and how little it imports."""

from __future__ import annotations

import subprocess
import sys

from tacit import __version__
from tacit.cli.program import COMMANDS, program


def imported(*arguments: str) -> set[str]:
    """The modules that ``python -m tacit`` imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tacit", *arguments],
        capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


def test_it_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tacit", "--version"], capture_output=True, text=True, timeout=600,
        check=True,
    )  # fmt: skip
    assert done.stdout == f"tacit {__version__}\n"


def test_help_imports_the_command_it_is_about_and_little_else() -> None:
    """It was 327 modules when every command was imported, and NumPy with them."""
    found = imported("train", "--help")
    assert "tacit.cli.train" in found
    assert not {"torch", "numpy", "scipy", "sqlalchemy", "rich"} & found
    others = {f"tacit.cli.{one}" for one in COMMANDS if one != "train"}
    assert not others & found
    assert len(found) < 163


def test_every_command_is_there_by_its_name() -> None:
    context = program.make_context("tacit", ["--help"], resilient_parsing=True)
    assert program.list_commands(context) == sorted(COMMANDS)
    for name in COMMANDS:
        command = program.get_command(context, name)
        assert command is not None
        assert command.name == name
    assert program.get_command(context, "os") is None
