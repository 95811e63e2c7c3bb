"""The tables of the journal."""

from typing import Final

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

VERSION: Final = 2

METADATA: Final = MetaData()
_ID: Final = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers only rows of the type INTEGER by itself

ABOUT: Final = Table(
    "about",
    METADATA,
    Column("name", String(32), primary_key=True),
    Column("value", Text, nullable=False),
    comment="the version of the schema, and the id of the database",
)
LIFE: Final = Table(
    "life",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("prefix", String(32), nullable=False),
    Column("board", String(64), nullable=False),
    Column("epoch", String(32), nullable=False),
    Column("parent", String(32)),
    Column("began", BigInteger, nullable=False, comment="when this database first heard of it, microseconds"),
    Column("ended", BigInteger),
    Column("drained", String(64), nullable=False, comment="the id of the last entry"),
    Column("link", String(160), nullable=False, comment="the link of the last entry"),
    Column("size", BigInteger, nullable=False, comment="bytes of all entries so far"),
    UniqueConstraint("prefix", "board", "epoch"),
    comment="the lives of boards: one for each epoch",
)
SEGMENT: Final = Table(
    "segment",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("life", _ID, ForeignKey("life.id"), nullable=False),
    Column("first", BigInteger, nullable=False, comment="the offset after its first entry"),
    Column("last", BigInteger, nullable=False, comment="the offset after its last entry"),
    Column("began", BigInteger, nullable=False, comment="the time of its first entry, microseconds"),
    Column("ended", BigInteger, nullable=False, comment="the time of its last entry, microseconds"),
    Column("entries", Integer, nullable=False),
    Column("crc", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index("segment_of_life", "life", "id"),
    comment="consecutive entries of a life, compressed",
    sqlite_autoincrement=True,  # the number of a deleted row is never used again
)
CHECKPOINT: Final = Table(
    "checkpoint",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("life", _ID, ForeignKey("life.id"), nullable=False),
    Column("segment", BigInteger, nullable=False, comment="the last segment that it contains"),
    Column("time", BigInteger, nullable=False, comment="the time of its last entry, microseconds"),
    Column("crc", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index("checkpoint_of_life", "life", "segment"),
    comment="everything that a board held after a segment, compressed",
)
DEFINITION: Final = Table(
    "definition",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("prefix", String(32), nullable=False),
    Column("kind", String(16), nullable=False, comment="`boards`, `producers` or `items`"),
    Column("name", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("time", BigInteger, nullable=False, comment="when this database heard of it, microseconds"),
    Column("value", Text, comment="JSON; NULL for one that was removed"),
    Index("definition_of_name", "prefix", "kind", "name"),
    comment="run-time boards, API keys and titles of members, with their earlier versions",
)
FRAME: Final = Table(
    "frame",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("life", _ID, ForeignKey("life.id"), nullable=False),
    Column("first", BigInteger, nullable=False, comment="the lowest offset after one of its frames"),
    Column("last", BigInteger, nullable=False, comment="the highest"),
    Column("began", BigInteger, nullable=False, comment="when it begins, microseconds"),
    Column("ended", BigInteger, nullable=False, comment="the time of its last frame, microseconds"),
    Column("snapshot", Integer, nullable=False, comment="how many frames, the first ones, are those of a new viewer"),
    Column("cut", Integer, nullable=False, comment="1 if frames are missing before it"),
    Column("crc", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index("frame_of_life", "life", "id"),
    Index("frame_of_time", "life", "ended"),
    Index("frame_to_begin", "life", "began", "snapshot"),
    comment="what viewers of boards with `replay` received, compressed: one row for about a second",
    sqlite_autoincrement=True,  # viewers ask for the rows after another one
)
GAP: Final = Table(
    "gap",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("life", _ID, ForeignKey("life.id"), nullable=False),
    Column("time", BigInteger, nullable=False, comment="when it was found, microseconds"),
    Column("expected", String(160), nullable=False, comment="the link of the last entry before it"),
    Column("found", String(160), nullable=False, comment="the entry that the next one names"),
    comment="where entries are missing; the next entry is the whole content of the board",
)
ERASED: Final = Table(
    "erased",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("prefix", String(32), nullable=False),
    Column("time", BigInteger, nullable=False, comment="when it was erased, microseconds"),
    Column("digest", LargeBinary, nullable=False, comment="of an erased digest, keyed by a secret of this database"),
    Index("erased_of_prefix", "prefix"),
    comment="the digests of actors that were erased, so that they are erased again after a restore",
    sqlite_autoincrement=True,
)
FOLDED: Final = Table(
    "folded",
    METADATA,
    Column("life", _ID, ForeignKey("life.id"), primary_key=True, autoincrement=False),
    Column("segment", BigInteger, nullable=False, comment="the last segment that the totals contain"),
    Column("since", BigInteger, comment="the first hour whose beginning the totals can tell; NULL for none yet"),
    comment="how far the totals of a life are",
)
CELL: Final = Table(
    "cell",
    METADATA,
    Column("life", _ID, ForeignKey("life.id"), primary_key=True, autoincrement=False),
    Column("start", BigInteger, primary_key=True, autoincrement=False, comment="an hour by the clock of the board"),
    Column("newest", BigInteger, comment="the newest slot at its end; NULL for none"),
    Column("top", BigInteger, comment="the highest slot in which anything was counted until its end; NULL for none"),
    Column("offset", BigInteger, nullable=False, comment="the offset at its end"),
    Column("whole", Boolean, nullable=False, comment="whether its totals include those of the cells before"),
    Column("rows", BigInteger, nullable=False, comment="about how many totals it has"),
    comment="the hours of a life in which something was counted",
)
TOTALS: Final = Table(
    "totals",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("life", _ID, ForeignKey("life.id"), nullable=False),
    Column("cell", BigInteger, nullable=False, comment="the start of the cell; its parts add up"),
    Column("crc", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index("totals_of_cell", "life", "cell"),
    comment="what was counted in an hour for each slot and member, compressed",
)
PERIOD: Final = Table(
    "period",
    METADATA,
    Column("life", _ID, ForeignKey("life.id"), primary_key=True, autoincrement=False),
    Column("start", BigInteger, primary_key=True, autoincrement=False, comment="the start of the period"),
    Column("newest", BigInteger, nullable=False, comment="the newest period of the board when this one was archived"),
    Column("final", Boolean, nullable=False, comment="whether the board takes no events for it any more"),
    Column("revision", Integer, nullable=False, comment="how often it became final"),
    Column("offset", BigInteger, nullable=False),
    Column("crc", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    comment="the rankings of periods that a board does not keep any more",
)
