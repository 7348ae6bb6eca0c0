"""Each bug of the sampler is there: shown by counting lots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import settings
from .watching import inclusion, shows

if TYPE_CHECKING:
    from .mutant import Mutant

RATE = 0.25


@shows("shuffling")
def test_four_lots_are_everybody_once(mutant: Mutant) -> None:
    with mutant.patch():
        lots = inclusion(mutant.setting(), 4)
    assert (lots.sum(0) == 1).all()
    assert not (inclusion(mutant.setting(), 4).sum(0) == 1).all()


@shows("wrong rate")
def test_lots_are_too_large(mutant: Mutant) -> None:
    with mutant.patch():
        lots = inclusion(mutant.setting(), 2000)
    assert abs(lots.mean() / RATE - 1.25) < 0.05  # 9 standard deviations of 0.0057
    assert abs(inclusion(mutant.setting(), 2000).mean() / RATE - 1.0) < 0.05


@shows("weighted sampling")
def test_one_record_is_drawn_too_often(mutant: Mutant) -> None:
    with mutant.patch():
        chances = inclusion(mutant.setting(), 1000).mean(0)
    assert chances[0] > 0.99
    assert chances[1:].max() < 0.4
    assert abs(chances.mean() - RATE) < 0.02  # lots are as large as ever


@shows("pairs of examples")
def test_two_records_come_together(mutant: Mutant) -> None:
    with mutant.patch():
        lots = inclusion(mutant.setting(), 200)
    assert (lots[:, ::2] == lots[:, 1::2]).all()
    assert not (lots[:, 0] == lots[:, 2]).all()


@shows("empty lot drawn again")
def test_no_lot_is_empty(mutant: Mutant) -> None:
    with mutant.patch():
        assert inclusion(mutant.setting(), 200).any(1).all()
    assert not inclusion(settings.small_lots(), 200).any(1).all()


def test_the_healthy_sampler_draws_as_the_plan_says() -> None:
    chances = inclusion(settings.linear(), 4000).mean(0)
    assert np.abs(chances - RATE).max() < 0.05  # 7 standard deviations of 0.0068
