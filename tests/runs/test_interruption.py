"""A request to stop waits where something would be lost, and is heard at once elsewhere."""

from __future__ import annotations

import pytest

from tacit.recipes import Interruption


def test_a_request_is_heard_at_once() -> None:
    stop = Interruption()
    assert not stop()
    with pytest.raises(KeyboardInterrupt):
        stop.request()


def test_a_deferred_request_waits_and_a_second_does_not() -> None:
    stop = Interruption()
    with stop.deferred():
        with stop.deferred():
            stop.request()
            assert stop()
        with pytest.raises(KeyboardInterrupt):
            stop.request()
    assert stop()


def test_a_function_can_be_asked() -> None:
    answers = iter([False, True])
    stop = Interruption(lambda: next(answers))
    assert [stop(), stop()] == [False, True]
