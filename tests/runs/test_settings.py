"""Settings read by the types of their fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from tacit.errors import InvalidArgument
from tacit.runs.settings import as_dict, changed, names


@dataclass(frozen=True, kw_only=True)
class Own:
    lot: int = 10
    lr: float = 0.5
    head: Literal["linear", "cnn"] = "linear"
    views: Literal[1, 4, 16] = 1
    bias: bool = False
    name: str = "x"
    cap: int | None = None


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"lot": "500"}, 500), ({"lot": "1e3"}, 1000), ({"lot": 7}, 7), ({"lr": "2"}, 2.0),
        ({"lr": 3}, 3.0), ({"head": "cnn"}, "cnn"), ({"views": "16"}, 16), ({"bias": "true"}, True),
        ({"bias": "off"}, False), ({"bias": True}, True), ({"name": "y"}, "y"),
        ({"cap": "none"}, None), ({"cap": "3"}, 3), ({"cap": None}, None),
    ],
)  # fmt: skip
def test_values_have_their_fields_type(given: dict[str, Any], value: object) -> None:
    (name,) = given
    found = getattr(changed(Own(), given), name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lot": "many"}, "lot must be a whole number"),
        ({"lot": "2.5"}, "lot must be a whole number"),
        ({"lot": "inf"}, "lot must be a whole number"),
        ({"lot": True}, "lot must be a whole number"),
        ({"lr": "nan"}, "lr must be a number from -1e30 to 1e30"),
        ({"lr": "1e999"}, "lr must be a number from -1e30 to 1e30"),
        ({"head": "mlp"}, "head must be one of linear, cnn"),
        ({"bias": "maybe"}, "bias must be true or false"),
        ({"lott": 1}, "did you mean lot?"),
        ({"zzz": 1}, "there are lot, lr, head, views, bias, name, cap"),
    ],
)
def test_wrong_values_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words.replace("?", r"\?")):
        changed(Own(), given)


def test_settings_come_back_from_their_plain_form() -> None:
    own = Own(lot=3, head="cnn", cap=4)
    assert changed(Own(), as_dict(own)) == own
    assert names(own) == ("lot", "lr", "head", "views", "bias", "name", "cap")
