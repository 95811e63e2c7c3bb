"""A board folded from its journal, to compare with the result of the scripts for the same events."""

from itertools import takewhile
from typing import cast

import msgspec

from live.domain.board import Board
from live.journal.forgetting import without
from live.journal.log.entries import FIRST, Head, parse_head
from live.journal.log.reader import before
from live.journal.state.fold import apply
from live.journal.state.ranking import ranked_at
from live.journal.state.snapshot import Ranking, Reached, Snapshot, pack, unpack
from live.maintenance.recover import load
from live.store.board.journal_stream import read_entries
from live.store.board.keys import Keys
from live.store.board.read.reader import HIGH
from live.store.connection.client import Store, required


class Folded:
    """Reads the entries of one epoch of a board as the scripts append them. Nothing trims these entries."""

    def __init__(self, client: Store, keys: Keys, epoch: str) -> None:
        self.client = client
        self.keys = keys
        self.epoch = epoch
        self.contents = Snapshot()
        self.last = "0"
        self.link = FIRST
        self.entries: list[tuple[Head, bytes]] = []

    async def read(self) -> None:
        """Apply all new entries. Each entry names the previous one."""
        while True:
            (entries,) = required(await read_entries(self.client, [(self.keys, self.epoch, self.last)]))
            if not entries:
                break
            for entry in entries:
                head = parse_head(entry.head)
                assert head.before == self.link, "the chain of entries is broken"
                apply(self.contents, head, entry.content)
                self.entries.append((head, entry.content))
                self.last, self.link = entry.id, head.link
        # The fold goes on from packed contents, as from a checkpoint. So packing must lose nothing.
        self.contents = unpack(pack(self.contents))

    def forget(self, member: str) -> None:
        """Take a member out of the entries read so far, as an erasure does in SQL.

        The changed entries must fold to the contents that the board has after the erasure.
        """
        last = len(self.entries) - 1
        for place in range(last, -1, -1):
            head, body = self.entries[place]
            left = without(head, body, member) if head.kind != "forget" else None
            self.entries[place] = (head, body if left is None else left)
        again = Snapshot()
        for head, body in self.entries:
            apply(again, head, body)
        assert filled(again) == filled(self.contents)

    def ranking_at(self, board: Board, at: int) -> list[tuple[str, int]]:
        """The records in order at an earlier time, in milliseconds."""
        data = Snapshot()
        stop = before(at, board.clock)
        for head, body in takewhile(lambda entry: not stop(*entry), self.entries):
            apply(data, head, body)
        found = ranked_at(board, data, at)
        return [(member, found.scores[member]) for member in found.members]

    def ranking(self, board: Board, now: int, period: int | None = None) -> list[tuple[str, int]]:
        """The records in order, at a time in milliseconds."""
        found = ranked_at(board, self.contents, now, period)
        return [(member, found.scores[member]) for member in found.members]

    def tags(self, board: Board, period: int | None) -> dict[str, Reached]:
        """The event with which each member reached its score."""
        suffix = f":{period}" if board.window.tables else ""
        return self.contents.rankings.get(suffix, Ranking()).reached

    async def load_as(self, board: Board, keys: Keys, epoch: str) -> None:
        """Write the board again from its journal, under other store keys, and read these store keys from now on."""
        done = await load(
            self.client,
            keys,
            board,
            self.contents,
            epoch=epoch,
            parent=self.epoch,
            dedupe_window=86400.0,
            began=0,
            progress=lambda *_: None,
        )
        assert done is not None
        self.keys, self.epoch, self.last = keys, epoch, "0"


class Following:
    """The contents of a board from its entries in the store, which nothing trims; like `Follower`."""

    def __init__(self, folded: Folded) -> None:
        self._folded = Folded(folded.client, folded.keys, folded.epoch)
        self._folded.last, self._folded.link = folded.last, folded.link
        self.contents = unpack(pack(folded.contents))

    async def advance(self, link: str) -> Snapshot:
        """Return what the board held after the entry with a link, which is the last one."""
        source = self._folded
        while source.link != link:
            (entries,) = required(await read_entries(source.client, [(source.keys, source.epoch, source.last)]))
            for entry in entries:
                head = parse_head(entry.head)
                apply(self.contents, head, entry.content)
                source.last, source.link = entry.id, head.link
        return self.contents


def filled(data: Snapshot) -> Snapshot:
    """Return contents without their empty slots and rankings."""
    slots = {start: slot for start, slot in data.slots.items() if slot}
    rankings = {suffix: ranking for suffix, ranking in data.rankings.items() if ranking != Ranking()}
    return msgspec.structs.replace(data, slots=slots, rankings=rankings)


async def data_of(client: Store, keys: Keys) -> dict[str, object]:
    """The contents of a board's store keys, by the last parts of their names, with its totals and `latest`.

    Numbers of batches, journal entries, baselines, counts of viewers, and what a swap has loaded are left out.
    """
    found: dict[str, object] = {}
    async for name in client.names(keys.pattern):
        kind = name.removeprefix(keys.pattern[:-1])
        if kind.partition(":")[0] in ("writers", "journal", "baseline", "viewers", "next"):
            continue
        if kind == "meta":
            found |= _totals(cast("dict[bytes, bytes]", await client.hgetall(name)))
            continue
        match await client.type(name):
            case b"hash":
                found[kind] = await client.hgetall(name)
            case b"zset":
                found[kind] = await client.zrange(name, 0, -1, withscores=True)
            case b"set":
                found[kind] = await client.smembers(name)
    # The store keeps an empty slot in the list until the slot leaves the window. Such slots are not compared.
    listed = cast("list[tuple[bytes, float]]", found.pop("slots", []))
    if held := [slot for slot in listed if any(kind.endswith(f":{slot[0].decode()}") for kind in found)]:
        found["slots"] = held
    return found


def _totals(meta: dict[bytes, bytes]) -> dict[str, object]:
    totals = {
        name: int(value) + (int(meta.get(name.replace(b"total", b"high"), 0)) << HIGH)
        for name, value in meta.items()
        if name.startswith(b"total")
    }
    return {"totals": {name: total for name, total in totals.items() if total}, "latest": meta.get(b"latest")}
