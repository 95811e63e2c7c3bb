"""The names of store keys, and what each holds.

The store keys of a board share the hash tag `{board}`, so that one node of a Cluster holds all of them. The system's
own store keys have tags that begin with a colon, which no board id and no producer id can contain. Times that are parts
of names are in seconds since 1970.
"""

from collections.abc import Iterable, Sequence


class _Name:
    """A store key with a fixed ending. Its name is made at the first use."""

    def __init__(self, end: str) -> None:
        self._end = end

    def __set_name__(self, _owner: type, attribute: str) -> None:
        self._attribute = attribute

    def __get__(self, keys: "Keys | SystemKeys", _owner: type) -> str:
        name = keys.__dict__[self._attribute] = f"{keys.base}{self._end}"
        return name


class Table:
    """The store keys of one ranking and its records; `suffix` is empty, or `:` and the start of the slot."""

    def __init__(self, base: str, suffix: str) -> None:
        self.suffix = suffix
        self.ranking = f"{base}:ranking{suffix}"  # sorted set: name, score
        self.reached = f"{base}:reached{suffix}"  # hash: member, tag
        self.levels = f"{base}:levels{suffix}"  # sorted set: each score in the ranking
        self.metadata = f"{base}:metadata{suffix}"  # hash: member, JSON
        self.votes = f"{base}:votes{suffix}"  # hash: digest of a voter, count

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

    ranking = _Name(":ranking")  # as in `Table`
    meta = _Name(":meta")  # hash: the board's state
    slots = _Name(":slots")  # sorted set: the start of every slot, scored by itself
    writers = _Name(":writers")  # hash: writer, "sequence offset seconds" of its last batch
    log = _Name(":log")  # sorted set: the events of a sliding window, scored by their time (ms)
    # Hash: member, absolute sum of its negative amounts in the log; if a sum of zero is a score, also a zero byte and
    # the member, the number of its events in the log.
    taken = _Name(":taken")
    entrants = _Name(":entrants")  # hash: registered member, JSON
    hidden = _Name(":hidden")  # hash: the members without a rank
    baseline = _Name(":baseline")  # hash: what the ranking was like at earlier times; see `baseline.lua`
    viewers = _Name(":viewers")  # hash: process, "viewers time" of its last report, the time in milliseconds
    gone = _Name(":gone")  # hash: the state of a deleted board
    dropped = _Name(":dropped")  # set: the store keys that hold nothing of the board, and are not deleted completely
    next = _Name(":next")  # set: the store keys beside the board, which a swap loads
    channel = _Name("")
    # Globs that match all store keys of this board, its slots, or its buckets of identities, and nothing else.
    pattern, slot_pattern, seen_pattern = _Name(":*"), _Name(":slot:*"), _Name(":seen:*")

    def __init__(self, prefix: str, board: str) -> None:
        self.board = board
        self.base = f"{prefix}:{{{board}}}"
        self._whole = Table(self.base, "")

    def table(self, start: int | str | None = None) -> Table:
        """Return the board's only ranking, or the ranking of the slot that begins at `start`."""
        return self._whole if start is None else Table(self.base, f":{start}")

    def slot(self, start: int | str) -> str:
        """Return the store key of the slot (a hash: member, value) that begins at `start`."""
        return f"{self.base}:slot:{start}"

    def seen(self, start: int) -> str:
        """Return the store key of the bucket of identities (a set) that begins at `start`."""
        return f"{self.base}:seen:{start}"

    def of_slot(self, start: int | str) -> tuple[str, ...]:
        """Return every store key that belongs only to the slot that begins at `start`."""
        return self.slot(start), *self.table(start).all

    def rankings(self, starts: Iterable[int | str], *, tables: bool) -> list[Table]:
        """Return the rankings of a board whose slots have these starts: one for each slot with `tables`."""
        return [self.table(start) for start in starts] if tables else [self._whole]

    def of_slots(self, starts: Sequence[int | str], *, tables: bool) -> list[str]:
        """Return the store keys of slots and rankings, as `lib/rankings.lua` takes them."""
        rankings = self.rankings(starts, tables=tables)
        return [*map(self.slot, starts), *(name for ranking in rankings for name in ranking.all)]

    def of_dropped(self, start: int | str) -> tuple[str, ...]:
        """Return the names that the store keys of a slot get when a calendar board drops it, in the same order."""
        return tuple(f"{self.dropped}:{start}:{number}" for number in range(len(self.of_slot(start))))

    def beside(self, name: str, token: str) -> str:
        """Return the store key beside a store key of the board, in the swap with a token."""
        return f"{self.next}:{token}{name.removeprefix(self.base)}"

    def journal(self, epoch: str) -> str:
        """Return the store key of the stream with an epoch's entries that are not in SQL yet. It outlives the board."""
        return f"{self.base}:journal:{epoch}"

    @property
    def fixed(self) -> tuple[str, ...]:
        """Every store key that a board has once, except its state (`meta`, `gone`) and its list of slots."""
        once = (self.writers, self.log, self.taken, self.entrants, self.hidden, self.baseline, self.viewers)
        return *self._whole.all, *once, self.dropped, self.next


class SystemKeys:
    """The store keys under one prefix that belong to no board."""

    # Hash: board, its definition as JSON. `:version` grows with every change, and `:file` has what the last boards file
    # named.
    definitions = _Name(":{:boards}:definitions")
    changes = _Name(":{:boards}:changes")  # list: "version field" of each of the last changes, newest first
    trail = _Name(":{:boards}:trail")  # stream: the audit log
    store = _Name(":{:boards}:store")  # string: the identity of the store
    format = _Name(":{:boards}:format")  # string: the number of the format of the stored data
    producers = _Name(":{:producers}")  # hash: producer, its record as JSON; `:version` grows with every change
    processes = _Name(":{:processes}")  # hash: process, the time of its last beat (ms); expires, as the next two
    process_versions = _Name(":{:processes}:versions")  # hash: process, the version of the definitions that it runs
    process_faults = _Name(":{:processes}:faults")  # hash: process, why it is not ready
    journals = _Name(":{:journals}")  # set: "board epoch" of each journal
    sink = _Name(":{:journals}:sink")  # string: the database into which the journals go
    journal_health = _Name(":{:journals}:health")  # string: JSON
    journal_fault = _Name(":{:journals}:fault")  # string: why no process moves entries to SQL
    items = _Name(":{:items}")  # hash: member, its item as JSON
    items_version = _Name(":{:items}:version")  # string: grows with every change
    items_changes = _Name(":{:items}:changes")  # list: "version member" of each of the last changes, newest first
    sessions = _Name(":{:sessions}")  # hash: the SHA-256 of a cookie, its session as JSON
    visitors = _Name(":{:visitors}")  # string: the secret that signs the cookies of visitors
    erasures = _Name(":{:erasures}")  # hash: keys of erasures that have not ended, each with a digest of the person
    memory = _Name(":{:memory}")  # list: the memory of the store whenever somebody opened the admin page
    refusals = _Name(":{:refusals}")  # list: a sample of refused events, while somebody looks at it
    refusals_wanted = _Name(":{:refusals}:wanted")  # string: exists while somebody looks at refused events
    demo = _Name(":{:demo}")  # string: the lease of the process that makes sample likes

    def __init__(self, prefix: str) -> None:
        self.base = prefix

    def ready(self, number: int = 0) -> str:
        """Return a store key for test writes. The hash slot depends on the number, so each server has such a key."""
        return f"{self.base}:{{:ready{number or ''}}}"
