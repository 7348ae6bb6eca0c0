"""Checksums, gzip, tar and zip: what is packed comes out, and nothing else happens."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile

import pytest

from tacit.data import contents
from tacit.data.contents import Contents, digest, digest_at, inside, members, unpacked
from tacit.errors import DataError

from .writing import tar_gz

TEXT = b"what is packed " * 100


def of(data: bytes, where: str = "file") -> Contents:
    return Contents(where, data, True)


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_a_checksum_is_by_the_algorithm_of_the_published_one(algorithm, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(TEXT)
    expected = f"{algorithm}:{hashlib.new(algorithm, TEXT).hexdigest()}"
    assert digest(TEXT, f"{algorithm}:0") == expected
    assert digest_at(path, f"{algorithm}:0") == expected


def test_without_a_published_checksum_it_is_sha256():
    assert digest(b"", None) == f"sha256:{hashlib.sha256().hexdigest()}"


def test_gzip_is_unpacked_and_other_files_are_left_alone():
    assert unpacked(of(gzip.compress(TEXT))).data == TEXT
    assert unpacked(of(TEXT)).data == TEXT


def test_gzip_that_ends_early_or_is_damaged_is_refused():
    packed = gzip.compress(TEXT)
    with pytest.raises(DataError, match="ends too early"):
        unpacked(of(packed[:-20]))
    damaged = packed[:-8] + bytes(8)  # the checksum that gzip keeps of its own
    with pytest.raises(DataError, match="no sound gzip"):
        unpacked(of(damaged))


def test_gzip_that_unpacks_to_too_much_is_refused():
    bomb = gzip.compress(bytes(1_000_000))
    assert len(unpacked(of(bomb), limit=1_000_000).data) == 1_000_000
    with pytest.raises(DataError, match="more than 999,999 bytes"):
        unpacked(of(bomb), limit=999_999)


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


@pytest.mark.parametrize("pack", [tar_gz, zipped])
def test_members_come_in_the_order_asked_for(pack):
    archive = of(pack({"a/one": b"1", "a/two": b"2", "a/three": b"3"}), "archive")
    found = members(archive, ("a/three", "a/one"))
    assert [one.data for one in found] == [b"3", b"1"]
    assert [one.where for one in found] == ["archive:a/three", "archive:a/one"]
    with pytest.raises(DataError, match=r"archive holds no a/four; get it again"):
        members(archive, ("a/one", "a/four"))


@pytest.mark.parametrize("pack", [tar_gz, zipped])
def test_an_archive_writes_nothing_wherever_its_members_point(pack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hostile = {"../outside": b"!", f"{tmp_path}/absolute": b"!", "wanted": b"ok"}
    assert members(of(pack(hostile)), ("wanted",))[0].data == b"ok"
    assert list(tmp_path.iterdir()) == []
    assert not (tmp_path.parent / "outside").exists()


def test_a_link_in_an_archive_is_not_followed(tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, kind in (("wanted", tarfile.SYMTYPE), ("other", tarfile.LNKTYPE)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, str(tmp_path / "secret")
            archive.addfile(entry)
    for name in ("wanted", "other"):
        with pytest.raises(DataError, match=f"holds no {name}"):
            members(of(out.getvalue()), (name,))


def test_a_member_too_large_is_not_read(monkeypatch):
    monkeypatch.setattr(contents, "LARGEST", 10)
    for pack in (tar_gz, zipped):
        assert members(of(pack({"small": bytes(10)})), ("small",))
        with pytest.raises(DataError, match="holds no large"):
            members(of(pack({"large": bytes(11)})), ("large",))


@pytest.mark.parametrize("data", [b"", b"no archive", b"PK no zip", tar_gz({"a": TEXT})[:60]])
def test_what_is_no_archive_is_refused_in_a_line(data):
    with pytest.raises(DataError) as refusal:
        members(of(data, "archive"), ("a",))
    assert "\n" not in str(refusal.value)
    assert "archive" in str(refusal.value)


def test_a_checksum_may_be_of_what_is_inside():
    assert inside(of(TEXT), None).data == TEXT
    assert inside(of(gzip.compress(TEXT)), "gzip").data == TEXT
    assert inside(of(zipped({"a": TEXT, "b": b""})), "a").data == TEXT
