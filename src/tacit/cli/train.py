"""``tacit train``: from data to a private model, its accuracy, its statement and its report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from tacit.cli import runs, train_request
from tacit.cli.options import Refusal
from tacit.cli.runs import command_line as _command
from tacit.cli.streams import complain, say
from tacit.cli.train_request import Request, Typed
from tacit.cli.train_settings import TakesSettings
from tacit.errors import TacitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.data import Split
    from tacit.ledger import Budget
    from tacit.runs import Interruption, Trained

EPILOG = """\b
Every setting of a recipe is an option, too: --head cnn is --set head=cnn.

\b
Examples:
  tacit train --list
  tacit train digits --epsilon 3 --out runs/digits
  tacit train mnist-scatter --epsilon 2 --settings
  tacit train mnist-scatter --epsilon 2 --head cnn --ledger budget.db --budget mnist
  tacit train --resume --out runs/mnist-scatter
  tacit train digits --epsilon 4 --search search.toml
"""


@click.command(cls=TakesSettings, epilog=EPILOG)
@click.argument("recipe", required=False)
@click.option("--epsilon", metavar="EPS", help="The epsilon of all that is released. [default: 3]")
@click.option("--delta", metavar="D", help="Its delta. [default: 1e-5]")
@click.option("--epochs", metavar="E", help="Expected passes over the data.")
@click.option("--lot", metavar="L", help="Expected size of a lot.")
@click.option("--clip", metavar="C", help="The largest norm of one example's gradient.")
@click.option("--lr", metavar="R", help="The learning rate.")
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="Any other setting.")
@click.option("--out", metavar="DIR", help="A new folder for the run. [default: runs/RECIPE]")
@click.option("--resume", is_flag=True, help="Go on with the run that --out holds.")
@click.option("--ledger", metavar="URL", help="Charge the run to a budget of this ledger,")
@click.option("--budget", metavar="NAME", help="of this name. [default: the data's name]")
@click.option("--device", metavar="NAME", help="auto, cpu, cuda or cuda:N. [default: auto]")
@click.option("--seed", metavar="N", help="For the first weights; never for sampling or noise.")
@click.option("--data", metavar="DIR", help="Where the data lie, if not in $TACIT_DATA.")
@click.option("--search", metavar="FILE", help="Search settings privately, as this TOML file says.")
@click.option("--settings", "show", is_flag=True, help="Show the recipe's settings, and end.")
@click.option("--list", "listed", is_flag=True, help="Show all recipes, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
@click.pass_context
def train(context: click.Context, /, show: bool, listed: bool, as_json: bool, **typed: Any) -> None:
    """Trains a model by RECIPE so that all that is released of the data keeps within (EPS, D).

    Writes the model, its history, its statement and its report. Ctrl-C saves; --resume goes on.
    """
    if listed or (typed["recipe"] is None and not typed["resume"]):
        _list(as_json)
        return
    request = train_request.read(Typed(**typed))
    if show:
        _show_settings(request, as_json)
        return
    if request.finished is None and not _run(request, as_json):
        context.exit(runs.STOPPED)
    runs.conclude(request.out, as_json)


def _run(request: Request, as_json: bool) -> bool:
    """Carries the run out; False if it was stopped."""
    from tacit.runs import Interrupted, stoppable

    with stoppable() as stop:
        try:
            device = train_request.check_device(request.device)
            _check_folder(request)
            data = _data(request)
            _carry_out(request, data, device, stop, progress=not as_json or None)
        except (Interrupted, KeyboardInterrupt) as error:
            runs.say_how_to_go_on("train", request.out, error)
            return False
        except TacitError:
            raise
        except ValueError as error:  # PyTorch's, for instance of a negative learning rate
            raise Refusal(f"{request.recipe.name} refuses its settings: {error}") from error
    return True


def _check_folder(request: Request) -> None:
    from tacit.runs.folder import Folder

    if not request.resume:
        Folder(request.out).check_new()


def _data(request: Request) -> Split:
    from tacit.cli.data import download_progress
    from tacit.data import load

    with download_progress() as progress:
        return load(request.recipe.data, request.data, progress=progress)


def _carry_out(
    request: Request, data: Split, device: Any, stop: Interruption, *, progress: bool | None
) -> Trained:
    from tacit.runs.recipe import Task
    from tacit.runs.run import Place, carried_out
    from tacit.runs.search import searched

    task = Task(
        settings=request.settings, data=data, epsilon=request.epsilon, delta=request.delta,
        device=device, seed=request.seed,
    )  # fmt: skip
    place = Place(
        folder=request.out, resume=request.resume, opening=_opening(request), stop=stop,
        progress=progress, command=_command(), looked_in=request.data,
    )  # fmt: skip
    if request.search is None:
        return carried_out(request.recipe, task, place)
    # Its runs are not shown: how many there are, and what the losers score, is secret.
    complain(f"searching {request.search.count} candidates; this takes several runs")
    return searched(request.recipe, task, request.search, place)


def _opening(request: Request) -> Callable[[], Budget] | None:
    # A budget belongs to the data, and so has their name unless another is given.
    name = request.budget or request.recipe.data
    return runs.opening(
        request.ledger, name, epsilon=request.epsilon, delta=request.delta, resume=request.resume
    )


# ---- what is shown


def _list(as_json: bool) -> None:
    from tacit.cli.train_page import recipes, recipes_page

    found = recipes()
    if as_json:
        say(json.dumps({"recipes": found}, indent=2, ensure_ascii=False))
        return
    from tacit.cli.rendering import say_page

    say_page(recipes_page(found))


def _show_settings(request: Request, as_json: bool) -> None:
    from tacit.cli.train_page import settings, settings_page

    recipe = request.recipe
    found = settings(recipe.name, recipe.summary, request.epsilon, request.settings, recipe.tuning)
    if as_json:
        say(json.dumps(found, indent=2, ensure_ascii=False))
        return
    from tacit.cli.rendering import say_page

    say_page(settings_page(found))
