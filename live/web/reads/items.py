"""The items of members: their titles, links and pictures."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from live.domain.item import Item, Title, Url, is_listed, item_faults
from live.errors import ProblemError, StoreUnavailableError
from live.web.http.responses import NOT_STORED, json_response
from live.web.services import Live, live_of
from live.web.writes.admin import read_body, read_object, unlimited_admin_of

MOST_READ: Final = 100
MOST_WRITTEN: Final = 1000
_SHOWN_FAULTS: Final = 20


class ItemChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to show of a member. Without a `url` or an `image` there is none."""

    title: Title
    url: Url | None = None
    image: Url | None = None


class ItemChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to show of several members."""

    items: Annotated[Sequence[Item], Meta(min_length=1, max_length=MOST_WRITTEN)]


class ItemList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Items of several members. Members without one are omitted."""

    items: Sequence[Item]


async def list_items(request: Request) -> Response:
    """Return the items of several members (`?key=a&key=b`)."""
    members = list(dict.fromkeys(request.query_params.getlist("key")))
    if not 0 < len(members) <= MOST_READ:
        raise ProblemError("parameter_invalid", f"give `key` 1 to {MOST_READ} times")
    found = await live_of(request).items.of(members)
    return json_response(ItemList(list(found.values())))


async def get_item(request: Request) -> Response:
    """Return the item of one member."""
    member: str = request.path_params["key"]
    item = (await live_of(request).items.of([member])).get(member)
    if item is None:
        raise ProblemError("item_not_found", "PUT /v1/items/{key} gives a member a title")
    return json_response(item)


async def put_item(request: Request) -> Response:
    """Give a member a title, or replace it."""
    await unlimited_admin_of(request)
    expected = 'the body must be like {"title": "A post"}'
    choice = _converted(read_object(await read_body(request), "malformed_body", expected), ItemChoice)
    return await _put(request, [Item(request.path_params["key"], choice.title, choice.url, choice.image)])


async def put_items(request: Request) -> Response:
    """Give several members titles: all of them, or none if one is invalid."""
    await unlimited_admin_of(request)
    expected = 'the body must be like {"items": [{"key": "a", "title": "A post"}]}'
    items = _converted(read_object(await read_body(request), "malformed_body", expected), ItemChanges).items
    if len({item.key for item in items}) < len(items):
        raise ProblemError("item_invalid", "`items` names a member twice")
    return await _put(request, items)


async def delete_item(request: Request) -> Response:
    """Take the title of a member away, if it has one."""
    await unlimited_admin_of(request)
    await live_of(request).items.delete(request.path_params["key"])
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=NOT_STORED)


async def items_of(live: Live, members: Iterable[str]) -> Mapping[str, Item]:
    """The items of members as pages show them; none while the store is unavailable.

    A picture is left out if its host is not in the settings any more.
    """
    found: Mapping[str, Item] = {}
    with suppress(StoreUnavailableError):
        found = await live.items.of(list(members))
    return {member: _shown(item, live.settings.image_hosts) for member, item in found.items()}


def _shown(item: Item, hosts: Sequence[str]) -> Item:
    if item.image is None or is_listed(item.image, hosts):
        return item
    return msgspec.structs.replace(item, image=None)


async def _put(request: Request, items: Sequence[Item]) -> Response:
    live = live_of(request)
    faults = [f"{item.key!r}: {fault}" for item in items for fault in item_faults(item, live.settings.image_hosts)]
    if faults:
        raise ProblemError("item_invalid", "\n".join(faults[:_SHOWN_FAULTS]))
    await live.items.put(items)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=NOT_STORED)


def _converted(body: dict[str, Any], kind: type[Any]) -> Any:  # noqa: ANN401 - of that type
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise ProblemError("item_invalid", str(error)) from None
