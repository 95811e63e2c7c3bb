"""Talks to a service manager, such as systemd, and takes its socket.

`sd_notify(3)` and `sd_listen_fds(3)` describe the protocols. Without a service manager, nothing happens.
"""

import asyncio
import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Final, Self

from live.errors import SetupError

_FIRST: Final = 3  # the first descriptor that a service manager passes on
_VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES")


class ServiceManager:
    """The service manager of a process: its address, the socket that it passes on, and how often it wants a message."""

    def __init__(self, address: str = "", watchdog: float = 0.0, listener: socket.socket | None = None) -> None:
        self.listener = listener
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog = watchdog

    @classmethod
    def take(cls, environment: MutableMapping[str, str] = os.environ) -> Self:
        """Take the variables out of the environment, because processes that this process starts must not get them."""
        given = {name: environment.pop(name, "") for name in _VARIABLES}
        own, listener = str(os.getpid()), None
        seconds = int(given["WATCHDOG_USEC"] or 0) / 1e6 if given["WATCHDOG_PID"] in {"", own} else 0.0
        if given["LISTEN_FDS"] and given["LISTEN_PID"] == own:
            listener = _only_listener(given["LISTEN_FDS"])
        return cls(given["NOTIFY_SOCKET"], seconds, listener)

    async def run(self) -> None:
        """Say that the server is ready. Then say again and again that its loop runs, until the task is cancelled."""
        self._notify("READY=1")
        try:
            while True:
                await asyncio.sleep(self._watchdog / 2 or 3600)
                self._notify("WATCHDOG=1")
        finally:
            self._notify("STOPPING=1")

    def _notify(self, text: str) -> None:
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.settimeout(0)
                channel.sendto(text.encode(), self._address)


def _only_listener(number: str) -> socket.socket:
    """Keep the socket from programs that this process starts."""
    if number != "1":
        raise SetupError(f"the service manager passes on {number} sockets: leave one ListenStream= in the socket unit")
    listener = socket.socket(fileno=_FIRST)
    listener.set_inheritable(False)
    if listener.family not in {socket.AF_INET, socket.AF_INET6} or listener.type != socket.SOCK_STREAM:
        listener.close()
        raise SetupError("the service manager passes on a socket that is not a TCP socket: give ListenStream= a port")
    return listener
