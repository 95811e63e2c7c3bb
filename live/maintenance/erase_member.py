"""Erase a person who is a member: from the boards of the store, the titles, the audit log, and the past in SQL.

The store deletes the member in the step that appends a `forget` entry to the journal. The process that moves this entry
to SQL rewrites the past in the same transaction (see `live.journal.forgetting`). So servers may run.
"""

from functools import partial
from typing import Final

import msgspec
from sqlalchemy import Connection

from live.boards.all_boards import all_boards
from live.domain.board import Board
from live.journal.erasures import hidden, member_digest
from live.journal.forgetting import FoundRows, forget_by, forget_in_board
from live.journal.log.entries import Add, Erase, content
from live.journal.log.reader import entries_of
from live.journal.log.timelines import timelines_of
from live.maintenance.draining import BEHIND, is_settled
from live.maintenance.erase import Erasing
from live.store.board.keys import Keys, SystemKeys
from live.store.board.manage.erasure import forget_member, knows_member, read_held
from live.store.connection.durability import rewrite_log
from live.store.connection.loss import require_no_loss
from live.store.registry.audit_trail import AuditTrail
from live.store.registry.items import Items

_FOREVER: Final = 2**63
_NOWHERE: Final = (
    "no journal records the erasure, so its database still has titles and entries of the audit log: stop the "
    "servers, and run it again"
)
_ADD: Final = msgspec.msgpack.Decoder(Add)


class ErasedMember(msgspec.Struct, kw_only=True):
    """The result of erasing a member on a board.

    Attributes:
        board: the id of the board.
        in_store: whether the store had the member.
        entries: how many entries of the journal had the member.
        checkpoints: how many checkpoints of the journal had the member.
        periods: how many archived periods had the member.
        waiting: on a dry run, how many entries of the journal wait in the store. `erase` rewrites them too.
    """

    board: str
    in_store: bool = False
    entries: int = 0
    checkpoints: int = 0
    periods: int = 0
    waiting: int = 0

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


class MemberErasing(Erasing):
    """Erase members from all boards of one key prefix, while servers run."""

    async def erase_member(self, member: str) -> tuple[ErasedPerson, str]:
        """Erase a member. Every step can be repeated: after an interruption, the same call continues.

        The second result lists the remaining tasks of the operator.

        Raises:
            SetupError: nobody moves entries to SQL, the store has lost data, or the journal is damaged.
        """
        key = await self._begin()
        person, known = await self._find(member), await all_boards(self._client, self._settings, self._in_file)
        names = SystemKeys(self._prefix)
        if await self._client.call(names.items, "HEXISTS", names.items, member):
            await Items(self._client, self._prefix, 0).delete(member)
        await self._client.write(names.items_changes, "DEL", names.items_changes)  # it can name the member
        person.log_entries = await AuditTrail(self._client, self._prefix).redact(member.__eq__)
        refusals = SystemKeys(self._prefix).refusals  # the samples of refused events may name the member
        await self._client.write(refusals, "DEL", refusals)
        digest, last, elsewhere = member_digest(key, member), "", list[tuple[str, list[bytes]]]()
        for one in [one for one in person.boards if one.is_known]:
            is_journaled = await self._is_journaled(one.board) if one.board in known else False
            if is_journaled and not last:
                last = one.board  # the entry of this board comes last, and completes the erasure
                continue
            if is_journaled or one.in_store:
                await self._forget(known[one.board][0], member, Erase(key=key, digests=[], member=digest))
            if not is_journaled:
                elsewhere.append((one.board, [digest]))
        for board in () if last else known:
            last = last or (board if await self._is_journaled(board) else "")
        entry, nowhere = Erase(key=key, digests=[], elsewhere=elsewhere, member=digest, system=True), ""
        if last:
            await self._forget(known[last][0], member, entry)
        elif self._drainer is not None and self._drainer.writes:
            await self._drainer.database.run(partial(forget_by, prefix=self._prefix, board="", erase=entry))
        else:
            nowhere = _NOWHERE
        behind = "" if await is_settled(self._client, self._prefix) else BEHIND
        return person, "; ".join(filter(None, (await rewrite_log(self._client), behind, nowhere)))

    async def preview_member(self, member: str) -> ErasedPerson:
        """Return what `erase_member` would erase now, and raise its errors. Change nothing."""
        await require_no_loss(self._client, self._prefix)
        person = await self._find(member)
        waiting = await self._count_waiting()
        for one in person.boards:
            one.waiting = waiting[one.board]
        return person

    async def _find(self, member: str) -> ErasedPerson:
        """Find a member everywhere, except in the audit log."""
        found, known = [], await all_boards(self._client, self._settings, self._in_file)
        for board in await self._names([]):
            looking = partial(_find_in_sql, prefix=self._prefix, board=board, member=member)
            held = await self._database.run(looking)
            one = ErasedMember(board=board, entries=held.entries, checkpoints=held.checkpoints, periods=held.periods)
            if board in known:
                one.in_store = await knows_member(self._client, Keys(self._prefix, board), known[board][0], member)
            found.append(one)
        items = SystemKeys(self._prefix).items
        return ErasedPerson(boards=found, title=bool(await self._client.call(items, "HEXISTS", items, member)))

    async def _is_journaled(self, board: str) -> bool:
        held = await read_held(self._client, Keys(self._prefix, board))
        return held is not None and held.journaled

    async def _forget(self, board: Board, member: str, erase: Erase) -> None:
        finding = partial(_votes_for, prefix=self._prefix, board=board.id, member=member)
        votes = await self._database.run(finding)
        entry = msgspec.structs.replace(erase, digests=[hidden(erase.key, vote) for vote in votes])
        keys, body = Keys(self._prefix, board.id), msgspec.msgpack.encode(entry)
        await forget_member(self._client, board, keys, member, votes, body)


def _find_in_sql(connection: Connection, prefix: str, board: str, member: str) -> FoundRows:
    return forget_in_board(
        connection, prefix, board, lambda name: _FOREVER if name == member else -1, needle=member.encode(), dry=True
    )


def _votes_for(connection: Connection, prefix: str, board: str, member: str) -> set[bytes]:
    """Return the digests of the (actor, member) pairs of all votes for the member in the journal."""
    found, needle = set[bytes](), member.encode()
    for timeline in timelines_of(connection, prefix, board):
        for head, body in entries_of(connection, timeline):
            if head.kind == "add" and needle in body and b"\xa5votes" in body:
                for group in _ADD.decode(body).groups:
                    if group.votes is not None and member in group.members:
                        pairs = zip(group.votes.members, group.votes.pairs, strict=False)
                        found |= {content(pair) for place, pair in pairs if group.members[place] == member}
    return found
