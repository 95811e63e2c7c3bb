"""The frames of boards with `replay` in SQL: a row for about a second, and snapshots from which a replay can begin."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import structlog
from sqlalchemy import Connection, RowMapping, Select, delete, func, insert, select

from live.domain.recording import RecordedFrame, RecordingPiece
from live.errors import SetupError
from live.journal.database import Database
from live.journal.lives import begin_life, lives_of
from live.journal.schema import FRAME, LIFE
from live.journal.segments import compress, decompress
from live.settings import Settings

log = structlog.get_logger()

_MOST_ROWS: Final = 16  # rows per read: about 15 seconds of messages
_LONGEST: Final = 30 * 86_400_000_000  # microseconds; no board keeps its frames for longer

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(list[RecordedFrame])


class RecordingWriter:
    """Writes recordings of boards. Only the process that writes the journal has one."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keep(self, pieces: Sequence[RecordingPiece]) -> None:
        """Keep pieces, in one transaction. Pieces that are kept already are skipped: the reply may have been lost.

        Raises:
            StoreUnavailableError: the database is unavailable.
        """
        await self._database.run(lambda connection: _insert(connection, self._database.prefix, pieces))

    async def forget(self, boards: Mapping[str, int]) -> None:
        """Forget what is older than boards keep it, each for some seconds.

        A board that is not named may be known to other processes only. Raises as `keep`.
        """
        now = time.time_ns() // 1000
        await self._database.run(lambda connection: _forget(connection, self._database.prefix, boards, now))


class RecordingReader:
    """Reads recordings with a connection of its own.

    A process that runs queries of the past may be busy for seconds. Viewers with a delay can't wait for it, and
    reading a row takes a fraction of a millisecond.
    """

    def __init__(self, settings: Settings) -> None:
        self._database = Database(settings.journal, settings.data_dir, settings.key_prefix, writes=False)

    async def start(self, board: str, epoch: str, at: int) -> RecordingPiece | None:
        """The newest piece before a time, in milliseconds since 1970, from which a replay can begin; or the oldest one.

        None if nothing is kept. Raises StoreUnavailableError if the database is unavailable.
        """
        return await self._database.run(lambda connection: _start(connection, self._database.prefix, board, epoch, at))

    async def after(self, board: str, epoch: str, piece: int, *, only_snapshots: bool = False) -> list[RecordingPiece]:
        """The next pieces after one; with `only_snapshots`, only those from which a replay can begin.

        Raises as `start`.
        """

        def work(connection: Connection) -> list[RecordingPiece]:
            where = [FRAME.c.life.in_(_lives(connection, self._database.prefix, board, epoch)), FRAME.c.id > piece]
            if only_snapshots:
                where.append(FRAME.c.snapshot > 0)
            rows = connection.execute(select(FRAME).where(*where).order_by(FRAME.c.id).limit(_MOST_ROWS))
            return list(_read(board, epoch, rows.mappings().all()))

        return await self._database.run(work)

    async def until(self, board: str, epoch: str, offset: int) -> list[RecordingPiece]:
        """The pieces that lead to an offset; empty if it is not kept. Raises as `start`."""
        return await self._database.run(
            lambda connection: _until(connection, self._database.prefix, board, epoch, offset)
        )

    async def aclose(self) -> None:
        """Close the database."""
        await self._database.aclose()


def _insert(connection: Connection, prefix: str, pieces: Sequence[RecordingPiece]) -> None:
    for piece in pieces:
        name = {
            "life": begin_life(connection, prefix, piece.board, piece.epoch).id,
            "first": piece.first, "last": piece.last, "began": piece.began * 1000, "ended": piece.ended * 1000,
            "snapshot": piece.snapshot,
        }  # fmt: skip
        if connection.execute(select(FRAME.c.id).filter_by(**name).limit(1)).first() is None:
            packed = compress(_ENCODER.encode(piece.frames))
            row = {**name, "cut": int(piece.is_cut), "crc": packed.crc, "data": packed.data}
            connection.execute(insert(FRAME).values(row))


def _forget(connection: Connection, prefix: str, boards: Mapping[str, int], now: int) -> None:
    kept = connection.execute(
        select(LIFE.c.id, LIFE.c.board).where(LIFE.c.prefix == prefix, LIFE.c.id.in_(select(FRAME.c.life).distinct()))
    )
    for life, board in kept.all():
        length = boards[board] * 1_000_000 if board in boards else _LONGEST
        connection.execute(delete(FRAME).where(FRAME.c.life == life, FRAME.c.ended < now - length))


def _start(connection: Connection, prefix: str, board: str, epoch: str, at: int) -> RecordingPiece | None:
    snapshots = _snapshots(_lives(connection, prefix, board, epoch))
    before = snapshots.where(FRAME.c.began <= at * 1000).order_by(FRAME.c.began.desc(), FRAME.c.id.desc())
    for chosen in (before, snapshots.order_by(FRAME.c.began, FRAME.c.id)):
        rows = connection.execute(chosen.limit(1)).mappings().all()
        if rows:
            return next(_read(board, epoch, rows), None)
    return None


def _until(connection: Connection, prefix: str, board: str, epoch: str, offset: int) -> list[RecordingPiece]:
    lives = [life.id for life in lives_of(connection, prefix, board) if life.epoch == epoch]
    last = connection.scalar(
        select(func.max(FRAME.c.id)).where(FRAME.c.life.in_(lives), FRAME.c.first <= offset, FRAME.c.last >= offset)
    )
    if last is None:
        return []
    first = connection.scalar(
        select(func.max(FRAME.c.id)).where(FRAME.c.life.in_(lives), FRAME.c.id <= last, FRAME.c.snapshot > 0)
    )
    rows = connection.execute(
        select(FRAME).where(FRAME.c.life.in_(lives), FRAME.c.id.between(first, last)).order_by(FRAME.c.id)
    )
    return list(_read(board, epoch, rows.mappings().all()))


def _snapshots(lives: Sequence[int]) -> Select[tuple[object, ...]]:
    return select(FRAME).where(FRAME.c.life.in_(lives), FRAME.c.snapshot > 0)


def _lives(connection: Connection, prefix: str, board: str, epoch: str) -> list[int]:
    """The life with an epoch, and those that it continues. A board that had the same id before is another board."""
    rows = connection.execute(
        select(LIFE.c.id, LIFE.c.epoch, LIFE.c.parent).where(LIFE.c.prefix == prefix, LIFE.c.board == board)
    )
    known = {row.epoch: row for row in rows.all()}
    found: list[int] = []
    while (row := known.pop(epoch, None)) is not None:
        found.append(row.id)
        epoch = row.parent or ""
    return found


def _read(board: str, epoch: str, rows: Sequence[RowMapping]) -> Iterator[RecordingPiece]:
    for row in rows:
        try:
            frames = _DECODER.decode(decompress(row["crc"], row["data"]))
        except SetupError as error:  # viewers that notice missing messages reconnect
            log.error("kept frames can't be read", board=board, piece=row["id"], reason=str(error))  # noqa: TRY400
            continue
        yield RecordingPiece(
            board, epoch, row["first"], row["last"], row["snapshot"], bool(row["cut"]),
            row["began"] // 1000, row["ended"] // 1000, frames, row["id"],
        )  # fmt: skip
