"""The opening handshake of WebSocket (RFC 6455, section 4) on an HTTP connection."""

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from websockets.datastructures import Headers
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from live.protocols.websocket.deflate import SharedDeflateFactory

BAD_TEXT: Final = 1007  # the close code for text that is not UTF-8
QUIET: Final = logging.getLogger("live.websocket")  # `websockets` would log each connection that opens
QUIET.setLevel(logging.WARNING)


def fields_of(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    """The header fields of a request in the form that `websockets` expects."""
    return Headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)


class Handshake(NamedTuple):
    """The response to a request for an upgrade.

    `is_open` is true if the connection is a WebSocket now, and `deflates` if the client takes compressed frames.
    """

    response: bytes
    is_open: bool
    deflates: bool


def shake_hands(target: bytes, fields: Headers) -> Handshake:
    """Answer a request for an upgrade."""
    handshake = ServerProtocol(logger=QUIET, extensions=[SharedDeflateFactory()])
    handshake.send_response(handshake.accept(Request(target.decode("latin-1"), fields)))
    return Handshake(b"".join(handshake.data_to_send()), handshake.state is State.OPEN, bool(handshake.extensions))
