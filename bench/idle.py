"""`idle-viewers`: memory of a viewer that receives nothing, compared with peers."""

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

_GOAL: Final = 5  # KB of 1,024 bytes
_FIRST: Final = 500  # viewers connected first: memory that is allocated only once must not count
_WORK: Final = "idle-viewers: {:,} viewers"


class _Memory(msgspec.Struct, frozen=True):
    """Resident bytes of a server before and after viewers connected."""

    before: int
    after: int
    viewers: int

    @property
    def each(self) -> float:
        """KB per viewer."""
        return (self.after - self.before) / self.viewers / 1024


def idle_viewers(scale: Scale, report: Report) -> list[Row]:
    """Resident memory of the server per viewer, after the first 500, each of which received only its first sync.

    Bytes do not vary like times, so one round is enough. Kernel memory for sockets is not included; it is the same for
    all servers. Peers hold as many viewers and send nothing.
    """
    need_files(scale.idle_viewers + _FIRST)
    with ExitStack() as stack:
        programs = stack.enter_context(built())
        if programs is None:
            return not_built("idle-viewers")
        report("ours")
        ours = _measure(programs, _ours(), scale, first=True)
        report("Starlette")
        plain = _measure(programs, _plain(), scale)
        found = find_nchan()
        report("Nchan")
        nchan = None if found is None else _measure(programs, started_nchan(*found), scale)
    return _rows(scale, ours, plain, nchan)


def _measure(
    programs: Programs, starting: AbstractContextManager[Broadcaster], scale: Scale, *, first: bool = False
) -> _Memory:
    with starting as held, swarming(programs, held.server, held.path) as swarm:
        swarm.connect(_FIRST, first=first)
        settle()
        before = _resident(held.server)
        opened = swarm.connect(scale.idle_viewers, first=first)
        settle()
        if opened.lost:
            raise BenchError(f"{opened.lost:,} viewers were disconnected")
        return _Memory(before, _resident(held.server), scale.idle_viewers)


def _resident(server: Server) -> int:
    """Resident bytes of a process, counted page by page."""
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


def _rows(scale: Scale, ours: _Memory, plain: _Memory, nchan: _Memory | None) -> list[Row]:
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
