"""A real PostgreSQL server for the tests: its own folder, its own port, on loopback only."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Missing(Exception):
    """Why there is no server."""


class Server:
    """A server whose data lie in ``folder``; it can be stopped and started again."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.folder = folder
        self._programs = programs
        self._count = 0
        self._used: list[str] = []
        self.port = _free_port()

    def prepare(self) -> None:
        # Whatever the locale: the cluster's encoding would follow it.
        own = ("-U", "tacit", "-A", "trust", "-E", "UTF8", "--locale=C")
        self._run("initdb", "-D", self.folder / "data", *own, "--no-sync")

    def start(self) -> None:
        # The server's own syncs are not what is tested, and its files are gone with the tests.
        settings = f"-c listen_addresses=127.0.0.1 -c fsync=off -p {self.port} -k {self.folder}"
        where = ("-D", self.folder / "data", "-l", self.folder / "log")
        self._run("pg_ctl", *where, "-o", settings, "-w", "start")

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", self.folder / "data", "-m", mode, "-w", "stop")

    def execute(self, statement: str, database: str = "postgres") -> list[tuple]:
        import psycopg  # noqa: PLC0415

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            done = connection.execute(statement)
            return done.fetchall() if done.description else []

    def new_database(self) -> str:
        """An empty database: a used one made empty, which is quicker than making one."""
        if self._used:
            name = self._used.pop()
            self.execute("DROP SCHEMA public CASCADE", name)
            self.execute("CREATE SCHEMA public", name)
            self.execute(f"ALTER DATABASE {name} RESET ALL", name)
            return name
        self._count += 1
        name = f"ledger{self._count}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def give_back(self, database: str) -> None:
        self._used.append(database)

    def url(self, database: str) -> str:
        return f"postgresql://tacit@127.0.0.1:{self.port}/{database}"

    def _run(self, program: str, *arguments: object) -> None:
        command = [*_other_user(), str(self._programs / program), *map(str, arguments)]
        # Not captured: the server inherits the pipes, and they would never end.
        with (self.folder / "output").open("ab") as output:
            done = subprocess.run(
                command, stdout=output, stderr=output, cwd=self.folder, check=False, timeout=60
            )
        if done.returncode:
            said = (self.folder / "output").read_text(errors="replace")[-500:]
            raise Missing(f"{program} failed: {said}")


@contextlib.contextmanager
def running() -> Iterator[Server]:
    programs = _programs()
    folder = Path(tempfile.mkdtemp(prefix="tacit-postgres-"))
    server = Server(programs, folder)
    try:
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        server.prepare()
        server.start()
        try:
            yield server
        finally:
            with contextlib.suppress(Missing):  # a test may have left it stopped
                server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    """One that nobody is given meanwhile: not of those that the system hands out, and each process
    begins to look at its own.
    """
    for port in itertools.count(20_000 + os.getpid() % 10_000):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise AssertionError


def _programs() -> Path:
    found = _installed()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _install()
        found = _installed()
    if found is None:
        raise Missing("PostgreSQL is not installed: no initdb in PATH or /usr/lib/postgresql")
    return found


def _installed() -> Path | None:
    path = shutil.which("initdb")
    places = [Path(path).resolve().parent] if path else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists()), None)


def _install() -> None:
    """Tries Debian's package once for all workers; without a network this fails soon."""
    tried = Path(tempfile.gettempdir()) / "tacit-tried-to-install-postgresql"
    with tried.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if tried.stat().st_size or _installed():
            return
        lock.write("tried")
        quiet = {"DEBIAN_FRONTEND": "noninteractive", **os.environ}
        command = ["apt-get", "install", "-y", "-q", "postgresql"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, capture_output=True, env=quiet, check=False, timeout=240)


def _other_user() -> list[str]:
    """The server refuses to run as root."""
    if os.geteuid() != 0:
        return []
    group = pwd.getpwnam("nobody").pw_gid
    return ["setpriv", "--reuid=nobody", f"--regid={group}", "--clear-groups", "--"]
