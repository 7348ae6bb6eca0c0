"""Runs that are killed again and again, and what must be true of them each time."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.accounting import Gaussian, PoissonSampled, Repeated, epsilon
from tacit.ledger import Ledger

from .crash_child import EXAMPLES, POINTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).parent


class Arena:
    """The fork server, the referee, and one training process at a time."""

    def __init__(self, folder: Path) -> None:
        self.socket = str(folder / "referee")
        self._server = self._started("crash_child.py")
        self._referee = self._started("crash_referee.py", self.socket)
        assert self.heard() == {"listening": True}

    def _started(self, script: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "ignore", str(HERE / script), *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def heard(self) -> dict[str, Any]:
        """The next line of the referee's."""
        found: dict[str, Any] = json.loads(self._referee.stdout.readline())
        return found

    def begin(self, job: dict[str, Any]) -> None:
        self._server.stdin.write(json.dumps({"referee": self.socket} | job) + "\n")
        self._server.stdin.flush()

    def go_on(self) -> None:
        """Ends the pause of a process."""
        self._referee.stdin.write("go\n")
        self._referee.stdin.flush()

    def end(self) -> dict[str, Any]:
        """What the referee saw of a process that has ended, and whether it was killed."""
        status = int(self._server.stdout.readline())
        report = self.heard()
        assert status in (0, -signal.SIGKILL), (status, report)
        return report | {"killed": status != 0}

    def attempt(self, job: dict[str, Any]) -> dict[str, Any]:
        self.begin(job)
        return self.end()

    def close(self) -> None:
        for process in (self._server, self._referee):
            process.stdin.close()
            process.stdout.close()
            process.wait(timeout=150)  # a process that hangs ends itself before


@contextmanager
def arena() -> Iterator[Arena]:
    # Not one of pytest's folders: the path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="tacit-crash-") as name:
        Path(name).chmod(0o755)
        made = Arena(Path(name))
        try:
            yield made
        finally:
            made.close()


@dataclass
class Figures:
    """What many kills came to."""

    kills: int = 0
    runs: int = 0
    releases: int = 0
    granted: int = 0
    most_over: int = 0
    most_share: float = 0.0  # of one lease that a crash left unused, at most
    lost: int = 0
    places: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills in {self.runs} runs at {len(self.places)} kinds of places; "
            f"{self.releases} releases, {self.granted} steps granted; a crash left at most "
            f"{self.most_over} steps unused ({self.most_share:.2f} of its lease); "
            f"{self.lost} steps ended early; {dict(self.places.most_common())}"
        )


@dataclass(frozen=True)
class Setting:
    """How a run is made."""

    lease: int | str
    noise: str
    every: int = 3  # steps between checkpoints
    steps: int = 60


class Run:
    """One plan, from its reservation to its end, through however many crashes."""

    def __init__(
        self, arena: Arena, place: tuple[str, Path], folder: Path, setting: Setting, since: int
    ) -> None:
        self._arena, self._setting, self._since = arena, setting, since
        self._place = place
        self._job = {
            "url": place[0], "anchor": str(place[1]), "since": since,
            "checkpoint": str(folder / f"{place[1].name}-{since}"), "every": setting.every,
            "steps": setting.steps, "lease": setting.lease, "noise": setting.noise,
        }  # fmt: skip
        self.reservation: int | None = None
        self.over = False
        self._released = self._granted = self._interruptions = 0

    def attempt(self, figures: Figures, **more: Any) -> bool:
        """Goes on, until the plan is over or the process is killed; whether it was."""
        report = self._arena.attempt(self._job | more)
        ended, begun = report["ended"], report["begun"]
        assert "error" not in (ended or {}), ended
        assert report["undercounts"] == 0
        assert report["repeated"] == 0
        if begun is not None:
            # It went on where the ledger stood, and knows what is lost.
            assert begun["granted"] == self._granted
            assert begun["lost"] == self._granted - begun["steps_taken"]
        self._examine(report, figures)
        if report["killed"]:
            figures.kills += 1
            figures.places[report["last"]] += 1
        else:
            assert ended is not None, report
            self.over = ended["over"]
            self._judge(ended)
        self._interruptions += not self.over
        if self.over:
            figures.runs += 1
            figures.lost += ended["lost"]
        return bool(report["killed"])

    def _examine(self, report: dict[str, Any], figures: Figures) -> None:
        """What the ledger says now, against what the referee has seen."""
        before, self._granted = self._granted, self._in_ledger()
        self._released += report["released"]
        assert self._released <= self._granted <= self._setting.steps
        over = self._granted - before - report["released"]
        lease = report["largest"]
        if self._setting.lease != "auto":
            assert lease in (0, self._setting.lease)
        assert 0 <= over <= (lease if report["killed"] else 0)
        figures.most_over = max(figures.most_over, over)
        figures.most_share = max(figures.most_share, over / max(1, lease))
        figures.releases += report["released"]
        figures.granted += self._granted - before

    def _judge(self, ended: dict[str, Any]) -> None:
        """A run that ends of itself ends as many steps early as were lost, and says so."""
        lost = self._granted - ended["steps_taken"]
        assert ended["lost"] == lost
        assert lost > 0 or ended["steps_taken"] == self._released
        assert lost == 0 or self._interruptions > 0
        taken, gone, claimed = ended["claimed"]  # by the statement, against what was released
        assert (taken, gone) == (ended["steps_taken"], lost)
        assert taken + gone >= self._released
        assert claimed >= _epsilon(self._released)
        if ended["over"]:
            assert self._granted == self._setting.steps
            said = f"{lost} of the steps were charged to attempts that crashed or were rewound"
            assert (said in (ended["early"] or "")) == (lost > 0)

    def _in_ledger(self) -> int:
        url, anchor = self._place
        with Ledger(url, anchor=anchor) as ledger:
            assert ledger.verify().ok
            made = [one for one in ledger.books.of("data") if one.number > self._since]
            assert len(made) <= 1  # a run that goes on reserves nothing again
            self.reservation = made[0].number if made else None
            return made[0].granted if made else 0


@cache
def _epsilon(steps: int) -> float:
    """What so many steps of a child's plan cost."""
    step = PoissonSampled(20 / EXAMPLES, Gaussian(1.0))
    return epsilon(Repeated(step, steps), 1e-6) if steps else 0.0


# Where a process is killed: at a point, when it comes there for the nth time, at once or a moment
# later, from outside, so that it may be in the middle of whatever comes next.
_BEGINNING = ("reserving", "reserved")
_END = ("leaving", "left", "giving back", "given back")


def schedule(rng: random.Random) -> Iterator[dict[str, Any]]:
    """Each point at once, each a moment later, moments that are no point, and all over again."""
    while True:
        for point in rng.sample(POINTS, len(POINTS)):
            yield _kill(point, None, rng)
        for point in rng.sample(POINTS, len(POINTS)):
            yield _kill(point, rng.uniform(0.0, 0.004), rng)
        for _ in POINTS[::2]:
            yield _kill("start", rng.uniform(0.0, 0.15), rng)


def _kill(point: str, delay: float | None, rng: random.Random) -> dict[str, Any]:
    once = point in ("start", *_BEGINNING, *_END)
    return {"point": point, "nth": 1 if once else rng.randint(1, 6), "delay": delay}


class Executioner:
    """Takes kills from the schedule in an order in which a run can meet them."""

    def __init__(self, rng: random.Random) -> None:
        self._planned = schedule(rng)
        self._waiting: list[dict[str, Any]] = []  # for a run that has not begun

    def next(self, run: Run) -> dict[str, Any]:
        if run.reservation is None and self._waiting:
            return self._waiting.pop()
        while (kill := next(self._planned))["point"] in _BEGINNING and run.reservation is not None:
            self._waiting.append(kill)
        return kill


def campaign(
    arena: Arena,
    places: Iterator[tuple[str, Path]],
    folder: Path,
    settings: Sequence[Setting],
    *,
    kills: int,
    seed: int,
) -> Figures:
    """Runs that are killed ``kills`` times in all, and that all come to their end."""
    rng, figures = random.Random(seed), Figures()
    executioner = Executioner(rng)
    for setting in itertools.cycle(settings):
        place, since = next(places), 0
        for _ in range(2):  # the second run begins in a ledger that has seen the first
            run = Run(arena, place, folder, setting, since)
            while not run.over:
                kill = executioner.next(run) if figures.kills < kills else None
                early = rng.randint(2, 8) if kill and kill["point"] in _END else None
                run.attempt(figures, kill=kill, stop=early, by_reservation=rng.random() < 0.5)
            since = run.reservation or 0
        if figures.kills >= kills:
            return figures
    raise AssertionError("settings are not empty")
