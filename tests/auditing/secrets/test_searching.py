"""Searches against the list of all secrets of a small alphabet."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.auditing.secrets import Space, beam, exact_rank, greedy, likeliest, log_perplexities
from tacit.errors import InvalidArgument

from .models import chain

SPACE = Space((1, 0), ((0, 1, 2, 3, 4), (0, 2, 4), (3,), (0, 1, 2, 3, 4), (1, 2, 3)))
EVERY = SPACE.every()
SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_likeliest_is_the_best_of_all(seed: int) -> None:
    model = chain(5, seed=seed)
    values = log_perplexities(model, SPACE, EVERY)
    for batch in (1, 16):
        found = likeliest(model, SPACE, batch=batch)
        assert found is not None
        assert found.secret == tuple(EVERY[np.argmin(values)].tolist())
        assert found.log_perplexity == pytest.approx(float(values.min()))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_beam_as_wide_as_the_space_is_the_sorted_list(seed: int) -> None:
    model = chain(5, seed=seed)
    values = log_perplexities(model, SPACE, EVERY)
    found = beam(model, SPACE, width=SPACE.size)
    np.testing.assert_allclose([one.log_perplexity for one in found], np.sort(values))
    assert {one.secret for one in found} == {tuple(row) for row in EVERY.tolist()}


def test_greedy_takes_the_best_token_at_each_place() -> None:
    model = chain(5, seed=3)
    secret: list[int] = []
    for allowed in SPACE.choices:
        logs = model(np.array([[*SPACE.start, *secret]], np.int64))[0, -1]
        secret.append(max(allowed, key=lambda token: float(logs[token])))
    assert greedy(model, SPACE).secret == tuple(secret)
    assert len(beam(model, SPACE, width=7)) == 7


def test_greedy_can_miss_what_the_exact_search_finds() -> None:
    # Token 1 begins less likely than 0, but what follows it is sure.
    logs = np.log(np.array([[0.25, 0.25, 0.5], [0.001, 0.001, 0.998], [0.55, 0.44, 0.01]]))
    space = Space((2,), ((0, 1), (0, 1, 2), (0, 1)))
    model = lambda tokens: logs[tokens]  # noqa: E731
    exact = likeliest(model, space)
    assert exact is not None
    assert greedy(model, space).secret[0] == 0
    assert exact.secret[0] == 1
    assert beam(model, space, width=6)[0].secret == exact.secret


@pytest.mark.parametrize("seed", SEEDS)
def test_the_rank_without_listing_is_the_rank_by_sorting(seed: int) -> None:
    model = chain(5, seed=seed)
    values = log_perplexities(model, SPACE, EVERY)
    for place in (0, 3, 50, len(EVERY) - 1):
        value = float(np.sort(values)[place])
        assert exact_rank(model, SPACE, value) == place + 1


def test_a_planted_secret_is_found_in_a_large_space() -> None:
    secret = (3, 1, 4, 1, 5, 9, 2, 6, 5)
    space = Space((10,), (tuple(range(10)),) * 9)

    def model(tokens: np.ndarray) -> np.ndarray:
        logs = np.full((*tokens.shape, 11), np.log(0.05))
        for place in range(min(tokens.shape[1], 9)):
            on_path = (tokens[:, 1 : place + 1] == secret[:place]).all(axis=1)
            logs[on_path, place, secret[place]] = np.log(0.5)
        return logs

    found = likeliest(model, space)
    assert found is not None
    assert found.secret == greedy(model, space).secret == beam(model, space)[0].secret == secret
    assert found.log_perplexity == pytest.approx(9.0)
    assert exact_rank(model, space, 9.0) == 1


def test_searches_stop_at_their_limits() -> None:
    space = Space((10,), (tuple(range(10)),) * 9)
    blank = lambda tokens: np.full((*tokens.shape, 11), -np.log(11.0))  # noqa: E731
    assert likeliest(blank, space, limit=500) is None
    assert exact_rank(blank, space, 9 * np.log2(11.0), limit=500) is None


def test_what_is_likelier_than_every_secret_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="must be that of a secret of the space"):
        exact_rank(chain(5, seed=0), SPACE, 0.0)
