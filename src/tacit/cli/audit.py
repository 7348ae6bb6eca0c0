"""``tacit audit``: attacks and self-tests, the verdict on the claim, and what it was reached by."""

from __future__ import annotations

import json
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from tacit.cli import audit_request, options, runs
from tacit.cli.options import OptionType, Refusal
from tacit.cli.run_options import (
    DATA,
    DELTA_TYPE,
    EPSILON,
    FOLDER,
    SEED,
    TakesSettings,
    check_device,
)
from tacit.cli.runs import command_line
from tacit.cli.streams import complain, say
from tacit.errors import TacitError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tacit._workers import Workers
    from tacit.cli.audit_request import AuditRequest
    from tacit.recipes.auditing import AttackChoice, Audited, Execution


EPILOG = """\b
A recipe's settings are options too: --epochs 10 means --set epochs=10.

\b
Examples:
  tacit audit --list
  tacit audit runs/demo --attack lira --shadows 16
  tacit audit runs/mine --model model.py:prepare
  tacit audit mnist-tempered --one-run --canaries 1000
  tacit audit digits --epsilon 2 --attack lira --attack rmia --workers 2
  tacit audit engine
  tacit audit engine --model model.py:setting
  tacit audit mechanism gaussian --epsilon 2
  tacit audit mnist-memorised

\b
Exit status:
  0    nothing contradicts the claim
  1    the claim is contradicted at 99.99 % confidence, or a self-test failed
  2    the request was refused
  130  stopped by Ctrl-C
"""


def _number(remedy: str) -> OptionType[int]:
    return OptionType("N", options.whole, remedy)


def _whole_or_none(option: str, text: str, remedy: str) -> int:
    return 0 if text.strip() == "0" else options.whole(option, text, remedy)


_SHADOWS = OptionType("N", _whole_or_none, "give how many models, such as 16")


@click.command(
    cls=TakesSettings, epilog=EPILOG, short_help="Attacks a model, the engine or a mechanism."
)
@click.argument("subject", required=False)
@click.argument("name", required=False)
@click.option("--attack", "attacks", metavar="NAME", multiple=True, help="Attack to use; repeat "
              "the option for several. [default: lira; with --one-run: loss]")  # fmt: skip
@click.option("--shadows", metavar="N", type=_SHADOWS,
              help="Number of shadow models to train. [default: 16; "
              "with --one-run: 0]")  # fmt: skip
@click.option("--one-run", is_flag=True, help="For a recipe: train a single model, with "
              "mislabelled canaries among its records.")  # fmt: skip
@click.option("--canaries", metavar="M", type=_number("give how many records, such as 1000"),
              help="For a recipe: number of records that are included "
              "or left out by a coin.")  # fmt: skip
@click.option("--records", metavar="N", type=_number("give how many, such as 1000"),
              help="For a run: number of training records, and of "
              "held-out ones, to attack.")  # fmt: skip
@click.option("--views", metavar="V", type=_number("give 1 to 9"),
              help="Views of each image to query: the image itself, and "
              "shifted by a pixel. [default: 1]")  # fmt: skip
@click.option("--epsilon", metavar="EPS", type=EPSILON,
              help="For a recipe or a mechanism: the epsilon that is "
              "claimed. [default: 3; mechanism: 1]")  # fmt: skip
@click.option("--delta", metavar="D", type=DELTA_TYPE,
              help="For a recipe or a mechanism: the delta that is "
              "claimed. [default: 1e-5]")  # fmt: skip
@click.option("--set", "sets", metavar="NAME=VALUE", multiple=True, help="For a recipe: change "
              "one of its settings; repeat the option for several.")  # fmt: skip
@click.option("--model", metavar="FILE:FUNCTION", help="For the engine, or a run of your own "
              "model: a function of a Python file that returns model and data.")  # fmt: skip
@click.option("--quick", is_flag=True, help="For the engine: all checks in one setting, few in "
              "the others.")  # fmt: skip
@click.option("--ranks", metavar="N", type=_number("give how many processes, such as 2"),
              help="For the engine: test N processes that train together, and only "
              "that.")  # fmt: skip
@click.option("--draws", metavar="N", type=_number("give how many draws on each side, such as 1e6"),
              help="For a mechanism: number of draws on each of the two "
              "inputs.")  # fmt: skip
@click.option("--device", metavar="NAME", help="Device to train on: auto, cpu, cuda or cuda:N. "
              "[default: cpu]")  # fmt: skip
@click.option("--data", metavar="DIR", type=DATA, help="Folder of the data, if not $TACIT_DATA.")
@click.option("--seed", metavar="N", type=SEED,
              help="Seed of the audit's own random choices. Noise never "
              "takes a seed.")  # fmt: skip
@click.option("--workers", metavar="N", type=_number("give how many processes, such as 2"),
              help="Number of processes. [default: 1; engine: 2]")  # fmt: skip
@click.option("--cluster", metavar="ADDRESS", help="Train shadow models on the Ray cluster at "
              "this address; local starts one here.")  # fmt: skip
@click.option("--out", metavar="DIR", type=FOLDER,
              help="Folder for audit.json. [default: the run's own, or "
              "runs/audit-NAME for a recipe or an experiment]")  # fmt: skip
@click.option("--list", "listed", is_flag=True, help="List what can be audited and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
@click.pass_context
def audit(context: click.Context, /, listed: bool, as_json: bool, **given: Any) -> None:
    """Attacks a model, the training engine or a mechanism, and judges its privacy claim.

    SUBJECT is the folder of a finished run, the name of a recipe or of an experiment, engine, or
    mechanism followed by the NAME of one.

    Prints what the attacks achieved, a lower bound on epsilon, and whether that contradicts the
    claim. These figures are computed from private records without noise: no guarantee covers
    them, so keep them with the data. After Ctrl-C the same command goes on with the models that
    are already trained.
    """
    if listed or given["subject"] is None:
        _list(as_json)
        return
    request = audit_request.read(given)
    done = _run(request, as_json)
    if done is None:
        context.exit(runs.STOPPED)
    _conclude(request, done, as_json)
    context.exit(done.exit_status)


def _run(request: AuditRequest, as_json: bool) -> Audited | None:
    """Carries the audit out; None if it was stopped."""
    runs.load_engine(runs.shows_progress(as_json))
    from tacit.runs import stoppable

    with stoppable():
        try:
            return _audited(request, progress=not as_json)
        except KeyboardInterrupt:
            _say_how_to_go_on(request)
            return None
        except TacitError:
            raise
        except ValueError as error:  # PyTorch's, for instance of a negative learning rate
            raise Refusal(f"{request.subject} refuses its settings: {error}") from error


def _audited(request: AuditRequest, progress: bool | None) -> Audited:
    if request.kind in ("run", "recipe"):
        check_device(request.device or "cpu")
    carry_out = {
        "run": _of_run,
        "recipe": _of_recipe,
        "engine": _of_engine,
        "mechanism": _of_mechanism,
        "experiment": _of_experiment,
    }[request.kind]
    return carry_out(request, command_line(), progress)


def _say_how_to_go_on(request: AuditRequest) -> None:
    if request.kind in ("engine", "mechanism"):
        complain("stopped; nothing is kept")
        return
    again = shlex.join(command_line())
    complain(f"stopped; finished models are kept, and the same command goes on: {again}")


# ---- each kind of audit


def _of_run(request: AuditRequest, command: Sequence[str], progress: bool | None) -> Audited:
    """The model of a finished run; of one's own model, put together by the user's function."""
    from tacit.cli.user_code import UserRun, at_work, function_of
    from tacit.recipes.auditing import audit_run

    with at_work(request.model):
        return audit_run(
            request.subject, attack=_attack_of(request), records=request.records,
            data=request.data, seed=request.seed,
            execution=_execution_of(request, command, progress),
            prepare=None if request.model is None else UserRun(function_of(request.model)),
        )  # fmt: skip


def _attack_of(request: AuditRequest) -> AttackChoice:
    from tacit.recipes.auditing import AttackChoice

    return AttackChoice(
        names=request.attacks or None, shadows=request.shadows, views=request.views or 1
    )


def _execution_of(
    request: AuditRequest, command: Sequence[str], progress: bool | None
) -> Execution:
    from tacit.recipes.auditing import Execution

    return Execution(
        device=request.device or "cpu", workers=_workers_of(request), out=request.out,
        progress=progress, command=command,
    )  # fmt: skip


def _workers_of(request: AuditRequest) -> Workers:
    """Where models are trained: processes here, or a Ray cluster."""
    from tacit._workers import RayCluster

    if request.cluster is None:
        return request.workers or 1
    return RayCluster(None if request.cluster == "local" else request.cluster)


def _of_recipe(request: AuditRequest, command: Sequence[str], progress: bool | None) -> Audited:
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
        attack=_attack_of(request), data=data, seed=request.seed,
        execution=_execution_of(request, command, progress),
    )  # fmt: skip


def _of_engine(request: AuditRequest, command: Sequence[str], progress: bool | None) -> Audited:
    """The self-test, on a user's model or on the standard ones."""
    from tacit.recipes.auditing.engine import (
        ON_A_GPU,
        SECONDS,
        audit_engine,
        audit_ranks,
        audit_standard,
    )

    device = str(check_device(request.device or "cpu"))
    seconds = SECONDS if device == "cpu" else ON_A_GPU
    if request.ranks is not None:
        if request.model is not None or request.quick or device != "cpu":
            raise Refusal(
                "--ranks has settings of its own, on the CPU; leave out --model, --quick and "
                "--device"
            )
        found = audit_ranks(request.ranks, progress=_checks(progress))
    elif request.model is None:
        processes = request.workers or min(2, os.cpu_count() or 1)
        found = audit_standard(
            quick=request.quick, processes=processes, seconds=seconds,
            progress=_checks(progress), device=device,
        )  # fmt: skip
    else:
        setting = {request.model: audit_request.setting_of(request.model)}
        try:
            found = audit_engine(
                setting, seconds=seconds, progress=_checks(progress), device=device
            )
        except Refusal:
            raise
        except Exception as error:
            # A user's model may fail in any way; that it cannot be trained is no finding.
            line = " ".join(str(error).split())
            raise Refusal(f"--model {request.model} cannot be trained: {line[:300]}") from error
    _keep(request, found, command)
    return found


def _of_mechanism(request: AuditRequest, command: Sequence[str], progress: bool | None) -> Audited:
    """Draws of one mechanism."""
    from tacit.recipes.auditing.mechanism_audit import audit_one_mechanism

    del progress
    found = audit_one_mechanism(
        request.name or "", epsilon=request.epsilon or 1.0, delta=request.delta or 1e-5,
        draws=request.draws,
    )  # fmt: skip
    _keep(request, found, command)
    return found


def _of_experiment(request: AuditRequest, command: Sequence[str], progress: bool | None) -> Audited:
    """A named experiment, from its data to its end."""
    from tacit.recipes.auditing import Conditions, find
    from tacit.recipes.auditing.audit_folder import audit_folder

    experiment = find(request.subject)
    seed = request.seed or 0
    with audit_folder(request.out) as work:
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


def _keep(request: AuditRequest, found: Audited, command: Sequence[str]) -> None:
    from tacit.recipes.auditing.audit_folder import audit_folder

    with audit_folder(request.out) as work:
        work.conclude(found, command)


def _checks(progress: bool | None) -> Callable[[str, int, int, str], None] | None:
    """One line that is written over on a terminal; elsewhere a line for each setting."""
    if progress is False:
        return None
    if not sys.stderr.isatty():
        return _settings_in_lines

    def show(setting: str, done: int, of: int, check: str) -> None:
        what = f"checks, next: {check}" if check else "settings"
        sys.stderr.write(f"\r{setting}: {done} of {of} {what}\x1b[K")
        if done + 1 == of:
            sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()

    return show


def _settings_in_lines(setting: str, done: int, of: int, check: str) -> None:
    if not check:
        sys.stderr.write(f"{setting}: {done + 1} of {of} settings\n")
        sys.stderr.flush()
    elif not done:
        sys.stderr.write(f"{setting}: {of} checks begin\n")
        sys.stderr.flush()


# ---- what is shown


def _conclude(request: AuditRequest, done: Audited, as_json: bool) -> None:
    plain = done.as_dict(command_line())
    files = _files(request, plain)
    if as_json:
        say(json.dumps(plain | {"files": files}, indent=2, allow_nan=False))
        return
    from tacit.cli.audit_page import page
    from tacit.cli.page import say_page

    say_page(page(done))
    for what, path in files.items():
        say(f"The {what} is at {path}")


def _files(request: AuditRequest, plain: dict[str, Any]) -> dict[str, str]:
    """Draws and writes what belongs to the audit; where it all lies."""
    from pathlib import Path

    place = request.out or (Path(request.subject) if request.kind == "run" else None)
    if place is None:
        return {}
    found = {"audit": str(place / audit_request.FILE)}
    try:
        if request.kind == "run" and request.out is None:
            from tacit.reports.run_report import write

            found["report"] = str(write(place))
        elif (picture := _picture(request, plain, place)) is not None:
            found["picture"] = str(picture)
    except OSError as error:
        raise Refusal(f"{place} cannot be written: {error.strerror or error}") from None
    return found


def _picture(request: AuditRequest, plain: dict[str, Any], place: Path) -> Path | None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None or request.kind in ("engine", "mechanism"):
        return None
    from tacit.recipes.auditing import find
    from tacit.reports import audit_figure

    shows_secrets = request.kind == "experiment" and find(request.subject).picture == "secrets"
    draw = audit_figure.draw_secrets_file if shows_secrets else audit_figure.draw_file
    path = place / "audit.png"
    draw(plain, path)
    return path


def _list(as_json: bool) -> None:
    from tacit.cli.audit_page import listed, listed_page

    found = listed()
    if as_json:
        say(json.dumps(found, indent=2, ensure_ascii=False))
        return
    from tacit.cli.page import say_page

    say_page(listed_page(found))
