"""A batch tells its single events. Without some of them, it is what the others alone would be.

So a batch of a board with an event clock is divided at any time.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from live.domain.board import Board
from live.domain.board_file import parse_boards
from live.domain.event import Entry, Extra, Likes, make_entry
from live.domain.producer import LIKES
from live.journal.forgetting import without
from live.journal.log.entries import Head
from live.journal.log.reader import contents_at
from live.journal.log.timelines import open_timelines
from live.journal.state.events import CountedEvent, UntoldError, batch_of, batch_under, divide, events_of, first_time
from live.journal.state.fold import apply
from live.journal.state.ranking import ranked_at
from live.journal.state.snapshot import IDENTITY, Snapshot
from live.store.board.batch import Batch, BatchIdentities, decode_batch, encode_batch
from live.store.board.state import Clock
from live.store.board.write.correction import Correction, correct
from live.store.board.write.slot_assignment import Plan, Senders, changes_of, make_plan, slot_of, voter_digests
from live.store.connection.scripts import texts
from tests.harness.board_machine import ADDITIVE, NOON, TABLE, boards, fields_of
from tests.harness.folded import filled
from tests.harness.journaled import Journaled, journaled
from tests.harness.plans import HOUR

BEGIN = 1_700_000_000_000
CHOICES = {
    "sums": 'window = "forever"\nties = "first"',
    "days": 'window = { rolling = "3d", slot = "1d" }\nties = "last"',
    "sliding": 'window = { sliding = "2d" }\nties = "first"',
    "last": 'window = "forever"\noperator = "set"\nties = "first"',
    "best": 'window = "forever"\noperator = "best"\nties = "first"',
    "least": 'window = "forever"\noperator = "best"\nsort_order = "asc"\nties = "key"',
}
Told = list[tuple[str, int, bytes | None]]


async def told(board: Journaled, entries: list[Entry], times: list[int]) -> list[Told]:
    """Count entries in one batch. Return the rows of the board in SQL at some times, with metadata."""
    await board.ledger.writer.add(entries)
    return await told_again(board, times)


async def told_again(board: Journaled, times: list[int]) -> list[Told]:
    """Return the rows of the board in SQL at some times, with metadata."""
    board.folder.mkdir(exist_ok=True)
    await (await board.drainer()).sweep()

    def read(connection: object) -> list[Told]:
        (timeline,) = open_timelines(connection)  # type: ignore[arg-type]
        rows = []
        for at, data in contents_at(connection, timeline, times, "event"):  # type: ignore[arg-type]
            found = ranked_at(board.board, data, at)
            texts = data.rankings[""].metadata if "" in data.rankings else {}
            rows.append([(member, found.scores[member], texts.get(member)) for member in found.members])
        return rows

    return await board.databases[0].run(read)


@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES.keys())
async def test_a_batch_is_divided_at_any_time(
    valkey_url: str, tmp_path: Path, chance: random.Random, choices: str
) -> None:
    """The events need not be in the order of their times. All times are read in one pass."""
    (board,) = parse_boards(f'[[board]]\nid = "posts"\nclock = "event"\n{choices}')
    hour = 3_600_000
    moments = [BEGIN + 8 * hour * number + chance.randrange(-9, 9) * hour // 9 for number in range(8)]
    entries = [make_entry(chance.choice("abc"), chance.randrange(1, 4), at) for at in moments for _ in range(3)]
    times = [BEGIN - 9 * hour, *sorted(chance.sample(moments, 4)), moments[3] + 1, max(moments) + 1]
    times.sort()
    async with journaled(valkey_url, tmp_path / "all", board) as made:
        found = await told(made, entries, times)
    for number, (at, rows) in enumerate(zip(times, found, strict=True)):
        async with journaled(valkey_url, tmp_path / str(number), board) as made:
            earlier = [entry for entry in entries if (entry[2] or 0) < at]
            assert (earlier and (await told(made, earlier, [max(times)]))[0]) == rows, at


async def test_metadata_stays_with_its_event(valkey_url: str, tmp_path: Path) -> None:
    """Also metadata of an event that a later event of the batch has replaced."""
    (board,) = parse_boards(f'[[board]]\nid = "posts"\nclock = "event"\n{CHOICES["best"]}')
    entries = [
        make_entry(member, amount, BEGIN + at, None, Extra(metadata=text))
        for member, amount, at, text in (("a", 2, 0, b'{"n":1}'), ("b", 1, 0, b'{"n":2}'), ("b", 3, 9, b'{"n":3}'))
    ]
    async with journaled(valkey_url, tmp_path, board) as made:
        found = await told(made, entries, [BEGIN + 1, BEGIN + 10])
    assert found == [
        [("a", 2, b'{"n":1}'), ("b", 1, b'{"n":2}')],
        [("b", 3, b'{"n":3}'), ("a", 2, b'{"n":1}')],
    ]


@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES.keys())
async def test_a_batch_of_corrections_is_divided(valkey_url: str, tmp_path: Path, choices: str) -> None:
    """A correction without a time has the time of the board's clock. An import has both kinds in one batch."""
    (board,) = parse_boards(f'[[board]]\nid = "posts"\nclock = "event"\n{choices}')
    async with journaled(valkey_url, tmp_path, board) as made:
        await made.ledger.writer.add([make_entry(member, 8, BEGIN) for member in "abc"])
        given = [
            Correction(member=member, reason="a mistake", score=score, time=time)
            for member, score, time in (("a", 7, None), ("b", 6, BEGIN + 50), ("c", 5, BEGIN + 99))
        ]
        assert not [one for one in await correct(made.ledger.writer, given) if isinstance(one, str)]
        found = await told_again(made, [BEGIN + number for number in (1, 50, 51, 99, 100)])
        scores = [{member: score for member, score, _ in rows} for rows in found]
        first, second = {"a": 7, "b": 8, "c": 8}, {"a": 7, "b": 6, "c": 8}
        assert scores == [first, first, second, second, {"a": 7, "b": 6, "c": 5}]
        assert [(member, score) for member, score, _ in found[-1]] == await made.rows()


def test_a_batch_without_times_is_refused() -> None:
    """Nobody gets the table of another time."""
    group = {"start": 0, "suffix": "", "members": ["a"], "amounts": [1]}
    batch = {"rules": {"operation": "incr", "order": "backward"}, "span": 60, "reached": 0, "groups": [group]}
    body = msgspec.msgpack.encode(batch)
    assert first_time(body) is None
    with pytest.raises(UntoldError, match="does not say when the events"):
        divide(body, 5)


SECRET = b"secret"


class Sent(NamedTuple):
    """A batch that producers sent to a board, and its plan."""

    board: Board
    entries: Sequence[Entry]
    clock: Clock
    newest: int | None
    senders: Senders
    plan: Plan

    @property
    def batch(self) -> Batch:
        """The batch as the journal has it."""
        return as_stored(self.plan)

    def again(self, indexes: Sequence[int]) -> Batch:
        """The batch that the board plans from only some of the entries."""
        plan = make_plan(self.board, self.entries, indexes, self.clock, self.newest, SECRET, self.senders)
        assume(not plan.refused)
        return as_stored(plan)


def as_stored(plan: Plan) -> Batch:
    """The batch of a plan, as the journal has it."""
    batch = plan.batch
    batch.groups = list(plan.slots.values())
    if plan.identities:
        batch.identities = BatchIdentities(all=texts(list(plan.identities), IDENTITY), bucket=NOON, kept=60)
    return decode_batch(encode_batch(batch))


@st.composite
def sent(draw: st.DrawFn, kinds: Sequence[str] = ("any", "any", "fields", "votes")) -> Sent:
    """A planned batch of a board of any kind."""
    amount, focus = st.sampled_from([1, 1, 1, 2, 3, -1, 0]), dict[str, Any]()
    kind = draw(st.sampled_from(kinds))
    if kind == "votes":
        votes = {"per_key": 2, "per_actor": 3, "changes": draw(st.booleans())}
        focus = {"operator": "incr", "votes": votes, "window": draw(st.sampled_from(["forever", "hours", "days"]))}
    if kind == "fields":
        window = draw(st.sampled_from(sorted(ADDITIVE)))
        focus = {"score": TABLE, "operator": "incr", "sort_order": "desc", "window": window, "zeros": False}
    _, board = draw(boards(focus))
    if (packing := board.packing) is not None:
        amount = amount.map(lambda number: packing.pack(fields_of(number)))
    offset = st.one_of(st.none(), st.none(), st.integers(-9, 3), st.integers(-3 * HOUR, 90))
    if draw(st.booleans()):
        offset = st.just(0) if board.clock == "event" else st.none()
    identity = st.one_of(st.none(), st.integers(0, 9).map(lambda number: b"%d" % number * 16))
    if draw(st.booleans()):
        identity = draw(st.sampled_from([st.none(), st.integers(0, 999).map(lambda number: b"%016d" % number)]))
    member, metadata = st.sampled_from("abcdefgh"), st.sampled_from([None, None, b'{"n":1}', b'{"n":2}'])
    actor, other = st.sampled_from(["me", "you", "he"]), st.one_of(st.none(), member)
    entries: Sequence[Entry] = draw(
        st.lists(
            st.builds(
                lambda key, amount, at, identity, actor, metadata, other: make_entry(
                    key, amount, None if at is None else (NOON + at) * 1000, identity,
                    Extra(
                        actor if board.votes else None,
                        metadata if board.described and not board.votes else None,
                        None,
                        other if board.votes and amount > 0 and other != key else None,
                    ),
                ),
                member, amount, offset, identity, actor, metadata, other,
            ),
            min_size=1, max_size=10,
        )
    )  # fmt: skip
    if board.bare and board.clock == "server" and draw(st.booleans()):
        entries = Likes([entry[0] for entry in entries])
    names = draw(st.one_of(st.just([""]), st.lists(st.sampled_from(["ann", "bob", LIKES]), min_size=1, max_size=4)))
    sizes = [len(entries) // len(names)] * len(names)
    sizes[0] += len(entries) - sum(sizes)
    senders = list(zip(names, sizes, strict=True)) if names != [""] else []
    started = board.clock == "server" or draw(st.booleans())
    clock = Clock(board.window.slot_at(NOON).start, NOON * 1000, NOON * 1000) if started else Clock(None, 0, None)
    newest = draw(st.sampled_from([None, (NOON + 60) * 1000]))
    plan = make_plan(board, entries, range(len(entries)), clock, newest, SECRET, senders)
    return Sent(board, entries, clock, newest, senders, plan)


def expected(made: Sent) -> list[tuple[int, CountedEvent]]:
    """The index of each counted entry, and the event that it is, or the two events that it is, in order."""
    found = []
    names = [name for name, count in made.senders for _ in range(count)] or [""] * len(made.entries)
    for index, entry in enumerate(made.entries):
        if index in made.plan.refused:
            continue
        _, _, time, identity, extra = entry
        start, changes = slot_of(made.board, made.plan, entry) or 0, changes_of(entry)
        for number, (member, change) in enumerate(changes, 2 * index + 3 - len(changes)):
            votes = made.board.votes is not None
            actor, pair = voter_digests(SECRET, extra.actor or "", member) if votes and extra else (b"", b"")
            told = b"" if extra is None or extra.metadata is None else extra.metadata
            suffix = f":{start}" if made.board.window.tables else ""
            number_ = number if votes else index + 1
            found.append(
                (
                    index,
                    CountedEvent(
                        start, suffix, member, change, time, number_, identity, names[index], told, actor, pair
                    ),
                )
            )
    return found


def ordered(events: Sequence[CountedEvent], *, numbered: bool) -> list[CountedEvent]:
    """Events by slot and member, in the order in which they count. Without ties, nobody needs their numbers."""
    in_order = sorted(events, key=lambda one: (one.start, one.member))
    return in_order if numbered else [msgspec.structs.replace(one, number=0) for one in in_order]


def folded(batch: Batch) -> Snapshot:
    """The contents of a new board after a batch. The log has the sum of a member's events of the same time."""
    data = Snapshot(latest=NOON * 1000 if batch.by_event else None)
    apply(data, Head("add", 0, "1-0", NOON * 1_000_000, "", ""), encode_batch(batch))
    return filled(msgspec.structs.replace(data, latest=None, newest=None))


def rested(batch: Batch) -> Batch:
    """A batch without the clock of the board, which may have been ahead of the events."""
    return msgspec.structs.replace(batch, reached=None)


@given(sent())
def test_a_batch_tells_its_single_events(made: Sent) -> None:
    """Events of every kind of board are those that the board has counted, with everything that is known of them."""
    found = events_of(made.batch)
    has_ones = any(group.events is not None and group.events.ones for group in made.batch.groups)
    numbered = not has_ones and len(made.entries) > 1
    wanted = [one for _, one in expected(made)]
    assert ordered(found, numbered=False) == ordered(wanted, numbered=False)
    if numbered:
        counts = lambda one: one.amount or made.board.zeros or made.board.operator != "incr"  # noqa: E731
        assert ordered(list(filter(counts, found)), numbered=True) == ordered(
            list(filter(counts, wanted)), numbered=True
        )


@given(sent())
def test_a_batch_of_all_its_events_is_the_same(made: Sent) -> None:
    """Nothing is lost, and nothing is added."""
    again = batch_of(made.batch, events_of(made.batch))
    if again.producers == made.batch.producers:  # all events of a producer may have been refused
        assert rested(again) == rested(made.batch)
    assert folded(again) == folded(made.batch)


@given(sent(), st.randoms(use_true_random=False))
def test_a_batch_without_some_events_is_planned_from_the_others(made: Sent, chance: random.Random) -> None:
    """The board holds the same as if the others alone had been sent."""
    kept: dict[Any, bool] = {}

    def keep(one: CountedEvent) -> bool:
        vote_, plain = (one.actor, one.identity, one.producer), (one.member, one.amount, one.time)
        key = vote_ if one.actor else (*plain, *vote_)
        return kept.setdefault(key, chance.random() < 0.6)

    left = batch_of(made.batch, [one for one in events_of(made.batch) if keep(one)])
    indexes = list(dict.fromkeys(index for index, one in expected(made) if keep(one)))
    alone = made.again(indexes)
    assert logged(folded(left)) == logged(folded(alone))
    stays = batch_of(made.batch, [one for one in events_of(made.batch) if keep(one)], clock_stays=True)
    assert (stays.latest, stays.reached) == (made.batch.latest, made.batch.reached)
    assert events_of(stays) == events_of(left)
    assert not indexes or set(left.producers) <= set(alone.producers)


@st.composite
def other_choices(draw: st.DrawFn) -> tuple[Sent, Board]:
    """A planned batch, and a board with other choices that take the same events."""
    made = draw(sent(("any", "any", "any", "fields")))
    assume(made.board.votes is None)
    focus: dict[str, Any] = {"clock": made.board.clock}
    if made.board.packing is not None:
        window = draw(st.sampled_from(sorted(ADDITIVE)))
        focus |= {"score": TABLE, "operator": "incr", "sort_order": "desc", "window": window, "zeros": False}
    _, board = draw(boards(focus))
    assume(board.votes is None)
    return made, board


@given(other_choices())
def test_a_batch_under_other_rules_is_planned_from_the_same_events(case: tuple[Sent, Board]) -> None:
    """The board holds the same as if it had the other window, operator, ties, order and zeros from the beginning."""
    made, board = case
    has_ones = any(group.events is not None and group.events.ones for group in made.batch.groups)
    assume(not has_ones or (board.operator == "incr" and (board.ties == "key" or made.board.ties != "key")))
    entries = [under(entry, made.board, board) for entry in made.entries]
    counted = [index for index in range(len(entries)) if index not in made.plan.refused]
    latest = NOON * 1000 if board.clock == "event" and made.clock.latest is not None else None
    newest = None if latest is None else board.window.slot_at(NOON).start
    clock = Clock(newest, NOON * 1000, latest)
    really = make_plan(board, entries, counted, clock, None, SECRET, made.senders)
    found = batch_under(made.batch, NOON * 1_000_000, made.board, board, latest)
    assert logged(folded(found)) == logged(folded(as_stored(really)))
    assert found.reached == really.batch.reached


def under(entry: Entry, old: Board, new: Board) -> Entry:
    """An event as the other board gets it, without metadata that the first board did not keep."""
    member, amount, time, identity, extra = entry
    if old.packing is not None and new.packing is not None:
        amount = new.packing.pack(old.packing.unpack(amount))
    return make_entry(member, amount, time, identity, extra if old.described else None)


def test_rules_that_refuse_other_events_are_refused() -> None:
    """The journal does not have the events that a board has refused."""
    (plain, timed, contest) = parse_boards("""
        [[board]]
        id = "plain"
        window = "forever"

        [[board]]
        id = "timed"
        window = "forever"
        clock = "event"

        [[board]]
        id = "contest"
        window = "forever"
        votes = { per_key = 1 }
    """)
    batch = as_stored(make_plan(plain, [make_entry("a")], [0], Clock(0, 0, None), None))
    assert batch_under(batch, 0, plain, plain) == batch
    for board in (timed, contest):
        with pytest.raises(UntoldError, match=r"refused|late"):
            batch_under(batch, 0, plain, board)


def logged(data: Snapshot) -> tuple[Any, Any]:
    """Contents, and the sums in the log. A batch of likes of one producer has one event of a member in its log."""
    sums: dict[tuple[int, str], int] = {}
    for one in data.log:
        sums[one.time, one.member] = sums.get((one.time, one.member), 0) + one.amount
    return sums, msgspec.structs.replace(data, log=[])


def test_a_replaced_vote_keeps_its_time_where_members_and_events_are_equally_many() -> None:
    """Two events are three votes here. The group of two members does not say when each vote was."""
    (board,) = parse_boards(
        '[[board]]\nid = "posts"\nwindow = "forever"\nclock = "event"\nvotes = { per_key = 1, per_actor = 2 }'
    )
    entries = [make_entry("a", 1, 5000, None, Extra("me")), make_entry("b", 1, 9000, None, Extra("me", replaces="a"))]
    found = events_of(as_stored(make_plan(board, entries, range(2), Clock(None, 0, None), None, SECRET)))
    assert [(one.member, one.amount, one.time, one.number) for one in found] == [
        ("a", 1, 5000, 2), ("a", -1, 9000, 3), ("b", 1, 9000, 4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "more",
    [
        {"producers": [":correction"]},
        {"producers": ["ann", "bob"]},
        {"identities": {"all": ["1" * 16] * 2, "bucket": 0, "kept": 60}},
    ],
    ids=["a correction", "unknown producers", "unknown identities"],
)
def test_a_batch_that_does_not_tell_its_events_is_refused(more: dict[str, Any]) -> None:
    """Nobody takes an amount for an event that it is not."""
    group = {"start": 0, "suffix": "", "members": ["a"], "amounts": [2]}
    batch = {"rules": {"operation": "incr", "order": "backward"}, "groups": [group]}
    assert [one.amount for one in events_of(decode_batch(msgspec.msgpack.encode(batch)))] == [2]
    if identities := more.get("identities"):
        more = {"identities": identities | {"all": texts([b"1" * 16, b"2" * 16], IDENTITY)}}
    with pytest.raises(UntoldError):
        events_of(decode_batch(msgspec.msgpack.encode(batch | more)))


@pytest.mark.parametrize("at", [None, 5000])
@pytest.mark.parametrize("members", ["abab", "ab"])
@pytest.mark.parametrize("choices", ['operator = "best"', 'operator = "incr"', 'ties = "key"'])
def test_an_erased_member_leaves_nothing_in_single_events(choices: str, members: str, at: int | None) -> None:
    """Amounts and metadata go. Other events keep their numbers, their times and their identities."""
    (board,) = parse_boards(f'[[board]]\nid = "posts"\nwindow = "forever"\n{choices}')
    entries = [
        make_entry(member, amount, at and at - amount, b"%016d" % amount, Extra(metadata=b'{"n":%d}' % amount))
        for member, amount in zip(members, (3, 7, 9, 2), strict=False)
    ]
    batch = as_stored(make_plan(board, entries, range(len(entries)), Clock(0, 0, None), None))
    body = without(Head("add", 0, "1-0", 0, "", ""), encode_batch(batch), "a")
    assert body is not None
    left = events_of(decode_batch(body))
    assert [one for one in left if one.member] == [one for one in events_of(batch) if one.member == "b"]
    assert {(one.amount, one.metadata) for one in left if not one.member} == {(0, b"")}
    assert folded(batch_of(batch, left)) == folded(decode_batch(body))
