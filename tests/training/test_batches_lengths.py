"""Rows of like length share a batch: what is computed stays the same, in fewer batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

import tacit
from tacit.randomness import fresh_stream
from tacit.training import batches, capture, sampling
from tacit.training.batches import Batch, BatchSizer, Cutter, Units, few_lengths

from .sessions import drawn, plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

ROWS, WORDS, WIDTHS = 60, 11, (4, 8, 16)


class Texts(Dataset[Any]):
    """Texts of 2 to 16 words, mostly short ones, in no order; one of them is the longest."""

    def __init__(self, rows: int = ROWS) -> None:
        random = torch.Generator().manual_seed(0)
        sizes = 2 + (14 * torch.rand(rows, generator=random) ** 3).long()
        sizes[7] = 16
        self.texts = [torch.randint(1, WORDS, (int(n),), generator=random) for n in sizes]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, row: int) -> Tensor:
        return self.texts[row]

    @property
    def lengths(self) -> list[int]:
        return [width_of([text]) for text in self.texts]


def width_of(texts: list[Tensor]) -> int:
    return next(width for width in WIDTHS if max(map(len, texts)) <= width)


class Padded:
    """Makes batches of texts, and notes their shapes."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, int]] = []

    def __call__(self, texts: list[Tensor]) -> Tensor:
        self.shapes.append((len(texts), width_of(texts)))
        found = torch.zeros(self.shapes[-1], dtype=torch.int64)
        for at, text in enumerate(texts):
            found[at, : len(text)] = text
        return found

    @property
    def tokens(self) -> int:
        return sum(rows * width for rows, width in self.shapes)


class Reader(nn.Module):
    """The mean of its words says which comes first; padding counts for nothing."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.words, self.out = nn.Embedding(WORDS, 6), nn.Linear(6, WORDS)
        self.double()

    def forward(self, ids: Tensor) -> Tensor:
        real = (ids > 0).double()
        seen = (self.words(ids) * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        out: Tensor = self.out(torch.tanh(seen))
        return out


def losses_of(model: nn.Module, room: int = 10**9) -> Callable[[Tensor], Tensor]:
    """The losses of a batch, on a machine with room for so many tokens."""

    def of(ids: Tensor) -> Tensor:
        if ids.numel() > room:
            raise torch.OutOfMemoryError("CUDA out of memory, so to say")
        return functional.cross_entropy(model(ids), ids[:, 0], reduction="none")

    return of


def trained(
    *, lengths: Any = None, room: int = 10**9, **changed: Any
) -> tuple[Tensor, Padded, str]:
    """The weights after a run, the batches it took, and what is said of it."""
    model, padded = Reader(), Padded()
    given = {
        "plan": plan(examples=ROWS, lot_size=30, steps=5), "dataset": Texts(), "unsafe_seed": 3,
        "performance": tacit.Performance(batch=5),
    } | changed  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    with tacit.private(model, optimizer, lengths=lengths, collate=padded, **given) as dp:
        for lot in dp.lots():
            dp.accumulate(lot, losses_of(model, room))
            dp.step()
        said = dp.explain()
    return torch.cat([p.detach().flatten() for p in model.parameters()]), padded, said


def short_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are free beside their tokens: texts as short as these would else share them all."""
    monkeypatch.setattr(batches, "_LAUNCHES", 0)
    monkeypatch.setattr(batches, "_CALLS", 0)


OWNERS = np.arange(ROWS) % 20
CASES: dict[str, dict[str, Any]] = {
    "examples": {},
    "recorded": {"performance": tacit.Performance(batch=5, capture=True)},
    "one row at a time": {"performance": tacit.Performance(batch=1)},
    "as it fits": {"performance": tacit.Performance()},
    "a full batch": {"plan": plan(examples=ROWS, lot_size=ROWS)},
    "views": {"plan": plan(examples=ROWS, lot_size=30, views=2)},
    "users": {
        "plan": plan(examples=20, lot_size=10, unit="user", examples_per_user=2),
        "groups": OWNERS,
    },
    "users, recorded": {
        "plan": plan(examples=20, lot_size=10, steps=6, unit="user", examples_per_user=2),
        "groups": OWNERS, "performance": tacit.Performance(batch=8, capture=True),
    },
    "workers": {"performance": tacit.Performance(batch=5, workers=1)},
    "little memory": {"room": 40},
    "little memory, recorded": {
        "room": 40, "performance": tacit.Performance(batch=5, capture=True),
        "plan": plan(examples=ROWS, lot_size=30, steps=8),
    },
    "memory for one long row, recorded": {  # beside which padding is too much
        "room": 16, "performance": tacit.Performance(batch=20, capture=True),
    },
    "small lots": {"plan": plan(examples=ROWS, lot_size=2, steps=12)},  # of some length: none
    "the clip moves": {
        "plan": plan(
            examples=ROWS, lot_size=30,
            clipping=tacit.training.AdaptiveQuantile(count_noise=1e-3), noise_multiplier=1e-3,
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_computed_stays_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_MOST_LOTS", 1)  # a seed gives the same lots with recordings
    short_texts(monkeypatch)
    as_drawn, plain, said = trained(**CASES[name])
    assert "length" not in said
    by_length, alike, said = trained(lengths=Texts().lengths, **CASES[name])
    assert torch.allclose(as_drawn, by_length, rtol=0, atol=1e-7)
    assert (as_drawn - torch.cat([p.flatten() for p in Reader().parameters()])).norm() > 0.01
    assert "Rows of like length share batches" in said
    if name in ("examples", "as it fits", "a full batch", "views", "users", "little memory"):
        assert alike.tokens < plain.tokens


def test_another_rows_gradient_would_be_seen() -> None:
    """The comparison above is able to fail."""
    as_drawn, *_ = trained()
    other, *_ = trained(plan=plan(examples=ROWS, lot_size=30, steps=5, clip=1.69))
    assert not torch.allclose(as_drawn, other, rtol=0, atol=1e-7)


def test_exact_sums_are_of_each_unit_by_itself() -> None:
    chosen = {"plan": plan(examples=ROWS, lot_size=9, steps=2, noise="exact", noise_multiplier=1.0)}
    as_drawn, *_ = trained(**chosen)
    by_length, padded, said = trained(lengths=Texts().lengths, **chosen)
    assert torch.equal(as_drawn, by_length)
    assert {rows for rows, _ in padded.shapes[-4:]} == {1}
    assert "Lengths are not used: with noise='exact'" in said


def test_batches_are_few_and_of_one_width_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the longest at most five rows, and as many words of shorter ones; each has one shape."""
    monkeypatch.setattr(sampling, "_MOST_LOTS", 1)
    short_texts(monkeypatch)
    recorded: list[int] = []
    record = capture.Reruns.record_batch

    def counted(self: capture.Reruns, work: Any) -> Any:
        recorded.append(1)
        return record(self, work)

    monkeypatch.setattr(capture.Reruns, "record_batch", counted)
    given = {
        "plan": plan(examples=ROWS, lot_size=40, steps=12),
        "performance": tacit.Performance(batch=5, capture=True),
    }
    _, padded, said = trained(lengths=np.array(Texts().lengths, dtype=np.uint8), **given)
    shapes = set(padded.shapes[-12:])
    assert {width for _, width in shapes} == set(WIDTHS)
    assert len(shapes) == len(WIDTHS)  # which all lots share
    assert all(rows * width <= 5 * 16 for rows, width in shapes)
    assert max(rows for rows, width in shapes if width == 4) > 10
    assert len(recorded) == len(WIDTHS)
    assert "Batches are replayed" in said


def test_the_first_lots_are_checked_with_rows_of_several_lengths() -> None:
    """A mean over the padding makes one row's gradient depend on the others: it is refused."""

    class Leaking(Reader):
        def forward(self, ids: Tensor) -> Tensor:
            return self.out(self.words(ids).mean(1))  # type: ignore[no-any-return]

    model, data = Leaking(), Texts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    with (
        pytest.raises(tacit.errors.UnsupportedModel, match="how long the rows beside it are"),
        tacit.private(
            model, optimizer, plan(examples=ROWS, lot_size=30), data, collate=Padded(),
            lengths=data.lengths, unsafe_seed=3,
        ) as dp,
    ):  # fmt: skip
        dp.accumulate(next(dp.lots()), losses_of(model))


def test_lots_that_are_checked_later_hold_rows_of_several_lengths_too() -> None:
    """Where the data set is sorted by length, the first rows of a lot are all short."""
    model, data, padded = Reader(), Texts(), Padded()
    data.texts.sort(key=len)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    with tacit.private(
        model, optimizer, plan(examples=ROWS, lot_size=30), data, collate=padded,
        lengths=data.lengths, unsafe_seed=3,
    ) as dp:  # fmt: skip
        lots = dp.lots()
        dp.accumulate(next(lots), losses_of(model))
        dp.step()
        dp.verify()
        padded.shapes.clear()
        lot = next(lots)
        units = drawn(lot)
        dp.accumulate(lot, losses_of(model))
        dp.step()
    assert len(data[units[7]]) <= 4  # a batch that is watched holds eight
    assert padded.shapes[0] == (8, 16)
    assert (2, 4) in padded.shapes  # one of them alone, and its copy


def test_a_run_goes_on_by_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short_texts(monkeypatch)
    ends = []
    for lengths in (None, Texts().lengths):
        model, data = Reader(), Texts()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        given: dict[str, Any] = {
            "plan": plan(examples=ROWS, lot_size=30), "dataset": data, "collate": Padded(),
            "lengths": lengths, "unsafe_seed": 3, "performance": tacit.Performance(batch=5),
        }  # fmt: skip
        with tacit.private(model, optimizer, **given) as dp:
            lots = dp.lots()
            for _ in range(2):
                dp.accumulate(next(lots), losses_of(model))
                dp.step()
            dp.save(tmp_path / "run.pt")
        with tacit.private(model, optimizer, resume=tmp_path / "run.pt", **given) as dp:
            for lot in dp.lots():
                dp.accumulate(lot, losses_of(model))
                dp.step()
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        (tmp_path / "run.pt").unlink()
    assert torch.allclose(*ends, rtol=0, atol=1e-7)


REST = [3] * (ROWS - 1)
NONE: dict[str, tuple[Any, str]] = {
    "one too few": (REST, "fewer than there are examples"),
    "one too many": ([*REST, 3, 3], "more than there are examples"),
    "fractions": ([3.0] * ROWS, "entries of type float64"),
    "not a number": ([*REST, float("nan")], "entries of type float64"),
    "truths": ([True] * ROWS, "entries of type bool"),
    "words": (["3"] * ROWS, "entries of type <U1"),
    "something missing": ([*REST, None], "entries of type object"),
    "times": (np.full(ROWS, 3, "timedelta64[s]"), r"entries of type timedelta64\[s\]"),
    "a table": ([[3] * ROWS], "2 axes"),
    "lists of all lengths": ([*REST, [3, 3]], "list that is no array of numbers"),
    "another device": (torch.empty(ROWS, device="meta"), "Tensor that is no array of numbers"),
    "an iterator": (iter([3] * ROWS), "list_iterator;"),
    "one for all": (3, "int;"),
    "nothing": ([*REST, 0], "some below 1"),
    "less than nothing": ([*REST, -3], "some below 1"),
    "too long": ([*REST, 2**62], "some above 1,000,000,000"),
    "not in 64 bits": (np.array([*REST, 2**63], np.uint64), "some above 1,000,000,000"),
}  # fmt: skip


@pytest.mark.parametrize("name", NONE)
def test_what_are_no_lengths_is_refused(name: str) -> None:
    lengths, why = NONE[name]
    with pytest.raises(tacit.errors.InvalidArgument, match=f"1 or more, .* got {why}") as error:
        trained(lengths=lengths)
    assert "3" not in str(error.value)  # they are secret
    assert "\n" not in str(error.value)


def test_what_a_run_is_made_of_shows_neither_rows_nor_lengths_nor_users() -> None:
    model, rows = Reader(), [torch.tensor([7_654_321])] * ROWS
    prepared = tacit.training.Prepared(
        model=model, optimizer=torch.optim.SGD(model.parameters()), plan=plan(), dataset=rows,  # type: ignore[arg-type]
        lengths=[9_876_543] * ROWS, groups=[8_765_432] * ROWS,
    )  # fmt: skip
    assert "Reader" in repr(prepared)
    for secret in ("9876543", "8765432", "7654321"):
        assert secret not in repr(prepared)


@pytest.mark.parametrize("made", [tuple, torch.tensor, lambda given: np.array(given, np.uint8)])
def test_lengths_may_be_of_any_kind_of_whole_numbers(made: Any) -> None:
    _, _, said = trained(lengths=made(Texts().lengths), plan=plan(examples=ROWS, steps=1))
    assert "Rows of like length share batches" in said


# ---- sizes


def sizer(lengths: NDArray[np.int64], batch: Any = 128, **changed: Any) -> BatchSizer:
    given = plan(examples=len(lengths), lot_size=2048, **changed)
    return BatchSizer(given, batch, torch.device("cpu"), padded=True, lengths=lengths)


def sentences() -> NDArray[np.int64]:
    """As long as those of SST-2: 60, 21, 16 and 3 % of them."""
    return np.repeat([16, 24, 40, 72], [40_409, 14_143, 10_776, 2_021])


def test_a_lot_of_sentences_is_cut_into_few_batches() -> None:
    """Rows times length stay within 256 · 72: five or six batches, where there were nine."""
    one, expected = sizer(sentences(), 256), {16: 1229, 24: 430, 40: 328, 72: 61}
    sizes = {length: one.units(1, length) for length in expected}
    assert sizes == {16: 688, 24: 520, 40: 408, 72: 96}
    assert all(units * length <= 256 * 72 for length, units in sizes.items())
    assert sum(-(-expected[length] // units) for length, units in sizes.items()) == 5


@pytest.mark.parametrize("per_unit", [1, 3])
@pytest.mark.parametrize("at", [0, -1])
def test_memory_that_runs_out_halves_the_limit_of_every_length(per_unit: int, at: int) -> None:
    one, none = sizer(sentences()), np.empty(0, dtype=np.int64)
    while True:
        assert one.lengths is not None
        length = int(one.lengths[at])
        units = one.units(per_unit, length)
        tried = Batch(none, none, np.empty(0, dtype=np.float32), per_unit, units, length)
        if not one.shrink(tried):
            break
        assert one.units(per_unit, int(one.lengths[at])) <= units // 2
    assert units == 1
    assert one.units(per_unit, int(one.lengths[-1])) == 1


def test_lengths_that_are_worth_no_batch_are_rounded_up() -> None:
    """Lots of 64 sentences are one batch on a GPU: launches take longer than their padding."""
    few = BatchSizer(
        plan(examples=67_349, lot_size=64), 256, torch.device("cpu"), padded=True,
        lengths=sentences(),
    )  # fmt: skip
    assert few.lengths is not None
    assert set(few.lengths) == {72}
    assert few.units(1, 72) == 96
    on_a_cpu = BatchSizer(
        plan(examples=67_349, lot_size=64), 256, torch.device("cpu"), padded=False,
        lengths=sentences(),
    )  # fmt: skip
    assert on_a_cpu.lengths is not None
    assert set(on_a_cpu.lengths) == {16, 24, 40, 72}


def test_many_lengths_are_rounded_up_to_few() -> None:
    lengths = np.random.default_rng(0).integers(1, 400, 5000)
    few = few_lengths(lengths)
    kept = np.unique(few)
    assert len(kept) == 8
    assert (few >= lengths).all()
    assert set(kept) <= set(lengths)
    assert few.sum() < 1.15 * lengths.sum()


def test_a_long_row_that_does_not_fit_alone_lets_no_batch_grow() -> None:
    one, none = sizer(sentences()), np.empty(0, dtype=np.int64)
    two = Batch(none, none, np.empty(0, dtype=np.float32), 1, 2, length=16)
    assert one.shrink(two)
    assert not one.shrink(two._replace(padded_units=1, length=72))
    assert one.units(1, 16) == 1


# ---- what a lot takes


def texts_of(kind: str, rows: int) -> NDArray[np.int64]:
    random = np.random.default_rng(0)
    bell = random.lognormal(3.2, 0.8, rows)
    longer = random.random(rows) < 0.4
    found = {
        "short": bell, "long": 512 - bell, "all": random.integers(1, 513, rows),
        "two kinds": np.where(longer, 20 + bell / 10, 400 + bell / 4),
        "two alike": np.where(longer, 100, 104), "one": np.full(rows, 128),
        "one and another": np.where(np.arange(rows) == 7, 512, 20),
        "cut": np.exp(5.5) * bell / np.exp(3.2),
    }[kind]  # fmt: skip
    clipped: NDArray[np.int64] = np.clip(found, 1, 512).astype(np.int64)
    return clipped


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize(
    "kind", ["short", "long", "all", "two kinds", "two alike", "one", "one and another", "cut"]
)
def test_no_lot_takes_longer_than_without_lengths(kind: str, padded: bool) -> None:
    """By tokens and batches, also where lots are one or two batches: twice as long it was."""
    lengths = texts_of(kind, 5000)
    for lot_size, batch in [(16, 8), (64, 32), (64, 256), (1024, 8), (1024, 256)]:
        taken = [
            mean_lot(lengths, known, lot_size, batch, padded=padded) for known in (None, lengths)
        ]
        assert taken[1] <= 1.05 * taken[0]
        if lot_size == 1024 and kind in ("short", "all", "two kinds", "cut"):
            assert taken[1] < 0.9 * taken[0]


def mean_lot(
    lengths: NDArray[np.int64],
    known: NDArray[np.int64] | None,
    lot_size: int,
    batch: int,
    *,
    padded: bool,
) -> float:
    """What a lot takes, in tokens, of batches that are as wide as their longest row."""
    chosen, random = plan(examples=len(lengths), lot_size=lot_size), np.random.default_rng(0)
    loader: Any = None
    cutter = Cutter(
        chosen, Units(chosen, None, fresh_stream("users"), known), loader,
        tacit.Performance(batch=batch), torch.device("cpu"), padded=padded,
    )  # fmt: skip
    beside, taken = batches._LAUNCHES if padded else batches._CALLS, 0
    for _ in range(20):
        left = np.flatnonzero(random.random(len(lengths)) < lot_size / len(lengths))
        found = cutter.cut(cutter.ordered(left), watched=False)
        assert sorted(unit for one in found for unit in one.units) == left.tolist()
        taken += sum(beside + len(one.rows) * int(lengths[one.rows].max()) for one in found)
    return taken / 20
