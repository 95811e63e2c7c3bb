"""The page of the journal and of health: what is safe in SQL, the sizes, the processes, and the memory."""

import time
from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.responses import Response

from live.errors import EpochLostError, StoreUnavailableError
from live.maintenance.journal import lost_at_most, measure_journal
from live.store.registry.journals import JournalHealth, faults_of
from live.store.registry.memory import HOUR, MemoryLook, look_at_memory
from live.web.admin.admin_page import AdminPage, Desk
from live.web.api.admin import MAX_ENTRIES
from live.web.responses import public_reason

_DAY: Final = 86_400
_SHOWN_DAYS: Final = 14


class ServerProcess(msgspec.Struct, frozen=True):
    """A process of the servers: seconds since it said that it is alive, and the version of definitions that it runs.

    `fault` says why the process is not ready, or is empty.
    """

    name: str
    ago: float
    version: int
    fault: str


class StoreMemory(msgspec.Struct, frozen=True):
    """The memory of a server of the store: the bytes that it uses, and the most that it may use (0: no limit).

    `full` is the time at which the memory will be full, predicted from its growth since the time `since`, both in
    milliseconds since 1970. `full` is None if the memory does not grow, or if its growth is not known.
    """

    server: str
    used: int
    most: int
    full: int | None
    since: int | None


async def _show(desk: Desk) -> Response:
    """Show the state of the boards and the server, as far as the API key may see them."""
    live = desk.live
    is_limited, measured, why = desk.producer.is_limited, None, ""
    if live.past is not None:
        boards = desk.board_ids() if is_limited else None
        measured, why = await desk.from_journal(live.past.run(desk.visit.requester.network, measure_journal, boards))
    try:
        faults, is_ready = await live.readiness.require(), True
        reasons = [*faults.machine, *faults.boards]
    except (StoreUnavailableError, EpochLostError) as unready:
        reasons, is_ready = [public_reason(unready)], False
    days = [] if measured is None else measured.days
    entries = [] if is_limited else await live.trail.last(MAX_ENTRIES)
    # From the whole days that the journal has now, estimate its size when it has all the days that it keeps.
    today = int(time.time()) // _DAY
    whole = [day.bytes for day in days if day.day < today]
    return await desk.show(
        "health",
        journal=None if live.past is None else await _journal_of(desk),
        measured=measured,
        why=why,
        days=days[:_SHOWN_DAYS],
        most=max((day.bytes for day in days[:_SHOWN_DAYS]), default=0),
        at_end=sum(whole) * int(live.settings.journal_events) // _DAY // len(whole) if whole else None,
        retention=int(live.settings.journal_events) // _DAY,
        lost=await lost_at_most(live.client, live.settings, measured.boards) if measured is not None else {},
        backup=next((entry for entry in entries if entry.what == "backed_up"), None),
        reasons=[] if is_limited else reasons,
        is_ready=is_ready,
        processes=[] if is_limited else await _processes(desk),
        memory=[] if is_limited else await _memory(desk),
    )


async def _journal_of(desk: Desk) -> dict[str, object]:
    """Read until when SQL has everything (`safe`, in milliseconds since 1970), or None if no process moves entries."""
    live, names = desk.live, desk.live.client.system
    held, fault = await live.client.call(names.sink, "MGET", names.journal_health, names.journal_fault)
    faults = [] if desk.producer.is_limited else faults_of(held, fault, int(live.settings.journal_backlog))
    if held is None:
        return {"safe": None, "faults": faults}
    health = msgspec.json.decode(held, type=JournalHealth)
    waiting = None if desk.producer.is_limited else health.waiting
    return {
        "safe": round((time.time() - health.lag) * 1000), "behind": health.lag, "waiting": waiting, "faults": faults,
    }  # fmt: skip


async def _processes(desk: Desk) -> list[ServerProcess]:
    client, names = desk.live.client, desk.live.client.system
    key = names.processes
    (seconds, micro), beats, *others = await client.calls([
        (key, ("TIME",)), *((one, ("HGETALL", one)) for one in (key, names.process_versions, names.process_faults)),
    ])  # fmt: skip
    now = int(seconds) + int(micro) / 1e6
    versions, faults = (dict(zip(other[::2], other[1::2], strict=True)) for other in others)
    found = [
        ServerProcess(
            name.decode(), max(0.0, now - int(at) / 1000), int(versions.get(name) or 0), faults.get(name, b"").decode()
        )
        for name, at in zip(beats[::2], beats[1::2], strict=True)
    ]
    return sorted(found, key=lambda process: process.name)


async def _memory(desk: Desk) -> list[StoreMemory]:
    looks = await look_at_memory(desk.live.client)
    return [_grown(server, used, most, looks) for server, (used, most) in looks[-1].servers.items()]


def _grown(server: str, used: int, most: int, looks: Sequence[MemoryLook]) -> StoreMemory:
    """Predict when the memory is full, by the growth since the oldest value that is at least an hour old."""
    now = looks[-1].at
    for look in looks[:-1]:
        before, _ = look.servers.get(server, (used, most))
        if now - look.at >= HOUR and before < used < most:
            full = now + (most - used) * (now - look.at) // (used - before)
            return StoreMemory(server, used, most, min(full, now + 50 * 365 * _DAY) * 1000, look.at * 1000)
    return StoreMemory(server, used, most, None, None)


PAGE: Final = AdminPage(path="health", name="health", show=_show)
