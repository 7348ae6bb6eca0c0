"""What a mutant is: one bug, the setting in which a user would meet it, and who is to blame."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING
from unittest.mock import patch

from tacit.auditing.replay import TACIT, replay
from tacit.auditing.replay.parts import replay_parts
from tacit.training.clipping.forms.matrix import has_triton
from tacit.training.verification import Verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tacit.auditing.replay import Finding, Report, Setting, Subject
    from tacit.auditing.replay.self_test import Scope

FORMS = "tacit.training.clipping.forms"  # whose modules each hold their own copy of a function


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One injected bug.

    ``patch`` puts it into the engine for as long as its context is open. ``components`` are those
    that a right report may name; ``subject`` is the engine, if it is another one than tacit's.
    A bug that no setting shows is found by the ``part`` of the self-test that needs none.
    ``scope`` is what is looked at in the setting, as the command does it in one of its own.
    """

    name: str
    says: str  # what is wrong, in one line
    components: tuple[str, ...]
    setting: Callable[[], Setting]
    patch: Callable[[], AbstractContextManager[object]]
    subject: Callable[[], Subject] | None = None
    part: Callable[[], Finding] | None = None
    scope: Scope = "all"

    def report(self, *, stop_at_first: bool = False) -> Report:
        """What the self-test says of an engine with this bug."""
        subject = TACIT if self.subject is None else self.subject()
        with self.patch():
            if self.part is not None:
                return replay_parts(only=self.part)
            return replay(
                self.setting(), subject=subject, scope=self.scope, stop_at_first=stop_at_first
            )

    @property
    def is_of_a_device(self) -> bool:
        """Whether a device can have it: a setting shows it, in tacit's own engine."""
        return self.part is None and self.subject is None

    def recorded_report(
        self, device: str, *, stop_at_first: bool, seconds: float, bug: bool = True
    ) -> Report:
        """What the self-test says of it on a device, with recorded steps; or without the bug."""
        setting = self.setting()
        performance = replace(setting.performance, capture=True)
        with self.patch() if bug else nullcontext():
            return replay(
                replace(setting, performance=performance), scope=self.scope, device=device,
                stop_at_first=stop_at_first, seconds=seconds,
            )  # fmt: skip


def unwatched() -> AbstractContextManager[object]:
    """The engine's own check of the first batch, taken out.

    Several mutants would be refused by it in their first step. The self-test must find them by
    itself, so they have lost this check as well.
    """
    return patch.object(Verifier, "watches", property(lambda _: False))


def in_kernels(name: str, wrong: Callable[..., object]) -> AbstractContextManager[object]:
    """A function of the kernels by which devices clip; nothing where there is no Triton."""
    if not has_triton():
        return nullcontext()
    return patch.object(import_module("tacit.training.clipping.kernels"), name, wrong)


@contextmanager
def together(*patches: AbstractContextManager[object]) -> Iterator[None]:
    """Several patches as one."""
    with ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        yield
