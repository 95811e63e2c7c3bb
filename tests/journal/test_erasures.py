"""The list of erased actors in a journal, and its merge with that of another journal."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from live.journal.database import Database
from live.journal.erasures import ErasedList, import_list, key_of, list_in
from live.journal.schema import ERASED

OWN = ("live", "posts", 1, b"own")
OTHER = ("live", "news", 2, b"other")


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
    """The list."""
    columns = (ERASED.c.prefix, ERASED.c.board, ERASED.c.time, ERASED.c.digest)
    return database.work(lambda connection: [tuple(row) for row in connection.execute(select(*columns))])


def test_a_list_is_read_with_its_boards(journal: Database, tmp_path: Path) -> None:
    """Rows of older versions have none."""
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
    found = ErasedList(journal.work(key_of) or b"", [OWN, OTHER])
    for _ in range(2):
        journal.work(lambda connection: import_list(connection, found, replace=True))
        assert rows_in(journal) == [OWN, OTHER]
