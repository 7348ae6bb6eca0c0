"""Units of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch

import tacit
from tacit.data import Corpus, by_author, by_document, by_window
from tacit.data.units import unit_numbers
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

TEXTS = ["to be", "or not", "to be", "that is"]


def test_texts_of_one_author_are_one_unit():
    corpus = by_author(TEXTS, ["Ann", "Ben", "Ann", 7])
    assert corpus.groups.tolist() == [0, 1, 0, 2]
    assert (corpus.units, len(corpus)) == (3, 4)
    terms = corpus.plan_terms(examples_per_user=2)
    plan = tacit.Plan(lot_size=1, steps=1, noise_multiplier=1.0, clip=1.0, **terms)
    assert (plan.unit, plan.examples, plan.examples_per_user) == ("user", 3, 2)
    assert "everything that one author" in corpus.unit_in_words


@pytest.mark.parametrize(
    "kind", [np.array, torch.tensor, tuple, pd.Series], ids=lambda f: f.__name__
)
def test_authors_may_come_as_any_array(kind: Callable[[list[int]], Any]):
    assert by_author(TEXTS, kind([5, 8, 5, 5])).groups.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("author", [None, float("nan"), pd.NA, "", " \t", [1, 2]], ids=repr)
def test_a_text_without_an_author_is_refused(author: Any):
    with pytest.raises(InvalidArgument, match="got none for text 2"):
        by_author(TEXTS, ["Ann", "Ben", author, "Ann"])


@pytest.mark.parametrize("other", ["ann", " Ann", "Ann ", "\uff21nn", "An\u200bn"])
def test_one_author_under_two_spellings_is_refused(other: str):
    """The claim would be of all that a person wrote, and hold for half of it."""
    with pytest.raises(InvalidArgument, match="texts 1 and 3 differ only in case") as refused:
        by_author(TEXTS, ["Ben", "Ann", "Ann", other])
    assert "Ann" not in str(refused.value)  # whoever that is
    with pytest.raises(InvalidArgument, match="or number the authors"):
        by_author(TEXTS, [7, 8, 7, "7"])


def test_records_of_one_group_have_one_number():
    assert unit_numbers([9, 4, 9, 7])[0].tolist() == [2, 0, 2, 1]
    for kind in (np.array, torch.tensor, tuple, pd.Series, np.ma.masked_array):
        assert unit_numbers(kind([5, 8, 5, 5]))[0].tolist() == [0, 1, 0, 0]
    assert unit_numbers(np.array(["b", "a", "b"], dtype=object))[0].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    "groups",
    [
        [2.0, np.nan, 1.0, 2.0, 1.0],
        np.array([2, np.nan, 1, 2, 1], dtype=object),  # which sorting would tear apart
        pd.Series([2, None, 1, 2, 1], dtype="Int64"),
        pd.Series(["a", None, "b", "a", "b"], dtype="string"),
        ["a", np.nan, "b", "a", "b"],
        ["a", " ", "b", "a", "b"],
        np.array([b"a", b"", b"b", b"a", b"b"]),
        np.array(["2020", "NaT", "2021", "2020", "2021"], dtype="M8[Y]"),
        np.ma.masked_array([2, 2, 1, 2, 1], mask=[0, 1, 0, 0, 0]),
    ],
    ids=["float", "object", "Int64", "string", "list", "text", "bytes", "date", "masked"],
)
def test_a_record_without_a_group_is_refused(groups: Any):
    with pytest.raises(InvalidArgument, match="got none for some of them"):
        unit_numbers(groups)


@pytest.mark.parametrize("other", ["1", frozenset([2])])
def test_groups_that_have_no_order_are_refused(other: Any):
    groups = np.empty(4, dtype=object)
    groups[:] = [frozenset([1]), other, frozenset([1]), frozenset([2, 1])]
    with pytest.raises(InvalidArgument, match="groups must be of one type"):
        unit_numbers(groups)


@pytest.mark.parametrize("cut", [by_document, lambda text: by_author(text, ["Ann"] * len(text))])
def test_one_text_is_not_taken_for_as_many_as_it_has_characters(cut: Callable[[Any], Any]):
    """Each would be a unit by itself, and the claim of documents."""
    for text in ("to be or not", b"to be or not"):
        with pytest.raises(InvalidArgument, match=r"got one of 12 characters: pass a list"):
            cut(text)


@pytest.mark.parametrize("text", [None, float("nan"), b"to be", 7], ids=repr)
def test_what_is_no_text_is_refused(text: Any):
    with pytest.raises(InvalidArgument, match=f"got a {type(text).__name__} for text 1"):
        by_document(["to be", text])


def test_documents_are_units_and_their_authors_are_not():
    corpus = by_document(TEXTS)
    assert corpus.units == 4  # two are alike, and still two
    assert corpus.plan_terms() == {"examples": 4, "unit": "example"}
    assert "not protected as a whole" in corpus.unit_in_words


@pytest.mark.parametrize("length", [1, 3, 11, 12, 99])
def test_no_character_is_in_two_windows(length: int):
    text = "to be or not"
    corpus = by_window(text, length)
    assert "".join(corpus.texts) == text
    assert {len(one) for one in corpus.texts[:-1]} <= {length}
    assert corpus.plan_terms()["examples"] == -(-len(text) // length)


def test_what_makes_no_units_is_refused():
    with pytest.raises(InvalidArgument, match="author of every text"):
        by_author(TEXTS, ["Ann"])
    with pytest.raises(InvalidArgument, match="one or more"):
        by_document([])
    with pytest.raises(InvalidArgument, match="length"):
        by_window("abc", 0)
    with pytest.raises(InvalidArgument, match="examples_per_user must be given for authors"):
        by_author(TEXTS, TEXTS).plan_terms()
    with pytest.raises(InvalidArgument, match="only for them"):
        by_document(TEXTS).plan_terms(examples_per_user=3)
    with pytest.raises(InvalidArgument, match="each with its unit"):
        Corpus(("a",), by_document(TEXTS).groups, "document")
