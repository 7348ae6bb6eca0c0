"""Models of one's own in a folder, and the only place of tacit's where a pickle is read.

What a folder holds is state: tensors, arrays, numbers and text. An object that is more than that is
taken apart and put together by functions of the caller's; or by ``pickle``, if the call names it.
"""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, final

import numpy as np

from tacit.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path


class ModelFormat(Protocol):
    """How a folder keeps models that are more than tensors, numbers and text.

    Two plain functions, so that a file holds state and the code that reads it is the caller's.
    """

    def state(self, model: Any) -> Any:
        """``model`` as tensors, arrays, numbers, texts, None, and lists, tuples, dicts of them."""
        ...

    def model(self, state: Any) -> Any:
        """The model of a state; the state may come from anybody."""
        ...


@final
@dataclass(frozen=True, slots=True)
class PlainModels:
    """Models that are state already: tensors, arrays, numbers, texts, lists and dicts of them."""

    def state(self, model: Any) -> Any:
        """``model`` itself."""
        return model

    def model(self, state: Any) -> Any:
        """``state`` itself."""
        return state


@final
@dataclass(frozen=True, slots=True)
class PickledModels:
    """Keeps any object by ``pickle``: READING ONE RUNS WHATEVER CODE IT NAMES.

    For a folder that you made yourself and nobody else can write, never for one that was sent to
    you, whatever is said to be in it. Nothing in tacit reads a pickle unless the call names this.

    >>> PickledModels().model(PickledModels().state({1, 2}))
    {1, 2}
    """

    def state(self, model: Any) -> Any:
        """The pickle, as an array of bytes."""
        try:
            return np.frombuffer(pickle.dumps(model), dtype=np.uint8)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise CheckpointError(f"{type(model).__name__} cannot be pickled: {error}") from None

    def model(self, state: Any) -> Any:
        """The object. Whoever made ``state`` is trusted with this process."""
        if not isinstance(state, np.ndarray) or state.dtype != np.uint8:
            raise CheckpointError("it holds no pickle")
        try:
            return pickle.loads(state.tobytes())
        except Exception as error:  # whatever the pickle does
            raise CheckpointError(f"its pickle fails with {type(error).__name__}") from None


def check_owner(*paths: Path) -> None:
    """Refuses pickles that somebody else could have written."""
    for found in (path.lstat() for path in paths):
        if os.name == "posix" and (found.st_uid != os.getuid() or found.st_mode & 0o022):
            raise CheckpointError(
                "it could have been written by others, whose code its pickles would run: make it "
                "yours alone (chown, chmod -R go-w), or name a new one"
            )
