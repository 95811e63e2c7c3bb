"""The ledger of one board: add, rotate, read. The rules I1 to I7 live in the scripts; here is the way to them."""

from live.store.adding import Adding
from live.store.entering import Entering
from live.store.placing import Placing
from live.store.rotating import Rotating


class Ledger(Adding, Rotating, Placing, Entering):
    """One board in the store, as one process sees it."""
