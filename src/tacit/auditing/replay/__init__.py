"""The self-test of an engine: it watches short runs from outside, and names what is at fault.

>>> from tacit.auditing.replay import replay, standard_settings
>>> report = replay(standard_settings()["linear"], seconds=0.5)
>>> report.passed
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._lazy import lazily
from tacit.auditing.replay.report import COMPONENTS, Component, Finding, Report

if TYPE_CHECKING:
    from tacit.auditing.replay.running import replay
    from tacit.auditing.replay.setting import Setting
    from tacit.auditing.replay.standard import standard_settings
    from tacit.auditing.replay.subject import Outcome, Subject, Task
    from tacit.auditing.replay.tacit_subject import TACIT

# Imported when first used: the rest of auditing must not cost the import of PyTorch.
_HOME = {
    "Outcome": "subject",
    "Setting": "setting",
    "Subject": "subject",
    "TACIT": "tacit_subject",
    "Task": "subject",
    "replay": "running",
    "standard_settings": "standard",
}

__all__ = [
    "COMPONENTS",
    "TACIT",
    "Component",
    "Finding",
    "Outcome",
    "Report",
    "Setting",
    "Subject",
    "Task",
    "replay",
    "standard_settings",
]


__getattr__ = lazily(
    __name__, {name: f"tacit.auditing.replay.{home}" for name, home in _HOME.items()}
)


def __dir__() -> list[str]:
    return sorted(__all__)
