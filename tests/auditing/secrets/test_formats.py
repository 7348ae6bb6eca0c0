"""Spaces of secrets in tokens."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

from tacit.auditing.secrets import Canary, SecretFormat, Space, insert, insert_into_unit
from tacit.errors import InvalidArgument

# ---- Spaces of secrets in tokens

SPACE = Space((9,), ((0, 1), (5,), (2, 3, 4)))


def test_every_is_the_product_of_the_choices() -> None:
    assert SPACE.every().tolist() == [list(one) for one in product((0, 1), (5,), (2, 3, 4))]
    assert len(SPACE.every()) == SPACE.size == 6
    assert SPACE.max_exposure == np.log2(6)


def test_a_sample_is_uniform() -> None:
    rows = SPACE.sample(60_000, seed=3)
    _, counts = np.unique(rows, axis=0, return_counts=True)
    statistic = float(np.sum((counts - 10_000) ** 2 / 10_000))
    assert len(counts) == 6
    assert statistic < 40.0  # χ² with 5 degrees of freedom: 1.5e-7, and seeded


def test_sampling_follows_the_seed() -> None:
    assert (SPACE.sample(50, seed=1) == SPACE.sample(50, seed=1)).all()
    assert (SPACE.sample(50, seed=1) != SPACE.sample(50, seed=2)).any()


def test_the_start_comes_first() -> None:
    assert SPACE.after_start(np.array([[1, 5]])).tolist() == [[9, 1, 5]]


@pytest.mark.parametrize("secret", [[0, 5], [0, 5, 9], [[0, 5, 2]]])
def test_what_is_no_secret_of_the_space_is_refused(secret: list[int]) -> None:
    with pytest.raises(InvalidArgument, match="one of the allowed tokens"):
        SPACE.checked(secret)


def test_bad_spaces_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="start must hold"):
        Space((), ((0, 1),))
    with pytest.raises(InvalidArgument, match=r"choices\[1\] must hold different tokens"):
        Space((0,), ((0, 1), (2, 2)))
    with pytest.raises(InvalidArgument, match="at least two secrets"):
        Space((0,), ((0,), (1,)))
    with pytest.raises(InvalidArgument, match="too large to list"):
        Space((0,), (tuple(range(10)),) * 9).every()


# ---- Formats of secrets, and canaries of them

NINE = SecretFormat("the code is {digits:9}.\n")


def test_nine_digits_have_a_billion_secrets() -> None:
    assert NINE.size == 10**9
    assert round(NINE.max_exposure, 3) == 29.897
    assert (NINE.before, NINE.after) == ("the code is ", ".\n")


def test_fixed_text_between_fields_is_known() -> None:
    card = SecretFormat("card {digits:2}-{hex:1}x{letters:1}")
    assert card.places == ("0123456789",) * 2 + (
        "-", "0123456789abcdef", "x", "abcdefghijklmnopqrstuvwxyz",
    )  # fmt: skip
    assert card.size == 10 * 10 * 16 * 26
    assert card.space().start == tuple(b"card ")


def test_a_drawn_canary_has_the_format() -> None:
    for canary in SecretFormat("a{digits:3}-{hex:2}!").draw(200, seed=0):
        assert re.fullmatch(r"a\d{3}-[0-9a-f]{2}!", canary.text)
        assert canary.secret == canary.text[1:-1]


def test_canaries_are_different_and_follow_the_seed() -> None:
    assert len({one.secret for one in NINE.draw(1000)}) > 990
    assert NINE.draw(3, seed=5) == NINE.draw(3, seed=5)


def test_a_given_secret_is_checked() -> None:
    assert NINE.canary("281265017") == Canary("the code is 281265017.\n", "281265017")
    with pytest.raises(InvalidArgument, match="one of the allowed tokens"):
        NINE.canary("28126501x")


def test_tokens_of_another_alphabet() -> None:
    letters = "0123456789 cdeo"
    canary = SecretFormat("code {digits:2}").canary("70")
    space = SecretFormat("code {digits:2}").space(lambda text: [letters.index(one) for one in text])
    assert space.start == (11, 14, 12, 13, 10)
    assert canary.tokens(lambda text: [letters.index(one) for one in text]) == (7, 0)
    with pytest.raises(InvalidArgument, match="one token of each character"):
        SecretFormat("code {digits:2}").space(lambda _: [1, 2])


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("nothing random", "must hold a field"),
        ("{digits:9}", "must begin with fixed text"),
        ("a {words:2}", "a field must be one of digits, hex, letters"),
        ("a {digits:0}", "a field must be one of"),
        ("a {digits:many}", "a field must be one of"),
    ],
)
def test_bad_templates_are_refused(template: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        SecretFormat(template)


# ---- Canaries in texts and in privacy units

TEXT = "".join(f"line {number}\n" for number in range(50))


@pytest.mark.parametrize("times", [0, 1, 7])
def test_a_text_gets_the_canary_so_often(times: int) -> None:
    found = insert(TEXT, "<secret>\n", times, seed=1)
    assert found.count("<secret>\n") == times
    assert found.replace("<secret>\n", "") == TEXT


def test_places_in_a_text_are_random_and_follow_the_seed() -> None:
    assert len({insert(TEXT, "x\n", 1, seed=seed).index("x") for seed in range(200)}) > 40
    assert insert(TEXT, "x\n", 5, seed=2) == insert(TEXT, "x\n", 5, seed=2)


@pytest.mark.parametrize("times", [0, 1, 2, 5, 8])
def test_all_copies_are_in_one_unit(times: int) -> None:
    rows = np.zeros((4, 33), np.uint8)
    changed = insert_into_unit(rows, 2, [1, 2, 3, 4], times)
    assert bytes(changed[2]).count(bytes([1, 2, 3, 4])) == times
    assert np.count_nonzero(changed[2]) == 4 * times
    assert not changed[[0, 1, 3]].any()
    assert not rows.any()
    assert changed.dtype == np.uint8


def test_more_copies_than_there_is_room_for() -> None:
    with pytest.raises(InvalidArgument, match="times must be at most 8"):
        insert_into_unit(np.zeros((4, 33)), 2, [1, 2, 3, 4], 9)
    with pytest.raises(InvalidArgument, match="unit must be the number of one of the rows"):
        insert_into_unit(np.zeros((4, 33)), 4, [1, 2, 3, 4], 1)
