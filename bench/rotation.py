"""`rotation`: the time of a step while a large slot leaves the window, and the delay of another board's writer."""

import asyncio
import hashlib
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import redis
from redis.asyncio import Redis

from bench.processes import BenchError, running_store, start_module, stop
from bench.table import Report, Row, Scale, median_ratio, medians, of_round, quantile
from live.domain.board_file import make_board
from live.domain.choices import Choices
from live.domain.event import make_entry
from live.settings import load_settings
from live.store.board.requests import SCRIPTS
from live.store.board.rotation import BoardRotator, Rotation
from live.store.board.state import BoardState
from live.store.board.write.writer import BoardWriter
from live.store.connection.client import connect

_BATCH: Final = 3_000
_BEGIN: Final = 1_700_000_000_000  # milliseconds; the start of the filled slot
_LATER: Final = _BEGIN + 26 * 3_600_000  # a time at which that slot has left a 24-hour window
_DEADLINE: Final = 120.0


class TimedRotator(BoardRotator):
    """A rotator that times each step of the rotation."""

    def __init__(self, state: BoardState) -> None:
        super().__init__(state)
        self.steps: list[float] = []
        self.drained = asyncio.Event()

    async def rotate(self) -> float | None:
        """Take one step, timed until the store has fsynced it. Return what `BoardRotator.rotate` returns."""
        started = time.perf_counter()
        wait = await super().rotate()
        if wait is None:
            self.steps.append(time.perf_counter() - started)
        else:
            self.drained.set()
        return wait


def rotation(scale: Scale, report: Report) -> list[Row]:
    """Rotate a slot at the server's pace, next to a writer that adds one event at a time to another board.

    A step is timed from the call to the answer, with fsync and everything that the store does in between. The
    store's SLOWLOG times the script alone. The writer times its adds, first without rotation, then during it. Each
    round fills and empties a new store; the figures are medians of the rounds.
    """
    rounds = []
    for number in range(1, scale.rounds + 1):
        with running_store() as store:
            url = f"unix://{store.address}"
            rounds.append(asyncio.run(_rotate(url, scale, of_round(report, number))))
    mid = medians(rounds)
    return [
        Row(
            work=f"rotation of {scale.many_members:,} members: a step",
            measured=_times(mid, "step"),
            against=f"the script alone: {_times(mid, 'script')}",
            goal="p99 ≤ 5 ms",
            figures={"medians": mid, "rounds": rounds},
        ),
        Row(
            work="rotation: the whole slot",
            measured=f"{mid['total']:.1f} s, of which {mid['steps']:,.0f} steps took {mid['in_steps']:.1f} s",
            against=f"{mid['bytes_a_member']:.0f} bytes a member in ranking and slot",
        ),
        Row(
            work="rotation: an add to another board meanwhile",
            measured=_times(mid, "add"),
            against=f"idle: {_times(mid, 'idle_add')}",
            ratio=median_ratio(rounds, ("add_p99",), ("idle_add_p99",)),
            goal="p99 ≤ 2.00 x",
        ),
    ]


async def _rotate(url: str, scale: Scale, report: Report) -> dict[str, float]:
    settings = load_settings(store=url)  # this reads the environment, so you can try values of LIVE_ROTATION_STEP
    client = connect(url, settings)
    state = BoardState(client, make_board(Choices(id="posts", clock="event")), settings)
    writer, rotator = BoardWriter(state), TimedRotator(state)
    try:
        before = await _used_memory(client)
        await _fill(writer, scale.many_members, report)
        bytes_a_member = (await _used_memory(client) - before) / scale.many_members
        report("adds while nothing rotates")
        with _writer(url) as idle_adds:
            await asyncio.sleep(scale.idle_seconds)
        await client.config_set("slowlog-max-len", 1_000_000)
        await client.config_set("slowlog-log-slower-than", 0)
        await writer.add([make_entry("the-clock", 1, _LATER)])
        report("rotating")
        started = time.perf_counter()
        with _writer(url) as adds:
            await _drain(rotator, 30)
            total = time.perf_counter() - started
        left = await client.zcard(state.keys.ranking)
        if left != 1:
            raise BenchError(f"{left:,} members are left after the rotation, instead of the one that is live")
        return {
            "bytes_a_member": bytes_a_member, "total": total,
            "steps": len(rotator.steps), "in_steps": sum(rotator.steps),
            **_quantiles("step", rotator.steps), **_quantiles("script", _script_times(url)),
            **_quantiles("idle_add", idle_adds), **_quantiles("add", adds),
        }  # fmt: skip
    finally:
        await client.aclose()


async def _fill(writer: BoardWriter, members: int, report: Report) -> None:
    for first in range(0, members, _BATCH):
        report(f"filling: {first:,} members")
        names = (f"member-{number:07d}" for number in range(first, min(first + _BATCH, members)))
        await writer.add([make_entry(name, 1 + number % 9, _BEGIN) for number, name in enumerate(names)])


async def _drain(rotator: TimedRotator, interval: float) -> None:
    rotation = Rotation(interval)
    rotation.add(rotator)
    rotating = asyncio.create_task(rotation.run())
    drained = asyncio.create_task(rotator.drained.wait())
    try:
        async with asyncio.timeout(_DEADLINE):
            await asyncio.wait({rotating, drained}, return_when=asyncio.FIRST_COMPLETED)
        if rotating.done():
            rotating.result()
    finally:
        rotating.cancel()
        drained.cancel()
        await asyncio.gather(rotating, drained, return_exceptions=True)


@contextmanager
def _writer(url: str) -> Iterator[list[float]]:
    """Run a process that adds events while in the context. Afterwards, the list holds its times."""
    times: list[float] = []
    process = start_module("bench.adds", url, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield times
        output, _ = process.communicate(timeout=_DEADLINE)
        if process.returncode:
            raise BenchError("the writer failed; see its output above")
        times += msgspec.json.decode(output, type=list[float])
    finally:
        stop(process)


async def _used_memory(client: Redis) -> int:
    info: dict[str, Any] = await client.info("memory")
    return int(info["used_memory"])


def _script_times(url: str) -> list[float]:
    """Read from the SLOWLOG of a store how many seconds each call of the rotation script took."""
    script = hashlib.sha1(SCRIPTS.rotate.source.encode(), usedforsecurity=False).hexdigest().encode()
    with redis.Redis.from_url(url) as client:  # a connection without deadlines, because the answer is long
        entries: list[dict[str, Any]] = client.slowlog_get(-1)
    times = [entry["duration"] / 1e6 for entry in entries if script in entry["command"].split()]
    if not times:
        raise BenchError("the store's SLOWLOG holds no call of the rotation script")
    return times


def _quantiles(name: str, seconds: Sequence[float]) -> dict[str, float]:
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {f"{name}_{at}": quantile(seconds, share) * 1000 for at, share in shares.items()}


def _times(figures: Mapping[str, float], name: str) -> str:
    return ", ".join(f"{at} {figures[f'{name}_{at}']:.2f}" for at in ("p50", "p99", "max")) + " ms"
