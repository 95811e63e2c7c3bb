"""The fast path of the read routes: plain requests for a board, as JSON or HTML, or for a record, without ASGI.

All other requests go to the routes, which give the same replies.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec
from starlette.datastructures import QueryParams

from live.auth.client import Client, ClientResolver
from live.auth.rate_limiter import payer_of
from live.auth.signed_in import marked_cookie
from live.errors import EpochLostError, ProblemError
from live.ingest.replies import Reply, problem_reply, takes_gzip
from live.network.parameters import require_known
from live.protocols.http.parser import Peer, RequestHead
from live.protocols.http.pipeline import Get, Read
from live.store.board.read.single_flight import PageResult
from live.web.contract.openapi import query_names
from live.web.http.middleware import permissions
from live.web.pages.board import SinglePage
from live.web.pages.rendering import make_visit
from live.web.reads.boards import BoardQuery
from live.web.reads.records import OF_MEMBERS, RecordQuery
from live.web.reads.sources import PageQuery, Requester
from live.web.services import Live

_BOARDS: Final = "/v1/boards/"
_PAGES: Final = "/boards/"
_BOARD: Final = "/v1/boards/{board}"
_PAGE: Final = "/boards/{board}"
_RECORD: Final = "/v1/boards/{board}/records/{key}"
_VARY: Final = b"vary"
_TAG_NAMES: Final = (b"\r\nIf-None-Match:", b"\r\nif-none-match:")
_MOST_KNOWN: Final = 1024
_LARGEST_KNOWN: Final = 2048  # bytes of a head that is remembered


class _Plain(NamedTuple):
    """A request that the fast path takes.

    `payer` is the client or API key whose rate limit the request counts against. `origin` is None if no other origin
    may read the reply. `gzip` says whether the client takes compressed replies.
    """

    query: PageQuery
    payer: str
    is_now: bool
    origin: str | None
    gzip: bool


class FastReads:
    """Finds plain reads, and answers them.

    It remembers heads, because clients send the same heads again and again, except for the tag in `If-None-Match`.
    """

    def __init__(self, live: Live, clients: ClientResolver) -> None:
        self._live = live
        self._clients = clients
        self._ledgers = live.registry.ledgers
        self._admit_read = live.rate_limiter.admit_read
        self._generation = -1
        self._allowed = frozenset(live.settings.allowed_origins)
        self._found: dict[tuple[bytes, Peer], _Plain | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, head: RequestHead, peer: Peer) -> Read | None:
        """Find the read that a request asks for. Return None if the application answers the request."""
        if self._generation != self._live.authenticator.generation:
            self._found.clear()
            self._generation = self._live.authenticator.generation
        raw, known = _without_tag(head)
        key = (raw, peer)
        if key in self._found:
            plain = self._found[key]
        else:
            plain = self._parse(head, peer)
            if len(raw) <= _LARGEST_KNOWN:
                if len(self._found) >= _MOST_KNOWN:
                    del self._found[next(iter(self._found))]
                self._found[key] = plain
        if plain is None or self._ledgers.find(plain.query.board, plain.query.reader) is None:
            return None
        return partial(self._begin, plain, known)

    def _parse(self, head: RequestHead, peer: Peer) -> _Plain | None:
        if self._live.settings.role == "ingest" or sum(name == b"origin" for name, _ in head.fields) > 1:
            return None
        try:
            client = self._clients.resolve(peer.address, head.fields, tls=peer.tls)
            query = self._query_of(head, client)
        except ProblemError:
            return None
        if query is None:
            return None
        origin = None if isinstance(query, SinglePage) else client.origin or ""
        return _Plain(
            query, payer_of(query.reader, client), query.when.is_now, origin, takes_gzip(_all(head, b"accept-encoding"))
        )

    def _query_of(self, head: RequestHead, client: Client) -> PageQuery | None:
        """Read the target of a request. Return None if it is no plain read, or has `as_of`.

        Also return None if an administrator may be signed in.

        Raises:
            ProblemError: a parameter is not valid.
        """
        if marked_cookie(head.fields) is not None:
            return None
        raw_path, _, text = head.target.partition(b"?")
        path, params = unquote(raw_path.decode()), QueryParams(text)
        reader = self._live.authenticator.reader_of(head.fields, client)
        requester = Requester(self._live, client.network, reader)
        query: PageQuery | None = None
        if path.startswith(_PAGES):
            require_known(params, query_names(_PAGE, "GET"))
            accepted = next(iter(_all(head, b"accept-language")), "")
            cookie = next(iter(_all(head, b"cookie")), "")
            visit = make_visit(requester, client, (path, text), accepted, cookie)
            query = SinglePage.of(visit, path.removeprefix(_PAGES))
        elif path.startswith(_BOARDS) and not raw_path.endswith(OF_MEMBERS):
            board, slash, rest = path.removeprefix(_BOARDS).partition("/")
            records, _, member = rest.partition("/")
            if not slash:
                require_known(params, query_names(_BOARD, "GET"))
                query = BoardQuery.of(requester, board, params)
            elif records == "records" and member:
                require_known(params, query_names(_RECORD, "GET"))
                query = RecordQuery.of(requester, board, member, params)
        return None if query is None or query.when.as_of is not None else query

    def _begin(self, plain: _Plain, known: str, get: Get) -> None:
        get.route = plain.query.route
        try:
            self._admit_read(plain.payer)
        except ProblemError as problem:
            get.answer(self._completed(plain, problem_reply(problem)))
            return
        query = plain.query
        ledger = self._ledgers.find(query.board, query.reader)
        if ledger is None or not plain.is_now:
            self._spawn(get, self._work(plain, known, get, None))
        else:
            callback = partial(self._show, plain, known, get)
            self._live.reads.read_soon(ledger.reader, query.what, callback, counted=query.is_counted)

    def _show(self, plain: _Plain, known: str, get: Get, found: PageResult | Exception) -> None:
        """Answer with the page or the error of a read."""
        reply = None if isinstance(found, Exception) else plain.query.render(known, found)
        if reply is None:
            self._spawn(get, self._work(plain, known, get, found))
        else:
            get.answer(self._completed(plain, reply))

    def _spawn(self, get: Get, work: Coroutine[Any, Any, None]) -> None:
        """Do work for a request, until its client leaves."""
        task = asyncio.create_task(work)
        get.abandon = task.cancel
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, plain: _Plain, known: str, get: Get, found: PageResult | Exception | None) -> None:
        try:
            reply = await plain.query.answer(known, found)
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            reply = problem_reply(await self._explained(plain, error))
        get.answer(self._completed(plain, reply))

    async def _explained(self, plain: _Plain, error: Exception) -> Exception:
        if isinstance(error, EpochLostError):
            return await self._live.registry.explain(plain.query.board, error, plain.query.reader)
        return error

    def _completed(self, plain: _Plain, reply: Reply) -> Reply:
        """Compress a reply for clients that take gzip, and add the header fields for allowed origins."""
        if plain.gzip:
            reply = reply.gzipped
        if self._allowed and plain.origin is not None:
            varies = b", ".join([*(value for name, value in reply.extra if name == _VARY), b"Origin"])
            others = (field for field in reply.extra if field[0] != _VARY)
            extra = (*others, (_VARY, varies), *permissions(plain.origin, self._allowed))
            reply = msgspec.structs.replace(reply, extra=extra)
        return reply.private if plain.query.reader.sees_more else reply


def _without_tag(head: RequestHead) -> tuple[bytes, str]:
    """Return the bytes of a head, and the value of its first `If-None-Match`, which changes with the board.

    If the name of this field is written in a usual way, the bytes are without the field.
    """
    value = next((value for name, value in head.fields if name == b"if-none-match"), None)
    if value is None:
        return head.raw, ""
    for name in _TAG_NAMES:
        start = head.raw.find(name)
        end = head.raw.find(b"\r\n", start + 2)
        if start >= 0 and head.raw[start + len(name) : end].strip(b" \t") == value:
            return head.raw[:start] + head.raw[end:], value.decode("latin-1")
    return head.raw, value.decode("latin-1")


def _all(head: RequestHead, wanted: bytes) -> list[str]:
    """Return all values of a header field."""
    return [value.decode("latin-1") for name, value in head.fields if name == wanted]
