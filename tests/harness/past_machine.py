"""Drives a board and its journal, and changes its past: voids, other rules, repairs and recoveries.

`past_model.py` counts everything that the board has accepted again, plainly.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from sqlalchemy import Connection

from live.boards.admin import BoardAdmin, Ruling
from live.boards.definitions import merge, read_board
from live.domain.event import Entry, Extra, make_entry
from live.domain.window import Forever
from live.errors import ProblemError, SetupError
from live.journal.database import Database
from live.journal.log.definitions import DefinitionLog
from live.journal.log.drainer import Drainer
from live.journal.log.reader import newest_segment
from live.journal.log.timelines import find_timeline
from live.journal.past.queries import AsOf
from live.journal.past.rankings import ranking_at
from live.journal.upkeep import checkpoints
from live.journal.upkeep.compactor import forget_entries
from live.maintenance.check import Report, check_board, replace_store
from live.maintenance.recover import Recovery, Wanted
from live.maintenance.rules import change_rules
from live.maintenance.set_back import set_back
from live.maintenance.void import Criteria, Outcome, void
from live.store.board.journal_stream import begin_journal
from live.store.board.ledger import Ledger
from live.store.board.read.reader import TAG
from live.store.board.write.correction import Correction, correct
from live.store.board.write.merging import put_move, read_move
from live.store.connection.client import connect
from tests.harness.board_machine import EDGES, FREE, FUTURE, NOON, boards, members
from tests.harness.board_model import Reference
from tests.harness.machines import StoreMachine
from tests.harness.past_model import Batch, Past, Step, is_limit
from tests.harness.server import define
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess
from tests.store.board.manage.test_swap import loose

CLOCK: Final = "clock of the machine"
PRODUCERS: Final = ["ann", "bob"]
ACTORS: Final = ["me", "you", "me\na", "me\n\u00e9", "2:me"]
_WINDOWS: Final[list[Any]] = [
    {"rolling": "40s", "slot": "10s"},
    {"rolling": "80s", "slot": "10s"},
    {"rolling": "80s", "slot": "20s"},
    {"sliding": "40s"},
    {"sliding": "80s"},
    {"calendar": "hour", "keep": 2, "grace": "10s"},
    {"calendar": "day", "keep": 2, "grace": "2h"},
    {"calendar": "hour", "last": 3},
    "forever",
]
_PARTS: Final = ("rolling", "slot", "sliding", "calendar", "timezone", "day_start", "keep", "grace", "last")

events = st.tuples(
    st.sampled_from(PRODUCERS),
    members,
    st.sampled_from([1, 1, 2, 3, 5, -1, 0]),
    st.none() | st.integers(-45, 3) | st.integers(-3 * 3600, FUTURE + 2),
    st.sampled_from(ACTORS),
    st.none() | st.integers(0, 3),
    st.none() | st.none() | members,
)
batches = st.lists(st.lists(events, min_size=2, max_size=8), min_size=2, max_size=3)
pauses = st.lists(st.sampled_from([0, 1, 900]), min_size=3, max_size=3)
short = st.one_of(st.sampled_from([1, 749, 750, 9_999, 10_000]), st.integers(1, 15_000), st.sampled_from(EDGES))


def identity_of(producer: str, number: int) -> bytes:
    """One of the identities of the events of a producer."""
    return f"{producer} {number}".ljust(16).encode()


def has_events(machine: "PastMachine") -> bool:
    """Whether the board has counted events."""
    return any(isinstance(step, Batch) for step in machine.past.steps)


class PastMachine(StoreMachine):
    """Runs the scripts, the drainer and the commands on a random board, next to the model."""

    def __init__(self, store: StoreProcess, folder: Path, focus: Any = FREE) -> None:
        super().__init__(store)
        self.focus = focus
        self.settings = fresh_settings(store.url, rotation_step=2, write_deadline=5.0, journal="sqlite")
        self.settings = msgspec.structs.replace(self.settings, data_dir=folder / self.settings.key_prefix)
        self.past = Past()
        self.moments: list[int] = []
        self.now = 0
        self.is_ruled = self.is_corrected = self.is_recovered = self.has_forgotten = False
        self.copied: dict[str, bytes] | None = None  # the store keys of the board, as a replica has them
        self.copied_link: bytes | None = None  # the last entry that the replica has
        self.shown: list[tuple[int, list[tuple[str, int]]]] = []  # the ranking at some times

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """Define a board, and open it in two processes."""
        self.loop = asyncio.new_event_loop()
        self.client = connect(self.store.url, self.settings)
        self.run(self.client.flushall())
        _, self.board = data.draw(boards(self.focus))
        self.base = self.board  # with the limits that it had at first
        self.reference, self.is_frozen = Reference(self.board, FUTURE * 1000), False
        self.advance(NOON * 1000 + 250)
        self.settings.data_dir.mkdir()
        self.run(define(self.settings, [self.board]))
        self.admin = BoardAdmin(self.client, self.settings)
        self.restart()
        self.database = Database("sqlite", self.settings.data_dir, self.settings.key_prefix, writes=True)
        self.database.work(self.database._prepare)
        self.drainer = Drainer(self.client, self.settings, self.database)
        self.advance(1)
        for member in ("a", "b") if self.board.votes is not None else ():
            self.register(member, 0)
        self.add(data.draw(batches), [0, 1, 900], 0)

    def teardown(self) -> None:
        """Close the database too."""
        if self.loop is not None and hasattr(self, "database"):
            self.run(self.database.aclose())
        super().teardown()

    def advance(self, milliseconds: int) -> None:
        self.now += milliseconds
        seconds, rest = divmod(self.now, 1000)

        async def write() -> None:
            await self.client.delete(CLOCK)
            await self.client.rpush(CLOCK, str(seconds), str(rest * 1000))

        self.run(write())

    def recount(self) -> None:
        """Count everything again."""
        self.reference = self.past.recount(self.base)
        self.reference.frozen = self.is_frozen

    def do(self, step: Callable[[Reference], object]) -> None:
        """Do something to the model, now and whenever it counts again."""
        self.past.steps.append(Step(self.now, step))
        step(self.reference)

    # What happens to every board

    @rule(batches=batches, pauses=pauses, process=st.integers(0, 1))
    def add(self, batches: list[list[tuple[Any, ...]]], pauses: list[int], process: int) -> None:
        """Count events of two producers."""
        for batch, pause in zip(batches, pauses, strict=False):
            self.advance(pause)
            self.moments.append(self.now)
            if self.adds:
                self.rotate_all()
            made = [self.entry(*parts) for parts in batch]
            names = [name for name, *_ in batch]
            added = self.run(self.ledgers[process].writer.add(made, [(name, 1) for name in names]))
            assert dict(added.refused) == self.reference.add(made, self.now)
            counted = [pair for index, pair in enumerate(zip(made, names, strict=True)) if index not in added.refused]
            if counted:
                self.past.steps.append(Batch(self.now, counted))

    def entry(
        self,
        producer: str,
        member: str,
        amount: int,
        seconds: int | None,
        actor: str,
        identity: int | None,
        replaces: str | None,
    ) -> Entry:
        time = None if seconds is None else self.now + seconds * 1000
        if self.board.clock == "event" and time is None:
            time = self.now
        if amount < 1 or replaces == member or self.board.votes is None:
            replaces = None
        name = None if identity is None else identity_of(producer, identity)
        return make_entry(member, amount, time, name, Extra(actor, replaces=replaces))

    @property
    def adds(self) -> bool:
        """Whether a score adds up several slots, or events that leave one by one."""
        return not self.board.window.tables and not isinstance(self.board.window, Forever)

    @rule(milliseconds=short)
    def pass_time(self, milliseconds: int) -> None:
        """Let time pass. Remember the ranking."""
        if self.board.clock == "server" and self.is_ordered:
            with patch.object(self.reference, "hidden", set()):  # the past shows them unless they are hidden later
                rows = [(member, score) for member, score, _ in self.reference.ranking(self.now + 1)]
            self.shown.append((self.now + 1, rows))
        self.advance(milliseconds)

    @rule(member=members, hidden=st.booleans(), process=st.integers(0, 1))
    def hide(self, *, member: str, hidden: bool, process: int) -> None:
        """Hide or show a member."""
        if self.adds:
            self.rotate_all()
        self.run(self.ledgers[process].moderation.hide(member, hidden=hidden))

        def hide(model: Reference) -> None:
            (model.hidden.add if hidden else model.hidden.discard)(member)
            model.cut()
            model.forget_zeros()

        self.do(hide)

    @rule(member=members, process=st.integers(0, 1))
    def register(self, member: str, process: int) -> None:
        """Register a member, as for a contest."""
        self.run(self.ledgers[process].moderation.enter(member, b"{}"))
        self.do(lambda model: model.entrants.add(member))

    @precondition(has_events)
    @rule(
        member=members,
        adds=st.booleans(),
        amount=st.sampled_from([-3, -1, 1, 2, 5]),
        seconds=st.one_of(st.none(), st.none(), st.integers(-60, 0)),
    )
    def correct(self, *, member: str, adds: bool, amount: int, seconds: int | None) -> None:
        """Correct a score."""
        self.rotate_all()
        now, clock = self.reference.now(self.now), self.now
        time = None if seconds is None or now is None else now + seconds * 1000
        change = Correction(member=member, reason="counted twice", time=time, **{"add" if adds else "score": amount})
        (found,) = self.run(correct(self.ledgers[0].writer, [change]))
        outcome = found if isinstance(found, str) else (found.before, found.score)
        assert outcome == self.reference.correct(member, clock, add=change.add, score=change.score, time=time)
        if isinstance(outcome, str) or outcome[0] == outcome[1]:
            return
        self.is_corrected = True
        before, after = outcome
        again: dict[str, Any] = (
            {"add": after - (before or 0)} if self.board.operator == "incr" else {"score": after}
        )  # what other rules keep of a correction
        at = now if time is None else time
        self.past.steps.append(Step(clock, lambda model: model.correct(member, clock, **again, time=at)))

    @precondition(lambda self: self.board.votes is None)
    @rule(old=members, new=members)
    def merge(self, old: str, new: str) -> None:
        """Merge two members."""
        self.rotate_all()
        writer, clock = self.ledgers[0].writer, self.now
        if old == new or self.is_frozen:
            return
        move = self.run(put_move(writer, partial(read_move, writer.state, (old, new), "one person")))
        assert bool(move.slots) == self.reference.merge(old, new, clock)
        if move.slots:  # otherwise the journal has no entry
            self.past.steps.append(Step(clock, lambda model: model.merge(old, new, clock)))
            self.is_corrected = True

    @precondition(lambda self: self.board.votes is not None)
    @rule(member=members)
    def withdraw(self, member: str) -> None:
        """Withdraw a member for which nobody has voted."""
        with suppress(ProblemError):
            self.run(self.ledgers[0].moderation.withdraw(member))
            self.do(lambda model: model.entrants.discard(member))

    @rule(frozen=st.booleans())
    def freeze(self, *, frozen: bool) -> None:
        """Freeze the board, or thaw it. It accepts nothing meanwhile, but its past can change."""
        self.run(self.admin.patch("posts", {"frozen": frozen}, "chief"))
        self.is_frozen = self.reference.frozen = frozen
        self.board = msgspec.structs.replace(self.board, frozen=frozen)
        self.restart()

    @rule(cap=st.sampled_from([4, 5, None]), per_key=st.integers(1, 3), per_actor=st.integers(1, 4))
    def change_limits(self, cap: int | None, per_key: int, per_actor: int) -> None:
        """Change limits, for what comes later."""
        if self.board.votes is not None:
            changes: dict[str, Any] = {"votes": {"per_key": per_key, "per_actor": per_actor}}
        elif self.board.cap is not None and (cap is None or cap > self.board.cap):
            changes = {"cap": cap}
        else:
            return
        self.run(self.admin.patch("posts", changes, "chief"))
        votes, cap = self.board.votes, changes.get("cap", self.board.cap)
        if votes is not None:
            votes = msgspec.structs.replace(votes, **changes["votes"])
        self.board = msgspec.structs.replace(self.board, votes=votes, cap=cap)
        limits = self.limits()
        self.past.steps.append(limits)
        limits.do(self.reference)
        self.restart()

    def limits(self) -> Step:
        """Give the model the limits that the board has now."""
        votes, cap = self.board.votes, self.board.cap

        def limit(model: Reference) -> None:
            model.board = msgspec.structs.replace(model.board, votes=votes, cap=cap)

        return Step(self.now, limit, stays=True)

    @rule()
    def restart(self) -> None:
        """All processes begin again."""
        self.ledgers = [Ledger(self.client, self.board, self.settings) for _ in range(2)]
        for ledger in self.ledgers:
            self.run(ledger.state.open())

    @rule(process=st.integers(0, 1))
    def rotate(self, process: int) -> None:
        """Rotate by one step."""
        self.run(self.ledgers[process].rotator.rotate())

    def rotate_all(self) -> None:
        for _ in range(500):
            if self.run(self.ledgers[0].rotator.rotate()) is not None:
                return
        raise AssertionError("rotation does not come to an end")

    # What happens to its journal

    @rule()
    def drain(self) -> None:
        """Move all entries to SQL."""
        self.run(self.drainer.sweep())

    @precondition(has_events)
    @rule(forgets=st.booleans())
    def checkpoint(self, *, forgets: bool) -> None:
        """Make a checkpoint. Perhaps forget the entries before it."""
        self.drain()
        self.advance(1)
        epoch = self.ledgers[0].state.epoch or ""

        def work(connection: Connection) -> None:
            timeline = find_timeline(connection, "posts", epoch)
            if timeline is None or not timeline.size:
                return
            due = checkpoints.Due(timeline, newest_segment(connection, timeline))
            made, at = checkpoints.make(connection, due)
            checkpoints.keep(connection, due, made, at)
            if forgets:
                forget_entries(connection, timeline, self.now * 1000)
                self.forgotten()

        self.run(self.database.run(work))

    @precondition(has_events)
    @rule()
    def begin_again(self) -> None:
        """The journal begins again with what the store holds."""
        self.drain()
        self.advance(1)
        state = self.ledgers[0].state
        self.run(begin_journal(self.client, state.keys, state.epoch or "", again=True))
        self.forgotten()
        self.settle(0)

    def forgotten(self) -> None:
        """The journal has nothing of what was before."""
        self.past.kept, self.has_forgotten = len(self.past.steps), True
        self.shown.clear()

    @rule(member=members, number=st.integers(0, 5))
    def repair(self, member: str, number: int) -> None:
        """Something in the store becomes wrong. The journal replaces it."""
        self.rotate_all()
        state = self.ledgers[0].state
        names = sorted(self.run(self.names()))
        slots = [name for name in names if name.startswith(f"{state.keys.channel}:slot:")]
        rankings = [name for name in names if name.startswith(state.keys.ranking)]
        if number < 3 and slots:
            self.run(self.client.hset(slots[number % len(slots)], member, 77))
        elif number < 5 and rankings:
            self.run(self.client.zadd(rankings[0], {b"\0" * (TAG if self.board.ties != "key" else 0) + b"ghost": 9}))
        else:
            self.run(self.client.hset(state.keys.hidden, "ghost", 1))
        assert not self.checked().clean
        epoch = state.epoch or ""
        self.run(replace_store(self.client, self.settings, self.board, epoch, lambda *_: None))
        self.settle(0)

    async def names(self) -> list[str]:
        return [name async for name in self.client.names(self.ledgers[0].state.keys.pattern)]

    @rule()
    def recover(self) -> None:
        """The store loses everything. The journal gives it back, under another epoch."""
        self.drain()
        self.run(DefinitionLog(self.client, self.database).follow())
        self.run(self.client.flushall())
        self.advance(0)
        self.recovered(None)

    def recovered(self, board: str | None) -> None:
        work = Recovery(self.client, self.settings, self.database, lambda *_: None)
        self.run(work.recover(Wanted(board=board)))
        self.copied, self.is_recovered = None, True
        self.shown.clear()  # a timeline begins by the clock of this process
        self.drainer = Drainer(self.client, self.settings, self.database)
        self.run(self.admin._announce(self.board, self.run(self.admin.known.load()).boards["posts"]))  # as servers do
        self.restart()
        self.settle(0)

    @rule()
    def copy(self) -> None:
        """A replica holds the board as it is now."""
        names = self.run(self.names())
        self.copied = {name: self.run(self.client.dump(name)) for name in names}
        self.copied_link = self.run(self.client.hget(self.ledgers[0].state.keys.meta, "journal"))

    @precondition(lambda self: self.copied is not None)
    @rule()
    def fall_back(self) -> None:
        """The replica takes over, and gets what it lacks from SQL, if SQL has anything that it lacks."""
        self.drain()
        if self.copied_link == self.run(self.client.hget(self.ledgers[0].state.keys.meta, "journal")):
            return
        self.run(self.client.delete(*self.run(self.names())))
        for name, content in (self.copied or {}).items():
            self.run(self.client.restore(name, 0, content))
        self.recovered("posts")

    # What changes its past

    @precondition(has_events)
    @rule(at=st.integers(0, 5), ms=st.integers(0, 1))
    def set_back(self, at: int, ms: int) -> None:
        """Set the board back to a time. Events since then may be sent again."""
        time = self.moments[-1 - at % len(self.moments)] + ms
        self.rotate_all()
        epoch = self.ledgers[0].state.epoch or ""
        work = set_back(self.client, self.settings, self.database, self.board, epoch, time, lambda *_: None, dry=False)
        try:
            self.run(work)
        except SetupError as error:
            refusal = str(error)
        else:
            refusal = ""
        if refusal:
            assert self.is_recovered or self.has_forgotten or "stays undone" in refusal, refusal
        else:
            self.past.set_back(time)
            self.recount()
        self.settle(0)

    @precondition(has_events)
    @rule(
        producer=st.sampled_from(PRODUCERS),
        actor=st.sampled_from(ACTORS),
        number=st.integers(0, 3),
        by=st.sampled_from(["producer", "producer", "actor", "identity"]),
        since=st.none() | st.none() | st.integers(0, 9),
        until=st.none() | st.none() | st.integers(0, 9),
        ms=st.integers(-1, 1),
    )
    def void(
        self,
        producer: str,
        actor: str,
        number: int,
        by: str,
        since: int | None,
        until: int | None,
        ms: int,
    ) -> None:
        """Take events back. Twice is the same as once."""
        limits = {
            limit: None if at is None or not self.moments else self.moments[-1 - at % len(self.moments)] + ms
            for limit, at in (("since", since), ("until", until))
        }
        criteria = Criteria(
            producer=producer if by == "producer" else None,
            actor=actor if by == "actor" else None,
            identity=identity_of(producer, number) if by == "identity" else None,
            **limits,
        )
        found = self.past.voided(criteria)
        if criteria.actor is not None and self.board.votes is None:
            found = []
        outcome = self.voided(criteria)
        if outcome.fault:
            assert (self.has_forgotten and "give a later --since" in outcome.fault) or "actors" in outcome.fault, (
                outcome
            )
            return
        assert self.board.votes is not None or outcome.events == len(found), (outcome, found)
        for batch, place in found:
            batch.gone.add(place)
        self.recount()
        assert self.voided(criteria).events == 0
        self.settle(0)

    def voided(self, criteria: Criteria) -> Outcome:
        (outcome,) = self.run(void(self.client, self.settings, self.database, criteria, "posts"))
        assert isinstance(outcome, Outcome)
        return outcome

    @precondition(has_events)
    @rule(
        changes=st.fixed_dictionaries(
            {},
            optional={
                "ties": st.sampled_from(["first", "last", "key"]),
                "ranks": st.sampled_from(["ordinal", "dense", "competition"]),
                "sort_order": st.sampled_from(["desc", "asc"]),
                "zeros": st.booleans(),
                "operator": st.sampled_from(["incr", "best", "set"]),
                "window": st.sampled_from(_WINDOWS),
            },
        ).filter(bool)
    )
    def change_rules(self, changes: dict[str, Any]) -> None:
        """Change the rules: the board counts its events again."""
        self.rotate_all()
        if isinstance(changes.get("window"), dict):
            changes = changes | {"window": dict.fromkeys(_PARTS) | changes["window"]}
        definition = self.run(self.admin.known.load()).boards["posts"]
        try:
            new = read_board("posts", merge(definition.choices, changes))
        except ValueError:
            return
        for ledger in self.ledgers:
            ledger.state.rules.other = new

        has_shape = self.board.shape == new.shape
        refusal = self.refusal(changes)
        if refusal:
            of_cap = "cap" in refusal and self.board.cap is not None
            of_corrections = "corrected or merged" in refusal and self.is_corrected
            of_forgotten = self.has_forgotten and ("has deleted" in refusal or "began again" in refusal)
            assert of_cap or of_corrections or of_forgotten, refusal
        else:
            self.is_ruled |= not has_shape
            self.shown.clear()
            self.copied = None  # a failover that lost new rules stops with advice
            self.board, self.base = new, msgspec.structs.replace(new, votes=self.base.votes, cap=self.base.cap)
            if not has_shape:  # the limits of now count for everything that the journal has
                kept, steps = self.past.kept, self.past.steps
                later = [step for step in steps[kept:] if not is_limit(step)]
                self.past.steps = [*steps[:kept], self.limits(), *later]
            self.recount()
        if refusal or has_shape:
            self.restart()
        self.settle(0)

    def refusal(self, changes: dict[str, Any]) -> str:
        """Change the rules; returns why the board refuses them."""

        async def count_again(ruling: Ruling) -> None:
            name, epoch, earlier = ruling.held.swap, ruling.held.epoch, [*ruling.earlier, ruling.old]
            await change_rules(self.client, self.settings, self.database, epoch, name, ruling.new, earlier, dry=False)

        try:
            ruling = self.run(self.admin.ruling("posts", changes))
            if ruling.counts_again:
                self.run(self.admin.rule("posts", changes, "chief", None, count_again))
            else:
                self.run(self.admin.patch("posts", changes, "chief"))
        except (ProblemError, SetupError) as error:
            return str(error)
        return ""

    # What must be so

    @rule(process=st.integers(0, 1))
    def settle(self, process: int) -> None:
        """Compare the board with the model, and with its journal."""
        self.rotate_all()
        ledger = self.ledgers[process]
        self.compare(ledger, None)
        now = self.reference.now(self.now)
        if self.board.window.tables and now is not None:
            period = newest = self.board.window.slot_at(now // 1000).start
            while period > self.board.window.oldest(newest):
                period = self.board.window.slot_at(period - 1).start
                self.compare(ledger, period)
        hidden = self.run(self.client.hkeys(ledger.state.keys.hidden))
        assert {member.decode() for member in hidden} == self.reference.hidden
        assert self.run(loose(ledger)) == []
        report = self.checked()
        assert report.clean, report
        self.drain()
        for at, shown in self.shown[-2:]:
            rows = [row for row in shown if row[0] not in self.reference.hidden]
            moment = AsOf(self.board, ledger.state.epoch or "", at, None, frozenset(self.reference.hidden))
            past = self.run(self.database.run(partial(ranking_at, moment=moment)))
            if self.is_ordered:
                assert list(zip(past.members, past.scores, strict=True)) == rows, f"not {rows} at {at}: {past}"
            else:
                assert dict(zip(past.members, past.scores, strict=True)) == dict(rows), f"not {rows} at {at}: {past}"

    def checked(self) -> Report:
        """Compare everything in the store with the journal."""
        epoch, deep = self.ledgers[0].state.epoch or "", not self.is_ruled and not self.has_forgotten
        report, _ = self.run(check_board(self.client, self.settings, self.board, epoch, lambda *_: None, deep=deep))
        assert isinstance(report, Report)
        assert not report.fault, report
        return report

    @property
    def is_ordered(self) -> bool:
        """Whether the order among ties is known: with negative amounts, it is undefined in some windows.

        A member whose sum was zero lost its place, also if the negative amount was taken back later.
        """
        batches = [step for step in self.past.steps if isinstance(step, Batch)]
        has_less = self.is_corrected or any(entry[1] < 0 for batch in batches for entry, _ in batch.events)
        return self.board.ties == "key" or not (self.adds and has_less)

    def compare(self, ledger: Ledger, period: int | None) -> None:
        """Compare one ranking with the model."""
        page = self.run(ledger.reader.read(1000, period=period))
        wanted = self.reference.ranking(self.now, period)
        found = [(record.member, record.score, record.rank) for record in page.records]
        if self.is_ordered:
            assert found == wanted, f"{found}, not {wanted}"
        else:
            assert {row[:2] for row in found} == {row[:2] for row in wanted}
            assert [row[1:] for row in found] == [row[1:] for row in wanted]
        assert page.total_score == sum(score for _, score, _ in wanted)
