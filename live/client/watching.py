"""Watch the top of a board over a WebSocket, and reconnect as often as needed."""

import asyncio
import base64
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import UNSET
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from live.client.errors import WatchEndedError
from live.client.sender import Backoff, Response, refusal
from live.client.target import Patience, authorization
from live.domain.ranking import Ranks, Record, apply
from live.domain.views import BoardFacts, Status, Sync, Update
from live.errors import TOKEN_EXPIRED

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 20.0
_STABLE: Final = 5.0  # seconds after which a connection counts as stable, which resets the back-off
_MAX_MESSAGE: Final = 16 << 20
_FINAL: Final = range(3500, 4000)  # close codes after which a client must not reconnect
# Seconds before the end of a token at which the client asks for another token. If less time is left, the client asks
# when half of it is over.
_RENEWAL: Final = 30.0
_AT_TYPE: Final = " - at `$.type`"  # ends the error of msgspec for a message of another type
_log = logging.getLogger("live.client")

AskToken = Callable[[], Awaitable[str]]


class Top(msgspec.Struct, frozen=True, kw_only=True):
    """The first records of a board at one instant.

    Attributes:
        board: the id of the board.
        epoch: the epoch of the board. It changes if the store lost data, and when its contents are replaced.
        offset: a number that grows by one with every change of the board.
        rank_count: number of records of the whole board.
        total_score: sum of all scores, or None if scores are not amounts.
        records: the records in order, each with member, score and rank.
        period: name of the period of a calendar board, such as `2026-W47`.
        facts: what the board has of `period_start`, `period_end`, `opens`, `closes`, `final_at`, `unit`, `scale` and
            `format`.
        stale: why the top may be out of date, such as a lost connection. None means that the top is live.
    """

    board: str
    epoch: str
    offset: int
    rank_count: int
    total_score: int | None
    records: tuple[Record, ...]
    period: str | None = None
    facts: BoardFacts = BoardFacts()
    stale: str | None = None


class GapError(Exception):
    """An update does not start at the position of the top, so a message is missing."""


class TokenEndedError(Exception):
    """The viewer token of a connection has ended, or will end soon. The watch continues with another token."""


class _Ending(msgspec.Struct):
    exp: float


_decode = msgspec.json.Decoder(Sync | Update | Status).decode


class TopState:
    """The top of a watcher. `top` is None until the first message with records."""

    def __init__(self, board: str) -> None:
        self.top: Top | None = None
        self._board = board
        self._ranks: Ranks = "ordinal"
        self._facts = BoardFacts()
        self._stale: str | None = None
        self._shown: Top | None = None

    def connected(self) -> None:
        """Start a new connection. Its first message says whether the top is stale."""
        self._stale = None

    def receive(self, message: str | bytes) -> Status | None:
        """Apply a message. If the message is a status, return the status. Ignore messages of other types."""
        try:
            received: Sync | Update | Status = _decode(message)
        except msgspec.ValidationError as error:
            if str(error).endswith(_AT_TYPE):
                return None
            raise
        if isinstance(received, Sync):
            self._ranks = "ordinal" if received.ranks is UNSET else received.ranks
            self._facts = BoardFacts(**{name: getattr(received, name) for name in BoardFacts.__struct_fields__})
            self.top = self._moved(received, received.records)
        elif isinstance(received, Update):
            top = self.top
            if top is None or (top.epoch, top.offset) != (received.epoch, received.since):
                raise GapError
            self.top = self._moved(received, apply(top.records, received.changed, received.removed, self._ranks))
        else:
            self.mark((received.reason or "the server is out of date") if received.stale else None)
            return received
        return None

    def mark(self, stale: str | None) -> None:
        """Set the reason why the top may be out of date, or None if the top is live."""
        self._stale = stale
        if self.top is not None and self.top.stale != stale:
            self.top = msgspec.structs.replace(self.top, stale=stale)

    def changed(self) -> Top | None:
        """Return the top if it differs from the top that this method returned last, otherwise None."""
        if self.top is self._shown:
            return None
        self._shown = self.top
        return self.top

    def _moved(self, message: Sync | Update, records: Sequence[Record]) -> Top:
        return Top(
            board=self._board,
            epoch=message.epoch,
            offset=message.offset,
            rank_count=message.rank_count,
            total_score=message.total_score,
            records=tuple(records),
            period=None if message.period is UNSET else message.period,
            facts=self._facts,
            stale=self._stale,
        )


def live_url(url: str, board: str, **query: object) -> str:
    """Return the URL of the live route of a board. Leave out parameters that are None."""
    given = urlencode({name: value for name, value in query.items() if value is not None})
    parts = urlsplit(url)
    path = f"{parts.path}/v1/boards/{quote(board, safe='')}/live"
    return urlunsplit(("wss" if parts.scheme == "https" else "ws", parts.netloc, path, given, ""))


async def open_viewer(
    address: str, api_key: str | None = None, *, ping_interval: float | None = 20.0
) -> ClientConnection:
    """Connect to a live route. Ping the server every `ping_interval` seconds, to notice if it no longer responds."""
    return await connect(
        address,
        additional_headers=authorization(api_key),
        compression=None,
        ping_interval=ping_interval,
        close_timeout=1,
        max_size=_MAX_MESSAGE,
        proxy=None,
    )


class Watcher:
    """Follows one board.

    `interval` is the minimum time between two messages, such as `1s`. `sockets` contains the open connection, so that
    the client can close it when nobody reads from the watcher any more. `credentials` is an API key, a function that
    returns a viewer token for each connection, or None.
    """

    def __init__(
        self,
        url: str,
        board: str,
        credentials: str | AskToken | None = None,
        *,
        limit: int | None = None,
        interval: str | None = None,
        patience: Patience | None = None,
        sockets: set[ClientConnection] | None = None,
    ) -> None:
        self._has_ended_token = False  # if this is true, connect again at once, with another token
        self._url = url
        self._board = board
        self._credentials = credentials
        self._query = {"limit": limit, "interval": interval}
        self._patience = patience or Patience()
        self._sockets: set[ClientConnection] = set() if sockets is None else sockets
        self._state = TopState(board)
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._problem = ""  # why the last connection ended
        # The next two times are by the loop's clock.
        self._earliest = 0.0  # when the server allows a reconnect at the earliest
        self._last_contact = 0.0  # when the server last sent something

    async def tops(self) -> AsyncGenerator[Top]:
        """Yield the top at first, and again whenever it changes or becomes stale."""
        self._last_contact = _now()
        while True:
            async with aclosing(self._connection()) as tops:
                async for top in tops:
                    yield top
            if self._has_ended_token:
                self._has_ended_token = False
                continue
            pause = self._next_pause()
            _log.info("connecting to %s again in %.1f s: %s", self._url, pause, self._problem)
            self._state.mark(f"connection lost: {self._problem}")
            if (stale := self._state.changed()) is not None:
                yield stale
            await asyncio.sleep(pause)

    async def _connection(self) -> AsyncGenerator[Top]:
        state, connected = self._state, None
        own, renewal = self._credentials, None
        if callable(own):
            own = await own()
            renewal = _renewal_of(own)
        # If the server knows the position of the top, it sends only what has changed since.
        position = {} if state.top is None else {"epoch": state.top.epoch, "offset": state.top.offset}
        try:
            socket = await open_viewer(live_url(self._url, self._board, **self._query, **position), own)
            self._sockets.add(socket)
            try:
                state.connected()
                connected = _now()
                self._patience.has_answer = True
                while True:
                    status = state.receive(await self._message(socket, renewal))
                    self._last_contact = _now()
                    if status is not None:
                        self._wait(status.retry_after)
                    if (top := state.changed()) is not None:
                        yield top
            finally:
                await socket.close()
                self._sockets.discard(socket)
        except TokenEndedError:
            self._has_ended_token = True
        except GapError:
            self._problem = "a message was missed"
        except InvalidStatus as error:  # the server refuses the handshake
            response, self._patience.has_answer = error.response, True
            body = bytes(response.body or b"")
            reply = Response(response.status_code, body, response.headers.get("Retry-After", ""))
            failure = refusal(reply, self._url, None if callable(self._credentials) else own, "read")
            self._problem = failure.problem
            self._wait(failure.retry_after)
        except ConnectionClosed as closed:
            received = closed.rcvd
            if received is not None and received.code in _FINAL:
                raise WatchEndedError(received.code, received.reason) from None
            self._last_contact = _now()
            self._problem = str(closed)
        except (OSError, WebSocketException) as error:
            self._problem = f"{type(error).__name__} {error}".strip()
        if connected is not None and _now() - connected > _STABLE:
            self._backoff.reset()

    async def _message(self, socket: ClientConnection, renewal: float | None) -> bytes:
        try:
            async with asyncio.timeout_at(renewal):
                return await socket.recv(decode=False)
        except TimeoutError:
            raise TokenEndedError from None
        except ConnectionClosed as closed:
            if callable(self._credentials) and closed.rcvd is not None and closed.rcvd.code == TOKEN_EXPIRED:
                raise TokenEndedError from None
            raise

    def _next_pause(self) -> float:
        """Return the seconds to wait before the next connection, as the server has asked or as the back-off says."""
        now = _now()
        pause = self._earliest - now if self._earliest > now else self._backoff.next()
        if now + pause > self._last_contact + self._patience.seconds:
            raise self._patience.over(self._url, self._problem)
        return pause

    def _wait(self, seconds: float | None) -> None:
        if seconds is not None:
            self._earliest = _now() + self._backoff.after(seconds)


def _renewal_of(token: str) -> float | None:
    """Return the time of the loop's clock at which to replace a token. Return None if the token has no end."""
    try:
        claims = token.split(".")[1]
        ends = msgspec.json.decode(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)), type=_Ending).exp
    except (IndexError, ValueError):  # the token is invalid, and the server will say why
        return None
    left = max(0.0, ends - time.time())
    return _now() + left - min(_RENEWAL, left / 2)


def _now() -> float:
    return asyncio.get_running_loop().time()
