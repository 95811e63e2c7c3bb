"""The state of a board as a process knows it: whether it is open or lost, its offsets, and a clock that moves."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from live.domain.event import make_entry
from live.domain.window import Forever
from live.errors import EpochLostError, SetupError, StoreUnavailableError
from live.store.board.read.slots import read_slots
from live.store.board.requests import SCRIPTS, Scripts
from live.store.board.state import BoardState
from live.store.board.write.correction import Correction, correct
from tests.harness.boards import BOARD, changed, open_ledger
from tests.harness.mutation import compiled


async def test_a_clock_that_moves_before_every_plan_is_an_error(valkey_url: str) -> None:
    """After 20 attempts, the call fails. Nothing is read or counted in slots of an outdated clock."""
    moved = "return {'replan', '', '0', ''}"
    async with open_ledger(valkey_url, BOARD) as ledger:
        ledger.state.scripts = Scripts(
            add=compiled(valkey_url, SCRIPTS.add.changed("return {'replan', '', '0', '', '0'}")),
            read=compiled(valkey_url, SCRIPTS.read.changed(moved)),
            slots=compiled(valkey_url, SCRIPTS.slots.changed(moved)),
            rotate=compiled(valkey_url, SCRIPTS.rotate.changed(moved)),
            baseline=compiled(valkey_url, SCRIPTS.baseline.changed(moved)),
        )
        for work in (
            lambda: ledger.writer.add([make_entry("a")]),
            lambda: correct(ledger.writer, [Correction(member="a", reason="", add=1)]),
            lambda: ledger.reader.read(1),
            lambda: read_slots(ledger.state, ["a"], 1),
            ledger.rotator.rotate,
            ledger.baseline.keep,
        ):
            with pytest.raises(StoreUnavailableError, match="the clock of board posts moved 20 times in a row"):
                await work()


async def test_what_clients_are_told_is_remembered(valkey_url: str, tmp_path: Path) -> None:
    """A process remembers the offsets of its changes. With `keeps_seen`, it also remembers the offsets that it reads.

    If the store has a lower offset than the remembered offset, it has lost data.
    """
    async with open_ledger(valkey_url, BOARD, data_dir=tmp_path / "one") as ledger:
        ledger.state.client.high_water.active = True
        ledger.state.client.high_water.keeps_seen = False
        offsets = []
        for work in (
            lambda: ledger.writer.add([make_entry("a")]),
            lambda: correct(ledger.writer, [Correction(member="a", reason="", add=1)]),
            lambda: ledger.writer.add([make_entry("a", 1, 1)]),
        ):
            await work()
            offsets.append(ledger.state.known)
        assert offsets == [1, 2, 2]
        prefix = ledger.state.settings.key_prefix
        async with open_ledger(valkey_url, BOARD, data_dir=tmp_path / "two", key_prefix=prefix) as other:
            high_water, state = other.state.client.high_water, other.state
            high_water.active = True
            for read in (lambda: other.reader.read(1), lambda: read_slots(state, ["a"], 1)):
                for high_water.keeps_seen, known in ((False, -1), (True, 2)):
                    await read()
                    assert state.known == known
                high_water.note("posts", state.epoch or "", 9)
                before, _, after = state.is_lost, await read(), state.is_lost
                assert (before, after) == (False, True)
                with pytest.raises(EpochLostError, match="went back from offset 9 to 2"):
                    await other.writer.add([make_entry("a")])
                high_water.end_losses([])
                high_water.offsets.forget()
            high_water.note("posts", state.epoch or "", 9)
            with pytest.raises(EpochLostError, match="went back from offset 10 to 3"):
                await other.writer.add([make_entry("a")])


async def test_a_lost_board_is_not_changed(valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost board is not even opened. The store can also lose a board in the moment when it is opened."""
    async with open_ledger(valkey_url, BOARD, data_dir=tmp_path) as ledger:
        client, settings = ledger.state.client, ledger.state.settings
        client.high_water.active = True
        await ledger.state.open()
        open_board = BoardState.open

        async def lose(state: BoardState) -> None:
            await open_board(state)
            state.lose(EpochLostError("it went away"))

        with monkeypatch.context() as patch:
            patch.setattr(BoardState, "open", lose)
            with pytest.raises(EpochLostError, match="it went away"):
                await ledger.state.open_to_write()
        other = BoardState(client, BOARD, settings, born=ledger.state.epoch or "")
        for work in (
            other.open_to_write,
            ledger.rotator.rotate,
            ledger.baseline.keep,
            lambda: ledger.writer.add([make_entry("a")]),
            lambda: correct(ledger.writer, [Correction(member="a", reason="", add=1)]),
        ):
            with pytest.raises(EpochLostError, match="it went away"):
                await work()
        assert other.epoch is None
        await other.open()
        unknown = BoardState(client, replace(BOARD, id="unknown"), settings)
        client.high_water.lose_boards({"unknown": "it was never here"})
        with pytest.raises(EpochLostError, match="it was never here"):
            await unknown.open()
        born = BoardState(client, replace(BOARD, id="unknown"), settings, born="e")
        with pytest.raises(EpochLostError, match="had epoch e, and the store now holds none"):
            await born.open()


async def test_many_boards_are_opened_at_once(valkey_url: str) -> None:
    """Each has an epoch of its own, except a board that was lost. A board with other choices can't be opened."""
    async with open_ledger(valkey_url, BOARD) as ledger:
        client, settings = ledger.state.client, ledger.state.settings
        await ledger.state.open()
        states = [BoardState(client, replace(BOARD, id=f"b{number}"), settings) for number in range(300)]
        lost = BoardState(client, replace(BOARD, id="lost"), settings, born="e")
        *opened, failed = await asyncio.gather(*(state.open() for state in (*states, lost)), return_exceptions=True)
        assert opened == [None] * 300
        assert isinstance(failed, EpochLostError)
        assert len({state.epoch for state in states} - {None}) == 300
        other = BoardState(client, changed(BOARD, window=Forever()), settings)
        with pytest.raises(SetupError, match="the store holds board 'posts' with other choices"):
            await other.open()


async def test_a_use_that_can_not_be_recorded_is_recorded_later(valkey_url: str) -> None:
    """The next reader tries again, although uses are recorded rarely."""
    board = changed(BOARD, idle_ttl="1h")
    async with open_ledger(valkey_url, board) as ledger:
        state = ledger.state
        await state.open()
        await state.call("HSET", state.keys.meta, "used", "1")
        refusing = compiled(valkey_url, SCRIPTS.touch.changed("return redis.error_reply('BUSY now')"))
        state.scripts = Scripts(touch=refusing)
        with pytest.raises(StoreUnavailableError, match="BUSY now"):
            await state.use()
        state.scripts = SCRIPTS
        await state.use()
        assert int(await state.call("HGET", state.keys.meta, "used")) > 1
