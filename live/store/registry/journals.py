"""The data that all journals share in the store: the report on their health, and the pause of their trimming.

The process that moves entries to SQL makes the report, and the readiness check of every process reads it. A backup
pauses trimming, so that the store still has every entry that the copy of the database lacks. The pause is a lease: it
ends if the backup is killed.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from live.domain.text import counted
from live.errors import SetupError
from live.store.board.keys import SystemKeys
from live.store.connection.client import Store

_EXPIRY: Final = 10_000  # milliseconds after which the reporting process counts as ended
_FAULT_EXPIRY: Final = 3_000  # milliseconds after which a fault that is not reported again counts as over
_LONGEST_LAG: Final = 10.0  # seconds; a longer lag is a fault
_NEARLY: Final = 0.9  # the part of the allowed backlog at which a board is reported
PAUSE_LEASE: Final = 30.0  # seconds within which the pause must be renewed


class JournalHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the journals.

    Attributes:
        lag: seconds since SQL had everything.
        waiting: the bytes that wait in the store.
        fullest: the board with the most waiting bytes.
        most: the number of its waiting bytes.
        gaps: how many gaps in journals this process has found.
        delayed: the number of journals that can't be read from the store now.
        why: a sentence about one of the delayed journals.
        lost: the number of boards of which SQL has more than the store.
        example: a sentence about one of these boards.
        damage: a description of what is damaged in SQL; empty if nothing is.
        sql_away: whether SQL does not answer.
    """

    lag: float = 0.0
    waiting: int = 0
    fullest: str = ""
    most: int = 0
    gaps: int = 0
    delayed: int = 0
    why: str = ""
    lost: int = 0
    example: str = ""
    damage: str = ""
    sql_away: bool = False


async def is_sql_away(client: Store, prefix: str) -> bool:
    """Return whether no process moves the journals to SQL, or whether SQL does not answer that process."""
    key = SystemKeys(prefix).journal_health
    health = await client.call(key, "GET", key)
    return health is None or msgspec.json.decode(health, type=JournalHealth).sql_away


async def publish_health(client: Store, prefix: str, health: JournalHealth, fault: str) -> None:
    """Publish the state of the journals for all processes; `fault` says why entries are not moved to SQL."""
    names = SystemKeys(prefix)
    await client.call(names.journal_health, "SET", names.journal_health, msgspec.json.encode(health), "PX", _EXPIRY)
    if fault:
        await client.call(names.journal_fault, "SET", names.journal_fault, fault, "PX", _FAULT_EXPIRY)


def faults_of(health: bytes | None, fault: bytes | None, backlog: int) -> list[str]:
    """Return sentences about the faults of the journals. `backlog` is how many bytes of a board may wait."""
    faults = [] if fault is None else [fault.decode()]
    if health is None:
        return faults or ["no process moves the journals to SQL"]
    found = msgspec.json.decode(health, type=JournalHealth)
    for count, example in ((found.delayed, found.why), (found.lost, found.example)):
        if count:
            faults.append(example + (f". The same for {counted(count - 1, 'other board')}" if count > 1 else ""))
    if found.lag > _LONGEST_LAG:
        faults.append(f"SQL is {found.lag:.0f} s behind; {found.waiting:,} bytes wait in the store")
    if found.most >= backlog:
        faults.append(f"board {found.fullest} takes no events: {found.most:,} bytes of its journal wait")
    elif found.most >= _NEARLY * backlog:
        faults.append(f"board {found.fullest} soon takes no events: {found.most:,} bytes of its journal wait")
    if found.damage:
        faults.append(found.damage)
    if found.gaps:
        faults.append(f"{counted(found.gaps, 'gap')} since the server started: see `live journal status`")
    return faults


@asynccontextmanager
async def paused_trimming(
    client: Store, prefix: str, lease: float = PAUSE_LEASE
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Pause the trimming of all journals in the `with` block. `lease` is in seconds.

    Give the block a function that raises `SetupError` if the pause has already ended. Then the backup
    may lack entries.

    Raises:
        SetupError: another backup pauses trimming.
    """
    key, token = SystemKeys(prefix).pause, secrets.token_hex(8)
    milliseconds = round(lease * 1000)
    taken = await client.write(key, "SET", key, token, "NX", "PX", milliseconds)
    if not taken:
        raise SetupError(f"another backup is running, or ended less than {lease:g} seconds ago: try again later")

    async def renew() -> None:
        while True:  # until the lease is lost
            await asyncio.sleep(milliseconds / 3000)
            held = await client.write(key, "SET", key, token, "XX", "GET", "PX", milliseconds)
            if held != token.encode():
                return

    renewing = asyncio.create_task(renew())

    async def require() -> None:
        held = await client.call(key, "GET", key)
        if held != token.encode() or renewing.done():
            raise SetupError("trimming went on before the backup was complete, because a process stalled: run it again")

    try:
        yield require
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        if await client.call(key, "GET", key) == token.encode():
            await client.call(key, "DEL", key)


async def is_trimming_paused(client: Store, prefix: str) -> bool:
    """Return whether a backup pauses trimming. Ask after SQL has committed the entries, and before you trim them.

    A backup pauses trimming before it copies the database. So the copy has all entries that were committed before the
    pause.
    """
    key = SystemKeys(prefix).pause
    return bool(await client.call(key, "EXISTS", key))
