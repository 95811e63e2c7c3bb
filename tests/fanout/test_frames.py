"""Messages to viewers have exactly the documented form, and a viewer that applies every message holds the top."""

from itertools import pairwise
from types import SimpleNamespace
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from live.domain.choices import Votes
from live.domain.event import MAX_SCORE
from live.domain.ranking import Page, Ranks, Record, with_ranks
from live.fanout import frames
from live.fanout.frames import Frame, status_frame, sync_frame, update_frame
from tests.harness.boards import BOARD
from tests.harness.clock import datetime_of
from tests.harness.viewer import ModelViewer

scores = st.dictionaries(st.text(min_size=1, max_size=4), st.integers(-MAX_SCORE, MAX_SCORE), max_size=8)


def page(offset: int, *rows: tuple[str, int], rank_count: int = 0, total: int = 0) -> Page:
    """A page that begins at rank 1."""
    records = tuple(Record(member, score, rank) for rank, (member, score) in enumerate(rows, 1))
    return Page(
        epoch="k3v9", offset=offset, rank_count=rank_count or len(rows), total_score=total, start=0, records=records
    )


def top(offset: int, board: dict[str, int]) -> Page:
    """A whole board as a page."""
    rows = sorted(board.items(), key=lambda item: (-item[1], item[0].encode()))
    return page(offset, *rows, total=sum(board.values()))


def test_a_sync_has_the_documented_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields are in the documented order, and numbers are digits."""
    monkeypatch.setattr(frames, "time", SimpleNamespace(time=lambda: 1_795_348_800.5))
    frame = sync_frame(BOARD, page(41, ("p1", 77), rank_count=9312, total=88410), 50)
    assert (frame.type, frame.payload) == (
        "sync",
        (
            b'{"type":"sync","board":"posts","epoch":"k3v9","offset":41,"rank_count":9312,"total_score":88410,'
            b'"recovered":false,"records":[{"key":"p1","score":77,"rank":1}],'
            b'"time":"2026-11-22T12:00:00.500Z","definition":"%s"}' % BOARD.definition_tag.encode()
        ),
    )


def test_an_update_for_a_returning_viewer_has_the_facts() -> None:
    """The viewer may have missed a change of the definition."""
    board = replace(BOARD, votes=Votes(closes=datetime_of(1_795_348_800_000)))
    update = msgspec.json.decode(update_frame(page(1), page(2), 5, returning=board).payload)
    assert (update["recovered"], update["closes"]) == (True, "2026-11-22T12:00:00.000Z")
    assert update["final_at"] == "2026-11-22T12:00:05.000Z"
    assert update["definition"] == board.definition_tag != BOARD.definition_tag
    assert update.keys() >= {"time"}


def test_an_update_has_the_documented_form() -> None:
    """An update contains the changes since its `since` offset."""
    old = page(41, ("a", 100), ("b", 90), ("p31", 80), rank_count=9312, total=88410)
    new = page(57, ("a", 100), ("b", 90), ("p9", 81), rank_count=9313, total=88426)
    frame = update_frame(old, new, 3)
    assert (frame.type, frame.payload) == (
        "update",
        (
            b'{"type":"update","epoch":"k3v9","since":41,"offset":57,"rank_count":9313,"total_score":88426,'
            b'"changed":[{"key":"p9","score":81,"rank":3}],"removed":["p31"]}'
        ),
    )


def test_a_status_has_the_documented_form() -> None:
    """A status has a reason while the board is stale, and none when the board is live again."""
    assert status_frame("store unreachable").payload == b'{"type":"status","stale":true,"reason":"store unreachable"}'
    assert status_frame(None).payload == b'{"type":"status","stale":false}'
    assert status_frame(None).type == "status"


def test_a_sync_has_at_most_its_size() -> None:
    """A page may have more records than the viewer watches; the counts are still those of the board."""
    message = msgspec.json.decode(sync_frame(BOARD, page(1, ("a", 3), ("b", 2), ("c", 1)), 2).payload)
    assert [record["key"] for record in message["records"]] == ["a", "b"]
    assert message["rank_count"] == 3


def test_an_update_has_at_most_its_size() -> None:
    """Changes below the watched top are not sent; records that leave the top are removed."""
    old, new = page(1, ("a", 3), ("b", 2), ("c", 1)), page(2, ("a", 3), ("d", 3), ("b", 2), ("c", 2))
    message = msgspec.json.decode(update_frame(old, new, 2).payload)
    assert (message["changed"], message["removed"]) == ([{"key": "d", "score": 3, "rank": 2}], ["b"])


@pytest.mark.parametrize("member", ['"', "\\", "</script>", "\u2028", "é", "😀", "\u00a0", "'"])
def test_any_member_can_be_sent(member: str) -> None:
    """A viewer receives each member as the board has it, whatever its characters."""
    viewer = ModelViewer()
    viewer.receive(sync_frame(BOARD, page(1, (member, 1)), 5).payload)
    assert viewer.records == [Record(member, 1, 1)]


@pytest.mark.slow
@given(st.lists(scores, min_size=1, max_size=5), st.integers(1, 9))
def test_a_viewer_that_applies_every_message_holds_the_top(boards: list[dict[str, int]], size: int) -> None:
    """The property covers any sequence of boards of any size, with scores up to the limits."""
    pages = [top(offset, board) for offset, board in enumerate(boards)]
    viewer = ModelViewer()
    viewer.receive(sync_frame(BOARD, pages[0], size).payload)
    for old, new in pairwise(pages):
        viewer.receive(update_frame(old, new, size).payload)
    last = pages[-1]
    assert viewer.records == list(last.records[:size])
    assert (viewer.offset, viewer.rank_count, viewer.total_score) == (last.offset, last.rank_count, last.total_score)


def test_messages_contain_the_period_and_the_kind_of_ranks() -> None:
    """The period is in both messages. The kind of ranks is only in a sync, and only if ranks can be shared."""
    week = replace(page(1, ("a", 3)), period="2026-W47", total_score=None)
    sync = msgspec.json.decode(sync_frame(replace(BOARD, ranks="dense"), week, 5).payload)
    assert (sync["period"], sync["ranks"], sync["total_score"]) == ("2026-W47", "dense", None)
    update = msgspec.json.decode(update_frame(week, replace(week, offset=2, period="2026-W48"), 5).payload)
    assert (update["period"], "ranks" in update) == ("2026-W48", False)


def test_the_end_of_a_period_empties_the_top() -> None:
    """The first frame of a new period removes the records of the old one."""
    old = replace(page(1, ("a", 3), ("b", 1)), period="2026-W47")
    new = replace(page(2), period="2026-W48")
    message = msgspec.json.decode(update_frame(old, new, 5).payload)
    assert (message["removed"], message["changed"], message["rank_count"]) == (["a", "b"], [], 0)


rankings = st.lists(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3)), max_size=8, unique_by=lambda row: row[0]),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@given(rankings, st.integers(1, 9), st.sampled_from(get_args(Ranks)))
def test_a_viewer_holds_the_top_in_each_kind_of_ranks(
    boards: list[list[tuple[str, int]]], size: int, ranks: Ranks
) -> None:
    """Equal scores may come in any order, which may change between messages."""
    pages = []
    for offset, rows in enumerate(boards):
        made = page(offset, *sorted(rows, key=lambda row: -row[1]))
        pages.append(replace(made, records=tuple(with_ranks(made.records, ranks))))
    viewer = ModelViewer()
    viewer.receive(sync_frame(replace(BOARD, ranks=ranks), pages[0], size).payload)
    for old, new in pairwise(pages):
        viewer.receive(update_frame(old, new, size).payload)
    assert viewer.records == list(pages[-1].records[:size])


def test_a_websocket_frame_says_its_size_in_few_bytes() -> None:
    """The size takes one, three or nine bytes (RFC 6455, section 5.2)."""
    heads = {125: "817d", 126: "817e007e", 65_535: "817effff", 65_536: "817f0000000000010000"}
    for size, head in heads.items():
        assert Frame("sync", b"x" * size).wire == bytes.fromhex(head) + b"x" * size


def test_only_long_messages_are_compressed() -> None:
    """A short message would hardly become shorter."""
    for size, is_compressed in ((127, False), (128, True)):
        frame = Frame("sync", b"x" * size)
        assert (frame.message.after(()) is not frame.wire) is is_compressed
