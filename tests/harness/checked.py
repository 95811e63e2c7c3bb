"""Check a board against what its own slots say, also if it has a journal."""

from msgspec.structs import replace

from live.domain.board import Board
from live.maintenance.check import Report, check_board, replace_store
from live.settings import Settings
from live.store.board.keys import Keys
from live.store.connection.client import Store


async def checked(client: Store, settings: Settings, board: Board) -> Report:
    """Return what differs between the slots of a board and everything that follows from them."""
    alone = replace(settings, journal="off")
    report, _ = await check_board(client, alone, board, await _epoch(client, settings, board), lambda *_: None)
    return report


async def mended(client: Store, settings: Settings, board: Board) -> None:
    """Make everything follow from the slots of a board."""
    alone = replace(settings, journal="off")
    await replace_store(client, alone, board, await _epoch(client, settings, board), lambda *_: None)


async def _epoch(client: Store, settings: Settings, board: Board) -> str:
    meta = Keys(settings.key_prefix, board.id).meta
    epoch = await client.call(meta, "HGET", meta, "epoch")
    return (epoch or b"").decode()
