"""Entries as a segment of a timeline, and the timelines in SQL."""

from pathlib import Path

import msgspec
import pytest
from sqlalchemy import insert

from live.domain.board import Rules
from live.journal.database import Database
from live.journal.log.entries import Erase, content, unpack_entries
from live.journal.log.timelines import (
    Timeline,
    _what_is_missing,
    find_parent,
    find_timeline,
    following,
    segment_of,
)
from live.journal.past.worker import drained
from live.journal.schema import LIFE, SEGMENT
from live.store.board.batch import decode_batch
from live.store.board.journal_stream import Entry
from tests.harness.settings import fresh_settings

RULES = Rules(operation="incr", order="backward")
ACTOR, OTHER, PAIR = (letter * 16 for letter in "aop")  # digests
FIRST, SECOND = "1-0 1000 w 1", "2-0 2000 w 2"  # links


def test_a_segment_forgets_a_person_before_the_erasure() -> None:
    """Entries after the erasure may name the member or the voter again. SQL keeps nothing that names either of them."""
    votes = {"actors": [ACTOR, OTHER], "pairs": [PAIR, PAIR], "changes": [1, 1], "members": [0, 1]}
    cast = {"start": 0, "suffix": "", "members": ["a", "b"], "amounts": [1, 2], "votes": votes}
    for kind, erase in (("forget", Erase(key=b"k", member="b")), ("erase", Erase(key=b"k", digests=[ACTOR.encode()]))):
        bodies: list[tuple[str, object]] = [
            ("add", {"rules": RULES, "groups": [cast]}), ("hide", {"member": "a"}), (kind, erase),
            ("hide", {"member": "b"}), ("add", {"rules": RULES, "groups": [cast]}),
        ]  # fmt: skip
        entries = [
            Entry(f"{number}-0", f"{kind} 9 {number}-0 {number}000 w {number} {FIRST}", msgspec.msgpack.encode(body))
            for number, (kind, body) in enumerate(bodies, 2)
        ]
        segment = segment_of(Timeline(1, "posts", "e"), entries)
        first, second, third, *rest = [body for _, body in unpack_entries(segment.packed.crc, segment.packed.data)]
        (group,) = decode_batch(first).groups
        replaced = erase.replacements(erase.digests)
        actor = replaced.get(ACTOR.encode(), ACTOR.encode())
        assert (group.members, group.amounts) == ((["a", ""], [1, 0]) if erase.member else (["a", "b"], [1, 2]))
        assert group.votes is not None
        assert [content(one) for one in group.votes.actors] == [actor, OTHER.encode()]
        assert [second, *rest] == [entry.content for entry in (entries[1], *entries[3:])]
        assert msgspec.msgpack.decode(third, type=Erase) == Erase(digests=[*replaced.values()])
        assert segment.erased == [erase]
        assert (segment.entries, segment.after.drained, segment.after.link) == (5, "6-0", "6-0 6000 w 6")


@pytest.mark.parametrize(
    ("offset", "journal", "waiting", "what"),
    [
        (5, None, None, ""),
        (4, None, None, "is at offset 4"),
        (5, "5-0 5 w 5 99", None, ""),
        (4, "4-0 4 w 4 99", None, "is at offset 4, with 4-0 as the last entry"),
        (5, "5-0 6 w 6 99", None, "is at offset 5, with 5-0 as the last entry"),
        (7, "7-0 7 w 7 99", "add 9 6-0 6 w 6 5-0 5 w 5", ""),
        (7, "7-0 7 w 7 99", "add 9 6-0 6 w 6 4-0 4 w 4", "has other events up to offset 7: the store went back"),
        (7, "7-0 7 w 7 99", "adopt 9 6-0 6 w 6 4-0 4 w 4", ""),
        (7, "7-0 7 w 7 99", "add 9 7-0 7 w 7 6-0 6 w 6", ""),
    ],
)
def test_a_loss_says_what_the_store_has_instead(
    offset: int, journal: str | None, waiting: str | None, what: str
) -> None:
    """The last entry in SQL is compared with the last entry in the store, and with the first entry that waits there."""
    timeline = Timeline(1, "posts", "e", "5-0", "5-0 5 w 5", 9)
    held = (None if text is None else text.encode() for text in (journal, waiting))
    assert _what_is_missing(timeline, offset, *held).partition(", and counted")[0] == what


def test_entries_follow_a_timeline_until_one_is_missing() -> None:
    """Only the first entry of a timeline may have the whole board, or continue another timeline."""

    def entries(*heads: str) -> list[Entry]:
        return [Entry(head.split(" ")[2], head, b"") for head in heads]

    some = entries(f"add 9 2-0 2 w 2 {FIRST}", "adopt 9 2-1 3 - 0 2-0 2 w 2", "adopt 9 5-0 5 - 0 4-0 4 w 4")
    timeline = Timeline(1, "posts", "e", "1-0", FIRST)
    assert following(timeline, some) == (some[:2], "4-0 4 w 4")
    assert following(timeline, some[:2]) == (some[:2], None)
    assert following(Timeline(1, "posts", "e"), some[2:]) == (some[2:], None)
    renewed = entries(f"renew 9 2-0 2000 - 0 {FIRST}")
    assert following(Timeline(1, "posts", "e"), renewed) == (renewed, None)
    assert following(Timeline(1, "posts", "e", "2-0", SECOND), renewed) == ([], FIRST)


def test_a_timeline_continues_one_of_its_own_key_prefix(tmp_path: Path) -> None:
    """The board may have had another id. Nothing was drained of a timeline that SQL does not know."""
    settings = fresh_settings("", journal="sqlite", data_dir=tmp_path)
    own = settings.key_prefix
    lives = [("other", "old", "e1"), (own, "old", "e1"), (own, "posts", "e2")]
    rows = [
        {"prefix": prefix, "board": board, "epoch": epoch, "began": 0, "drained": "1-0", "link": "", "size": 1}
        for prefix, board, epoch in lives
    ]
    with Database("sqlite", tmp_path, own, writes=True) as database:
        assert database.take_now()
        database.work(lambda connection: connection.execute(insert(LIFE), rows))
        segments = [
            {
                "life": life,
                "first": 1,
                "last": 1,
                "began": 0,
                "ended": ended,
                "entries": 1,
                "swapped": False,
                "crc": 0,
                "data": b"",
            }
            for life, ended in ((3, 5000), (3, 7000), (2, 9000))
        ]
        database.work(lambda connection: connection.execute(insert(SEGMENT), segments))
        newest = database.work(lambda connection: find_timeline(connection, "posts", "e2"))
        assert newest is not None
        parent = database.work(lambda connection: find_parent(connection, newest, "e1"))
        assert parent is not None
        assert (parent.id, parent.board) == (2, "old")
        assert database.work(lambda connection: find_parent(connection, newest, "e3")) is None
        assert database.work(drained, "posts", "e2") == ((1, 0), 7000)
        assert database.work(drained, "posts", "e3") == ((0, 0), 0)
