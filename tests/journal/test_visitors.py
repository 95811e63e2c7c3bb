"""The secret that signs the cookies of visitors outlives the store, so that nobody can like twice."""

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import httpx
import pytest

from live.auth import visitors
from live.auth.visitors import Visitors
from live.journal.log.definitions import DefinitionLog
from live.maintenance.recover import Recovery, Wanted
from live.store.board.keys import SystemKeys
from live.store.connection.client import connect
from tests.harness.journal_server import Machine
from tests.harness.journaled import Journaled, journaled
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.settings import fresh_settings
from tests.harness.waiting import DEADLINE, eventually
from tests.web.pages.test_likes import Visitor

BOARDS = """
[[board]]
id = "posts"
types = ["like"]
like_button = true
"""


async def is_restored(board: Journaled, wanted: Wanted) -> bool:
    """Lose the store, and recover it; returns whether the cookie of a visitor names the same visitor as before."""
    await board.like("a")
    visitors = Visitors(board.client)
    cookie = await visitors.make()
    visitor = await visitors.read(cookie)
    assert visitor is not None
    drainer = await board.drainer()
    await drainer.sweep()
    await drainer._definitions.follow()
    await drainer._definitions.follow()  # the secret has not changed, so SQL gets no second row
    async for name in board.client.names(f"{board.settings.key_prefix}:*"):
        await board.client.delete(name)
    work = Recovery(board.client, board.settings, board.databases[0], lambda *_: None)
    await work.recover(wanted)
    return await Visitors(board.client).read(cookie) == visitor


@pytest.mark.parametrize("wanted", [Wanted(), Wanted(board="posts")], ids=["everything", "one board"])
async def test_a_cookie_is_valid_after_a_recovery(valkey_url: str, tmp_path: Path, wanted: Wanted) -> None:
    """The cookie is valid even if boards are recovered one by one."""
    async with journaled(valkey_url, tmp_path) as board:
        assert await is_restored(board, wanted)
        rows = await board.databases[0].run(
            lambda sql: sql.exec_driver_sql("SELECT count(*) FROM definition WHERE kind = 'visitors'").scalar()
        )
        assert rows == 1


@pytest.mark.mutant
async def test_a_journal_without_the_secret_is_detected(valkey_url: str, tmp_path: Path) -> None:
    """In the mutant, every visitor could like again after a recovery."""
    right = DefinitionLog._copy

    async def forgetful(log: DefinitionLog, kind: str, *given: Any, **named: Any) -> None:
        if kind != "visitors":
            await right(log, kind, *given, **named)

    async with journaled(valkey_url, tmp_path) as board:
        with must_be_caught("the journal has no copy of the secret"), replaced(DefinitionLog, "_copy", forgetful):
            assert await is_restored(board, Wanted())


async def notices_a_change(url: str, deadline: float) -> None:
    """A process learns of another secret without a restart, and then accepts cookies that are signed with it."""
    settings = fresh_settings(url)
    client = connect(url, settings)
    here = Visitors(client)
    old = await here.make()
    assert await here.read(old) is not None
    await client.delete(SystemKeys(settings.key_prefix).visitors)
    new = await Visitors(client).make()
    try:
        await eventually(lambda: here.read(new), deadline)
        assert await here.read(old) is None
    finally:
        await client.aclose()


async def test_a_process_notices_another_secret(valkey_url: str) -> None:
    """The secret changes, for example, when a journal is restored while the process runs."""
    await notices_a_change(valkey_url, DEADLINE)


@pytest.mark.mutant
async def test_a_process_that_keeps_the_first_secret_is_detected(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant refuses the cookies of all other processes."""
    monkeypatch.setattr(visitors, "_FRESH", math.inf)
    with must_be_caught("a process reads the secret only once"):
        await notices_a_change(valkey_url, 2)


class Shop(Machine):
    """A server with a like button. Browsers reach it under one name, whichever port it has."""

    HOST = "shop.localhost"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "boards.toml").write_text(BOARDS)

    async def counts(self, visitor: Visitor) -> bool:
        """Whether a like counts; false if the visitor has liked the member before."""
        visitor.url = self.server.url
        return bool((await visitor.like("Ada", "posts")).json()["counted"])


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_nobody_likes_twice_after_a_restore(tmp_path: Path) -> None:
    """The cookie is valid where a backup is restored, and `void` and `erase` find the visitor by the cookie."""
    shop = Shop(tmp_path)
    await asyncio.to_thread(shop.server.start, "--open")
    other = None
    try:
        async with httpx.AsyncClient(base_url=shop.server.url) as client:
            await client.post("/v1/events", json={"type": "like", "key": "Ada", "amount": 5})
        visitor = Visitor(shop.server.url, host=Shop.HOST)
        assert await shop.counts(visitor)
        (held,) = visitor.cookies.jar
        cookie = held.value
        assert cookie is not None
        void = ("void", "--since", "2000-01-01T00:00:00Z", "--dry-run", "--json", "--actor")
        found = await asyncio.to_thread(shop.run, *void, cookie)
        assert json.loads(found.stdout)["boards"][0]["events"] == 1
        forged = f"{cookie[:-1]}{'0' if cookie[-1] != '0' else '1'}"
        refused = await asyncio.to_thread(shop.run, *void, forged)
        assert (refused.returncode, "signature of the cookie" in refused.stderr) == (1, True), refused.stderr

        backup = tmp_path / "backup"
        done = await asyncio.to_thread(shop.run, "backup", str(backup))
        assert done.returncode == 0, done.stderr
        shop.server.kill()
        (tmp_path / "other").mkdir()
        other = Shop(tmp_path / "other")
        done = await asyncio.to_thread(other.run, "restore", str(backup))
        assert (done.returncode, "erase them again" in done.stdout) == (0, True), done.stderr
        await asyncio.to_thread(other.server.start, "--open")
        assert not await other.counts(visitor)
        assert [*visitor.cookies.jar] == [held], "the visitor got another cookie"
        other.server.kill()
        refused = await asyncio.to_thread(other.run, "erase", "--yes", "--actor", forged)
        assert (refused.returncode, "signature of the cookie" in refused.stderr) == (1, True), refused.stderr
        erased = await asyncio.to_thread(other.run, "erase", "--yes", "--take-back", "--json", "--actor", cookie)
        assert json.loads(erased.stdout)["boards"][0]["events"] == 1, erased.stderr
    finally:
        shop.server.kill()
        if other is not None:
            other.server.kill()
