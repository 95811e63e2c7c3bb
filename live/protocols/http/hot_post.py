"""The short way of `POST /v1/events`: head and body go to the intake, and its reply to the connection, without ASGI."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from live.auth.client import ClientResolver
from live.domain.event import Entry
from live.domain.producer import Producer
from live.ingest.bodies import too_large
from live.ingest.committer import Committed
from live.ingest.intake import Head, Intake
from live.ingest.replies import Reply, problem_reply
from live.protocols.http.peer import Peer
from live.protocols.http.requests import RequestHead
from live.settings import Settings

_PATH: Final = b"/v1/events"
_MOST_KNOWN: Final = 1024
_LARGEST_KNOWN: Final = 2048  # bytes of a head


class Answering(Protocol):
    """The connection of an exchange, which sends answers in the order of their requests."""

    def answer_due(self) -> None:
        """An answer is known: send all that are due."""


class Post:
    """One request, from its head to its reply. A refusal is one too, with its reply from the start."""

    __slots__ = ("_connection", "_intake", "_more", "body", "entries", "head", "keep_alive", "reply", "whole")

    def __init__(self, connection: Answering, intake: Intake, *, keep_alive: bool) -> None:
        self._connection = connection
        self._intake = intake
        self.keep_alive = keep_alive
        self.head: Head | None = None
        self.body = b""
        self._more = bytearray()  # the body after its first piece
        self.whole = False
        self.entries: Sequence[Entry] = ()
        self.reply: Reply | None = None

    @property
    def started(self) -> bool:
        """Whether the answer is known, so that no other can be given."""
        return self.reply is not None

    def receive(self, data: bytes, *, last: bool) -> None:
        """Take in a piece of the body; count it when it is whole and its head was admitted."""
        if self.reply is None:
            if not self.body:
                self.body = data
            else:
                self._more += data
            most = self._intake.settings.max_body
            if len(self.body) + len(self._more) > most:
                self.answer(problem_reply(too_large(most)))
        if last:
            self.end()

    def end(self) -> None:
        """The request has come whole."""
        self.whole = True
        if self._more:
            self.body += bytes(self._more)
            self._more = bytearray()
        if self.reply is None and self.head is not None:
            self._submit(self.head)

    def admit(self, known: "KnownHeads", head: RequestHead, peer: Peer) -> None:
        """Judge the head of the request, while its body is still coming."""
        intake = self._intake
        try:
            producer, judge = known.judge(head, peer)
            if intake.rates.admit_now(producer):
                self.head = judge()
            else:
                self._ask(producer, judge)
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs what is not foreseen
            self.answer(problem_reply(error))

    def settle(self, committed: Committed) -> None:
        """The store has counted the body, which was one plain like."""
        self._tell(committed)

    def fail(self, error: Exception) -> None:
        """The store has not answered for the body, which was one plain like."""
        self._tell(error)

    def answer(self, reply: Reply) -> None:
        """The reply is known."""
        self.reply = reply
        self._connection.answer_due()

    def _tell(self, outcome: Committed | Exception) -> None:
        assert self.head is not None, "nothing is counted whose head was not judged"  # noqa: S101
        self.answer(self._intake.reply_to_plain(self.head, self.body, outcome))

    def _ask(self, producer: Producer, judge: Callable[[], Head]) -> None:
        """Ask the store whether the request is within its producer's rate."""

        async def admit() -> Reply | None:
            try:
                await self._intake.rates.admit(producer)
                self.head = judge()
            except Exception as error:  # noqa: BLE001 - as above
                return problem_reply(error)
            return None

        self._intake.spawn(admit(), self._admitted)

    def _admitted(self, refusal: Reply | None) -> None:
        if self.reply is not None:
            return  # its body was too large
        if refusal is not None:
            self.answer(refusal)
        elif self.whole and self.head is not None:
            self._submit(self.head)

    def _submit(self, head: Head) -> None:
        try:
            if not self._intake.submit_plain(head, self.body, self):
                self._intake.submit(head, self.body, self.answer)
        except Exception as error:  # noqa: BLE001 - as above
            self.answer(problem_reply(error))


class KnownHeads:
    """What the intake said of heads, for producers that send the same bytes with every request.

    A head means the same again only if all of its bytes, the peer and everything that the gate knows are
    the same. It is looked up by all three.
    """

    def __init__(self, intake: Intake, clients: ClientResolver) -> None:
        self._intake = intake
        self._clients = clients
        self._known: dict[tuple[bytes, Peer], tuple[Producer, Head]] = {}
        self._generation = -1

    def judge(self, head: RequestHead, peer: Peer) -> tuple[Producer, Callable[[], Head]]:
        """Who sends a request, and how to judge the rest of its head once that is within its rate.

        Raises:
            ProblemError: the host is not ours, or the producer is not known, or may not post.
            StoreUnavailableError: which API keys are good can't be known now.
        """
        intake, name = self._intake, (head.raw, peer)
        if self._generation != intake.gate.generation:
            self._known.clear()
            self._generation = intake.gate.generation
        known = self._known.get(name)
        if known is not None:
            return known[0], lambda: known[1]
        named = dict(reversed(head.fields))
        client = self._clients.resolve(peer.address, head.fields, tls=peer.tls)
        producer = intake.welcome(named.get(b"authorization"), client)

        def judge() -> Head:
            judged = intake.read_head(producer, head.fields, named)
            if judged.once is None and len(head.raw) <= _LARGEST_KNOWN and self._generation == intake.gate.generation:
                if len(self._known) >= _MOST_KNOWN:
                    del self._known[next(iter(self._known))]
                self._known[name] = (producer, judged)
            return judged

        return producer, judge


def is_short(head: RequestHead, settings: Settings) -> bool:
    """Whether a request goes the short way."""
    is_post = head.target == _PATH and head.method == b"POST"
    return is_post and not head.expects_continue and settings.role != "viewers"


def refusal(connection: Answering, intake: Intake, error: Exception) -> Post:
    """What answers a request that can't be served; it is the last of its connection."""
    post = Post(connection, intake, keep_alive=False)
    post.reply, post.whole = problem_reply(error), True
    return post
