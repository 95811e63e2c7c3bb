"""Long polling: `GET /v1/boards/{board}?wait=30s` responds when the page differs from the page that the client has."""

import asyncio
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec
from starlette.requests import Request

from live.domain.ranking import Page
from live.domain.window import parse_duration
from live.errors import BOARD_DELETED, FAILED, TOKEN_EXPIRED, ProblemError, StoreUnavailableError
from live.fanout.subscription import Subscription
from live.fanout.viewer import PageViewer
from live.ingest.replies import Reply, problem_reply
from live.network.parameters import whole_number
from live.settings import Settings
from live.store.board.read.reader import Selection
from live.store.board.read.single_flight import PageResult
from live.web.http.disconnects import count_as_viewer, unless_left
from live.web.http.responses import unchanged
from live.web.reads.sources import DEFAULT_LIMIT, PageQuery

_LONGEST: Final = 60  # seconds
_ELSEWHERE: Final = ("cursor", "period", "score", "start")


class Wait(msgspec.Struct, frozen=True):
    """A client that waits for a change of a board's top: for how many seconds, and the `tag` of the top that it knows.

    `known` is the whole `If-None-Match` of the client. `tag` is empty if `known` has no tag of this board: then there
    is nothing to wait for.
    """

    seconds: float
    subscription: Subscription
    known: str = ""
    tag: str = ""

    @classmethod
    def parse(cls, query: Mapping[str, str], settings: Settings) -> "Wait":
        """Read the query of a request with `wait`.

        Raises:
            ProblemError: `parameter_invalid`.
        """
        most = settings.max_live_limit
        for name in _ELSEWHERE:
            if name in query:
                raise ProblemError("parameter_invalid", f"`wait` can't be combined with `{name}`")
        size = whole_number(query, "limit", min(DEFAULT_LIMIT, most), 1, most)
        try:
            seconds = parse_duration(query["wait"])
        except ValueError:
            seconds = 0
        if not 0 < seconds <= _LONGEST:
            raise ProblemError("parameter_invalid", f"`wait` must be a duration from 1ms to {_LONGEST}s")
        return cls(seconds, Subscription(size=size))

    def since(self, known: str) -> "Wait":
        """Return the wait of a client with this `If-None-Match`. If it has several tags, the last valid tag counts."""
        subscription, tag = self.subscription, ""
        for part in known.split(","):
            each = part.strip()
            since = self.subscription.since(each.removeprefix("W/").strip('"'))
            if since is not self.subscription:
                subscription, tag = since, each
        return Wait(self.seconds, subscription, known, tag)

    @property
    def selection(self) -> Selection:
        """The records that the client wants."""
        return Selection("rank", 0, "", self.subscription.size)


class Waiting:
    """A client that waits until the top of a board differs from its tag.

    It counts as a viewer until its reply. Clients that wait for the same page share the read and the encoded reply.
    """

    __slots__ = ("_answer", "_board", "_channel", "_live", "_query", "_timer", "_viewer", "_wait")

    def __init__(self, query: PageQuery, wait: Wait, answer: Callable[[Reply], None]) -> None:
        """Add a viewer. `answer` receives the reply to the query, unless the client leaves first.

        Raises:
            ProblemError: a limit on viewers is reached, the server stops, or the board does not exist.
        """
        self._live = query.live
        self._board = query.board
        self._query = query
        self._wait = wait
        self._answer = answer
        subscription = msgspec.structs.replace(wait.subscription, reader=query.reader)
        self._channel = self._live.hub.admit(query.board, subscription, query.client)
        self._viewer: PageViewer | None = self._live.hub.add_page_viewer(self._channel, subscription, query.client)
        self._timer = asyncio.get_running_loop().call_later(wait.seconds, self._time_out)

    def begin(self) -> None:
        """Answer as soon as the page differs, which may be now."""
        if self._viewer is not None:
            self._viewer.notify(self)

    def leave(self) -> None:
        """Stop waiting."""
        viewer, self._viewer = self._viewer, None
        if viewer is not None:
            self._timer.cancel()
            self._live.hub.leave(viewer, self._query.client)

    def take(self, page: Page) -> None:
        """Answer with a page that differs, or with an error if the board can't be read now.

        One change can answer thousands of requests at once, so take the number of viewers from the hub if the hub has
        it.
        """
        self._timer.cancel()
        status = self._channel.status
        viewers = status.viewer_count
        if status.stale is not None:
            self._refuse(StoreUnavailableError("the board can't be read at present"))
        elif viewers is None:
            self._live.reads.count_soon(self._board, partial(self._show, page))
        else:
            self._show(page, viewers)

    def end(self, code: int) -> None:
        """Answer with a problem, in a later step of the event loop.

        If the server stops, every connection knows it by then, so this is the last answer of the connection.
        """
        asyncio.get_running_loop().call_soon(self._end, code)

    def _show(self, page: Page, viewers: int | Exception) -> None:
        if isinstance(viewers, Exception):
            self._refuse(viewers)
        elif self._channel.ended is not None:
            self._end(self._channel.ended)
        else:
            self._show_read(PageResult(self._channel.reader.state.board, page, viewers))

    def _end(self, code: int) -> None:
        if code == BOARD_DELETED:
            self._refuse(ProblemError("board_not_found", "the board was just deleted"))
        elif code == TOKEN_EXPIRED:
            self._refuse(self._query.reader.refusal())
        elif code == FAILED:
            self._refuse(ProblemError("internal_error", "see the server's log"))
        else:
            pause = math.ceil(self._live.reaper.retry_after())
            self._refuse(ProblemError("stopping", "connect again after the restart", retry_after=pause))

    def _time_out(self) -> None:
        channel = self._channel
        if channel.ended is not None or channel.status.stale is not None:
            self._refuse(StoreUnavailableError("the board could not be read while a client waited"))
        elif self._viewer is not None and self._viewer.position.returns:  # the wait ended before the board was read
            self._live.reads.read_soon(channel.reader, self._wait.selection, self._show_read, counted=True)
        else:
            self._finish(unchanged(self._wait.tag))

    def _show_read(self, found: PageResult | Exception) -> None:
        reply = None if isinstance(found, Exception) else self._query.render(self._wait.known, found)
        if reply is not None:
            self._finish(reply)
        elif isinstance(found, Exception):
            self._refuse(found)

    def _refuse(self, error: Exception) -> None:
        # Without a viewer, the client already has its answer, so `problem_reply` must not count another problem.
        if self._viewer is not None:
            self._finish(problem_reply(error))

    def _finish(self, reply: Reply) -> None:
        if self._viewer is not None:
            self.leave()
            self._answer(reply)


async def answer_after_wait(request: Request, query: PageQuery, wait: Wait) -> Reply:
    """Return the reply to a request that came through ASGI, from a client with a tag.

    Raises:
        ProblemError: a limit on viewers is reached, the server stops, or the board does not exist.
    """
    replied: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def answer(reply: Reply) -> None:
        if not replied.done():  # otherwise the client has left meanwhile
            replied.set_result(reply)

    waiting = Waiting(query, wait, answer)
    count_as_viewer(request.scope)
    waiting.begin()
    try:
        return await unless_left(request.receive, replied) or unchanged(wait.tag)
    finally:
        waiting.leave()
