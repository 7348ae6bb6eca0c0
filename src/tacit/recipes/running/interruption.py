"""How a run is asked to stop: at once where nothing would be lost, else after the step at hand."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, final

from tacit.errors import TacitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Interrupted(TacitError):
    """A run was asked to stop and did; ``resumable`` says whether its folder can go on."""

    def __init__(self, message: str, *, resumable: bool) -> None:
        super().__init__(message)
        self.resumable = resumable


@final
class Interruption:
    """A request to stop, as a signal handler makes it.

    ``request`` raises KeyboardInterrupt, unless the run is inside ``deferred``: then it is
    remembered, and whoever is inside asks when it suits. A second request raises in any case.

    >>> stop = Interruption()
    >>> with stop.deferred():
    ...     stop.request()
    ...     stop()
    True
    """

    def __init__(self, asked: Callable[[], bool] | None = None) -> None:
        self._asked = asked
        self._depth = 0
        self.requested = False

    def __call__(self) -> bool:
        """Whether the run is to stop."""
        return self.requested or (self._asked is not None and self._asked())

    @property
    def is_deferred(self) -> bool:
        """Whether a first request would wait."""
        return self._depth > 0

    def request(self) -> None:
        """Asks the run to stop; safe in a signal handler."""
        again, self.requested = self.requested, True
        if again or not self._depth:
            raise KeyboardInterrupt

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside, a first request waits."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
