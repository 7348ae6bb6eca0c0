"""What every engine's worker does: make the engine's step for one model, then run it when told.

The worker lives through the whole measurement of a model, so that the driver can let the engines
take turns. It speaks JSON, a line each way: the task, then numbers of steps to time.
"""

import contextlib
import json
import os
import platform
import resource
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import torch

from engine_models import TASKS, Task

NOISE_MULTIPLIER, CLIP, LEARNING_RATE = 1.0, 1.0, 0.1
Step = Callable[[], None]


def serve(engines: Mapping[str, Callable[[Task], Step]], packages: Sequence[str]) -> None:
    """Reads `{"engine", "model", "threads", "batch"}`, then `{"steps"}` until there is no more."""
    warnings.simplefilter("ignore")
    with _private_stdout() as out:
        request = json.loads(sys.stdin.readline())
        torch.set_num_threads(request["threads"])
        torch.manual_seed(0)
        try:
            step = engines[request["engine"]](task_of(request))
            first = _timed(step, 3)  # the first steps choose algorithms, allocate and check
        except Exception as error:  # an engine that cannot run the model is a finding
            message = textwrap.shorten(f"{type(error).__name__}: {error}", width=300)
            print(json.dumps({"error": message}), file=out, flush=True)
            return
        found = {"python": platform.python_version()} | {name: version(name) for name in packages}
        print(json.dumps({"versions": found, "first": first}), file=out, flush=True)
        for line in sys.stdin:
            answer: dict[str, Any] = {"seconds": _timed(step, json.loads(line)["steps"])}
            answer["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            print(json.dumps(answer), file=out, flush=True)


def task_of(request: Mapping[str, Any]) -> Task:
    """The task, with another batch size if one is asked for."""
    task = TASKS[request["model"]]
    batch = request["batch"] or task.batch
    return Task(task.title, batch, task.model, task.features, task.classes, task.text)


@contextlib.contextmanager
def _private_stdout() -> Iterator[Any]:
    """Whatever a peer prints goes to stderr."""
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        yield out


def _timed(step: Step, count: int) -> list[float]:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times
