"""The order of answers on one connection, tested without a real connection."""

from collections.abc import Sequence
from typing import Any, cast

from live.http.parser import BodyPiece
from live.http.reply import Reply, json_reply
from live.protocols.exchange import Exchange, Pipeline


class Asked(Exchange):
    """A request whose answer the test sets."""

    def __init__(self, *, keep_alive: bool = True) -> None:
        super().__init__(cast("Any", None), keep_alive=keep_alive)
        self.body = b""
        self.is_complete = self.began = self.disconnected = False

    def begin(self) -> None:
        """Record that the request began."""
        self.began = True

    def receive(self, data: bytes, *, last: bool) -> None:
        """Keep the body."""
        self.body += data
        self.is_complete = last

    def disconnect(self) -> None:
        """Record that no answer is wanted."""
        self.disconnected = True


def filled(count: int) -> tuple[Pipeline, Sequence[Asked]]:
    """A pipeline with `count` complete requests."""
    pipeline = Pipeline()
    exchanges = [Asked() for _ in range(count)]
    for exchange in exchanges:
        pipeline.add(exchange, has_body=False)
    return pipeline, exchanges


def answer(exchange: Asked, body: bytes = b"{}") -> Reply:
    """Answer a request."""
    exchange.reply = json_reply(body)
    return exchange.reply


def taken(pipeline: Pipeline) -> list[tuple[Reply, bool]]:
    """The replies that are due, and whether another request may follow each reply."""
    return [(reply, exchange.keep_alive) for reply, exchange in pipeline.take_answered()]


def test_replies_wait_for_the_replies_to_earlier_requests() -> None:
    """A reply that is known early is sent in its turn."""
    pipeline, (first, second, third) = filled(3)
    two = answer(second)
    assert pipeline.take_answered() == []
    one = answer(first)
    assert taken(pipeline) == [(one, True), (two, True)]
    assert pipeline
    three = answer(third)
    assert taken(pipeline) == [(three, True)]
    assert not pipeline


def test_nothing_follows_the_last_reply() -> None:
    """A reply without keep-alive is the last reply, even if later replies are known."""
    pipeline, (first, second) = filled(2)
    first.keep_alive = False
    one = answer(first)
    answer(second)
    assert taken(pipeline) == [(one, False)]


def test_a_body_goes_to_its_request() -> None:
    """Earlier requests may have no answers yet."""
    pipeline, (first,) = filled(1)
    exchange = Asked()
    assert not pipeline.add(exchange, has_body=True)
    assert pipeline.arriving is exchange
    pipeline.receive(BodyPiece(b"a", last=False))
    assert not exchange.is_complete
    pipeline.receive(BodyPiece(b"b", last=True))
    assert (exchange.body, exchange.is_complete, first.body) == (b"ab", True, b"")
    assert pipeline.arriving is None


def test_a_body_that_the_application_does_not_read_stops_reading() -> None:
    """If the server read on, the pieces of the body would fill the memory."""
    pipeline, exchange = Pipeline(), Asked()
    assert pipeline.add(exchange, has_body=True)
    seen = [pipeline.has_room]
    exchange.wanted = 1
    assert [*seen, pipeline.has_room] == [True, False]


def test_a_bounded_number_of_requests_is_read_ahead() -> None:
    """A client that reads no answers fills its own buffers, not ours."""
    pipeline = Pipeline()
    for _ in range(64):
        assert pipeline.has_room
        pipeline.add(Asked(), has_body=False)
    assert not pipeline.has_room
    pipeline.take_first()
    assert pipeline.has_room


def test_a_client_is_late_only_while_no_complete_request_waits() -> None:
    """The client's deadline runs while it sends, not while the server works."""
    pipeline, exchange = Pipeline(), Asked()
    seen = [pipeline.awaits_answer]
    pipeline.add(exchange, has_body=True)
    seen.append(pipeline.awaits_answer)
    pipeline.receive(BodyPiece(b"", last=True))
    seen.append(pipeline.awaits_answer)
    pipeline.add(Asked(), has_body=True)
    seen.append(pipeline.awaits_answer)
    answer(exchange)
    pipeline.take_answered()
    seen.append(pipeline.awaits_answer)
    assert seen == [False, False, True, True, False]


def test_a_request_that_is_cut_off_gets_no_answer() -> None:
    """Earlier requests still get their answers."""
    pipeline, (first,) = filled(1)
    exchange = Asked()
    pipeline.add(exchange, has_body=True)
    assert pipeline.cut_off()
    assert exchange.disconnected
    assert not first.disconnected
    one = answer(first)
    assert taken(pipeline) == [(one, True)]
    assert not pipeline


def test_a_request_with_an_answer_is_not_withdrawn() -> None:
    """If such a request were withdrawn, it would get two answers."""
    pipeline, exchange = Pipeline(), Asked()
    pipeline.add(exchange, has_body=True)
    answer(exchange)
    assert not pipeline.cut_off()
    assert not exchange.disconnected
    assert len(pipeline.take_answered()) == 1


def test_after_a_stop_the_last_request_ends_the_connection() -> None:
    """Earlier requests keep the connection open."""
    pipeline, (first, second) = filled(2)
    assert pipeline.stop()
    assert not pipeline.has_room
    assert pipeline.is_closed
    assert (first.keep_alive, second.keep_alive) == (True, False)


def test_a_stop_without_requests_returns_false() -> None:
    """The caller then ends the connection."""
    assert not Pipeline().stop()


def test_an_incomplete_body_is_read_to_its_end_after_a_stop() -> None:
    """The request with this body is still answered."""
    pipeline, exchange = Pipeline(), Asked()
    pipeline.add(exchange, has_body=True)
    assert pipeline.stop()
    assert (pipeline.has_room, pipeline.is_closed) == (True, False)
    pipeline.receive(BodyPiece(b"a", last=True))
    assert (exchange.is_complete, pipeline.is_closed) == (True, True)


def test_a_client_that_leaves_disconnects_every_request() -> None:
    """The pipeline is empty afterwards."""
    pipeline, exchanges = filled(3)
    pipeline.disconnect()
    assert all(exchange.disconnected for exchange in exchanges)
    assert not pipeline
    assert pipeline.is_closed
