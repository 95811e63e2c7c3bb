"""`idle-viewers`: memory of a viewer to whom nothing is sent, against peers."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench.broadcasters import Broadcaster, started_nchan
from bench.nchan import find_nchan
from bench.processes import BenchError, Server, module_server
from bench.swarm import Programs, built, need_files, not_built, swarming
from bench.table import Row, Scale, Tell
from bench.watched import PATH, fill_top, settle, watched_board

_GOAL: Final = 5  # KB, of 1,024 bytes
_FIRST: Final = 500  # viewers that are there before: what is allocated once is not for each
_WORK: Final = "idle-viewers: {:,} viewers"


class _Memory(msgspec.Struct, frozen=True):
    """Resident bytes of a server before and after so many viewers came."""

    before: int
    after: int
    viewers: int

    @property
    def each(self) -> float:
        """KB a viewer."""
        return (self.after - self.before) / self.viewers / 1024


def idle_viewers(scale: Scale, tell: Tell) -> list[Row]:
    """Resident memory of the server process for each viewer who came after the first 500 and had a sync, but no more.

    It is a count of bytes and no time, so once is enough. The kernel's memory for the sockets is not in it; that is the
    same for all. Peers hold as many viewers, to whom nothing was ever sent.
    """
    need_files(scale.idle_viewers + _FIRST)
    with ExitStack() as stack:
        programs = stack.enter_context(built())
        if programs is None:
            return not_built("idle-viewers")
        tell("ours")
        ours = _measure(programs, _ours(), scale, first=True)
        tell("Starlette")
        plain = _measure(programs, _plain(), scale)
        found = find_nchan()
        tell("Nchan")
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
            raise BenchError(f"{opened.lost:,} viewers were let go")
        return _Memory(before, _resident(held.server), scale.idle_viewers)


def _resident(server: Server) -> int:
    """Bytes of a process that are in memory, counted page by page."""
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
    measured = f"{ours.each:.1f} KB a viewer"
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
            against=f"an endpoint with a queue: {plain.each:.1f} KB",
            ratio=ours.each / plain.each,
        ),
        Row(work=f"{work}, against nchan", measured="not measured: there is no nginx with its module nchan")
        if nchan is None
        else Row(
            work=f"{work}, against nchan",
            measured=measured,
            against=f"Nchan, one worker: {nchan.each:.1f} KB",
            ratio=ours.each / nchan.each,
        ),
    ]
