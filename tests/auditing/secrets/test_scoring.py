"""Log-perplexities against the token-by-token way."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.auditing.secrets import Space, log_perplexities
from tacit.errors import InvalidArgument

from .models import chain, one_by_one

SPACE = Space((2, 0), ((0, 1, 3), (4,), (1, 2), (0, 1, 2, 3, 4)))


@pytest.mark.parametrize("batch", [1, 7, 1024])
def test_it_is_the_sum_over_the_tokens(batch: int) -> None:
    model = chain(5, seed=0)
    found = log_perplexities(model, SPACE, SPACE.every(), batch=batch)
    expected = [one_by_one(model, SPACE, row) for row in SPACE.every().tolist()]
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
