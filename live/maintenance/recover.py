"""Recover what a store has lost: from the journal, or by going on with what the store has.

From the journal come boards, definitions, API keys and titles. A board that the store lacks is loaded under a new
epoch. If the store only lacks the last entries of a board, what they have changed is written, and the board keeps its
epoch.
"""

import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext, suppress
from itertools import chain, islice
from typing import Any, Final

import msgspec
import structlog
from sqlalchemy import Connection

from live.boards.definitions import DefinitionError, read_board, settled
from live.domain.board import Board
from live.domain.text import unknown
from live.errors import NotFoundError, SetupError, StoreUnavailableError
from live.journal.database import Database
from live.journal.log.definitions import COOKIES, DefinitionLog, latest, latest_boards, newest_version
from live.journal.log.drainer import Drainer
from live.journal.log.lost_entries import UnwrittenError, write_lost
from live.journal.log.reader import Progress, before, contents_of
from live.journal.log.timelines import (
    Timeline,
    end_timelines,
    find_lost,
    find_timeline,
    first_seen,
    made_once,
    open_timelines,
    origins,
)
from live.journal.past.coverage import reaches_of, timeline_at
from live.journal.past.queries import NoPastError
from live.journal.state.difference import ContentsDifference
from live.journal.state.ruled import NO_CHANGE, Ruled
from live.journal.state.snapshot import Snapshot
from live.settings import Settings
from live.store.board.journal_stream import journals, read_streams, sink_of, trim
from live.store.board.keys import Keys
from live.store.board.manage.lifecycle import create, delete_keys, renew
from live.store.board.manage.load import load as load_contents
from live.store.board.manage.swap import ELEMENTS, Write
from live.store.board.reign import BEHIND, confirm
from live.store.board.requests import Continued
from live.store.connection.client import Store, required
from live.store.connection.loss import Losses, LossWatch
from live.store.registry.definitions import Definition, DefinitionStore

log = structlog.get_logger()

_ITEMS: Final = 1000  # titles in one command
_Definitions = Mapping[str, Definition]
_Line = list[Timeline]
"""A timeline, and the timelines that it continues, the newest first."""


class KeptBoard(msgspec.Struct, frozen=True):
    """A board that goes on with what the store has of it, under a new epoch."""

    board: str
    epoch: str


class Recovered(KeptBoard, frozen=True):
    """A recovered board: its offset, and how many records its rankings have."""

    offset: int
    members: int


async def load(  # noqa: PLR0913 - where from, where to, and how
    client: Store,
    keys: Keys,
    board: Board,
    data: Snapshot,
    *,
    epoch: str,
    parent: str,
    dedupe_window: float,
    began: int,
    progress: Progress,
) -> Recovered | None:
    """Write a board that was made at `began` (ms) under a new epoch. Return None if the store already has the board.

    Leave out slots that have left the window.
    """
    difference = ContentsDifference(board, keys)
    contents = difference.advance(data, data.time // 1000)
    writes = chain(contents, _identities(keys, data, kept_of(board, data, dedupe_window)))
    size = sum(map(len, data.slots.values())) + len(data.log)
    if not await load_contents(client, keys, epoch, writes, lambda done: progress(min(done, size), size)):
        return None
    fields = [*difference.fields(), "began", str(began)]
    past = Continued(str(data.offset), fields, parent, data.link)
    if await create(client, keys, board, epoch, journal=True, secret=data.secret, past=past):
        return None
    return Recovered(keys.board, epoch, data.offset, _members(difference, keys))


def _members(difference: ContentsDifference, keys: Keys) -> int:
    return sum(size for name, size in difference.sizes.items() if name.startswith(keys.ranking))


def size_of(board: Board, keys: Keys, data: Snapshot) -> int:
    """Return how many records a board with these contents has."""
    difference = ContentsDifference(board, keys)
    for _ in difference.advance(data, data.time // 1000):
        pass
    return _members(difference, keys)


def kept_of(board: Board, data: Snapshot, dedupe_window: float) -> int:
    """Return for how many seconds after its start a bucket of identities is kept."""
    return (board.buckets(dedupe_window, data.span) + 2) * data.span if data.span else 0


def _identities(keys: Keys, data: Snapshot, kept: int) -> Iterator[Write]:
    for start, identities in data.seen.items():
        left = iter(identities)
        while piece := list[bytes | str | int](islice(left, ELEMENTS)):
            yield Write("SADD", keys.seen(start), piece)
        yield Write("EXPIREAT", keys.seen(start), [start + kept])


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to recover: one board or all, now or at a time (ms since 1970), under the same id or another (`name`).

    A `dry` recovery only reports what would be recovered.
    """

    board: str | None = None
    at: int | None = None
    name: str | None = None
    dry: bool = False


class Recovery:
    """Recover the boards of one key prefix from the journal. Call `show` with the numbers of done and of all steps."""

    def __init__(self, client: Store, settings: Settings, database: Database, show: Progress) -> None:
        self._client = client
        self._settings = settings
        self._database = database
        self._show = show
        self._wanted = Wanted()
        self._kept: set[str] = set()  # the epochs that the store has, and that go on
        self._older: set[str] = set()  # the epochs of which the store has an older state
        self.left_out: dict[str, str] = {}  # boards that the journal can't give back, and why

    async def recover(
        self, wanted: Wanted, acting: AbstractAsyncContextManager[dict[str, Any]] | None = None
    ) -> list[Recovered]:
        """Recover the wanted boards from the journal. After an interruption, the same call continues.

        If the journal has no entry of a board, the board was empty, and begins empty. `acting` adds the
        entries of the audit log. It begins after all checks, so a refused call leaves no entry.
        """
        self._wanted = wanted
        watch = LossWatch(self._client)
        self._client.high_water.active = False  # the recovery repairs the loss, so nothing records or logs it
        await self._take()
        made = await self._database.run(latest_boards)
        made |= await self._newer(made)
        lines, over = await self._lines(made)
        boards = {line[0].board: board_of(line[0].board, made) for line in lines}

        async def load_all(some: Sequence[_Line]) -> list[Recovered]:
            loads = [await self._load(line[0], made) for line in some]
            return [one for one in loads if one is not None]

        missing = await self._missing(lines)
        losses = await self._losses(watch)
        self._client.high_water.active = True
        # After an interruption, all boards may be there, and only the rest is missing.
        if losses and not missing and (not lines or not losses.store or wanted.board is not None):
            of, only = (f" of board {wanted.board!r}", f" --board {wanted.board}") if wanted.board else ("", "")
            raise SetupError(
                f"the journal has nothing to recover{of}, and the store lost data: {losses}. Restore a backup, or go "
                f"on with what the store has: `live recover --from store{'' if losses.store else only}`"
            )
        self.left_out = await self._cannot_give(missing, losses, boards, {} if wanted.board else made)
        if wanted.dry:
            return await load_all(missing)
        drainer = Drainer(self._client, self._settings, self._database)
        # `accepting` ends the losses of the recovered boards, or of the whole store if all boards are recovered.
        renewed = None if losses.store and wanted.board is None else {self._name(line[0]) for line in missing}
        accepting = self._client.high_water.accepting("recovered from the journal", renewed)
        async with AsyncExitStack() as act:
            with accepting if missing or losses else nullcontext():
                await watch.find()  # this connects to the new store and remembers it
                await drainer.claim()
                entry = await act.enter_async_context(acting or nullcontext({}))
                done = await load_all(missing)
                await self._restore_texts(made, lines, missing)
            # SQL gets the new timelines before it ends the old ones, because the store may be lost again at any time.
            await drainer.drain([self._name(line[0]) for line in lines])
            await DefinitionLog(self._client, self._database).follow()
            if wanted.name is None:
                names = [(timeline.board, timeline.epoch) for timeline in over]
                # The timeline of a board that the store still has goes on.
                streams = required(await read_streams(self._client, names))
                ended = [timeline for timeline, stream in zip(over, streams, strict=True) if stream.ended]
                await self._database.run(end_timelines, ended)
            entry["after"] = {"boards": done}
        return done

    async def _newer(self, known: _Definitions) -> dict[str, Definition]:
        """Return what the store says of known boards, if SQL does not have its newest definitions yet."""
        held = await DefinitionStore(self._client).load()
        if int(held.version or 0) <= await self._database.run(newest_version, "boards"):
            return {}
        return {
            name: definition
            for name, definition in held.boards.items()
            if name in known and definition.epoch == known[name].epoch
        }

    async def _cannot_give(
        self, missing: Sequence[_Line], losses: Losses, boards: Mapping[str, Board], made: _Definitions
    ) -> dict[str, str]:
        """Return the boards that the journal can't give back, and why."""
        given = {line[0].board for line in missing}
        found = {board: why for board, why in losses.boards.items() if board not in given}
        found |= {board: "its journal is off" for board in given if boards[board].journal == "off"}
        for name in sorted(made.keys() - boards.keys()):
            definition, meta = made[name], self._client.keys_of(name).meta
            held = (await self._client.call(meta, "HGET", meta, "epoch") or b"").decode()
            if definition.state != "leaving" and held != definition.epoch:
                found[name] = "its journal was turned off"
        return found

    async def _losses(self, watch: LossWatch) -> Losses:
        wanted = self._wanted
        if wanted.dry and not self._client.high_water.facts.store:  # the comparison would give the store an identity
            return Losses()
        losses = await watch.find()
        if wanted.board is not None:
            losses.boards = {board: why for board, why in losses.boards.items() if board == wanted.board}
        return losses

    async def _take(self) -> None:
        """Become the process that writes, and move to SQL what still waits: a board's journal can outlive the board."""
        await self._database.in_thread(self._database.take_for_command)
        listed = [] if self._wanted.dry else await journals(self._client)
        if listed and await sink_of(self._client) == self._database.id:
            drainer = Drainer(self._client, self._settings, self._database)
            await drainer.drain(board for board, _ in listed)

    async def _lines(self, made: _Definitions) -> tuple[list[_Line], list[Timeline]]:
        """Return each wanted board's last timeline with the timelines that it continues, and the timelines that end.

        The last timeline of a board is the timeline of the epoch in its definition. This timeline is empty if
        the board never had a journal.
        """
        lines, created = await self._database.run(_read_lines)
        newest = {line[0].board: line for line in lines}
        for name, definition in made.items():
            if definition.state != "leaving":
                line = await self._line_of(Timeline(0, name, definition.epoch), lines)
                newest |= {name: line} if line else {}
        deleted = created - made.keys()
        newest = {name: line for name, line in newest.items() if name not in deleted}
        chosen = list(newest.values())
        if (board := self._wanted.board) is not None:
            if board not in newest:
                raise NotFoundError(f"the journal can't recover it: {unknown('board', board, newest)}")
            chosen, deleted = [newest[board]], set()
        ending = deleted | {line[0].board for line in chosen}
        return chosen, [line[0] for line in lines if line[0].board in ending]

    async def _line_of(self, begun: Timeline, lines: Sequence[_Line]) -> _Line | None:
        """Return the last timeline of a board, whose definition names the epoch of `begun`, unless it has ended."""
        of_board = [line for line in lines if line[0].board == begun.board]
        for line in reversed(of_board):
            if any(timeline.epoch == begun.epoch for timeline in line):
                return line
            # An earlier recovery has restored the board, and SQL does not have the new definition yet.
            if line[0].epoch == self._epoch(begun):
                return [line[0], begun]
        held = await self._database.run(find_timeline, begun.board, begun.epoch)
        return None if held is not None and held.size else [begun]

    async def _missing(self, lines: Sequence[_Line]) -> list[_Line]:
        """Return the timelines that the store lacks, of which it has an older state, or that no definition names.

        An earlier call may have recovered the other boards. If it was interrupted, it has not defined them.
        """
        missing, wanted = [], self._wanted
        defined = (await DefinitionStore(self._client).load()).boards
        lost = await find_lost(self._client, self._database)
        self._older = {loss.timeline.epoch for loss in lost if not loss.gone}
        for line in lines:
            timeline, keys = line[0], self._client.keys_of(self._name(line[0]))
            found, reign = await self._client.call(keys.meta, "HMGET", keys.meta, "epoch", "reign")
            held = (found or b"").decode()
            if reign == BEHIND:  # an earlier call was interrupted
                self._older.add(held)
            same = wanted.at is None or (len(line) > 1 and timeline.epoch == self._epoch(line[1]))
            if held == timeline.epoch and same:
                if wanted.name is None:
                    self._kept.add(held)
                    definition = defined.get(keys.board)
                    if held in self._older or definition is None or definition.epoch != held:
                        missing.append(line)
                continue
            if held not in ("", self._epoch(timeline)):
                raise SetupError(
                    f"the store holds another board {keys.board!r} (epoch {held}). A store to which boards move must "
                    "be empty: `live restore DIR --force` of a backup of now sets the embedded store aside. To keep "
                    "what the store holds, recover a board alone with --board, or under another id with --as"
                )
            missing.append(line)
        return missing

    def _name(self, timeline: Timeline) -> str:
        return self._wanted.name or timeline.board

    def _epoch(self, timeline: Timeline) -> str:
        """Return the new epoch of a timeline, which is the same for each attempt."""
        return _hash(f"{self._database.id}:{timeline.epoch}:{timeline.link}:{self._wanted.at}:{self._wanted.name}")

    def _new_epoch(self, timeline: Timeline) -> str:
        return timeline.epoch if timeline.epoch in self._kept else self._epoch(timeline)

    async def _load(self, timeline: Timeline, made: dict[str, Definition]) -> Recovered | None:
        """Write a board into the store, or only report it. Return None if the store has the board by now.

        The definition of the board in `made` gets the rules by which the board counts.
        """
        wanted, name = self._wanted, timeline.board
        keys, epoch = self._client.keys_of(wanted.name or name), self._new_epoch(timeline)
        is_older = timeline.epoch in self._kept & self._older
        if timeline.epoch in self._kept:
            shape = await self._client.call(keys.meta, "HGET", keys.meta, "shape") or b""
            made[name] = by_rules(name, made[name], shape.decode())
            if not is_older:
                return await recovered(self._client, keys, board_of(name, made), epoch)
        if not timeline.size:
            made[name], other = settled(made[name], made[name].choices), False
            board = board_of(name, made)
            if not wanted.dry:
                other = await create(self._client, keys, board, epoch, journal=board.journal != "off") is not None
            return None if other else Recovered(keys.board, epoch, 0, 0)
        if is_older and not wanted.dry and (mended := await self._mend(timeline, board_of(name, made))) is not None:
            return mended
        if wanted.at is not None:
            timeline = await self._timeline_at(timeline, board_of(name, made), wanted.at)
        data = await self._database.run(
            contents_of,
            timeline,
            (lambda *_: False) if wanted.at is None else before(wanted.at),
            progress=lambda done, total: self._show(done, 2 * total),
        )
        newest = made[name]
        made[name] = by_rules(name, newest, data.shape, data.ruled)
        if wanted.at is not None and made[name].choices not in (newest.choices, newest.next):
            raise SetupError(
                f"board {name!r} had other rules then: recover it without --at, or at a time after its rules were "
                "changed. `live export --as-of` writes the ranking of an earlier time"
            )
        board = board_of(name, made)
        if wanted.dry:
            known = self._client.high_water.offset_of(name, epoch)
            offset = max(data.offset, known) + 1 if is_older else data.offset
            return Recovered(keys.board, epoch, offset, size_of(board, keys, data))
        if is_older:
            self._kept.remove(timeline.epoch)
            epoch = self._new_epoch(timeline)
            await delete_keys(self._client, keys, timeline.epoch)
        return await load(
            self._client,
            keys,
            board,
            data,
            epoch=epoch,
            parent=timeline.epoch,
            dedupe_window=self._settings.dedupe_window,
            began=await self._database.run(first_seen, timeline) // 1000,
            progress=lambda done, total: self._show(total + done, 2 * total),
        )

    async def _mend(self, timeline: Timeline, board: Board) -> Recovered | None:
        """Write what the store lacks of a board. Return None if the board has to be loaded again."""
        client, keys = self._client, self._client.keys_of(board.id)
        known = client.high_water.offset_of(board.id, timeline.epoch)
        try:
            await write_lost(client, self._database, timeline, board, least=known)
        except UnwrittenError as error:
            log.info("the board is loaded again, under a new epoch", board=board.id, reason=str(error))
            return None
        await trim(client, keys, timeline.epoch, timeline.drained, timeline.size)
        if (found := await confirm(client, keys, timeline.epoch, "")) is not None:
            await confirm(client, keys, timeline.epoch, str(found.offset))
        return await recovered(client, keys, board, timeline.epoch)

    async def _timeline_at(self, timeline: Timeline, board: Board, at: int) -> Timeline:
        """Return the timeline in which to read a board at a time: `timeline`, or one that it continues."""
        by_server = msgspec.structs.replace(board, id=timeline.board, clock="server")
        try:
            return timeline_at(await self._database.run(reaches_of, by_server, timeline.epoch), at) or timeline
        except NoPastError as error:
            raise error.of_board(timeline.board) from None

    async def _restore_texts(self, made: _Definitions, lines: Sequence[_Line], missing: Sequence[_Line]) -> None:
        """Write the data that belongs to no single board. The definitions of boards get the new epochs.

        If SQL has only the beginning of a board's creation, this finishes it: the board may have counted events. If the
        store lost its definitions, it gets all of them, because SQL takes the boards that it lacks for deleted ones.
        """
        wanted = self._wanted
        # A union may name an epoch of a part that an earlier call has recovered.
        epochs = {
            timeline.epoch: self._new_epoch(line[0])
            for line in lines
            for timeline in line
            if timeline.board == line[0].board
        }
        names, read, definitions = self._client.system, self._database.run, dict[str, Definition]()
        held = await DefinitionStore(self._client).load()
        is_lost = wanted.name is None and int(held.version or 0) < await self._database.run(newest_version, "boards")
        found = {line[0].board for line in missing}
        for name, definition in made.items():
            epoch, known = epochs.get(definition.epoch, definition.epoch), held.boards.get(wanted.name or name)
            is_renewed = name in found and definition.epoch in epochs and (known is None or known.epoch != epoch)
            if is_renewed or (is_lost and known is None):
                # If a board is `making`, SQL lacks what came next: the board was live a moment later.
                state = "live" if definition.state == "making" else definition.state
                definitions[wanted.name or name] = msgspec.structs.replace(definition, epoch=epoch, state=state)
        if wanted.name is None:
            definitions = {**held.boards, **definitions}
        changed = {name: _with_parts(definition, epochs) for name, definition in definitions.items()}
        encoded = {
            name: msgspec.json.encode(definition).decode()
            for name, definition in changed.items()
            if definition != held.boards.get(name)
        }
        await self._restore_hash("boards", names.definitions, encoded)
        if wanted.board is None:
            # If the store did not lose them, it may have newer ones.
            await self._restore_hash("producers", names.producers, await read(latest, "producers"), only_lost=True)
            await self._restore_items(await read(latest, "items"))
        # With the same secret, visitors keep their cookies and can't like twice.
        if secret := (await read(latest, "visitors")).get(COOKIES):
            await self._client.write(names.visitors, "SET", names.visitors, bytes.fromhex(secret), "NX")

    async def _restore_hash(self, kind: str, key: str, found: Mapping[str, str], *, only_lost: bool = False) -> None:
        version = await self._database.run(newest_version, kind)
        held = int(await self._client.call(key, "HGET", key, ":version") or 0)
        if only_lost:
            if held >= version:
                return
            # The store went back, so what SQL lacks was revoked since.
            names = {name.decode() for name in await self._client.call(key, "HKEYS", key)}
            if revoked := names - found.keys() - {":version"}:
                await self._client.write(key, "HDEL", key, *revoked)
        if found:
            words = [word for pair in found.items() for word in pair]
            await self._client.write(key, "HSET", key, ":version", max(held, version) + 1, *words)

    async def _restore_items(self, found: Mapping[str, str]) -> None:
        names, version = self._client.system, await self._database.run(newest_version, "items")
        if int(await self._client.call(names.items_version, "GET", names.items_version) or 0) >= version:
            return
        pairs = list(found.items())
        for first in range(0, len(pairs), _ITEMS):
            words = [word for pair in pairs[first : first + _ITEMS] for word in pair]
            await self._client.write(names.items, "HSET", names.items, *words)
        # This comes last, so that after an interruption the next call writes all of them.
        await self._client.write(names.items_version, "SET", names.items_version, version + 1)


def _read_lines(connection: Connection) -> tuple[list[_Line], set[str]]:
    """Return the open timelines with the timelines that they continue, and all boards ever made."""
    lines = [[timeline, *origins(connection, timeline)] for timeline in open_timelines(connection)]
    return lines, made_once(connection)


def board_of(name: str, made: _Definitions) -> Board:
    """Return a board that the journal has."""
    if name not in made:
        raise SetupError(f"the journal has no definition of board {name!r}")
    return _read_board(name, made[name].choices)


def _read_board(name: str, choices: dict[str, Any]) -> Board:
    try:
        return read_board(name, choices)
    except DefinitionError as error:
        raise SetupError(f"the definition of board {name!r} can't be read: {error}") from None


def by_rules(name: str, definition: Definition, shape: str, last: Ruled = NO_CHANGE) -> Definition:
    """Return the definition of a board with the rules by which contents of a shape count.

    While rules change, SQL has the new definition before the contents, or after them. `last` is the last change of
    rules that the contents know.
    """
    for choices in (definition.choices, definition.next, *reversed(definition.earlier)):
        if choices is not None and shape in ("", _read_board(name, choices).shape.encode()):
            return settled(definition, choices)
    if last and last.board.shape.encode() == shape:
        return settled(definition, last.board.definition)
    raise SetupError(f"the journal does not say by which rules board {name!r} counted")


def require_recoverable(connection: Connection, timeline: Timeline) -> None:
    """Fold a timeline, and check that its board can be recovered from it."""
    data, made = contents_of(connection, timeline), latest_boards(connection, [timeline.board])
    definition = made.get(timeline.board)
    if definition is not None and definition.epoch == timeline.epoch:
        by_rules(timeline.board, definition, data.shape, data.ruled)


def _with_parts(definition: Definition, epochs: Mapping[str, str]) -> Definition:
    parts = {part: epochs.get(epoch, epoch) for part, epoch in definition.parts.items()}
    return msgspec.structs.replace(definition, parts=parts)


async def recovered(client: Store, keys: Keys, board: Board, epoch: str) -> Recovered:
    """Describe a board that keeps its epoch."""
    offset = int(await client.call(keys.meta, "HGET", keys.meta, "offset"))
    starts = await client.call(keys.slots, "ZRANGE", keys.slots, 0, -1) if board.window.tables else [None]
    names = [keys.table(start if start is None else start.decode()).ranking for start in starts]
    sizes = required(await client.outcomes([(name, ("ZCARD", name)) for name in names]))
    return Recovered(board.id, epoch, offset, sum(sizes))


async def recover_from_store(
    client: Store, losses: Losses, record: Callable[[Collection[str]], Awaitable[None]]
) -> list[KeptBoard]:
    """Go on with the data in the store, and record that an operator accepted the losses.

    Each lost board gets a new epoch, so that no viewer, page or cursor mixes the old data with the new data. After a
    loss of the whole store, all boards count as lost. A board that is defined but has no data starts empty. A
    union keeps its data, and names the new epochs of its parts. Whether API keys are required does not change.

    After an interruption, the same call continues: a board is lost until its data have the epoch of its definition.
    Before that, `record` is called with the boards that go on.
    """
    reason, known, before = str(losses), client.high_water.describe(), client.high_water.facts
    lost = None if losses.store else losses.boards.keys()
    salt = f"{before.store}:{len(before.accepted)}"
    with client.high_water.accepting(reason, lost):
        await LossWatch(client).find()  # this call connects to the store
        definitions = DefinitionStore(client)
        held = await definitions.load()
        live = {board: definition for board, definition in held.boards.items() if definition.state == "live"}
        renewed = {
            board: msgspec.structs.replace(definition, epoch=_hash(f"{salt}:{definition.epoch}"))
            for board, definition in live.items()
            if lost is None or board in lost
        }
        # A union names the new epochs of its parts in the same step, because nothing tells the old epochs later.
        epochs = {live[board].epoch: definition.epoch for board, definition in renewed.items()}
        changed = {board: _with_parts(definition, epochs) for board, definition in {**live, **renewed}.items()}
        changed = {board: definition for board, definition in changed.items() if definition != live[board]}
        # The definitions come first: servers ignore data that does not match them.
        if changed and await definitions.keep(held.version, changed) is None:
            raise StoreUnavailableError(
                "another process is changing boards: stop all servers that use the store, and try again"
            )
        await record(live.keys())
        for board, definition in renewed.items():
            keys = client.keys_of(board)
            if not await renew(client, keys, definition.epoch):
                await _clear(client, keys)
                with suppress(DefinitionError):  # a later version of the server has created the board
                    await create(client, keys, read_board(board, definition.choices), definition.epoch)
    done = [KeptBoard(board, definition.epoch) for board, definition in renewed.items()]
    log.warning("the loss of data was accepted", reason=reason, known=known, record=str(client.high_water.path))
    log.warning("the store may hold API keys that were revoked after it was copied: check them with `live keys list`")
    return done


async def _clear(client: Store, keys: Keys) -> None:
    async for name in client.names(keys.pattern):
        if not name.startswith(keys.journal("")):
            await client.write(name, "UNLINK", name)


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
