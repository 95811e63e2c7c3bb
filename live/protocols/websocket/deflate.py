"""Negotiation of permessage-deflate (RFC 7692) with viewers.

The frames of the fan-out are compressed once for all viewers, with the previous messages as the dictionary. That needs
no compressor for a viewer, but a window of 32 KiB in the client that keeps what it received. An offer that asks for
less is declined. What viewers send is decompressed message by message.
"""

from collections.abc import Sequence
from typing import Final

from websockets.exceptions import NegotiationError
from websockets.extensions import Extension
from websockets.extensions.permessage_deflate import PerMessageDeflate, ServerPerMessageDeflateFactory
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
