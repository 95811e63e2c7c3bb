"""`idle-viewers`: memory and CPU time of a viewer whose board does not change, compared with peers."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench.broadcasters import Broadcaster, started_nchan
from bench.nchan import find_nchan
from bench.processes import BenchError, Server, module_server
from bench.swarm import Programs, built, need_files, not_built, swarming
from bench.table import Report, Row, Scale
from bench.watched import PATH, fill_top, settle, watched_board

_GOAL: Final = 2.3  # KB per viewer, of 1,024 bytes each
_CPU_GOAL: Final = 2.3  # microseconds per viewer and second, as Centrifugo PRO states for itself
_FIRST: Final = 500  # viewers that connect first, so that memory that is allocated only once does not count
_WORK: Final = "idle-viewers: {:,} viewers"


class _Idle(msgspec.Struct, frozen=True):
    """Resident bytes of a server before and after viewers connected, and then its CPU seconds per second."""

    before: int
    after: int
    viewers: int
    cpu: float

    @property
    def each(self) -> float:
        return (self.after - self.before) / self.viewers / 1024

    @property
    def microseconds(self) -> float:
        """CPU microseconds per viewer and second. They include everything else that the server does."""
        return self.cpu / (self.viewers + _FIRST) * 1e6


def idle_viewers(scale: Scale, report: Report) -> list[Row]:
    """Measure the resident memory of the server per viewer, beyond the first 500 viewers.

    Each viewer received only its first sync. Bytes vary less than times, so one round is enough. Kernel memory for
    sockets is not included, because it is the same for all servers. Peers hold as many viewers and send nothing. Our
    viewers receive `alive` every 5 seconds, and `ViewerReaper` checks each of them once in 20 seconds. So CPU time is
    counted for 20 seconds.
    """
    need_files(scale.idle_viewers + _FIRST)
    with ExitStack() as stack:
        programs = stack.enter_context(built())
        if programs is None:
            return not_built("idle-viewers")
        report("ours")
        ours = _measure(programs, _ours(), scale, first=True, seconds=scale.idle_watch)
        report("Starlette")
        plain = _measure(programs, _plain(), scale)
        found = find_nchan()
        report("Nchan")
        nchan = None if found is None else _measure(programs, started_nchan(*found), scale)
    return _rows(scale, ours, plain, nchan)


def _measure(
    programs: Programs,
    starting: AbstractContextManager[Broadcaster],
    scale: Scale,
    *,
    first: bool = False,
    seconds: float = 0.1,
) -> _Idle:
    with starting as held, swarming(programs, held.server, held.path) as swarm:
        swarm.connect(_FIRST, first=first)
        settle()
        before = resident(held.server)
        opened = swarm.connect(scale.idle_viewers, first=first)
        settle()
        if opened.lost:
            raise BenchError(f"{opened.lost:,} viewers were disconnected")
        after = resident(held.server)
        delivery = swarm.measure(seconds, [held.server])
        return _Idle(before, after, scale.idle_viewers, delivery.cpu[0] / delivery.seconds)


def resident(server: Server) -> int:
    """Return the resident bytes of a process, counted page by page."""
    rollup = Path(f"/proc/{server.pid}/smaps_rollup").read_text(encoding="ascii")
    line = next(line for line in rollup.splitlines() if line.startswith("Rss:"))
    return int(line.split()[1]) * 1024


@contextmanager
def _ours() -> Iterator[Broadcaster]:
    with ExitStack() as stack:
        board = watched_board(stack)
        fill_top(board)
        yield Broadcaster(board.server, PATH)


@contextmanager
def _plain() -> Iterator[Broadcaster]:
    with module_server("bench.queues", "0", "0") as server:
        yield Broadcaster(server)


def _rows(scale: Scale, ours: _Idle, plain: _Idle, nchan: _Idle | None) -> list[Row]:
    work = _WORK.format(scale.idle_viewers)
    measured = f"{ours.each:.1f} KB per viewer"
    return [
        Row(
            work=work,
            measured=measured,
            against=f"the goal: {_GOAL} KB",
            ratio=ours.each / _GOAL,
            goal=f"≤ {_GOAL} KB",
            figures={"ours": ours, "starlette": plain, "nchan": nchan},
        ),
        Row(
            work=f"{work}: CPU time of the server",
            measured=f"{ours.microseconds:.2f} µs per viewer and second",
            against=f"the goal: {_CPU_GOAL} µs",
            ratio=ours.microseconds / _CPU_GOAL,
            goal=f"≤ {_CPU_GOAL} µs",
        ),
        Row(
            work=f"{work}, against Starlette",
            measured=measured,
            against=f"endpoint with a queue: {plain.each:.1f} KB",
            ratio=ours.each / plain.each,
        ),
        Row(work=f"{work}, against nchan", measured="not measured: nginx with its module nchan is not installed")
        if nchan is None
        else Row(
            work=f"{work}, against nchan",
            measured=measured,
            against=f"Nchan, one worker: {nchan.each:.1f} KB",
            ratio=ours.each / nchan.each,
        ),
    ]
