"""`BoardAdmin`: it finishes incomplete changes, brings back no deleted board, and applies a boards file as a whole."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from live.boards import admin
from live.boards.admin import ABANDONED, BoardAdmin, Ruling
from live.boards.definitions import read_board
from live.domain.board import Boards
from live.domain.event import make_entry
from live.domain.limits import PrefixLimits
from live.domain.producer import Principal
from live.domain.reader import BoardScope
from live.errors import EpochLostError, ProblemError, SetupError
from live.settings import Settings
from live.store.board.journal_stream import read_entries
from live.store.board.keys import Keys
from live.store.board.ledger import Ledger
from live.store.board.manage.lifecycle import create
from live.store.connection.client import Store, connect, required
from live.store.registry.audit_trail import AuditTrail
from live.store.registry.definitions import Definition
from tests.harness.boards import rolling_board
from tests.harness.journaled import journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.scripts import connected
from tests.harness.server import define, run_server
from tests.harness.settings import fresh_settings
from tests.harness.tasks import stop
from tests.harness.waiting import eventually
from tests.maintenance.test_rules import board_of, rule

KISS: Final[dict[str, Any]] = {"types": ["kiss"], "window": "forever"}


class Bench:
    """A board admin, and what the store holds of the board `b`."""

    def __init__(self, client: Store, settings: Settings) -> None:
        self.client = client
        self.settings = settings
        self.board_admin = BoardAdmin(client, settings)
        self.keys = Keys(settings.key_prefix, "b")

    async def define(self, definition: Definition) -> None:
        """Leave a definition behind, as a process that dies in the middle of a change does."""
        found = await self.board_admin.definitions.load()
        assert await self.board_admin.definitions.keep(found.version, {"b": definition})

    async def definition(self) -> Definition | None:
        return (await self.board_admin.definitions.load()).boards.get("b")

    async def owned(self) -> list[bytes]:
        """All store keys of the board."""
        return [key.encode() async for key in self.client.names(f"{self.keys.channel}*")]

    async def ledger(self) -> Ledger:
        """Make the ledger of a process that knows the board."""
        definition = await self.definition()
        assert definition is not None
        return Ledger(self.client, read_board("b", definition.choices), self.settings, born=definition.epoch)

    async def refused(self, work: Any) -> tuple[str, str]:
        """The code and detail of a refusal."""
        with pytest.raises(ProblemError) as problem:
            await work
        return problem.value.code, problem.value.detail


@asynccontextmanager
async def bench(store: str) -> AsyncIterator[Bench]:
    """A board admin with its own key prefix."""
    settings = fresh_settings(store)
    await define(settings, [rolling_board()])
    client = connect(store, settings)
    try:
        yield Bench(client, settings)
    finally:
        await client.aclose()


@pytest.mark.slow
async def test_a_deleted_board_leaves_nothing(any_store: str) -> None:
    """Thousands of store keys of every kind are deleted in steps. A board with a longer id keeps its keys."""
    async with bench(any_store) as made:
        assert await made.board_admin.put("b", {"window": {"calendar": "hour", "keep": 900}, "clock": "event"}, "ann")
        assert await made.board_admin.put("b2", KISS, "ann")
        ledger = await made.ledger()
        await ledger.writer.add(
            [make_entry(f"k{i}", 1, i * 3_600_000, bytes([i % 256] * 16)) for i in range(1, 800, 300)]
        )
        for number in range(3000):
            await made.client.hset(ledger.state.keys.slot(number), "a", 1)
        await made.client.zadd(ledger.state.keys.slots, {str(number): number for number in range(3000)})
        assert len(await made.owned()) > 3000
        await made.board_admin.delete("b", "ann")
        assert await made.owned() == []
        assert await made.client.exists(Keys(made.settings.key_prefix, "b2").meta)
        with pytest.raises(EpochLostError):
            await ledger.writer.add([make_entry("a")])
        with pytest.raises(EpochLostError):
            await Ledger(made.client, ledger.state.board, made.settings, born=ledger.state.born).state.open()
        assert await made.owned() == []


@pytest.mark.slow
async def test_the_journal_of_a_new_board_begins_with_the_board(any_store: str) -> None:
    """Creating a board also adds the first entry of its journal, `begin`."""
    settings = fresh_settings(any_store, journal="sqlite")
    client = connect(any_store, settings)
    try:
        await BoardAdmin(client, settings).put("b", KISS, "ann")
        keys = Keys(settings.key_prefix, "b")
        epoch = (await client.call(keys.meta, "HGET", keys.meta, "epoch")).decode()
        ((first,),) = required(await read_entries(client, [(keys, epoch, "0-0")]))
    finally:
        await client.aclose()
    assert first.head.startswith("begin")


async def test_of_concurrent_puts_one_creates_the_board(any_store: str) -> None:
    """The other requests change the board. The last request's choices win, and there is a single board."""
    async with bench(any_store) as made:
        outcomes = await asyncio.gather(
            *(made.board_admin.put("b", {**KISS, "title": f"t{i}"}, f"p{i}") for i in range(8))
        )
        assert sorted(outcomes) == [False] * 7 + [True]
        entries = await AuditTrail(made.client).last(100)
        assert [entry.what for entry in entries] == ["changed"] * 7 + ["created"]
        definition = await made.definition()
        assert definition is not None
        assert definition.choices == entries[0].after
        assert definition.revision == 8
        ledger = await made.ledger()
        await ledger.state.open()


@pytest.mark.slow
async def test_concurrent_puts_and_deletes_leave_a_complete_board_or_none(any_store: str) -> None:
    """In whatever order they run, the store finally holds a definition with its data, or nothing."""
    async with bench(any_store) as made:
        for _ in range(10):

            async def delete() -> None:
                with suppress(ProblemError):  # the board may not exist
                    await made.board_admin.delete("b", "ann")

            works: list[Any] = [made.board_admin.put("b", KISS, "ann") for _ in range(3)] + [delete() for _ in range(3)]
            await asyncio.gather(*works)
            definition = await made.definition()
            if definition is None:
                assert await made.owned() == []
            else:
                assert definition.state == "live"
                await (await made.ledger()).state.open()


async def test_an_abandoned_creation_is_taken_over(any_store: str) -> None:
    """The next creator deletes the data of the abandoned creation, and creates the board.

    If the first creator continues late, it changes nothing.
    """
    async with bench(any_store) as made:
        board = read_board("b", KISS)
        abandoned = Definition(
            epoch="0badbad0",
            choices=KISS,
            state="making",
            since=(await made.board_admin.definitions.load()).now - ABANDONED - 1,
        )
        await made.define(abandoned)
        assert await create(made.client, made.keys, board, abandoned.epoch) is None
        assert await made.board_admin.put("b", KISS, "ann")
        definition = await made.definition()
        assert definition is not None
        assert definition.epoch != abandoned.epoch
        await made.board_admin.finish("b", abandoned)
        assert await create(made.client, made.keys, board, abandoned.epoch) == definition.epoch
        await (await made.ledger()).state.open()


async def test_unknown_data_of_a_board_is_deleted(any_store: str) -> None:
    """The data may come from a creator that died before it wrote a definition."""
    async with bench(any_store) as made:
        assert await create(made.client, made.keys, read_board("b", KISS), "0badbad0") is None
        assert await made.board_admin.put("b", KISS, "ann")
        await (await made.ledger()).state.open()


async def test_an_abandoned_deletion_is_finished(any_store: str) -> None:
    """Any process that finds a half-deleted board deletes the rest. Then the id is free."""
    async with bench(any_store) as made:
        await made.board_admin.put("b", KISS, "ann")
        held = await made.definition()
        assert held is not None
        await made.define(msgspec.structs.replace(held, state="leaving"))
        assert (await made.refused(made.board_admin.patch("b", {}, "ann")))[0] == "board_not_found"
        assert await made.owned() == []
        assert await made.definition() is None


async def test_a_server_finishes_abandoned_deletions(any_store: str) -> None:
    """Nobody else may ask for the board again. Boards that a process may be deleting now stay, and other boards."""
    async with bench(any_store) as made:
        for board in ("b", "other"):
            await made.board_admin.put(board, KISS, "ann")
        held = await made.definition()
        assert held is not None
        await made.define(msgspec.structs.replace(held, state="leaving"))
        await made.board_admin.finish_abandoned()
        assert await made.definition() is not None
        await made.define(msgspec.structs.replace(held, state="leaving", since=held.since - ABANDONED - 1))
        async with run_server(made.settings, [rolling_board()]):
            await eventually(partial(is_gone, made))
        assert await made.owned() == []
        assert [*(await made.board_admin.definitions.load()).boards] == ["posts", "other"]


async def test_a_loss_does_not_end_the_look_for_deletions(any_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of this task would end the process, and with it the boards that are not lost."""
    looks: list[int] = []

    async def lost() -> None:
        looks.append(1)
        raise EpochLostError("the store went back")

    async def looks_again() -> bool:
        return len(looks) > 1

    async with bench(any_store) as made:
        monkeypatch.setattr(admin, "_DELETIONS", 0.01)
        monkeypatch.setattr(made.board_admin.known, "load", lost)
        looking = asyncio.create_task(made.board_admin.run())
        try:
            await eventually(looks_again)
        finally:
            await stop(looking)


async def is_gone(made: Bench) -> bool:
    """Whether the board has no definition any more."""
    return await made.definition() is None


async def test_a_part_of_a_union_may_be_deleted(any_store: str) -> None:
    """The part must exist when the union is created. Later, the part can be deleted while the union exists."""
    async with bench(any_store) as made:
        union = {"union": ["b", "posts"], "window": {"rolling": "24h", "slot": "1h"}}
        code, detail = await made.refused(made.board_admin.put("u", union, "ann"))
        assert (code, "no board `b`" in detail) == ("board_invalid", True)
        await made.board_admin.put("b", {}, "ann")
        assert await made.board_admin.put("u", union, "ann")
        await made.board_admin.delete("b", "ann")
        await made.board_admin.patch("u", {"title": "left"}, "ann")
        await made.board_admin.delete("u", "ann")


async def test_the_audit_log_contains_every_change(any_store: str) -> None:
    """A change without effect is not logged."""
    async with bench(any_store) as made:
        await made.board_admin.put("b", KISS, "ann")
        await made.board_admin.put("b", KISS, "bob")
        await made.board_admin.patch("b", {"title": "B"}, "bob")
        await made.board_admin.patch("b", {"frozen": True}, "cat")
        await made.board_admin.patch("b", {"frozen": None}, "cat")
        await made.board_admin.delete("b", "dan")
        entries = await AuditTrail(made.client).last(10)
        actions = [(entry.who, entry.what, entry.board) for entry in reversed(entries)]
        assert actions == [
            ("ann", "created", "b"), ("bob", "changed", "b"), ("cat", "frozen", "b"), ("cat", "thawed", "b"),
            ("dan", "deleted", "b"),
        ]  # fmt: skip
        assert entries[2].after == {**KISS, "title": "B", "frozen": True}
        now = (await made.board_admin.definitions.load()).now * 1000
        assert all(now - 60_000 < entry.at < now + 2000 for entry in entries)
        assert len(await AuditTrail(made.client).last(2)) == 2


async def test_the_number_of_boards_is_limited(any_store: str) -> None:
    """Concurrent creators can't exceed the limit, and deleting a board makes room."""
    async with bench(any_store) as made:
        settings = msgspec.structs.replace(made.settings, max_boards=4)
        admins = [BoardAdmin(made.client, settings) for _ in range(2)]
        puts = [admins[number % 2].put(f"b{number}", KISS, "ann") for number in range(8)]
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        refused = [outcome.code for outcome in outcomes if isinstance(outcome, ProblemError)]
        assert (outcomes.count(True), refused) == (3, ["too_many_boards"] * 5)
        kept = sorted((await made.board_admin.definitions.load()).boards.keys() - {"posts"})
        assert len(kept) == 3
        assert not await admins[0].put(kept[0], {**KISS, "title": "Changed"}, "ann")
        await admins[0].delete(kept[0], "ann")
        assert await admins[0].put("another", KISS, "ann")


async def test_a_union_stays_as_private_as_its_parts(valkey_url: str) -> None:
    """No change may let more people read a union than each of its parts. A deleted part does not count."""
    async with bench(valkey_url) as at:
        admin = at.board_admin
        await admin.put("a", KISS, "me")
        await admin.put("b", {**KISS, "visibility": "public"}, "me")
        await admin.put("u", {"window": "forever", "union": ["a", "b"]}, "me")
        hide = {"visibility": "private"}
        assert (await at.refused(admin.patch("a", hide, "me")))[0] == "board_invalid"
        assert (await at.refused(admin.patch("u", {"visibility": "public"}, "me")))[0] == "board_invalid"
        await admin.patch("u", hide, "me")
        await admin.patch("a", hide, "me")
        code, detail = await at.refused(admin.patch("u", {"visibility": None}, "me"))
        assert (code, "'a'" in detail) == ("board_invalid", True)
        await admin.delete("a", "me")
        await admin.patch("u", {"visibility": None}, "me")
        await admin.put("a", {**KISS, **hide}, "me")  # the union "u" no longer contains board "a"


async def test_a_limited_admin_learns_of_no_private_board(valkey_url: str) -> None:
    """A union with a private board that a limited admin may not read is refused like a union with an unknown board.

    No message suggests the id of the private board.
    """
    async with bench(valkey_url) as at:
        admin = at.board_admin
        await admin.put("secret-1", {**KISS, "visibility": "private"}, "me")
        await admin.put("mine-1", KISS, "me")
        scope = BoardScope.of(("mine-*",))
        tenant = Principal("tenant", scope, frozenset({"admin"}), 0, 1, "tenant", sources=frozenset({"kiss"}))

        async def refusal(part: str) -> tuple[str, str]:
            choices = {"window": "forever", "union": ["mine-1", part]}
            code, detail = await at.refused(admin.put("mine-u", choices, "tenant", tenant))
            return code, detail.replace(part, "…")

        assert await refusal("secret-1") == await refusal("secret-2")
        assert "secret-1" not in (await refusal("secret-2"))[1]


async def test_the_plan_of_a_file_names_prefixes_whose_limits_change(any_store: str) -> None:
    """The limits of a prefix are new, changed or gone."""
    async with bench(any_store) as made:
        for limits, changed in (
            ([PrefixLimits(prefix="a-", boards=2), PrefixLimits(prefix="b-", rate=5)], ["a-*", "b-*"]),
            ([PrefixLimits(prefix="b-", rate=6), PrefixLimits(prefix="a-", boards=2)], ["b-*"]),
            ([PrefixLimits(prefix="b-", rate=6)], ["a-*"]),
        ):
            plan = await made.board_admin.apply(Boards([rolling_board()], limits=limits))
            assert plan.limits == changed


async def leave_a_change(store: str, folder: Path, when: str) -> None:
    """Cancel a change of rules before or after it has replaced the contents: its definition says at once which."""
    async with journaled(store, folder, board_of({"ties": "first"})) as board:
        admin, reached = BoardAdmin(board.client, board.settings), asyncio.Event()
        await board.drainer()
        await board.like("a", "b")

        async def swap(ruling: Ruling) -> None:
            if when == "after":
                await rule(board, ruling.new)
            reached.set()
            await asyncio.Event().wait()

        change = asyncio.create_task(admin.rule("posts", {"ties": "last"}, "ann", None, swap))
        await reached.wait()
        change.cancel()
        await admin.aclose()
        held = await admin.defined("posts")
        assert held is not None
        assert (held.next, held.swap) == (None, "")
        assert read_board("posts", held.choices).ties == ("last" if when == "after" else "first")
        if when == "after":
            await change
            return
        with pytest.raises(ProblemError, match="the server stops: send the same request again") as problem:
            await change
        assert problem.value.code == "outcome_unknown"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_change_of_rules_that_is_cancelled_ends_at_once(valkey_url: str, tmp_path: Path, when: str) -> None:
    """Otherwise, other changes of the board would be refused for minutes, also after a restart."""
    await leave_a_change(valkey_url, tmp_path, when)


@pytest.mark.mutant
async def test_a_change_of_rules_that_nobody_ends_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant leaves it in the definition."""

    async def leave(*_: object) -> bool:
        return False

    with must_be_caught("a cancelled change goes on"), replaced(BoardAdmin, "_settle", leave):
        await leave_a_change(valkey_url, tmp_path, "before")


async def test_a_file_that_does_not_change_a_board_is_applied_while_its_rules_change(valkey_url: str) -> None:
    """A server that was killed during the change starts again at once. The file names the old or the new choices."""
    old, new, other = (board_of({"ties": ties}) for ties in ("first", "last", "key"))
    settings = fresh_settings(valkey_url, journal="sqlite")
    await define(settings, [old])
    async with connected(valkey_url, settings) as client:
        admin = BoardAdmin(client, settings)
        found = await admin.definitions.load()
        held = msgspec.structs.replace(found.boards["posts"], next=new.definition, swap="0123abcd", since=found.now)
        assert await admin.definitions.keep(found.version, {"posts": held})
        for named in (old, new):
            plan = await admin.apply(Boards([named]))
            assert (plan.changed, plan.unchanged) == ({}, 1)
        with pytest.raises(SetupError, match="'posts': its rules are being changed: try again later"):
            await admin.apply(Boards([other]))
        assert await admin.defined("posts") == held
