"""A process that goes on from this one: all that it needs is imported already.

Importing PyTorch takes longer than what the tests of signals do with it. A process of this kind is
ended, stopped and read like a ``subprocess.Popen``, and works with its own streams and environment.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING

from tacit._workers import fork

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Forked:
    """Runs ``work``, whose result is the process's status, beside this process."""

    def __init__(
        self, work: Callable[[], int], env: Mapping[str, str], limit: int | None = None
    ) -> None:
        self.returncode = 0
        self._ended = False
        (out, to_out), (err, to_err) = os.pipe(), os.pipe()
        self.pid = fork()
        if self.pid == 0:
            _be_alone(work, env, limit, to_out, to_err)
        os.close(to_out)
        os.close(to_err)
        self.stdout, self.stderr = os.fdopen(out), os.fdopen(err)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        until = time.monotonic() + timeout
        while not self._ended:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self._ended, self.returncode = True, os.waitstatus_to_exitcode(status)
            elif time.monotonic() > until:
                raise TimeoutError(f"process {self.pid} has not ended in {timeout} s")
            else:
                time.sleep(0.01)
        return self.returncode

    def communicate(self, timeout: float) -> tuple[str, str]:
        """All that is left to read, when the process has ended."""
        with self.stderr, self.stdout:
            err, out = self.stderr.read(), self.stdout.read()
        self.wait(timeout)
        return out, err


def _be_alone(
    work: Callable[[], int], env: Mapping[str, str], limit: int | None, out: int, err: int
) -> None:
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
        os.environ.update(env)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        status = work()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
