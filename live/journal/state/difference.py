"""The difference between what store keys hold and what the journal says, from the fields that the fold has changed.

The first difference is the whole board, so loading a board and keeping it up to date are the same. No rule for a kind
of entry is needed: dictionaries remember which of their fields changed, whatever changed them.

Slots, periods and events that have left the window are taken away as time passes.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import chain, islice
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from live.domain.board import Board
from live.domain.window import EVER, Sliding
from live.journal.state.ranking import newest_slot
from live.journal.state.sliding_log import LiveLog
from live.journal.state.snapshot import NEVER, Snapshot, tag_of
from live.store.board.keys import Keys, Table
from live.store.board.manage.swap import ELEMENTS, Write
from live.store.board.read.reader import HIGH

_PIECE: Final = 10_000  # members whose records are in memory at once
_K = TypeVar("_K")
_V = TypeVar("_V")


class Tracked(dict[_K, _V]):
    """A dictionary that remembers what its changed fields held before: None for nothing.

    It refuses methods that nobody needs, because they would bypass this.
    """

    __slots__ = ("was",)

    def __init__(self, held: Mapping[_K, _V]) -> None:
        super().__init__(held)
        self.was: dict[_K, _V | None] = {}

    def __setitem__(self, field: _K, value: _V) -> None:
        if field not in self.was:
            self.was[field] = self.get(field)
        super().__setitem__(field, value)

    def __delitem__(self, field: _K) -> None:
        if field not in self.was:
            self.was[field] = self.get(field)
        super().__delitem__(field)

    def pop(self, field: _K, default: Any = None) -> Any:  # noqa: ANN401
        """Remove a field."""
        if field not in self:
            return default
        value = self[field]
        del self[field]
        return value

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:  # noqa: ANN401
        raise TypeError("the change would not be remembered")

    clear = update = setdefault = popitem = __ior__ = _refuse


class _Records(NamedTuple):
    """What the store keys of a ranking hold of some members."""

    ranking: dict[bytes, int]
    reached: dict[str, bytes]
    metadata: dict[str, bytes]


_Was = Mapping[str, dict[Any, Any]]
"""By store key: what changed fields held before."""


class _Step(NamedTuple):
    """The slots in the window and the hidden members, before and now, and what changed fields held before."""

    before: set[int]
    starts: set[int]
    hidden_before: set[str]
    hidden: set[str]
    was: _Was


class ContentsDifference:
    """What to write under the store keys of a board, so that they hold what the journal says.

    Attributes:
        sizes: how many elements each store key has after all writes so far.
        oldest: the start of the oldest slot in the window; None if there is none.
        left: events up to this time (ms) have left a sliding window; None for other windows.
    """

    def __init__(self, board: Board, keys: Keys) -> None:
        self.sizes: dict[str, int] = {}
        self.oldest: int | None = None
        self.left: int | None = None
        self._board, self._keys, self._data = board, keys, Snapshot()
        self._log = LiveLog(board)
        self._known: dict[str, Tracked[Any, Any]] = {}  # by store key
        self._hidden: set[str] = set()
        self._starts: set[int] = set()  # the slots in the window
        self._listed: set[int] = set()
        self._totals: dict[str, int] = {}
        self._levels: dict[str, Counter[int]] = {}
        self._waiting: dict[tuple[str, str], list[bytes | str | int]] = {}
        self._ready: list[Write] = []

    def move(self, data: Snapshot, now: int) -> None:
        """Set `oldest` and `left` as the contents are at a time, in milliseconds since 1970."""
        board = self._board
        if isinstance(board.window, Sliding):
            self.left = (now if board.clock == "server" else data.latest or 0) - board.window.length * 1000
        newest = newest_slot(board, data, now)
        self.oldest = None if newest is None else board.window.oldest(newest)

    def begin(self, data: Snapshot, now: int, leaving: Collection[int] = ()) -> None:
        """Take it that the store keys hold the contents, as if `advance` had written them."""
        self._step(data, now, leaving)
        self.sizes = {name: len(held) for name, held in self._known.items()}
        self._listed = {start for start in self._starts if self._is_filled(start)}
        for suffix in {self._suffix(start) for start in self._starts}:
            slots = [self.held(self._keys.slot(start)) for start in self._of(suffix, self._starts)]
            if self._board.summed:
                unseen = sum(slot.get(member, 0) for slot in slots for member in self._hidden)
                self._totals[suffix] = sum(sum(slot.values()) for slot in slots) - unseen
            if self._board.ranks == "dense":
                self._levels[suffix] = Counter(self.records(suffix, self.members(suffix), {}).ranking.values())

    def advance(self, data: Snapshot, now: int, leaving: Collection[int] = ()) -> Iterator[Write]:
        """Yield what has changed in the contents since the last call. `now` is in milliseconds since 1970.

        `leaving` are the starts of slots, or the times (ms) of events, that have left the window and still count.
        """
        board, step = self._board, self._step(data, now, leaving)
        for start in step.before | step.starts:
            yield from self._write_slot(start, step)
        for suffix in {self._suffix(start) for start in step.before | step.starts} if board.window.tables else [""]:
            yield from self._write_ranking(suffix, step)
        if isinstance(board.window, Sliding):
            yield from self._write("ZADD", self._keys.log, step)
            yield from self._write("HSET", self._keys.taken, step)
        yield from self._write("HSET", self._keys.entrants, step)
        for member in step.hidden_before ^ step.hidden:
            old, new = (1, None) if member in step.hidden_before else (None, 1)
            self._set("HSET", self._keys.hidden, member, old, new)
        yield from self._full()
        for (command, name), words in self._waiting.items():
            yield Write(command, name, words)
        self._waiting = {}

    def _step(self, data: Snapshot, now: int, leaving: Collection[int]) -> _Step:
        self._data = data
        self.move(data, now)
        if self.left is not None:
            self._log.move(data, min(self.left, *(time - 1 for time in leaving)) if leaving else self.left)
        starts = {start for start in self._slots if self.oldest is not None and start >= self.oldest}
        starts |= self._slots.keys() & leaving
        step = _Step(self._starts, starts, self._hidden, set(data.hidden), self._changes())
        self._starts, self._hidden = starts, step.hidden
        return step

    def fields(self) -> list[str]:
        """Return the fields of a board's state that follow from the contents, each before its value."""
        data, totals = self._data, iter(self.totals())
        fields: dict[str, int | None] = {
            "newest": data.newest,
            "latest": data.latest if self._board.clock == "event" else None,
            "span": data.span or None,
            "bucket": max(data.seen, default=None),
        }
        for suffix, total, high in zip(totals, totals, totals, strict=True):
            fields |= {f"total{suffix}": int(total), f"high{suffix}": int(high)}
        return [word for name, value in fields.items() if value is not None for word in (name, str(value))]

    def totals(self) -> list[str | int]:
        """Return the suffix and the two fields of the total of each ranking, in turn."""
        found: list[str | int] = []
        for suffix in {self._suffix(start) for start in self._starts}:
            total = self._totals.get(suffix, 0)
            high = total >> HIGH
            found += suffix, total - (high << HIGH), high
        return found

    # What store keys hold after all writes so far

    def held(self, name: str) -> dict[Any, Any]:
        """Return what a store key of slots, events, tags, votes, contestants or metadata holds, and maybe more."""
        return self._known.get(name, {})

    @property
    def hidden(self) -> set[str]:
        """The hidden members."""
        return self._hidden

    @property
    def listed(self) -> set[int]:
        """The starts of the slots that hold something."""
        return self._listed

    def records(self, suffix: str, members: set[str], more: Mapping[str, int]) -> _Records:
        """Return what a ranking holds of members, if slots outside the window still hold `more`."""
        return self._records(suffix, members, self._starts, self._hidden, {}, more)

    def members(self, suffix: str) -> set[str]:
        """Return all members that a ranking may hold something of."""
        held = (self.held(self._keys.slot(start)) for start in self._of(suffix, self._starts))
        return self._hidden.union(*held)

    def total(self, suffix: str) -> int:
        """Return the sum of the scores in a ranking."""
        return self._totals.get(suffix, 0)

    def levels(self, suffix: str) -> Counter[int]:
        """Return how many members have each score, if ranks are dense."""
        return self._levels.get(suffix, Counter())

    @property
    def _slots(self) -> dict[int, dict[str, int]]:
        return {EVER.start: self._log.sums.slot} if isinstance(self._board.window, Sliding) else self._data.slots

    def _suffix(self, start: int) -> str:
        return f":{start}" if self._board.window.tables else ""

    def _table(self, suffix: str) -> Table:
        return self._keys.table(suffix.removeprefix(":") or None)

    def _changes(self) -> dict[str, dict[Any, Any]]:
        """Track all fields from now on. By store key, return what the fields held that have changed meanwhile."""
        keys, log, was = self._keys, self._log, dict[str, dict[Any, Any]]()
        if isinstance(self._board.window, Sliding):
            log.events = self._track(keys.log, log.events, was)
            log.sums.taken = self._track(keys.taken, log.sums.taken, was)
            log.sums.slot = self._track(keys.slot(EVER.start), log.sums.slot, was)
        else:
            for start, slot in self._data.slots.items():
                self._data.slots[start] = self._track(keys.slot(start), slot, was)
        for suffix, ranking in self._data.rankings.items():
            table = self._table(suffix)
            ranking.reached = self._track(table.reached, ranking.reached, was)
            ranking.metadata = self._track(table.metadata, ranking.metadata, was)
            ranking.votes = self._track(table.votes, ranking.votes, was)
        self._data.entrants = self._track(keys.entrants, self._data.entrants, was)
        for name in self._known.keys() - was.keys():
            self._track(name, {}, was)
        return was

    def _track(self, name: str, held: dict[_K, _V], was: dict[str, dict[Any, Any]]) -> Tracked[_K, _V]:
        known = self._known.get(name)
        if isinstance(held, Tracked) and held is known:
            was[name], held.was = held.was, {}
            return held
        if known is None:
            was[name] = dict.fromkeys(held)
        else:  # the fold has replaced the whole dictionary, perhaps after it had changed some fields
            before: dict[Any, Any] = {**known, **known.was}
            fields = before.keys() | held.keys()
            was[name] = {field: before.get(field) for field in fields if before.get(field) != held.get(field)}
        tracked = self._known[name] = Tracked(held)
        return tracked

    def _write_slot(self, start: int, step: _Step) -> Iterator[Write]:
        is_kept = start in step.starts
        yield from self._write("HSET", self._keys.slot(start), step, start)
        is_listed = is_kept and self._is_filled(start)
        if is_listed != (start in self._listed):
            self._listed ^= {start}
            self._set("ZADD", self._keys.slots, str(start), *((None, start) if is_listed else (start, None)))

    def _is_filled(self, start: int) -> bool:
        return bool(self.held(self._keys.slot(start))) or self._data.has_more(start)

    def _write_ranking(self, suffix: str, step: _Step) -> Iterator[Write]:
        table, levels = self._table(suffix), self._levels.setdefault(suffix, Counter())
        was_there: dict[int, int] = {}  # how many members had a score
        members = iter(self._touched(suffix, step))
        while piece := set(islice(members, _PIECE)):
            old = self._records(suffix, piece, step.before, step.hidden_before, step.was)
            new = self._records(suffix, piece, step.starts, step.hidden, {})
            yield from self._change("ZADD", table.ranking, old.ranking, new.ranking)
            yield from self._change("HSET", table.reached, old.reached, new.reached)
            yield from self._change("HSET", table.metadata, old.metadata, new.metadata)
            if self._board.summed:
                more = sum(new.ranking.values()) - sum(old.ranking.values())
                self._totals[suffix] = self._totals.get(suffix, 0) + more
            if self._board.ranks == "dense":
                counts = Counter(new.ranking.values())
                counts.subtract(old.ranking.values())
                for score, count in counts.items():
                    was_there.setdefault(score, levels[score])
                    levels[score] += count
        for score, count in was_there.items():
            before, after = (score if number else None for number in (count, levels[score]))
            self._set("ZADD", table.levels, str(score), before, after)
            yield from self._full()
        yield from self._write("HSET", table.votes, step, int(suffix[1:]) if suffix else None)

    def _touched(self, suffix: str, step: _Step) -> dict[str, None]:
        """Return the members of a ranking that a changed field names, or a slot that is new or has left the window.

        They are mostly in the order in which memory has them, which makes a large board twice as fast.
        """
        table, found = self._table(suffix), dict.fromkeys(step.hidden_before ^ step.hidden)
        for start in self._of(suffix, step.before | step.starts):
            slot = self._keys.slot(start)
            if start in step.before:
                found.update(dict.fromkeys(step.was.get(slot, {})))
            if (start in step.before) != (start in step.starts):
                found.update(dict.fromkeys(self.held(slot)))
                # No slot holds those whose amounts cancel out.
                found.update(dict.fromkeys(self.held(table.reached).keys() & step.hidden))
        for name in (table.reached, table.metadata):
            found.update(dict.fromkeys(step.was.get(name, {})))
        return found

    def _of(self, suffix: str, starts: set[int]) -> set[int]:
        return starts & {int(suffix[1:])} if suffix else starts

    def _records(
        self,
        suffix: str,
        members: set[str],
        starts: set[int],
        hidden: AbstractSet[str],
        was: _Was,
        more: Mapping[str, int] = {},
    ) -> _Records:
        """Return what a ranking holds of members, or with `was` held before."""
        board, of_ranking = self._board, self._of(suffix, starts)
        sums = {member: more[member] for member in more.keys() & members}
        if suffix and not of_ranking:
            return _Records({}, {}, {})
        for start in of_ranking:
            slot, old = self.held(self._keys.slot(start)), was.get(self._keys.slot(start), {})
            for member in (slot.keys() & members) | (old.keys() & members):
                value = old[member] if member in old else slot[member]
                if value is not None:
                    sums[member] = sums.get(member, 0) + value
        if board.operation == "incr" and not board.zeros:
            sums = {member: score for member, score in sums.items() if score}
        hidden = hidden & members
        tags = dict[str, bytes]()
        if board.tags != "key":
            places = self._values(self._table(suffix).reached, sums.keys() | hidden, was)
            # A hidden member keeps its place among ties, even while its amounts cancel out. A record has a tag even if
            # the journal knows no place.
            tags = {
                member: tag_of(board, NEVER if place is None else place)
                for member, place in places
                if place is not None or member not in hidden
            }
        return _Records(
            {tags.get(member, b"") + member.encode(): score for member, score in sums.items() if member not in hidden},
            tags,
            {
                member: text
                for member, text in self._values(self._table(suffix).metadata, sums.keys(), was)
                if text is not None
            },
        )

    def _values(self, name: str, members: AbstractSet[str], was: _Was) -> Iterator[tuple[str, Any]]:
        """Yield members with what a store key holds of each, or with `was` held before."""
        held, old = self.held(name), was.get(name, {})
        return ((member, old[member] if member in old else held.get(member)) for member in members)

    def _change(self, command: str, name: str, old: dict[_K, _V], new: dict[_K, _V]) -> Iterator[Write]:
        """Change what a store key holds of some members."""
        if not old:
            yield from self._fill(command, name, new)
            return
        for field in old.keys() | new.keys():
            self._set(command, name, field, old.get(field), new.get(field))
            yield from self._full()

    def _write(self, command: str, name: str, step: _Step, start: int | None = None) -> Iterator[Write]:
        """Write the changed fields of a dictionary, or all fields if its slot is new or has left the window."""
        held, was = self.held(name), step.was.get(name, {})
        was_kept, is_kept = start is None or start in step.before, start is None or start in step.starts
        if is_kept and not self.sizes.get(name):
            yield from self._fill(command, name, held)
            return
        for field in was.keys() if was_kept and is_kept else was.keys() | held.keys():
            value = held.get(field)
            old = was.get(field, value)
            self._set(command, name, field, old if was_kept else None, value if is_kept else None)
            yield from self._full()

    def _fill(self, command: str, name: str, new: Mapping[Any, Any]) -> Iterator[Write]:
        """Write fields or members that a store key lacks."""
        self.sizes[name] = self.sizes.get(name, 0) + len(new)
        pairs = iter(new.items())
        if command == "ZADD":  # the store adds members faster in their order
            pairs = iter(sorted((score, member) for member, score in pairs))
        while piece := list(islice(pairs, ELEMENTS)):
            yield Write(command, name, list(chain.from_iterable(piece)))

    def _set(self, command: str, name: str, field: Any, old: Any, new: Any) -> None:  # noqa: ANN401
        """Change a field, or a member of a sorted set, from one value to another; None stands for no field."""
        if old == new:
            return
        self.sizes[name] = self.sizes.get(name, 0) + (new is not None) - (old is not None)
        if new is None:
            command = "HDEL" if command == "HSET" else "ZREM"
        words = self._waiting.setdefault((command, name), [])
        words += [field] if new is None else [field, new] if command == "HSET" else [new, field]
        if len(words) >= (ELEMENTS if new is None else 2 * ELEMENTS):
            self._ready.append(Write(command, name, self._waiting.pop((command, name))))

    def _full(self) -> Iterator[Write]:
        """Yield the commands that are large enough."""
        if self._ready:
            ready, self._ready = self._ready, []
            yield from ready
