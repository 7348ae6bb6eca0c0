"""The command as a module, and how little it imports."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import click
import pytest

from tacit import __version__
from tacit.cli import main
from tacit.cli.program import COMMANDS, COMPLETION, program

if TYPE_CHECKING:
    from pathlib import Path


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


@pytest.mark.parametrize("name", COMMANDS)
def test_control_c_ends_every_command_in_one_line(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    command = program.get_command(click.Context(program), name)
    assert command is not None
    monkeypatch.setattr(command, "invoke", stopped)
    monkeypatch.setattr(command, "make_context", lambda *_, **__: click.Context(command))
    assert main([name]) == 130
    assert capsys.readouterr().err == "tacit: stopped\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [("d", {"data", "doctor"}), ("train --ep", {"--epsilon", "--epochs"}), ("trian --ep", {""})],
)
def test_the_shell_completes_commands_and_options(
    words: str,
    expected: set[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(COMPLETION, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"tacit {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    assert main() == 0
    said = capsys.readouterr().out.splitlines()
    assert {line.partition(",")[2] for line in said} == expected


@pytest.mark.parametrize("command", ["train", "plan"])
def test_a_refusal_names_the_help_of_its_own_command(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--epsilon"]) == 2
    assert f"(see tacit {command} --help)" in capsys.readouterr().err


def test_the_list_of_commands_has_whole_sentences(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
    assert len(lines) == len(COMMANDS)
    assert all(line.endswith(".") and not line.endswith("...") for line in lines)
    for group, count in (("ledger", 7), ("data", 3), ("prior", 2)):
        assert main([group, "--help"]) == 0
        said = capsys.readouterr().out.partition("Commands:\n")[2].partition("\n\n")[0]
        lines = said.splitlines()
        assert len(lines) == count
        assert all(line.endswith(".") and not line.endswith("...") for line in lines)


def called(line: str, folder: Path, **environment: str) -> tuple[int, str, str]:
    """What a shell has of this line, in which ``tacit`` is the command."""
    whole = f'tacit() {{ "{sys.executable}" -m tacit "$@"; }}; {line}'
    done = subprocess.run(
        ["sh", "-c", whole], capture_output=True, text=True, timeout=600, check=False,
        cwd=folder, env={**os.environ, **environment},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    assert main(["ledger", "open", "a", "--epsilon", "1", "--delta", "0",
                 "--ledger", str(tmp_path / "b.db")]) == 0  # fmt: skip
    return tmp_path


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["ledger list --ledger b.db", "--help", "--version"])
def test_a_full_disk_under_the_output_is_one_line(
    words: str, unbuffered: str, ledger: Path
) -> None:
    found = called(f"tacit {words} >/dev/full", ledger, PYTHONUNBUFFERED=unbuffered)
    said = "tacit: the output cannot be written: No space left on device; make room, or send it "
    assert found == (2, "", f"{said}elsewhere\n")


def test_streams_that_were_closed_are_nobodys_and_no_alarm(ledger: Path) -> None:
    """It said that the ledger held something that tacit did not write."""
    assert called("tacit ledger list --ledger b.db >&-", ledger) == (0, "", "")
    assert called("tacit ledger show other --ledger b.db 2>&-", ledger) == (2, "", "")
    assert called("tacit ledger list --ledger b.db <&- >&- 2>&-", ledger) == (0, "", "")


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    status, _, said = called("mkdir gone; cd gone; rmdir ../gone; tacit ledger list --ledger b.db",
                             tmp_path)  # fmt: skip
    assert status == 2
    assert said.endswith(
        "tacit: the folder that this was called in is gone; change to another one\n"
    )


PLACES = (
    "report {}", "audit {}", "generate {}", "ledger list --ledger {}", "ledger export {}",
    "train digits --out {}", "train --resume --out {}", "train digits --data {}",
    "data list --data {}", "serve --runs {} --port 0",
)  # fmt: skip


def refusal_of(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(line.split()) == 2
    *notes, said = capsys.readouterr().err.splitlines()
    assert notes in ([], ["loading PyTorch …"])
    assert said.startswith("tacit: ")
    return said


@pytest.mark.parametrize("words", PLACES)
def test_a_place_that_cannot_be_is_refused_in_one_line(
    words: str, ledger: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ledger)
    monkeypatch.setenv("TACIT_LEDGER", "b.db")
    assert "File name too long" in refusal_of(words.format("9" * 400), capsys)


@pytest.mark.parametrize("words", PLACES)
def test_somebody_elses_folder_is_refused_in_one_line(
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One that tacit made, for its owner alone, was a traceback to everybody else."""
    real = os.stat

    def stat(path: Any, *more: Any, **named: Any) -> os.stat_result:  # root may look anywhere
        if "theirs" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *more, **named)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TACIT_LEDGER", "b.db")
    monkeypatch.setattr(os, "stat", stat)
    assert "Permission denied" in refusal_of(words.format("theirs/run"), capsys)


@pytest.mark.parametrize("columns", ["0", "1"])
def test_a_terminal_of_no_columns_is_shown_something(columns: str, ledger: Path) -> None:
    status, said, _ = called("tacit ledger list --ledger b.db", ledger, COLUMNS=columns)
    assert status == 0
    assert "budget a\n" in said


def test_a_command_that_is_misspelt_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["trian"]) == 2
    assert "No such command 'trian'. Did you mean 'train'? (see tacit" in capsys.readouterr().err
    assert main(["zzz"]) == 2
    assert "No such command 'zzz'. (see tacit" in capsys.readouterr().err
