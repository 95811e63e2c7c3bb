"""Whatever a server receives, its answers are never server errors, and all match /openapi.json."""

import asyncio
import gzip
import json
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import httpx
import jsonschema_rs
import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from live.domain.event import Answer
from live.errors import PROBLEMS, REFUSALS
from live.http.reply import ProblemBody
from live.web.contract.documents import openapi_document
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings
from tests.harness.waiting import DEADLINE

pytestmark = pytest.mark.slow

AT_ONCE = 10

Headers = list[tuple[bytes, bytes]]
Sent = tuple[Headers, bytes]


@pytest.fixture(scope="module")
def server(valkey_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server process, which must be ready at the end and must not have logged errors."""
    process = ServerProcess(
        fresh_settings(valkey_url, rate=0, anonymous_admin=True, journal="sqlite"), tmp_path_factory.mktemp("fuzz")
    )
    process.start()
    httpx.post(f"{process.url}/v1/events", json={"key": "a"}).raise_for_status()
    yield process
    log = process.log()
    assert httpx.get(f"{process.url}/readyz").status_code == HTTPStatus.OK
    assert process.stop() == 0
    assert [line for line in log.splitlines() if "failed" in line or "Traceback" in line] == []


@pytest.fixture(scope="module")
def api(server: ServerProcess) -> Any:
    """The contract as read from the server. It generates valid and invalid requests."""
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json", config=SchemathesisConfig())


# An invalid request has an invalid parameter or body. So an operation has no invalid request if it takes no parameter
# and no body, or only a path that accepts any text. Streams are left out because they have no end, and the live route
# refuses the same requests.
ASKED = [
    (path, method, mode)
    for path, methods in openapi_document()["paths"].items()
    for method, operation in methods.items()
    for mode in GenerationMode
    if not path.endswith("/stream")
    and (
        mode.is_positive
        or "requestBody" in operation
        or any(parameter["in"] != "path" for parameter in operation["parameters"])
    )
]
THERE = {"board": "posts", "key": "a", "id": "1"}
MADE = "made"  # the tests change this board, which has a contestant
CONTEST = {"types": ["vote"], "window": "forever", "like_button": True, "votes": {"per_key": 1, "registered": True}}
CONFORMANCE = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.mark.parametrize(("path", "method", "mode"), ASKED)
def test_every_answer_is_as_the_contract_says(
    server: ServerProcess, api: Any, effort: int, path: str, method: str, mode: GenerationMode
) -> None:
    """The contract allows the status, content type, header fields and document, for valid and invalid requests."""
    item = {"title": "A"}
    # Other requests may have voted for the contestant, who then cannot be deleted.
    assert httpx.delete(f"{server.url}/v1/boards/{MADE}").status_code in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND}
    for made, body in ((f"/v1/boards/{MADE}", CONTEST), (f"/v1/boards/{MADE}/records/a", {}), ("/v1/items/a", item)):
        httpx.put(f"{server.url}{made}", json=body).raise_for_status()
    is_contest = method in {"put", "patch", "delete"} or path.endswith(("/entrants", "/votes"))
    known = {**THERE, "board": MADE} if is_contest else THERE
    wanted = {
        "live": {HTTPStatus.UPGRADE_REQUIRED},
        "likes": {HTTPStatus.FORBIDDEN},
        "preferences": {HTTPStatus.SEE_OTHER},
        "t": {HTTPStatus.FORBIDDEN},  # the server has no secret for tickets
        "{id}": {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT},  # nobody has sent the event
        "history": {HTTPStatus.OK, HTTPStatus.BAD_REQUEST},  # most generated times are in the future, or too far apart
    }.get(path.rpartition("/")[2], {HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT})
    if path.startswith(("/v1/keys", "/v1/tokens")):
        wanted = {HTTPStatus.FORBIDDEN}  # a request without an API key may not make an API key or a token
    statuses: set[int] = set()
    with requests.Session() as session:

        def ask(case: schemathesis.Case[Any], there: bool, most: int) -> None:  # noqa: FBT001 - whether board and member exist
            # The server would refuse a generated API key with 401 before it looks at the rest.
            case.headers.pop("Authorization", None)
            case.path_parameters.update({name: known[name] for name in case.path_parameters if there})
            if mode.is_positive and path == "/v1/boards/{board}" and isinstance(case.body, dict):
                # Many random choices contradict each other, so most boards have only some of them.
                case.body = dict(list(case.body.items())[:most])
            if there and api[path][method].definition.raw["operationId"].endswith("ByQuery"):
                case.query["key"] = known["key"]
            statuses.add(case.call_and_validate(session=session, timeout=180, checks=CONFORMANCE).status_code)

        for examples in (min(12 * effort, 150), 150):
            is_there, most = st.sampled_from((True, True, False)), st.sampled_from((1, 2, 3, 100))
            asked = given(api[path][method].as_strategy(mode), is_there, most)(ask)
            settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))(asked)()
            if mode.is_negative or wanted & statuses:
                return
    pytest.fail(f"no valid request succeeded: {statuses}")


TEXTS: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    "member": ("/v1/items", "put", lambda text: {"items": [{"key": text, "title": "A"}]}),
    "title of a member": ("/v1/items/{key}", "put", lambda text: {"title": text}),
    "title of a board": ("/v1/boards/{board}", "put", lambda text: CONTEST | {"title": text}),
    "new title of a board": ("/v1/boards/{board}", "patch", lambda text: {"title": text}),
    "event type": ("/v1/boards/{board}", "put", lambda text: CONTEST | {"types": [text]}),
    "category": ("/v1/boards/{board}", "put", lambda text: CONTEST | {"category": [text]}),
}  # fmt: skip
READABLE = ["posts", "é", "क\u094d\u200cष", "👩\u200d💻", "a b", "<b>"]
REFUSED = [f"a{character}b" for character in "\0\n\x1b\x7f\x9b\xad\u061c\u200b\u2028\u202e\u2066\ufeff"]


@pytest.fixture
def texts_board(server: ServerProcess) -> None:
    """A board whose texts the tests change."""
    httpx.put(f"{server.url}/v1/boards/texts", json=CONTEST).raise_for_status()


@pytest.mark.usefixtures("texts_board")
@pytest.mark.parametrize("name", TEXTS)
def test_the_contract_allows_the_texts_that_the_server_takes(server: ServerProcess, name: str) -> None:
    """A client that follows the contract sends no control or format characters."""
    document = openapi_document()
    path, method, body_with = TEXTS[name]
    (media_type, *_) = (content := document["paths"][path][method]["requestBody"]["content"])
    validator = jsonschema_rs.validator_for({**content[media_type]["schema"], "components": document["components"]})
    for text in READABLE + REFUSED:
        url = server.url + path.format(board="texts", key="a")
        taken = httpx.request(
            method, url, json=body_with(text), headers={"Content-Type": media_type}, timeout=DEADLINE
        ).is_success
        assert taken == (text in READABLE), repr(text)
        assert validator.is_valid(body_with(text)) == taken, repr(text)


texts = st.sampled_from(
    ["a", "b", "like", "posts", "1.0", "1", "", "\0", "\u202e", "e\u0301", "caf\u00e9", "\ud800"]
) | st.text(max_size=8)
numbers = st.integers() | st.sampled_from([0, 1, -1, 2**53, 2**53 + 1, -(2**64), 10**400]) | st.floats(allow_nan=False)
times = st.sampled_from(["now", "2026-11-21T12:00:00Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"])
scalars = st.none() | st.booleans() | texts | numbers | times
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))


def fields(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    """An object with some known fields of valid and invalid values, and some unknown fields."""
    strange = st.dictionaries(texts, values, max_size=2)
    known = st.fixed_dictionaries({}, optional=dict.fromkeys(names, scalars))
    return st.builds(lambda left, right: {**left, **right}, strange, known) | known


plain = fields(
    "key", "amount", "type", "board", "time", "id", "source", "actor", "category", "fields", "metadata", "replaces"
).map(lambda event: {"key": "a", **event})  # fmt: skip
cloud = fields(
    "subject", "amount", "type", "board", "time", "id", "source", "actor", "data", "data_base64", "replaces"
).map(lambda event: {"specversion": "1.0", "id": "1", "source": "/s", "type": "like", "subject": "a", **event})
plain_events = plain | values
cloud_events = cloud | values


def as_json(value: Any) -> bytes:
    """Return JSON in ASCII. Other characters are escaped, including lone surrogates."""
    return json.dumps(value).encode()


def as_lines(many: list[Any]) -> bytes:
    """Return NDJSON with a line for each value."""
    return b"\n".join(map(as_json, many))


def of_type(media_type: bytes, body: st.SearchStrategy[bytes]) -> st.SearchStrategy[Sent]:
    """Bodies of a content type."""
    return body.map(lambda data: ([(b"Content-Type", media_type)], data))


SCRAPS = rb'{ } [ ] , : " \ \u d800 e9 - NaN null {"key":"a"} "key" "id" "specversion" "subject" "time"'.split()
scraps = st.lists(st.sampled_from([*SCRAPS, b"\n", b"\0", b"\xff", b"[" * 2000]), max_size=12).map(b"".join)
raw = st.binary(max_size=60) | scraps
header_values = (
    st.binary(max_size=12).map(lambda value: bytes(byte for byte in value if byte >= 0x20 and byte != 0x7F).strip())
    | st.sampled_from([b"1", b"a", b"%ff", b"%C0%A0", b'"a\\"b"', b"Bearer a.b", b"gzip", b"100-continue"])
)  # fmt: skip
NAMES = b"Idempotency-Key Content-Encoding Authorization Content-Type Accept Origin Traceparent"
names = st.sampled_from(NAMES.split())
odd_headers = st.lists(st.tuples(names, header_values), max_size=4)
MEDIA_TYPES = [b"application/json", b"application/x-ndjson", b"application/cloudevents+json",
               b"application/cloudevents-batch+json", b"text/plain", b"application/json; charset=latin-1"]  # fmt: skip
well_formed = st.one_of(
    of_type(MEDIA_TYPES[0], plain_events.map(as_json)),
    of_type(MEDIA_TYPES[0], st.lists(plain_events, max_size=4).map(as_json)),
    of_type(MEDIA_TYPES[1], st.lists(plain_events, max_size=4).map(as_lines)),
    of_type(MEDIA_TYPES[2], cloud_events.map(as_json)),
    of_type(MEDIA_TYPES[3], st.lists(cloud_events, max_size=4).map(as_json)),
)


@st.composite
def posts(draw: st.DrawFn) -> Sent:
    """A request: most are valid, some are cut, compressed, of another type, or have odd headers."""
    headers, body = draw(well_formed)
    match draw(st.integers(0, 9)):
        case 0:
            headers = [*headers, *draw(odd_headers)]
        case 1:
            headers, body = [(b"Content-Type", draw(st.sampled_from(MEDIA_TYPES)))], draw(raw)
        case 2:
            headers, body = [*headers, (b"Content-Encoding", b"gzip")], gzip.compress(body, 1)
            body = body[: len(body) - draw(st.sampled_from([0, 0, 1, 9]))]
        case 3:
            at, until = sorted(draw(st.tuples(st.integers(0, len(body)), st.integers(0, len(body)))))
            body = body[:at] + draw(st.sampled_from([b"", body[at:until] * 2])) + body[until:]
        case 4:
            headers = [*headers, (b"Idempotency-Key", draw(st.sampled_from([b"a", b'"a"', b'"b', b"", b"c d"])))]
    return headers, body


class Line:
    """A connection that posts bodies with any header bytes, one after another, and reconnects when closed."""

    def __init__(self, url: str) -> None:
        self._address = url.removeprefix("http://")
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, headers: Headers, body: bytes) -> tuple[int, bytes, bytes]:
        """Post a body; returns the status, content type and document of the answer."""
        if self._streams is None:
            host, _, port = self._address.partition(":")
            self._streams = await asyncio.open_connection(host, int(port))
        reader, writer = self._streams
        fields = [(b"Host", self._address.encode()), (b"Content-Length", b"%d" % len(body)), *headers]
        writer.write(
            b"POST /v1/events HTTP/1.1\r\n%b\r\n%b" % (b"".join(b"%b: %b\r\n" % pair for pair in fields), body)
        )
        status, _, head = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
        answered = dict(line.lower().split(b": ", 1) for line in head.splitlines() if line)
        document = await reader.readexactly(int(answered[b"content-length"]))
        if answered.get(b"connection") == b"close":
            await self.close()
        return int(status.split()[1]), answered[b"content-type"], document

    async def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            await self._streams[1].wait_closed()
            self._streams = None


class Tally:
    """Checks answers, and counts them by code."""

    def __init__(self) -> None:
        self.answers: dict[str, int] = {}

    def check(self, status: int, media_type: bytes, document: bytes) -> None:
        """Check that an answer has a documented form."""
        if status == HTTPStatus.OK:
            assert media_type == b"application/json"
            answer = msgspec.json.decode(document, type=Answer)
            assert {rejection.code for rejection in answer.rejected} <= set(REFUSALS)
            code = "ok" if answer.accepted or answer.duplicate else "refused"
        else:
            assert media_type == b"application/problem+json"
            problem = msgspec.json.decode(document, type=ProblemBody)
            assert (status, problem.title) == PROBLEMS[problem.code]
            assert problem.status == status < HTTPStatus.INTERNAL_SERVER_ERROR
            code = problem.code
        self.answers[code] = self.answers.get(code, 0) + 1


def test_thousands_of_bodies_are_counted_or_refused(server: ServerProcess, effort: int) -> None:
    """Several bodies are sent at a time, over kept connections.

    Each answer is a count with refusals, or a client error.
    """
    bodies = min(1000 * effort, 10_000)
    tally = Tally()
    lines = [Line(server.url) for _ in range(AT_ONCE)]

    async def post(line: Line, sent: Sent) -> None:
        try:
            tally.check(*await asyncio.wait_for(line.post(*sent), DEADLINE))
        except Exception as error:
            error.add_note(f"The request: {sent}")
            raise

    async def post_all(many: list[Sent]) -> None:
        await asyncio.gather(*(post(line, sent) for line, sent in zip(lines, many, strict=True)))

    async def hang_up() -> None:
        for line in lines:
            await line.close()

    once = [Phase.generate]  # shrinking would again and again wait for an answer that never comes
    with asyncio.Runner() as loop:

        @settings(max_examples=bodies // AT_ONCE, deadline=None, suppress_health_check=list(HealthCheck), phases=once)
        @given(st.lists(posts(), min_size=AT_ONCE, max_size=AT_ONCE))
        def send(many: list[Sent]) -> None:
            loop.run(post_all(many))

        try:
            send()
        finally:
            loop.run(hang_up())
    assert sum(tally.answers.values()) >= bodies
    common = {"ok", "refused", "malformed_body", "unsupported_media_type", "idempotency_key_invalid"}
    assert common <= {code for code, count in tally.answers.items() if count >= bodies / 100}, tally.answers
