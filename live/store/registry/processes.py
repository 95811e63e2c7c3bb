"""The live processes under one prefix of store keys, which share the work on boards.

Each process says every two seconds that it is alive. From the list of all processes, it computes which boards it owns
(rendezvous hashing). So the processes mostly agree, and when a process ends, only its boards move. Ownership saves
work, and correctness does not depend on it. Work that only one process at a time may do needs a lease.

Each process also reports which version of the definitions of boards it runs, so that a change can wait for all of them.
"""

import hashlib
import secrets
import time
from collections.abc import Collection
from typing import Final, NamedTuple

import msgspec

from live.store.connection.client import Store
from live.store.connection.scripts import Script


class BeatRequest(msgspec.Struct):
    """Record that a process is alive."""

    process: str
    ttl: int  # milliseconds for which it counts as alive
    version: str  # of the definitions of boards that it runs
    fault: str  # why the process is not ready; empty if it is


BEAT: Final = Script("beat", BeatRequest, waits=False)

INTERVAL: Final = 2.0  # seconds from one beat to the next
_TTL_MS: Final = 6_000
_LONGEST_FAULT: Final = 500  # characters of a fault that a process reports
_JUMP: Final = 2.0  # seconds; if the difference between the two clocks changes by more, one clock was set


class Beat(NamedTuple):
    """What happened since the last beat: whether a process has ended, and whether a clock was set."""

    has_ended: bool
    was_set: bool


class Processes:
    """This process, which has some `boards`, and all other live processes under the prefix."""

    def __init__(self, client: Store, boards: Collection[str] = (), beat: Script[BeatRequest] = BEAT) -> None:
        self._client = client
        self._boards = boards
        self._beat = beat
        names = client.system
        self._keys = [names.processes, names.process_versions, names.process_faults]
        self._version = ""
        self._own = secrets.token_hex(8)
        self._all: frozenset[str] = frozenset({self._own})
        self._shift: float | None = None  # the store's clock minus the monotonic clock of this machine

    async def beat(self) -> Beat:
        """Report that this process is alive, and find out which other processes are alive."""
        before = time.monotonic()
        now, processes = await self._report()
        took = time.monotonic() - before
        known, self._all = self._all, frozenset(processes)
        shift = now / 1000 - before
        was_set = self._shift is not None and abs(shift - self._shift) > _JUMP + took
        self._shift = shift
        return Beat(has_ended=not known <= self._all, was_set=was_set)

    async def all_run(self, version: str) -> bool:
        """Report the version that this process runs. Return whether all other processes run it or a newer one.

        A process that has reported no version does not count: it has not begun. `version` is empty before the first
        definition, and is reported as 0.
        """
        self._version = version or "0"
        _, processes = await self._report()
        return all(int(theirs) >= int(self._version) for theirs in processes.values() if theirs)

    async def _report(self) -> tuple[int, dict[str, str]]:
        """Return the store's time, and the version of each live process."""
        fault = self._client.high_water.loss_of_all(self._boards)[:_LONGEST_FAULT]
        request = BeatRequest(self._own, _TTL_MS, self._version, fault)
        now, *found = await self._beat(self._client, self._keys, request)
        names = (process.decode() for process in found[::2])
        return int(now), dict(zip(names, (version.decode() for version in found[1::2]), strict=True))

    def owns(self, board: str) -> bool:
        """Return whether this process owns a board."""
        if len(self._all) == 1:
            return True
        return self._own == max(
            self._all, key=lambda process: hashlib.blake2b(f"{process} {board}".encode(), digest_size=8).digest()
        )

    async def leave(self) -> None:
        """Say that this process ends. If the store is unavailable, others notice the end after a few seconds."""
        await self._client.calls([(key, ("HDEL", key, self._own)) for key in self._keys])


TTL: Final = 3.0  # seconds after which a process that does not renew its lease loses it


class ProcessLease:
    """A lease that one process at a time holds. It ends if the process does not renew it within `TTL` seconds."""

    def __init__(self, client: Store, key: str, ttl: float = TTL) -> None:
        self._client = client
        self._key = key
        self._ttl = ttl
        self._process = secrets.token_hex(8)

    async def take(self) -> bool:
        """Take the lease if it is free, or renew it. Return whether this process holds it."""
        key, ttl = self._key, round(self._ttl * 1000)
        holder = await self._client.call(key, "SET", key, self._process, "NX", "GET", "PX", ttl)
        if holder == self._process.encode():
            return bool(await self._client.call(key, "PEXPIRE", key, ttl))
        return holder is None
