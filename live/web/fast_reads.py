"""The short path of the read routes: plain requests for a board, as JSON or HTML, or for a record, without ASGI.

Everything else goes to the routes. Both give the same replies.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import unquote

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.requests import Request

from live.auth.client import EXTENSION, Client, ClientResolver
from live.errors import EpochLostError, ProblemError
from live.ingest.replies import Reply, problem_reply
from live.network.encodings import takes_gzip
from live.network.parameters import require_known
from live.protocols.http.hot_get import Read
from live.protocols.http.peer import Peer
from live.protocols.http.requests import RequestHead
from live.store.board.reader import Selection
from live.store.board.shared_pages import Watched
from live.web.boards import reply_of_board, reply_with_page
from live.web.cross_origin import permissions
from live.web.kept_pages import asked_of, kept_reply
from live.web.openapi import query_names
from live.web.pages import page_size, problem_page, reply_with_boards
from live.web.paging import plain_selection
from live.web.problems import reply_of
from live.web.records import around_of, nearby, reply_of_record, reply_with_record
from live.web.state import Live
from live.web.surfaces import page_of

_BOARDS: Final = "/v1/boards/"
_PAGES: Final = "/boards/"
_BOARD: Final = "/v1/boards/{board}"
_RECORD: Final = "/v1/boards/{board}/records/{key}"
_VARY: Final = b"vary"
_MOST_KNOWN: Final = 1024
_LARGEST_KNOWN: Final = 2048  # bytes of a head

_Answer = Callable[[Reply], None]


class _Plain(NamedTuple):
    """A request that the short path takes.

    `selection` is what it reads, with the number of viewers if it is `counted`. `show` makes the reply of that, or
    returns None if that takes more. Then, and without a selection or after an error, `work` makes the reply. `origin`
    is None if no other origin may read the reply. `gzip` says whether the client takes compressed replies.
    """

    board: str
    selection: Selection | None
    counted: bool
    show: Callable[[Watched], Reply | None]
    work: Callable[[Watched | Exception | None], Awaitable[Reply]]
    origin: str | None = None
    gzip: bool = False


class FastReads:
    """Finds plain reads, and answers them. It remembers heads, because clients send the same ones again and again."""

    def __init__(self, live: Live, clients: ClientResolver, app: Starlette) -> None:
        self._live = live
        self._clients = clients
        self._app = app
        self._allowed = frozenset(live.settings.allowed_origins)
        self._found: dict[tuple[bytes, Peer], _Plain | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, head: RequestHead, peer: Peer) -> Read | None:
        """The read that a request asks for; None if the application answers it."""
        key = (head.raw, peer)
        if key in self._found:
            plain = self._found[key]
        else:
            plain = self._parse(head, peer)
            if plain is not None:
                plain = plain._replace(gzip=takes_gzip(_all(head, b"accept-encoding")))
            if len(head.raw) <= _LARGEST_KNOWN:
                if len(self._found) >= _MOST_KNOWN:
                    del self._found[next(iter(self._found))]
                self._found[key] = plain
        if plain is None or plain.board not in self._live.ledgers:
            return None
        return partial(self._begin, plain)

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
            query, known = QueryParams(text), next(iter(_all(head, b"if-none-match")), "")
            records, _, member = rest.partition("/")
            if not slash:
                plain = self._parse_board(board, query, known)
            elif records == "records" and member:
                plain = self._parse_record(board, member, query, known)
            else:
                return None
            return None if plain is None else plain._replace(origin=client.origin or "")
        except ProblemError:
            return None

    def _parse_board(self, board: str, query: QueryParams, known: str) -> _Plain | None:
        require_known(query, query_names(_BOARD, "GET"))
        if "wait" in query or "as_of" in query:
            return None

        async def work(found: Watched | Exception | None) -> Reply:
            if isinstance(found, Exception):
                raise found
            return await reply_of_board(self._live, board, query, known)

        selection = plain_selection(query, self._live.settings.max_limit)
        return _Plain(board, selection, counted=True, show=lambda found: reply_with_page(known, *found), work=work)

    def _parse_record(self, board: str, member: str, query: QueryParams, known: str) -> _Plain | None:
        require_known(query, query_names(_RECORD, "GET"))
        if "as_of" in query or "explain" in query:
            return None
        around = around_of(query)

        def show(found: Watched) -> Reply | None:
            has_record = found.reading.page.records  # a contestant without votes has none
            return reply_with_record(known, found.reading, member, around) if has_record else None

        async def work(found: Watched | Exception | None) -> Reply:
            if isinstance(found, Exception):
                raise found
            return await reply_of_record(self._live, board, member, query, known)

        selection = nearby(member, around, None) if query.get("period", "current") == "current" else None
        return _Plain(board, selection, counted=False, show=show, work=work)

    def _parse_page(self, head: RequestHead, client: Client, board: str, text: bytes) -> _Plain | None:
        query = QueryParams(text)
        if "key" in query or "as_of" in query or query.get("period", "current") != "current":
            return None
        surface = page_of(query)
        size = page_size(query, surface, 1, self._live.settings.max_live_limit)
        request = Request({
            "type": "http", "app": self._app, "scheme": client.scheme, "server": None, "path": f"{_PAGES}{board}",
            "path_params": {"board": board}, "query_string": text, "headers": list(head.fields),
            "extensions": {EXTENSION: client},
        })  # fmt: skip
        asked = asked_of(request, surface)

        def show(found: Watched) -> Reply | None:
            now = asked._replace(needs_key=self._live.authenticator.needs_key(client))
            return kept_reply(found.reading.page, now, found.viewers)

        async def work(found: Watched | Exception | None) -> Reply:
            try:
                return await reply_with_boards(request, found)
            except Exception as error:  # noqa: BLE001 - `problem_page` logs unexpected errors
                return reply_of(problem_page(request, error))

        return _Plain(board, Selection("rank", 0, "", size), counted=True, show=show, work=work)

    def _begin(self, plain: _Plain, answer: _Answer) -> None:
        ledger = self._live.ledgers.get(plain.board)
        if plain.selection is None or ledger is None:
            self._spawn(plain, answer, None)
        else:
            told = partial(self._show, plain, answer)
            self._live.reads.watch_soon(ledger.reader, plain.selection, told, counted=plain.counted)

    def _show(self, plain: _Plain, answer: _Answer, found: Watched | Exception) -> None:
        """Answer with what was read."""
        reply = None if isinstance(found, Exception) else plain.show(found)
        if reply is None:
            self._spawn(plain, answer, found)
        else:
            answer(self._completed(plain, reply))

    def _spawn(self, plain: _Plain, answer: _Answer, found: Watched | Exception | None) -> None:
        task = asyncio.create_task(self._work(plain, answer, found))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, plain: _Plain, answer: _Answer, found: Watched | Exception | None) -> None:
        try:
            reply = await plain.work(found)
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            reply = problem_reply(await self._explained(plain, error))
        answer(self._completed(plain, reply))

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


def _all(head: RequestHead, wanted: bytes) -> list[str]:
    """The values of a header field."""
    return [value.decode("latin-1") for name, value in head.fields if name == wanted]
