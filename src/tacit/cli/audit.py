"""``tacit audit``: attacks and self-tests, the verdict on the claim, and what it was reached by."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import click

from tacit.cli import audit_request, runs
from tacit.cli.audit_request import Request, Typed
from tacit.cli.options import Refusal
from tacit.cli.run_options import check_device
from tacit.cli.runs import command_line
from tacit.cli.streams import complain, say
from tacit.cli.train_settings import TakesSettings
from tacit.errors import TacitError

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.recipes.auditing import Audited

EPILOG = """\b
Every setting of a recipe is an option, too: --epochs 10 is --set epochs=10.

\b
Examples:
  tacit audit --list
  tacit audit runs/demo --attack lira --shadows 16
  tacit audit mnist-tempered --one-run --canaries 1000
  tacit audit digits --epsilon 2 --attack lira --attack rmia --workers 2
  tacit audit engine
  tacit audit engine --model model.py:setting
  tacit audit mechanism gaussian --epsilon 2
  tacit audit mnist-memorised

\b
Exit status: 0, 1 if the evidence contradicts the claim at 99.99 %, 2 for a refusal, 130 for Ctrl-C.
"""


@click.command(cls=TakesSettings, epilog=EPILOG)
@click.argument("subject", required=False)
@click.argument("name", required=False)
@click.option("--attack", "attacks", metavar="NAME", multiple=True, help="An attack; may be "
              "given several times. [default: lira; loss with --one-run]")  # fmt: skip
@click.option("--shadows", metavar="N", help="Shadow models to train. [default: 16]")
@click.option("--one-run", is_flag=True, help="Train one model, with mislabelled canaries.")
@click.option("--canaries", metavar="M", help="Records that are in by a coin (recipes).")
@click.option("--records", metavar="N", help="Members, and others, to ask about (runs).")
@click.option("--views", metavar="V", help="Views of an image to ask about. [default: 1]")
@click.option("--epsilon", metavar="EPS", help="The claim (recipes, mechanisms).")
@click.option("--delta", metavar="D", help="Its delta. [default: 1e-5]")
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="A recipe's setting.")
@click.option("--model", metavar="FILE:FUNCTION", help="Your own model (engine).")
@click.option("--quick", is_flag=True, help="All checks in one setting, few in others (engine).")
@click.option("--draws", metavar="N", help="Draws on each input (mechanism).")
@click.option("--device", metavar="NAME", help="auto, cpu, cuda or cuda:N. [default: cpu]")
@click.option("--data", metavar="DIR", help="Where the data lie, if not in $TACIT_DATA.")
@click.option("--seed", metavar="N", help="For the audit's own choices; never for noise.")
@click.option("--workers", metavar="N", help="Processes that train. [default: 1; engine: 2]")
@click.option("--cluster", metavar="ADDRESS", help="A Ray cluster that trains; or local.")
@click.option("--out", metavar="DIR", help="Where audit.json goes. [default: the run's folder, "
              "or runs/audit-NAME]")  # fmt: skip
@click.option("--list", "listed", is_flag=True, help="Show what can be audited, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
@click.pass_context
def audit(context: click.Context, /, listed: bool, as_json: bool, **typed: Any) -> None:
    """Attacks what SUBJECT claims: the folder of a run, a recipe, the engine or a mechanism.

    Ends in numbers and a verdict. What an audit finds is computed from private records, and no
    guarantee covers it. After Ctrl-C the same command goes on with the models it has.
    """
    if listed or typed["subject"] is None:
        _list(as_json)
        return
    request = audit_request.read(Typed(**typed))
    done = _run(request, as_json)
    if done is None:
        context.exit(runs.STOPPED)
    _conclude(request, done, as_json)
    context.exit(done.exit_status)


def _run(request: Request, as_json: bool) -> Audited | None:
    """Carries the audit out; None if it was stopped."""
    from tacit.runs import stoppable

    with stoppable():
        try:
            return _audited(request, progress=False if as_json else None)
        except KeyboardInterrupt:
            _say_how_to_go_on(request)
            return None
        except TacitError:
            raise
        except ValueError as error:  # PyTorch's, for instance of a negative learning rate
            raise Refusal(f"{request.subject} refuses its settings: {error}") from error


def _audited(request: Request, progress: bool | None) -> Audited:
    from tacit.cli import audit_kinds

    if request.kind in ("run", "recipe"):
        check_device(request.device)
    carry_out = {
        "run": audit_kinds.of_run,
        "recipe": audit_kinds.of_recipe,
        "engine": audit_kinds.of_engine,
        "mechanism": audit_kinds.of_mechanism,
        "experiment": audit_kinds.of_experiment,
    }[request.kind]
    return carry_out(request, command_line(), progress)


def _say_how_to_go_on(request: Request) -> None:
    if request.kind in ("engine", "mechanism"):
        complain("stopped; nothing is kept")
        return
    again = shlex.join(command_line())
    complain(f"stopped; finished models are kept, and the same command goes on: {again}")


# ---- what is shown


def _conclude(request: Request, done: Audited, as_json: bool) -> None:
    plain = done.to_plain(command_line())
    files = _files(request, plain)
    if as_json:
        say(json.dumps(plain | {"files": files}, indent=2, allow_nan=False))
        return
    from tacit.cli.audit_page import page
    from tacit.cli.rendering import say_page

    say_page(page(done))
    for what, path in files.items():
        say(f"The {what} is at {path}")


def _files(request: Request, plain: dict[str, Any]) -> dict[str, str]:
    """Draws and writes what belongs to the audit; where it all lies."""
    from pathlib import Path

    place = request.out or (Path(request.subject) if request.kind == "run" else None)
    if place is None:
        return {}
    found = {"audit": str(place / audit_request.FILE)}
    try:
        if request.kind == "run" and request.out is None:
            from tacit.reports.run_report import write

            found["report"] = str(write(place))
        elif (picture := _picture(request, plain, place)) is not None:
            found["picture"] = str(picture)
    except OSError as error:
        raise Refusal(f"{place} cannot be written: {error.strerror or error}") from None
    return found


def _picture(request: Request, plain: dict[str, Any], place: Path) -> Path | None:
    from importlib import import_module
    from importlib.util import find_spec

    if find_spec("matplotlib") is None or request.kind in ("engine", "mechanism"):
        return None
    name = "audit_figure:draw_file"
    if request.kind == "experiment":
        from tacit.recipes.auditing import find

        name = find(request.subject).picture
    module, function = name.split(":")
    path = place / "audit.png"
    getattr(import_module(f"tacit.reports.{module}"), function)(plain, path)
    return path


def _list(as_json: bool) -> None:
    from tacit.cli.audit_page import listed, listed_page

    found = listed()
    if as_json:
        say(json.dumps(found, indent=2, ensure_ascii=False))
        return
    from tacit.cli.rendering import say_page

    say_page(listed_page(found))
