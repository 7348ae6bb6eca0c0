"""Parameters that FSDP2 (``fully_shard``) holds in pieces, one a rank.

FSDP gathers a layer's weights before it is computed and lets them go afterwards; that stays as it
is. It has no gradient to average, since tacit computes none of a weight: the clipped sums of a
batch are added up straight into the pieces, where noise is drawn and the optimizer steps.

While a layer's weights are gathered, all ranks must be there. So ranks go through a lot together:
one that has no further batch keeps company with one that counts for nothing.
"""

from __future__ import annotations

import sys
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch
from torch import distributed, nn
from torch.overrides import _get_current_function_mode
from torch.utils._pytree import tree_leaves

from tacit.errors import UnsupportedModel
from tacit.training.distributed.shares import reduce_scattering

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor

    from tacit.training.clipping.sums import Sink
    from tacit.training.distributed.world import World
    from tacit.training.noise import Stretches

_BUCKET = 1 << 20  # entries of sums that are sent at a time, and are in memory twice meanwhile
_MOST_ON_THE_WAY = 2  # buckets, while the sums of the next are computed


def is_sharded(tensor: object) -> bool:
    """Whether a tensor is one of those that are spread over ranks."""
    kind = sys.modules.get("torch.distributed.tensor")  # nobody has one who has not imported it
    return kind is not None and isinstance(tensor, kind.DTensor)


def local(tensor: Tensor) -> Tensor:
    """The piece of a tensor that this rank holds; a plain one is its own."""
    if not is_sharded(tensor):
        return tensor
    # Not to_local(), which records a view for autograd, and is as slow as that.
    piece: Tensor = tensor._local_tensor  # type: ignore[attr-defined]
    return piece.detach()


def at_rest(model: nn.Module) -> None:
    """Lets go of gathered weights: the modules hold their pieces, as between two batches."""
    for module in sharding_modules(model):
        module.reshard()


def sharding_modules(model: nn.Module) -> list[Any]:
    """The modules of a model that ``fully_shard`` was called with."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:
        return []
    return [module for module in model.modules() if isinstance(module, fsdp.FSDPModule)]


@final
@dataclass(frozen=True, slots=True)
class _Piece:
    """What this rank holds of a parameter: whole entries of its first dimension."""

    parameter: Any
    rows: int  # of every rank, the last ones' filled up
    size: int  # entries of such a row
    start: int
    stop: int

    @property
    def room(self) -> int:
        """The entries of a rank's piece, filled up."""
        return self.rows * self.size

    @property
    def stretch(self) -> tuple[int, int]:
        """Which entries of the parameter are in it."""
        return self.start * self.size, self.stop * self.size


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Bucket:
    """Sums of some parameters that are on their way; both tensors stay until they have arrived."""

    names: tuple[str, ...]
    flat: Tensor
    total: Tensor
    work: Any


@final
class Sharded:
    """The private parameters of a model that are in pieces, and their sums.

    Guarantee:
        Every entry of a parameter has its sum over all ranks in exactly one piece (or in a copy of
        it on each replica of a hybrid mesh, where all copies draw the same noise).
    """

    def __init__(
        self,
        world: World,
        model: nn.Module,
        parameters: Mapping[str, Tensor],
        *,
        whole_numbers: bool,
    ) -> None:
        self._world = world
        self._modules = sharding_modules(model)
        self._pieces = {n: _piece(n, p) for n, p in parameters.items() if is_sharded(p)}
        self._dtypes = {
            n: torch.int64 if whole_numbers else _wide(one.parameter.dtype)
            for n, one in self._pieces.items()
        }
        mesh = next(iter(self._pieces.values())).parameter.device_mesh
        self.device = _compute_device(mesh)
        self._ranks, self._replicas = _groups(mesh)
        self._totals: dict[tuple[str, ...], Tensor] = {}  # of each bucket, this rank's pieces
        self._on_the_way: deque[_Bucket] = deque()
        self._buckets = self._cut()
        self.gathered = dict(self._gathered_by_name(model))
        self._storages = {_storage(one) for one in self.gathered.values()}
        self._paused: list[tuple[bool, bool]] = []

    @property
    def has_others(self) -> bool:
        """Whether other ranks hold pieces, and must be there in every pass."""
        return not self._world.is_alone

    @property
    def names(self) -> frozenset[str]:
        """The parameters that are in pieces."""
        return frozenset(self._pieces)

    def describe(self) -> str:
        """How parameters are spread, in a line."""
        if not self.has_others:
            return "parameters in one piece (FSDP2), gathered for every pass and sent to nobody"
        copies = "" if self._replicas is None else f", in {self._replicas.size()} copies"
        found = f"parameters in {self._ranks.size()} pieces (FSDP2){copies}"
        if self.device.type == "cpu":
            return found
        return f"{found}; batches are not replayed, which all ranks would have to record together"

    def _gathered_by_name(self, model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
        """The objects that stand for each parameter while it is gathered; they stay the same."""
        at_rest(model)
        resting = {id(p): name for name, p in model.named_parameters()}
        for module in self._modules:
            before = _own_places(module)
            module.unshard()
            for owner, key, parameter in before:
                now = owner._parameters[key]
                if now is not None and now is not parameter and id(parameter) in resting:
                    yield resting[id(parameter)], now
            module.reshard()

    # ---- a lot

    def begin(self) -> None:
        """A new lot."""
        self._totals = {}
        self._on_the_way.clear()

    def add(self, sums: dict[str, Tensor]) -> None:
        """Adds up the sums of all ranks, each into the piece of its rank. All ranks call it.

        Whole sums are let go of as they are sent.
        """
        for bucket in self._buckets:
            self._send(bucket, sums)
        self._arrive()

    def _cut(self) -> list[tuple[str, ...]]:
        """The parameters in the order and the company in which their sums are sent."""
        buckets: list[tuple[str, ...]] = []
        ranks: int = self._ranks.size()
        for name in self._pieces:
            fits = buckets and self._dtypes[buckets[-1][0]] == self._dtypes[name]
            if fits and ranks * sum(self._rooms((*buckets[-1], name))) <= _BUCKET:
                buckets[-1] = (*buckets[-1], name)
            else:
                buckets.append((name,))
        return buckets

    def _rooms(self, names: Sequence[str]) -> list[int]:
        return [self._pieces[name].room for name in names]

    def _send(self, names: tuple[str, ...], sums: dict[str, Tensor]) -> None:
        """Sends sums on their way, and goes on while others compute."""
        self._arrive(but=_MOST_ON_THE_WAY - 1)
        flat = self._laid_out(names, sums)
        total = flat.new_empty(flat.numel() // self._ranks.size())
        with self._world.waiting("the sum over ranks"):
            work = reduce_scattering(total, flat, self._ranks)
        self._on_the_way.append(_Bucket(names, flat, total, work))

    def _arrive(self, *, but: int = 0) -> None:
        """Waits for sums that were sent, but for the last few, and adds them to the pieces."""
        while len(self._on_the_way) > but:
            sent = self._on_the_way.popleft()
            with self._world.waiting("the sum over ranks"):
                sent.work.wait()
                if self._replicas is not None:
                    distributed.all_reduce(sent.total, group=self._replicas)
            if sent.names in self._totals:
                self._totals[sent.names] += sent.total
            else:
                self._totals[sent.names] = sent.total

    def _laid_out(self, names: tuple[str, ...], sums: dict[str, Tensor]) -> Tensor:
        """Sums as they are sent: the pieces of the first rank, then those of the next."""
        ranks, rooms, dtype = self._ranks.size(), self._rooms(names), self._dtypes[names[0]]
        if len(names) == 1 and names[0] in sums and sums[names[0]].numel() == ranks * rooms[0]:
            return sums.pop(names[0]).to(dtype).reshape(-1)  # it is laid like that
        flat = torch.empty(ranks, sum(rooms), dtype=dtype, device=self.device)
        wholes = [self._whole(name, sums).to(dtype) for name in names]
        filled = [one for one in wholes if one.numel()]
        if filled:
            torch._chunk_cat(filled, 0, ranks, out=flat)  # as FSDP cuts them, filled up with zeros
        return flat.view(-1)

    def _whole(self, name: str, sums: dict[str, Tensor]) -> Tensor:
        """The sum of a parameter by rows, which is 0 where no loss has reached it."""
        shape = (self._pieces[name].parameter.shape[0], self._pieces[name].size)
        if name in sums:
            return sums.pop(name).reshape(shape)
        return torch.zeros(shape, device=self.device)

    # ---- a step

    @property
    def stretches(self) -> Stretches:
        """The entries that this rank releases."""
        return {name: piece.stretch for name, piece in self._pieces.items()}

    def totals(self) -> dict[str, Tensor]:
        """The sums of the lot in this rank's pieces, where the parameters are."""
        found: dict[str, Tensor] = {}
        for names, total in self._totals.items():
            for name, part in zip(names, total.split(self._rooms(names)), strict=True):
                start, stop = self._pieces[name].stretch
                found[name] = part[: stop - start].to(self._pieces[name].parameter.device)
        return found

    def released_alone(
        self, parameters: Mapping[str, Tensor], sums: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Parameters and sums of one process, whose pieces are the whole, as plain tensors."""
        held = {name: local(parameter) for name, parameter in parameters.items()}
        return held, {name: one.to(held[name].device) for name, one in sums.items()}

    def gradients(self, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Means of this rank's entries as gradients that an optimizer steps by."""
        return {name: _spread_like(one.parameter, own[name]) for name, one in self._pieces.items()}

    def start_alike(self) -> None:
        """Copies of a hybrid mesh start from the pieces of the first."""
        if self._replicas is None:
            return
        first = distributed.get_global_rank(self._replicas, 0)
        with self._world.waiting("the first weights"), torch.no_grad():
            for piece in self._pieces.values():
                held = local(piece.parameter)
                sent = held.to(self.device)  # weights that rest on a CPU are not NCCL's to send
                distributed.broadcast(sent, first, group=self._replicas)
                held.copy_(sent)

    # ---- passes

    def meet(self, *, batch: bool, sums: dict[str, Tensor]) -> bool:
        """Before every pass: whether any rank has a batch. Sums that any has are added up."""
        heard = self._world.all_say("a batch", [batch, bool(sums)])
        if any(some for _, some in heard):
            self.add(sums)
        return any(batch for batch, _ in heard)

    @contextmanager
    def finishing(
        self, needs_weights: Callable[[set[int]], bool], *, streams: bool
    ) -> Iterator[Sink | None]:
        """Around a backward pass: keeps all weights gathered, if any rank needs them for longer.

        A rank whose batch counts at once ``streams`` its sums into the pieces: they go to the sink
        that it is given, parameter by parameter. The others add nothing meanwhile.
        """
        wishes = self._world.all_say("a backward pass", [needs_weights(self._storages), streams])
        gathered = any(needs for needs, _ in wishes)
        if gathered:
            self._keep_gathered()
        try:
            sending = _Sending(self._buckets, self._send) if streams else None
            yield sending
            if sending is not None:
                sending.end()
                self._arrive()
            elif any(sends for _, sends in wishes):
                self.add({})
        finally:
            if gathered:
                self._let_go()
            self._join()

    def _keep_gathered(self) -> None:
        for module in self._modules:
            module.set_reshard_after_backward(False, recurse=False)
            module.unshard()

    def _let_go(self) -> None:
        for module in self._modules:
            module.set_reshard_after_backward(True, recurse=False)
            module.reshard()

    def _join(self) -> None:
        """Ends a pass on one stream while it is recorded: FSDP leaves its own waiting."""
        if self.device.type != "cuda":
            return
        if not torch.cuda.is_current_stream_capturing():
            return
        here = torch.cuda.current_stream()
        for stream in _streams(self._modules):
            with torch.cuda.stream(stream):
                forked = torch.cuda.is_current_stream_capturing()
            if forked:
                here.wait_stream(stream)

    def recover(self) -> None:
        """Lets go of whatever is gathered, in the middle of a pass, too.

        Weights that were gathered for a recording hold nothing: meanwhile nothing is computed.
        """
        for state in _states(self._modules):
            _at_the_start(state)
        for module in self._modules:
            module.reshard()

    @contextmanager
    def unrecorded(self, recorder: Any) -> Iterator[None]:
        """Keeps the recorder out of what FSDP does before and after a module is computed.

        It is off torch's stack of modes then, if it can be: even a mode that lets all pass takes
        its time with every call. Dynamo traces none of it, nor anything of FSDP's.
        """

        def pause(*_: Any) -> None:
            off = _get_current_function_mode() is recorder
            self._paused.append((recorder.enabled, off))
            recorder.enabled = False
            if off:
                recorder.__exit__(None, None, None)

        def resume(*_: Any) -> None:
            enabled, off = self._paused.pop()
            if off:
                recorder.__enter__()
            recorder.enabled = enabled

        def stay(module: Any, _: Any, result: Any) -> None:
            """A table of positions is seen as a view of its weight, which must not go then."""
            pause()
            found = (one for one in tree_leaves(result) if isinstance(one, torch.Tensor))
            if any(_storage(one) in self._storages for one in found):
                module.set_reshard_after_forward(False, recurse=False)

        handles = []
        self._paused = []
        before, after, end = (torch.compiler.disable(one) for one in (pause, stay, resume))
        for module in self._modules:
            handles += [
                module.register_forward_pre_hook(before, prepend=True),
                module.register_forward_pre_hook(end),
                module.register_forward_hook(after, prepend=True),
                module.register_forward_hook(end),
            ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


@final
class _Sending:
    """Sends sums, one bucket after the other, as soon as all of a bucket are there."""

    def __init__(
        self,
        buckets: Sequence[tuple[str, ...]],
        send: Callable[[tuple[str, ...], dict[str, Tensor]], None],
    ) -> None:
        self._left, self._send = deque(buckets), send
        self._bucket = {name: bucket for bucket in buckets for name in bucket}
        self._missing = {bucket: len(bucket) for bucket in buckets}
        self.names = frozenset(self._bucket)
        self._ready: dict[str, Tensor] = {}

    def take(self, name: str, total: Tensor) -> None:
        """The sum of one parameter is complete."""
        self._ready[name] = total
        self._missing[self._bucket[name]] -= 1
        while self._left and not self._missing[self._left[0]]:
            self._send(self._left.popleft(), self._ready)

    def end(self) -> None:
        """No sum is to come any more: what no loss has reached is 0."""
        for bucket in self._left:
            self._send(bucket, self._ready)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _spread_like(parameter: Any, piece: Tensor) -> Tensor:
    """A tensor that is spread like ``parameter``, of which this rank holds ``piece``.

    Made as FSDP2 makes its own: ``DTensor.from_local`` takes ten times as long.
    """
    from torch.distributed.tensor import DTensor  # noqa: PLC0415 - only where it is used

    held = piece.view(local(parameter).shape)
    spread: Tensor = DTensor(held, parameter._spec, requires_grad=False)
    return spread


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


# ---- FSDP's own state, which it keeps to itself


def _states(modules: Sequence[Any]) -> list[Any]:
    return [module._get_fsdp_state() for module in modules]


def _streams(modules: Sequence[Any]) -> list[Any]:
    """The streams on which FSDP gathers weights and reduces gradients."""
    contexts = {id(state._comm_ctx): state._comm_ctx for state in _states(modules)}
    held = [one for context in contexts.values() for one in vars(context).values()]
    return [one for one in held if isinstance(one, torch.cuda.Stream)]


def _at_the_start(state: Any) -> None:
    """Puts one module's state as it is before a forward pass."""
    from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState  # noqa: PLC0415

    state._training_state = TrainingState.IDLE
    state._modules_to_run_forward.clear()
    state._state_ctx.iter_forward_root = None
    state._state_ctx.post_backward_final_callback_queued = False
    state._comm_ctx.all_gather_state = None
    state._comm_ctx.post_forward_order.clear()
    groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
    for group in (one for one in groups if one is not None):
        group._training_state = TrainingState.IDLE
        group._all_gather_result = group._reshard_after_forward_event = None
        group._post_forward_indices.clear()


def _own_places(module: nn.Module) -> list[tuple[nn.Module, str, Tensor]]:
    return [
        (owner, key, parameter)
        for owner in module.modules()
        for key, parameter in owner._parameters.items()
        if parameter is not None
    ]


def _piece(name: str, parameter: Any) -> _Piece:
    """Where this rank's piece of a parameter lies: FSDP cuts the first dimension into chunks."""
    mesh = parameter.device_mesh
    size = parameter.numel() // parameter.shape[0] if parameter.shape[0] else 0
    ranks, rank = mesh.size(-1), mesh.get_local_rank(mesh.ndim - 1)
    rows = -(-parameter.shape[0] // ranks)
    start = min(rank * rows, parameter.shape[0])
    stop = min(start + rows, parameter.shape[0])
    if local(parameter).shape[0] != stop - start:
        raise UnsupportedModel(
            f"parameter {name} is cut otherwise than fully_shard does it; shard it with "
            "torch.distributed.fsdp.fully_shard"
        )
    return _Piece(parameter, rows, size, start, stop)


def check_placements(world: World, model: nn.Module, parameters: Mapping[str, Tensor]) -> None:
    """Refuses parameters that are spread in another way than FSDP2's, by the name of that way."""
    at_rest(model)
    spread = {**dict(model.named_parameters()), **parameters}
    for name, parameter in spread.items():
        if is_sharded(parameter):
            _check_placement(world, name, parameter, sharded=bool(sharding_modules(model)))


def _check_placement(world: World, name: str, parameter: Any, *, sharded: bool) -> None:
    from torch.distributed.tensor import Replicate, Shard  # noqa: PLC0415 - only where it is used

    mesh, placements = parameter.device_mesh, tuple(parameter.placements)
    plain = placements in ((Shard(0),), (Replicate(), Shard(0)))
    plain = plain and all(type(one) in (Shard, Replicate) for one in placements)
    if not (sharded and plain):
        raise UnsupportedModel(
            f"parameter {name} is spread over ranks as {placements}, which is tensor parallelism "
            "or a mixture with it, and not supported: norms would need entries of other ranks; use "
            "fully_shard on its first dimension, with a mesh of one or two dimensions"
        )
    if mesh.size() != max(world.size, 1):
        raise UnsupportedModel(
            f"parameter {name} is spread over {mesh.size()} of {world.size} ranks; a mesh of some "
            "ranks only, as pipeline parallelism has it, is not supported: use one of all ranks"
        )


def _groups(mesh: Any) -> tuple[Any, Any]:
    """The group that shares a parameter out, and that of the copies of one piece, if any."""
    if mesh.ndim == 1:
        return mesh.get_group(0), None
    return mesh.get_group(1), mesh.get_group(0)


def _compute_device(mesh: Any) -> torch.device:
    if mesh.device_type == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device(mesh.device_type)


# ---- states, whole and in pieces


def whole(value: Any) -> Any:
    """A state with every spread tensor gathered, on the CPU; all ranks call it alike."""
    if is_sharded(value):
        # NCCL sends nothing that is on a CPU.
        there = local(value).to(value.device_mesh.device_type)
        return _spread_like(value, there).full_tensor().cpu()  # type: ignore[attr-defined]
    if isinstance(value, dict):
        found = {key: whole(one) for key, one in value.items()}
        return value if all(found[key] is value[key] for key in found) else found
    if type(value) in (list, tuple):
        return type(value)(whole(one) for one in value)
    return value


def spread_model(values: Mapping[str, Any], model: nn.Module) -> dict[str, Any]:
    """A model's whole state, in pieces where the model's own is."""
    here = model.state_dict()
    return {name: _alike(value, here.get(name)) for name, value in values.items()}


def spread_optimizer(values: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """An optimizer's whole state, in pieces where its parameters are."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state = {
        at: {key: _alike(one, parameters[at]) for key, one in each.items()}
        for at, each in values["state"].items()
    }
    return {**values, "state": state}


def _alike(value: Any, like: Any) -> Any:
    """``value`` in pieces like a tensor of the same shape; anything else as it is."""
    if not is_sharded(like) or not isinstance(value, torch.Tensor) or value.shape != like.shape:
        return value
    from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415

    there = value.to(like.device_mesh.device_type)
    cut = distribute_tensor(there, like.device_mesh, like.placements, src_data_rank=None)
    return cut if local(like).device.type == local(cut).device.type else cut.to(local(like).device)
