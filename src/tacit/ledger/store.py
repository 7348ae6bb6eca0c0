"""The database under a ledger: SQLite or PostgreSQL, through SQLAlchemy Core.

Only what differs between the two, and between success and failure, is here. One transaction writes
at a time: SQLite's ``BEGIN IMMEDIATE``, on PostgreSQL an advisory lock. A commit is on the disk
when it returns (``synchronous=FULL``, ``synchronous_commit=on``). Whatever goes wrong becomes a
``LedgerError`` of one line, without the password of the address.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

import sqlalchemy as sa

from tacit._files import OWNER_ONLY
from tacit._validation import printable
from tacit.errors import DamagedLedger, InvalidArgument, LedgerError, TamperedLedger
from tacit.ledger.entries import Entry
from tacit.ledger.migrations.versions import revision_0001 as guards

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VERSION = "0001"  # of the tables, as this tacit writes them
VERSION_TABLE = "tacit_ledger_version"
_ADVISORY_LOCK = 0x7461_6369_746C_6467  # "tacitldg": one writer at a time in a whole database
_COLUMNS = ("number", "budget", "kind", "at", "body", "previous", "hash")
_ENTRIES = sa.table("entries", *(sa.column(name) for name in _COLUMNS))
_FROM = (
    sa.select(_ENTRIES)
    .where(_ENTRIES.c.number >= sa.bindparam("first"))
    .order_by(_ENTRIES.c.number)
)
_INSERT = sa.insert(_ENTRIES)
# The parts of an address that may be shown; any other may hold a password.
_SHOWN = frozenset({"host", "hostaddr", "port", "dbname", "user", "sslmode", "application_name"})
_TRIGGERS = """
    SELECT t.tgname, t.tgenabled::text, t.tgtype::int, p.prosrc
    FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
    WHERE t.tgrelid = 'entries'::regclass AND NOT t.tgisinternal
"""

_MOUNTS = Path("/proc/self/mountinfo")
_IN_MOUNTS = {ord(one): f"\\{ord(one):03o}" for one in " \t\n\\"}

_DAMAGED = "the file is damaged or is no ledger"
# What drivers say when something fails, in their own words, and what helps.
_REMEDIES = (
    (("locked", "lock timeout", "lock_not_available"), "try again, or give a longer timeout="),
    (
        ("readonly", "read-only", "unable to open", "permission"),
        "make the file and folder writable",
    ),
    (("full", "disk i/o", "no space", "could not extend"), "make room on the disk"),
    (("malformed", "not a database", "corrupt"), _DAMAGED),
    (("connect", "server", "terminat", "ssl", "closed"), "check that the server can be reached"),
)


@final
class Store:
    """A database of entries at ``url``."""

    def __init__(self, url: str | os.PathLike[str], timeout: float) -> None:
        self._url, self.kind = _checked_url(url)
        self.location, self._secrets = _shown(self._url)
        self.path = Path(self._url.database or "").absolute() if self.kind == "sqlite" else None
        self.place = _place(self._url)
        self._timeout = timeout
        self._file: tuple[int, int] | None = None
        self._engine = self._made()

    def version(self) -> str | None:
        """The version of the tables, or None if the database has none yet.

        A database that holds something else, or tables of a newer tacit, is refused.
        """
        if self.path is not None and not self._is_file():
            return None
        with self._reported("read"), self._engine.connect() as connection:
            names = set(sa.inspect(connection).get_table_names())
            if VERSION_TABLE in names:
                text = f"SELECT version_num FROM {VERSION_TABLE}"
                found = str(connection.exec_driver_sql(text).scalar())
                return self._known(found)
            if "entries" in names or (self.kind == "sqlite" and names):
                tables = printable(", ".join(sorted(names))[:300])
                raise LedgerError(
                    f"{self.location} holds something else than a ledger (tables {tables}); name "
                    "another database"
                )
            return None

    def _is_file(self) -> bool:
        """Whether the file is there; a folder or a pipe, which would be waited for, is refused."""
        assert self.path is not None
        with self._reported("read"):
            there, file = self.path.exists(), self.path.is_file()
        if not there and self.path.is_symlink():
            raise LedgerError(f"{self.location} is a link to nowhere; name another file")
        if there and not file:
            raise LedgerError(f"{self.location} is no file; name another one")
        return there

    def make_file(self) -> None:
        """Makes an empty file that only its owner reads; SQLite's own side files follow it."""
        if self.path is None:
            return
        with self._reported("written"):
            try:
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
            except FileExistsError:  # somebody made it, and it has no tables yet
                self.path.chmod(OWNER_ONLY)

    def identity(self) -> str:
        """The id that the first entry gives the ledger; empty if there is none."""
        if self.version() is None:
            return ""
        with self._reported("read"), self._engine.connect() as connection:
            row = connection.execute(_FROM.limit(1), {"first": 1}).first()
            first = None if row is None else _entry(row)
        try:
            found = "" if first is None else first.data["id"]
        except (ValueError, LookupError, TypeError, RecursionError):
            found = None
        if not isinstance(found, str):
            raise TamperedLedger(
                f"the ledger {self.location} cannot be trusted: entry 1 does not begin a ledger; "
                "nothing was granted. Put the newest copy back"
            )
        return found

    def faults(self) -> list[str]:
        """What is wrong with the tables: without the triggers entries could be changed."""
        with self._reported("read"), self._engine.connect() as connection:
            if self.kind != "sqlite":
                return _postgresql_faults(connection)
            found = _sqlite_faults(connection)
        if self.path is not None:
            try:
                self._check_links(self.path.stat())
                self._check_mount()
            except LedgerError as error:  # and what of it other processes see is not known
                found.append(str(error))
        return found

    def _known(self, version: str) -> str:
        if not version.isdigit() or int(version) > int(VERSION):
            raise LedgerError(
                f"{self.location} has tables of version {version[:20]!r}, newer than this tacit's "
                f"{VERSION}; upgrade tacit"
            )
        return version

    def settle(self) -> None:
        """Remembers which file it is, so that a file put in its place is noticed."""
        if self.path is not None:
            with self._reported("read"):
                found = self.path.stat()
            self._check_links(found)
            self._check_mount()
            self._file = (found.st_dev, found.st_ino)

    def read(self, first: int = 1) -> list[Entry]:
        """The entries from number ``first`` on, in order."""
        self._check_file()
        with self._reported("read"), self._engine.connect() as connection:
            return _entries(connection, first)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Writer]:
        """A transaction that nobody else can write beside; it is on the disk when this returns.

        Guarantee: if this raises, nothing was granted. Only an error during the commit itself
        leaves it open whether the entries stand; if they do, too much is charged.
        """
        self._check_file()
        with self._reported("written"), self._engine.connect() as connection:
            self._begin(connection)
            try:
                yield Writer(connection)
            except BaseException:
                _abandon(connection)
                raise
            try:
                with self._reported("written", committing=True):
                    connection.commit()
            except BaseException:
                connection.invalidate()
                raise

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()

    def _made(self) -> sa.Engine:
        if self.kind == "sqlite":
            return _sqlite_engine(self._url, self._timeout)
        return _postgresql_engine(self._url, self._timeout)

    def _begin(self, connection: sa.Connection) -> None:
        if self.kind == "sqlite":
            _write_ahead(connection, self._timeout)
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            return
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")

    def _check_file(self) -> None:
        """Refuses a file that was replaced under an open connection, which would go on unseen."""
        if self.path is None or self._file is None:
            return
        try:
            found = self.path.stat()
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._file:
            raise TamperedLedger(
                f"the ledger {self.path} was removed or replaced while it was open; nothing was "
                "granted. Put the newest copy back, and run 'tacit ledger verify'"
            )
        self._check_links(found)

    def _check_links(self, found: os.stat_result) -> None:
        """Refuses a file with a second name: SQLite keeps a log of its own beside each of them."""
        if found.st_nlink > 1:
            raise LedgerError(
                f"the ledger {self.path} has {found.st_nlink} names (hard links), and what is "
                "charged under one is not seen under the others; nothing was granted. Copy it to a "
                "file of its own, with its anchor, and remove the other names"
            )

    def _check_mount(self) -> None:
        """Refuses a file that was mounted by itself, as into a container: it has another log there.

        The log would lie in the container's own folder, unseen outside and gone with it.
        """
        assert self.path is not None
        try:
            mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        except OSError:  # not on Linux
            return
        place = str(self.path.resolve()).translate(_IN_MOUNTS)
        if any(line.split()[4:5] == [place] for line in mounts):
            raise LedgerError(
                f"the ledger {self.path} is a file that was mounted without its folder, and what "
                "is charged here is not seen outside; nothing was granted. Mount the folder, with "
                "the anchor in it"
            )

    @contextlib.contextmanager
    def _reported(self, doing: str, *, committing: bool = False) -> Iterator[None]:
        try:
            yield
        except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError) as error:
            raise self._failure(error, doing, committing) from None

    def _failure(self, error: Exception, doing: str, committing: bool) -> LedgerError:
        cause = getattr(error, "orig", None) or error
        reason = self._without_secrets(" ".join(str(cause).split())) or type(cause).__name__
        low = reason.lower()
        remedy = next((say for words, say in _REMEDIES if any(one in low for one in words)), None)
        kind = DamagedLedger if remedy is _DAMAGED else LedgerError
        granted = "nothing was granted"
        if committing:
            granted += ", though the charge may stand: it was being committed"
        tail = f". {remedy[0].upper()}{remedy[1:]}" if remedy else ""
        return kind(f"the ledger {self.location} cannot be {doing}: {reason}; {granted}{tail}")

    def _without_secrets(self, text: str) -> str:
        """What a server or driver says, without the secrets of the address or escape codes."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return printable(text[:1000])


@final
class Writer:
    """What a transaction can do."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def migrate(self) -> None:
        """Brings the tables to this tacit's version."""
        # Alembic is slow to import, and needed once in the life of a ledger.
        from alembic.migration import MigrationContext  # noqa: PLC0415
        from alembic.operations import Operations  # noqa: PLC0415
        from alembic.script import ScriptDirectory  # noqa: PLC0415

        scripts = ScriptDirectory(str(Path(__file__).parent / "migrations"))
        context = MigrationContext.configure(
            self._connection,
            opts={
                "version_table": VERSION_TABLE,
                "fn": lambda revision, _: scripts._upgrade_revs(VERSION, revision),
            },
        )
        # Not through Alembic's own "op", which is one for all threads.
        context.run_migrations(op=Operations(context))

    def guard(self) -> None:
        """Puts the triggers that refuse changes back where they are missing."""
        if self._connection.dialect.name == "sqlite":
            there = {name: text for name, _, text in _sqlite_schema(self._connection, "trigger")}
            for name, text in _sqlite_guards().items():
                if there.get(name) == text:
                    continue
                self._connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
                self._connection.exec_driver_sql(text)
            return
        if not _postgresql_faults(self._connection):
            return
        function, *triggers = guards.POSTGRESQL
        self._connection.exec_driver_sql(function.replace("CREATE", "CREATE OR REPLACE", 1))
        for text in triggers:
            name = text.split()[2]
            self._connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name} ON entries")
            self._connection.exec_driver_sql(text)

    def read(self, first: int) -> list[Entry]:
        """The entries from number ``first`` on, in order."""
        return _entries(self._connection, first)

    def append(self, entries: Sequence[Entry]) -> None:
        """Adds ``entries`` at the end."""
        if entries:
            rows = [dict(zip(_COLUMNS, astuple(one), strict=True)) for one in entries]
            self._connection.execute(_INSERT, rows)


def _entries(connection: sa.Connection, first: int) -> list[Entry]:
    return [_entry(row) for row in connection.execute(_FROM, {"first": first})]


def _entry(row: Sequence[Any]) -> Entry:
    # A damaged SQLite file may have a number or bytes where a text belongs.
    if not isinstance(row[0], int):
        raise sqlite3.DatabaseError("the table of entries is malformed")
    return Entry(row[0], *map(str, row[1:]))


# ---- triggers


def _sqlite_schema(connection: sa.Connection, kind: str) -> list[tuple[str, str, str]]:
    text = "SELECT name, type, sql FROM sqlite_master WHERE type = ?"
    rows = connection.exec_driver_sql(text, (kind,))
    return [(str(name), str(type_), str(sql)) for name, type_, sql in rows]


def _sqlite_guards() -> dict[str, str]:
    return {text.split()[2]: text for text in guards.SQLITE}


def _sqlite_faults(connection: sa.Connection) -> list[str]:
    wanted = _sqlite_guards()
    there = {name: text for name, _, text in _sqlite_schema(connection, "trigger")}
    found = [
        f"the trigger {name}, without which entries could be changed, is missing or another one"
        for name, text in wanted.items()
        if there.get(name) != text
    ]
    strange = sorted(set(there) - set(wanted))
    strange += [name for name, _, _ in _sqlite_schema(connection, "view")]
    for name, _, text in _sqlite_schema(connection, "table"):
        own = name in ("entries", VERSION_TABLE) and text.startswith("CREATE TABLE")
        if not own and not name.startswith("sqlite_"):
            strange.append(name)
    return found + [
        f"it holds {printable(one[:100])!r}, which tacit did not make" for one in strange
    ]


def _postgresql_faults(connection: sa.Connection) -> list[str]:
    there = {
        str(row[0]): (*row[1:3], " ".join(str(row[3]).split()))
        for row in connection.exec_driver_sql(_TRIGGERS)
    }
    body = guards.POSTGRESQL[0].split("$$")[1].strip()
    found = []
    for name, moment in (("entries_no_change", 27), ("entries_no_truncate", 34)):
        if there.pop(name, None) not in (("O", moment, body), ("A", moment, body)):
            found.append(
                f"the trigger {name}, without which entries could be changed, is missing, switched "
                "off or another one"
            )
    return found + [
        f"it has a trigger {printable(one[:100])!r}, which tacit did not make" for one in there
    ]


# ---- addresses


def _shown(url: sa.URL) -> tuple[str, tuple[str, ...]]:
    """The address as it may be shown, and the secrets in it."""
    hidden = [url.password] if url.password is not None else []
    shown = {}
    for name, value in url.query.items():
        values = [value] if isinstance(value, str) else list(value)
        if name not in _SHOWN:
            hidden += values
            values = ["***"]
        shown[name] = values[0] if len(values) == 1 else tuple(values)
    text = url.set(query=shown).render_as_string(hide_password=True)
    ordered = sorted({str(one) for one in hidden if one}, key=len, reverse=True)
    return printable(text.replace("%2A%2A%2A", "***")), tuple(ordered)


def _place(url: sa.URL) -> str:
    """The server and database of an address."""

    def named(name: str) -> str:
        value = url.query.get(name, "")
        return value if isinstance(value, str) else ",".join(value)

    host = url.host or named("host") or named("hostaddr")
    port = url.port or named("port") or 5432
    return f"{host}:{port}/{url.database or named('dbname')}"


def _checked_url(url: str | os.PathLike[str]) -> tuple[sa.URL, Literal["sqlite", "postgresql"]]:
    shape = "'budget.db', 'sqlite:///budget.db' or 'postgresql://user@host/database'"
    if isinstance(url, os.PathLike) or (isinstance(url, str) and "://" not in url):
        return _file_url(url, shape), "sqlite"
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, TypeError, ValueError):
        # There may be a password in it.
        given = "" if isinstance(url, str) else f", got {url!r}"
        raise InvalidArgument(f"url must look like {shape}{given}") from None
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        name = parsed.database
        if not name or name == ":memory:" or name.startswith("file:") or parsed.query:
            raise InvalidArgument(
                f"url must name a file, got {_shown(parsed)[0]!r}: a budget outlives the process "
                "that opens it; write 'sqlite:///budget.db'"
            )
        return parsed, "sqlite"
    if parsed.drivername in ("postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg"), "postgresql"
    raise InvalidArgument(f"url must look like {shape}, got a {parsed.drivername!r} address")


def _file_url(path: str | os.PathLike[str], shape: str) -> sa.URL:
    name = os.fspath(path)
    if not isinstance(name, str) or not name or "\0" in name or name == ":memory:":
        raise InvalidArgument(f"url must look like {shape}, got {name!r}")
    if "@" in name or "?" in name:  # an address that is misspelt, perhaps with a password
        raise InvalidArgument(f"url must look like {shape}; what was given does not")
    return sa.URL.create("sqlite", database=name)


def _sqlite_engine(url: sa.URL, timeout: float) -> sa.Engine:
    engine = sa.create_engine(
        url,
        poolclass=sa.QueuePool,
        pool_size=1,
        max_overflow=0,
        # Transactions are begun by hand; threads take turns under the ledger's lock.
        connect_args={"timeout": timeout, "isolation_level": None, "check_same_thread": False},
    )

    @sa.event.listens_for(engine, "connect")
    def _(connection: Any, _record: object) -> None:
        # A damaged text must be read, so that its entry can be named.
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # macOS: through the disk's own cache
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")

    return engine


def _write_ahead(connection: sa.Connection, timeout: float) -> None:
    """Turns on the write-ahead log; its switch does not wait for a lock by itself."""
    if connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal":
        return
    until = time.monotonic() + timeout
    while True:
        try:
            mode = connection.exec_driver_sql("PRAGMA journal_mode = WAL").scalar()
        except sa.exc.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.005)
            continue
        if mode != "wal":
            raise sqlite3.OperationalError(
                f"its file system has no write-ahead log (journal mode {mode!r}); "
                "use a local disk, or PostgreSQL"
            )
        return


def _abandon(connection: sa.Connection) -> None:
    """Rolls back; a connection that cannot must not be used again."""
    try:
        connection.rollback()
    except BaseException:
        connection.invalidate()


def _postgresql_engine(url: sa.URL, timeout: float) -> sa.Engine:
    seconds, milliseconds = max(1, round(timeout)), max(1, round(1000 * timeout))
    own = url.query.get("options", "")
    arguments: dict[str, Any] = {
        "connect_timeout": max(2, seconds),
        "client_encoding": "utf8",  # a database of another encoding gives bytes instead of text
        # A network that went away is noticed within the timeout, in a commit too.
        "keepalives_idle": seconds,
        "keepalives_interval": max(1, seconds // 3),
        "keepalives_count": 3,
        "tcp_user_timeout": milliseconds,
        # The last of the options wins: these are not for the address to change.
        "options": f"{own} -c synchronous_commit=on -c lock_timeout={milliseconds}".strip(),
    }
    try:
        return sa.create_engine(
            url,
            poolclass=sa.QueuePool,
            pool_size=1,
            max_overflow=0,
            pool_pre_ping=True,
            # Each statement must see what was committed before it: the lock is one of them.
            isolation_level="READ COMMITTED",
            connect_args=arguments,
        )
    except ImportError:
        raise LedgerError(
            "a ledger on PostgreSQL needs psycopg 3; install it with: pip install 'tacit[postgres]'"
        ) from None
