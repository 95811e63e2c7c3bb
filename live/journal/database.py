"""The SQL database of the journal: SQLite in the data directory, or a PostgreSQL server. One thread uses it.

SQLite before 3.51.3 can damage its write-ahead log when two connections write at once. So only one
process writes: the one that holds a lock on a file next to the database. Readers open the database read-only.
"""

import asyncio
import fcntl
import os
import secrets
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import structlog
from sqlalchemy import Connection, Engine, create_engine, event, insert, select, text, update
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError

from live.errors import SetupError, StoreUnavailableError
from live.journal.schema import ABOUT, CHECKPOINT, METADATA, SEGMENT, VERSION
from live.settings import Settings

log = structlog.get_logger()

_R = TypeVar("_R")

_BUSY: Final = 5.0  # seconds to wait for another connection of SQLite, and for one to PostgreSQL
_LOCK: Final = 0x6C697665  # the advisory lock of the writer in PostgreSQL


# The driver raises its own errors while it connects. The file system raises those of a full disk or missing rights.
_ERRORS: Final = (SQLAlchemyError, sqlite3.Error, OSError)


class JournalError(StoreUnavailableError):
    """The SQL database does not answer, or refuses."""


class Database:
    """A database, opened in its own thread."""

    def __init__(self, url: str, folder: Path, prefix: str, *, writes: bool) -> None:
        """Store the choices. The database is opened when it is first used.

        Args:
            url: `sqlite`, or the URL of a PostgreSQL database.
            folder: the data directory.
            prefix: the prefix of store keys; each has a file of its own in SQLite.
            writes: whether this process writes. It has to call `take` first.

        Raises:
            SetupError: the URL is not valid.
        """
        self.path = folder / f"journal-{prefix}.db"
        self.prefix = prefix
        self._writes = writes
        self._url = _checked(url, self.path, writes=writes)
        self._thread = ThreadPoolExecutor(1, "journal")
        self._engine: Engine | None = None
        self._lock: int | None = None
        self._holder: Connection | None = None  # holds the advisory lock in PostgreSQL
        self.id = ""

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is a file in the data directory."""
        return self._url.drivername.startswith("sqlite")

    async def run(self, work: Callable[[Connection], _R]) -> _R:
        """Do work in one transaction.

        Raises:
            JournalError: the database does not answer, or refuses. The transaction may have been committed if the
                connection was lost at the end.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(self.work, work))

    def work(self, work: Callable[[Connection], _R]) -> _R:
        """Do work in one transaction, in the thread of the caller. Raises as `run`."""
        try:
            with self._opened().begin() as connection:
                return work(connection)
        except _ERRORS as error:
            raise JournalError(f"the journal's database does not answer: {_reason(error)}") from error

    def compact(self) -> None:
        """Write the database anew, so that its files hold nothing of what was deleted or replaced.

        Raises:
            JournalError: the database does not answer, or another process reads it.
        """
        try:
            with self._opened().connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                if not self.is_sqlite:
                    connection.execute(text(f"VACUUM FULL {SEGMENT.name}, {CHECKPOINT.name}"))
                    return
                connection.execute(text("VACUUM"))
                busy = connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)")).one()[0]
        except _ERRORS as error:
            raise JournalError(f"the journal's database does not answer: {_reason(error)}") from error
        if busy:
            raise JournalError("another process reads the journal's database: try again")

    async def take(self) -> bool:
        """Become the process that writes; False while another one is.

        Raises:
            JournalError: the database does not answer.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.take_now)

    async def aclose(self) -> None:
        """Close the database, and let another process write."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self.close)
        self._thread.shutdown()

    def close(self) -> None:
        """Close the database, in the thread of the caller."""
        if self._holder is not None:
            self._holder.close()
            self._holder = None
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._thread.shutdown()

    def take_now(self) -> bool:
        """Become the process that writes, in the thread of the caller. Returns and raises as `take`."""
        if not self.lock_now():
            return False
        self.work(self._prepare)
        return True

    def lock_now(self) -> bool:
        """Take the lock of the writer, and do not read the content. Returns and raises as `take`."""
        try:
            return self._lock_file() if self.is_sqlite else self._lock_database()
        except _ERRORS as error:
            self._holder = None
            raise JournalError(f"the journal's database does not answer: {_reason(error)}") from error

    def _lock_file(self) -> bool:
        if self._lock is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _lock_database(self) -> bool:
        if self._holder is None:
            self._holder = self._opened().connect().execution_options(isolation_level="AUTOCOMMIT")
        taken = select(text(f"pg_try_advisory_lock({_LOCK}, hashtext(:prefix))"))
        return bool(self._holder.scalar(taken, {"prefix": self.prefix}))

    def _opened(self) -> Engine:
        engine = self._engine
        if engine is None:
            patience = {} if self.is_sqlite else {"connect_timeout": round(_BUSY)}
            engine = create_engine(self._url, pool_pre_ping=not self.is_sqlite, connect_args=patience)
            if not self.is_sqlite:
                event.listen(engine, "connect", _wait_for_disk)
            else:
                event.listen(engine, "connect", _write_ahead if self._writes else _read_only)
            self._engine = engine
        return engine

    def _prepare(self, connection: Connection) -> None:
        """Create the tables, and check their version."""
        METADATA.create_all(connection)
        about: dict[str, str] = {
            row.name: row.value for row in connection.execute(select(ABOUT.c.name, ABOUT.c.value)).all()
        }
        if "schema" not in about:
            about = {"schema": str(VERSION), "id": secrets.token_hex(16), "began": str(time.time_ns() // 1000)}
            connection.execute(insert(ABOUT), [{"name": name, "value": value} for name, value in about.items()])
        if int(about["schema"]) > VERSION:
            raise SetupError(
                f"the journal has schema {about['schema']}, and this version of Live Board reads schema {VERSION}: "
                "a newer version has written it. Start that version"
            )
        if int(about["schema"]) < VERSION:  # later versions only add tables
            connection.execute(update(ABOUT).where(ABOUT.c.name == "schema").values(value=str(VERSION)))
        self.id = about["id"]


def open_journal(settings: Settings, *, writes: bool) -> Database | None:
    """The database of a server's journal, not opened yet; None without a journal.

    Raises:
        SetupError: the setting is not valid.
    """
    if settings.journal == "off":
        return None
    return Database(settings.journal, settings.data_dir, settings.key_prefix, writes=writes)


def existing_journal(settings: Settings, *, writes: bool = True) -> Database:
    """The database of a journal that exists, not opened yet.

    Raises:
        SetupError: there is none, or the setting is not valid.
    """
    database = open_journal(settings, writes=writes)
    if database is None:
        raise SetupError("there is no journal: LIVE_JOURNAL is off")
    if database.is_sqlite and not database.path.exists():
        raise SetupError(f"there is no journal at {database.path}: choose another --data-dir, or set LIVE_JOURNAL")
    return database


def _checked(url: str, path: Path, *, writes: bool) -> URL:
    if url == "sqlite":
        if writes:
            return URL.create("sqlite", database=str(path))
        return URL.create("sqlite", database=f"file:{path}", query={"mode": "ro", "uri": "true"})
    wrong = SetupError(
        "LIVE_JOURNAL is none of `sqlite`, `off` and a URL such as postgresql://user:password@host/database"
    )
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise wrong from None
    if parsed.drivername != "postgresql":
        raise wrong
    if find_spec("psycopg") is None:
        raise SetupError(
            "LIVE_JOURNAL names a PostgreSQL server: install the extra `postgres` (pip install 'live-board[postgres]')"
        )
    return parsed.set(drivername="postgresql+psycopg")


def _write_ahead(connection: Any, _record: Any) -> None:  # noqa: ANN401 - of the driver
    """Every commit is synced to disk."""
    os.chmod(connection.execute("PRAGMA database_list").fetchone()[2], 0o600)  # noqa: PTH101
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"busy_timeout={round(_BUSY * 1000)}", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _wait_for_disk(connection: Any, _record: Any) -> None:  # noqa: ANN401 - of the driver
    """Every commit waits until PostgreSQL has synced it, also where `synchronous_commit` is off by default."""
    with connection.cursor() as cursor:
        if cursor.execute("SHOW synchronous_commit").fetchone()[0] == "off":
            cursor.execute("SET synchronous_commit = on")
    connection.commit()


def _read_only(connection: Any, _record: Any) -> None:  # noqa: ANN401 - of the driver
    connection.execute(f"PRAGMA busy_timeout={round(_BUSY * 1000)}")
    connection.execute("PRAGMA query_only=ON")


def _reason(error: Exception) -> str:
    """The text of an error, without the statement."""
    cause = error.orig if isinstance(error, OperationalError) else error
    return str(cause).strip().partition("\n")[0]
