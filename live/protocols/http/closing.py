"""How a connection ends after its last answer."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_SHORT_LINGER: Final = 1.0  # seconds, while the server stops and over TLS, which can't close one direction alone


def close_gently(
    transport: asyncio.Transport, *, is_cut_short: bool, is_stopping: bool, may_linger: Callable[[], bool]
) -> bool:
    """End a connection so that the client can read the last answer; True if the connection lingers.

    A lingering connection is closed for sending, and what the client still sends is read and dropped: closing it
    immediately could reset the connection and destroy the answer (RFC 9112, section 9.6). `is_cut_short` is true if the
    client may still be sending a request. `may_linger` takes a place among the lingering connections, if one is free.
    """
    if transport.is_closing():
        return False
    is_tcp = transport.can_write_eof()  # TLS announces the end itself
    if not (is_tcp or is_cut_short) or not may_linger():
        transport.close()
        return False
    if is_tcp:
        with suppress(OSError):  # the client has reset the connection
            transport.write_eof()
    if is_stopping or not is_tcp:
        asyncio.get_running_loop().call_later(_SHORT_LINGER, transport.close)
    return True
