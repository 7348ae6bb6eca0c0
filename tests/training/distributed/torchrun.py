"""Scripts as a user writes them, started by torchrun: real agents, real processes, real signals."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .ranks import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SECONDS = 240.0  # for all that torchrun does in a test
HEAD = """
import json, os, signal, sys
from pathlib import Path
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset
import tacit
from tacit.training.noise import FastNoise, GridNoise

torch.set_num_threads(1)
here, rank = Path(sys.argv[1]), int(os.environ.get("RANK", 0))
kills = json.loads(os.environ.get("KILLS", "[]"))  # [rank, step]: where a rank dies, once
draw = torch.Generator().manual_seed(0)
data = TensorDataset(torch.randn(48, 5, generator=draw), torch.randint(3, (48,), generator=draw))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)


def ledger():
    return tacit.Ledger(f"sqlite:///{here}/budget.db", anchor=here / "anchor")


def noted(name, words):
    with (here / name).open("a") as log:
        log.write(f"{words}\\n")


def perhaps_dies(step):
    for number, (who, when) in enumerate(kills):
        once = here / f"killed-{number}"
        if who == rank and when == step and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def refereed(kind):
    means = kind.means

    def watched(self, *given, **named):
        if rank == 0:  # every draw of noise is a release
            noted("released", os.getpid())
            budgets = ledger().refresh().budgets
            granted = budgets["data"].granted if "data" in budgets else None
            drawn = len((here / "released").read_text().splitlines())
            if granted is not None and drawn > granted:
                noted("uncharged", f"{drawn} {granted}")
        return means(self, *given, **named)

    kind.means = watched


for kind in (FastNoise, GridNoise):
    refereed(kind)
"""


@dataclass(frozen=True, kw_only=True)
class Script:
    """A script in a folder, what torchrun is given for it, and what it finds there."""

    folder: Path
    body: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def started(self, *options: str) -> subprocess.Popen[str]:
        """Begins a torchrun of the script."""
        path = self.folder / "train.py"
        path.write_text(HEAD + textwrap.dedent(self.body))
        command = [sys.executable, "-m", "torch.distributed.run", *options]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **self.environment}
        return subprocess.Popen(
            [*command, str(path), str(self.folder)], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def runs(self, *options: str, fails: bool = False) -> str:
        """What a torchrun of it says, which ends well unless it ``fails``."""
        (said,) = self.run_together([options], fails=fails)
        return said

    def run_together(self, agents: Sequence[Sequence[str]], *, fails: bool = False) -> list[str]:
        """What several agents say, one for each machine of a cluster."""
        begun = [self.started(*options) for options in agents]
        end = time.monotonic() + SECONDS
        said = []
        try:
            for one in begun:
                text, _ = one.communicate(timeout=end - time.monotonic())
                said.append(text)
                assert (one.returncode != 0) == fails, text[-4000:]
        finally:
            for one in begun:
                if one.poll() is None:
                    os.killpg(one.pid, 9)
        return said

    def lines(self, name: str) -> list[str]:
        """What ranks noted under ``name``."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


def on_one_machine(ranks: int, *more: str) -> tuple[str, ...]:
    """Options of a torchrun with so many ranks, at a port of its own."""
    return ("--nproc-per-node", str(ranks), "--master-port", str(free_port()), *more)


def on_two_machines(ranks: int, *more: str) -> list[tuple[str, ...]]:
    """Options of two agents, each with so many ranks, that find each other by an address."""
    same = ("--nproc-per-node", str(ranks), "--nnodes", "2", "--master-addr", "127.0.0.1",
            "--master-port", str(free_port()))  # fmt: skip
    return [(*same, "--node-rank", str(node), *more) for node in range(2)]
