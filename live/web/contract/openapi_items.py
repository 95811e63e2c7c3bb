"""The titles of members in the OpenAPI document."""

from live.domain.item import Item
from live.web.contract.operations import (
    ADMIN,
    ASKING,
    ITEMS,
    KEYED,
    OF_KEY,
    body_of,
    document,
    done,
    operation,
    parameter,
)
from live.web.contract.schemas import Json, reference
from live.web.items import MOST_READ, MOST_WRITTEN, ItemChanges, ItemChoice, ItemList


def item_operations() -> Json:
    """Reads, writes and deletes titles."""
    return {
        "/v1/items": {"get": _list_items(), "put": _put_items()},
        "/v1/items/{key}": {"get": _get_item(), "put": _put_item(), "delete": _delete_item()},
    }


def _list_items() -> Json:
    several = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST_READ}
    keys = {**parameter("key", "query", several, "Repeat it for each member."), "required": True}
    return operation(
        "listItems", "records", "Read the titles of several members.",
        "Members without a title are omitted. The response is at most a second old.", document(ItemList), ASKING, keys,
    )  # fmt: skip


def _get_item() -> Json:
    return operation(
        "getItem", "records", "Read the title of a member.", "With its link and its picture, if it has them.",
        document(Item), ASKING | {"item_not_found"}, OF_KEY,
    )  # fmt: skip


def _put_items() -> Json:
    put = operation(
        "putItems", "administration", "Give several members titles.",
        f"Up to {MOST_WRITTEN:,} of them: all, or none if one is invalid.", done(204, "The titles are stored."),
        ADMIN | ITEMS, security=KEYED,
    )  # fmt: skip
    put["requestBody"] = body_of(reference(ItemChanges), "application/json")
    return put


def _put_item() -> Json:
    put = operation(
        "putItem", "administration", "Give a member a title.",
        "Pages show it instead of the member, on all boards. The API key must not be limited to some boards.",
        done(204, "The title is stored."), ADMIN | ITEMS, OF_KEY, security=KEYED,
    )  # fmt: skip
    put["requestBody"] = body_of(reference(ItemChoice), "application/json")
    return put


def _delete_item() -> Json:
    return operation(
        "deleteItem", "administration", "Delete the title of a member.", "It also succeeds if there is none.",
        done(204, "The member has no title."), ADMIN, OF_KEY, security=KEYED,
    )  # fmt: skip
