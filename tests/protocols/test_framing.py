"""Parsing the messages of a producer's WebSocket, without a socket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from live.protocols.websocket.framing import MessageReader, text_frame
from tests.harness.raw_socket import close, frame, text

MAX_SIZE = 70_000


class Received(list[tuple[bytes, bool]]):
    """Received messages; the reader stops after `stop`."""

    def __call__(self, body: bytes, is_text: bool) -> bool:  # noqa: FBT001 - as the reader calls it
        """Keep a message."""
        self.append((body, is_text))
        return body != b"stop"


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, MAX_SIZE])
def test_a_message_of_any_size_is_read(size: int) -> None:
    """The length of a payload has three forms."""
    reader, received = MessageReader(MAX_SIZE), Received()
    assert not reader.read(text(b"x" * size), received)
    assert received == [(b"x" * size, True)]


def test_binary_messages_are_distinguished_from_text() -> None:
    """Only text must be UTF-8."""
    reader, received = MessageReader(MAX_SIZE), Received()
    reader.read(frame(Opcode.BINARY, b"\xff"), received)
    assert received == [(b"\xff", False)]


@given(st.lists(st.binary(max_size=300), max_size=8), st.data())
def test_messages_do_not_depend_on_how_the_bytes_are_split(bodies: list[bytes], data: st.DataObject) -> None:
    """TCP may deliver the bytes in any pieces."""
    stream = b"".join(frame(Opcode.BINARY, body) for body in bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reader, received = MessageReader(MAX_SIZE), Received()
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        reader.read(stream[start:end], received)
    assert [body for body, _ in received] == bodies
    assert not reader.has_more


def test_fragments_are_joined() -> None:
    """A control frame may come between them."""
    reader, received = MessageReader(MAX_SIZE), Received()
    assert reader.read(
        frame(Opcode.TEXT, b"a", final=False)
        + frame(Opcode.PING, b"ping")
        + frame(Opcode.CONT, b"b", final=False)
        + frame(Opcode.CONT, b"c"),
        received,
    )
    assert received == [(b"abc", True)]
    assert b"".join(reader.output()) == Frame(Opcode.PONG, b"ping").serialize(mask=False)


def test_a_caller_that_stops_can_continue_later() -> None:
    """No message is lost or repeated."""
    reader, received = MessageReader(MAX_SIZE), Received()
    reader.read(text(b"stop") + text(b"later"), received)
    assert (received, reader.has_more) == ([(b"stop", True)], True)
    reader.hold(text(b"last"))
    reader.read(b"", received)
    assert [body for body, _ in received] == [b"stop", b"later", b"last"]
    assert (received[3:], reader.has_more) == ([], False)


def test_incomplete_held_bytes_do_not_set_has_more() -> None:
    """Otherwise the caller would loop."""
    reader, received = MessageReader(MAX_SIZE), Received()
    reader.read(text(b"x" * 100)[:50], received)
    reader.hold(b"y")
    assert (received, reader.has_more) == ([], True)
    reader.read(b"", received)
    assert (received, reader.has_more) == ([], False)


def test_one_call_reads_a_bounded_number_of_frames() -> None:
    """Other connections get their turn."""
    reader, received = MessageReader(MAX_SIZE), Received()
    reader.read(text(b"") * 1000, received)
    assert 0 < len(received) < 1000
    calls = 0
    while reader.has_more:
        reader.read(b"", received)
        calls += 1
    assert len(received) == 1000
    assert 1 < calls < 100


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x81\x01x", 1002),
        (text(b"x" * (MAX_SIZE + 1)), 1009),
        (b"\x83\x80\0\0\0\0", 1002),
        (frame(Opcode.TEXT, b"a", final=False) + text(b"b"), 1002),
    ],
    ids=["not masked", "too large", "unknown opcode", "a message inside another"],
)
def test_a_protocol_error_is_answered_with_its_code(data: bytes, code: int) -> None:
    """Nothing after the error is read."""
    reader, received = MessageReader(MAX_SIZE), Received()
    assert reader.read(data + text(b"after"), received)
    assert not reader.is_open
    assert b"".join(reader.output())[2:4] == code.to_bytes(2)
    assert received == []
    assert not reader.has_more


def test_a_close_frame_is_answered() -> None:
    """Messages before it are read, messages after it are not."""
    reader, received = MessageReader(MAX_SIZE), Received()
    assert reader.read(text(b"a") + close(1000) + text(b"b"), received)
    assert received == [(b"a", True)]
    assert reader.is_closed_by_client
    assert b"".join(reader.output())[2:4] == (1000).to_bytes(2)


def test_a_close_frame_in_the_remaining_bytes_is_found() -> None:
    """Both sides may start to close at the same time."""
    reader, received = MessageReader(MAX_SIZE), Received()
    reader.read(text(b"stop") + text(b"never read") + close(1000), received)
    reader.close(3001, "the server stops")
    assert reader.is_closed_by_client
    assert received == [(b"stop", True)]
    output = reader.output()
    assert b"".join(output)[2:4] == (3001).to_bytes(2)


def test_an_answer_is_one_unmasked_text_frame() -> None:
    """RFC 6455 requires it of a server."""
    assert text_frame(b"{}") == b"\x81\x02{}"
