"""Log-perplexities against the token-by-token way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tacit.auditing.secrets import (
    Space,
    beam,
    exact_rank,
    exposure_by_rank,
    greedy,
    likeliest,
    log_perplexities,
    measure,
    next_token_of,
)
from tacit.errors import InvalidArgument

from .models import chain, one_by_one

# ---- Log-perplexities against the token-by-token way

SCORED = Space((2, 0), ((0, 1, 3), (4,), (1, 2), (0, 1, 2, 3, 4)))


@pytest.mark.parametrize("batch", [1, 7, 1024])
def test_it_is_the_sum_over_the_tokens(batch: int) -> None:
    model = chain(5, seed=0)
    found = log_perplexities(model, SCORED, SCORED.every(), batch=batch)
    expected = [one_by_one(model, SCORED, row) for row in SCORED.every().tolist()]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_probabilities_of_a_whole_tree_add_up_to_one() -> None:
    space = Space((0,), ((0, 1, 2, 3, 4),) * 4)
    found = log_perplexities(chain(5, seed=1), space, space.every())
    assert np.sum(2.0**-found) == pytest.approx(1.0, abs=1e-12)


def test_what_is_impossible_has_no_end() -> None:
    with np.errstate(divide="ignore"):
        logs = np.log([0.0, 1.0])
    space = Space((1,), ((0, 1),))
    found = log_perplexities(lambda tokens: np.tile(logs, (*tokens.shape, 1)), space, space.every())
    assert found.tolist() == [np.inf, 0.0]


def test_what_is_no_model_is_refused() -> None:
    space = Space((1,), ((0, 1),))
    with pytest.raises(
        InvalidArgument, match=r"must return the shape \(rows, length, vocabulary\)"
    ):
        log_perplexities(lambda tokens: np.zeros((len(tokens), 2)), space, space.every())
    with pytest.raises(InvalidArgument, match="apply log_softmax"):
        log_perplexities(lambda tokens: np.ones((*tokens.shape, 2)), space, space.every())
    with pytest.raises(InvalidArgument, match="apply log_softmax"):
        log_perplexities(lambda tokens: np.full((*tokens.shape, 2), np.nan), space, space.every())
    with pytest.raises(InvalidArgument, match=r"secrets must have the shape \(secrets, 1\)"):
        log_perplexities(chain(2, seed=0), space, np.zeros((3, 2), np.int64))


# ---- A PyTorch model as a next-token function


def test_it_is_the_log_softmax_in_evaluation_mode() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 5), nn.Dropout(0.5), nn.Linear(5, 7))
    tokens = np.array([[0, 3, 6], [2, 2, 1]])
    found = next_token_of(model)(tokens)
    assert model.training
    with torch.no_grad():
        expected = torch.log_softmax(model.eval()(torch.from_numpy(tokens)), -1).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.shape == (2, 3, 7)


def test_secrets_alone_do_not_import_torch() -> None:
    import subprocess  # noqa: PLC0415
    import sys  # noqa: PLC0415

    code = "import sys, tacit.auditing.secrets; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- Searches against the list of all secrets of a small alphabet

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


# ---- One secret under one model

MEASURED = Space((0,), ((0, 1, 2, 3, 4),) * 5)
MODEL = chain(5, seed=8)
VALUES = log_perplexities(MODEL, MEASURED, MEASURED.every())


@pytest.mark.parametrize("place", [0, 5, 400, 3000])
def test_all_ways_agree(place: int) -> None:
    row = int(np.argsort(VALUES)[place])
    found = measure(MODEL, MEASURED, MEASURED.every()[row], candidates=20_000, seed=0)
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
    found = measure(MODEL, MEASURED, MEASURED.every()[row], limit=10, seed=1)
    assert found.ranked is None
    assert found.exposure == found.sampled


def test_beyond_the_sample_the_law_counts() -> None:
    row = int(np.argsort(VALUES)[0])
    found = measure(MODEL, MEASURED, MEASURED.every()[row], limit=1, candidates=150, seed=3)
    assert found.ranked is None
    assert found.sampled.bits == found.sampled.most
    assert found.exposure == (found.extrapolated if found.extrapolated.holds else found.sampled)
