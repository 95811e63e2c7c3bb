"""The items in the store, and the items that a process remembers for its pages."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from live.domain.event import member_fault
from live.domain.item import Item
from live.errors import ProblemError
from live.store.connection.client import Store
from live.store.connection.scripts import Script, Text, text
from live.store.registry.versioned import decode_entry

FRESH: Final = 1.0  # seconds between two checks whether an item has changed
_MOST_MEMORY: Final = 20_000_000  # bytes of all items that a process remembers, approximately
_ITEM: Final = 500  # bytes of an item besides its texts
_MOST_CHANGES: Final = 10_000  # some 500 KB; if more items change within a second, the journal reads all items


class PutItemsRequest(msgspec.Struct):
    """Store the items (JSON) of distinct members."""

    members: list[str]
    items: list[Text]
    most: int  # the maximum number of all items
    changes: int = _MOST_CHANGES  # how many of the last changes the store remembers


class DeleteItemRequest(msgspec.Struct):
    """Delete the item of a member. `changes` is as in `PutItemsRequest`."""

    member: str
    changes: int = _MOST_CHANGES


PUT_ITEMS: Final = Script("put_items", PutItemsRequest)
DELETE_ITEM: Final = Script("delete_item", DeleteItemRequest)


class Items:
    """The items of one key prefix.

    A process remembers the items that it has read until any item changes. It does not remember which members have no
    item, because anyone can ask for any name. While the store has no items, the process only checks once a second
    whether there are any.
    """

    def __init__(self, client: Store, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        keys = client.system
        self._client = client
        self._key, self._version_key = keys.items, keys.items_version
        self._written = [keys.items, keys.items_version, keys.items_changes]
        self._most = most
        self._clock = clock
        self._refreshed = float("-inf")
        self._version = b""
        self._known: dict[str, Item] = {}
        self._memory = 0  # bytes of the items in `_known`

    @property
    def exist(self) -> bool:
        """Whether there ever was an item, as of the last read."""
        return bool(self._version)

    async def of(self, members: Sequence[str]) -> Mapping[str, Item]:
        """Return the item of each member that has one. The answer may be up to a second behind the store."""
        await self._refresh()
        known, version = self._known, self._version
        found = {member: known[member] for member in members if member in known}
        missing = [member for member in members if member not in found and member_fault(member) is None]
        if version and missing:
            held = await self._client.call(self._key, "HMGET", self._key, *missing)
            for member, data in zip(missing, held, strict=True):
                if data is not None:
                    found[member] = decode_entry(data, Item, f"the item of member {member!r}")
                    if version == self._version:
                        self._remember(found[member], len(data))
        return {member: found[member] for member in members if member in found}

    async def put(self, items: Sequence[Item]) -> None:
        """Store items of distinct members, or raise `too_many_items` and store none."""
        texts: list[Text] = [text(msgspec.json.encode(item)) for item in items]
        request = PutItemsRequest([item.member for item in items], texts, self._most)
        reply = await PUT_ITEMS(self._client, self._written, request)
        self._refreshed = float("-inf")
        if reply[0] == b"full":
            raise ProblemError("too_many_items", f"the setting max_items allows {self._most}")

    async def delete(self, member: str) -> None:
        """Delete the item of a member, if it has one. This also works while the memory of the store is full."""
        await DELETE_ITEM(self._client, self._written, DeleteItemRequest(member))
        self._refreshed = float("-inf")

    async def _refresh(self) -> None:
        """Forget all remembered items if one has changed. Check at most once a second."""
        now = self._clock()
        if now - self._refreshed < FRESH:
            return
        version = await self._client.call(self._version_key, "GET", self._version_key) or b""
        self._refreshed = now
        if version != self._version:
            self._version = version
            self._forget()

    def _remember(self, item: Item, size: int) -> None:
        if item.member in self._known:
            return  # another request has read the same item at the same time
        if self._memory + size + _ITEM > _MOST_MEMORY:
            self._forget()
        self._known[item.member] = item
        self._memory += size + _ITEM

    def _forget(self) -> None:
        self._known.clear()
        self._memory = 0
