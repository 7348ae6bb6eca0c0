"""What a mutant is: one bug, the setting in which a user would meet it, and who is to blame."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unittest.mock import patch

from tacit.training.verification import Verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tacit.auditing.replay import Setting, Subject

FORMS = "tacit.training.clipping.forms"  # whose modules each hold their own copy of a function


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One injected bug.

    ``patch`` puts it into the engine for as long as its context is open. ``components`` are those
    that a right report may name; ``subject`` is the engine, if it is another one than tacit's.
    """

    name: str
    says: str  # what is wrong, in one line
    components: tuple[str, ...]
    setting: Callable[[], Setting]
    patch: Callable[[], AbstractContextManager[object]]
    subject: Callable[[], Subject] | None = None


def unwatched() -> AbstractContextManager[object]:
    """The engine's own check of the first batch, taken out.

    Several mutants would be refused by it in their first step. The self-test must find them by
    itself, so they have lost this check as well.
    """
    return patch.object(Verifier, "watches", property(lambda _: False))


@contextmanager
def together(*patches: AbstractContextManager[object]) -> Iterator[None]:
    """Several patches as one."""
    with ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        yield
