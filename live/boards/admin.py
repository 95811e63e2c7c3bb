"""Creates, changes and deletes boards, by requests and as the boards file says, while servers run.

Every step is a compare-and-set on all definitions. So one of two concurrent changes wins, and the other change sees the
result. A definition is written before the data of the board is created, and removed after the data is deleted. Only the
process that wrote the definition creates the data, with the epoch of the definition. So a process with old definitions
can't revive a deleted board. If a process dies in between, another process finishes the work.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import structlog

from live.boards.checks import BoardChecks, OtherBoards, over_limits, require_rights, ties_to_unions
from live.boards.definitions import DefinitionError, forbidden, has_rules_of, merge, read_board, settled, unruled
from live.domain.board import Board, Boards
from live.domain.producer import SERVER, Principal
from live.errors import EpochLostError, ProblemError, SetupError, StoreUnavailableError
from live.settings import Settings
from live.store.board.manage.lifecycle import create, delete_keys, expire, update
from live.store.board.manage.swap import Beside
from live.store.board.state import BoardState, quiet
from live.store.connection.client import Store
from live.store.registry.audit_trail import AuditEntry, entry_of
from live.store.registry.definitions import (
    Definition,
    DefinitionCache,
    Definitions,
    DefinitionStore,
    NamedInFile,
    What,
)

log = structlog.get_logger()

# Seconds after which an unfinished creation or deletion counts as abandoned. No call to the store can take as long.
ABANDONED: Final = 10
# Seconds after which an unfinished change of rules counts as abandoned. No server counts events for so long.
RULING: Final = 700
_PATIENCE: Final = 15.0  # seconds; longer than ABANDONED, so that an abandoned creation is finished meanwhile
_PAUSE: Final = 0.05
_DELETIONS: Final = 60.0  # seconds between two looks for deletions whose process may have died

_AT_ONCE: Final = 256  # boards that are created at the same time

_T = TypeVar("_T")
_Attempt: TypeAlias = Callable[[Definitions], Awaitable[_T | None]]


class FilePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a boards file changes."""

    created: list[str]
    changed: dict[str, list[str]]  # the names of the changed choices of each changed board
    unchanged: int  # how many other boards the file names
    left: list[str]  # the boards that an earlier file named, and this one does not; they stay
    limits: list[str]  # the prefixes (`acme-*`) whose limits are new, changed or gone


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """A change of some choices of a board."""

    old: Board
    new: Board
    held: Definition  # until then
    earlier: Sequence[Board]  # the rules before
    choices: dict[str, Any]  # all new choices

    @property
    def counts_again(self) -> bool:
        """Whether the events have to be counted again, because the data has another meaning by the new rules."""
        return self.old.shape != self.new.shape or self.held.next is not None


class BoardAdmin:
    """Changes the boards of one key prefix."""

    def __init__(self, client: Store, settings: Settings) -> None:
        self.definitions = DefinitionStore(client)
        self._client = client
        self._settings = settings
        self._checks = BoardChecks(settings)
        self._journals = settings.journal != "off"
        self.known = DefinitionCache(self.definitions)
        self._rulings = set[asyncio.Task[Any]]()  # tasks that change the rules of boards

    async def put(self, board: str, choices: dict[str, Any], who: str, maker: Principal | None = None) -> bool:
        """Create a board, or replace its choices. Return whether the board was created.

        `maker` must have rights to everything that the board reads.
        """

        async def attempt(found: Definitions) -> bool | None:
            held = found.boards.get(board)
            if held is None:
                return await self._make(found, board, choices, who, maker) or None
            is_done = held.state == "live" and await self._change(found, board, held, choices, who, maker)
            return False if is_done else None

        return await self._until_done((board,), attempt)

    async def patch(self, board: str, patch: dict[str, Any], who: str, maker: Principal | None = None) -> None:
        """Change some choices of a board. `maker` must have rights to everything that the board newly reads."""

        async def attempt(found: Definitions) -> bool | None:
            held = found.boards.get(board)
            if held is None:
                raise _no_such(board)
            choices = merge(held.choices, patch)
            return (held.state == "live" and await self._change(found, board, held, choices, who, maker)) or None

        await self._until_done((board,), attempt)

    async def ruling(self, board: str, patch: dict[str, Any], maker: Principal | None = None) -> Ruling:
        """Return what a change of some choices is. It raises the same errors as the change."""

        async def attempt(found: Definitions) -> Ruling | None:
            return self._ruling(found, board, patch, maker)

        return await self._until_done((board,), attempt)

    async def rule(
        self,
        board: str,
        patch: dict[str, Any],
        who: str,
        maker: Principal | None,
        swap: Callable[[Ruling], Awaitable[object]],
    ) -> None:
        """Change the rules of a board. `swap` counts its events again by the new rules.

        Until then, the new choices stand in the definition as `next`. A process uses the choices by which the store
        holds the board. So after a kill at any moment, the same call or another process finishes the change. If the
        task is cancelled, this finds out whether the rules have changed, and returns or raises an error.
        """
        name, task = secrets.token_hex(4), asyncio.current_task()
        assert task is not None, "a task runs this"  # noqa: S101

        async def reserve(found: Definitions) -> Ruling | None:
            ruling = self._ruling(found, board, patch, maker)
            if ruling is None:
                return None
            held = msgspec.structs.replace(ruling.held, next=ruling.choices, swap=name, since=found.now)
            version = await self.definitions.keep(found.version, {board: held})
            return None if version is None else msgspec.structs.replace(ruling, held=held)

        self._rulings.add(task)
        try:
            await swap(await self._until_done((board,), reserve))
        except asyncio.CancelledError:
            if not await self._settle(board, name, who):
                raise ProblemError("outcome_unknown", "the server stops: send the same request again") from None
        except Exception:
            if not await self._settle(board, name, who):
                raise
        else:
            await self._settle(board, name, who)
        finally:
            self._rulings.discard(task)

    async def aclose(self) -> None:
        """Wait until the changes of rules have ended whose requests were cancelled."""
        if self._rulings:
            await asyncio.wait(self._rulings)

    def _ruling(self, found: Definitions, board: str, patch: dict[str, Any], maker: Principal | None) -> Ruling | None:
        held = found.boards.get(board)
        if held is None:
            raise _no_such(board)
        if held.state != "live":
            return None
        self._client.high_water.require_no_loss(board)
        choices, old = merge(held.choices, patch), read_board(board, held.choices)
        if held.next is not None and held.next != choices:
            raise _is_ruled(board)
        new = self._checks.checked(found, board, choices, old, maker)
        if misfits := list(self._checks.misfits(found, board, held, OtherBoards(found, {board: new}))):
            raise ProblemError("board_invalid", misfits[0])
        require_rights(maker, new, old)
        earlier = [read_board(board, before) for before in held.earlier]
        ruling = Ruling(old=old, new=new, held=held, earlier=earlier, choices=choices)
        if self._journals and "off" not in {old.journal, new.journal}:
            mistakes = [*unruled(old, new), *ties_to_unions(found, held, old, new)]
        else:
            mistakes = list(forbidden(old, new, "and without a journal, the events can't be counted again"))
        if ruling.counts_again and mistakes:
            raise ProblemError("board_fixed", "\n".join(mistakes))
        if new.max_members > old.max_members:
            self._checks.require_members(found, new)
        return ruling

    async def _settle(self, board: str, swap: str, who: str) -> bool:
        """End the change of rules that has a name. Return whether the store holds the board by the new rules."""
        while True:
            found = await self.known.load()
            held = found.boards.get(board)
            if held is None or held.next is None or held.swap != swap or held.state != "live":
                return False
            new = read_board(board, held.next)
            state = BoardState(self._client, read_board(board, held.choices), self._settings, born=held.epoch)
            state.rules.other = new
            await state.open()
            await (await Beside.begin(state)).give_up()  # no swap replaces the contents from now on
            is_done = await has_rules_of(self._client, new)
            entry = None
            if is_done:
                entry = entry_of(who, "changed", board=board, before=held.choices, after=held.next)
            ended = settled(held, held.next if is_done else held.choices)
            ended = msgspec.structs.replace(ended, revision=held.revision + 1)
            if await self.definitions.keep(found.version, {board: ended}, entry) is not None:
                await self._announce(new if is_done else state.board, ended)
                return is_done

    async def delete(self, board: str, who: str, *, what: What = "deleted", epoch: str | None = None) -> None:
        """Delete a board and all its data. With `epoch`, delete it only if it has this epoch.

        A union that adds up this board keeps what it has counted, and ignores a later board with the same id.
        """

        async def attempt(found: Definitions) -> bool | None:
            held = found.boards.get(board)
            if held is None or epoch not in (None, held.epoch):
                if not await self.definitions.confirm(found.version):
                    return None
                raise _no_such(board)
            if held.state != "live":
                return None
            leaving = msgspec.structs.replace(held, state="leaving", since=found.now)
            entry = entry_of(who, what, board=board, before=held.choices)
            version = await self.definitions.keep(found.version, {board: leaving}, entry)
            if version is None:
                return None
            await self.finish(board, leaving, version)
            return True

        await self._until_done((board,), attempt)

    async def expire(self, board: str, epoch: str, idle_ttl: int) -> float | None:
        """Delete a board unused for `idle_ttl` seconds, and return None, or the seconds until the next check."""
        wait = await expire(self._client, self._client.keys_of(board), epoch, idle_ttl + quiet(idle_ttl))
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
        await delete_keys(self._client, self._client.keys_of(board), left.epoch)
        while version is None or await self.definitions.keep(version, {board: None}) is None:
            found = await self.known.load()
            if found.boards.get(board) != left:
                return
            version = found.version

    async def run(self) -> None:
        """Finish what processes have left that died, now and then, until cancelled."""
        while True:
            try:
                await self.finish_abandoned()
            except (StoreUnavailableError, EpochLostError, SetupError) as error:
                log.debug("can't finish changes of boards", reason=str(error))
            await asyncio.sleep(_DELETIONS)

    async def finish_abandoned(self) -> None:
        """Finish every deletion, and end every change of rules, that began long ago. Its process may have died."""
        found = await self.known.load()
        for board, held in [*found.boards.items()]:
            if held.state == "leaving" and found.now - held.since > ABANDONED:
                await self.finish(board, held)
            elif held.next is not None and found.now - held.since > RULING:
                await self._settle(board, held.swap, SERVER)

    async def apply(self, file: Boards, *, only_first: bool = False) -> FilePlan:
        """Define the boards and the limits of a boards file, all of them or none.

        A board that the file does not name stays as it is. With `only_first`, change nothing if there is a board.
        """

        async def attempt(found: Definitions) -> FilePlan | None:
            if any(name in found.boards and found.boards[name].state != "live" for name in file.by_id):
                return None
            if only_first and found.boards:
                return FilePlan(created=[], changed={}, unchanged=0, left=[], limits=[])
            plan, wanted = self._planned(found, file)
            held = {name for name, one in found.boards.items() if one.state == "live"}
            named = NamedInFile((*file.by_id, *plan.left), tuple(file.limits))
            if not wanted and named == found.file:
                return plan if await self.definitions.confirm(found.version) else None
            entry = entry_of(
                SERVER, "applied",
                before={name: found.boards[name].choices for name in plan.changed},
                after={name: definition.choices for name, definition in wanted.items()},
            )  # fmt: skip
            version = await self.definitions.keep(found.version, wanted, entry, named)
            if version is None:
                return None
            made = {name: wanted[name] for name in plan.created}
            if made and not await self._make_data([file.by_id[name] for name in made], made, version, None):
                return None
            for name in held & wanted.keys():
                await self._announce(file.by_id[name], wanted[name])
            return plan

        return await self._until_done(file.by_id, attempt)

    async def plan(self, file: Boards) -> FilePlan:
        """Return what `apply` would change now, without a change. It raises the same errors."""
        return self._planned(await self.known.load(), file)[0]

    def _planned(self, found: Definitions, file: Boards) -> tuple[FilePlan, dict[str, Definition]]:
        mistakes, unchanged, changed = list[str](), 0, dict[str, list[str]]()
        created = [name for name in file.by_id if name not in found.boards]
        wanted: dict[str, Definition] = {
            name: Definition(
                epoch=secrets.token_hex(4), choices=file.by_id[name].definition, state="making", since=found.now
            )
            for name in created
        }
        epochs = {name: definition.epoch for name, definition in {**found.boards, **wanted}.items()}
        for name in created:
            parts = {part: epochs.get(part, "") for part in file.by_id[name].union}
            wanted[name] = msgspec.structs.replace(wanted[name], parts=parts)
        others, grown = OtherBoards(found, file.by_id), [*created]
        for name, new in file.by_id.items():
            held = found.boards.get(name)
            if held is None:
                continue
            try:
                old = read_board(name, held.choices)
                other = old if held.next is None else read_board(name, held.next)
            except DefinitionError as error:  # a later version of the server has created the board
                mistakes.append(f"board {name!r}: its definition in the store can't be read: {error}")
                continue
            if new in (old, other):
                unchanged += 1
                continue
            if held.next is not None:
                mistakes.append(f"board {name!r}: its rules are being changed: try again later")
                continue
            mistakes += [f"board {name!r}: {line}" for line in forbidden(old, new)]
            if (old.visibility, old.dedupe_seconds) != (new.visibility, new.dedupe_seconds):
                mistakes += self._checks.misfits(found, name, held, others)
            choices, before = new.definition, old.definition
            changed[name] = [one for one in {**before, **choices} if before.get(one) != choices.get(one)]
            wanted[name] = msgspec.structs.replace(held, choices=choices, revision=held.revision + 1)
            if new.max_members > old.max_members:
                grown.append(name)
        total = len(found.boards) + len(created)
        if created and total > self._checks.most:
            mistakes.append(
                f"there would be {total} boards, and the setting max_boards allows {self._checks.most}: raise "
                "LIVE_MAX_BOARDS, leave some out, or delete some"
            )
        mistakes += over_limits(found, file, grown)
        if mistakes:
            raise SetupError("\n".join(mistakes))
        left = [name for name in found.file.boards if name in found.boards and name not in file.by_id]
        limits = sorted({one.pattern for one in {*found.file.limits} ^ {*file.limits}})
        return FilePlan(created=created, changed=changed, unchanged=unchanged, left=left, limits=limits), wanted

    async def _until_done(self, boards: Collection[str], attempt: _Attempt[_T]) -> _T:
        """Try a change until it succeeds. An attempt returns None if another process changed a definition meanwhile."""
        deadline = asyncio.get_running_loop().time() + _PATIENCE
        while asyncio.get_running_loop().time() < deadline:
            found = await self.known.load()
            for board in boards:
                held = found.boards.get(board)
                if held is not None and held.next is not None and found.now - held.since > RULING:
                    await self._settle(board, held.swap, SERVER)
                    found = await self.known.load()
                if held is None or held.state == "live":
                    continue
                # Another process changes the board. If that process has died, finish its work.
                if held.state == "leaving" or found.now - held.since > ABANDONED:
                    await self.finish(board, held, found.version)
                    found = await self.known.load()
            done = await attempt(found)
            if done is not None:
                return done
            await asyncio.sleep(_PAUSE)
        raise StoreUnavailableError(f"other processes keep changing {next(iter(boards), 'boards')}")

    async def _make(
        self, found: Definitions, board: str, choices: dict[str, Any], who: str, maker: Principal | None
    ) -> bool:
        """Return False if another process changed a definition meanwhile. `_change` and `_create` do the same."""
        self._checks.require_place(found, board)
        made = self._checks.checked(found, board, choices, None, maker)
        require_rights(maker, made, None)
        self._checks.require_members(found, made)
        reserved = Definition(
            epoch=secrets.token_hex(4),
            choices=choices,
            state="making",
            since=found.now,
            owner=maker.id if maker is not None and maker.is_limited else "",
            parts={part: found.boards[part].epoch if part in found.boards else "" for part in made.union},
        )
        version = await self.definitions.keep(found.version, {board: reserved})
        if version is None:
            return False
        entry = entry_of(who, "created", board=board, after=choices)
        return await self._make_data([made], {board: reserved}, version, entry)

    async def _make_data(
        self, boards: Sequence[Board], reserved: Mapping[str, Definition], version: str, entry: AuditEntry | None
    ) -> bool:
        """Create the data of reserved boards, and mark the definitions as live. Return False if they have changed."""
        for first in range(0, len(boards), _AT_ONCE):
            piece = boards[first : first + _AT_ONCE]
            if not all(await asyncio.gather(*(self._create(board, reserved[board.id]) for board in piece))):
                return False
        live = {name: msgspec.structs.replace(definition, state="live") for name, definition in reserved.items()}
        while await self.definitions.keep(version, live, entry) is None:
            found = await self.known.load()
            if taken := [name for name, definition in reserved.items() if found.boards.get(name) != definition]:
                for name in taken:
                    await delete_keys(self._client, self._client.keys_of(name), reserved[name].epoch)
                return False
            version = found.version
        for board in boards:
            if board.frozen:
                await self._announce(board, live[board.id])
        return True

    async def _create(self, board: Board, reserved: Definition) -> bool:
        keys = self._client.keys_of(board.id)
        journal = self._journals and board.journal != "off"
        while (epoch := await create(self._client, keys, board, reserved.epoch, journal=journal)) is not None:
            if (await self.known.load()).boards.get(board.id) != reserved:
                return False
            # Delete the data of an unfinished creation or deletion. No other process can finish it.
            await delete_keys(self._client, keys, epoch)
        return True

    async def _announce(self, board: Board, definition: Definition) -> None:
        keys = self._client.keys_of(board.id)
        await update(self._client, keys, definition.epoch, definition.revision, frozen=board.frozen)

    async def _change(
        self,
        found: Definitions,
        board: str,
        held: Definition,
        choices: dict[str, Any],
        who: str,
        maker: Principal | None,
    ) -> bool:
        self._client.high_water.require_no_loss(board)
        if held.next is not None:
            raise _is_ruled(board)
        if choices == held.choices:
            return await self.definitions.confirm(found.version)
        old = read_board(board, held.choices)
        new = self._checks.checked(found, board, choices, old, maker)
        for misfit in self._checks.misfits(found, board, held, OtherBoards(found, {board: new})):
            raise ProblemError("board_invalid", misfit)
        require_rights(maker, new, old)
        if mistakes := list(forbidden(old, new)):
            raise ProblemError("board_fixed", "\n".join(mistakes))
        if new.max_members > old.max_members:
            self._checks.require_members(found, new)
        what: What = "changed"
        if msgspec.structs.replace(old, frozen=new.frozen) == new and old != new:
            what = "frozen" if new.frozen else "thawed"
        changed = msgspec.structs.replace(held, choices=choices, revision=held.revision + 1)
        entry = entry_of(who, what, board=board, before=held.choices, after=choices)
        if await self.definitions.keep(found.version, {board: changed}, entry) is None:
            return False
        await self._announce(new, changed)
        return True


def _is_ruled(board: str) -> ProblemError:
    return ProblemError("overloaded", f"the rules of board {board} are being changed: try again later", retry_after=10)


def _no_such(board: str) -> ProblemError:
    return ProblemError("board_not_found", f"there is no board {board}; create it with PUT")
