"""Boards of every kind that a failover puts back, next to a reference model."""

from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

import live.store.board.manage.mending
from live.errors import StoreUnavailableError
from live.journal.log.lost_entries import Mend
from live.journal.log.timelines import Timeline
from live.journal.state.snapshot import pack, unpack
from live.store.board.keys import Keys
from live.store.board.manage.mending import Mending
from live.store.board.manage.swap import Write
from live.store.connection.client import Store
from tests.harness.board_machine import WINDOWS, BoardMachine, members
from tests.harness.folded import data_of
from tests.harness.ledger_machine import simulated
from tests.harness.machines import run_machine
from tests.harness.store import StoreProcess

Load = Callable[[Mending, Write], Coroutine[Any, Any, None]]


class Copied(NamedTuple):
    """A copy of a board: its store keys, its packed contents, and how many entries its journal had."""

    contents: Mapping[str, bytes]
    data: bytes
    entries: int


async def names_of(client: Store, keys: Keys) -> list[str]:
    """The store keys of a board."""
    return [name async for name in client.names(keys.pattern)]


def killed_after(writes: int | None) -> Load:
    """Write only so often, or as often as needed."""
    load, left = Mending._load, count() if writes is None else iter(range(writes))

    async def killed(mending: Mending, write: Write) -> None:
        if next(left, None) is None:
            raise StoreUnavailableError("killed")
        await load(mending, write)

    return killed


class FailoverMachine(BoardMachine):
    """Puts the board back to an earlier copy, and writes what it lacks."""

    copied: Copied

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """Open a board, and copy it."""
        super().begin(data)
        self.copy()

    @rule(member=members)
    def erase(self, member: str) -> None:
        """Erase a member. What a store lost of an erasure is not written."""
        super().erase(member)
        self.copy()

    @rule()
    def copy(self) -> None:
        """A replica holds the board as it is now. Perhaps a slot has left the window in part."""
        self.run(self.folded.read())
        names = self.run(names_of(self.client, self.folded.keys))
        contents = {name: self.run(self.client.dump(name)) for name in names}
        self.copied = Copied(contents, pack(self.folded.contents), len(self.folded.entries))

    @rule(kills=st.lists(st.integers(0, 9), max_size=2))
    def fail_over(self, kills: list[int]) -> None:
        """The replica takes over, and gets back what it lacks. Who writes that may be killed after some writes."""
        self.rotate_all(self.ledgers[0])
        self.run(self.folded.read())
        copied, keys = self.copied, self.folded.keys
        lost = self.folded.entries[copied.entries :]
        if not lost:
            return
        before, offset = self.run(data_of(self.client, keys)), self.run(self.ledgers[0].reader.read(1)).offset
        self.swapping = None
        self.run(self.client.delete(*self.run(names_of(self.client, keys))))
        for name, content in copied.contents.items():
            self.run(self.client.restore(name, 0, content))
        head, _ = lost[-1]
        end = Timeline(0, "posts", self.folded.epoch, head.id, head.link, head.size)
        mending = simulated(live.store.board.manage.mending.MEND, self.time_key, None)
        with patch.object(live.store.board.manage.mending, "MEND", mending):
            for writes in (*kills, None):
                mend = Mend(self.client, keys, self.board, end, unpack(copied.data), lost)
                with suppress(StoreUnavailableError), patch.object(Mending, "_load", killed_after(writes)):
                    self.run(mend.run(offset))
        self.freeze(frozen=self.reference.frozen)
        self.rotate_all(self.ledgers[0])
        assert self.run(data_of(self.client, keys)) == before
        self.copy()


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
def test_every_board_gets_back_what_a_failover_lost(volatile_store: StoreProcess, effort: int, window: str) -> None:
    """The store holds what it held, and goes on as the model says, also after attempts that were killed."""
    focus = {"window": window}
    run_machine(lambda: FailoverMachine(volatile_store, focus=focus, loads=False), examples=6 * effort, steps=30)
