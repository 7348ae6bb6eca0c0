"""How the table of models is judged on a GPU in bf16: what it lets pass, and what it finds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from .clipping import oracle, test_table
from .clipping.cases import TABLE, Case, case, floats

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
HALF = [one for one in TABLE if one.autocast is not None]
WRONG = 0.05  # of one weight's gradient of one record


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (ROOT / "benchmarks").is_dir():
        pytest.skip("the benchmarks are in the repository only")
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def lot_of(chosen: Case, inputs: tuple[Tensor, ...], clip: float) -> tuple[Any, dict[str, int]]:
    """The yardstick of a lot at the weights that a model begins with, and their sizes."""
    model = chosen.model()
    weights = {name: value.detach() for name, value in model.state_dict().items()}
    sizes = {name: p.numel() for name, p in oracle.trainable(model).items()}
    lot = import_module("models_yardstick").lot_of(chosen, inputs, weights, clip, "cpu", seed=1)
    nudges = list(lot.nudges())
    return replace(lot, nudges=partial(iter, nudges)), sizes


def released_by_the_engine(chosen: Case, inputs: tuple[Tensor, ...], clip: float) -> Tensor:
    found = test_table.clipped(chosen, inputs, clip)
    return test_table.flat(found, oracle.trainable(chosen.model()))


def with_errors(lot: Any, released: Tensor, sizes: dict[str, int]) -> Iterator[tuple[str, Tensor]]:
    """The sum, if the first record's gradient of one weight were off, for every weight."""
    first, at = lot.contributions(lot.plain)[0], 0
    for name, size in sizes.items():
        wrong = released.clone()
        wrong[at : at + size] += WRONG * first[at : at + size]
        at += size
        yield name, wrong


QUICK = ("bf16 conv net", "bf16 encoder layer")
EACH = [
    pytest.param(one, n, id=f"{one.slug}-{n}", marks=[] if quick else [pytest.mark.slow])
    for one in HALF
    for n in (1, 2)
    for quick in [one.name in QUICK and n == 2]
]


@pytest.mark.parametrize(("chosen", "records"), EACH)
def test_the_engines_sum_is_pytorchs_and_an_error_of_one_weight_shows(
    chosen: Case, records: int
) -> None:
    judged = import_module("models_yardstick").judged
    inputs = chosen.draw(records * chosen.views)
    clip = float(oracle.truth_about(chosen, inputs).norms.mean())  # some are cut, some are not
    lot, sizes = lot_of(chosen, inputs, clip)
    released = released_by_the_engine(chosen, inputs, clip)
    found = judged(lot, released, sizes)
    assert not found.coarse
    assert found.plain < 4e-3
    for name, wrong in with_errors(lot, released, sizes):
        faults = judged(lot, wrong, sizes).faults
        assert any(fault.startswith(f"{name} is off") for fault in faults), name


def rectified() -> nn.Module:
    """Two numbers that cancel, then a rectifier, and a weight behind it that goes by both."""
    model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU(), nn.Linear(1, 3))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, -1.0]]))
        model[2].weight.copy_(torch.tensor([[1.0], [2.0], [-1.0]]))
    return model


TURNED = case("bf16 rectifier", rectified, floats(2), autocast=torch.bfloat16, as_built=True)


def test_a_rectifier_that_a_rounding_turns_is_no_error_of_the_engine() -> None:
    """In bf16 both numbers are 1: nothing passes, where in double precision something does."""
    judged = import_module("models_yardstick").judged
    inputs, clip = (torch.tensor([[1.001, 1.0]]),), 100.0
    lot, sizes = lot_of(TURNED, inputs, clip)
    released = released_by_the_engine(TURNED, inputs, clip)
    assert (released - lot.truth.clipped_sum(clip)).norm() > 0.3 * lot.truth.norms[0]
    found = judged(lot, released, sizes)
    assert not found.coarse
    assert found.itself > 0.3
    assert judged(lot, 3 * lot.truth.clipped_sum(clip), sizes).faults


def test_a_rectifier_that_the_order_of_a_sum_turns_is_counted_and_let_pass() -> None:
    """The number lies in the middle between two of bf16: nudged, it is rounded up or down."""
    judged = import_module("models_yardstick").judged
    inputs, clip = (torch.tensor([[1 + 2**-8, 1.0]]),), 100.0
    lot, sizes = lot_of(TURNED, inputs, clip)
    lot = replace(lot, truth=lot.plain)  # so that the oracle does not let it pass
    on = next(one for one in lot.nudges() if one.gradients[0, 0] != 0)
    other = lot.contributions(on).sum(0)
    found = judged(lot, other, sizes)
    assert "0.weight" in found.coarse
    assert not found.faults
    assert judged(lot, lot.contributions(lot.plain).sum(0), sizes).off == 0
    assert judged(lot, 4 * other, sizes).faults


def test_a_lot_without_records_releases_nothing() -> None:
    yardstick = import_module("models_yardstick")
    lot, sizes = lot_of(TURNED, (torch.zeros(0, 2),), 1.0)
    assert not yardstick.judged(lot, torch.zeros(8, dtype=torch.float64), sizes).faults
    assert yardstick.judged(lot, torch.full((8,), 1e-5, dtype=torch.float64), sizes).faults


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "status"), [(0.0, "passed"), (WRONG, "FAILED")])
def test_a_model_in_bf16_is_trained_and_found_right_or_wrong(
    wrong: float, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the encoder layer whose rectifiers are turned in many steps, a bias 5 % too long."""
    worker = import_module("models_worker")
    right = worker.judged

    def judged(lot: Any, released: Tensor, sizes: dict[str, int]) -> Any:
        released = released.clone()
        released[-sizes["norm2.bias"] :] *= 1 + wrong
        return right(lot, released, sizes)

    monkeypatch.setattr(worker, "judged", judged)
    found = worker.row("bf16 encoder layer", "cpu")
    assert found["status"] == status
    assert all("norm2.bias" in fault or "the whole" in fault for fault in found["faults"])
    lines = import_module("models_gpu").half_in_words({"bf16 encoder layer": found})
    assert lines[-1].startswith("| bf16 encoder layer | ")
