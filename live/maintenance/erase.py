"""Erases an actor: takes the digests in which the actor has a part out of the store, its files and the journal."""

import secrets
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import msgspec

from live.domain.board import Board, Boards
from live.domain.journaling import Journaling
from live.domain.names import unknown
from live.errors import NotFoundError, SetupError
from live.journal.database import Database
from live.journal.log.drainer import Drainer
from live.maintenance.contributions import Contribution, Vote
from live.maintenance.erase_journal import boards_in, erase_again, erase_board, secrets_of
from live.maintenance.erased import is_due, mark_done, remember, remembered
from live.maintenance.erasure import ActorErasure
from live.maintenance.taking_back import TakingBack
from live.maintenance.void import Criteria, boards_of, find_contributions
from live.settings import Settings
from live.store.board.journal_stream import journals, read_places
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.board.manage.digests import Held, delete_digests, members_of, read_held
from live.store.board.write.plan import voter_digests
from live.store.connection.client import Store, store_errors
from live.store.connection.log_rewriting import rewrite_log
from live.store.connection.loss import LossWatch

Progress = Callable[[int, int], None]

_STEP: Final = 1000  # votes that are looked up at once


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
    """Erases actors from the boards of one key prefix. Calls `show` with the rows of the journal so far, and of all."""

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
            StoreUnavailableError, EpochLostError: the store or the database is unavailable.
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
        """What `erase` would erase now. Changes nothing, so servers may run and the database may be open for reading.

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
        places = await read_places(self._client, self._prefix, listed)
        for one in found:
            one.waiting = sum(
                place.entries for (board, _), place in zip(listed, places, strict=True) if board == one.board
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
        """The boards to look at: also those that were deleted, while the journal knows them."""
        known = {*await boards_of(self._client, self._settings, self._in_file)}
        known |= {*self._database.work(partial(boards_in, prefix=self._prefix))}
        if missing := sorted({*wanted} - known):
            raise NotFoundError(unknown("board", missing[0], known))
        return sorted({*wanted} or known)

    async def _drain(self, drainer: Drainer) -> None:
        """Move everything that waits in the store to SQL, where it can be rewritten."""
        await drainer.sweep()
        listed = await journals(self._client, self._prefix)
        places = await read_places(self._client, self._prefix, listed)
        if any(place.entries for place in places):
            raise SetupError("entries of the journal still wait in the store: stop the servers, and try again")

    async def _erase(self, actor: str, one: Erased, *, dry: bool) -> None:
        """Erase the actor from a board in the store and in SQL."""
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
            async with store_errors():
                voted = await self._client.call(votes, "HMGET", votes, *(erasure.voters or {b""}))
            if any(voted):
                erasure.add_voted(await members_of(self._client, keys, start))
            if erasure.is_visitor:
                periods = (None, start) if held.shape.tables else (None,)
                erasure.add_liked(await members_of(self._client, keys, start), periods)

    async def _take_back(self, actor: str, found: list[Erased], *, dry: bool) -> None:
        known = await boards_of(self._client, self._settings, self._in_file)
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
        """All votes of an actor that count in a contest."""
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
