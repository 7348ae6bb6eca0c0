"""Units of text."""

from __future__ import annotations

import pytest

import tacit
from tacit.data import Corpus, by_author, by_document, by_window
from tacit.errors import InvalidArgument

TEXTS = ["to be", "or not", "to be", "that is"]


def test_texts_of_one_author_are_one_unit():
    corpus = by_author(TEXTS, ["Ann", "Ben", "Ann", 7])
    assert corpus.groups.tolist() == [0, 1, 0, 2]
    assert (corpus.units, len(corpus)) == (3, 4)
    terms = corpus.plan_terms(examples_per_user=2)
    plan = tacit.Plan(lot_size=1, steps=1, noise_multiplier=1.0, clip=1.0, **terms)
    assert (plan.unit, plan.examples, plan.examples_per_user) == ("user", 3, 2)
    assert "everything that one author" in corpus.unit_in_words


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
