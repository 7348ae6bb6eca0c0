"""Every test does the same in every run, in whatever order and process it is run.

A failure then tells of the change at hand. What a test or a doctest draws from the system's
randomness through tacit's streams, and from PyTorch's own generator, follows from its name. Tests
of ``tacit.randomness`` have the real streams, and so have the processes that a test starts.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import torch

from tacit.randomness import streams

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

REAL = "tests/randomness/"


class Keys:
    """The keys of secure streams: each is a new one, but the same when a test is run again."""

    def __init__(self) -> None:
        self._home, self._made = os.getpid(), streams._Erasing
        self._name, self._numbers = REAL, itertools.count()

    def begin(self, name: str) -> None:
        """Keys and PyTorch's numbers are those of ``name`` from now on."""
        self._name, self._numbers = name, itertools.count()
        _seed(zlib.crc32(name.encode()))

    @contextmanager
    def aside(self, name: str) -> Iterator[None]:
        """Those of ``name`` for a while, and then on with what was before."""
        before = self._name, self._numbers, torch.get_rng_state()
        self.begin(name)
        try:
            yield
        finally:
            self._name, self._numbers = before[:2]
            torch.set_rng_state(before[2])

    def generator(self, key: bytes, nonce: bytes, home: tuple[int, int]) -> object:
        """What a stream draws from: it stands for ``streams._Erasing``."""
        forked = os.getpid() != self._home  # whose bytes must not be its parent's
        if not forked and not self._name.startswith(REAL):
            key = hashlib.sha256(f"{next(self._numbers)}:{self._name}".encode()).digest()
        return self._made(key, nonce, home)


def _seed(number: int) -> None:
    """As ``torch.manual_seed``, which keeps a stack of every call for devices that are not used."""
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(number)


class Repeating:
    """The plugin of pytest."""

    def __init__(self) -> None:
        self._keys = Keys()
        streams._Erasing = self._keys.generator  # type: ignore[assignment, misc]

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        """A module may draw its data when it is imported."""
        self._keys.begin(collector.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._keys.begin(item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """What several tests share does not depend on which of them comes first."""
        if fixturedef.scope == "function":
            return (yield)
        with self._keys.aside(f"{fixturedef.baseid}::{fixturedef.argname}::{request.param_index}"):
            return (yield)
