"""Creates, changes and deletes boards while the server runs.

Every step is a compare-and-set on all definitions. So one of two concurrent changes wins, and the other change sees the
result. A definition is written before the data of the board is created, and removed after the data is deleted. Only the
process that wrote the definition creates the data, with the epoch of the definition. So a process with old definitions
can't revive a deleted board. If a process dies in between, another process finishes the work.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import structlog

from live.boards.definition import DefinitionError, forbidden, merge, read_board
from live.domain.board import DEFAULT_MAX_MEMBERS, Board, Boards
from live.domain.board_file import exposure, forgetting, part_mistakes, text_mistakes
from live.domain.producer import SERVER, Principal
from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.settings import Settings
from live.store.board.keys import Keys
from live.store.board.manage.lifecycle import create, delete_keys, expire, update
from live.store.board.state import quiet
from live.store.connection.client import Store
from live.store.registry.audit_trail import entry_of
from live.store.registry.definitions import Definition, DefinitionCache, Definitions, DefinitionStore, What

log = structlog.get_logger()

# Seconds after which an unfinished creation or deletion counts as abandoned. No call to the store can take as long.
ABANDONED: Final = 10
_PATIENCE: Final = 15.0  # seconds; longer than ABANDONED, so that an abandoned creation is finished meanwhile
_PAUSE: Final = 0.05
_DELETIONS: Final = 60.0  # seconds between two looks for deletions whose process may have died

_T = TypeVar("_T")
_Attempt: TypeAlias = Callable[[Definitions, Definition | None], Awaitable[_T | None]]


class BoardAdmin:
    """Changes the run-time boards of one key prefix."""

    def __init__(self, client: Store, settings: Settings, in_file: Boards) -> None:
        self.definitions = DefinitionStore(client, settings.key_prefix)
        self._client = client
        self._prefix = settings.key_prefix
        self.in_file = in_file
        self._most = settings.max_boards
        self._visibility = settings.visibility
        self._journals = settings.journal != "off"
        self.known = DefinitionCache(self.definitions)

    async def put(self, board: str, choices: dict[str, Any], who: str, maker: Principal | None = None) -> bool:
        """Create a board, or replace its choices. `maker` must have rights to everything that the board reads.

        Returns:
            Whether the board was created.

        Raises:
            ProblemError: `board_in_file`, `board_invalid`, `board_fixed`, `scope_forbidden`, `too_many_boards` or
                `too_many_members`.
        """

        async def attempt(found: Definitions, held: Definition | None) -> bool | None:
            if held is None:
                return await self._make(found, board, choices, who, maker) or None
            is_done = held.state == "live" and await self._change(found, board, held, choices, who, maker)
            return False if is_done else None

        return await self._until_done(board, attempt)

    async def patch(self, board: str, patch: dict[str, Any], who: str, maker: Principal | None = None) -> None:
        """Change some choices of a board. `maker` must have rights to everything that the change makes the board read.

        Raises:
            ProblemError: `board_in_file`, `board_not_found`, `board_invalid`, `board_fixed`, `scope_forbidden` or
                `too_many_members`.
        """

        async def attempt(found: Definitions, held: Definition | None) -> bool | None:
            if held is None:
                raise _no_such(board)
            choices = merge(held.choices, patch)
            return (held.state == "live" and await self._change(found, board, held, choices, who, maker)) or None

        await self._until_done(board, attempt)

    async def delete(self, board: str, who: str, *, what: What = "deleted", epoch: str | None = None) -> None:
        """Delete a board and all its data. With `epoch`, delete it only if it has this epoch.

        A union that adds up this board keeps what it has counted, and ignores a later board with the same id.

        Raises:
            ProblemError: `board_in_file` or `board_not_found`.
        """

        async def attempt(found: Definitions, held: Definition | None) -> bool | None:
            if held is None or epoch not in (None, held.epoch):
                if not await self.definitions.confirm(found.version):
                    return None
                raise _no_such(board)
            if held.state != "live":
                return None
            leaving = msgspec.structs.replace(held, state="leaving", since=found.now)
            entry = entry_of(who, what, board=board, before=held.choices)
            version = await self.definitions.keep(found.version, board, leaving, entry)
            if version is None:
                return None
            await self.finish(board, leaving, version)
            return True

        await self._until_done(board, attempt)

    async def expire(self, board: str, epoch: str, idle_ttl: int) -> float | None:
        """Delete a board that nobody has used for `idle_ttl` seconds.

        Returns:
            The seconds to wait until the next check, or None if the board is deleted.
        """
        wait = await expire(self._client, Keys(self._prefix, board), epoch, idle_ttl + quiet(idle_ttl))
        if wait is None:
            with suppress(ProblemError):  # another process has deleted the board meanwhile
                await self.delete(board, SERVER, what="expired", epoch=epoch)
        return wait

    async def defined(self, board: str) -> Definition | None:
        """Return the definition of a board, or None."""
        return (await self.known.load()).boards.get(board)

    async def finish(self, board: str, left: Definition, version: str | None = None) -> None:
        """Delete the data of a board, then its definition, unless the definition is no longer `left`.

        `version` is the version of all definitions, if known.
        """
        await delete_keys(self._client, Keys(self._prefix, board), left.epoch)
        while version is None or await self.definitions.keep(version, board, None, None) is None:
            found = await self.known.load()
            if found.boards.get(board) != left:
                return
            version = found.version

    async def run(self) -> None:
        """Finish deletions whose process has died, now and then, until cancelled."""
        while True:
            try:
                await self.finish_deletions()
            except (StoreUnavailableError, EpochLostError) as error:
                log.debug("can't finish deletions of boards", reason=str(error))
            await asyncio.sleep(_DELETIONS)

    async def finish_deletions(self) -> None:
        """Finish every deletion that began long ago. Its process may have died."""
        found = await self.known.load()
        for board, held in [*found.boards.items()]:
            if held.state == "leaving" and found.now - held.since > ABANDONED:
                await self.finish(board, held)

    async def _until_done(self, board: str, attempt: _Attempt[_T]) -> _T:
        """Try a change until it succeeds. An attempt returns None if another process changed a definition meanwhile.

        Raises:
            ProblemError: `board_in_file`, or an error of the attempt.
            StoreUnavailableError: the store is unavailable, or other processes change the board all the time.
        """
        if board in self.in_file.by_id:
            raise ProblemError("board_in_file", f"change board {board} in the boards file, then reload the server")
        deadline = asyncio.get_running_loop().time() + _PATIENCE
        while asyncio.get_running_loop().time() < deadline:
            found = await self.known.load()
            held = found.boards.get(board)
            if held is not None and held.state != "live":
                # Another process changes the board. If that process has died, finish its work.
                if held.state == "leaving" or found.now - held.since > ABANDONED:
                    await self.finish(board, held, found.version)
                    found = await self.known.load()
                held = found.boards.get(board)
            done = await attempt(found, held)
            if done is not None:
                return done
            await asyncio.sleep(_PAUSE)
        raise StoreUnavailableError(f"other processes keep changing board {board}")

    async def _make(
        self, found: Definitions, board: str, choices: dict[str, Any], who: str, maker: Principal | None
    ) -> bool:
        """Create a board. Return False if another process changed a definition meanwhile."""
        self._require_place(found, board)
        made, keys = self._checked(found, board, choices, None, maker), Keys(self._prefix, board)
        _require_rights(maker, made, None)
        self._require_members(found, made)
        reserved = Definition(
            epoch=secrets.token_hex(4),
            choices=choices,
            state="making",
            since=found.now,
            owner=maker.id if maker is not None and maker.is_limited else "",
            parts={part: found.boards[part].epoch if part in found.boards else "" for part in made.union},
        )
        version = await self.definitions.keep(found.version, board, reserved, None)
        if version is None:
            return False
        journal = self._journals and made.journal.level != "off"
        while (other := await create(self._client, keys, made, reserved.epoch, journal=journal)) is not None:
            epoch, at_run_time = other
            if (await self.known.load()).boards.get(board) != reserved:
                return False
            if not at_run_time:
                await self.finish(board, reserved)
                detail = f"the store holds a board {board} of a boards file; choose another id"
                raise ProblemError("board_in_file", detail)
            # Delete the data of an unfinished creation or deletion. No other process can finish it.
            await delete_keys(self._client, keys, epoch)
        live = msgspec.structs.replace(reserved, state="live")
        entry = entry_of(who, "created", board=board, after=choices)
        while await self.definitions.keep(version, board, live, entry) is None:
            found = await self.known.load()
            if found.boards.get(board) != reserved:
                await delete_keys(self._client, keys, reserved.epoch)
                return False
            version = found.version
        if made.frozen:
            await update(self._client, keys, live.epoch, live.revision, frozen=True)
        return True

    async def _change(
        self,
        found: Definitions,
        board: str,
        held: Definition,
        choices: dict[str, Any],
        who: str,
        maker: Principal | None,
    ) -> bool:
        """Replace the choices of a board. Return False if another process changed a definition meanwhile."""
        self._client.high_water.require_no_loss(board)
        if choices == held.choices:
            return await self.definitions.confirm(found.version)
        old = read_board(board, held.choices)
        new = self._checked(found, board, choices, old, maker)
        self._require_fitting_unions(found, board, held, new)
        _require_rights(maker, new, old)
        if mistakes := list(forbidden(old, new)):
            raise ProblemError("board_fixed", "\n".join(mistakes))
        if new.max_members > old.max_members:
            self._require_members(found, new)
        what: What = "changed"
        if msgspec.structs.replace(old, frozen=new.frozen) == new and old != new:
            what = "frozen" if new.frozen else "thawed"
        changed = msgspec.structs.replace(held, choices=choices, revision=held.revision + 1)
        entry = entry_of(who, what, board=board, before=held.choices, after=choices)
        if await self.definitions.keep(found.version, board, changed, entry) is None:
            return False
        keys = Keys(self._prefix, board)
        await update(self._client, keys, changed.epoch, changed.revision, frozen=new.frozen)
        return True

    def _require_place(self, found: Definitions, board: str) -> None:
        """Check that the limits allow one more board, in total and with its prefix. Boards in creation count too.

        Raises:
            ProblemError: `too_many_boards`.
        """
        in_file = self.in_file.by_id.keys()
        if len(in_file) + len(found.boards) - len(in_file & found.boards.keys()) >= self._most:
            detail = f"the setting max_boards allows {self._most} boards: delete one first"
            raise ProblemError("too_many_boards", detail)
        limits = self.in_file.limits_of(board)
        if limits is not None and limits.boards is not None:
            held = sum(name.startswith(limits.prefix) for name in in_file | found.boards.keys())
            if held >= limits.boards:
                detail = (
                    f"there are {held} boards `{limits.pattern}`, and {limits.name('boards')} allows {limits.boards}: "
                    "delete one first, or let an operator raise the limit"
                )
                raise ProblemError("too_many_boards", detail)

    def _require_members(self, found: Definitions, made: Board) -> None:
        """Check that the prefix allows the sum of the `max_members` of its boards, including the new board.

        Raises:
            ProblemError: `too_many_members`.
        """
        limits = self.in_file.limits_of(made.id)
        if limits is None or limits.members is None:
            return
        held = {name: definition.choices.get("max_members") for name, definition in found.boards.items()}
        held |= {name: board.max_members for name, board in self.in_file.by_id.items()}
        others = sum(
            min(most or DEFAULT_MAX_MEMBERS, limits.members)
            for name, most in held.items()
            if name != made.id and name.startswith(limits.prefix)
        )
        left = limits.members - others
        if made.max_members > left:
            advice = f"set it to {left} or less" if left > 0 else "lower it there, or delete a board"
            detail = (
                f"`max_members` is {made.max_members}, the other boards `{limits.pattern}` have {others}, and "
                f"{limits.name('members')} allows {limits.members} in all: {advice}, or let an operator raise the limit"
            )
            raise ProblemError("too_many_members", detail)

    def _hidden_from(self, maker: Principal | None) -> Callable[[Board], bool]:
        """Return a function that tells whether a board is hidden from an administrator."""
        if maker is None or not maker.is_limited:
            return lambda _board: False
        default = self._visibility
        return lambda board: (board.visibility or default) != "public" and board.id not in maker.opens

    def _require_fitting_unions(self, found: Definitions, board: str, held: Definition, new: Board) -> None:
        """Check that a board still fits its parts and the unions that add it up.

        It must not be more visible than its parts, nor remember ids for a shorter time. The same goes for its unions.

        Raises:
            ProblemError: `board_invalid`.
        """
        others = _OtherBoards(self.in_file, found, new)
        for name, definition in found.boards.items():
            if definition.parts.get(board) == held.epoch and name in others and exposure(others[name], new):
                detail = "a union adds this board up, and more people may read the union; set its `visibility` first"
                raise ProblemError("board_invalid", f"board {board!r}: {detail}")
            if definition.parts.get(board) == held.epoch and name in others and forgetting(others[name], new):
                detail = "a union adds this board up, and would forget ids sooner; change its `dedupe_window` first"
                raise ProblemError("board_invalid", f"board {board!r}: {detail}")
        for part, epoch in held.parts.items():
            current = found.boards[part].epoch if part in found.boards else ""
            if part not in others or epoch != current:
                continue
            if fault := exposure(new, others[part]) or forgetting(new, others[part]):
                raise ProblemError("board_invalid", f"board {board!r}: {fault}")

    def _checked(
        self, found: Definitions, board: str, choices: dict[str, Any], old: Board | None, maker: Principal | None
    ) -> Board:
        """Make the board that some choices define, and check it against the other boards.

        If the board is a union, check only its new parts. So a board can change even if another union is invalid. A
        union can change even if one of its parts was deleted.

        Raises:
            ProblemError: `board_invalid`.
        """
        try:
            made = read_board(board, choices)
        except DefinitionError as error:
            raise ProblemError("board_invalid", str(error)) from None
        others = _OtherBoards(self.in_file, found, made, self._hidden_from(maker))
        parts = set(made.union) - set(old.union if old else ())
        mistakes = [*text_mistakes(made), *part_mistakes(made, parts, others)]
        mistakes += [
            f"board {board!r}: its union names {part!r}, which may be deleted after its `idle_ttl`"
            for part in made.union
            if part in parts and part in others and others[part].idle_ttl is not None
        ]
        if mistakes:
            raise ProblemError("board_invalid", "\n".join(mistakes))
        return made


class _OtherBoards(Mapping[str, Board]):
    """The boards by id, as they will be after a change, without hidden boards. A definition is checked against them.

    A run-time board is decoded only when a check asks for it. Most checks ask for no run-time board.
    """

    def __init__(
        self,
        in_file: Boards,
        found: Definitions,
        changed: Board,
        is_hidden: Callable[[Board], bool] = lambda _board: False,
    ) -> None:
        self._in_file = {name: board for name, board in in_file.by_id.items() if not is_hidden(board)}
        self._is_hidden = is_hidden
        self._changed = changed
        self._found = found.boards

    def __getitem__(self, board: str) -> Board:
        if board == self._changed.id:
            return self._changed
        if board in self._in_file:
            return self._in_file[board]
        definition = self._found[board]
        if definition.state == "live":
            with suppress(DefinitionError):  # a later version of the server has created the board
                found = read_board(board, definition.choices)
                if not self._is_hidden(found):
                    return found
        raise KeyError(board)

    def __iter__(self) -> Iterator[str]:
        yield self._changed.id
        yield from (board for board in self._in_file if board != self._changed.id)
        for board, definition in self._found.items():
            is_other = board != self._changed.id and board not in self._in_file
            if definition.state == "live" and is_other and board in self:
                yield board

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _no_such(board: str) -> ProblemError:
    return ProblemError("board_not_found", f"there is no board {board}; create it with PUT")


def _require_rights(maker: Principal | None, new: Board, old: Board | None) -> None:
    """Check that an administrator has rights to all boards and event types that a changed board newly reads.

    Raises:
        ProblemError: `scope_forbidden`.
    """
    if maker is None:
        return
    for part in new.union:
        if old is None or part not in old.union:
            maker.require_board(part)
    reads_as_before = old is not None and old.categories == new.categories
    maker.require_sources(new.source - old.source if old is not None and reads_as_before else new.source)
