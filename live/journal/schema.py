"""The tables of the journal."""

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.types import TypeEngine

VERSION: Final = 11

METADATA: Final = MetaData()
_ID: Final = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only in a column of the type INTEGER


def _row_id() -> Column[int]:
    return Column("id", _ID, primary_key=True)


def _needed(name: str, kind: TypeEngine[Any] | type[TypeEngine[Any]], comment: str | None = None) -> Column[Any]:
    return Column(name, kind, nullable=False, comment=comment)


def _life(*, primary_key: bool = False) -> Column[int]:
    return Column("life", _ID, ForeignKey("life.id"), primary_key=primary_key, nullable=False, autoincrement=False)


def _packed() -> tuple[Column[int], Column[bytes]]:
    return _needed("crc", BigInteger), _needed("data", LargeBinary)


ABOUT: Final = Table(
    "about",
    METADATA,
    Column("name", String(32), primary_key=True),
    _needed("value", Text),
    comment="the version of the schema, the id of the database, and how often an erasure has rewritten rows",
)
_OPEN: Final = text("ended IS NULL")
LIFE: Final = Table(
    "life",
    METADATA,
    _row_id(),
    _needed("prefix", String(32)),
    _needed("board", String(64)),
    _needed("epoch", String(32)),
    Column("parent", String(32)),
    _needed("began", BigInteger, comment="when this database first had it, microseconds"),
    Column("ended", BigInteger),
    _needed("drained", String(64), comment="the id of the last entry"),
    _needed("link", String(160), comment="the link of the last entry"),
    _needed("size", BigInteger, comment="bytes of all entries so far"),
    Column("lost", String(32), comment="if the store lost it: the epoch in which the board went on; at first empty"),
    Index("life_of_board", "prefix", "board", "epoch"),
    Index("open_life", "prefix", "board", "epoch", unique=True, sqlite_where=_OPEN, postgresql_where=_OPEN),
    comment="the timelines of boards: one for each epoch, and another one wherever entries are missing",
)
SEGMENT: Final = Table(
    "segment",
    METADATA,
    _row_id(),
    _life(),
    _needed("first", BigInteger, comment="the offset after its first entry"),
    _needed("last", BigInteger, comment="the offset after its last entry"),
    _needed("began", BigInteger, comment="the time of its first entry, microseconds"),
    _needed("ended", BigInteger, comment="the time of its last entry, microseconds"),
    _needed("entries", Integer),
    _needed("swapped", Boolean, comment="whether one of them is a `swap`"),
    *_packed(),
    Index("segment_of_life", "life", "id"),
    comment="consecutive entries of a life, compressed",
    sqlite_autoincrement=True,  # the number of a deleted row is never used again
)
CHECKPOINT: Final = Table(
    "checkpoint",
    METADATA,
    _row_id(),
    _life(),
    _needed("segment", BigInteger, comment="the last segment that it contains"),
    _needed("time", BigInteger, comment="the time of its last entry, microseconds"),
    *_packed(),
    Index("checkpoint_of_life", "life", "segment"),
    comment="everything that a board held after a segment, compressed",
)
DEFINITION: Final = Table(
    "definition",
    METADATA,
    _row_id(),
    _needed("prefix", String(32)),
    _needed("kind", String(16), comment="`boards`, `producers`, `items`, `visitors` or `trail`"),
    _needed("name", Text),
    _needed("version", BigInteger),
    _needed("time", BigInteger, comment="when this database got it, microseconds"),
    Column("value", Text, comment="JSON; NULL for one that was removed"),
    Index("definition_of_name", "prefix", "kind", "name"),
    comment="definitions of boards, API keys, titles of members, the secret of cookies, with versions; the audit log",
)
PERIOD: Final = Table(
    "period",
    METADATA,
    _life(primary_key=True),
    Column("start", BigInteger, primary_key=True, autoincrement=False, comment="the start of the period"),
    _needed("newest", BigInteger, comment="the newest period of the board when this one was archived"),
    _needed("final", Boolean, comment="whether the board takes no events for it any more"),
    _needed("revision", Integer, comment="how often it became final"),
    _needed("offset", BigInteger),
    *_packed(),
    comment="the rankings of periods that a board does not keep any more",
)
