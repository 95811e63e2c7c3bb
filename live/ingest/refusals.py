"""A sample of refused events, for the admin page.

A process keeps some of its refused events for a moment, and then asks the store whether somebody has the page open. If
so, it puts the events into a list in the store, which is bounded and expires. So this sample costs nothing for accepted
events, and nearly nothing for refused events.
"""

import asyncio
import time
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import structlog
from msgspec import UNSET

from live.domain.decoding import DecodedBody
from live.domain.event import Rejection
from live.errors import StoreUnavailableError
from live.store.connection.client import Store

_PAUSE: Final = 1.0  # seconds from the first event of a sample until the sample is written to the store
_MOST: Final = 20  # the most events that a process samples in one pause
_KEPT: Final = 200  # the most events in the store, of all processes
_SHORT: Final = 64  # maximum characters of a text that a producer chooses
_LOOKING: Final = 30_000  # milliseconds for which the page counts as open after a request
_EXPIRY: Final = 600_000  # milliseconds for which the list stays after its newest event

log = structlog.get_logger()


class RefusedEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A refused event. Long texts are cut off."""

    at: int  # milliseconds since 1970
    code: str
    producer: str
    board: str = ""  # that it names or that refused it
    type: str = ""
    member: str = msgspec.field(name="key", default="")


class Refusals:
    """The sample of one process, and the list of all processes."""

    def __init__(self, client: Store) -> None:
        names = client.system
        self._client = client
        self._key, self._looking = names.refusals, names.refusals_wanted
        self._sample: list[RefusedEvent] = []
        self._task: asyncio.Task[None] | None = None

    def note(self, producer: str, body: DecodedBody, rejected: Sequence[Rejection]) -> None:
        """Take some of the refused events of a body into the sample. This needs no I/O."""
        indexes, now = body.indexes, round(time.time() * 1000)
        for one in rejected[: _MOST - len(self._sample)]:
            place = bisect_left(indexes, one.index)  # indexes ascend, and a body may have many
            is_decoded = place < len(indexes) and indexes[place] == one.index
            event = body.events[place] if is_decoded else None
            named = UNSET if event is None else event.board
            kind = UNSET if event is None else event.type
            self._sample.append(
                RefusedEvent(
                    at=now,
                    code=one.code,
                    producer=producer,
                    board=(one.board or "") if named is UNSET else named[:_SHORT],
                    type="" if kind is UNSET else kind[:_SHORT],
                    member="" if event is None else event.member[:_SHORT],
                )
            )
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._publish())

    async def _publish(self) -> None:
        try:
            await asyncio.sleep(_PAUSE)
            if await self._client.call(self._looking, "EXISTS", self._looking):
                rows = [msgspec.json.encode(event) for event in self._sample]
                commands: list[tuple[str, tuple[Any, ...]]] = [
                    (self._key, ("LPUSH", self._key, *rows)),
                    (self._key, ("LTRIM", self._key, 0, _KEPT - 1)),
                    (self._key, ("PEXPIRE", self._key, _EXPIRY)),
                ]
                await self._client.calls(commands)
        except StoreUnavailableError as error:
            log.debug("can't show refused events", reason=str(error))
        finally:
            self._sample.clear()
            self._task = None

    async def close(self) -> None:
        """Drop the sample, before the store is closed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def look(self) -> list[RefusedEvent]:
        """Return the sampled events of all processes, the newest first. For a while, processes add their samples."""
        await self._client.call(self._looking, "SET", self._looking, 1, "PX", _LOOKING)
        held = await self._client.call(self._key, "LRANGE", self._key, 0, _KEPT - 1)
        return [msgspec.json.decode(row, type=RefusedEvent) for row in held]
