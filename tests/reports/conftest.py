"""A finished run's folder, made by hand: small, quick, and with something of everything in it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tacit.accounting import Gaussian
from tacit.accounting.serialization import as_dict
from tacit.reports.run_folder import read
from tacit.reports.run_summary import summarise
from tacit.runs.folder import HISTORY, STATEMENT, Folder
from tacit.runs.record import RunRecord
from tacit.statement import Statement, extended
from tacit.training.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tacit.reports.run_summary import RunSummary

PLAN = Plan(examples=1000, lot_size=250, steps=40, noise_multiplier=4.0, clip=1.0)


def record(**changes: Any) -> RunRecord:
    told: dict[str, Any] = {
        "run": "0123456789abcdef",
        "recipe": "digits",
        "summary": "a summary of one line",
        "settings": {"lot": 250, "lr": 0.5, "head": "linear"},
        "epsilon": 2.0,
        "delta": 1e-5,
        "seed": None,
        "data": {"name": "digits", "files": {"a.csv": "sha256:12"}, "train": 1000, "test": 400},
        "folder": None,
        "search": None,
        "device": "cpu",
        "versions": {"numpy": "2.4.6"},
        "command": ("tacit", "train", "digits", "--epsilon", "2"),
        "anchors": (
            {"epsilon": 2.0, "accuracy": 91.5, "source": "Doe 2020", "shortcuts": "shuffled lots"},
        ),
        "tuning": "not charged",
        "budget": None,
        "plan": PLAN.as_dict(),
        "test_accuracy": 0.9,
        "notes": ("weights are averaged",),
        "finished": True,
    }
    return RunRecord(**(told | changes))


def claim(of: RunRecord, plan: Plan = PLAN, **changes: Any) -> Statement:
    told: dict[str, Any] = {
        "epsilon": plan.epsilon(of.delta),
        "delta": of.delta,
        "event": as_dict(plan.event),
        "plan": plan.as_dict(),
        "steps_planned": plan.steps,
        "steps_taken": plan.steps,
        "sampling": "Poisson, as drawn",
        "noise": "fast noise",
        "assumptions": ("rows are independent",),
        "not_promised": ("anything about losses",),
        "tacit_version": "0.1.0",
        "torch_version": "2.13.0",
        "threat_model": "whoever sees every step",
        "releases": ("the final model",),
        "randomness": "Philox in floating point",
        "ledger": "entry 7",
    }
    return extended(
        Statement(**(told | changes)),
        preprocessing=[("inputs divided by 16", None), ("a noisy mean", Gaussian(20.0))],
        tuning="on other images; not charged",
        versions={"scipy": "1.17"},
        configuration=of.configuration,
    )


def history(plan: Plan = PLAN, delta: float = 1e-5) -> list[dict[str, Any]]:
    steps = range(4, plan.steps + 1, 4)
    return [
        {
            "epoch": number,
            "steps": taken,
            "held_out_accuracy": 0.5 + 0.04 * number,
            "epsilon": replace(plan, steps=taken).epsilon(delta),
        }
        for number, taken in enumerate(steps, 1)
    ]


def write(path: Path, of: RunRecord, statement: str, lines: list[dict[str, Any]]) -> Path:
    folder = Folder(path)
    of.write(folder)
    folder.write(STATEMENT, statement.encode())
    folder.write(HISTORY, "".join(f"{json.dumps(line)}\n" for line in lines).encode())
    folder.close()
    return path


@pytest.fixture(scope="session")
def whole() -> tuple[RunRecord, Statement, list[dict[str, Any]]]:
    """A record, its statement and its history."""
    of = record()
    return of, claim(of), history()


@pytest.fixture
def run(tmp_path: Path, whole: Any) -> Path:
    """The folder of a finished run."""
    of, statement, lines = whole
    return write(tmp_path / "run", of, statement.to_json(), lines)


@pytest.fixture(scope="session")
def summary(tmp_path_factory: pytest.TempPathFactory, whole: Any) -> RunSummary:
    """That run, read and with its figures."""
    of, statement, lines = whole
    folder = tmp_path_factory.mktemp("session") / "run"
    return summarise(read(write(folder, of, statement.to_json(), lines)))


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Makes the folder of a run with other fields in its record or its statement."""

    def made(
        told: dict[str, Any] | None = None,
        stated: dict[str, Any] | None = None,
        lines: list[dict[str, Any]] | None = None,
    ) -> Path:
        of = record(**(told or {}))
        statement = replace(claim(of), **(stated or {}))
        return write(
            tmp_path / "made", of, statement.to_json(), history() if lines is None else lines
        )

    return made
