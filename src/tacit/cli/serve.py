"""``tacit serve``: the console in a browser."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from tacit.cli.ledger import VARIABLE, url_of
from tacit.cli.options import OptionType, Refusal
from tacit.cli.streams import say
from tacit.ledger.requests import APPROVAL_DAYS, MOST_DAYS

EPILOG = """\b
Examples:
  tacit serve
  tacit serve --ledger budget.db --runs runs
  tacit serve --keys keys.json --add-key ada:engineer
  tacit serve --ledger postgresql://me@host/budgets --keys keys.json
  tacit serve --host 192.0.2.7 --keys keys.json --certificate cert.pem key.pem
"""


def _port_of(option: str, text: str, remedy: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise Refusal(f"{option} must be a number from 0 to 65535, got {text}; {remedy}")
    return int(text)


def _days_of(option: str, text: str, remedy: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST_DAYS):
        raise Refusal(f"{option} must be a number from 1 to {MOST_DAYS}, got {text}; {remedy}")
    return int(text)


@click.command(epilog=EPILOG, short_help="Shows planner, budgets and runs in a browser.")
@click.option("--ledger", "address", metavar="URL", envvar=VARIABLE, show_envvar=True,
              help="The ledger whose budgets are shown.")  # fmt: skip
@click.option("--anchor", metavar="FILE", help="The anchor file, if not in the usual place.")
@click.option("--key", metavar="FILE", envvar="TACIT_LEDGER_KEY", show_envvar=True,
              help="File of the key that seals the ledger, if it is sealed.")  # fmt: skip
@click.option("--runs", metavar="DIR", type=click.Path(path_type=Path),
              help="Folder of runs. [default: runs, if there is one]")  # fmt: skip
@click.option("--port", metavar="N", default="8765", show_default=True,
              type=OptionType("number", _port_of, "0 is a free one"),
              help="Port to listen on.")  # fmt: skip
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True,
              help="Address to bind to; one that others reach needs keys and TLS.")  # fmt: skip
@click.option("--name", "names", metavar="HOST", multiple=True,
              help="Another host name under which the server is opened.")  # fmt: skip
@click.option("--keys", metavar="FILE", type=click.Path(path_type=Path),
              help="File of the keys that may sign in, in place of links.")  # fmt: skip
@click.option("--add-key", metavar="NAME:ROLE", help="Make a key, show it once and exit.")
@click.option("--approval-days", metavar="N", default=str(APPROVAL_DAYS), show_default=True,
              type=OptionType("number", _days_of, f"give days, as {APPROVAL_DAYS}"),
              help="Days after which an approval lapses if no run has used it.")  # fmt: skip
@click.option("--certificate", metavar="CERT KEY", nargs=2, type=click.Path(path_type=Path),
              help="A TLS certificate and its key, in PEM.")  # fmt: skip
def serve(
    address: str | None,
    runs: Path | None,
    keys: Path | None,
    add_key: str | None,
    **given: Any,
) -> None:
    """Shows the planner, the budgets and the runs in a browser, on this machine.

    Prints a link for each role; each works once. Ctrl-C ends it, and nothing is lost.
    """
    if add_key is not None:
        _add_key(keys, add_key)
        return
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise Refusal("tacit serve needs Starlette and uvicorn; pip install 'tacit[ui]'")
    from tacit.serve.access import read_keys
    from tacit.serve.server import Setting, prepared
    from tacit.serve.server import serve as run

    setting = Setting(
        ledger=None if not address else url_of(address),
        address=address or "",
        runs=runs or (Path("runs") if Path("runs").is_dir() else None),
        keys=() if keys is None else read_keys(keys),
        **given,
    )
    served = prepared(setting)
    for role, link in served.links:
        say(f"{role:>8}: {link}")
    sys.stdout.flush()  # a pipe has the links at once, too
    run(served, setting)


def _add_key(keys: Path | None, wanted: str) -> None:
    from tacit.serve.access import add_key

    name, mark, role = wanted.rpartition(":")
    if keys is None or not mark:
        raise Refusal("--add-key needs --keys FILE and NAME:ROLE, such as --add-key ada:engineer")
    secret = add_key(keys, name, role)
    say(f"The key of {name} ({role}) is shown this once: {secret}")
