"""A producer's WebSocket on our protocol and on the plain ASGI route."""

import random
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.frames import Opcode

from tests.harness.raw_socket import HANDSHAKE, PATH, RawSocket, close, frame, raw_socket, text
from tests.harness.wire import connected, likes, request
from tests.protocols.producing import MAX_BODY, ONE, next_answer, total


async def test_a_thousand_messages_are_answered_in_order(url: str, client: ClientConnection) -> None:
    """Single events, arrays, refused events and invalid JSON are all sent before the first answer is read."""
    chosen = random.Random(3)
    wanted: list[tuple[int, str]] = []
    for _ in range(1000):
        count = chosen.choice([1, 1, 1, 2, 5, 100])
        kind = chosen.choice(["", "", "", "key_invalid", "malformed_body"])
        body = {"": likes(count) if count > 1 else ONE, "key_invalid": b'{"key":""}', "malformed_body": b"{"}[kind]
        wanted.append((0 if kind else count, kind))
        await client.send(body.decode())
    found = [await next_answer(client) for _ in wanted]

    def result(answer: dict[str, Any]) -> tuple[int, str]:
        refused = answer.get("rejected") or [{"code": ""}]
        return answer.get("accepted", 0), answer.get("code", refused[0]["code"])

    assert [result(answer) for answer in found] == wanted
    offsets = [answer["offsets"]["posts"] for answer in found if answer.get("accepted")]
    assert offsets == sorted(offsets)
    assert await total(url) == sum(count for count, _ in wanted)


async def test_invalid_json_is_answered_and_the_socket_stays_open(client: ClientConnection) -> None:
    """The answer is the document of a POST, for text, for bytes, and for an empty message."""
    for message in ("{", b"{", "", b"", b'{"key":"\xff"}'):
        await client.send(message)
        answer = await next_answer(client)
        assert (answer["status"], answer["code"]) == (400, "malformed_body")
    await client.send(ONE)
    assert (await next_answer(client))["accepted"] == 1


async def test_an_id_counts_once(url: str, client: ClientConnection) -> None:
    """The event is repeated on the same socket and by POST."""
    event = '{"key":"a","id":"1","source":"s"}'
    await client.send(event)
    await client.send(event)
    assert [(await next_answer(client))["accepted"], (await next_answer(client))["duplicate"]] == [1, 1]
    async with httpx.AsyncClient(base_url=url) as http:
        assert (await http.post("/v1/events", json=msgspec.json.decode(event))).json()["duplicate"] == 1
    assert await total(url) == 1


async def test_a_message_may_be_fragmented(client: ClientConnection) -> None:
    """It is text or bytes, with pings in between, a split character, and whole messages before and after."""

    async def pieces(body: bytes) -> AsyncIterator[bytes]:
        for index in range(0, len(body), 3):
            yield body[index : index + 3]
            await (await client.ping())

    async def letters() -> AsyncIterator[str]:
        for letter in '{"key":"ä"}':
            yield letter
            await (await client.ping())

    for message in (ONE, pieces('{"key":"ä"}'.encode()), ONE.decode(), letters(), ONE):
        await client.send(message)
    assert [(await next_answer(client))["accepted"] for _ in range(5)] == [1] * 5


async def test_a_ping_is_answered(url: str) -> None:
    """The pong has the same payload."""
    async with raw_socket(url) as socket:
        await socket.send(frame(Opcode.PING, b"so"), frame(Opcode.PONG, b"unasked"), frame(Opcode.PING, b"far"))
        assert [await socket.receive(), await socket.receive()] == [(Opcode.PONG, b"so"), (Opcode.PONG, b"far")]


@pytest.mark.parametrize("seed", range(5))
async def test_answers_do_not_depend_on_how_bytes_are_split(url: str, seed: int) -> None:
    """Frames of any length arrive in pieces of any size, with pings in between."""
    chosen = random.Random(seed)
    counts = [chosen.choice([1, 2, 8, 9, 10, 11, 12, 100]) for _ in range(60)]
    sent = b"".join(text(likes(count)) + frame(Opcode.PING, b"") * chosen.randint(0, 1) for count in counts)
    async with raw_socket(url) as socket:
        while sent:
            size = chosen.choice([1, 2, 3, 7, 100, 3000])
            await socket.send(sent[:size])
            sent = sent[size:]
        found: list[int] = []
        while len(found) < len(counts):
            opcode, body = await socket.receive()
            if opcode is Opcode.TEXT:
                found.append(msgspec.json.decode(body)["accepted"])
    assert found == counts


async def test_a_message_sent_with_the_handshake_counts(ours: str) -> None:
    """A client need not wait for the answer, wherever the piece ends."""
    shake = request("GET", PATH, *HANDSHAKE)
    behind = text(ONE) + text(likes(2))
    for cut in range(len(behind) + 1):
        async with connected(ours) as wire:
            await wire.send(shake + behind[:cut], behind[cut:])
            assert (await wire.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            assert [answer["accepted"] for answer in await RawSocket(wire).answers(2)] == [1, 2]


async def test_messages_before_a_close_are_answered_first(ours: str) -> None:
    """A client that sends a hundred messages and a close gets a hundred answers, and then a close."""
    async with raw_socket(ours) as socket:
        await socket.send(text(ONE) * 100 + close(1001))
        assert [answer["accepted"] for answer in await socket.answers(100)] == [1] * 100
        assert await socket.closed() == 1001
    assert await total(ours) == 100


BROKEN = {
    "not UTF-8": (text(b'{"key":"\xff"}'), 1007),
    "not UTF-8 in pieces": (frame(Opcode.TEXT, b"\xc3", final=False) + frame(Opcode.CONT, b"("), 1007),
    "not masked": (frame(Opcode.TEXT, ONE, mask=False), 1002),
    "too large": (text(b" " * (MAX_BODY + 1)), 1009),
    "too large in pieces": (
        frame(Opcode.TEXT, b" " * MAX_BODY, final=False) + frame(Opcode.CONT, b"  "), 1009
    ),
    "too large, only the beginning": (text(b" " * 70_000)[:20], 1009),
    "unknown opcode": (b"\x83\x80\x00\x00\x00\x00", 1002),
    "reserved bit": (b"\xc1\x80\x00\x00\x00\x00", 1002),
    "a ping in pieces": (b"\x09\x80\x00\x00\x00\x00", 1002),
    "a continuation without a beginning": (frame(Opcode.CONT, ONE), 1002),
    "a new message inside another": (frame(Opcode.TEXT, b"{", final=False) + text(ONE), 1002),
    "a close inside a message": (frame(Opcode.TEXT, b"{", final=False) + close(), 1002),
    "a malformed close": (frame(Opcode.CLOSE, b"\x03"), 1002),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
async def test_a_protocol_error_closes_the_socket(url: str, name: str) -> None:
    """The close code is that of RFC 6455."""
    sent, code = BROKEN[name]
    async with raw_socket(url) as socket:
        await socket.send(sent)
        assert await socket.closed() == code


@pytest.mark.parametrize("name", BROKEN)
async def test_messages_before_a_protocol_error_are_answered_first(ours: str, name: str) -> None:
    """Messages before the error are answered, and later ones are not counted."""
    sent, code = BROKEN[name]
    async with raw_socket(ours) as socket:
        await socket.send(text(ONE) * 20 + sent + text(likes(7)) * 3)
        assert [answer["accepted"] for answer in await socket.answers(20)] == [1] * 20
        assert await socket.closed() == code
    assert await total(ours) == 20
