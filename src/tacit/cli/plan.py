"""``tacit plan``: what a training run would give away, before it is run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tacit.cli import plan_request
from tacit.cli.options import Refusal, picture_file
from tacit.cli.plan_request import ADJACENCIES, Request, Typed
from tacit.cli.streams import say

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.reports.plan_summary import PlanSummary

EPILOG = """\b
Examples:
  tacit plan --examples 60000 --lot 600 --epochs 100 --sigma 4 --delta 1e-5
  tacit plan --examples 60000 --lot 600 --epochs 100 --epsilon 2 --delta 1e-5
  tacit plan --rate 0.01 --steps 10000 --sigma 4 --delta 1e-5 --plot plan.png
  tacit plan --rate 0.01 --steps 10000 --sigma 4 --delta 1e-5 --json
"""


@click.command(epilog=EPILOG)
@click.option("--examples", metavar="N", help="Number of examples in the data (public).")
@click.option("--lot", metavar="L", help="Expected size of a lot; an example joins it by L/N.")
@click.option("--rate", metavar="Q", help="The sampling rate itself, instead of --lot.")
@click.option("--epochs", metavar="E", help="Expected passes over the data.")
@click.option("--steps", metavar="T", help="Number of noisy steps, instead of --epochs.")
@click.option("--sigma", metavar="S", help="Noise multiplier: the noise over the clip.")
@click.option("--epsilon", metavar="EPS", help="Solve for the noise, instead of --sigma.")
@click.option("--delta", metavar="D", help="The delta of the guarantee, well below 1/N.")
@click.option(
    "--adjacency",
    metavar="KIND",
    default=ADJACENCIES[0],
    help=f"Which data sets are neighbours: {', '.join(ADJACENCIES)}.",
    show_default=True,
)
@click.option("--plot", metavar="FILE", help="Draw the plan, as .png or .svg.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
def plan(plot: str | None, as_json: bool, **typed: str) -> None:
    """What a private training run gives away, by every accountant, and what an attacker gains.

    Each of T steps draws a Poisson sample of the examples, adds up their clipped gradients and
    adds Gaussian noise of S times the clip.
    """
    request = plan_request.read(Typed(**typed))
    picture = None if plot is None else picture_file("--plot", plot)
    summary = _summary(request)
    if picture is not None:
        _draw(summary, picture)
    if as_json:
        say(json.dumps(summary.as_dict() | {"plot": plot}, indent=2, allow_nan=False))
    else:
        _show(summary, picture)


def _summary(request: Request) -> PlanSummary:
    # NumPy and SciPy come with these: a refusal need not wait for them.
    from tacit.accounting import noise_multiplier
    from tacit.reports.plan_summary import Setting, summarise

    sigma = request.sigma
    if sigma is None:
        assert request.target is not None
        sigma = noise_multiplier(
            epsilon=request.target,
            delta=request.delta,
            sample_rate=request.rate,
            steps=request.steps,
            adjacency=request.adjacency,
        )
    setting = Setting(
        rate=request.rate,
        steps=request.steps,
        sigma=sigma,
        delta=request.delta,
        adjacency=request.adjacency,
        examples=request.examples,
        lot=request.lot,
    )
    return summarise(setting, request.target)


def _draw(summary: PlanSummary, picture: Path) -> None:
    from tacit.reports.plan_figure import write

    try:
        write(summary, picture)
    except OSError as error:
        raise Refusal(f"--plot {picture} cannot be written: {error.strerror or error}") from None


def _show(summary: PlanSummary, picture: Path | None) -> None:
    from tacit.cli.plan_page import page
    from tacit.cli.rendering import say_page

    say_page(page(summary))
    if picture is not None:
        say(f"The picture is at {picture}")
