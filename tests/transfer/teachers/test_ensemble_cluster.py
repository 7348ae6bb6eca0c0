"""Teachers in processes, and on Ray: a real cluster of two workers on this machine."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from torch import nn

from tacit._workers import RayCluster
from tacit.errors import InvalidArgument
from tacit.randomness import UnsafeSeededStream
from tacit.transfer.teachers import Teachers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(size=(160, 4)).astype(np.float32)
LABELS = (ROWS[:, 0] > 0).astype(int)


def teachers(make: Any, **more: Any) -> Teachers:
    return Teachers(
        make, (ROWS, LABELS), 40, classes=2, epochs=3, seed=1, progress=False,
        stream=UnsafeSeededStream(0, "t"), **more,
    )  # fmt: skip


@pytest.fixture
def two_workers() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="Ray (the extra [cluster]) is not installed")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.usefixtures("two_workers")
def test_two_workers_train_what_is_trained_here(tmp_path: Path) -> None:
    here_is = os.getpid()

    def workers() -> set[int]:
        return {int(path.name) for path in tmp_path.iterdir()} - {here_is}

    def make() -> nn.Module:
        (tmp_path / str(os.getpid())).touch()
        end = time.monotonic() + 60
        # Whoever comes first waits for another, or it might do all the work before one is there.
        while os.getpid() != here_is and len(workers()) < 2 and time.monotonic() < end:
            time.sleep(0.02)
        return nn.Linear(4, 2)

    for how in ("loop", "gemm"):
        shared_out = teachers(make, how=how, workers=RayCluster()).fit()
        assert len(workers()) >= 2
        here = teachers(make, how=how).fit()
        np.testing.assert_array_equal(shared_out.sizes, here.sizes)
        np.testing.assert_array_equal(shared_out.labels(ROWS), here.labels(ROWS))


@pytest.mark.slow
def test_two_processes_train_what_is_trained_here() -> None:
    make = partial(nn.Linear, 4, 2)
    shared_out, here = teachers(make, workers=2).fit(), teachers(make).fit()
    np.testing.assert_array_equal(shared_out.sizes, here.sizes)
    np.testing.assert_array_equal(shared_out.labels(ROWS), here.labels(ROWS))


def test_a_model_that_cannot_be_sent_to_a_process_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"make_model.*must be picklable with workers=2"):
        teachers(lambda: nn.Linear(4, 2), workers=2).fit()


def test_ray_is_needed_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    teachers(lambda: nn.Linear(4, 2)).fit()
    with pytest.raises(InvalidArgument, match=r"needs Ray.*tacit\[cluster\]"):
        teachers(lambda: nn.Linear(4, 2), workers=RayCluster()).fit()
