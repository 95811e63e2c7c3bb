"""Count what boards hold in the store, and measure their memory from samples.

An estimate for other numbers of members and events is the number of elements times the bytes of one element.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from live.domain.board import Board
from live.domain.window import Periods
from live.store.connection.client import Store

Kind = Literal["member", "event", "fixed"]


class Cost(NamedTuple):
    """The cost of a collection: whether members or events make it grow, and the bytes of an element in a big one."""

    kind: Kind
    each: int


# The collections of a board, by the names of their store keys; `{base}:slot:1234` is a `slot`. The bytes were measured
# with Valkey 9 and names of 15 bytes. Redis 7 takes up to twice as many bytes.
COSTS: Final[Mapping[str, Cost]] = {
    "ranking": Cost("member", 93),
    "reached": Cost("member", 56),
    "levels": Cost("member", 64),
    "metadata": Cost("member", 56),
    "slot": Cost("member", 42),
    "entrants": Cost("member", 56),
    "log": Cost("event", 94),
    "seen": Cost("event", 41),
    "votes": Cost("event", 41),
}
_FIXED: Final = Cost("fixed", 0)
_PACKED: Final = 512  # maximum elements of a collection that a store keeps packed, so that they take less memory
_SAMPLES: Final = 500  # elements of a collection that are measured
_COUNTING: Final = {"zset": "ZCARD", "set": "SCARD", "hash": "HLEN"}


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """The position and the size of a board. Its `epoch` is None if the store has no data of the board."""

    board: str
    title: str
    epoch: str | None
    offset: int
    records: int
    frozen: bool


class KeyUsage(msgspec.Struct, frozen=True):
    """One store key: the known cost of its elements, its size in bytes, and its number of elements."""

    cost: Cost
    size: int
    count: int

    @property
    def each(self) -> float:
        """The bytes of one more element: the average in this store key, or the known cost while it may be packed."""
        return self.size / self.count if self.count > _PACKED else self.cost.each


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a board."""

    members: int  # the size of its largest ranking
    events: int  # the number of events that the store holds one by one: in a log, as identities, or as votes
    parts: Sequence[KeyUsage]

    @property
    def bytes(self) -> int:
        """The memory of all store keys."""
        return sum(part.size for part in self.parts)

    @property
    def per_member(self) -> float | None:
        """The bytes of a member; None if there is no member."""
        return self._of("member") / self.members if self.members else None

    @property
    def per_event(self) -> float | None:
        """The bytes of an event; None when the store holds no single events."""
        return self._of("event") / self.events if self.events else None

    def predict(self, members: int | None, events: int | None) -> int | None:
        """Predict the bytes for other numbers of members and events. Return None if the board has no members now.

        Without `members`, their number stays, and without `events`, that of each member.
        """
        if not self.members:
            return None
        by_members = 1.0 if members is None else members / self.members
        by_events = by_members if events is None or not self.events else events / self.events
        factors = {"member": by_members, "event": by_events}
        grown = (part.count * factors[part.cost.kind] * part.each for part in self.parts if part.cost is not _FIXED)
        return self._of("fixed") + round(sum(grown))

    def _of(self, kind: Kind) -> int:
        return sum(part.size for part in self.parts if part.cost.kind == kind)


async def count(client: Store, board: Board) -> Census:
    """Count the records of a board, without opening it."""
    keys = client.keys_of(board.id)
    state = await client.call(keys.meta, "HMGET", keys.meta, "epoch", "offset", "newest", "frozen")
    epoch, offset, newest, frozen = (None if word is None else word.decode() for word in state)
    tables = isinstance(board.window, Periods) and board.window.tables
    ranking = keys.table(newest if tables else None).ranking
    records = await client.call(ranking, "ZCARD", ranking)
    return Census(
        board=board.id,
        title=board.title,
        epoch=epoch,
        offset=int(offset or 0),
        records=records,
        frozen=frozen is not None,
    )


async def keys_of(client: Store, boards: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of all store keys of some boards, found in one walk over the store."""
    found: dict[str, list[str]] = {board: [] for board in boards}
    async for name in client.names(f"{client.prefix}:{{*"):
        board = name.removeprefix(f"{client.prefix}:{{").partition("}")[0]
        if board in found:
            found[board].append(name)
    return {board: sorted(names) for board, names in found.items()}


async def measure(client: Store, board: str, names: Sequence[str]) -> Memory:
    """Measure the store keys of a board, each by a sample of its elements."""
    parts: list[KeyUsage] = []
    members = votes = 0
    known: Counter[str] = Counter()
    for name in names:
        what = name.removeprefix(f"{client.keys_of(board).channel}:").partition(":")[0]
        kind = (await client.call(name, "TYPE", name)).decode()
        if kind not in _COUNTING:
            continue  # the store key was deleted meanwhile
        size = await client.call(name, "MEMORY", "USAGE", name, "SAMPLES", _SAMPLES)
        elements = await client.call(name, _COUNTING[kind], name)
        parts.append(KeyUsage(COSTS.get(what, _FIXED), size or 0, elements))
        members = max(members, elements) if what == "ranking" else members
        known[what] += elements
        if what == "meta":
            # The total of all scores in all rankings is the number of votes, on a board that counts votes.
            state = await client.call(name, "HGETALL", name)
            fields = zip(state[::2], state[1::2], strict=True)
            votes = sum(int(value) for field, value in fields if field.partition(b":")[0] == b"total")
    events = max(known["log"], known["seen"]) or (votes if known["votes"] else 0)
    return Memory(members=members, events=events, parts=parts)


def view(census: Census, memory: Memory | None, members: int | None, events: int | None) -> dict[str, Any]:
    """Return the description of a board for the command line."""
    described: dict[str, Any] = msgspec.to_builtins(census)
    if memory is not None:
        described["memory"] = {
            "bytes": memory.bytes,
            "members": memory.members,
            "events": memory.events,
            "bytes_per_member": memory.per_member,
            "bytes_per_event": memory.per_event,
        }
        if members is not None or events is not None:
            described["memory"]["predicted"] = memory.predict(members, events)
    return described
