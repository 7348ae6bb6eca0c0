"""What of the engine has run: its lines and branches, so that a self-test says what it did not see.

A goal is a statement, or one way out of an ``if``, ``while`` or ``for``, in a function of the
rooms that a release rests on. What refuses is no goal: a block that ends in ``raise``, and a
function that only such blocks call. Nothing is released there. Nor is a rule that declines
(``return NotImplemented``): what takes its place is a goal; nor what runs when a module is
imported, which is before anything is looked at. Where there is no GPU, neither is
what only a GPU can run: a block that asks for CUDA, what follows a return of the CPU's, a
question to a GPU or an import of kernels, and a kernel, which is compiled for it.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
    from types import CodeType, FrameType, TracebackType

ROOMS = (
    "training", "randomness", "ledger/budget.py", "ledger/reservation.py",
    "ledger/composition.py", "statement/claim.py",
)  # fmt: skip
_ROOT = Path(__file__).resolve().parents[2]
_EXIT = -1
_IDLE = 20_000  # calls in a row that show nothing new: the rest of a run is more of the same
_STALE = 100  # calls of one function that show nothing new
_ALIKE = 1  # runs of a kind that are looked at
_ELSEWHERE = 15_000  # the same for a run of a kind that was looked at in another setting
_LOOKS, _BRIEF = 12, 2_000  # steps of such a run that are looked at again, and calls of each

# In the test of an if.
_ON_A_GPU = ("cuda", "for_kernels", "in_one_pass", "_fused", "_is_device", "_host is None")
_KERNELS = ("kernels", "DeviceNoise")  # what is imported where a GPU is
_DEVICE_FILES = frozenset({"device_noise.py"})  # which are asked on a CPU only whether they serve

Arcs: TypeAlias = "dict[str, set[tuple[int, int]]]"
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Goal(NamedTuple):
    """A statement (``into`` is None), or a way from its lines into a block or past it."""

    first: int
    last: int
    into: tuple[int, int] | None = None
    past: bool = False

    def met_by(self, arcs: Iterable[tuple[int, int]]) -> bool:
        """Whether one of the steps from line to line is this one."""
        return any(self.is_step(*arc) for arc in arcs)

    def is_step(self, before: int, after: int) -> bool:
        """Whether it is the step from one line to another."""
        if self.into is None:
            return self.first <= after <= self.last
        if not self.first <= before <= self.last:
            return False
        inside = self.into[0] <= after <= self.into[1]
        return not inside and not self.first <= after <= self.last if self.past else inside

    def describe(self) -> str:
        """A place in a file.

        >>> Goal(3, 3, (4, 9)).describe(), Goal(3, 4, (5, 9), True).describe()
        ('3→4', '3→past')
        """
        if self.into is None:
            return str(self.first)
        return f"{self.first}→{'past' if self.past else self.into[0]}"


@final
@dataclass(frozen=True, slots=True)
class Coverage:
    """How many goals there are, how many were met, and those that were not, by file."""

    goals: int
    met: int
    missed: Mapping[str, tuple[str, ...]]
    for_a_gpu: int  # more goals, which no machine without one can meet

    @property
    def share(self) -> float:
        """The part that was met."""
        return self.met / self.goals if self.goals else 1.0


def coverage(arcs: Mapping[str, Iterable[tuple[int, int]]]) -> Coverage:
    """What ran, of all that there is, from the steps that a ``Tracer`` has seen."""
    count, missed, more = 0, {}, 0
    for path in sorted(_files()):
        goals, seen = goals_of(path), tuple(arcs.get(str(path), ()))
        count += len(goals)
        more += len(goals_of(path, gpu=True)) - len(goals)
        left = [goal.describe() for goal in goals if not goal.met_by(seen)]
        if left:
            missed[path.relative_to(_ROOT).as_posix()] = tuple(left)
    return Coverage(count, count - sum(map(len, missed.values())), missed, more)


@final
@dataclass(frozen=True, slots=True)
class Seen:
    """What tracers have seen: steps from line to line by file, and kinds of runs at length."""

    arcs: Arcs = field(default_factory=dict)
    kinds: frozenset[Hashable] = frozenset()

    def joined(self, other: Seen) -> Seen:
        """What both have seen."""
        paths = {**self.arcs, **other.arcs}
        arcs = {path: self.arcs.get(path, set()) | other.arcs.get(path, set()) for path in paths}
        return Seen(arcs, self.kinds | other.kinds)


@final
class Tracer:
    """Notes the steps from line to line in the engine's functions: enter it for each run.

    Python is slower as long as it is traced. So a function is no longer looked at once all of its
    goals are met, or in a run once it has shown nothing new for some calls; and nothing is, once
    a run has shown nothing new for ``idle`` calls. ``known`` is what others have seen
    already: where it holds a run's kind, what is new about that run shows soon or not at all. What
    worker processes do is not seen.
    """

    def __init__(self, idle: int = _IDLE, known: Seen | None = None) -> None:
        self._known = known or Seen()
        self.arcs: Arcs = {path: set(steps) for path, steps in self._known.arcs.items()}
        self._most = self._limit = idle
        self._codes: dict[int, _Code | None] = {}
        self._kept: list[CodeType] = []  # so that no id is used twice
        self._idle, self._run, self._looks, self._inside = 0, 0, 0, False
        self._kinds: Counter[Hashable] = Counter()

    def run(self, kind: Hashable) -> Tracer:
        """Looks only at the beginning of the next run if there were some of this kind before."""
        self._kinds[kind] += 1
        if self._kinds[kind] > _ALIKE:
            self._limit, self._looks = _BRIEF, 0
        elif kind in self._known.kinds:
            self._limit, self._looks = min(self._most, _ELSEWHERE), 0
        else:
            self._limit, self._looks = self._most, _LOOKS
        return self

    @property
    def seen(self) -> Seen:
        """All that is known by now."""
        return Seen(self.arcs, self._known.kinds.union(self._kinds))

    def look_again(self) -> None:
        """Looks at a run once more, though it had shown nothing new: it begins another step."""
        if self._looks > 0 and self._inside:
            self._looks -= 1
            self._idle = max(0, self._limit - _BRIEF)
            sys.settrace(self._called)

    def __enter__(self) -> Tracer:
        self._before, self._idle = sys.gettrace(), 0
        self._run, self._inside = self._run + 1, True
        threading.settrace(self._called)
        sys.settrace(self._called)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.settrace(self._before)
        threading.settrace(None)
        self._inside = False

    def _called(self, frame: FrameType, *_: Any) -> Callable[..., Any] | None:
        self._idle += 1
        if self._idle > self._limit:
            sys.settrace(None)
            return None
        code = frame.f_code
        try:
            known = self._codes[id(code)]
        except KeyError:
            self._kept.append(code)
            known = self._codes[id(code)] = self._looked_up(code)
        if known is None or not known.open or not known.shows(self._run):
            return None
        return _Frame(known, self).step

    def step(self, code: _Code, before: int, after: int) -> None:
        """One step from line to line."""
        if (before, after) in code.arcs:
            return
        code.arcs.add((before, after))
        left = [goal for goal in code.open if not goal.is_step(before, after)]
        if len(left) < len(code.open):
            code.open, code.calls, self._idle = left, 0, 0

    def _looked_up(self, code: CodeType) -> _Code | None:
        if code.co_filename not in _names() or code.co_name == "<module>":
            return None
        own = {line for _, _, line in code.co_lines() if line is not None}
        goals = goals_of(Path(code.co_filename))
        arcs = self.arcs.setdefault(code.co_filename, set())
        mine = [goal for goal in goals if not own.isdisjoint(range(*_span(goal)))]
        return _Code([goal for goal in mine if not goal.met_by(arcs)], arcs)


@final
class _Code:
    """The goals of one function that are not met yet, and the steps in its file."""

    __slots__ = ("arcs", "calls", "open", "run")

    def __init__(self, goals: Sequence[Goal], arcs: set[tuple[int, int]]) -> None:
        self.open, self.arcs = list(goals), arcs
        self.calls, self.run = 0, 0

    def shows(self, run: int) -> bool:
        """Whether it may still show something in this run: a call of it is looked at."""
        if run != self.run:
            self.run, self.calls = run, 0
        self.calls += 1
        return self.calls <= _STALE


@final
class _Frame:
    """One call of a function."""

    __slots__ = ("_code", "_line", "_raised", "_tracer")

    def __init__(self, code: _Code, tracer: Tracer) -> None:
        self._code, self._tracer = code, tracer
        self._line, self._raised = 0, False

    def step(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        """What happens in the call: another line, an error, or its end."""
        del arg
        if event == "line":
            self._tracer.step(self._code, self._line, frame.f_lineno)
            self._line, self._raised = frame.f_lineno, False
        elif event == "exception":
            self._raised = True
        elif event == "return" and not self._raised:
            self._tracer.step(self._code, self._line, _EXIT)
        return self.step


# ---- goals


@cache
def _files() -> frozenset[Path]:
    found = [_ROOT / room for room in ROOMS]
    return frozenset(
        path
        for room in found
        for path in (room.rglob("*.py") if room.is_dir() else [room])
        if path.name != "__init__.py"
    )


@cache
def _names() -> frozenset[str]:
    return frozenset(map(str, _files()))


@cache
def goals_of(path: Path, gpu: bool | None = None) -> tuple[Goal, ...]:
    """All goals of a file, in order; those for a ``gpu`` as well, if there is one."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    there = torch.cuda.is_available() if gpu is None else gpu
    device = {(1, _block(tree.body)[1])} if path.name in _DEVICE_FILES else _for_a_gpu(tree)
    refusals = _apart(tree, set() if there else device)
    makers = _only_at_import(tree)
    found = [
        goal
        for function in ast.walk(tree)
        if isinstance(function, _Function) and function.name not in makers
        for statement in _statements(function)
        for goal in _goals(statement)
        if not any(a <= goal.first and goal.last <= b for a, b in refusals)
        and not _leads_apart(goal, refusals)
    ]
    return tuple(
        sorted(set(found), key=lambda goal: (goal.first, goal.into is not None, goal.past))
    )


def _statements(function: _Function) -> Iterator[ast.stmt]:
    """The statements of a function, not those of functions within it."""
    body = function.body
    if all(_says_nothing(one) for one in body):
        return  # a protocol's
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, ast.stmt | ast.match_case | ast.excepthandler) and not isinstance(
            node, _Function | ast.ClassDef
        ):
            inner = (ast.stmt, ast.match_case, ast.excepthandler)
            waiting.extend(one for one in ast.iter_child_nodes(node) if isinstance(one, inner))


def _goals(statement: ast.stmt) -> Iterator[Goal]:
    if _says_nothing(statement) or isinstance(
        statement, ast.Raise | ast.Global | ast.Nonlocal | ast.ClassDef | ast.Try | _Function
    ):
        return
    body: list[ast.stmt] = getattr(statement, "body", [])
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    if isinstance(statement, ast.Match):
        last = statement.subject.end_lineno or first
    elif body:
        last = max(first, body[0].lineno - 1)
        if isinstance(statement, ast.If | ast.While | ast.For):
            tested = statement.iter if isinstance(statement, ast.For) else statement.test
            last = tested.end_lineno or first
    yield Goal(first, last)
    if isinstance(statement, ast.If | ast.While | ast.For):
        into = _block(body)
        yield Goal(first, last, into)
        endless = isinstance(statement, ast.While) and isinstance(statement.test, ast.Constant)
        if not endless and not _only_refuses(statement.orelse):
            yield Goal(first, last, into, past=True)


def _leads_apart(goal: Goal, apart: frozenset[tuple[int, int]]) -> bool:
    """Whether a way leads into a block that is no goal, or past a return into one."""
    if goal.into is None:
        return False
    start = goal.into[1] if goal.past else None
    return any(a == start + 1 for a, _ in apart) if start is not None else goal.into in apart


def _apart(tree: ast.Module, others: set[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """The spans of blocks that end in an error, of others, and of functions only these call."""
    found = others | {_block(body) for body in _blocks(tree) if _only_refuses(body)}
    functions = [node for node in ast.walk(tree) if isinstance(node, _Function)]
    names = [
        (node.id if isinstance(node, ast.Name) else node.attr, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    ]
    while True:
        known = len(found)
        for function in functions:
            uses = [line for name, line in names if name == function.name]
            within = all(any(a <= line <= b for a, b in found) for line in uses)
            private = function.name.startswith("_") and not function.name.startswith("__")
            if private and uses and within:
                found.add((function.lineno, function.end_lineno or function.lineno))
        if len(found) == known:
            return frozenset(found)


def _only_at_import(tree: ast.Module) -> frozenset[str]:
    """The private functions that are called where the module is made, and nowhere else."""
    functions = [node for node in ast.walk(tree) if isinstance(node, _Function)]
    inside = {
        id(one)
        for function in functions
        for statement in function.body
        for one in ast.walk(statement)
    }
    called = [
        (node.func.id, id(node) in inside)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    return frozenset(
        one.name
        for one in functions
        if one.name.startswith("_")
        and (uses := [within for name, within in called if name == one.name])
        and not any(uses)
    )


def _for_a_gpu(tree: ast.Module) -> set[tuple[int, int]]:
    """The spans of what no machine without a GPU runs."""
    if any(_imports_kernels(one) for one in tree.body):
        return {(1, _block(tree.body)[1])}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and "torch.cuda." in ast.unparse(node.body[-1]):
            found.add((node.lineno, node.end_lineno or node.lineno))
        if isinstance(node, ast.If) and _asks_for_kernels(node.test):
            found.add(_block(node.body))
        if isinstance(node, ast.If) and node.orelse and _is_a_cpu(node.test):
            found.add(_block(node.orelse))
        if isinstance(node, _Function) and any(
            ast.unparse(one).startswith("triton.jit") for one in node.decorator_list
        ):
            found.add((node.lineno, node.end_lineno or node.lineno))
    for body in _blocks(tree):
        for at, one in enumerate(body[:-1]):
            if _returns_on_a_cpu(one):
                found.add(_block(body[at + 1 :]))
        first = next((at for at, one in enumerate(body) if _needs_a_gpu(one)), None)
        if first is not None:
            found.add(_block(body[first:]))
    return found


def _asks_for_kernels(test: ast.expr) -> bool:
    return not _is_a_cpu(test) and any(one in ast.unparse(test) for one in _ON_A_GPU)


def _imports_kernels(statement: ast.stmt) -> bool:
    """Whether a module begins with kernels, so that nothing of it runs without a GPU."""
    if not isinstance(statement, ast.Import | ast.ImportFrom):
        return False
    return any(word in ast.unparse(statement) for word in ("triton", "_kernels import"))


def _needs_a_gpu(statement: ast.stmt) -> bool:
    """Whether a plain statement imports kernels, or asks a GPU of its own for something."""
    if isinstance(getattr(statement, "body", None), list):
        return False
    if isinstance(statement, ast.ImportFrom):
        names = {one.name for one in statement.names} | {(statement.module or "").split(".")[-1]}
        return not names.isdisjoint(_KERNELS)
    return any(
        isinstance(one, ast.Call) and ast.unparse(one.func).startswith("torch.cuda.") and one.args
        for one in ast.walk(statement)
    )


def _returns_on_a_cpu(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.If) or not isinstance(statement.body[-1], ast.Return):
        return False
    return _is_a_cpu(statement.test)


def _is_a_cpu(test: ast.expr) -> bool:
    said = ast.unparse(test)
    of_kernels = said.startswith("not ") and any(one in said for one in _ON_A_GPU)
    return said.endswith(("type == 'cpu'", "type != 'cuda'")) or of_kernels


def _blocks(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and not isinstance(node, ast.Module):
                yield block


def _only_refuses(block: list[ast.stmt]) -> bool:
    """Whether a block ends in an error, or is a rule's that declines."""
    return bool(block) and (isinstance(block[-1], ast.Raise) or _declines(block[-1]))


def _declines(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Return) else None
    return isinstance(value, ast.Name) and value.id == "NotImplemented"


def _says_nothing(statement: ast.stmt) -> bool:
    quiet = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return quiet or isinstance(statement, ast.Pass | ast.Import | ast.ImportFrom)


def _block(body: Sequence[ast.stmt]) -> tuple[int, int]:
    return body[0].lineno, body[-1].end_lineno or body[-1].lineno


def _span(goal: Goal) -> tuple[int, int]:
    return goal.first, goal.last + 1
