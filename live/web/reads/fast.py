"""The fast path of the read routes: plain requests for a board, as JSON or HTML, or for a record, without ASGI.

Everything else goes to the routes. Both give the same replies.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.requests import Request

from live.auth.client import EXTENSION, Client, ClientResolver
from live.domain.event import key_fault
from live.errors import EpochLostError, ProblemError
from live.ingest.replies import Reply, problem_reply
from live.network.encodings import takes_gzip
from live.network.parameters import require_known
from live.protocols.http.parser import Peer, RequestHead
from live.protocols.http.pipeline import Get, Read
from live.store.board.read.reader import Selection
from live.store.board.read.single_flight import Watched
from live.web.contract.board_document import reply_with_page
from live.web.contract.openapi import query_names
from live.web.http.middleware import permissions
from live.web.http.responses import reply_of
from live.web.kept_pages import cache_key_of, kept_reply
from live.web.pages.board import page_size, problem_page, reply_with_boards
from live.web.pages.surfaces import page_of
from live.web.paging import plain_selection
from live.web.reads.boards import reply_of_board
from live.web.reads.records import around_of, nearby, reply_of_record, reply_with_record
from live.web.reads.waiting import Wait, Waiting, reply_now
from live.web.services import Live

_BOARDS: Final = "/v1/boards/"
_PAGES: Final = "/boards/"
_BOARD: Final = "/v1/boards/{board}"
_PAGE: Final = "/boards/{board}"
_RECORD: Final = "/v1/boards/{board}/records/{key}"
_VARY: Final = b"vary"
_TAG_NAMES: Final = (b"\r\nIf-None-Match:", b"\r\nif-none-match:")
_MOST_KNOWN: Final = 1024
_LARGEST_KNOWN: Final = 2048  # bytes of a head


class _Plain(NamedTuple):
    """A request that the fast path takes.

    `selection` is what it reads, with the number of viewers if it is `counted`. `show` makes the reply of that, or
    returns None if that takes more. Then, and without a selection or after an error, `work` makes the reply. The first
    argument of both is the `If-None-Match`. With a `wait`, a client that has a tag waits at `address` until the page
    differs. `origin` is None if no other origin may read the reply. `gzip` says whether the client takes compressed
    replies.
    """

    board: str
    selection: Selection | None
    counted: bool
    show: Callable[[str, Watched], Reply | None]
    work: Callable[[str, Watched | Exception | None], Awaitable[Reply]]
    wait: Wait | None = None
    address: str = ""
    origin: str | None = None
    gzip: bool = False


class FastReads:
    """Finds plain reads, and answers them.

    It remembers heads, because clients send the same ones again and again, apart from the tag.
    """

    def __init__(self, live: Live, clients: ClientResolver, app: Starlette) -> None:
        self._live = live
        self._clients = clients
        self._app = app
        self._allowed = frozenset(live.settings.allowed_origins)
        self._found: dict[tuple[bytes, Peer], _Plain | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, head: RequestHead, peer: Peer) -> Read | None:
        """The read that a request asks for; None if the application answers it."""
        raw, known = _without_tag(head)
        key = (raw, peer)
        if key in self._found:
            plain = self._found[key]
        else:
            plain = self._parse(head, peer)
            if plain is not None:
                plain = plain._replace(gzip=takes_gzip(_all(head, b"accept-encoding")))
            if len(raw) <= _LARGEST_KNOWN:
                if len(self._found) >= _MOST_KNOWN:
                    del self._found[next(iter(self._found))]
                self._found[key] = plain
        if plain is None or plain.board not in self._live.ledgers:
            return None
        return partial(self._begin, plain, known)

    def _parse(self, head: RequestHead, peer: Peer) -> _Plain | None:
        raw_path, _, text = head.target.partition(b"?")
        path = unquote(raw_path.decode())
        if self._live.settings.role == "ingest" or sum(name == b"origin" for name, _ in head.fields) > 1:
            return None
        try:
            client = self._clients.resolve(peer.address, head.fields, tls=peer.tls)
            if path.startswith(_PAGES):
                return self._parse_page(head, client, path.removeprefix(_PAGES), text)
            if not path.startswith(_BOARDS) or raw_path.endswith((b"/slots", b"/history")):
                return None
            board, slash, rest = path.removeprefix(_BOARDS).partition("/")
            query = QueryParams(text)
            records, _, member = rest.partition("/")
            if not slash:
                plain = self._parse_board(board, query, client.network)
            elif records == "records" and member:
                plain = self._parse_record(board, member, query, client.network)
            else:
                return None
            return None if plain is None else plain._replace(address=client.network, origin=client.origin or "")
        except ProblemError:
            return None

    def _parse_board(self, board: str, query: QueryParams, network: str) -> _Plain | None:
        require_known(query, query_names(_BOARD, "GET"))
        if "as_of" in query:
            return None
        if "wait" in query:
            return self._parse_wait(board, Wait.parse(query, self._live.settings))

        async def work(known: str, found: Watched | Exception | None) -> Reply:
            if isinstance(found, Exception):
                raise found
            return await reply_of_board(self._live, board, query, known, network)

        selection = plain_selection(query, self._live.settings.max_limit)
        return _Plain(board, selection, counted=True, show=_show_page, work=work)

    def _parse_wait(self, board: str, wait: Wait) -> _Plain:
        async def work(known: str, found: Watched | Exception | None) -> Reply:
            if isinstance(found, Exception):
                raise found
            return await reply_now(self._live, board, wait.since(known))

        return _Plain(board, wait.selection, counted=True, show=_show_page, work=work, wait=wait)

    def _parse_record(self, board: str, member: str, query: QueryParams, network: str) -> _Plain | None:
        require_known(query, query_names(_RECORD, "GET"))
        if "as_of" in query or "explain" in query or key_fault(member) is not None:
            return None
        around = around_of(query)

        def show(known: str, found: Watched) -> Reply | None:
            has_record = found.reading.page.records  # a contestant without votes has none
            return reply_with_record(known, found.reading, member, around) if has_record else None

        async def work(known: str, found: Watched | Exception | None) -> Reply:
            if isinstance(found, Exception):
                raise found
            return await reply_of_record(self._live, board, member, query, known, network)

        selection = nearby(member, around, None) if query.get("period", "current") == "current" else None
        return _Plain(board, selection, counted=False, show=show, work=work)

    def _parse_page(self, head: RequestHead, client: Client, board: str, text: bytes) -> _Plain | None:
        query = QueryParams(text)
        require_known(query, query_names(_PAGE, "GET"))
        if "key" in query or "as_of" in query or query.get("period", "current") != "current":
            return None
        surface = page_of(query)
        size = page_size(query, surface, 1, self._live.settings.max_live_limit)
        request = Request({
            "type": "http", "app": self._app, "scheme": client.scheme, "server": None, "path": f"{_PAGES}{board}",
            "path_params": {"board": board}, "query_string": text, "headers": list(head.fields),
            "extensions": {EXTENSION: client},
        })  # fmt: skip
        cache_key = cache_key_of(request, surface)

        def show(_known: str, found: Watched) -> Reply | None:
            now = cache_key._replace(needs_key=self._live.authenticator.needs_key(client))
            return kept_reply(found.reading.page, now, found.viewers)

        async def work(_known: str, found: Watched | Exception | None) -> Reply:
            try:
                return await reply_with_boards(request, found)
            except Exception as error:  # noqa: BLE001 - `problem_page` logs unexpected errors
                return reply_of(await problem_page(request, error))

        return _Plain(board, Selection("rank", 0, "", size), counted=True, show=show, work=work)

    def _begin(self, plain: _Plain, known: str, get: Get) -> None:
        ledger = self._live.ledgers.get(plain.board)
        if plain.selection is None or ledger is None:
            self._spawn(get, self._work(plain, known, get, None))
        elif plain.wait is None or not (wait := plain.wait.since(known)).tag:
            callback = partial(self._show, plain, known, get)
            self._live.reads.watch_soon(ledger.reader, plain.selection, callback, counted=plain.counted)
        elif ledger.state.board.idle_ttl is None:
            self._wait(plain, wait, get)
        else:
            self._spawn(get, self._use_and_wait(plain, wait, get))

    def _show(self, plain: _Plain, known: str, get: Get, found: Watched | Exception) -> None:
        """Answer with what was read."""
        reply = None if isinstance(found, Exception) else plain.show(known, found)
        if reply is None:
            self._spawn(get, self._work(plain, known, get, found))
        else:
            get.answer(self._completed(plain, reply))

    def _wait(self, plain: _Plain, wait: Wait, get: Get) -> None:
        """Make the client a viewer until the page differs from what it has."""

        def answer(reply: Reply) -> None:
            get.answer(self._completed(plain, reply))

        try:
            waiting = Waiting(self._live, plain.board, wait, plain.address, answer)
        except ProblemError as problem:
            answer(problem_reply(problem))
            return
        waiting.begin()
        if get.reply is None:
            get.watch(waiting.leave)

    async def _use_and_wait(self, plain: _Plain, wait: Wait, get: Get) -> None:
        """Record that the board is in use, then wait."""
        try:
            await self._live.use(plain.board)
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            get.answer(self._completed(plain, problem_reply(await self._explained(plain, error))))
        else:
            if not get.has_left:
                self._wait(plain, wait, get)

    def _spawn(self, get: Get, work: Coroutine[Any, Any, None]) -> None:
        """Do work for a request, until its client leaves."""
        task = asyncio.create_task(work)
        get.abandon = task.cancel
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, plain: _Plain, known: str, get: Get, found: Watched | Exception | None) -> None:
        try:
            reply = await plain.work(known, found)
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            reply = problem_reply(await self._explained(plain, error))
        get.answer(self._completed(plain, reply))

    async def _explained(self, plain: _Plain, error: Exception) -> Exception:
        if isinstance(error, EpochLostError):
            return await self._live.registry.explain(plain.board, error)
        return error

    def _completed(self, plain: _Plain, reply: Reply) -> Reply:
        """A reply as the client takes it, with the header fields for other origins where some are allowed."""
        if plain.gzip:
            reply = reply.gzipped
        if not self._allowed or plain.origin is None:
            return reply
        varies = b", ".join([*(value for name, value in reply.extra if name == _VARY), b"Origin"])
        others = (field for field in reply.extra if field[0] != _VARY)
        extra = (*others, (_VARY, varies), *permissions(plain.origin, self._allowed))
        return msgspec.structs.replace(reply, extra=extra)


def _show_page(known: str, found: Watched) -> Reply:
    return reply_with_page(known, *found)


def _without_tag(head: RequestHead) -> tuple[bytes, str]:
    """The bytes of a head without its first `If-None-Match`, and the value of that: it changes with the board."""
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
    """The values of a header field."""
    return [value.decode("latin-1") for name, value in head.fields if name == wanted]
