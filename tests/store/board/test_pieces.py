"""Reading a board in pieces while its rotation is behind."""

import pytest

import live.store.board.pieces
from live.domain.event import make_entry
from live.domain.window import Sliding
from live.errors import StoreUnavailableError
from live.store.board.pieces import Place, read_piece
from live.store.board.rotation import BoardRotator
from tests.harness.boards import built, open_ledger
from tests.harness.mutation import replaced

BOARD = built(id="hot", title="hot", window=Sliding(3600), clock="event")


async def test_a_piece_waits_until_few_events_are_due(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece lists the events that have left the window but are not subtracted yet, so it waits until few are left."""

    async def nothing(_rotator: BoardRotator) -> None:
        pass

    async with open_ledger(valkey_url, BOARD) as ledger:
        state = ledger.state
        place = Place("log", state.keys.log)
        await ledger.writer.add([make_entry(member, 1, 1000) for member in "abc"])
        await ledger.writer.add([make_entry("d", 1, 7_200_000)])
        monkeypatch.setattr(live.store.board.pieces, "_MOST_DUE", 3)
        piece = await read_piece(state, place)
        assert (len(piece.due), len(piece.pairs), piece.offset, piece.cursor) == (3, 4, 2, "0")
        monkeypatch.setattr(live.store.board.pieces, "_MOST_DUE", 2)
        with (
            replaced(live.store.board.pieces, "catch_up", nothing),
            pytest.raises(StoreUnavailableError, match="board hot: 3 events wait to be subtracted"),
        ):
            await read_piece(state, place)
        piece = await read_piece(state, place)
        assert (piece.due, len(piece.pairs), piece.now) == ([], 1, 7_200_000)
        (pair,) = (await read_piece(state, place, names=[b"none"])).pairs
        assert pair == (b"none", None)
