"""Notices that carry a change: the page that follows from them is exactly the one that a read gives."""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest
import redis
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from live.domain.event import Entry, Extra
from live.domain.ranking import Page
from live.store.board import carrying, changes
from live.store.board.changes import changes_in, is_carried
from tests.harness.board_machine import FREE, BoardMachine, keys
from tests.harness.machines import run_machine, run_mutant
from tests.harness.mutation import Mutant, must_be_caught, replaced
from tests.harness.store import StoreProcess

SIZES = (1, 2, 3)
SURPLUS = 1
TAGGED: dict[str, Any] = {"window": "forever", "operator": "incr", "ties": "first", "votes": None}
MUTANTS = {
    "a new tag is not carried": Mutant("add", "retagged and math.abs(event) or -1", "-1"),
    "the total is that of the last member": Mutant("add", "total = total + gained", "total = gained"),
    "new records are not carried": Mutant("add", "count = count + (score and 1 or 0)", "count = count + 0"),
    "the last record leaves a full ranking unnoticed": Mutant(
        "add", "+ count > rules.cap then return", "< 0 then return"
    ),
    "an earlier period is taken for the current one": Mutant(
        "add", "request.reached ~= group.start then", "false then"
    ),
    "metadata that goes is not carried": Mutant("add", "or retagged or operation == 'set'", "or retagged"),
}
FOCUS: dict[str, dict[str, Any]] = {
    "a new tag is not carried": TAGGED,
    "the last record leaves a full ranking unnoticed": {"window": "forever", "operator": "set", "cap": 2},
    "an earlier period is taken for the current one": {
        "window": "hours",
        "operator": "incr",
        "votes": None,
        "clock": "server",
    },
    "metadata that goes is not carried": {"window": "forever", "operator": "set"},
}


@pytest.fixture(autouse=True)
def every_notice_carries() -> Iterator[None]:
    """Let notices carry changes however often the board changes."""
    with patch.object(carrying, "MOST_NOTICES", 1 << 60):
        yield


@pytest.mark.parametrize("notice", [b"\x98", b"\x98" + b"\xc0" * 8, b"\x98" + b"\xff" * 9])
def test_a_notice_that_can_not_be_decoded_carries_no_change(notice: bytes) -> None:
    """Another version of the scripts may have sent it. The board is read instead."""
    assert is_carried(notice)
    assert changes_in([notice]) is None


likes = st.lists(st.tuples(keys, st.sampled_from([1, 1, 2, 3, -1, 0])), min_size=1, max_size=3)


class NoticeMachine(BoardMachine):
    """Follows the notices of a random board with pages of several sizes, and compares each with a read."""

    followed = 0

    def __init__(self, store: StoreProcess, mutant: Mutant | None = None, focus: Mapping[str, Any] = FREE) -> None:
        super().__init__(store, mutant, focus)
        self.rebuilds = False  # a board that is rebuilt has another channel

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """Subscribe to the notices of the board."""
        super().begin(data)
        self.held: dict[int, Page | None] = dict.fromkeys(SIZES)
        self.numbers = count()
        self.pubsub: Any = redis.Redis.from_url(self.store.url).pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self.pubsub.subscribe(self.ledgers[0].state.keys.channel)
        self.pubsub.get_message(timeout=5)

    def teardown(self) -> None:
        """Unsubscribe."""
        if self.loop is not None:
            self.pubsub.close()
            self.pubsub.connection_pool.close()
        super().teardown()

    def receive(self) -> list[bytes]:
        """The notices that have arrived."""
        found = []
        while (message := self.pubsub.get_message(timeout=0)) is not None:
            found.append(message["data"])
        return found

    @rule(batches=st.lists(likes, min_size=1, max_size=4), process=st.integers(0, 1), lost=st.integers(0, 6))
    def change(self, batches: list[list[tuple[str, int]]], process: int, lost: int) -> None:
        """Change the board by small batches, and look before and then. A notice may get lost."""
        self.look(process)
        for number, batch in enumerate(batches):
            self.add([(key, amount, None, f"actor {next(self.numbers)}", None) for key, amount in batch], process)
            if number == lost:
                self.receive()
        self.look(process)

    @rule(key=keys, process=st.integers(0, 1))
    def change_the_last_period(self, key: str, process: int) -> None:
        """An event for a period that has just ended does not change the current one."""
        if self.window == "hours" and self.board.clock == "server":
            self.change([[(key, 1)]], process, 1)
            self.advance(self.board.window.slot_at(self.now // 1000).end * 1000 + 1000 - self.now)
            self.add([(key, 1, -2, f"actor {next(self.numbers)}", None)], process)
            self.look(process)

    def entry(self, key: str, amount: int, seconds: int | None, actor: str, identity: bytes | None) -> Entry:
        """An entry; some have metadata."""
        entry = super().entry(key, amount, seconds, actor, identity)
        described = self.board.operator != "incr" and next(self.numbers) % 3 == 0
        return (*entry[:4], Extra(actor, metadata=b"{}")) if described else entry

    @rule(process=st.integers(0, 1))
    def look(self, process: int) -> None:
        """A page that follows from the notices is what a read gives. Every other page is read."""
        reader, notices = self.ledgers[process].reader, self.receive()
        for size, held in self.held.items():
            page = None
            if held is not None and all(map(is_carried, notices)):
                page = reader.follow(held, notices, size + 2 * SURPLUS)
            read = self.run(reader.read(size + SURPLUS))
            if page is None or len(page.records) < min(size, page.rank_count) or page.offset != read.offset:
                page = read
            elif notices and held is not page:
                NoticeMachine.followed += 1
                assert page.top(size) == read.top(size)
            self.held[size] = page

    def advance(self, milliseconds: int) -> None:
        """Look before time passes: another moment may have another period."""
        if hasattr(self, "held"):
            self.look(0)
        super().advance(milliseconds)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pages_that_follow_from_notices_are_those_of_reads(volatile_store: StoreProcess) -> None:
    """On every kind of board, after any schedule; and pages do follow."""
    NoticeMachine.followed = 0
    run_machine(lambda: NoticeMachine(volatile_store), examples=100, steps=30)
    assert NoticeMachine.followed > 0


@pytest.mark.mutant
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_notice_is_detected(name: str, volatile_store: StoreProcess) -> None:
    """Each part of a notice is needed."""
    with must_be_caught(name):
        run_mutant(lambda: NoticeMachine(volatile_store, MUTANTS[name], FOCUS.get(name, FREE)), examples=500, steps=30)


@pytest.mark.mutant
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("function", "mistake"),
    [
        ("_is_next", lambda change, epoch, _: change.epoch == epoch),
        ("_is_held", lambda *_: True),
    ],
    ids=["a change is applied over a gap", "an unknown record behind the last one is ignored"],
)
def test_a_page_that_says_too_much_is_detected(function: str, mistake: Any, volatile_store: StoreProcess) -> None:
    """A page must be read where a notice is missing, and where it does not hold all that may be in the top."""
    focus = {"window": "forever", "operator": "incr", "votes": None}
    with must_be_caught(function), replaced(changes, function, mistake):
        run_mutant(lambda: NoticeMachine(volatile_store, focus=focus), examples=500, steps=30)
