"""Events of the official CloudEvents SDK over HTTP: counted in both JSON modes, once per source and id."""

import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio
from cloudevents.core.bindings.http import HTTPMessage, to_structured_event
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from tests.harness.boards import rolling_board
from tests.harness.server import server

pytestmark = pytest.mark.asyncio(loop_scope="module")  # all tests of this file share one server

BATCH = {"content-type": "application/cloudevents-batch+json"}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client(valkey_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server with two boards; likes feed the first board."""
    async with server(valkey_url, rolling_board(), rolling_board(board="other")) as client:
        yield client


def event(member: str, **attributes: Any) -> CloudEvent:
    """A like made by the SDK, with its own id."""
    data = attributes.pop("data", None)
    return CloudEvent({"type": "like", "source": "/tests", "subject": member, **attributes}, data)


def batch(*events: CloudEvent) -> HTTPMessage:
    """Events in batched mode, which the SDK lacks: an array of its structured events."""
    return HTTPMessage(BATCH, b"[" + b",".join(JSONFormat().write(event) for event in events) + b"]")


MODES: dict[str, Callable[[CloudEvent], HTTPMessage]] = {
    "structured": to_structured_event,
    "batched": batch,
}


async def send(client: httpx.AsyncClient, message: HTTPMessage) -> dict[str, Any]:
    """Post a message; returns the answer."""
    response = await client.post("/v1/events", content=message.body, headers=message.headers)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def score(client: httpx.AsyncClient, member: str, board: str = "posts") -> int:
    """The score of a member; 0 if it is not on the board."""
    response = await client.get(f"/v1/boards/{board}/records/{member}")
    return int(response.json()["score"]) if response.status_code == 200 else 0


@pytest.mark.parametrize("mode", MODES)
async def test_an_event_of_the_sdk_counts(client: httpx.AsyncClient, mode: str) -> None:
    """The event may have any data and an amount. If the event is sent again, it is a duplicate."""
    member = f"caf\u00e9 \u20ac \U0001f600 100% {mode}"
    for number, data in enumerate([None, {"a": 1}, "text", b"\x00\xff"]):
        message = MODES[mode](event(member, id=f"{mode}-{number}", amount=10, data=data))
        first, second = await send(client, message), await send(client, message)
        assert (first["accepted"], first["duplicate"], first["rejected"]) == (1, 0, [])
        assert (second["accepted"], second["duplicate"], second["rejected"]) == (0, 1, [])
        assert await score(client, member) == 10 * (number + 1)


async def test_the_identity_is_the_same_in_every_mode(client: httpx.AsyncClient) -> None:
    """The source and the id determine the identity, also in plain JSON. Another source has its own ids."""
    one, other = event("same", id="7"), event("same", id="7", source="/others")
    for make in MODES.values():
        await send(client, make(one))
        await send(client, make(other))
    plain = {"key": "same", "id": "7", "source": "/tests"}
    answer = (await client.post("/v1/events", json=plain)).json()
    assert (answer["accepted"], answer["duplicate"]) == (0, 1)
    assert await score(client, "same") == 2


@pytest.mark.parametrize("mode", MODES)
async def test_the_time_of_an_event_counts(client: httpx.AsyncClient, mode: str) -> None:
    """An event in the window counts, an event before the window is late, and an event in the future is early."""
    now = datetime.now(UTC)
    fates = {}
    for days in (-0.5, -3, 1):
        answer = await send(client, MODES[mode](event("timed", board="posts", time=now + timedelta(days=days))))
        fates[days] = [refusal["code"] for refusal in answer["rejected"]]
    assert fates == {-0.5: [], -3: ["late"], 1: ["early"]}


@pytest.mark.parametrize("mode", MODES)
async def test_board_and_type_select_the_board(client: httpx.AsyncClient, mode: str) -> None:
    """The attributes `board` and `type` select the board, like the fields of plain JSON."""
    named = await send(client, MODES[mode](event(f"named-{mode}", board="other", actor="ann")))
    assert list(named["offsets"]) == ["other"]
    strange = await send(client, MODES[mode](event("strange", type="com.example.never")))
    assert [refusal["code"] for refusal in strange["rejected"]] == ["type_unknown"]


async def test_an_invalid_event_of_a_batch_is_refused_alone(client: httpx.AsyncClient) -> None:
    """The refusal has the event's index. All other events count."""
    bad = CloudEvent({"type": "like", "source": "/tests"})  # the event has no subject
    answer = await send(client, batch(event("good"), bad, event("good")))
    assert answer["accepted"] == 2
    assert [(refusal["index"], refusal["code"]) for refusal in answer["rejected"]] == [(1, "event_invalid")]


async def test_the_content_type_is_case_insensitive(client: httpx.AsyncClient) -> None:
    """It may name UTF-8."""
    message = to_structured_event(event("structured"))
    headers = {"content-type": "Application/CloudEvents+JSON; charset=UTF-8"}
    assert (await send(client, HTTPMessage(headers, message.body)))["accepted"] == 1


async def test_an_unknown_event_format_is_refused(client: httpx.AsyncClient) -> None:
    """Avro is a format of CloudEvents, but not supported."""
    response = await client.post("/v1/events", content=b"x", headers={"content-type": "application/cloudevents+avro"})
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")


async def test_an_invalid_body_is_refused(client: httpx.AsyncClient) -> None:
    """Both JSON modes refuse the body. A batch has the same limits as any body."""
    types = ["application/cloudevents+json", "application/cloudevents-batch+json"]
    for media_type in types:
        response = await client.post("/v1/events", content=b'{"id":', headers={"content-type": media_type})
        assert (response.status_code, response.json()["code"]) == (400, "malformed_body")
    many = json.dumps([{}] * 1001)
    response = await client.post("/v1/events", content=many, headers=BATCH)
    assert (response.status_code, response.json()["code"]) == (413, "too_many_events")
