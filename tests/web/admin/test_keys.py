"""The page of API keys and tokens. They work like keys and tokens from the API, and are shown only once."""

import asyncio
import hashlib
import os
import re
from html import unescape
from typing import Any

import httpx
import msgspec
import pytest

from live.settings import TokenSecret
from live.store.registry.producers import refused_name
from tests.harness.admin import Administrator, add_key, administrator, fields_of, trail_of, uses_of
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually, until_early


def made(html: str) -> list[str]:
    """The secrets that a page shows now."""
    note = html.partition('<div class="note good"')[2].partition("</div>")[0]
    return [unescape(text) for text in re.findall(r"<code>(.*?)</code>", note)]


async def run_command(command: str, key: str) -> Any:
    """Run a command that the page shows, with `$KEY`. Returns what the server answers."""
    process = await asyncio.create_subprocess_shell(
        command.replace("curl ", "curl -s ", 1), env={**os.environ, "KEY": key}, stdout=asyncio.subprocess.PIPE
    )
    answer, _ = await process.communicate()
    return msgspec.json.decode(answer) if answer else None


def same(entry: Any) -> Any:
    """Return an entry without its times, its author, its address and its fingerprint."""
    text = re.sub(r'"(fingerprint|created|expires)":"[^"]*"', r'"\1":""', msgspec.json.encode(entry).decode())
    return msgspec.json.decode(text) | {"at": 0, "who": "", "address": ""}


async def post_as(browser: Administrator, key: str, board: str) -> int:
    """Post an event with an API key; returns the status, 207 if the event was refused."""
    headers = {"Authorization": f"Bearer {key}"}
    answer = await browser.client.post("/v1/events", json={"key": "a", "board": board}, headers=headers)
    return 207 if answer.status_code == 200 and answer.json()["rejected"] else answer.status_code


async def test_a_key_is_made_shown_once_and_revoked(valkey_url: str) -> None:
    """The form logs the same entries as the command that the page shows.

    The answer to a wrong form lists all mistakes, and no API key is made.
    """
    settings = fresh_settings(valkey_url)
    await until_early("day")  # a time of yesterday would be shown with its date
    key = await add_key(settings, "chief")
    async with administrator(settings, key=key) as browser:
        wrong = await browser.act(
            "keys", "add", id="shop", boards="Posts,none", rate="-1", sources="a\u202eb", verb_post="1"
        )
        assert wrong.status_code == 422
        detail = wrong.text.partition('class="lines" lang="en">')[2].partition("<code>")[0]
        assert len(detail.split("\n")) == 4, detail
        assert 'value="Posts,none"' in wrong.text
        assert (await browser.act("keys", "add", id="No id")).status_code == 422
        assert [entry.what for entry in await trail_of(settings)] == ["signed_in"]
        choices = {"id": "shop", "boards": "posts", "verb_post": "1", "verb_read": "1", "rate": "500", "for": "30d"}
        page = await browser.act("keys", "add", **choices)
        (secret,) = made(page.text)
        assert secret.startswith("shop.")
        assert len(re.findall(r"created \d\d:\d\d(?::\d\d)? UTC<", page.text)) == 2
        assert re.search(r"until \d+ \w+ \d{4}, \d\d:\d\d(?::\d\d)? UTC<", page.text)
        assert secret not in (await browser.get("keys")).text + (await browser.get("log")).text
        command = await browser.send(
            "keys", {**fields_of(page.text, "add"), **choices, "id": "shoptwo", "act": "preview"}
        )
        shown = re.search(r'<pre id="add-command"[^>]*><code>(.*?)</code>', command.text, re.DOTALL)
        assert shown is not None
        other = (await run_command(unescape(shown[1]), key))["key"]
        mine, theirs = (same(entry) for entry in reversed((await trail_of(settings))[:2]))
        assert mine == msgspec.json.decode(msgspec.json.encode(theirs).replace(b"shoptwo", b"shop"))

        async def accepted() -> bool:
            return await post_as(browser, secret, "posts") == await post_as(browser, other, "posts") == 200

        await eventually(accepted)
        assert await post_as(browser, secret, "other") == 207
        await browser.act("keys", "add", id="shop")
        third = await browser.act("keys", "add", id="shop")
        assert third.status_code == 422, "a third secret was accepted"
        fingerprint = fields_of((await browser.get("keys")).text, "revoke")
        assert fingerprint["id"] == "chief"
        held = re.findall(r'name="id" value="shop"><input type="hidden" name="secret" value="(\w+)"', third.text)
        assert len(held) == 2
        assert (await browser.act("keys", "revoke", id="shop", secret=held[0])).status_code == 303
        (revoking,) = re.findall(
            r"<code>(curl -X DELETE [^<]*shop\?secret[^<]*)</code>", (await browser.get("keys")).text
        )
        assert await run_command(unescape(revoking), key) is None
        assert [entry.what for entry in (await trail_of(settings))[:3]] == ["key_revoked", "key_revoked", "key_added"]

        async def refused() -> bool:
            return await post_as(browser, secret, "posts") == 401

        await eventually(refused)


async def test_a_viewer_token_opens_its_boards(valkey_url: str) -> None:
    """The link with the token opens the boards, also from its QR code. The audit log does not contain the token."""
    settings = fresh_settings(valkey_url, token_secret=TokenSecret("s" * 32))
    key = await add_key(settings, "chief")
    async with administrator(settings, key=key) as browser:
        async with httpx.AsyncClient(base_url=browser.client.base_url) as other:
            headers = {"Authorization": f"Bearer {key}"}
            await other.put("/v1/boards/staff", json={"visibility": "private"}, headers=headers)
            wrong = await browser.act("keys", "sign", opens="Staff!", length="90d", member="a\u202eb")
            assert wrong.status_code == 422
            page = await browser.act("keys", "sign", opens="staff", length="1h", member="Ada")
            token, link = made(page.text)
            assert 'role="img"' in page.text
            assert "<svg" in page.text
            assert (await other.get("/boards/staff")).status_code == 404
            assert (await other.get(link)).status_code == 303
            assert (
                await other.get("/v1/boards/staff", headers={"Authorization": f"Bearer {token}"})
            ).status_code == 200
        entry = (await trail_of(settings))[0]
        assert (entry.what, entry.key, entry.after["boards"]) == ("token_signed", "Ada", ["staff"])
        body = {"likes": ["Cup"], "sub": "u-81"}
        answer = await browser.client.post("/v1/tokens", json=body, headers={"Authorization": f"Bearer {key}"})
        assert (answer.status_code, answer.json()["detail"].startswith("likes: 'Cup' is neither")) == (422, True)
        voting = await browser.act("keys", "sign", opens="", length="1h", member="", likes="cup", sub="u-81")
        assert (voting.status_code, 'role="img"' in voting.text) == (200, False)
        signed = (await trail_of(settings))[0].after
        digest = hashlib.sha256(f"{signed['salt']}u-81".encode()).hexdigest()
        assert (signed["likes"], signed["actor_sha256"]) == (["cup"], digest)
        assert token not in msgspec.json.encode(await trail_of(settings)).decode()


async def test_requests_beyond_the_rate_of_a_key_are_counted(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page and `GET /v1/keys` show how many events and reads of an API key were refused."""
    monkeypatch.setattr("live.auth.authenticator._NOTING", 0.0)
    monkeypatch.setattr("live.auth.rates.READ_BURST", 20_000.0)
    settings = fresh_settings(valkey_url, read_rate=0.001)
    chief, slow = (
        await add_key(settings, "chief"),
        await add_key(settings, "slow", verbs=("post",), rate=0.001, burst=1),
    )
    async with administrator(settings, key=chief) as browser:
        headers = {"Authorization": f"Bearer {slow}"}
        events = [(await post_as(browser, slow, "posts")) for _ in range(2)]
        reads = [(await browser.client.get("/v1/boards/posts", headers=headers)).status_code for _ in range(22)]
        assert (events, reads) == ([200, 429], [200] * 20 + [429] * 2)

        async def noted() -> bool:  # read from the store, because the API would refuse reads above the rate
            return (await uses_of(settings)).get(refused_name("slow")) == 3

        await eventually(noted)
        answer = await browser.client.get("/v1/keys", headers={"Authorization": f"Bearer {chief}"})
        assert {one["id"]: one["refused"] for one in answer.json()["keys"]} == {"chief": 0, "slow": 3}
        assert "3 requests refused by its rate" in (await browser.get("keys")).text
