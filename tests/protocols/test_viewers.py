"""A viewer's socket by RFC 6455, on our protocol and on the plain ASGI route."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import pytest
from websockets.asyncio.client import connect
from websockets.frames import Opcode

from live.protocols.viewer_reaper import ViewerReaper
from live.protocols.websocket.viewer import ViewerSocket
from tests.harness.raw_socket import HANDSHAKE, RawSocket, close, frame, text
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import eventually
from tests.harness.watching import WATCH, Served, apply_next, follow, on_uvloop, served, watch
from tests.harness.wire import connected, request

MOST = 1024  # bytes; `max_body` too, for that is the limit under a server that is not ours


@pytest.fixture(params=[False, True], ids=["ours", "plain"])
def server(valkey_url: str, request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[Served]:
    """A server with or without our protocols."""
    yield from kept(runner, served(valkey_url, plain=request.param, max_body=MOST))


@pytest.fixture
def ours(valkey_url: str, runner: asyncio.Runner) -> Iterator[Served]:
    """A server with our protocols."""
    yield from kept(runner, served(valkey_url))


def kept(runner: asyncio.Runner, context: AbstractAsyncContextManager[Served]) -> Iterator[Served]:
    """What a context gives, for as long as a test lasts."""
    stack = AsyncExitStack()
    yield runner.run(stack.enter_async_context(context))
    runner.run(stack.aclose())


async def left(server: Served) -> None:
    """See that nobody watches any more, and that no connection has kept its place."""

    async def is_left() -> bool:
        return server.watching == 0

    await eventually(is_left)
    assert not any(list(channel._variants) for channel in server.live.hub.channels.values())
    assert not server.live.reaper._waiting
    assert not any(server.live.reaper._slots)


@on_uvloop
async def test_a_ping_is_answered(server: Served) -> None:
    """With what it held; a pong that nobody asked for is passed over; updates go on."""
    async with watch(server.url) as socket:
        model = ModelViewer()
        await apply_next(socket, model)
        await socket.send(frame(Opcode.PING, b"so"), frame(Opcode.PONG, b"unasked"), frame(Opcode.PING, b"far"))
        found = [received async for received in messages(socket, 2, Opcode.PONG)]
        assert found == [b"so", b"far"]
        await follow(socket, model, await server.post({"key": "a"}))
    await left(server)


async def messages(socket: RawSocket, count: int, opcode: Opcode) -> AsyncIterator[bytes]:
    """The next so many frames of a kind."""
    while count:
        received = await socket.receive()
        if received[0] is opcode:
            count -= 1
            yield received[1]


ENDS = {
    "text": (text(b"hello"), 3501),
    "bytes": (frame(Opcode.BINARY, b"\xff"), 3501),
    "nothing": (text(b""), 3501),
    "as much as may be": (text(b"x" * MOST), 3501),
    "two messages": (text(b"a") + text(b"b"), 3501),
    "text in pieces": (frame(Opcode.TEXT, b"\xc3", final=False) + frame(Opcode.CONT, b"\xa4"), 3501),
    "text in pieces, a ping between": (
        frame(Opcode.TEXT, b"\xc3", final=False) + frame(Opcode.PING, b"") + frame(Opcode.CONT, b"\xa4"), 3501
    ),
    "bytes in pieces": (frame(Opcode.BINARY, b"\xc3", final=False) + frame(Opcode.CONT, b"("), 3501),
    "no UTF-8": (text(b"\xff"), 1007),
    "no UTF-8 in pieces": (frame(Opcode.TEXT, b"\xc3", final=False) + frame(Opcode.CONT, b"("), 1007),
    "not masked": (frame(Opcode.TEXT, b"a", mask=False), 1002),
    "a ping that is not masked": (frame(Opcode.PING, b"", mask=False), 1002),
    "too large": (text(b" " * (MOST + 1)), 1009),
    "too large in pieces": (frame(Opcode.TEXT, b" " * MOST, final=False) + frame(Opcode.CONT, b" "), 1009),
    "too large, and not there yet": (text(b" " * 70_000)[:20], 1009),
    "unknown opcode": (b"\x83\x80\x00\x00\x00\x00", 1002),
    "reserved bit": (b"\xc1\x80\x00\x00\x00\x00", 1002),
    "a ping in pieces": (b"\x09\x80\x00\x00\x00\x00", 1002),
    "a long ping": (b"\x89\xfe\x00\x7e" + b"\x00" * 130, 1002),
    "an end without a beginning": (frame(Opcode.CONT, b"a"), 1002),
    "a beginning in the middle": (frame(Opcode.TEXT, b"a", final=False) + text(b"b"), 1002),
    "a malformed close": (frame(Opcode.CLOSE, b"\x03"), 1002),
    "a close with bad UTF-8": (frame(Opcode.CLOSE, b"\x03\xe8\xff"), 1007),
    "an empty close": (frame(Opcode.CLOSE, b""), 1005),
    **{f"close {code}": (close(code), code) for code in (1000, 1001, 1003, 1011, 3000, 3501, 4999)},
    **{
        f"close {code}": (frame(Opcode.CLOSE, code.to_bytes(2)), 1002)
        for code in (0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65535)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
@on_uvloop
async def test_what_ends_a_socket(server: Served, name: str) -> None:
    """A message, a close, and what is against the rules, each with its code."""
    sent, code = ENDS[name]
    async with watch(server.url) as socket:
        await socket.receive()
        await socket.send(sent)
        assert await socket.ended() == code
    await left(server)


@pytest.mark.parametrize("name", ENDS)
@on_uvloop
async def test_where_it_is_cut_makes_no_difference(ours: Served, name: str) -> None:
    """Byte by byte, and with more behind it: what is still under way takes no reason from the viewer."""
    sent, code = ENDS[name]
    async with watch(ours.url) as socket:
        await socket.receive()
        if not ("not there yet" in name or (name.startswith(("close", "an empty close")) and code != 1002)):
            sent += text(b"behind") * 20
        await socket.send(*[sent[at : at + 1] for at in range(len(sent))])
        assert await socket.ended() == code
    await left(ours)


@on_uvloop
async def test_a_half_closed_connection_ends(server: Served) -> None:
    """A viewer that will say nothing more could not answer a ping: the connection is closed."""
    async with watch(server.url) as socket:
        await socket.receive()
        socket.wire.writer.write_eof()
        assert await socket.wire.rest() == b""
    await left(server)


@on_uvloop
async def test_a_client_of_the_library_closes(server: Served) -> None:
    """Its closing handshake is answered, with its code."""
    socket = await connect(server.url.replace("http", "ws") + WATCH)
    await socket.recv()
    await socket.close(4000, "bye")
    assert (socket.close_code, socket.close_reason) == (4000, "bye")
    await left(server)


@on_uvloop
async def test_a_viewer_that_does_not_answer_a_close_is_let_go(ours: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection ends all the same, in a while."""
    monkeypatch.setattr("live.protocols.websocket.viewer._CLOSE_TIMEOUT", 0.3)
    async with watch(ours.url) as socket:
        await socket.receive()
        await socket.send(frame(Opcode.TEXT, b"a", mask=False))
        while (await socket.receive())[0] is not Opcode.CLOSE:
            pass
        await left(ours)


@on_uvloop
async def test_what_comes_with_the_handshake_is_heard(ours: Served) -> None:
    """Frames that a hasty client sends behind its request, in the same piece, are no less frames."""
    shake = request("GET", WATCH, *HANDSHAKE)
    for behind, heard in [
        (frame(Opcode.PING, b"early"), (Opcode.PONG, b"early")),
        (close(4001), (Opcode.CLOSE, (4001).to_bytes(2))),
        (text(b"hello\r\n\r\n"), (Opcode.CLOSE, (3501).to_bytes(2) + b"bad request")),
        (frame(Opcode.TEXT, b"a", mask=False), (Opcode.CLOSE, None)),
    ]:
        for cut in range(len(behind) + 1):
            async with connected(ours.url) as wire:
                await wire.send(shake + behind[:cut], behind[cut:])
                assert (await wire.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
                socket = RawSocket(wire)
                while (received := await socket.receive())[0] is Opcode.TEXT:
                    pass
                assert received[0] is heard[0]
                assert heard[1] in {None, received[1]}
    await left(ours)


@on_uvloop
async def test_the_silent_are_let_go(ours: Served) -> None:
    """Who answers a ping stays, in one piece or in several; who has not by the next one is dropped."""
    pong = frame(Opcode.PONG, b"")
    async with watch(ours.url) as whole, watch(ours.url) as piecemeal, watch(ours.url) as silent:
        await pinged(ours.live.reaper, whole, piecemeal, silent)
        await whole.send(pong)
        await piecemeal.send(*[pong[at : at + 1] for at in range(len(pong))])

        async def are_heard() -> bool:
            return sum(viewer.is_alive for viewer in viewers(ours.live.reaper)) == 2

        await eventually(are_heard)
        await pinged(ours.live.reaper, whole, piecemeal)
        await silent.wire.rest()
        assert ours.watching == 2
    await left(ours)


@on_uvloop
async def test_a_client_of_the_library_answers_pings(ours: Served) -> None:
    """Round after round."""
    async with connect(ours.url.replace("http", "ws") + WATCH, ping_interval=None) as socket:
        await socket.recv()
        for _ in range(3):
            (viewer,) = viewers(ours.live.reaper)
            ping_all(ours.live.reaper)
            assert not viewer.is_alive

            async def is_heard(viewer: ViewerSocket = viewer) -> bool:
                return viewer.is_alive

            await eventually(is_heard)
            assert viewer._parser is None, "the answer to a ping needs no parser"


def viewers(reaper: ViewerReaper) -> list[ViewerSocket]:
    """All that are looked after."""
    return [viewer for slot in reaper._slots for viewer in slot if isinstance(viewer, ViewerSocket)]


def ping_all(reaper: ViewerReaper) -> None:
    """A whole round."""
    for _ in reaper._slots:
        reaper.sweep()


async def pinged(reaper: ViewerReaper, *expecting: RawSocket) -> None:
    """Ping all, and see that some have it."""
    ping_all(reaper)
    for socket in expecting:
        assert [received async for received in messages(socket, 1, Opcode.PING)] == [b""]
