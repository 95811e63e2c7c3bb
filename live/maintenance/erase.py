"""Erase an actor: take the digests in which the actor has a part out of the store, its files and the journal.

The journal in SQL is rewritten row by row. What is left of an entry stays as it was, byte for byte.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec
from sqlalchemy import Connection, Table, select, update

from live.boards.all_boards import all_boards
from live.domain.board import Board, Boards, Journaling
from live.domain.text import unknown
from live.domain.window import EVER
from live.errors import NotFoundError, SetupError
from live.journal.database import Database
from live.journal.log.drainer import Drainer
from live.journal.log.entries import (
    Adopt,
    Begin,
    Head,
    compress,
    content,
    contents,
    decompress,
    pack_entries,
    parse_head,
    unpack_entries,
)
from live.journal.log.timelines import timelines_of
from live.journal.schema import CHECKPOINT, LIFE, SEGMENT
from live.journal.state.snapshot import IDENTITY, Snapshot, pack, unpack
from live.maintenance.contributions import Contribution, Vote
from live.maintenance.erasure import ActorErasure, Erasure, is_due, mark_done, remember, remembered
from live.maintenance.void import Criteria, TakingBack, find_contributions
from live.settings import Settings
from live.store.board.journal_stream import Entry, journals, read_streams
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.board.manage.digests import Held, delete_digests, members_of, read_held
from live.store.board.write.plan import voter_digests
from live.store.connection.client import Store
from live.store.connection.durability import rewrite_log
from live.store.connection.loss import LossWatch
from live.store.connection.scripts import texts

Progress = Callable[[int, int], None]

_STEP: Final = 1000  # votes that are looked up at once
Fields = dict[str, msgspec.Raw]

_FIELDS: Final = msgspec.msgpack.Decoder(Fields)
_GROUPS: Final = msgspec.msgpack.Decoder(list[Fields])
_NAMES: Final = msgspec.msgpack.Decoder(list[str])
_NUMBERS: Final = msgspec.msgpack.Decoder(list[int])
_RAWS: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_TEXT: Final = msgspec.msgpack.Decoder(str)
_NUMBER: Final = msgspec.msgpack.Decoder(int)
_SLOTS: Final = msgspec.msgpack.Decoder(list[tuple[msgspec.Raw, list[msgspec.Raw]]])
_TABLES: Final = msgspec.msgpack.Decoder(list[tuple[msgspec.Raw, msgspec.Raw, msgspec.Raw, list[msgspec.Raw]]])
_encode: Final = msgspec.msgpack.Encoder().encode

_BEGIN: Final = msgspec.msgpack.Decoder(Begin)
_ADOPT: Final = msgspec.msgpack.Decoder(Adopt)


def rewrite(head: Head, body: bytes, erasure: Erasure) -> bytes:
    """Return the content of an entry without the digests that have to go."""
    step = {"add": _add, "adopt": _adopt, "mend": _mend}.get(head.kind)
    return body if step is None else step(head, body, erasure)


def clean(data: Snapshot, erasure: Erasure) -> bool:
    """Take the digests that have to go out of the contents of a board. Return whether there were any."""
    found = False
    for suffix, ranking in data.rankings.items():
        if erasure.among(ranking.votes, data.time):
            found = True  # the actor voted here, so there are digests of the actor with members too
            erasure.add_voted(data.slots.get(int(suffix[1:] or EVER.start), {}))
            for field in erasure.among(ranking.votes, data.time):
                del ranking.votes[field]
    if data.seen:
        for start, slot in data.slots.items():
            erasure.add_liked(slot, (None, start) if f":{start}" in data.rankings else (None,))
        erasure.add_liked({event.member for event in data.log}, (None,))
    for start, seen in data.seen.items():
        erased = erasure.among(seen, data.time)
        data.seen[start] = seen - erased
        found = found or bool(erased)
    return found


def _add(head: Head, body: bytes, erasure: Erasure) -> bytes:
    fields = _FIELDS.decode(body)
    if "identities" not in fields and b"\xa5votes" not in body:
        return body
    changed, groups = False, []
    for group in _GROUPS.decode(fields["groups"]) if "groups" in fields else []:
        if "identities" in fields:
            erasure.add_liked(_NAMES.decode(group["members"]), (None, _NUMBER.decode(group["start"])))
        found = "votes" in group and _rewrite_votes(head, group, erasure)
        changed = found or changed
        groups.append(group)
    if changed:
        fields["groups"] = _packed(groups)
    if "identities" in fields and _rewrite_identities(head, fields, erasure):
        changed = True
    return _encode(fields) if changed else body


def _rewrite_votes(head: Head, group: Fields, erasure: Erasure) -> bool:
    votes = _FIELDS.decode(group["votes"])
    actors = [content(actor) for actor in _RAWS.decode(votes["actors"])]
    erased = erasure.among(actors, head.time)
    if not erased:
        return False
    pairs = [content(pair) for pair in _RAWS.decode(votes["pairs"])]
    erasure.remember(pair for actor, pair in zip(actors, pairs, strict=True) if actor in erased)
    kept = [index for index, actor in enumerate(actors) if actor not in erased]
    if not kept:
        del group["votes"]
        return True
    for name, value in votes.items():
        if name in ("actors", "pairs"):
            raws = _RAWS.decode(value)
            votes[name] = _packed([raws[index] for index in kept])
        else:
            numbers = _NUMBERS.decode(value)
            votes[name] = _packed([numbers[index] for index in kept])
    group["votes"] = _packed(votes)
    return True


def _rewrite_identities(head: Head, fields: Fields, erasure: Erasure) -> bool:
    identities = _FIELDS.decode(fields["identities"])
    held = contents(identities["all"], IDENTITY)
    erased = erasure.among(held, head.time)
    if not erased:
        return False
    counted = _NUMBER.decode(identities["counted"]) if "counted" in identities else 0
    kept = [identity for identity in held if identity not in erased]
    if not kept:
        del fields["identities"]
        return True
    identities["all"] = texts(kept, IDENTITY)
    identities["counted"] = _packed(sum(1 for identity in held[:counted] if identity not in erased))
    fields["identities"] = _packed(identities)
    return True


def _adopt(head: Head, body: bytes, erasure: Erasure) -> bytes:
    fields, changed = _FIELDS.decode(body), False
    members = {
        int(content(start)): [content(member).decode() for member in held[::2]]
        for start, held in _SLOTS.decode(fields["slots"])
    }
    for start, names in members.items():
        erasure.add_liked(names, (None, start))
    tables = []
    for suffix, reached, metadata, votes in _TABLES.decode(fields["tables"]):
        if erasure.among([content(field) for field in votes[::2]], head.time):
            erasure.add_voted(members.get(int(content(suffix)[1:] or EVER.start), ()))
        erased = erasure.among([content(field) for field in votes[::2]], head.time)
        pairs = zip(votes[::2], votes[1::2], strict=True)
        kept = [raw for field, count in pairs if content(field) not in erased for raw in (field, count)]
        changed = changed or bool(erased)
        tables.append((suffix, reached, metadata, kept))
    seen = []
    for bucket, identities in _SLOTS.decode(fields["seen"]):
        erased = erasure.among([content(identity) for identity in identities], head.time)
        changed = changed or bool(erased)
        seen.append((bucket, [identity for identity in identities if content(identity) not in erased]))
    if not changed:
        return body
    fields["tables"], fields["seen"] = _packed(tables), _packed(seen)
    return _encode(fields)


def _mend(head: Head, body: bytes, erasure: Erasure) -> bytes:
    """Rewrite a correction of votes."""
    fields = _FIELDS.decode(body)
    if _TEXT.decode(fields["kind"]) != "votes":
        return body
    names = _RAWS.decode(fields["names"])
    erased = erasure.among([content(name) for name in names], head.time)
    if not erased:
        return body
    kept = [index for index, name in enumerate(names) if content(name) not in erased]
    for field in ("names", "amounts"):
        values = _RAWS.decode(fields[field])
        fields[field] = _packed([values[index] for index in kept])
    return _encode(fields)


def _packed(value: Sequence[object] | Fields | int) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))


class Rewritten(msgspec.Struct):
    """How many segments and checkpoints contained something, and were rewritten."""

    segments: int = 0
    checkpoints: int = 0


def boards_in(connection: Connection, prefix: str) -> list[str]:
    """Return all boards that the journal knows, also those that were deleted."""
    rows = connection.execute(select(LIFE.c.board).where(LIFE.c.prefix == prefix).distinct().order_by(LIFE.c.board))
    return [row.board for row in rows]


def secrets_of(connection: Connection, prefix: str, board: str) -> set[bytes]:
    """Return the secrets that a board has had, which key the digests of its voters.

    Raises:
        SetupError: the journal is damaged.
    """
    found = set()
    for timeline in timelines_of(connection, prefix, board):
        for row in connection.execute(
            select(CHECKPOINT.c.crc, CHECKPOINT.c.data).where(CHECKPOINT.c.life == timeline.id)
        ):
            found.add(unpack(decompress(row.crc, row.data)).secret)
        for head, body in _entries(connection, timeline.id):
            if head.kind == "begin":
                found.add(content(_BEGIN.decode(body).secret))
            elif head.kind == "adopt":
                found.add(content(_ADOPT.decode(body).secret))
    return found - {b""}


def erase_board(
    database: Database, prefix: str, board: str, erasure: Erasure, show: Progress, *, dry: bool
) -> Rewritten:
    """Take digests out of everything that the journal has of a board. The chain of entries stays the same.

    Each row is rewritten in its own transaction, so the same call continues after an interruption. With `dry`,
    nothing changes.

    Raises:
        SetupError: the journal is damaged.
    """
    ids = [timeline.id for timeline in database.work(partial(timelines_of, prefix=prefix, board=board))]
    segments = database.work(partial(_ids, table=SEGMENT, timelines=ids))
    checkpoints = database.work(partial(_ids, table=CHECKPOINT, timelines=ids))
    done, total = Rewritten(), len(segments) + len(checkpoints)
    for number, row in enumerate(segments, 1):
        done.segments += database.work(partial(_segment, row=row, erasure=erasure, dry=dry))
        show(number, total)
    for number, row in enumerate(checkpoints, 1 + len(segments)):
        done.checkpoints += database.work(partial(_checkpoint, row=row, erasure=erasure, dry=dry))
        show(number, total)
    return done


def erase_again(database: Database, show: Progress) -> int:
    """Apply earlier erasures to a database that was restored from an older backup. Return the number of changed rows.

    Raises:
        SetupError: the journal is damaged.
    """
    prefix = database.prefix
    if not database.work(is_due):
        return 0
    erasure = database.work(partial(remembered, prefix=prefix))
    count = 0
    for board in database.work(partial(boards_in, prefix=prefix)):
        done = erase_board(database, prefix, board, erasure, show, dry=False)
        count += done.segments + done.checkpoints
    database.compact()
    database.work(mark_done)
    return count


def _ids(connection: Connection, table: Table, timelines: list[int]) -> list[int]:
    rows = connection.execute(select(table.c.id).where(table.c.life.in_(timelines)).order_by(table.c.id))
    return [row.id for row in rows]


def _entries(connection: Connection, timeline: int) -> Iterator[tuple[Head, bytes]]:
    for segment in _ids(connection, SEGMENT, [timeline]):
        row = connection.execute(select(SEGMENT.c.crc, SEGMENT.c.data).where(SEGMENT.c.id == segment)).one_or_none()
        if row is not None:  # a server may have dropped it meanwhile
            for text, body in unpack_entries(row.crc, row.data):
                yield parse_head(text), body


def _segment(connection: Connection, row: int, erasure: Erasure, *, dry: bool) -> bool:
    """Rewrite a segment without what has to go. Return whether there was something."""
    found = connection.execute(select(SEGMENT.c.crc, SEGMENT.c.data).where(SEGMENT.c.id == row)).one_or_none()
    if found is None:
        return False
    entries, changed = [], False
    for text, body in unpack_entries(found.crc, found.data):
        head = parse_head(text)
        left = rewrite(head, body, erasure)
        changed = changed or left is not body
        entries.append(Entry(head.id, text, left))
    if changed and not dry:
        packed = pack_entries(entries)
        connection.execute(update(SEGMENT).where(SEGMENT.c.id == row).values(crc=packed.crc, data=packed.data))
    return changed


def _checkpoint(connection: Connection, row: int, erasure: Erasure, *, dry: bool) -> bool:
    """Rewrite a checkpoint without what has to go. Return whether there was something."""
    found = connection.execute(select(CHECKPOINT.c.crc, CHECKPOINT.c.data).where(CHECKPOINT.c.id == row)).one_or_none()
    if found is None:
        return False
    data = unpack(decompress(found.crc, found.data))
    changed = clean(data, erasure)
    if changed and not dry:
        packed = compress(pack(data))
        connection.execute(update(CHECKPOINT).where(CHECKPOINT.c.id == row).values(crc=packed.crc, data=packed.data))
    return changed


class Erased(msgspec.Struct, kw_only=True):
    """What was erased of a board.

    Attributes:
        board: the id of the board.
        digests: how many digests the store held.
        segments: how many segments of the journal contained some.
        checkpoints: how many checkpoints of the journal contained some.
        votes: how many votes were taken back.
        amount: what was subtracted for likes and votes.
        waiting: on a dry run, how many entries of the journal wait in the store. `erase` moves them to SQL first.
        again: on a dry run, how many segments and checkpoints contain digests that were erased earlier. A journal from
            an older backup has some, and `erase` erases them first.
        notes: what could not be taken back, one sentence each.
    """

    board: str
    digests: int = 0
    segments: int = 0
    checkpoints: int = 0
    votes: int = 0
    amount: int = 0
    waiting: int = 0
    again: int = 0
    notes: list[str] = []


class Erasing:
    """Erase actors from the boards of one key prefix. Call `show` with the rows of the journal so far, and of all."""

    def __init__(self, client: Store, settings: Settings, in_file: Boards, database: Database, show: Progress) -> None:
        self._client = client
        self._settings = settings
        self._prefix = settings.key_prefix
        self._in_file = in_file
        self._database = database
        self._show = show

    async def erase(self, actor: str, boards: Iterable[str], *, take_back: bool) -> tuple[list[Erased], str]:
        """Erase an actor from some boards, or from all. With `take_back`, take back votes and likes first.

        Every step can be repeated: after an interruption, the same call continues. The second result is what is left to
        do for an operator.

        Raises:
            SetupError: another process uses the journal, the store has lost data, there is no such board, a board can't
                give votes back, or the journal is damaged.
        """
        if not await self._database.take():
            raise SetupError("another process writes to the journal: stop the servers that use it, and try again")
        await self._require_no_loss()
        erase_again(self._database, self._show)
        drainer = Drainer(self._client, self._settings, self._database)
        await drainer.claim()
        await self._drain(drainer)
        found = [Erased(board=board) for board in await self._names(boards)]
        if take_back:
            await self._take_back(actor, found, dry=False)
            await self._drain(drainer)
        for one in found:
            await self._erase(actor, one, dry=False)
        self._database.compact()
        self._database.work(mark_done)
        return found, await rewrite_log(self._client)

    async def preview(self, actor: str, boards: Iterable[str], *, take_back: bool) -> list[Erased]:
        """Return what `erase` would erase now. Change nothing: servers may run, and the database may be read-only.

        Raises:
            SetupError, StoreUnavailableError, EpochLostError: as `erase`.
        """
        await self._require_no_loss()
        found = [Erased(board=board) for board in await self._names(boards)]
        await self._count_waiting(found)
        self._count_again(found)
        if take_back:
            await self._take_back(actor, found, dry=True)
        for one in found:
            await self._erase(actor, one, dry=True)
        return found

    async def _require_no_loss(self) -> None:
        faults = await LossWatch(self._client, self._prefix).find()
        if faults:
            raise SetupError(f"the store has lost data: {faults[0]}")

    async def _count_waiting(self, found: list[Erased]) -> None:
        """Count the entries that `erase` would move to SQL first."""
        listed = await journals(self._client, self._prefix)
        streams = await read_streams(self._client, self._prefix, listed)
        for one in found:
            one.waiting = sum(
                stream.entries for (board, _), stream in zip(listed, streams, strict=True) if board == one.board
            )

    def _count_again(self, found: list[Erased]) -> None:
        """Count what `erase` would erase first, because it was erased before the journal came from a backup."""
        if not self._database.work(is_due):
            return
        erasure = self._database.work(partial(remembered, prefix=self._prefix))
        for one in found:
            done = erase_board(self._database, self._prefix, one.board, erasure, self._show, dry=True)
            one.again = done.segments + done.checkpoints

    async def _names(self, wanted: Iterable[str]) -> list[str]:
        """Return the boards to look at: also those that were deleted, while the journal knows them."""
        known = {*await all_boards(self._client, self._settings, self._in_file)}
        known |= {*self._database.work(partial(boards_in, prefix=self._prefix))}
        if missing := sorted({*wanted} - known):
            raise NotFoundError(unknown("board", missing[0], known))
        return sorted({*wanted} or known)

    async def _drain(self, drainer: Drainer) -> None:
        """Move everything that waits in the store to SQL, where it can be rewritten."""
        await drainer.sweep()
        listed = await journals(self._client, self._prefix)
        streams = await read_streams(self._client, self._prefix, listed)
        if any(stream.entries for stream in streams):
            raise SetupError("entries of the journal still wait in the store: stop the servers, and try again")

    async def _erase(self, actor: str, one: Erased, *, dry: bool) -> None:
        keys, database, prefix = Keys(self._prefix, one.board), self._database, self._prefix
        held = await read_held(self._client, keys)
        known = database.work(partial(secrets_of, prefix=prefix, board=one.board))
        erasure = ActorErasure(actor, known | ({held.secret} if held is not None else set()))
        if not dry:  # first: an interrupted call must not forget
            database.work(partial(remember, prefix=prefix, digests=erasure.voters))
        if held is not None:
            await self._add_members(keys, held, erasure)
        done = erase_board(database, prefix, one.board, erasure, self._show, dry=dry)
        one.segments, one.checkpoints = done.segments, done.checkpoints
        if held is not None:
            one.digests = await delete_digests(self._client, keys, held, partial(erasure.among, time=0), dry=dry)
        if not dry:
            database.work(partial(remember, prefix=prefix, digests=erasure.found))

    async def _add_members(self, keys: Keys, held: Held, erasure: ActorErasure) -> None:
        """Give `erasure` the members that the actor may have voted for or liked."""
        for start in held.starts:
            votes = keys.table(start if held.shape.tables else None).votes
            voted = await self._client.call(votes, "HMGET", votes, *(erasure.voters or {b""}))
            if any(voted):
                erasure.add_voted(await members_of(self._client, keys, start))
            if erasure.is_visitor:
                periods = (None, start) if held.shape.tables else (None,)
                erasure.add_liked(await members_of(self._client, keys, start), periods)

    async def _take_back(self, actor: str, found: list[Erased], *, dry: bool) -> None:
        known = await all_boards(self._client, self._settings, self._in_file)
        for one in found:
            if one.board in known:
                await self._take_back_from(actor, one, *known[one.board], dry=dry)

    async def _take_back_from(self, actor: str, one: Erased, board: Board, epoch: str, *, dry: bool) -> None:
        held = await read_held(self._client, Keys(self._prefix, one.board))
        if held is None:
            return
        settings = self._settings
        if dry:  # opening a board begins or ends its journal, if its definition says so
            board = msgspec.structs.replace(board, journal=Journaling())
            settings = msgspec.structs.replace(settings, journal="off")
        ledger = Ledger(self._client, board, settings, born=epoch)
        await ledger.state.open_to_write()
        if board.votes is not None:
            contributions = await self._votes_of(actor, ledger, held.starts)
        else:
            criteria = Criteria(actor=actor, since=0)
            contributions, _ = await find_contributions(self._client, self._database, ledger, criteria, one.notes)
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
