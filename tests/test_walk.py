"""The walk of a stranger: README and quick start, by the text alone, in an empty folder.

Every command is executed as it is printed, ``pip install`` too, and every block of Python is typed
at the prompt of the environment that pip installed into. It has the dependencies already, so that
no network is needed; ``make dist`` fills empty ones. Of ``make`` only the rules are looked up.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
import venv
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).parents[1]
README, QUICK_START = ROOT / "README.md", ROOT / "docs" / "quickstart.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PATIENCE = 600  # seconds
SETTINGS = "FILE, "  # the quick start's block that a reader is asked to change
OWN = """
FILE, SEPARATOR, DECIMAL = "shop.csv", ",", "."
NUMBERS = {"basket": (0, 500), "years": (0, 30)}
CHOICES = {"region": ["NA", "south", "west"]}
TARGET, CLASSES = "returns", [0, 1, 2]
HELD_OUT = 100
"""


@dataclass(frozen=True)
class Stranger:
    """An environment with everything but tacit, and a folder to work in."""

    programs: Path
    folder: Path
    wheels: Path

    @property
    def variables(self) -> dict[str, str]:
        """Nothing of the developer's own: pip finds tacit among the wheels, and nowhere else."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PIP_", "PYTHON", "COVERAGE")) and name != "COLUMNS"
        }
        return kept | {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_COMPILE": "1",  # what is imported is compiled then
        }

    def run(self, line: str) -> str:
        """What a line of the shell prints; it must succeed."""
        done = subprocess.run(
            ["/bin/sh", "-c", line], cwd=self.folder, env=self.variables, capture_output=True,
            text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout


class Prompt:
    """Python's own prompt, at which a reader types."""

    _MARK = "### that was a block ###"

    def __init__(self, stranger: Stranger) -> None:
        self._errors = stranger.folder / "prompt.txt"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                ["python", "-i", "-q"], cwd=stranger.folder, env=stranger.variables, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                executable=str(stranger.programs / "python"),
            )  # fmt: skip

    def paste(self, code: str) -> str:
        """What the block prints."""
        self._stdin.write(f"{code}\n\nprint({self._MARK!r})\n")
        self._stdin.flush()
        printed = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == self._MARK:
                break
            printed.append(line)
        said = self._errors.read_text(encoding="utf-8")
        assert "Error" not in said, f"{code}\n{said}"
        return "".join(printed)

    @property
    def _stdin(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    def leave(self) -> None:
        """Ends Python."""
        self._process.communicate("exit()\n", timeout=PATIENCE)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with pip and all packages of this one, less tacit; and tacit's wheel."""
    if find_spec("pip") is None:
        pytest.skip("pip is not in this environment")
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False)
    shelf = home / "shelf"
    shelf.mkdir()
    for name in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for one in Path(name).iterdir():
            if "tacit" not in one.name.lower() and not (shelf / one.name).exists():
                (shelf / one.name).symlink_to(one)
    own = next((home / "lib").glob("python*/site-packages"))
    (own / "shelf.pth").write_text(f"{shelf}\n")
    pip = home / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec "{home}/bin/python" -m pip "$@"\n')
    pip.chmod(0o755)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(home / "wheels")],
        cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE,
    )  # fmt: skip
    return home


@pytest.fixture
def stranger(environment: Path, tmp_path: Path) -> Stranger:
    return Stranger(environment / "bin", tmp_path, environment / "wheels")


def follow(page: Path, stranger: Stranger, own: str | None = None) -> str:
    """Does what the page says, with a reader's own settings in place of the page's if given."""
    prompt, printed = None, ""
    for language, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            prompt = prompt or Prompt(stranger)
            replaced = own is not None and code.startswith(SETTINGS)
            printed += prompt.paste(own if own is not None and replaced else code)
        elif language == "bash":
            printed += "".join(carry_out(line, stranger) for line in code.splitlines())
    assert prompt is not None
    home = prompt.paste("print(tacit.__file__)")
    assert str(stranger.programs.parent) in home, "another tacit than the one that pip installed"
    prompt.leave()
    return printed


def carry_out(line: str, stranger: Stranger) -> str:
    program, *given = shlex.split(line, comments=True) or [""]
    if program == "make":
        rules = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{given[0]}:", rules, re.MULTILINE), line
        return ""
    assert program in ("tacit", "pip", ""), f"{line}: a stranger may not have this program"
    return stranger.run(line)


def shown(page: Path, containing: str) -> str:
    """What the page says is printed."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    (text,) = (text for kind, text in found if kind == "text" and containing in text)
    return str(text)


def test_extras_that_pages_name_are_the_packages() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pages = [README, *(ROOT / "docs").glob("*.md")]
    texts = " ".join(page.read_text(encoding="utf-8") for page in pages)
    named = {extra for many in re.findall(r"tacit\[([\w,]+)\]", texts) for extra in many.split(",")}
    assert {"hf", "plots", "sklearn", "ui"} <= named <= set(package["optional-dependencies"])


def test_the_readme_ends_in_a_report_and_says_what_is_printed(stranger: Stranger) -> None:
    printed = follow(README, stranger)
    runs = stranger.folder.glob("runs/*/report.html")
    assert {"first", "digits"} == {run.parent.name for run in runs}
    last = re.search(r"^epoch 5  step 100  held-out ([\d.]+)%  ε 3$", printed, re.MULTILINE)
    assert last
    assert float(last[1]) > 85
    assert re.sub(r"[\d.]+%", last[1] + "%", shown(README, "held-out")) in printed


def test_the_quick_start_ends_in_a_report_and_a_budget(stranger: Stranger) -> None:
    printed = follow(QUICK_START, stranger)
    assert (stranger.folder / "runs" / "people" / "report.html").is_file()
    assert shown(QUICK_START, "Poisson sample") in printed
    last = re.search(r"^epoch 10  step 100  held-out ([\d.]+)%  ε 2$", printed, re.MULTILINE)
    assert last
    assert float(last[1]) > 80
    left = float(shown(QUICK_START, "5.9"))
    assert float(printed.splitlines()[-1]) == pytest.approx(left, rel=1e-6)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_quick_start_takes_a_csv_of_ones_own(folder: Path) -> None:
    """Other columns, three classes; values missing, out of range and no numbers, labels missing."""
    lines = ["basket,years,region,returns,ignored"]
    odd = ["", "n/a", "-3", "1e9"]
    for at in range(1_400):
        basket = odd[at % 4] if at % 50 == 0 else str(at % 490)
        region = ("NA", "south", "west", "elsewhere", "")[at % 5]
        lines.append(f"{basket},{at % 29},{region},{(at % 490) // 170},x{at}")
    lines += ["1,2,south,,without a label"] * 9
    (folder / "shop.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    names: dict[str, object] = {}
    blocks = [code for kind, code in BLOCK.findall(QUICK_START.read_text()) if kind == "python"]
    for code in blocks[:-1]:  # the last is about a budget, which the shell makes
        exec(compile(OWN if code.startswith(SETTINGS) else code, "quickstart.md", "exec"), names)
    assert names["x"].shape == (1_400, 5)  # type: ignore[attr-defined]
    assert bool(names["x"].isfinite().all())  # type: ignore[attr-defined]
    assert names["x"][:, 2:].sum(0).tolist() == [280.0] * 3  # type: ignore[index]
    assert names["y"].unique().tolist() == [0, 1, 2]  # type: ignore[attr-defined]
    assert (folder / "runs" / "people" / "statement.json").is_file()
    (folder / "shop.csv").write_text(lines[0] + "\n1,2,south,many,x\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="a label is none of CLASSES"):
        exec(compile(blocks[2], "quickstart.md", "exec"), names)
    (folder / "shop.csv").write_text(lines[0].replace(",", ";") + "\n1;2;south;1;x\n", "utf-8")
    with pytest.raises(AssertionError, match=r"has no column \{.*, but \['basket;years;region"):
        exec(compile(blocks[2], "quickstart.md", "exec"), names)


def test_the_quick_start_takes_a_spreadsheet_with_semicolons_and_commas(folder: Path) -> None:
    """Only the five lines are changed, as the page says; a wrong one is named."""
    lines = ["höhe;krank;notiz", *(f"1,{at % 90:02d};{at % 2};a; b" for at in range(40))]
    (folder / "messwerte.csv").write_text("\n".join(lines).replace("a; b", '"a; b"'), "utf-8-sig")
    blocks = [code for kind, code in BLOCK.findall(QUICK_START.read_text()) if kind == "python"]
    own = """
FILE, SEPARATOR, DECIMAL = "messwerte.csv", ";", ","
NUMBERS = {"höhe": (1, 2)}
CHOICES = {}
TARGET, CLASSES = "krank", [0, 1]
HELD_OUT = 10
"""
    names: dict[str, object] = {}
    exec(own + blocks[2], names)
    assert names["x"].shape == (40, 1)  # type: ignore[attr-defined]
    assert names["x"][7].item() == pytest.approx(2 * 0.07 - 1)  # type: ignore[index]
    with pytest.raises(AssertionError, match="holds no numbers: is DECIMAL right"):
        exec(own.replace('";", ","', '";", "."') + blocks[2], {})
    with pytest.raises(AssertionError, match="is SEPARATOR right"):
        exec(own.replace('";", ","', '",", ","') + blocks[2], {})
