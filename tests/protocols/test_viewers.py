"""A viewer's WebSocket by RFC 6455."""

from collections.abc import AsyncIterator
from socket import create_connection, create_server
from unittest.mock import Mock

import pytest
from websockets.asyncio.client import connect
from websockets.frames import Opcode

from live.protocols.websocket import ViewerReaper, ViewerSocket
from tests.harness.raw_socket import HANDSHAKE, RawSocket, close, frame, text
from tests.harness.viewer import ModelViewer
from tests.harness.waiting import eventually
from tests.harness.watching import WATCH, Served, apply_next, follow, served, watch
from tests.harness.wire import connected, request

MOST = 1024  # bytes


@pytest.fixture
async def server(valkey_url: str) -> AsyncIterator[Served]:
    """A server with one board."""
    async with served(valkey_url) as server:
        yield server


async def expect_no_viewers(server: Served) -> None:
    """Check that no viewer and no connection is left."""

    async def is_empty() -> bool:
        return server.watching == 0

    await eventually(is_empty)
    assert not any(list(channel._variants) for channel in server.live.hub.channels.values())
    assert not server.live.reaper.waiting
    assert not any(server.live.reaper._slots)


async def test_a_ping_is_answered(server: Served) -> None:
    """The pong has the same payload. An unsolicited pong is ignored, and updates continue."""
    async with watch(server.url) as socket:
        model = ModelViewer()
        await apply_next(socket, model)
        await socket.send(frame(Opcode.PING, b"so"), frame(Opcode.PONG, b"unasked"), frame(Opcode.PING, b"far"))
        found = [received async for received in messages(socket, 2, Opcode.PONG)]
        assert found == [b"so", b"far"]
        await follow(socket, model, await server.post({"key": "a"}))
    await expect_no_viewers(server)


async def messages(socket: RawSocket, count: int, opcode: Opcode) -> AsyncIterator[bytes]:
    """The payloads of the next `count` frames with an opcode."""
    while count:
        received = await socket.receive()
        if received[0] is opcode:
            count -= 1
            yield received[1]


ENDS = {
    "text": (text(b"hello"), 3501),
    "bytes": (frame(Opcode.BINARY, b"\xff"), 3501),
    "nothing": (text(b""), 3501),
    "maximum size": (text(b"x" * MOST), 3501),
    "two messages": (text(b"a") + text(b"b"), 3501),
    "text in pieces": (frame(Opcode.TEXT, b"\xc3", final=False) + frame(Opcode.CONT, b"\xa4"), 3501),
    "text in pieces with a ping between them": (
        frame(Opcode.TEXT, b"\xc3", final=False) + frame(Opcode.PING, b"") + frame(Opcode.CONT, b"\xa4"), 3501
    ),
    "bytes in pieces": (frame(Opcode.BINARY, b"\xc3", final=False) + frame(Opcode.CONT, b"("), 3501),
    "not UTF-8": (text(b"\xff"), 1007),
    "not UTF-8, in pieces": (frame(Opcode.TEXT, b"\xc3", final=False) + frame(Opcode.CONT, b"("), 1007),
    "not masked": (frame(Opcode.TEXT, b"a", mask=False), 1002),
    "a ping that is not masked": (frame(Opcode.PING, b"", mask=False), 1002),
    "too large": (text(b" " * (MOST + 1)), 1009),
    "too large in pieces": (frame(Opcode.TEXT, b" " * MOST, final=False) + frame(Opcode.CONT, b" "), 1009),
    "the beginning of a message that is too large": (text(b" " * 70_000)[:20], 1009),
    "unknown opcode": (b"\x83\x80\x00\x00\x00\x00", 1002),
    "reserved bit": (b"\xc1\x80\x00\x00\x00\x00", 1002),
    "a ping in pieces": (b"\x09\x80\x00\x00\x00\x00", 1002),
    "a long ping": (b"\x89\xfe\x00\x7e" + b"\x00" * 130, 1002),
    "a continuation without a beginning": (frame(Opcode.CONT, b"a"), 1002),
    "a new message inside another": (frame(Opcode.TEXT, b"a", final=False) + text(b"b"), 1002),
    "a malformed close": (frame(Opcode.CLOSE, b"\x03"), 1002),
    "a close with bad UTF-8": (frame(Opcode.CLOSE, b"\x03\xe8\xff"), 1007),
    "an empty close": (frame(Opcode.CLOSE, b""), 1005),
    **{f"close {code}": (close(code), code) for code in (1000, 1001, 1003, 1011, 3000, 3501, 4999)},
    **{
        f"close {code}": (frame(Opcode.CLOSE, code.to_bytes(2)), 1002)
        for code in (0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65535)
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDS)
async def test_each_end_of_a_socket_has_its_code(server: Served, name: str) -> None:
    """A message, a close frame and each violation of the protocol ends a socket with its close code."""
    sent, code = ENDS[name]
    async with watch(server.url) as socket:
        await socket.receive()
        await socket.send(sent)
        assert await socket.ended() == code
    await expect_no_viewers(server)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDS)
async def test_the_close_code_does_not_depend_on_how_bytes_are_split(server: Served, name: str) -> None:
    """The bytes arrive one by one or with more bytes behind them, which must not destroy the close frame."""
    sent, code = ENDS[name]
    async with watch(server.url) as socket:
        await socket.receive()
        if not ("only the beginning" in name or (name.startswith(("close", "an empty close")) and code != 1002)):
            sent += text(b"behind") * 20
        await socket.send(*[sent[at : at + 1] for at in range(len(sent))])
        assert await socket.ended() == code
    await expect_no_viewers(server)


async def test_a_half_closed_connection_is_closed(server: Served) -> None:
    """A viewer that can't send any more can't answer a ping."""
    async with watch(server.url) as socket:
        await socket.receive()
        socket.wire.writer.write_eof()
        assert await socket.wire.rest() == b""
    await expect_no_viewers(server)


async def test_a_library_client_can_close(server: Served) -> None:
    """The server answers the client's closing handshake with the client's code."""
    socket = await connect(server.url.replace("http", "ws") + WATCH)
    await socket.recv()
    await socket.close(4000, "bye")
    assert (socket.close_code, socket.close_reason) == (4000, "bye")
    await expect_no_viewers(server)


@pytest.mark.slow
async def test_a_viewer_that_does_not_answer_a_close_is_disconnected(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server waits for the answer only until a timeout."""
    monkeypatch.setattr("live.protocols.websocket._CLOSE_TIMEOUT", 0.3)
    async with watch(server.url) as socket:
        await socket.receive()
        await socket.send(frame(Opcode.TEXT, b"a", mask=False))
        while (await socket.receive())[0] is not Opcode.CLOSE:
            pass
        await expect_no_viewers(server)


async def test_frames_sent_with_the_handshake_are_read(server: Served) -> None:
    """A client may send frames right behind its request, in the same piece."""
    shake = request("GET", WATCH, *HANDSHAKE)
    for behind, expected in [
        (frame(Opcode.PING, b"early"), (Opcode.PONG, b"early")),
        (close(4001), (Opcode.CLOSE, (4001).to_bytes(2))),
        (text(b"hello\r\n\r\n"), (Opcode.CLOSE, (3501).to_bytes(2) + b"bad request")),
        (frame(Opcode.TEXT, b"a", mask=False), (Opcode.CLOSE, None)),
    ]:
        for cut in range(len(behind) + 1):
            async with connected(server.url) as wire:
                await wire.send(shake + behind[:cut], behind[cut:])
                assert (await wire.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
                socket = RawSocket(wire)
                while (received := await socket.receive())[0] is Opcode.TEXT:
                    pass
                assert received[0] is expected[0]
                assert expected[1] in {None, received[1]}
    await expect_no_viewers(server)


async def test_viewers_that_answer_no_pings_are_disconnected(server: Served) -> None:
    """A viewer that answers the ping, in one piece or in several pieces, stays.

    A viewer that has not answered by the next ping is dropped.
    """
    pong = frame(Opcode.PONG, b"")
    async with watch(server.url) as whole, watch(server.url) as piecemeal, watch(server.url) as silent:
        await pinged(server.live.reaper, whole, piecemeal, silent)
        await whole.send(pong)
        await piecemeal.send(*[pong[at : at + 1] for at in range(len(pong))])

        async def have_answered() -> bool:
            return sum(viewer.is_alive for viewer in viewers(server.live.reaper)) == 2

        await eventually(have_answered)
        await pinged(server.live.reaper, whole, piecemeal)
        await silent.wire.rest()
        assert server.watching == 2
    await expect_no_viewers(server)


@pytest.mark.slow
async def test_a_library_client_answers_pings(server: Served) -> None:
    """The client answers the ping of every round."""
    async with connect(server.url.replace("http", "ws") + WATCH, ping_interval=None) as socket:
        await socket.recv()
        for _ in range(3):
            (viewer,) = viewers(server.live.reaper)
            ping_all(server.live.reaper)
            assert not viewer.is_alive

            async def has_answered(viewer: ViewerSocket = viewer) -> bool:
                return viewer.is_alive

            await eventually(has_answered)
            assert viewer._parser is None, "the answer to a ping made a parser"


def viewers(reaper: ViewerReaper) -> list[ViewerSocket]:
    """Return all viewers of the reaper."""
    return [viewer for slot in reaper._slots for viewer in slot if isinstance(viewer, ViewerSocket)]


async def test_a_viewer_that_acknowledges_messages_is_rarely_pinged(server: Served) -> None:
    """The reaper pings the viewer only in a round without a message to acknowledge."""
    async with watch(server.url) as quiet:
        reaper = server.live.reaper
        ping_all(reaper)
        await quiet.send(frame(Opcode.PONG, b""))
        (viewer,) = viewers(reaper)

        async def has_answered() -> bool:
            return viewer.is_alive

        await eventually(has_answered)
        sweep(reaper)  # the viewer has answered the ping
        assert viewer.is_alive
        sweep(reaper)
        assert not viewer.is_alive


@pytest.mark.parametrize("is_closing", [False, True])
def test_reading_pauses_while_data_waits_unless_the_transport_closes(*, is_closing: bool) -> None:
    """A transport that closes is left alone."""
    with create_server(("127.0.0.1", 0)) as listener, create_connection(listener.getsockname()) as own:
        transport = Mock()
        transport.get_extra_info.side_effect = {"socket": own}.get
        transport.is_closing.return_value = is_closing
        viewer = ViewerSocket(Mock())
        viewer.connection_made(transport)  # the mocked transport has unsent data
        assert (transport.pause_reading.called, transport.resume_reading.called) == (not is_closing, False)
        viewer.resume_writing()
        assert transport.resume_reading.called is not is_closing


@pytest.mark.parametrize("is_closing", [False, True])
def test_a_viewer_goes_on_when_no_data_waits_unless_the_server_closes_it(*, is_closing: bool) -> None:
    """The viewer gets the next frame at once. After a close frame, no frame may follow."""
    viewer = ViewerSocket(Mock())
    viewer.viewer = waiting = Mock()
    if is_closing:
        viewer._closing = Mock()
    viewer.resume_writing()
    assert waiting.wake.called is not is_closing


def sweep(reaper: ViewerReaper) -> None:
    """Sweep a whole round."""
    for _ in reaper._slots:
        reaper.sweep()


def ping_all(reaper: ViewerReaper) -> None:
    """Sweep a round in which every viewer is pinged."""
    reaper._next = reaper._round = 0
    sweep(reaper)


async def pinged(reaper: ViewerReaper, *expecting: RawSocket) -> None:
    """Ping all viewers, and check that some of them receive the ping."""
    ping_all(reaper)
    for socket in expecting:
        assert [received async for received in messages(socket, 1, Opcode.PING)] == [b""]
