"""Correlated noise on several ranks: every rank keeps its share, and all of them one strategy's."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch

import tacit
from tacit.training import checkpoint

from .ranks import together
from .runs import Run, by_class, network, rows, weights
from .test_replicas import CLOSE
from .test_sharded import in_pieces

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn

pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")

STEPS = 6
KINDS = {
    "banded": tacit.Banded(3),
    "inverse": tacit.InverseBanded(3),
    "buffered": tacit.Buffered(2, scales=(-0.06, -0.2), decays=(0.9, 0.4)),
}


def of_kind(name: str, noise: str) -> Run:
    return Run(plan={"correlation": KINDS[name], "steps": STEPS, "noise": noise, "lot_size": 12})


def check(run: Run, size: int, **how: Any) -> None:
    """As one process does it; with exact sums to the bit."""
    alone = run(0)
    spread = replace(run, prepare=partial(in_pieces, ranks=size, **how)) if how else run
    ranks = together(size, spread)
    assert all(torch.equal(found, ranks[0]) for found in ranks)
    if run.plan["noise"] == "exact":
        assert torch.equal(ranks[0], alone)
    assert float((ranks[0] - alone).abs().max()) <= CLOSE


def test_two_ranks_equal_one_process() -> None:
    check(of_kind("banded", "exact"), 2)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("noise", ["fast", "secure", "exact"])
@pytest.mark.parametrize("name", KINDS)
def test_ranks_equal_one_process(name: str, noise: str, size: int) -> None:
    check(of_kind(name, noise), size)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "copies"), [(2, 1), (4, 2)])
@pytest.mark.parametrize("noise", ["fast", "secure", "exact"])
@pytest.mark.parametrize("name", KINDS)
def test_pieces_equal_one_process(name: str, noise: str, size: int, copies: int) -> None:
    check(of_kind(name, noise), size, copies=copies)


def made(ranks: int, *, pieces: bool) -> nn.Module:
    torch.manual_seed(0)
    return in_pieces(network(), ranks=ranks) if pieces and ranks > 1 else network()


def trained(run: Run, model: nn.Module, save: Path | None = None, **options: Any) -> Tensor:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    with tacit.private(model, optimizer, run.plan_of(), rows(), unsafe_seed=2, **options) as dp:
        for lot in dp.lots():
            dp.accumulate(lot, lambda batch: by_class(model, batch))
            dp.step()
            if save is not None and lot.step == 2:
                dp.save(save)
                break
    return weights(model)


OFTEN = ("banded", "exact", False)


@pytest.mark.parametrize(
    ("name", "noise", "pieces"),
    [
        pytest.param(*one, marks=() if one == OFTEN else pytest.mark.slow)
        for one in [
            OFTEN,
            ("banded", "fast", True),
            ("buffered", "exact", True),
            ("buffered", "fast", False),
            ("inverse", "exact", False),
        ]
    ],
)
def test_a_run_goes_on_to_the_bit_with_any_number_of_ranks(
    name: str, noise: str, pieces: bool, tmp_path: Path
) -> None:
    """The checkpoint of two ranks is that of one, and one or two ranks go on with it alike."""
    run = of_kind(name, noise)

    def begun(_: int, ranks: int) -> Tensor:
        model = made(ranks, pieces=pieces)
        return trained(run, model, save=tmp_path / str(ranks))

    def ended(_: int, ranks: int, start: int) -> Tensor:
        model = made(ranks, pieces=pieces)
        return trained(run, model, resume=tmp_path / str(start))

    together(2, partial(begun, ranks=2))
    begun(0, ranks=1)
    held = [checkpoint.read(tmp_path / str(n)).state["tacit noise"].values for n in (1, 2)]
    assert held[0].keys() == held[1].keys()
    for kind, one in held[0].get("tensors", {}).items():
        assert len(one) == len(held[1]["tensors"][kind]) > 0
        assert all(torch.equal(a, b) for a, b in zip(one, held[1]["tensors"][kind], strict=True))
        assert any(a.any() for a in one)
    alone = ended(0, ranks=1, start=2)
    both = together(2, partial(ended, ranks=2, start=2))
    assert torch.equal(both[0], both[1])
    assert float((both[0] - alone).abs().max()) <= CLOSE
    if noise == "exact":
        assert torch.equal(both[0], alone)
