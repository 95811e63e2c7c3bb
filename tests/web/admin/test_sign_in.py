"""Signing in to the admin page: who may sign in, what a session is, how it ends, and which forms are refused."""

import hashlib
import time

import httpx
import msgspec
import pytest

from live.auth.authenticator import Authenticator
from live.domain.producer import anonymous
from live.store.board.keys import SystemKeys
from live.store.connection.client import connect
from live.store.registry.producers import ProducerStore
from live.store.registry.sessions import Session
from live.web.admin import routes
from tests.harness.admin import OWN, Administrator, add_key, administrator, fields_of, trail_of
from tests.harness.mutation import must_be_caught, replaced
from tests.harness.settings import fresh_settings
from tests.harness.waiting import eventually

JUNE = "boards/june"
OTHER = "https://other.example"


async def has_session(browser: Administrator) -> bool:
    """Whether the browser is signed in."""
    return (await browser.get()).status_code == 200


async def test_a_session_is_a_cookie_of_which_the_store_has_only_a_digest(valkey_url: str) -> None:
    """The pages of a session are for one reader, never compressed, and never in a frame.

    A form sends the API key, and the audit log notes that somebody signed in.
    """
    settings = fresh_settings(valkey_url)
    key, poster = await add_key(settings, "chief"), await add_key(settings, "shop", verbs=("post",))
    async with administrator(settings) as browser:
        asked = await browser.get("log")
        assert (asked.status_code, asked.headers["cache-control"]) == (401, "no-store")
        assert 'name="back" value="/admin/log"' in asked.text
        assert (await browser.client.get(f"/admin?key={key}")).status_code == 401
        for wrong, status in ((poster, 403), (f"{key}x", 403), ("", 403), ("é", 403)):
            answer = await browser.sign_in(wrong)
            assert (answer.status_code, "set-cookie" in answer.headers) == (status, False)
        answer = await browser.client.post("/admin/session", data={"key": key, "back": "/admin/log"}, headers=OWN)
        assert (answer.status_code, answer.headers["location"]) == (303, "/admin/log")
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "Path=/", "SameSite=strict"} <= set(cookie.split("; "))
        page = await browser.get(**{"Accept-Encoding": "gzip"})
        assert page.status_code == 200
        assert page.headers["cache-control"] == "private, no-store"
        assert "content-encoding" not in page.headers
        assert page.headers["referrer-policy"] == "no-referrer"
        policy = page.headers["content-security-policy"]
        assert all(part in policy for part in ("frame-ancestors 'none'", "form-action 'self'", "default-src 'none'"))
        store = connect(valkey_url, settings)
        name = SystemKeys(settings.key_prefix).sessions
        (digest, held) = await store.call(name, "HGETALL", name)
        secret = cookie.partition("=")[2].partition(";")[0]
        assert len(secret) == 22
        assert digest.decode() == hashlib.sha256(secret.encode()).hexdigest()
        assert msgspec.json.decode(held, type=Session).id == "chief"
        assert not any(text.encode() in digest + held for text in (secret, key, key.partition(".")[2]))
        await store.aclose()
        assert [(entry.who, entry.what, entry.address) for entry in await trail_of(settings)] == [
            ("chief", "signed_in", "127.0.0.1")
        ]


async def check_refusals(browser: Administrator, key: str) -> None:
    """Send forms of other origins, of frames, of earlier sessions and of other acts. All of them must be refused."""
    form = fields_of((await browser.get(JUNE)).text, "freeze")
    origin = str(browser.client.base_url).rstrip("/")
    foreign: list[dict[str, str]] = [
        {"Sec-Fetch-Site": "cross-site", "Origin": OTHER}, {"Sec-Fetch-Site": "same-site", "Origin": origin},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "iframe", "Origin": "null"}, {"Origin": OTHER},
        {"Origin": "null"}, {"Sec-Fetch-Site": "none"}, {},
    ]  # fmt: skip
    for headers in foreign:
        assert (await browser.send(JUNE, form, headers)).status_code == 403, headers
        answer = await browser.client.post("/admin/session", data={"key": key}, headers=headers)
        assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
    old = {**form, "token": "0" * 32}
    unbound = {**form, "act": "delete", "id": "june"}
    for fields in (old, unbound, {**form, "token": ""}, {"act": "freeze"}, {"x": "y"}):
        answer = await browser.send(JUNE, fields)
        assert answer.status_code == 403, fields
    assert (await browser.send("boards/july", form)).status_code == 403
    assert "frozen" not in (await browser.client.get("/v1/boards/june?limit=1")).text
    boards = {one["board"]: one for one in (await browser.client.get("/v1/boards")).json()["boards"]}
    assert not boards["june"]["frozen"]


async def test_only_forms_of_this_session_and_page_do_anything(valkey_url: str) -> None:
    """The session's cookie alone is not enough, wherever a form comes from."""
    settings = fresh_settings(valkey_url)
    key = await add_key(settings, "chief")
    async with administrator(settings, key=key) as browser:
        async with httpx.AsyncClient(base_url=browser.client.base_url) as api:
            for board in ("june", "july"):
                answer = await api.put(
                    f"/v1/boards/{board}", json={"types": [board]}, headers={"Authorization": f"Bearer {key}"}
                )
                assert answer.status_code == 201
        await check_refusals(browser, key)
        earlier = fields_of((await browser.get(JUNE)).text, "freeze")
        for _ in range(7):  # correct API keys do not use up the allowance for wrong keys
            assert (await browser.sign_in(key)).status_code == 303
        assert (await browser.send(JUNE, earlier)).status_code == 403, "a form of an earlier session was accepted"
        with must_be_caught("origins are not checked"), replaced(routes, "require_own_form", lambda _request: None):
            await check_refusals(browser, key)
        await browser.act(JUNE, "freeze")  # the mutant has frozen the board; this form thaws it
        with must_be_caught("a token fits any session"), replaced(routes, "require_token", lambda _desk: None):
            await check_refusals(browser, key)


async def test_a_session_ends_with_its_key_its_time_and_everywhere(valkey_url: str) -> None:
    """A session also ends after half an hour without use.

    Requests that the page makes by itself do not count as use.
    """
    settings = fresh_settings(valkey_url)
    key = await add_key(settings, "chief")
    producers_store, name = connect(valkey_url, settings), SystemKeys(settings.key_prefix).sessions

    async def shift(**ago: int) -> None:
        """Change the only session as if it were older."""
        digest, held = await producers_store.call(name, "HGETALL", name)
        now = time.time()
        changed = msgspec.json.decode(held) | {field: int(now) - seconds for field, seconds in ago.items()}
        await producers_store.call(name, "HSET", name, digest, msgspec.json.encode(changed))

    async def used() -> int:
        (held,) = await producers_store.call(name, "HVALS", name)
        return msgspec.json.decode(held, type=Session).used

    async with administrator(settings, key=key) as browser:
        await shift(used=29 * 60)
        before = await used()
        assert (await browser.get(**{"X-Refresh": "1"})).status_code == 200
        assert await used() == before
        assert await has_session(browser)
        assert await used() > before
        for ago in ({"used": 31 * 60}, {"created": 12 * 3600 + 1}):
            await shift(**ago)
            assert not await has_session(browser)
            assert await producers_store.call(name, "HLEN", name) == 0
            await browser.sign_in(key)
        async with httpx.AsyncClient(base_url=browser.client.base_url) as client:
            second = Administrator(client)
            await second.sign_in(key)
            answer = await second.send("session/end", fields_of((await second.get("log")).text, "everywhere"))
            assert answer.status_code == 303
            assert not await has_session(second)
        assert not await has_session(browser)
        await browser.sign_in(key)
        out = await browser.send("session/end", fields_of((await browser.get()).text, "out"))
        assert (out.status_code, await has_session(browser)) == (303, False)
        await browser.sign_in(key)
        await ProducerStore(producers_store).revoke("chief")

        async def ended() -> bool:
            return not await has_session(browser)

        await eventually(ended)
        chief = anonymous("", 0, admin=True)
        with must_be_caught("a revoked key"), replaced(Authenticator, "holder", lambda *_: chief):
            assert not await has_session(browser)
    await producers_store.aclose()


async def test_an_address_has_five_wrong_keys_a_minute(valkey_url: str) -> None:
    """After five wrong API keys, even the correct API key gets 429, so that an attacker can't go on guessing."""
    settings = fresh_settings(valkey_url)
    key = await add_key(settings, "chief")
    async with administrator(settings) as browser:
        assert [(await browser.sign_in("chief.wrong")).status_code for _ in range(6)] == [403] * 5 + [429]
        answer = await browser.sign_in(key)
        assert (answer.status_code, int(answer.headers["retry-after"]) > 0) == (429, True)


@pytest.mark.parametrize(
    ("page", "local", "proxied", "plain"),
    [("off", 404, 404, 404), ("local", 401, 404, 404), ("on", 401, 401, 404)],
)
async def test_the_setting_says_who_may_open_the_page(
    valkey_url: str, page: str, local: int, proxied: int, plain: int
) -> None:
    """The page is opened on this machine, through a proxy with TLS, and under another name without TLS."""
    settings = fresh_settings(
        valkey_url, admin_page=page, trusted_proxies=("127.0.0.1",),
        allowed_hosts=("board.example.org",),
    ) if page != "local" else fresh_settings(valkey_url, allowed_hosts=("board.example.org",))  # fmt: skip
    key = await add_key(settings, "chief")
    through = {"Host": "board.example.org", "X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"}
    async with administrator(settings) as browser:
        assert (await browser.get()).status_code == local
        assert (await browser.get(**through)).status_code == proxied
        assert (await browser.get(Host="board.example.org")).status_code == plain
        if page == "on":
            async with administrator(fresh_settings(valkey_url, admin_page="on", role="viewers")) as elsewhere:
                assert (await elsewhere.get()).status_code == 404
            answer = await browser.sign_in(key, **through)
            cookie = answer.headers["set-cookie"]
            assert cookie.startswith("__Host-live-admin-")
            assert {"Secure", "Path=/"} <= set(cookie.split("; "))
            assert (await trail_of(settings))[0].address == "192.0.2.7"
