"""Lines with a checksum: what was written comes back, and nothing else does."""

from __future__ import annotations

import os

import pytest

from tacit.transfer import journal


def test_values_come_back():
    for values in (["tell", 3, 7], ["end"], ["a kind", {"é": [1.5, None]}, "\n"]):
        text = journal._line(values)
        assert text.count(b"\n") == 1
        assert journal._values(text[:-1]) == values


def test_every_changed_byte_is_found():
    text = journal._line(["answer", 10, 11, 12])[:-1]
    for place in range(len(text)):
        for other in (b"0", b"9", b" ", b"x"):
            changed = text[:place] + other + text[place + 1 :]
            if changed != text:
                with pytest.raises(ValueError, match="not what was written"):
                    journal._values(changed)


def test_a_line_of_nothing_is_refused():
    for values in ([], {"a": 1}, 3):
        with pytest.raises(ValueError, match="no values"):
            journal._values(journal._line(values)[:-1])


def test_all_is_written_also_where_the_system_takes_it_in_parts(tmp_path, monkeypatch):
    file = os.open(tmp_path / "lines", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    true_write = os.write
    monkeypatch.setattr(os, "write", lambda to, data: true_write(to, data[:3]))
    journal._append(file, b"a line that is long\n")
    os.close(file)
    assert (tmp_path / "lines").read_bytes() == b"a line that is long\n"
