"""Draws boards of every kind, and drives each one next to a reference model."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import permutations
from typing import Any, cast
from unittest.mock import patch

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

import live.store.board.manage.erasure
import live.store.board.manage.lifecycle
import live.store.board.manage.swap
from live.domain.board import Board
from live.domain.board_file import make_board
from live.domain.choices import Choices
from live.domain.event import Entry, Extra, make_entry
from live.domain.window import Periods
from live.errors import SetupError
from live.journal.log.entries import Erase
from live.journal.state.difference import ContentsDifference
from live.journal.state.snapshot import reached_of
from live.maintenance.swap import Swapping
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.board.manage.erasure import forget_member
from live.store.board.manage.lifecycle import update
from live.store.board.manage.swap import Beside
from live.store.board.read.reader import TAG
from live.store.board.write.correction import Corrected, Correction, correct
from live.store.board.write.merging import put_move, read_move
from live.store.connection.client import connect
from tests.harness.board_model import Reference, totals_of
from tests.harness.boards import select_page
from tests.harness.checked import checked
from tests.harness.folded import Folded, Following, data_of
from tests.harness.ledger_machine import simulated, simulated_scripts
from tests.harness.machines import StoreMachine
from tests.harness.mutation import Mutant
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess

# The start of an hour, so far in the future that no TTL that a script sets expires during a test.
NOON = 4_000_017_600
STARTS = datetime.fromtimestamp(NOON, UTC)
FUTURE = 60
# Steps of time in milliseconds, about as long as slots, periods or identities last.
EDGES = [1, 749, 750, 9_999, 10_000, 39_999, 40_000, 3_600_000]

WINDOWS: dict[str, Any] = {
    "rolling": {"rolling": "40s", "slot": "10s"},
    "sliding": {"sliding": "40s"},
    "forever": "forever",
    "hours": {"calendar": "hour", "timezone": "Asia/Kathmandu", "keep": 2, "grace": "10s"},
    "days": {"calendar": "day", "timezone": "America/New_York", "day_start": "09:00", "grace": "2h"},
    "last": {"calendar": "hour", "timezone": "Asia/Shanghai", "last": 3},
}
ADDITIVE = {"rolling", "sliding", "last"}


FREE: Mapping[str, Any] = {}

# A score of fields that add up, and what the numbers of `entries` and of corrections add to each field.
TABLE = [
    {"field": "points", "max": 12},
    {"field": "difference", "min": -7, "max": 7},
    {"field": "fouls", "order": "asc", "max": 9},
]
_FIELDS = {0: (0, 0, 0), 1: (3, -2, 1), 2: (0, 4, 0), 3: (1, -1, 3), 5: (9, 6, 0)}


def fields_of(amount: int) -> dict[str, int]:
    """What an amount adds to each field of TABLE."""
    sign = -1 if amount < 0 else 1
    return {str(field["field"]): sign * value for field, value in zip(TABLE, _FIELDS[abs(amount)], strict=True)}


@st.composite
def boards(draw: st.DrawFn, focus: Mapping[str, Any]) -> tuple[str, Board]:
    """A valid board and the name of its window; `focus` fixes some choices."""
    window = focus.get("window") or draw(st.sampled_from(sorted(WINDOWS)))
    operator = "incr" if window in ADDITIVE else focus.get("operator") or draw(st.sampled_from(["incr", "best", "set"]))
    choices: dict[str, Any] = {
        "id": "posts",
        "window": WINDOWS[window],
        "operator": operator,
        "sort_order": draw(st.sampled_from(["desc", "asc"])),
        "ties": draw(st.sampled_from(["first", "last", "key"])),
        "ranks": draw(st.sampled_from(["ordinal", "dense", "competition"])),
        "clock": draw(st.sampled_from(["server", "event"])),
    }
    if operator == "incr" and draw(st.booleans()):
        choices["zeros"] = True
    if operator != "incr" and draw(st.booleans()):
        choices["cap"] = 3
    if operator == "incr" and window not in ADDITIVE and draw(st.booleans()):
        choices["votes"] = {"per_key": draw(st.sampled_from([1, 2])), "per_actor": 2, "registered": draw(st.booleans())}
        choices["votes"]["changes"] = draw(st.sampled_from([True, True, False]))
        if draw(st.booleans()):
            choices["votes"] |= {"opens": STARTS + timedelta(seconds=5), "closes": STARTS + timedelta(hours=2)}
            choices["votes"]["grace"] = draw(st.sampled_from(["0s", "5s", "1h"]))
    choices |= {**focus, "window": WINDOWS[window]}
    return window, make_board(msgspec.convert(choices, Choices))


members = st.sampled_from(["a", "b", "é", "\U0001f600"])
entries = st.lists(
    st.tuples(
        members,
        st.sampled_from([1, 1, 1, 2, 3, -1, 0]),
        st.one_of(st.none(), st.integers(-60, 3), st.integers(-3 * 3600, FUTURE + 2)),
        st.sampled_from(["me", "you", "me\na", "me\n\u00e9", "2:me"]),
        st.one_of(st.none(), st.none(), st.sampled_from([b"%d" % number * 16 for number in range(4)])),
        st.one_of(st.none(), st.none(), members),
    ),
    min_size=1,
    max_size=7,
)


def has_hours(machine: "BoardMachine") -> bool:
    """Whether the board has a ranking for each hour of the server's clock."""
    return machine.window == "hours" and machine.board.clock == "server"


class BoardMachine(StoreMachine):
    """Runs the real scripts on a random board, next to the reference model."""

    def __init__(
        self,
        store: StoreProcess,
        mutant: Mutant | None = None,
        focus: Mapping[str, Any] = FREE,
        *,
        loads: bool = True,
    ) -> None:
        super().__init__(store)
        self.focus = focus
        self.loads = loads
        self.settings = fresh_settings(store.url, rotation_step=2, write_deadline=5.0, journal="sqlite")
        self.time_key = f"{self.settings.key_prefix}:time"
        self.scripts = simulated_scripts(store.url, self.time_key, mutant)
        self.forgetting = simulated(live.store.board.manage.erasure.FORGET, self.time_key, mutant)
        self.swaps = [
            (script.name.upper(), simulated(script, self.time_key, mutant))
            for script in (live.store.board.manage.swap.PAUSE, live.store.board.manage.swap.SWAP)
        ]
        self.swapping: Swapping | None = None
        self.now = 0

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """Open a board in two processes."""
        self.loop = asyncio.new_event_loop()
        self.client = connect(self.store.url, self.settings)
        self.run(self.client.flushall())
        self.window, self.board = data.draw(boards(self.focus))
        meanings = {
            self.amount(number): totals_of(self.board, fields_of(number))
            for number in ([*_FIELDS, *[-number for number in _FIELDS]] if self.board.sums else ())
        }
        self.reference = Reference(self.board, FUTURE * 1000, meanings)
        self.advance(NOON * 1000 + 250)
        self.ledgers = [Ledger(self.client, self.board, self.settings, self.scripts) for _ in range(2)]
        state = self.ledgers[0].state
        self.run(state.open())
        self.folded = Folded(self.client, state.keys, state.epoch or "")
        self.revision = 0
        self.lives, self.prefix = 0, self.settings.key_prefix
        self.remembered: list[tuple[int, list[tuple[str, int, int]]]] = []

    def advance(self, milliseconds: int) -> None:
        self.now += milliseconds
        seconds, rest = divmod(self.now, 1000)

        async def write() -> None:
            await self.client.delete(self.time_key)
            await self.client.rpush(self.time_key, str(seconds), str(rest * 1000))

        self.run(write())

    @rule(batch=entries, process=st.integers(0, 1))
    def add(self, batch: Sequence[tuple[Any, ...]], process: int) -> None:
        """Add entries. The board counts each one, or refuses it for the same reason as the reference."""
        made = [self.entry(*parts) for parts in batch]
        if self.board.sums is not None and self.window == "sliding":  # what has left takes up bounds until then
            self.rotate_all(self.ledgers[process])
        added = self.run(self.ledgers[process].writer.add(made))
        assert dict(added.refused) == self.reference.add(made, self.now)
        self.forget_open_moments()
        if self.window not in ADDITIVE:  # a board with a window of ADDITIVE is right only after a rotation
            self.compare(self.ledgers[1 - process], 100)

    def compare(self, ledger: Ledger, size: int) -> None:
        """Compare the current ranking with the reference."""
        expected = self.reference.ranking(self.now)
        assert self.walk(ledger, size, None) == [self.comparable(record) for record in expected]

    def entry(
        self,
        member: str,
        amount: int,
        seconds: int | None,
        actor: str,
        identity: bytes | None,
        replaces: str | None = None,
    ) -> Entry:
        time = None if seconds is None else self.now + seconds * 1000
        if self.board.clock == "event" and time is None:
            time = self.now
        if amount < 1 or replaces == member or self.board.votes is None:
            replaces = None
        return make_entry(member, self.amount(amount), time, identity, Extra(actor, replaces=replaces))

    def amount(self, number: int) -> int:
        """The amount that a number stands for."""
        return number if self.board.packing is None else self.board.packing.pack(fields_of(number))

    def shown(self, score: int | None) -> Any:
        """A score as the reference knows it."""
        if score is None or self.board.sums is None:
            return score
        return totals_of(self.board, self.board.sums.unpack(score))

    def outcome_of(self, corrected: Corrected | str) -> Any:
        """The score before and after a correction, or the code of its refusal."""
        return corrected if isinstance(corrected, str) else (self.shown(corrected.before), self.shown(corrected.score))

    @rule(milliseconds=st.one_of(st.sampled_from(EDGES), st.integers(1, 15_000), st.integers(1, 2 * 3_600_000)))
    def pass_time(self, milliseconds: int) -> None:
        """Let time pass, and remember the present ranking, which the journal must still give later."""
        if self.board.clock == "server":
            self.remembered.append((self.now + 1, self.reference.ranking(self.now + 1)))
        elif self.reference.newest is not None:
            self.remembered.append((self.reference.newest + 1, self.reference.ranking(self.now)))
        self.advance(milliseconds)

    @rule(size=st.integers(1, 4))
    def nearly_due(self, size: int) -> None:
        """An event still counts one millisecond before it leaves a sliding window."""
        if self.window == "sliding" and self.board.clock == "server":
            leaving = [event.time + 40_000 for event in self.reference.counted if event.time + 40_000 > self.now + 1]
            if leaving:
                self.advance(min(leaving) - 1 - self.now)
                self.settle(size, 0)

    @rule(member=members, hidden=st.booleans(), process=st.integers(0, 1))
    def hide(self, *, member: str, hidden: bool, process: int) -> None:
        """Hide or show a record. A hidden record has no rank.

        A record that is shown again is unchanged, but a full ranking may drop its last record for it.
        """
        self.run(self.ledgers[process].moderation.hide(member, hidden=hidden))
        (self.reference.hidden.add if hidden else self.reference.hidden.discard)(member)
        self.reference.cut()
        self.reference.forget_zeros()
        self.forget_open_moments()
        if self.window not in ADDITIVE:
            self.compare(self.ledgers[1 - process], 100)

    @rule(
        member=members,
        amounts=st.lists(st.tuples(st.booleans(), st.sampled_from([-3, -1, 1, 2, 5])), min_size=1, max_size=2),
        seconds=st.one_of(st.none(), st.none(), st.integers(-60, 0)),
    )
    def correct(self, member: str, amounts: list[tuple[bool, int]], seconds: int | None) -> None:
        """Let one or two administrators correct a score at once.

        The result is the same as after both corrections in some order. The past stays as it is.
        """
        self.rotate_all(self.ledgers[0])
        now = self.reference.now(self.now)
        time = None if seconds is None or now is None else now + seconds * 1000
        corrections = [
            Correction(member=member, reason="counted twice", time=time, **{"add" if adds else "score": amount})
            for adds, amount in [(adds, self.amount(number)) for adds, number in amounts]
        ]

        async def at_once() -> list[Any]:
            pairs = zip(self.ledgers, corrections, strict=False)
            return await asyncio.gather(*(correct(one.writer, [change]) for one, change in pairs))

        done = list(zip(corrections, [self.outcome_of(*each) for each in self.run(at_once())], strict=True))
        for order in permutations(done):
            trial = deepcopy(self.reference)
            expected = [
                trial.correct(member, self.now, add=self.shown(change.add), score=self.shown(change.score), time=time)
                for change, _ in order
            ]
            if expected == [outcome for _, outcome in order]:
                break
        else:
            raise AssertionError(f"no order explains {done}; the last one expects {expected}")
        self.reference = trial
        self.forget_open_moments()
        if self.window not in ADDITIVE:
            self.compare(self.ledgers[1], 100)

    @precondition(lambda self: self.board.votes is None)
    @rule(old=members, new=members)
    def merge(self, old: str, new: str) -> None:
        """Merge two members: the events of `old` count for `new`. The past stays as it is."""
        if old == new:
            return
        self.rotate_all(self.ledgers[0])
        writer = self.ledgers[0].writer
        try:
            move = self.run(put_move(writer, partial(read_move, writer.state, (old, new), "one person")))
        except SetupError:
            assert self.reference.frozen or not self.reference.can_merge(old, new, self.now)
            return
        assert self.reference.can_merge(old, new, self.now)
        assert bool(move.slots) == self.reference.merge(old, new, self.now)
        self.forget_open_moments()
        if self.window not in ADDITIVE:
            self.compare(self.ledgers[1], 100)

    @rule(member=members)
    def erase(self, member: str) -> None:
        """Erase a member: nothing of it is left.

        A full ranking does not get back the records that it dropped because of the member.
        """
        entry = Erase(key=b"key", member=member)
        body, board_keys = msgspec.msgpack.encode(entry), self.ledgers[0].state.keys
        with patch.object(live.store.board.manage.erasure, "FORGET", self.forgetting):
            assert self.run(forget_member(self.client, self.board, board_keys, member, [], body))
        self.reference.forget(member)
        self.run(self.folded.read())
        if self.board.cap is None:
            self.folded.forget(member)
            self.remembered = [(at, [row for row in rows if row[0] != member]) for at, rows in self.remembered]
        else:
            self.remembered.clear()
        self.forget_open_moments()
        if self.window not in ADDITIVE:
            self.compare(self.ledgers[1], 100)

    def forget_open_moments(self) -> None:
        """With an event clock, forget the rankings at times after the newest event: the next event may change them."""
        if self.board.clock == "event":
            newest = self.reference.newest or 0
            self.remembered = [(at, records) for at, records in self.remembered if at <= newest]

    @rule(member=members, process=st.integers(0, 1))
    def hide_and_show(self, member: str, process: int) -> None:
        """Hiding and showing a record changes nothing."""
        before = self.walk(self.ledgers[process], 100, None)
        if member not in self.reference.hidden:
            for hidden in (True, False):
                self.run(self.ledgers[process].moderation.hide(member, hidden=hidden))
        assert self.walk(self.ledgers[process], 100, None) == before

    @rule(member=members, other=members, amount=st.integers(0, 1), process=st.integers(0, 1))
    def count_while_hidden(self, member: str, other: str, amount: int, process: int) -> None:
        """A hidden record counts events, and keeps its place before records that reach the same score later."""
        self.hide(member=member, hidden=True, process=process)
        for name in (member, other):
            self.add([(name, amount, None, "me", None)], process)
        self.hide(member=member, hidden=False, process=process)

    @precondition(lambda self: self.window in ADDITIVE)
    @rule(member=members, seconds=st.integers(1, 39), process=st.integers(0, 1))
    def cancel_out(self, member: str, seconds: int, process: int) -> None:
        """Amounts that add up to zero leave the window one after the other."""
        self.add([(member, -1, None, "me", None), (member, 1, -seconds, "me", None)], process)
        self.nearly_due(4)

    @precondition(lambda self: self.window in ADDITIVE and self.board.packing is None)
    @rule(member=members, seconds=st.integers(1, 39), process=st.integers(0, 1))
    def hide_without_score(self, member: str, seconds: int, process: int) -> None:
        """Hide a member whose amounts cancel out.

        It must have no rank when the first of these amounts leaves the window.
        """
        self.hide(member=member, hidden=False, process=process)
        score = {record[0]: record[1] for record in self.reference.ranking(self.now)}.get(member, 0)
        self.add([(member, 1, -seconds, "me", None), (member, -1 - score, None, "me", None)], process)
        self.hide(member=member, hidden=True, process=process)
        self.pass_time((40 - seconds) * 1000)
        if self.loads:
            self.load_again()

    @precondition(has_hours)
    @rule(member=members, periods=st.integers(1, 3), process=st.integers(0, 1))
    def pass_periods(self, member: str, periods: int, process: int) -> None:
        """A period stays as it is until it is no longer kept."""
        self.add([(member, 1, None, "me", None)], process)
        for _ in range(periods):
            self.pass_time(self.board.window.slot_at(self.now // 1000).end * 1000 - self.now)
        self.settle(4, process)

    @precondition(has_hours)
    @rule(member=members, rest=st.integers(0, 1), process=st.integers(0, 1))
    def pass_grace(self, member: str, rest: int, process: int) -> None:
        """Send until the grace of a period ends, also over a process that last read the clock when it began."""
        window = self.board.window
        assert isinstance(window, Periods)
        self.pass_time(window.slot_at(self.now // 1000).end * 1000 - self.now)
        self.add([(member, 1, None, "me", None)], process)
        self.pass_time(window.grace * 1000 - rest)
        self.add([(member, 1, -window.grace - 1, "me", None)], process)

    @rule(frozen=st.booleans())
    def freeze(self, *, frozen: bool) -> None:
        """Freeze or unfreeze the board. A frozen board accepts nothing, but still recognizes duplicates."""
        self.reference.frozen = frozen
        self.revision += 1
        self.run(
            update(
                self.client,
                self.ledgers[0].state.keys,
                self.run(self.ledgers[0].state.call("HGET", self.ledgers[0].state.keys.meta, "epoch")).decode(),
                self.revision,
                frozen=frozen,
            )
        )

    @rule(member=members, process=st.integers(0, 1))
    def register(self, member: str, process: int) -> None:
        """Register a member, as for a contest. The member may be registered already."""
        self.run(self.ledgers[process].moderation.enter(member, b"{}"))
        self.reference.entrants.add(member)

    @rule(process=st.integers(0, 1))
    def rotate(self, process: int) -> None:
        """Rotate by one step."""
        self.run(self.ledgers[process].rotator.rotate())

    @precondition(lambda self: self.loads)
    @rule()
    def load_again(self) -> None:
        """A board that is loaded from its journal has the same data, and continues as before."""
        self.rotate_all(self.ledgers[0])
        self.run(self.folded.read())
        if self.swapping is not None:
            self.run(self.swapping._beside.give_up())
        before = self.run(data_of(self.client, self.folded.keys))
        self.lives, self.swapping = self.lives + 1, None
        epoch = f"life{self.lives}"
        self.settings = msgspec.structs.replace(self.settings, key_prefix=f"{self.prefix}{self.lives}")
        with patch.object(live.store.board.manage.lifecycle, "SCRIPTS", self.scripts):
            self.run(self.folded.load_as(self.board, Keys(self.settings.key_prefix, "posts"), epoch))
        self.ledgers = [Ledger(self.client, self.board, self.settings, self.scripts) for _ in range(2)]
        if self.reference.frozen:
            self.freeze(frozen=True)
        self.rotate_all(self.ledgers[0])
        assert self.run(data_of(self.client, self.folded.keys)) == before

    @rule()
    def begin_swap(self) -> None:
        """Load the board beside itself, as the journal has it. Other rules follow before the swap."""
        self.run(self.folded.read())
        state = self.ledgers[0].state
        self.run(state.open())
        with ExitStack() as patches:
            for name, script in self.swaps:
                patches.enter_context(patch.object(live.store.board.manage.swap, name, script))
            beside = self.run(Beside.begin(state))
            difference = ContentsDifference(self.board, state.keys)
            self.swapping = Swapping(state, beside, cast("Any", Following(self.folded)), difference)
            self.run(self.swapping.load())

    @precondition(lambda self: self.swapping is not None)
    @rule()
    def finish_swap(self) -> None:
        """The swap changes nothing, whatever has happened since it began, except what clients see as the epoch."""
        self.rotate_all(self.ledgers[0])
        self.run(self.folded.read())
        keys = self.folded.keys
        before, offset = self.run(data_of(self.client, keys)), self.run(self.ledgers[0].reader.read(1)).offset
        swapping, self.swapping = self.swapping, None
        assert swapping is not None
        with ExitStack() as patches:
            for name, script in self.swaps:
                patches.enter_context(patch.object(live.store.board.manage.swap, name, script))
            assert self.run(swapping.finish()) == offset + 1
        self.rotate_all(self.ledgers[0])
        assert self.run(data_of(self.client, keys)) == before
        page = self.run(self.ledgers[1].reader.read(1))
        self.run(self.folded.read())
        assert page.epoch == self.folded.contents.shown(self.folded.epoch) != self.folded.epoch

    @rule(size=st.integers(1, 4), process=st.integers(0, 1))
    def settle(self, size: int, process: int) -> None:
        """Rotate until nothing is due, and compare pages of this size with the reference, in both directions."""
        ledger = self.ledgers[process]
        self.rotate_all(ledger)
        self.compare(ledger, size)
        self.run(self.folded.read())
        self.compare_folded(ledger, None)
        for at, records in self.remembered[-3:]:
            past = [self.comparable((member, score, 0)) for member, score in self.folded.ranking_at(self.board, at)]
            assert past == [self.comparable((member, score, 0)) for member, score, _ in records]
        if self.board.window.tables and self.reference.now(self.now) is not None:
            self.settle_kept(ledger, size)
        report = self.run(checked(self.client, self.settings, self.board))
        assert report.clean, report

    def rotate_all(self, ledger: Ledger) -> None:
        for _ in range(500):
            if self.run(ledger.rotator.rotate()) is not None:
                return
        raise AssertionError("rotation does not come to an end")

    def settle_kept(self, ledger: Ledger, size: int) -> None:
        """Earlier periods stay unchanged."""
        newest = self.run(ledger.reader.read(1)).slot
        period = newest
        while period is not None and period > self.board.window.oldest(newest):
            period = self.board.window.slot_at(period - 1).start
            expected = self.reference.ranking(self.now, period)
            assert self.walk(ledger, size, period) == [self.comparable(record) for record in expected]
            self.compare_folded(ledger, period)

    def compare_folded(self, ledger: Ledger, period: int | None) -> None:
        """The fold of the journal has the same records as the board, in the same order, ties included."""
        page = self.run(ledger.reader.read(1000, period=period))
        records = [(record.member, record.score) for record in page.records]
        assert self.folded.ranking(self.board, self.now, period) == records
        if self.board.ties != "key":
            tags = self.folded.tags(self.board, period if period is not None else page.slot)
            assert [tags[record.member] for record in page.records] == [
                reached_of(self.folded.contents.shape, name[:TAG]) for name in page.names
            ]

    def walk(self, ledger: Ledger, size: int, period: int | None) -> list[object]:
        """Read all records, forwards and backwards."""
        forth: list[Any] = []
        page = self.run(ledger.reader.read(size, period=period))
        count = page.rank_count
        while page.records:
            forth += page.records
            assert len(forth) <= count, "the walk meets records twice"
            back, after = page.first, page.last
            page = self.run(select_page(ledger.reader, "after", after, size, period))
        assert len(forth) == count
        if forth:
            seen = self.run(select_page(ledger.reader, "before", back, count, period)).records
            assert list(seen) == forth[: len(seen)]
            assert len(seen) == count - (count % size or size)
        return [self.comparable((record.member, record.score, record.rank)) for record in forth]

    def comparable(self, record: tuple[str, int, int]) -> object:
        """The record, without its member if negative amounts leave the order of ties undefined."""
        if self.board.sums is not None and isinstance(record[1], int):
            record = (record[0], self.shown(record[1]), record[2])
        nothing = self.shown(0)
        cancelled = self.window in ADDITIVE and any(event.amount < nothing for event in self.reference.counted)
        ordered = self.board.ties == "key" or not cancelled
        return record if ordered else record[1:]
