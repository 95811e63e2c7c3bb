"""Send the lost entries of a board from the journal to the store again, when an operator asks and no server runs."""

import msgspec

from live.domain.board import Board
from live.errors import SetupError
from live.journal.database import Database
from live.journal.log.resending import UnsentError, send_again
from live.journal.log.timelines import find_timeline, went_back
from live.settings import Settings
from live.store.board.journal_stream import trim
from live.store.board.keys import Keys
from live.store.board.reign import confirm
from live.store.connection.client import Store


class RestoredBoard(msgspec.Struct, frozen=True):
    """A restored board: its epoch, and its offsets before and now."""

    board: str
    epoch: str
    before: int
    offset: int


async def restore_lost(client: Store, settings: Settings, database: Database, board: Board) -> RestoredBoard:
    """Send the lost entries of a board to the store again. This ends the loss of the board.

    Raises:
        SetupError: a server runs, the store has no such board or lacks nothing, or an entry can't be sent again.
    """
    await database.in_thread(database.take_for_command)
    name, keys = board.id, Keys(settings.key_prefix, board.id)
    fields = ("epoch", "offset", "journal", "resending")
    held, offset, journal, resending = await client.call(keys.meta, "HMGET", keys.meta, *fields)
    if held is None or journal is None:
        raise SetupError(f"the store does not hold board {name} with a journal: use `live rebuild --board {name}`")
    epoch, link = held.decode(), journal.decode().rpartition(" ")[0]
    timeline = await database.run(lambda connection: find_timeline(connection, settings.key_prefix, name, epoch))
    if timeline is None or not (resending or went_back(timeline, link)):
        raise SetupError(f"the store has everything that the journal has of board {name}")
    known = client.high_water.offset_of(name, epoch)
    with client.high_water.accepting("sent again from the journal", {name}):
        try:
            after = await send_again(client, settings, database, timeline, board, least=known)
        except UnsentError as error:
            raise SetupError(
                f"{error}. Rebuild the board with `live reconcile --board {name} --repair store`, or accept the "
                "loss with `live serve --accept-loss`"
            ) from None
        await trim(client, keys, epoch, after.drained, after.size)
        if (found := await confirm(client, keys, epoch, "")) is not None:
            await confirm(client, keys, epoch, str(found.offset))
    now = int(await client.call(keys.meta, "HGET", keys.meta, "offset"))
    return RestoredBoard(name, epoch, int(offset), now)
