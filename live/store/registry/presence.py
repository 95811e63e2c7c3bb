"""Viewer counts: each process reports how many viewers it has on a board, and learns how many all processes have.

A report is valid for three beats. After that the store forgets a process that crashed, and the store key of a board
that nobody watches. Nothing else in the store depends on these reports.
"""

import asyncio
import secrets
import time
from collections.abc import Mapping
from typing import Final

import msgspec
from redis.exceptions import ResponseError

from live.errors import StoreUnavailableError
from live.store.connection.client import Store
from live.store.connection.scripts import Script


class PresenceRequest(msgspec.Struct):
    """Record how many viewers a process has. A report is valid for `ttl` ms."""

    process: str
    count: int
    ttl: int


class ViewersRequest(msgspec.Struct):
    """Count the viewers. A report is valid for `ttl` ms."""

    ttl: int


PRESENT: Final = Script("present", PresenceRequest, waits=False)
VIEWERS: Final = Script("viewers", ViewersRequest, waits=False)

BEAT: Final = 5.0  # seconds from one report of a process to the next
_TTL: Final = 3 * BEAT
_TTL_MS: Final = round(_TTL * 1000)
_BOARDS_A_CALL: Final = 64  # boards in one packet, which takes the store a few milliseconds at most


class Presence:
    """Report the viewers of one process, and count the viewers of all processes under one prefix of store keys."""

    def __init__(self, client: Store, present: Script[PresenceRequest] = PRESENT) -> None:
        self._client = client
        self._present = present
        self._process = secrets.token_hex(8)
        self._reported: dict[str, float] = {}  # by board: when this process last reported viewers of it
        self._reporting = asyncio.Lock()

    async def report(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Report how many viewers this process has on some boards, once a beat. Return how many all processes have.

        The result leaves out boards that do not exist, boards without a viewer both now and at the last report, and
        boards that can't be reached now, which the next call reports again.
        """
        async with self._reporting:
            now = time.monotonic()
            # Leave out reports that have expired in the store.
            reported = {board: at for board, at in self._reported.items() if now < at + _TTL}
            due = {board: count for board, count in counts.items() if count or board in reported}
            # Remember the reports before the call, because its reply may be lost.
            self._reported = reported | {board: now for board, count in due.items() if count}
            totals: dict[str, int] = {}
            failed: dict[str, StoreUnavailableError] = {}
            boards = list(due.items())
            for first in range(0, len(boards), _BOARDS_A_CALL):
                calls, commands = [], []
                for board, count in boards[first : first + _BOARDS_A_CALL]:
                    names = self._client.keys_of(board)
                    keys, request = [names.meta, names.viewers], PresenceRequest(self._process, count, _TTL_MS)
                    calls.append((board, keys, request))
                    commands.append((names.meta, self._present.command(keys, request)))
                replies = await self._client.outcomes(commands)
                for (board, keys, request), reply in zip(calls, replies, strict=True):
                    found = reply
                    if isinstance(reply, ResponseError):
                        # If the store has forgotten the script, a separate call sends the source.
                        try:
                            found = await self._present(self._client, keys, request)
                        except StoreUnavailableError as error:
                            found = error
                    if isinstance(found, StoreUnavailableError):
                        failed[board] = found
                    elif found[0] == b"ok":
                        totals[board] = int(found[1])
            if failed and len(failed) == len(due):
                raise next(iter(failed.values()))
            for board, count in due.items():
                if not count and board not in failed:
                    del self._reported[board]
        return totals

    async def leave(self) -> None:
        """Take back all reports, because the process stops. If the store is unavailable, they expire."""
        await self.report(dict.fromkeys(self._reported, 0))

    async def count(self, board: str) -> int:
        """Return how many viewers a board has in all processes. This also works on a store that can't be written."""
        (total,) = await VIEWERS(self._client, [self._client.keys_of(board).viewers], ViewersRequest(_TTL_MS))
        return int(total)
