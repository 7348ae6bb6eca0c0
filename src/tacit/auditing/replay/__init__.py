"""The self-test of an engine: it watches short runs from outside, and names what is at fault.

>>> from tacit.auditing.replay import replay, standard_settings
>>> report = replay(standard_settings()["linear"], seconds=0.5)
>>> report.passed
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit._lazy import lazy
from tacit.auditing.replay.report import COMPONENTS, Component, Finding, Report

if TYPE_CHECKING:
    from tacit.auditing.replay.self_test import replay
    from tacit.auditing.replay.setting import Setting
    from tacit.auditing.replay.standard import standard_settings
    from tacit.auditing.replay.subject import Outcome, Subject, Task
    from tacit.auditing.replay.tacit_subject import TACIT

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

# Imported when first used: the rest of auditing must not cost the import of PyTorch.
__getattr__, __dir__ = lazy(__name__)
