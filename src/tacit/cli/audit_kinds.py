"""How each kind of audit is carried out, from a checked request."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tacit.cli.options import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tacit.cli.audit_request import Request
    from tacit.recipes.auditing import Audited


def of_run(request: Request, command: Sequence[str], progress: bool | None) -> Audited:
    """The model of a finished run."""
    from tacit.recipes.auditing import audit_run

    return audit_run(
        request.subject, attacks=request.attacks or ("lira",),
        shadows=16 if request.shadows is None else request.shadows, records=request.records,
        views=request.views, data=request.data, device=request.device, seed=request.seed,
        workers=request.workers or 1, cluster=request.cluster, out=request.out, progress=progress,
        command=command,
    )  # fmt: skip


def of_recipe(request: Request, command: Sequence[str], progress: bool | None) -> Audited:
    """A model that the audit trains itself."""
    from tacit.cli.data import download_progress
    from tacit.data import load
    from tacit.recipes import find
    from tacit.recipes.auditing import audit_recipe

    with download_progress() as shown:
        data = load(find(request.subject).data, request.data, progress=shown)
    return audit_recipe(
        request.subject, epsilon=request.epsilon or 3.0, delta=request.delta or 1e-5,
        settings=request.settings, one_run=request.one_run, canaries=request.canaries,
        attacks=request.attacks or None, shadows=request.shadows, views=request.views, data=data,
        device=request.device, seed=request.seed, workers=request.workers or 1,
        cluster=request.cluster, out=request.out, progress=progress, command=command,
    )  # fmt: skip


def of_engine(request: Request, command: Sequence[str], progress: bool | None) -> Audited:
    """The self-test, on a user's model or on the standard ones."""
    from tacit.cli.audit_model import setting_of
    from tacit.recipes.auditing.engine import audit_engine, audit_standard

    if request.model is None:
        processes = request.workers or min(2, os.cpu_count() or 1)
        found = audit_standard(quick=request.quick, processes=processes, progress=_checks(progress))
    else:
        setting = {request.model: setting_of(request.model)}
        try:
            found = audit_engine(setting, progress=_checks(progress))
        except Refusal:
            raise
        except Exception as error:
            # A user's model may fail in any way; that it cannot be trained is no finding.
            line = " ".join(str(error).split())
            raise Refusal(f"--model {request.model} cannot be trained: {line[:300]}") from error
    _keep(request, found, command)
    return found


def of_mechanism(request: Request, command: Sequence[str], progress: bool | None) -> Audited:
    """Draws of one mechanism."""
    from tacit.recipes.auditing.mechanism import audit_one_mechanism

    del progress
    found = audit_one_mechanism(
        request.name or "", epsilon=request.epsilon or 1.0, delta=request.delta or 1e-5,
        draws=request.draws,
    )  # fmt: skip
    _keep(request, found, command)
    return found


def of_experiment(request: Request, command: Sequence[str], progress: bool | None) -> Audited:
    """A named experiment, from its data to its end."""
    from tacit.recipes.auditing import Conditions, find
    from tacit.recipes.auditing.workplace import workplace

    experiment = find(request.subject)
    seed = request.seed or 0
    with workplace(request.out) as work:
        found = experiment.run(
            Conditions(
                data=request.data,
                folder=work.models({"name": experiment.name, "seed": seed}),
                seed=seed,
                workers=request.workers or 1,
                progress=progress,
            )
        )
        work.conclude(found, command)
    return found


def _keep(request: Request, found: Audited, command: Sequence[str]) -> None:
    from tacit.recipes.auditing.workplace import workplace

    with workplace(request.out) as work:
        work.conclude(found, command)


def _checks(progress: bool | None) -> Callable[[str, int, int, str], None] | None:
    """One line that is written over, on a terminal only."""
    if progress is False or not sys.stderr.isatty():
        return None

    def show(setting: str, done: int, of: int, check: str) -> None:
        what = f"checks, next: {check}" if check else "settings"
        sys.stderr.write(f"\r{setting}: {done} of {of} {what}\x1b[K")
        if done + 1 == of:
            sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()

    return show
