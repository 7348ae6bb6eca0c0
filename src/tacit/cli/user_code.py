"""``--model FILE:function``: a user's own code. It is run because they name it, and only then."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import click

from tacit.cli.options import Refusal
from tacit.errors import TacitError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType, TracebackType

    from tacit.training.fit import Prepared


@final
@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function without arguments in a Python file; it can be sent to another process."""

    path: Path
    name: str

    def __call__(self) -> Any:
        """What the function returns."""
        function = getattr(_module(self.path), self.name, None)
        if not callable(function):
            raise Refusal(f"--model {self}: {self.path} has no function {self.name}")
        try:
            return function()
        except Exception as error:  # the user's own code may raise anything
            raise Refusal(f"--model {self} raised {type(error).__name__}: {error}") from error

    def __str__(self) -> str:
        return f"{self.path}:{self.name}"


@final
@dataclass(frozen=True, slots=True)
class UserRun:
    """A function that prepares a run of ``tacit.fit``."""

    function: UserFunction

    def __call__(self) -> Prepared:
        """What is trained and on what, with a fresh model."""
        from tacit.training.fit import Prepared

        found = self.function()
        if not isinstance(found, Prepared):
            raise Refusal(
                f"--model {self.function} must return a tacit.Prepared, got {type(found).__name__}"
            )
        return found


@contextmanager
def at_work(text: str | None) -> Iterator[None]:
    """While what ``--model`` prepared is trained: whatever it raises is answered by one line.

    Model, loss and data are the user's, and may fail in any way: a batch of another shape, a row
    that cannot be read. The line names the user's own line, if one of them was at work.
    """
    try:
        yield
    except (TacitError, click.ClickException, BrokenPipeError):
        raise
    except Exception as error:
        if text is None:
            raise
        function = function_of(text)
        line = _line_of(function.path, error.__traceback__)
        where = "" if line is None else f" (line {line} of {function.path})"
        raise Refusal(
            f"--model {text} cannot be trained: {type(error).__name__}: {error}{where}; calling "
            "tacit.fit in Python with the same shows where"
        ) from error


def _line_of(path: Path, traceback: TracebackType | None) -> int | None:
    """The innermost line of the file that was being run."""
    found = None
    while traceback is not None:
        if Path(traceback.tb_frame.f_code.co_filename) in (path, path.absolute()):
            found = traceback.tb_lineno
        traceback = traceback.tb_next
    return found


def function_of(text: str) -> UserFunction:
    """The function that FILE:function names."""
    file, mark, name = text.rpartition(":")
    if not mark or not file or not name:
        raise Refusal(f"--model must be FILE:function, got {text}")
    if not Path(file).is_file():
        raise Refusal(f"--model {text}: there is no file {file}")
    return UserFunction(Path(file), name)


@lru_cache(maxsize=8)  # a file is run once
def _module(path: Path) -> ModuleType:
    spec = spec_from_file_location(f"tacit_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise Refusal(f"--model {path} is no Python file; its name must end in .py")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent.absolute()))  # for what lies beside it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Refusal(f"--model {path} raised {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    return module
