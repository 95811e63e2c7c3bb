"""`live rename` gives a member another name on boards of every kind, also after an interruption."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import count as count_from
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest

import live.journal.state.fold
from live.domain.board_file import parse_boards
from live.domain.window import EVER
from live.errors import SetupError
from live.maintenance import merge
from live.maintenance.check import check_board
from live.maintenance.merge import Merged, Merging
from live.settings import Settings
from live.store.board.ledger import Ledger
from live.store.board.manage.moderation import BoardModeration
from live.store.board.rotation import catch_up
from live.store.board.write.correction import read_held
from live.store.board.write.merging import Move, put_move, read_move
from live.store.connection.client import Store
from live.store.registry.audit_trail import AuditTrail
from live.store.registry.items import Items
from tests.harness.compared import Compared, compared
from tests.harness.drift import fill
from tests.harness.journaled import Journaled, journaled, twin_of
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.scripts import connected
from tests.harness.server import serving
from tests.harness.settings import fresh_settings
from tests.harness.waiting import until_early
from tests.maintenance import test_rules, test_void
from tests.maintenance.test_erase_member import drained
from tests.maintenance.test_recover_interrupted import Killed, Killing
from tests.maintenance.test_rules import CHANGES
from tests.maintenance.test_swap import KINDS
from tests.maintenance.test_void import board_of, count, random_batches, void
from tests.web.api.test_trail import command

OLD, NEW = "bob", "Robert"


async def rename(board: Compared, old: str = OLD, new: str = NEW, *, dry: bool = False) -> list[Merged]:
    """Rename a member of a board."""
    found, _ = await Merging(board.client, board.settings, (old, new), renames=True).run(dry=dry)
    return found


async def rows(board: Compared) -> list[tuple[int, str, int, object]]:
    """The rank, the name, the score and the metadata of each record."""
    page = await board.ledger.reader.read(99)
    return [(one.rank, one.member, one.score, one.metadata and bytes(one.metadata)) for one in page.records]


def named(value: Any, old: str = OLD, new: str = NEW) -> Any:
    """A value with another name in it."""
    match value:
        case str():
            return new if value == old else value
        case bytes():
            return value.replace(old.encode(), new.encode())
        case dict():
            return {named(name, old, new): named(one, old, new) for name, one in value.items()}
        case list() | tuple():
            return [named(one, old, new) for one in value]
    return value


async def tied(board: Compared) -> None:
    """Members with equal scores, in the order of neither their names nor their new names."""
    for member in ("zed", OLD, "abe"):
        await board.add((member, 3))
    await fill(board)
    last = {"incr": 8, "best": 7, "set": 1}[board.board.operator]  # so all three have the same score
    for member in ("zed", "abe"):
        await board.add((member, last))


async def ranks_as_before(board: Compared) -> None:
    """A renamed member has the score, the rank and the tag that it had, and the journal says so."""
    await tied(board)
    was, held = await rows(board), await board.held()
    assert any(member == OLD for _, member, _, _ in was)
    (dry,) = await rename(board, dry=True)
    assert await board.held() == held
    (done,) = await rename(board)
    assert (done, done.fault) == (dry, "")
    expected = [(rank, named(member), score, text) for rank, member, score, text in was]
    if board.board.id == "count":  # until its events have left the window
        expected.append((3, OLD, 0, msgspec.UNSET))
    found = await rows(board)
    if board.board.ties == "key":  # equal scores are in the order of names
        found, expected = (
            [(0, *row[1:]) for row in sorted(some, key=lambda row: row[1])] for some in (found, expected)
        )
    assert found == expected
    after = await board.held()
    for name in held:
        if name.partition(":")[0] in ("reached", "slot", "metadata", "ranking") and board.board.id != "count":
            assert sorted(named(held[name])) == sorted(named(after[name])), name
    report = await board.check()
    assert (report.drifted, report.drift) == (0, [])


@pytest.mark.parametrize("name", [name for name in KINDS if name != "vote"])
async def test_a_renamed_member_ranks_where_it_ranked(valkey_url: str, tmp_path: Path, name: str) -> None:
    """Scores, metadata and tags are as before. Later events count as if the member always had this name."""
    async with compared(valkey_url, tmp_path, KINDS[name]) as board:
        await ranks_as_before(board)
        for member in (NEW, "zed", "abe"):
            await board.add((member, 1))
        await catch_up(board.ledger.rotator)
        report = await board.check()
        assert (report.drifted, report.drift) == (0, [])
        before = await board.held()
        await board.replace()
        assert {key: one for key, one in (await board.held()).items() if key != "meta"} == {
            key: one for key, one in before.items() if key != "meta"
        }


@pytest.mark.parametrize("name", [name for name in KINDS if name not in ("vote", "count")])
async def test_a_renamed_member_gets_its_old_name_back(valkey_url: str, tmp_path: Path, name: str) -> None:
    """Nothing shows that it ever had another one."""
    async with compared(valkey_url, tmp_path, KINDS[name]) as board:
        await tied(board)
        before = await rows(board)
        for names in ((OLD, NEW), (NEW, OLD)):
            (done,) = await rename(board, *names)
            assert not done.fault
        assert await rows(board) == before
        report = await board.check()
        assert (report.drifted, report.drift) == (0, [])


async def test_a_rename_that_gives_a_new_place_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant places the member like a merge."""
    async with compared(valkey_url, tmp_path, KINDS["first"]) as board:
        with (
            must_be_caught("a renamed member loses its place"),
            replaced(merge, "read_move", lambda *words, renames: read_move(*words, renames=renames and False)),
        ):
            await ranks_as_before(board)


async def test_a_fold_that_gives_a_new_place_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant folds a rename like a merge."""
    async with compared(valkey_url, tmp_path, KINDS["first"]) as board:
        with (
            must_be_caught("the journal places a renamed member elsewhere"),
            replaced(live.journal.state.fold, "_rename", lambda *_, **__: None),
        ):
            await ranks_as_before(board)


async def move(ledger: Ledger, new: str = NEW) -> None:
    """Rename a member of one board, or merge it into another one."""
    await put_move(ledger.writer, partial(read_move, ledger.state, ("a", new), "why", renames=new == NEW))


async def voided(board: Journaled, without: Ledger, kind: str, new: str = NEW) -> None:
    """Void a producer that had sent to a member under both of its names."""
    await until_early("hour")  # both boards count events without a time in the same slots
    for number, batch in enumerate(random_batches(kind, 0)):
        if number == 6:
            await move(board.ledger, new)
            await move(without, new)
        await count(board.ledger, kind, batch)
        await count(without, kind, [event for event in batch if event[0] != "ann"])
    assert (await void(board, producer="ann")).fault == ""
    await test_void.same(board, without)
    epoch = board.ledger.state.epoch or ""
    report, _ = await check_board(board.client, board.settings, board.board, epoch, lambda *_: None, deep=True)
    assert not report.fault
    assert report.clean, report


@pytest.mark.parametrize("new", [NEW, "b"], ids=["renamed", "merged"])
@pytest.mark.parametrize("kind", [kind for kind in test_void.KINDS if kind != "contest"])
async def test_a_void_takes_back_what_was_sent_to_the_old_name(
    valkey_url: str, tmp_path: Path, kind: str, new: str
) -> None:
    """The board holds what it would hold if the events had never been sent, and the member had been renamed."""
    async with journaled(valkey_url, tmp_path, board_of(kind)) as board, twin_of(valkey_url, board.board) as without:
        await board.drainer()
        await voided(board, without, kind, new)


async def test_a_void_that_takes_back_from_the_old_name_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant folds the amounts that the store has moved."""
    async with (
        journaled(valkey_url, tmp_path, board_of("days")) as board,
        twin_of(valkey_url, board.board) as without,
    ):
        await board.drainer()
        with (
            must_be_caught("the void takes back from the old name"),
            replaced(live.journal.state.fold, "_moved", lambda _, batch, __: batch),
        ):
            await voided(board, without, "days")


async def test_a_void_before_events_that_came_during_a_merge_is_refused(valkey_url: str, tmp_path: Path) -> None:
    """A union moves what its parts have moved. The journal does not say which events that were."""
    async with journaled(valkey_url, tmp_path, board_of("forever")) as board:
        await board.drainer()

        async def make() -> Move:
            return Move(
                "a", NEW, "why", await read_held(board.ledger.state, ["a", NEW]), {EVER.start: 2}, is_whole=False
            )

        await count(board.ledger, "forever", [("ann", "a", 3, None, "")])
        await put_move(board.ledger.writer, make)
        later = int(await test_void._now(board))
        await count(board.ledger, "forever", [("ann", "a", 5, None, "")])
        assert "were merged" in (await void(board, producer="ann")).fault
        assert await board.rows() == [("a", 6), (NEW, 2)]
        assert (await void(board, producer="ann", since=later)).fault == ""
        assert await board.rows() == [(NEW, 2), ("a", 1)]


@pytest.mark.parametrize("new_name", [NEW, "b"], ids=["renamed", "merged"])
@pytest.mark.parametrize("change", [change for change in CHANGES if change != "a contest"])
async def test_rules_change_after_a_rename(valkey_url: str, tmp_path: Path, change: str, new_name: str) -> None:
    """The board holds what it would hold if it had always had the new rules, also where the operator changes."""
    one, other = CHANGES[change]
    old, new = test_rules.board_of(one), test_rules.board_of(one | other)
    async with journaled(valkey_url, tmp_path, old) as board, twin_of(valkey_url, new) as twin:
        drainer = await board.drainer()
        for number, batch in enumerate(test_rules.random_batches(old, change)):
            if number == 7:
                await move(board.ledger, new_name)
                await move(twin, new_name)
            if number == 10:
                await test_rules.rule(board, new)
            await test_rules.count(twin, await test_rules.count(board.ledger, batch))
            if number in (5, 12):
                await drainer.sweep()
        await test_rules.same(board, twin)


BOARDS = """
[[board]]
id = "a"
types = ["a"]
window = { rolling = "2h", slot = "1h" }
ties = "first"
[[board]]
id = "b"
types = ["b"]
window = { rolling = "2h", slot = "1h" }
journal = "off"
[[board]]
id = "all"
union = ["a", "b"]
weights = [1, 10]
window = { rolling = "2h", slot = "1h" }
ties = "last"
[[board]]
id = "best"
types = ["a"]
window = { calendar = "day" }
operator = "best"
[[board]]
id = "contest"
types = ["vote"]
window = "forever"
votes = { per_key = 1, registered = true }
"""
NAMES = ("a", "b", "all", "best")
STEPS: Final = (
    (BoardModeration, "hide"),
    (BoardModeration, "enter"),
    (BoardModeration, "withdraw"),
    (merge, "put_move"),
    (Items, "put"),
    (Items, "delete"),
    (AuditTrail, "add"),
)


class Server:
    """A server with boards, and the command."""

    def __init__(self, client: httpx.AsyncClient, store: Store, settings: Settings) -> None:
        self.client, self.store, self.settings = client, store, settings

    async def send(self, member: str, *kinds: str) -> None:
        """Send events of a member."""
        for number, kind in enumerate(kinds):
            event = {"key": member, "type": kind, "amount": 1 + number, "metadata": {"of": "it"}}
            assert (await self.client.post("/v1/events", json=event)).json()["accepted"] == 1

    async def fill(self, member: str) -> None:
        """Give a member events, a title and a registration, and hide it on a board and on the union."""
        await self.send(member, "a", "b", "a")
        for board in ("a", "all"):
            await self.client.patch(f"/v1/boards/{board}/records/{member}", json={"hidden": True})
        await self.client.put(f"/v1/boards/contest/records/{member}", json={"n": 1})
        await self.client.put(f"/v1/items/{member}", json={"title": "It"})

    async def rename(self, old: str, new: str) -> tuple[list[Merged], bool]:
        """Rename a member as the command does."""
        return await Merging(self.store, self.settings, (old, new), renames=True).run(dry=False)

    async def has(self, member: str) -> dict[str, Any]:
        """What each board, and the title, say about a member."""
        found: dict[str, Any] = {}
        for board in parse_boards(BOARDS):
            ledger = Ledger(self.store, board, self.settings)
            held = (await read_held(ledger.state, [member]))[member]
            score = sum(int(value) for value in held.values() if value)
            text = await ledger.moderation.metadata(member)
            found[board.id] = score, await ledger.moderation.is_hidden(member), text and bytes(text)
        return {**found, "title": member in await Items(self.store, 9).of([member])}

    async def check(self) -> None:
        """Check that store and journal agree, and the union and its parts."""
        await drained(self.settings, self.store)
        await command(self.settings, "check", "--deep")


@asynccontextmanager
async def serve(url: str, tmp_path: Path) -> AsyncIterator[Server]:
    """Yield a server."""
    settings = fresh_settings(url, journal="sqlite", data_dir=tmp_path / "data", anonymous_admin=True)
    async with connected(url, settings) as store, serving(settings, *parse_boards(BOARDS)) as client:
        yield Server(client, store, settings)


FULL: Final[dict[str, Any]] = {
    "a": (4, True, None),
    "b": (2, False, None),
    "all": (24, True, None),
    "best": (3, False, None),
    "contest": (0, False, b'{"n":1}'),
    "title": True,
}
EMPTY: Final[dict[str, Any]] = {**dict.fromkeys(FULL, (0, False, None)), "title": False}


async def killed_everywhere(server: Server) -> int:
    """Rename members one after another. Each is killed at another moment, and finished. Return how many there were."""
    for moment in count_from(0):
        old, new = f"old{moment}", f"new{moment}"
        await server.fill(old)
        killing = Killing(moment)
        with suppress(Killed), killing.among(STEPS):
            await server.rename(old, new)
        before, after = await server.has(old), await server.has(new)
        for board in NAMES:  # no board counts anything twice or loses it, and none shows a hidden member
            assert before[board][0] + after[board][0] == FULL[board][0], (moment, board)
            assert FULL[board][1] in (before[board][1], after[board][1]), (moment, board)
            shown = [found[board] for found in (before, after) if found[board][0]]
            assert all(found[1] == FULL[board][1] for found in shown), (moment, board)
        if killing.left >= 0:
            assert (before, after) == (EMPTY, FULL)
            return moment
        (last,) = await AuditTrail(server.store).last(1)
        if (last.what, last.key) != ("renamed", old):
            await server.rename(old, new)
        assert (await server.has(old), await server.has(new)) == (EMPTY, FULL), moment
        with pytest.raises(SetupError, match=rf"{new}.*live merge"):
            await server.rename(old, new)
    raise AssertionError


@pytest.mark.slow
@pytest.mark.fault
async def test_an_interrupted_rename_continues(valkey_url: str, tmp_path: Path) -> None:
    """It was killed before or after any step. Afterwards it is refused, because the new name is known."""
    async with serve(valkey_url, tmp_path) as server:
        assert await killed_everywhere(server) > 20
        await server.check()


async def test_a_rename_that_shows_a_hidden_member_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """The mutant hides the new name too late: after it has the score."""
    async with serve(valkey_url, tmp_path) as server:

        async def wrong(merging: Merging, ledger: Ledger, one: Merged, move: Any, *, dry: bool = False) -> None:
            await move()
            await right(merging, ledger, one, move, dry=dry)

        right = Merging._place
        with must_be_caught("a hidden member is shown"), replaced(Merging, "_place", wrong):
            await killed_everywhere(server)


async def test_a_name_that_is_known_is_refused(valkey_url: str, tmp_path: Path) -> None:
    """The message names the board, and the command that merges. Nothing changes."""
    async with serve(valkey_url, tmp_path) as server:
        client = server.client
        await server.fill(OLD)
        for name, body in (("a", {"hidden": True}), ("contest", None)):
            if body:
                await client.patch(f"/v1/boards/{name}/records/on {name}", json=body)
            else:
                await client.put(f"/v1/boards/{name}/records/on {name}", json={})
        await client.put("/v1/items/on a title", json={"title": "Bo"})
        await server.send("on board 'b'", "b")
        for new, where in (("on a", "board 'a'"), ("on contest", "board 'contest'"), ("on a title", "a title")):
            with pytest.raises(SetupError, match=rf"{where} has .* already.*live merge"):
                await server.rename(OLD, new)
        with pytest.raises(SetupError, match=r"board '(b|all)' has"):
            await server.rename(OLD, "on board 'b'")
        assert await server.has(OLD) == FULL
        assert not [one for one in await AuditTrail(server.store).last(99) if one.what == "begun"]
        for words in ((OLD, OLD), (OLD, "\n")):
            await command(server.settings, "rename", *words, "--yes", status=2)
        await command(server.settings, "rename", "nobody", "someone", "--yes", status=1)


async def test_the_command_says_what_it_does(valkey_url: str, tmp_path: Path) -> None:
    """A dry run says the same. The past and the audit log have the old name. A board with votes refuses."""
    async with serve(valkey_url, tmp_path) as server:
        settings = server.settings
        await server.fill(OLD)
        await drained(settings, server.store)
        before = datetime.now(UTC).isoformat()
        preview = await command(settings, "rename", OLD, NEW, "--dry-run")
        assert await server.has(OLD) == FULL
        done = await command(settings, "rename", OLD, NEW, "--yes")
        assert preview.splitlines() == [*done.splitlines(), "This is what would change."]
        for line in ("a: Robert 0 → 4, bob 4 → 0, hidden", "contest: registered", "The title."):
            assert line in done.splitlines()
        assert (await server.has(OLD), await server.has(NEW)) == (EMPTY, FULL)
        await server.check()
        answer = await server.client.get("/v1/boards/best", params={"as_of": before})
        assert [row["key"] for row in answer.json()["records"]] == [OLD]
        assert [row["key"] for row in (await server.client.get("/v1/boards/best")).json()["records"]] == [NEW]
        explained = (await server.client.get(f"/v1/boards/best/records/{NEW}/explanation")).text
        assert f"rename: {OLD} to {NEW}" in explained
        last, begun = await AuditTrail(server.store).last(2)
        assert (last.what, last.key, last.before) == ("renamed", OLD, {"to": NEW})
        assert (sorted(last.after["boards"]), last.after["refused"]) == (["a", "all", "b", "best", "contest"], [])
        assert begun.after == {"act": "renamed"}
        for member in (OLD, NEW):  # the journal still has the old name in the past
            await command(settings, "erase", "--member", member, "--yes")
            await server.check()
        assert await server.has(NEW) == EMPTY


async def test_a_vote_for_the_member_keeps_the_old_name_there(valkey_url: str, tmp_path: Path) -> None:
    """The other boards have the new name. So has the title, which the old name keeps too."""
    async with serve(valkey_url, tmp_path) as server:
        await server.fill(OLD)
        await server.client.post("/v1/events", json={"key": OLD, "type": "vote", "actor": "me"})
        printed = json.loads(await command(server.settings, "rename", OLD, NEW, "--yes", "--json", status=1))
        assert {one["board"]: "votes" in one["fault"] for one in printed["boards"]} == {
            "a": False, "b": False, "best": False, "contest": True, "all": False
        }  # fmt: skip
        left, found = await server.has(OLD), await server.has(NEW)
        assert left == {**EMPTY, "contest": (1, False, FULL["contest"][2]), "title": True}
        assert found == {**FULL, "contest": (0, False, None)}
        await server.check()


async def test_a_board_that_refuses_is_renamed_by_the_next_run(valkey_url: str, tmp_path: Path) -> None:
    """A frozen board keeps the old name, and so does the union that adds it up."""
    async with serve(valkey_url, tmp_path) as server:
        await server.fill(OLD)
        await server.client.patch("/v1/boards/a", json={"frozen": True})
        found, _ = await server.rename(OLD, NEW)
        assert [one.board for one in found if one.fault] == ["a", "all"]
        left, there = await server.has(OLD), await server.has(NEW)
        for name in ("a", "all"):
            assert (left[name], there[name]) == (FULL[name], EMPTY[name])
        await server.client.patch("/v1/boards/a", json={"frozen": False})
        await server.rename(OLD, NEW)
        assert (await server.has(OLD), await server.has(NEW)) == (EMPTY, FULL)
        await server.check()


@pytest.mark.parametrize("zeros", [False, True])
async def test_a_union_moves_nothing_while_a_part_refuses(valkey_url: str, tmp_path: Path, zeros: bool) -> None:  # noqa: FBT001
    """Nobody knows how much of what the union holds comes from this part: here the part began earlier."""
    async with serve(valkey_url, tmp_path) as server:
        client = server.client
        for name in ("early", "late"):
            await client.put(f"/v1/boards/{name}", json={"types": [name], "zeros": zeros})
        await server.send(OLD, "early")
        await client.put("/v1/boards/both", json={"union": ["early", "late"], "zeros": zeros})
        await server.send(OLD, "early")
        await client.patch("/v1/boards/early", json={"frozen": True})
        said = await command(server.settings, "merge", OLD, NEW, "--yes", status=1)
        assert "both: NOT changed: it adds up early, which refuses" in said
        shown = (await client.get("/v1/boards/both")).json()["records"]
        assert [(row["key"], row["score"]) for row in shown] == [(OLD, 1)]
        await client.patch("/v1/boards/early", json={"frozen": False})
        await command(server.settings, "merge", OLD, NEW, "--yes")
        shown = (await client.get("/v1/boards/both")).json()["records"]
        assert [(row["key"], row["score"]) for row in shown if row["score"]] == [(NEW, 1)]
