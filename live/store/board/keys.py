"""The names of store keys.

The store keys of a board share the hash tag `{board}`, so that one node of a Cluster holds all of them. The system's
own store keys have tags that begin with a colon, which no board id and no producer id can contain.
"""


class Table:
    """The store keys of one ranking and its records; `suffix` is empty, or `:` and the start of the slot."""

    def __init__(self, base: str, suffix: str) -> None:
        self.suffix = suffix
        self.ranking = f"{base}:ranking{suffix}"
        self.reached = f"{base}:reached{suffix}"
        self.levels = f"{base}:levels{suffix}"
        self.metadata = f"{base}:metadata{suffix}"
        self.votes = f"{base}:votes{suffix}"

    @property
    def order(self) -> tuple[str, str, str]:
        """The store keys that decide the order of the records."""
        return self.ranking, self.reached, self.levels

    @property
    def all(self) -> tuple[str, ...]:
        """Every store key of the ranking."""
        return self.ranking, self.reached, self.levels, self.metadata, self.votes


class Keys:
    """The store keys and the channel of one board, whose id has been checked before."""

    def __init__(self, prefix: str, board: str) -> None:
        self.board = board
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
        self.baseline = f"{self._base}:baseline"
        self.viewers = f"{self._base}:viewers"
        self.gone = f"{self._base}:gone"

    def table(self, start: int | str | None = None) -> Table:
        """Return the board's only ranking, or the ranking of the slot that begins at `start`, in seconds since 1970."""
        return self._whole if start is None else Table(self._base, f":{start}")

    def slot(self, start: int | str) -> str:
        """Return the store key of the slot (a hash) that begins at `start`, in seconds since 1970."""
        return f"{self._base}:slot:{start}"

    def seen(self, start: int) -> str:
        """Return the store key of the bucket of identities (a set) that begins at `start`, in seconds since 1970."""
        return f"{self._base}:seen:{start}"

    def of_slot(self, start: int | str) -> tuple[str, ...]:
        """Return every store key that belongs only to the slot that begins at `start`, in seconds since 1970."""
        return self.slot(start), *self.table(start).all

    @property
    def dropped(self) -> str:
        """Return the store key of the starts of the periods that are not deleted completely."""
        return f"{self._base}:dropped"

    def of_dropped(self, start: int | str) -> tuple[str, ...]:
        """Return the names that the store keys of a slot get when a calendar board drops it, in the same order."""
        return tuple(f"{self.dropped}:{start}:{number}" for number in range(len(self.of_slot(start))))

    @property
    def journals(self) -> str:
        """The list of all journals, which belongs to no board."""
        return SystemKeys(self._base.rpartition(":{")[0]).journals

    def journal(self, epoch: str) -> str:
        """Return the store key of the stream with an epoch's entries that are not in SQL yet. It outlives the board."""
        return f"{self._base}:journal:{epoch}"

    @property
    def fixed(self) -> tuple[str, ...]:
        """Every store key that a board has once, except its state (`meta`, `gone`) and its list of slots."""
        once = (self.writers, self.log, self.taken, self.entrants, self.hidden, self.baseline, self.viewers)
        return *self._whole.all, *once, self.dropped

    @property
    def pattern(self) -> str:
        """A glob that matches every store key of this board and nothing else."""
        return f"{self._base}:*"

    @property
    def slot_pattern(self) -> str:
        """A glob that matches every slot of this board and nothing else."""
        return self.slot("*")

    @property
    def seen_pattern(self) -> str:
        """A glob that matches every bucket of identities of this board and nothing else."""
        return f"{self._base}:seen:*"


class SystemKeys:
    """The store keys under one prefix that belong to no board."""

    def __init__(self, prefix: str) -> None:
        self.definitions = f"{prefix}:{{:boards}}:definitions"
        self.changes = f"{prefix}:{{:boards}}:changes"
        self.trail = f"{prefix}:{{:boards}}:trail"
        self.store = f"{prefix}:{{:boards}}:store"
        self.format = f"{prefix}:{{:boards}}:format"
        self.producers = f"{prefix}:{{:producers}}"
        self.processes = f"{prefix}:{{:processes}}"
        self.journals = f"{prefix}:{{:journals}}"
        self.sink = f"{prefix}:{{:journals}}:sink"
        self.prefix = prefix
        self.demo = f"{prefix}:{{:demo}}"
        self.visitors = f"{prefix}:{{:visitors}}"
        self.items = f"{prefix}:{{:items}}"
        self.items_version = f"{prefix}:{{:items}}:version"
        self.items_changes = f"{prefix}:{{:items}}:changes"

    def ready(self, number: int = 0) -> str:
        """Return a store key for test writes. The hash slot depends on the number, so each server has such a key."""
        return f"{self.prefix}:{{:ready{number or ''}}}"

    @property
    def sessions(self) -> str:
        """The sessions of the admin page."""
        return f"{self.prefix}:{{:sessions}}"

    @property
    def memory(self) -> str:
        """The memory of the store at the times when somebody opened the admin page."""
        return f"{self.prefix}:{{:memory}}"

    @property
    def refusals(self) -> str:
        """A sample of refused events, while somebody looks at it on the admin page."""
        return f"{self.prefix}:{{:refusals}}"

    @property
    def refusals_wanted(self) -> str:
        """The store key that exists while somebody looks at refused events."""
        return f"{self.refusals}:wanted"

    @property
    def process_versions(self) -> str:
        """The version of the definitions that each live process runs."""
        return f"{self.processes}:versions"

    @property
    def process_faults(self) -> str:
        """Why live processes are not ready."""
        return f"{self.processes}:faults"

    @property
    def journal_health(self) -> str:
        """The health of the journals."""
        return f"{self.journals}:health"

    @property
    def journal_fault(self) -> str:
        """The reason why no process moves entries to SQL."""
        return f"{self.journals}:fault"
