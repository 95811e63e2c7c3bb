"""The SQL database of the journal: SQLite in the data directory, or a PostgreSQL server.

SQLite before 3.51.3 can damage its write-ahead log when two connections write at once. So only one process writes: the
one that holds a lock on a file next to the database, or an advisory lock of PostgreSQL. Readers open the database
read-only.
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
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import structlog
from sqlalchemy import (
    Connection,
    Engine,
    create_engine,
    event,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from live.domain.urls import check_url, scrubbed
from live.errors import JournalBrokenError, JournalError, JournalLoginError, SetupError
from live.journal.schema import ABOUT, CHECKPOINT, METADATA, SEGMENT, VERSION
from live.settings import Settings

log = structlog.get_logger()

_P = ParamSpec("_P")
_R = TypeVar("_R")

_ENDING: Final = 1.0  # seconds to wait for the lock of a writer that has just ended
_TRUNCATING: Final = 0.1  # seconds for which emptying SQLite's log waits for readers
_BUSY: Final = 5.0  # seconds to wait for the lock of another SQLite connection, and for a connection to PostgreSQL
_PREFIX: Final = "live_prefix"  # the option of every connection that names the key prefix
_LOCK: Final = 0x6C697665  # the advisory lock of the writer in PostgreSQL


# The driver of SQLite raises `sqlite3.Error` while it connects. The file system raises `OSError`, for a full disk or
# missing rights.
_ERRORS: Final = (SQLAlchemyError, sqlite3.Error, OSError)


_PAGE_FAULTS: Final = 20  # maximum faults that a check of all pages names
# "malformed" and "not a database" of SQLite; "data corrupted" and "index corrupted" of PostgreSQL.
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, "XX001", "XX002"})
_NO_TABLE: Final = "42P01"  # PostgreSQL's code for a missing table; the first server that writes creates the tables

# PostgreSQL has no error code for a refused login, only these messages.
_LOGIN: Final = ("authentication failed", "no password supplied", "FATAL:  role ")
# The messages of SQLite and Python for a damaged text, such as the text of the schema.
_NO_TEXT: Final = ("Could not decode to UTF-8", "no such table", "no such column")


class Database:
    """The database of a journal, with a thread in which `run` works."""

    def __init__(self, url: str, folder: Path, prefix: str, *, writes: bool) -> None:
        """Store the choices. The database is opened when it is first used.

        Args:
            url: `sqlite`, or the URL of a PostgreSQL database.
            folder: the data directory.
            prefix: the prefix of store keys. In SQLite, each prefix has a separate file.
            writes: whether this process writes. A process that writes has to call `take` first.
        """
        self.path = folder / file_name(prefix)
        self.prefix = prefix
        self._writes = writes
        self._url = _checked(url, self.path, writes=writes)
        self._thread = ThreadPoolExecutor(1, "journal")
        self._engine: Engine | None = None
        self._lock: int | None = None
        self._holder: Connection | None = None  # the connection that holds the advisory lock in PostgreSQL
        self._files: dict[
            Path, tuple[int, int]
        ] = {}  # device and inode of the files that this process has open to write
        self._is_known = False  # whether the database has the schema of this version
        self.id = ""

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is a file in the data directory."""
        return self._url.drivername.startswith("sqlite")

    @property
    def place(self) -> str:
        """The file, or the server and the name of its database, for messages."""
        if self.is_sqlite:
            return str(self.path)
        return f"database {self._url.database} on {self._url.host or self._url.query.get('host', 'this machine')}"

    async def run(self, work: Callable[Concatenate[Connection, _P], _R], *given: _P.args, **named: _P.kwargs) -> _R:
        """Do work in one transaction. It gets a connection, and then the other arguments.

        Raises:
            JournalBrokenError: the database is damaged, or its files were deleted or replaced.
            JournalError: the database does not answer, or refuses. The transaction may have been committed if the
                connection was lost at the end.
        """
        return await self.in_thread(partial(self.work, work, *given, **named))

    async def in_thread(self, work: Callable[[], _R]) -> _R:
        """Run a function in the thread of the database, after all work that the thread was given before."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def work(self, work: Callable[Concatenate[Connection, _P], _R], *given: _P.args, **named: _P.kwargs) -> _R:
        """Do work in one transaction, in the thread of the caller. The arguments and errors are those of `run`."""
        try:
            with self._opened().begin() as connection:
                self._require_schema(connection)
                found = work(connection, *given, **named)
                self._require_files()  # the file may have been replaced, and a commit must not damage another file
        except _ERRORS as error:
            raise self._failure(error) from error
        self._require_files()  # the file may be gone by now, so the store must keep the entries
        return found

    async def check_files(self) -> None:
        """Check that nobody has deleted or replaced the files of SQLite that this process has open to write."""
        await self.in_thread(self._require_files)

    def _require_files(self) -> None:
        for path, opened in self._files.items():
            try:
                if _identity(path) == opened:
                    continue
            except FileNotFoundError:
                what = "was deleted"
            else:
                what = "was replaced"
            raise JournalBrokenError(
                f"the journal's file {path} {what} while this server writes to it, and nothing more is kept in it: put "
                "it back and start the server again"
            )

    def check_pages(self) -> list[str]:
        """Check the structure of an SQLite database, in the thread of the caller. Return a sentence for each fault."""
        if not self.is_sqlite:
            return []  # only SQLite has such a check; with checksums, PostgreSQL checks each page that it reads
        try:
            found = self.work(lambda sql: sql.execute(text(f"PRAGMA integrity_check({_PAGE_FAULTS})")).scalars().all())
        except JournalBrokenError as error:
            return [str(error)]
        return [f"{self.place}: {line}" for row in found for line in str(row).splitlines() if line != "ok"]

    def _failure(self, error: Exception) -> JournalError:
        cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        code = getattr(cause, "sqlite_errorcode", None)
        # The message may hold the user name and the password of the database.
        url = self._url.render_as_string(hide_password=False)
        reason = scrubbed(str(cause).strip().partition("\n")[0], url)
        damaged = (getattr(cause, "sqlstate", None) if code is None else code & 0xFF) in _DAMAGE
        if damaged or reason.startswith(_NO_TEXT):
            return JournalBrokenError(f"the journal is damaged: {self.place}: {reason}")
        if getattr(cause, "sqlstate", None) == _NO_TABLE:
            return JournalError(f"no server has used this journal yet: {self.place} has none of its tables")
        if any(sign in reason for sign in _LOGIN):
            return JournalLoginError(f"the journal's database refuses the login: {reason}")
        return JournalError(f"the journal's database fails: {reason}")

    def compact(self) -> None:
        """Rewrite the files of the database without deleted and replaced rows."""
        try:
            with self._opened().connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                if not self.is_sqlite:
                    connection.execute(text(f"VACUUM FULL {SEGMENT.name}, {CHECKPOINT.name}"))
                    return
                connection.execute(text("VACUUM"))
                busy = connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)")).one()[0]
        except _ERRORS as error:
            raise self._failure(error) from error
        if busy:
            raise JournalError("another process reads the journal's database: try again")

    def truncate_log(self) -> bool:
        """Empty the write-ahead log of SQLite, which has earlier versions of rows.

        Return False if another connection reads earlier versions.
        """
        if not self.is_sqlite:
            return True
        try:
            with self._opened().connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(text(f"PRAGMA busy_timeout={round(_TRUNCATING * 1000)}"))
                busy = connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)")).one()[0]
                connection.execute(text(f"PRAGMA busy_timeout={round(_BUSY * 1000)}"))
                return not busy
        except _ERRORS as error:
            raise self._failure(error) from error

    async def take(self) -> bool:
        """Become the process that writes. Return False while another process writes."""
        return await self.in_thread(self.take_now)

    async def aclose(self) -> None:
        """Close the database, and let another process write."""
        await self.in_thread(self.close)

    def close(self) -> None:
        """Close the database, in the thread of the caller."""
        if self._holder is not None:
            self._holder.close()
            self._holder = None
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None
            self._files = {}
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take_now(self) -> bool:
        """Become the process that writes, in the thread of the caller. Return False while another process writes."""
        if not self.lock_now():
            return False
        self.work(self._prepare)
        return True

    def take_for_command(self) -> None:
        """Become the process that writes, in the thread of the caller.

        Wait a moment for a server that has just ended: PostgreSQL frees its lock only after its connection has ended.
        """
        end = time.monotonic() + _ENDING
        while not self.take_now():
            if time.monotonic() >= end:
                raise SetupError("another process writes to the journal: stop the servers that use it, and try again")
            time.sleep(0.05)

    def lock_now(self) -> bool:
        """Take the lock of the writer without reading the content. Return False while another process has the lock."""
        try:
            if not self.is_sqlite:
                if self._holder is None:
                    self._holder = self._opened().connect().execution_options(isolation_level="AUTOCOMMIT")
                taken = select(text(f"pg_try_advisory_lock({_LOCK}, hashtext(:prefix))"))
                return bool(self._holder.scalar(taken, {"prefix": self.prefix}))
            if self._lock is None:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock = os.open(
                    self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
                )
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except _ERRORS as error:
            self._holder = None
            raise self._failure(error) from error
        return True

    def _opened(self) -> Engine:
        engine = self._engine
        if engine is None:
            patience = {} if self.is_sqlite else {"connect_timeout": round(_BUSY)}
            engine = create_engine(
                self._url,
                pool_pre_ping=not self.is_sqlite,
                connect_args=patience,
                execution_options={_PREFIX: self.prefix},
            )
            if not self.is_sqlite:
                event.listen(engine, "connect", _wait_for_disk)
            else:
                event.listen(engine, "connect", _write_ahead if self._writes else _read_only)
                if self._writes:
                    event.listen(engine, "connect", self._note_files)
            self._engine = engine
        return engine

    def _note_files(self, connection: Any, _record: Any) -> None:  # noqa: ANN401 - of the driver
        """Remember which files the first connection has opened: a later one that opens other files must not commit."""
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens the write-ahead log
        if not self._files:
            # If the lock file is gone from its path, another process could lock a new file there, and write too.
            paths = (self.path, self.path.with_name(f"{self.path.name}-wal"), self.path.with_suffix(".lock"))
            self._files = {path: _identity(path) for path in paths if path.exists()}

    def _prepare(self, connection: Connection) -> None:
        METADATA.create_all(connection)
        self.id = identity(connection)
        if not self.id:
            self.id = secrets.token_hex(16)
            about = {"schema": str(VERSION), "id": self.id, "erasures": "0"}
            connection.execute(insert(ABOUT), [{"name": name, "value": value} for name, value in about.items()])

    def _require_schema(self, connection: Connection) -> None:
        if not self._is_known and inspect(connection).has_table(ABOUT.name):
            about = {row.name: row.value for row in connection.execute(select(ABOUT))}
            self.id, found = about.get("id", ""), about.get("schema")
            if found not in (None, str(VERSION)):
                raise SetupError(
                    f"{self.place} holds a journal with schema {found}, and this version of Live Board reads schema "
                    f"{VERSION}: start the version that wrote it, or choose another LIVE_DATA_DIR or LIVE_JOURNAL and "
                    "a new LIVE_KEY_PREFIX to begin again"
                )
            self._is_known = True


def prefix_of(connection: Connection) -> str:
    """Return the key prefix of the database to which a connection belongs."""
    return str(connection.get_execution_options()[_PREFIX])


def identity(connection: Connection) -> str:
    """Return the id of the database."""
    return connection.scalar(select(ABOUT.c.value).where(ABOUT.c.name == "id")) or ""


def file_name(prefix: str) -> str:
    """Return the name of the SQLite file with the journal of a key prefix."""
    return f"journal-{prefix}.db"


def open_journal(settings: Settings, *, writes: bool) -> Database | None:
    """Return the database of a server's journal, not opened yet. Return None if the server keeps no journal."""
    if settings.journal == "off":
        return None
    return Database(settings.journal, settings.data_dir, settings.key_prefix, writes=writes)


def existing_journal(settings: Settings, *, writes: bool = True) -> Database:
    """Return the database of a journal that exists, not opened yet."""
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
        return URL.create("sqlite", database=path.absolute().as_uri(), query={"mode": "ro", "uri": "true"})
    if url.startswith("postgres://"):  # providers of databases write this form
        url = url.replace("postgres", "postgresql", 1)
    try:
        check_url(url, ["postgresql"])
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise SetupError(
            "LIVE_JOURNAL is none of `sqlite`, `off` and a URL such as postgresql://user:password@host/database: "
            f"{error}"
        ) from None
    if find_spec("psycopg") is None:
        raise SetupError(
            "LIVE_JOURNAL names a PostgreSQL server: install the extra `postgres` (pip install 'live-board[postgres]')"
        )
    return parsed.set(drivername="postgresql+psycopg")


def _write_ahead(connection: Any, _record: Any) -> None:  # noqa: ANN401 - of the driver
    """Prepare a connection that writes: sync every commit to disk, and overwrite deleted data."""
    os.chmod(connection.execute("PRAGMA database_list").fetchone()[2], 0o600)  # noqa: PTH101
    busy = f"busy_timeout={round(_BUSY * 1000)}"
    # Deleted and replaced rows may contain the name of an erased member. With secure_delete, no bytes of them stay in
    # the file.
    for pragma in ("journal_mode=WAL", "synchronous=FULL", busy, "foreign_keys=ON", "secure_delete=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _wait_for_disk(connection: Any, _record: Any) -> None:  # noqa: ANN401 - of the driver
    """Let every commit wait until PostgreSQL has synced it, also where `synchronous_commit` is off by default."""
    with connection.cursor() as cursor:
        if cursor.execute("SHOW synchronous_commit").fetchone()[0] == "off":
            cursor.execute("SET synchronous_commit = on")
    connection.commit()


def _read_only(connection: Any, _record: Any) -> None:  # noqa: ANN401 - of the driver
    connection.execute(f"PRAGMA busy_timeout={round(_BUSY * 1000)}")
    connection.execute("PRAGMA query_only=ON")


def _identity(path: Path) -> tuple[int, int]:
    """Return the device and the inode of a file, which differ for another file at the same path."""
    status = path.stat()
    return status.st_dev, status.st_ino


def unsafe_in_sql(connection: Connection) -> list[str]:
    """Return a sentence for each setting that may keep a commit from the disk, or damage the database."""
    if connection.dialect.name == "sqlite":
        wanted = {"journal_mode": ("wal",), "synchronous": ("2", "3")}
        found = {name: str(connection.scalar(text(f"PRAGMA {name}"))) for name in wanted}
        return [
            f"SQLite has {name} = {value}: a power cut loses what was committed"
            for name, value in found.items()
            if value not in wanted[name]
        ]
    lines = []
    if connection.scalar(text("SHOW fsync")) != "on":
        lines.append("PostgreSQL has fsync = off: a crash of its machine can damage the journal")
    if connection.scalar(text("SHOW synchronous_commit")) == "off":
        lines.append("PostgreSQL has synchronous_commit = off: a crash loses what was committed just before")
    if connection.scalar(text("SHOW full_page_writes")) != "on":
        lines.append("PostgreSQL has full_page_writes = off: a power cut can damage the journal")
    return lines
