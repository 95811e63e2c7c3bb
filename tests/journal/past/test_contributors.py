"""Who contributed to members, as administrators see it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from live.domain.board_file import parse_boards
from live.domain.event import Extra, make_entry
from live.journal.erasures import Erasures, hidden
from live.journal.log.entries import Add, Head
from live.journal.past.contributors import (
    Contributed,
    UnusualList,
    _largest,
    _tallies,
    find_unusual,
    latest_events,
    parts_of,
)
from live.journal.past.queries import NoPastError
from tests.harness.timeline import BEGIN, HOUR, board_of, timeline

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


def test_the_largest_share_is_of_somebody_who_is_known() -> None:
    """The share is at most the whole gain."""
    tally = {("actor", ""): 100, ("actor", "x"): 6, ("actor", "y"): 5, ("producer", "p"): -3}
    assert _largest(tally, "actor", 10) == ("x", 0.6)
    assert _largest(tally, "actor", 4) == ("x", 1.0)
    assert _largest(tally, "producer", 10) == ("p", 0.0)
    assert _largest({}, "actor", 10) == ("", 0.0)


async def test_a_gain_is_unusual_that_doubles_a_score_or_comes_from_one_producer(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gain is at least ten points. It doubles the score, or more than half of it is from one of several producers.

    Only the first members and the newest events are named. A board that the journal no longer knows has no past.
    """
    async with timeline(valkey_url, tmp_path, board_of("forever")) as line:
        drainer = await line.drainer()
        members = ("few", "many", "twice", "new", "shared", "hidden")

        async def count(producer: str, *amounts: int) -> None:
            entries = [make_entry(member, amount) for member, amount in zip(members, amounts, strict=True)]
            await line.ledger.writer.add(entries, [(producer, len(entries))])

        await count("shop", 10, 11, 10, 0, 100, 1)
        await line.go(HOUR)
        since = line.now
        await count("shop", 5, 6, 5, 6, 5, 50)
        await count("web", 4, 4, 5, 4, 5, 50)
        await line.go(HOUR)
        until = line.now
        await count("web", 100, 100, 100, 100, 100, 100)
        await drainer.sweep()
        found = find_unusual(line.settings, line.board, frozenset({"hidden"}), since, until)
        begun = find_unusual(line.settings, line.board, frozenset(), BEGIN * 1000, since)
        newest = latest_events(line.settings, ["posts"])
        gone = msgspec.structs.replace(line.board, id="gone")
        with pytest.raises(NoPastError):
            await line.read(lambda sql, _: _tallies(sql, line.settings.key_prefix, gone, (since, until)))
        assert latest_events(line.settings, ["gone"]) == []
        monkeypatch.setattr("live.journal.past.contributors._MOST", 2)
        assert latest_events(line.settings, ["posts"]) == newest[:2]
        fewer = find_unusual(line.settings, line.board, frozenset({"hidden"}), since, until)
        assert fewer.members == found.members[:2]
        monkeypatch.setattr("live.journal.past.contributors._MOST_BATCHES", 0)
        assert find_unusual(line.settings, line.board, frozenset({"hidden"}), since, until) == UnusualList(
            [msgspec.structs.replace(found.members[1], producer="", producer_share=0.0)], is_whole=False
        ), "a producer is named although no batch may be searched"
    assert begun == UnusualList([], is_whole=True), "events of a single producer count as unusual"
    assert found.is_whole
    assert [(row.key, row.before, row.after, row.reasons, row.producer) for row in found.members] == [
        ("many", 11, 21, ["producer"], "shop"),
        ("twice", 10, 20, ["doubled"], "web"),
        ("new", 0, 10, ["producer"], "shop"),
    ]
    assert [row.producer_share for row in found.members] == [0.6, 0.5, 0.6]
    assert [(event.key, event.amount, event.producers) for event in newest[5:8]] == [
        ("hidden", 100, ["web"]), ("few", 4, ["web"]), ("many", 4, ["web"])
    ]  # fmt: skip


async def test_a_gain_is_unusual_if_more_than_half_of_it_comes_from_one_actor(valkey_url: str, tmp_path: Path) -> None:
    """The journal names the actor by a part of a digest."""
    (board,) = parse_boards('[[board]]\nid = "posts"\nwindow = "forever"\nvotes = { per_key = 9 }')
    async with timeline(valkey_url, tmp_path, board) as line:
        drainer = await line.drainer()
        votes = (("ann", 6, "x"), ("ann", 4, "y"), ("bob", 5, "x"), ("bob", 5, "y"))
        since = line.now
        await line.ledger.writer.add([make_entry(*vote[:2], None, None, Extra(vote[2])) for vote in votes])
        await line.go(HOUR)
        await drainer.sweep()
        found = find_unusual(line.settings, board, frozenset(), since, line.now)
        actors = {name for event in latest_events(line.settings, ["posts"]) for name in event.actors}
    assert [(row.key, row.reasons, row.actor_share) for row in found.members] == [("ann", ["actor"], 0.6)]
    assert len(actors) == 2
    assert found.members[0].actor in actors
