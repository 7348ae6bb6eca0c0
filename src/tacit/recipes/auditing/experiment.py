"""An experiment as data: a named attack with a known end, from its data to what it found."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal, final

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tacit.recipes.auditing.audit_file import Audited


Picture = Literal["roc", "secrets"]


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
        picture: What ``tacit.reports.audit_figure`` draws of the result: the attacks' ROC curves,
            or the exposure of secrets.
    """

    name: str
    summary: str
    data: str
    run: Callable[[Conditions], Audited]
    picture: Picture = "roc"


# ---- the experiments by name; an experiment's file is imported when it is asked for

MODULES: Final[Mapping[str, str]] = {
    "mnist-memorised": "mnist_memorised",
    "shakespeare-secret": "shakespeare_secret",
    "language-secret": "language_secret",
}


def names() -> tuple[str, ...]:
    """All experiments."""
    return tuple(MODULES)


def find(name: str) -> Experiment:
    """The experiment of this name.

    >>> find("mnist-memorised").data
    'mnist'
    """
    if name not in MODULES:
        raise InvalidArgument(f"there is no experiment {name!r}; there are {', '.join(MODULES)}")
    found = import_module(f"tacit.recipes.auditing.{MODULES[name]}").EXPERIMENT
    assert isinstance(found, Experiment)
    return found
