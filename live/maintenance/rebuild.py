"""Rebuild everything in an empty store from the journal: boards, definitions and API keys."""

import hashlib
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from functools import partial
from typing import Any, Final

import msgspec
from sqlalchemy import Connection

from live.boards.definition import DefinitionError, read_board
from live.domain.board import Board, Boards
from live.domain.event import rfc3339
from live.domain.text import unknown
from live.domain.window import Sliding
from live.errors import NotFoundError, SetupError
from live.journal.database import Database
from live.journal.log.definitions import COOKIES, KINDS, DefinitionLog, latest, newest_version
from live.journal.log.drainer import Drainer
from live.journal.log.reader import before, contents_of
from live.journal.log.timelines import (
    Timeline,
    end_timelines,
    find_timeline,
    first_seen,
    made_once,
    open_timelines,
    origins,
)
from live.journal.past.coverage import reaches_of, timeline_at
from live.journal.past.queries import NoPastError
from live.journal.state.ranking import live_events, live_slots, newest_slot, ranked_at
from live.journal.state.snapshot import Ranking, Snapshot, name_of, tag_of
from live.settings import Settings
from live.store.board.journal_stream import journals, read_streams, sink_of
from live.store.board.keys import Keys, SystemKeys
from live.store.board.manage.lifecycle import create, delete_keys
from live.store.board.manage.restore import BoardImage, RankingImage, restore
from live.store.board.read.reader import HIGH
from live.store.board.requests import RestoreRequest
from live.store.connection.client import Store, required
from live.store.connection.loss import LossWatch
from live.store.connection.scripts import text
from live.store.registry.definitions import Definition, DefinitionStore

Progress = Callable[[str, int, int], None]
_ITEMS: Final = 1000  # titles in one command
_NONE_LEFT: Final = "0 0 0 0"  # the entries of the journal say which events have left the window; see `lib/journal.lua`
_Texts = dict[str, dict[str, str]]
_Line = list[Timeline]
"""A timeline, and the timelines that it continues, the newest first."""


class Rebuilt(msgspec.Struct, frozen=True):
    """A board that was rebuilt: its new epoch, its offset, and how many members it has."""

    board: str
    epoch: str
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
    made: bool,
    began: int,
    progress: Callable[[int, int], None],
) -> Rebuilt | None:
    """Write a board's contents into the store under a new epoch. Return None if the store already has the board.

    `began` is when the board was made, in milliseconds since 1970.
    """
    image = image_of(board, data, dedupe_window)
    request = RestoreRequest(
        epoch=epoch,
        shape=board.shape.encode(),
        offset=str(data.offset),
        secret=text(data.secret),
        fields=[*_fields(board, data, image.rankings), "began", str(began)],
        made=made,
        parent=parent,
        link=data.link,
    )
    written = await restore(client, keys, image, request, lambda done: progress(done, image.size))
    members = sum(len(ranking.records) for ranking in image.rankings)
    return Rebuilt(keys.board, epoch, data.offset, members) if written else None


def image_of(board: Board, data: Snapshot, dedupe_window: float) -> BoardImage:
    """Return the contents of each store key of a board. Leave out slots that have left the window."""
    now = data.time // 1000
    log, slots = live_events(board, data, now), live_slots(board, data, now)
    newest = newest_slot(board, data, now)
    if board.window.tables and newest is not None:
        slots = {start: slot for start, slot in data.slots.items() if start >= board.window.oldest(newest)}
    starts = list(slots) if board.window.tables else [None]
    taken: dict[str, int] = {}
    for event in log:
        if below := board.below_zero(event.amount):
            taken[event.member] = taken.get(event.member, 0) + below
        if board.zeros:
            taken["\0" + event.member] = taken.get("\0" + event.member, 0) + 1
    kept = board.buckets(dedupe_window, data.span) + 2 if data.span else 0
    return BoardImage(
        # A period may have only votes, because its members were erased. They go with the period.
        slots={start: slot for start, slot in slots.items() if slot or data.has_votes(start)},
        rankings=[_ranking(board, data, now, start) for start in starts],
        log=[(name_of(event), event.time) for event in log],
        taken=taken,
        entrants=data.entrants,
        hidden=data.hidden,
        seen=data.seen,
        kept=kept * data.span,
    )


def _ranking(board: Board, data: Snapshot, now: int, start: int | None) -> RankingImage:
    suffix = "" if start is None else f":{start}"
    found = ranked_at(board, data, now, start)
    held = data.rankings.get(suffix, Ranking())
    reached: dict[str, bytes] = {}
    if board.tags != "key":
        # A hidden member keeps its place among ties, even while its amounts cancel out.
        tags = held.reached.items()
        reached = {key: tag_of(board, tag) for key, tag in tags if key in found.scores or key in data.hidden}
    return RankingImage(
        suffix=suffix,
        records=[(reached.get(member, b"") + member.encode(), found.scores[member]) for member in found.members],
        reached=reached,
        metadata={member: value for member, value in held.metadata.items() if member in found.scores},
        votes=held.votes,
        dense=board.ranks == "dense",
    )


def _fields(board: Board, data: Snapshot, rankings: Sequence[RankingImage]) -> list[str]:
    """Return the fields of a board's state that follow from its contents."""
    fields: dict[str, int] = {}
    if data.newest is not None:
        fields["newest"] = data.newest
    if data.latest is not None and board.clock == "event":
        fields["latest"] = data.latest
    if data.span:
        fields["span"] = data.span
    if data.seen:
        fields["bucket"] = max(data.seen)
    words = ["left", _NONE_LEFT] if isinstance(board.window, Sliding) and board.clock == "server" else []
    for ranking in rankings:
        total = sum(score for _, score in ranking.records) if board.summed else 0
        high = total >> HIGH
        fields[f"total{ranking.suffix}"] = total - (high << HIGH)
        fields[f"high{ranking.suffix}"] = high
    return words + [word for name, value in fields.items() for word in (name, str(value))]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to rebuild.

    Attributes:
        board: the only board to rebuild; None means all boards.
        at: rebuild the boards as they were at this time, in milliseconds since 1970; None means the end of the journal.
        name: another id for the board.
        dry: only report what would be rebuilt.
    """

    board: str | None = None
    at: int | None = None
    name: str | None = None
    dry: bool = False


class Rebuilding:
    """Rebuild the boards of one key prefix. Call `show` with a board and the numbers of done and of all steps."""

    def __init__(self, client: Store, settings: Settings, in_file: Boards, database: Database, show: Progress) -> None:
        self._client = client
        self._settings = settings
        self._prefix = settings.key_prefix
        self._in_file = in_file
        self._database = database
        self._show = show
        self.left_out: list[str] = []  # run-time boards that the store lacks, and whose journal was turned off

    async def rebuild(
        self, wanted: Wanted, acting: AbstractAsyncContextManager[dict[str, Any]] | None = None
    ) -> list[Rebuilt]:
        """Rebuild the wanted boards. After an interruption, the same call continues.

        If the journal has no entry of a run-time board, the board was empty, and begins empty. `acting` adds the
        entries of the audit log. It begins after all checks, so a refused call leaves no entry.

        Raises:
            SetupError: another process uses the journal, the journal does not know the board, its definition is
                missing, or the store holds other data.
        """
        await self._take(wanted)
        texts = await self._database.run(
            lambda connection: {kind: latest(connection, self._prefix, kind) for kind in KINDS}
        )
        lines, over = await self._lines(wanted, texts)
        others = texts["boards"].keys() - {line[0].board for line in lines} if wanted.board is None else ()
        self.left_out = await self._without_journal(sorted(others), texts)
        boards = {line[0].board: board_of(line[0].board, texts["boards"], self._in_file) for line in lines}

        async def load_all(some: Sequence[_Line]) -> list[Rebuilt]:
            loads = [await self._load(line[0], boards[line[0].board], wanted, texts["boards"]) for line in some]
            return [one for one in loads if one is not None]

        if wanted.dry:
            return await load_all(lines)
        missing = await self._missing(lines, wanted)
        watch = LossWatch(self._client, self._prefix)
        self._client.high_water.active = False  # the rebuild repairs the loss, so nothing records or logs it
        losses = await watch.find()
        self._client.high_water.active = True
        if not missing and losses:
            raise SetupError(
                f"the journal has nothing to rebuild, and the store lost data: {losses}. Restore a backup, or accept "
                "the loss with `live serve --accept-loss`. If the store holds an older state of a board, rebuild it "
                "with `live reconcile --board ID --repair store`"
            )
        drainer = Drainer(self._client, self._settings, self._database)
        # `accepting` ends the losses of the rebuilt boards, or the loss of the whole store if all boards are rebuilt.
        renewed = None if losses.store and wanted.board is None else {wanted.name or line[0].board for line in missing}
        accepting = self._client.high_water.accepting("rebuilt from the journal", renewed)
        async with AsyncExitStack() as act:
            with accepting if missing else nullcontext():
                await watch.find()  # this connects to the new store and remembers it
                await drainer.claim()
                entry = await act.enter_async_context(acting or nullcontext({}))
                done = await load_all(missing)
                await self._restore_texts(texts, missing, wanted)
            # SQL gets the new timelines before it ends the old ones, because the store may be lost again at any time.
            await drainer.drain([wanted.name or line[0].board for line in lines])
            await DefinitionLog(self._client, self._prefix, self._database).follow()
            if wanted.name is None:
                names = [(timeline.board, timeline.epoch) for timeline in over]
                # The timeline of a board that the store still has goes on.
                streams = required(await read_streams(self._client, self._prefix, names))
                ended = [timeline for timeline, stream in zip(over, streams, strict=True) if stream.ended]
                await self._database.run(lambda connection: end_timelines(connection, ended))
            entry["after"] = {"boards": done}
        return done

    async def _without_journal(self, names: Sequence[str], texts: _Texts) -> list[str]:
        """Return the names of the run-time boards that the store lacks."""
        found = []
        for name in names:
            definition = msgspec.json.decode(texts["boards"][name], type=Definition)
            meta = Keys(self._prefix, name).meta
            held = (await self._client.call(meta, "HGET", meta, "epoch") or b"").decode()
            if definition.state != "leaving" and held != definition.epoch:
                found.append(name)
        return found

    async def _take(self, wanted: Wanted) -> None:
        """Become the process that writes, and move to SQL what still waits: a board's journal can outlive the board."""
        await self._database.in_thread(self._database.take_for_command)
        listed = [] if wanted.dry else await journals(self._client, self._prefix)
        if listed and await sink_of(self._client, self._prefix) == self._database.id:
            drainer = Drainer(self._client, self._settings, self._database)
            await drainer.drain(board for board, _ in listed)

    async def replace(self, board: str, epoch: str) -> Rebuilt:
        """Delete the data of a board in an epoch from the store, and rebuild the board.

        If the call is interrupted, the store lacks the board. Then `rebuild` restores it.
        """
        await self._database.in_thread(self._database.take_for_command)
        drainer = Drainer(self._client, self._settings, self._database)
        await drainer.claim()
        await drainer.drain([board])
        await self.rebuild(Wanted(board=board, dry=True))  # raises an error if the board can't be rebuilt
        await delete_keys(self._client, Keys(self._prefix, board), epoch)
        (done,) = await self.rebuild(Wanted(board=board))
        return done

    async def _lines(self, wanted: Wanted, texts: _Texts) -> tuple[list[_Line], list[Timeline]]:
        """Return each wanted board's last timeline with the timelines that it continues, and the timelines that end.

        The last timeline of a run-time board is the timeline of the epoch in its definition. This timeline is empty if
        the board never had a journal.
        """
        lines, created = await self._database.run(self._read_lines)
        newest = {line[0].board: line for line in lines}
        for name, defined in texts["boards"].items():
            definition = msgspec.json.decode(defined, type=Definition)
            if definition.state != "leaving":
                newest = await self._with(Timeline(0, name, definition.epoch), newest, lines, wanted)
        deleted = created - texts["boards"].keys() - self._in_file.by_id.keys()
        newest = {name: line for name, line in newest.items() if name not in deleted}
        chosen = list(newest.values())
        if wanted.board is not None:
            if wanted.board not in newest:
                raise NotFoundError(f"the journal can't rebuild it: {unknown('board', wanted.board, newest)}")
            chosen, deleted = [newest[wanted.board]], set()
        ending = deleted | {line[0].board for line in chosen}
        return chosen, [line[0] for line in lines if line[0].board in ending]

    def _read_lines(self, connection: Connection) -> tuple[list[_Line], set[str]]:
        """Return the open timelines with the timelines that they continue, and all boards ever made at run time."""
        timelines = open_timelines(connection, self._prefix)
        lines = [[timeline, *origins(connection, self._prefix, timeline)] for timeline in timelines]
        return lines, made_once(connection, self._prefix)

    async def _with(
        self, begun: Timeline, newest: dict[str, _Line], lines: Sequence[_Line], wanted: Wanted
    ) -> dict[str, _Line]:
        """Add the last timeline of a run-time board to `newest`, and return the result.

        `begun` is an empty timeline with the epoch in the definition of the board.
        """
        of_board = [line for line in lines if line[0].board == begun.board]
        for line in reversed(of_board):
            if any(timeline.epoch == begun.epoch for timeline in line):
                return {**newest, begun.board: line}
            # An earlier rebuild has restored the board, and SQL does not have the new definition yet.
            if line[0].epoch == self._epoch(begun, wanted):
                return {**newest, begun.board: [line[0], begun]}
        find = partial(find_timeline, prefix=self._prefix, board=begun.board, epoch=begun.epoch)
        held = await self._database.run(find)
        return newest if held is not None and held.size else {**newest, begun.board: [begun]}

    async def _missing(self, lines: Sequence[_Line], wanted: Wanted) -> list[_Line]:
        """Return the timelines that the store lacks.

        An earlier call of the same command may have rebuilt the other boards.

        Raises:
            SetupError: the store holds other data of a board.
        """
        missing = []
        for line in lines:
            timeline, keys = line[0], Keys(self._prefix, wanted.name or line[0].board)
            held = (await self._client.call(keys.meta, "HGET", keys.meta, "epoch") or b"").decode()
            same = wanted.at is None or (len(line) > 1 and timeline.epoch == self._epoch(line[1], wanted))
            if held == timeline.epoch and same:
                continue
            if held not in ("", self._epoch(timeline, wanted)):
                raise SetupError(
                    f"the store holds board {keys.board!r} (epoch {held}): rebuild into an empty store, "
                    "or under another id with --as"
                )
            missing.append(line)
        return missing

    def _epoch(self, timeline: Timeline, wanted: Wanted) -> str:
        """Return the new epoch of a timeline, which is the same for each attempt."""
        salt = f"{self._database.id}:{timeline.epoch}:{timeline.link}:{wanted.at}:{wanted.name}"
        return hashlib.blake2b(salt.encode(), digest_size=4).hexdigest()

    async def _load(self, timeline: Timeline, board: Board, wanted: Wanted, made: Container[str]) -> Rebuilt | None:
        """Write a board into the store, or only report it. Return None if the store has the board by now."""
        keys, epoch = Keys(self._prefix, wanted.name or board.id), self._epoch(timeline, wanted)
        if not timeline.size:
            other = False
            if not wanted.dry:
                other = await create(self._client, keys, board, epoch, journal=board.journal.level != "off") is not None
            return None if other else Rebuilt(keys.board, epoch, 0, 0)
        if wanted.at is not None:
            timeline = await self._timeline_at(timeline, board, wanted.at)
        read = partial(
            contents_of,
            prefix=self._prefix,
            timeline=timeline,
            stop=(lambda *_: False) if wanted.at is None else before(wanted.at),
            progress=lambda done, total: self._show(timeline.board, done, 2 * total),
        )
        data = await self._database.run(read)
        if wanted.dry:
            members = len({member for slot in data.slots.values() for member in slot})
            return Rebuilt(keys.board, epoch, data.offset, members)
        return await load(
            self._client,
            keys,
            board,
            data,
            epoch=epoch,
            parent=timeline.epoch,
            dedupe_window=self._settings.dedupe_window,
            made=timeline.board in made,
            began=await self._database.run(partial(first_seen, prefix=self._prefix, timeline=timeline)) // 1000,
            progress=lambda done, total: self._show(timeline.board, total + done, 2 * total),
        )

    async def _timeline_at(self, timeline: Timeline, board: Board, at: int) -> Timeline:
        """Return the timeline in which to read a board at a time: `timeline`, or one that it continues.

        Raises:
            SetupError: the journal does not cover the time.
        """
        by_server = msgspec.structs.replace(board, id=timeline.board, clock="server")
        read = partial(reaches_of, prefix=self._prefix, board=by_server, epoch=timeline.epoch)
        try:
            return timeline_at(await self._database.run(read), at) or timeline
        except NoPastError as error:
            since = "" if error.since is None else f"; it does from {rfc3339(error.since)} on"
            raise SetupError(f"the journal does not cover board {timeline.board!r} at that time{since}") from None

    async def _restore_texts(self, texts: _Texts, lines: Sequence[_Line], wanted: Wanted) -> None:
        """Write the data that belongs to no single board. The definitions of run-time boards get the new epochs.

        If SQL has only the beginning of a board's creation, this finishes it: the board may have counted events.
        """
        epochs = {timeline.epoch: self._epoch(line[0], wanted) for line in lines for timeline in line}
        names = SystemKeys(self._prefix)
        definitions: dict[str, str] = {}
        for name, defined in texts["boards"].items():
            definition = msgspec.json.decode(defined, type=Definition)
            # A board with another epoch was not rebuilt.
            if wanted.board in (None, name) and definition.epoch in epochs:
                renewed = msgspec.structs.replace(_with_parts(definition, epochs), epoch=epochs[definition.epoch])
                if renewed.state == "making":  # SQL lacks what came next: the board was live a moment later
                    renewed = msgspec.structs.replace(renewed, state="live")
                definitions[wanted.name or name] = msgspec.json.encode(renewed).decode()
        if wanted.board is not None and wanted.name is None:
            definitions |= await self._unions(epochs)
        await self._restore_hash("boards", names.definitions, definitions)
        if wanted.board is None:
            await self._restore_hash("producers", names.producers, texts["producers"])
            pairs = list(texts["items"].items())
            for first in range(0, len(pairs), _ITEMS):
                words = [word for pair in pairs[first : first + _ITEMS] for word in pair]
                await self._client.write(names.items, "HSET", names.items, *words)
                await self._client.write(names.items_version, "INCR", names.items_version)
        # With the same secret, visitors keep their cookies and can't like twice.
        if secret := texts["visitors"].get(COOKIES):
            only_new = () if wanted.board is None else ("NX",)
            await self._client.write(names.visitors, "SET", names.visitors, bytes.fromhex(secret), *only_new)

    async def _unions(self, epochs: Mapping[str, str]) -> dict[str, str]:
        """Return the definitions of unions in the store whose parts were rebuilt, with the new epochs of the parts."""
        held = (await DefinitionStore(self._client, self._prefix).load()).boards
        return {
            name: msgspec.json.encode(_with_parts(definition, epochs)).decode()
            for name, definition in held.items()
            if not epochs.keys().isdisjoint(definition.parts.values())
        }

    async def _restore_hash(self, kind: str, key: str, found: Mapping[str, str]) -> None:
        if not found:
            return
        version = await self._database.run(lambda connection: newest_version(connection, self._prefix, kind))
        held = int(await self._client.call(key, "HGET", key, ":version") or 0)
        words = [word for pair in found.items() for word in pair]
        await self._client.write(key, "HSET", key, ":version", max(held, version) + 1, *words)


def board_of(name: str, made: Mapping[str, str], in_file: Boards) -> Board:
    """Return the definition of a board that the journal has. `made` has run-time boards as JSON, by id.

    Raises:
        SetupError: its definition is missing, or this version can't read it.
    """
    if name in made:
        definition = msgspec.json.decode(made[name], type=Definition)
        try:
            return read_board(name, definition.choices)
        except DefinitionError as error:
            raise SetupError(f"the definition of board {name!r} can't be read: {error}") from None
    board = in_file.by_id.get(name)
    if board is None:
        raise SetupError(
            f"the journal has board {name!r}, which is neither a run-time board nor in the boards file: add it to the "
            "boards file, or name the other boards one by one with --board"
        )
    return board


def _with_parts(definition: Definition, epochs: Mapping[str, str]) -> Definition:
    parts = {part: epochs.get(epoch, epoch) for part, epoch in definition.parts.items()}
    return msgspec.structs.replace(definition, parts=parts)
