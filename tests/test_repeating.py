"""What a test draws is the same in every run, and different from what others draw."""

from __future__ import annotations

import os
import zlib

import pytest
import torch

from tacit.randomness import SecureStream

AT_IMPORT = torch.rand(3)


def drawn() -> str:
    return SecureStream("test").bytes(4).hex()


@pytest.mark.parametrize("expected", [("b2a1893d", "2e4697b9"), ("64e6d0b3", "ebbe7bf5")])
def test_bytes_follow_from_the_name_and_none_come_twice(expected: tuple[str, str]) -> None:
    assert (drawn(), drawn()) == expected


def test_numbers_of_pytorch_follow_from_the_name(request: pytest.FixtureRequest) -> None:
    for name, found in (
        (request.node.nodeid, torch.rand(3)),
        (request.node.nodeid.partition("::")[0], AT_IMPORT),
    ):
        seeded = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        assert torch.equal(found, torch.rand(3, generator=seeded))


@pytest.fixture(scope="module")
def shared() -> str:
    return drawn()


@pytest.mark.parametrize("first", [True, False])
def test_what_tests_share_does_not_depend_on_who_is_first(shared: str, first: bool) -> None:
    assert shared == "6306e770"
    assert drawn() == ("24a47ef6" if first else "0419a68d")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of threads, which have no part in this
def test_a_forked_child_has_bytes_of_its_own() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, drawn().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 8).decode() != drawn()
    os.close(reader)
    os.close(writer)
