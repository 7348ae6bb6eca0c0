"""Tests that do the same in every run: see ``repeating``.

The properties of Hypothesis are tried on the same examples each time, however busy the machine is;
``--hypothesis-profile=default`` looks for new ones.
"""

import gc
import os
import signal
from collections.abc import Generator

import pytest
import torch
from hypothesis import HealthCheck, settings

from .repeating import Repeating

torch.set_num_threads(1)  # the tests' models are small, and the workers share the cores

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # kernels run on the CPU; read when Triton is imported

# For devices that are not there torch.manual_seed keeps the stack of every call, in text.
for device in (torch.cuda, torch.xpu, torch.mtia):
    if not device.is_available():
        device.manual_seed_all = lambda _: None

# A shell's background job ignores Ctrl-C, and so would the processes that tests send it to.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A test leaves little garbage: to look for it after every 700 objects takes 7 % of the time.
RARELY = (50_000, 50, 50)

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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is collected is garbage: to look for some takes a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*RARELY)
        gc.enable()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes are named by their length: compressed ones hold the second at which they were made,
    and workers that collect a second apart must agree on the names.
    """
    return f"{len(val)} bytes" if isinstance(val, bytes) else None
