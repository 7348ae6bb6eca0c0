"""Every Python block of the guide runs as it stands, and says what it says; no link is dead.

README and quick start are walked through in ``test_walk``.
"""

from __future__ import annotations

import codeop
import re
import runpy
import shlex
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
import pytest

from tacit.cli.program import program

ROOT = Path(__file__).parent.parent
PAGES = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
WALKED = "quickstart.md"  # by test_walk, with its commands
LINKED = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
LINK = re.compile(r"\]\(([^)\s]+)\)")
ORPHAN = "---\norphan: true"  # how Sphinx is to understand that a page is in no list
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)`: `(test_\w+)`")
SHOWN = re.compile(r"^(?P<code>[^#\n]+?)\s+#\s+(?P<value>-?\d[\d.]*)(?P<cut>…?)$")


def blocks(page: Path, language: str) -> list[str]:
    return [code for found, code in BLOCK.findall(page.read_text()) if found == language]


def check(code: str, names: dict[str, object]) -> None:
    """Runs a block; a line that ends in a comment with a number must come to that number."""
    exec(compile(code, "a page", "exec"), names)
    for line in code.splitlines():
        if match := SHOWN.match(line):
            unit = 10.0 ** -len(match["value"].partition(".")[2])
            value: Any = eval(match["code"].split(" = ")[-1], names)
            off = float(value) - float(match["value"])  # rounded, or cut where an ellipsis says so
            assert -1e-9 <= off < unit if match["cut"] else abs(off) <= 0.5001 * unit, line


def test_the_readme_is_short_and_begins_with_ten_lines():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    (example,) = blocks(ROOT / "README.md", "python")
    assert len([line for line in example.splitlines() if line]) == 10
    assert text.index("pip install tacit") < text.index("```python")


def test_no_link_is_dead():
    """Files that are linked are there, and so is the heading that a link names."""
    dead = []
    for page in LINKED:
        for target in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
            path, _, heading = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if "://" in target or target.startswith("mailto:"):
                continue
            if not file.exists() or (heading and heading not in anchors(file)):
                dead.append(f"{page.relative_to(ROOT)}: {target}")
    assert dead == []


def anchors(page: Path) -> set[str]:
    """As GitHub and MyST name headings: small letters, dashes for spaces, no punctuation."""
    heads = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def test_the_lines_for_loggers_log_an_epoch():
    """A logger that is not installed is stood in for; the lines are the page's own."""
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [\w& ]+ \| `(.+)` \| `(lambda one: .+)` \|$", page, re.MULTILINE)
    loggers = {name: Mock() for name in ("SummaryWriter", "mlflow", "wandb")}
    one = Mock(steps=7, numbers=lambda: {"epsilon": 1.5})
    assert len(rows) == len(loggers)
    for before, on_epoch in rows:
        names: dict[str, Any] = dict(loggers)
        exec(before, names)
        eval(on_epoch, names)(one)
    loggers["SummaryWriter"]().add_scalar.assert_called_once_with("epsilon", 1.5, 7)
    for logger in (loggers["mlflow"].log_metrics, loggers["wandb"].log):
        logger.assert_called_once_with({"epsilon": 1.5}, step=7)


def test_every_page_is_in_the_index():
    listed = re.findall(r"^(\w+)$", (ROOT / "docs" / "index.md").read_text(), re.MULTILINE)
    alone = [page for page in PAGES if (ROOT / "docs" / page).read_text().startswith(ORPHAN)]
    assert sorted([f"{name}.md" for name in listed] + alone) == sorted({*PAGES} - {"index.md"})


def test_the_pictures_of_the_words_are_as_drawn(tmp_path):
    runpy.run_path(str(ROOT / "tools" / "pictures.py"))["main"](tmp_path)
    drawn = {path.name: path.read_text() for path in tmp_path.glob("*.svg")}
    assert len(drawn) == 4
    assert drawn == {name: (ROOT / "docs" / "figures" / name).read_text() for name in drawn}


def timed(page: str) -> Any:
    """Audits take their time, also the small ones of their page."""
    return pytest.param(page, marks=pytest.mark.slow) if page == "auditing.md" else page


@pytest.mark.parametrize("page", [timed(page) for page in PAGES if page != WALKED])
def test_guide_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}  # a page's blocks build on one another
    for code in blocks(ROOT / "docs" / page, "python"):
        check(code, names)


def refused_at_the_prompt(code: str) -> str | None:
    """The line at which Python's prompt ends a pasted block in an error of syntax, if one does.

    The prompt of 3.11 and 3.12 takes a block line by line: a compound statement ends with an empty
    line, and with nothing else.
    """
    understands, waiting = codeop.CommandCompiler(), list[str]()
    for line in [*code.splitlines(), ""]:
        waiting.append(line)
        try:
            if understands("\n".join(waiting), "<stdin>", "single") is not None:
                waiting = []
        except SyntaxError:
            return line
    return None


def test_every_block_can_be_pasted_at_the_prompt():
    pasted = [(page, code) for page in PAGES for code in blocks(ROOT / "docs" / page, "python")]
    assert len(pasted) > 100
    assert {page: line for page, code in pasted if (line := refused_at_the_prompt(code))} == {}
    assert refused_at_the_prompt("for x in y:\n    pass\nprint(x)\n") == "print(x)"
    assert refused_at_the_prompt("def f():\n    x = 1\n\n    return x\n") == "    return x"


def shell_lines(page: Path) -> list[str]:
    """What a page has for the shell: fenced, or indented by four."""
    text = page.read_text(encoding="utf-8")
    fenced = [code for kind, code in BLOCK.findall(text) if kind in ("bash", "sh", "console")]
    indented = re.findall(
        r"^    ((?:tacit|python|torchrun) .+)$", FENCED.sub("", text), re.MULTILINE
    )
    joined = "\n".join([*fenced, *indented]).replace("\\\n", " ")
    return re.split(r"; |\n", re.sub(r"^\$ ", "", joined, flags=re.MULTILINE))


def understood(words: list[str]) -> None:
    """Parses a command as the shell would hand it over, and does not run it."""
    command: click.Command = program
    context = command.make_context("tacit", list(words))
    while isinstance(command, click.Group) and words:
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command, context = found, found.make_context(name, list(words), parent=context)


def test_commands_on_pages_are_understood():
    """Those of the first pages are run by ``test_walk``, others need data sets or a GPU."""
    seen = set()
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for line in shell_lines(page):
            words = shlex.split(line, comments=True)
            if words[:1] == ["tacit"] and words[1] != "--version":
                understood(words[1:])
                seen.add(words[1])
            elif words[:1] == ["python"] and words[1].endswith(".py"):
                assert (ROOT / words[1]).is_file(), f"{page.name}: {line}"
    assert {"audit", "data", "doctor", "ledger", "plan", "report", "train", "transfer"} <= seen
    with pytest.raises(click.UsageError):
        understood(["plan", "--epsilom", "3"])
    with pytest.raises(click.UsageError):
        understood(["ledger", "opened", "people"])


def test_links_out_of_the_docs_are_made_to_files():
    """Sphinx knows pages only: a link to another file of Markdown becomes one to the file."""
    record = runpy.run_path(str(ROOT / "docs" / "conf.py"))["RECORD"]
    for page in PAGES:
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert re.findall(r"\]\(\.\./[^)]*\.md[)#]", record.sub("", text)) == [], page


def test_the_tests_that_the_pages_name_exist():
    named = [
        (path, name)
        for page in PAGES
        for path, name in TEST.findall((ROOT / "docs" / page).read_text())
    ]
    assert named
    for path, name in named:
        source = ROOT / "tests" / path
        assert source.exists(), path
        assert f"def {name}(" in source.read_text(), f"{path}: {name}"
