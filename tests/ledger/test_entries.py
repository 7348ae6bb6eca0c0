from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import InvalidArgument
from tacit.ledger.entries import (
    Draft,
    Entry,
    Head,
    break_between,
    canonical,
    entry_after,
    hash_of,
    hashed,
)

ENTRY = Entry(7, "Zürich", "lease", "2026-01-02T03:04:05.000006+00:00", '{"a":1}', "ab" * 32, "")
texts = st.text(max_size=6)


def test_hash_is_sha256_of_every_column_with_its_length():
    written = (
        b"20:tacit ledger entry 1"
        b"1:7"
        b"7:Z\xc3\xbcrich"
        b"5:lease"
        b"32:2026-01-02T03:04:05.000006+00:00"
        b'7:{"a":1}'
        b"64:" + b"ab" * 32
    )
    assert hash_of(ENTRY) == hashlib.sha256(written).hexdigest()


@settings(deadline=None)
@given(st.lists(st.tuples(texts, texts, texts), min_size=2, max_size=2, unique=True))
def test_different_columns_never_share_a_text_to_hash(pair):
    one, other = (replace(ENTRY, budget=a, kind=b, body=c) for a, b, c in pair)
    assert hash_of(one) != hash_of(other)


def test_bytes_that_are_no_text_can_be_hashed():
    assert hash_of(replace(ENTRY, body=b"\xff\xfe".decode("utf-8", "surrogateescape")))


@settings(deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=8,
    )
)
def test_canonical_text_loses_nothing_and_has_one_spelling(value):
    text = canonical(value)
    assert json.loads(text) == value
    assert canonical(json.loads(text)) == text


def test_chain_holds_and_every_change_of_a_column_breaks_it():
    first = entry_after(None, Draft("", "ledger", {"id": "x"}))
    second = entry_after(first.head, Draft("data", "open", {"epsilon": 1.0}))
    assert break_between(None, first) is None
    assert break_between(first.head, second) is None
    for name in ("budget", "kind", "at", "body", "previous", "hash"):
        text = getattr(second, name)
        for index in range(len(text)):
            changed = text[:index] + chr(ord(text[index]) ^ 1) + text[index + 1 :]
            assert "entry 2" in break_between(first.head, replace(second, **{name: changed}))


def test_chain_tells_missing_misplaced_and_replaced_entries_apart():
    first = entry_after(None, Draft("", "ledger", {}))
    second = entry_after(first.head, Draft("", "adopt", {"reason": "x"}))
    third = entry_after(second.head, Draft("", "adopt", {"reason": "y"}))
    assert break_between(first.head, third) == "entry 2 is missing"
    assert break_between(None, third) == "entries 1 to 2 are missing"
    assert break_between(third.head, second) == "entry 2 stands where entry 4 belongs"
    forged = hashed(replace(second, body='{"reason":"z"}'))
    assert "entry 3 does not follow" in break_between(forged.head, third)


def test_head_is_read_as_it_is_written():
    head = Head(12, "0f" * 32)
    assert Head.parse(str(head)) == head
    for wrong in ("", "12", "0:" + "0f" * 32, "12:" + "0F" * 32, "12:0f", f"{head} "):
        with pytest.raises(InvalidArgument, match="head must look like"):
            Head.parse(wrong)
