"""Count the entries of a journal plainly, to check the fold: a fold that is wrong agrees with itself.

This shares no code with the fold. It counts amounts only: no places among ties, no votes and no metadata. Which events
were taken back is not counted but given.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import msgspec
from sqlalchemy import Connection

from live.domain.board import Board, Rules
from live.domain.window import EVER, Sliding
from live.errors import SetupError
from live.journal.log.entries import Adopt, Head, content
from live.journal.log.reader import entries_of, oldest_checkpoint
from live.journal.log.timelines import Timeline, find_parent
from live.journal.state.events import events_of
from live.journal.state.snapshot import Snapshot
from live.journal.state.taken import NOTHING, Taken
from live.store.board.batch import Batch, decode_batch

_FEW: Final = 10_000
_PLACE: Final = 8  # bytes before the amount and the member in the name of an event of a log

_SWAP: Final = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])

Wrong = tuple[int, str, int | None, int | None]
"""The start of a slot, a member, its amount by the fold, and its amount by the plain count."""


class Count:
    """The amounts of members in each slot, and the events of a sliding window: their times, members and amounts."""

    def __init__(self, board: Board, taken: Taken = NOTHING) -> None:
        self._board = board
        self._taken = taken
        self._newest = -(2**53)  # the start of the newest slot, since which old slots were dropped
        self._most = _FEW  # events, after which those that have left the window are dropped
        self.slots: dict[int, dict[str, int]] = defaultdict(dict)
        self.events: list[tuple[int, str, int]] = []
        self.link = ""
        self.is_ruled = False  # whether entries were planned by other rules
        self.is_cut = board.cap is not None  # whether entries cut records off

    def begin(self, data: Snapshot) -> None:
        """Begin with a checkpoint, if the entries before it were deleted."""
        self.slots.update({start: dict(slot) for start, slot in data.slots.items()})
        self.events = [(event.time, event.member, event.amount) for event in data.log]
        self.link = data.link

    def add(self, head: Head, body: bytes) -> None:
        """Count the next entry."""
        match head.kind:
            case "add":
                self._add(head, decode_batch(body))
            case "begin":
                self.slots.clear()
                self.events = []
            case "adopt":
                self._adopt(msgspec.msgpack.decode(body, type=Adopt))
            case "swap":
                fields = _SWAP.decode(body).keys()
                self.is_ruled |= "ruled" in fields
                if fields - {"edition", "taken", "ruled", "latest", "oldest", "left"}:
                    reason = "changes what earlier entries mean, so they can't be counted plainly"
                    raise SetupError(f"entry {head.id} {reason}")
        self.link = head.link
        self._drop(head.time // 1000)

    def _drop(self, now: int) -> None:
        """Drop what has left the window for good."""
        window = self._board.window
        if not isinstance(window, Sliding):
            by_events = self._board.clock == "event"
            newest = max(self.slots, default=self._newest) if by_events else window.slot_at(now // 1000).start
            if newest > self._newest:
                self._newest, oldest = newest, window.oldest(newest)
                for start in [start for start in self.slots if start < oldest]:
                    del self.slots[start]
        elif len(self.events) > self._most:
            latest = now if self._board.clock == "server" else max(time for time, _, _ in self.events)
            self.events = [event for event in self.events if event[0] > latest - window.length * 1000]
            self._most = max(_FEW, 2 * len(self.events))

    def _add(self, head: Head, batch: Batch) -> None:
        now, self.is_cut = head.time // 1000, self.is_cut or batch.rules.cap is not None
        if self._taken.undoes(head):
            return
        if self._taken.touches(head, batch):
            for place, event in enumerate(events_of(batch)):
                if self._taken.takes(head, place, event.producer):
                    continue
                if batch.events is not None:
                    self.events.append((now if event.time is None else event.time, event.member, event.amount))
                else:
                    self._count(batch.rules, event.start, event.member, event.amount)
            return
        if batch.since is not None and self._taken and all(batch.groups[0].members):
            self._move(batch, batch.since)
            return
        if (events := batch.events) is not None:
            for time, amount, member in zip(events.times, events.amounts, events.members, strict=True):
                self.events.append((now if time is False else int(time), member, amount))
            return
        for group in batch.groups:
            for number, (member, amount) in enumerate(zip(group.members, group.amounts, strict=True), 1):
                self._count(batch.rules, group.start, member, amount)
                slot = self.slots[group.start]
                if number in group.drops and (batch.rules.operation != "incr" or not slot[member]):
                    del slot[member]

    def _move(self, batch: Batch, since: int) -> None:
        """Move what the second member of a merge has now to the first one."""
        new, old = batch.groups[0].members
        moving = [event for event in self.events if event[1] == old and event[0] > since]
        for name, sign in ((old, -1), (new, 1)):
            self.events += [(time, name, sign * amount) for time, _, amount in moving]
        choose = max if self._board.sort_order == "desc" else min
        for start, slot in self.slots.items():
            if old not in slot or start < since:
                continue
            amount = slot.pop(old)
            if self._board.operator == "incr":
                slot[new] = slot.get(new, 0) + amount
            elif self._board.operator == "best":
                slot[new] = choose(amount, slot.get(new, amount))
            else:
                slot.setdefault(new, amount)

    def _count(self, rules: Rules, start: int, member: str, amount: int) -> None:
        slot = self.slots[start]
        match rules.operation:
            case "incr":
                slot[member] = slot.get(member, 0) + amount
            case "set":
                slot[member] = amount
            case best:
                slot[member] = (max if best == "max" else min)(amount, slot.get(member, amount))

    def _adopt(self, held: Adopt) -> None:
        self.slots.clear()
        for start, fields in held.slots:
            self.slots[int(start)] = dict(zip(fields[::2], map(int, fields[1::2]), strict=True))
        self.events, log = [], list(map(content, held.log))
        for name, time in zip(log[::2], log[1::2], strict=True):
            amount, _, member = name[_PLACE:].partition(b" ")
            self.events.append((int(time), member.decode(), int(amount)))


def counted(connection: Connection, board: Board, timeline: Timeline, link: str, taken: Taken = NOTHING) -> Count:
    """Count the entries of a timeline and of those that it continues, up to the entry with a link, without `taken`.

    Drop what has left the window of `board`.
    """
    count = Count(board, taken)
    oldest = oldest_checkpoint(connection, timeline)
    if oldest is not None:
        count.begin(oldest[0])
    for head, body in entries_of(connection, timeline, oldest[1] if oldest is not None else 0):
        if head.kind == "renew":
            parent = find_parent(connection, timeline, body.decode())
            if parent is None:
                raise SetupError(f"the journal lacks what board {timeline.board!r} had before entry {head.id}")
            count = counted(connection, board, parent, head.before, taken)
        count.add(head, body)
        if head.link == link:
            break
    return count


def miscounted(board: Board, data: Snapshot, count: Count) -> Iterator[Wrong]:
    """Yield what the fold has counted wrongly in the window.

    A board that has or had a cap is not counted, because it cuts off. Nor is a contest that has given votes back,
    because later votes may depend on them, nor a board whose rules have changed, because only the fold knows what that
    means.
    """
    if count.is_ruled or count.is_cut or (board.votes is not None and data.taken):
        return
    if isinstance(board.window, Sliding):
        now = data.time // 1000 if board.clock == "server" else data.latest or 0
        left = now - board.window.length * 1000
        events = [(event.time, event.member, event.amount) for event in data.log]
        mine, plain = ({EVER.start: _summed(found, left)} for found in (events, count.events))
    else:
        newest = data.newest if board.clock == "event" else board.window.slot_at(data.time // 1_000_000).start
        oldest = None if newest is None else board.window.oldest(newest)
        mine, plain = (
            {start: slot for start, slot in found.items() if oldest is not None and start >= oldest}
            for found in (data.slots, dict(count.slots))
        )
    for start in sorted(mine.keys() | plain.keys()):
        own, right = mine.get(start, {}), plain.get(start, {})
        for member in sorted(own.keys() | right.keys()):
            has, wanted = own.get(member), right.get(member)
            is_equal = (has or 0) == (wanted or 0) if board.operation == "incr" and not board.zeros else has == wanted
            if member and not is_equal:  # an erased member has an empty name
                yield start, member, has, wanted


def _summed(events: list[tuple[int, str, int]], left: int) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for time, member, amount in events:
        if time > left:
            sums[member] += amount
    return sums
