"""The order of answers on a producer's WebSocket, without a socket."""

from live.ingest.committer import Committed
from live.ingest.replies import Reply, json_reply
from live.protocols.websocket.framing import text_frame
from live.protocols.websocket.messages import Message, MessageQueue


class Socket:
    """A socket that answers as soon as the store does."""

    def __init__(self) -> None:
        self.queue = MessageQueue()

    def resolve(self, message: Message, outcome: Committed | Exception) -> None:
        """Answer with the outcome of the event."""
        self.answer(message, json_reply(b"%d" % (outcome.offset or 0) if isinstance(outcome, Committed) else b"error"))

    def answer(self, message: Message, reply: Reply) -> None:
        """Answer."""
        self.queue.answer(message, reply)

    def add(self) -> Message:
        """Queue a message."""
        message = Message(self, b"{}")
        self.queue.add(message)
        return message


def test_answers_are_sent_in_the_order_of_the_messages() -> None:
    """An answer that is known early waits for earlier ones."""
    socket = Socket()
    first, second = socket.add(), socket.add()
    second.resolve(Committed(2, {}))
    assert socket.queue.take_answered() == []
    first.reject(ValueError())
    assert socket.queue.take_answered() == [text_frame(b"error"), text_frame(b"2")]
    assert not socket.queue


def test_messages_that_share_a_reply_share_its_frame() -> None:
    """A batch has one reply; encoding it for each message would be the main cost."""
    socket, reply = Socket(), json_reply(b"{}")
    messages = [socket.add() for _ in range(3)]
    for message in messages:
        message.reply(reply)
    first, *others = socket.queue.take_answered()
    assert all(other is first for other in others)


def test_a_held_message_stops_reading() -> None:
    """The producer exceeds its rate, so its messages stay in its own buffers."""
    socket = Socket()
    held = socket.add()
    socket.queue.hold(held)
    assert (socket.queue.held, socket.queue.is_ahead) == (held, True)
    socket.queue.release()
    assert (socket.queue.held, socket.queue.is_ahead) == (None, False)
    assert socket.queue


def test_a_bounded_number_of_messages_is_read_ahead() -> None:
    """The server stops reading from a producer that reads no answers."""
    socket = Socket()
    messages = []
    while not socket.queue.is_ahead:
        messages.append(socket.add())
        assert len(messages) < 1000
    messages[0].resolve(Committed(1, {}))
    socket.queue.take_answered()
    assert not socket.queue.is_ahead


def test_dropping_held_messages_keeps_submitted_ones() -> None:
    """Submitted messages are counted, so they are answered."""
    socket = Socket()
    submitted = socket.add()
    for _ in range(2):
        socket.queue.hold(socket.add())
    socket.queue.drop_held()
    submitted.resolve(Committed(7, {}))
    assert socket.queue.take_answered() == [text_frame(b"7")]
    assert not socket.queue
    assert socket.queue.held is None
