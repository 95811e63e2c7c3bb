"""Erase an actor: delete the digests of the actor from the store, and hide them in the journal.

A digest is made from a voter, or from a voter and a member. The identities of a visitor's likes are digests too. The
digests of voters are keyed by the secret of the board. The store deletes all digests of the actor in the step that
appends an `erase` entry to the journal (see `live.journal.erasures`). Raw entries of the journal keep the digests
until the entries are forgotten.
"""

import re
import secrets
from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import product
from typing import Final

import msgspec
from sqlalchemy import Connection, select

from live.boards.all_boards import all_boards
from live.domain.board import Boards, Shape
from live.domain.calendar import Calendar
from live.domain.event import Identities, IncomingEvent
from live.domain.producer import LIKES
from live.domain.text import unknown
from live.domain.window import EVER, Periods
from live.errors import NotFoundError, SetupError
from live.journal.database import Database
from live.journal.erasures import Erasures, digests_in, erasures_of, hidden, key_of
from live.journal.log.drainer import Drainer
from live.journal.log.entries import Add, Erase, Head, content, contents, decompress
from live.journal.log.reader import contents_of_parent, entries_of
from live.journal.log.timelines import all_timelines, find_parent, timelines_of
from live.journal.schema import CHECKPOINT
from live.journal.state.fold import apply
from live.journal.state.snapshot import IDENTITY, Snapshot, unpack
from live.maintenance.contributions import Contribution, Vote
from live.maintenance.draining import BEHIND, is_settled
from live.maintenance.void import SEVERAL_WEIGHTS, Criteria, TakingBack, find_contributions
from live.settings import Settings
from live.store.board.journal_stream import journals, read_streams
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger, open_ledger
from live.store.board.manage.erasure import erase_digests, find_digests, members_of, read_held
from live.store.board.write.slot_assignment import voter_digests
from live.store.connection.client import Store, required
from live.store.connection.durability import rewrite_log
from live.store.connection.loss import require_no_loss

_NOW: Final = 2**63  # stands for the time of digests in the store: later than all erasures
_STEP: Final = 1000  # votes that are looked up at once
_VISITOR: Final = re.compile("[0-9a-f]{32}")  # the id of a visitor; the actor of the visitor's events begins with it

_NOWHERE: Final = (
    "no journal records the erasure, so earlier times still show the actor: stop the servers and run `live "
    "journal --compact`"
)

_ADD: Final = msgspec.msgpack.Decoder(Add)


class Search:
    """Find the digests of an actor on a board, except those that were erased before.

    An actor has a digest, and each vote for a member has another, made of actor and member. The digests of votes are
    searched only where the digest of the actor is found. `found` collects the digests.
    """

    def __init__(self, actor: str, erased: Erasures) -> None:
        self.is_visitor = _VISITOR.fullmatch(actor) is not None
        self.voters: set[bytes] = set()
        self.found: set[bytes] = set()
        self._actor = actor
        self._erased = erased
        self._secrets: set[bytes] = set()
        self._calendars: dict[str, Calendar] = {}
        self._voted: set[str] = set()
        self._liked: set[tuple[str, int | None]] = set()
        self._likes = Identities(LIKES)
        self._digests: set[bytes] = set()

    def add_secret(self, secret: bytes) -> None:
        """Add a secret with which the board may have keyed the digests of voters."""
        if secret and secret not in self._secrets:
            self._secrets.add(secret)
            self.voters.add(voter_digests(secret, self._actor, "")[0])
            self._digests |= self.voters | {voter_digests(secret, self._actor, member)[1] for member in self._voted}

    def add_shape(self, shape: str) -> None:
        """Add choices (JSON) that the board has had.

        The identity of a like contains the name of its period, which depends on the calendar.
        """
        decoded = msgspec.json.decode(shape, type=Shape) if shape else None
        if decoded is not None and decoded.tables and shape not in self._calendars:
            self._calendars[shape] = msgspec.convert(decoded.window, Periods).calendar

    def add_voted(self, members: Iterable[str]) -> None:
        """Add members that the actor may have voted for."""
        new = set(members) - self._voted
        self._voted |= new
        self._digests.update(voter_digests(key, self._actor, member)[1] for member in new for key in self._secrets)

    def add_liked(self, members: Iterable[str], periods: Iterable[int | None]) -> None:
        """Add members that the actor may have liked, and in which periods."""
        if not self.is_visitor:  # the server itself makes likes, and all of them name visitors
            return
        new = set(product(members, periods)) - self._liked
        self._liked |= new
        for member, start in new:
            names = [""] if start is None else [calendar.at(start).name for calendar in self._calendars.values()]
            events = (IncomingEvent(key=member, source=self._actor, id=f"{name}\n{member}") for name in names)
            self._digests.update(self._likes.of(event) for event in events)

    def among(self, fields: Iterable[bytes], time: int) -> set[bytes]:
        """Return the digests of the actor among `fields`, except digests that were erased after they were stored.

        `time` is when they were stored, in microseconds since 1970.
        """
        found = self._digests.intersection(fields)
        found -= self._erased.among(found, time)
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
        return bool(self.among(digests_in(data), data.time))

    def in_entry(self, head: Head, body: bytes) -> bool:
        """Return whether an entry of the journal has digests of the actor."""
        fields: list[bytes] = []
        match head.kind:
            case "begin" | "adopt":
                data = Snapshot()
                apply(data, head, body)
                return self.in_contents(data)
            case "add":
                add = _ADD.decode(body)
                if add.identities is not None:
                    fields += contents(add.identities.all, IDENTITY)
                    for group in add.groups:
                        self.add_liked(group.members, (None, group.start))
                for votes in (group.votes for group in add.groups if group.votes is not None):
                    for actor, pair in zip(map(content, votes.actors), map(content, votes.pairs), strict=True):
                        fields += actor, pair
                        if actor in self.voters:
                            self._digests.add(pair)
        return bool(self.among(fields, head.time))


def search_journal(connection: Connection, prefix: str, board: str, search: Search) -> tuple[int, int]:
    """Search the journal of a board. Return how many entries and how many checkpoints have digests of the actor.

    Raises:
        SetupError: the journal is damaged.
    """
    entries = checkpoints = 0
    for timeline in timelines_of(connection, prefix, board):
        rows = select(CHECKPOINT.c.crc, CHECKPOINT.c.data).where(CHECKPOINT.c.life == timeline.id)
        for row in connection.execute(rows.order_by(CHECKPOINT.c.segment)):
            checkpoints += search.in_contents(unpack(decompress(row.crc, row.data)))
        for head, body in entries_of(connection, timeline):
            entries += search.in_entry(head, body)
            if head.kind == "renew":
                parent = find_parent(connection, timeline, prefix, body.decode())
                if parent is not None and parent.board != board:  # `live rebuild --as` copied the parent's board
                    held = contents_of_parent(connection, prefix, timeline, body.decode(), head.before)
                    entries += search.in_contents(held)
    return entries, checkpoints


class Erased(msgspec.Struct, kw_only=True):
    """The result of an erasure on a board.

    Attributes:
        board: the id of the board.
        digests: how many digests the store held.
        entries: how many entries of the journal contain digests of the actor. Requests no longer show these digests.
        checkpoints: how many checkpoints of the journal contain digests of the actor.
        votes: how many votes were taken back.
        amount: the amounts that were subtracted for likes and votes.
        waiting: on a dry run, how many entries of the journal wait in the store. `erase` searches them too.
        notes: a sentence for each contribution that could not be taken back.
    """

    board: str
    digests: int = 0
    entries: int = 0
    checkpoints: int = 0
    votes: int = 0
    amount: int = 0
    waiting: int = 0
    notes: list[str] = []


class Erasing:
    """Erase actors from the boards of one key prefix, while servers run."""

    def __init__(
        self, client: Store, settings: Settings, in_file: Boards, database: Database, drainer: Drainer | None = None
    ) -> None:
        """Take the database of the journal, to read. Something must move entries to it, such as the `drainer`.

        The `drainer` of this command may also write to its database, while no server does.
        """
        self._client = client
        self._settings = settings
        self._prefix = settings.key_prefix
        self._in_file = in_file
        self._database = database
        self._drainer = drainer
        # Digests of boards that can't have an `erase` entry, because the store lacks the board or the board has no
        # journal.
        self._elsewhere: list[tuple[str, list[bytes]]] = []

    async def erase(self, actor: str, boards: Iterable[str], *, take_back: bool) -> tuple[list[Erased], str]:
        """Erase an actor from some boards, or from all boards. With `take_back`, take back votes and likes first.

        Every step can be repeated: after an interruption, the same call continues. The second result lists the
        remaining tasks of the operator.

        Raises:
            SetupError: nobody moves entries to SQL, the store has lost data, there is no such board, a board can't give
                votes back, or the journal is damaged.
        """
        key = await self._begin()
        found = [Erased(board=board) for board in await self._names(boards)]
        if take_back:
            await self._take_back(actor, found, dry=False)
            await is_settled(self._client, self._prefix)
        self._elsewhere = []
        for one in found:
            await self._erase(actor, one, key)
        in_journal = any(one.entries or one.checkpoints for one in found)
        nowhere = "" if await self._list_elsewhere(key) or not in_journal else _NOWHERE
        behind = "" if await is_settled(self._client, self._prefix) else BEHIND
        return found, "; ".join(filter(None, (await rewrite_log(self._client), behind, nowhere)))

    async def _begin(self) -> bytes:
        """Wait until SQL has all entries. Return the key of the list of erasures.

        Raises:
            SetupError: nobody moves entries to SQL, or the store has lost data.
        """
        await require_no_loss(self._client, self._prefix)
        key = await self._database.run(key_of)
        if not await is_settled(self._client, self._prefix):
            raise SetupError(BEHIND)
        return key

    async def _count_waiting(self) -> Counter[str]:
        """Count the entries of each board that wait in the store."""
        listed = await journals(self._client, self._prefix)
        streams = required(await read_streams(self._client, self._prefix, listed))
        waiting = Counter[str]()
        for (board, _), stream in zip(listed, streams, strict=True):
            waiting[board] += stream.entries
        return waiting

    async def preview(self, actor: str, boards: Iterable[str], *, take_back: bool) -> list[Erased]:
        """Return what `erase` would erase now. Change nothing. Raises the same errors as `erase`."""
        await require_no_loss(self._client, self._prefix)
        found = [Erased(board=board) for board in await self._names(boards)]
        waiting = await self._count_waiting()
        for one in found:
            one.waiting = waiting[one.board]
        if take_back:
            await self._take_back(actor, found, dry=True)
        for one in found:
            await self._erase(actor, one, None)
        return found

    async def _names(self, wanted: Iterable[str]) -> list[str]:
        """Return the boards to look at, including deleted boards that the journal still knows."""
        known = {*await all_boards(self._client, self._settings, self._in_file)}
        known |= {
            timeline.board for timeline, _ in await self._database.run(partial(all_timelines, prefix=self._prefix))
        }
        if missing := sorted({*wanted} - known):
            raise NotFoundError(unknown("board", missing[0], known))
        return sorted({*wanted} or known)

    async def _erase(self, actor: str, one: Erased, key: bytes | None) -> None:
        """Erase an actor from a board. Without a key, only count the digests."""
        keys = Keys(self._prefix, one.board)
        erased = await self._database.run(partial(erasures_of, prefix=self._prefix, board=one.board))
        search, held = Search(actor, erased), await read_held(self._client, keys)
        if held is not None:
            search.add_secret(held.secret)
            search.add_shape(held.shape.encode())
        searching = partial(search_journal, prefix=self._prefix, board=one.board, search=search)
        one.entries, one.checkpoints = await self._database.run(searching)
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
            found = await find_digests(self._client, keys, held, partial(search.among, time=_NOW))
            one.digests += len(found)
            if key is None or not (found or search.found):
                return
            # The actor may have voted again meanwhile, so search the store until no digest is left.
            entry = Erase(key=key, digests=[hidden(key, digest) for digest in search.found])
            is_done = True
            if held.journaled or found:
                is_done = await erase_digests(self._client, keys, held, search.found, msgspec.msgpack.encode(entry))
            if is_done:
                if not held.journaled:
                    self._elsewhere.append((one.board, entry.digests))
                search.found = set()
            is_first, held = False, await read_held(self._client, keys)
        if key is not None and search.found:
            self._elsewhere.append((one.board, [hidden(key, digest) for digest in search.found]))

    async def _list_elsewhere(self, key: bytes) -> bool:
        """Put the digests for boards without a journal into the journal of another board.

        Return False if no board has a journal.
        """
        if not self._elsewhere:
            return True
        entry = msgspec.msgpack.encode(Erase(key=key, digests=[], elsewhere=self._elsewhere))
        for board in await all_boards(self._client, self._settings, self._in_file):
            keys = Keys(self._prefix, board)
            held = await read_held(self._client, keys)
            if held is None or not held.journaled:
                continue
            if await erase_digests(self._client, keys, held, set(), entry):
                return True
        return False

    async def _take_back(self, actor: str, found: list[Erased], *, dry: bool) -> None:
        known = await all_boards(self._client, self._settings, self._in_file)
        for one in found:
            held = await read_held(self._client, Keys(self._prefix, one.board)) if one.board in known else None
            if held is None:
                continue
            board, epoch = known[one.board]
            ledger = await open_ledger(self._client, board, self._settings, epoch, dry=dry)
            if board.votes is not None:
                contributions = await self._votes_of(actor, ledger, held.starts)
            else:
                criteria = Criteria(actor=actor, since=0)
                contributions, _ = await find_contributions(self._client, self._database, ledger, criteria, one.notes)
                if contributions and len(set(board.union.values())) > 1:
                    one.notes.append(SEVERAL_WEIGHTS)
                    contributions = []
            try:
                taken = await TakingBack(ledger.writer).take_back(contributions, lambda *_: None, dry=dry)
            except SetupError as error:
                raise SetupError(f"board {one.board!r} can't give votes back: {error}") from None
            one.votes, one.amount = taken.votes, taken.amount

    async def _votes_of(self, actor: str, ledger: Ledger, starts: Iterable[int]) -> list[Contribution]:
        """Return all votes of an actor that count in a contest."""
        state, found = ledger.state, []
        for start in starts:
            members, table = await members_of(self._client, state.keys, start), state.table(start)
            for first in range(0, len(members), _STEP):
                piece = members[first : first + _STEP]
                digests = [voter_digests(state.secret, actor, member) for member in piece]
                counts = await state.call("HMGET", table.votes, *(pair for _, pair in digests))
                votes = [
                    Vote(start, member, voter, pair, int(count))
                    for member, (voter, pair), count in zip(piece, digests, counts, strict=True)
                    if count is not None
                ]
                if votes:
                    found.append(Contribution(secrets.token_bytes(16), [], votes))
        return found
