"""Find what one producer or one actor contributed to a board, in its journal.

A batch that takes contributions back names their identities. An identity is computed from an entry and a contributor.
So as long as the journal has these batches, it shows which contributions were taken back.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Final

import msgspec
from sqlalchemy import Connection

from live.domain.board import Board
from live.domain.event import Identities, IncomingEvent
from live.domain.producer import LIKES
from live.domain.window import Sliding
from live.errors import StoreUnavailableError
from live.journal.database import Database
from live.journal.erasures import Erasures
from live.journal.log.entries import Add, EntryDelta, Head, content, contents, parse_head, position_of
from live.journal.log.reader import entries_of, holds
from live.journal.log.timelines import START, Timeline, continued, find_parent, find_timeline, following
from live.journal.state.snapshot import IDENTITY
from live.store.board.journal_stream import Entry, read_entries, read_streams
from live.store.board.keys import Keys
from live.store.board.write.slot_assignment import voter_digests
from live.store.connection.client import Store, required

VOIDER: Final = ":void"
"""The producer of the batches that take contributions back. No API key has an id with a colon."""

Amount = tuple[int, str, int]
"""The start of a slot, a member and an amount."""
_ATTEMPTS: Final = 20
_PAUSE: Final = 0.25

Found = tuple[str, Head, bytes]
"""The epoch, the head and the body of an entry."""


class Trail(msgspec.Struct, frozen=True):
    """The entries of a board since a time.

    Attributes:
        parts: the timelines of the board, the oldest first, each with the link of its last valid entry.
        waiting: the entries that are not in SQL yet.
        since: the time from which on entries are wanted, in microseconds since 1970.
        reach: the time since which the journal has every entry. 0 means since the board began.
    """

    parts: Sequence[tuple[Timeline, str]]
    waiting: Sequence[Entry]
    since: int
    reach: int

    def read(self, connection: Connection) -> Iterator[Found]:
        """Yield all entries since the time, in order.

        Raises:
            SetupError: the journal is damaged.
        """
        for timeline, last in self.parts:
            end = position_of(last)  # later entries are of a branch that the board has left, or were moved meanwhile
            for head, body in entries_of(connection, timeline, since=self.since):
                if position_of(head.id) > end:
                    break
                if head.time >= self.since:
                    yield timeline.epoch, head, body
        for entry in self.waiting:
            head = parse_head(entry.head)
            if head.time >= self.since:
                yield self.parts[-1][0].epoch, head, entry.content


async def find_trail(client: Store, database: Database, prefix: str, board: str, epoch: str, since: int) -> Trail:
    """Return the entries of a board since a time (microseconds since 1970).

    Raises:
        StoreUnavailableError: entries are missing.
        SetupError: the journal is damaged.
    """
    keys = Keys(prefix, board)
    (stream,) = required(await read_streams(client, prefix, [(board, epoch)]))
    newest = position_of(stream.link or START)
    for _ in range(_ATTEMPTS):
        known = await database.run(lambda connection: find_timeline(connection, prefix, board, epoch))
        timeline = known or Timeline(0, board, epoch)
        waiting: list[Entry] = []
        after, end, missing = timeline.drained, timeline, None
        while missing is None:
            (entries,) = required(await read_entries(client, [(keys, timeline.epoch, after)]))
            if not entries and position_of(after) < newest:
                break  # the drainer moved the entries to SQL after `known` was read
            if not entries:
                parts, reach = await database.run(partial(_parts, prefix=prefix, timeline=timeline, waiting=waiting))
                return Trail(parts, waiting, since, reach)
            followers, missing = following(end, entries)
            waiting += followers
            after, last = entries[-1].id, parse_head(entries[-1].head)
            end = msgspec.structs.replace(end, drained=last.id, link=last.link)
        await asyncio.sleep(_PAUSE)  # read again, because the drainer may have moved entries meanwhile
    raise StoreUnavailableError(f"board {board}: entries of its journal are missing between SQL and the store")


def _parts(
    connection: Connection, prefix: str, timeline: Timeline, waiting: Sequence[Entry]
) -> tuple[list[tuple[Timeline, str]], int]:
    """Return the `parts` and the `reach` of a `Trail`."""
    parts, last = [(timeline, timeline.link)], timeline.link
    while True:
        first = next(entries_of(connection, parts[0][0]), None)
        if first is None and len(parts) == 1 and waiting:
            first = parse_head(waiting[0].head), waiting[0].content
        if first is None:
            return parts, int(last.split(" ")[1])  # a link contains the time of its entry
        head, body = first
        epoch, last, of = continued(head, body), head.before, parts[0][0]
        if head.kind == "adopt" and not epoch and (earlier := find_parent(connection, of, prefix, of.epoch)):
            parts.insert(0, (earlier, earlier.link))  # entries between the two timelines are missing
            continue
        parent = find_parent(connection, of, prefix, epoch) if epoch else None
        if parent is None or (head.kind == "adopt" and not holds(connection, parent, last)):
            return parts, 0 if head.kind == "begin" else head.time
        parts.insert(0, (parent, last))


class Vote(msgspec.Struct, frozen=True):
    """A vote. `actor` is the digest of its actor, and `pair` is the digest of its actor and member.

    `change` was added to the counts of both digests.
    """

    start: int
    member: str
    actor: bytes
    pair: bytes
    change: int


class Contribution(msgspec.Struct, frozen=True):
    """The contribution of a producer or an actor in one entry of the journal.

    Attributes:
        identity: 16 bytes that identify the contribution.
        amounts: the amounts that it added to slots. A contest has `votes` instead.
        votes: its votes.
        events: its events in a sliding window: the time in milliseconds, the member and the amount of each.
        alone: whether the contribution must be taken back in a separate batch, so that `Voided.like` can tell its slot,
            member and amount.
    """

    identity: bytes
    amounts: list[Amount] = []
    votes: list[Vote] = []
    events: list[Amount] = []
    alone: bool = False


class Voided:
    """The identities of the contributions that were taken back.

    For a like that was taken back in a separate batch, `like` returns its slot, member and amount.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, Amount | None] = {}

    def read(self, body: bytes) -> None:
        """Record the contributions that this entry took back. Ignore an entry that is not from a void."""
        if _SENT.decode(body).producers != [VOIDER]:
            return
        whole = _ADD.decode(body)
        assert whole.identities is not None, "every void names what it takes back"  # noqa: S101
        found = contents(whole.identities.all, IDENTITY)[: whole.identities.counted]
        like: Amount | None = None
        if (
            len(found) == 1
            and len(whole.groups) == 1
            and len(whole.groups[0].members) == 1
            and whole.groups[0].members[0]
        ):
            group = whole.groups[0]
            time = whole.events.times[0] if whole.events is not None else group.start
            like = int(time), group.members[0], -group.amounts[0]
        self._known |= dict.fromkeys(found, like)

    def add(self, identities: Iterable[bytes]) -> None:
        """Add contributions that were taken back according to the store."""
        self._known |= dict.fromkeys(identities, None)

    def __contains__(self, identity: bytes) -> bool:
        return identity in self._known

    def like(self, identity: bytes) -> Amount | None:
        """Return the slot or the time, the member and the amount of a like that was taken back in a separate batch."""
        return self._known.get(identity)


class ProducerTrace:
    """Finds the contributions of a producer."""

    def __init__(self, board: Board, producer: str, voided: Voided, erased: Erasures) -> None:
        self._board = board
        self._producer = producer
        self._voided = voided
        self._erased = erased

    def find(self, epoch: str, head: Head, body: bytes) -> list[Contribution]:
        """Find what the producer contributed in an entry, without what was taken back or came from erased actors."""
        sent = _SENT.decode(body)
        identity = identity_of(epoch, head, self._producer)
        if self._producer not in sent.producers or identity in self._voided:
            return []
        add, number = _ADD.decode(body), sent.producers.index(self._producer)
        found = Contribution(identity, [], [], [])
        alone = len(sent.producers) == 1
        for group in add.groups:
            if group.votes is not None:
                found.votes.extend(self._votes(epoch, head, group, number))
            elif not isinstance(self._board.window, Sliding):
                part = group.amounts if alone else _part(group, number)
                amounts = zip([group.start] * len(part), group.members, part, strict=True)
                found.amounts.extend(amount for amount in amounts if amount[1])  # an erased member has an empty name
        if add.events is not None and isinstance(self._board.window, Sliding):
            now, events = head.time // 1000, add.events
            for index, (time, amount, member) in enumerate(
                zip(events.times, events.amounts, events.members, strict=True)
            ):
                if member and (alone or events.producers[index] == number):
                    found.events.append((now if time is False else int(time), member, amount))
        if self._producer == LIKES and add.identities is not None:
            # Subtract likes that were taken back already: a void or an erasure of a visitor takes each like back in a
            # separate batch.
            changes = found.events if isinstance(self._board.window, Sliding) else found.amounts
            for like_identity in contents(add.identities.all, IDENTITY)[: add.identities.counted]:
                like = self._voided.like(identity_of(epoch, head, like_identity.hex()))
                if like is not None:
                    start, member, amount = like
                    changes.append((start, member, -amount))
        return [found]

    def _votes(self, epoch: str, head: Head, group: EntryDelta, number: int) -> Iterator[Vote]:
        votes = group.votes
        assert votes is not None, "the caller has checked"  # noqa: S101
        senders = votes.producers or [0] * len(votes.changes)
        for actor, pair, change, place, sender in zip(
            votes.actors, votes.pairs, votes.changes, votes.members, senders, strict=True
        ):
            voter = content(actor)
            is_left = identity_of(epoch, head, voter.hex()) not in self._voided
            if sender == number and is_left and group.members[place] and not self._erased.among([voter], head.time):
                yield Vote(group.start, group.members[place], voter, content(pair), change)


class ActorTrace:
    """Finds the contributions of an actor: votes in a contest, or a visitor's likes on another board.

    `secrets` are all secrets that the board has used for the digests of voters.
    """

    def __init__(self, board: Board, actor: str, secrets: Iterable[bytes], voided: Voided, erased: Erasures) -> None:
        self._board = board
        self._erased = erased
        self._actor = actor
        self._secrets = {voter_digests(secret, actor, "")[0]: secret for secret in secrets}
        self._voided = voided
        self._likes: dict[str, bytes] = {}  # the identity of the visitor's like, by member

    def find(self, epoch: str, head: Head, body: bytes) -> list[Contribution]:
        """Find what the actor contributed in an entry, without what was taken back or came from erased actors."""
        add = _ADD.decode(body)
        if add.producers == [VOIDER]:
            return []
        if self._board.votes is not None:
            return self._votes(epoch, head, add)
        if add.identities is None or (add.producers and LIKES not in add.producers):
            return []
        if not (self._board.like_button or self._board.union) or identity_of(epoch, head, LIKES) in self._voided:
            return []
        counted = set(contents(add.identities.all, IDENTITY)[: add.identities.counted])
        found = []
        for member in {member for group in add.groups for member in group.members if member}:
            liked = self.like_of(member)
            identity = identity_of(epoch, head, liked.hex())
            if liked in counted and identity not in self._voided and not self._erased.among([liked], head.time):
                weight = next(iter(self._board.union.values()), 1)
                if isinstance(self._board.window, Sliding):
                    found.append(Contribution(identity, [], [], [(head.time // 1000, member, weight)], alone=True))
                else:
                    found.append(Contribution(identity, [(add.reached or 0, member, weight)], [], [], alone=True))
        return found

    def _votes(self, epoch: str, head: Head, add: Add) -> list[Contribution]:
        found: dict[bytes, Contribution] = {}
        for group in add.groups:
            votes = group.votes
            for index, actor in enumerate(() if votes is None else votes.actors):
                assert votes is not None, "it has actors"  # noqa: S101
                voter, pair = content(actor), content(votes.pairs[index])
                secret, identity = self._secrets.get(voter), identity_of(epoch, head, voter.hex())
                if secret is None or identity in self._voided or self._erased.among([voter], head.time):
                    continue
                sender = votes.producers[index] if votes.producers else 0
                if add.producers and identity_of(epoch, head, add.producers[sender]) in self._voided:
                    continue
                members = {voter_digests(secret, self._actor, member)[1]: member for member in group.members}
                if pair not in members:  # the member of this vote was erased
                    continue
                vote = Vote(group.start, members[pair], voter, pair, votes.changes[index])
                found.setdefault(identity, Contribution(identity, [], [], [])).votes.append(vote)
        return list(found.values())

    def like_of(self, member: str) -> bytes:
        """Return the identity of the visitor's like of a member, outside of contests."""
        found = self._likes.get(member)
        if found is None:
            event = IncomingEvent(key=member, source=self._actor, id=f"\n{member}")
            found = self._likes[member] = Identities(LIKES).of(event)
        return found


class _Sent(msgspec.Struct, frozen=True):
    """Who sent a batch."""

    producers: list[str] = []


def identity_of(epoch: str, head: Head, name: str) -> bytes:
    """Return the identity of the contribution of `name` in an entry."""
    return blake2b(f"{epoch} {head.id} {name}".encode(), digest_size=IDENTITY, person=b"void").digest()


def _part(group: EntryDelta, number: int) -> list[int]:
    """Return the amounts that the producer with this number in the batch added to the members of a group."""
    parts: Mapping[int, list[int]] = dict(group.parts)
    if number:
        return _dense(parts.get(number, []), len(group.members))
    others = [_dense(part, len(group.members)) for part in parts.values()]
    return [amount - sum(rest) for amount, *rest in zip(group.amounts, *others, strict=True)]


def _dense(part: list[int], size: int) -> list[int]:
    found = [0] * size
    for place, amount in zip(part[::2], part[1::2], strict=True):
        found[place] = amount
    return found


_ADD: Final = msgspec.msgpack.Decoder(Add)
_SENT: Final = msgspec.msgpack.Decoder(_Sent)
