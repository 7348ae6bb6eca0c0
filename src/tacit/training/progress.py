"""What a person sees of a training run or another long job, on standard error.

The training loss is secret, and so are the share of rows whose loss is not a finite number and how
long anything took: they are shown on a terminal, and never written. So they appear only where
standard error is a terminal; elsewhere there is a line per epoch, or nothing.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, final

from tacit.statement import rounded_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    import torch
    from rich.progress import Progress


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """One epoch, in public numbers: nothing here was computed from the training data.

    Args:
        epoch: Its number, from 1.
        steps: How many steps of the plan had been taken at its end.
        held_out_accuracy: The share of held-out rows that the model got right, if there were any.
        epsilon: What had been spent by then, at the run's δ.

    How long it took is not among them: one long record makes an epoch slow, so that times are as
    secret as losses are. A terminal shows both.
    """

    epoch: int
    steps: int
    held_out_accuracy: float | None
    epsilon: float

    def __str__(self) -> str:
        right = "" if self.held_out_accuracy is None else f"held-out {self.held_out_accuracy:.2%}  "
        return f"epoch {self.epoch}  step {self.steps}  {right}ε {rounded_up(self.epsilon, 4)}"


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
    """The display for this run: a bar on a terminal, else lines if ``wanted``, else nothing."""
    if wanted is not False and sys.stderr.isatty():
        return Bar(steps=steps, taken=taken, delta=delta)
    return Lines(delta=delta) if wanted else Silent()


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
        sys.stderr.write(f"{record}  (δ {self._delta:g})\n")
        sys.stderr.flush()


@final
class Bar:
    """A progress bar that is redrawn in place, with the private loss beside the public numbers."""

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
        self._bar = _rich_bar("step")
        self._task = self._bar.add_task("", total=self._steps, completed=self._taken, shown="")
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

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
        """Shows the held-out accuracy from here on."""
        if record.held_out_accuracy is not None:
            self._held_out = f"held-out {record.held_out_accuracy:.2%}  "
        self._draw(record.steps, record.epsilon)

    def _draw(self, steps: int, epsilon: float) -> None:
        loss = "" if self._loss is None else f"loss {self._loss.item():.4f} (secret, not saved)  "
        if self._wrong is not None and self._wrong.item():
            loss += f"{self._wrong.item() / self._rows:.1%} of rows not finite (secret)  "
        spent = f"ε {rounded_up(epsilon, 4)} at δ {self._delta:g}"
        self._bar.update(self._task, completed=steps, shown=f"{loss}{self._held_out}{spent}")


def _rich_bar(what: str) -> Progress:
    from rich.console import Console  # noqa: PLC0415  # only where there is a terminal to draw on
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
        TextColumn("{task.fields[shown]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


# ---- how far a long job is: how many of its parts are done, and nothing secret


@contextmanager
def counting(
    wanted: bool | None, what: str, *, total: int, done: int
) -> Iterator[Callable[[int], None]]:
    """A function that takes how many are done: a bar on a terminal, lines if wanted elsewhere."""
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield lambda _: None
    elif sys.stderr.isatty():
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
        task = bar.add_task("", total=total, completed=done, shown="")
        yield lambda now: bar.update(task, completed=now)
