"""Mutants made by rule: every place of some source files where a small slip is possible.

A mutant is one edit of one file. ``sites`` finds all edits of a source, ``sample`` takes a fixed
choice of them over several files, evenly over files and kinds, and ``overlay`` lays out a copy of
the repository, of links, in which that file is the edited one: whoever has ``src`` of the copy
first on its path runs the mutant, in processes that it starts as well.
"""

from __future__ import annotations

import ast
import os
import random
import re
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
# The rooms whose slips break a guarantee: training, randomness, charging and claiming.
FILES = (
    "src/tacit/training/**/*.py",
    "src/tacit/randomness/**/*.py",
    "src/tacit/ledger/budget.py",
    "src/tacit/ledger/reservation.py",
    "src/tacit/ledger/composition.py",
    "src/tacit/statement/claim.py",
)
KINDS = (
    "operator", "constant", "condition", "off by one", "axis", "dropped statement",
    "dropped check", "swapped statements", "swapped arguments", "stale value", "dropped call",
    "other function",
)  # fmt: skip

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "/", ast.Mod: "//",
    ast.Pow: "*", ast.BitAnd: "|", ast.BitOr: "&", ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">="), ast.LtE: ("<", ">"), ast.Gt: (">=", "<="), ast.GtE: (">", "<"),
    ast.Eq: ("!=",), ast.NotEq: ("==",), ast.Is: ("is not",), ast.IsNot: ("is",),
    ast.In: ("not in",), ast.NotIn: ("in",),
}  # fmt: skip
_OTHER_FUNCTIONS = {
    "min": "max", "max": "min", "ceil": "floor", "floor": "ceil", "any": "all", "all": "any",
    "zeros": "ones", "ones": "zeros", "sum": "mean", "mean": "sum", "argmin": "argmax",
    "sin": "cos", "cos": "sin", "log": "log1p", "log1p": "log", "exp": "expm1", "expm1": "exp",
    "zeros_like": "ones_like", "randn": "zeros", "sorted": "list", "amax": "amin", "add_": "sub_",
    "mul_": "div_", "maximum": "minimum", "minimum": "maximum",
}  # fmt: skip
_AXIS_NAMES = {"dim", "axis", "dims", "start_dim", "end_dim"}
_AXIS_METHODS = {
    "sum", "mean", "amax", "amin", "max", "min", "all", "any", "cumsum", "flatten", "unsqueeze",
    "squeeze", "transpose", "movedim", "softmax", "cat", "stack", "diagonal", "unflatten", "split",
    "size", "norm", "vector_norm", "index_select", "repeat_interleave", "narrow", "chunk",
}  # fmt: skip
_KEPT_CALLS = {"super", "cast", "final", "field"}
_SKIPPED_FUNCTIONS = {"__repr__", "__reduce__"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One edit: the characters from ``start`` to ``stop`` of ``file`` become ``after``.

    ``lines`` are those of the statement that holds it. ``inside`` is the function that it is in,
    or empty: then it is run when the module is imported.
    """

    file: str
    line: int
    kind: str
    before: str
    after: str
    start: int
    stop: int
    lines: tuple[int, int]
    inside: str

    @property
    def name(self) -> str:
        """What it is known by: the place, and what is there instead."""
        return f"{self.file}:{self.line} [{self.kind}] {self.start}: {self.after}"

    def applied(self, source: str) -> str:
        """The source with the edit; characters are counted in bytes of UTF-8, as in ``ast``."""
        raw = source.encode()
        return (raw[: self.start] + self.after.encode() + raw[self.stop :]).decode()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"name": self.name}


def files(root: Path = ROOT) -> list[str]:
    """The files of the rooms, as paths from the root."""
    found = {path for pattern in FILES for path in root.glob(pattern)}
    return sorted(str(path.relative_to(root)) for path in found)


def sample(count: int, seed: int, root: Path = ROOT) -> list[Mutant]:
    """``count`` mutants: as many of a file as its share of all sites, its kinds in turn."""
    choice = random.Random(seed)
    sources = {name: (root / name).read_text() for name in files(root)}
    by_file = {name: list(sites(name, source)) for name, source in sources.items()}
    total = sum(map(len, by_file.values()))
    shares = {name: count * len(found) / total for name, found in by_file.items()}
    quota = {name: int(share) for name, share in shares.items()}
    for name in sorted(shares, key=lambda one: (quota[one] - shares[one], one)):
        if sum(quota.values()) >= min(count, total):
            break
        quota[name] += 1
    taken = [
        one
        for name, found in by_file.items()
        for one in _in_turn(found, quota[name], choice, sources[name])
    ]
    choice.shuffle(taken)
    return taken


def _in_turn(found: list[Mutant], count: int, choice: random.Random, source: str) -> list[Mutant]:
    kinds: dict[str, list[Mutant]] = defaultdict(list)
    for one in found:
        kinds[one.kind].append(one)
    for group in kinds.values():
        choice.shuffle(group)
    order = sorted(kinds)
    choice.shuffle(order)
    taken: list[Mutant] = []
    while len(taken) < count and any(kinds.values()):
        for kind in order:
            if kinds[kind] and len(taken) < count:
                one = kinds[kind].pop()
                if compiles(one, source):
                    taken.append(one)
    return taken


def compiles(mutant: Mutant, source: str) -> bool:
    """Whether the edited file is still a program."""
    try:
        compile(mutant.applied(source), mutant.file, "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def sites(file: str, source: str) -> Iterator[Mutant]:
    """Every edit of one file that is no edit of words; few of them do not compile."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    seen: set[str] = set()
    for one in finder.found:
        if one.name not in seen and one.before != one.after:
            seen.add(one.name)
            yield one


class _Finder(ast.NodeVisitor):
    """Walks a module; what is only read by people is passed over."""

    def __init__(self, file: str, source: str) -> None:
        self.file, self.raw = file, source.encode()
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line.encode()))
        self.found: list[Mutant] = []
        self.statement: ast.stmt | None = None
        self.function = ""
        self.assigned: set[str] = set()

    # ---- places

    def place(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def span(self, node: Any) -> tuple[int, int]:
        return (
            self.place(node.lineno, node.col_offset),
            self.place(node.end_lineno, node.end_col_offset),
        )

    def text(self, node: ast.AST) -> str:
        start, stop = self.span(node)
        return self.raw[start:stop].decode()

    def add(self, kind: str, node: Any, after: str, span: tuple[int, int] | None = None) -> None:
        start, stop = span or self.span(node)
        before = self.raw[start:stop].decode()
        held = self.statement or node
        self.found.append(
            Mutant(
                self.file, node.lineno, kind, before, after, start, stop, _lines(held),
                self.function,
            )
        )  # fmt: skip

    def between(self, left: ast.AST, right: ast.AST, pattern: str) -> tuple[int, int] | None:
        """Where an operator stands, between its operands."""
        start, stop = self.span(left)[1], self.span(right)[0]
        match = re.search(pattern, self.raw[start:stop].decode())
        if match is None:
            return None
        gap = self.raw[start:stop].decode()
        before, until = (len(gap[:at].encode()) for at in match.span())
        return start + before, start + until

    # ---- statements

    def visit_Module(self, node: ast.Module) -> None:
        self.body(node.body)

    def body(self, statements: Sequence[ast.stmt]) -> None:
        for at, one in enumerate(statements):
            if at + 1 < len(statements) and self.function:
                self.swap(one, statements[at + 1])
            outer = self.statement
            self.statement = one
            self.one_statement(one)
            self.statement = outer

    def one_statement(self, one: ast.stmt) -> None:
        match one:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.one_function(one)
            case ast.ClassDef():
                self.body(one.body)
            case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Global():
                return  # a docstring, or nothing of ours
            case ast.Raise():
                self.drop("dropped check", one)
            case ast.Assert():
                self.drop("dropped check", one)
                self.visit(one.test)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return
            case _:
                self.compound_or_simple(one)

    def one_function(self, one: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if one.name in _SKIPPED_FUNCTIONS:
            return
        for default in [*one.args.defaults, *one.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        outer, known = self.function, self.assigned
        self.function = f"{outer}.{one.name}" if outer else one.name
        self.assigned = {argument.arg for argument in [*one.args.args, *one.args.kwonlyargs]}
        self.body(one.body)
        self.function, self.assigned = outer, known

    def compound_or_simple(self, one: ast.stmt) -> None:
        match one:
            case ast.Assign(targets=[ast.Name(id="__all__")]):
                return
            case ast.AnnAssign():
                if one.value is not None:
                    self.visit(one.value)
                    self.stale(one, one.target, one.value)
            case ast.Assign():
                self.visit(one.value)
                for target in one.targets:
                    if isinstance(target, ast.Subscript):
                        self.visit(target.slice)
                if len(one.targets) == 1:
                    self.stale(one, one.targets[0], one.value)
            case ast.AugAssign():
                self.augmented(one)
            case ast.Expr():
                self.drop("dropped statement", one)
                self.visit(one.value)
            case ast.Break() | ast.Continue():
                self.drop("dropped statement", one)
            case ast.Return():
                if one.value is None:
                    self.drop("dropped statement", one)
                else:
                    self.visit(one.value)
            case _:
                self.compound(one)

    def compound(self, one: ast.stmt) -> None:
        if isinstance(one, ast.If | ast.While):
            if isinstance(one, ast.If):
                self.add("condition", one.test, f"not ({self.text(one.test)})")
            self.visit(one.test)
        elif isinstance(one, ast.For):
            self.visit(one.iter)
        elif isinstance(one, ast.With):
            for item in one.items:
                self.visit(item.context_expr)
        elif isinstance(one, ast.Match):
            self.visit(one.subject)
            for case in one.cases:
                if case.guard is not None:
                    self.add("condition", case.guard, f"not ({self.text(case.guard)})")
                    self.visit(case.guard)
                self.body(case.body)
            return
        for name in ("body", "orelse", "finalbody"):
            self.body(getattr(one, name, []))
        for handler in getattr(one, "handlers", []):
            self.body(handler.body)

    def drop(self, kind: str, one: ast.stmt) -> None:
        if self.function:
            self.add(kind, one, "pass")

    def swap(self, first: ast.stmt, second: ast.stmt) -> None:
        simple = ast.Assign | ast.AugAssign | ast.Expr | ast.AnnAssign
        if not (isinstance(first, simple) and isinstance(second, simple)):
            return
        if _is_docstring(first) or first.lineno == second.lineno or not _linked(first, second):
            return
        indent = " " * first.col_offset
        outer, self.statement = self.statement, first
        span = (self.span(first)[0], self.span(second)[1])
        after = f"{self.text(second)}\n{indent}{self.text(first)}"
        self.add("swapped statements", first, after, span)
        self.statement = outer

    def stale(self, one: ast.stmt, target: ast.expr, value: ast.expr) -> None:
        """The value from before instead of the new one."""
        if not self.function:
            return
        if isinstance(target, ast.Attribute) and not self.function.endswith("__init__"):
            self.add("stale value", one, f"{self.text(target)} = {self.text(target)}")
        if isinstance(target, ast.Name):
            used = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
            if target.id in used or target.id in self.assigned:
                self.add("stale value", one, f"{target.id} = {target.id}")
            self.assigned.add(target.id)

    def augmented(self, one: ast.AugAssign) -> None:
        self.drop("dropped statement", one)
        other = _OPERATORS.get(type(one.op))
        if other is not None:
            span = self.between(one.target, one.value, r"[^\s=()]+(?==)")
            if span is not None:
                self.add("operator", one, other, span)
        self.visit(one.value)

    # ---- expressions

    def visit_Raise(self, _: ast.Raise) -> None:
        return

    def visit_JoinedStr(self, _: ast.JoinedStr) -> None:
        return

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = _OPERATORS.get(type(node.op))
        is_text = any(isinstance(side, ast.JoinedStr) for side in (node.left, node.right))
        if other is not None and not is_text:
            span = self.between(node.left, node.right, r"\*\*|//|<<|>>|[-+*/%&|]")
            if span is not None:
                self.add("operator", node, other, span)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.USub | ast.Not | ast.Invert):
            kind = "condition" if isinstance(node.op, ast.Not) else "operator"
            self.add(kind, node, f"({self.text(node.operand)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for at, operator in enumerate(node.ops):
            pattern = r"is\s+not|not\s+in|is|in|[<>=!]=?"
            span = self.between(sides[at], sides[at + 1], pattern)
            for other in _COMPARISONS[type(operator)] if span is not None else ():
                self.add("condition", node, other, span)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            span = self.between(left, right, old)
            if span is not None:
                self.add("condition", node, new, span)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        body, test, other = (self.text(part) for part in (node.body, node.test, node.orelse))
        self.add("condition", node, f"{other} if {test} else {body}")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for one in node.ifs:
            self.add("condition", one, "True")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self.add("constant", node, str(not value))
        elif isinstance(value, int):
            self.add("off by one", node, str(value + 1))
            self.add("off by one", node, f"({value - 1})")
        elif isinstance(value, float) and value != 0.0:
            self.add("constant", node, f"({self.text(node)} * 1.1)")
            self.add("constant", node, f"({self.text(node)} * 0.9)")
            self.add("constant", node, f"({self.text(node)} * 2)")
        elif isinstance(value, float):
            self.add("constant", node, "1.0")

    def visit_Slice(self, node: ast.Slice) -> None:
        for bound in (node.lower, node.upper):
            if bound is not None and not isinstance(bound, ast.Constant):
                self.add("off by one", bound, f"({self.text(bound)}) + 1")
                self.add("off by one", bound, f"({self.text(bound)}) - 1")
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.visit(node.value)
        self.visit(node.slice)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        if name in _KEPT_CALLS or name.endswith(("Error", "Warning")):
            return
        self.axes(node, name)
        self.swapped_arguments(node)
        if isinstance(function, ast.Attribute):
            self.called(node, function)
        if name in _OTHER_FUNCTIONS:
            stop = self.span(function)[1]
            self.add("other function", node, _OTHER_FUNCTIONS[name], (stop - len(name), stop))
        if name == "range":
            last = node.args[-1] if len(node.args) < 3 else node.args[1]
            self.add("off by one", last, f"{self.text(last)} - 1")
            self.add("off by one", last, f"{self.text(last)} + 1")
        self.visit(function)
        for argument in node.args:
            self.visit(argument)
        for keyword in node.keywords:
            self.visit(keyword.value)

    def axes(self, node: ast.Call, name: str) -> None:
        values = [one.value for one in node.keywords if one.arg in _AXIS_NAMES]
        if name in _AXIS_METHODS and isinstance(node.func, ast.Attribute):
            values += node.args
        for value in values:
            inner = value.operand if isinstance(value, ast.UnaryOp) else value
            parts = value.elts if isinstance(value, ast.Tuple) else [inner]
            for one in parts:
                is_whole = isinstance(one, ast.Constant) and type(one.value) is int
                if is_whole and one is inner and value is not inner:
                    self.add("axis", value, "0")
                elif is_whole:
                    self.add("axis", one, "0" if one.value != 0 else "-1")

    def swapped_arguments(self, node: ast.Call) -> None:
        if len(node.args) < 2 or any(isinstance(one, ast.Starred) for one in node.args[:2]):
            return
        first, second = node.args[:2]
        span = (self.span(first)[0], self.span(second)[1])
        gap = self.raw[self.span(first)[1] : self.span(second)[0]].decode()
        self.add("swapped arguments", node, f"{self.text(second)}{gap}{self.text(first)}", span)

    def called(self, node: ast.Call, function: ast.Attribute) -> None:
        """``x.f(…)`` becomes ``x``: where x is a module, what is left does not run."""
        root = function.value
        while isinstance(root, ast.Attribute | ast.Call | ast.Subscript):
            root = root.func if isinstance(root, ast.Call) else root.value
        modules = {"torch", "np", "math", "os", "self", "json", "functional", "F", "sys", "time"}
        is_module = isinstance(root, ast.Name) and root.id in modules
        chained = isinstance(function.value, ast.Call | ast.Subscript | ast.BinOp)
        alone = isinstance(self.statement, ast.Expr) and self.statement.value is node
        if (chained or not is_module) and not alone:
            self.add("dropped call", node, self.text(function.value))


def _linked(first: ast.stmt, second: ast.stmt) -> bool:
    """Whether the order may matter: one calls something, or uses what the other sets."""
    if isinstance(first, ast.Expr) or isinstance(second, ast.Expr):
        return True
    sets, uses = (
        {
            ast.unparse(node)
            for node in ast.walk(one)
            if isinstance(getattr(node, "ctx", None), kind)
        }
        for one, kind in ((first, ast.Store), (second, ast.Load))
    )
    return bool(sets & uses)


def _is_docstring(one: ast.stmt) -> bool:
    return isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)


def _lines(one: Any) -> tuple[int, int]:
    """The lines of a statement; of one with a body, those above it."""
    if isinstance(one, ast.Match):
        return one.lineno, one.end_lineno or one.lineno
    inner = getattr(one, "body", None)
    if isinstance(inner, list) and inner:
        return one.lineno, max(one.lineno, inner[0].lineno - 1)
    return one.lineno, one.end_lineno or one.lineno


# ---- a repository with the mutant in it


def overlay(mutant: Mutant | None, folder: Path, root: Path = ROOT) -> Path:
    """A copy of the repository in ``folder``, of links, where one file is the mutant's.

    Compiled files are the repository's own. The edited one has another time than the compiled one,
    so that Python does not take that for it; run with PYTHONDONTWRITEBYTECODE=1.
    """
    for name in ("tests", "benchmarks", "pyproject.toml", "README.md", "docs", "examples"):
        if (root / name).exists():
            os.symlink(root / name, folder / name)
    edited = None if mutant is None else root / mutant.file
    for here, folders, names in os.walk(root / "src"):
        place = folder / Path(here).relative_to(root)
        place.mkdir()
        if "__pycache__" in folders:
            folders.remove("__pycache__")
            os.symlink(Path(here) / "__pycache__", place / "__pycache__")
        for name in names:
            if edited != Path(here) / name:
                os.symlink(Path(here) / name, place / name)
    if mutant is not None:
        (folder / mutant.file).write_text(mutant.applied((root / mutant.file).read_text()))
    return folder
