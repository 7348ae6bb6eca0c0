"""``tacit prior``: makes the weights that cifar10-prior and svhn-prior begin with."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tacit import __version__
from tacit.cli.options import Refusal
from tacit.cli.run_options import DEVICE, check_device
from tacit.cli.streams import complain, say

if TYPE_CHECKING:
    from tacit.recipes.prior import Progress

EPILOG = """\b
Examples:
  tacit prior build --device cuda
  tacit prior build --device cuda --out prior --seconds 540
  tacit prior show prior/prior.safetensors
"""


@click.group(
    invoke_without_command=True,
    epilog=EPILOG,
    short_help="Learns first weights from synthetic images.",
)
@click.pass_context
def prior(context: click.Context) -> None:
    """Learns weights from synthetic images alone, with which private training can begin."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@prior.command(short_help="Makes a prior, in minutes on a GPU.")
@click.option("--out", metavar="DIR", type=click.Path(path_type=Path),
              help="Folder for the prior. [default: the cache, where train looks]")  # fmt: skip
@click.option("--device", metavar="NAME", default=DEVICE, show_default=True,
              help="auto, cpu, cuda or cuda:N.")  # fmt: skip
@click.option("--seconds", metavar="S", type=float,
              help="Stop after this many seconds; the same command continues.")  # fmt: skip
@click.option("--set", "changes", metavar="KEY=VALUE", multiple=True,
              help="Another setting (passes=100); repeat the option for several.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
def build(
    out: Path | None, device: str, seconds: float | None, changes: tuple[str, ...], as_json: bool
) -> None:
    """Makes a prior, in minutes on a GPU, or continues the one that was begun in DIR.

    It reads no data: everything follows from a seed. A CPU takes days.
    """
    from tacit.recipes import prior as priors
    from tacit.runs.settings import changed

    where = check_device(device)
    folder = priors.home() if out is None else out
    chosen = changed(priors.PriorSettings(), dict(map(_pair, changes)))
    done = priors.build(folder, chosen, device=where, seconds=seconds, report=_show)
    if done is None:
        complain(f"stopped; the same command goes on with what is in {folder}")
    if as_json:
        plain: dict[str, object] = {
            "tacit": __version__,
            "file": None if done is None else f"{done}",
        }
        if done is not None:
            plain["sha256"] = priors.read(done).sha256
        say(json.dumps(plain, indent=2))
    elif done is not None:
        say(f"{done}\nSHA-256 {priors.read(done).sha256}")


@prior.command(short_help="Shows the SHA-256 and the settings of a prior.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
def show(file: Path, as_json: bool) -> None:
    """Shows the SHA-256 of the prior in FILE, and the settings it was made with."""
    from tacit.recipes import prior as priors

    found = priors.read(file)
    if as_json:
        plain = {"tacit": __version__, "sha256": found.sha256, "settings": asdict(found.settings)}
        say(json.dumps(plain, indent=2))
        return
    say(f"SHA-256 {found.sha256}")
    for name, value in asdict(found.settings).items():
        say(f"{name}={value}")


def _pair(text: str) -> tuple[str, str]:
    name, there, value = text.partition("=")
    if not there:
        raise Refusal(f"--set must be KEY=VALUE, such as passes=100, got {text!r}")
    return name, value


def _show(now: Progress) -> None:
    complain(
        f"step {now.step:,} of {now.steps:,}, loss {now.loss:.4f}, "
        f"{now.views_per_second:,.0f} views a second"
    )
