"""A machine that does anything to a ledger, in any order, and knows the right result by brute force."""

import asyncio
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from live.domain.event import MAX_SCORE, Entry, make_entry
from live.store.board.ledger import Ledger
from live.store.board.manage.erasure import FORGET
from live.store.board.requests import SCRIPTS, Scripts
from live.store.board.write.writer import Added
from live.store.connection.client import connect
from live.store.connection.scripts import Script
from tests.harness.boards import rolling_board, select_page
from tests.harness.invariants import drifted
from tests.harness.machines import StoreMachine
from tests.harness.mutation import Mutant, compiled, mutated
from tests.harness.settings import fresh_settings
from tests.harness.store import StoreProcess

WINDOW, SLOT, FUTURE, DEDUPE = 40, 10, 5, 60
NOON = 4_000_000_000  # so far in the future that no TTL that a script sets expires during a test

members = st.sampled_from(["a", "b", "c", "d", "é", "€/?", "\U0001f600"])
MOST = {clock: rolling_board(f"{WINDOW}s", f"{SLOT}s", clock).most for clock in ("server", "event")}
EDGES = [amount for most in MOST.values() for amount in (most, -most, most // 2, 1 - most, most + 1)]
amounts = st.one_of(st.sampled_from([1, 1, 1, 2, -1]), st.sampled_from([*EDGES, MAX_SCORE, -MAX_SCORE]))
offsets = st.one_of(st.none(), st.integers(-WINDOW - 3 * SLOT, FUTURE + SLOT))
identities = st.one_of(st.none(), st.sampled_from([b"%d" % number * 16 for number in range(3)]))
batches = st.lists(st.tuples(members, amounts, offsets, identities), min_size=1, max_size=6)
Batch = list[tuple[str, int, int | None, bytes | None]]


def simulated(script: Script[Any], clock: str, mutant: Mutant | None) -> Script[Any]:
    """A script that reads the time from a list in the store, so that a test can set it."""
    source = script.source
    if mutant is not None and mutant.script == script.name:
        source = mutated(source, {mutant.right: mutant.wrong})
    return script.changed(re.sub(r"call\('TIME'\)", f"call('LRANGE', '{clock}', 0, -1)", source))


def simulated_scripts(store: str, clock: str, mutant: Mutant | None) -> Scripts:
    """Make all scripts of a ledger, on a clock that the test sets. The store compiles the mutant first."""
    scripts = Scripts(*(simulated(script, clock, mutant) for script in msgspec.structs.astuple(SCRIPTS)))
    if mutant is not None:
        compiled(store, getattr(scripts, mutant.script, None) or simulated(FORGET, clock, mutant))
    return scripts


@dataclass
class Verdict:
    """The result of a batch. `counted` has the index, the member, the amount and the slot of each counted entry."""

    newest: int | None
    refused: dict[int, str] = field(default_factory=dict)
    counted: list[tuple[int, tuple[str, int, int]]] = field(default_factory=list)
    identities: list[bytes] = field(default_factory=list)


class LedgerMachine(StoreMachine):
    """Runs the real scripts next to a list of every accepted event."""

    def __init__(self, store: StoreProcess, clock: str, mutant: Mutant | None = None) -> None:
        super().__init__(store)
        self.mutant = mutant
        self.board = rolling_board(f"{WINDOW}s", f"{SLOT}s", clock)
        self.settings = fresh_settings(
            store.url,
            rotation_step=1,
            dedupe_window=float(DEDUPE),
            write_deadline=5.0,
            store_timeout=5.0,
        )
        self.time_key = f"{self.settings.key_prefix}:time"
        self.scripts = simulated_scripts(store.url, self.time_key, mutant)
        self.accepted: list[tuple[str, int, int]] = []  # member, amount, slot
        self.newest: int | None = None  # the newest slot of an event
        self.counted: dict[bytes, int] = {}  # by identity, the last bucket that held it
        self.now = NOON  # the clock of the store
        self.changed = 0  # the clock of the board at its last change; 0 before it exists
        self.restarted = False
        self.ledgers: list[Ledger] = []

    @initialize()
    def begin(self) -> None:
        """Open one board in two processes."""
        self.loop = asyncio.new_event_loop()
        self.client = connect(self.store.url, self.settings)
        self.run(self.client.flushall())  # the store belongs to the test; old data would slow it down
        self.set_time(NOON)
        self.ledgers = [self.new_ledger() for _ in range(2)]

    def new_ledger(self) -> Ledger:
        ledger = Ledger(self.client, self.board, self.settings, self.scripts)
        ledger.writer.max_future = FUTURE * 1000
        return ledger

    def set_time(self, now: int) -> None:
        self.now = now

        async def write() -> None:
            await self.client.delete(self.time_key)
            await self.client.rpush(self.time_key, str(now), "250000")

        self.run(write())

    @property
    def time(self) -> int:
        """The clock of the board, which never goes back."""
        return max(self.now, self.changed)

    @property
    def current(self) -> int | None:
        """The newest slot that the board should have, according to the model."""
        return self.newest if self.board.clock == "event" else self.time // SLOT * SLOT

    @rule(batch=batches, process=st.integers(0, 1))
    def add(self, batch: Batch, process: int) -> None:
        """Add entries. The board refuses the same entries as the model, for the same reasons."""
        entries = [
            make_entry(member, amount, None if offset is None else (self.now + offset) * 1000, identity)
            for member, amount, offset, identity in batch
        ]
        added: Added = self.run(self.ledgers[process].writer.add(entries))
        self.changed = self.changed or self.now
        expected = self.expect(entries)
        assert dict(added.refused) == expected, f"refused {added.refused}, not {expected}"

    def expect(self, entries: list[Entry]) -> dict[int, str]:
        """Count entries; returns the refusals.

        If all entries of a member for a slot together keep its amount there in range, they count together. If not, they
        count one after another.
        """
        beyond: dict[int, str] = {}
        while True:
            verdict = self.judge(entries, beyond)
            more = self.beyond_range(verdict)
            if not more:
                break
            beyond |= dict.fromkeys(more, "score_out_of_range")
        self.accepted += [counted for _, counted in verdict.counted]
        self.newest = verdict.newest
        if verdict.counted:
            self.changed = self.time
        for identity in verdict.identities:
            self.counted[identity] = self.time // DEDUPE * DEDUPE
        return verdict.refused

    def judge(self, entries: list[Entry], beyond: dict[int, str]) -> Verdict:
        """Judge entries one by one. The entries in `beyond` are known to be out of range."""
        bucket = self.time // DEDUPE * DEDUPE
        verdict, newest = Verdict(self.newest), self.current
        for index, (member, amount, time, identity, _) in enumerate(entries):
            code = self.refusal(time, newest) or beyond.get(index)
            if self.known(identity, bucket) or (identity is not None and identity in verdict.identities):
                code = "duplicate"  # the script checks for duplicates before anything else
            if code is not None:
                verdict.refused[index] = code
                continue
            slot = newest if time is None else time // 1000 // SLOT * SLOT
            assert slot is not None
            verdict.counted.append((index, (member, amount, slot)))
            if identity is not None:
                verdict.identities.append(identity)
            newest = verdict.newest = self.moved(newest, slot)
        return verdict

    def beyond_range(self, verdict: Verdict) -> list[int]:
        """Return the indexes of entries that exceed the range of a slot when a member's entries are counted one by one.

        A member whose entries together stay in range has no such entry.
        """
        held, after = dict[tuple[str, int], int](), dict[tuple[str, int], int]()
        for member, amount, slot in self.accepted:
            held[member, slot] = held.get((member, slot), 0) + amount
        for _, (member, amount, slot) in verdict.counted:
            after[member, slot] = after.get((member, slot), held.get((member, slot), 0)) + amount
        found = []
        for index, (member, amount, slot) in verdict.counted:
            value = held.get((member, slot), 0) + amount
            if abs(after[member, slot]) > self.board.most and abs(value) > self.board.most:
                found.append(index)
            else:
                held[member, slot] = value
        return found

    def moved(self, newest: int | None, slot: int) -> int | None:
        """Return the board's newest slot after an entry has counted in `slot`."""
        if self.board.clock == "event":
            return slot if newest is None else max(newest, slot)
        return newest

    def known(self, identity: bytes | None, bucket: int) -> bool:
        """Return whether an identity is in this bucket or in the previous one."""
        return identity is not None and self.counted.get(identity, 0) >= bucket - DEDUPE

    def refusal(self, time: int | None, newest: int | None) -> str | None:
        """Why the model refuses an entry because of its time."""
        if time is None:
            return "time_required" if self.board.clock == "event" else None
        if newest is not None and time // 1000 // SLOT * SLOT < newest - WINDOW:
            return "late"
        return "early" if time > self.time * 1000 + 250 + FUTURE * 1000 else None

    @rule(process=st.integers(0, 1))
    def rotate(self, process: int) -> None:
        """Run one step of the rotation in one process."""
        self.step(self.ledgers[process])

    def step(self, ledger: Ledger) -> bool:
        """Rotate once; returns whether there may be more to do.

        If the offset changes, the board has changed.
        """
        self.run(ledger.state.open())
        self.changed = self.changed or self.now
        before = self.run(self.client.hget(ledger.state.keys.meta, "offset"))
        more = self.run(ledger.rotator.rotate()) is None
        if self.run(self.client.hget(ledger.state.keys.meta, "offset")) != before:
            self.changed = self.time
        return more

    def rotate_all(self, process: int) -> None:
        """Rotate until nothing is due."""
        for _ in range(500):
            if not self.step(self.ledgers[process]):
                return
        raise AssertionError("rotation does not come to an end")

    @rule(seconds=st.integers(1, WINDOW + 3 * SLOT))
    def advance(self, seconds: int) -> None:
        """Let time pass."""
        self.set_time(self.now + seconds)

    @precondition(lambda self: self.now > NOON - WINDOW)
    @rule(seconds=st.integers(1, WINDOW))
    def clock_goes_back(self, seconds: int) -> None:
        """Set the store's clock back: the clock of the board stands still."""
        self.set_time(self.now - seconds)

    @rule(
        identity=st.sampled_from([b"%d" % number * 16 for number in range(3)]),
        pauses=st.lists(st.sampled_from([SLOT, DEDUPE - 1, DEDUPE, DEDUPE + 1]), min_size=1, max_size=3),
        process=st.integers(0, 1),
    )
    def send_again(self, identity: bytes, pauses: list[int], process: int) -> None:
        """Send an event again at about the end of the dedupe window, with other events in between."""
        self.add([("a", 1, 0, identity)], process)
        for number, pause in enumerate(pauses):
            self.set_time(self.now + pause)
            self.rotate_all(process)  # without rotation, the score of a member would reach the end of its range
            self.add([("b", 1, 0, b"%d" % (number + 5) * 16)], 1 - process)
            self.add([("a", 1, 0, identity)], process)

    @rule(member=members, process=st.integers(0, 1))
    def cancel(self, member: str, process: int) -> None:
        """Give a member an amount that brings its score to zero, so that it has no record."""
        self.add([(member, 1, 0, None)], process)
        self.rotate_all(process)
        self.add([(member, -dict(self.expected()).get(member, 0), 0, None)], process)

    @precondition(lambda self: self.now > NOON - WINDOW)
    @rule(back=st.integers(1, 2 * SLOT), process=st.integers(0, 1))
    def rotate_and_go_back(self, back: int, process: int) -> None:
        """A slot that has begun to expire continues to expire, even if the clock is set back."""
        self.add([("a", 1, 0, None)], process)
        self.set_time(self.now + WINDOW + 2 * SLOT)
        self.rotate(process)
        self.set_time(self.now - back)
        self.add([("b", 1, None, None), ("c", 1, 0, None), ("d", 1, -WINDOW, None)], 1 - process)

    @rule(process=st.integers(0, 1))
    def restart_process(self, process: int) -> None:
        """Replace a process by a new process, which remembers nothing."""
        self.ledgers[process] = self.new_ledger()

    # This is the slowest rule, so a run uses it at most once, and a run with a mutant never uses it.
    @precondition(lambda self: self.mutant is None and not self.restarted)
    @rule()
    def restart_store(self) -> None:
        """Kill and start the store: everything that was acknowledged is still there."""
        self.restarted = True
        self.store.kill()
        self.store.start()
        self.run(self.client.connection_pool.disconnect())

    @rule(size=st.integers(1, 9))
    def settle(self, size: int) -> None:
        """Rotate until nothing is due, and compare pages of this size with a plain count over the window."""
        self.rotate_all(0)
        expected = self.expected()
        walked: list[tuple[str, int]] = []
        after: tuple[int, bytes] | None = None
        while True:
            reader = self.ledgers[0].reader
            page = self.run(reader.read(size) if after is None else select_page(reader, "after", after, size))
            assert page.rank_count == len(expected)
            assert page.total_score == sum(score for _, score in expected)
            if not page.records:
                break
            assert len(walked) < len(expected), "the walk meets records twice"
            walked += [(record.member, record.score) for record in page.records]
            after = page.last
        assert walked == expected

    def expected(self) -> list[tuple[str, int]]:
        """The ranking by brute force."""
        current = self.current
        totals: Counter[str] = Counter()
        for member, amount, slot in self.accepted:
            if current is not None and slot >= current - WINDOW:
                totals[member] += amount
        ranked = [(member, score) for member, score in totals.items() if score]
        return sorted(ranked, key=lambda item: (-item[1], item[0].encode()))

    @invariant()
    def holds(self) -> None:
        """After every rule, I1 holds, and the stored total is that of the ranking."""
        if self.ledgers:
            assert self.run(drifted(self.client, self.ledgers[0].state.keys)) == []
