"""Plain reads of a board, `GET /v1/boards/{board}`, without ASGI. All other requests go to the routes."""

import asyncio
from functools import lru_cache, partial
from typing import Final, NamedTuple
from urllib.parse import unquote

import msgspec
from starlette.datastructures import QueryParams

from live.auth.rates import payer_of
from live.auth.requester import Requester
from live.auth.sessions import marked_cookie
from live.domain.reader import NOBODY, Reader
from live.errors import EpochLostError, ProblemError
from live.http.parser import Peer, RequestHead
from live.http.reply import Reply, problem_reply, takes_gzip
from live.protocols.exchange import Begin, Exchange
from live.store.board.read.reader import PageResult
from live.web.api.boards import BoardParameters, BoardQuery, board_reply
from live.web.middleware import permissions
from live.web.parts import Live

_BOARDS: Final = b"/v1/boards/"
_VARY: Final = b"vary"
_READ: Final = frozenset((b"if-none-match", b"accept-encoding", b"origin", b"authorization", b"cookie"))
_LONGEST_KNOWN: Final = 256  # bytes of a target that is remembered
_MOST_KNOWN: Final = 1024


class _Asked(NamedTuple):
    """A plain read.

    `query` is the query of a target, which all its readers share. `known` is the `If-None-Match` of the client. `gzip`
    says whether the client takes compressed replies.
    """

    query: BoardQuery
    reader: Reader
    requester: Requester
    known: str
    gzip: bool


class FastReads:
    """Finds plain reads, and answers them."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._is_closed = live.settings.role == "ingest"
        self._ledgers = live.registry.ledgers
        self._allowed = frozenset(live.settings.allowed_origins)
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, head: RequestHead, peer: Peer) -> Begin | None:
        """Find the read that a request asks for. Return None if the application answers the request."""
        target = head.target
        if not target.startswith(_BOARDS) or self._is_closed:
            return None
        tag = codings = None
        origins, reader = 0, NOBODY
        try:
            query = (_known_query if len(target) <= _LONGEST_KNOWN else _parse)(target)
            if query is None:
                return None
            requester = self._live.clients.resolve(peer.address, head.fields, tls=peer.tls)
            for name, value in head.fields:
                if name not in _READ:
                    continue
                if name == b"if-none-match":
                    tag = value if tag is None else tag
                elif name == b"accept-encoding":
                    codings = value if codings is None else b"%b,%b" % (codings, value)
                elif name == b"origin":
                    origins += 1
                elif reader is NOBODY:
                    if marked_cookie(head.fields) is not None:
                        return None
                    reader = self._live.authenticator.reader_of(head.fields, requester)
        except ProblemError:
            return None
        if origins > 1 or self._ledgers.find(query.board, reader) is None:
            return None
        known = "" if tag is None else tag.decode("latin-1")
        gzip = codings is not None and (_known_gzip if len(codings) <= _LONGEST_KNOWN else _takes_gzip)(codings)
        return partial(self._begin, _Asked(query, reader, requester, known, gzip))

    def _begin(self, asked: _Asked, exchange: Exchange) -> None:
        try:
            self._live.rate_limiter.admit_read(payer_of(asked.reader, asked.requester))
        except ProblemError as problem:
            exchange.answer(self._completed(asked, problem_reply(problem)))
            return
        query = asked.query
        ledger = self._ledgers.find(query.board, asked.reader)
        if ledger is None or not query.when.is_now:
            self._spawn(asked, exchange, None)
        else:
            callback = partial(self._show, asked, exchange)
            self._live.reads.read_soon(ledger.reader, query.what, callback, counted=True)

    def _show(self, asked: _Asked, exchange: Exchange, found: PageResult | Exception) -> None:
        if isinstance(found, Exception):
            self._spawn(asked, exchange, found)
        else:
            exchange.answer(self._completed(asked, board_reply(self._live, asked.known, found)))

    def _spawn(self, asked: _Asked, exchange: Exchange, failed: Exception | None) -> None:
        """Stop the work if the client leaves."""
        task = asyncio.create_task(self._work(asked, exchange, failed))
        exchange.abandon = task.cancel
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, asked: _Asked, exchange: Exchange, failed: Exception | None) -> None:
        live, query = self._live, asked.query
        try:
            reply = await query.answer(live, asked.reader, asked.requester.network, asked.known, failed)
        except EpochLostError as error:
            reply = problem_reply(await live.registry.explain(query.board, error, asked.reader))
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            reply = problem_reply(error)
        exchange.answer(self._completed(asked, reply))

    def _completed(self, asked: _Asked, reply: Reply) -> Reply:
        """Compress a reply for clients that take gzip, and add fields for allowed origins."""
        if asked.gzip:
            reply = reply.gzipped
        if self._allowed:
            varies = b", ".join([*(value for name, value in reply.extra if name == _VARY), b"Origin"])
            others = (field for field in reply.extra if field[0] != _VARY)
            extra = (*others, (_VARY, varies), *permissions(asked.requester.origin or "", self._allowed))
            reply = msgspec.structs.replace(reply, extra=extra)
        return reply.private if asked.reader.sees_more else reply


def _parse(target: bytes) -> BoardQuery | None:
    """Read a target. Return None if the application answers requests for it."""
    path, _, text = target.removeprefix(_BOARDS).partition(b"?")
    if b"/" in path:
        return None
    query = BoardQuery.of(unquote(path.decode()), BoardParameters.read(QueryParams(text)))
    return None if query.when.as_of is not None else query


def _takes_gzip(accepted: bytes) -> bool:
    return takes_gzip([accepted.decode("latin-1")])


_known_query: Final = lru_cache(_MOST_KNOWN)(_parse)
_known_gzip: Final = lru_cache(64)(_takes_gzip)  # there are few kinds of browsers
