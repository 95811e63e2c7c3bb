"""Take back events of a producer, of an actor or with an id: from a swap on, a board holds what it would without them.

It works on every kind of board, because the journal is folded without the events. Repeating it changes nothing.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec
from sqlalchemy import Connection

from live.boards.definitions import all_boards
from live.domain.board import Board
from live.domain.event import Identities, IncomingEvent
from live.domain.producer import LIKES
from live.domain.text import counted, unknown
from live.domain.window import Periods, Rolling, Sliding
from live.errors import NotFoundError, SetupError
from live.journal.database import Database
from live.journal.log.entries import Head, content
from live.journal.log.reader import Follower, after, swaps_of
from live.journal.state.events import CountedEvent, events_of
from live.journal.state.fold import taken_by
from live.journal.state.ranking import scores_at
from live.journal.state.taken import NOTHING, SentBetween, Some, Taken
from live.maintenance.swap import swap
from live.maintenance.trail import Trail, find_trail
from live.settings import Settings
from live.store.board.batch import Batch, decode_batch
from live.store.board.state import BoardState
from live.store.board.write.slot_assignment import voter_digests
from live.store.connection.client import Store
from live.store.connection.loss import require_no_loss
from live.store.registry.audit_trail import digest_of_person

Progress = Callable[[int, int], None]

_MICROSECONDS: Final = 1000  # microseconds in a millisecond
_NO_JOURNAL: Final = "it has no journal, so nothing of it can be taken back"
_NO_ACTORS: Final = "it does not tell actors apart: only boards with `votes` or `like_button` do"
_EXAMPLES: Final = 10  # members that an outcome names


class Criteria(msgspec.Struct, kw_only=True):
    """The events to void, which counted between two times (milliseconds since 1970)."""

    producer: str | None = None  # the producer that sent them; with `identity`, it does not matter
    actor: str | None = None  # who voted or liked
    identity: bytes | None = None  # the identity of a single event
    since: int | None = None  # when the time begins; None for the beginning of the journal
    until: int | None = None  # when the time ends; None for now


def whom_of(criteria: Criteria) -> dict[str, str | None]:
    """Return the name for the audit log: the producer, or a digest of the person."""
    if criteria.actor is None:
        return {"producer": criteria.producer}
    return {**digest_of_person(criteria.actor, "actor")}


class VoidedScore(msgspec.Struct, frozen=True):
    """A member's score before and after; None if it has none."""

    member: str = msgspec.field(name="key")
    before: int | None
    after: int | None


class Outcome(msgspec.Struct, kw_only=True):
    """The result of a void on a board."""

    board: str  # the id of the board
    events: int = 0  # how many events were taken back
    votes: int = 0  # how many votes were taken back
    batches: int = 0  # in how many batches the events came
    members: int = 0  # how many members have another score in the current ranking
    examples: list[VoidedScore] = []  # the members whose scores change most
    fault: str = ""  # why nothing was taken back from the board; empty on success
    notes: list[str] = []  # a sentence for each kind of events that can't be taken back


class Voiding:
    """Take back events from the boards of one key prefix. Call `show` with the numbers of done and of all steps."""

    def __init__(self, client: Store, settings: Settings, database: Database, show: Progress) -> None:
        self._client = client
        self._settings = settings
        self._database = database
        self._show = show

    async def void(self, criteria: Criteria, board: str | None, *, dry: bool) -> list[Outcome]:
        """Take back events from one board, or from all boards. What was taken back before stays so."""
        await require_no_loss(self._client, board)
        found = await all_boards(self._client)
        if board is not None and board not in found:
            raise NotFoundError(unknown("board", board, found))
        wanted = {board: found[board]} if board is not None else found
        is_named = board is not None
        return [await self._void(one, epoch, criteria, is_named=is_named, dry=dry) for one, epoch in wanted.values()]

    async def _void(self, board: Board, epoch: str, criteria: Criteria, *, is_named: bool, dry: bool) -> Outcome:
        """Take back events from a board.

        If nothing can be taken back from the board, that is a fault only if an operator named the board.
        """
        outcome = Outcome(board=board.id)
        state = BoardState(self._client, board, self._settings, born=epoch)
        if not await self._client.call(state.keys.meta, "HEXISTS", state.keys.meta, "epoch"):
            outcome.fault = "the store does not hold it" if is_named else ""
            return outcome
        tells_actors = board.votes is not None or board.like_button or bool(board.union)
        if not state.journaled or (criteria.actor is not None and not tells_actors):
            reason = _NO_ACTORS if state.journaled else _NO_JOURNAL
            outcome.fault = reason if is_named else ""
            outcome.notes += () if is_named else [reason]
            return outcome
        await state.open()
        since = (criteria.since or 0) * _MICROSECONDS
        trail = await find_trail(self._client, self._database, board.id, state.epoch or "", since)
        search = EventSearch(board, state.secret, criteria, outcome)
        taken = await self._database.run(lambda connection: search.find(connection, trail))
        if trail.reach > since and _may_count(board, trail.reach, state.clock.now):
            begins = f"its journal begins at {instant(trail.reach)}"
            if criteria.since is None:
                outcome.notes.append(f"{begins}: what counted before stays")
            else:
                outcome.fault = f"{begins}: give a later --since"
        if taken and not outcome.fault:
            try:
                held = await scores_now(state, await self._follow(state), board)
                follower = await self._follow(state, taken)
                outcome.members, outcome.examples = changed_most(held, await scores_now(state, follower, board))
            except SetupError as error:
                outcome.fault = f"{error}: give a later --since"
                return outcome
            if not dry:
                await swap(self._client, self._settings, board, state.epoch or "", follower, taken)
        return outcome

    async def _follow(self, state: BoardState, taken: Taken = NOTHING) -> Follower:
        """Fold the journal of a board without some events."""
        follower = Follower(self._client, self._database, state.board.id, state.epoch or "", taken)
        await follower.begin(self._show)
        return follower


class EventSearch:
    """Find the events in the journal of a board that meet the criteria and were not taken back yet."""

    def __init__(self, board: Board, secret: bytes, criteria: Criteria, outcome: Outcome) -> None:
        self._board = board
        self._criteria = criteria
        self._outcome = outcome
        self._voter = voter_digests(secret, criteria.actor or "", "")[0]
        self._likes: dict[tuple[str, int], set[bytes]] = {}  # by member and slot

    def find(self, connection: Connection, trail: Trail) -> Taken:
        """Return the events, and count them in the outcome."""
        criteria = self._criteria
        known = Taken.all_of(
            [taken_by(swap) for timeline, last in trail.parts for swap in swaps_of(connection, timeline, after(last))]
            + [taken_by(body) for head, body in trail.waiting_entries() if head.kind == "swap"]
        )
        end = math.inf if criteria.until is None else criteria.until * _MICROSECONDS
        senders, events = list[SentBetween](), dict[str, Some]()
        for head, body in trail.read(connection):
            if head.kind == "adopt":
                self._forget(head)
                senders, events = [], {}
            if head.kind != "add" or head.time >= end:
                continue
            batch = decode_batch(body)
            found = {
                place: event for place, event in self._among(batch) if not known.takes(head, place, event.producer)
            }
            if not found:
                continue
            self._outcome.batches += 1
            self._outcome.events += len(found)
            self._outcome.votes += sum(event.amount for event in found.values() if event.actor)
            if criteria.producer is not None:
                senders = [SentBetween(criteria.producer, senders[0].since if senders else head.time, head.link)]
            else:
                events[head.link] = Some(len(events_of(batch)), tuple(found))
        return Taken(tuple(senders), events)

    def _forget(self, head: Head) -> None:
        """Forget what was found so far: the journal began again with what the board held, whatever had made it."""
        outcome = self._outcome
        began = f"its journal began again at {instant(head.time)}"
        if outcome.events:
            outcome.notes.append(f"{began}: {counted(outcome.events, 'event')} before then can't be taken back")
        else:
            outcome.notes.append(f"{began}: entries before may be missing")
        outcome.batches = outcome.events = outcome.votes = 0

    def _among(self, batch: Batch) -> Iterator[tuple[int, CountedEvent]]:
        """Yield the events of a batch that meet the criteria, with their places. A quick look comes first."""
        criteria, identities = self._criteria, batch.identities
        if criteria.producer is not None:
            is_wanted = criteria.producer in batch.producers
        elif criteria.identity is not None:
            is_wanted = identities is not None and criteria.identity in bytes(identities.all)
        elif self._board.votes is not None:
            voters = (votes.actors for group in batch.groups if (votes := group.votes) is not None)
            is_wanted = any(self._voter in map(content, actors) for actors in voters)
        else:
            is_wanted = identities is not None and LIKES in batch.producers
        if is_wanted:
            yield from ((place, event) for place, event in enumerate(events_of(batch)) if self._meets(event))

    def _meets(self, event: CountedEvent) -> bool:
        criteria = self._criteria
        if criteria.producer is not None:
            return event.producer == criteria.producer
        if criteria.identity is not None:
            return event.identity == criteria.identity
        if self._board.votes is not None:
            return event.actor == self._voter
        return event.identity in self._likes_of(event)

    def _likes_of(self, event: CountedEvent) -> set[bytes]:
        """Return the identities that a like of the actor for the member of an event can have."""
        place = event.member, event.start
        found = self._likes.get(place)
        if found is None:
            window = self._board.window
            names = {"", window.calendar.at(event.start).name} if isinstance(window, Periods) else {""}
            actor, of = self._criteria.actor or "", Identities(LIKES).of
            found = self._likes[place] = {
                of(IncomingEvent(member=event.member, source=actor, id=f"{name}\n{event.member}")) for name in names
            }
        return found


def changed_most(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[int, list[VoidedScore]]:
    """Return how many members have another score, and those whose scores change most."""
    changed = [
        VoidedScore(member, before.get(member), after.get(member))
        for member in before.keys() | after.keys()
        if before.get(member) != after.get(member)
    ]
    changed.sort(key=lambda one: (-abs((one.after or 0) - (one.before or 0)), one.member))
    return len(changed), changed[:_EXAMPLES]


async def scores_now(state: BoardState, follower: Follower, board: Board) -> dict[str, int]:
    """Return the scores that the current ranking has now, according to the journal and by the rules of `board`."""
    last = await state.call("HGET", state.keys.meta, "journal")
    data = await follower.advance(last.decode().rpartition(" ")[0])
    now = max(state.clock.now, data.time // _MICROSECONDS)
    held = scores_at(board, data, now).scores
    return {member: score for member, score in held.items() if member not in data.hidden}


def _may_count(board: Board, time: int, now: int) -> bool:
    """Return whether events from before a time (microseconds since 1970) may still count now (milliseconds)."""
    match board.window:
        case Rolling(length, slot) if board.clock == "server":
            return time // _MICROSECONDS > now - (length + slot) * 1000
        case Sliding(length) if board.clock == "server":
            return time // _MICROSECONDS > now - length * 1000
        case _:
            return True


def instant(time: int) -> str:
    """Return a time (microseconds since 1970) as people write it."""
    return datetime.fromtimestamp(time / 1e6, UTC).isoformat(timespec="seconds")


async def void(
    client: Store, settings: Settings, database: Database, criteria: Criteria, board: str | None, *, dry: bool = False
) -> list[Outcome]:
    """Take events back as `Voiding.void` does."""
    return await Voiding(client, settings, database, lambda *_: None).void(criteria, board, dry=dry)
