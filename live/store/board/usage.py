"""What boards hold in the store, and their memory: counted, measured by samples, and estimated for another load."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from live.domain.board import BOARD_ID, Board
from live.domain.window import Periods
from live.store.board.keys import Keys
from live.store.connection.client import Store, store_errors

Kind = Literal["member", "event", "fixed"]

_PACKED: Final = 512  # elements up to which a store may keep a collection in one piece, without a hash table
_SAMPLES: Final = 500  # elements of a collection that are measured

# What a store key of a board grows with, by its name; `{base}:slot:1234` is a `slot`.
_KINDS: Final[Mapping[str, Kind]] = {
    "ranking": "member", "reached": "member", "levels": "member", "metadata": "member", "slot": "member",
    "entrants": "member", "log": "event", "seen": "event", "votes": "event",
    "meta": "fixed", "slots": "fixed", "writers": "fixed", "baseline": "fixed",
    "viewers": "fixed",
}  # fmt: skip
_COUNTING: Final = {"zset": "ZCARD", "set": "SCARD", "hash": "HLEN"}


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """The position and the size of a board. Its `epoch` is None if no process has opened the board yet."""

    board: str
    title: str
    epoch: str | None
    offset: int
    records: int
    frozen: bool


class Part(msgspec.Struct, frozen=True):
    """One store key: what it grows with, its size in bytes, and its number of elements."""

    kind: Kind
    size: int
    count: int

    def grown(self, factor: float, table: "Table") -> float:
        """Its size with `factor` times as many elements."""
        if self.kind == "fixed" or self.count <= _PACKED:
            return self.size * (1 if self.kind == "fixed" else factor)
        return (self.size - table(self.count)) * factor + table(self.count * factor)


Table = Callable[[float], int]


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a board.

    Attributes:
        members: the size of its largest ranking.
        events: the number of events that the store holds one by one: in a log, as identities, or as votes.
        parts: its store keys.
        table: the size of a hash table of the store, in bytes, for a number of elements.
    """

    members: int
    events: int
    parts: Sequence[Part]
    table: Table

    @property
    def bytes(self) -> int:
        """The memory of all store keys."""
        return sum(part.size for part in self.parts)

    @property
    def per_member(self) -> float | None:
        """The bytes of a member; None when there is none."""
        return self._of("member") / self.members if self.members else None

    @property
    def per_event(self) -> float | None:
        """The bytes of an event; None when the store holds no single events."""
        return self._of("event") / self.events if self.events else None

    def predict(self, members: int | None, events: int | None) -> int | None:
        """The bytes of another number of members and events, distributed as now; None when there are no members.

        Without `events`, there are as many for each member as now. Without `members`, there are as many as now.
        """
        if not self.members:
            return None
        by_members = 1.0 if members is None else members / self.members
        by_events = by_members if events is None or not self.events else events / self.events
        factors = {"member": by_members, "event": by_events, "fixed": 1.0}
        return round(sum(part.grown(factors[part.kind], self.table) for part in self.parts))

    def _of(self, kind: Kind) -> int:
        return sum(part.size for part in self.parts if part.kind == kind)


async def count(client: Store, prefix: str, board: Board) -> Census:
    """Count the records of a board, without opening it.

    Raises:
        StoreUnavailableError: the store is unavailable.
    """
    keys = Keys(prefix, board.id)
    async with store_errors():
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


async def keys_of(client: Store, prefix: str, boards: Iterable[str]) -> dict[str, list[str]]:
    """The names of all store keys of some boards, found in one walk over the store.

    Raises:
        StoreUnavailableError: the store is unavailable.
    """
    found: dict[str, list[str]] = {board: [] for board in boards}
    async with store_errors():
        async for name in client.names(f"{prefix}:{{*"):
            board = name.removeprefix(f"{prefix}:{{").partition("}")[0]
            if board in found:
                found[board].append(name)
    return {board: sorted(names) for board, names in found.items()}


async def opened_boards(client: Store, prefix: str) -> set[str]:
    """The ids of all boards that the store holds, found in one walk over it.

    Raises:
        StoreUnavailableError: the store is unavailable.
    """
    begin, end = f"{prefix}:{{", "}:meta"
    async with store_errors():
        found = {name.removeprefix(begin).removesuffix(end) async for name in client.names(f"{begin}*{end}")}
    return {board for board in found if BOARD_ID.fullmatch(board)}


async def measure(client: Store, prefix: str, board: str, names: Sequence[str]) -> Memory:
    """Measure the store keys of a board, each by a sample of its elements.

    Raises:
        StoreUnavailableError: the store is unavailable.
    """
    parts: list[Part] = []
    members = votes = 0
    known: Counter[str] = Counter()
    async with store_errors():
        for name in names:
            what = name.removeprefix(f"{Keys(prefix, board).channel}:").partition(":")[0]
            kind = (await client.call(name, "TYPE", name)).decode()
            if kind not in _COUNTING:
                continue  # it was deleted in between
            size = await client.call(name, "MEMORY", "USAGE", name, "SAMPLES", _SAMPLES)
            elements = await client.call(name, _COUNTING[kind], name)
            parts.append(Part(_KINDS.get(what, "fixed"), size or 0, elements))
            members = max(members, elements) if what == "ranking" else members
            known[what] += elements
            if what == "meta":
                votes = _total(await client.call(name, "HGETALL", name))
    events = max(known["log"], known["seen"]) or (votes if known["votes"] else 0)
    return Memory(members=members, events=events, parts=parts, table=await _table_of(client))


async def _table_of(client: Store) -> Table:
    """How the hash tables of this store grow: they double, in buckets of seven elements (since Valkey 8.1) or of one.

    Between two doublings the bytes per element fall, so the size of a table does not predict the size of another one.
    While a table doubles, the store holds the old one too; the estimate leaves that out.
    """
    info = (await client.each("INFO", "server"))[0].decode()
    version = re.search(r"^valkey_version:(\d+)\.(\d+)", info, re.MULTILINE)
    bucket, elements = (64, 7) if version and (int(version[1]), int(version[2])) >= (8, 1) else (8, 1)
    return lambda count: bucket * 2 ** math.ceil(math.log2(max(1.0, count / elements)))


def _total(state: Sequence[bytes]) -> int:
    """The total of all scores in all rankings; on a board that counts votes, the number of votes."""
    return sum(
        int(value) for name, value in zip(state[::2], state[1::2], strict=True) if name.partition(b":")[0] == b"total"
    )


def view(census: Census, memory: Memory | None, members: int | None, events: int | None) -> dict[str, Any]:
    """The description of a board for the command line."""
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
