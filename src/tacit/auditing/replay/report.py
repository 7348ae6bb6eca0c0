"""What the self-test found: one finding for every check, and the components that are at fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, final, get_args

Component: TypeAlias = Literal[
    "sampling",
    "gradients",
    "clipping",
    "noise",
    "update",
    "charging",
    "control flow",
    "resuming",
    "ranks",
]
COMPONENTS: tuple[Component, ...] = get_args(Component)


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check.

    Attributes:
        component: The part of the engine that the check is about.
        check: Its name.
        passed: Whether nothing was found; also where there was nothing to check.
        evidence: What was seen and what was expected, in words and numbers.
        numbers: The same numbers, by name.
    """

    component: Component
    check: str
    passed: bool
    evidence: str
    numbers: tuple[tuple[str, float], ...] = ()

    def describe(self) -> str:
        """One line for people.

        >>> print(Finding("noise", "scale", False, "0.95 of what is claimed").describe())
        FAULT  noise: scale: 0.95 of what is claimed
        """
        mark = "ok    " if self.passed else "FAULT "
        return f"{mark} {self.component}: {self.check}: {self.evidence}"


@final
@dataclass(frozen=True, slots=True)
class Report:
    """All findings about one engine in one setting, in the order in which they were made.

    What they were computed from is the private data themselves: the evidence is not protected.
    ``whole`` says whether every check was run; a fault or the time limit may have ended the test.

    Guarantee:
        A correct engine is accused with probability at most 1e-5. No finding is no proof: a bug
        that shows in no observed number is not found.
    """

    subject: str
    findings: tuple[Finding, ...]
    seconds: float
    whole: bool = True

    @property
    def passed(self) -> bool:
        """Whether no check found anything."""
        return all(finding.passed for finding in self.findings)

    @property
    def at_fault(self) -> tuple[Component, ...]:
        """The components that a check found at fault, the first found first."""
        return tuple(dict.fromkeys(f.component for f in self.findings if not f.passed))

    def describe(self) -> str:
        """The findings, a line each, and the verdict."""
        lines = [finding.describe() for finding in self.findings]
        if self.passed:
            count = len(self.findings)
            verdict = f"{count} checks of {self.subject} found nothing; that is no proof"
        else:
            verdict = f"{self.subject} is at fault: {', '.join(self.at_fault)}"
        ended = "" if self.whole else "; not every check was run"
        return "\n".join([*lines, f"{verdict}{ended} ({self.seconds:.1f} s)"])
