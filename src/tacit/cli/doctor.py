"""``tacit doctor``: what is installed, where it computes, whether noise and engine are sound."""

from __future__ import annotations

import json
import os
import platform
import re
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import click

from tacit import __version__
from tacit.cli import runs
from tacit.cli.streams import say
from tacit.errors import TacitError

if TYPE_CHECKING:
    from collections.abc import Iterator

State: TypeAlias = Literal["sound", "missing", "fault"]
UNSOUND: Final = 1
FIRST: Final[tuple[Literal["quick", "noise"], ...]] = ("quick", "noise")
SECONDS: Final = 60.0  # no further check of a setting begins after this time
_OURS: Final = ("dev", "docs")  # extras for those who work on tacit
_NEED: Final = re.compile(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"]")
_MORE: Final = "tacit audit engine runs all of it"
_MARKS: Final = {"sound": "ok     ", "missing": "–      ", "fault": "FAULT  "}
EPILOG = """\b
Exit status:
  0    nothing is at fault; an extra that is not installed is no fault
  1    something is: the noise's entropy, the self-test or the installation
"""


@final
@dataclass(frozen=True)
class Diagnosis:
    """One thing that was looked at."""

    what: str
    state: State
    detail: str


@click.command(epilog=EPILOG, short_help="Says what is installed here, and whether it works.")
@click.option("--full", is_flag=True, help="Run the quick self-test in all of its settings (about "
              "twenty seconds); tacit audit engine runs the whole one.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
@click.pass_context
def doctor(context: click.Context, /, full: bool, as_json: bool) -> None:
    """Checks this installation: packages, devices, the source of randomness, the engine.

    Takes some seconds, reads no data, and writes nothing.
    """
    found: list[Diagnosis] = []
    for one in _examined(full, shows=runs.shows_progress(as_json)):
        found.append(one)
        if not as_json:
            say(f"{_MARKS[one.state]}{one.what}: {one.detail}")
    sound = all(one.state != "fault" for one in found)
    if as_json:
        plain: dict[str, Any] = {"sound": sound, "findings": [asdict(one) for one in found]}
        say(json.dumps(plain, indent=2, ensure_ascii=False))
    else:
        say("Nothing is at fault." if sound else "Mend this before anything private is trained.")
    if not sound:
        context.exit(UNSOUND)


def _examined(full: bool, *, shows: bool) -> Iterator[Diagnosis]:
    yield from _packages()
    yield from _extras()
    if any(one.state == "fault" for one in _packages()):
        return  # what follows needs them
    yield _device()
    yield _randomness()
    yield _engine(full, shows=shows)


# ---- what is installed


def _packages() -> Iterator[Diagnosis]:
    """What tacit itself needs, by its own list."""
    yield Diagnosis("tacit", "sound", f"{__version__}, Python {platform.python_version()}")
    for name in _needed(None):
        version = _version(name)
        if version is None:
            yield Diagnosis(name, "fault", f"not installed: pip install {name}")
        elif name in ("torch", "numpy", "scipy"):
            yield Diagnosis(name, "sound", version)


def _extras() -> Iterator[Diagnosis]:
    known = metadata.metadata("tacit").get_all("Provides-Extra") or []
    for extra in sorted(set(known) - set(_OURS)):
        versions = {name: _version(name) for name in _needed(extra)}
        lacking = [name for name, version in versions.items() if version is None]
        if lacking:
            remedy = f"{', '.join(lacking)} not installed: pip install 'tacit[{extra}]'"
            yield Diagnosis(f"extra {extra}", "missing", remedy)
        else:
            shown = ", ".join(f"{name} {version}" for name, version in versions.items())
            yield Diagnosis(f"extra {extra}", "sound", shown)


def _needed(extra: str | None) -> list[str]:
    """The packages that an extra wants; those that are always wanted, for None."""
    found: list[str] = []
    for need in metadata.requires("tacit") or []:
        match = _NEED.fullmatch(need)
        if extra is None and match is None:
            found.append(re.split(r"[^\w.-]", need)[0])
        elif match is not None and match[2] == extra:
            found.append(match[1])
    return found


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


# ---- where it computes


def _device() -> Diagnosis:
    import torch

    cores = f"cores: {os.cpu_count()}, threads: {torch.get_num_threads()}"
    if not torch.cuda.is_available():
        return Diagnosis("device", "sound", f"CPU ({cores}); PyTorch sees no GPU")
    cards = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
    kernels = "Triton kernels" if _version("triton") else "no Triton: pip install 'tacit[gpu]'"
    return Diagnosis("device", "sound", f"{', '.join(cards)} ({kernels}); CPU ({cores})")


# ---- whether it can be trusted


def _randomness() -> Diagnosis:
    """The operating system's source, and the generator that is fed by it."""
    from tacit.randomness import fresh_stream

    try:
        drawn = fresh_stream("tacit doctor").bytes(1 << 16)
    except TacitError as error:
        return Diagnosis("randomness", "fault", str(error))
    ones = sum(byte.bit_count() for byte in drawn)
    away = abs(ones - 4 * len(drawn)) / (2 * len(drawn)) ** 0.5  # in standard deviations
    if away > 8.0:  # of a fair source with probability 1e-15
        share = f"{ones / (8 * len(drawn)):.4f} of the bits are ones"
        return Diagnosis("randomness", "fault", f"{share}; check /dev/urandom")
    return Diagnosis("randomness", "sound", "the system's entropy varies, and its bits are even")


def _engine(full: bool, *, shows: bool) -> Diagnosis:
    from tacit.training.progress import waiting

    with waiting(shows, "running the self-test"):
        return _quick() if full else _first()


def _first() -> Diagnosis:
    """The first checks of sums, and those of noise, in one setting."""
    from tacit.auditing.replay import replay, standard_settings

    setting = standard_settings()["linear"]
    reports = [replay(setting, scope=scope, seconds=SECONDS) for scope in FIRST]
    faults = [part for report in reports for part in report.at_fault]
    checks = sum(len(report.findings) for report in reports)
    if faults:
        named = ", ".join(dict.fromkeys(faults))
        return Diagnosis("self-test", "fault", f"the engine is at fault: {named}; {_MORE}")
    if not all(report.whole for report in reports):
        return Diagnosis("self-test", "missing", f"this machine is too slow for it; {_MORE}")
    return Diagnosis("self-test", "sound", f"{checks} checks found nothing; {_MORE}")


def _quick() -> Diagnosis:
    """What ``tacit audit engine --quick`` says."""
    from tacit.recipes.auditing.engine import audit_standard

    found = audit_standard(quick=True, processes=min(2, os.cpu_count() or 1))
    state: State = "fault" if found.contradicted else "sound"
    return Diagnosis("self-test", state, f"{found.words}; {_MORE}")
