"""`live void` leaves a board as if some events had never been sent."""

import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import live.maintenance.void
from live.domain.board import Board, Boards
from live.domain.board_file import BoardChoice, VotesChoice, make_board
from live.domain.event import Entry, Extra, Identities, IncomingEvent, make_entry
from live.domain.producer import LIKES
from live.domain.window import WindowChoice
from live.maintenance.contributions import Voided
from live.maintenance.void import Criteria, Outcome, Voiding
from live.store.board.journal_stream import read_entries
from live.store.board.ledger import Ledger
from live.store.board.write.slot_assignment import Senders
from tests.harness.folded import data_of
from tests.harness.journaled import Journaled, journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.settings import fresh_settings
from tests.harness.waiting import until_early

HOUR = 3_600_000
Sent = tuple[str, str, int, int | None, str]
"""A producer, a member, an amount, a time and an actor."""


def board_of(kind: str, **choices: Any) -> Board:
    """A board whose ranking depends only on scores and names."""
    windows: dict[str, Any] = {
        "rolling": WindowChoice(rolling="4h", slot="1h"),
        "sliding": WindowChoice(sliding="4h"),
        "day": WindowChoice(calendar="day", keep=3, grace="30d"),
        "days": WindowChoice(calendar="day", last=3),
        "forever": "forever",
        "contest": "forever",
    }
    if kind == "contest":
        choices["votes"] = VotesChoice(registered=False)
    return make_board(BoardChoice(id="posts", ties="key", window=windows[kind], **choices))


def random_batches(kind: str, seed: int) -> list[list[Sent]]:
    """Make batches of events of three producers, now and in earlier slots. Producers take back only their own votes."""
    dice, now = random.Random(seed), time.time_ns() // 1_000_000
    cast: dict[tuple[str, str, str], int] = {}
    batches = []
    for _ in range(12):
        batch = []
        for _ in range(dice.randint(1, 12)):
            producer, member = dice.choice(["ann", "ann", "bob", ""]), dice.choice("abcde")
            actor, amount = f"{producer}-{dice.choice('xyz')}", dice.choice([1, 1, 2, -1, 5])
            if kind == "contest":
                amount = -1 if cast.get((producer, member, actor), 0) and dice.random() < 0.4 else 1
                cast[producer, member, actor] = cast.get((producer, member, actor), 0) + amount
            at = None if kind in ("forever", "contest") or dice.random() < 0.5 else now - dice.randint(0, 3) * HOUR
            batch.append((producer, member, amount, at, actor))
        batches.append(batch)
    return batches


def entries_of(kind: str, batch: Sequence[Sent]) -> tuple[list[Entry], Senders]:
    """A batch in the form that a committer sends."""
    entries = [
        make_entry(member, amount, at, None, Extra(actor) if kind == "contest" else None)
        for _, member, amount, at, actor in batch
    ]
    return entries, [(producer, 1) for producer, *_ in batch]


async def count(ledger: Ledger, kind: str, batch: Sequence[Sent]) -> None:
    """Count a whole batch."""
    if batch:
        assert not (await ledger.writer.add(*entries_of(kind, batch))).refused


async def void(board: Journaled, **criteria: Any) -> Outcome:
    """Void all events that match the criteria; with `since`, only later events."""
    dry = criteria.pop("dry", False)
    work = Voiding(board.client, board.settings, Boards([board.board]), board.databases[0], lambda *_: None)
    (outcome,) = await work.void(Criteria(**{"since": 0, **criteria}), None, dry=dry)
    return outcome


async def state_of(ledger: Ledger) -> dict[str, object]:
    """Scores and votes in the store, without the log of a sliding window, which keeps events that cancel out."""
    found = await data_of(ledger.state.client, ledger.state.keys)
    return {
        name: held
        for name, held in found.items()
        if name.partition(":")[0] not in ("seen", "log", "taken", "slots", "latest")
    }


@asynccontextmanager
async def counted(store: str, folder: Path, kind: str, seed: int) -> AsyncIterator[tuple[Journaled, Ledger]]:
    """Make a board with events of three producers, and another board without the events of `ann`."""
    await until_early("hour")  # both boards count events without a time in the same slots
    async with journaled(store, folder, board_of(kind)) as board:
        settings = fresh_settings(store)
        without = Ledger(board.client, board.board, settings)
        drainer = await board.drainer()
        dice = random.Random(seed)
        for batch in random_batches(kind, seed):
            await count(board.ledger, kind, batch)
            await count(without, kind, [event for event in batch if event[0] != "ann"])
            if dice.random() < 0.3:
                await drainer.sweep()
        yield board, without


async def same(board: Journaled, without: Ledger) -> None:
    """Check that both boards hold the same, and SQL too."""
    contest = board.board.votes is not None
    held, wanted = await state_of(board.ledger), await state_of(without)
    if contest:  # each board makes digests of voters with its own secret
        for found in (held, wanted):
            found["votes"] = sorted(found.get("votes", {}).values())  # type: ignore[attr-defined]
    assert held == wanted
    await (await board.drainer()).sweep()
    assert await board.rows_in_sql() == await board.rows()


@pytest.mark.parametrize("moved", [0, 1])
async def test_entries_that_move_to_sql_meanwhile_are_voided(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    """The command reads SQL, and then the store. In between, the drainer may move what the command has not read."""
    async with journaled(valkey_url, tmp_path, board_of("rolling")) as board:
        drainer = await board.drainer()
        for number in range(2):
            if number == moved:
                await drainer.sweep()
            await count(board.ledger, "rolling", [("ann", "a", 5, None, "")])

        async def move_first(*arguments: Any) -> Any:
            await drainer.sweep()
            return await read_entries(*arguments)

        monkeypatch.setattr("live.maintenance.contributions.read_entries", move_first)
        assert (await void(board, producer="ann")).amount == 10


KINDS = ["rolling", "sliding", "day", "days", "forever", "contest"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
async def test_voiding_a_producer_equals_a_count_without_it(
    valkey_url: str, tmp_path: Path, kind: str, seed: int
) -> None:
    """Repeating the command changes nothing, even if the store has forgotten which batches were voided."""
    async with counted(valkey_url, tmp_path, kind, seed) as (board, without):
        dry = await void(board, producer="ann", dry=True)
        outcome = await void(board, producer="ann")
        assert (outcome.fault, outcome.notes) == ("", [])
        assert (dry.batches, dry.amount) == (outcome.batches, outcome.amount)
        await same(board, without)
        await repeat(board)
        await same(board, without)


async def test_ties_continue_as_the_journal_says(valkey_url: str, tmp_path: Path) -> None:
    """Members that reach a score with the same void have the same order in the store and in the journal."""
    board_by_time = make_board(BoardChoice(id="posts", ties="first", window="forever"))
    async with journaled(valkey_url, tmp_path, board_by_time) as board:
        await board.drainer()
        await count(board.ledger, "forever", [("ann", member, 1, None, "") for member in "edcbafg"])
        await count(board.ledger, "forever", [("bob", member, 1, None, "") for member in "gfabcde"])
        await void(board, producer="ann")
        await (await board.drainer()).sweep()
        assert [score for _, score in await board.rows()] == [1] * 7
        assert await board.rows_in_sql() == await board.rows()


async def test_a_member_keeps_its_record_when_several_slots_change(valkey_url: str, tmp_path: Path) -> None:
    """In each slot of the batch, the member has the same place among ties."""
    board_of_hours = make_board(BoardChoice(id="posts", ties="first", window=WindowChoice(rolling="4h", slot="1h")))
    async with journaled(valkey_url, tmp_path, board_of_hours) as board:
        await (await board.drainer()).claim()
        an_hour_ago = int(await _now(board)) - 3_600_000
        for producer, times in (("ann", (None, an_hour_ago)), ("bob", (None,))):
            entries = [make_entry("a", 1, time, None) for time in times]
            assert not (await board.ledger.writer.add(entries, [(producer, len(entries))])).refused
        await void(board, producer="ann")
        assert await board.rows() == [("a", 1)]


async def repeat(board: Journaled) -> None:
    """Void again after the store has forgotten all identities."""
    for name in [name async for name in board.client.names(board.ledger.state.keys.seen_pattern)]:
        await board.client.delete(name)
    again = await void(board, producer="ann")
    assert again.batches == 0, "a second void finds batches"


async def test_a_void_that_forgets_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant does not read in the journal what was voided before."""
    async with counted(valkey_url, tmp_path, "rolling", 0) as (board, _):
        await void(board, producer="ann")
        with must_be_caught("a second void takes the same events back"), replaced(Voided, "read", lambda *_: None):
            await repeat(board)


class KilledError(Exception):
    """The command is killed here."""


@pytest.mark.parametrize("kind", ["rolling", "contest"])
async def test_an_interrupted_void_continues(
    valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Wherever the command is killed, each batch is taken back once."""
    monkeypatch.setattr(live.maintenance.void, "_MOST_CONTRIBUTIONS", 1)

    async with counted(valkey_url, tmp_path, kind, 5) as (board, without):
        for batches in (1, 3):

            def die(_board: str, done: int, _total: int, most: int = batches) -> None:
                if done >= most:
                    raise KilledError

            work = Voiding(board.client, board.settings, Boards([board.board]), board.databases[0], die)
            with pytest.raises(KilledError):
                await work.void(Criteria(producer="ann", since=0), None, dry=False)
        await void(board, producer="ann")
        await same(board, without)


async def test_the_time_limits_what_is_voided(valkey_url: str, tmp_path: Path) -> None:
    """`since` and `until` are compared with the time at which events counted.

    Voids of overlapping periods take nothing back twice.
    """
    async with journaled(valkey_url, tmp_path, board_of("forever")) as board:
        await board.drainer()
        times = []
        for amount in (1, 10, 100):
            times.append(int(await _now(board)))
            await count(board.ledger, "forever", [("ann", "a", amount, None, "")])
        await void(board, producer="ann", since=times[1], until=times[2])
        assert await board.rows() == [("a", 101)]
        await void(board, producer="ann", since=times[1])
        assert await board.rows() == [("a", 1)]
        await void(board, producer="ann", since=times[2])
        assert await board.rows() == [("a", 1)]
        await void(board, producer="ann")
        assert await board.rows() == []


async def _now(board: Journaled) -> float:
    """Return the store's time in milliseconds, once it is later than at the call."""
    seconds, micros = await board.client.time()
    start = seconds * 1000 + micros // 1000
    now = start
    while now <= start:
        seconds, micros = await board.client.time()
        now = seconds * 1000 + micros // 1000
    return now


async def test_voiding_an_actor_takes_back_its_votes(valkey_url: str, tmp_path: Path) -> None:
    """Votes of other actors stay. Voiding the actor's producer afterwards takes back nothing twice."""
    async with journaled(valkey_url, tmp_path, board_of("contest")) as board:
        await board.drainer()
        await count(
            board.ledger,
            "contest",
            [("ann", "a", 1, None, "eve"), ("ann", "a", 1, None, "joe"), ("bob", "b", 2, None, "eve")],
        )
        await count(board.ledger, "contest", [("bob", "b", -1, None, "eve")])
        assert (await void(board, actor="eve")).votes == 2
        assert await board.rows() == [("a", 1)]
        await void(board, actor="eve")
        await void(board, producer="bob")
        assert await board.rows() == [("a", 1)]
        await void(board, producer="ann")
        assert await board.rows() == []
        await void(board, actor="joe")
        assert await state_of(board.ledger) == {"totals": {}}


def like_of(member: str, visitor: str) -> Entry:
    """A like in the form that the pages send."""
    event = IncomingEvent(key=member, source=visitor, actor=visitor, id=f"\n{member}")
    return make_entry(member, 1, None, Identities(LIKES).of(event), Extra(visitor))


@pytest.mark.parametrize("kind", ["rolling", "sliding"])
async def test_voiding_a_visitor_takes_back_its_likes(valkey_url: str, tmp_path: Path, kind: str) -> None:
    """The likes of one visitor and the likes of all may be voided in any order; each like is taken back once."""
    for visitor_first in (True, False):
        async with journaled(valkey_url, tmp_path, board_of(kind, like_button=True)) as board:
            await board.drainer()
            batch = [like_of("a", "v1"), like_of("a", "v2"), like_of("b", "v1"), make_entry("a", 7)]
            await board.ledger.writer.add(batch, [(LIKES, 3), ("ann", 1)])
            wanted = {True: [("a", 8)], False: [("a", 7)]}[visitor_first]
            await void(board, **({"actor": "v1"} if visitor_first else {"producer": LIKES}))
            assert await board.rows() == wanted
            await void(board, **({"producer": LIKES} if visitor_first else {"actor": "v1"}))
            assert await board.rows() == [("a", 7)]


async def test_contributions_that_cannot_be_voided_are_reported(valkey_url: str, tmp_path: Path) -> None:
    """A board is reported if it keeps only one amount of each member, has no actors or is frozen."""
    best = make_board(BoardChoice(id="posts", operator="best", window="forever"))
    async with journaled(valkey_url, tmp_path, best) as board:
        await board.drainer()
        await count(board.ledger, "best", [("ann", "a", 1, None, "")])
        assert "one amount" in (await void(board, producer="ann")).fault
        assert (await void(board, producer="bob")).fault == ""
        assert "actors" in (await void(board, actor="eve")).notes[0]
    async with journaled(valkey_url, tmp_path) as board:
        await board.drainer()
        await count(board.ledger, "rolling", [("ann", "a", 1, None, "")])
        await board.client.hset(board.ledger.state.keys.meta, "frozen", 1)
        assert "frozen" in (await void(board, producer="ann")).fault


async def test_voiding_a_change_gives_the_old_vote_back(valkey_url: str, tmp_path: Path) -> None:
    """The voter has one vote. Its old vote was sent by another producer, and counts again."""
    rules = VotesChoice(per_key=1, per_actor=1)
    board_ = make_board(BoardChoice(id="posts", ties="key", window="forever", votes=rules))
    async with journaled(valkey_url, tmp_path, board_) as board:
        drainer = await board.drainer()
        given = make_entry("Ada", extra=Extra("me"))
        changed = make_entry("Bob", extra=Extra("me", replaces="Ada"))
        for producer, entry in (("ann", given), ("bob", changed)):
            assert not (await board.ledger.writer.add([entry], [(producer, 1)])).refused
        assert await board.rows() == [("Bob", 1)]
        await void(board, producer="bob")
        assert await board.rows() == [("Ada", 1)]
        refused = (await board.ledger.writer.add([given])).refused
        assert refused == {0: "quota_exceeded"}, "the voter has more than one vote"
        await drainer.sweep()
        assert await board.rows_in_sql() == [("Ada", 1)]
