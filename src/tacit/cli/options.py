"""Values of options: a bad one is answered by one line with its remedy."""

from __future__ import annotations

import math
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, final

import click

from tacit import _validation
from tacit._numbers import compact
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

Value = TypeVar("Value")
Checked_co = TypeVar("Checked_co", covariant=True)

SUFFIXES = (".png", ".svg")
MOST_STEPS = 1e12


class _Check(Protocol[Checked_co]):
    """A check of ``tacit._validation``."""

    def __call__(self, name: str, value: float, *, typed: str | None) -> Checked_co: ...


class Refusal(click.ClickException):
    """A command line that cannot be run as it stands."""

    exit_code = 2


def positive(option: str, text: str, remedy: str) -> float:
    """Reads a positive finite number.

    >>> positive("--sigma", "-1", "try --sigma 4")
    Traceback (most recent call last):
    tacit.cli.options.Refusal: --sigma must be a positive finite number, got -1; try --sigma 4
    """
    return _read(option, text, remedy, _validation.positive)


def probability(option: str, text: str, remedy: str) -> float:
    """Reads a number from 0 to 1, both included."""
    return _read(option, text, remedy, _validation.probability)


def open_probability(option: str, text: str, remedy: str) -> float:
    """Reads a number strictly between 0 and 1."""
    return _read(option, text, remedy, _validation.open_probability)


def whole(option: str, text: str, remedy: str) -> int:
    """Reads a positive whole number, also one written as 1e4.

    >>> whole("--steps", "1e4", "")
    10000
    """
    return _read(option, text, remedy, _validation.whole)


def exactly_one(given: dict[str, object], remedy: str) -> str:
    """The name of the one option among ``given`` that has a value."""
    chosen = [option for option, value in given.items() if value is not None]
    if not chosen:
        raise Refusal(f"{' or '.join(given)} is missing; {remedy}")
    if len(chosen) > 1:
        shown = " and ".join(f"{option} {_typed(given[option])}" for option in chosen)
        raise Refusal(f"{shown} contradict each other; give one of them")
    return chosen[0]


def _typed(value: object) -> str:
    return compact(value) if isinstance(value, float) else str(value)


def _read(option: str, text: str, remedy: str, check: _Check[Value]) -> Value:
    try:
        number = float(text)
    except ValueError:
        raise Refusal(f"{option} must be a number, got {text}; {remedy}") from None
    try:
        return check(option, number, typed=text)
    except InvalidArgument as error:
        raise Refusal(f"{error}; {remedy}") from None


@final
class OptionType(click.ParamType, Generic[Value]):  # type: ignore[type-arg]  # click ≥ 8.2
    """An option's type: what ``read`` makes of the option's name, its text and the remedy."""

    def __init__(self, name: str, read: Callable[[str, str, str], Value], remedy: str) -> None:
        self.name, self._read, self._remedy = name, read, remedy

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Value:
        """The value, or one line of refusal."""
        del ctx
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # read before, or a default
        assert param is not None  # click gives every option
        name = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name
        return self._read(name, value, self._remedy)


def steps_of(option: str, text: str, steps: float) -> int:
    """The steps that ``option`` amounts to, rounded up: a part of a step is never forgotten.

    >>> steps_of("--epochs", "60", 60 * 60_000 / 256)
    14063
    >>> steps_of("--epochs", "100", 100 / 0.01)
    10000
    """
    if not steps <= MOST_STEPS:
        raise Refusal(f"{option} {text} is {steps:g} steps; at most {MOST_STEPS:g} can be planned")
    nearest = round(steps)
    return nearest if math.isclose(steps, nearest, rel_tol=1e-12) else math.ceil(steps)


def picture_file(option: str, text: str) -> Path:
    """The file to draw to: refused before any work is done if it could not be drawn."""
    path = Path(text)
    if path.suffix.lower() not in SUFFIXES:
        raise Refusal(f"{option} must end in {' or '.join(SUFFIXES)}, got {text}; rename the file")
    if find_spec("matplotlib") is None:
        raise Refusal(f"{option} {text} needs matplotlib; pip install 'tacit[plots]'")
    if os.path.isdir(path) or not _can_hold_files(_nearest_folder(path)):
        raise Refusal(f"{option} {text} cannot be written; choose a file in a folder of yours")
    return path


def _nearest_folder(path: Path) -> Path:
    """The folder of ``path``, or its first ancestor that exists: the rest can be made."""
    return next(parent for parent in path.absolute().parents if os.path.lexists(parent))


def _can_hold_files(folder: Path) -> bool:
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)
