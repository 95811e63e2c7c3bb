"""What request heads of producers mean, kept for clients that send the same head with every request."""

from collections.abc import Callable
from typing import Final

from live.auth.authenticator import Authenticator
from live.auth.client import ClientResolver
from live.domain.producer import Producer
from live.ingest.intake import Head, Intake
from live.protocols.http.peer import Peer
from live.protocols.http.requests import RequestHead

_MOST_KNOWN: Final = 1024
_LARGEST_KNOWN: Final = 2048  # bytes of a head


class HeadCache:
    """Results of judging request heads.

    A result holds for the same bytes from the same peer, until API keys or boards change.
    """

    def __init__(self, intake: Intake, authenticator: Authenticator, clients: ClientResolver) -> None:
        self._intake = intake
        self._authenticator = authenticator
        self._clients = clients
        self._known: dict[tuple[bytes, Peer], tuple[Producer, Head]] = {}
        self._generation = -1

    def judge(self, head: RequestHead, peer: Peer) -> tuple[Producer, Callable[[], Head]]:
        """The producer of a request, and a function that judges the rest of its head.

        Call the function only when the request is within the rate of its producer.

        Raises:
            ProblemError: the host is not allowed, or the producer is unknown or may not post.
            StoreUnavailableError: the API keys can't be checked now.
        """
        intake, authenticator, name = self._intake, self._authenticator, (head.raw, peer)
        if self._generation != authenticator.generation:
            self._known.clear()
            self._generation = authenticator.generation
        known = self._known.get(name)
        if known is not None:
            return known[0], lambda: known[1]
        named = dict(reversed(head.fields))
        client = self._clients.resolve(peer.address, head.fields, tls=peer.tls)
        producer = authenticator.authorize(named.get(b"authorization"), client)

        def judge() -> Head:
            judged = intake.read_head(producer, head.fields, named)
            if judged.once is None and len(head.raw) <= _LARGEST_KNOWN and self._generation == authenticator.generation:
                if len(self._known) >= _MOST_KNOWN:
                    del self._known[next(iter(self._known))]
                self._known[name] = (producer, judged)
            return judged

        return producer, judge
