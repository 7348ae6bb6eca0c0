"""Training processes that can be killed at any moment; run as a script, it forks one a line.

Everything is imported once. Each line of JSON is a job, see ``crash_run``; the process that is
forked for it trains, and tells the referee at every point of ``POINTS`` where it is. The answer is
one line: how the process ended.
"""

from __future__ import annotations

import json
import os
import pwd
import resource
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import tacit
from tacit import _files
from tacit.errors import TacitError
from tacit.ledger.anchor import AnchorFile
from tacit.ledger.budget import Budget
from tacit.ledger.reservation import Reservation
from tacit.ledger.store import Store, Writer
from tacit.randomness import GaussianSource, RoundedGaussian
from tacit.training import checkpoint_file
from tacit.training.charging import Lease, StepCharges
from tacit.training.noise import FastNoise, GridNoise
from tacit.training.sampling import LotSampler
from tacit.training.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES, WIDTH, CLASSES = 400, 5, 3


class Mute:
    """A wire to nobody."""

    def send(self, kind: str, body: Any) -> None:
        pass

    def wait(self) -> None:
        pass


class Wire:
    """What a training process says to the referee, and the moment at which it dies."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._kill = job.get("kill")  # {"point", "nth", "delay"}: without a delay at once
        self._pause = job.get("pause")  # {"point", "nth"}: waits for the test to do its mischief
        self._limit = job.get("limit")  # {"point", "nth", "bytes"}: no file grows
        self._passed: dict[str, int] = {}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(job["referee"])
        self.send("H", {"url": job["url"], "watched": job.get("watched", True)})
        self.wait()  # from now on the referee can kill this very process

    def send(self, kind: str, body: Any) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._socket.send(kind.encode() + raw)

    def wait(self) -> None:
        self._socket.recv(16)

    def mark(self, point: str) -> None:
        """The process has come to ``point``."""
        self._socket.send(b"M" + point.encode())
        self._passed[point] = self._passed.get(point, 0) + 1
        if self._meets(self._kill, point):
            if self._kill["delay"] is None:
                os.kill(os.getpid(), signal.SIGKILL)
            self._socket.send(b"K%.6f" % self._kill["delay"])
        if self._meets(self._pause, point):
            self._socket.send(b"P")
            self.wait()
        if self._meets(self._limit, point):
            size = self._limit["bytes"]
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def _meets(self, what: dict[str, Any] | None, point: str) -> bool:
        return bool(what) and (what["point"], what["nth"]) == (point, self._passed[point])


def around(
    owner: Any, name: str, before: Callable[..., None], after: Callable[..., None] | None = None
) -> None:
    """Calls ``before`` and ``after`` around a method, with the result last."""
    original = getattr(owner, name)

    def method(*args: Any, **kwargs: Any) -> Any:
        before(*args, **kwargs)
        result = original(*args, **kwargs)
        if after is not None:
            after(*args, result)
        return result

    setattr(owner, name, method)


PLACES: list[tuple[Any, str, str, str]] = [
    (Budget, "reserve", "reserving", "reserved"),
    (Reservation, "lease", "leasing", "leased"),
    (Reservation, "give_back", "giving back", "given back"),
    (Store, "_begin", "beginning", "begun"),
    (Writer, "append", "inserting", "inserted"),
    (sa.Connection, "commit", "committing", "committed"),
    (AnchorFile, "_replace", "anchoring", "anchored"),
    (os, "replace", "moving", "moved"),
    (StepCharges, "take", "charging", "charged"),
    (LotSampler, "draw", "drawing", "drawn"),
    (FastNoise, "means", "releasing", "released"),
    (GridNoise, "means", "releasing", "released"),
    (Session, "_update", "updating", "updated"),
    (checkpoint_file, "write", "saving", "saved"),
    (_files, "_flush", "flushing", "flushed"),
    (Session, "__exit__", "leaving", "left"),
]  # fmt: skip
POINTS = tuple(dict.fromkeys(point for *_, first, last in PLACES for point in (first, last)))


def watch(wire: Wire) -> None:
    """Makes the process tell where it is, and what it draws before anything is done with it."""

    def noise(_self: Any, tensor: torch.Tensor, *_: Any) -> None:
        wire.send("N", bytes([tensor.element_size()]) + tensor.numpy().tobytes())

    around(GaussianSource, "normal_", lambda *_a, **_k: None, noise)
    around(RoundedGaussian, "integers_", lambda *_a, **_k: None, noise)
    around(LotSampler, "draw", lambda *_: None, lambda _, drawn: wire.send("S", drawn.tobytes()))
    around(Lease, "_resize", lambda *_: None, lambda lease, _: wire.send("Z", lease.size))
    for owner, name, first, last in PLACES:
        around(
            owner,
            name,
            lambda *_a, point=first, **_k: wire.mark(point),
            lambda *_a, point=last: wire.mark(point),
        )


def ask_to_release(wire: Wire | Mute, dp: Session) -> None:
    """From now on the referee is asked before each draw of noise."""

    def asked(*_args: Any, **_kwargs: Any) -> None:
        wire.send("R", dp._charges._reservation.number)
        wire.wait()

    around(dp._noise, "means", asked)


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(EXAMPLES, WIDTH, generator=generator)
    return TensorDataset(x, torch.randint(CLASSES, (EXAMPLES,), generator=generator))


def charged_to(ledger: tacit.Ledger, job: dict[str, Any], resume: Path | None) -> Any:
    """The budget; or, of a run that died before its first checkpoint, its reservation."""
    budget = ledger.open("data", epsilon=1e5, delta=1e-3).at(1e-6)
    made = [one.number for one in ledger.books.of("data") if one.number > job["since"]]
    if made and (resume is None or job.get("by_reservation")):
        return budget.reservation(made[-1])
    return budget


def train(job: dict[str, Any], wire: Wire | Mute) -> dict[str, Any]:
    """Goes on with a run as far as it comes, as a user's script would."""
    ledger = tacit.Ledger(job["url"], anchor=job["anchor"], timeout=job.get("timeout", 30.0))
    checkpoint = Path(job["checkpoint"])
    resume = checkpoint if checkpoint.exists() else None
    model = nn.Sequential(nn.Linear(WIDTH, 4), nn.Tanh(), nn.Linear(4, CLASSES))
    plan = tacit.Plan(
        examples=EXAMPLES, lot_size=20, steps=job["steps"], noise_multiplier=1.0, clip=1.0,
        noise=job["noise"],
    )  # fmt: skip
    dp = tacit.private(
        model,
        torch.optim.Adam(model.parameters(), lr=0.01),
        plan,
        data(),
        charged_to(ledger, job, resume),
        resume=resume,
        performance=tacit.Performance(lease=job["lease"]),
    )
    with dp:
        reservation = dp._charges._reservation
        ask_to_release(wire, dp)
        granted = 0 if reservation is None else reservation.granted
        known = {"granted": granted, "steps_taken": dp.steps_taken, "lost": dp.steps_lost}
        wire.send("B", known)
        begun = 0
        for lot in dp.lots():
            for x, y in lot:
                dp.backward(functional.cross_entropy(model(x), y, reduction="none"))
            dp.step()
            if dp.steps_taken % job["every"] == 0:
                dp.save(checkpoint)
            begun += 1
            if begun == job.get("stop"):
                break
    claim = dp.statement(1e-6)
    return {
        "claimed": [claim.steps_taken, claim.steps_lost, claim.epsilon],
        "over": begun != job.get("stop"),
        "steps_taken": dp.steps_taken,
        "lost": dp.steps_lost,
        "early": claim.stopped_early,
    }


def as_nobody() -> None:
    """Gives up root's rights, which no mode of a file holds back."""
    if os.geteuid() == 0:
        os.setresuid(*[pwd.getpwnam("nobody").pw_uid] * 3)


def rehearse() -> None:
    """Trains a little before any fork, so that all is imported once; without a second thread."""
    with tempfile.TemporaryDirectory() as name:
        job = {
            "url": f"sqlite:///{name}/a.db", "anchor": f"{name}/a", "checkpoint": f"{name}/c",
            "steps": 60, "lease": 1, "noise": "secure", "every": 1, "since": 0, "stop": 2,
        }  # fmt: skip
        train(job, Mute())


def child(job: dict[str, Any]) -> None:
    signal.alarm(120)  # nobody waits for ever
    if job.get("nobody"):
        as_nobody()
    wire = Wire(job)
    try:
        watch(wire)
        wire.mark("start")
        wire.send("E", train(job, wire))
    except TacitError as error:
        wire.send("E", {"error": str(error), "kind": type(error).__name__})
    except BaseException:
        wire.send("E", {"error": traceback.format_exc(), "kind": "unexpected"})


def main() -> None:
    torch.set_num_threads(1)
    rehearse()
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            try:
                child(json.loads(line))
            finally:
                os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
