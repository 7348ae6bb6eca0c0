"""Formats of secrets, and canaries of them."""

from __future__ import annotations

import re

import pytest

from tacit.auditing.secrets import Canary, SecretFormat
from tacit.errors import InvalidArgument

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
