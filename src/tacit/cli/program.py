"""The group of commands, and what becomes of their errors: one line each, never a traceback."""

from __future__ import annotations

import difflib
import errno
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final, final

import click

from tacit import __version__
from tacit.cli.streams import be_encodable, be_there, complain
from tacit.errors import TacitError

if TYPE_CHECKING:
    from collections.abc import Sequence

REFUSED = 2
COMPLETION: Final = "_TACIT_COMPLETE"  # set by the shell's completion
_CLOSED: Final = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP)  # another's folder
_LONGEST_PLACE = 200  # letters of a path
_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)  # as of a full disk
CLOSED_PIPE = 141  # 128 + SIGPIPE, as for a program that the signal ends


# Each is a module of ``tacit.cli`` that holds a command of the same name.
COMMANDS: Final = (
    "audit", "data", "doctor", "generate", "ledger", "plan", "prior", "report", "serve", "train",
    "transfer",
)  # fmt: skip


@final
class Commands(click.Group):
    """Imports a command when it is asked for: nobody waits for those that are not."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All of them, in the order of the alphabet."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, if there is one."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = getattr(import_module(f"tacit.cli.{cmd_name}"), cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is asked for; a name that is none is answered with the nearest."""
        near = difflib.get_close_matches(args[0], COMMANDS, 1)
        # A shell that completes a line is not answered in words.
        if near and near[0] != args[0] and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="tacit", message="%(prog)s %(version)s")
@click.pass_context
def program(context: click.Context) -> None:
    """Deep learning with differential privacy, and proof of what it gives away."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs ``tacit`` with these arguments (default: the command line's); returns the status."""
    be_there()
    be_encodable(sys.stdout)
    be_encodable(sys.stderr)
    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None and COMPLETION in os.environ:
        return _complete(os.environ[COMPLETION])
    try:
        status = _invoke(given)
        sys.stdout.flush()
    except click.UsageError as error:
        return _refuse(f"{error.format_message()} (see {_path(error, given)} --help)")
    except click.ClickException as error:
        return _refuse(error.format_message())
    except TacitError as error:
        return _refuse(str(error))
    except BrokenPipeError:
        return _hang_up()
    except OSError as error:
        return _refuse(_surroundings(error))
    return status


def _invoke(arguments: list[str]) -> int:
    """Unlike click's own ``main``, prints no usage, and nothing on Ctrl-C."""
    try:
        with program.make_context("tacit", arguments) as context:
            program.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    return 0


def _complete(instruction: str) -> int:
    """Answers the shell, as click has it: the script to be sourced, or what may come next."""
    from click.shell_completion import shell_complete

    return shell_complete(program, {}, "tacit", COMPLETION, instruction)


def _path(error: click.UsageError, given: Sequence[str]) -> str:
    """The command whose help is wanted; click's parser does not say where an argument lacks."""
    if error.ctx is not None:
        return error.ctx.command_path
    return f"tacit {given[0]}" if given and given[0] in COMMANDS else "tacit"


def _refuse(message: str) -> int:
    complain(" ".join(message.split()))
    return REFUSED


def _surroundings(error: OSError) -> str:
    """What is wrong with a place that was named, or here; another error is a defect, and raised."""
    if error.errno in _CLOSED and error.filename is not None:
        place = str(error.filename)
        shown = place if len(place) <= _LONGEST_PLACE else f"{place[:_LONGEST_PLACE]}…"
        return f"{shown}: {error.strerror}; name another place, or one that you may open"
    if error.errno in _UNWRITABLE and error.filename is None:
        _hang_up()
        return f"the output cannot be written: {error.strerror}; make room, or send it elsewhere"
    try:
        os.getcwd()
    except FileNotFoundError:
        return "the folder that this was called in is gone; change to another one"
    raise error


def _hang_up() -> int:
    """Nobody reads on (``| head``), or can: gives Python a stdout that it can close."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CLOSED_PIPE
