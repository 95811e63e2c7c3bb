"""Erase a person, who voted or liked (an actor) or who is a member. Servers may run.

A digest is made from a voter, or from a voter and a member. The identities of a visitor's likes are digests too. The
digests of voters are keyed by the secret of the board. The store deletes all digests of an actor in the step that
appends an `erase` entry to the journal.

A member is erased from the boards of the store, the titles and the audit log. The store deletes the member in the step
that appends a `forget` entry.

The process that moves such an entry to SQL rewrites the past in the same transaction (see `live.journal.forgetting`).
"""

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import product
from typing import Final

import msgspec
from sqlalchemy import Connection, select

from live.boards.definitions import all_boards
from live.domain.board import Board, Shape
from live.domain.calendar import Calendar
from live.domain.event import Identities, IncomingEvent
from live.domain.producer import LIKES
from live.domain.text import unknown
from live.domain.window import EVER, Periods
from live.errors import NotFoundError, SetupError
from live.journal.database import Database
from live.journal.forgetting import forget_by, forget_in_board, uncleared_in
from live.journal.log.drainer import Drainer
from live.journal.log.entries import FIRST, REPLACED, Erase, Head, content, contents, decompress, parse_head
from live.journal.log.reader import contents_of_parent, entries_of
from live.journal.log.timelines import all_timelines, find_parent, timelines_of
from live.journal.schema import CHECKPOINT
from live.journal.state.fold import apply
from live.journal.state.snapshot import IDENTITY, Snapshot, unpack
from live.maintenance.draining import BEHIND, is_settled
from live.maintenance.void import Criteria, Voiding
from live.settings import Settings
from live.store.board.batch import decode_batch
from live.store.board.journal_stream import journals, read_streams
from live.store.board.manage.erasure import (
    erase_digests,
    find_digests,
    forget_member,
    knows_member,
    members_of,
    read_held,
)
from live.store.board.write.slot_assignment import voter_digests
from live.store.connection.client import Store, required
from live.store.connection.durability import rewrite_log
from live.store.connection.loss import require_no_loss
from live.store.registry.audit_trail import AuditTrail
from live.store.registry.items import Items

_KEY: Final = 16  # bytes of the key of an erasure
_RESUMABLE: Final = 30 * 86_400  # seconds for which an interrupted erasure can be completed with the same replacements
_VISITOR: Final = re.compile("[0-9a-f]{32}")  # the id of a visitor; the actor of the visitor's events begins with it

_PATIENCE: Final = 10.0  # seconds to wait for readers of SQLite
_POLL: Final = 0.1
_STILL_IN_FILE: Final = (
    "a process reads the journal's database, so its files still have the old rows: end that process, and a server "
    "removes them within seconds, or when it starts"
)
_STILL_IN_SQL: Final = (
    "no journal records the erasure, so its database still has the person: stop the servers, and run it again"
)


class Search:
    """Find the digests of an actor on a board, and collect them in `found`.

    An actor has a digest, and each vote for a member has another, made of actor and member. The digests of votes are
    searched only where the digest of the actor is found. With the key of an interrupted erasure, the replacements that
    this erasure made are found too, each as the digest that it replaces.
    """

    def __init__(self, actor: str, key: bytes = b"") -> None:
        self._replacing = Erase(key=key) if key else None
        self.is_visitor = _VISITOR.fullmatch(actor) is not None
        self.voters: set[bytes] = set()
        self.found: set[bytes] = set()
        self._actor = actor
        self._secrets: set[bytes] = set()
        self._calendars: dict[str, Calendar] = {}
        self._voted: set[str] = set()
        self._liked: set[tuple[str, int | None]] = set()
        self._likes = Identities(LIKES)
        self._digests: dict[bytes, bytes] = {}  # of the actor, also for each replacement

    def _add(self, digests: Iterable[bytes]) -> set[bytes]:
        """Search for digests, and for their replacements. Return both."""
        new = {digest: digest for digest in digests}
        if self._replacing is not None:
            new |= {replacement: digest for digest, replacement in self._replacing.replacements(new).items()}
        self._digests |= new
        return {*new}

    def add_secret(self, secret: bytes) -> None:
        """Add a secret with which the board may have keyed the digests of voters."""
        if secret and secret not in self._secrets:
            self._secrets.add(secret)
            self.voters |= self._add([voter_digests(secret, self._actor, "")[0]])
            self._add(voter_digests(secret, self._actor, member)[1] for member in self._voted)

    def add_shape(self, shape: str) -> None:
        """Add choices (JSON) that the board has had: the identity of a like has the name of its calendar period."""
        decoded = msgspec.json.decode(shape, type=Shape) if shape else None
        if decoded is not None and decoded.tables and shape not in self._calendars:
            self._calendars[shape] = msgspec.convert(decoded.window, Periods).calendar

    def add_voted(self, members: Iterable[str]) -> None:
        """Add members that the actor may have voted for."""
        new = set(members) - self._voted
        self._voted |= new
        self._add(voter_digests(key, self._actor, member)[1] for member in new for key in self._secrets)

    def add_liked(self, members: Iterable[str], periods: Iterable[int | None]) -> None:
        """Add members that the actor may have liked, and in which periods."""
        if not self.is_visitor:  # the server itself makes likes, and all of them name visitors
            return
        new = set(product(members, periods)) - self._liked
        self._liked |= new
        for member, start in new:
            names = [""] if start is None else [calendar.at(start).name for calendar in self._calendars.values()]
            events = (IncomingEvent(member=member, source=self._actor, id=f"{name}\n{member}") for name in names)
            self._add(self._likes.of(event) for event in events)

    def among(self, fields: Iterable[bytes]) -> set[bytes]:
        """Return the digests of the actor among `fields`."""
        found = {self._digests[field] for field in self._digests.keys() & fields}
        self.found |= found
        return found

    def in_contents(self, data: Snapshot) -> bool:
        """Return whether the contents of the board have digests of the actor."""
        self.add_secret(data.secret)
        self.add_shape(data.shape)
        for suffix, ranking in data.rankings.items():
            if not self.voters.isdisjoint(ranking.votes):
                self.add_voted(data.slots.get(int(suffix[1:] or EVER.start), {}))
        if data.seen:
            for start, slot in data.slots.items():
                self.add_liked(slot, (None, start) if f":{start}" in data.rankings else (None,))
            self.add_liked({event.member for event in data.log}, (None,))
        return bool(self.among(data.digests))

    def in_entry(self, head: Head, body: bytes) -> bool:
        """Return whether an entry of the journal has digests of the actor."""
        fields: list[bytes] = []
        match head.kind:
            case "begin" | "adopt":
                data = Snapshot()
                apply(data, head, body)
                return self.in_contents(data)
            case "add":
                batch = decode_batch(body)
                if batch.identities is not None:
                    fields += contents(batch.identities.all, IDENTITY)
                    for group in batch.groups:
                        self.add_liked(group.members, (None, group.start))
                for group, votes in ((group, group.votes) for group in batch.groups if group.votes is not None):
                    actors, pairs = [*map(content, votes.actors)], [*map(content, votes.pairs)]
                    fields += *actors, *pairs
                    if not self.voters.isdisjoint(actors):
                        self.add_voted(group.members)
                    found = (pair for actor, pair in zip(actors, pairs, strict=True) if actor in self.voters)
                    self._add(pair for pair in found if not pair.startswith(REPLACED))
        return bool(self.among(fields))


def search_journal(connection: Connection, board: str, search: Search) -> tuple[int, int]:
    """Search the journal of a board. Return how many entries and how many checkpoints have digests of the actor."""
    entries = checkpoints = 0
    for timeline in timelines_of(connection, board):
        rows = select(CHECKPOINT.c.crc, CHECKPOINT.c.data).where(CHECKPOINT.c.life == timeline.id)
        for row in connection.execute(rows.order_by(CHECKPOINT.c.segment)):
            checkpoints += search.in_contents(unpack(decompress(row.crc, row.data)))
        for head, body in entries_of(connection, timeline):
            entries += search.in_entry(head, body)
            if head.kind == "renew":
                parent = find_parent(connection, timeline, body.decode())
                if parent is not None and parent.board != board:  # `live recover --as` copied the parent's board
                    held = contents_of_parent(connection, timeline, body.decode(), head.before)
                    entries += search.in_contents(held)
    return entries, checkpoints


class Found(msgspec.Struct, kw_only=True):
    """What a board has of a person: how many entries and checkpoints of its journal.

    On a dry run, `waiting` entries of the journal wait in the store. An erasure rewrites them too.
    """

    board: str
    entries: int = 0
    checkpoints: int = 0
    waiting: int = 0


class Erased(Found, kw_only=True):
    """The result of erasing an actor from a board.

    `digests` counts those in the store. Of the `events` that were taken back, some are `votes`. `notes` has a sentence
    for each kind of events that could not be taken back.
    """

    digests: int = 0
    events: int = 0
    votes: int = 0
    notes: list[str] = []

    @property
    def is_known(self) -> bool:
        """Whether the board had something of the actor."""
        return bool(self.digests or self.entries or self.checkpoints or self.events)


class ErasedMember(Found, kw_only=True):
    """The result of erasing a member from a board: whether the store had it, and how many archived periods."""

    in_store: bool = False
    periods: int = 0

    @property
    def is_known(self) -> bool:
        """Whether the board had the member."""
        return self.in_store or bool(self.entries or self.checkpoints or self.periods)


class ErasedPerson(msgspec.Struct, kw_only=True):
    """The result of erasing a member: for each board, and whether it had a title and entries in the audit log."""

    boards: list[ErasedMember]
    title: bool = False
    log_entries: int = 0

    @property
    def is_known(self) -> bool:
        """Whether anything of the member was found."""
        return self.title or bool(self.log_entries) or any(one.is_known for one in self.boards)


class Erasing:
    """Erase actors and members from the boards of one key prefix, while servers run.

    A call with `dry` changes nothing, and returns what would be erased.
    """

    def __init__(self, client: Store, settings: Settings, database: Database, drainer: Drainer | None = None) -> None:
        """Take the journal to read. A server or the `drainer` of this command must move entries to it."""
        self._client = client
        self._settings = settings
        self._database = database
        self._drainer = drainer
        self._key = self._earlier = b""  # `_earlier` is the key if an interrupted erasure has used it
        # Digests of boards that can't have an `erase` entry, because the store lacks the board or the board has no
        # journal.
        self._elsewhere: list[tuple[str, list[bytes]]] = []

    async def erase(
        self, actor: str, boards: Iterable[str], *, take_back: bool, dry: bool = False
    ) -> tuple[list[Erased], str]:
        """Erase an actor from some boards, or from all boards. With `take_back`, take back votes and likes first.

        After an interruption, the same call continues. The second result lists the remaining tasks of the operator.
        """
        waiting = await self._begin(actor, dry=dry)
        found = [Erased(board=board, waiting=waiting[board]) for board in await self._names(boards)]
        if take_back:
            await self._take_back(actor, found, dry=dry)
        self._elsewhere = []
        for one in found:
            await self._erase(actor, one, dry=dry)
        if dry:
            return found, ""
        return found, await self._end(await self._erase_elsewhere() if self._elsewhere else "")

    async def _begin(self, person: str, *, dry: bool) -> Counter[str]:
        """Wait until SQL has all entries. Take the key of an interrupted erasure of the person, or a new one.

        Boards can share rows, so an erasure must continue with the same replacements. If it is `dry`, wait for nothing,
        and return how many entries of each board wait in the store.
        """
        await require_no_loss(self._client)
        if not dry and not await is_settled(self._client):
            raise SetupError(BEHIND)
        self._earlier = self._key = await self._find_key(person)
        waiting = Counter[str]()
        if dry:
            listed = await journals(self._client)
            for (board, _), stream in zip(listed, required(await read_streams(self._client, listed)), strict=True):
                waiting[board] += stream.entries
        elif not self._key:
            self._key, keys = secrets.token_bytes(_KEY), self._client.system.erasures
            await self._client.write(keys, "HSET", keys, self._key, _digest_of(person, self._key))
            await self._client.write(keys, "EXPIRE", keys, _RESUMABLE)
        return waiting

    async def _find_key(self, person: str) -> bytes:
        """Return the key of an interrupted erasure of a person, or nothing."""
        keys = self._client.system.erasures
        fields = await self._client.call(keys, "HGETALL", keys)
        kept = zip(fields[::2], fields[1::2], strict=True)
        return next((key for key, digest in kept if digest == _digest_of(person, key)), b"")

    async def _end(self, nowhere: str) -> str:
        """Wait until SQL has the entries, and forget the key. Return what is left to do."""
        behind = "" if await is_settled(self._client) else BEHIND
        if not (behind or nowhere):
            keys = self._client.system.erasures
            await self._client.write(keys, "HDEL", keys, self._key)
        kept = "" if behind or await self._is_cleared() else _STILL_IN_FILE
        return "; ".join(filter(None, (await rewrite_log(self._client), behind, nowhere, kept)))

    async def _is_cleared(self) -> bool:
        """Wait until the files of the database have nothing of the old rows. Return False if that takes too long."""
        deadline = asyncio.get_running_loop().time() + _PATIENCE
        while await self._database.run(uncleared_in):
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(_POLL)
        return True

    async def _names(self, wanted: Iterable[str]) -> list[str]:
        """Return the boards to look at, including deleted boards that the journal still knows.

        To the wanted boards belong those that continue their journals, or that their journals continue.
        """
        timelines = await self._database.run(all_timelines)
        known = {*await all_boards(self._client)} | {timeline.board for timeline, _ in timelines}
        if missing := sorted({*wanted} - known):
            raise NotFoundError(unknown("board", missing[0], known))
        of_epoch = {timeline.epoch: timeline.board for timeline, _ in timelines}
        pairs = [{timeline.board, of_epoch.get(parent or "", timeline.board)} for timeline, parent in timelines]
        names, before = {*wanted}, 0
        while len(names) > before:
            before = len(names)
            names.update(*(pair for pair in pairs if pair & names))
        return sorted(names or known)

    async def _erase(self, actor: str, one: Erased, *, dry: bool = False) -> None:
        keys = self._client.keys_of(one.board)
        search, held = Search(actor, self._earlier), await read_held(self._client, keys)
        if held is not None:
            search.add_secret(held.secret)
            search.add_shape(held.shape.encode())
        one.entries, one.checkpoints = await self._database.run(search_journal, one.board, search)
        is_first = True
        while held is not None:
            for start in held.starts:
                table = start if held.shape.tables else None
                votes = keys.table(table).votes
                voted = await self._client.call(votes, "HMGET", votes, *(search.voters or {b""}))
                # If a vote was counted while the digest of its actor was deleted, only the digest of actor and member
                # is left.
                if any(voted) or not is_first:
                    search.add_voted(await members_of(self._client, keys, start))
                if search.is_visitor:
                    search.add_liked(await members_of(self._client, keys, start), {None, table})
            found = await find_digests(self._client, keys, held, search.among)
            one.digests += len(found)
            if dry or not (found or search.found):
                return
            # The actor may have voted again meanwhile, so search the store until no digest is left.
            entry, is_done = Erase(key=self._key, digests=list(search.found)), True
            if held.journaled or found:
                is_done = await erase_digests(self._client, keys, held, search.found, msgspec.msgpack.encode(entry))
            if is_done:
                if not held.journaled:
                    self._elsewhere.append((one.board, entry.digests))
                search.found = set()
            is_first, held = False, await read_held(self._client, keys)
        if not dry and search.found:
            self._elsewhere.append((one.board, list(search.found)))

    async def _erase_elsewhere(self) -> str:
        """Erase from boards without a journal, by an entry in another journal. Return what is left to do."""
        erase = Erase(key=self._key, elsewhere=self._elsewhere)
        for board in await all_boards(self._client):
            keys = self._client.keys_of(board)
            held = await read_held(self._client, keys)
            if held is None or not held.journaled:
                continue
            if await erase_digests(self._client, keys, held, set(), msgspec.msgpack.encode(erase)):
                return ""
        return await self._rewrite(erase)

    async def _rewrite(self, erase: Erase) -> str:
        """Rewrite SQL without an entry in a journal, unless a server writes to SQL. Return what is left to do."""
        if self._drainer is None or not await self._drainer.take():
            return _STILL_IN_SQL
        await self._drainer.database.run(forget_by, "", erase)
        await self._drainer.clear()
        return ""

    async def _take_back(self, actor: str, found: list[Erased], *, dry: bool) -> None:
        """Take back the votes and likes of an actor, as far back as the journal of each board goes."""
        known = await all_boards(self._client)
        voiding = Voiding(self._client, self._settings, self._database, lambda *_: None)
        for one in found:
            if one.board not in known:
                continue
            (outcome,) = await voiding.void(Criteria(actor=actor), one.board, dry=dry)
            one.votes, one.events = outcome.votes, outcome.events
            one.notes += [*outcome.notes, *filter(None, [outcome.fault])]
        if not dry:
            await is_settled(self._client)

    async def erase_member(self, member: str, *, dry: bool = False) -> tuple[ErasedPerson, str]:
        """Erase a member, or continue after an interruption. The second result lists the operator's remaining tasks."""
        waiting, known = await self._begin(member, dry=dry), await all_boards(self._client)
        person = await self._find(member, known, waiting)
        if dry:
            return person, ""
        names = self._client.system
        if person.title:
            await Items(self._client, 0).delete(member)
        await self._client.write(names.items_changes, "DEL", names.items_changes)  # it can name the member
        person.log_entries = await AuditTrail(self._client).redact(member.__eq__)
        await self._client.write(names.refusals, "DEL", names.refusals)  # the samples may name it too
        last, elsewhere = "", list[tuple[str, list[bytes]]]()
        for one in [one for one in person.boards if one.is_known]:
            is_journaled = await self._is_journaled(one.board) if one.board in known else False
            if is_journaled and not last:
                last = one.board  # the entry of this board comes last, and completes the erasure
                continue
            if is_journaled or one.in_store:
                await self._forget(known[one.board][0], Erase(key=self._key, member=member))
            if not is_journaled:
                elsewhere.append((one.board, list(await self._votes_for(one.board, member, 0))))
        for board in () if last else known:
            last = last or (board if await self._is_journaled(board) else "")
        erase = Erase(key=self._key, member=member, elsewhere=elsewhere, system=True)
        if not last:
            return person, await self._end(await self._rewrite(erase))
        await self._forget(known[last][0], erase)
        return person, await self._end("")

    async def _find(
        self, member: str, known: Mapping[str, tuple[Board, str]], waiting: Mapping[str, int]
    ) -> ErasedPerson:
        found = []
        for board in await self._names([]):
            rows = await self._database.run(forget_in_board, board, member, dry=True)
            one = ErasedMember(board=board, waiting=waiting[board], **msgspec.structs.asdict(rows))
            if board in known:
                one.in_store = await knows_member(self._client, self._client.keys_of(board), known[board][0], member)
            found.append(one)
        items = self._client.system.items
        return ErasedPerson(boards=found, title=bool(await self._client.call(items, "HEXISTS", items, member)))

    async def _is_journaled(self, board: str) -> bool:
        held = await read_held(self._client, self._client.keys_of(board))
        return held is not None and held.journaled

    async def _votes_for(self, board: str, member: str, since: int) -> set[bytes]:
        boards = await self._names([board])
        found = await self._database.run(_votes_for, boards, member, since)
        return found if since else found | await self._left_in_store(board, boards)

    async def _left_in_store(self, board: str, boards: Iterable[str]) -> set[bytes]:
        """Return the digests in the store that an interrupted erasure has replaced in rows that the board shares."""
        keys = self._client.keys_of(board)
        held = await read_held(self._client, keys) if self._earlier else None
        if held is None:
            return set()
        replaced, replacing = await self._database.run(_replaced_in, boards), Erase(key=self._earlier)

        def among(fields: Iterable[bytes]) -> set[bytes]:
            return {digest for digest, other in replacing.replacements(fields).items() if other in replaced}

        return await find_digests(self._client, keys, held, among)

    async def _forget(self, board: Board, erase: Erase) -> None:
        """Delete a member from a board, with the digests of all votes for it up to this step."""
        keys, votes = self._client.keys_of(board.id), set[bytes]()
        epoch = searched = ""  # the link of the last entry that was searched
        is_done = False
        while not is_done:
            held, journal = await self._client.call(keys.meta, "HMGET", keys.meta, "epoch", "journal")
            last = (journal or b"").decode().rpartition(" ")[0]
            if last:
                if held.decode() != epoch:
                    epoch, searched = held.decode(), ""
                since, stream = searched or FIRST, keys.journal(epoch)
                found = await self._client.call(stream, "XRANGE", stream, f"({since.partition(' ')[0]}", "+")
                entries = [(parse_head(fields[1].decode()), fields[3]) for _, fields in found]
                votes.update(*(_votes_in(head, body, erase.member) for head, body in entries))
                is_whole, searched = (entries[0][0].before if entries else last) == searched, last
                if not is_whole:  # SQL has the entries between
                    votes |= await self._votes_for(board.id, erase.member, int(since.split(" ")[1]))
                    continue
            if board.votes is None:
                last = ""
            erase = msgspec.structs.replace(erase, digests=list(votes))
            body = msgspec.msgpack.encode(erase)
            is_done = await forget_member(self._client, board, keys, erase.member, votes, body, last) or not last


def _digest_of(person: str, key: bytes) -> bytes:
    return blake2b(person.encode(), key=key).digest()


def _entries_of_all(connection: Connection, boards: Iterable[str], since: int = 0) -> Iterator[tuple[Head, bytes]]:
    for timeline in (timeline for board in boards for timeline in timelines_of(connection, board)):
        yield from entries_of(connection, timeline, since=since)


def _votes_for(connection: Connection, boards: Iterable[str], member: str, since: int) -> set[bytes]:
    """Return the digests of the (actor, member) pairs of all votes for the member in the journal, since a time (µs)."""
    entries = _entries_of_all(connection, boards, since)
    return {pair for head, body in entries for pair in _votes_in(head, body, member)}


def _replaced_in(connection: Connection, boards: Iterable[str]) -> set[bytes]:
    """Return what replaces the digests of votes for erased members."""
    bodies = (body for head, body in _entries_of_all(connection, boards) if head.kind == "forget")
    return {digest for body in bodies for digest in msgspec.msgpack.decode(body, type=Erase).digests}


def _votes_in(head: Head, body: bytes, member: str) -> set[bytes]:
    found = set[bytes]()
    if head.kind == "add" and member.encode() in body and b"\xa5votes" in body:
        for group in decode_batch(body).groups:
            if group.votes is not None and member in group.members:
                pairs = zip(group.votes.members, group.votes.pairs, strict=False)
                of_member = {content(pair) for place, pair in pairs if group.members[place] == member}
                found |= {pair for pair in of_member if not pair.startswith(REPLACED)}
    return found
