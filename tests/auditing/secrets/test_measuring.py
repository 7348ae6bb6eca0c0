"""One secret under one model."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.auditing.secrets import Space, exposure_by_rank, log_perplexities, measure

from .models import chain

SPACE = Space((0,), ((0, 1, 2, 3, 4),) * 5)
MODEL = chain(5, seed=8)
VALUES = log_perplexities(MODEL, SPACE, SPACE.every())


@pytest.mark.parametrize("place", [0, 5, 400, 3000])
def test_all_ways_agree(place: int) -> None:
    row = int(np.argsort(VALUES)[place])
    found = measure(MODEL, SPACE, SPACE.every()[row], candidates=20_000, seed=0)
    exact = exposure_by_rank(float(VALUES[row]), VALUES)
    assert found.ranked is not None
    assert found.ranked.bits == pytest.approx(exact.bits)
    assert found.exposure == found.ranked
    assert found.sampled.bits == pytest.approx(exact.bits, abs=1.0)
    assert found.p_value == pytest.approx(min(1.0, 2.0 * min(exact.p_value, found.sampled.p_value)))
    assert found.found == (place + 1 if place < 100 else None) or place == 5
    assert found.extracted == (place == 0)


def test_without_a_rank_the_sample_counts_where_it_reaches() -> None:
    row = int(np.argsort(VALUES)[1500])
    found = measure(MODEL, SPACE, SPACE.every()[row], limit=10, seed=1)
    assert found.ranked is None
    assert found.exposure == found.sampled


def test_beyond_the_sample_the_law_counts() -> None:
    row = int(np.argsort(VALUES)[0])
    found = measure(MODEL, SPACE, SPACE.every()[row], limit=1, candidates=150, seed=3)
    assert found.ranked is None
    assert found.sampled.bits == found.sampled.most
    assert found.exposure == (found.extrapolated if found.extrapolated.holds else found.sampled)
