"""Lines with a label, a tab and a text: either order, with column names or without."""

from __future__ import annotations

import gzip

import pytest

from tacit.data import load, read_tsv
from tacit.errors import DataError

TEXTS = ("good film", "bad film", "no film")


def read(tmp_path, text: str, classes=None):
    path = tmp_path / "own.tsv"
    path.write_bytes(text.encode())
    return read_tsv(path, classes=classes)


@pytest.mark.parametrize(
    "text",
    [
        "yes\tgood film\nno\tbad film\nno\tno film\n",
        "good film\tyes\nbad film\tno\nno film\tno",
        "label\ttext\nyes\tgood film\nno\tbad film\nno\tno film\n",
        "sentence\tlabel\ngood film \tyes\n bad film\tno\n\nno film\tno\n",
        "\ufeffLabel\tSentence\r\nyes\tgood film\r\nno\tbad film\r\nno\tno film\r\n",
    ],
)
@pytest.mark.parametrize("classes", [None, ("no", "yes"), ("yes", "no")])
def test_either_order_is_read(tmp_path, text, classes):
    examples, found = read(tmp_path, text, classes)
    assert examples.inputs == TEXTS
    assert found == (classes or ("no", "yes"))
    assert [found[label] for label in examples.labels] == ["yes", "no", "no"]


def test_packed_files_are_read_too(tmp_path):
    path = tmp_path / "own.tsv.gz"
    path.write_bytes(gzip.compress(b"a\tone\nb\ttwo\na\tthree\n"))
    assert read_tsv(path)[0].labels.tolist() == [0, 1, 0]


def test_only_a_line_feed_ends_a_line(tmp_path):
    examples, _ = read(tmp_path, "a\tone\x85two\u2028three\x0bfour\na\tfive\n")
    assert examples.inputs == ("one\x85two\u2028three\x0bfour", "five")


@pytest.mark.parametrize(
    ("text", "classes", "message"),
    [
        ("", None, "holds no lines"),
        ("a\tone\nb\n", None, "line 2: there must be a label, a tab and a text, got 1 column"),
        ("a\tone\n\n\nb\ttwo\tthree\n", None, "line 4: .* got 3 columns"),
        ("a\tone\nb\ttwo\n", None, "either column could hold the labels"),
        ("label\ttext\n", None, "no lines below"),
        ("text\tlabel\none\ta\ntwo\tc\n", ("a", "b"), "line 3: the label 'c' is none of a, b"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path, text, classes, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, text, classes)


def test_other_encodings_and_missing_files_are_refused(tmp_path):
    (tmp_path / "latin.tsv").write_bytes("a\tcafé\n".encode("latin-1"))
    with pytest.raises(DataError, match="not in UTF-8"):
        read_tsv(tmp_path / "latin.tsv")
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_tsv(tmp_path / "none.tsv")


def test_sst2_is_read_in_two_and_in_three_parts(tmp_path):
    folder = tmp_path / "SST-2"
    folder.mkdir()
    (folder / "train.tsv").write_text("sentence\tlabel\nfine \t1\ndull \t0\n")
    (folder / "dev.tsv").write_text("sentence\tlabel\nlong \t0\n")
    two = load("sst2", tmp_path, unverified=True)
    assert (two.train.inputs, two.test.inputs) == (("fine", "dull"), ("long",))
    assert two.train.labels.tolist() == [1, 0]
    assert two.classes == ("negative", "positive")


def test_messages_are_split_for_good(tmp_path):
    lines = [f"{'spam' if i % 3 else 'ham'}\tmessage {i}" for i in range(50)]
    (tmp_path / "sms_spam.tsv").write_text("\n".join(lines))
    split = load("sms", tmp_path, unverified=True)
    assert (len(split.train), len(split.test)) == (40, 10)
    assert {*split.train.inputs, *split.test.inputs} == {f"message {i}" for i in range(50)}
    for part in (split.train, split.test):
        for text, label in zip(part.inputs, part.labels, strict=True):
            assert label == (int(str(text).split()[1]) % 3 > 0)
