"""Compiled: the same sums, and no compiling again for lots of other sizes."""

from __future__ import annotations

import copy
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch.utils.data import TensorDataset

from tacit.errors import UnsupportedModel
from tacit.models.networks import StandardisedConv2d
from tacit.training.performance import Performance

from . import sessions
from .sessions import CLIP, Grads, cross_entropy, data, drawn, network, plan, session, sgd

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    # torch's own, when it loads its compiler
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning"),
    # and when it traces a function with a gradient of its own
    pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning"),
    # and when it traces a part of a model, whose input others have computed
    pytest.mark.filterwarnings("ignore:.*that is not a leaf Tensor is being accessed:UserWarning"),
]
BY_A_COMPILER = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs the compiler g++"),
]


@pytest.fixture(scope="module", params=["aot_eager", pytest.param("inductor", marks=BY_A_COMPILER)])
def compiled_run(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A compiled model, compiled norms, and ten Poisson lots of different sizes.

    The graphs are the same whatever is made of them; inductor has g++ compile them, for 20 seconds.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "inductor":
            patch.setattr("torch._inductor.compile", lambda graph, _: graph)
        yield run_by(request.param)


def run_by(backend: str) -> tuple[list[list[int]], list[Any], list[int]]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = network()
    fast = torch.compile(model, backend=backend)
    optimizer = sgd(model, lr=1e-12)
    grads = Grads(model, optimizer)
    lots, graphs = [], []
    chosen = plan(lot_size=12, steps=10)
    with session(
        model, optimizer=optimizer, plan=chosen, performance=Performance(compile=True),
        unsafe_seed=1,
    ) as dp:  # fmt: skip
        for lot in dp.lots():
            lots.append(drawn(lot).tolist())
            for batch in lot:
                dp.backward(cross_entropy(fast)(batch))
            dp.step()
            graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    torch._dynamo.reset()
    return lots, grads.steps, graphs


def test_compiled_sums_are_those_of_the_definition(compiled_run: Any) -> None:
    lots, steps, _ = compiled_run
    for lot, step in zip(lots, steps, strict=True):
        truth = sessions.example_sum(network(), data(), lot, CLIP)
        assert sessions.close(step, {n: v / 12 for n, v in truth.items()}, 2e-5)


def test_lots_of_other_sizes_compile_nothing_anew(compiled_run: Any) -> None:
    lots, _, graphs = compiled_run
    assert len({len(lot) for lot in lots}) > 3
    assert graphs[-1] > 0  # it was compiled at all
    assert graphs[4:] == [graphs[-1]] * len(graphs[4:])


def test_a_compiled_forward_pass_computes_nothing_more() -> None:
    """Where a gradient is looked at there is a copy, which inductor leaves out, and no sum."""
    torch._dynamo.reset()
    found: list[str] = []

    def noted(graph: torch.fx.GraphModule, _: Any) -> Any:
        found.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return make_boxed_func(graph.forward)

    model = network()
    fast = torch.compile(model, backend=aot_autograd(fw_compiler=noted, bw_compiler=noted_not))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch._inductor.compile", lambda graph, _: graph)
        with session(
            model, plan=plan(lot_size=40, steps=2), performance=Performance(compile=True)
        ) as dp:
            for lot in dp.lots():
                for batch in lot:
                    dp.backward(cross_entropy(fast)(batch))
                dp.step()
    torch._dynamo.reset()
    assert any("addmm" in name for name in found)
    assert not any("aten.add." in name for name in found)
    assert sum("aten.clone" in name for name in found) == sum("addmm" in name for name in found)


class Images(nn.Module):
    """Results of private weights that are changed in place."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first, self.last = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        found = self.first(x).relu_()
        scores: Tensor = self.last((found + found.mean((2, 3), keepdim=True)).flatten(1))
        scores[:, 0] = 0.0
        return scores.mul_(2.0)


def test_results_with_their_channels_last_may_be_changed_in_place() -> None:
    """As in the ordinary layout, compiled or not."""
    found = []
    x, y = torch.randn(40, 2, 4, 4), torch.randint(3, (40,))
    for layout, compiled in (
        (torch.contiguous_format, False),
        (torch.channels_last, False),
        (torch.channels_last, True),
    ):
        torch._dynamo.reset()
        model = Images().to(memory_format=layout)
        used = torch.compile(model, backend="aot_eager") if compiled else model
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("torch._inductor.compile", lambda graph, _: graph)
            with session(
                model, plan=plan(lot_size=40, steps=3), unsafe_seed=1,
                dataset=TensorDataset(x.contiguous(memory_format=layout), y),
                performance=Performance(compile=compiled),
            ) as dp:  # fmt: skip
                for lot in dp.lots():
                    for batch in lot:
                        dp.backward(cross_entropy(used)(batch))
                    dp.step()
        found.append(torch.cat([p.detach().reshape(-1) for p in model.parameters()]))
    torch._dynamo.reset()
    for one in found[1:]:
        assert torch.allclose(one, found[0], atol=1e-5)


def noted_not(graph: torch.fx.GraphModule, _: Any) -> Any:
    return make_boxed_func(graph.forward)


def test_a_compiled_model_runs_uncompiled_where_compiling_is_not_asked_for() -> None:
    torch._dynamo.utils.counters.clear()
    model = network()
    fast = torch.compile(model)
    optimizer = sgd(model)
    grads = Grads(model, optimizer)
    with session(model, optimizer=optimizer, plan=plan(lot_size=40, steps=1)) as dp:
        for lot in dp.lots():
            for batch in lot:
                dp.backward(cross_entropy(fast)(batch))
            dp.step()
    truth = sessions.example_sum(network(), data(), range(40), CLIP)
    assert sessions.close(grads.steps[0], {n: v / 40 for n, v in truth.items()})
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 0


def test_a_group_norms_sums_are_made_in_the_compiled_backward_pass() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = convolutional()
    fast = torch.compile(model, backend="aot_eager")
    optimizer = sgd(model, lr=1e-12)
    grads = Grads(model, optimizer)
    chosen, performance = plan(lot_size=40, steps=2), Performance(capture=True)
    images = TensorDataset(torch.randn(40, 2, 5, 5), data().tensors[1])
    with session(
        model, optimizer=optimizer, plan=chosen, dataset=images, performance=performance
    ) as dp:
        for lot in dp.lots():
            dp.accumulate(lot, cross_entropy(fast))
            dp.step()
        explained = dp.explain()
    assert "standardised conv" in explained
    assert "overlap" not in explained  # as weights do that are computed in any other way
    truth = sessions.example_sum(convolutional(), images, range(40), CLIP)
    for step in grads.steps:  # the first one runs uncompiled
        assert sessions.close(step, {n: v / 40 for n, v in truth.items()}, 2e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    torch._dynamo.reset()


def convolutional() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(inplace=True),
            StandardisedConv2d(4, 4, 3), nn.Flatten(), nn.Linear(36, sessions.CLASSES),
        )  # fmt: skip


class Broken(nn.Module):
    """A model whose graph breaks, and which goes by what its tensors are."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            rows = rows + self.inner(rows).relu()
            torch._dynamo.graph_break()
            seen = (rows.dtype, rows.device.type, tuple(rows.shape[1:]))
            assert seen == (torch.float32, "cpu", (5,)), seen
        return self.head(rows)


def test_a_broken_graph_asks_for_the_right_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo compiled the recorder by itself then, and took the shape of a tensor for its dtype."""
    torch._dynamo.reset()
    monkeypatch.setattr("torch._inductor.compile", lambda graph, _: graph)
    torch.manual_seed(0)
    model = Broken()
    fast = torch.compile(model, backend="eager")
    rows = TensorDataset(torch.randn(32, 5), torch.randint(3, (32,)))
    chosen = plan(examples=32, lot_size=32, steps=6)
    with session(
        model, optimizer=sgd(model), plan=chosen, dataset=rows,
        performance=Performance(compile=True),
    ) as dp:  # fmt: skip
        for lot in dp.lots():
            for batch in lot:
                dp.backward(cross_entropy(fast)(batch))
            dp.step()
    torch._dynamo.reset()


class Shuffled(nn.Module):
    """A model that takes its layers in another order when asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)
        self.head: nn.Module = nn.Linear(5, 3)
        self.turned = False

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        one, two = (self.second, self.first) if self.turned else (self.first, self.second)
        seen: torch.Tensor = self.head(two(one(rows).tanh()).tanh())
        return seen


def refused_on_another_path(model: Shuffled, used: Any, refusal: str) -> None:
    """Trains ``model`` by ``used``, compiled whole or in part; its third lot goes another way."""
    rows = TensorDataset(torch.randn(8, 5), torch.randint(3, (8,)))
    chosen = plan(examples=8, lot_size=8, steps=4)
    with (
        pytest.raises(UnsupportedModel, match=refusal),
        session(
            model, optimizer=sgd(model), plan=chosen, dataset=rows,
            performance=Performance(capture=True),
        ) as dp,
    ):  # fmt: skip
        for lot in dp.lots():
            for batch in lot:
                model.turned = lot.step == 2
                dp.backward(cross_entropy(used)(batch))
            dp.step()
    assert dp.steps_taken == 2
    torch._dynamo.reset()


def test_a_compiled_model_that_takes_another_path_is_refused() -> None:
    """It gave each layer the other one's gradient: uses were told by their number alone."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Shuffled()
    fast = torch.compile(model, backend="eager")
    refused_on_another_path(model, fast, "where it had used another; a compiled model")


class Block(nn.Module):
    """What is compiled by itself: torch's own modules are not."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(width), nn.Linear(width, out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.norm(x)).tanh()


class Placed(nn.Module):
    """Tokens and their places, of which every pass makes the same view; then a block."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(7, 4), nn.Embedding(6, 4)
        self.block, self.head = Block(4, 4), nn.Linear(4, sessions.CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        scores: torch.Tensor = self.head(self.block(x).mean(1))
        return scores


@pytest.mark.parametrize("part", ["whole", "block"])
def test_a_model_with_places_is_served_compiled_and_so_is_a_part_of_it(part: str) -> None:
    """Refused on a GPU: a graph ended at the places, and the same view again was another weight."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    model = Placed()
    fresh = copy.deepcopy(model)
    if part == "block":
        model.block.compile(backend="aot_eager")
    fast = torch.compile(model, backend="aot_eager") if part == "whole" else model
    optimizer = sgd(model, lr=1e-12)
    grads = Grads(model, optimizer)
    texts = TensorDataset(torch.randint(7, (12, 5)), torch.randint(sessions.CLASSES, (12,)))
    chosen, performance = plan(examples=12, lot_size=12, steps=3), Performance(capture=True)
    with session(
        model, optimizer=optimizer, plan=chosen, dataset=texts, performance=performance
    ) as dp:
        for lot in dp.lots():
            dp.accumulate(lot, cross_entropy(fast))
            dp.step()
    truth = sessions.example_sum(fresh, texts, range(12), CLIP)
    for step in grads.steps:  # the first one runs uncompiled
        assert sessions.close(step, {n: v / 12 for n, v in truth.items()}, 2e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]
    torch._dynamo.reset()


def test_another_path_before_a_compiled_part_is_refused_as_that() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Shuffled()
    model.head = Block(5, 3)
    model.head.compile(backend="aot_eager")
    refused_on_another_path(model, model, r"head.norm.weight is used in a compiled part .* un")
