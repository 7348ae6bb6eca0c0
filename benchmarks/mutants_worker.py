"""One self-test, as data: of a mutant, or of a correct engine in one of the standard settings.

It needs the repository's root on its path: mutants and the second engine are those of the tests.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from tests.auditing.mutants import settings
from tests.auditing.mutants.catalogue import BY_NAME
from tests.auditing.mutants.parallel_engine import DataParallel
from tests.auditing.mutants.unseen import UNSEEN_BY_NAME
from tests.auditing.mutants.unseen_second import SECOND_UNSEEN
from tests.auditing.mutants.unseen_third import THIRD_UNSEEN_BY_NAME

from replay_counts import counted
from tacit.auditing.replay import TACIT, Report, replay, self_test, standard_settings
from tacit.auditing.replay.standard import scope_of, special_settings
from tacit.randomness import device_noise
from tacit.training.clipping.forms import matrix

UNSEEN = {mutant.name: mutant for mutant in SECOND_UNSEEN}
SECONDS = 600.0  # for one report on a device
KNOWN = BY_NAME | UNSEEN_BY_NAME | UNSEEN | THIRD_UNSEEN_BY_NAME  # those that were unseen once


def one_mutant(name: str) -> dict[str, Any]:
    """The report on one mutant."""
    mutant = KNOWN[name]
    row = tested(mutant.report)
    blamed = bool(set(row["at_fault"]) & set(mutant.components))
    return {"name": name, "says": mutant.says, "may": mutant.components, "caught": blamed} | row


def on_device(piece: tuple[str, str]) -> dict[str, Any]:
    """The report on one mutant on a device, with recorded steps, up to its first right fault.

    A patch made for the CPU may lie on a way that a device does not take: if nothing is found, the
    device is told to take it (``plain``). ``injected`` are the functions of the mutant that ran. A
    fault counts if the engine without the bug passes the check that named it, in the same setting:
    what is found of it there is its ``control``.
    """
    name, device = piece
    row = _on_device(name, device)
    if device == "cuda" and not row["caught"]:
        with without_kernels():
            again = _on_device(name, device) | {"plain": True, "with kernels": row}
        row = again if again["caught"] else row
    return row


def _on_device(name: str, device: str) -> dict[str, Any]:
    mutant, replays = KNOWN[name], {"batches": 0, "updates": 0}
    report = partial(mutant.recorded_report, device, seconds=SECONDS)
    with counted(replays), executed() as ran, failing(mutant.components) as checks:
        row = tested(partial(report, stop_at_first=True))
        if row["at_fault"] and not set(row["at_fault"]) & set(mutant.components):
            row = tested(partial(report, stop_at_first=False))
    named = bool(set(row["at_fault"]) & set(mutant.components))
    control: list[str] = []
    if named:
        with only(checks):
            control = tested(partial(report, stop_at_first=False, bug=False))["faults"]
    failure = row.pop("error")
    return {
        "name": name, "says": mutant.says, "may": mutant.components,
        "caught": named and not control, "refusal": failure, "replays": replays,
        "injected": None if ran is None else sorted(ran), "control": control,
    } | row  # fmt: skip


@contextmanager
def failing(components: Sequence[str]) -> Iterator[set[str]]:
    """The names of the checks that find a fault of one of these components meanwhile."""
    found, make = set[str](), self_test._made

    def made(check: Any, experiments: Any) -> Any:
        finding = make(check, experiments)
        if not finding.passed and finding.component in components:
            found.add(check.name)
        return finding

    with patch.object(self_test, "_made", made):
        yield found


def only(names: Set[str]) -> Any:
    """Of all checks only these are made meanwhile; whether the engine takes the model is asked."""
    every = self_test._CHECKS.items()
    fewer = {scope: tuple(one for one in checks if one.name in names) for scope, checks in every}
    return patch.dict(self_test._CHECKS, fewer)


def clean_on_device(piece: tuple[str, str]) -> dict[str, Any]:
    """The report on a correct engine on a device, with recorded steps."""
    name, device = piece
    subject, setting, scope = correct()[name]
    if setting.performance.capture is None:
        setting = replace(setting, performance=replace(setting.performance, capture=True))
    replays = {"batches": 0, "updates": 0}
    with counted(replays):
        row = tested(
            partial(replay, setting, subject=subject, scope=scope, device=device, seconds=SECONDS)
        )
    return {"name": name, "refusal": row.pop("error"), "replays": replays} | row


@contextmanager
def without_kernels() -> Iterator[None]:
    """Norms, sums and noise by torch's own operations, on any device."""
    with (
        patch.object(matrix, "has_triton", lambda: False),
        patch.object(device_noise, "usable", lambda _: False),
    ):
        yield


@contextmanager
def executed() -> Iterator[set[str] | None]:
    """The functions inside of functions of the catalogue that run meanwhile; None before 3.12."""
    if sys.version_info < (3, 12):
        yield None
        return
    ran: set[str] = set()
    monitoring, tool = sys.monitoring, 3

    def note(code: Any, _: int) -> Any:
        _, _, file = code.co_filename.rpartition("/tests/auditing/mutants/")
        if file != code.co_filename and file not in ("mutant.py", "settings.py"):
            outer, _, inner = code.co_qualname.partition(".<locals>.")
            if inner:
                ran.add(f"{outer}: {inner}")
        return monitoring.DISABLE

    monitoring.use_tool_id(tool, "mutants")
    monitoring.register_callback(tool, monitoring.events.PY_START, note)
    monitoring.set_events(tool, monitoring.events.PY_START)
    monitoring.restart_events()
    try:
        yield ran
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)


def one_clean(name: str) -> dict[str, Any]:
    """The report on a correct engine."""
    subject, setting, scope = correct()[name]
    return {"name": name} | tested(partial(replay, setting, subject=subject, scope=scope))


def correct() -> dict[str, tuple[Any, Any, Any]]:
    """Engines without a bug, their settings, and what is looked at, by name."""
    found: dict[str, tuple[Any, Any, Any]] = {
        name: (TACIT, setting, scope_of(name))
        for name, setting in {**standard_settings(), **special_settings()}.items()
    }
    return found | {"two ranks": (DataParallel(), settings.linear(), "all")}


def tested(test: Callable[[], Report]) -> dict[str, Any]:
    """What the self-test says; an engine that refuses to train is not taken for caught."""
    torch.set_num_threads(1)
    clock, processor = time.perf_counter(), time.process_time()
    row: dict[str, Any] = {"at_fault": (), "faults": [], "checks": 0, "error": None}
    try:
        report = test()
    except Exception as failure:
        row["error"] = f"{type(failure).__name__}: {failure}"
    else:
        faults = [finding.describe() for finding in report.findings if not finding.passed]
        row |= {"at_fault": report.at_fault, "faults": faults, "checks": len(report.findings)}
    return row | {
        "seconds": time.perf_counter() - clock,
        "processor": time.process_time() - processor,
    }
