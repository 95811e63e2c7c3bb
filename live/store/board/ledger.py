"""One board in the store, as one process sees it: what writes, reads, rotates and moderates it, over one state.

The rules I1 to I7 live in the scripts; here is the way to them.
"""

from live.domain.board import Board
from live.settings import Settings
from live.store.board.moderation import BoardModeration
from live.store.board.reader import BoardReader
from live.store.board.rotator import BoardRotator
from live.store.board.state import SCRIPTS, BoardState, Scripts
from live.store.board.writer import BoardWriter
from live.store.connection.client import Store


class Ledger:
    """The parts of one board."""

    def __init__(
        self, client: Store, board: Board, settings: Settings, scripts: Scripts = SCRIPTS, born: str = ""
    ) -> None:
        """With `born`, the epoch that the board was created with at run time: it never gets another one here."""
        self.state = BoardState(client, board, settings, scripts, born)
        self.writer = BoardWriter(self.state)
        self.reader = BoardReader(self.state)
        self.rotator = BoardRotator(self.state)
        self.moderation = BoardModeration(self.state)
