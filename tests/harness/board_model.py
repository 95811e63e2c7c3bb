"""A reference model of every kind of board, by brute force, without a store."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple

from live.domain.board import Board
from live.domain.choices import Votes
from live.domain.event import Entry
from live.domain.window import Forever, Periods, Sliding, parse_duration
from live.store.board.write.slot_assignment import changes_of

_DAY: Final = 86_400_000  # ms; the default dedupe window


ZERO: Final[Any] = 0


class Totals(tuple[int, ...]):
    """What several fields add up to. Where lower values are better, a value has the opposite sign."""

    __slots__ = ()

    def __add__(self, other: object) -> "Totals":
        """Add each field; a 0 is nothing in all fields."""
        return Totals(map(sum, zip(self, other, strict=True))) if isinstance(other, Totals) else self

    __radd__ = __add__

    def __neg__(self) -> "Totals":
        return Totals(-value for value in self)

    def __sub__(self, other: object) -> "Totals":
        return self + -other if isinstance(other, Totals) else self

    def __bool__(self) -> bool:
        return any(self)


def _grace(votes: Votes) -> int:
    return round(parse_duration(votes.grace) * 1000)


def totals_of(board: Board, fields: Mapping[str, int]) -> Totals:
    """Return the totals with these values."""
    assert board.packing is not None
    return Totals(fields[each.name] * (1 if each.sort_order == "desc" else -1) for each in board.packing.fields)


NO_MEANINGS: Final[Mapping[int, Totals]] = {}
Reached = tuple[int, int]  # the time (ms) and the number of an event


class Counted(NamedTuple):
    """A counted event: its number, the slot and the time (ms) in which it counts, and its content.

    If a merge has moved it, `moved` is the time of the merge.
    """

    number: int
    slot: int
    time: int
    member: str
    amount: Any  # a number, or `Totals`
    moved: int | None = None


class Reference:
    """Keeps every counted event, and adds them up when asked.

    If the board adds up fields, `meanings` has what each amount of an entry adds to them.
    """

    def __init__(self, board: Board, future: int, meanings: Mapping[int, Totals] = NO_MEANINGS) -> None:
        self.board = board
        self.meanings = meanings
        self.future = future  # ms
        self.counted: list[Counted] = []
        # For set and best: by slot and member, the score, and the time and the number of the event that reached it.
        self.held: dict[int, dict[str, tuple[int, Reached]]] = {}
        self.votes: Counter[tuple[object, ...]] = Counter()
        self.newest: int | None = None  # the newest event time, for `clock = "event"`
        self.number = 0
        self.hidden: set[str] = set()
        self.frozen = False
        self.entrants: set[str] = set()
        self.seen: dict[bytes, int] = {}  # by identity, the day on which its event was counted
        # By slot (or 0) and member: the time and the number of the merge that placed the member.
        self.placed: dict[tuple[int, str], Reached] = {}

    @property
    def drops_zeros(self) -> bool:
        """Whether a sum of zero is no score."""
        return self.board.operator == "incr" and not self.board.zeros

    def now(self, clock: int) -> int | None:
        """The board's time, in ms."""
        return clock if self.board.clock == "server" else self.newest

    def add(self, batch: Sequence[Entry], clock: int) -> dict[int, str]:
        """Count a batch; returns the refusals."""
        if self.board.votes is not None:
            return self._add_votes(batch, clock)
        outside = self._outside(batch, clock) if self.board.sums else frozenset[int]()
        return self._add(batch, clock, outside)[0]

    def _add(
        self, batch: Sequence[Entry], clock: int, outside: frozenset[int]
    ) -> tuple[dict[int, str], dict[int, Counted]]:
        """Return the refusals and the counted events. Refuse entries at the indexes `outside`."""
        refused, counted = {}, {}
        sums = dict[tuple[int, str], Any]()  # of the batch
        for index, entry in enumerate(batch):
            self.number += 1
            code = self._count(entry, clock, sums, is_outside=index in outside)
            if code is None:
                counted[index] = self.counted[-1]
            else:
                refused[index] = code
        self.cut()
        self.forget_zeros()
        return refused, counted

    def _outside(self, batch: Sequence[Entry], clock: int) -> frozenset[int]:
        """Return the entries that would take a field out of its bounds.

        The entries of a member in a slot count if their sum stays within the bounds. Otherwise they are tried one after
        another.
        """
        outside = frozenset[int]()
        while True:
            trial, more = deepcopy(self), set[int]()
            _, counted = trial._add(batch, clock, outside)
            held = {(one.slot, one.member): self.value(one.slot, one.member, clock) for one in counted.values()}
            # An event that the batch itself takes out of a sliding window still counts until the next rotation.
            after = {
                place: sum((one.amount for one in counted.values() if (one.slot, one.member) == place), value)
                for place, value in held.items()
            }
            for index, one in counted.items():
                place = one.slot, one.member
                if self.is_within(after[place]):
                    continue
                if self.is_within(held[place] + one.amount):
                    held[place] += one.amount
                else:
                    more.add(index)
            if not more:
                return outside
            outside |= more

    def value(self, slot: int, member: str, clock: int) -> Any:
        """What a slot, or a sliding window, holds of a member."""
        now = self.now(clock)
        is_sliding = isinstance(self.board.window, Sliding)
        mine = [one for one in self.counted if one.member == member and one.slot == slot]
        return sum((one.amount for one in mine if not is_sliding or now is None or not self._has_left(one, now)), ZERO)

    def is_within(self, totals: Any, spread: int = 0) -> bool:
        """Whether each total is within its bounds; with `spread`, whether an amount can be a change of a total."""
        assert self.board.packing is not None
        for each, value in zip(self.board.packing.fields, totals or (), strict=bool(totals)):
            low, high = (each.low, each.high) if each.sort_order == "desc" else (-each.high, -each.low)
            if spread:
                low, high = low - high, high - low
            if not low <= value <= high:
                return False
        return True

    def _add_votes(self, batch: Sequence[Entry], clock: int) -> dict[int, str]:
        """Judge the other votes again as if the refused ones were not there."""
        refused: dict[int, str] = {}
        while True:
            trial, codes, votes = deepcopy(self), dict(refused), list[tuple[int, int, Entry]]()
            for index, entry in enumerate(batch):
                trial.number += 2
                if index not in refused:
                    code = trial._admit(entry, clock)
                    if code is None:
                        votes.append((index, trial.number, entry))
                    else:
                        codes[index] = code
            faults = trial._poll(votes, clock)
            if not faults:
                self.__dict__.update(trial.__dict__)
                self.forget_zeros()
                return codes
            refused |= faults

    def _poll(self, votes: Sequence[tuple[int, int, Entry]], clock: int) -> dict[int, str]:
        """Return the refusals. Try a vote over a limit again after the others."""
        rules = self.board.votes
        if rules is not None and rules.registered:
            members = {index: {member for member, _ in changes_of(entry)} for index, _, entry in votes}
            if unknown := [index for index, named in members.items() if named - self.entrants]:
                return dict.fromkeys(unknown, "entrant_unknown")
        faults = {index: code for index, number, entry in votes if (code := self._vote(entry, clock, number))}
        for index, number, entry in votes:
            if faults.get(index) == "quota_exceeded":
                code = self._vote(entry, clock, number)
                faults = {i: fault for i, fault in faults.items() if i != index} | ({index: code} if code else {})
        return faults

    def correct(
        self, member: str, clock: int, *, add: Any = None, score: Any = None, time: int | None = None
    ) -> tuple[Any, Any] | str:
        """Correct a score. Returns the score before and after, or why the board refuses."""
        moment = self.now(clock) if time is None else time
        if self.frozen or moment is None:
            return "frozen" if self.frozen else "time_required"
        if self._is_late(moment, clock):
            return "late"
        slot = self.board.window.slot_at(moment // 1000).start
        before = dict(self._scores(clock, slot if self.board.window.tables else None)).get(member)
        after = (before or 0) + (add or 0) if score is None else score
        if after == (before or 0 if self.drops_zeros else before):
            return before, after
        if self.board.votes is not None and self.board.votes.registered and member not in self.entrants:
            return "entrant_unknown"
        change = after - (before or 0) if self.board.operator == "incr" else None
        if self.board.sums is not None and not (
            self.is_within(change, spread=1) and self.is_within(self.value(slot, member, clock) + change)
        ):
            return "score_out_of_range"
        self.number += 1
        if self.board.operator == "incr":
            self.counted.append(Counted(self.number, slot, moment, member, after - (before or 0)))
        else:
            old = self.held.setdefault(slot, {}).get(member)
            self.held[slot][member] = old if old is not None and old[0] == after else (after, (moment, self.number))
        self.cut()
        self.forget_zeros()
        return before, after

    def forget_zeros(self) -> None:
        """Forget the events of members whose sum has become zero, unless they are hidden or zero is a score.

        Where the window has several slots, negative amounts leave the order of ties undefined.
        """
        window = self.board.window
        if not self.drops_zeros or not (window.tables or isinstance(window, Forever)):
            return
        sums = Counter(dict.fromkeys(self.placed, 0))
        for event in self.counted:
            sums[event.slot, event.member] += event.amount
        gone = {place for place, score in sums.items() if not score and place[1] not in self.hidden}
        self.counted = [event for event in self.counted if (event.slot, event.member) not in gone]
        self.placed = {place: reached for place, reached in self.placed.items() if place not in gone}

    def can_merge(self, old: str, new: str, clock: int) -> bool:
        """Whether each total stays within its bounds if `new` gets the events of `old`."""
        now = self.now(clock)
        slots = {
            one.slot for one in self.counted if one.member == old and now is not None and not self._has_left(one, now)
        }
        return self.board.sums is None or all(
            self.is_within(self.value(slot, old, clock) + self.value(slot, new, clock)) for slot in slots
        )

    def merge(self, old: str, new: str, clock: int) -> bool:
        """Give the events of `old` to `new`. Returns whether `old` had a record or an amount in the window."""
        self.number += 1
        if self.board.operator != "incr":
            return self._merge_records(old, new, clock)
        mine = [event for event in self.counted if event.member == old]
        now = self.now(clock) or 0
        if self.board.zeros and isinstance(self.board.window, Sliding):
            # The old member keeps a score of zero until its events have left the window.
            for event in mine:
                moved = event._replace(number=self.number, moved=now)
                self.counted += [moved._replace(member=new), moved._replace(amount=-event.amount)]
        else:
            zeros = set() if self.board.zeros else self._zeros_of(mine)
            moving = [event for event in mine if self._part_of(event) not in zeros]
            self.counted = [
                event._replace(member=new, moved=now) if event in moving else event for event in self.counted
            ]
        places, is_any = self._places_of(mine, clock)
        self.placed |= {(place, new): (now, self.number) for place in places}
        if old in self.hidden and not self.board.zeros:  # it keeps its place among ties
            self.placed |= {(place, old): (now, self.number) for place in places}
        self.forget_zeros()
        return is_any

    def _zeros_of(self, events: Sequence[Counted]) -> set[int]:
        """Return the slots, or the times of a sliding window, in which events add up to zero."""
        sums: Counter[int] = Counter()
        for event in events:
            sums[self._part_of(event)] += event.amount
        return {part for part, amount in sums.items() if not amount}

    def _part_of(self, event: Counted) -> int:
        return event.time if isinstance(self.board.window, Sliding) else event.slot

    def _places_of(self, events: Sequence[Counted], clock: int) -> tuple[set[int], bool]:
        """Return the rankings to which events in the window add something, and whether there is anything to add."""
        now, window = self.now(clock), self.board.window
        sums: Counter[int] = Counter()
        for event in events:
            if now is not None and not self._has_left(event, now):
                sums[event.time if isinstance(window, Sliding) else event.slot] += event.amount
        left = {part: amount for part, amount in sums.items() if amount or self.board.zeros}
        if isinstance(window, Sliding):
            return {0} if sum(left.values()) or (left and self.board.zeros) else set(), bool(left)
        return {part if window.tables else 0 for part in left}, bool(left)

    def _merge_records(self, old: str, new: str, clock: int) -> bool:
        is_any = False
        for slot in self._kept(clock):
            records = self.held.get(slot, {})
            if old not in records:
                continue
            is_any = True
            (score, _), other = records.pop(old), records.get(new)
            is_better = other is None or (score > other[0] if self.board.sort_order == "desc" else score < other[0])
            takes = other is None or (self.board.operator == "best" and is_better)
            if takes and (other is None or other[0] != score):
                records[new] = (score, (self.now(clock) or 0, self.number))
        self.cut()
        return is_any

    def _kept(self, clock: int) -> list[int]:
        now = self.now(clock)
        oldest = None if now is None else self.board.window.oldest(self.board.window.slot_at(now // 1000).start)
        return [slot for slot in self.held if oldest is not None and slot >= oldest]

    def _has_left(self, event: Counted, now: int) -> bool:
        window = self.board.window
        if isinstance(window, Sliding):
            return event.time <= now - window.length * 1000
        return event.slot < window.oldest(window.slot_at(now // 1000).start)

    def forget(self, member: str) -> None:
        """Forget a member. The votes for the member still count against the limits of their actors."""
        self.placed = {place: number for place, number in self.placed.items() if place[1] != member}
        self.counted = [event for event in self.counted if event.member != member]
        for records in self.held.values():
            records.pop(member, None)
        self.hidden.discard(member)
        self.entrants.discard(member)

    def _count(
        self, entry: Entry, clock: int, sums: dict[tuple[int, str], Any], *, is_outside: bool = False
    ) -> str | None:
        """Return the code of the refusal, if there is one."""
        code = self._admit(entry, clock, sums, is_outside=is_outside)
        if code is None:
            self._add_amount(entry, clock)
        return code

    def _admit(
        self, entry: Entry, clock: int, sums: dict[tuple[int, str], Any] | None = None, *, is_outside: bool = False
    ) -> str | None:
        """Return the code of the refusal if an entry is refused whatever the votes are.

        A duplicate is recognized before any other refusal.
        """
        identity, today = entry[3], clock // _DAY
        if identity is not None and self.seen.get(identity, -2) >= today - 1:
            return "duplicate"
        if self.frozen:
            return "frozen"
        code = self._refusal(entry, clock)
        if self.board.sums is not None and sums is not None and code is None:
            moment = clock if entry[2] is None else entry[2]
            place = self.board.window.slot_at(moment // 1000).start, entry[0]
            sum_ = sums.get(place, ZERO) + self.meanings[entry[1]]
            if is_outside or not self.is_within(sum_, spread=1):
                return "score_out_of_range"
            sums[place] = sum_
        if code is not None:
            return code
        if identity is not None:
            self.seen[identity] = today
        if self.board.clock == "event" and entry[2] is not None:
            self.newest = entry[2] if self.newest is None else max(self.newest, entry[2])
        return None

    def cut(self) -> None:
        """Drop the records beyond the board's cap; hidden records take no place."""
        for slot, records in self.held.items():
            shown = {member: score for member, (score, _) in records.items() if member not in self.hidden}
            gone = self._ordered(shown, slot)[self.board.cap or len(shown) :]
            self.held[slot] = {member: record for member, record in records.items() if member not in gone}

    def _refusal(self, entry: Entry, clock: int) -> str | None:
        time = entry[2]
        if time is None and self.board.clock == "event":
            return "time_required"
        moment = clock if time is None else time
        if self._is_late(moment, clock):
            return "late"
        code = self._no_vote(entry, clock)
        return "early" if code is None and moment > clock + self.future else code

    def _is_late(self, moment: int, clock: int) -> bool:
        window, now = self.board.window, self.now(clock)
        if now is None:
            return False
        slot, current = window.slot_at(moment // 1000), window.slot_at(now // 1000)
        late = slot.start < window.oldest(current.start)
        late |= isinstance(window, Sliding) and moment <= now - window.length * 1000
        if isinstance(window, Periods) and window.tables and slot.start < current.start:
            ends, votes = (slot.end + window.grace) * 1000, self.board.votes
            if (
                votes is not None
                and votes.closes_at is not None
                and slot.start * 1000 < votes.closes_at <= slot.end * 1000
            ):
                ends = max(ends, votes.closes_at + _grace(votes))  # votes that were given in time
            late |= now >= ends
        return late

    def _no_vote(self, entry: Entry, clock: int) -> str | None:
        votes, extra = self.board.votes, entry[4]
        if votes is None:
            return None
        if extra is None or extra.actor is None:
            return "actor_required"
        if not votes.changes and (entry[1] < 0 or extra.replaces is not None):
            return "votes_final"
        return self._hours(votes, entry[2], clock if self.board.clock == "server" else None)

    def _hours(self, votes: Votes, time: int | None, arrival: int | None) -> str | None:
        """Judge a vote by its own time, and by its arrival, which may be in the grace if it has a time."""
        opens, closes = (-math.inf if votes.opens_at is None else votes.opens_at), votes.closes_at or math.inf
        for moment, end in ((time, closes), (arrival, closes + (0 if time is None else _grace(votes)))):
            if moment is not None and not opens <= moment < end:
                return "not_open" if moment < opens else "closed"
        return None

    def _vote(self, entry: Entry, clock: int, number: int) -> str | None:
        """Count a vote, which may replace another one, or return why it is refused."""
        time, extra, rules, before = entry[2], entry[4], self.board.votes, self.votes.copy()
        assert rules is not None
        assert extra is not None
        moment = clock if time is None else time
        slot, code = self.board.window.slot_at(moment // 1000).start, None
        mine, total = (slot, extra.actor), self.votes[slot, extra.actor]
        for member, amount in changes_of(entry):
            its = (slot, extra.actor, member)
            self.votes[mine] += amount
            self.votes[its] += amount
            if self.votes[its] < 0:
                code = "vote_missing"
            if amount > 0 and code is None:
                for limit, name, least in ((rules.per_actor, mine, total), (rules.per_key, its, -1)):
                    if limit is not None and self.votes[name] > max(limit, least):
                        code = "quota_exceeded"
        if code is not None:
            self.votes = before
            return code
        for earlier, (member, amount) in enumerate(reversed(changes_of(entry))):
            self.counted.append(Counted(number - earlier, slot, moment, member, amount))
        return None

    def _add_amount(self, entry: Entry, clock: int) -> None:
        member, amount, time, _, _ = entry
        moment = clock if time is None else time
        slot = self.board.window.slot_at(moment // 1000).start
        self.counted.append(Counted(self.number, slot, moment, member, self.meanings.get(amount, amount)))
        if self.board.operator != "incr":
            self._hold(slot, member, amount, (moment, self.number))

    def _hold(self, slot: int, member: str, amount: int, reached: Reached) -> None:
        records = self.held.setdefault(slot, {})
        if member in records:
            old, before = records[member]
            better = amount > old if self.board.sort_order == "desc" else amount < old
            if amount == old:
                records[member] = (old, min(reached, before) if self.board.operator == "best" else before)
            elif self.board.operator == "set" or better:
                records[member] = (amount, reached)
        else:
            records[member] = (amount, reached)

    def ranking(self, clock: int, period: int | None = None) -> list[tuple[str, int, int]]:
        """The ranking of the current period, or of the period that starts at `period`, as (member, score, rank)."""
        now = self.now(clock)
        if now is None:
            return []
        slot = self.board.window.slot_at(now // 1000).start if period is None else period
        scores = self._scores(clock, period)
        return self._ranked(
            [(member, scores[member]) for member in self._ordered(scores, slot) if member not in self.hidden]
        )

    def _scores(self, clock: int, period: int | None) -> dict[str, int]:
        window, now = self.board.window, self.now(clock)
        if now is None:
            return {}
        current = window.slot_at(now // 1000).start
        slot = current if period is None else period
        if self.board.operator != "incr":
            return {member: score for member, (score, _) in self.held.get(slot, {}).items()}
        sums: Counter[str] = Counter()
        for event in self.counted:
            if window.tables or isinstance(window, Forever):
                alive = event.slot == slot
            elif isinstance(window, Sliding):
                alive = event.time > now - window.length * 1000
            else:
                alive = event.slot >= window.oldest(current)
            if alive:
                sums[event.member] += event.amount
        return {member: score for member, score in sums.items() if score or self.board.zeros}

    def reached(self, member: str, slot: int) -> Reached:
        """The time and the number of the event or merge with which a member reached its score.

        A member reaches a sum with its latest event, a best score with the earliest event that has this amount, and
        any other score with the event that changed the score last.
        """
        if self.board.operator != "incr":
            return self.held[slot][member][1]
        last = max(
            (event.time if event.moved is None else event.moved, event.number)
            for event in self.counted
            if event.member == member
            and (event.amount or self.board.zeros)
            and (event.slot == slot or not self.board.window.tables)
        )
        return max(last, self.placed.get((slot if self.board.window.tables else 0, member), last))

    def _ordered(self, scores: dict[str, int], slot: int) -> list[str]:
        ties = self.board.ties
        members = sorted(scores, key=str.encode)
        if ties != "key":
            members.sort(key=lambda member: self.reached(member, slot), reverse=ties == "last")
        return sorted(members, key=lambda member: scores[member], reverse=self.board.sort_order == "desc")

    def _ranked(self, records: list[tuple[str, int]]) -> list[tuple[str, int, int]]:
        distinct = list(dict.fromkeys(score for _, score in records))
        all_scores = [score for _, score in records]
        return [
            (
                member,
                score,
                {
                    "ordinal": place,
                    "competition": all_scores.index(score) + 1,
                    "dense": distinct.index(score) + 1,
                }[self.board.ranks],
            )
            for place, (member, score) in enumerate(records, 1)
        ]
