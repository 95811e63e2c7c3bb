"""Audit a running board: check invariant I1 for every member, piece by piece, each piece at one instant."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec

from live.domain.board import DEFAULT_BOARD, Shape
from live.domain.window import EVER
from live.errors import SetupError
from live.store.board.keys import Keys, Table
from live.store.board.read.reader import HIGH, PLACE, TAG
from live.store.board.reign import unchecked
from live.store.board.requests import Rules
from live.store.connection.client import Store
from live.store.connection.pipelined import Word
from live.store.connection.scripts import Script, Text, text


class AuditRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Compare the records of distinct members with all slots of the ranking. With `repair`, correct the records.

    `epoch` is the epoch of the board, and `starts` are the starts of the slots of the ranking. `tables` means that each
    slot has a ranking of its own.
    """

    epoch: str
    channel: str
    rules: Rules
    repair: bool = False
    tables: bool = False
    starts: list[str] = []
    members: list[Text] = []


class FixTotalsRequest(msgspec.Struct):
    """Set the two fields of a total that was counted at an offset. `suffix` is the end of the names of both fields."""

    offset: int
    channel: str
    suffix: str
    total: int
    high: int


AUDIT: Final = Script("audit", AuditRequest, waits=False)
REPAIR: Final = Script("audit", AuditRequest)
FIX_TOTALS: Final = Script("fix_totals", FixTotalsRequest)

_PIECE: Final = 200  # most members that one call compares
_FIELDS: Final = 20_000  # fields of slots that one call reads, which takes the store a few milliseconds
_SHOWN: Final = 20  # most drifted members that a report names


class Drift(msgspec.Struct, frozen=True):
    """A member whose `score` in the ranking (None: no record) differs from `held`, the sum of its values in slots."""

    key: str
    score: int | None
    held: int


class AuditReport(msgspec.Struct, kw_only=True):
    """The result of an audit.

    Attributes:
        board: the id of the board.
        members: the number of members that were compared.
        slots: the number of slots.
        drifted: the number of members with a wrong score.
        drift: the first of these members.
        stray_slots: the store keys of slots that are missing from the list of slots, so that rotation never subtracts
            them.
        totals: `ok`, `drift`, or `moving` when the board changed, so that its totals cannot be checked.
        repaired: whether the audit corrected what it found.
    """

    board: str
    members: int = 0
    slots: int = 0
    drifted: int = 0
    drift: list[Drift] = []
    stray_slots: list[str] = []
    totals: str = "ok"
    repaired: bool = False

    @property
    def clean(self) -> bool:
        """Whether nothing was wrong."""
        return not self.drifted and not self.stray_slots and self.totals != "drift"


class _Sums(msgspec.Struct):
    """The sums of one pass over a ranking, and the offsets of its first and last piece."""

    ranked: int = 0
    total: int = 0
    first_offset: int | None = None
    last_offset: int | None = None


Progress = Callable[[int, int], None]


class Auditor:
    """Audit one board. Call `progress` with the number of compared members, and the estimated number of all members."""

    def __init__(self, client: Store, board: str, prefix: str, progress: Progress) -> None:
        self._client = client
        self._keys = Keys(prefix, board)
        self._progress = progress
        self._report = AuditReport(board=board)
        self._shape: Shape = DEFAULT_BOARD.shape
        self._epoch = ""

    async def audit(self, *, repair: bool) -> AuditReport:
        """Compare every member. With `repair`, correct the ranking by the slots. Writes continue during the audit.

        Raises:
            SetupError: the store has no such board.
        """
        shape: bytes | None = await self._call("HGET", self._keys.meta, "shape")
        if shape is None:
            raise SetupError(f"the store has no board {self._report.board!r} under this key prefix")
        self._shape = msgspec.json.decode(shape, type=Shape)
        self._report = AuditReport(board=self._report.board)  # a new report, because an auditor can audit again
        await self._read_epoch()
        await self._find_strays(repair=repair)
        await self._pass(repair=repair)
        self._report.repaired = repair and not self._report.clean
        if self._report.repaired:  # a second pass corrects the totals; the rest of the report is from the first pass
            found, self._report = self._report, AuditReport(board=self._report.board)
            await self._pass(repair=False, settle=True)
            found.totals = self._report.totals
            self._report = found
        elif self._shape.window["kind"] == "sliding":
            # Compare what the window holds with the events in its log, if the board does not change in between.
            before = await self._call("HGET", self._keys.meta, "offset")
            sums: Counter[bytes] = Counter()
            async for event, _ in self._scan("ZSCAN", self._keys.log):
                amount, _, member = event[PLACE:].partition(b" ")
                sums[member] += int(amount)
            held: Counter[bytes] = Counter()
            async for member, value in self._scan("HSCAN", self._keys.slot(EVER.start)):
                held[member] = int(value)
            if before != await self._call("HGET", self._keys.meta, "offset"):
                self._report.totals = "moving" if self._report.totals == "ok" else self._report.totals
            elif +sums != +held or -sums != -held or (self._shape.zeros and sums.keys() != held.keys()):
                self._report.totals = "drift"
        return self._report

    async def _pass(self, *, repair: bool, settle: bool = False) -> None:
        """Compare every ranking of the board, and its totals if the board did not change while they were counted.

        With `repair`, correct the records. With `settle`, correct the totals.
        """
        for table, starts in await self._tables():
            sums = _Sums()
            about = self._report.members + await self._call("ZCARD", table.ranking)
            piece: list[bytes] = []
            async for member in self._members(table, starts):
                piece.append(member)
                if len(piece) >= max(1, min(_PIECE, _FIELDS // max(1, len(starts)))):
                    await self._compare(table, starts, piece, sums, repair=repair)
                    self._progress(self._report.members, max(about, self._report.members))
                    piece = []
            await self._compare(table, starts, piece, sums, repair=repair)
            self._progress(self._report.members, self._report.members)
            if not repair or self._report.clean:
                await self._check_totals(table, sums, repair=repair or settle)

    async def _tables(self) -> list[tuple[Table, list[str]]]:
        """Return the store keys of the board's rankings, each with the starts of its slots."""
        starts = await self._starts()
        self._report.slots = len(starts)
        if self._shape.tables:
            return [(self._keys.table(start), [start]) for start in starts]
        return [(self._keys.table(), starts)]

    async def _members(self, table: Table, starts: list[str]) -> AsyncIterator[bytes]:
        """Yield every member of the ranking or of a slot, once."""
        seen: set[bytes] = set()
        skip = 0 if self._shape.tags == "key" else TAG
        async for name, _ in self._scan("ZSCAN", table.ranking):
            member = name[skip:]
            if member not in seen:
                seen.add(member)
                yield member
        for start in list(starts):
            async for member, _ in self._scan("HSCAN", self._keys.slot(start)):
                if member not in seen:
                    seen.add(member)
                    yield member

    async def _compare(
        self, table: Table, starts: list[str], members: list[bytes], sums: _Sums, *, repair: bool
    ) -> None:
        keys, shape = self._keys, self._shape
        # Repair the records only. The totals are corrected at the end.
        ties = None if shape.tags == "key" else shape.tags
        rules = Rules(operation=shape.operation, order="", ties=ties, dense=shape.levels, zeros=shape.zeros)
        while True:
            slots = [keys.slot(start) for start in starts]
            reply = await (REPAIR if repair else AUDIT)(
                self._client,
                [*table.order, keys.meta, keys.slots, keys.hidden, keys.journal(self._epoch), *slots],
                AuditRequest(
                    epoch=self._epoch,
                    channel=keys.channel,
                    rules=rules,
                    repair=repair,
                    tables=shape.tables,
                    starts=starts,
                    members=[text(member) for member in members],
                ),
            )
            if reply[0] == b"ok":
                break
            if reply[0] == b"reign":
                raise unchecked(keys.board)
            await self._read_epoch()
            if shape.tables:
                return  # the period has been deleted
            starts[:] = (await self._tables())[0][1]
        _, offset, ranked, totals, *drift = reply
        sums.ranked += int(ranked)
        sums.total += sum(map(int, totals))
        sums.first_offset = int(offset) if sums.first_offset is None else sums.first_offset
        sums.last_offset = int(offset)
        self._report.members += len(members)
        for key, score, held in zip(drift[::3], drift[1::3], drift[2::3], strict=True):
            self._report.drifted += 1
            if len(self._report.drift) < _SHOWN:
                found = Drift(key.decode(errors="replace"), int(score) if score else None, int(held))
                self._report.drift.append(found)

    async def _read_epoch(self) -> None:
        self._epoch = (await self._call("HGET", self._keys.meta, "epoch") or b"").decode()

    async def _find_strays(self, *, repair: bool) -> None:
        """Find slots that are missing from the list of slots: rotation would never subtract them.

        With `repair`, add them to the list.
        """
        prefix = self._keys.slot("")
        found = [name async for name in self._client.names(self._keys.slot_pattern)]
        suspects = sorted(set(found) - await self._listed())
        known = await self._listed()  # list again: a slot may have begun again meanwhile
        self._report.stray_slots = [name for name in suspects if name not in known and await self._call("EXISTS", name)]
        if repair and self._report.stray_slots:
            starts = {key.removeprefix(prefix) for key in self._report.stray_slots}
            listed = [start for start in starts if start.removeprefix("-").isdecimal()]
            if listed:
                words = (word for start in listed for word in (start, start))
                await self._client.write(self._keys.slots, "ZADD", self._keys.slots, *words)

    async def _listed(self) -> set[str]:
        return {self._keys.slot(start) for start in await self._starts()}

    async def _starts(self) -> list[str]:
        """Return the starts of the slots that rotation knows."""
        return [start.decode() for start in await self._call("ZRANGE", self._keys.slots, 0, -1)]

    async def _call(self, command: str, key: str, *words: Word) -> Any:  # noqa: ANN401 - any reply
        return await self._client.call(key, command, key, *words)

    async def _scan(self, command: str, key: str) -> AsyncIterator[tuple[bytes, bytes]]:
        """Yield the fields of a hash or the names of a sorted set, each with its value. A pair may come twice."""
        async for found in self._client.elements(command, key):
            for pair in zip(found[::2], found[1::2], strict=True):
                yield pair

    async def _check_totals(self, table: Table, sums: _Sums, *, repair: bool) -> None:
        """Compare the stored totals with `sums`, if the board did not change meanwhile. With `repair`, correct them."""
        names = ["offset", f"total{table.suffix}", f"high{table.suffix}"]
        ranked = await self._call("ZCARD", table.ranking)
        # Read the state last: its offset shows whether the board has changed since the first piece was compared.
        state = await self._call("HMGET", self._keys.meta, *names)
        offset, low, high = (int(value or 0) for value in state)
        if {sums.first_offset, sums.last_offset} != {offset}:
            self._report.totals = "moving" if self._report.totals == "ok" else self._report.totals
        elif ranked != sums.ranked:  # a member has two records, with different names
            self._report.totals = "drift"
        elif self._shape.fields is None and low + (high << HIGH) != sums.total:
            self._report.totals = "drift"
            if repair:
                high = sums.total >> HIGH
                low = sums.total - (high << HIGH)
                request = FixTotalsRequest(offset, self._keys.channel, table.suffix, low, high)
                await FIX_TOTALS(self._client, [self._keys.meta], request)
                self._report.repaired = True
