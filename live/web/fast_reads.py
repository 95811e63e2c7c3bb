"""The short path of the read routes: plain requests for a page of a board, or for a record, without ASGI.

Everything else goes to the routes. Both give the same replies.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import unquote

import msgspec
from starlette.datastructures import QueryParams

from live.auth.client import ClientResolver
from live.errors import EpochLostError, ProblemError
from live.ingest.replies import Reply, problem_reply
from live.network.parameters import require_known
from live.protocols.http.hot_get import Read
from live.protocols.http.peer import Peer
from live.protocols.http.requests import RequestHead
from live.store.board.reader import Reading, Selection
from live.store.board.shared_pages import Watched
from live.web.boards import reply_of_board, reply_with_page
from live.web.cross_origin import permissions
from live.web.openapi import query_names
from live.web.paging import plain_selection
from live.web.records import around_of, nearby, reply_of_record, reply_with_record
from live.web.state import Live

_PREFIX: Final = "/v1/boards/"
_BOARD: Final = "/v1/boards/{board}"
_RECORD: Final = "/v1/boards/{board}/records/{key}"
_VARY: Final = (b"vary", b"Origin")
_MOST_KNOWN: Final = 1024
_LARGEST_KNOWN: Final = 2048  # bytes of a head

_Answer = Callable[[Reply], None]


class _Plain(NamedTuple):
    """A request that the short path takes.

    `selection` is what it reads: a page, or the record of `member` with `around` neighbours. `known` is its
    `If-None-Match`. `work` makes the reply in any case, with a task of its own.
    """

    board: str
    member: str
    around: int
    selection: Selection | None
    origin: str
    known: str
    work: Callable[[], Awaitable[Reply]]


class FastReads:
    """Finds plain reads, and answers them. It remembers heads, because clients send the same ones again and again."""

    def __init__(self, live: Live, clients: ClientResolver) -> None:
        self._live = live
        self._clients = clients
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
        if not path.startswith(_PREFIX) or self._live.settings.role == "ingest":
            return None
        board, slash, rest = path.removeprefix(_PREFIX).partition("/")
        records, _, member = rest.partition("/")
        if slash and (records != "records" or not member or raw_path.endswith(b"/slots")):
            return None
        query, around = QueryParams(text), 0
        known = next((value for name, value in head.fields if name == b"if-none-match"), b"").decode("latin-1")
        selection: Selection | None
        work: Callable[[], Awaitable[Reply]]
        try:
            client = self._clients.resolve(peer.address, head.fields, tls=peer.tls)
            require_known(query, query_names(_RECORD if slash else _BOARD, "GET"))
            if slash:
                around = around_of(query)
                selection = nearby(member, around, None) if query.get("period", "current") == "current" else None
                work = partial(reply_of_record, self._live, board, member, query, known)
            else:
                selection = plain_selection(query, self._live.settings.max_limit)
                work = partial(reply_of_board, self._live, board, query, known)
        except ProblemError:
            return None
        if "wait" in query or sum(name == b"origin" for name, _ in head.fields) > 1:
            return None
        return _Plain(board, member, around, selection, client.origin or "", known, work)

    def _begin(self, plain: _Plain, answer: _Answer) -> None:
        ledger = self._live.ledgers.get(plain.board)
        if plain.selection is None or ledger is None:
            self._spawn(self._work(plain, answer))
        elif plain.member:
            self._live.reads.read_soon(ledger.reader, plain.selection, partial(self._show_record, plain, answer))
        else:
            self._live.reads.watch_soon(ledger.reader, plain.selection, partial(self._show_page, plain, answer))

    def _show_page(self, plain: _Plain, answer: _Answer, found: Watched | Exception) -> None:
        if isinstance(found, Exception):
            self._spawn(self._refuse(plain, answer, found))
        else:
            answer(self._permitted(plain, reply_with_page(plain.known, *found)))

    def _show_record(self, plain: _Plain, answer: _Answer, found: Reading | Exception) -> None:
        if isinstance(found, Exception):
            self._spawn(self._refuse(plain, answer, found))
        elif found.page.records:
            answer(self._permitted(plain, reply_with_record(plain.known, found, plain.member, plain.around)))
        else:
            self._spawn(self._work(plain, answer))  # it may be a contestant without votes

    async def _work(self, plain: _Plain, answer: _Answer) -> None:
        try:
            reply = await plain.work()
        except Exception as error:  # noqa: BLE001 - `problem_reply` logs unexpected errors
            await self._refuse(plain, answer, error)
        else:
            answer(self._permitted(plain, reply))

    async def _refuse(self, plain: _Plain, answer: _Answer, error: Exception) -> None:
        if isinstance(error, EpochLostError):
            error = await self._live.registry.explain(plain.board, error)
        answer(self._permitted(plain, problem_reply(error)))

    def _permitted(self, plain: _Plain, reply: Reply) -> Reply:
        """A reply with the header fields for other origins, where some are allowed."""
        if not self._allowed:
            return reply
        extra = (*reply.extra, _VARY, *permissions(plain.origin, self._allowed))
        return msgspec.structs.replace(reply, extra=extra)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
