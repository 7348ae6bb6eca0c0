"""The command as a module, and how little it imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tacit import __version__
from tacit.cli import main
from tacit.cli.program import COMMANDS, program


def imported(*arguments: str) -> set[str]:
    """The modules that the command imports."""
    code = "import sys; from tacit.cli import main; main(sys.argv[1:]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=600,
        check=True,
    )  # fmt: skip
    return set(done.stdout.splitlines()[-1].split())


def test_it_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tacit", "--version"], capture_output=True, text=True, timeout=600,
        check=True,
    )  # fmt: skip
    assert done.stdout == f"tacit {__version__}\n"


def test_help_imports_the_command_it_is_about_and_little_else() -> None:
    found = imported("train", "--help")
    others = {f"tacit.cli.{one}" for one in COMMANDS if one != "train"}
    assert "tacit.cli.train" in found
    assert not others & found
    assert not {"torch", "numpy", "scipy", "sqlalchemy", "rich"} & found


def test_help_takes_less_than_half_of_what_it_took() -> None:
    """It had 327 lines when every command was imported, and NumPy with them."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tacit", "train", "--help"],
        capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    assert len(done.stderr.splitlines()) < 327 / 2


def test_every_command_is_there_by_its_name() -> None:
    context = program.make_context("tacit", ["--help"], resilient_parsing=True)
    assert program.list_commands(context) == sorted(COMMANDS)
    for name in COMMANDS:
        command = program.get_command(context, name)
        assert command is not None
        assert command.name == name
    assert program.get_command(context, "os") is None


@pytest.mark.parametrize("command", ["train", "plan"])
def test_a_refusal_names_the_help_of_its_own_command(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--epsilon"]) == 2
    assert f"(see tacit {command} --help)" in capsys.readouterr().err
