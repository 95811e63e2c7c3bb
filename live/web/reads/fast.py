"""Plain reads of a board, `GET /v1/boards/{board}`, without ASGI. All other requests go to the routes."""

import asyncio
from collections.abc import Coroutine
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec
from starlette.datastructures import QueryParams

from live.auth.client import Client, ClientResolver
from live.auth.rate_limiter import payer_of
from live.auth.signed_in import marked_cookie
from live.domain.reader import NOBODY, Reader
from live.errors import EpochLostError, ProblemError
from live.ingest.replies import Reply, problem_reply, takes_gzip
from live.protocols.http.exchange import Begin, Exchange
from live.protocols.http.parser import Peer, RequestHead
from live.store.board.read.single_flight import PageResult
from live.web.http.middleware import permissions
from live.web.reads.boards import BoardParameters, BoardQuery
from live.web.reads.sources import Requester
from live.web.services import Live

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
    client: Client
    known: str
    gzip: bool


class FastReads:
    """Finds plain reads, and answers them."""

    route = "GET /v1/boards/{board}"

    def __init__(self, live: Live, clients: ClientResolver) -> None:
        self._live = live
        self._clients = clients
        self._is_closed = live.settings.role == "ingest"
        self._ledgers = live.registry.ledgers
        self._allowed = frozenset(live.settings.allowed_origins)
        self._queries: dict[bytes, BoardQuery] = {}  # by target
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, head: RequestHead, peer: Peer) -> Begin | None:
        """Find the read that a request asks for. Return None if the application answers the request."""
        target = head.target
        if not target.startswith(_BOARDS) or self._is_closed:
            return None
        tag = codings = None
        origins, reader = 0, NOBODY
        try:
            query = self._queries.get(target) or self._parse(target)
            if query is None:
                return None
            client = self._clients.resolve(peer.address, head.fields, tls=peer.tls)
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
                    reader = self._live.authenticator.reader_of(head.fields, client)
        except ProblemError:
            return None
        if origins > 1 or self._ledgers.find(query.board, reader) is None:
            return None
        known = "" if tag is None else tag.decode("latin-1")
        gzip = codings is not None and (_known_gzip if len(codings) <= _LONGEST_KNOWN else _takes_gzip)(codings)
        return partial(self._begin, _Asked(query, reader, client, known, gzip))

    def _parse(self, target: bytes) -> BoardQuery | None:
        """Read a target, and remember it. Return None if the application answers requests for it.

        Raises:
            ProblemError: a parameter is not valid.
        """
        path, _, text = target.removeprefix(_BOARDS).partition(b"?")
        if b"/" in path:
            return None
        params = QueryParams(text)
        wanted = BoardParameters.read(params)
        query = BoardQuery.of(Requester(self._live, "", NOBODY), unquote(path.decode()), wanted)
        if query.when.as_of is not None:
            return None
        if len(target) <= _LONGEST_KNOWN:
            if len(self._queries) >= _MOST_KNOWN:
                del self._queries[next(iter(self._queries))]
            self._queries[target] = query
        return query

    def _begin(self, asked: _Asked, exchange: Exchange) -> None:
        try:
            self._live.rate_limiter.admit_read(payer_of(asked.reader, asked.client))
        except ProblemError as problem:
            exchange.answer(self._completed(asked, problem_reply(problem)))
            return
        query = asked.query
        ledger = self._ledgers.find(query.board, asked.reader)
        if ledger is None or not query.when.is_now:
            self._spawn(exchange, self._work(asked, exchange, None))
        else:
            callback = partial(self._show, asked, exchange)
            self._live.reads.read_soon(ledger.reader, query.what, callback, counted=query.is_counted)

    def _show(self, asked: _Asked, exchange: Exchange, found: PageResult | Exception) -> None:
        """Answer with the page or the error of a read."""
        if isinstance(found, Exception):
            self._spawn(exchange, self._work(asked, exchange, found))
        else:
            exchange.answer(self._completed(asked, asked.query.render(asked.known, found)))

    def _spawn(self, exchange: Exchange, work: Coroutine[Any, Any, None]) -> None:
        """Do work for a request, until its client leaves."""
        task = asyncio.create_task(work)
        exchange.abandon = task.cancel
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, asked: _Asked, exchange: Exchange, found: PageResult | Exception | None) -> None:
        query = msgspec.structs.replace(asked.query, reader=asked.reader, client=asked.client.network)
        try:
            reply = await query.answer(asked.known, found)
        except EpochLostError as error:
            reply = problem_reply(await self._live.registry.explain(query.board, error, query.reader))
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            reply = problem_reply(error)
        exchange.answer(self._completed(asked, reply))

    def _completed(self, asked: _Asked, reply: Reply) -> Reply:
        """Compress a reply for clients that take gzip, and add the header fields for allowed origins."""
        if asked.gzip:
            reply = reply.gzipped
        if self._allowed:
            varies = b", ".join([*(value for name, value in reply.extra if name == _VARY), b"Origin"])
            others = (field for field in reply.extra if field[0] != _VARY)
            extra = (*others, (_VARY, varies), *permissions(asked.client.origin or "", self._allowed))
            reply = msgspec.structs.replace(reply, extra=extra)
        return reply.private if asked.reader.sees_more else reply


def _takes_gzip(accepted: bytes) -> bool:
    return takes_gzip([accepted.decode("latin-1")])


_known_gzip: Final = lru_cache(64)(_takes_gzip)  # there are few kinds of browsers
