"""Responses: JSON with an `ETag` where it shows a board, and errors as `application/problem+json` (RFC 9457)."""

from collections.abc import Callable, Hashable
from http import HTTPStatus
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from live.domain.views import definition_tag
from live.errors import EPOCH_LOST_DETAIL, EpochLostError, ProblemError, StoreUnavailableError
from live.fanout.engine.channel import SILENCE
from live.ingest import replies
from live.ingest.replies import Headers, Reply, takes_gzip
from live.store.board.read.single_flight import PageResult

NOT_KEPT: Final = b"no-store"
NOT_STORED: Final = {"Cache-Control": "no-store"}  # for responses that only the sender of the request may see

_T = TypeVar("_T")

REVALIDATED: Final = b"no-cache"  # clients may keep the response, but must ask each time whether it has changed
_BY_STATUS: Final = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}
_JSON: Final = b"application/json"
VARY: Final = (b"vary", b"Accept-Encoding")


def negotiated(request: Request, reply: Reply) -> Response:
    """Make a response of a reply. The response is compressed if the client accepts that.

    Keep the reply for further requests: it is compressed only once.
    """
    return as_response(reply.gzipped if takes_gzip(request.headers.getlist("accept-encoding")) else reply)


def cache_control(seconds: int) -> bytes:
    """Return the `Cache-Control` of replies that everybody may see, and that caches may use for some seconds.

    While a cache asks again, it may answer with its old copy for `SILENCE` seconds. This is also how long a viewer
    takes to notice that it has lost the server, so clients behind a cache see old records for no longer than viewers.
    """
    return b"public, max-age=%d, stale-while-revalidate=%d" % (seconds, SILENCE) if seconds else REVALIDATED


def json_response(body: object, cache: bytes = REVALIDATED, extra: Headers = ()) -> Response:
    """Make a JSON response without a tag, for one request."""
    return as_response(Reply(HTTPStatus.OK, _JSON, msgspec.json.encode(body), extra, cache))


def kept_json(body: object, cache: bytes = REVALIDATED) -> Reply:
    """Make a JSON reply without a tag that many requests share."""
    return Reply(HTTPStatus.OK, _JSON, msgspec.json.encode(body), (VARY,), cache)


class Derived(Generic[_T]):
    """Values that many requests share. Each value is made once, from a struct."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[msgspec.Struct, _T] = WeakKeyDictionary()

    def of(self, shared: msgspec.Struct, make: Callable[[], _T]) -> _T:
        """Return the value for a struct: make it with `make`, unless an earlier call did.

        Structs must compare by identity.
        """
        made = self._made.get(shared)
        if made is None:
            made = self._made[shared] = make()
        return made


def page_reply(
    known: str,
    found: PageResult,
    kind: Hashable,
    body: Callable[[], object],
    version: object = None,
    cache: bytes = REVALIDATED,
) -> Reply:
    """Make the JSON reply of a page, with an `ETag`.

    The tag differs if the position, the period or the definition differs. Make a 304 if `known`, the client's
    `If-None-Match`, names that tag. The page keeps one reply of each kind and `Cache-Control`, which all its readers
    share until `version` differs.
    """
    page, made = found.page, found.page.made
    tag: str | None = made.get("tag")
    if tag is None:
        # The tag needs no kind, because a client uses it for one URL only. It needs the period, because a period ends
        # without a change of the position. It needs the definition, because a process may read a position before it
        # knows the definition of that position.
        period = "" if page.slot is None else f":{page.slot}"
        tag = made.keep("tag", f'"{page.epoch}:{page.offset}:{definition_tag(found.board)}{period}"')
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


def reply_of(response: Response) -> Reply:
    """Make a reply of a Starlette response with a body."""
    fields = dict(response.raw_headers)
    cache, media_type = fields.pop(b"cache-control"), fields.pop(b"content-type")
    del fields[b"content-length"]
    return Reply(response.status_code, media_type, bytes(response.body), tuple(fields.items()), cache)


async def answer_problem(_request: Request, error: Exception) -> Response:
    """Answer an error of a route with a problem document."""
    return problem_response(error)
