"""The self-test over real processes: a right engine passes, and bugs of ranks are found."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
import torch
from torch import distributed

from tacit.auditing.replay import replay, standard_settings
from tacit.auditing.replay.rank_subject import TacitRanks
from tacit.randomness import Share
from tacit.training import noise
from tacit.training.distributed import shares
from tacit.training.distributed.shares import Shares
from tacit.training.distributed.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from torch import Tensor

SECONDS = 400.0  # a slow machine must not end a test early

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["linear", "adaptive", "users", "secure"])
def test_tacit_on_two_ranks_passes(name: str) -> None:
    report = replay(
        standard_settings()[name], subject=TacitRanks(2), scope="ranks", seconds=SECONDS
    )
    assert report.passed, report.describe()
    assert report.whole
    seen = [one for one in report.findings if one.check == "in step"]
    assert "1 other ranks were seen" in seen[0].evidence


def test_tacit_on_three_ranks_passes() -> None:
    report = replay(
        standard_settings()["linear"], subject=TacitRanks(3), scope="ranks", seconds=SECONDS
    )
    assert report.passed, report.describe()


# ---- bugs


def doubled() -> AbstractContextManager[object]:
    return patch.object(World, "share", lambda _, units: units)


def same_noise() -> AbstractContextManager[object]:
    def first(parameters: Any, stretches: Any) -> Share:
        count = right(parameters, stretches).count
        return Share(max(count, 1), ((0, count),) if count else ())

    right = noise.share_of
    return patch.object(noise, "share_of", first)


def noise_by_every_rank() -> AbstractContextManager[object]:
    def drawn(*given: Any) -> list[Tensor]:
        *others, scale, stretches = given
        return right(*others, scale * _size() ** 0.5, stretches)

    right = noise._drawn_share
    return patch.object(noise, "_drawn_share", drawn)


def mean_of_ranks() -> AbstractContextManager[object]:
    def averaged(piece: Tensor, flat: Tensor, group: Any) -> None:
        right(piece, flat, group)
        piece.div_(_size())

    right = shares.reduce_scattered
    return patch.object(shares, "reduce_scattered", averaged)


@contextmanager
def empty_rank_skipped() -> Iterator[None]:
    empty = False

    def totals(self: Shares, sums: Any) -> Any:
        nonlocal empty
        empty = not sums and not self._world.is_alone
        return right(self, sums)

    def drawn(*given: Any) -> list[Tensor]:
        found = made(*given)
        return [torch.zeros_like(one) for one in found] if empty else found

    right, made = Shares.totals, noise._drawn_share
    with ExitStack() as stack:
        stack.enter_context(patch.object(Shares, "totals", totals))
        stack.enter_context(patch.object(noise, "_drawn_share", drawn))
        yield


def shard_without_noise() -> AbstractContextManager[object]:
    def drawn(*given: Any) -> list[Tensor]:
        found = right(*given)
        last = distributed.is_initialized() and distributed.get_rank() == _size() - 1
        return [torch.zeros_like(one) for one in found] if last else found

    right = noise._drawn_share
    return patch.object(noise, "_drawn_share", drawn)


def _size() -> int:
    return distributed.get_world_size() if distributed.is_initialized() else 1


@pytest.mark.parametrize(
    "bug",
    [doubled, same_noise, noise_by_every_rank, mean_of_ranks, empty_rank_skipped,
     shard_without_noise],
)  # fmt: skip
def test_a_bug_of_ranks_is_found(bug: Callable[[], AbstractContextManager[object]]) -> None:
    with bug():
        report = replay(
            standard_settings()["linear"], subject=TacitRanks(2), scope="ranks", seconds=SECONDS,
            stop_at_first=True,
        )  # fmt: skip
    assert report.at_fault == ("ranks",), report.describe()
