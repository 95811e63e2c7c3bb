"""Replies of the read routes as JSON, with an `ETag` where they show a board."""

from collections.abc import Callable, Hashable
from http import HTTPStatus
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from starlette.responses import Response

from live.domain.ranking import Page
from live.ingest.replies import Reply
from live.web.problems import as_response

NOT_STORED: Final = {"Cache-Control": "no-store"}  # for responses that only the sender of the request may see

_T = TypeVar("_T")

_REVALIDATED: Final = b"no-cache"  # clients may keep the response, but must ask whether it has changed
_JSON: Final = b"application/json"


def json_response(body: object) -> Response:
    """A JSON response without a tag."""
    return encoded_response(msgspec.json.encode(body))


def encoded_response(body: bytes) -> Response:
    """The same with JSON that is encoded already."""
    return as_response(Reply(HTTPStatus.OK, _JSON, body, cache=_REVALIDATED))


class Derived(Generic[_T]):
    """What follows from structs that many requests share, made once for each struct."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[msgspec.Struct, _T] = WeakKeyDictionary()

    def of(self, shared: msgspec.Struct, make: Callable[[], _T]) -> _T:
        """What `make` made of a struct, now or before. The struct must be compared by identity."""
        made = self._made.get(shared)
        if made is None:
            made = self._made[shared] = make()
        return made


def page_reply(known: str, page: Page, kind: Hashable, body: Callable[[], object], version: object = None) -> Reply:
    """The JSON reply made from a page. It has an `ETag`, and is a 304 if `known`, an `If-None-Match`, names that tag.

    The page keeps one reply of each kind, which all its readers share until `version` differs.
    """
    made = page.made
    tag: str = made.get("tag") or made.setdefault("tag", _tag_of(page))
    if known and _names(known, tag):
        unmodified: Reply = made.get("unchanged") or made.setdefault("unchanged", unchanged(tag))
        return unmodified
    kept: tuple[object, Reply] | None = made.get(kind)
    if kept is None or kept[0] != version:
        data = msgspec.json.encode(body())
        kept = made[kind] = version, Reply(HTTPStatus.OK, _JSON, data, ((b"etag", tag.encode()),), _REVALIDATED)
    return kept[1]


def unchanged(tag: str) -> Reply:
    """The 304 reply to a client that has the state of `tag`."""
    return Reply(HTTPStatus.NOT_MODIFIED, b"", b"", ((b"etag", tag.encode()),), _REVALIDATED)


def _tag_of(page: Page) -> str:
    """A tag belongs to one URL, so the position is enough; but a period ends without a change in the store."""
    period = "" if page.slot is None else f":{page.slot}"
    return f'"{page.epoch}:{page.offset}{period}"'


def _names(known: str, tag: str) -> bool:
    tags = {part.strip().removeprefix("W/") for part in known.split(",")}
    return tag in tags or "*" in tags
