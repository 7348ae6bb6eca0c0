"""The CPU benchmark's models and steps, in small, and what it makes of its figures."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import tacit

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    if not BENCHMARKS.is_dir():
        pytest.skip("the benchmarks are in the repository only")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.syspath_prepend(str(BENCHMARKS / "peers"))


def _same(model: torch.nn.Module) -> torch.nn.Module:
    return model


@pytest.mark.parametrize("name", ["mlp", "cnn", "gpt"])
def test_a_step_of_either_engine_changes_every_parameter(name: str):
    worker, models = import_module("tacit_engine_worker"), import_module("engine_models")
    torch.manual_seed(0)
    for engine in (worker.private, worker.plain):
        model = models.TASKS[name].model()
        task = replace(models.TASKS[name], batch=4, model=partial(_same, model))
        before = [parameter.detach().clone() for parameter in model.parameters()]
        step = engine(task)
        step()
        step()
        changed = [not p.equal(b) for p, b in zip(model.parameters(), before, strict=True)]
        assert all(changed), engine


FAULTS = """
import resource
import tacit_engine_worker as worker
from engine_models import TASKS

step = worker.private(TASKS["mlp"])
for _ in range(10):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's memory")
def test_a_step_asks_the_system_for_no_memory_that_it_had_before():
    """As steps of a process do whose C library has never seen a large piece: hundreds of pages."""
    paths = [BENCHMARKS, BENCHMARKS / "peers", Path(tacit.__file__).parents[1]]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    environment |= {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", FAULTS]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert float(found.stdout) < 50


def test_ratios_are_taken_round_by_round():
    driver = import_module("engine_cpu")
    tacit, other = {"turns": [1.0, 10.0, 2.0]}, {"turns": [2.0, 30.0, 2.0]}
    assert driver.ratio(other, tacit) == 2.0
    assert driver.ratio({"error": "no"}, tacit) is None


def test_a_rival_that_is_as_fast_or_silent_leaves_the_requirement_unmet():
    driver = import_module("engine_cpu")
    found: dict[str, Any] = {
        "mlp": {"opacus-hooks": {"times_tacit": 1.0}, "opacus-ghost": {"times_tacit": 1.2}},
        "gpt": {"opacus-hooks": {"times_tacit": None}, "opacus-ghost": {"times_tacit": 0.9}},
    }
    assert [one["met"] for one in driver.requirements(found)] == [False, True, False, False]
