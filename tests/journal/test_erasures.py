"""The list of erased actors in a journal, and its merge with the list of another journal."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import insert, select

from live.journal.database import Database
from live.journal.erasures import ErasedList, Erasures, erasures_of, hidden, import_list, key_of, list_in, member_digest
from live.journal.log.entries import Head
from live.journal.schema import ERASED
from live.journal.state.snapshot import Snapshot

OWN = ("live", "posts", 1, b"own")
OTHER = ("live", "news", 2, b"other")
KEY = b"a key"
ACTOR, PAIR, KEPT = (letter * 16 for letter in "apk")  # digests


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Database]:
    """A journal whose list has one digest."""
    with Database("sqlite", tmp_path, "live", writes=True) as database:
        assert database.take_now()
        prefix, board, time, digest = OWN
        row = {"prefix": prefix, "board": board, "time": time, "digest": digest}
        database.work(lambda connection: connection.execute(insert(ERASED), row))
        yield database


def rows_in(database: Database) -> list[tuple[object, ...]]:
    """Return the rows of the list."""
    columns = (ERASED.c.prefix, ERASED.c.board, ERASED.c.time, ERASED.c.digest)
    return database.work(lambda connection: [tuple(row) for row in connection.execute(select(*columns))])


def test_a_list_is_read_with_its_boards(journal: Database, tmp_path: Path) -> None:
    """The list has its key, and names the board of each digest."""
    found = list_in(tmp_path, "live")
    assert found is not None
    assert (found.key, found.rows) == (journal.work(key_of), [OWN])


@pytest.mark.parametrize("replace", [False, True])
def test_digests_of_another_key_replace_the_list_or_are_left_out(journal: Database, *, replace: bool) -> None:
    """In a list with two keys, nobody could tell which key a digest belongs to."""
    other, before = ErasedList(b"another key", [OTHER]), journal.work(key_of)
    journal.work(lambda connection: import_list(connection, other, replace=replace))
    assert (journal.work(key_of), rows_in(journal)) == ((other.key, [OTHER]) if replace else (before, [OWN]))


def test_digests_of_the_same_key_are_added_once(journal: Database) -> None:
    """Merging a list again adds nothing."""
    found = ErasedList(journal.work(key_of), [OWN, OTHER])
    for _ in range(2):
        journal.work(lambda connection: import_list(connection, found, replace=True))
        assert rows_in(journal) == [OWN, OTHER]


def test_a_board_has_its_own_erasures(journal: Database) -> None:
    """Of two erasures of a digest, the later erasure counts."""
    key = journal.work(key_of)
    rows = [
        ("live", "posts", 5, b"twice"), ("live", "posts", 1, b"twice"), ("live", "posts", 1, b"once"),
        ("live", "news", 1, b"news"), ("test", "posts", 1, b"test"),
    ]  # fmt: skip
    names = ("prefix", "board", "time", "digest")
    fields = [dict(zip(names, (*row[:3], hidden(key, row[3])), strict=True)) for row in rows]
    journal.work(lambda connection: connection.execute(insert(ERASED), fields))
    found = journal.work(lambda connection: erasures_of(connection, "live", "posts"))
    digests = [digest for *_, digest in rows]
    assert [found.among(digests, time) for time in (0, 4, 5)] == [{b"twice", b"once"}, {b"twice"}, set()]


def test_a_digest_is_gone_from_everything_that_is_older_than_its_erasure() -> None:
    """Entries made at the time of the erasure or later may have the digest again."""
    actor, other = ACTOR.encode(), KEPT.encode()
    erased = {hidden(KEY, actor): 10, hidden(KEY, other): 5, member_digest(KEY, "ann"): 3}
    found = [Erasures(KEY, erased).among([actor, other, b"nobody"], time) for time in (4, 5, 9, 10)]
    assert found == [{actor, other}, {actor}, {actor}, set()]
    assert [Erasures(KEY, erased).member_gone(member) for member in ("ann", "bob")] == [3, -1]


@pytest.mark.parametrize(
    ("voted", "made", "left"), [(9, 9, {KEPT}), (10, 9, {KEPT, PAIR}), (9, 10, {KEPT, PAIR, ACTOR})]
)
def test_the_votes_of_an_erased_actor_are_taken_out(voted: int, made: int, left: set[str]) -> None:
    """The list has only the digest of the actor.

    The entries show which digests of (actor, member) pairs belong to this actor.
    """
    votes = {"actors": [ACTOR], "pairs": [PAIR], "changes": [1]}
    group = {"start": 0, "suffix": "", "members": ["a"], "amounts": [1], "votes": votes}
    batch = {"rules": {"operation": "incr", "order": "backward"}, "span": 60, "reached": 0, "groups": [group]}
    erasures = Erasures(KEY, {hidden(KEY, ACTOR.encode()): 10})
    erasures.follow(Head("add", 0, "1-0", voted, "", ""), msgspec.msgpack.encode(batch))
    data = Snapshot(time=made, seen={0: {ACTOR.encode()}})
    data.ranking("").votes = {digest.encode(): 1 for digest in (ACTOR, PAIR, KEPT)}
    erasures.clean(data)
    assert {digest.decode() for digest in data.ranking("").votes} == left
    assert data.seen == {0: {ACTOR.encode()} if ACTOR in left else set()}
