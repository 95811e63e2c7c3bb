"""The opening handshake of WebSocket (RFC 6455, section 4) on an HTTP connection."""

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from websockets.datastructures import Headers
from websockets.exceptions import NegotiationError
from websockets.extensions import Extension
from websockets.extensions.permessage_deflate import PerMessageDeflate, ServerPerMessageDeflateFactory
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import ExtensionParameter

_WINDOW_BITS: Final = 15


class SharedDeflateFactory(ServerPerMessageDeflateFactory):
    """Accepts offers of clients that keep the whole window; clients compress each of their messages alone."""

    def __init__(self) -> None:
        super().__init__(client_no_context_takeover=True, compress_settings={"memLevel": 1})

    def process_request_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Extension]
    ) -> tuple[list[ExtensionParameter], PerMessageDeflate]:
        """The parameters of the response, and an extension without a compressor.

        The library makes a compressor for each client, which would stay in memory until the next garbage collection.

        Raises:
            NegotiationError: the client does not keep the whole window; its next offer, or none, is used.
        """
        answer, extension = super().process_request_params(params, accepted_extensions)
        if extension.local_no_context_takeover or extension.local_max_window_bits != _WINDOW_BITS:
            raise NegotiationError("the client keeps less than the last 32 KiB")
        return answer, inflating()


def inflating() -> PerMessageDeflate:
    """The extension of a parser that reads what a viewer sends; it has no compressor."""
    return PerMessageDeflate(True, True, _WINDOW_BITS, _WINDOW_BITS)  # noqa: FBT003 - positional in the library


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
