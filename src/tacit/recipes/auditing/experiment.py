"""An experiment as data: a named attack with a known end, from its data to what it found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

    from tacit.recipes.auditing.audited import Audited


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Under which conditions an experiment is carried out.

    Args:
        data: A folder where the data lie; None to look for them as ``tacit.data.load`` does.
        folder: A private folder for what is needed to go on after a stop; None to keep nothing.
        seed: For the experiment's own choices: members, first weights. Never for noise.
        workers: How many processes train models.
        progress: Whether to show progress on standard error; None: if it is a terminal.
    """

    data: str | os.PathLike[str] | None = None
    folder: Path | None = None
    seed: int = 0
    workers: int = 1
    progress: bool | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Experiment:
    """A named experiment.

    Args:
        name: What it is called, in lower case with hyphens.
        summary: What it shows, in one line.
        data: The data set, by its name in ``tacit.data``.
        run: Carries it out. ``kind`` of the result is ``"experiment"``.
        picture: The function of ``tacit.reports`` that draws the result, as
            ``"module:function"``; it is called with the plain form of the result and a file.
    """

    name: str
    summary: str
    data: str
    run: Callable[[Conditions], Audited]
    picture: str = "audit_figure:draw_file"
