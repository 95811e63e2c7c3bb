"""A machine that does anything to a ledger, in any order, and knows by brute force what has to come of it."""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Mapping
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from live.event import MAX_SCORE, Entry, make_entry
from live.store.adding import Added
from live.store.client import connect
from live.store.ledger import Ledger
from live.store.life import SCRIPTS, Scripts
from live.store.scripts import Script
from tests.support import StoreProcess, drifted, fresh_settings, rolling_board

WINDOW, SLOT, FUTURE, DEDUPE = 40, 10, 5, 60
NOON = 4_000_000_000  # so far ahead that nothing which the scripts let expire does, but at once

keys = st.sampled_from(["a", "b", "c", "d", "é", "€/?", "\U0001f600"])
amounts = st.one_of(
    st.sampled_from([1, 1, 1, 2, -1]), st.sampled_from([MAX_SCORE, -MAX_SCORE, MAX_SCORE // 2, 1 - MAX_SCORE // 2])
)
offsets = st.one_of(st.none(), st.integers(-WINDOW - 3 * SLOT, FUTURE + SLOT))
identities = st.one_of(st.none(), st.sampled_from([b"%d" % number * 16 for number in range(3)]))
batches = st.lists(st.tuples(keys, amounts, offsets, identities), min_size=1, max_size=6)
Batch = list[tuple[str, int, int | None, bytes | None]]


class Mutant(NamedTuple):
    """A mistake to make in a script: what stands in place of what."""

    script: str
    right: str
    wrong: str


def simulated(name: str, clock: str, mutant: Mutant | None) -> Script:
    """A script that asks a list in the store for the time, so that a test may set it."""
    source = Script(name).source
    if mutant is not None and mutant.script == name:
        assert source.count(mutant.right) == 1, "the mistake has to be made in one place"
        source = source.replace(mutant.right, mutant.wrong)
    return Script(name, re.sub(r"call\('TIME'\)", f"call('LRANGE', '{clock}', 0, -1)", source))


class LedgerMachine(RuleBasedStateMachine):
    """Runs the real scripts beside a list of everything that was accepted."""

    def __init__(self, store: StoreProcess, clock: str, mutant: "Mutant | None" = None) -> None:
        super().__init__()
        self.store = store
        self.mutant = mutant
        self.loop = asyncio.new_event_loop()
        self.board = rolling_board(f"{WINDOW}s", f"{SLOT}s", clock)
        self.settings = fresh_settings(
            store.url,
            rotation_step=1,
            max_future=float(FUTURE),
            dedupe_window=float(DEDUPE),
            write_deadline=5.0,
            store_timeout=5.0,
        )
        self.time_key = f"{self.settings.key_prefix}:time"
        self.scripts = Scripts(*(simulated(name, self.time_key, mutant) for name in SCRIPTS.__struct_fields__))
        self.accepted: list[tuple[str, int, int]] = []  # key, amount, slot
        self.newest: int | None = None  # the newest slot that the board has acted on
        self.bucket = 0  # the newest bucket into which an identity was put
        self.counted: dict[bytes, int] = {}  # the bucket into which each identity was put last
        self.now = NOON
        self.restarted = False
        self.client: Any = None
        self.ledgers: list[Ledger] = []

    def run(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    @initialize()
    def begin(self) -> None:
        """Two processes on one board."""
        self.client = connect(self.store.url, self.settings)
        self.run(self.client.flushall())  # the store is the test's own; what is left would only slow it down
        self.set_time(NOON)
        self.ledgers = [self.new_ledger() for _ in range(2)]

    def new_ledger(self) -> Ledger:
        return Ledger(self.client, self.board, self.settings, self.scripts)

    def set_time(self, now: int) -> None:
        self.now = now

        async def write() -> None:
            await self.client.delete(self.time_key)
            await self.client.rpush(self.time_key, str(now), "250000")

        self.run(write())

    @property
    def current(self) -> int | None:
        """The board's newest slot, by the model."""
        if self.board.clock == "event":
            return self.newest
        slot = self.now // SLOT * SLOT
        return slot if self.newest is None else max(slot, self.newest)

    @rule(batch=batches, process=st.integers(0, 1))
    def add(self, batch: Batch, process: int) -> None:
        """The answer to each entry is what the model says, and what is accepted is counted."""
        entries = [
            make_entry(key, amount, None if offset is None else (self.now + offset) * 1000, identity)
            for key, amount, offset, identity in batch
        ]
        added: Added = self.run(self.ledgers[process].add(entries))
        expected = self.expect(entries, added.refused)
        assert dict(added.refused) == expected, f"refused {added.refused}, not {expected}"

    def expect(self, entries: list[Entry], answer: Mapping[int, str]) -> dict[int, str]:
        """Count entries one by one; gives what is refused. Which do not fit is for `holds` to judge."""
        expected, met, newest = dict[int, str](), set[bytes | None](), self.current
        before, bucket = self.bucket, max(self.now // DEDUPE * DEDUPE, self.bucket)
        for index, entry in enumerate(entries):
            key, amount, time, identity, _ = entry
            code = self.refusal(entry, newest)
            if (identity is not None and identity in met) or (code is None and self.known(identity, bucket)):
                code = "duplicate" if code in {None, "late"} else answer.get(index, code)  # both are true
            elif code == "late" and self.known(identity, before):  # was counted in time
                code = "duplicate" if before == bucket else answer.get(index, "late")
            elif code is None and answer.get(index) == "score_out_of_range":
                code = "score_out_of_range"
            if code is None or (code == "duplicate" and self.known(identity, bucket)):
                met.add(identity)
            if code is not None:
                expected[index] = code
                continue
            slot = newest if time is None else time // 1000 // SLOT * SLOT
            assert slot is not None
            self.accepted.append((key, amount, slot))
            if identity is not None:
                self.counted[identity] = self.bucket = bucket
            newest = self.newest = self.moved(newest, slot)
        return expected

    def moved(self, newest: int | None, slot: int) -> int | None:
        """The newest slot once something was counted in a slot."""
        if self.board.clock == "event":
            return slot if newest is None else max(newest, slot)
        return newest

    def known(self, identity: bytes | None, bucket: int) -> bool:
        """Whether an identity was put into this bucket or the one before."""
        return identity is not None and self.counted.get(identity, 0) >= bucket - DEDUPE

    def refusal(self, entry: Entry, newest: int | None) -> str | None:
        """Why the model refuses an entry, whoever sent it before."""
        time = entry[2]
        if time is None:
            return "time_required" if self.board.clock == "event" else None
        if newest is not None and time // 1000 // SLOT * SLOT < newest - WINDOW:
            return "late"
        return "early" if time > self.now * 1000 + 250 + FUTURE * 1000 else None

    @rule(process=st.integers(0, 1))
    def rotate(self, process: int) -> None:
        """One step of one process."""
        self.step(self.ledgers[process])

    def step(self, ledger: Ledger) -> bool:
        """Rotate once; a step that moved something has acted on the current slot. Whether there may be more to do."""
        self.run(ledger.open())
        before = self.run(self.client.hget(ledger.keys.meta, "offset"))
        more = self.run(ledger.rotate()) is None
        if self.run(self.client.hget(ledger.keys.meta, "offset")) != before:
            self.newest = self.current
        return more

    @rule(seconds=st.integers(1, WINDOW + 3 * SLOT))
    def advance(self, seconds: int) -> None:
        """Time passes."""
        self.set_time(self.now + seconds)

    @precondition(lambda self: self.now > NOON - WINDOW)
    @rule(seconds=st.integers(1, WINDOW))
    def clock_goes_back(self, seconds: int) -> None:
        """The store's clock is set back: no slot goes backward with it."""
        self.set_time(self.now - seconds)

    @rule(process=st.integers(0, 1))
    def restart_process(self, process: int) -> None:
        """A process is replaced by one that knows nothing."""
        self.ledgers[process] = self.new_ledger()

    @precondition(lambda self: self.mutant is None and not self.restarted)  # once will do: it is the dearest rule
    @rule()
    def restart_store(self) -> None:
        """The store is killed and started again: nothing that was acknowledged is gone."""
        self.restarted = True
        self.store.kill()
        self.store.start()
        self.run(self.client.connection_pool.disconnect())

    @rule(size=st.integers(1, 9))
    def settle(self, size: int) -> None:
        """With nothing due any more, the board is what a plain count over its window says, on pages of any size."""
        for _ in range(500):
            if not self.step(self.ledgers[0]):
                break
        else:
            raise AssertionError("rotation does not come to an end")
        expected = self.expected()
        walked: list[tuple[str, int]] = []
        after: tuple[int, bytes] | None = None
        while True:
            page = self.run(self.ledgers[0].read(size, after=after))
            assert page.rank_count == len(expected)
            assert page.total_score == sum(score for _, score in expected)
            if not page.records:
                break
            assert len(walked) < len(expected), "the walk goes round"
            walked += [(record.key, record.score) for record in page.records]
            after = page.last
        assert walked == expected

    def expected(self) -> list[tuple[str, int]]:
        """The ranking by brute force."""
        current = self.current
        totals: Counter[str] = Counter()
        for key, amount, slot in self.accepted:
            if current is not None and slot >= current - WINDOW:
                totals[key] += amount
        ranked = [(key, score) for key, score in totals.items() if score]
        return sorted(ranked, key=lambda item: (-item[1], item[0].encode()))

    @invariant()
    def holds(self) -> None:
        """I1, and the sums kept beside the ranking, after every rule."""
        if self.ledgers:
            assert self.run(drifted(self.client, self.ledgers[0].keys)) == []

    def teardown(self) -> None:
        """Close what the machine opened."""
        try:
            if self.ledgers:
                self.run(self.client.aclose())
        finally:
            self.loop.close()
