"""What a person sees of a training run or another long job, on standard error.

The training loss is secret, and so are the share of rows whose loss is not a finite number and how
long anything took: they are shown on a terminal, and never written. So they appear only where
standard error is a terminal; elsewhere (a log, a notebook) there is a line per epoch. A command
that a notebook starts is given a terminal whose text the notebook keeps: that counts as a log.
"""

from __future__ import annotations

import math
import os
import re
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self, final

from tacit._numbers import compact
from tacit._validation import shown as shown_value
from tacit.errors import InvalidArgument
from tacit.statement import rounded_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    import torch
    from rich.console import Console
    from rich.progress import Progress


_METRIC = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """One epoch, in public numbers: nothing here was computed from the training data.

    Args:
        epoch: Its number, from 1.
        steps: How many steps of the plan had been taken at its end.
        held_out_accuracy: The share of held-out rows that the model got right, if there were any.
        epsilon: What had been spent by then, at the run's δ.
        metrics: What ``metrics=`` measured on the held-out data, by name; None for a value that is
            not a finite number.

    How long it took is not among them: one long record makes an epoch slow, so that times are as
    secret as losses are. A terminal shows both.
    """

    epoch: int
    steps: int
    held_out_accuracy: float | None
    epsilon: float
    metrics: Mapping[str, float | None] = field(default_factory=dict)

    def __str__(self) -> str:
        spent = f"ε {rounded_up(self.epsilon, 4)}"
        return f"epoch {self.epoch}  step {self.steps}  {_measured(self)}{spent}"

    def numbers(self) -> dict[str, float]:
        """Every number by its name, as loggers take them; all of them may be published.

        >>> EpochRecord(epoch=1, steps=10, held_out_accuracy=None, epsilon=0.25).numbers()
        {'epoch': 1, 'epsilon': 0.25}
        """
        held = {"held_out_accuracy": self.held_out_accuracy, **self.metrics}
        known = {name: value for name, value in held.items() if value is not None}
        return {"epoch": self.epoch, "epsilon": self.epsilon, **known}


def _measured(record: EpochRecord) -> str:
    """What was measured on held-out data, in the middle of a line."""
    right = record.held_out_accuracy
    shown = [] if right is None else [f"held-out {right:.2%}"]
    for name, value in record.metrics.items():
        shown.append(f"{name} {'not finite' if value is None else format(value, '.4g')}")
    return "".join(f"{one}  " for one in shown)


def checked_metric_name(name: object) -> str:
    """Returns ``name`` if a record, a table and a line can hold it."""
    if not isinstance(name, str) or not _METRIC.fullmatch(name):
        raise InvalidArgument(
            f"metrics must have names of up to 32 letters, digits, _ and -, got {shown_value(name)}"
        )
    return name


def checked_metrics(plain: object) -> dict[str, float | None]:
    """Returns metrics that were read from somewhere: finite numbers, or None, by name."""
    if not isinstance(plain, dict):
        raise InvalidArgument(f"metrics must be numbers by name, got {shown_value(plain)}")
    for name, value in plain.items():
        checked_metric_name(name)
        number = isinstance(value, int | float) and type(value) is not bool
        if value is not None and not (number and math.isfinite(value)):
            raise InvalidArgument(f"metrics[{name!r}] must be a number, got {shown_value(value)}")
    return plain


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One step, in public numbers: the same whatever the data are.

    Args:
        steps: How many steps of the plan have been taken.
        epoch: How many epochs they finish.
        learning_rates: The rate of each parameter group, by which the step was made.
    """

    steps: int
    epoch: int
    learning_rates: tuple[float, ...]


class Display(Protocol):
    """Shows a run as it goes; entered before the first lot and left after the last."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

    def losses(self, values: torch.Tensor) -> None:
        """Takes note of a batch's losses, which are private."""

    def step(self, steps: int, epsilon: Callable[[], float]) -> None:
        """Takes note of a step; ``epsilon`` is asked only when it is about to be shown."""

    def epoch(self, record: EpochRecord) -> None:
        """Takes note of an epoch's end."""


def display(wanted: bool | None, *, steps: int, taken: int, delta: float) -> Display:
    """The display for this run: a bar on a terminal, lines elsewhere, nothing if unwanted."""
    if wanted is False:
        return Silent()
    if forgets():
        return Bar(steps=steps, taken=taken, delta=delta)
    return Lines(delta=delta)


def forgets() -> bool:
    """Whether standard error is a terminal that keeps nothing, so that secrets may be shown."""
    return sys.stderr.isatty() and "JPY_PARENT_PID" not in os.environ  # Jupyter sets it


@final
class Silent:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def losses(self, values: torch.Tensor) -> None:
        """Shows nothing."""

    def step(self, steps: int, epsilon: Callable[[], float]) -> None:
        """Shows nothing."""

    def epoch(self, record: EpochRecord) -> None:
        """Shows nothing."""


@final
class Lines:
    """One line per epoch, in public numbers: the lines may end up in a file."""

    def __init__(self, *, delta: float) -> None:
        self._delta = delta

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def losses(self, values: torch.Tensor) -> None:
        """Shows nothing: the loss is private."""

    def step(self, steps: int, epsilon: Callable[[], float]) -> None:
        """Shows nothing: an epoch has its line."""

    def epoch(self, record: EpochRecord) -> None:
        """Writes the line."""
        sys.stderr.write(f"{record}  (δ {compact(self._delta)})\n")
        sys.stderr.flush()


@final
class Bar:
    """A progress bar that is redrawn in place, with the secret loss beside the public numbers.

    The numbers have a line of their own, so that neither is lost on 80 columns.
    """

    _INTERVAL = 0.25  # seconds between two drawings; reading the loss waits for the device
    _MEMORY = 0.98  # of the running mean, per batch

    def __init__(self, *, steps: int, taken: int, delta: float) -> None:
        self._steps = steps
        self._taken = taken
        self._delta = delta
        self._loss: torch.Tensor | None = None
        self._wrong: torch.Tensor | None = None  # how many rows had no finite loss
        self._rows = 0
        self._held_out = ""
        self._drawn = 0.0

    def __enter__(self) -> Self:
        from rich.console import Group  # noqa: PLC0415  # only where there is a terminal to draw on
        from rich.live import Live  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        self._bar, self._numbers = _rich_bar("step"), Text()
        self._task = self._bar.add_task("", total=self._steps, completed=self._taken)
        self._live = Live(Group(self._bar, self._numbers), console=self._bar.console)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def losses(self, values: torch.Tensor) -> None:
        """Adds a batch to the running mean, which stays on the device until it is drawn."""
        if not values.numel():
            return
        finite = values.detach().isfinite()
        wrong = (~finite).sum()
        self._wrong = wrong if self._wrong is None else self._wrong + wrong
        self._rows += values.numel()
        mean = values.detach().float().where(finite, 0.0).sum() / finite.sum().clamp(min=1)
        if self._loss is None:
            self._loss = mean
        else:
            self._loss = self._MEMORY * self._loss + (1.0 - self._MEMORY) * mean

    def step(self, steps: int, epsilon: Callable[[], float]) -> None:
        """Redraws the bar, a few times a second."""
        now = self._bar.get_time()
        if now - self._drawn < self._INTERVAL:
            return
        self._drawn = now
        self._draw(steps, epsilon())

    def epoch(self, record: EpochRecord) -> None:
        """Shows what was measured on held-out data from here on."""
        self._held_out = _measured(record)
        self._draw(record.steps, record.epsilon)

    def _draw(self, steps: int, epsilon: float) -> None:
        loss = "" if self._loss is None else f"loss {self._loss.item():.4f} (secret, not saved)  "
        if self._wrong is not None and self._wrong.item():
            loss += f"{self._wrong.item() / self._rows:.1%} of rows not finite (secret)  "
        spent = f"ε {rounded_up(epsilon, 4)} at δ {compact(self._delta)}"
        self._bar.update(self._task, completed=steps)
        self._numbers.plain = f"{loss}{self._held_out}{spent}"


def _rich_bar(what: str) -> Progress:
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn(what),
        MofNCompleteColumn(),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=_console(),
    )


def _console() -> Console:
    from rich.console import Console  # noqa: PLC0415  # only where there is a terminal to draw on

    return Console(stderr=True)


# ---- how far a long job is: how many of its parts are done, and nothing secret


@contextmanager
def counting(
    wanted: bool | None, what: str, *, total: int, done: int
) -> Iterator[Callable[[int], None]]:
    """A function that takes how many are done: a bar on a terminal, lines if wanted elsewhere."""
    if wanted is False or (wanted is None and not forgets()):
        yield lambda _: None
    elif forgets():
        with _counted(what, total, done) as shown:
            yield shown
    else:
        yield _lines(what, total, done)


def _lines(what: str, total: int, done: int) -> Callable[[int], None]:
    """About ten lines in all."""
    last = done

    def show(now: int) -> None:
        nonlocal last
        if now == total or now - last >= total / 10:
            last = now
            sys.stderr.write(f"{what}: {now} of {total}\n")
            sys.stderr.flush()

    return show


@contextmanager
def _counted(what: str, total: int, done: int) -> Iterator[Callable[[int], None]]:
    with _rich_bar(what) as bar:
        task = bar.add_task("", total=total, completed=done)
        yield lambda now: bar.update(task, completed=now)


# ---- a wait that nothing can be counted in

_PATIENCE = 2.0  # seconds after which a person wonders


@contextmanager
def waiting(wanted: bool | None, what: str) -> Iterator[None]:
    """Says what is going on if it takes more than two seconds; a terminal forgets it afterwards.

    How long it takes is not said: where the data are private, so is that.
    """
    if wanted is False:
        yield
        return
    stream, terminal = sys.stderr, sys.stderr.isatty()

    def say() -> None:
        stream.write(f"{what} …{'' if terminal else chr(10)}")
        stream.flush()
        said.set()

    said = threading.Event()
    timer = threading.Timer(_PATIENCE, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if said.is_set() and terminal:
            stream.write("\r\x1b[2K")
            stream.flush()
