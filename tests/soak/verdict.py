"""The end of a soak: the acknowledged events, the store and the journal must agree, and all commands must pass."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import func, select

from live.domain.board import Board
from live.domain.board_file import load_boards
from live.journal.log.reader import contents_of
from live.journal.log.timelines import find_timeline
from live.journal.schema import LIFE
from live.journal.state.ranking import ranked_at
from live.journal.state.snapshot import Snapshot
from live.store.board.journal_stream import journals, read_streams
from live.store.board.ledger import Ledger
from live.store.connection.client import connect, required
from tests.harness.waiting import eventually
from tests.soak.load import Acknowledged
from tests.soak.machine import BOARDS, Machine

_DRAINED = 60.0  # seconds within which the drainer must move everything
_SHOWN = 5  # the number of members that a report names
_Rows = list[tuple[str, int]]


async def verdict(machine: Machine, known: Acknowledged) -> list[str]:
    """Return a sentence for each thing that is wrong."""
    settings = machine.settings
    client = connect(settings.store, settings)

    async def drained() -> bool:
        names = await journals(client)
        return all(not stream.entries for stream in required(await read_streams(client, names)))

    try:
        await eventually(drained, _DRAINED)
        now = int((await client.time())[0]) * 1000
        faults = []
        with machine.open_database() as database:
            for board in load_boards(BOARDS).by_id.values():
                ledger = Ledger(client, board, settings)
                await ledger.state.open()
                timeline = database.work(
                    lambda sql, board=board, ledger=ledger: find_timeline(  # type: ignore[misc]
                        sql, board.id, ledger.state.epoch or ""
                    )
                )
                if timeline is None:
                    faults.append(f"{board.id}: the journal does not know the board")
                    continue
                data = database.work(lambda sql, timeline=timeline: contents_of(sql, timeline))  # type: ignore[misc]
                faults += await _board_faults(ledger, board, data, now, known.scores(board.id))
            again = database.work(lambda sql: sql.scalar(select(func.count()).where(LIFE.c.parent == LIFE.c.epoch)))
        if again:
            faults.append(f"entries of the journal were missing {again} times")
    finally:
        await client.aclose()
    return faults + await asyncio.to_thread(lambda: list(_command_faults(machine)))


async def _board_faults(ledger: Ledger, board: Board, data: Snapshot, now: int, scores: Mapping[str, int]) -> list[str]:
    """The differences between store, journal and acknowledged events of one board, in each of its periods."""
    periods: list[int | None] = [*sorted(data.slots, reverse=True)] if board.window.tables else [None]
    faults, sums = [], dict[str, int]()
    clock = int(await ledger.state.call("HGET", ledger.state.keys.meta, "clock") or 0) // 1000
    now = max(now, clock)  # the clock of the store may have been ahead
    for period in periods:
        page = await ledger.reader.read(100_000, period=period)
        held = [(record.member, record.score) for record in page.records]
        found = ranked_at(board, data, now, period)
        folded = [(member, found.scores[member]) for member in found.members]
        where = board.id if period is None else f"{board.id}, period {period}"
        if held != folded:
            faults.append(f"{where}: the store and the journal differ: {_difference(held, folded)}")
        for member, score in held:
            sums[member] = sums.get(member, 0) + score
    wanted, rows = _capped(board, scores), sorted(sums.items())
    difference = _difference(rows, sorted(wanted.items()))
    # If several members share the lowest score that stays, the order of arrival decides which of them are dropped.
    if board.cap is not None:
        right = sorted(sums.values()) == sorted(wanted.values()) and all(scores.get(key) == sums[key] for key in sums)
    else:
        right = rows == sorted(wanted.items())
    if not right:
        faults.append(f"{board.id}: the store lacks acknowledged events: {difference}")
    return faults


def _capped(board: Board, scores: Mapping[str, int]) -> dict[str, int]:
    ordered = sorted(scores.items(), key=lambda item: -item[1])
    return dict(ordered[: board.cap])


def _difference(one: _Rows, other: _Rows) -> str:
    """The entries in only one of two lists, or the first place at which they differ."""
    only, missing = [row for row in one if row not in other], [row for row in other if row not in one]
    if only or missing:
        return f"{only[:_SHOWN]} against {missing[:_SHOWN]} ({len(only)} and {len(missing)} in all)"
    place = next((number for number, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), 0)
    return f"from place {place} on, {one[place : place + _SHOWN]} against {other[place : place + _SHOWN]}"


def _command_faults(machine: Machine) -> Iterator[str]:
    """Yield a sentence for each command that reports a problem."""
    for words in (("check",), ("journal", "--verify")):
        done: Any = machine.command(*words)
        if done.returncode:
            yield f"live {' '.join(words)} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}"
