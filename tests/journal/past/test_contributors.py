"""Who contributed to members, as administrators see it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from live.domain.board_file import parse_boards
from live.domain.event import Extra, make_entry
from live.journal.log.entries import REPLACED
from live.journal.past.contributors import latest_events, senders_of
from live.store.board.batch import decode_batch
from tests.harness.timeline import HOUR, timeline


def senders(place: int, producers: list[str], group: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The producers and actors who contributed to the member at an index."""
    rules = {"operation": "incr", "order": "backward"}
    group = {"start": 0, "suffix": "", "members": ["x", "y"], **group}
    encoded = {"rules": rules, "span": 60, "reached": 0, "groups": [group], "producers": producers}
    batch = decode_batch(msgspec.msgpack.encode(encoded))
    return senders_of(batch, batch.groups[0], place)


@pytest.mark.parametrize(
    ("producers", "shares", "found"),
    [
        ([], [], []),
        ([""], [], []),
        (["a"], [], ["a"]),
        (["a", "b"], [(0, 3, 0), (1, 4, 0), (0, 2, 1)], ["a", "b"]),
        (["a", "b", "c"], [(1, 4, 2), (0, 2, 1), (0, 3, 0)], ["a", "b"]),
        (["a", "b", "c"], [(1, 3, 1), (0, 1, 1), (0, 4, 2), (1, 1, 0)], ["b", "c"]),
        (["a", "b"], [(0, 3, 0), (0, -3, 0), (0, 5, 1)], ["b"]),
    ],
)
def test_each_producer_added_its_events(
    producers: list[str], shares: list[tuple[int, int, int]], found: list[str]
) -> None:
    """The journal has the producer of each event if the batch has several.

    The only producer of a gain is named even if the gain is 0.
    """
    events = dict(zip(("members", "amounts", "producers"), map(list, zip(*shares, strict=True)), strict=False))
    assert senders(0, producers, {"amounts": [5, 4], "events": events}) == (found, [])
    assert senders(0, ["a"], {"amounts": [0, 4]}) == (["a"], [])


def test_the_actor_of_a_vote_is_a_part_of_a_digest() -> None:
    """An actor who was erased later has no digest."""
    one, other, gone = "1" * 16, "2" * 16, REPLACED.decode() + "3" * 12
    votes = {"actors": [one, other, gone], "pairs": [one] * 3, "changes": [1, 2, 4], "members": [0, 1, 0]}
    sent = {"amounts": [5, 2], "votes": votes, "events": {"producers": [1, 0, 0]}}
    assert senders(0, ["a", "b"], sent) == (["b", "a"], ["31313131"])
    assert senders(1, ["a"], {"amounts": [5, 2], "votes": votes}) == (["a"], ["32323232"])


async def test_the_newest_events_name_their_producers_and_actors(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest batch comes first. An actor is a part of a digest. A board that the journal does not know has none."""
    boards = """
        [[board]]
        id = "posts"
        window = "forever"
        votes = { per_key = 9 }
    """
    (board,) = parse_boards(boards)
    async with timeline(valkey_url, tmp_path, board) as line:
        drainer = await line.drainer()
        for producer, votes in (
            ("shop", [("ann", 6, "x"), ("bob", 5, "y")]),
            ("web", [("ann", 4, "y"), ("bob", 5, "x")]),
        ):
            entries = [make_entry(*vote[:2], None, None, Extra(vote[2])) for vote in votes]
            await line.ledger.writer.add(entries, [(producer, len(entries))])
            await line.go(HOUR)
        await drainer.sweep()
        newest = await line.databases[0].run(latest_events, ["posts"])
        assert await line.databases[0].run(latest_events, ["gone"]) == []
        monkeypatch.setattr("live.journal.past.contributors._MOST", 2)
        assert await line.databases[0].run(latest_events, ["posts"]) == newest[:2]
    assert [(event.member, event.amount, event.producers) for event in newest] == [
        ("ann", 4, ["web"]), ("bob", 5, ["web"]), ("ann", 6, ["shop"]), ("bob", 5, ["shop"])
    ]  # fmt: skip
    assert [event.actors for event in newest[:2]] == [event.actors for event in newest[:1:-1]]
    assert len({name for event in newest for name in event.actors}) == 2
