"""The audit: checks I1 over every member of a running board, a piece at a time, each piece at one instant."""

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final, cast

import msgspec

from live.errors import SetupError
from live.store.client import Store, store_errors
from live.store.keys import Keys
from live.store.scripts import Script

AUDIT: Final = Script("audit")
SETTLE: Final = Script("settle")

_PIECE: Final = 200  # members compared in one script call, at most
_FIELDS: Final = 20_000  # fields of slots looked up in one script call: a few milliseconds of the store
_SHOWN: Final = 20  # drifted members that a report names


class Drift(msgspec.Struct, frozen=True):
    """A member whose `score` in the ranking (None: no record) is not what the slots `held`."""

    key: str
    score: int | None
    held: int


class Report(msgspec.Struct, kw_only=True):
    """What an audit found.

    `drifted` counts members, and `drift` names the first of them. `stray_slots` are slot hashes that rotation does not
    know. `totals` is `ok`, `drift`, or `moving` when the board changed meanwhile, so that its sums can't be checked.
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
    """What one pass over the board added up, and the offsets at which it looked."""

    total: int = 0
    volume: int = 0
    first_offset: int | None = None
    last_offset: int | None = None


Progress = Callable[[int, int], None]


class Auditor:
    """Audits one board; `progress` is told how many members were looked at, of about how many."""

    def __init__(self, client: Store, board: str, prefix: str, progress: Progress) -> None:
        self._client = client
        self._keys = Keys(prefix, board)
        self._progress = progress
        self._starts: list[str] = []
        self._report = Report(board=board)

    async def audit(self, *, repair: bool) -> Report:
        """Compare every member; with `repair`, give the ranking what the slots hold, while writes go on.

        Raises:
            SetupError: the store has no such board.
            StoreUnavailableError: the store is away.
        """
        async with store_errors():
            if not await self._client.exists(self._keys.meta):
                raise SetupError(f"the store has no board {self._report.board!r} under this key prefix")
            await self._find_strays(repair=repair)
            sums = await self._pass(repair=repair)
            self._report.repaired = repair and not self._report.clean
            if self._report.repaired:
                found, self._report = self._report, Report(board=self._report.board)
                sums = await self._pass(repair=False)
                self._report = found
            await self._check_totals(sums, repair=repair)
        return self._report

    async def _pass(self, *, repair: bool) -> _Sums:
        sums = _Sums()
        await self._load_slots()
        about = int(await self._client.zcard(self._keys.ranking))
        piece: list[bytes] = []
        async for member in self._members():
            piece.append(member)
            if len(piece) >= max(1, min(_PIECE, _FIELDS // max(1, len(self._starts)))):
                await self._compare(piece, sums, repair=repair)
                self._progress(self._report.members, max(about, self._report.members))
                piece = []
        await self._compare(piece, sums, repair=repair)
        self._progress(self._report.members, self._report.members)
        return sums

    async def _load_slots(self) -> None:
        found = cast("list[bytes]", await self._client.zrange(self._keys.slots, 0, -1))
        self._starts = [start.decode() for start in found]
        self._report.slots = len(self._starts)

    async def _members(self) -> AsyncIterator[bytes]:
        """Every member of the ranking or of a slot, once."""
        seen: set[bytes] = set()
        async for member, _ in self._client.zscan_iter(self._keys.ranking, count=1000):
            if member not in seen:
                seen.add(member)
                yield member
        for start in list(self._starts):
            async for member, _ in self._client.hscan_iter(self._keys.slot(start), count=1000):
                if member not in seen:
                    seen.add(member)
                    yield member

    async def _compare(self, members: list[bytes], sums: _Sums, *, repair: bool) -> None:
        keys = self._keys
        while True:
            slots = [keys.slot(start) for start in self._starts]
            arguments = ["1" if repair else "0", keys.channel, *self._starts, *members]
            reply = await AUDIT(self._client, [keys.ranking, keys.meta, keys.slots, *slots], arguments)
            if reply[0] == b"ok":
                break
            await self._load_slots()
        _, offset, total, volume, *drift = reply
        sums.total += int(total)
        sums.volume += int(volume)
        sums.first_offset = int(offset) if sums.first_offset is None else sums.first_offset
        sums.last_offset = int(offset)
        self._report.members += len(members)
        self._note(drift)

    def _note(self, drift: list[Any]) -> None:
        for key, score, held in zip(drift[::3], drift[1::3], drift[2::3], strict=True):
            self._report.drifted += 1
            if len(self._report.drift) < _SHOWN:
                found = Drift(key.decode(errors="replace"), int(score) if score else None, int(held))
                self._report.drift.append(found)

    async def _find_strays(self, *, repair: bool) -> None:
        """Slot hashes that the index of slots does not list: rotation would never subtract them."""
        await self._load_slots()
        known = {self._keys.slot(start) for start in self._starts}
        prefix = self._keys.slot("")
        found: Iterable[str] = [
            key.decode() async for key in self._client.scan_iter(match=self._keys.slot_pattern, count=1000)
        ]
        suspects = sorted(set(found) - known)
        await self._load_slots()  # a slot that was born meanwhile is listed by now
        known = {self._keys.slot(start) for start in self._starts}
        self._report.stray_slots = [key for key in suspects if key not in known and await self._client.exists(key)]
        if repair and self._report.stray_slots:
            starts = {key.removeprefix(prefix) for key in self._report.stray_slots}
            listed = {start: int(start) for start in starts if start.removeprefix("-").isdecimal()}
            if listed:
                await self._client.zadd(self._keys.slots, cast("Any", listed))

    async def _check_totals(self, sums: _Sums, *, repair: bool) -> None:
        """Compare the sums that the board keeps, if it stood still while they were counted."""
        state = await self._client.hmget(self._keys.meta, ["offset", "total", "volume"])
        offset, total, volume = (int(value or 0) for value in state)
        if {sums.first_offset, sums.last_offset} != {offset}:
            self._report.totals = "moving"
        elif (total, volume) != (sums.total, sums.volume):
            self._report.totals = "drift"
            if repair:
                await SETTLE(self._client, [self._keys.meta], [offset, sums.total, sums.volume, self._keys.channel])
                self._report.repaired = True
