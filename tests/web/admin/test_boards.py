"""The pages of all boards, of one board, and of the audit log: what they show, and acts that do the same as the API."""

import asyncio
import os
import re
import tomllib
from html import unescape
from typing import Any

import httpx
import msgspec
import pytest

from live.boards.definitions import read_board
from live.domain.board_file import parse_boards
from live.store.registry.audit_trail import AuditEntry
from tests.harness.admin import add_key, administrator, trail_of
from tests.harness.producer import post
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

BOARDS = """
[[board]]
id = "posts"
title = "A <b>bold</b> title"
[[board]]
# id = "vote"
types = ["vote"]
id = "vote"
window = "forever"
votes = { per_key = 1, registered = true, closes = 2026-01-01T00:00:00Z }
"""
JUNE: dict[str, Any] = {
    "title": 'June "of" 2026', "types": ["request"], "window": {"calendar": "month", "timezone": "UTC"},
    "operator": "best", "score": [{"field": "levels", "max": 9}], "idle_ttl": "90d",
}  # fmt: skip


def what_is(entry: AuditEntry) -> AuditEntry:
    """An entry of the audit log without its time."""
    return msgspec.structs.replace(entry, at=0)


def shown_code(html: str) -> list[str]:
    """The commands and definitions on a page."""
    return [unescape(code) for code in re.findall(r"<pre[^>]*><code>(.*?)</code>", html, re.DOTALL)]


async def run(command: str, key: str) -> int:
    """Run a command that a page shows, with `$KEY`. Returns the status of the response."""
    words = command.replace("curl ", "curl -s -o /dev/null -w '%{http_code}' ", 1)
    process = await asyncio.create_subprocess_shell(
        words, env={**os.environ, "KEY": key}, stdout=asyncio.subprocess.PIPE
    )
    return int((await process.communicate())[0])


async def test_an_act_is_the_same_by_page_by_api_and_by_the_command_that_the_page_shows(
    valkey_url: str,
) -> None:
    """Each way leaves the same entry in the audit log."""
    settings = fresh_settings(valkey_url, root_path="/live")
    key = await add_key(settings, "chief", verbs=("admin", "post"))
    async with administrator(settings, *parse_boards(BOARDS), path="/live") as browser:
        assert (await browser.sign_in(key)).headers["location"] == "/live/admin"
        api = browser.client
        bearer = {"Authorization": f"Bearer {key}"}
        for board in ("june", "july"):
            assert (await api.put(f"/v1/boards/{board}", json=JUNE, headers=bearer)).status_code == 201
        page = await browser.get("boards/june")
        toml, put, freeze, delete = shown_code(page.text)
        assert parse_boards(toml).by_id["june"] == msgspec.structs.replace(read_board("june", JUNE), visibility=None)
        assert tomllib.loads(toml)["board"][0]["title"] == JUNE["title"]
        before = len(await trail_of(settings))
        assert await run(put, key) == 200
        assert len(await trail_of(settings)) == before, "a change without effect left an entry"
        for act, body in (("freeze", {"frozen": True}), ("freeze", {"frozen": False})):
            answer = await browser.act("boards/june", act)
            assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (
                303,
                "/live/admin/boards/june",
            )
            await api.patch("/v1/boards/july", json=body, headers=bearer)
            mine, same = (what_is(entry) for entry in reversed((await trail_of(settings))[:2]))
            assert msgspec.structs.replace(mine, board="july") == same
        assert len(await trail_of(settings)) == before + 4
        assert await run(freeze, key) == 200
        assert (await trail_of(settings))[0].what == "frozen"
        wrong = await browser.act("boards/june", "delete", id="jun")
        assert wrong.status_code == 422
        assert 'role="alert"' in wrong.text
        assert (await browser.act("boards/june", "delete", id=" june ")).headers["location"].startswith("/live/admin?")
        assert await run(delete.replace("june", "july"), key) == 204
        mine, same = (what_is(entry) for entry in reversed((await trail_of(settings))[:2]))
        assert (mine.what, mine.board, same.what, same.board) == ("deleted", "june", "deleted", "july")
        assert (await browser.get("boards/june")).status_code == 404
        table = (await browser.get()).text
        assert "A &lt;b&gt;bold&lt;/b&gt; title" in table
        assert "Voting has ended." in table


async def test_the_log_shows_acts_as_requests(valkey_url: str) -> None:
    """Each act is shown as the request that did it. The log can be filtered, and exports what it shows."""
    settings = fresh_settings(valkey_url, visibility="public")
    key = await add_key(settings, "chief", verbs=("admin", "post"))
    record, june = "/v1/boards/posts/records/Ada%20%3Ci%3E", "/v1/boards/june"
    async with administrator(settings, key=key) as browser:
        bearer = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=browser.client.base_url, headers=bearer) as api:
            await post(api, {"board": "posts", "key": "Ada <i>", "amount": 5}, {"board": "posts", "key": "Bo"})
            for method, path, body, shown in (
                ("PUT", june, {"types": ["request"]}, '"types":["request"]'),
                ("PATCH", june, {"title": "Other"}, '"title":"Other"'),
                ("PATCH", june, {"frozen": True}, '{"frozen":true}'),
                ("PATCH", record, {"add": -2, "reason": "twice <b>"}, '{"score":3,"reason":"twice <b>"}'),
                ("PATCH", record, {"hidden": True}, '{"hidden":true}'),
                ("PUT", "/v1/items/Ada%20%3Ci%3E", {"title": "<script>"}, '{"title":"<script>"}'),
                ("DELETE", "/v1/items/Ada%20%3Ci%3E", None, ""),
                ("DELETE", june, None, ""),
            ):
                assert (await api.request(method, path, json=body)).is_success
                page = (await browser.get("log")).text
                assert not any(text in page for text in ("twice <b>", "<script>", "Ada <i>"))
                newest = shown_code(page)[1]  # after the request for the whole log
                assert newest.startswith("curl -X PUT " if body == {"title": "Other"} else f"curl -X {method} ")
                assert path in newest
                assert shown in newest
            everything = (await api.get("/v1/trail?limit=1000")).json()["trail"]
        exported = (await browser.get("log?format=json")).json()["trail"]
        assert exported == everything
        some = await browser.client.get("/admin/log", params={"what": "frozen", "board": "june"})
        assert some.text.count("<li>\n<p><time") == 1
        assert (await browser.client.get("/admin/log?page=2&who=nobody")).text.count("<li>\n<p><time") == 0


async def test_a_limited_key_sees_and_does_only_what_it_may(valkey_url: str) -> None:
    """The API key sees only its own boards, with their figures and their entries of the audit log.

    Every other board is refused with 403, whether it is public, private or missing.
    """
    settings = fresh_settings(valkey_url)
    chief, two = await add_key(settings, "chief"), await add_key(settings, "two", "mine", "my-*", sources=("a",))
    async with administrator(settings, key=two) as browser:
        async with httpx.AsyncClient(
            base_url=browser.client.base_url, headers={"Authorization": f"Bearer {chief}"}
        ) as api:
            for board in ("mine", "my-own", "theirs"):
                await api.put(f"/v1/boards/{board}", json={"title": f"Of {board}", "visibility": "private"})
            union = {"union": ["mine", "theirs"], "visibility": "private"}
            assert (await api.put("/v1/boards/my-sum", json=union)).status_code == 201
            await api.put("/v1/items/a", json={"title": "A"})
        table = (await browser.get()).text
        assert {name for name in ("mine", "my-own", "theirs", "posts") if f"<code>{name}</code>" in table} == {
            "mine", "my-own",
        }  # fmt: skip
        assert "refused a second" not in table
        for other in ("theirs", "posts", "none"):
            assert (await browser.get(f"boards/{other}")).status_code == 403
        log = (await browser.get("log")).text
        assert "theirs" not in log
        assert "titled" not in log
        assert (await browser.act("boards/mine", "freeze")).status_code == 303
        assert "theirs" not in (await browser.get("boards/my-sum")).text, "the page names a part that is private"
        assert (await trail_of(settings))[0].who == "two"


async def test_a_red_part_leads_to_its_page(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the first page, a journal that is behind is red and links to `/admin/health`."""
    monkeypatch.setattr("live.web.admin.boards._LONGEST_LAG", -1.0)
    settings = fresh_settings(valkey_url, journal="sqlite")
    async with administrator(settings, key=await add_key(settings, "chief")) as browser:

        async def is_red() -> bool:  # once a process has reported the state of the journal
            red = (await browser.get()).text.partition('id="health"')[2].partition("</ul>")[0]
            return 'class="bad"><a href="/admin/health">' in red

        await eventually(is_red)


async def test_a_thousand_boards_have_pages(valkey_url: str) -> None:
    """Each page has a hundred boards, and a search finds one board among all."""
    settings = fresh_settings(valkey_url, max_boards=1000)
    key = await add_key(settings, "chief")
    text = "".join(f'[[board]]\nid = "board-{number:04}"\ntypes = ["s{number}"]\n' for number in range(1000))
    async with administrator(settings, *parse_boards(text), key=key) as browser:
        found = []
        for number in range(1, 12):
            page = (await browser.get(f"?page={number}")).text
            found += re.findall(r"<code>(board-\d+)</code>", page)
            assert page.count('rel="next"') == (number < 10)
        assert found == [f"board-{number:04}" for number in range(1000)]
        assert re.findall(r"<code>(board-\d+)</code>", (await browser.get("?q=0777")).text) == ["board-0777"]
