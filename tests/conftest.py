"""Tests that do the same in every run: see ``repeating``.

The properties of Hypothesis are tried on the same examples each time, however busy the machine is;
``--hypothesis-profile=default`` looks for new ones.
"""

import signal

import pytest
import torch
from hypothesis import HealthCheck, settings

from .repeating import Repeating

torch.set_num_threads(1)  # the tests' models are small, and the workers share the cores

# A shell's background job ignores Ctrl-C, and so would the processes that tests send it to.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Repeating())


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes are named by their length: compressed ones hold the second at which they were made,
    and workers that collect a second apart must agree on the names.
    """
    return f"{len(val)} bytes" if isinstance(val, bytes) else None
