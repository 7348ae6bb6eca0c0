"""A session's parts: what ``private`` is given, checked, and what is put together of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from tacit._validation import whole
from tacit.errors import InvalidArgument
from tacit.losses import advice
from tacit.randomness import fresh_stream, subset
from tacit.training import capture, charging, claim, preflight
from tacit.training.batches import WATCHED_UNITS, Cutter, Units
from tacit.training.capture import BatchRecordings
from tacit.training.clipping.engine import Engine
from tacit.training.distributed import agreement
from tacit.training.distributed.sharded import Sharded, at_rest, check_placements, is_sharded
from tacit.training.distributed.shares import Shares
from tacit.training.guards import Custody
from tacit.training.loaders import check_dataset, check_once, make_loader
from tacit.training.lot import Computation
from tacit.training.noise import (
    ClipState,
    check_noise,
    entries_of,
    memory_of,
    noise_for,
    parameter_groups,
    rounding_cost,
)
from tacit.training.run_state import RunState
from tacit.training.sampling import Allocation, Groups, LotSampler, RunningEpoch
from tacit.training.styles import Automatic
from tacit.training.updates import Updates
from tacit.training.verification import Chance, CheckSchedule, Verifier

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import nn
    from torch.optim import Optimizer
    from torch.utils.data import Dataset

    from tacit.ledger import Budget, Reservation
    from tacit.randomness import Stream
    from tacit.training.charging import FollowedCharges, StepCharges
    from tacit.training.checkpoint import Stateful
    from tacit.training.distributed.world import World
    from tacit.training.loaders import Collate
    from tacit.training.noise import Noise
    from tacit.training.performance import Performance
    from tacit.training.plan import Plan

_LARGEST_PIECE = 31 << 20  # bytes: with what is beside it, the most that glibc goes by
_LONGEST = 10**9  # of an example; sums of them are counted in 64 bits


@final
@dataclass(frozen=True, slots=True)
class Setup:
    """What ``private`` is given; its docstring says what each of them is."""

    model: nn.Module
    optimizers: tuple[Optimizer, ...]
    plan: Plan
    dataset: Dataset[Any]
    budget: Budget | Reservation | None
    groups: Sequence[int] | NDArray[np.int64] | None
    lengths: Sequence[int] | NDArray[np.int64] | None
    state: Mapping[str, Stateful]
    resume: str | os.PathLike[str] | None
    performance: Performance
    collate: Collate | None
    stop_after: int | None
    unsafe_seed: int | None


@final
@dataclass(frozen=True, slots=True)
class Weights:
    """The private parameters: their groups, and where their entries are held and released."""

    parameters: dict[str, nn.Parameter]
    group: dict[str, int]  # of each parameter, the group that it is clipped in
    sharded: Sharded | None  # None where every process holds all entries
    shares: Shares | None  # None where one process releases them all

    @property
    def home(self) -> torch.device:
        """Where the parameters lie while nothing is computed."""
        return next(iter(self.parameters.values())).device

    @property
    def device(self) -> torch.device:
        """Where lots are computed."""
        return self.home if self.sharded is None else self.sharded.device

    def computed(self) -> dict[str, nn.Parameter]:
        """The parameters as the model computes with them: whole, where they are in pieces."""
        gathered = {} if self.sharded is None else self.sharded.gathered
        return {name: gathered.get(name, p) for name, p in self.parameters.items()}


@final
@dataclass(frozen=True, slots=True)
class SessionParts:
    """Everything that a session works with."""

    weights: Weights
    custody: Custody
    run_state: RunState
    verifier: Verifier
    rehearsing: NDArray[np.int64]
    noise: Noise
    sampler: LotSampler
    updates: Updates | None
    computation: Computation


def assembled(world: World, setup: Setup) -> SessionParts:
    """Checks what was given, takes up the checkpoint, and builds what computes lots."""
    plan, seed = setup.plan, setup.unsafe_seed
    with world.checking("the first checks"):
        parameters, charges, last_step = _checked(world, setup)
    sharded, shares = _spread(world, setup.model, parameters, plan)
    group, bounds = parameter_groups(plan, parameters)
    weights = Weights(parameters, group, sharded, shares)
    custody = Custody(setup.model, parameters, setup.optimizers)
    memory = memory_of(plan)
    if memory is not None:
        memory.gather = world.gathered
    order = cache(partial(_order, setup))
    run_state = RunState(
        plan,
        claim.Run(last_step, unsafe=seed is not None),
        charges,
        ClipState(plan, bounds, weights.device),
        RunningEpoch(plan, order),
        memory,
        _groups(world, plan, seed, order),
        resumed=setup.resume is not None,
    )
    if setup.resume is not None:
        with world.checking("the checkpoint"):
            run_state.resume(
                setup.resume,
                model=setup.model,
                optimizers=setup.optimizers,
                state=setup.state,
                stop_after=setup.stop_after,
                budget=setup.budget,
                leads=world.leads,
            )
            custody.seal()  # before anything else can have changed what the checkpoint held
    if memory is not None:
        memory.steps = run_state.run.last_step
    if not world.is_alone:
        agreement.check(world, agreement.facts(
            plan, setup.dataset, setup.groups, parameters, setup.optimizers, setup.performance,
            last_step=run_state.run.last_step, steps_taken=run_state.steps_taken, seed=seed,
        ))  # fmt: skip
    return _built(world, setup, weights, custody, run_state)


# ---- checks


def _checked(
    world: World, setup: Setup
) -> tuple[dict[str, nn.Parameter], StepCharges | FollowedCharges, int]:
    """The private parameters, the charges and the last step of a run that can be trained."""
    plan, budget = setup.plan, setup.budget
    _check_data(setup.dataset, setup.groups, plan)
    _check_lengths(setup.lengths, setup.dataset)
    parameters = _checked_parameters(world, setup.model, setup.optimizers, setup.state)
    if budget is not None and setup.unsafe_seed is not None:
        raise InvalidArgument(
            f"unsafe_seed={setup.unsafe_seed!r} voids the guarantee, so nothing can be charged for "
            "it; leave out the seed or the budget"
        )
    check_noise(plan, entries_of(parameters))
    last_step = _last_step(plan, setup.stop_after)
    lease = None if setup.performance.lease == "auto" else setup.performance.lease
    return parameters, charging.charges_of(world, budget, lease), last_step


def _check_data(
    dataset: Dataset[Any], groups: Sequence[int] | NDArray[np.int64] | None, plan: Plan
) -> None:
    check_dataset(dataset, plan.examples, counts_users=plan.unit == "user")
    named = np.shape(groups)  # type: ignore[arg-type]
    if plan.unit == "user" and named != (len(dataset),):  # type: ignore[arg-type]
        given = " by ".join(f"{one:,}" for one in named) or "none"
        raise InvalidArgument(
            f"groups must name the user of every example, one name each, got {given} for "
            f"{len(dataset):,} examples: the plan's unit is a user"  # type: ignore[arg-type]
        )
    check_once(dataset, groups)


def _check_lengths(
    lengths: Sequence[int] | NDArray[np.int64] | None, dataset: Dataset[Any]
) -> None:
    """Refuses what is not one length for each row; it says none of them, which are secret."""
    if lengths is None:
        return
    wrong = _wrong_lengths(lengths, len(dataset))  # type: ignore[arg-type]
    if wrong:
        raise InvalidArgument(
            "lengths must be one whole number, 1 or more, for every example of the data set, got "
            f"{wrong}; give how many tokens each has, or is padded to"
        )


def _wrong_lengths(lengths: object, examples: int) -> str:
    """What is wrong with lengths, or nothing."""
    try:
        given = np.asarray(lengths)
    except (TypeError, ValueError):  # lists of lists, tensors of another device
        return f"{type(lengths).__name__} that is no array of numbers"
    if given.ndim != 1:
        return f"{given.ndim} axes" if given.ndim else type(lengths).__name__
    if given.dtype.kind not in "iu" and len(given):
        return f"entries of type {given.dtype}"
    if len(given) != examples:
        return f"{'more' if len(given) > examples else 'fewer'} than there are examples"
    if (given < 1).any():
        return "some below 1"
    return f"some above {_LONGEST:,}" if (given > _LONGEST).any() else ""


def _checked_parameters(
    world: World, model: nn.Module, optimizers: Sequence[Optimizer], state: Mapping[str, Stateful]
) -> dict[str, nn.Parameter]:
    """The private parameters, of a model and optimizers that can be trained."""
    preflight.check_optimizers(optimizers)
    preflight.check_states(state)
    preflight.check_modules(model)
    at_rest(model)
    parameters = preflight.private_parameters(model, optimizers)
    preflight.check_device(parameters)
    check_placements(world, model, parameters)
    return parameters


def _last_step(plan: Plan, stop_after: int | None) -> int:
    if stop_after is None:
        return plan.steps
    last = whole("stop_after", stop_after)
    if last > plan.steps:
        raise InvalidArgument(f"stop_after must be at most {plan.steps} steps, got {stop_after!r}")
    return last


# ---- what a run keeps


def _spread(
    world: World, model: nn.Module, parameters: Mapping[str, nn.Parameter], plan: Plan
) -> tuple[Sharded | None, Shares | None]:
    """Who holds and who releases which entries; None where one process does it all."""
    exact, sharded = plan.noise == "exact", None
    if any(map(is_sharded, parameters.values())):
        sharded = Sharded(world, model, parameters, whole_numbers=exact)
    if world.is_alone:
        return sharded, None
    plain = {n: p for n, p in parameters.items() if not is_sharded(p)}
    return sharded, Shares(world, plain, whole_numbers=exact)


def _order(setup: Setup) -> str:
    """What tells the places of records, where later lots go by who was in earlier ones."""
    if setup.plan.groups == 1 and not isinstance(setup.plan.sampling, Allocation):
        return ""
    return agreement.order_of(setup.dataset, setup.groups)


def _groups(world: World, plan: Plan, seed: int | None, order: Callable[[], str]) -> Groups | None:
    """Groups of records that take turns, if the plan has them; dealt before the first step."""
    if plan.groups == 1:
        return None
    streams = world.streams(None if seed is None else (seed, 0))
    return Groups(plan.examples, plan.groups, streams("groups"), order)


# ---- what computes lots


def _built(
    world: World, setup: Setup, weights: Weights, custody: Custody, run_state: RunState
) -> SessionParts:
    """Samples, batches, noise and what computes them, once all processes agree."""
    plan, performance = setup.plan, setup.performance
    # A resumed run draws other numbers; a seed must not bring the first draws back either.
    seed = None if setup.unsafe_seed is None else (setup.unsafe_seed, run_state.steps_taken)
    streams = world.streams(seed)
    # What is checked follows the clock, by which a seeded run must not differ from another.
    again = CheckSchedule(fresh_stream("verification")) if seed is None else None
    verifier = Verifier(setup.model, weights.parameters, again, world.size)
    cutting = Units(plan, setup.groups, streams("users"), setup.lengths)
    rehearsing = _few(plan, streams("rehearsal"), cutting.lengths)
    noise = noise_for(
        plan.noise, streams("noise"), weights.home, run_state.memory, rounding_cost(plan)
    )
    graphs = _graphs(plan, performance, weights)
    sampler = LotSampler(
        plan,
        streams("sampling"),
        ahead=graphs is not None,
        epoch=run_state.epoch,
        groups=run_state.groups,
    )
    updates = None
    recorded = noise.generators is not None and not run_state.clip.moves and weights.shares is None
    if graphs is not None and recorded:
        updates = Updates(graphs, setup.optimizers, noise.renew)
    computation = _computation(setup, weights, run_state.clip, verifier, cutting, graphs)
    return SessionParts(
        weights, custody, run_state, verifier, rehearsing, noise, sampler, updates, computation
    )


def _computation(
    setup: Setup,
    weights: Weights,
    clip: ClipState,
    verifier: Verifier,
    units: Units,
    graphs: capture.Graphs | None,
) -> Computation:
    plan, performance, device = setup.plan, setup.performance, weights.device
    _keep_freed_memory()
    # Compiled code rounds in another way than the first, uncompiled unit.
    compiled = bool(performance.compile) and plan.noise != "exact"
    # A model that the user compiled, and what is recorded, need few shapes.
    on_gpu = device.type == "cuda" and plan.noise != "exact"
    padded = compiled or graphs is not None or on_gpu
    loader = make_loader(
        setup.dataset, device, setup.collate, performance.workers, performance.pin_memory
    )
    engine = Engine(
        weights.computed(),
        weights.group,
        stability=plan.clipping.stability if isinstance(plan.clipping, Automatic) else None,
        constants=_constants(setup.model),
        few_shapes=padded,
        compiled=compiled,
    )
    return Computation(
        plan,
        engine,
        verifier,
        clip,
        Cutter(plan, units, loader, performance, device, padded=padded),
        performance.precision,
        device,
        Chance(fresh_stream("chance") if setup.unsafe_seed is None else None),
        None if graphs is None else BatchRecordings(graphs, setup.model),
        advice(setup.model),
        weights.sharded,
    )


def _constants(model: nn.Module) -> list[torch.Tensor]:
    """What no example brings along: buffers, and numbers of entries that a module keeps by itself.

    Of those, PEFT's prompts have the numbers of their virtual tokens.
    """
    kept = [value for module in model.modules() for value in vars(module).values()]
    numbers = [
        one
        for value in kept
        for one in (value.values() if isinstance(value, dict) else (value,))
        if isinstance(one, torch.Tensor) and one.dtype == torch.int64
    ]
    return [*(buffer for buffer in model.buffers() if buffer is not None), *numbers]


def _keep_freed_memory() -> None:
    """Lets the C library keep what one batch gives back for the next one.

    glibc returns the end of its heap to the system as soon as that is twice the largest piece that
    was ever given back, of up to 32 MiB (mallopt(3), M_MMAP_THRESHOLD). Activations of a few
    megabytes, or the coins of a few lots, are then asked for again in every step, page by page,
    which takes a third of a small one. To give back one large piece, which was never touched, takes
    no time.
    """
    torch.empty(_LARGEST_PIECE, dtype=torch.uint8)


def _graphs(plan: Plan, performance: Performance, weights: Weights) -> capture.Graphs | None:
    """What records whole steps; integers are added up one unit at a time, each by itself.

    With weights in pieces all ranks would have to record and replay together; and those that rest
    on a CPU are copied from there for every batch.
    """
    device, sharded = weights.device, weights.sharded
    on_gpu = device.type == "cuda"
    wanted = on_gpu if performance.capture is None else performance.capture
    if plan.noise == "exact" or not wanted:
        return None
    if sharded is not None and (sharded.has_others or weights.home.type != device.type):
        return None
    return capture.CudaGraphs(device) if on_gpu else capture.Reruns()


def _few(plan: Plan, stream: Stream, lengths: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """A few units of the data set, chosen at random whatever they are.

    Where lengths are known and differ, one of the longest and one of the shortest are among them:
    together they show what padding does to a row.
    """
    everybody = np.arange(plan.examples, dtype=np.int64)
    found = subset(everybody, min(plan.examples, WATCHED_UNITS), stream)
    if lengths is None or lengths.min() == lengths.max():
        return found
    ends = np.array([lengths.argmin(), lengths.argmax()], np.int64)
    others = found[~np.isin(found, ends)]
    return np.concatenate([others[: len(found) - 2], ends])
