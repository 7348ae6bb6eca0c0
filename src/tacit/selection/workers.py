"""Where runs are carried out: one after the other here, in other processes, or on Ray."""

from __future__ import annotations

import pickle
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, TypeAlias, final

from tacit._validation import whole
from tacit.errors import InvalidArgument
from tacit.selection.scores import apply_score

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tacit.selection.scores import Score
    from tacit.selection.terms import Allowance
    from tacit.selection.trainers import Trainer

    Needed = Callable[[int], bool]


@final
@dataclass(frozen=True, slots=True)
class RayCluster:
    """Runs on a Ray cluster (the extra ``[cluster]``); no address is a cluster on this machine.

    Args:
        address: As ``ray.init`` takes it, such as ``"auto"``.
        cpus: How many processors one run is given.
        gpus: How many GPUs one run is given.
    """

    address: str | None = None
    cpus: float = 1.0
    gpus: float = 0.0


Workers: TypeAlias = int | RayCluster


@final
@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """All that the runs have in common, so that it is sent to each worker once."""

    trainer: Trainer
    score: Score
    allowance: Allowance
    candidates: Sequence[Any]

    def run(self, choice: int) -> tuple[Any, float]:
        """One run: the model and its score."""
        result = self.trainer(self.candidates[choice], self.allowance)
        return apply_score(self.score, result)


Finished: TypeAlias = tuple[int, Any, float]
"""The number of a run, its model and its score."""


def check_workers(workers: Workers) -> Workers:
    """Returns ``workers`` if it is a number of processes or a cluster."""
    return workers if isinstance(workers, RayCluster) else whole("workers", workers)


def carried_out(
    work: Work, tasks: Sequence[tuple[int, int]], workers: Workers, needed: Needed
) -> Iterator[Finished]:
    """Carries out tasks (run, choice) in their order, and gives each as it is finished.

    A task that is not ``needed`` any more when its turn comes is left out.
    """
    if isinstance(workers, RayCluster):
        return _on_ray(work, tasks, workers, needed)
    if workers == 1:
        return _here(work, tasks, needed)
    return _in_processes(work, tasks, workers, needed)


def _here(work: Work, tasks: Sequence[tuple[int, int]], needed: Needed) -> Iterator[Finished]:
    for run, choice in tasks:
        if needed(run):
            yield run, *work.run(choice)


# What a worker process was given when it started; in the parent it stays empty.
_given: list[Work] = []


def _prepare(pickled: bytes) -> None:
    _given[:] = [pickle.loads(pickled)]


def _run_given(choice: int) -> tuple[Any, float]:
    return _given[0].run(choice)


def _in_processes(
    work: Work, tasks: Sequence[tuple[int, int]], workers: int, needed: Needed
) -> Iterator[Finished]:
    """New processes, not forked ones: they share no random state, lock or GPU with this one."""
    try:
        pickled = pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidArgument(
            f"train, score and candidates must be picklable with workers={workers!r}: {error}; "
            "define functions at the top of a module, or take workers=1"
        ) from None
    waiting = list(reversed(tasks))
    running: dict[Future[tuple[Any, float]], int] = {}
    pool = ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_prepare, initargs=(pickled,)
    )
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                run, choice = waiting.pop()
                if needed(run):
                    running[pool.submit(_run_given, choice)] = run
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in sorted(ended, key=lambda one: running[one]):
                yield running.pop(future), *future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _on_ray(
    work: Work, tasks: Sequence[tuple[int, int]], cluster: RayCluster, needed: Needed
) -> Iterator[Finished]:
    try:
        import ray  # noqa: PLC0415 - of the extra [cluster]
    except ImportError:
        raise InvalidArgument(
            "workers=RayCluster() needs Ray: pip install 'tacit[cluster]'"
        ) from None
    if not ray.is_initialized():
        ray.init(address=cluster.address, log_to_driver=False)
    shared = ray.put(work)
    remote = ray.remote(num_cpus=cluster.cpus, num_gpus=cluster.gpus)(_run_shared)
    slots = max(1, int(ray.cluster_resources().get("CPU", 1.0) // max(cluster.cpus, 1e-9)))
    waiting = list(reversed(tasks))
    running: dict[Any, int] = {}
    while waiting or running:
        while waiting and len(running) < slots:
            run, choice = waiting.pop()
            if needed(run):
                running[remote.remote(shared, choice)] = run
        if not running:
            break
        ended, _ = ray.wait(list(running), num_returns=1)
        for reference in ended:
            yield running.pop(reference), *ray.get(reference)


def _run_shared(work: Work, choice: int) -> tuple[Any, float]:
    return work.run(choice)
