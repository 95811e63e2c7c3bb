"""A cache of checked request heads, for producers that send the same head with every request."""

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
    """The results of checking request heads.

    A result is valid for the same bytes from the same peer, until API keys or boards change. Do not await while you
    check a request, so that its producer and its head are of one generation.
    """

    def __init__(self, intake: Intake, authenticator: Authenticator, clients: ClientResolver) -> None:
        self._intake = intake
        self._authenticator = authenticator
        self._clients = clients
        self._known: dict[tuple[bytes, Peer], Head] = {}
        self._generation = -1

    def known(self, head: RequestHead, peer: Peer) -> Head | None:
        """The cached result for the same head from the same peer, if there is one."""
        if self._generation != self._authenticator.generation:
            self._known.clear()
            self._generation = self._authenticator.generation
        return self._known.get((head.raw, peer))

    def producer_of(self, head: RequestHead, peer: Peer) -> Producer:
        """The producer of a request.

        Raises:
            ProblemError: the host is not allowed, or the producer is unknown or may not post.
            StoreUnavailableError: the API keys can't be checked now.
        """
        client = self._clients.resolve(peer.address, head.fields, tls=peer.tls)
        return self._authenticator.authorize(_first_values(head).get(b"authorization"), client)

    def check(self, head: RequestHead, peer: Peer, producer: Producer) -> Head:
        """Check the head of a request that is within the rate of its producer."""
        checked = self._intake.read_head(producer, head.fields, _first_values(head))
        if checked.idempotency_key is None and len(head.raw) <= _LARGEST_KNOWN:
            if len(self._known) >= _MOST_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[head.raw, peer] = checked
        return checked


def _first_values(head: RequestHead) -> dict[bytes, bytes]:
    """The first value of each header field."""
    return dict(reversed(head.fields))
