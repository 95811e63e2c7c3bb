"""Who contributed to members, as administrators see it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from live.domain.board_file import parse_boards
from live.domain.event import Extra, make_entry
from live.journal.erasures import Erasures, hidden
from live.journal.log.entries import Add, Head
from live.journal.past.contributors import Contributed, latest_events, parts_of
from tests.harness.timeline import HOUR, timeline

NOBODY = Erasures(b"", {})


def parts(place: int, producers: list[str], group: dict[str, Any], erased: Erasures = NOBODY) -> list[Contributed]:
    """The contributions to the member at an index."""
    rules = {"operation": "incr", "order": "backward"}
    group = {"start": 0, "suffix": "", "members": ["x", "y"], **group}
    encoded = {"rules": rules, "span": 60, "reached": 0, "groups": [group], "producers": producers}
    batch = msgspec.msgpack.decode(msgspec.msgpack.encode(encoded), type=Add)
    return parts_of(Head("add", 0, "1-0", 9, "", ""), batch, batch.groups[0], place, erased)


@pytest.mark.parametrize(
    ("producers", "shares", "found"),
    [
        ([], [], [("", 5)]),
        (["a"], [], [("a", 5)]),
        (["a", "b"], [[1, [0, 2]]], [("a", 3), ("b", 2)]),
        (["a", "b", "c"], [[1, [0, 2]], [2, [1, 4]]], [("a", 3), ("b", 2)]),
        (["a", "b", "c"], [[2, [0, 4]], [1, [1, 3, 0, 1]]], [("b", 1), ("c", 4)]),
    ],
)
def test_the_first_producer_added_what_no_other_one_did(
    producers: list[str], shares: list[Any], found: list[tuple[str, int]]
) -> None:
    """The journal keeps the shares of the other producers.

    The only producer of a gain is named even if the gain is 0.
    """
    expected = [Contributed(name, "", amount) for name, amount in found]
    assert parts(0, producers, {"amounts": [5, 4], "parts": shares}) == expected
    assert parts(0, ["a"], {"amounts": [0, 4]}) == [Contributed("a", "", 0)]


def test_the_actor_of_a_vote_is_a_part_of_a_digest() -> None:
    """An actor who was erased later has no digest."""
    one, other = "1" * 16, "2" * 16
    votes = {"actors": [one, other, other], "pairs": [one] * 3, "changes": [1, 2, 4], "members": [0, 1, 0]}
    erased = Erasures(b"key", {hidden(b"key", other.encode()): 10})
    sent = {"amounts": [5, 2], "votes": votes | {"producers": [1, 0, 0]}}
    assert parts(0, ["a", "b"], sent, erased) == [Contributed("b", "31313131", 1), Contributed("a", "", 4)]
    assert parts(1, ["a"], {"amounts": [5, 2], "votes": votes}) == [Contributed("a", "32323232", 2)]


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
        newest = latest_events(line.settings, ["posts"])
        assert latest_events(line.settings, ["gone"]) == []
        monkeypatch.setattr("live.journal.past.contributors._MOST", 2)
        assert latest_events(line.settings, ["posts"]) == newest[:2]
    assert [(event.key, event.amount, event.producers) for event in newest] == [
        ("ann", 4, ["web"]), ("bob", 5, ["web"]), ("ann", 6, ["shop"]), ("bob", 5, ["shop"])
    ]  # fmt: skip
    assert [event.actors for event in newest[:2]] == [event.actors for event in newest[:1:-1]]
    assert len({name for event in newest for name in event.actors}) == 2
