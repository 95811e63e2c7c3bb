"""Responses: JSON with an `ETag` where it shows a board, errors as `application/problem+json`, and drawn replies."""

import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from http import HTTPStatus
from typing import Any, Final, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from live.errors import EPOCH_LOST_DETAIL, EpochLostError, ProblemError, StoreUnavailableError
from live.fanout.cohort import SILENCE
from live.http import reply as replies
from live.http.reply import Headers, Reply, takes_gzip
from live.store.board.read.reader import PageResult
from live.system.resources import Turns

NOT_KEPT: Final = b"no-store"
NOT_STORED: Final = {"Cache-Control": "no-store"}  # for responses that only the sender of the request may see

_T = TypeVar("_T")
_R = TypeVar("_R", bound=Reply)

REVALIDATED: Final = b"no-cache"  # clients may keep the response, but must ask each time whether it has changed
_BY_STATUS: Final = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}
_JSON: Final = b"application/json"
VARY: Final = (b"vary", b"Accept-Encoding")
_MOST_MEMORY: Final = 20_000_000  # bytes of kept drawings
_PAST_CACHE: Final = b"public, max-age=60"  # a minute at most, because hiding a member removes it from the past too
_KEPT: Final = 1000  # bytes of a kept drawing besides its body and its query
_LONGEST_QUERY: Final = 512  # bytes; longer ones hardly ever repeat
_SERVES: Final = 1.0  # seconds


def negotiated(request: Request, reply: Reply) -> Response:
    """Make a response, compressed if the client accepts that. Keep the reply: it is compressed only once."""
    return as_response(reply.gzipped if takes_gzip(request.headers.getlist("accept-encoding")) else reply)


def cache_control(seconds: int) -> bytes:
    """Return the `Cache-Control` of replies that everybody may see, and that caches may use for some seconds.

    While a cache asks again, it may answer with its old copy for `SILENCE` seconds. This is also how long a viewer
    takes to notice that it has lost the server, so clients behind a cache see old records for no longer than viewers.
    """
    return b"public, max-age=%d, stale-while-revalidate=%d" % (seconds, SILENCE) if seconds else REVALIDATED


def json_response(
    body: object, cache: bytes = REVALIDATED, extra: Headers = (), status: int = HTTPStatus.OK
) -> Response:
    """Make a JSON response without a tag, for one request."""
    return as_response(Reply(status, _JSON, msgspec.json.encode(body), extra, cache))


def kept_json(body: object, cache: bytes = REVALIDATED) -> Reply:
    """Make a JSON reply without a tag that many requests share."""
    return Reply(HTTPStatus.OK, _JSON, msgspec.json.encode(body), (VARY,), cache)


class Derived(Generic[_T]):
    """Values that many requests share. Each value is made once, from a struct."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[msgspec.Struct, _T] = WeakKeyDictionary()

    def of(self, shared: msgspec.Struct, make: Callable[[], _T]) -> _T:
        """Return the value for a struct, which compares by identity: make it unless an earlier call did."""
        made = self._made.get(shared)
        if made is None:
            made = self._made[shared] = make()
        return made


DrawingKey = tuple[str, bytes, object]
"""The key of a drawing: its kind, what a client chose freely, such as its query, and all else on which it depends."""


class _KeptReply(NamedTuple):
    """A reply that is valid `until` a time of `time.monotonic`. `size` is its memory in bytes."""

    reply: Reply
    until: float
    size: int


class Drawings:
    """Replies that are drawn for requests: pages, tables, pictures and metrics.

    Events and viewers need the time of the process too. So the process draws one reply at a time, clients take turns,
    and drawing takes at most half of the time. Replies that many requests can share are kept for a second.
    """

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self._kept: OrderedDict[DrawingKey, _KeptReply] = OrderedDict()  # the oldest first
        self._size = 0

    async def draw(self, client: str, work: Coroutine[Any, Any, _T]) -> _T:
        """Do the work of a drawing in a turn of a client, which is a network."""
        return await self.turns.share(client, work)

    async def of(self, client: str, key: DrawingKey, draw: Callable[[], Coroutine[Any, Any, _R]]) -> _R:
        """Return the reply that was drawn for a key up to a second ago, or else draw it. Raises the errors of both."""

        async def find_or_draw() -> _R:
            reply: _R | None = self._find(key)  # another request may have drawn the reply meanwhile
            if reply is None:
                reply = await draw()
                self._keep(key, reply)
            return reply

        found: _R | None = self._find(key)
        return await self.draw(client, find_or_draw()) if found is None else found

    def _find(self, key: DrawingKey) -> Any:  # noqa: ANN401 - what was drawn for this key
        kept = self._kept.get(key)
        return kept.reply if kept is not None and time.monotonic() < kept.until else None

    def _keep(self, key: DrawingKey, reply: Reply) -> None:
        now = time.monotonic()
        self._drop(key)
        if reply.status == HTTPStatus.OK and len(key[1]) <= _LONGEST_QUERY:
            self._kept[key] = _KeptReply(reply, now + _SERVES, reply.most_memory + len(key[1]) + _KEPT)
            self._size += self._kept[key].size
        while self._kept and (self._size > _MOST_MEMORY or next(iter(self._kept.values())).until <= now):
            self._drop(next(iter(self._kept)))

    def _drop(self, key: DrawingKey) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._size -= kept.size


def page_reply(
    known: str,
    found: PageResult,
    kind: Hashable,
    body: Callable[[], object],
    version: object = None,
    cache: bytes = REVALIDATED,
) -> Reply:
    """Make the JSON reply of a page, with an `ETag` unless it is a page of the past.

    The tag differs if the position, the period or the definition differs. Make a 304 if `known`, the client's
    `If-None-Match`, names that tag. The page keeps one reply of each kind and `Cache-Control`, which all its readers
    share until `version` differs.
    """
    if found.is_past:
        return past_reply(body())
    page, made = found.page, found.page.made
    tag: str | None = made.get("tag")
    if tag is None:
        # The tag needs no kind, because a client uses it for one URL only. It needs the period, because a period ends
        # without a change of the position. It needs the definition, because a process may read a position before it
        # knows the definition of that position.
        period = "" if page.slot is None else f":{page.slot}"
        tag = made.keep("tag", f'"{page.epoch}:{page.offset}:{found.board.definition_tag}{period}"')
    if known:
        tags = {part.strip() for part in known.split(",")}
        named = tag if tag in tags or "*" in tags else f"W/{tag}"  # `*` counts as the tag itself
        if named == tag or named in tags:
            unmodified: Reply = made.get((named, cache)) or made.keep((named, cache), unchanged(named, cache))
            return unmodified
    kept: tuple[object, Reply] | None = made.get((kind, cache))
    if kept is None or kept[0] != version:
        data = msgspec.json.encode(body())
        reply = Reply(HTTPStatus.OK, _JSON, data, _tagged(tag), cache)
        kept = made.keep((kind, cache), (version, reply), reply.most_memory)
    return kept[1]


def past_reply(body: object) -> Reply:
    """Make a JSON reply about the past, which caches may keep for a minute."""
    return kept_json(body, _PAST_CACHE)


def unchanged(tag: str, cache: bytes) -> Reply:
    """Make the 304 reply to a client that has the state of `tag`. `tag` is as the client sent it."""
    return Reply(HTTPStatus.NOT_MODIFIED, b"", b"", _tagged(tag), cache)


def _tagged(tag: str) -> Headers:
    return ((b"etag", tag.encode()), VARY)


def as_problem(error: Exception) -> ProblemError:
    """Translate an error, Starlette's own included, to the problem that a client receives."""
    if isinstance(error, HTTPException):
        code = _BY_STATUS.get(error.status_code, "internal_error")
        return ProblemError(code, HTTPStatus(error.status_code).phrase, headers=error.headers)
    return replies.as_problem(error)


def problem_response(error: Exception) -> Response:
    """Make the response to an error."""
    return as_response(replies.problem_reply(as_problem(error)))


def public_reason(error: Exception) -> str:
    """Return the public reason of an error, without details for the log, such as addresses."""
    match error:
        case StoreUnavailableError():
            return error.public
        case EpochLostError():
            return EPOCH_LOST_DETAIL
        case ProblemError():
            return error.detail
        case _:
            return "the server failed; its log has the cause"


def as_response(reply: Reply) -> Response:
    """Make a Starlette response of a reply."""
    response = Response(reply.body, reply.status)
    response.raw_headers = reply.headers
    return response
