"""The report on the health of all journals in the store.

The process that moves entries to SQL makes the report, and the readiness check of every process reads it.
"""

from typing import Final

import msgspec

from live.domain.text import counted
from live.store.connection.client import Store

_EXPIRY: Final = 10_000  # milliseconds after which the reporting process counts as ended
_FAULT_EXPIRY: Final = 3_000  # milliseconds after which a fault that is not reported again counts as over
_LONGEST_LAG: Final = 10.0  # seconds; a longer lag is a fault
_NEARLY: Final = 0.9  # the part of the allowed backlog at which a board is reported


class JournalHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the journals."""

    lag: float = 0.0  # seconds since SQL had everything
    waiting: int = 0  # the bytes that wait in the store
    fullest: str = ""  # the board with the most waiting bytes
    most: int = 0  # the number of its waiting bytes
    delayed: int = 0  # the number of journals that can't be read from the store now
    why: str = ""  # a sentence about one of the delayed journals
    lost: int = 0  # the number of boards of which SQL has more than the store
    example: str = ""  # a sentence about one of these boards
    sql_away: bool = False  # whether SQL does not answer


async def is_sql_away(client: Store) -> bool:
    """Return whether no process moves the journals to SQL, or whether SQL does not answer that process."""
    key = client.system.journal_health
    health = await client.call(key, "GET", key)
    return health is None or msgspec.json.decode(health, type=JournalHealth).sql_away


async def publish_health(client: Store, health: JournalHealth, fault: str) -> None:
    """Publish the state of the journals for all processes; `fault` says why entries are not moved to SQL."""
    names = client.system
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
    return faults
