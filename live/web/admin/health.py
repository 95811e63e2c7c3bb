"""The page of the journal and of health: what is safe in SQL, the sizes, the processes, and the memory."""

import time
from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.responses import Response

from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.maintenance.status import Measured, lost_at_most, measure_journal
from live.store.board.keys import SystemKeys
from live.store.registry.journals import JournalHealth, faults_of
from live.store.registry.memory import HOUR, MemoryLook, look_at_memory
from live.web.admin.admin_page import NO_FORM, AdminPage, Desk, Form
from live.web.http.responses import public_reason
from live.web.writes.admin import MAX_ENTRIES

_DAY: Final = 86_400
_SHOWN_DAYS: Final = 14


class JournalState(msgspec.Struct, frozen=True):
    """The state of the journal: SQL has everything until `safe` (milliseconds since 1970); `behind` is in seconds.

    All fields but `faults` are None if no process moves entries to SQL.
    """

    safe: int | None
    behind: float | None
    waiting: int | None
    faults: Sequence[str]


class ServerProcess(msgspec.Struct, frozen=True):
    """A process of the servers: seconds since it said that it is alive, and the version of definitions that it runs.

    `fault` says why the process is not ready. It is empty for a process that is ready.
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


async def show(desk: Desk, error: Exception | None = None, _form: Form = NO_FORM) -> Response:
    """Show the state of the boards and the server, as far as the API key may see them."""
    live = desk.live
    boards = sorted(ledger.state.board.id for ledger in desk.ledgers())
    has_journal = live.settings.journal != "off"
    measured, why = await _measured(desk, boards) if has_journal else (None, "")
    try:
        faults, is_ready = await live.readiness.require(), True
        reasons = [*faults.machine, *faults.boards]
    except (StoreUnavailableError, EpochLostError) as unready:
        reasons, is_ready = [public_reason(unready)], False
    days = [] if measured is None else measured.days
    entries = [] if desk.is_limited else await live.trail.last(MAX_ENTRIES)
    # From the whole days that the journal has now, estimate its size when it has all the days that it keeps.
    today = int(time.time()) // _DAY
    whole = [day.bytes for day in days if day.day < today]
    return await desk.show(
        "health",
        error,
        journal=await _journal_of(desk) if has_journal else None,
        measured=measured,
        why=why,
        days=days[:_SHOWN_DAYS],
        most=max((day.bytes for day in days[:_SHOWN_DAYS]), default=0),
        at_end=sum(whole) * int(live.settings.journal_events) // _DAY // len(whole) if whole else None,
        retention=int(live.settings.journal_events) // _DAY,
        lost=await lost_at_most(live.client, live.settings, measured.boards) if measured is not None else {},
        backup=next((entry for entry in entries if entry.what == "backed_up"), None),
        reasons=[] if desk.is_limited else reasons,
        is_ready=is_ready,
        processes=[] if desk.is_limited else await _processes(desk),
        memory=[] if desk.is_limited else await _memory(desk),
    )


async def _journal_of(desk: Desk) -> JournalState:
    live, names = desk.live, SystemKeys(desk.live.settings.key_prefix)
    held, fault = await live.client.call(names.sink, "MGET", names.journal_health, names.journal_fault)
    faults = [] if desk.is_limited else faults_of(held, fault, int(live.settings.journal_backlog))
    if held is None:
        return JournalState(None, None, None, faults)
    health = msgspec.json.decode(held, type=JournalHealth)
    waiting = None if desk.is_limited else health.waiting
    return JournalState(round((time.time() - health.lag) * 1000), health.lag, waiting, faults)


async def _measured(desk: Desk, boards: Sequence[str]) -> tuple[Measured | None, str]:
    """Measure the journal in a process that reads the past. On failure, return the reason."""
    past = desk.live.past
    assert past is not None, "there is a journal"  # noqa: S101
    try:
        given = list(boards) if desk.is_limited else None
        return await past.run(desk.visit.client.network, measure_journal, given), ""
    except ProblemError as problem:
        return None, problem.detail
    except StoreUnavailableError:
        return None, "the journal does not answer"


async def _processes(desk: Desk) -> list[ServerProcess]:
    client, names = desk.live.client, SystemKeys(desk.live.settings.key_prefix)
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
    """Say how much memory each server of the store takes, and when its memory will be full."""
    looks = await look_at_memory(desk.live.client, desk.live.settings.key_prefix)
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


PAGE: Final = AdminPage(path="health", name="health", show=show)
