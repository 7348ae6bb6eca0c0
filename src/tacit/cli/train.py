"""``tacit train``: from data to a private model, its accuracy, its statement and its report."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import click

from tacit.cli import runs
from tacit.cli.options import Refusal
from tacit.cli.run_options import (
    DATA,
    DELTA,
    DELTA_TYPE,
    DEVICE,
    EPSILON,
    FOLDER,
    REQUEST,
    SEED,
    AskedRun,
    RunOptions,
    TakesSettings,
    check_device,
    free_folder,
    given_settings,
    known_settings,
    request_of,
    settings_again,
)
from tacit.cli.streams import complain, say
from tacit.errors import TacitError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.data import Split
    from tacit.runs import Interruption, Recipe, Search
    from tacit.runs.record import RunRecord
    from tacit.runs.run import Place

DEFAULT_EPSILON: Final = 3.0
OPTIONS: Final = (
    "epsilon", "delta", "epochs", "lot", "clip", "lr", "set", "out", "resume", "ledger", "budget",
    "request", "device", "seed", "data", "search", "model", "ray", "settings", "list", "json",
    "help",
)  # fmt: skip
EPILOG = """\b
A recipe's settings are options too: --head cnn means --set head=cnn.

\b
Examples:
  tacit train --list
  tacit train digits --epsilon 3 --out runs/digits
  tacit train mnist-scatter --epsilon 2 --settings
  tacit train mnist-scatter --epsilon 2 --head cnn --ledger budget.db --budget mnist
  tacit train digits --ledger budget.db --request 12
  tacit train --resume --out runs/mnist-scatter
  tacit train digits --epsilon 4 --search search.toml
  tacit train --model mine.py:prepare --out runs/mine
  tacit train sst2-smollm2 --epsilon 3 --model folder/of/a/model
"""


@click.command(
    cls=TakesSettings,
    epilog=EPILOG,
    short_help="Trains a private model: a named recipe or your own.",
)
@click.argument("recipe", required=False)
@click.option("--epsilon", metavar="EPS", type=EPSILON,
              help="Epsilon of everything that is released. [default: 3]")  # fmt: skip
@click.option("--delta", metavar="D", type=DELTA_TYPE,
              help="Delta of everything that is released. [default: 1e-5]")  # fmt: skip
@click.option("--epochs", metavar="E", help="Expected passes over the data.")
@click.option("--lot", metavar="L", help="Expected size of a lot.")
@click.option("--clip", metavar="C", help="The largest norm of one example's gradient.")
@click.option("--lr", metavar="R", help="The learning rate.")
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True,
              help="Another setting; repeat the option for several.")  # fmt: skip
@click.option("--out", metavar="DIR", type=FOLDER,
              help="New folder for the run. [default: runs/RECIPE]")  # fmt: skip
@click.option("--resume", is_flag=True, help="Continue the run in --out.")
@click.option("--ledger", metavar="URL", help="Charge the run to a budget of this ledger.")
@click.option("--budget", metavar="NAME",
              help="A budget that the ledger has. [default: one called like the data]")  # fmt: skip
@click.option("--request", metavar="N", type=REQUEST,
              help="Use the budget and the plan of this approved request.")  # fmt: skip
@click.option("--device", metavar="NAME", help="auto, cpu, cuda or cuda:N. [default: auto]")
@click.option("--seed", metavar="N", type=SEED,
              help="Seed of the initial weights; sampling and noise take none.")  # fmt: skip
@click.option("--data", metavar="DIR", type=DATA,
              help="Folder of the data, if not $TACIT_DATA.")  # fmt: skip
@click.option("--search", metavar="FILE", help="Search settings privately, as this TOML file says.")
@click.option("--model", metavar="FILE:FUNCTION",
              help="Train your own model and data: a function that returns tacit.Prepared; the "
              "file is executed. With a recipe for language models: the folder of another "
              "model.")  # fmt: skip
@click.option("--ray", metavar="N", type=click.IntRange(1),
              help="Train with N processes on a Ray cluster (Ray Train).")  # fmt: skip
@click.option("--settings", "show", is_flag=True, help="Show the recipe's settings and exit.")
@click.option("--list", "listed", is_flag=True, help="List all recipes and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
@click.pass_context
def train(
    context: click.Context, /, show: bool, listed: bool, as_json: bool, ray: int | None,
    **given: Any,
) -> None:  # fmt: skip
    """Trains the model of RECIPE; everything released about the data stays within (EPS, D).

    Writes the model, its history, its statement and its report. Ctrl-C saves the run; --resume
    continues it. Under torchrun all processes train together, and rank 0 writes the files.
    """
    if listed or (given["recipe"] is None and given["model"] is None and not given["resume"]):
        _list(as_json)
        return
    options = RunOptions.taken(given)
    runs.load_engine(runs.shows_progress(as_json))
    asked = TrainOptions(options, **given)
    request = asked.own() if asked.is_own else asked.of_recipe()
    if show:
        _show_settings(request, as_json)
        return
    if request.finished:
        runs.clear(request.out)
    elif ray is not None:
        _by_ray(ray, request.out.absolute())
        return
    elif not _run(request, as_json):
        context.exit(runs.STOPPED)
    if _leads():
        runs.conclude(request.out, as_json)


def _leads() -> bool:
    """Whether this process writes and speaks: of torchrun's, rank 0 does."""
    from tacit.training.distributed.world import leads

    return leads()


# ---- on a cluster


def _by_ray(workers: int, out: Path) -> None:
    """Runs this very command in processes of Ray Train, which find each other as torchrun's do."""
    try:
        from ray.train import ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer
    except ImportError:
        raise Refusal("--ray needs Ray Train: pip install 'ray[train]'") from None
    import torch

    gpu = torch.cuda.is_available()
    TorchTrainer(
        _as_rank,
        train_loop_config={"arguments": _without_ray(sys.argv[1:], out), "folder": os.getcwd()},
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpu),
        torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if gpu else "gloo"),
    ).fit()


def _as_rank(config: dict[str, Any]) -> None:
    """One of Ray's processes: the command, where it was given."""
    from tacit.cli.program import run

    os.chdir(config["folder"])
    status = run(config["arguments"])
    if status:
        raise RuntimeError(f"tacit train ended with status {status}")


def _without_ray(arguments: Sequence[str], out: Path) -> list[str]:
    """The command line of a rank: without ``--ray``, and with its folder.

    >>> _without_ray(["train", "digits", "--ray", "4", "--lr=0.1"], Path("/runs/a"))
    ['train', 'digits', '--lr=0.1', '--out', '/runs/a']
    """
    kept: list[str] = []
    skip = False
    for one in arguments:
        named = one in {"--ray", "--out"}
        if not (skip or named or one.startswith(("--ray=", "--out="))):
            kept.append(one)
        skip = named
    return [*kept, "--out", str(out)]


@final
@dataclass(frozen=True)
class TrainRequest:
    """A run to begin, or to go on with: of a recipe, or of a user's own model."""

    out: Path
    resume: bool
    finished: bool
    ledger: str | None
    budget: str | None
    recipe: Recipe | None = None
    settings: Any = None
    epsilon: float = DEFAULT_EPSILON
    delta: float = DELTA
    seed: int | None = None
    device: str = DEVICE
    data: Path | None = None
    search: Search | None = None
    model: str | None = None
    request: int | None = None

    @property
    def name(self) -> str:
        """What is run, for a message."""
        return self.model or ("" if self.recipe is None else self.recipe.name)

    @property
    def data_name(self) -> str:
        """What its budget is called where none is named: a budget belongs to the data."""
        return Path(self.model or "").stem if self.recipe is None else self.recipe.data


# ---- from options to a request


@final
@dataclass(frozen=True)
class TrainOptions:
    """What was asked for beside ``RunOptions``."""

    options: RunOptions
    recipe: str | None = None
    epochs: str | None = None
    lot: str | None = None
    clip: str | None = None
    lr: str | None = None
    sets: tuple[str, ...] = ()
    search: str | None = None
    model: str | None = None
    request: int | None = None

    @property
    def given(self) -> dict[str, str]:
        """The settings, by name."""
        own = {"epochs": self.epochs, "lot": self.lot, "clip": self.clip, "lr": self.lr}
        own |= {} if self.is_own else {"model": self.model}
        return given_settings(own, self.sets)

    @property
    def is_own(self) -> bool:
        """Whether ``--model`` names a function; beside a recipe it is the recipe's setting."""
        return self.model is not None and self.recipe is None

    def of_recipe(self) -> TrainRequest:
        """A run of a recipe, checked; the first bad option first."""
        from tacit.recipes import find
        from tacit.runs.settings import changed

        options = self.options
        if options.resume:
            return self._resumed()
        if self.recipe is None:
            raise Refusal("RECIPE is missing; tacit train --list shows them")
        recipe = find(self.recipe)
        asked = None if self.request is None else self._asked(self.request, recipe)
        if asked is not None:
            options = replace(
                options, epsilon=options.epsilon or asked.epsilon,
                delta=options.delta or asked.delta, budget=asked.budget,
            )  # fmt: skip
        epsilon = DEFAULT_EPSILON if options.epsilon is None else options.epsilon
        default = recipe.settings(epsilon)
        given = known_settings(recipe.name, default, self.given, OPTIONS)
        settings = changed(default, {**(asked.settings(default) if asked else {}), **given})
        return TrainRequest(
            out=options.out or free_folder(recipe.name),
            resume=False,
            finished=False,
            ledger=options.ledger,
            budget=options.budget,
            epsilon=epsilon,
            delta=DELTA if options.delta is None else options.delta,
            recipe=recipe,
            settings=settings,
            seed=options.seed,
            device=options.device or DEVICE,
            data=options.data,
            search=self._search(settings),
            request=self.request,
        )

    def _asked(self, number: int, recipe: Recipe | None = None) -> AskedRun:
        """What request ``number`` asks for, if a run of the recipe can draw on it."""
        options = self.options
        if options.ledger is None:
            raise Refusal(f"--request {number} needs --ledger; name the ledger that holds it")
        if self.search is not None or (recipe is not None and recipe.outline is None):
            raise Refusal(f"--request {number} is for one run by a plan, and this is none")
        asked = AskedRun.read(options.ledger, number)
        if options.budget not in (None, asked.budget):
            raise Refusal(
                f"--budget {options.budget} contradicts request {number}, which is for "
                f"{asked.budget!a}; leave it out"
            )
        return asked

    def _resumed(self) -> TrainRequest:
        """The run that ``--out`` holds; options that are given again must say the same."""
        from tacit.recipes import find
        from tacit.runs.search import search_from
        from tacit.runs.settings import changed

        options, known = self.options, self.options.read_record()
        if known.kind != "recipe":
            raise Refusal(
                f"the run in {options.out} is of no recipe: {known.how_to_go_on(_folder(options))}"
            )
        if self.request not in (None, request_of(known)):
            raise Refusal(f"--request {self.request} is not that of the run; leave it out")
        recipe = find(known.recipe)
        settings = changed(recipe.settings(known.epsilon), dict(known.settings))
        again = settings_again(recipe.name, settings, self.given, OPTIONS)
        options.check_same(known, {"RECIPE": (self.recipe, known.recipe), **again})
        search = None if known.search is None else search_from(known.search, settings)
        if self.search is not None and self._search(settings) != search:
            raise Refusal(
                f"--search {self.search} contradicts the run in {options.out}; leave it out"
            )
        return TrainRequest(
            out=_folder(options),
            resume=True,
            finished=known.finished,
            ledger=options.ledger_of(known),
            budget=_name_of(known),
            epsilon=known.epsilon,
            delta=known.delta,
            recipe=recipe,
            settings=settings,
            seed=known.seed,
            device=options.device or known.device,
            data=options.data_of(known),
            search=search,
            request=request_of(known),
        )

    def own(self) -> TrainRequest:
        """A run of a user's own model, whose plan and data their function has."""
        from tacit.cli.user_code import function_of

        options = self.options
        function_of(self.model or "")
        elsewhere = {
            "--epsilon": options.epsilon, "--delta": options.delta,
            "--seed": options.seed, "--data": options.data, "--device": options.device,
            "--search": self.search,
            **{f"--{name}": value for name, value in self.given.items()},
        }  # fmt: skip
        for option, value in elsewhere.items():
            if value is not None:
                raise Refusal(f"{option} has no place beside --model, whose function says it all")
        known = options.read_record() if options.resume else None
        if known is not None:
            options.check_same(known, {})
        asked = None if self.request is None or known else self._asked(self.request)
        name = options.budget if asked is None else asked.budget
        return TrainRequest(
            out=_folder(options),
            resume=options.resume,
            finished=known is not None and known.finished,
            ledger=options.ledger if known is None else options.ledger_of(known),
            budget=name if known is None else _name_of(known),
            model=self.model,
            request=self.request if known is None else request_of(known),
        )

    def _search(self, settings: Any) -> Search | None:
        if self.search is None:
            return None
        from tacit.runs.search import read_search

        if not Path(self.search).is_file():
            raise Refusal(
                f"--search must be a TOML file, got {self.search}; docs/recipes.md shows one"
            )
        return read_search(Path(self.search), settings)


def _folder(options: RunOptions) -> Path:
    return free_folder("own") if options.out is None else options.out


def _name_of(known: RunRecord) -> str | None:
    return None if known.budget is None else str(known.budget["name"])


# ---- from a request to its run


def _run(request: TrainRequest, as_json: bool) -> bool:
    """Carries the run out; False if it was stopped."""
    from tacit.runs import Interrupted, stoppable
    from tacit.runs.folder import Folder
    from tacit.runs.run import is_restarted

    with stoppable() as stop:
        try:
            folder = Folder(request.out)
            if not request.resume and _leads() and not is_restarted(folder):
                folder.check_new()
            progress = runs.shows_progress(as_json)
            if request.recipe is None:
                _carry_out_own(request, stop, progress)
            else:
                _carry_out(request.recipe, request, stop, progress)
        except (Interrupted, KeyboardInterrupt) as error:
            if _leads():
                runs.say_how_to_go_on("train", request.out, error)
            return False
        except TacitError:
            raise
        except ValueError as error:  # PyTorch's, for instance of a negative learning rate
            raise Refusal(f"{request.name} refuses its settings: {error}") from error
    return True


def _carry_out(
    recipe: Recipe, request: TrainRequest, stop: Interruption, progress: bool | None
) -> None:
    from tacit.runs.recipe import Task
    from tacit.runs.run import carried_out
    from tacit.runs.search import searched

    device = check_device(request.device)
    task = Task(
        settings=request.settings, data=_data(recipe, request), epsilon=request.epsilon,
        delta=request.delta, device=device, seed=request.seed,
    )  # fmt: skip
    place = _place(request, stop, progress, limits=(task.epsilon, task.delta))
    if request.search is None:
        carried_out(recipe, task, place)
        return
    # Its runs are not shown: how many there are, and what the losers score, is secret.
    complain(f"searching {request.search.count} candidates; this takes several runs")
    searched(recipe, task, request.search, place)


def _carry_out_own(request: TrainRequest, stop: Interruption, progress: bool | None) -> None:
    from tacit.cli.user_code import UserRun, at_work, function_of
    from tacit.runs.fit import fit_in_folder

    prepared = UserRun(function_of(request.model or ""))()
    plan, delta = prepared.plan, prepared.plan.delta_or(None)
    epsilon = plan.epsilon(delta) if plan.made_for is None else plan.made_for[0]
    place = _place(request, stop, progress, limits=(epsilon, delta))
    with at_work(request.model):
        fit_in_folder(prepared, place)


def _place(
    request: TrainRequest, stop: Interruption, progress: bool | None, *, limits: tuple[float, float]
) -> Place:
    from tacit.runs.run import Place

    epsilon, delta = limits
    opening = runs.opening(
        request.ledger, request.budget, request.data_name, epsilon=epsilon, delta=delta,
        resume=request.resume,
    )  # fmt: skip
    return Place(
        folder=request.out, resume=request.resume, opening=opening, stop=stop, progress=progress,
        command=runs.command_line(), looked_in=request.data, request=request.request,
    )  # fmt: skip


def _data(recipe: Recipe, request: TrainRequest) -> Split:
    from tacit.cli.data import download_progress
    from tacit.data import load

    with download_progress() as progress:
        return load(recipe.data, request.data, progress=progress)


# ---- what is shown


def _list(as_json: bool) -> None:
    from tacit.cli.train_page import recipes, recipes_page

    found = recipes()
    if as_json:
        say(json.dumps({"recipes": found}, indent=2, ensure_ascii=False))
        return
    from tacit.cli.page import say_page

    say_page(recipes_page(found))


def _show_settings(request: TrainRequest, as_json: bool) -> None:
    from tacit.cli.train_page import settings, settings_page

    recipe = request.recipe
    if recipe is None:
        raise Refusal("--settings are of a recipe, and --model has none")
    found = settings(recipe.name, recipe.summary, request.epsilon, request.settings, recipe.tuning)
    if as_json:
        say(json.dumps(found, indent=2, ensure_ascii=False))
        return
    from tacit.cli.page import say_page

    say_page(settings_page(found))
