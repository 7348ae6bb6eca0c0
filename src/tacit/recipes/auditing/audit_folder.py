"""An audit's folder: one process at a time, finished models kept until the audit has its end."""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tacit._files import OWNER_ONLY, array_bytes, put, read, read_array
from tacit._validation import whole
from tacit.errors import CheckpointError
from tacit.recipes.auditing.audit_file import FILE, to_json
from tacit.runs.folder import LOCK, Folder

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tacit.recipes.auditing.audit_file import Audited


@final
class AuditFolder:
    """Where an audit keeps its models while it goes, and its result; or nowhere."""

    def __init__(self, folder: Folder | None) -> None:
        self._folder = folder

    def models(self, configuration: Mapping[str, Any]) -> Path | None:
        """A private place for the models of this configuration and no other."""
        if self._folder is None:
            return None
        return self._folder.private(f"models-{_digest(configuration)}")

    def kept(
        self,
        name: str,
        configuration: Mapping[str, Any],
        compute: Callable[[], NDArray[np.float32]],
    ) -> NDArray[np.float32]:
        """What ``compute`` gives: once, if there is a folder to keep it in."""
        if self._folder is None:
            return compute()
        path = self._folder.private(f"{name}-{_digest(configuration)}.npy")
        with contextlib.suppress(OSError, ValueError):
            return read_array(path).astype(np.float32)
        found = compute()
        _put(path, array_bytes(found))
        return found

    def seed(self, given: int | None, configuration: Mapping[str, Any]) -> int:
        """``given``; or the seed that the same audit drew before it stopped; or a fresh one."""
        if given is not None:
            return given
        fresh = secrets.randbits(62)
        if self._folder is None:
            return fresh
        path = self._folder.private(f"seed-{_digest(configuration)}")
        with contextlib.suppress(OSError, ValueError):
            return whole("seed", int(read(path, most=20)), at_least=0)
        _put(path, str(fresh).encode())
        return fresh

    def conclude(self, audited: Audited, command: Sequence[str]) -> None:
        """Writes ``audit.json``, and removes what was kept to go on."""
        if self._folder is None:
            return
        self._folder.write(FILE, f"{to_json(audited, command)}\n".encode(), secret=True)
        self._folder.remove_secrets()
        self._folder.remove([LOCK])


@contextmanager
def audit_folder(folder: str | os.PathLike[str] | None) -> Iterator[AuditFolder]:
    """The audit's folder, locked for a while; None keeps nothing."""
    if folder is None:
        yield AuditFolder(None)
        return
    place = Folder(folder)
    place.begin()
    try:
        yield AuditFolder(place)
    except BaseException:
        place.leave([])  # of what was made, only what holds nothing
        raise
    finally:
        place.close()


def _put(path: Path, content: bytes) -> None:
    try:
        put(path, content, mode=OWNER_ONLY)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error.strerror or error}") from None


def _digest(configuration: Mapping[str, Any]) -> str:
    text = json.dumps(configuration, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
