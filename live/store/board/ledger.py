"""The ledger of one board: add, rotate, read. The rules I1 to I7 live in the scripts; here is the way to them."""

from live.store.board.entrants import Entering
from live.store.board.placing import Placing
from live.store.board.rotator import Rotating
from live.store.board.writer import Adding


class Ledger(Adding, Rotating, Placing, Entering):
    """One board in the store, as one process sees it."""
