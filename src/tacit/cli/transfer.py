"""``tacit transfer``: a private crowd labels public images, and a student of them is released."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from tacit.cli import runs, transfer_request
from tacit.cli.options import Refusal
from tacit.cli.run_options import (
    DATA,
    DELTA_TYPE,
    EPSILON,
    FOLDER,
    SEED,
    RunOptions,
    TakesSettings,
    check_device,
)
from tacit.cli.streams import say
from tacit.cli.transfer_request import TransferOptions, TransferRequest
from tacit.errors import TacitError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from tacit.recipes.transferring import Parts
    from tacit.runs import Interruption

EPILOG = """\b
A method's settings are options too: --threshold 150 means --set threshold=150.

\b
Examples:
  tacit transfer --list
  tacit transfer pate --dataset mnist --out runs/pate
  tacit transfer knn --dataset mnist --epsilon 1 --settings
  tacit transfer rknn --dataset digits --epsilon 0.5 --ledger budget.db
  tacit transfer pate --dataset mnist --votes counts.npy --holds counts
  tacit transfer pate --dataset digits --asked active --rounds 4
  tacit transfer pate --dataset digits --aggregator interactive --threshold 25
  tacit transfer pate --aggregator sparse-vector --asked middles --epsilon 8
  tacit transfer --resume --out runs/pate
"""


@click.command(
    cls=TakesSettings,
    epilog=EPILOG,
    short_help="Trains a student on noisy labels of public images.",
)
@click.argument("method", required=False)
@click.option("--dataset", metavar="NAME", help="digits, mnist, fashion, svhn or cifar10.")
@click.option("--epsilon", metavar="EPS", type=EPSILON,
              help="Epsilon of everything that is released.")  # fmt: skip
@click.option("--delta", metavar="D", type=DELTA_TYPE,
              help="The delta of the guarantee. [default: 1e-5]")  # fmt: skip
@click.option("--queries", metavar="N", help="Number of public images to ask about.")
@click.option("--answers", metavar="N", help="Stop after this number of answers.")
@click.option(
    "--asked",
    metavar="WHICH",
    help="Which public images to ask about: first, middles (of clusters) or, for pate, active "
    "(chosen in rounds, where the student has most to learn).",
)
@click.option(
    "--aggregator",
    metavar="HOW",
    help="How pate turns votes into an answer: confident, gaussian, laplace, interactive (where "
    "they contradict the student) or sparse-vector (exactly, while they are stable).",
)
@click.option("--teachers", metavar="N", help="Number of teachers that vote (pate).")
@click.option("--sigma", metavar="S", help="Noise of an answer; give this or --epsilon.")
@click.option("--student", metavar="HOW", help="How the student learns, such as graph.")
@click.option("--votes", metavar="FILE", help="An .npy file of votes made elsewhere (pate).")
@click.option("--holds", metavar="WHAT", help="What the file of votes holds: counts or labels.")
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True,
              help="Another setting; repeat the option for several.")  # fmt: skip
@click.option("--out", metavar="DIR", type=FOLDER,
              help="New folder for the run. [default: runs/METHOD-DATASET]")  # fmt: skip
@click.option("--resume", is_flag=True, help="Continue the run in --out.")
@click.option("--ledger", metavar="URL", help="Charge the run to a budget of this ledger.")
@click.option("--budget", metavar="NAME",
              help="A budget that the ledger has. [default: one called like the data]")  # fmt: skip
@click.option("--device", metavar="NAME", help="auto, cpu, cuda or cuda:N. [default: auto]")
@click.option("--seed", metavar="N", type=SEED,
              help="Seed of the initial weights; sampling and noise take none.")  # fmt: skip
@click.option("--data", metavar="DIR", type=DATA,
              help="Folder of the data, if not $TACIT_DATA.")  # fmt: skip
@click.option(
    "--unverified", is_flag=True, help="Accept data files that differ from the published ones."
)
@click.option("--settings", "show", is_flag=True, help="Show the method's settings and exit.")
@click.option("--list", "listed", is_flag=True, help="List all methods and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
@click.pass_context
def transfer(
    context: click.Context, /, show: bool, listed: bool, as_json: bool, **given: Any
) -> None:
    """Labels public images by a noisy vote of private data, and trains a student on them.

    METHOD is pate (teachers vote), knn (neighbours vote) or rknn (records vote for clusters).
    Writes the student, the noisy labels, the statement and the report. Ctrl-C saves the run;
    --resume continues it, and asks no query twice.
    """
    if listed or (given["method"] is None and not given["resume"]):
        _list(as_json)
        return
    options = RunOptions.taken(given)
    request = transfer_request.read(TransferOptions(options, **given))
    if show:
        _show_settings(request, as_json)
        return
    if request.finished is not None:
        runs.clear(request.out)
    elif not _run(request, as_json):
        context.exit(runs.STOPPED)
    runs.conclude(request.out, as_json)


def _run(request: TransferRequest, as_json: bool) -> bool:
    """Carries the run out; False if it was stopped."""
    runs.load_engine(runs.shows_progress(as_json))
    from tacit.runs import Interrupted, stoppable
    from tacit.runs.folder import Folder

    with stoppable() as stop:
        try:
            device = check_device(request.device)
            if not request.resume:
                Folder(request.out).check_new()
            _carry_out(
                request, _parts(request), device, stop, progress=runs.shows_progress(as_json)
            )
        except (Interrupted, KeyboardInterrupt) as error:
            runs.say_how_to_go_on("transfer", request.out, error)
            return False
        except TacitError:
            raise
        except ValueError as error:  # PyTorch's, for instance of a negative learning rate
            raise Refusal(f"{request.name} refuses its settings: {error}") from error
    return True


def _parts(request: TransferRequest) -> Parts:
    from tacit.cli.data import download_progress
    from tacit.data import load
    from tacit.recipes.transferring.runner import prepared
    from tacit.recipes.transferring.splits import parts_of

    with download_progress() as progress:
        whole = load(
            request.dataset, request.data, unverified=request.unverified, progress=progress
        )
    return prepared(parts_of(whole), request.settings)


def _carry_out(
    request: TransferRequest,
    parts: Parts,
    device: Any,
    stop: Interruption,
    *,
    progress: bool | None,
) -> None:
    from tacit.recipes.transferring.runner import recipe_of
    from tacit.runs.recipe import Task
    from tacit.runs.run import Place, carried_out

    recipe, _ = recipe_of(request.method, request.settings, parts)
    opening = runs.opening(
        request.ledger, request.budget, request.dataset, epsilon=request.epsilon,
        delta=request.delta, resume=request.resume,
    )  # fmt: skip
    task = Task(
        settings=request.settings, data=parts.data, epsilon=request.epsilon, delta=request.delta,
        device=device, seed=request.seed,
    )  # fmt: skip
    place = Place(
        folder=request.out, resume=request.resume, opening=opening, stop=stop, progress=progress,
        command=runs.command_line(), looked_in=request.data,
    )  # fmt: skip
    carried_out(recipe, task, place)


# ---- what is shown


def _list(as_json: bool) -> None:
    found = _methods()
    if as_json:
        say(json.dumps({"methods": found}, indent=2, ensure_ascii=False))
        return
    from tacit.cli.page import say_page

    say_page(_methods_page(found))


def _methods() -> list[dict[str, Any]]:
    """Every method on every data set: what was published, and its one line."""
    from tacit.recipes.transferring.method import METHODS, find
    from tacit.recipes.transferring.splits import DATASETS

    return [
        {
            "method": method.name,
            "dataset": dataset,
            "summary": method.summary,
            "anchors": [
                {"epsilon": one.epsilon, "accuracy": one.accuracy, "source": one.source}
                for one in method.anchors.get(dataset, ())
            ],
        }
        for method in map(find, METHODS)
        for dataset in DATASETS
    ]


def _methods_page(found: list[dict[str, Any]]) -> Iterator[RenderableType]:
    """The methods as a table."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from tacit.cli.train_page import best_published

    table = Table(box=SIMPLE_HEAD)
    for name in ("method", "data", "published at best (% at ε)", "what it does"):
        table.add_column(name, no_wrap=name == "method")
    shown: set[str] = set()
    for one in found:
        first = one["method"] not in shown
        shown.add(one["method"])
        table.add_row(
            one["method"] if first else "", one["dataset"], best_published(one["anchors"]),
            one["summary"] if first else "",
        )  # fmt: skip
    yield table
    yield (
        "Run one: tacit transfer METHOD --dataset NAME. Its settings: tacit transfer METHOD "
        "--dataset NAME --settings."
    )


def _show_settings(request: TransferRequest, as_json: bool) -> None:
    from tacit.cli.train_page import settings, settings_page

    found = settings(
        request.name, request.method.summary, request.epsilon, request.settings,
        request.method.tuning(request.dataset),
    )  # fmt: skip
    if as_json:
        say(json.dumps(found, indent=2, ensure_ascii=False))
        return
    from tacit.cli.page import say_page

    say_page(settings_page(found))
