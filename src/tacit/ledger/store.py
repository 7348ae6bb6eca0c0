"""The database under a ledger: SQLite or PostgreSQL, through SQLAlchemy Core.

Only what differs between the two, and between success and failure, is here. One transaction writes
at a time: SQLite's ``BEGIN IMMEDIATE``, on PostgreSQL an advisory lock. A commit is on the disk
when it returns (``synchronous=FULL``, ``synchronous_commit=on``). Whatever goes wrong becomes a
``LedgerError`` of one line, without the password of the address.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

import sqlalchemy as sa

from tacit.errors import InvalidArgument, LedgerError, TamperedLedger
from tacit.ledger.entries import Entry

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

_REMEDIES = (
    (("locked", "lock timeout", "lock_not_available"), "try again, or give a longer timeout="),
    (
        ("readonly", "read-only", "unable to open", "permission"),
        "make the file and folder writable",
    ),
    (("full", "disk i/o", "no space", "could not extend"), "make room on the disk"),
    (("malformed", "not a database", "corrupt"), "the file is damaged or is no ledger"),
    (("connect", "server", "terminat", "ssl", "closed"), "check that the server can be reached"),
)


@final
class Store:
    """A database of entries at ``url``."""

    def __init__(self, url: str, timeout: float) -> None:
        self._url, self.kind = _checked_url(url)
        self.location = self._url.render_as_string(hide_password=True)
        self.path = Path(self._url.database or "").absolute() if self.kind == "sqlite" else None
        port = self._url.port or 5432
        self.place = f"{self._url.host or ''}:{port}/{self._url.database or ''}"
        self._timeout = timeout
        self._file: tuple[int, int] | None = None
        self._engine = self._made()

    def version(self) -> str | None:
        """The version of the tables, or None if the database has none yet.

        A database that holds something else, or tables of a newer tacit, is refused.
        """
        if self.path is not None and not self.path.exists():
            return None
        with self._reported("read"), self._engine.connect() as connection:
            names = set(sa.inspect(connection).get_table_names())
            if VERSION_TABLE in names:
                text = f"SELECT version_num FROM {VERSION_TABLE}"
                found = str(connection.exec_driver_sql(text).scalar())
                return self._known(found)
            if "entries" in names or (self.kind == "sqlite" and names):
                raise LedgerError(
                    f"{self.location} holds something else than a ledger (tables "
                    f"{', '.join(sorted(names))}); name another database"
                )
            return None

    def _known(self, version: str) -> str:
        if not version.isdigit() or int(version) > int(VERSION):
            raise LedgerError(
                f"{self.location} has tables of version {version}, newer than this tacit's "
                f"{VERSION}; upgrade tacit"
            )
        return version

    def settle(self) -> None:
        """Remembers which file it is, so that a file put in its place is noticed."""
        if self.path is not None:
            with self._reported("read"):
                found = self.path.stat()
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

    @contextlib.contextmanager
    def _reported(self, doing: str, *, committing: bool = False) -> Iterator[None]:
        try:
            yield
        except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError) as error:
            raise LedgerError(self._in_words(error, doing, committing)) from None

    def _in_words(self, error: Exception, doing: str, committing: bool) -> str:
        cause = getattr(error, "orig", None) or error
        reason = " ".join(str(cause).split()) or type(cause).__name__
        low = reason.lower()
        remedy = next((say for words, say in _REMEDIES if any(one in low for one in words)), None)
        granted = "nothing was granted"
        if committing:
            granted += ", though the charge may stand: it was being committed"
        tail = f". {remedy[0].upper()}{remedy[1:]}" if remedy else ""
        return f"the ledger {self.location} cannot be {doing}: {reason}; {granted}{tail}"


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
        with Operations.context(context):
            context.run_migrations()

    def read(self, first: int) -> list[Entry]:
        """The entries from number ``first`` on, in order."""
        return _entries(self._connection, first)

    def append(self, entries: Sequence[Entry]) -> None:
        """Adds ``entries`` at the end."""
        if entries:
            rows = [dict(zip(_COLUMNS, astuple(one), strict=True)) for one in entries]
            self._connection.execute(_INSERT, rows)


def _entries(connection: sa.Connection, first: int) -> list[Entry]:
    rows = connection.execute(_FROM, {"first": first})
    # A damaged SQLite file may have a number or bytes where a text belongs.
    return [Entry(int(row[0]), *map(str, row[1:])) for row in rows]


def _checked_url(url: str) -> tuple[sa.URL, Literal["sqlite", "postgresql"]]:
    shape = "'sqlite:///budget.db' or 'postgresql://user@host/database'"
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, TypeError, ValueError):
        hint = f"for a file write 'sqlite:///{url}'" if isinstance(url, str) else f"give {shape}"
        if "@" in str(url):  # there may be a password in it
            raise InvalidArgument(f"url must look like {shape}; what was given does not") from None
        raise InvalidArgument(f"url must look like {shape}, got {url!r}; {hint}") from None
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        name = parsed.database
        if not name or name == ":memory:" or name.startswith("file:") or parsed.query:
            raise InvalidArgument(
                f"url must name a file, got {url!r}: a budget outlives the process that opens it; "
                "write 'sqlite:///budget.db'"
            )
        return parsed, "sqlite"
    if parsed.drivername in ("postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg"), "postgresql"
    raise InvalidArgument(f"url must look like {shape}, got a {parsed.drivername!r} address")


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
