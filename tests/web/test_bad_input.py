"""Invalid events of every kind: the exact answer, nothing counted or written, and no effect on other events."""

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple, cast
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from live.errors import PROBLEMS, REFUSALS
from tests.harness.boards import rolling_board
from tests.harness.server import run_server
from tests.harness.settings import fresh_settings

pytestmark = pytest.mark.asyncio(loop_scope="module")  # all tests of this file share one server

JSON, LINES = {"Content-Type": "application/json"}, {"Content-Type": "application/x-ndjson"}
BEFORE, AFTER = b'{"key":"before"}', b'{"key":"after"}'
DEEP = b"[" * 20_000 + b"]" * 20_000
CONTROL = "key contains the control or format character U+"
NO_INT = "`amount`: expected a whole number, got {}"
NO_TIME = "`time`: expected a time with a time zone, such as 2026-11-22T12:00:00Z"
FIELDS = "there are: key, amount, type, board, time, id, source, actor, category, fields, metadata, replaces"
LISTING = "GET /v1/boards lists the boards that you may read, with their types and categories"
BOARDS = ["{}", "*", "{a}b", "a}b{c", "../", "a" * 65, "", "POSTS", "posts\n", "nope"]

# Each name maps to the event, the code and the detail.
REFUSED: dict[str, tuple[bytes, str, str]] = {
    "1e400": (b'{"key":"a","amount":1e400}', "event_invalid", "`amount`: the number is out of range"),
    "1.0": (b'{"key":"a","amount":1.0}', "event_invalid", NO_INT.format("a decimal number")),
    "true": (b'{"key":"a","amount":true}', "event_invalid", NO_INT.format("true or false")),
    "null": (b'{"key":"a","amount":null}', "event_invalid", NO_INT.format("null")),
    "text": (b'{"key":"a","amount":"1"}', "event_invalid", NO_INT.format("a text")),
    "2^53+1": (b'{"key":"a","amount":9007199254740993}', "event_invalid",
               "`amount`: expected a whole number <= 9007199254740992"),
    "-2^53-1": (b'{"key":"a","amount":-9007199254740993}', "event_invalid",
                "`amount`: expected a whole number >= -9007199254740992"),
    "5000 digits": (b'{"key":"a","amount":' + b"9" * 5000 + b"}", "event_invalid",
                    "`amount`: the number is out of range"),
    "no key": (b'{"amount":1}', "event_invalid", "the field `key` is missing"),
    "key null": (b'{"key":null}', "event_invalid", "`key`: expected a text, got null"),
    "unknown field": (b'{"key":"a","likes":1}', "event_invalid", f"there is no field `likes`; {FIELDS}"),
    "a number": (b"5", "event_invalid", "expected an object, got a whole number"),
    "an array": (b"[]", "event_invalid", "expected an object, got a list"),
    "no time": (b'{"key":"a","time":"now"}', "event_invalid", NO_TIME),
    "no zone": (b'{"key":"a","time":"2026-11-21T12:00:00"}', "event_invalid",
                NO_TIME),
    "long type": (b'{"key":"a","type":"' + b"t" * 257 + b'"}', "event_invalid",
                  "`type`: expected a text of length <= 256"),
    "empty key": (b'{"key":""}', "key_invalid", "key is empty"),
    "key of 1025": (b'{"key":"' + b"k" * 1025 + b'"}', "key_invalid", "key has 1025 bytes; at most 1024 are allowed"),
    **{f"U+{code}": (f'{{"key":"a{json.dumps(chr(int(code, 16)))[1:-1]}"}}'.encode(), "key_invalid", CONTROL + code)
       for code in ("0000", "000A", "007F", "202E", "2066", "200B", "2028", "FEFF", "E0041")},
    "not NFC": ('{"key":"e\u0301"}'.encode(), "key_invalid", "key is not in Unicode normalization form NFC"),
    "type": (b'{"key":"a","type":"hate"}', "type_unknown",
             f"{REFUSALS['type_unknown']}; there are the types: like"),
    **{f"board {board!r:.9}": (json.dumps({"key": "a", "board": board}).encode(), "board_unknown",
             f"{REFUSALS['board_unknown']}; {'did you mean `posts`?' if 'posts' in board else LISTING}")
       for board in BOARDS},
    "long ago": (b'{"key":"a","time":"1999-12-31T23:59:59Z"}', "late", REFUSALS["late"]),
    "year 9999": (b'{"key":"a","time":"9999-12-31T23:59:59Z"}', "early", REFUSALS["early"]),
}  # fmt: skip

# Each name maps to the event, the fault, and its position or None.
NO_JSON: dict[str, tuple[bytes, str, int | None]] = {
    **{name: (f'{{"key":"a","amount":{name}}}'.encode(), "invalid character", 20) for name in ("NaN", "Infinity")},
    "-Infinity": (b'{"key":"a","amount":-Infinity}', "invalid character", 21),
    "BOM": (b'\xef\xbb\xbf{"key":"a"}', "invalid character", 0),
    "control": (b'{"key":"a\x01b"}', "invalid character", 9),
    "python": (b"{'key':'a'}", "object keys must be strings", 1),
    "two values": (BEFORE + b" " + AFTER, "send several events as an array or as lines; more follows", 18),
    "cut": (b'{"key":', "it is cut short", None),
    "half a pair": (rb'{"key":"\ud800"}', "the text contains half of a surrogate pair", None),
    "two halves": (rb'{"key":"\ud800\ud800"}', "the text contains half of a surrogate pair", None),
    "low half": (rb'{"key":"\udc00 and more"}', "the text contains half of a surrogate pair", None),
}  # fmt: skip
DEEP_EVENTS = {
    "as the event": (DEEP, "expected an object, got a list"),
    "as the key": (b'{"key":' + DEEP + b"}", "`key`: expected a text, got a list"),
    "as a field": (
        b'{"deep":' + DEEP + b',"key":"a"}',
        f"there is no field `deep`; {FIELDS}",
    ),
}


class Server(NamedTuple):
    """A running server, with access to its store."""

    client: httpx.AsyncClient
    store: Redis
    prefix: str

    async def post(self, body: bytes, headers: dict[str, str]) -> httpx.Response:
        """Post a body."""
        return await self.client.post("/v1/events", content=body, headers=headers)

    async def keys(self) -> dict[bytes, bytes | None]:
        """Return every store key of this board with its value, except `baseline`.

        The server stores the baseline at its own time. Any other store key is the sender's rate or belongs to the whole
        server.
        """
        # Read with one command, because the sender's rate may expire between two commands.
        names = cast("list[bytes]", await self.store.keys("*"))
        own, rate, system = (f"{self.prefix}:{{{tag}".encode() for tag in ("posts}:", "rate:", ":"))
        assert all(name.startswith((own, rate, system)) for name in names)
        return {
            name: await self.store.dump(name) for name in names if name.startswith(own) and name != own + b"baseline"
        }

    async def position(self) -> tuple[int, int]:
        """The offset and the total score of the board."""
        page = (await self.client.get("/v1/boards/posts?limit=1")).json()
        return page["offset"], page["total_score"]

    async def refuses_whole(
        self, body: bytes, headers: dict[str, str], detail: str, code: str = "malformed_body"
    ) -> None:
        """Check the exact problem for a body, and that nothing was written."""
        before = await self.keys()
        response = await self.post(body, headers)
        status, title = PROBLEMS[code]
        assert response.json() == {
            "type": f"/docs#{code}", "title": title, "status": status, "code": code, "detail": detail,
            "retryable": False,
        }  # fmt: skip
        assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
        assert await self.keys() == before

    async def refuses_second(self, body: bytes, headers: dict[str, str], code: str, detail: str) -> None:
        """Send three events, and check that the first and last count, and how the second is refused."""
        offset, total = await self.position()
        response = await self.post(body, headers)
        assert response.status_code == 200
        assert response.json() == answer(2, {"posts": offset + 1}, {"index": 1, "code": code, "detail": detail})
        assert await self.position() == (offset + 1, total + 2)
        await self.keys()  # this checks that no other store keys were written


def answer(accepted: int, offsets: dict[str, int], *rejected: dict[str, Any]) -> dict[str, Any]:
    """The complete answer to a valid body."""
    refused = [{**one, "retryable": one["code"] == "early"} for one in rejected]  # an early event can count later
    return {"accepted": accepted, "duplicate": 0, "rejected": refused, "offsets": offsets}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def server(valkey_url: str) -> AsyncIterator[Server]:
    """Run a server with an opened board. It has its own database, because store keys of other tests can expire."""
    settings_ = fresh_settings(f"{valkey_url}?db=1")
    store = Redis.from_url(settings_.store)
    async with run_server(settings_, [rolling_board()]) as url, httpx.AsyncClient(base_url=url) as client:
        server = Server(client, store, settings_.key_prefix)
        await server.position()
        yield server
    await store.aclose()


@pytest.mark.parametrize("name", REFUSED)
async def test_an_invalid_event_is_refused(server: Server, name: str) -> None:
    """The body is the event, an array with the event, or a line. The answer has the reason, and the store no trace."""
    event, code, detail = REFUSED[name]
    bodies = [(b"[" + event + b"]", JSON), (event, LINES)] + ([] if event.startswith(b"[") else [(event, JSON)])
    before = await server.keys()
    for body, headers in bodies:
        response = await server.post(body, headers)
        assert response.status_code == 200
        assert response.json() == answer(0, {}, {"index": 0, "code": code, "detail": detail})
    assert await server.keys() == before


@pytest.mark.parametrize("name", REFUSED)
async def test_an_invalid_event_does_not_affect_others(server: Server, name: str) -> None:
    """The invalid event is between two valid events, in an array or as a line.

    The response names its index, and the valid events count.
    """
    event, code, detail = REFUSED[name]
    await server.refuses_second(b"[" + BEFORE + b" ,\n" + event + b"," + AFTER + b"]", JSON, code, detail)
    await server.refuses_second(BEFORE + b"\n" + event + b"\n" + AFTER, LINES, code, detail)


@pytest.mark.parametrize("name", NO_JSON)
async def test_invalid_json_refuses_the_body_or_its_line(server: Server, name: str) -> None:
    """The end of invalid JSON is unknown, so an array is refused as a whole.

    In a body of lines, only the invalid line is refused.
    """
    event, fault, at = NO_JSON[name]
    detail = f"JSON is malformed: {fault}{'' if at is None else f' (byte {at})'}"
    await server.refuses_whole(event, JSON, detail)
    await server.refuses_second(BEFORE + b"\n" + event + b"\n" + AFTER, LINES, "event_invalid", detail)
    response = await server.post(b"[" + BEFORE + b"," + event + b"," + AFTER + b"]", JSON)
    assert (response.status_code, response.json()["code"]) == (400, "malformed_body")


@pytest.mark.parametrize("name", DEEP_EVENTS)
async def test_deep_nesting_is_refused(server: Server, name: str) -> None:
    """Twenty thousand levels neither crash nor stall the server."""
    event, detail = DEEP_EVENTS[name]
    await server.refuses_whole(b"[" + BEFORE + b"," + event + b"]", JSON, "JSON is nested too deeply")
    await server.refuses_second(BEFORE + b"\n" + event + b"\n" + AFTER, LINES, "event_invalid", detail)


@pytest.mark.parametrize("headers", [JSON, LINES], ids=["json", "ndjson"])
async def test_an_empty_body_is_refused(server: Server, headers: dict[str, str]) -> None:
    """It may have white space."""
    for body in (b"", b" ", b"\n\r\t \n"):
        await server.refuses_whole(body, headers, "the body is empty")


@pytest.mark.parametrize("key", [b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf8"])
async def test_a_text_that_is_not_utf_8_is_refused(server: Server, key: bytes) -> None:
    """A line among others is refused alone. An array is refused as a whole."""
    event, detail = b'{"key":"%b"}' % key, "not UTF-8: byte {} can't be read"
    await server.refuses_whole(event, JSON, detail.format(8))
    await server.refuses_second(BEFORE + b"\n" + event + b"\n" + AFTER, LINES, "event_invalid", detail.format(8))
    array = b"[" + BEFORE + b"," + event + b"," + AFTER + b"]"
    await server.refuses_whole(array, JSON, detail.format(array.index(key)))


async def test_an_empty_array_is_valid(server: Server) -> None:
    """The server answers that it accepted no event, and changes nothing."""
    before = await server.keys()
    assert (await server.post(b" [ ] ", JSON)).json() == answer(0, {})
    assert await server.keys() == before


async def test_a_body_with_too_many_events_is_refused(server: Server) -> None:
    """A body with a thousand events is accepted. In a body with a thousand and one events, no event counts."""
    detail = "more than 1000 events in one body"
    for join, headers in (((b"[", b",", b"]"), JSON), ((b"", b"\n", b""), LINES)):
        opening, comma, closing = join
        await server.refuses_whole(opening + comma.join([BEFORE] * 1001) + closing, headers, detail, "too_many_events")
        offset, total = await server.position()
        passed = await server.post(opening + comma.join([BEFORE] * 1000) + closing, headers)
        assert passed.json() == answer(1000, {"posts": offset + 1})
        assert await server.position() == (offset + 1, total + 1000)


@pytest.mark.parametrize("board", BOARDS)
async def test_an_invalid_board_id_is_not_found(server: Server, board: str) -> None:
    """Routes of the API and pages answer a strange id with 404, and nothing is written."""
    before = await server.keys()
    for path in ("", "/records/a", "/live", "/stream"):
        response = await server.client.get(f"/v1/boards/{quote(board, safe='')}{path}")
        assert response.status_code == 404
        assert response.json()["code"] in {"board_not_found", "not_found"}
    page = await server.client.get(f"/boards/{quote(board, safe='')}")
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert await server.keys() == before


SCRAPS = rb'{ } [ ] , : " \ \u d800 e9 - NaN null {"key":"a"} "key" "amount" "time" 999999999999999999999999'.split()
scraps = st.sampled_from([*SCRAPS, b"\n", b"\x00", b"\xff"])
good = st.fixed_dictionaries(
    {"key": st.text(max_size=5)},
    optional={"amount": st.integers(), "type": st.text(max_size=5), "time": st.datetimes().map(str)},
)
good_bodies = st.lists(good, max_size=3).map(lambda events: json.dumps(events).encode())


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid body with some pieces removed, doubled or inserted."""
    body = draw(good_bodies)
    for _ in range(draw(st.integers(1, 3))):
        at, until = sorted(draw(st.tuples(st.integers(0, len(body)), st.integers(0, len(body)))))
        body = body[:at] + draw(st.one_of(scraps, st.binary(max_size=3), st.just(body[at:until] * 2))) + body[until:]
    return body


@pytest.mark.slow
@settings(max_examples=300)
@given(
    body=st.one_of(st.binary(max_size=80), st.lists(scraps, max_size=12).map(b"".join), mutated()), lines=st.booleans()
)
async def test_no_body_makes_the_server_fail(server: Server, body: bytes, *, lines: bool) -> None:
    """Every answer is a count or a refusal."""
    response = await server.post(body, LINES if lines else JSON)
    assert response.status_code in {200, 400}
    assert response.json().get("code", "malformed_body") == "malformed_body"
