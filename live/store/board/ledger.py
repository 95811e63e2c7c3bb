"""One board in the store: its writer, reader, rotator and moderation, which share one state.

The scripts keep the invariants I1 to I7; these classes call the scripts.
"""

import msgspec

from live.domain.board import Board
from live.settings import Settings
from live.store.board.manage.moderation import BoardModeration
from live.store.board.read.baseline import BoardBaseline
from live.store.board.read.reader import BoardReader
from live.store.board.requests import SCRIPTS, Scripts
from live.store.board.rotation import BoardRotator
from live.store.board.state import BoardState
from live.store.board.write.writer import BoardWriter
from live.store.connection.client import Store


class Ledger:
    """The parts of one board. Give each caller only the part that it needs."""

    def __init__(
        self, client: Store, board: Board, settings: Settings, scripts: Scripts = SCRIPTS, born: str = ""
    ) -> None:
        """Make the parts. `born` is the epoch in the definition of the board. It never changes."""
        self.state = BoardState(client, board, settings, scripts, born)
        self.writer = BoardWriter(self.state)
        self.reader = BoardReader(self.state)
        self.rotator = BoardRotator(self.state)
        self.baseline = BoardBaseline(self.state)
        self.moderation = BoardModeration(self.state)


async def open_ledger(client: Store, board: Board, settings: Settings, epoch: str, *, dry: bool) -> Ledger:
    """Open a board for a command. `epoch` is the epoch in its definition."""
    if dry:  # opening a board also begins or ends its journal, which a dry run must not do
        board = msgspec.structs.replace(board, journal="events")
        settings = msgspec.structs.replace(settings, journal="off")
    ledger = Ledger(client, board, settings, born=epoch)
    await ledger.state.open_to_write()
    return ledger
