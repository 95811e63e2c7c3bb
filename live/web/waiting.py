"""Long polling: `GET /v1/boards/{board}?wait=30s` responds when the page differs from what the client has."""

import asyncio
import math
from typing import Final

import msgspec
from starlette.requests import Request

from live.domain.ranking import Page
from live.domain.window import parse_duration
from live.errors import BOARD_GONE, ProblemError, StoreUnavailableError
from live.fanout.subscription import Subscription
from live.fanout.viewer import ChannelEndedError, PullViewer
from live.network.parameters import whole_number
from live.settings import Settings
from live.web.clients import client_of
from live.web.paging import DEFAULT_LIMIT
from live.web.state import Live
from live.web.watching import lend, unless_left

_LONGEST: Final = 60  # seconds
_ELSEWHERE: Final = ("cursor", "period", "score", "start")


class Wait(msgspec.Struct, frozen=True):
    """How many seconds a client waits until the top of a board differs from `tag`.

    Without a tag of this board (''), there is nothing to wait for.
    """

    seconds: float
    asked: Subscription
    tag: str

    @classmethod
    def parse(cls, request: Request, settings: Settings) -> "Wait":
        """Read a request with `wait`. If `If-None-Match` has several tags, the last valid one counts.

        Raises:
            ProblemError: `parameter_invalid`.
        """
        query, most = request.query_params, settings.max_live_limit
        for name in _ELSEWHERE:
            if name in query:
                raise ProblemError("parameter_invalid", f"`wait` can't be combined with `{name}`")
        asked, known = Subscription(size=whole_number(query, "limit", min(DEFAULT_LIMIT, most), 1, most)), ""
        for part in request.headers.get("if-none-match", "").split(","):
            tag = part.strip()
            since = asked.since(tag.removeprefix("W/").strip('"'))
            if since is not asked:
                asked, known = since, tag
        return cls(_seconds(query["wait"]), asked, known)

    async def page(self, request: Request, live: Live, board: str) -> Page | None:
        """The top of a board once it differs; None if the wait ends before, or if the client disconnects.

        The client counts as a viewer meanwhile. Clients that wait for the same page share one read per tick.

        Raises:
            ProblemError: a limit on viewers is reached, the server shuts down, or the board is deleted.
            StoreUnavailableError: the wait ended, and the state of the board is unknown.
        """
        with live.hub.watch(board, self.asked, client_of(request).address) as viewer:
            lend(request.scope)
            try:
                return await unless_left(request.receive, self._next_page(viewer))
            except ChannelEndedError as end:
                raise _problem(live, end.code) from None
            except TimeoutError:
                channel = live.hub.channels.get(board)
                if channel is None or channel.announcements.stale is not None:
                    raise StoreUnavailableError("the board could not be read while a client waited") from None
                return None

    async def _next_page(self, viewer: PullViewer) -> Page:
        async with asyncio.timeout(self.seconds):
            return await viewer.next_page()


def _seconds(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= _LONGEST:
        raise ProblemError("parameter_invalid", f"`wait` must be a duration from 1ms to {_LONGEST}s")
    return seconds


def _problem(live: Live, code: int) -> ProblemError:
    if code == BOARD_GONE:
        return ProblemError("board_not_found", "the board was just deleted")
    return ProblemError("stopping", "connect again after the restart", retry_after=math.ceil(live.reaper.retry_after()))
