"""Parameters in pieces (FSDP2) on several ranks do what one process does."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.overrides import _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

import tacit
from tacit.errors import ProtocolError, TacitError, UnsupportedModel
from tacit.training import AdaptiveQuantile, capture
from tacit.training.circumstances import Circumstances
from tacit.training.clipping.recorder import Recorder

from .ranks import together
from .runs import (
    CLASSES,
    EXAMPLES,
    WIDTH,
    Run,
    by_class,
    chosen,
    network,
    of_case,
    rows,
    weights,
)
from .test_replicas import CLOSE, MODELS, RUNS, released

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tacit.training import Session


# Torch warns of what a user could do with a layer's result; nobody does it here.
pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")


_HOLDERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList)  # which compute nothing by themselves


def mesh_of(ranks: int, copies: int = 1) -> Any:
    if not distributed.is_initialized():
        distributed.init_process_group("gloo")
    if copies == 1:
        return init_device_mesh("cpu", (ranks,))
    return init_device_mesh("cpu", (copies, ranks // copies), mesh_dim_names=("copies", "pieces"))


def in_pieces(
    model: nn.Module, *, ranks: int, copies: int = 1, root_only: bool = False, **options: Any
) -> nn.Module:
    """As a user would: every child with parameters by itself, then the model."""
    mesh = mesh_of(ranks, copies)
    shared = {id(p) for p in model.parameters()}
    seen: list[int] = [id(p) for child in model.children() for p in child.parameters()]
    tied = {one for one in shared if seen.count(one) > 1}
    if not root_only:
        for child in model.children():
            own = {id(p) for p in child.parameters()}
            if own and not own & tied and not isinstance(child, _HOLDERS):
                fully_shard(child, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    return model


def check(run: Run, size: int, *, exact: bool = False, close: float = CLOSE, **how: Any) -> None:
    alone = run(0)
    ranks = together(size, replace(run, prepare=partial(in_pieces, ranks=size, **how)))
    for found in ranks:
        assert torch.equal(found, ranks[0])
    if exact:
        assert torch.equal(ranks[0], alone)
    off = float((ranks[0] - alone).abs().max() / alone.abs().max().clamp(min=1.0))
    assert off <= close, off


def test_two_pieces_equal_one_process() -> None:
    check(RUNS["fast"], 2)


def test_two_pieces_equal_one_process_to_the_bit() -> None:
    check(RUNS["exact"], 2, exact=True)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "copies"), [(2, 1), (4, 1), (4, 2)])
@pytest.mark.parametrize("name", [name for name in RUNS if name != "recorded"])
def test_pieces_equal_one_process(name: str, size: int, copies: int) -> None:
    check(RUNS[name], size, exact="exact" in name, copies=copies)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "copies"), [(2, 1), (4, 1), (4, 2)])
@pytest.mark.parametrize("case", chosen(*MODELS), ids=lambda case: case.name)
def test_models_in_pieces_equal_one_process(case: Any, size: int, copies: int) -> None:
    check(of_case(case), size, copies=copies)


@pytest.mark.slow
@pytest.mark.parametrize("case", chosen(*MODELS[1::4]), ids=lambda case: case.name)
def test_models_in_pieces_equal_one_process_to_the_bit(case: Any) -> None:
    check(of_case(case, noise="exact"), 4, exact=True, copies=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {"root_only": True},
        {"reshard_after_forward": False},
        {"offload_policy": CPUOffloadPolicy(pin_memory=False)},
    ],
    ids=str,
)
def test_other_ways_to_shard(how: dict[str, Any]) -> None:
    check(Run(), 2, **how)


@pytest.mark.slow
def test_mixed_precision_computes_in_half_and_steps_in_single() -> None:
    """Weights are rounded before they are used; what comes of it is near, sums are single."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32)
    run = Run(plan={"noise_multiplier": 1e-4})
    check(run, 2, close=3e-2, mp_policy=policy)


@pytest.mark.slow
def test_checkpointed_activations_in_pieces() -> None:
    class Blocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(5, 5) for _ in range(3))
            self.head = nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = checkpoint(lambda y, b=block: torch.tanh(b(y)), x, use_reentrant=False)
            result: Tensor = self.head(x)
            return result

    def prepared(model: nn.Module, *, ranks: int) -> nn.Module:
        mesh = mesh_of(ranks)
        for block in model.blocks:  # type: ignore[union-attr]
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    run = Run(model=Blocks)
    alone = run(0)
    found = together(2, replace(run, prepare=partial(prepared, ranks=2)))
    assert float((found[0] - alone).abs().max()) <= CLOSE


@pytest.mark.slow
def test_some_parameters_in_pieces_and_others_whole() -> None:
    def prepared(model: Any, *, ranks: int) -> nn.Module:
        fully_shard(model[2], mesh=mesh_of(ranks))  # the first layer is a replica
        made: nn.Module = model
        return made

    for plan in ({}, {"noise": "exact"}, {"clipping": AdaptiveQuantile(count_noise=3.0)}):
        run = Run(plan=plan)
        alone = run(0)
        found = together(2, replace(run, prepare=partial(prepared, ranks=2)))
        assert torch.equal(found[0], found[1])
        assert float((found[0] - alone).abs().max()) <= (0.0 if plan.get("noise") else CLOSE)


@pytest.mark.slow
def test_every_rank_steps_its_pieces_of_what_all_released() -> None:
    ranks = together(2, partial(released, prepare=partial(in_pieces, ranks=2)))
    assert torch.equal(ranks[0], ranks[1])
    assert float((ranks[0] - Run()(0)).abs().max()) <= CLOSE


def test_one_rank_with_pieces_of_everything() -> None:
    def work(rank: int) -> Tensor:
        return replace(Run(), prepare=partial(in_pieces, ranks=1))(rank)

    (found,) = together(1, work)
    assert float((found - Run()(0)).abs().max()) <= CLOSE


class Fragile(nn.Module):
    """Fails in the middle of a forward pass, if it is to."""

    fails = False

    def forward(self, x: Tensor) -> Tensor:
        if Fragile.fails:
            raise RuntimeError("in the middle")
        return torch.tanh(x)


def fragile() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 7), Fragile(), nn.Linear(7, CLASSES))


def by_function(model: nn.Module, **options: Any) -> tuple[Tensor, str]:
    """The weights after some steps whose losses are a function, and what is said of them."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    plan = Run(plan={"steps": 7}).plan_of()
    with tacit.private(model, optimizer, plan, rows(), unsafe_seed=2, **options) as dp:
        for lot in dp.lots():
            dp.accumulate(lot, lambda batch: by_class(model, batch))
            dp.step()
        return weights(model), dp.explain()


def alone_in_pieces(prepare: Callable[[nn.Module], None], **how: Any) -> str:
    """What is said of the same with one rank, whose pieces are the whole; it must come to that."""

    def work(_: int) -> tuple[Tensor, str]:
        torch.manual_seed(5)
        model = in_pieces(fragile(), ranks=1, **how)
        prepare(model)
        return by_function(model, performance=tacit.Performance(capture=True, batch=4))

    ((found, said),) = together(1, work)
    torch.manual_seed(5)
    alone, _ = by_function(fragile(), performance=tacit.Performance(capture=True, batch=4))
    assert float((found - alone).abs().max()) <= CLOSE
    return said


def test_one_rank_with_pieces_of_everything_is_replayed() -> None:
    def prepare(_: nn.Module) -> None:
        gather = FSDPParamGroup.wait_for_unshard

        def watched(self: FSDPParamGroup) -> None:
            for mode in _get_current_function_mode_stack():
                assert not isinstance(mode, Recorder)  # FSDP's own work is not seen call by call
            gather(self)

        FSDPParamGroup.wait_for_unshard = watched  # type: ignore[method-assign]

    said = alone_in_pieces(prepare)
    assert "one process; parameters in one piece (FSDP2)" in said
    assert "Batches are replayed" in said
    assert "Noise and update are replayed" in said


def test_a_recording_that_fails_leaves_nothing_gathered() -> None:
    def prepare(model: nn.Module) -> None:
        def record(_: capture.Reruns, work: Any) -> Any:
            Fragile.fails = True
            try:
                return work()
            finally:
                Fragile.fails = False
                for weight in model.parameters():  # what a device records it does not compute
                    assert not isinstance(weight, DTensor)
                    weight.data.fill_(1.0)

        capture.Reruns.record_batch = record  # type: ignore[method-assign]

    said = alone_in_pieces(prepare, root_only=True)  # all weights are gathered when it fails
    assert "recording failed with RuntimeError" in said


def on_one_device(kind: str, *, pieces: bool, spoils: bool = False) -> tuple[Tensor, str]:
    """The weights of twelve steps with fixed lots on a device, and what is said of them."""
    torch.manual_seed(5)
    model = network().to(kind)
    if pieces:
        mesh = init_device_mesh(kind, (1,))
        for part in (model[0], model[2], model):  # type: ignore[index]
            fully_shard(part, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = Run(plan={"steps": 12, "lot_size": EXAMPLES, "noise_multiplier": 1e-6}).plan_of()
    performance = tacit.Performance(capture=True)
    with tacit.private(model, optimizer, plan, rows(), performance=performance) as dp:
        for lot in dp.lots():
            dp.accumulate(lot, lambda batch: by_class(model, batch))
            dp.step()
            if spoils and lot.step == 9:
                next(model.parameters()).to_local().data.add_(1e-3)  # type: ignore[attr-defined]
        return weights(model).cpu(), dp.explain()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_one_rank_on_a_gpu_is_replayed() -> None:
    store = distributed.HashStore()
    distributed.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=0, world_size=1)
    try:
        (plain, _), (found, said) = (on_one_device("cuda", pieces=one) for one in (False, True))
        assert float((found - plain).abs().max()) <= 1e-4  # a device adds up in any order
        assert "Batches are replayed" in said, said
        assert "Noise and update are replayed" in said, said
        with pytest.raises(ProtocolError, match="was changed"):
            on_one_device("cuda", pieces=True, spoils=True)
    finally:
        distributed.destroy_process_group()


class Placed(nn.Module):
    """Asks for attributes of tensors one after the other, outside of what is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = x + torch.arange(x.shape[1], device=x.device).expand_as(x).contiguous()
        for block in self.blocks:
            x = torch.tanh(block(x))
        result: Tensor = self.head(x)
        return result


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which Dynamo looks at
@pytest.mark.parametrize("whole", [True, False])
def test_a_compiled_model_in_pieces(whole: bool) -> None:
    def trained(_: int, *, pieces: bool) -> Tensor:
        torch.manual_seed(5)
        model = Placed()
        if pieces and not whole:
            model.blocks[0].compile(backend="eager")
        for part in (*model.blocks, model) if pieces else ():
            fully_shard(part, mesh=mesh_of(1))
        used = torch.compile(model, backend="eager") if pieces and whole else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        performance = tacit.Performance(capture=True, batch=4)
        dp = tacit.private(model, optimizer, Run(plan={"steps": 4}).plan_of(), rows(),
                           unsafe_seed=2, performance=performance)  # fmt: skip
        with dp:
            for lot in dp.lots():
                dp.accumulate(lot, lambda batch: by_class(used, batch))
                dp.step()
        if pieces:
            assert torch._dynamo.utils.counters["frames"]["ok"] > 0
        return weights(model)

    (found,) = together(1, partial(trained, pieces=True))
    assert float((found - trained(0, pieces=False)).abs().max()) <= CLOSE


def test_hooks_of_ones_own_are_called_for_every_batch() -> None:
    def work(_: int) -> list[str]:
        model = in_pieces(network(), ranks=1)
        found = [Circumstances(model, model.forward).hindrance]
        model[2].register_forward_hook(lambda *_: None)  # type: ignore[index]
        return [*found, Circumstances(model, model.forward).hindrance]

    assert together(1, work) == [["", "a hook would not be called (2)"]]


def started(model: nn.Module, **options: Any) -> Session:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    plan = Run(plan={"steps": 5}).plan_of()
    return tacit.private(model, optimizer, plan, rows(), unsafe_seed=2, **options)


def trained(dp: Session, model: nn.Module, path: Path | None = None) -> None:
    with dp:
        for lot in dp.lots():
            dp.accumulate(lot, lambda batch: by_class(model, batch))
            dp.step()
            if path is not None and lot.step == 1:
                dp.save(path)


@pytest.mark.parametrize(
    ("before", "after"), [(2, 1), (1, 2), pytest.param(2, 3, marks=pytest.mark.slow)]
)
def test_checkpoints_are_the_same_for_any_number_of_pieces(
    tmp_path: Path, before: int, after: int
) -> None:
    path = tmp_path / "checkpoint"

    def made(ranks: int) -> nn.Module:
        torch.manual_seed(0)
        return in_pieces(network(), ranks=ranks) if ranks > 1 else network()

    def begun(_: int) -> Tensor:
        model = made(before)
        trained(started(model), model, path)
        return weights(model)

    def ended(_: int) -> tuple[Tensor, Any, str]:
        model = made(after)
        dp = started(model, resume=path)
        trained(dp, model)
        return weights(model), dp.statement(1e-4), dp.explain()

    whole = together(before, begun)[0] if before > 1 else begun(0)
    found = together(after, ended) if after > 1 else [ended(0)]
    for flat, claim, said in found:
        assert claim.steps_taken == 5
        assert flat.shape == whole.shape
        assert torch.equal(flat, found[0][0])
        assert ("parameters in" in said) == (after > 1)
    before, after = 1, 1  # and as one process goes on from the same file
    again = ended(0)[0]
    assert float((found[0][0] - again).abs().max()) <= CLOSE


def test_a_piece_changed_by_hand_is_noticed() -> None:
    def work(rank: int) -> str:
        model = in_pieces(network(), ranks=2)
        with pytest.raises(TacitError) as raised, started(model) as dp:
            for lot in dp.lots():
                for batch in lot:
                    dp.backward(by_class(model, batch))
                dp.step()
                if rank == 1:
                    next(model.parameters()).to_local().data.numpy()[0, 0] += 1e-6
        return str(raised.value)

    first, second = together(2, work)
    assert "was changed inside the private context past autograd" in second
    assert "rank 1 ended with ProtocolError: parameter 0.weight was changed" in first


def test_own_steps_and_backward_passes_are_refused() -> None:
    def work(_: int) -> list[str]:
        said = []
        model = in_pieces(network(), ranks=2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        dp = tacit.private(model, optimizer, Run().plan_of(), rows())
        with pytest.raises(ProtocolError) as raised, dp:
            optimizer.step()
        said.append(str(raised.value))
        return said

    for found in together(2, work):
        assert "call dp.step(), which adds the noise" in found[0]


def test_tensor_parallelism_is_refused_by_name() -> None:
    def work(_: int) -> str:
        mesh, model = mesh_of(2), network()
        for child in (model[0], model[2]):  # type: ignore[index]
            cut = distribute_tensor(child.weight.detach(), mesh, [Shard(1)])
            child.weight = nn.Parameter(cut)
        with pytest.raises(UnsupportedModel) as raised:
            started(model)
        return str(raised.value)

    for said in together(2, work):
        assert "tensor parallelism" in said
        assert "\n" not in said


def test_a_mesh_of_some_ranks_is_refused() -> None:
    def work(rank: int) -> str:
        distributed.init_process_group("gloo")
        meshes = [distributed.device_mesh.DeviceMesh("cpu", [one]) for one in range(2)]
        model = fully_shard(network(), mesh=meshes[rank])
        with pytest.raises(UnsupportedModel) as raised:
            started(model)
        return str(raised.value)

    for said in together(2, work):
        assert "pipeline parallelism" in said


@pytest.mark.slow
def test_evaluation_between_lots_and_public_steps() -> None:
    def work(_: int) -> tuple[Tensor, int]:
        torch.manual_seed(0)
        model = in_pieces(network(), ranks=2)
        dp = started(model)
        x, y = rows().tensors
        seen = 0
        with dp:
            for lot in dp.lots():
                for batch in lot:
                    seen += 0 if lot.is_rehearsal else len(batch[0])
                    dp.backward(by_class(model, batch))
                dp.step()
                with torch.no_grad():
                    model(x)
                if lot.step == 1:
                    with dp.public():
                        by_class(model, (x, y)).mean().backward()
                        dp.optimizers[0].step()
                        dp.optimizers[0].zero_grad()
        return weights(model), seen

    (one, seen), (other, seen_there) = together(2, work)
    assert torch.equal(one, other)
    assert 0 < seen + seen_there < 5 * EXAMPLES
