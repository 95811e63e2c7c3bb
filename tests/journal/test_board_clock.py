"""The clock of a board never goes back: what has left a sliding window does not come back, from the store or SQL."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

import live.store.board.journal_stream
import live.store.board.manage.lifecycle
import live.store.board.pieces
from live.domain.board_file import parse_boards
from live.domain.event import make_entry
from live.journal.database import Database
from live.journal.log.reader import Follower
from live.journal.past.queries import AsOf
from live.journal.past.rankings import ranking_at
from live.journal.state.snapshot import Snapshot
from live.maintenance.check import Checker
from live.store.board.journal_stream import begin_journal
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.board.requests import Scripts
from live.store.connection.scripts import Script
from tests.harness.clock import set_clock
from tests.harness.folded import Folded, data_of
from tests.harness.journaled import Journaled, Rows, journaled
from tests.harness.ledger_machine import simulated, simulated_scripts
from tests.harness.mutation import Mutant, must_be_caught

pytestmark = pytest.mark.one_server  # the store key of the test's clock is in another Cluster slot than the board

NOON = 4_000_017_600
(BOARD,) = parse_boards('[[board]]\nid = "posts"\nwindow = { sliding = "40s" }\nties = "first"')


@dataclass
class Sliding:
    """A board with a sliding window, on a clock that the test sets."""

    made: Journaled
    mutant: Mutant | None = None
    lives: int = 0
    folded: Folded = field(init=False)
    ledger: Ledger = field(init=False)

    async def begin(self) -> None:
        """Open the board."""
        await self.set(0)
        await self.open()
        self.folded = Folded(self.made.client, self.ledger.state.keys, self.ledger.state.epoch or "")

    async def open(self) -> None:
        """Open the board with a new ledger, which knows nothing of the previous ledger."""
        self.made.ledger = self.ledger = Ledger(self.made.client, BOARD, self.settings, self.scripts)
        await self.ledger.state.open()

    @property
    def settings(self) -> Any:
        """The settings of the current life of the board: each load uses another key prefix."""
        prefix = self.made.settings.key_prefix
        suffix = str(self.lives) if self.lives else ""
        return msgspec.structs.replace(self.made.settings, key_prefix=prefix + suffix, rotation_step=2)

    @property
    def time(self) -> str:
        """The store key of the clock."""
        return f"{self.made.settings.key_prefix}:time"

    @property
    def scripts(self) -> Scripts:
        """The scripts, changed to read the test's clock."""
        return simulated_scripts(self.made.settings.store, self.time, self.mutant)

    def on_clock(self, script: Script[Any]) -> Script[Any]:
        """Return `script`, changed to read the test's clock."""
        return simulated(script, self.time, self.mutant)

    async def set(self, seconds: float) -> None:
        """Set the clock."""
        await set_clock(self.made.client, self.made.settings, int((NOON + seconds) * 1000))

    async def now(self) -> int:
        """The clock of the board, in milliseconds."""
        seconds, micro = map(int, await self.made.client.lrange(self.time, 0, -1))
        held = await self.made.client.hget(self.ledger.state.keys.meta, "clock")
        return max(seconds * 1_000_000 + micro, int(held or 0)) // 1000

    async def like(self, member: str, *, seconds: int | None = None, amount: int = 1) -> str | None:
        """Count an event; `seconds` is its time. Return the code with which it is refused."""
        time = None if seconds is None else (NOON + seconds) * 1000
        return (await self.ledger.writer.add([make_entry(member, amount, time, None)])).refused.get(0)

    async def rotate(self) -> None:
        """Subtract everything that is due."""
        while await self.ledger.rotator.rotate() is None:
            pass

    async def rows(self) -> Rows:
        """The ranking in the store."""
        page = await self.ledger.reader.read(1000)
        return [(record.member, record.score) for record in page.records]

    async def in_journal(self) -> Rows:
        """The ranking by the fold of the journal."""
        await self.folded.read()
        return self.folded.ranking(BOARD, await self.now())

    async def load_again(self) -> None:
        """Write the board from the journal into other store keys, and use these store keys from now on."""
        await self.folded.read()
        self.lives += 1
        with patch.object(live.store.board.manage.lifecycle, "SCRIPTS", self.scripts):
            await self.folded.load_as(BOARD, Keys(self.settings.key_prefix, BOARD.id), f"life{self.lives}")
        await self.open()

    async def adopt(self) -> None:
        """Let the journal begin again with what the store holds."""
        state = self.ledger.state
        adopt = self.on_clock(live.store.board.journal_stream.ADOPT)
        await begin_journal(self.made.client, state.keys, state.epoch or "", again=True, adopt=adopt)

    async def check(self) -> int:
        """Compare the board with its journal; returns how many values differ."""
        state = self.ledger.state
        pieces = self.on_clock(live.store.board.pieces.PIECE)
        with (
            Database("sqlite", self.made.folder, state.settings.key_prefix, writes=False) as database,
            patch.object(live.store.board.pieces, "PIECE", pieces),
        ):
            # After a load, the board has another key prefix than its journal in SQL.
            follower: Any = _Following(self.folded)
            if not self.lives:
                follower = Follower(self.made.client, database, BOARD.id, state.epoch or "")
                await follower.begin(lambda *_: None)
            return (await Checker(state, follower, lambda *_: None).check()).drifted


@dataclass
class _Following:
    """A follower that reads the journal without SQL."""

    folded: Folded

    async def advance(self, link: str) -> Snapshot:
        """Return what the board held after the last entry."""
        await self.folded.read()
        assert self.folded.link == link
        return self.folded.contents


@asynccontextmanager
async def sliding(store: str, folder: Path, mutant: Mutant | None = None) -> AsyncIterator[Sliding]:
    """Open a board with a journal in SQL."""
    async with journaled(store, folder, BOARD) as made:
        board = Sliding(made, mutant)
        await made.drainer()
        await board.begin()
        yield board


async def leave_and_go_back(board: Sliding) -> None:
    """Let the event of second 0 leave the window at second 50, and set the clock back to second 31."""
    await board.like("a")
    await board.set(30)
    await board.like("b")
    await board.set(50)
    await board.rotate()
    assert await board.rows() == [("b", 1)]
    await board.set(31)


async def events_do_not_come_back(board: Sliding) -> None:
    """Count more events after an event has left and the clock was set back, and load the board again.

    The clock of the board stands still until the store's clock has caught up.
    """
    await leave_and_go_back(board)
    await board.set(32)
    await board.like("c")
    assert await board.like("d", seconds=9) == "late"
    await board.set(33)
    await board.like("e", seconds=11)
    assert await board.now() == (NOON + 50) * 1000
    rows = await board.rows()
    assert rows == [("e", 1), ("b", 1), ("c", 1)]
    assert await board.in_journal() == rows
    assert await board.check() == 0
    await board.rotate()
    before = await data_of(board.made.client, board.folded.keys)
    await board.load_again()
    assert await data_of(board.made.client, board.folded.keys) == before
    assert await board.now() == (NOON + 50) * 1000
    await board.set(51)
    await board.rotate()
    assert await board.in_journal() == await board.rows() == rows[1:]
    await board.set(89.999)
    await board.rotate()
    assert await board.in_journal() == await board.rows() == rows[2:]
    await board.set(90)
    await board.rotate()
    assert await board.in_journal() == await board.rows() == []


async def test_an_event_that_left_does_not_come_back_with_a_load(valkey_url: str, tmp_path: Path) -> None:
    """The store has subtracted the event for good."""
    async with sliding(valkey_url, tmp_path) as board:
        await events_do_not_come_back(board)


async def test_the_past_is_what_viewers_saw(valkey_url: str, tmp_path: Path) -> None:
    """A time of the past is a time by the clock of the board."""
    async with sliding(valkey_url, tmp_path) as board:
        await leave_and_go_back(board)
        await board.like("c")
        await (await board.made.drainer()).sweep()
        moment = AsOf(BOARD, None, await board.now() + 1, None, frozenset())
        database = board.made.databases[0]
        found = await database.run(lambda connection: ranking_at(connection, moment))
        assert [*zip(found.members, found.scores, strict=True)] == await board.rows()


async def test_a_check_knows_what_left_before_another_entry_follows(valkey_url: str, tmp_path: Path) -> None:
    """The state of the board has the time of the rotation, for which there is no entry."""
    async with sliding(valkey_url, tmp_path) as board:
        await leave_and_go_back(board)
        assert await board.check() == 0
        await board.ledger.moderation.hide("b", hidden=True)
        assert await board.check() == 0
        assert await board.in_journal() == []


async def test_a_journal_begins_again_while_the_clock_stands_still(valkey_url: str, tmp_path: Path) -> None:
    """Each beginning is an entry of its own, even if SQL has taken the one before it, and no time has passed."""
    async with sliding(valkey_url, tmp_path) as board:
        await leave_and_go_back(board)
        drainer = await board.made.drainer()
        for _ in range(2):
            await board.adopt()
            await drainer.sweep()
        await board.like("c")
        assert await board.check() == 0


@pytest.mark.mutant
@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("expire_events", "'clock', digits(micros), ...", "..."),
        Mutant("add", "if held and held > micros then", "if false then"),
        Mutant("add", "digits(micros) .. ' ' .. writer", "digits(time[1] * 1000000 + time[2]) .. ' ' .. writer"),
    ],
    ids=["not kept", "not followed", "not told"],
)
async def test_a_clock_that_goes_back_is_detected(volatile_store: Any, tmp_path: Path, mutant: Mutant) -> None:
    """The mutants do not keep the time of a rotation, do not follow the board's clock, or tell the journal another."""
    async with sliding(volatile_store.url, tmp_path, mutant) as board:
        with must_be_caught("the clock of a board goes back"):
            await events_do_not_come_back(board)


@pytest.mark.parametrize("seed", range(3))
async def test_the_journal_equals_the_store_at_any_clock(valkey_url: str, tmp_path: Path, seed: int) -> None:
    """The clock of the store goes in any direction, also while events wait to be subtracted."""
    draw, now = random.Random(seed), 0.0
    async with sliding(valkey_url, tmp_path) as board:
        for _ in range(150):
            match draw.choice(["pass", "back", "like", "like", "late", "step", "rotate", "hide", "look", "other"]):
                case "pass":
                    now += draw.choice([0.001, 1, 7, 20, 41])
                case "back":
                    now -= draw.choice([0.001, 1, 7, 20, 41])
                case "like":
                    await board.like(draw.choice("abcd"), amount=draw.choice([1, 2, -1]))
                case "late":
                    await board.like(draw.choice("abcd"), seconds=int(now) - draw.randrange(41))
                case "step":
                    await board.ledger.rotator.rotate()
                case "rotate":
                    await board.rotate()
                case "hide":
                    await board.ledger.moderation.hide(draw.choice("abcd"), hidden=draw.random() < 0.3)
                case "look":
                    assert await board.check() == 0
                    # A load does not know what left after the last entry, so one entry is added.
                    await board.like("e", amount=0)
                    await board.rotate()
                    assert await board.in_journal() == await board.rows()
                case "other":
                    await board.rotate()
                    if draw.random() < 0.5:
                        await board.adopt()
                    else:
                        await board.load_again()
            await board.set(now)
