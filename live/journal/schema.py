"""The tables of the journal."""

from typing import Final

from sqlalchemy import (
    BigInteger,
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

VERSION: Final = 1

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
    sqlite_autoincrement=True,  # the number of a row that was deleted never comes again
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
