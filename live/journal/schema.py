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
    UniqueConstraint,
)
from sqlalchemy.types import TypeEngine

VERSION: Final = 2

METADATA: Final = MetaData()
_ID: Final = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers only rows of the type INTEGER by itself


def _row_id() -> Column[int]:
    """The number of a row, which the database gives."""
    return Column("id", _ID, primary_key=True)


def _needed(name: str, kind: TypeEngine[Any] | type[TypeEngine[Any]], comment: str | None = None) -> Column[Any]:
    """A column that always has a value."""
    return Column(name, kind, nullable=False, comment=comment)


def _life(*, primary_key: bool = False) -> Column[int]:
    """The life that a row belongs to."""
    return Column("life", _ID, ForeignKey("life.id"), primary_key=primary_key, nullable=False, autoincrement=False)


def _packed() -> tuple[Column[int], Column[bytes]]:
    """Compressed content and its checksum."""
    return _needed("crc", BigInteger), _needed("data", LargeBinary)


ABOUT: Final = Table(
    "about",
    METADATA,
    Column("name", String(32), primary_key=True),
    _needed("value", Text),
    comment="the version of the schema, and the id of the database",
)
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
    UniqueConstraint("prefix", "board", "epoch"),
    comment="the lives of boards: one for each epoch",
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
    _needed("kind", String(16), comment="`boards`, `producers` or `items`"),
    _needed("name", Text),
    _needed("version", BigInteger),
    _needed("time", BigInteger, comment="when this database got it, microseconds"),
    Column("value", Text, comment="JSON; NULL for one that was removed"),
    Index("definition_of_name", "prefix", "kind", "name"),
    comment="run-time boards, API keys and titles of members, with their earlier versions",
)
FRAME: Final = Table(
    "frame",
    METADATA,
    _row_id(),
    _life(),
    _needed("first", BigInteger, comment="the lowest offset after one of its frames"),
    _needed("last", BigInteger, comment="the highest"),
    _needed("began", BigInteger, comment="when it begins, microseconds"),
    _needed("ended", BigInteger, comment="the time of its last frame, microseconds"),
    _needed("snapshot", Integer, comment="how many frames, the first ones, are those of a new viewer"),
    _needed("cut", Integer, comment="1 if frames are missing before it"),
    *_packed(),
    Index("frame_of_life", "life", "id"),
    Index("frame_of_time", "life", "ended"),
    Index("frame_to_begin", "life", "began", "snapshot"),
    comment="what viewers of boards with `replay` received, compressed: one row for about a second",
    sqlite_autoincrement=True,  # viewers ask for the rows after another one
)
GAP: Final = Table(
    "gap",
    METADATA,
    _row_id(),
    _life(),
    _needed("time", BigInteger, comment="when it was found, microseconds"),
    _needed("expected", String(160), comment="the link of the last entry before it"),
    _needed("found", String(160), comment="the entry that the next one names"),
    comment="where entries are missing; the next entry is the whole content of the board",
)
ERASED: Final = Table(
    "erased",
    METADATA,
    _row_id(),
    _needed("prefix", String(32)),
    _needed("time", BigInteger, comment="when it was erased, microseconds"),
    _needed("digest", LargeBinary, comment="of an erased digest, keyed by a secret of this database"),
    Index("erased_of_prefix", "prefix"),
    comment="the digests of actors that were erased, so that they are erased again after a restore",
    sqlite_autoincrement=True,
)
FOLDED: Final = Table(
    "folded",
    METADATA,
    _life(primary_key=True),
    _needed("segment", BigInteger, comment="the last segment that the totals contain"),
    Column("since", BigInteger, comment="the first hour whose beginning the totals cover; NULL for none yet"),
    comment="how far the totals of a life are",
)
CELL: Final = Table(
    "cell",
    METADATA,
    _life(primary_key=True),
    Column("start", BigInteger, primary_key=True, autoincrement=False, comment="an hour by the clock of the board"),
    Column("newest", BigInteger, comment="the newest slot at its end; NULL for none"),
    Column("top", BigInteger, comment="the highest slot in which anything was counted until its end; NULL for none"),
    _needed("offset", BigInteger, comment="the offset at its end"),
    _needed("whole", Boolean, comment="whether its totals include those of the cells before"),
    _needed("rows", BigInteger, comment="about how many totals it has"),
    comment="the hours of a life in which something was counted",
)
TOTALS: Final = Table(
    "totals",
    METADATA,
    _row_id(),
    _life(),
    _needed("cell", BigInteger, comment="the start of the cell; its parts add up"),
    *_packed(),
    Index("totals_of_cell", "life", "cell"),
    comment="what was counted in an hour for each slot and member, compressed",
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
