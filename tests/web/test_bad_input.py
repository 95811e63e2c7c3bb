"""Bad input: each with its exact answer; none is a fault of the server, none writes, none makes a key elsewhere."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from live.errors import PROBLEMS, REFUSALS
from live.settings import Settings
from live.store.client import connect
from tests.support import fresh_settings, rolling_board, run_server

JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
MAX_BODY = 20_000
DEEP = 100_000


@asynccontextmanager
async def server(store: str, **changes: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Settings]]:
    """A server with the one board `posts`; afterwards its prefix holds that board's keys and no other."""
    own = fresh_settings(store, **{"max_body": MAX_BODY, **changes})
    async with run_server(own, [rolling_board()]) as url, httpx.AsyncClient(base_url=url, timeout=30) as client:
        assert (await client.get("/readyz")).status_code == 200  # the board has been opened
        yield client, own
    keys = await stored(own)
    assert all(key.startswith(f"{own.key_prefix}:{{posts}}:") for key in keys)


async def stored(own: Settings) -> dict[str, Any]:
    """Everything in the store under a prefix, byte for byte."""
    client: Any = connect(own.store, own)
    keys = sorted([key async for key in client.scan_iter(match=f"{own.key_prefix}*", count=1000)])
    found = {key.decode(): await client.dump(key) for key in keys}
    await client.aclose()
    return found


def problem(code: str, detail: str) -> dict[str, Any]:
    """The exact body of a refused request."""
    status, title = PROBLEMS[code]
    return {"type": "about:blank", "title": title, "status": status, "code": code, "detail": detail}


def refusal(code: str, detail: str, index: int = 0) -> dict[str, Any]:
    """The exact answer to a body of one event that is refused."""
    return {"index": index, "code": code, "detail": detail}


def key_event(key: str) -> bytes:
    """An event with a key, as JSON without escapes."""
    return json.dumps({"key": key}, ensure_ascii=False).encode()


UNREADABLE: dict[str, tuple[bytes, str]] = {
    "NaN": (b'{"key":"a","amount":NaN}', "JSON is malformed: NaN is not JSON"),
    "Infinity": (b'{"key":"a","amount":Infinity}', "JSON is malformed: Infinity is not JSON"),
    "-Infinity": (b'{"key":"a","amount":-Infinity}', "JSON is malformed: -Infinity is not JSON"),
    "empty": (b"", "the body is empty"),
    "blank": (b" \r\n\t", "the body is empty"),
    "bad UTF-8": (b'{"key":"\xff"}', "not UTF-8: byte 8 can't be read"),
    "byte order mark": (b'\xef\xbb\xbf{"key":"a"}', "JSON is malformed: Expecting value: line 1 column 1 (char 0)"),
    "deep body": (b"[" * 9_000, "JSON is nested too deeply"),
    "two values": (b'{"key":"a"}{"key":"b"}', "more than one JSON value; send an array, or application/x-ndjson"),
    "cut short": (b'{"key":"a"', "JSON is malformed: Expecting ',' delimiter: line 1 column 11 (char 10)"),
}

BAD_EVENTS: dict[str, tuple[bytes, str, str]] = {
    "1e400": (b'{"key":"a","amount":1e400}', "event_invalid", "Number out of range - at `$.amount`"),
    "1.0": (b'{"key":"a","amount":1.0}', "event_invalid", "Expected `int`, got `float` - at `$.amount`"),
    "1e2": (b'{"key":"a","amount":1e2}', "event_invalid", "Expected `int`, got `float` - at `$.amount`"),
    "true": (b'{"key":"a","amount":true}', "event_invalid", "Expected `int`, got `bool` - at `$.amount`"),
    "null": (b'{"key":"a","amount":null}', "event_invalid", "Expected `int`, got `null` - at `$.amount`"),
    "text": (b'{"key":"a","amount":"1"}', "event_invalid", "Expected `int`, got `str` - at `$.amount`"),
    "2^53+1": (
        b'{"key":"a","amount":9007199254740993}',
        "event_invalid",
        "Expected `int` <= 9007199254740992 - at `$.amount`",
    ),
    "-2^53-1": (
        b'{"key":"a","amount":-9007199254740993}',
        "event_invalid",
        "Expected `int` >= -9007199254740992 - at `$.amount`",
    ),
    "5,000 digits": (
        b'{"key":"a","amount":' + b"9" * 5000 + b"}",
        "event_invalid",
        "Integer value out of range - at `$.amount`",
    ),
    "lone surrogate": (
        rb'{"key":"\ud800"}',
        "event_invalid",
        "the event's JSON can't be read: Input data was truncated",
    ),
    "duplicate field": (b'{"key":"a","key":"b"}', "field_duplicate", "the field `key` stands twice"),
    "duplicate by escape": (rb'{"key":"a","\u006bey":"a"}', "field_duplicate", "the field `key` stands twice"),
    "unknown field": (b'{"key":"a","x":1}', "event_invalid", "Object contains unknown field `x`"),
    "no key": (b'{"amount":1}', "event_invalid", "Object missing required field `key`"),
    "not an object": (b"5", "event_invalid", "Expected `object`, got `int`"),
    "empty key": (b'{"key":""}', "key_invalid", "key is empty"),
    "long key": (key_event("k" * 1025), "key_invalid", "key has 1025 bytes; at most 1024 are taken"),
    "long key in bytes": (key_event("é" * 513), "key_invalid", "key has 1026 bytes; at most 1024 are taken"),
    "NUL": (rb'{"key":"a\u0000b"}', "key_invalid", "key holds the control or format character U+0000"),
    "line feed": (rb'{"key":"a\nb"}', "key_invalid", "key holds the control or format character U+000A"),
    "delete": (key_event("a\x7f"), "key_invalid", "key holds the control or format character U+007F"),
    "C1": (key_event("a\x85"), "key_invalid", "key holds the control or format character U+0085"),
    "bidi override": (key_event("a\u202eb"), "key_invalid", "key holds the control or format character U+202E"),
    "bidi isolate": (key_event("a\u2066b"), "key_invalid", "key holds the control or format character U+2066"),
    "zero width": (key_event("a\u200bb"), "key_invalid", "key holds the control or format character U+200B"),
    "line separator": (key_event("a\u2028b"), "key_invalid", "key holds the control or format character U+2028"),
    "tag": (key_event("a\U000e0041"), "key_invalid", "key holds the control or format character U+E0041"),
    "not NFC": (key_event("e\u0301"), "key_invalid", "key is not in Unicode normalization form NFC"),
    "no such type": (b'{"key":"a","type":"vote"}', "type_unknown", REFUSALS["type_unknown"]),
    "time without offset": (
        b'{"key":"a","time":"2026-01-01T00:00:00"}',
        "event_invalid",
        "Expected `datetime` with a timezone component - at `$.time`",
    ),
    "long ago": (b'{"key":"a","time":"1969-01-01T00:00:00Z"}', "late", REFUSALS["late"]),
    "far ahead": (b'{"key":"a","time":"9999-12-31T23:59:59Z"}', "early", REFUSALS["early"]),
    **{
        f"board {board!r}": (
            json.dumps({"key": "a", "board": board}).encode(),
            "board_unknown",
            REFUSALS["board_unknown"],
        )
        for board in ("{}", "*", "{a}b", "a}b{c", "../", "", "a" * 65, "posts\r\nX: y", "[posts]", "posts:x")
    },
}


@pytest.mark.parametrize("name", UNREADABLE)
async def test_a_body_that_cannot_be_read_is_400(valkey_url: str, name: str) -> None:
    """What is not JSON is refused as a whole, and nothing in the store moves."""
    body, detail = UNREADABLE[name]
    async with server(valkey_url) as (client, own):
        before = await stored(own)
        response = await client.post("/v1/events", content=body, headers=JSON)

        assert response.headers["content-type"] == "application/problem+json"
        assert (response.status_code, response.json()) == (400, problem("malformed_body", detail))
        assert await stored(own) == before


@pytest.mark.parametrize("name", BAD_EVENTS)
async def test_a_bad_event_is_refused_alone(valkey_url: str, name: str) -> None:
    """Alone it is named and nothing in the store moves; between two good ones they count, and it is named by index."""
    event, code, detail = BAD_EVENTS[name]
    async with server(valkey_url) as (client, own):
        before = await stored(own)
        alone = await client.post("/v1/events", content=event, headers=JSON)
        assert alone.status_code == 200
        assert alone.json() == {
            "accepted": 0, "duplicate": 0, "rejected": [refusal(code, detail)], "offsets": {},
        }  # fmt: skip
        assert await stored(own) == before

        array = b'[{"key":"good"}, %b ,{"key":"fine"}]' % event
        lines = b'{"key":"good"}\n%b\n\n{"key":"fine"}\n' % event
        for offset, (body, headers) in enumerate(((array, JSON), (lines, NDJSON)), 1):
            response = await client.post("/v1/events", content=body, headers=headers)
            assert response.json() == {
                "accepted": 2, "duplicate": 0, "rejected": [refusal(code, detail, 1)], "offsets": {"posts": offset},
            }  # fmt: skip
        board = (await client.get("/v1/boards/posts")).json()
        assert [(record["key"], record["score"]) for record in board["records"]] == [("fine", 2), ("good", 2)]


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity", "byte order mark", "two values", "cut short"])
async def test_a_line_that_is_not_json_is_refused_alone(valkey_url: str, name: str) -> None:
    """In NDJSON each line is a document of its own; in an array the same refuses the whole body."""
    event, _ = UNREADABLE[name]
    async with server(valkey_url) as (client, own):
        response = await client.post(
            "/v1/events", content=b'{"key":"good"}\n%b\n{"key":"fine"}' % event, headers=NDJSON
        )
        answer = response.json()
        assert (answer["accepted"], [refused["index"] for refused in answer["rejected"]]) == (2, [1])
        assert answer["rejected"][0]["code"] == "event_invalid"

        before = await stored(own)
        whole = await client.post("/v1/events", content=b'[{"key":"good"},%b]' % event, headers=JSON)
        assert (whole.status_code, whole.json()["code"]) == (400, "malformed_body")
        assert await stored(own) == before


@pytest.mark.parametrize(
    "body",
    [
        b"[" * DEEP,
        b"[" * DEEP + b"]" * DEEP,
        b'{"key":' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"x":' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"a":' * DEEP,
        b'[{"key":' + b"[" * DEEP + b"]" * DEEP + b"}]",
    ],
    ids=["open", "array", "value", "unknown field", "objects", "inside an array"],
)
@pytest.mark.parametrize("headers", [JSON, NDJSON], ids=["json", "ndjson"])
async def test_deep_nesting_is_refused(valkey_url: str, body: bytes, headers: dict[str, str]) -> None:
    """A hundred thousand brackets are an ordinary mistake."""
    async with server(valkey_url, max_body=1 << 20) as (client, own):
        before = await stored(own)
        response = await client.post("/v1/events", content=body, headers=headers)

        if headers is JSON:
            assert (response.status_code, response.json()) == (
                400, problem("malformed_body", "JSON is nested too deeply"),
            )  # fmt: skip
        else:
            assert response.status_code == 200
            assert [refused["code"] for refused in response.json()["rejected"]] == ["event_invalid"]
        assert await stored(own) == before


def padded(size: int) -> bytes:
    """A good body of a size."""
    return b'{"key":"a"}' + b" " * (size - 11)


async def chunked(body: bytes) -> AsyncIterator[bytes]:
    """A body that does not say how long it is."""
    for start in range(0, len(body), 4096):
        yield body[start : start + 4096]


TOO_LARGE = problem("body_too_large", f"the setting max_body allows {MAX_BODY} bytes, unpacked")


async def test_a_body_may_be_as_large_as_the_limit_and_no_larger(valkey_url: str) -> None:
    """Exactly the limit passes; one byte more is 413, with a length, in chunks, or unpacked; nothing is written."""
    packed = {**JSON, "Content-Encoding": "gzip"}
    async with server(valkey_url) as (client, own):
        for body, headers in (
            (padded(MAX_BODY), JSON),
            (chunked(padded(MAX_BODY)), JSON),
            (gzip.compress(padded(MAX_BODY)), packed),
        ):
            response = await client.post("/v1/events", content=body, headers=headers)
            assert (response.status_code, response.json().get("accepted")) == (200, 1)

        before = await stored(own)
        for body, headers in (
            (padded(MAX_BODY + 1), JSON),
            (chunked(padded(MAX_BODY + 1)), JSON),
            (gzip.compress(padded(MAX_BODY + 1)), packed),
            (zlib_bomb(200_000_000)[:MAX_BODY], packed),
            (gzip.compress(padded(900)) + gzip.compress(b" " * MAX_BODY), packed),
        ):
            response = await client.post("/v1/events", content=body, headers=headers)
            assert (response.status_code, response.json()) == (413, TOO_LARGE)
        assert await stored(own) == before


def zlib_bomb(size: int) -> bytes:
    """A little gzip that unpacks to very many zeros."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packer.flush()


async def test_gzip_that_is_none_is_400(valkey_url: str) -> None:
    """A body that is not gzip, or ends too soon, can't be read."""
    packed = {**JSON, "Content-Encoding": "gzip"}
    async with server(valkey_url) as (client, own):
        before = await stored(own)
        cut = await client.post("/v1/events", content=gzip.compress(padded(500))[:-9], headers=packed)
        plain = await client.post("/v1/events", content=padded(500), headers=packed)

        assert (cut.status_code, cut.json()) == (400, problem("malformed_body", "the gzip body is cut short"))
        assert (plain.status_code, plain.json()["code"]) == (400, "malformed_body")
        assert await stored(own) == before


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/jsonx"},
        {"Content-Type": "application/json; charset=latin-1"},
        {**JSON, "Content-Encoding": "br"},
        {**JSON, "Content-Encoding": "gzip, gzip"},
    ],
    ids=str,
)
async def test_a_body_of_another_type_is_415(valkey_url: str, headers: dict[str, str]) -> None:
    """What is not named as JSON is not read as JSON: a form on another site can't post."""
    async with server(valkey_url) as (client, own):
        before = await stored(own)
        response = await client.post("/v1/events", content=b'{"key":"a"}', headers=headers)

        assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")
        assert await stored(own) == before


@pytest.mark.parametrize(("headers", "join"), [(JSON, (b"[", b",", b"]")), (NDJSON, (b"", b"\n", b""))], ids=str)
async def test_too_many_events_are_refused_together(
    valkey_url: str, headers: dict[str, str], join: tuple[bytes, bytes, bytes]
) -> None:
    """A thousand events pass; one more, good or bad, and nothing of the body counts."""
    opening, comma, closing = join
    async with server(valkey_url, max_body=1 << 20) as (client, own):
        for last in (b'{"key":"a"}', b'{"bad":1}'):
            before = await stored(own)
            body = opening + comma.join([b'{"key":"a"}'] * 1000 + [last]) + closing
            response = await client.post("/v1/events", content=body, headers=headers)
            detail = "1001 events in one body; the setting max_events allows 1000"
            assert (response.status_code, response.json()) == (413, problem("too_many_events", detail))
            assert await stored(own) == before
        full = await client.post(
            "/v1/events", content=opening + comma.join([b'{"key":"a"}'] * 1000) + closing, headers=headers
        )
        assert full.json()["accepted"] == 1000


@pytest.mark.parametrize("board", ["{}", "*", "{a}b", "a}b{c", "..%2f", "a\r\nX: y", "[", "A", "a:b", "a" * 65])
async def test_a_board_in_a_path_is_looked_up_not_trusted(valkey_url: str, board: str) -> None:
    """An id that no board has is a 404 on every route, and makes no key."""
    async with server(valkey_url) as (client, own):
        before = await stored(own)
        for path in ("/v1/boards/{}", "/v1/boards/{}/records/a", "/v1/boards/{}/live", "/boards/{}", "/embed/{}"):
            response = await client.get(path.format(quote(board, safe="")))
            assert response.status_code == 404
            if path.startswith("/v1/"):
                assert response.json()["code"] in {"board_not_found", "not_found"}
        assert await stored(own) == before


def test_no_body_makes_the_server_fail(valkey_url: str) -> None:
    """Thousands of bodies, of random bytes and of JSON gone wrong: never a 5xx, never a key elsewhere."""
    pieces = st.sampled_from(
        rb'''{ } [ ] , : "key" "a" "amount" 1 - e9 .5 null \u0 " NaN {"key":"a"} "time" "2026-01-01T00:00:00Z"'''.split()
        + [b"\xff", b"\n", b" ", b"\x00"]
    )
    bodies = st.one_of(st.binary(max_size=60), st.lists(pieces, max_size=14).map(b"".join))

    async def drive() -> None:
        async with server(valkey_url) as (client, _):

            @settings(max_examples=3000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            @given(body=bodies, kind=st.sampled_from([JSON, NDJSON, {**JSON, "Content-Encoding": "gzip"}]))
            def post_all(body: bytes, kind: dict[str, str]) -> None:
                request = client.post("/v1/events", content=body, headers=kind)
                response = asyncio.run_coroutine_threadsafe(request, loop).result(20)
                assert response.status_code in {200, 400, 413}, response.text

            loop = asyncio.get_running_loop()
            await asyncio.to_thread(post_all)

    asyncio.run(drive())
