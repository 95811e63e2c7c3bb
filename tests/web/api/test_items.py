"""Titles, links and pictures of members: who may set them, what is refused, and where they are shown."""

import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from html import unescape
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from live.domain.item import Item, host_of, is_listed, item_faults
from live.domain.producer import Scope
from live.store.connection.client import connect
from live.store.registry.items import Items
from live.store.registry.producers import ProducerStore
from tests.harness.boards import rolling_board
from tests.harness.producer import post
from tests.harness.server import run_server, server, serving
from tests.harness.settings import fresh_settings

HOSTS = ("img.example.org", "*.cdn.example")
HOSTILE = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "' onclick='alert(1)", "{{ 7 * 7 }}", "שלום עולם",
    "a\u200db", "é" * 200, "=1+1", "</title><b>", "&amp;lt;",
)  # fmt: skip


@pytest.fixture
async def client(valkey_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client that may set titles, of a server with one board and some members."""
    async with server(valkey_url, anonymous_admin=True, image_hosts=HOSTS, max_items=5) as client:
        await post(client, {"key": "a", "amount": 3}, {"key": "b", "amount": 2}, {"key": "c"})
        yield client


async def put(client: httpx.AsyncClient, member: str, **item: Any) -> tuple[int, str]:
    """Give a member a title; returns the status and the code of a problem."""
    answer = await client.put(f"/v1/items/{member}", json=item)
    return answer.status_code, answer.json()["code"] if answer.content else ""


async def test_a_title_is_stored_read_and_deleted(client: httpx.AsyncClient) -> None:
    """Titles are stored one by one or several at once, independently of any board."""
    item = {"title": "A post", "url": "https://example.org/a?b=c#d", "image": "https://img.example.org/a.png"}
    assert await put(client, "x", **item) == (204, "")
    assert (await client.get("/v1/items/x")).json() == {"key": "x", **item}
    several = {"items": [{"key": "a/b", "title": "B"}, {"key": "é", "title": "C", "url": "https://[::1]:8443"}]}
    assert (await client.put("/v1/items", json=several)).status_code == 204
    found = await client.get("/v1/items", params={"key": ["é", "none", "x", "a/b", "x"]})
    assert [item["key"] for item in found.json()["items"]] == ["é", "x", "a/b"]
    assert (await client.get("/v1/items/a%2Fb")).json() == {"key": "a/b", "title": "B"}
    assert await put(client, "x", title="Other") == (204, "")
    assert (await client.get("/v1/items/x")).json() == {"key": "x", "title": "Other"}
    for _ in range(2):
        assert (await client.delete("/v1/items/x")).status_code == 204
        missing = await client.get("/v1/items/x")
        assert (missing.status_code, missing.json()["code"]) == (404, "item_not_found")


@pytest.mark.parametrize(
    "item",
    [
        {}, {"title": ""}, {"title": " "}, {"title": "\u200d"}, {"title": "\u3164\u2800"}, {"title": "a" * 201},
        {"title": "a\u202eb"}, {"title": "a\nb"}, {"title": "e\u0301"}, {"title": 5}, {"title": "a", "more": 1},
        *({"title": "a", "url": url} for url in (
            "javascript:alert(1)", "http://example.org", "//example.org", "https://", "data:text/html,x",
            "https://a b", 'https://a/"x', "https://a/<b>", "https://user@a", "https://a\\b", "https://a/é", " https://a",
            "https://a/\n", "https://a:999999", "https://a/" + "b" * 2048, "",
        )),
        *({"title": "a", "image": url} for url in (
            "https://example.org/a.png", "https://img.example.org.evil/a", "http://img.example.org/a",
            "https://img.example.org:8443/a", "https://cdn.example/a", "https://evilcdn.example/a", "data:image/png,x",
            "https://img.example.org@evil/a", "javascript:alert(1)",
        )),
    ],
)  # fmt: skip
async def test_an_invalid_item_is_refused(client: httpx.AsyncClient, item: dict[str, Any]) -> None:
    """If a request has valid items and an invalid item, no item is stored."""
    assert await put(client, "a", **item) == (422, "item_invalid")
    items = [{"key": "b", "title": "B"}, {"key": "a", **item}]
    assert (await client.put("/v1/items", json={"items": items})).json()["code"] == "item_invalid"
    assert (await client.get("/v1/items?key=a&key=b")).json() == {"items": []}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "malformed_body"), (b"[]", "malformed_body"), (b'{"title": "\xff"}', "malformed_body"),
        (b'{"title": ' + b"[" * 40 + b"]" * 40 + b"}", "malformed_body"),
    ],
)  # fmt: skip
async def test_a_body_that_is_not_an_object_is_refused(client: httpx.AsyncClient, content: bytes, code: str) -> None:
    """Requests for one member and for several members refuse such a body."""
    for path in ("/v1/items/a", "/v1/items"):
        assert (await client.put(path, content=content)).json()["code"] == code


async def test_lists_are_bounded(client: httpx.AsyncClient) -> None:
    """A list may not be empty, be too long, or name a member twice."""
    twice = {"items": [{"key": "a", "title": "A"}, {"key": "a", "title": "B"}]}
    many = {"items": [{"key": f"{number}", "title": "A"} for number in range(1001)]}
    nothing: dict[str, list[dict[str, str]]] = {"items": []}
    for body in (nothing, twice, many):
        assert (await client.put("/v1/items", json=body)).json()["code"] == "item_invalid"
    for query in ("", "?key=a" + "".join(f"&key={number}" for number in range(100))):
        assert (await client.get(f"/v1/items{query}")).json()["code"] == "parameter_invalid"


async def test_there_is_room_for_a_number_of_items(client: httpx.AsyncClient) -> None:
    """When there is no room, existing items can still change."""
    items = [{"key": f"{number}", "title": "A"} for number in range(5)]
    assert (await client.put("/v1/items", json={"items": items})).status_code == 204
    assert await put(client, "5", title="A") == (409, "too_many_items")
    assert await put(client, "4", title="B") == (204, "")
    assert (await client.put("/v1/items", json={"items": [*items[3:], {"key": "5", "title": "C"}]})).status_code == 409
    assert (await client.get("/v1/items/4")).json()["title"] == "B"


async def test_only_administrators_of_all_boards_set_titles(valkey_url: str) -> None:
    """Producers, administrators of some boards, and clients without an API key may not set titles."""
    settings = fresh_settings(valkey_url)
    store = connect(valkey_url, settings)
    producers = ProducerStore(store)
    keys = {
        name: f"{name}.{(await producers.add(name, scope))[1]}"
        for name, scope in (
            ("shop", Scope(verbs=("post",))),
            ("part", Scope(verbs=("admin",), boards=("posts",))),
            ("all", Scope(verbs=("admin",))),
        )
    }
    await store.aclose()
    async with serving(settings) as client:
        statuses = {}
        for name, key in {"nobody": "", **keys}.items():
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            statuses[name] = [
                (await client.put("/v1/items/a", json={"title": "A"}, headers=headers)).status_code,
                (
                    await client.put("/v1/items", json={"items": [{"key": "a", "title": "A"}]}, headers=headers)
                ).status_code,
                (await client.delete("/v1/items/a", headers=headers)).status_code,
            ]
    assert statuses == {"nobody": [401] * 3, "shop": [403] * 3, "part": [403] * 3, "all": [204] * 3}


@pytest.mark.parametrize("title", HOSTILE)
async def test_hostile_titles_are_shown_as_they_are(client: httpx.AsyncClient, title: str) -> None:
    """Titles are text on every page and in the table, and never HTML."""
    assert await put(client, "a", title=title, url="https://example.org/?a=1&b=1") == (204, "")
    for path in ("/boards/posts", "/boards/posts?display=wall", "/embed/posts", "/overlay/posts", "/",
                 "/boards/posts/records/a", "/boards/posts/records/b"):  # fmt: skip
        html = (await client.get(path)).text
        names = [
            unescape(re.sub("<[^>]+>", "", name)) for name in re.findall(r"<bdi[^>]*>(.*?)</bdi>", html, re.DOTALL)
        ]
        assert title in names
        assert "<script>alert" not in html
        assert "<img src=x" not in html
    assert (
        '<a href="https://example.org/?a=1&amp;b=1" rel="noopener nofollow">'
        in (await client.get("/boards/posts/records/a")).text
    )
    csv = (await client.get("/boards/posts/records.csv")).text.splitlines()
    assert csv[0] == "\ufeffrank,member,score,title"
    assert csv[2] == "2,b,2,"
    if title.startswith("="):
        assert csv[1] == f"1,a,3,'{title}"


async def test_pictures_come_from_listed_hosts(valkey_url: str) -> None:
    """The policy of each page allows only pictures of the listed hosts.

    Once a host is not listed any more, its pictures are gone, and the page of a record shows a letter instead.
    """
    settings = fresh_settings(valkey_url, anonymous_admin=True)
    before = "img-src 'self'; "
    async with serving(settings) as client:
        await post(client, {"key": "a"})
        assert before in (await client.get("/boards/posts")).headers["content-security-policy"]
        assert "title" not in (await client.get("/boards/posts/records.csv")).text
    listed = fresh_settings(valkey_url, anonymous_admin=True, image_hosts=HOSTS, key_prefix=settings.key_prefix)
    async with serving(listed) as client:
        assert await put(client, "a", title="été", image="https://x.cdn.example/a.png") == (204, "")
        for path in ("/boards/posts", "/embed/posts", "/overlay/posts", "/boards/posts/records/a", "/"):
            page = await client.get(path)
            (policy,) = page.headers.get_list("content-security-policy")
            assert "img-src 'self' https://img.example.org https://*.cdn.example;" in policy
            assert ("frame-ancestors *" in policy) == (path in {"/embed/posts", "/overlay/posts"})
            assert '<img class="picture" src="https://x.cdn.example/a.png" alt=""' in page.text
    async with serving(settings) as client:
        page = await client.get("/boards/posts")
        assert "cdn.example" not in page.text + page.headers["content-security-policy"]
        assert 'class="picture"' not in page.text
        record = await client.get("/boards/posts/records/a")
        assert '<span class="picture" aria-hidden="true">é</span>' in record.text


async def test_without_items_pages_ask_the_store_once_a_second(valkey_url: str) -> None:
    """At most once a second, pages ask the store whether there are items.

    If there are items, the process asks only for members whose items it does not know.
    """
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    commands: list[str] = []
    call, now = client.call, 0.0

    async def counting(key: str, *words: Any) -> Any:
        commands.append(str(words[0]))
        return await call(key, *words)

    client.call = counting  # type: ignore[method-assign]
    items = Items(client, 10, lambda: now)
    for _ in range(5):
        assert await items.of(["a", "b"]) == {}
    assert (commands, items.exist) == (["GET"], False)
    other = Items(connect(valkey_url, settings), 10)
    await other.put([Item("a", "A")])
    assert await items.of(["a"]) == {}
    now = 1.0
    assert await items.of(["a", "b"]) == {"a": Item("a", "A")} == await items.of(["b", "a"])
    # A member without an item is not remembered.
    assert (commands, items.exist) == (["GET", "GET", "HMGET", "HMGET"], True)
    await items.delete("a")
    assert await items.of(["a", "b"]) == {}
    await other._client.aclose()
    await client.aclose()


async def test_remembered_items_are_limited_in_bytes(valkey_url: str) -> None:
    """An item takes up to three kilobytes, so a limit on the number of items is not enough."""
    settings = fresh_settings(valkey_url)
    client = connect(valkey_url, settings)
    items = Items(client, 100)
    async with aclosing(client):
        await items.put([Item(f"k{number}", "A" * 200, f"https://example.org/{'x' * 1000}") for number in range(40)])
        with patch("live.store.registry.items._MOST_MEMORY", 20_000):
            for first in range(0, 40, 4):
                members = [f"k{number}" for number in range(first, first + 4)]
                assert list(await items.of([*members, "none"])) == members
                assert 0 < sum(len(item.title + (item.url or "")) for item in items._known.values()) <= 20_000


async def test_titles_stay_when_the_store_does_not_answer(valkey_url: str) -> None:
    """If the process can't read titles from the store, the page of the board is still served."""
    settings = fresh_settings(valkey_url, anonymous_admin=True)
    async with run_server(settings, [rolling_board()]) as url, httpx.AsyncClient(base_url=url) as client:
        await post(client, {"key": "a"})
        assert await put(client, "a", title="Ada") == (204, "")
        store: Any = connect(valkey_url, settings)
        await store.execute_command("DEL", f"{settings.key_prefix}:{{:items}}")
        await store.execute_command("SET", f"{settings.key_prefix}:{{:items}}", "no hash")
        await store.execute_command("INCR", f"{settings.key_prefix}:{{:items}}:version")
        await store.aclose()
        assert (await client.get("/boards/posts")).status_code == 200
        assert (await client.get("/v1/items?key=new")).status_code in {200, 503}


def test_the_host_of_a_url_is_found() -> None:
    """A host is in lower case, without the port.

    A pattern such as `*.cdn.example` matches only hosts below its domain, and `*` matches every host.
    """
    assert [host_of(url) for url in ("https://A.example", "HTTPS://a.example:8443/x", "https://[::1]/", "ftp://a")] == [
        "a.example", "a.example", "[::1]", None,
    ]  # fmt: skip
    matches = [is_listed(f"https://{host}/x", HOSTS) for host in ("IMG.example.org", "a.b.cdn.example", "cdn.example")]
    assert matches == [True, True, False]
    assert is_listed("https://anything.example/x", ["*"])
    assert list(item_faults(Item("", "A"), HOSTS)) == ["key is empty"]
