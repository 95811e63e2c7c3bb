"""Names in the store. The keys of a board share the hash tag `{board}`, so a board lives on one Cluster slot.

The system's own keys have tags that begin with a colon, which no board id and no producer id can hold.
"""

from typing import Final

# Where earlier versions kept what belongs to the system: the tags were ids that a board can have.
_MOVED: Final = (
    ("{boards}:definitions", "{:boards}:definitions"),
    ("{boards}:trail", "{:boards}:trail"),
    ("{producers}", "{:producers}"),
)


class Table:
    """The keys of one ranking, and of what belongs to its records; `suffix` is empty, or `:` and the slot's start."""

    def __init__(self, base: str, suffix: str) -> None:
        self.suffix = suffix
        self.ranking = f"{base}:ranking{suffix}"
        self.reached = f"{base}:reached{suffix}"
        self.levels = f"{base}:levels{suffix}"
        self.metadata = f"{base}:metadata{suffix}"
        self.votes = f"{base}:votes{suffix}"

    @property
    def order(self) -> tuple[str, str, str]:
        """What tells the order of the records."""
        return self.ranking, self.reached, self.levels

    @property
    def all(self) -> tuple[str, ...]:
        """Every key of the table."""
        return self.ranking, self.reached, self.levels, self.metadata, self.votes


class Keys:
    """The keys and the channel of one board; its id is checked before it comes here."""

    def __init__(self, prefix: str, board: str) -> None:
        self._base = f"{prefix}:{{{board}}}"
        self._whole = Table(self._base, "")
        self.channel = self._base
        self.ranking = self._whole.ranking
        self.meta = f"{self._base}:meta"
        self.slots = f"{self._base}:slots"
        self.writers = f"{self._base}:writers"
        self.log = f"{self._base}:log"
        self.taken = f"{self._base}:taken"
        self.entrants = f"{self._base}:entrants"
        self.hidden = f"{self._base}:hidden"
        self.viewers = f"{self._base}:viewers"
        self.gone = f"{self._base}:gone"

    def table(self, start: int | str | None = None) -> Table:
        """The one table of a board, or that of the slot that begins at `start`, in seconds since 1970."""
        return self._whole if start is None else Table(self._base, f":{start}")

    def slot(self, start: int | str) -> str:
        """The hash of the slot that begins at `start`, in seconds since 1970."""
        return f"{self._base}:slot:{start}"

    def seen(self, start: int) -> str:
        """The set of the identities that were counted in the bucket that begins at `start`."""
        return f"{self._base}:seen:{start}"

    def of_slot(self, start: int | str) -> tuple[str, ...]:
        """Every key that belongs to the slot that begins at `start`, in seconds since 1970, and to it alone."""
        return self.slot(start), *self.table(start).all

    @property
    def fixed(self) -> tuple[str, ...]:
        """Every key that a board has once, but for its state (`meta`, `gone`) and its list of slots."""
        return *self._whole.all, self.writers, self.log, self.taken, self.entrants, self.hidden, self.viewers

    @property
    def slot_pattern(self) -> str:
        """A glob that matches every slot of this board and nothing else."""
        return self.slot("*")


class SystemKeys:
    """The keys under one prefix that belong to no board."""

    def __init__(self, prefix: str) -> None:
        self.definitions = f"{prefix}:{{:boards}}:definitions"
        self.trail = f"{prefix}:{{:boards}}:trail"
        self.store = f"{prefix}:{{:boards}}:store"
        self.format = f"{prefix}:{{:boards}}:format"
        self.producers = f"{prefix}:{{:producers}}"
        self.ready = f"{prefix}:{{:ready}}"
        self.demo = f"{prefix}:{{:demo}}"
        self.moved = tuple((f"{prefix}:{old}", f"{prefix}:{new}") for old, new in _MOVED)
