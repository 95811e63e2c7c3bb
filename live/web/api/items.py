"""The items of members: their titles, links and pictures."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from live.domain.item import Item, is_listed
from live.domain.meaning import says
from live.domain.views import ItemList
from live.errors import ProblemError, StoreUnavailableError
from live.http.parameters import Parameters
from live.web.parts import Live, live_of
from live.web.responses import json_response


class ItemParameters(Parameters, frozen=True, kw_only=True, rename={"members": "key"}):
    """The members whose items are read."""

    members: Annotated[Sequence[str], says("Repeat it for each member.", min_length=1, max_length=100)]


async def list_items(request: Request, query: ItemParameters) -> Response:
    """Read the titles of several members.

    Members without a title are omitted. The response is at most a second old.
    """
    found = await live_of(request).items.of(list(dict.fromkeys(query.members)))
    return json_response(ItemList(list(found.values())))


async def get_item(request: Request) -> Response:
    """Read the title of a member.

    The response includes the link and the picture.
    """
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
