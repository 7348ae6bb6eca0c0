"""Checks the files that ``pip install tacit`` gets: what is in them, and that they work.

    python tools/distribution.py dist                       what is inside
    python tools/distribution.py dist --try python3.12 …    also installed, in an empty environment

``--try`` installs the wheel alone with NumPy and SciPy, which is all that accounting and plans
need, into a new environment of each Python that is named, and asks there; then the whole, with
PyTorch and the command, for the Python that runs this script.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from email.message import Message

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "src/tacit/__init__.py").read_text())[1]  # type: ignore[index]
MACHINE = re.compile(rb"(?<![\w.])/(?:work|root|home|Users)/[\w.-]+")  # of whoever built it
AROUND = {"PKG-INFO", "pyproject.toml", ".gitignore"}  # what every source distribution has

ALONE = """
import sys, tacit
from tacit.accounting import Gaussian, PoissonSampled, Repeated, epsilon
found = epsilon(Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000), delta=1e-5)
assert abs(found - 0.9468668) < 1e-7, found
plan = tacit.Plan.for_budget(epsilon=2, delta=1e-5, examples=60_000, lot_size=600, epochs=100,
                             clip=4.0)
assert plan.epsilon(1e-5) <= 2, plan
assert "torch" not in sys.modules
print(tacit.__version__, f"answers {found:.7f} without PyTorch")
"""

WHOLE = """
import tacit, torch
x = torch.randn(200, 4)
data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
model = torch.nn.Linear(4, 2)
plan = tacit.Plan.for_budget(epsilon=3, delta=1e-4, examples=200, lot_size=20, epochs=1, clip=1.0)
budget = tacit.Ledger("sqlite:///budget.db").open("rows", epsilon=4, delta=1e-3)
done = tacit.fit(model, torch.optim.SGD(model.parameters(), lr=0.5), plan, data, budget, out="run")
print(tacit.__version__, f"trained with epsilon {done.statement.epsilon:.3f}")
"""

COMMANDS = ("--version", "doctor", "report run", "ledger verify --ledger budget.db")


# ---- what is inside


def problems(wheel: Path, source: Path) -> list[str]:
    """What is wrong with the two files; nothing, if they may be published."""
    inside, archive = _zipped(wheel), _packed(source)
    written, about = _written(), f"tacit-{VERSION}.dist-info/"
    package = {name: one for name, one in inside.items() if name.startswith("tacit/")}
    own = {name[4:]: one for name, one in archive.items() if name.startswith("src/")}
    rest = {name for name in inside if not name.startswith(("tacit/", about))}
    known = {"src", "docs", *(one.name for one in ROOT.glob("*.*")), "LICENSE", *AROUND}
    return [
        *_difference(f"{wheel.name}: tacit", package, written),
        *_difference(f"{source.name}: src/tacit", own, written),
        *(f"{wheel.name} holds {name}, which is not the package" for name in sorted(rest)),
        *(f"{source.name} holds {name}" for name in sorted(archive)
          if name.partition("/")[0] not in known),
        *_paths(wheel.name, inside),
        *_paths(source.name, archive),
        *_described(inside),
    ]  # fmt: skip


def _written() -> dict[str, bytes]:
    """The package as it lies in the source tree."""
    return {
        path.relative_to(ROOT / "src").as_posix(): path.read_bytes()
        for path in (ROOT / "src/tacit").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def _zipped(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


def _packed(source: Path) -> dict[str, bytes]:
    with tarfile.open(source) as file:
        return {
            one.name.partition("/")[2]: held.read()
            for one in file.getmembers()
            if (held := file.extractfile(one)) is not None
        }


def _difference(
    where: str, found: Mapping[str, bytes], wanted: Mapping[str, bytes]
) -> Iterator[str]:
    for name in sorted({*found, *wanted}):
        if name not in found:
            yield f"{where} lacks {name}"
        elif name not in wanted:
            yield f"{where} has {name}, which is not in the source tree"
        elif found[name] != wanted[name]:
            yield f"{where} has another {name} than the source tree"


def _paths(where: str, files: Mapping[str, bytes]) -> Iterator[str]:
    for name, content in sorted(files.items()):
        if (found := MACHINE.search(content)) is not None:
            yield f"{where}: {name} names {found[0].decode()}"


def _described(inside: Mapping[str, bytes]) -> Iterator[str]:
    """What the wheel says of itself, against pyproject.toml."""
    folder = f"tacit-{VERSION}.dist-info"
    said = message_from_bytes(inside.get(f"{folder}/METADATA", b""))
    wanted = {
        "Name": "tacit",
        "Version": VERSION,
        "Requires-Python": PROJECT["requires-python"],
        "License-Expression": PROJECT["license"],
        "Description-Content-Type": "text/markdown",
    }
    for field, value in wanted.items():
        if said[field] != value:
            yield f"the wheel's {field} is {said[field]}, not {value}"
    extras = {*PROJECT["optional-dependencies"]}
    if {*said.get_all("Provides-Extra", [])} != extras:
        yield f"the wheel's extras are {said.get_all('Provides-Extra')}, not {sorted(extras)}"
    if _needs(said) != {_plain(one) for one in PROJECT["dependencies"]}:
        yield f"the wheel needs {sorted(_needs(said))}, not {PROJECT['dependencies']}"
    commands = inside.get(f"{folder}/entry_points.txt", b"").decode()
    if f"tacit = {PROJECT['scripts']['tacit']}" not in commands:
        yield f"the wheel has no command tacit, but {commands!r}"
    if f"{folder}/licenses/LICENSE" not in inside:
        yield "the wheel has no licence"


def _needs(said: Message) -> set[str]:
    return {_plain(one) for one in said.get_all("Requires-Dist", []) if "extra ==" not in one}


def _plain(need: str) -> str:
    return need.replace(" ", "")


# ---- whether it works


def tried_alone(wheel: Path, python: str) -> str:
    """What accounting answers with NumPy and SciPy only, in an empty environment."""
    with tempfile.TemporaryDirectory(prefix="tacit-alone-") as folder:
        own = _environment(python, Path(folder))
        _pip(own, "numpy", "scipy")
        _pip(own, "--no-deps", str(wheel))
        return _run(folder, own, "-c", ALONE)


def tried_whole(wheel: Path) -> str:
    """What training and the command answer in an empty environment with every dependency."""
    with tempfile.TemporaryDirectory(prefix="tacit-whole-") as folder:
        own = _environment(sys.executable, Path(folder))
        _pip(own, str(wheel))
        said = _run(folder, own, "-W", "error::DeprecationWarning:tacit", "-c", WHOLE)
        for command in COMMANDS:
            _run(folder, own, "-m", "tacit", *command.split())
        return said


def _environment(python: str, folder: Path) -> str:
    subprocess.run([python, "-m", "venv", str(folder / "env")], check=True)
    return str(folder / "env/bin/python")


def _pip(python: str, *wanted: str) -> None:
    pins = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run(
        [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *pins, *wanted],
        check=True,
    )


def _run(folder: str, *command: str) -> str:
    """What a command prints, in a folder from which no source tree is in reach."""
    done = subprocess.run(
        [command[0], "-I", *command[1:]], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command[1:3])} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def _runs(python: str) -> bool:
    try:
        subprocess.run([python, "-c", ""], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--try", dest="pythons", nargs="*", metavar="PYTHON")
    asked = parser.parse_args()
    (wheel,), (source,) = asked.folder.glob("*.whl"), asked.folder.glob("*.tar.gz")
    if found := problems(wheel, source):
        raise SystemExit("\n".join(found))
    write = sys.stdout.write
    write(f"{wheel.name} and {source.name} hold what they should\n")
    if asked.pythons is None:
        return
    for python in asked.pythons:
        said = tried_alone(wheel, python) if _runs(python) else "not on this machine: not tried"
        write(f"{python}: {said}\n")
    write(f"{sys.executable}: {tried_whole(wheel)}\n")


if __name__ == "__main__":
    main()
