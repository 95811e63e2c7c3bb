"""Void the contributions of a producer or an actor since a time: take them back from every board."""

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec
from sqlalchemy import Connection

from live.boards.all_boards import all_boards
from live.domain.board import Board, Boards
from live.domain.text import unknown
from live.domain.window import EVER, Rolling, Sliding
from live.errors import NotFoundError, SetupError, StoreUnavailableError
from live.journal.database import Database
from live.journal.erasures import erasures_of
from live.maintenance.contributions import (
    VOIDER,
    ActorTrace,
    Contribution,
    ProducerTrace,
    Voided,
    Vote,
    find_trail,
)
from live.settings import Settings
from live.store.board.ledger import Ledger
from live.store.board.write.slot_assignment import Plan, SlotPlan, begin_plan
from live.store.board.write.writer import BoardWriter
from live.store.connection.client import Store
from live.store.connection.loss import require_no_loss
from live.store.registry.audit_trail import digest_of_person

Progress = Callable[[str, int, int], None]
SEVERAL_WEIGHTS: Final = "it is a union with several weights, and the journal does not say which board a like came from"
"""The reason why no like of a visitor is taken back."""

_MICROSECONDS: Final = 1000  # microseconds in a millisecond
_NO_JOURNAL: Final = "it has no journal, so nothing of it can be taken back"
_NO_ACTORS: Final = "it does not tell actors apart: only boards with `votes` or `like_button` do"
_MOST_CONTRIBUTIONS: Final = 256  # contributions in one batch
_MOST_AMOUNTS: Final = 2000  # amounts, votes and events in one batch
_EXAMPLES: Final = 10  # members that a dry run names
_ATTEMPTS: Final = 20  # an attempt fails if somebody changes the same votes meanwhile


class Taken(msgspec.Struct):
    """The numbers of contributions, changed scores and votes that were taken back, and the sum of their amounts.

    `members` has the change of each member's score in the current ranking.
    """

    contributions: int = 0
    changes: int = 0
    amount: int = 0
    votes: int = 0
    members: dict[str, int] = {}


class TakingBack:
    """Take contributions back from one board."""

    def __init__(self, writer: BoardWriter) -> None:
        self._writer = writer
        self._state = writer.state

    async def take_back(
        self, contributions: Sequence[Contribution], show: Callable[[int, int], None], *, dry: bool
    ) -> Taken:
        """Take back the contributions that still count, each only once, even if other processes do the same.

        The newest contributions go first, so that the count of votes which were cast and withdrawn never falls below
        zero. With `dry`, nothing changes.

        Raises:
            SetupError: the board is frozen, or refuses for another reason.
            StoreUnavailableError, EpochLostError: as `BoardWriter.add`. The same call continues where it stopped.
        """
        taken, done = Taken(), 0
        for piece in _pieces(contributions):
            batch = _Batch(piece)
            if dry:
                await self._read_votes(batch)
                batch.fill(self._state.board, begin_plan(self._state.board, self._state.clock))
            else:
                await self._apply(batch)
            taken.contributions += len(batch.left)
            taken.changes += batch.size[0]
            taken.amount += batch.size[1]
            taken.votes += batch.size[2]
            for member, change in batch.changed.items():
                taken.members[member] = taken.members.get(member, 0) + change
            done += len(piece)
            show(done, len(contributions))
        return taken

    async def _apply(self, batch: "_Batch") -> None:
        for _ in range(_ATTEMPTS):
            await self._read_votes(batch)
            reply = await self._writer.put(batch.fill)
            match reply:
                case [b"ok" | b"nothing", *_]:
                    return
                case [b"seen", *numbers]:
                    batch.left = [one for i, one in enumerate(batch.left, 1) if i not in numbers]
                case [b"votes", *words]:
                    batch.refuse([int(number) for number in words[::2]])
                case [b"frozen"]:
                    raise SetupError("it is frozen. Thaw it first")
                case [b"crowded", *_]:
                    raise SetupError("it is full. Raise its `max_members`")
                case [b"unregistered", member, *_]:
                    raise SetupError(f"member {member.decode()!r} is not registered any more")
                case [b"range", _, member, *_]:
                    raise SetupError(f"the score of {member.decode()!r} would leave its range")
                case _:
                    raise SetupError(repr(reply))
        raise StoreUnavailableError(f"board {self._state.board.id}: the votes changed {_ATTEMPTS} times in a row")

    async def _read_votes(self, batch: "_Batch") -> None:
        """Read how many votes each pair of an actor and a member has now. Only these votes can be taken back."""
        for start, votes in batch.pairs().items():
            key = self._state.table(start).votes
            counts = await self._state.call("HMGET", key, *votes)
            batch.held |= {(start, pair): int(count or 0) for pair, count in zip(votes, counts, strict=True)}


class _Batch:
    """Contributions that are taken back at one instant.

    Attributes:
        left: the contributions that nobody has taken back.
        held: how many votes there are, by slot and by digest of an actor and a member.
        size: changes of members' scores, sum of amounts, and votes that the last plan takes back.
        changed: how the last plan changes the score of each member in the current ranking.
    """

    def __init__(self, contributions: Sequence[Contribution]) -> None:
        self.left = list(contributions)
        self.held: dict[tuple[int, bytes], int] = {}
        self.size = (0, 0, 0)
        self.changed: dict[str, int] = {}
        self._refused: set[tuple[int, bytes]] = set()  # withdrawals that the board refuses to take back
        self._planned: list[tuple[int, bytes]] = []  # the votes of the last plan, in order

    def pairs(self) -> dict[int, list[bytes]]:
        """Return, for each slot, the digest of each (actor, member) pair whose vote is left to take back."""
        found: dict[int, dict[bytes, None]] = {}
        for one in self.left:
            for vote in one.votes:
                found.setdefault(vote.start, {})[vote.pair] = None
        return {start: list(pairs) for start, pairs in found.items()}

    def refuse(self, numbers: Sequence[int]) -> None:
        """Leave withdrawals out from now on if the board refuses to take them back.

        `numbers` are the refused votes of the last plan, counted from 1. Only withdrawals are left out: the other votes
        have changed since they were read.
        """
        net = self._net()
        # Taking back a withdrawal would bring the vote back.
        self._refused |= {place for number in numbers if net[place := self._planned[number - 1]][1] < 0}

    def fill(self, board: Board, plan: Plan) -> None:
        """Plan to take back the contributions that still count by the board's clock."""
        plan.identities = {one.identity: number for number, one in enumerate(self.left)}
        plan.producers = [VOIDER]
        groups: dict[int, SlotPlan] = {}
        if isinstance(board.window, Sliding):
            least = plan.now - board.window.length * 1000
            events = [event for one in self.left for event in one.events if event[0] > least]
            if events:
                plan.hold_till(min(event[0] for event in events) + board.window.length * 1000)
            plan.events = [(time, -amount, member) for time, member, amount in events]
            for _, member, amount in events:
                _subtract(board, groups, EVER.start, member, amount)
        elif plan.current is not None:
            oldest = board.window.oldest(plan.current)
            for start, member, amount in (amount for one in self.left for amount in one.amounts):
                if start >= oldest:
                    _subtract(board, groups, start, member, amount)
            for place, (vote, net) in self._net().items():
                change = -min(net, self.held.get(place, 0))
                if change and vote.start >= oldest and place not in self._refused:
                    _subtract(board, groups, vote.start, vote.member, -change)
                    groups[vote.start].votes.append((vote.actor, vote.pair, change))
                    groups[vote.start].voted.append((vote.member, 0))
            for group in groups.values():
                if not group.votes:  # members whose amounts cancel out do not change
                    group.amounts = {member: amount for member, amount in group.amounts.items() if amount}
        plan.slots = {start: group for start, group in groups.items() if group.amounts}
        if board.ties != "key":
            for group in plan.slots.values():
                numbered = enumerate(group.amounts.items(), 1)  # a number for each member, so no two tags are equal
                group.orders = {member: -number if amount else 0 for number, (member, amount) in numbered}
        self._planned = [(start, pair) for start, group in plan.slots.items() for _, pair, _ in group.votes]
        amounts = [amount for group in plan.slots.values() for amount in group.amounts.values()]
        votes = sum(-change for group in plan.slots.values() for _, _, change in group.votes)
        self.size = (sum(1 for amount in amounts if amount), -sum(amounts), votes)
        self.changed = _changes(board, plan)

    def _net(self) -> dict[tuple[int, bytes], tuple[Vote, int]]:
        """Return, for each slot and (actor, member) pair, one of its votes and the sum of the changes."""
        found: dict[tuple[int, bytes], tuple[Vote, int]] = {}
        for vote in (vote for one in self.left for vote in one.votes):
            _, net = found.get((vote.start, vote.pair), (vote, 0))
            found[vote.start, vote.pair] = (vote, net + vote.change)
        return found


def _changes(board: Board, plan: Plan) -> dict[str, int]:
    """Add up the changes of a plan for each member in the current ranking."""
    found: dict[str, int] = {}
    for start, group in plan.slots.items():
        if not board.window.tables or start == plan.current:
            for member, amount in group.amounts.items():
                found[member] = found.get(member, 0) + amount
    return found


def _subtract(board: Board, groups: dict[int, SlotPlan], start: int, member: str, amount: int) -> None:
    amounts = groups.setdefault(start, SlotPlan({}, {}, {}, [], [], {})).amounts
    before = amounts.get(member, 0)
    # Where fields add up, nobody could tell the digits of a larger sum apart.
    if board.sums is not None and not board.sums.can_add(before, -amount):
        raise SetupError(f"the score of {member!r} would leave its range")
    amounts[member] = before - amount


def _pieces(contributions: Sequence[Contribution]) -> Iterator[list[Contribution]]:
    """Divide contributions into batches, the newest first."""
    piece: list[Contribution] = []
    size = 0
    for one in reversed(contributions):
        more = len(one.amounts) + len(one.votes) + len(one.events)
        if piece and (one.alone or len(piece) == _MOST_CONTRIBUTIONS or size + more > _MOST_AMOUNTS):
            yield piece
            piece, size = [], 0
        piece.append(one)
        size += more
    if piece:
        yield piece


class Criteria(msgspec.Struct, kw_only=True):
    """The contributions to void: of a producer or an actor, counted between two times (milliseconds since 1970)."""

    producer: str | None = None
    actor: str | None = None
    since: int
    until: int | None = None


def whom_of(criteria: Criteria) -> dict[str, str | None]:
    """Return the name for the audit log: the producer, or a digest of the person."""
    if criteria.actor is None:
        return {"producer": criteria.producer}
    return {**digest_of_person(criteria.actor, "actor")}


class VoidedScore(msgspec.Struct, frozen=True):
    """A member's score now, and what it would be without the contributions."""

    key: str
    before: int
    after: int


class Outcome(msgspec.Struct, kw_only=True):
    """The result of a void on a board.

    Attributes:
        board: the id of the board.
        batches: the number of batches to which the producer or actor contributed.
        changes: how many scores of members in slots changed.
        amount: the sum that was subtracted.
        votes: how many votes were taken back.
        members: how many members have another score in the current ranking.
        examples: of a dry run, the members whose scores would change most.
        fault: why nothing was taken back from the board; empty on success.
        notes: a sentence for each kind of contributions that can't be taken back.
    """

    board: str
    batches: int = 0
    changes: int = 0
    amount: int = 0
    votes: int = 0
    members: int = 0
    examples: list[VoidedScore] = []
    fault: str = ""
    notes: list[str] = []


class Voiding:
    """Take back contributions from the boards of one key prefix.

    Call `show` with a board and the numbers of done and of all steps.
    """

    def __init__(self, client: Store, settings: Settings, in_file: Boards, database: Database, show: Progress) -> None:
        self._client = client
        self._settings = settings
        self._in_file = in_file
        self._database = database
        self._show = show

    async def void(self, criteria: Criteria, board: str | None, *, dry: bool) -> list[Outcome]:
        """Take back contributions from one board, or from all boards.

        Contributions that were taken back before stay taken back.

        Raises:
            SetupError: there is no such board, or the store has lost data.
            StoreUnavailableError, EpochLostError: the same call continues where it stopped.
        """
        await require_no_loss(self._client, self._settings.key_prefix, board)
        found = await all_boards(self._client, self._settings, self._in_file)
        if board is not None and board not in found:
            raise NotFoundError(unknown("board", board, found))
        wanted = {board: found[board]} if board is not None else found
        is_named = board is not None
        return [await self._void(one, epoch, criteria, is_named=is_named, dry=dry) for one, epoch in wanted.values()]

    async def _void(self, board: Board, epoch: str, criteria: Criteria, *, is_named: bool, dry: bool) -> Outcome:
        """Take back contributions from a board; `epoch` is empty for a board of the boards file.

        If nothing can be taken back from the board, that is a fault only if an operator named the board.
        """
        outcome = Outcome(board=board.id)
        ledger = Ledger(self._client, board, self._settings, born=epoch)
        is_there = await self._client.call(ledger.state.keys.meta, "HEXISTS", ledger.state.keys.meta, "epoch")
        if not is_there:
            outcome.fault = "the store does not hold it" if is_named else ""
            return outcome
        tells_actors = board.votes is not None or board.like_button or bool(board.union)
        if not ledger.state.journaled or (criteria.actor is not None and not tells_actors):
            reason = _NO_ACTORS if ledger.state.journaled else _NO_JOURNAL
            outcome.fault = reason if is_named else ""
            outcome.notes += () if is_named else [reason]
            return outcome
        await ledger.state.open_to_write()
        contributions, reach = await find_contributions(self._client, self._database, ledger, criteria, outcome.notes)
        if reach > criteria.since * _MICROSECONDS and _may_count(board, reach, ledger.state.clock.now):
            outcome.fault = f"its journal begins at {_instant(reach)}: give a later --since"
        elif contributions and board.operator != "incr":
            outcome.fault = (
                f"it keeps one amount of a member (operator {board.operator}), and not the amounts before it"
            )
        elif contributions and criteria.actor is not None and len(set(board.union.values())) > 1:
            outcome.fault = SEVERAL_WEIGHTS
        if outcome.fault:
            return outcome
        try:
            taken = await TakingBack(ledger.writer).take_back(contributions, partial(self._show, board.id), dry=dry)
        except SetupError as error:  # the other boards can still take back contributions
            outcome.fault = str(error)
            return outcome
        outcome.batches, outcome.changes = taken.contributions, taken.changes
        outcome.amount, outcome.votes = taken.amount, taken.votes
        changes = {member: change for member, change in taken.members.items() if change}
        outcome.members = len(changes)
        if dry and changes:
            most = sorted(changes, key=lambda member: -abs(changes[member]))[:_EXAMPLES]
            pages = await ledger.reader.find_all(most, 0)
            scores = {record.member: record.score for page in pages if page is not None for record in page.records}
            # A hidden member has no record.
            outcome.examples = [
                VoidedScore(member, scores[member], scores[member] + changes[member])
                for member in most
                if member in scores
            ]
        return outcome


async def find_contributions(
    client: Store, database: Database, ledger: Ledger, criteria: Criteria, notes: list[str]
) -> tuple[list[Contribution], int]:
    """Return the contributions that were not taken back yet, and the time since which the journal has every entry.

    Add a sentence to `notes` for what the journal lacks. The time is in microseconds since 1970; 0 means since the
    board began.

    Raises:
        SetupError: the journal is damaged.
    """
    state, since = ledger.state, criteria.since * _MICROSECONDS
    trail = await find_trail(client, database, state.settings.key_prefix, state.board.id, state.epoch or "", since)

    def read(connection: Connection) -> list[Contribution]:
        board, voided = state.board, Voided()
        for _, head, body in trail.read(connection):
            if head.kind == "add":
                voided.read(body)
            elif head.kind == "adopt":
                notes.append(f"its journal began again at {_instant(head.time)}: entries before may be missing")
        erased = erasures_of(connection, state.settings.key_prefix, board.id)
        trace: ActorTrace | ProducerTrace
        if criteria.actor is None:
            trace = ProducerTrace(board, criteria.producer or "", voided, erased)
        else:
            trace = ActorTrace(board, criteria.actor, [state.secret], voided, erased)
        end = criteria.until * _MICROSECONDS if criteria.until is not None else math.inf
        entries = (entry for entry in trail.read(connection) if entry[1].kind == "add" and entry[1].time < end)
        return [one for epoch, head, body in entries for one in trace.find(epoch, head, body)]

    return await database.run(read), trail.reach


def _may_count(board: Board, time: int, now: int) -> bool:
    """Return whether events from before a time (microseconds since 1970) may still count now (milliseconds)."""
    match board.window:
        case Rolling(length, slot) if board.clock == "server":
            return time // _MICROSECONDS > now - (length + slot) * 1000
        case Sliding(length) if board.clock == "server":
            return time // _MICROSECONDS > now - length * 1000
        case _:
            return True


def _instant(time: int) -> str:
    return datetime.fromtimestamp(time / 1e6, UTC).isoformat(timespec="seconds")
