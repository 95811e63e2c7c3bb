"""`live recover` is killed at each step: the next run finishes it, and no board, union or API key is lost."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec
import pytest

from live.cli import recover as command
from live.cli.context import Context
from live.domain.board_file import parse_boards
from live.domain.event import make_entry
from live.errors import SetupError
from live.journal.database import Database
from live.journal.log.definitions import DefinitionLog, latest
from live.journal.log.drainer import Drainer
from live.maintenance import recover
from live.maintenance.recover import Recovered, Recovery, Wanted
from live.store.board.keys import Keys, SystemKeys
from live.store.board.ledger import Ledger
from live.store.connection.client import Store, connect
from live.store.connection.loss import LossWatch
from live.store.registry.audit_trail import AuditTrail
from live.store.registry.definitions import Definition, DefinitionStore
from tests.harness.journaled import Journaled, journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.server import define

FILE: Final = """
[[board]]
id = "posts"
types = ["like"]
window = "forever"
[[board]]
id = "other"
types = ["other"]
window = { sliding = "1h" }
[[board]]
id = "plain"
types = ["plain"]
window = "forever"
journal = "off"
[[board]]
id = "all"
window = "forever"
union = ["posts", "plain"]
"""

pytestmark = [pytest.mark.slow, pytest.mark.fault]

STEPS: Final = (
    (recover, "load_contents"),
    (recover, "create"),
    (recover, "delete_keys"),
    (recover, "write_lost"),
    (recover, "confirm"),
    (Recovery, "_restore_hash"),
    (Recovery, "_restore_items"),
    (Drainer, "drain"),
    (DefinitionLog, "follow"),
)


class Killed(BaseException):
    """The command was killed."""


class Killing:
    """Kill a command before and after its steps, once, when `left` of these moments have passed."""

    def __init__(self, left: int) -> None:
        self.left = left

    def moment(self) -> None:
        """Die if it is time."""
        self.left -= 1
        if self.left == -1:
            raise Killed

    def step(self, right: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a step."""

        @wraps(right)
        async def dying(*arguments: Any, **named: Any) -> Any:
            self.moment()
            found = await right(*arguments, **named)
            self.moment()
            return found

        return dying

    @contextmanager
    def among(self, steps: Sequence[tuple[object, str]]) -> Iterator[None]:
        """Wrap the steps while in the context."""
        with ExitStack() as stack:
            for owner, name in steps:
                stack.enter_context(patch.object(owner, name, self.step(getattr(owner, name))))
            yield


class Lossy:
    """Boards with a journal, and a union, in a store that loses data."""

    def __init__(self, made: Journaled, boards: Sequence[Any]) -> None:
        self.made, self.settings, self.prefix = made, made.settings, made.settings.key_prefix
        self.boards = {board.id: board for board in boards}
        self.ledgers = {name: Ledger(made.client, board, made.settings) for name, board in self.boards.items()}

    async def add(self, board: str, *members: str) -> None:
        """Count events of members."""
        await self.ledgers[board].writer.add([make_entry(member, 1, None, None) for member in members])

    async def rows(self) -> dict[str, list[tuple[str, int]]]:
        """Read the rankings, as a process that has just started does."""
        found = {}
        for name in ("posts", "other"):
            page = await Ledger(self.made.client, self.boards[name], self.settings).reader.read(99)
            found[name] = [(record.member, record.score) for record in page.records]
        return found

    async def copy(self, pattern: str) -> dict[str, bytes]:
        """Copy what the store has under a pattern."""
        client = self.made.client
        return {name: await client.dump(name) or b"" async for name in client.names(pattern)}

    async def lose(self, copy: dict[str, bytes] | None = None) -> None:
        """Empty the store, and put a copy into it."""
        client = self.made.client
        async for name in client.names(f"{self.prefix}:*"):
            await client.delete(name)
        for name, content in (copy or {}).items():
            await client.restore(name, 0, content)

    @asynccontextmanager
    async def process(self) -> AsyncIterator[Store]:
        """Connect as another process does."""
        client = connect(self.settings.store, self.settings)
        client.high_water.active = True
        try:
            yield client
        finally:
            await client.aclose()

    async def recover(self, **wanted: Any) -> tuple[list[Recovered], dict[str, str]]:
        """Recover from the journal."""
        async with self.process() as client:
            recovery = Recovery(client, self.settings, self.made.databases[0], lambda *_: None)
            return await recovery.recover(Wanted(**wanted)), recovery.left_out

    async def must_be_whole(self, rows: dict[str, list[tuple[str, int]]]) -> None:
        """Check that nothing is lost: rankings, definitions, parts of the union, API keys, and what SQL knows."""
        client, prefix = self.made.client, self.prefix
        defined = dict((await DefinitionStore(client).load()).boards)
        assert defined.keys() == self.boards.keys(), "a board has no definition"
        for name, definition in defined.items():
            held = await client.hget(Keys(prefix, name).meta, "epoch")
            assert held == definition.epoch.encode(), f"the data of {name} have another epoch"
        for part, epoch in defined["all"].parts.items():
            assert epoch == defined[part].epoch, f"the union lost {part}"
        assert await self.rows() == rows
        assert await client.hget(SystemKeys(prefix).producers, "ann") == b"{}"
        texts = await self.made.databases[0].run(lambda connection: latest(connection, "boards"))
        known = {name: msgspec.json.decode(text, type=Definition) for name, text in texts.items()}
        assert known == defined, "SQL has other definitions"
        async with self.process() as other:
            assert not await LossWatch(other).find(), "a server would not start"


@asynccontextmanager
async def lossy(store: str, folder: Path) -> AsyncIterator[Lossy]:
    """Boards that have counted something, all of it in SQL."""
    boards = list(parse_boards(FILE))
    async with journaled(store, folder, boards[0], is_defined=False) as made:
        await define(made.settings, boards)
        await made.client.hset(SystemKeys(made.settings.key_prefix).producers, mapping={":version": 1, "ann": "{}"})
        found = Lossy(made, boards)
        drainer = await made.drainer()
        await drainer.claim()
        await found.add("posts", "a", "b", "a")
        await found.add("other", "c", "d")
        await drainer.sweep()
        await drainer._definitions.follow()
        async with found.process() as client:
            await LossWatch(client).find()
        yield found


async def kill_everywhere(boards: Lossy, *, older: bool = False, **first: Any) -> None:
    """Lose the store, kill the first run a moment later each time, and run the command again."""
    rows, moment = await boards.rows(), 0
    copy: dict[str, bytes] = {}
    if older:
        copy = await boards.copy(f"{boards.prefix}:*")
        await boards.add("posts", "e")
        drainer = Drainer(boards.made.client, boards.settings, boards.made.databases[0])
        await drainer.sweep()
        rows = await boards.rows()
    while True:
        killing = Killing(moment)
        await boards.lose(copy)
        try:
            with killing.among(STEPS):
                await boards.recover(**first)
        except Killed:
            pass
        try:
            await boards.recover()
        except SetupError as error:
            raise AssertionError(f"killed at moment {moment}: {error}") from None
        await boards.must_be_whole(rows)
        if killing.left >= 0:
            break
        moment += 1
    assert moment > 1, "no step was interrupted"


async def test_a_killed_recovery_of_an_emptied_store_is_finished(valkey_url: str, tmp_path: Path) -> None:
    """The boards that were loaded before get their definitions too, and the loss ends."""
    async with lossy(valkey_url, tmp_path) as boards:
        await kill_everywhere(boards)


async def test_a_killed_recovery_of_one_board_is_finished(valkey_url: str, tmp_path: Path) -> None:
    """The union goes on with its part, although it is recovered later than the part."""
    async with lossy(valkey_url, tmp_path) as boards:
        await kill_everywhere(boards, board="posts")


async def test_a_killed_recovery_of_an_older_store_is_finished(valkey_url: str, tmp_path: Path) -> None:
    """The board keeps its epoch."""
    async with lossy(valkey_url, tmp_path) as boards:
        await kill_everywhere(boards, older=True)


@pytest.mark.mutant
async def test_a_recovery_that_defines_only_what_it_loads_is_caught(valkey_url: str, tmp_path: Path) -> None:
    """The second run would leave out the boards that the first run has loaded."""
    right = Recovery._restore_texts

    async def wrong(self: Recovery, texts: Any, lines: Any, missing: Any) -> None:
        loaded = [line for line in missing if line[0].epoch not in self._kept]
        await right(self, texts, [line for line in lines if line in loaded], loaded)

    async with lossy(valkey_url, tmp_path) as boards:
        with must_be_caught("boards without definitions"), replaced(Recovery, "_restore_texts", wrong):
            await kill_everywhere(boards)


ACCEPTING: Final = (
    (recover, "renew"),
    (recover, "create"),
    (DefinitionStore, "keep"),
    (Database, "run"),
    (command, "note_command"),
)


async def accept_everywhere(boards: Lossy, *, emptied: bool) -> None:
    """Lose a part of the union, kill the acceptance a moment later each time, and run the command again."""
    client, prefix, moment = boards.made.client, boards.prefix, 0
    trail, rows = AuditTrail(client), await boards.rows()
    context = Context(msgspec.structs.replace(boards.settings, boards=None), as_json=False)
    await boards.made.databases[0].aclose()  # the command takes the lock
    while True:
        killing, acts = Killing(moment), len(await trail.last(999))
        if emptied:
            await client.delete(SystemKeys(prefix).store)
        else:
            epoch = (await DefinitionStore(client).load()).boards["posts"].epoch
            async with boards.process() as other:
                other.high_water.note("posts", epoch, 1000)
        try:
            with killing.among(ACCEPTING):
                await command._from_store(context, None)
        except Killed:
            pass
        await command._from_store(context, None)
        defined = (await DefinitionStore(client).load()).boards
        for name, definition in defined.items():
            held = await client.hget(Keys(prefix, name).meta, "epoch")
            assert held == definition.epoch.encode(), f"the data of {name} have another epoch"
        for part, epoch in defined["all"].parts.items():
            assert epoch == defined[part].epoch, f"the union lost {part}"
        found = await trail.last(999)
        assert len(found) > acts, "the audit log lacks the acceptance"
        assert {act.what for act in found[: len(found) - acts]} == {"recovered"}
        assert await boards.rows() == rows
        if killing.left >= 0:
            break
        moment += 1
    assert moment > 1, "no step was interrupted"


@pytest.mark.parametrize("emptied", [True, False])
async def test_a_killed_acceptance_is_finished(valkey_url: str, tmp_path: Path, *, emptied: bool) -> None:
    """The union goes on with its parts, and the audit log has the acceptance."""
    async with lossy(valkey_url, tmp_path) as boards:
        await accept_everywhere(boards, emptied=emptied)


@pytest.mark.mutant
async def test_an_acceptance_that_is_recorded_last_is_caught(valkey_url: str, tmp_path: Path) -> None:
    """When all boards have their new epochs, no loss tells the next run that the record is missing."""
    right: Any = recover.recover_from_store

    async def wrong(*given: Any) -> Any:
        async def later(_: Any) -> None:
            pass

        done = await right(*given[:-1], later)
        await given[-1]([one.board for one in done])
        return done

    async with lossy(valkey_url, tmp_path) as boards:
        with must_be_caught("an acceptance without a record"), replaced(command, "recover_from_store", wrong):
            await accept_everywhere(boards, emptied=False)


@pytest.mark.parametrize("kind", ["emptied", "older", "healthy"])
async def test_a_dry_run_says_what_the_run_does(valkey_url: str, tmp_path: Path, kind: str) -> None:
    """It names the same boards, epochs, offsets and members, and what the journal can't give back."""
    async with lossy(valkey_url, tmp_path) as boards:
        copy = await boards.copy(f"{boards.prefix}:*")
        if kind == "older":
            await boards.add("posts", "e")
            await Drainer(boards.made.client, boards.settings, boards.made.databases[0]).sweep()
        await boards.lose({} if kind == "emptied" else copy)
        before = (await boards.copy(f"{boards.prefix}:*")).keys()
        told = await boards.recover(dry=True)
        assert (await boards.copy(f"{boards.prefix}:*")).keys() == before, "the dry run has written"
        assert told == await boards.recover()
        names = {"emptied": ["all", "other", "plain", "posts"], "older": ["posts"], "healthy": []}
        assert sorted(one.board for one in told[0]) == names[kind]
        assert told[1] == ({"plain": "its journal is off"} if kind == "emptied" else {})
        members = {one.board: one.members for one in told[0]}
        assert members.get("other", 2) == 2


async def test_a_board_that_the_journal_cannot_give_back_names_its_own_command(valkey_url: str, tmp_path: Path) -> None:
    """The command without `--board` would accept the losses of all boards."""
    async with lossy(valkey_url, tmp_path) as boards:
        client, prefix = boards.made.client, boards.prefix
        async with boards.process() as other:
            epoch = (await DefinitionStore(client).load()).boards["plain"].epoch
            other.high_water.note("plain", epoch, 9)
        for wanted in (Wanted(board="plain"), Wanted(board="plain", dry=True)):
            with pytest.raises(SetupError, match=r"recover --from store --board plain`"):
                await boards.recover(board=wanted.board, dry=wanted.dry)
        await client.delete(Keys(prefix, "posts").meta)
        done, left_out = await boards.recover()
        assert [one.board for one in done] == ["posts"]
        assert list(left_out) == ["plain"], "nobody learns that the board stays lost"
