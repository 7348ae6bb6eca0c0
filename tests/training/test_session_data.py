"""Batches of every kind of data set, and the kinds that cannot be sampled by a plan."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

import tacit
from tacit.errors import InvalidArgument, UnsupportedModel
from tacit.training.performance import Performance

from . import sessions
from .sessions import CLIP, EXAMPLES, Grads, cross_entropy, data, network, plan, session, sgd


class Rows(Dataset[Any]):
    """The rows of ``data()``, each in the form that ``form`` gives it."""

    def __init__(self, form: Any) -> None:
        self.tensors = data().tensors
        self.form = form

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int) -> Any:
        return self.form(*(t[index] for t in self.tensors))


class ManyAtOnce(Rows):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


def as_tuple(x: Tensor, y: Tensor) -> Any:
    return x, y


def as_dict(x: Tensor, y: Tensor) -> Any:
    return {"x": x, "y": y}


def as_nested(x: Tensor, y: Tensor) -> Any:
    return {"input": [x[:2], {"rest": x[2:]}], "y": y, "name": "example"}


def as_numpy(x: Tensor, y: Tensor) -> Any:
    return x.numpy(), int(y)


class Encoding(UserDict):  # type: ignore[type-arg]
    """What tokenizers return: a mapping that moves itself."""

    def to(self, device: torch.device) -> Encoding:
        return Encoding({name: value.to(device) for name, value in self.items()})


def collated(examples: list[Any]) -> Encoding:
    return Encoding(
        {"x": torch.stack([x for x, _ in examples]), "y": torch.stack([y for _, y in examples])}
    )


def unpacked(batch: Any) -> tuple[Tensor, Tensor]:
    if isinstance(batch, (tuple, list)):
        x, y = batch
    elif "input" in batch:
        first, rest = batch["input"]
        assert set(batch["name"]) == {"example"}
        x, y = torch.cat([first, rest["rest"]], 1), batch["y"]
    else:
        x, y = batch["x"], batch["y"]
    return x, y


def released(dataset: Any, **changed: Any) -> dict[str, Tensor]:
    model = network()
    optimizer = sgd(model)
    grads = Grads(model, optimizer)
    chosen = plan(lot_size=EXAMPLES, steps=1)
    given = {"performance": Performance(batch=16)} | changed
    with session(model, optimizer=optimizer, plan=chosen, dataset=dataset, **given) as dp:
        for lot in dp.lots():
            for batch in lot:
                x, y = unpacked(batch)
                dp.backward(functional.cross_entropy(model(x), y, reduction="none"))
            dp.step()
    return grads.steps[0]


FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "tuples": (Rows(as_tuple), {}),
    "dicts": (Rows(as_dict), {}),
    "nested": (Rows(as_nested), {}),
    "numpy": (Rows(as_numpy), {}),
    "many at once": (ManyAtOnce(as_tuple), {}),
    "custom collate": (Rows(as_tuple), {"collate": collated}),
    "tensors on the device": (data(), {}),
    "tensors, collated": (data(), {"collate": collated}),
    "a subset": (Subset(data(), range(EXAMPLES)), {}),
    "whole": (data(), {"performance": Performance(batch=EXAMPLES)}),
    "workers": (Rows(as_dict), {"performance": Performance(batch=16, workers=2)}),
}


@pytest.fixture(scope="module")
def truth() -> Any:
    found = sessions.example_sum(network(), data(), range(EXAMPLES), CLIP)
    return {name: value / EXAMPLES for name, value in found.items()}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_sum(name: str, truth: Any) -> None:
    dataset, changed = FORMS[name]
    assert sessions.close(released(dataset, **changed), truth)


def test_a_full_batch_may_not_be_changed_in_place() -> None:
    """On the device a full batch is the data set itself."""
    model = network()
    with (
        pytest.raises(InvalidArgument, match="data set was changed in place"),
        session(model, plan=plan(lot_size=EXAMPLES)) as dp,
    ):
        for lot in dp.lots():
            for x, y in lot:
                x.add_(1.0)
                dp.backward(functional.cross_entropy(model(x), y, reduction="none"))
            dp.step()


@pytest.mark.parametrize("dataset", [data(), Rows(as_tuple)], ids=["device", "rows"])
def test_copies_may_be_changed_in_place(dataset: Any) -> None:
    model = network()
    with session(model, plan=plan(lot_size=20, steps=2), dataset=dataset) as dp:
        for lot in dp.lots():
            for x, y in lot:
                x.mul_(0.5)
                dp.backward(functional.cross_entropy(model(x), y, reduction="none"))
            dp.step()


def test_inputs_that_require_grad_leave_the_data_alone() -> None:
    model, dataset = network(), data()
    with session(model, plan=plan(lot_size=EXAMPLES, steps=2), dataset=dataset) as dp:
        for lot in dp.lots():
            for x, y in lot:
                x.requires_grad_()
                dp.backward(functional.cross_entropy(model(x), y, reduction="none"))
            dp.step()
    assert not dataset.tensors[0].requires_grad


class Counting(Dataset[Any]):
    """Notes who is asked for what, in this process."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return data()[index]


def test_only_the_drawn_examples_are_loaded_each_once() -> None:
    model, dataset = network(), Counting()
    chosen = Performance(batch=4)
    with session(model, dataset=dataset, performance=chosen) as dp:
        for lot in dp.lots():
            units, dataset.asked = sessions.drawn(lot).tolist(), []
            for x, y in lot:
                dp.backward(functional.cross_entropy(model(x), y, reduction="none"))
            dp.step()
            if lot.step > 0:  # the first has been repeated to check it
                assert dataset.asked == units


class RandomRows(Dataset[Any]):
    """Random augmentation by torch's generator, NumPy's, or one of its own."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.own = torch.Generator().manual_seed(1)
        self.tensors = data().tensors

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int) -> Any:
        x, y = (t[index] for t in self.tensors)
        if self.kind == "torch":
            noise = torch.randn(x.shape)
        elif self.kind == "numpy":
            noise = torch.from_numpy(np.random.normal(size=x.shape)).float()  # noqa: NPY002
        else:
            noise = torch.randn(x.shape, generator=self.own)
        for _ in range(index % 3):  # as many draws as the example needs
            torch.rand(1)
        return x + noise, y


@pytest.mark.parametrize(
    ("kind", "workers", "collate"),
    [
        ("torch", 0, None), ("numpy", 0, None), ("own", 0, None), ("torch", 1, None),
        ("own", 0, collated),  # as collators of Hugging Face do that mask words at random
    ],
)  # fmt: skip
def test_random_augmentation_is_no_mixing(kind: str, workers: int, collate: Any) -> None:
    model = network()
    chosen = Performance(workers=workers)
    dataset = RandomRows(kind)
    with session(
        model, dataset=dataset, plan=plan(steps=3), performance=chosen, collate=collate
    ) as dp:
        for lot in dp.lots():
            for batch in lot:
                x, y = unpacked(batch)
                dp.backward(functional.cross_entropy(model(x), y, reduction="none"))
            dp.step()
    assert dp.verify() is not None


PADDING = 9


class Sentences(Dataset[Any]):
    """Rows of different lengths."""

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int) -> Any:
        return torch.arange(1 + (index * 7) % 11) % 9, index % 3


def padded(examples: list[Any]) -> Any:
    words = [x for x, _ in examples]
    x = nn.utils.rnn.pad_sequence(words, batch_first=True, padding_value=PADDING)
    return x, torch.tensor([y for _, y in examples])


class Reader(nn.Module):
    """The mean of a sentence's words; over its padding as well, unless that is masked."""

    def __init__(self, *, masked: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.masked = masked
        self.table = nn.Embedding(10, 4)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        words = self.drop(self.table(x))
        seen = (x < PADDING if self.masked else x >= 0).unsqueeze(-1)
        shown: Tensor = self.head((words * seen).sum(1) / seen.sum(1))
        return shown


def numbered(examples: list[Any]) -> Any:
    """Each row begins with its place in the batch: who stands before it changes it."""
    x, y = padded(examples)
    x[:, 0] = torch.arange(len(x)) % PADDING
    return x, y


def read(model: Reader, seed: int, collate: Any = padded) -> None:
    chosen = plan(steps=2, lot_size=10)
    with tacit.private(
        model, sgd(model), chosen, Sentences(), collate=collate, unsafe_seed=seed
    ) as dp:
        for lot in dp.lots():
            for x, y in lot:
                dp.backward(functional.cross_entropy(model(x), y, reduction="none"))
            dp.step()


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(6))
def test_batches_padded_to_their_longest_row(dropout: float, seed: int) -> None:
    """The check replaces a row; the shape, and with it dropout's masks, must not move."""
    read(Reader(masked=True, dropout=dropout), seed)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(6))
def test_averages_over_padding_are_refused(dropout: float, seed: int) -> None:
    """A longer sentence beside it changes what a short one adds."""
    with pytest.raises(UnsupportedModel, match="how many or how long the rows beside it"):
        read(Reader(masked=False, dropout=dropout), seed)


@pytest.mark.parametrize("seed", range(6))
def test_one_longer_row_in_many_shows_what_padding_does_if_lengths_are_known(seed: int) -> None:
    """Else it may be drawn when nothing is checked, and change all rows beside it."""
    rows = [(torch.full((3 + (at == 7),), at % 9), at % 3) for at in range(EXAMPLES)]
    model = Reader(masked=False)

    def one_lot() -> None:
        with tacit.private(
            model, sgd(model), plan(steps=1, lot_size=10), rows, collate=padded, unsafe_seed=seed,
            lengths=[len(x) for x, _ in rows],
        ) as dp:  # fmt: skip
            for x, y in next(dp.lots()):
                dp.backward(functional.cross_entropy(model(x), y, reduction="none"))
            dp.step()

    with pytest.raises(UnsupportedModel, match="how many or how long the rows beside it"):
        one_lot()


class Graphs(Dataset[Any]):
    """Rows of four nodes each."""

    def __init__(self) -> None:
        self.nodes = [4] * EXAMPLES

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int) -> Any:
        return 3 * torch.eye(EXAMPLES)[index].repeat(self.nodes[index], 1)


def end_to_end(graphs: list[Tensor]) -> Any:
    """All nodes of a batch, and the graph of each: as in libraries for graphs."""
    sizes = torch.tensor([len(one) for one in graphs])
    return torch.cat(graphs), torch.arange(len(graphs)).repeat_interleave(sizes), len(graphs)


@pytest.mark.parametrize("uneven", [False, True])
def test_rows_end_to_end_count_for_themselves_or_are_refused(uneven: bool) -> None:
    """All records of a rehearsal may be of one size, and a batch as long as if all were."""
    model, graphs = nn.Linear(EXAMPLES, 1, bias=False), Graphs()
    optimizer = sgd(model)
    grads = Grads(model, optimizer)

    def two_lots() -> None:
        with session(
            model, optimizer=optimizer, dataset=graphs, collate=end_to_end,
            plan=plan(lot_size=EXAMPLES, steps=2, clip=1.0),
        ) as dp:  # fmt: skip
            for lot in dp.lots():
                if uneven and lot.step == 1:
                    graphs.nodes[12], graphs.nodes[25] = 3, 5
                for nodes, graph, count in lot:
                    dp.backward(torch.zeros(count).index_add(0, graph, model(nodes)[:, 0]))
                dp.step()

    if uneven:
        with pytest.raises(UnsupportedModel, match="weight mixes or moves examples"):
            two_lots()
    else:
        two_lots()
        every = torch.ones(1, EXAMPLES)
        assert all(
            torch.allclose(one["weight"] * EXAMPLES, every, atol=1e-4) for one in grads.steps
        )


@pytest.mark.parametrize("seed", range(6))
def test_rows_that_are_numbered_in_their_batch_are_refused(seed: int) -> None:
    with pytest.raises(UnsupportedModel, match="how many or how long the rows beside it"):
        read(Reader(masked=True), seed, numbered)


@pytest.mark.parametrize("kind", ["count", "a little", "fixed"])
def test_losses_that_follow_the_size_of_the_batch_are_refused(kind: str) -> None:
    """A share of the batch mixes examples, although no row's replacement shows it."""
    share = {"count": len, "a little": lambda x: 10 + len(x), "fixed": lambda _: 8}[kind]
    model = network()

    def one_lot() -> None:
        with session(model) as dp:
            for batch in next(dp.lots()):
                dp.backward(cross_entropy(model)(batch) / share(batch[0]))
            dp.step()

    if kind == "fixed":
        one_lot()
    else:
        with pytest.raises(UnsupportedModel, match="how many or how long the rows beside it"):
            one_lot()


def hardest(losses: Tensor) -> Tensor:
    """The largest losses of the batch alone, as in online hard example mining."""
    kept = losses.detach().topk(min(16, len(losses))).values[-1]
    return losses * (losses.detach() >= kept)


def scaled_in_large_batches(losses: Tensor) -> Tensor:
    return losses / losses.detach().mean() if len(losses) > 12 else losses


@pytest.mark.parametrize("mixed", [hardest, scaled_in_large_batches])
@pytest.mark.parametrize("drawn", ["the same", "others"])
def test_what_large_batches_alone_mix_is_refused(mixed: Any, drawn: str) -> None:
    model = network()
    rows: Any = sessions.Plain() if drawn == "the same" else RandomRows("torch")
    told = sessions.plan(lot_size=EXAMPLES, steps=1)
    with (
        pytest.raises(UnsupportedModel, match="how many or how long the rows beside it"),
        session(model, dataset=rows, plan=told) as dp,
    ):
        for batch in next(dp.lots()):
            dp.backward(mixed(cross_entropy(model)(batch)))


def test_a_batch_as_large_as_those_of_lots_is_seen_in_the_rehearsal_alone() -> None:
    model, sizes = network(), []
    with session(model, plan=plan(lot_size=EXAMPLES, steps=2)) as dp:
        for lot in dp.lots():
            for batch in lot:
                sizes.append((lot.is_rehearsal, len(batch[0])))
                dp.backward(cross_entropy(model)(batch))
            dp.step()
    assert [size for rehearses, size in sizes if rehearses] == [8, 8, 8, 8, 2, 8, EXAMPLES]
    assert [size for rehearses, size in sizes if not rehearses] == [EXAMPLES] * 2


def test_losses_over_the_largest_of_the_batch_are_refused() -> None:
    """One row of eight decides; alone, a clipped gradient is as long as it was with company."""
    model = network()
    with torch.no_grad():
        order = cross_entropy(model)(data().tensors).argsort(descending=True)
    few = TensorDataset(*(rows[order[[0, -1]].repeat_interleave(5)] for rows in data().tensors))

    def one_lot() -> None:
        with session(model, dataset=few, plan=plan(examples=10, lot_size=5, clip=1e-3)) as dp:
            for batch in next(dp.lots()):
                losses = cross_entropy(model)(batch)
                dp.backward(losses / losses.detach().max())
            dp.step()

    with pytest.raises(UnsupportedModel, match="examples are mixed"):
        one_lot()


# ---- refusals


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(data())


class Unsized:
    def __getitem__(self, index: int) -> Any:
        return data()[index]


REFUSED: dict[str, tuple[Any, str]] = {
    "shuffling loader": (DataLoader(data(), batch_size=4, shuffle=True), "not Poisson"),
    "loader": (DataLoader(data(), batch_size=4), "draws its own batches"),
    "weighted loader": (  # PEERS 4
        DataLoader(data(), sampler=WeightedRandomSampler([1.0] * EXAMPLES, EXAMPLES)),
        "draws its own batches",
    ),
    "sampler": (RandomSampler(data()), "plan's own sampler"),
    "stream": (Stream(), "cannot be sampled independently"),
    "generator": ((x for x in data()), "map-style"),
    "unsized": (Unsized(), "map-style"),
    "tuple of tensors": ((torch.zeros(EXAMPLES, 4), torch.zeros(EXAMPLES)), "TensorDataset"),
    "tuple of arrays": ((torch.zeros(EXAMPLES, 4).numpy(), [0] * EXAMPLES), "TensorDataset"),
    "file name": ("x" * EXAMPLES, "dataset is a str, which has no row 0"),
    "columns": ({str(at): at for at in range(EXAMPLES)}, "dataset is a dict, which has no row 0"),
    "shorter": (data(EXAMPLES - 1), f"examples={EXAMPLES}, but the data set has {EXAMPLES - 1}"),
    "longer": (data(EXAMPLES + 1), f"examples={EXAMPLES}, but the data set has {EXAMPLES + 1}"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_sampled_as_planned_is_refused(name: str) -> None:
    dataset, message = REFUSED[name]
    with pytest.raises(InvalidArgument, match=message) as refusal:
        session(dataset=dataset)
    assert "\n" not in str(refusal.value)


def test_a_tensor_data_set_of_another_type_stays_what_it_is() -> None:
    dataset = TensorDataset(torch.arange(EXAMPLES), torch.zeros(EXAMPLES, dtype=torch.bool))
    model = nn.Embedding(EXAMPLES, 2)
    with tacit.private(model, sgd(model), plan(steps=1), dataset) as dp:
        for lot in dp.lots():
            for index, flag in lot:
                assert index.dtype == torch.int64
                assert flag.dtype == torch.bool
                dp.backward(model(index).square().sum(1))
            dp.step()


@pytest.mark.parametrize("lasting", [False, True], ids=["NumPy's", "torch's"])
def test_a_generator_of_the_loops_own_is_named_as_a_possible_cause(lasting: bool) -> None:
    """The check puts back the states of the default generators, and knows of no others."""
    model, numpy, own = network(), np.random.default_rng(0), torch.Generator()

    def noisy(batch: Any) -> Tensor:
        x, y = batch
        shape = tuple(x.shape)
        more = torch.rand(shape, generator=own) if lasting else torch.tensor(numpy.random(shape))
        return functional.cross_entropy(model(x + more.float()), y, reduction="none")

    with (
        pytest.raises(UnsupportedModel, match="a generator of its own, which the check cannot"),
        session(model) as dp,
    ):
        dp.accumulate(next(dp.lots()), noisy)


def by_size(examples: list[Any]) -> tuple[Tensor, Tensor]:
    """Sorts the rows, as examples of packed sequences do."""
    rows = sorted(examples, key=lambda one: -float(one[0].norm()))
    return torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows])


def noisy_losses(model: nn.Module) -> Any:
    """The loop's own random numbers keep the check from looking at a row by itself."""

    def losses(batch: Any) -> Tensor:
        x, y = batch
        return functional.cross_entropy(model(x + 0.01 * torch.randn_like(x)), y, reduction="none")

    return losses


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("users", [False, True], ids=["examples", "users"])
def test_a_collate_that_moves_rows_is_refused(users: bool, workers: int) -> None:
    """Rows of several users would be clipped as one, and each user's in several places."""
    whose = {"unit": "user", "examples_per_user": 4, "examples": 10, "lot_size": 5} if users else {}
    model = network()
    with (
        pytest.raises(InvalidArgument, match="collate must keep the rows"),
        session(
            model,
            plan=plan(**whose),
            groups=np.arange(EXAMPLES) // 4 if users else None,
            collate=by_size,
            performance=Performance(workers=workers),
        ) as dp,
    ):
        dp.accumulate(next(dp.lots()), noisy_losses(model))


def test_a_collate_that_numbers_its_rows_or_draws_at_random_moves_none() -> None:
    def numbered(examples: list[Any]) -> tuple[Tensor, Tensor, Tensor]:
        x = torch.stack([x for x, _ in examples])
        labels = torch.stack([y for _, y in examples])
        return x + 0.01 * torch.randn_like(x), labels, torch.arange(len(examples))

    model = network()
    with session(model, plan=plan(steps=1), collate=numbered) as dp:
        for lot in dp.lots():
            dp.accumulate(lot, lambda batch: noisy_losses(model)(batch[:2]))
            dp.step()
    assert dp.steps_taken == 1
