"""Options of every command that runs something: ε, δ, seed, folders and device."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tacit.cli import options
from tacit.cli.options import Refusal
from tacit.errors import InvalidArgument

RUNS: Final = Path("runs")


def epsilon_of(text: str) -> float:
    """What may be given away in all."""
    remedy = "give what may be given away in all, as 3"
    epsilon = options.positive("--epsilon", text, remedy)
    if not 1e-4 <= epsilon <= 1e4:
        raise Refusal(f"--epsilon must lie between 1e-4 and 1e4, got {text}; {remedy}")
    return epsilon


def delta_of(text: str) -> float:
    """The δ that goes with it."""
    return options.open_probability("--delta", text, "give a number well below 1/N, as 1e-5")


def seed_of(text: str) -> int:
    """A seed for first weights."""
    try:
        seed = int(text)
    except ValueError:
        seed = -1
    if not 0 <= seed < 2**63:
        raise Refusal(
            f"--seed must be a whole number from 0 to 2**63 - 1, got {text}; or leave it out"
        )
    return seed


def data_folder(text: str | None) -> Path | None:
    """Where the data lie, which must be there."""
    if text is None:
        return None
    if not Path(text).is_dir():
        raise Refusal(f"--data must be a folder, got {text}; tacit data get NAME --data makes one")
    return Path(text)


def free_folder(name: str) -> Path:
    """The first of runs/NAME, runs/NAME-2, … that is not there."""
    found, number = RUNS / name, 1
    while found.exists():
        number += 1
        found = RUNS / f"{name}-{number}"
    return found


def check_device(name: str) -> Any:
    """The device, or one line."""
    from tacit.models.devices import device_named

    try:
        return device_named(name)
    except InvalidArgument as error:
        raise Refusal(f"--{error}") from None
