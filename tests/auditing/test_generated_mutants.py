"""Mutants made by rule: where they are, that they run, and what the oracle says of known ones."""

from __future__ import annotations

import ast
import time
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SOURCE = '''"""Words of a module: 1 + 1."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

__all__ = ["f"]
LIMIT = 3


def f(x: "list[1]", n: int = 2) -> int:
    """Words of a function: 2 + 2."""
    if x is None:
        raise ValueError(f"x must be {1 + 1}, got {n + 1}")
    total = x[:n].sum(1)
    total = total * 2.0
    print(total, n)
    return total if n < 3 else -total
'''


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Any:
    if not (ROOT / "benchmarks").is_dir():
        pytest.skip("the benchmarks are in the repository only")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("mutation"), import_module("generated_mutants")


def test_every_kind_of_slip_is_made_and_words_are_left_alone(modules: Any) -> None:
    mutation, _ = modules
    found = list(mutation.sites("m.py", SOURCE))
    edits = {(one.kind, one.before, one.after) for one in found}
    assert ("operator", "*", "/") in edits
    assert ("constant", "2.0", "(2.0 * 0.9)") in edits
    assert ("condition", "<", "<=") in edits
    assert ("condition", "x is None", "not (x is None)") in edits
    assert ("off by one", "n", "(n) + 1") in edits
    assert ("off by one", "2", "3") in edits  # the default, run at import
    assert ("axis", "1", "0") in edits
    assert ("dropped statement", "print(total, n)", "pass") in edits
    assert ("stale value", "total = total * 2.0", "total = total") in edits
    assert ("dropped call", "x[:n].sum(1)", "x[:n]") in edits
    assert ("other function", "sum", "mean") in edits
    assert ("swapped arguments", "total, n", "n, total") in edits
    assert any(one.kind == "dropped check" and one.before.startswith("raise") for one in found)
    assert any(one.kind == "swapped statements" for one in found)
    lines = Counter(one.line for one in found)
    assert not {1, 5, 6, 8, 13} & set(lines)
    assert lines[15] == 1, "of a raise only the whole is dropped"
    assert all(one.inside == "" for one in found if one.line in (9, 12))


def test_every_edit_compiles_and_changes_the_program(modules: Any) -> None:
    mutation, _ = modules
    for one in mutation.sites("m.py", SOURCE):
        assert mutation.compiles(one, SOURCE), one
        assert ast.dump(ast.parse(one.applied(SOURCE))) != ast.dump(ast.parse(SOURCE)), one


@pytest.mark.slow
def test_a_sample_is_the_same_each_time_and_spread_over_files_and_kinds(modules: Any) -> None:
    mutation, _ = modules
    taken = mutation.sample(500, 0)
    assert [one.name for one in taken] == [one.name for one in mutation.sample(500, 0)]
    assert len({one.name for one in taken}) == 500
    assert len({one.file for one in taken}) >= 0.8 * len(mutation.files())
    kinds = Counter(one.kind for one in taken)
    assert set(kinds) == set(mutation.KINDS)
    assert max(kinds.values()) <= 100


# ---- the oracle

CLIPPING = "src/tacit/training/clipping/sums.py"
SESSION = "src/tacit/training/session.py"
KNOWN = [
    ("norms at half", CLIPPING, "* (1.0 + slack)", "* (0.5 + slack)", ["sum: dense"], "relevant"),
    ("a tenth less noise", SESSION, "scale=self._clip.noise_scale",
     "scale=0.9 * self._clip.noise_scale", ["noise: fast"], "relevant"),
    ("twice the rate", "src/tacit/training/sampling.py", "self._rate = plan.sample_rate",
     "self._rate = 2 * plan.sample_rate", ["sampling: rare"], "relevant"),
    ("no charge", SESSION, "if not self._charges.take():", "if False:", ["ledger: a run"],
     "relevant"),
    ("a seed that is not told", "src/tacit/training/claim.py",
     "(*assumptions, _SEEDED) if run.unsafe", "(*assumptions, _SEEDED) if False",
     ["seeded runs"], "relevant"),
    ("nothing", "src/tacit/training/noise.py", "del clip\n        if", "pass\n        if",
     ["noise: fast"], "equivalent"),
    ("a check that is gone", "src/tacit/training/guards.py",
     "if bool((parameter.grad != 0).any()):", "if False:", ["refused: a gradient by hand"],
     "relevant"),
    ("a tenth more noise", SESSION, "scale=self._clip.noise_scale",
     "scale=1.1 * self._clip.noise_scale", ["noise: fast"], "harmless"),
    ("a tighter clip", CLIPPING, "* (1.0 + slack)", "* (1.5 + slack)", ["sum: dense"], "harmless"),
    ("an error", SESSION, "guard.check_before_step()\n        draw", "draw.none()\n        draw",
     ["sum: dense"], "harmless"),
]  # fmt: skip


def mutant_of(mutation: Any, file: str, before: str, after: str) -> Any:
    source = (ROOT / file).read_text()
    assert source.count(before) == 1, f"{file} must hold {before!r} once"
    start = len(source[: source.index(before)].encode())
    line = source[: source.index(before)].count("\n") + 1
    stop = start + len(before.encode())
    return mutation.Mutant(file, line, "by hand", before, after, start, stop, (line, line), "f")


def observed(generated: Any, mutant: Any, names: list[str], folder: Path) -> Iterator[Any]:
    with generated.laid_out(mutant, folder) as place:
        work = lambda say: generated.run_law(names, say, stop=False)  # noqa: E731
        outcome = yield generated.Task(work, place, 60.0)
    return {one["experiment"]: one["seen"] for one in outcome.lines}


@pytest.mark.parametrize(
    "titles",
    [
        {"norms at half", "a tighter clip"},
        pytest.param({title for title, *_ in KNOWN}, marks=pytest.mark.slow),
    ],
    ids=["two", "all"],
)
def test_the_oracle_knows_what_breaks_the_law(
    modules: Any, tmp_path: Path, titles: set[str]
) -> None:
    mutation, generated = modules
    law = import_module("release_law")
    crew = generated.Crew(2, tmp_path)
    known = [one for one in KNOWN if one[0] in titles]
    names = sorted({name for *_, some, _ in known for name in some})
    jobs = [("right", observed(generated, None, names, tmp_path))]
    for title, file, before, after, some, _ in known:
        mutant = mutant_of(mutation, file, before, after)
        jobs.append((title, observed(generated, mutant, some, tmp_path)))
    seen = dict(crew.work(jobs, time.time() + 300))
    right = seen["right"]
    assert not any(one["faults"] or one["error"] for one in right.values()), right
    found = {title: law.classify(right, seen[title]) for title, *_ in known}
    assert {title: found[title][0] for title in found} == {t: kind for t, *_, kind in known}, found


def test_a_hang_is_ended_and_a_crash_is_told(modules: Any, tmp_path: Path) -> None:
    _, generated = modules

    def one(work: Any) -> Iterator[Any]:
        outcome = yield generated.Task(work, tmp_path, 0.3)
        return outcome.ended, outcome.last("said")

    def said(say: Any) -> None:
        say({"said": 1})
        time.sleep(30)

    def crashed(_: Any) -> None:
        raise RuntimeError

    jobs = [("hang", one(said)), ("crash", one(crashed)), ("well", one(lambda _: None))]
    done = dict(generated.Crew(3, tmp_path).work(jobs, time.time() + 60))
    assert done == {"hang": ("hang", 1), "crash": ("crash", None), "well": ("well", None)}
