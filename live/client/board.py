"""`LiveBoard`: the client of one server."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from websockets.asyncio.client import ClientConnection

from live.client.errors import RequestRefusedError
from live.client.events import Event, encode_event
from live.client.producer import LINGER, MAX_BUFFER, OnRejected, Producer
from live.client.sender import Body, Sender, decoded, open_session
from live.client.target import Patience, parse_api_key, parse_url
from live.client.watching import AskToken, Top, Watcher
from live.domain.event import Answer
from live.domain.item import Item
from live.domain.views import (
    BoardList,
    BoardPage,
    BoardSummary,
    EntrantList,
    HistoryList,
    ItemList,
    RecordHistory,
    RecordList,
    RecordView,
)
from live.domain.window import format_duration

_T = TypeVar("_T")
_NOT_RANKED: Final = "record_not_found"


class LiveBoard:
    """A client of one server. Use it as an asynchronous context manager.

    Args:
        url: the URL of the server, such as `http://127.0.0.1:8000`.
        api_key: an API key, `ID.SECRET`, as `live keys add` prints it. Sending events needs an API key, unless the
            server accepts events from anyone. Watching a private board needs an API key with the verb `read`.
        patience: how many seconds the server may be unavailable before a call fails. The default is 5 until the
            server has answered once, because the address may be wrong, and then 60. `math.inf` means no limit.

    Each call that waits for the server raises a `LiveBoardError` if it fails:

    - `ServerUnavailableError`: the server was unavailable for longer than the patience.
    - `AccessRefusedError`: the API key is missing or not accepted.
    - `RequestRefusedError`: the server refuses the request for another reason. `code` says which.
    - `NotALiveBoardError`: no Live Board server answers at the URL.
    """

    def __init__(self, url: str, api_key: str | None = None, *, patience: float | None = None) -> None:
        self._url = parse_url(url)
        self._api_key = parse_api_key(api_key)
        self._patience = Patience(patience)
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None
        self._sockets: set[ClientConnection] = set()

    async def __aenter__(self) -> Self:
        self._session = await self._stack.enter_async_context(open_session(self._api_key))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._session = None
        try:
            # Close the sockets of watchers that nobody reads any more. Python closes an abandoned generator late or
            # never.
            await asyncio.gather(*(socket.close() for socket in self._sockets))
        finally:
            await self._stack.aclose()

    async def post(self, *events: Event) -> Answer:
        """Send up to 1,000 events in one request, and return the result once the events are on disk.

        The request has an `Idempotency-Key`. If the response is lost, the client sends the request again. The server
        counts each event once, and reports events that it has already counted as duplicates.
        """
        data = b"[" + b",".join(map(encode_event, events)) + b"]"
        headers = {"Content-Type": "application/json", "Idempotency-Key": secrets.token_hex(16)}
        return await self._sender().send(Body(data, headers, len(events), repeatable=True))

    async def boards(self) -> Sequence[BoardSummary]:
        """Return the boards that this client may read."""
        return (await self._read(BoardList, "/v1/boards")).boards

    async def page(
        self,
        board: str,
        *,
        limit: int | None = None,
        start: int | None = None,
        score: int | None = None,
        cursor: str | None = None,
        period: str | None = None,
        as_of: datetime | None = None,
    ) -> BoardPage:
        """Return consecutive records of a board, by default the first 100.

        Args:
            board: the id of the board.
            limit: maximum number of records.
            start: number of records to skip.
            score: return the page around the rank that this score has or would have.
            cursor: `next_cursor` or `prev_cursor` of an earlier page. A walk by cursors
                returns each record once, unless the record moves meanwhile.
            period: a period of a calendar board, such as `previous` or `2026-W46`.
            as_of: an aware datetime. The page is as it was then. This needs a journal.
        """
        query = {"limit": limit, "start": start, "score": score, "cursor": cursor, "period": period, "as_of": as_of}
        return await self._read(BoardPage, _path("boards", board), **query)

    async def record(
        self,
        board: str,
        member: str,
        *,
        around: int | None = None,
        period: str | None = None,
        as_of: datetime | None = None,
    ) -> RecordView | None:
        """Return the record of a member: its score, its rank, and the gap to the next rank.

        Return None if the member is not on the board. `around` is the number of neighbours on each side, which are in
        `RecordView.records`. `period` and `as_of` are as in `page`.
        """
        path = _path("boards", board, "records", member)
        try:
            return await self._read(RecordView, path, around=around, period=period, as_of=as_of)
        except RequestRefusedError as error:
            if error.code == _NOT_RANKED:
                return None
            raise

    async def records(self, board: str, *members: str, period: str | None = None) -> Sequence[RecordView]:
        """Return the records of up to 100 members that are on the board, in their order, read at one instant."""
        return (await self._read(RecordList, _path("boards", board, "records"), key=members, period=period)).records

    async def history(
        self,
        board: str,
        *members: str,
        since: datetime | None = None,
        until: datetime | None = None,
        step: str | timedelta | None = None,
    ) -> Sequence[RecordHistory]:
        """Return the scores and ranks of up to 20 members over time.

        Without members, return the scores and ranks of the first 10 records in the last hour. With members, the
        default is the last day, in steps of an hour. `since` and `until` are aware datetimes, and `step` is a length
        such as `5m`, or a `timedelta`. The server needs a journal.
        """
        query = {"key": members, "from": since, "to": until, "step": step}
        return (await self._read(HistoryList, _path("boards", board, "history"), **query)).records

    async def titles(self, *members: str) -> Mapping[str, Item]:
        """Return the titles of up to 100 members, with links and pictures. Members without a title are left out."""
        items = (await self._read(ItemList, "/v1/items", key=members)).items
        return {item.member: item for item in items}

    async def set_titles(self, *items: Item) -> None:
        """Set the titles of up to 1,000 members, in at most 256 KiB. If one title is invalid, set none of them.

        The API key needs the verb `admin` for all boards.
        """
        await self._sender().call("PUT", "/v1/items", msgspec.json.encode({"items": items}))

    async def remove_title(self, member: str) -> None:
        """Take the title of a member away, if it has one. The API key needs the verb `admin` for all boards."""
        await self._sender().call("DELETE", _path("items", member))

    async def entrants(self, board: str, *, limit: int | None = None, cursor: str | None = None) -> EntrantList:
        """Return about `limit` registered members of a contest, in no order, after the `next_cursor` of a page."""
        return await self._read(EntrantList, _path("boards", board, "entrants"), limit=limit, cursor=cursor)

    async def register(self, board: str, member: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Register a member for a contest, or replace its metadata. The API key needs the verb `admin`."""
        body = msgspec.json.encode(metadata or {})
        await self._sender().call("PUT", _path("boards", board, "records", member), body)

    async def withdraw(self, board: str, member: str) -> None:
        """Withdraw a member without votes from a contest, if it is registered. The API key needs the verb `admin`."""
        try:
            await self._sender().call("DELETE", _path("boards", board, "records", member))
        except RequestRefusedError as error:
            # This error can mean that an earlier attempt has succeeded and its response was lost.
            if error.code != _NOT_RANKED:
                raise

    def producer(
        self,
        *,
        linger: float = LINGER,
        max_bytes: int = MAX_BUFFER,
        on_rejected: OnRejected | None = None,
        rank: bool = False,
    ) -> Producer:
        """Make a producer that sends events in batches in the background.

        Args:
            linger: how many seconds an event may wait for other events that share its batch.
            max_bytes: how many bytes of JSON the events without a response may take. For more, `send` waits.
            on_rejected: called with each event that the server rejects, and the reason. By default, a warning is
                logged.
            rank: results of `Producer.post` have the records of the member after the event. Each record counts as an
                event against the rate of the API key, and batches are smaller.
        """
        return Producer(self._sender(), linger=linger, max_bytes=max_bytes, on_rejected=on_rejected, rank=rank)

    def watch(
        self,
        board: str,
        *,
        limit: int | None = None,
        interval: str | timedelta | None = None,
        token: AskToken | None = None,
    ) -> AsyncGenerator[Top]:
        """Yield the top of a board at first, and again whenever the top changes or becomes stale.

        A lost connection makes the top stale. The client reconnects with exponential back-off and jitter, or at the
        time that the server asks for. Then the client receives the changes that it missed. A slow reader receives the
        latest state, not every state.

        Args:
            board: the id of the board.
            limit: number of records to watch. By default, the server sends 50.
            interval: minimum time between two changes, such as `500ms` or `2s`, or a `timedelta`. The default is
                the board's own interval.
            token: an `async` function that returns a viewer token for a private board. The client sends the token
                instead of the API key. It calls the function for each connection, and again before the token ends, so
                that the watch goes on without a gap.

        Raises:
            WatchEndedError: the server closed the connection permanently, for example because the board was deleted.
        """
        return Watcher(
            self._url,
            board,
            token or self._api_key,
            limit=limit,
            interval=_written(interval),
            patience=self._patience,
            sockets=self._sockets,
        ).tops()

    async def _read(self, kind: type[_T], path: str, **query: object) -> _T:
        given = {name: _written(value) for name, value in query.items()}
        text = urlencode({name: value for name, value in given.items() if value is not None}, doseq=True)
        body = await self._sender().call("GET", f"{path}?{text}" if text else path)
        return decoded(msgspec.json.Decoder(kind).decode, body, self._url)

    def _sender(self) -> Sender:
        if self._session is None:
            raise RuntimeError("the client is closed, or was not entered with `async with`")
        return Sender(self._session, self._url, self._api_key, patience=self._patience)


def _written(value: _T | datetime | timedelta) -> _T | str:
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return format_duration(round(value / timedelta(milliseconds=1)))
        case _:
            return value


def _path(*parts: str) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)
