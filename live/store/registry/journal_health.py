"""The state of the journals: the process that moves them to SQL reports it to the readiness check of every process."""

from typing import Final

import msgspec

from live.domain.text import counted
from live.store.board.keys import SystemKeys
from live.store.connection.client import Store

_EXPIRY: Final = 10_000  # milliseconds after which the process that reported it seems to have ended
_FAULT_EXPIRY: Final = 3_000  # milliseconds after which a fault that nobody reports again seems to be over
_LONGEST_LAG: Final = 10.0  # seconds
_NEARLY: Final = 0.9  # of the backlog that a board may have


class JournalHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the journals.

    Attributes:
        lag: seconds since SQL had everything.
        waiting: the bytes that wait in the store.
        fullest: the board of which most wait.
        most: the bytes of that board that wait.
        gaps: how many gaps this process has found.
        lost: of how many boards SQL has more than the store.
        example: a sentence about one of them.
        damage: what is damaged in SQL, for people; empty if nothing is.
    """

    lag: float = 0.0
    waiting: int = 0
    fullest: str = ""
    most: int = 0
    gaps: int = 0
    lost: int = 0
    example: str = ""
    damage: str = ""


async def publish_health(client: Store, prefix: str, health: JournalHealth, fault: str) -> None:
    """Publish the state of the journals for all processes; `fault` says why entries are not moved to SQL."""
    names = SystemKeys(prefix)
    await client.call(names.journal_health, "SET", names.journal_health, msgspec.json.encode(health), "PX", _EXPIRY)
    if fault:
        await client.call(names.journal_fault, "SET", names.journal_fault, fault, "PX", _FAULT_EXPIRY)


def faults_of(health: bytes | None, fault: bytes | None, backlog: int) -> list[str]:
    """Return what is wrong with the journals, for people; `backlog` is how many bytes of a board may wait."""
    faults = [] if fault is None else [fault.decode()]
    if health is None:
        return faults or ["no process moves the journals to SQL"]
    found = msgspec.json.decode(health, type=JournalHealth)
    if found.lost:
        more = f". The same for {counted(found.lost - 1, 'other board')}" if found.lost > 1 else ""
        faults.append(f"{found.example}{more}")
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
