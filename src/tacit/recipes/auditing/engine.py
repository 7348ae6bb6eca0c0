"""``audit_engine``: the self-test of the training engine, in one setting or in several."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from tacit._validation import whole
from tacit.auditing.replay import Finding, Report, replay, standard_settings
from tacit.recipes.auditing.audit_file import Audited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from tacit.auditing.replay import Setting
    from tacit.auditing.replay.coverage import Arcs, Coverage, Seen
    from tacit.auditing.replay.self_test import Scope

    Progress = Callable[[str, int, int, str], None]

SECONDS: Final = 120.0
ON_A_GPU: Final = 600.0  # seconds for a setting there: each step waits for a look at what it did
NO_PROOF: Final = "No finding is no proof: a bug that shows in no observed number is not found."
PARTS: Final = "parts"
_QUICK: Final = ("linear",)  # the settings in which a quick test makes all checks
_ON_RANKS: Final = ("linear", "adaptive", "users", "secure")  # where ranks might do otherwise
_SLOW: Final = (  # those that it leaves out
    "compiled", "long texts", "float16", "bfloat16", "recurrences", "attentions", "recorded",
    "image users", "replayed", "buffered", "contractions", "channels", "double",
    "adaptive, secure", "adaptive, exact",
)  # fmt: skip
_LONGEST: Final = (  # settings that take longest, in this order
    "compiled", "adaptive", "recurrences", PARTS, "secure", "convolution", "linear", "users",
    "images", "attentions", "long texts",
)  # fmt: skip
_SCOPES: Final[dict[Scope, str]] = {  # what each of them looks at
    "all": "all checks",
    "release": "all but options, loops of one's own, several runs, refusals, the plan's own rate, "
    "and whether noise follows the sums,",
    "sums": "sums, and noise on them,",
    "lots": "sums and lots",
    "noise": "noise and the first few sums",
    "quick": "the first few sums",
    "correlated": "noise over all steps, groups that take turns and charges",
}
_SHOWN: Final = 12  # files whose lines are named in the note on what was not executed


def audit_engine(
    settings: Mapping[str, Setting],
    *,
    seconds: float = SECONDS,
    private: bool = True,
    progress: Progress | None = None,
    device: str = "cpu",
) -> Audited:
    """Runs the self-test (``tacit.auditing.replay``) in each setting, and names what is at fault.

    Args:
        settings: Models with their losses, data and plans, by name.
        seconds: For one setting; no further check of it is begun after so long.
        private: Whether the data are somebody's.
        progress: Called with the setting, how many checks are done, of how many, and the next.
        device: Where the engine trains; on a GPU its steps are recorded and replayed.

    Guarantee:
        A correct engine is accused with probability 1e-5 at most in each setting.
    """
    from tacit.auditing.replay.coverage import Tracer  # noqa: PLC0415 - PyTorch only when asked

    done, notes = _Done(), _trained_on(device)
    for name, setting in settings.items():
        tracer = Tracer()
        report = replay(
            setting, seconds=seconds, progress=_within(progress, name), tracer=tracer, device=device
        )
        done.add(name, report, tracer.seen)
    about = {"settings": list(settings), "seconds": seconds, "device": device}
    return done.audited(about, private=private, notes=notes)


def audit_standard(
    *,
    quick: bool = False,
    processes: int = 2,
    seconds: float = SECONDS,
    progress: Progress | None = None,
    device: str = "cpu",
) -> Audited:
    """Runs the self-test in all of tacit's own settings, which together use all of the engine.

    Args:
        quick: Whether to make all checks in one setting only, and few in the others.
        processes: How many settings are tested at a time; 1 does without further processes.
        seconds: For one setting; no further check of it is begun after so long.
        progress: Called with the setting, how many settings are done, of how many, and nothing.
        device: Where the engine trains; on a GPU its steps are recorded and replayed, and the parts
            that need no setting, which are the CPU's, are left out.

    Guarantee:
        A correct engine is accused with probability 1e-5 at most in each setting.
    """
    jobs = _jobs(quick=quick, seconds=seconds, device=device)
    done, notes = _Done(), [_where(jobs), *_trained_on(device)]
    for count, (job, report, seen) in enumerate(_carried_out(jobs, processes)):
        done.add(job.name, report, seen)
        if progress is not None:
            progress(job.name, count, len(jobs), "")
    if quick:
        notes.append(
            f"Left out, as it was to be quick: the settings {_all(_SLOW)}; and the parts that need "
            "no setting: the laws of random numbers, correlated noise, epochs and recordings by "
            "themselves, the ledger's rules, refusals, and two processes that train together."
        )
    about = {
        "settings": [job.name for job in jobs],
        "scopes": {job.name: job.scope for job in jobs},
        "seconds": seconds,
        "quick": quick,
        "device": device,
    }
    return done.audited(about, private=False, notes=notes)


def audit_ranks(
    ranks: int, *, seconds: float = SECONDS, progress: Progress | None = None
) -> Audited:
    """Runs the self-test over real processes that train together, in a few of tacit's settings.

    Args:
        ranks: How many processes there are.
        seconds: For one setting; no further check of it is begun after so long.
        progress: Called with the setting, how many checks are done, of how many, and the next.

    Guarantee:
        A correct engine is accused with probability 1e-5 at most in each setting.
    """
    from tacit.auditing.replay.coverage import Tracer  # noqa: PLC0415 - PyTorch only when asked
    from tacit.auditing.replay.rank_subject import TacitRanks  # noqa: PLC0415

    subject = TacitRanks(whole("ranks", ranks, at_least=2))
    known, done = standard_settings(), _Done()
    for name in _ON_RANKS:
        tracer = Tracer()
        report = replay(
            known[name], subject=subject, scope="ranks", seconds=seconds,
            progress=_within(progress, name), tracer=tracer,
        )  # fmt: skip
        done.add(name, report, tracer.seen)
    note = f"Looked at: {ranks} processes that train together, in {_all(_ON_RANKS)}; nothing else."
    about = {"settings": list(_ON_RANKS), "seconds": seconds, "ranks": ranks}
    return done.audited(about, private=False, notes=[note])


# ---- the work


@final
@dataclass(frozen=True, slots=True)
class _Job:
    """One of tacit's own settings, by its name, what to look at, and where it trains."""

    name: str
    scope: Scope
    seconds: float
    device: str = "cpu"


def _jobs(*, quick: bool, seconds: float, device: str = "cpu") -> list[_Job]:
    """All that is to be done, the longest first, so that processes end together."""
    from tacit.auditing.replay.standard import (  # noqa: PLC0415
        scope_of,
        special_settings,
        standard_settings,
    )

    names = [*standard_settings(), *special_settings()]
    if quick:
        kept = [name for name in names if name not in _SLOW]
        return [_Job(name, "all" if name in _QUICK else "quick", seconds, device) for name in kept]
    jobs = [_Job(name, scope_of(name), seconds, device) for name in names]
    if _is_cpu(device):
        jobs.append(_Job(PARTS, "all", seconds))
    places = {name: place for place, name in enumerate(_LONGEST)}
    return sorted(jobs, key=lambda job: places.get(job.name, len(places)))


def _is_cpu(device: str) -> bool:
    return device == "cpu"


def _trained_on(device: str) -> list[str]:
    """What a reader should know of a self-test on another device than the CPU."""
    if _is_cpu(device):
        return []
    return [
        f"The engine trained on {device}, without TF32, its steps recorded and replayed where they "
        "can be; the truth was computed on the CPU. What needs no setting (the laws of random "
        "numbers, the ledger's rules, refusals, several processes) is tested on the CPU alone: "
        "tacit audit engine."
    ]


def _where(jobs: Sequence[_Job]) -> str:
    """Which settings had all checks made in them, and which had some."""
    by_scope: dict[Scope, list[str]] = {}
    for job in jobs:
        if job.name != PARTS:
            by_scope.setdefault(job.scope, []).append(job.name)
    found = [
        f"{what} in {_all(by_scope[scope])}" for scope, what in _SCOPES.items() if scope in by_scope
    ]
    return f"What was looked at: {'; '.join(found)}."


def _carried_out(jobs: Sequence[_Job], processes: int) -> Iterator[tuple[_Job, Report, Seen]]:
    """The reports as they come."""
    from tacit.auditing.replay.coverage import Seen  # noqa: PLC0415

    known = Seen()
    if processes == 1:
        for job in jobs:
            report, known = _work(job, known)
            yield job, report, known
        return
    context = multiprocessing.get_context("spawn")
    left = list(jobs)
    waiting: dict[Future[tuple[Report, Seen]], _Job] = {}
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        try:
            while left or waiting:
                while left and len(waiting) < processes:
                    job = left.pop(0)
                    waiting[pool.submit(_work, job, known)] = job
                ended, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ended:
                    report, seen = future.result()
                    known = known.joined(seen)
                    yield waiting.pop(future), report, seen
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _work(job: _Job, known: Seen) -> tuple[Report, Seen]:
    """One job, and what was executed for it or was ``known`` to be.

    The settings are tacit's own, and sound: any error is the engine's.
    """
    import torch  # noqa: PLC0415

    from tacit.auditing.replay.coverage import Tracer  # noqa: PLC0415
    from tacit.auditing.replay.standard import special_settings  # noqa: PLC0415

    torch.set_num_threads(1)
    if job.name == PARTS:
        from tacit.auditing.replay.parts import replay_parts  # noqa: PLC0415 - it takes its time

        patient = Tracer(10**8, known)  # accounting makes many calls between two of the engine's
        return replay_parts(patient), patient.seen
    tracer = Tracer(known=known)
    setting = {**standard_settings(), **special_settings()}[job.name]
    try:
        report = replay(
            setting, seconds=job.seconds, scope=job.scope, tracer=tracer, device=job.device
        )
    except Exception as error:
        said = f"a sound model is refused with {type(error).__name__}: {error}"[:300]
        report = Report("tacit", (Finding("control flow", "first run", False, said),), 0.0, False)
    return report, tracer.seen


# ---- what came of it


@final
@dataclass
class _Done:
    """The reports so far, and what of the engine was executed for them."""

    reports: dict[str, Report] = field(default_factory=dict)
    arcs: Arcs = field(default_factory=dict)

    def add(self, name: str, report: Report, seen: Seen) -> None:
        """Takes one more in."""
        self.reports[name] = report
        for path, steps in seen.arcs.items():
            self.arcs.setdefault(path, set()).update(steps)

    def audited(
        self, settings: Mapping[str, Any], *, private: bool, notes: Sequence[str] = ()
    ) -> Audited:
        """The verdict on all of them."""
        from tacit.auditing.replay.coverage import coverage  # noqa: PLC0415

        seen = coverage(self.arcs)
        faults = dict.fromkeys(part for one in self.reports.values() for part in one.at_fault)
        checks = sum(len(one.findings) for one in self.reports.values())
        cut = [name for name, one in self.reports.items() if not one.whole]
        ended = f"Not every check was run: time was up, or a fault ended it ({_all(cut)})."
        return Audited(
            kind="engine",
            subject="engine",
            words=(
                f"the engine is at fault: {_all(faults)}"
                if faults
                else f"{checks} checks in {len(self.reports)} setting(s) found nothing"
            ),
            contradicted=bool(faults),
            details=tuple(row for name, one in self.reports.items() for row in _rows(name, one)),
            settings={**settings, "coverage": _covered(seen)},
            notes=(*([ended] if cut else []), *notes, _not_executed(seen), NO_PROOF),
            private=private,
        )


def _covered(seen: Coverage) -> dict[str, Any]:
    missed = {path: list(lines) for path, lines in seen.missed.items()}
    return {"goals": seen.goals, "met": seen.met, "for a GPU": seen.for_a_gpu, "missed": missed}


def _not_executed(seen: Coverage) -> str:
    """What a reader should know of code that was not tested, for it did not run."""
    often = sorted(seen.missed, key=lambda path: -len(seen.missed[path]))
    named = [f"{path} {_places(seen.missed[path])}" for path in often[:_SHOWN]]
    more = f"; and {len(often) - _SHOWN} more files" if len(often) > _SHOWN else ""
    if seen.for_a_gpu:
        more += f"; and {seen.for_a_gpu} that only a GPU runs, of which there is none here"
    return (
        f"Of the {seen.goals:,} statements and branches that a release rests on, "
        f"{100.0 * seen.share:.1f} % were executed, and nothing is said of the others: "
        f"{'; '.join(named)}{more} (audit.json has all)."
        if named
        else f"All {seen.goals:,} statements and branches that a release rests on were executed."
    )


def _places(lines: Sequence[str], most: int = 8) -> str:
    """The first of the places in a file.

    >>> _places(["3", "5→7", "9"], 2)
    'lines 3, 5→7 and 1 more'
    """
    rest = f" and {len(lines) - most} more" if len(lines) > most else ""
    return f"lines {', '.join(lines[:most])}{rest}"


def _within(progress: Progress | None, name: str) -> Callable[[int, int, str], None] | None:
    if progress is None:
        return None
    return lambda done, of, check: progress(name, done, of, check)


def _rows(name: str, report: Report) -> list[dict[str, Any]]:
    return [
        {
            "setting": name,
            "component": one.component,
            "check": one.check,
            "passed": one.passed,
            "evidence": one.evidence,
        }
        for one in report.findings
    ]


def _all(names: Iterable[str]) -> str:
    return ", ".join(names)
