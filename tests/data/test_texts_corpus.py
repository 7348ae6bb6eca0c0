"""Plain text in windows: every byte in one example at most, and a fixed place to cut."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from tacit.data import load, read_text
from tacit.data.contents import Contents
from tacit.data.texts import read_speeches
from tacit.errors import DataError, InvalidArgument

TEXT = bytes(range(256)) * 8  # 2,048 bytes, each place recognisable within 256


@pytest.mark.parametrize("packed", [True, False])
def test_windows_hold_the_text_in_its_order(tmp_path, packed):
    (tmp_path / "own.txt").write_bytes(gzip.compress(TEXT) if packed else TEXT)
    split = read_text(tmp_path / "own.txt", window=9)
    cut = 1_843  # nine tenths
    assert split.train.inputs.shape == (184, 9)
    assert split.test.inputs.shape == (20, 9)
    for part, start in ((split.train, 0), (split.test, cut)):
        for row in range(len(part)):
            window = TEXT[start + 10 * row : start + 10 * row + 10]
            assert bytes(part.inputs[row]) == window[:-1]
            assert part.labels[row].tolist() == list(window[1:])


def test_no_byte_is_in_two_examples(tmp_path):
    """Changing one byte changes one example."""
    changed = bytearray(TEXT)
    changed[1_000] ^= 1
    (tmp_path / "a").write_bytes(TEXT)
    (tmp_path / "b").write_bytes(changed)
    a, b = read_text(tmp_path / "a", window=7), read_text(tmp_path / "b", window=7)
    rows = (a.train.inputs != b.train.inputs).any(1) | (a.train.labels != b.train.labels).any(1)
    assert rows.sum() == 1
    np.testing.assert_array_equal(a.test.inputs, b.test.inputs)


def test_types(tmp_path):
    (tmp_path / "a").write_bytes(TEXT)
    split = read_text(tmp_path / "a")
    assert (split.train.inputs.dtype, split.train.labels.dtype) == (np.uint8, np.int64)
    assert len(split.classes) == 256
    assert split.files == {"a": "unverified"}


def test_refusals(tmp_path):
    (tmp_path / "a").write_bytes(TEXT)
    with pytest.raises(DataError, match="2,048 bytes, too few for windows of 205"):
        read_text(tmp_path / "a", window=205)
    assert len(read_text(tmp_path / "a", window=204).test) == 1
    with pytest.raises(InvalidArgument, match="window must be a whole number, 1 or more, got 0"):
        read_text(tmp_path / "a", window=0)
    with pytest.raises(DataError, match="cannot be read"):
        read_text(tmp_path / "none")


def test_shakespeare_needs_the_published_text(tmp_path):
    (tmp_path / "tinyshakespeare.txt").write_bytes(TEXT)
    with pytest.raises(DataError, match="has only 2,048 of 1,115,394 bytes"):
        load("shakespeare", tmp_path)
    assert load("shakespeare", tmp_path, unverified=True).train.inputs.shape == (14, 128)


def test_a_speaker_whose_name_is_written_in_two_ways_is_one():
    """All speeches of one speaker are protected as a whole: under either spelling."""
    said = b"ALL:\nPeace.\n\nNurse:\nMadam.\n\nNURSE:\nAnon.\n\nAll:\nPeace."
    train, test = read_speeches(iter([Contents("own.txt", said, False)]))
    assert [*train.labels, *test.labels] == [0, 1, 1, 0]
