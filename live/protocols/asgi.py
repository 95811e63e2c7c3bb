"""Requests that the ASGI application serves, each in its own uvicorn request cycle."""

import asyncio
import logging
import weakref
from typing import Any, Final, cast
from urllib.parse import unquote

from starlette.routing import Mount, Route
from uvicorn._types import ASGI3Application, ASGISendEvent, HTTPScope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

from live.auth.requester import EXTENSION, Requester
from live.errors import ProblemError
from live.http.parser import RequestHead
from live.protocols.exchange import OTHER, Connection, Exchange

VIEWER: Final = "live.viewer"  # the ASGI extension by which a request becomes a viewer's; its `connection` is a weakref

_READING: Final = ("GET", "HEAD")
_log: Final = logging.getLogger("uvicorn.error")


class _Outlet:
    """The transport that a cycle sees: the cycle writes to it, but does not decide how the connection ends."""

    __slots__ = ("_transport", "ended")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.ended = False

    def write(self, data: bytes) -> None:
        if not self.ended:
            self._transport.write(data)

    def is_closing(self) -> bool:
        return self.ended or self._transport.is_closing()

    def close(self) -> None:
        """Do nothing: the connection notices a complete cycle, and `AppRequest` an incomplete cycle."""


class _Cycle(RequestResponseCycle):
    status = 0

    async def send(self, message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        if self.waiting_for_100_continue and self.more_body:
            # Nobody knows whether the client will send the body, so the next bytes are ambiguous.
            self.keep_alive = False
        await super().send(message)


class AppRequest(Exchange):
    """One request to the application.

    Its body is read only after every earlier request is answered, because an earlier request may take any time.
    """

    __slots__ = ("_app", "_has_begun", "_length", "_outlet", "cycle")

    def __init__(
        self,
        connection: Connection,
        app: ASGI3Application,
        head: RequestHead,
        requester: Requester | ProblemError,
        state: dict[str, Any],
        *,
        keep_alive: bool,
    ) -> None:
        self._app = app
        self._outlet = _Outlet(connection.transport)
        self._has_begun = False
        self._length = head.length
        path, _, query = head.target.partition(b"?")
        transport = connection.transport
        # The reference to the connection is weak, because the garbage collector should find no cycle.
        extensions: dict[str, Any] = {VIEWER: {"connection": weakref.ref(connection)}, EXTENSION: requester}
        scope: HTTPScope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": head.version,
            "server": get_local_addr(transport),
            "client": get_remote_addr(transport),
            "scheme": "https" if is_ssl(transport) else "http",
            "method": head.method.decode(),
            "root_path": "",
            "path": unquote(path.decode()),
            "raw_path": path,
            "query_string": query,
            "headers": list(head.fields),
            "state": state,
            "extensions": extensions,
        }
        self.cycle = _Cycle(
            scope=scope,
            transport=self._outlet,  # type: ignore[arg-type] # has every method that a cycle uses
            flow=connection.flow,
            logger=_log,
            access_logger=_log,
            access_log=False,
            default_headers=connection.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=head.expects_continue,
            keep_alive=head.keep_alive,
            on_response=connection.response_done,
        )
        super().__init__(connection, keep_alive=keep_alive)
        if not head.has_body:
            self.end()

    @property
    def keep_alive(self) -> bool:
        """Whether another request may follow."""
        return self.cycle.keep_alive

    @keep_alive.setter
    def keep_alive(self, keep_alive: bool) -> None:
        self.cycle.keep_alive = keep_alive

    @property
    def route(self) -> str:
        """The method and the path of the route that has taken the request, with names of parameters, not values."""
        method, route = self.cycle.scope["method"], cast("dict[str, Any]", self.cycle.scope).get("route")
        if isinstance(route, Mount):  # use the name, because the path contains the version of the static files
            return f"{method} /{route.name}" if method in _READING else OTHER
        if isinstance(route, Route) and method in (route.methods or ()):
            return f"{method} {route.path.replace(':path', '')}"
        return OTHER

    @property
    def started(self) -> bool:
        """Whether the answer has begun, so that no other answer is possible."""
        return self.cycle.response_started

    @property
    def is_full(self) -> bool:
        """Whether to pause reading the body until the application starts or takes some of it."""
        is_waiting = not self._has_begun or self.wanted > 0 or len(self.cycle.body) > HIGH_WATER_LIMIT
        return is_waiting and not self.cycle.response_complete

    def begin(self) -> None:
        """Admit the body and run the application: every earlier request is answered."""
        if self._length != 0:
            self.connection.hold(self, self._length)
        self._has_begun = True
        tasks = self.connection.server_state.tasks
        task = asyncio.get_running_loop().create_task(self._run())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def receive(self, data: bytes, *, last: bool) -> None:
        """Receive a piece of the body; it is dropped once the response is complete."""
        if not self.cycle.response_complete:
            self.cycle.body += data
            self.cycle.message_event.set()
        if last:
            self.end()

    def end(self) -> None:
        """Tell the application that the request is complete."""
        self.cycle.more_body = False
        self.cycle.message_event.set()

    def drop_body(self) -> None:
        """Drop the body: the application does not need it, and the answer may take any time."""
        self.cycle.body = bytearray()
        self._release()

    def disconnect(self) -> None:
        """Tell the application that the client has left, or got another answer."""
        self._outlet.ended = self.cycle.disconnected = True
        self.cycle.message_event.set()
        if not self._has_begun:
            self._release()

    async def _run(self) -> None:
        try:
            await self.cycle.run_asgi(self._app)
        finally:
            self._release()
        if not (self.cycle.response_complete or self.cycle.disconnected):
            self.connection.transport.close()  # the response is incomplete and stays so

    def _release(self) -> None:
        size, self.size, self.wanted = self.size, 0, 0
        self.connection.release(size)
