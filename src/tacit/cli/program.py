"""The group of commands, and what becomes of their errors: one line each, never a traceback."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from tacit import __version__
from tacit.cli.audit import audit
from tacit.cli.data import data
from tacit.cli.ledger import ledger
from tacit.cli.plan import plan
from tacit.cli.report import report
from tacit.cli.streams import be_encodable, complain
from tacit.cli.train import train
from tacit.cli.transfer import transfer
from tacit.errors import TacitError

if TYPE_CHECKING:
    from collections.abc import Sequence

REFUSED = 2
CLOSED_PIPE = 141  # 128 + SIGPIPE, as for a program that the signal ends


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tacit", message="%(prog)s %(version)s")
@click.pass_context
def program(context: click.Context) -> None:
    """Deep learning with differential privacy, and the proof of what it gave away."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


program.add_command(audit)
program.add_command(data)
program.add_command(ledger)
program.add_command(plan)
program.add_command(report)
program.add_command(train)
program.add_command(transfer)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs ``tacit`` with these arguments (default: the command line's); returns the status."""
    be_encodable(sys.stdout)
    be_encodable(sys.stderr)
    try:
        status = _invoke(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except click.UsageError as error:
        return _refuse(f"{error.format_message()} (see {_path(error)} --help)")
    except click.ClickException as error:
        return _refuse(error.format_message())
    except TacitError as error:
        return _refuse(str(error))
    except BrokenPipeError:
        return _hang_up()
    return status


def _invoke(arguments: list[str]) -> int:
    """Unlike click's own ``main``, prints no usage, and nothing on Ctrl-C."""
    try:
        with program.make_context("tacit", arguments) as context:
            program.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    return 0


def _path(error: click.UsageError) -> str:
    return error.ctx.command_path if error.ctx else "tacit"


def _refuse(message: str) -> int:
    complain(" ".join(message.split()))
    return REFUSED


def _hang_up() -> int:
    """The reader has gone (``| head``): gives Python a stdout that it can close."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CLOSED_PIPE
