"""`live void` leaves a board as if some events had never been sent."""

import asyncio
import gzip
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from sqlalchemy import Connection

from live.domain.board import Board
from live.domain.board_file import make_board
from live.domain.choices import Choices, Votes
from live.domain.event import Entry, Extra, Identities, IncomingEvent, make_entry
from live.domain.producer import LIKES
from live.domain.ranking import Page
from live.domain.window import WindowChoice
from live.journal.log.reader import before, contents_at, newest_segment
from live.journal.log.timelines import Timeline, find_timeline
from live.journal.state.ranking import scores_at
from live.journal.state.taken import Taken
from live.journal.upkeep import checkpoints
from live.journal.upkeep.compactor import forget_entries
from live.maintenance.erase import Erasing
from live.maintenance.void import Criteria, Outcome, VoidedScore, Voiding
from live.store.board.journal_stream import begin_journal, read_entries
from live.store.board.ledger import Ledger
from live.store.board.write.slot_assignment import Senders
from tests.harness.compared import compared
from tests.harness.folded import data_of
from tests.harness.journaled import Journaled, journaled, twin_of
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.real_input import REAL_INPUT, load
from tests.harness.waiting import eventually, until_early
from tests.maintenance.test_swap import MOVING, busy, is_whole

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
        "best": WindowChoice(calendar="day", keep=3, grace="30d"),
        "set": "forever",
        "capped": "forever",
        "clock": WindowChoice(rolling="4h", slot="1h"),
        "zeros": WindowChoice(calendar="day", last=3),
        "first": WindowChoice(rolling="4h", slot="1h"),
        "last": "forever",
    }
    if kind in ("best", "set"):
        choices["operator"] = kind
    if kind == "capped":
        choices |= {"operator": "best", "cap": 3}
    if kind == "clock":
        choices["clock"] = "event"
    choices["zeros"] = kind == "zeros"
    choices["ties"] = kind if kind in ("first", "last") else "key"
    if kind == "last":
        choices["operator"] = "best"
    if kind == "contest":
        choices["votes"] = Votes(registered=False)
    return make_board(Choices(id="posts", window_choice=windows[kind], **choices))


def windows_end(kind: str) -> bool:
    """Whether a board of this kind has one slot for all times."""
    return kind in ("forever", "contest", "set", "capped", "last")


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
            arrives = windows_end(kind) or (kind != "clock" and dice.random() < 0.5)
            at = None if arrives else now - dice.randint(0, 3) * HOUR
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
    work = Voiding(board.client, board.settings, board.databases[0], lambda *_: None)
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


def _records(page: Page) -> list[tuple[str, int]]:
    return [(record.member, record.score) for record in page.records]


@asynccontextmanager
async def counted(store: str, folder: Path, kind: str, seed: int) -> AsyncIterator[tuple[Journaled, Ledger]]:
    """Make a board with events of three producers, and another board without the events of `ann`."""
    await until_early("hour")  # both boards count events without a time in the same slots
    async with journaled(store, folder, board_of(kind)) as board, twin_of(store, board.board) as without:
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
    if board.board.ties != "key":  # tags have the numbers of batches, and one board has fewer batches
        assert _records(await board.ledger.reader.read(9)) == _records(await without.reader.read(9))
        for found in (held, wanted):
            for name in [name for name in found if name.partition(":")[0] in ("ranking", "reached")]:
                del found[name]
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

        monkeypatch.setattr("live.maintenance.trail.read_entries", move_first)
        assert (await void(board, producer="ann")).events == 2
        assert await board.rows() == []


KINDS = [
    "rolling",
    "sliding",
    "day",
    "days",
    "forever",
    "contest",
    "best",
    "set",
    "capped",
    "clock",
    "zeros",
    "first",
    "last",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
async def test_voiding_a_producer_equals_a_count_without_it(
    valkey_url: str, tmp_path: Path, kind: str, seed: int
) -> None:
    """Repeating the command changes nothing."""
    async with counted(valkey_url, tmp_path, kind, seed) as (board, without):
        dry = await void(board, producer="ann", dry=True)
        outcome = await void(board, producer="ann")
        assert (outcome.fault, outcome.notes) == ("", [])
        assert dry == outcome
        await same(board, without)
        await repeat(board)
        await same(board, without)


async def test_ties_continue_as_the_journal_says(valkey_url: str, tmp_path: Path) -> None:
    """Members that reach a score with the same void have the same order in the store and in the journal."""
    board_by_time = make_board(Choices(id="posts", ties="first", window_choice="forever"))
    async with journaled(valkey_url, tmp_path, board_by_time) as board:
        await board.drainer()
        await count(board.ledger, "forever", [("ann", member, 1, None, "") for member in "edcbafg"])
        await count(board.ledger, "forever", [("bob", member, 1, None, "") for member in "gfabcde"])
        await void(board, producer="ann")
        await (await board.drainer()).sweep()
        assert [score for _, score in await board.rows()] == [1] * 7
        assert await board.rows_in_sql() == await board.rows()


async def test_a_member_keeps_the_place_that_an_event_took_from_it(valkey_url: str, tmp_path: Path) -> None:
    """The event made its score zero, and was taken back."""
    board_by_time = make_board(Choices(id="posts", ties="first", window_choice="forever"))
    async with journaled(valkey_url, tmp_path, board_by_time) as board:
        await (await board.drainer()).claim()
        hour = int(await _now(board)) - HOUR
        for producer, member, amount, minute in (
            ("ann", "a", 5, 3), ("bob", "a", -5, 4), ("ann", "a", 1, 1), ("ann", "b", 6, 2),
        ):  # fmt: skip
            await count(board.ledger, "forever", [(producer, member, amount, hour + 60_000 * minute, "")])
        await void(board, producer="bob")
        assert await board.rows() == [("b", 6), ("a", 6)]


async def test_a_member_keeps_its_record_when_several_slots_change(valkey_url: str, tmp_path: Path) -> None:
    """In each slot of the batch, the member has the same place among ties."""
    board_of_hours = make_board(Choices(id="posts", ties="first", window_choice=WindowChoice(rolling="4h", slot="1h")))
    async with journaled(valkey_url, tmp_path, board_of_hours) as board:
        await (await board.drainer()).claim()
        an_hour_ago = int(await _now(board)) - 3_600_000
        for producer, times in (("ann", (None, an_hour_ago)), ("bob", (None,))):
            entries = [make_entry("a", 1, time, None) for time in times]
            assert not (await board.ledger.writer.add(entries, [(producer, len(entries))])).refused
        await void(board, producer="ann")
        assert await board.rows() == [("a", 1)]


async def repeat(board: Journaled) -> None:
    """Void again."""
    again = await void(board, producer="ann")
    assert again.batches == 0, "a second void finds batches"


async def test_a_void_that_forgets_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant does not read in the journal what was voided before."""
    async with counted(valkey_url, tmp_path, "rolling", 0) as (board, _):
        await void(board, producer="ann")
        with must_be_caught("a second void takes the same events back"), replaced(Taken, "takes", lambda *_: False):
            await repeat(board)


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
    event = IncomingEvent(member=member, source=visitor, actor=visitor, id=f"\n{member}")
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


async def test_events_that_cannot_be_voided_are_reported(valkey_url: str, tmp_path: Path) -> None:
    """A board that does not tell actors apart is reported. A frozen board gives events back."""
    async with journaled(valkey_url, tmp_path) as board:
        await board.drainer()
        await count(board.ledger, "rolling", [("ann", "a", 1, None, "")])
        assert "actors" in (await void(board, actor="eve")).notes[0]
        await board.client.hset(board.ledger.state.keys.meta, "frozen", 1)
        assert (await void(board, producer="ann")).fault == ""
        assert await board.rows() == []


async def test_the_second_best_returns_with_its_metadata_and_its_place(valkey_url: str, tmp_path: Path) -> None:
    """A single event is named by its id. An event that is sent again stays a duplicate, and `as_of` stays as it was."""
    best = make_board(Choices(id="posts", operator="best", window_choice="forever"))
    async with journaled(valkey_url, tmp_path, best) as board:
        drainer = await board.drainer()

        def event(member: str, amount: int, name: str) -> Entry:
            identity = Identities("ann").of(IncomingEvent(member=member, id=name))
            return make_entry(member, amount, None, identity, Extra(metadata=b'{"of":"%b"}' % name.encode()))

        for entries in (
            [event("a", 5, "first"), event("a", 3, "lower")],
            [event("b", 5, "other")],
            [event("a", 9, "cheat"), event("c", 7, "honest")],
        ):
            assert not (await board.ledger.writer.add(entries, [("ann", len(entries))])).refused
        then = await _now(board)
        assert [key for key, _ in await board.rows()] == ["a", "c", "b"]
        criteria = Criteria(identity=Identities("ann").of(IncomingEvent(member="", id="cheat")))
        work = Voiding(board.client, board.settings, board.databases[0], lambda *_: None)
        (outcome,) = await work.void(criteria, "posts", dry=False)
        assert (outcome.events, outcome.examples) == (1, [VoidedScore("a", 9, 5)])
        assert await board.rows() == [("c", 7), ("a", 5), ("b", 5)], "the first of two equal scores has its place again"
        (page,) = await board.ledger.reader.find_all(["a"], 0)
        assert page is not None
        assert page.records[0].metadata == msgspec.Raw(b'{"of":"first"}')
        await board.ledger.writer.add([event("a", 9, "cheat")], [("ann", 1)])
        assert await board.rows() == [("c", 7), ("a", 5), ("b", 5)]
        await drainer.sweep()
        assert await board.rows_in_sql() == await board.rows()
        assert [key for key, _ in await board.rows_in_sql(stop=before(round(then)))] == ["a", "c", "b"]


@pytest.mark.parametrize("window", ["forever", WindowChoice(calendar="day", keep=3)])
async def test_a_hidden_member_that_was_pushed_out_returns_to_its_place(
    valkey_url: str, tmp_path: Path, window: WindowChoice | Literal["forever"]
) -> None:
    """When it was hidden, a better record had pushed out its own. The store had no tag of it then."""
    best = make_board(Choices(id="posts", operator="best", cap=1, ties="first", window_choice=window))
    async with compared(valkey_url, tmp_path, best) as board:

        async def count(producer: str, member: str, amount: int) -> None:
            assert not (await board.ledger.writer.add([make_entry(member, amount)], [(producer, 1)])).refused

        await count("bob", "early", 5)
        await count("ann", "cheat", 9)
        await board.ledger.moderation.hide("early", hidden=True)
        await void(board, producer="ann")
        await count("bob", "late", 5)
        assert await board.rows() == [("late", 5)]
        await board.ledger.moderation.hide("early", hidden=False)
        assert await board.rows() == [("early", 5)], "it reached its score first"
        await is_whole(board)


async def test_voiding_a_change_gives_the_old_vote_back(valkey_url: str, tmp_path: Path) -> None:
    """The voter has one vote. Its old vote was sent by another producer, and counts again."""
    rules = Votes(per_key=1, per_actor=1)
    board_ = make_board(Choices(id="posts", ties="key", window_choice="forever", votes=rules))
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


async def test_a_vote_that_becomes_impossible_leaves_no_score_of_zero(valkey_url: str, tmp_path: Path) -> None:
    """Nobody has voted for the member, so it has no record, also where members with zero have one."""
    rules = Votes(per_key=1, registered=False)
    contest = make_board(Choices(id="posts", ties="first", zeros=True, window_choice="forever", votes=rules))
    async with compared(valkey_url, tmp_path, contest) as board:
        for producer, amount in (("bob", 1), ("ann", -1)):
            vote = make_entry("Ada", amount, extra=Extra("me"))
            assert not (await board.ledger.writer.add([vote], [(producer, 1)])).refused
        assert await board.rows() == [("Ada", 0)]
        await void(board, producer="bob")
        assert await board.rows() == []
        await is_whole(board)


@pytest.mark.slow
@pytest.mark.parametrize("name", MOVING)
async def test_a_busy_board_gives_events_back_exactly(valkey_url: str, tmp_path: Path, name: str) -> None:
    """Producers, administrators and rotation go on. No position has two contents, and the store equals the journal."""
    async with compared(valkey_url, tmp_path, MOVING[name], rotation_step=70, write_deadline=30.0) as board:
        async with busy(board) as traffic:
            await eventually(board.offset)
            for _ in range(3):
                await asyncio.sleep(0.2)
                await void(board, producer="ann")
        await void(board, producer="ann")
        await is_whole(board)
        for member in range(9):
            await board.ledger.moderation.hide(f"m{member}", hidden=False)
        await is_whole(board)
        if name == "ever":
            rows = {record.member: record.score for record in (await board.ledger.reader.read(100)).records}
            assert rows == {member: score for member, score in traffic.told["bob"].items() if score}
        await board.is_drained()
        assert (await void(board, producer="ann")).events == 0


@pytest.mark.slow
@pytest.mark.skipif(not REAL_INPUT.exists(), reason="the real input is not beside this checkout")
async def test_requests_of_a_visitor_are_voided(valkey_url: str, tmp_path: Path) -> None:
    """Of 10,000 real requests, those of the busiest visitors go. A plain count without them has the same scores."""
    events = load()
    visitors = [actor for actor, _ in Counter(event["actor"] for event in events).most_common(3)]
    async with journaled(valkey_url, tmp_path, board_of("contest", max_members=10_000)) as board:
        drainer = await board.drainer()
        for first in range(0, len(events), 500):
            entries = [
                make_entry(one["key"], 1, None, None, Extra(one["actor"])) for one in events[first : first + 500]
            ]
            assert not (await board.ledger.writer.add(entries, [("web", len(entries))])).refused
            if first == 5000:
                await drainer.sweep()
        for number, visitor in enumerate(visitors, 1):
            outcome = await void(board, actor=visitor)
            assert outcome.events == outcome.votes == sum(event["actor"] == visitor for event in events)
            left = Counter(event["key"] for event in events if event["actor"] not in visitors[:number])
            assert dict(await board.rows()) == dict(left)
        await drainer.sweep()
        assert await board.rows_in_sql() == await board.rows()


@pytest.mark.slow
@pytest.mark.skipif(not REAL_INPUT.exists(), reason="the real input is not beside this checkout")
async def test_the_points_of_a_country_are_voided_in_every_year(valkey_url: str, tmp_path: Path) -> None:
    """In 65 finals, the points that Sweden gave go. A plain sum without them has the same totals, zeros included."""
    with gzip.open(REAL_INPUT.with_name("eurovision-votes.ndjson.gz")) as file:
        events = [msgspec.json.decode(line) for line in file]
    window = WindowChoice(calendar="year", timezone="UTC", keep=100, grace="1d")
    finals = make_board(Choices(id="finals", clock="event", zeros=True, window_choice=window))
    totals: dict[int, Counter[str]] = {}
    async with journaled(valkey_url, tmp_path, finals) as board:
        drainer = await board.drainer()
        for _, votes in groupby(events, key=lambda event: event["time"]):
            entries, senders = [], []
            for vote in votes:
                giver, time = vote["id"].split("-")[1], round(datetime.fromisoformat(vote["time"]).timestamp())
                entries.append(make_entry(vote["key"], vote["amount"], time * 1000))
                senders.append((giver, 1))
                if giver != "SE":
                    totals.setdefault(finals.window.slot_at(time).start, Counter())[vote["key"]] += vote["amount"]
            assert not (await board.ledger.writer.add(entries, senders)).refused
        outcome = await void(board, producer="SE")
        assert outcome.events == sum(event["id"].split("-")[1] == "SE" for event in events) > 400
        await drainer.sweep()
        assert (await board.contents()).slots == totals
        held = await data_of(board.client, board.ledger.state.keys)
        for start, wanted in totals.items():
            assert held[f"slot:{start}"] == {name.encode(): b"%d" % score for name, score in wanted.items()}


def _vote(member: str, change: int, actor: str, name: str = "") -> Entry:
    """A vote, or the withdrawal of a vote, of which `name` is the id."""
    identity = Identities("ann").of(IncomingEvent(member="", id=name)) if name else None
    return make_entry(member, change, None, identity, Extra(actor))


async def _send(board: Journaled, *entries: Entry) -> None:
    assert not (await board.ledger.writer.add(list(entries), [("ann", len(entries))])).refused


async def _void_one(board: Journaled, name: str) -> Outcome:
    return await void(board, since=None, identity=Identities("ann").of(IncomingEvent(member="", id=name)))


async def _keep_checkpoint(board: Journaled) -> Timeline:
    """Make a checkpoint of what SQL has."""
    epoch = board.ledger.state.epoch or ""

    def work(connection: Connection) -> Timeline:
        timeline = find_timeline(connection, board.board.id, epoch)
        assert timeline is not None
        due = checkpoints.Due(timeline, newest_segment(connection, timeline))
        made, at = checkpoints.make(connection, due)
        checkpoints.keep(connection, due, made, at)
        return timeline

    return await board.databases[0].run(work)


async def test_the_journal_keeps_what_reading_past_a_void_needs(valkey_url: str, tmp_path: Path) -> None:
    """Retention would have deleted the entry of the first event. A second void keeps all that is older."""
    async with journaled(valkey_url, tmp_path, board_of("forever")) as board:
        drainer = await board.drainer()
        for number, (member, amount) in enumerate([("old", 1000), ("b", 5), ("c", 50), ("d", 7)]):
            identity = Identities("ann").of(IncomingEvent(member="", id=f"e{number}"))
            await _send(board, make_entry(member, amount, None, identity))
            await drainer.sweep()
            timeline = await _keep_checkpoint(board)
            if number == 1:
                then = round(await _now(board))
        await _void_one(board, "e1")
        await drainer.sweep()
        await _keep_checkpoint(board)
        await board.databases[0].run(partial(forget_entries, timeline=timeline, before=then * 1000))
        assert await board.rows_in_sql(stop=before(then)) == [("old", 1000), ("b", 5)]
        assert (await _void_one(board, "e3")).members == 1
        assert await board.rows() == [("old", 1000), ("c", 50)]
        await drainer.sweep()
        assert await board.rows_in_sql() == await board.rows()


async def test_votes_are_judged_as_the_store_judges_them(valkey_url: str, tmp_path: Path) -> None:
    """A vote over the limit counts because a later one of the same body takes another vote back. So it stays."""
    rules = Votes(per_key=1, per_actor=1, registered=False)
    contest = make_board(Choices(id="posts", ties="key", window_choice="forever", votes=rules))
    async with journaled(valkey_url, tmp_path, contest) as board:
        drainer = await board.drainer()
        await _send(board, _vote("A", 1, "me"))
        await _send(board, _vote("B", 1, "me"), _vote("A", -1, "me"))
        await _send(board, _vote("C", 1, "other", "unrelated"))
        await _void_one(board, "unrelated")
        assert await board.rows() == [("B", 1)]
        await _send(board, _vote("A", 1, "you"))
        await _send(board, _vote("D", 1, "you"), _vote("A", -1, "you"))
        await drainer.sweep()
        assert await board.rows() == await board.rows_in_sql() == [("B", 1), ("D", 1)]


async def test_events_of_the_same_microsecond_after_a_void_count(valkey_url: str, tmp_path: Path) -> None:
    """The clock of the board is ahead of the server, so it stands still."""
    async with journaled(valkey_url, tmp_path, board_of("forever")) as board:
        drainer = await board.drainer()
        await _send(board, make_entry("a", 1))
        ahead = round(await _now(board)) * 1000 + HOUR * 1000
        await board.client.hset(board.ledger.state.keys.meta, "clock", ahead)
        await _send(board, make_entry("a", 10))
        await void(board, producer="ann")
        await _send(board, make_entry("a", 100))
        await drainer.sweep()
        assert await board.rows() == await board.rows_in_sql() == [("a", 100)]


async def test_events_before_the_journal_began_again_stay(valkey_url: str, tmp_path: Path) -> None:
    """The journal holds only their sums. The outcome says so, and counts nothing as taken back."""
    async with journaled(valkey_url, tmp_path, board_of("forever")) as board:
        drainer = await board.drainer()
        await _send(board, make_entry("a", 10, None, Identities("ann").of(IncomingEvent(member="", id="cheat"))))
        keys, epoch = board.ledger.state.keys, board.ledger.state.epoch or ""
        await begin_journal(board.client, keys, epoch, again=True)
        await drainer.sweep()
        outcome = await _void_one(board, "cheat")
        assert (outcome.events, ["1 event before then" in note for note in outcome.notes]) == (0, [True])
        assert await board.rows() == [("a", 10)]


async def test_a_vote_of_an_erased_actor_does_not_return(valkey_url: str, tmp_path: Path) -> None:
    """The actor withdrew the vote after a first void, and was erased before a second one."""
    async with journaled(valkey_url, tmp_path, board_of("contest")) as board:
        drainer = await board.drainer()
        await _send(board, _vote("A", 1, "x"), _vote("A", 1, "stays"))
        await _send(board, _vote("B", 1, "y", "first"))
        await _send(board, _vote("B", 1, "z", "second"))
        await _void_one(board, "first")
        await _send(board, _vote("A", -1, "x"))
        await drainer.sweep()
        erasing = asyncio.create_task(
            Erasing(board.client, board.settings, board.databases[0], drainer).erase("x", [], take_back=False)
        )
        while not erasing.done():
            await drainer.sweep()
            await asyncio.sleep(0.01)
        await erasing
        assert await board.rows() == [("A", 1), ("B", 1)]
        await _void_one(board, "second")
        assert await board.rows() == [("A", 1)]
        assert (await void(board, actor="x")).events == 0, "an erased actor is found again"


async def test_the_past_by_the_time_of_events_stays_as_it_was(valkey_url: str, tmp_path: Path) -> None:
    """By an event clock, a void comes after the newest event that was counted before it."""
    async with journaled(valkey_url, tmp_path, board_of("clock")) as board:
        drainer = await board.drainer()
        times = [round(await _now(board)) - minutes * 60_000 for minutes in (3, 2, 1)]
        for number, (member, amount) in enumerate([("a", 1), ("b", 5), ("c", 7)]):
            if number == 2:
                await void(board, producer="ann")
            await _send(board, make_entry(member, amount, times[number]))
        await drainer.sweep()
        for _ in range(2):  # without a checkpoint, and with one
            assert await board.rows_in_sql(stop=before(times[0] + 1, "event")) == [("a", 1)]
            timeline = await _keep_checkpoint(board)
            found = await board.databases[0].run(
                lambda sql, of=timeline: [  # type: ignore[misc]
                    scores_at(board.board, data, data.latest or 0).scores.copy()  # type: ignore[attr-defined]
                    for _, data in contents_at(sql, of, [time + 1 for time in times], "event")
                ]
            )
            assert found == [{"a": 1}, {}, {"c": 7}]
