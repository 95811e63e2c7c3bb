"""The ledger against a brute-force model: any order of adds, rotations, clocks and restarts."""

import asyncio
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from live.event import MAX_SCORE, Entry
from live.store.client import connect
from live.store.ledger import SCRIPTS, Added, Ledger, Scripts
from live.store.scripts import Script
from tests.support import REDIS_SERVER, StoreProcess, drifted, fresh_settings, rolling_board, valkey

WINDOW, SLOT, FUTURE = 40, 10, 5
NOON = 1_800_000_000

keys = st.sampled_from(["a", "b", "c", "d", "é", "€/?", "\U0001f600"])
amounts = st.one_of(
    st.sampled_from([1, 1, 1, 2, -1]), st.sampled_from([MAX_SCORE, -MAX_SCORE, MAX_SCORE // 2, 1 - MAX_SCORE // 2])
)
offsets = st.one_of(st.none(), st.integers(-WINDOW - 3 * SLOT, FUTURE + SLOT))
batches = st.lists(st.tuples(keys, amounts, offsets), min_size=1, max_size=6)


class Mutant(NamedTuple):
    """A mistake to make in a script: what stands in place of what."""

    script: str
    right: str
    wrong: str


MUTANTS = {
    "a slot goes backward with the clock": Mutant("rotate", "'newest', digits(newest), 'offset'", "'offset'"),
    "a slot leaves too early": Mutant("rotate", ">= newest - window", "> newest - window"),
    "a slot leaves too late": Mutant("rotate", ">= newest - window", ">= newest - window - length"),
    "a negative score is dropped": Mutant("rotate", "if score == 0", "if score <= 0"),
    "a slot is forgotten half drained": Mutant("rotate", "if redis.call('EXISTS', slot) == 0", "if true"),
    "a subtracted field stays": Mutant("rotate", "redis.call('HDEL', slot, unpack(members))", "local _ = 0"),
    "a score of zero stays": Mutant("add", "if score == 0", "if false"),
    "a slot is not listed": Mutant("add", "redis.call('ZADD', slots, start, start)", "local _ = 0"),
    "the volume is not bounded": Mutant("add", "if change > MAX - volume - grown", "if false"),
    "the future is not bounded": Mutant("add", "(latest and latest > now + future)", "false"),
    "a plan is not checked": Mutant("add", "if newest ~= current or", "if"),
    "ties are read backwards": Mutant("read", "page[2 * (last - i + first) - 1]", "page[2 * i - 1]"),
    "a cut tie is turned round": Mutant("read", "if not whole then", "if false then"),
    "a cursor repeats a record": Mutant("read", "exact and position + 1 or position", "position"),
}


def simulated(name: str, clock: str, mutant: Mutant | None) -> Script:
    """A script that asks a list in the store for the time, so that a test may set it."""
    source = Script(name).source
    if mutant is not None and mutant.script == name:
        assert source.count(mutant.right) == 1, "the mistake has to be made in one place"
        source = source.replace(mutant.right, mutant.wrong)
    return Script(name, source.replace("redis.call('TIME')", f"redis.call('LRANGE', '{clock}', 0, -1)"))


class LedgerMachine(RuleBasedStateMachine):
    """Runs the real scripts beside a list of everything that was accepted."""

    def __init__(self, store: StoreProcess, clock: str, mutant: "Mutant | None" = None) -> None:
        super().__init__()
        self.store = store
        self.mutant = mutant
        self.loop = asyncio.new_event_loop()
        self.board = rolling_board(f"{WINDOW}s", f"{SLOT}s", clock)
        self.settings = fresh_settings(
            store.url, rotation_step=1, max_future=float(FUTURE), write_deadline=5.0, store_timeout=5.0
        )
        self.time_key = f"{self.settings.key_prefix}:time"
        self.scripts = Scripts(*(simulated(name, self.time_key, mutant) for name in SCRIPTS.__struct_fields__))
        self.accepted: list[tuple[str, int, int]] = []  # key, amount, slot
        self.newest: int | None = None  # the newest slot that the board has acted on
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
    def add(self, batch: list[tuple[str, int, int | None]], process: int) -> None:
        """The answer to each entry is what the model says, and what is accepted is counted."""
        entries = [
            Entry(key, amount, None if offset is None else (self.now + offset) * 1000) for key, amount, offset in batch
        ]
        added: Added = self.run(self.ledgers[process].add(entries))
        expected, newest = dict[int, str](), self.current
        for index, entry in enumerate(entries):
            code = self.refusal(entry, newest)
            slot = newest if entry.time is None else entry.time // 1000 // SLOT * SLOT
            if code is None and added.refused.get(index) == "score_out_of_range":
                code = "score_out_of_range"  # which of a batch do not fit is for the next invariant to judge
            if code is not None:
                expected[index] = code
                continue
            assert slot is not None
            self.accepted.append((entry.key, entry.amount, slot))
            if self.board.clock == "event":
                newest = slot if newest is None else max(newest, slot)
        assert dict(added.refused) == expected
        if added.offset is not None:
            self.newest = newest

    def refusal(self, entry: Entry, newest: int | None) -> str | None:
        """Why the model refuses an entry."""
        if entry.time is None:
            return "time_required" if self.board.clock == "event" else None
        if newest is not None and entry.time // 1000 // SLOT * SLOT < newest - WINDOW:
            return "late"
        return "early" if entry.time > self.now * 1000 + 250 + FUTURE * 1000 else None

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
        after: tuple[int, str] | None = None
        while True:
            page = self.run(self.ledgers[0].read(size, after=after))
            assert page.rank_count == len(expected)
            assert page.total_score == sum(score for _, score in expected)
            if not page.records:
                break
            assert len(walked) < len(expected), "the walk goes round"
            walked += [(record.key, record.score) for record in page.records]
            after = (page.records[-1].score, page.records[-1].key)
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
        if self.ledgers:
            self.run(self.client.aclose())
        self.loop.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("clock", ["server", "event"])
@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_the_ledger_equals_the_model(kind: str, clock: str, tmp_path: Path) -> None:
    """Any schedule on the real scripts: true after every step, and equal to a plain count when settled."""
    if kind == "redis" and REDIS_SERVER is None:
        pytest.skip("redis-server is not installed")
    store = valkey(tmp_path) if kind == "valkey" else StoreProcess(str(REDIS_SERVER), tmp_path)
    store.start()
    try:
        run_state_machine_as_test(
            cast("Any", lambda: LedgerMachine(store, clock)),
            settings=settings(
                max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
            ),
        )
    finally:
        store.kill()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_script_is_caught(name: str, tmp_path: Path) -> None:
    """Every mistake that is worth a line in a script is found: the property above can fail."""
    store = valkey(tmp_path)
    store.start()
    found = False
    try:
        for clock in ("event", "server"):
            try:
                run_state_machine_as_test(
                    cast("Any", lambda clock=clock: LedgerMachine(store, clock, MUTANTS[name])),
                    settings=settings(
                        max_examples=100,
                        stateful_step_count=40,
                        deadline=None,
                        derandomize=True,
                        database=None,
                        phases=[Phase.generate],
                        report_multiple_bugs=False,
                        print_blob=False,
                        suppress_health_check=list(HealthCheck),
                    ),
                )
            except Exception:  # noqa: BLE001 - any failure of the machine is what is wanted
                found = True
                break
    finally:
        store.kill()
    assert found, f"nothing noticed that {name}"
