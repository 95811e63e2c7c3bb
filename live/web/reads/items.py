"""The items of members: their titles, links and pictures."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.domain.item import Item, is_listed
from live.domain.views import ItemList
from live.errors import ProblemError, StoreUnavailableError
from live.web.http.responses import json_response
from live.web.reads.sources import some_members
from live.web.services import Live, live_of

MOST_READ: Final = 100


async def list_items(request: Request) -> Response:
    """Return the items of several members (`?key=a&key=b`)."""
    members = some_members(list(dict.fromkeys(request.query_params.getlist("key"))), MOST_READ)
    found = await live_of(request).items.of(members)
    return json_response(ItemList(list(found.values())))


async def get_item(request: Request) -> Response:
    """Return the item of one member."""
    member: str = request.path_params["key"]
    item = (await live_of(request).items.of([member])).get(member)
    if item is None:
        raise ProblemError("item_not_found", "PUT /v1/items/{key} gives a member a title")
    return json_response(item)


async def items_of(live: Live, members: Iterable[str]) -> Mapping[str, Item]:
    """Return the items of members as pages show them. Return no items while the store is unavailable."""
    found: Mapping[str, Item] = {}
    with suppress(StoreUnavailableError):
        found = await live.items.of(list(members))
    return {
        member: item
        if item.image is None or is_listed(item.image, live.settings.image_hosts)
        else msgspec.structs.replace(item, image=None)  # the settings no longer allow the host of the picture
        for member, item in found.items()
    }
